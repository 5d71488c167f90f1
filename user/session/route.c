/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.c - which connection a stream goes to.
 *
 * A stream waits in its route until an upstream of the route takes it. The
 * order of choice: a connection that this client already uses, one from the
 * executor's idle pool, one that is being set up, a new one. The pool is what
 * makes a small result cheap: no dial, no handshake. One connection is dialled
 * ahead when the pool of an executor in use runs empty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "session/state.h"

#define IDLE_MAX 32   /* per executor */
#define AHEAD_AFTER 2 /* streams before it is worth it */
#define LARGE_MEMORY (60 * NSEC_PER_SEC)
#define REDIAL_AFTER (1 * NSEC_PER_SEC)

/* ----------------------------------------------------------------- executors */

static struct executor *executor_find(struct session *ss, const struct ticket *t)
{
	struct list *pos, *tmp;
	struct executor *x;

	list_for_each_safe (pos, tmp, &ss->executors) {
		x = list_entry(pos, struct executor, link);
		if (x->port == t->port && !strcasecmp(x->host, t->host))
			return executor_get(x);
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	x->session = ss;
	x->number = session_number(ss);
	x->used_ns = ss->now;
	memcpy(x->host, t->host, sizeof(x->host));
	x->port = t->port;
	list_init(&x->idle);
	list_add_head(&ss->executors, &x->link);
	return executor_get(x);
}

struct executor *executor_get(struct executor *x)
{
	x->refs++;
	return x;
}

void executor_put(struct executor *x)
{
	assert(x->refs);
	if (--x->refs)
		return;
	assert(list_empty(&x->idle));
	list_del(&x->link);
	free(x);
}

void executor_idle_add(struct upstream *u)
{
	struct executor *x = u->executor;

	if (x->n_idle >= IDLE_MAX || x->session->draining) {
		upstream_close(u, H2_NO_ERROR);
		return;
	}
	list_add_head(&x->idle, &u->idle);
	x->n_idle++;
	STAT_ADD(x->session, upstreams_idle, 1);
}

void executor_idle_remove(struct upstream *u)
{
	if (list_empty(&u->idle))
		return;
	list_del(&u->idle);
	u->executor->n_idle--;
	STAT_SUB(u->session, upstreams_idle, 1);
}

void executors_close_idle(struct session *ss)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &ss->executors) {
		struct executor *x = list_entry(pos, struct executor, link);

		/* The references of closed ones are kept until they are freed. */
		while (!list_empty(&x->idle))
			upstream_close(list_first(&x->idle, struct upstream, idle), H2_NO_ERROR);
	}
	list_for_each_safe (pos, tmp, &ss->ahead)
		upstream_close(list_entry(pos, struct upstream, link), H2_NO_ERROR);
}

static void dial_ahead(struct executor *x)
{
	if (!x->n_idle && !x->n_ahead && x->used_count >= AHEAD_AFTER && !x->session->draining)
		(void)upstream_dial(x, NULL);
}

/* -------------------------------------------------------------------- routes */

void route_get(struct route *r)
{
	r->refs++;
}

void route_put(struct route *r)
{
	assert(r->refs);
	if (--r->refs)
		return;
	assert(list_empty(&r->waiting) && list_empty(&r->upstreams));
	list_del(&r->link);
	executor_put(r->executor);
	free(r);
}

/* With a reference for the caller; takes over the one on x. */
static struct route *route_find(struct client *c, struct executor *x)
{
	struct list *pos, *tmp;
	struct route *r;

	list_for_each_safe (pos, tmp, &c->routes) {
		r = list_entry(pos, struct route, link);
		if (r->executor == x) {
			executor_put(x);
			route_get(r);
			return r;
		}
	}
	r = calloc(1, sizeof(*r));
	if (!r) {
		executor_put(x);
		return NULL;
	}
	r->client = c;
	r->executor = x;
	list_init(&r->upstreams);
	list_init(&r->waiting);
	list_add_tail(&c->routes, &r->link);
	route_get(r);
	return r;
}

