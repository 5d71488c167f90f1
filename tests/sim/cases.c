/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <stdarg.h>
#include <stdio.h>

struct exec *plain_exec(struct scene *s, const char *name)
{
	struct exec_plan p = exec_plan_default;

	p.name = name;
	return exec_new(s, &p);
}

struct caller *plain_client(struct scene *s)
{
	return caller_new(s, &caller_plan_default);
}

struct call *ask(struct scene *s, struct caller *c, const char *host, uint64_t total)
{
	struct call *call = scene_call(s, host, 50051, total);

	call->must = MUST_OK;
	caller_add(c, call);
	return call;
}

struct call *ask_fail(struct scene *s, struct caller *c, const char *host, enum answer_kind kind,
		      uint64_t cut, enum must must, int status)
{
	struct call *call = scene_call(s, host, 50051, 2 * cut + 100000);

	call->answer[0].kind = kind;
	call->answer[0].cut = cut;
	call->answer[0].status = status;
	call->must = must;
	call->must_status = status;
	caller_add(c, call);
	return call;
}

void run_to_end(struct scene *s)
{
	scene_run(s, 3600 * SEC);
	scene_finish(s);
}

void expect(struct scene *s, bool ok, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	if (ok)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	world_fail(s->w, "%s", text);
}

struct wait_bytes {
	const struct call *call;
	uint64_t n;
};

static bool has_bytes(void *arg)
{
	const struct wait_bytes *w = arg;

	return w->call->bytes >= w->n;
}

bool until_bytes(struct scene *s, struct call *c, uint64_t n)
{
	struct wait_bytes w = { c, n };

	return scene_until(s, 600 * SEC, has_bytes, &w, "bytes do not come");
}

static bool is_over(void *arg)
{
	return call_over(arg);
}

bool until_over(struct scene *s, struct call *c, uint64_t ns)
{
	return scene_until(s, ns, is_over, c, "a call does not end");
}

void expect_after(struct scene *s, const struct call *c, uint64_t ns, uint64_t slack_ns)
{
	uint64_t took = c->end_ns - c->sent_ns;

	expect(s, took >= ns && took <= ns + slack_ns,
	       "call %u ended after %.3f s, %.3f to %.3f s were due", c->key, (double)took / 1e9,
	       (double)ns / 1e9, (double)(ns + slack_ns) / 1e9);
}
