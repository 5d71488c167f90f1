/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subject.c - the real session behind the table that the world drives.
 */
#include "subject.h"

static void *create(const struct env *env)
{
	return session_new(env);
}

static void take(void *s, struct port *port)
{
	session_accept(s, port);
}

static void run(void *s)
{
	session_run(s);
}

static uint64_t next_deadline(const void *s)
{
	return session_next_deadline(s);
}

static void drain(void *s)
{
	session_drain(s);
}

static bool idle(const void *s)
{
	return session_idle(s);
}

static const void *stats(const void *s)
{
	return session_stats(s);
}

static void destroy(void *s)
{
	session_free(s);
}

const struct subject_ops subject_session = {
	.create = create,
	.accept = take,
	.run = run,
	.next_deadline = next_deadline,
	.drain = drain,
	.idle = idle,
	.stats = stats,
	.destroy = destroy,
};