void route_stream(struct stream *s)
{
	struct session *ss = s->client->session;
	struct executor *x = executor_find(ss, &s->ticket);

	if (x) {
		x->used_ns = ss->now;
		x->used_count++;
		s->route = route_find(s->client, x);
	}
	if (!s->route) {
		answer_status(s, GRPC_RESOURCE_EXHAUSTED, END_PROXY, "out of memory");
		return;
	}
	s->sent_ns = ss->now;
	stream_set_state(s, STREAM_WAITING);
	list_add_tail(&s->route->waiting, &s->wait);
	route_pump(s->route);
}

void route_retry(struct stream *s)
{
	STAT_ADD(s->client->session, retries, 1);
	s->fresh_only = true;
	s->request_ended = false;
	s->request_sent = 0;
	stream_set_state(s, STREAM_WAITING);
	list_add_tail(&s->route->waiting, &s->wait);
}

/*
 * One from the pool that takes s, or NULL. An executor whose results have lately been large gets
 * connections that are new: only those have the client's stream ids and can be
 * spliced. For a small result the pool is worth more.
 */
static struct upstream *idle_upstream(struct executor *x, const struct stream *s)
{
	struct session *ss = x->session;
	bool large = ss->env.splice && x->large_ns && ss->now < x->large_ns + LARGE_MEMORY;
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &x->idle) {
		struct upstream *u = list_entry(pos, struct upstream, idle);

		if (upstream_takes(u, s) && (!large || !u->last_id))
			return u;
	}
	return NULL;
}

/* A connection for s, now or soon. *ret_wait: one is on its way. */
static struct upstream *choose(struct route *r, const struct stream *s, bool *ret_wait)
{
	struct executor *x = r->executor;
	struct list *pos, *tmp;
	struct upstream *u;

	*ret_wait = false;
	list_for_each_safe (pos, tmp, &r->upstreams) {
		u = list_entry(pos, struct upstream, link);
		if (upstream_takes(u, s) && !(s->fresh_only && u->reused))
			return u;
		*ret_wait |= upstream_pending(u);
	}
	u = s->fresh_only ? NULL : idle_upstream(x, s);
	if (u) {
		executor_idle_remove(u);
		upstream_bind(u, r);
		dial_ahead(x);
		return u;
	}
	return NULL;
}

bool route_served(const struct route *r)
{
	for (struct list *p = r->upstreams.next; p != &r->upstreams; p = p->next) {
		if (list_entry(p, struct upstream, link)->state < UPSTREAM_GOAWAY)
			return true;
	}
	return false;
}

void route_pump(struct route *r)
{
	const struct client *c = r->client;

	if (c->state == CLIENT_CLOSED || c->closing || c->eof)
		return; /* its streams are being closed */
	route_get(r);
	while (!list_empty(&r->waiting)) {
		struct stream *s = list_first(&r->waiting, struct stream, wait);
		bool wait;
		struct upstream *u = choose(r, s, &wait);

		if (u) {
			list_del(&s->wait);
			upstream_send(u, s);
			continue;
		}
		if (wait || r->n_upstreams >= ROUTE_UPSTREAMS_MAX)
			break;
		/* Others serve this client: they are waited for rather than a dead address dialled. */
		if (r->failed_ns && route_served(r) &&
		    r->client->session->now < r->failed_ns + REDIAL_AFTER)
			break;
		if (!upstream_dial(r->executor, r)) {
			list_del(&s->wait);
			answer_status(s, GRPC_RESOURCE_EXHAUSTED, END_PROXY,
				      "connect: no memory or descriptor left for executor %s:%u",
				      s->ticket.host, s->ticket.port);
			continue;
		}
		dial_ahead(r->executor);
		break;
	}
	route_put(r);
}
