/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c - one worker's whole: birth, the turn of the loop, drain, end.
 *
 * A turn: callbacks of ports and dials change state and leave output behind;
 * session_run() fires due timers, writes what is dirty until nothing is, and then
 * frees what has died. Because nothing is freed before that, a callback may end
 * any object, its own included, and still return through code that knows it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/state.h"

struct session *session_new(const struct env *env)
{
	struct session *s = calloc(1, sizeof(*s));

	assert(env->relay);
	if (!s)
		return NULL;
	s->scratch = malloc(SCRATCH_SIZE);
	if (!s->scratch) {
		free(s);
		return NULL;
	}
	s->env = *env;
	timers_init(&s->timers);
	chunk_pool_init(&s->pool);
	list_init(&s->clients);
	list_init(&s->executors);
	list_init(&s->dirty_clients);
	list_init(&s->dirty_upstreams);
	list_init(&s->dead_clients);
	list_init(&s->dead_upstreams);
	list_init(&s->dead_streams);
	list_init(&s->ahead);
	s->now = env->ops->now(env->ctx);
	return s;
}

static void bury(struct session *s)
{
	while (!list_empty(&s->dead_streams)) {
		struct stream *st = list_first(&s->dead_streams, struct stream, link);

		list_del(&st->link);
		free(st);
	}
	while (!list_empty(&s->dead_upstreams)) {
		struct upstream *u = list_first(&s->dead_upstreams, struct upstream, link);

		list_del(&u->link);
		upstream_free(u);
	}
	while (!list_empty(&s->dead_clients)) {
		struct client *c = list_first(&s->dead_clients, struct client, link);

		list_del(&c->link);
		client_free(c);
	}
}

void session_free(struct session *s)
{
	if (!s)
		return;
	s->draining = true;
	while (!list_empty(&s->clients)) {
		struct client *c = list_first(&s->clients, struct client, link);

		client_note(c, "the proxy was stopped", 0);
		client_close(c, true, END_SHUTDOWN);
	}
	executors_close_idle(s);
	bury(s);
	assert(list_empty(&s->executors));
	timers_free(&s->timers);
	chunk_pool_free(&s->pool);
	free(s->scratch);
	free(s);
}

void session_accept(struct session *s, struct port *port)
{
	s->now = s->env.ops->now(s->env.ctx);
	client_accept(s, port);
}

void session_refused(struct session *s, enum budget_id why)
{
	STAT_ADD(s, clients_refused, 1);
	session_exhausted(s, why);
}

void session_exhausted(struct session *s, enum budget_id id)
{
	STAT_ADD(s, budget_exhausted[id], 1);
}

bool session_full(const struct session *s)
{
	return s->inflight + s->requests >= s->env.inflight_share + BUDGET_MEMORY_SLACK;
}

void session_run(struct session *s)
{
	s->now = s->env.ops->now(s->env.ctx);
	timers_run(&s->timers, s->now);
	while (!list_empty(&s->dirty_clients) || !list_empty(&s->dirty_upstreams)) {
		/* Requests first: an executor can work while we talk to clients. */
		if (!list_empty(&s->dirty_upstreams))
			upstream_flush(list_first(&s->dirty_upstreams, struct upstream, dirty));
		else
			client_flush(list_first(&s->dirty_clients, struct client, dirty));
	}
	bury(s);
}

uint64_t session_next_deadline(const struct session *s)
{
	return timers_next(&s->timers);
}

void session_drain(struct session *s)
{
	struct list *pos, *tmp;

	if (s->draining)
		return;
	s->draining = true;
	s->now = s->env.ops->now(s->env.ctx);
	session_event(s, EVENT_DRAIN, NULL, 0, "draining");
	list_for_each_safe (pos, tmp, &s->clients)
		client_drain(list_entry(pos, struct client, link));
	executors_close_idle(s);
}

bool session_idle(const struct session *s)
{
	return list_empty(&s->clients);
}

const struct session_stats *session_stats(const struct session *s)
{
	return &s->stats;
}

void session_each_stream(const struct session *s,
			 void (*fn)(void *arg, const struct stream_view *v), void *arg)
{
	for (struct list *c = s->clients.next; c != &s->clients; c = c->next) {
		const struct client *cl = list_entry(c, struct client, link);

		for (struct list *p = cl->streams.next; p != &cl->streams; p = p->next) {
			struct stream_view v;

			stream_view(list_entry(p, struct stream, link), &v);
			fn(arg, &v);
		}
	}
}

void session_count_waits(struct session *s)
{
	uint64_t waiting[STREAM_WAITS] = { 0 }, stuck[STREAM_WAITS] = { 0 };

	for (struct list *c = s->clients.next; c != &s->clients; c = c->next) {
		const struct client *cl = list_entry(c, struct client, link);

		for (struct list *p = cl->streams.next; p != &cl->streams; p = p->next) {
			bool is_stuck;
			enum stream_wait w =
				stream_waits(list_entry(p, struct stream, link), &is_stuck);

			waiting[w]++;
			stuck[w] += is_stuck;
		}
	}
	for (unsigned w = 0; w < STREAM_WAITS; w++) {
		__atomic_store_n(&s->stats.waiting[w], waiting[w], __ATOMIC_RELAXED);
		__atomic_store_n(&s->stats.stuck[w], stuck[w], __ATOMIC_RELAXED);
	}
}

void session_each_client(const struct session *s,
			 void (*fn)(void *arg, const struct client_view *v), void *arg)
{
	for (struct list *p = s->clients.next; p != &s->clients; p = p->next) {
		struct client_view v;

		client_view(list_entry(p, struct client, link), &v);
		fn(arg, &v);
	}
}

void session_each_executor(const struct session *s,
			   void (*fn)(void *arg, const struct executor_view *v), void *arg)
{
	for (struct list *p = s->executors.next; p != &s->executors; p = p->next) {
		const struct executor *x = list_entry(p, struct executor, link);
		const struct executor_view v = {
			.number = x->number,
			.host = x->host,
			.port = x->port,
			.idle = x->n_idle,
			.dialling_ahead = x->n_ahead,
			.served = x->used_count,
			.unused_ns = s->now - x->used_ns,
		};

		fn(arg, &v);
	}
}

uint32_t session_number(struct session *s)
{
	s->numbers = s->numbers == UINT32_MAX ? 1 : s->numbers + 1;
	return s->numbers;
}

void session_event(struct session *s, enum session_event_kind kind, const struct addr *peer,
		   uint32_t h2_error, const char *fmt, ...)
{
	char text[REASON_MAX];
	struct session_event e = { .kind = kind, .peer = peer, .text = text, .h2_error = h2_error };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	s->env.emit->event(s->env.emit_ctx, &e);
}
