/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upstream.c - a connection to an executor: set-up, requests, control frames, end.
 *
 * What it sends us in streams is the datapath's business (datapath/relay.c);
 * everything else of RFC 9113's client side is here. Its SETTINGS are always the
 * same, so that any client can use any connection: no push, no dynamic table, stream
 * windows of 0 that the ledger opens, and a connection window of 2^31-1 that is topped
 * up long before it runs out.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/state.h"

#define IDLE_TIMEOUT (30 * NSEC_PER_SEC) /* unused in the pool */
#define PING_TIMEOUT (10 * NSEC_PER_SEC) /* for the answer to ours */
#define TOP_UP (1u << 29)                /* bytes received before a WINDOW_UPDATE */
#define ATTEMPTS_MAX 2

static void upstream_expired(struct timer *t);
static void upstream_event(struct port *p, unsigned events);

static const char *name(const struct upstream *u, char buf[TICKET_HOST_MAX + 8])
{
	snprintf(buf, TICKET_HOST_MAX + 8, "%s:%u", u->executor->host, u->executor->port);
	return buf;
}

void upstream_arm(struct upstream *u)
{
	const struct timeouts *t = &u->session->env.config->timeouts;
	uint64_t due = UINT64_MAX;

	if (u->state == UPSTREAM_HANDSHAKE && t->handshake_ns)
		due = u->opened_ns + t->handshake_ns;
	else if (!list_empty(&u->idle))
		due = u->idle_ns + IDLE_TIMEOUT;
	if (u->ping_out)
		due = min_u64(due, u->ping_ns + PING_TIMEOUT);
	if (u->block_ns && t->handshake_ns)
		due = min_u64(due, u->block_ns + t->handshake_ns);
	if (u->promoting)
		due = min_u64(due, u->promoting_ns + SPLICE_QUIET_MAX);
	if (u->hup && u->splice)
		due = min_u64(due, u->session->now + SPLICE_HUP_RETRY);
	if (due == UINT64_MAX)
		timer_disarm(&u->session->timers, &u->timer);
	else
		(void)timer_arm(&u->session->timers, &u->timer, due);
}

/* ---------------------------------------------------------------------- dial */

static void send_preface(struct upstream *u)
{
	uint8_t *p = upstream_out(u, H2_PREFACE_LEN + H2_HEADER_LEN + 24 + 13);

	if (!p)
		return;
	memcpy(p, H2_PREFACE, H2_PREFACE_LEN);
	p += H2_PREFACE_LEN;
	h2_frame_put(p, 24, H2_SETTINGS, 0, 0);
	p += H2_HEADER_LEN;
	p += h2_put_setting(p, H2_SETTINGS_HEADER_TABLE_SIZE, 0);
	p += h2_put_setting(p, H2_SETTINGS_ENABLE_PUSH, 0);
	p += h2_put_setting(p, H2_SETTINGS_INITIAL_WINDOW_SIZE, 0);
	p += h2_put_setting(p, H2_SETTINGS_MAX_HEADER_LIST_SIZE, CLIENT_HEADER_LIST_MAX);
	h2_put_window_update(p, 0, H2_MAX_WINDOW - H2_DEFAULT_WINDOW);
}

const char *dial_end_name(enum dial_end o)
{
	static const char *const names[] = {
		[DIAL_END_CONNECTED] = "connected",      [DIAL_END_NOT_RESOLVED] = "not_resolved",
		[DIAL_END_POLICY] = "refused_by_policy", [DIAL_END_NOT_CONNECTED] = "not_connected",
		[DIAL_END_TIMED_OUT] = "timed_out",
	};

	static_assert(ARRAY_SIZE(names) == DIAL_ENDS, "a name for each");
	return names[o];
}

static void count_dial(struct upstream *u, const struct dial_result *res)
{
	struct session *s = u->session;
	enum dial_end o = DIAL_END_CONNECTED;

	if (!res->err || res->phase == DIAL_CONNECT)
		STAT_ADD(s, policy_verdicts[POLICY_ALLOW], 1);
	else if (res->phase == DIAL_POLICY)
		STAT_ADD(s, policy_verdicts[res->verdict], 1);
	if (!res->err)
		histogram_add(&s->stats.dial, s->now - u->opened_ns);
	else if (res->phase == DIAL_POLICY)
		o = DIAL_END_POLICY;
	else if (res->err == -ETIMEDOUT)
		o = DIAL_END_TIMED_OUT;
	else
		o = res->phase == DIAL_RESOLVE ? DIAL_END_NOT_RESOLVED : DIAL_END_NOT_CONNECTED;
	STAT_ADD(s, dial_ends[o], 1);
}

/* Which words and status a failed dial gets. */
static void dial_failed(struct upstream *u, const struct dial_result *res)
{
	struct session *s = u->session;
	char x[TICKET_HOST_MAX + 8];

	STAT_ADD(s, dial_failures, 1);
	if (u->route)
		u->route->failed_ns = s->now;
	name(u, x);
	if (res->phase == DIAL_POLICY) {
		/* Not whether it exists, nor what its name resolves to. */
		upstream_fail(u, GRPC_PERMISSION_DENIED, END_PROXY, H2_NO_ERROR,
			      "policy: executor %s may not be reached from here", x);
		return;
	}
	upstream_fail(u, s->env.config->unreachable_status, END_PROXY, H2_NO_ERROR,
		      "%s: executor %s: %s", res->phase == DIAL_RESOLVE ? "resolve" : "connect", x,
		      res->detail ? res->detail : strerror(-res->err));
}

static void dial_done(void *arg, struct port *port, const struct dial_result *res)
{
	struct upstream *u = arg;

	u->session->now = u->session->env.ops->now(u->session->env.ctx);
	u->dial = NULL;
	u->peer = res->addr;
	count_dial(u, res);
	if (!port) {
		dial_failed(u, res);
		return;
	}
	u->port = port;
	port->owner = u;
	port->on_event = upstream_event;
	u->state = UPSTREAM_HANDSHAKE;
	u->opened_ns = u->rx_ns = u->session->now;
	STAT_ADD(u->session, upstreams_open, 1);
	session_event(u->session, EVENT_UPSTREAM_OPEN, &u->peer, 0, "connected");
	send_preface(u);
	upstream_want(u);
	upstream_arm(u);
	if (u->route)
		route_pump(u->route);
}

struct upstream *upstream_dial(struct executor *x, struct route *r)
{
	struct session *s = x->session;
	struct upstream *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->session = s;
	u->state = UPSTREAM_DIALLING;
	u->settings = H2_SETTINGS_DEFAULT;
	u->max_streams = UINT32_MAX;
	u->send_window = H2_DEFAULT_WINDOW;
	u->dp = s->env.relay;
	u->opened_ns = s->now;
	u->timer.fire = upstream_expired;
	list_init(&u->link);
	list_init(&u->dirty);
	list_init(&u->pause);
	list_init(&u->streams);
	list_init(&u->idle);
	u->hpack = hpack_decoder_new(4096);
	if (u->hpack)
		u->dial = s->env.ops->dial(s->env.ctx, x->host, x->port,
					   s->env.config->timeouts.connect_ns, dial_done, u);
	if (!u->dial) {
		hpack_decoder_free(u->hpack);
		free(u);
		return NULL;
	}
	u->executor = executor_get(x);
	STAT_ADD(s, dials, 1);
	if (r) {
		upstream_bind(u, r);
	} else {
		x->n_ahead++;
		list_add_tail(&s->ahead, &u->link);
	}
	return u;
}

void upstream_bind(struct upstream *u, struct route *r)
{
	assert(!u->route && list_empty(&u->idle));
	if (u->last_id) {
		u->reused = true;
		STAT_ADD(u->session, upstream_reuses, 1);
	}
	u->route = r;
	route_get(r);
	r->n_upstreams++;
	list_add_tail(&r->upstreams, &u->link);
	upstream_arm(u);
}

static void unbind(struct upstream *u)
{
	struct route *r = u->route;

	u->route = NULL;
	list_del(&u->link);
	list_del(&u->pause);
	r->n_upstreams--;
	route_put(r);
}

/* ------------------------------------------------------------------- requests */

bool upstream_takes(const struct upstream *u, const struct stream *s)
{
	if (u->last_id > H2_MAX_STREAM_ID - 2 || u->broken)
		return false;
	/* Without live streams any id can be made to follow, see upstream_send(). */
	if (u->n_streams && (uint64_t)s->id + u->delta <= u->last_id)
		return false;
	if ((uint64_t)s->id + u->delta > H2_MAX_STREAM_ID)
		return false;
	if (u->state == UPSTREAM_HANDSHAKE)
		return !u->n_streams;
	return u->state == UPSTREAM_READY && u->n_streams < u->max_streams;
}

bool upstream_pending(const struct upstream *u)
{
	return u->state == UPSTREAM_DIALLING || u->state == UPSTREAM_HANDSHAKE;
}

void upstream_send(struct upstream *u, struct stream *s)
{
	uint8_t *p;

	if (!u->n_streams)
		u->delta = s->id > u->last_id ? 0 : u->last_id + 2 - s->id;
	u->last_id = s->id + u->delta;
	u->n_streams++;
	s->up = u;
	list_add_tail(&u->streams, &s->on_up);
	s->attempts++;
	s->sent_ns = s->rx_ns = u->session->now;
	s->request_window = u->settings.initial_window_size;
	s->executor_addr = u->peer;
	budget_earn(&u->budgets, BUDGET_EXECUTOR_CONTROL, BUDGET_CONTROL_EARNED);
	budget_earn(&u->budgets, BUDGET_EXECUTOR_WINDOW_UPDATE, BUDGET_WINDOW_EARNED);
	budget_earn(&u->budgets, BUDGET_EXECUTOR_RESET, BUDGET_EXECUTOR_RESET_EARNED);
	stream_set_state(s, STREAM_SENT);
	if (u->splice)
		spliced_stream_begin(s);
	else
		spliced_leave(s->client); /* two upstreams: the relay puts them in order */
	p = upstream_out(u, H2_HEADER_LEN + s->block_len);
	if (!p)
		return;
	h2_frame_put(p, s->block_len, H2_HEADERS, H2_FLAG_END_HEADERS, s->id + u->delta);
	memcpy(p + H2_HEADER_LEN, s->block, s->block_len);
	upstream_pump_request(u, s);
	stream_grant(s);
}

void upstream_pump_request(struct upstream *u, struct stream *s)
{
	uint32_t len;
	const uint8_t *msg = grpc_reader_bytes(&s->request, &len);

	while (!s->request_ended) {
		int64_t room = min_i64(s->request_window, u->send_window);
		uint32_t n = len - s->request_sent;
		bool last;
		uint8_t *p;

		if (n) {
			n = (uint32_t)min_i64(min_i64(n, H2_DEFAULT_FRAME_SIZE), max_i64(room, 0));
			if (!n)
				return; /* a WINDOW_UPDATE goes on */
		}
		last = s->client_ended && s->request_sent + n == len;
		if (!n && !last)
			return;
		p = upstream_out(u, H2_HEADER_LEN + n);
		if (!p)
			return;
		h2_frame_put(p, n, H2_DATA, last ? H2_FLAG_END_STREAM : 0, s->id + u->delta);
		if (n)
			memcpy(p + H2_HEADER_LEN, msg + s->request_sent, n);
		s->request_sent += n;
		STAT_ADD(u->session, requests_out, n);
		s->request_window -= n;
		u->send_window -= n;
		s->request_ended = last;
	}
}

static void pump_requests(struct upstream *u)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &u->streams)
		upstream_pump_request(u, list_entry(pos, struct stream, on_up));
}

/* --------------------------------------------------------------------- output */

static void upstream_dirty(struct upstream *u)
{
	if (list_empty(&u->dirty) && u->state != UPSTREAM_CLOSED)
		list_add_tail(&u->session->dirty_upstreams, &u->dirty);
}

uint8_t *upstream_out(struct upstream *u, uint32_t len)
{
	struct chunk *c = u->out;
	uint8_t *p;

	if (u->state == UPSTREAM_CLOSED || u->broken)
		return NULL;
	upstream_dirty(u);
	if (!c || chunk_room(c) < len) {
		uint32_t have = c ? chunk_len(c) : 0, cap = 2 * have + len;

		c = cap <= UPSTREAM_OUT_MAX ? chunk_get(&u->session->pool, cap) : NULL;
		if (!c) {
			u->broken = cap <= UPSTREAM_OUT_MAX ? ENOMEM : ENOBUFS;
			return NULL;
		}
		if (have)
			memcpy(c->data, u->out->data + u->out->start, have);
		c->end = have;
		chunk_put(&u->session->pool, u->out);
		u->out = c;
	}
	p = c->data + c->end;
	c->end += len;
	return p;
}

void upstream_want(struct upstream *u)
{
	unsigned mask = u->out_blocked ? PORT_WRITABLE : 0;

	if (u->splice &&
	    !u->own) /* its bytes come from the tap, its own socket only says when it ends */
		mask |= u->hup ? 0 : PORT_HANGUP;
	else if (list_empty(&u->pause))
		mask |= PORT_READABLE;
	u->port->ops->want(u->port, mask);
	if (u->splice)
		client_want(u->route->client);
}

static int write_out(struct upstream *u)
{
	while (u->out) {
		struct iovec iov = { u->out->data + u->out->start, chunk_len(u->out) };
		ssize_t n = u->port->ops->sendv(u->port, &iov, 1);

		if (n < 0)
			return (int)n;
		u->out->start += (uint32_t)n;
		if ((size_t)n < iov.iov_len)
			return -EAGAIN;
		chunk_put(&u->session->pool, u->out);
		u->out = NULL;
	}
	return 0;
}

static void fail_broken(struct upstream *u)
{
	char x[TICKET_HOST_MAX + 8];
	int err;

	name(u, x);
	err = u->broken;
	if (err == ENOBUFS) {
		u->exhausted = BUDGET_EXECUTOR_UNREAD;
		session_exhausted(u->session, u->exhausted);
	} else if (err == EBUSY) {
		u->broken = 0; /* it can be told why */
	}
	if (err == ENOBUFS || err == EBUSY)
		upstream_fail(u, GRPC_UNKNOWN, END_EXECUTOR, H2_ENHANCE_YOUR_CALM,
			      "executor %s: budget %s exhausted", x, budget_name(u->exhausted));
	else
		upstream_fail(u, GRPC_UNKNOWN, END_EXECUTOR, H2_INTERNAL_ERROR, "executor %s: %s",
			      x, strerror(err));
}

void upstream_flush(struct upstream *u)
{
	bool was = u->out_blocked;
	char x[TICKET_HOST_MAX + 8];
	int r;

	if (u->state == UPSTREAM_CLOSED)
		return;
	list_del(&u->dirty);
	if (u->broken) {
		fail_broken(u);
		return;
	}
	if (!u->port)
		return;
	if (u->kicked) {
		u->kicked = false;
		u->dp->readable(u);
		if (u->state == UPSTREAM_CLOSED)
			return;
	}
	r = write_out(u);
	if (r && r != -EAGAIN) {
		/* What it said before it died may still be readable, and may be an answer. */
		u->dp->readable(u);
		if (u->state != UPSTREAM_CLOSED)
			upstream_fail(u, GRPC_UNKNOWN, END_EXECUTOR, H2_NO_ERROR,
				      "executor %s: connection lost: %s", name(u, x), strerror(-r));
		return;
	}
	u->out_blocked = r == -EAGAIN;
	if (u->out_blocked != was)
		upstream_want(u);
}

void upstream_kick(struct upstream *u)
{
	u->kicked = true;
	upstream_dirty(u);
}

static void upstream_event(struct port *p, unsigned events)
{
	struct upstream *u = p->owner;

	u->session->now = u->session->env.ops->now(u->session->env.ctx);
	if (events & PORT_HANGUP && u->splice) {
		u->hup = true;
		upstream_want(u);
		upstream_arm(u); /* the end comes behind what is on its way to the tap */
	}
	if (events & (PORT_READABLE | PORT_HANGUP))
		u->dp->readable(u);
	if (u->state != UPSTREAM_CLOSED && events & PORT_WRITABLE)
		upstream_flush(u);
}

void upstream_received(struct upstream *u, uint32_t bytes)
{
	uint8_t *p;

	u->recv_unacked += bytes;
	if (u->recv_unacked < TOP_UP)
		return;
	p = upstream_out(u, 13);
	if (!p)
		return;
	h2_put_window_update(p, 0, u->recv_unacked);
	u->recv_unacked = 0;
}

void upstream_ping(struct upstream *u)
{
	static const uint8_t token[8] = "fs-alive";
	uint8_t *p;

	if (u->ping_out)
		return;
	p = upstream_out(u, 17);
	if (!p)
		return;
	h2_put_ping(p, token, false);
	u->ping_out = true;
	u->ping_ns = u->session->now;
	upstream_arm(u);
}

/* ------------------------------------------------------------------------ end */

void upstream_close(struct upstream *u, uint32_t h2_error)
{
	struct session *s = u->session;
	uint8_t *p;

	if (u->state == UPSTREAM_CLOSED)
		return;
	assert(!u->n_streams);
	spliced_upstream_ends(u);
	executor_idle_remove(u);
	if (!u->route && upstream_pending(u))
		u->executor->n_ahead--;
	if (u->dial) {
		s->env.ops->dial_cancel(s->env.ctx, u->dial);
		u->dial = NULL;
	}
	if (u->port) {
		p = upstream_out(u, 17);
		if (p)
			h2_put_goaway(p, 0, h2_error, NULL);
		(void)write_out(u); /* best effort: the FIN says the same */
		u->port->ops->close(u->port, false);
		u->port = NULL;
		STAT_SUB(s, upstreams_open, 1);
		session_event(s, EVENT_UPSTREAM_CLOSED, &u->peer, h2_error, "closed");
	}
	u->state = UPSTREAM_CLOSED;
	timer_disarm(&s->timers, &u->timer);
	list_del(&u->dirty);
	if (u->route)
		unbind(u);
	else
		list_del(&u->link); /* out of session.ahead */
	list_add_tail(&s->dead_upstreams, &u->link);
}

void upstream_release(struct upstream *u)
{
	if (u->state == UPSTREAM_CLOSED)
		return;
	if (u->state != UPSTREAM_READY || u->spoiled || u->splice || u->broken || u->out_blocked ||
	    (u->rx && chunk_len(u->rx)) || u->last_id > H2_MAX_STREAM_ID / 2) {
		upstream_close(u, H2_NO_ERROR);
		return;
	}
	u->promoting = false;
	unbind(u);
	upstream_want(u);
	u->idle_ns = u->session->now;
	executor_idle_add(u);
	if (u->state != UPSTREAM_CLOSED)
		upstream_arm(u);
}

void upstream_stream_gone(struct upstream *u)
{
	struct route *r = u->route;

	assert(u->n_streams);
	u->n_streams--;
	if (u->state == UPSTREAM_CLOSED || !r || u->failing)
		return;
	route_get(r);
	route_pump(r);
	/* A spliced one stays with its client, whose next result is likely as large. */
	if (!u->n_streams && u->state != UPSTREAM_CLOSED && u->route && !u->splice) {
		upstream_release(u);
		route_pump(r); /* for those that it could not take */
	}
	route_put(r);
}

static bool may_retry(const struct stream *s)
{
	return s->state == STREAM_SENT && s->attempts < ATTEMPTS_MAX;
}

/* The streams that wait for a connection of this route, when none is left. */
static void fail_waiting(struct route *r, int grpc_status, enum stream_end end, const char *text)
{
	while (!list_empty(&r->waiting)) {
		struct stream *s = list_first(&r->waiting, struct stream, wait);

		list_del(&s->wait);
		answer_status(s, grpc_status, end, "%s", text);
	}
}

/* Before any response byte a lost executor is as good as one that was never reached. */
static int status_for(const struct stream *s, int grpc_status)
{
	return grpc_status == GRPC_UNKNOWN && s->state == STREAM_SENT
		       ? s->client->session->env.config->unreachable_status
		       : grpc_status;
}

void upstream_fail(struct upstream *u, int grpc_status, enum stream_end end, uint32_t h2_error,
		   const char *fmt, ...)
{
	struct route *r = u->route;
	bool never_up = upstream_pending(u), retry = u->reused || u->state == UPSTREAM_GOAWAY;
	char text[REASON_MAX];
	va_list ap;

	if (u->state == UPSTREAM_CLOSED)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (u->n_streams || never_up || h2_error) {
		STAT_ADD(u->session, upstream_errors, 1);
		session_event(u->session, EVENT_UPSTREAM_ERROR, &u->peer, h2_error, "%s", text);
	}
	if (r)
		route_get(r);
	u->failing = true;
	while (!list_empty(&u->streams)) {
		struct stream *s = list_first(&u->streams, struct stream, on_up);

		stream_detach(s, H2_NO_ERROR);
		if (retry && may_retry(s))
			route_retry(s);
		else
			answer_status(s, status_for(s, grpc_status), end, "%s", text);
	}
	upstream_close(u, h2_error);
	if (!r)
		return;
	if (never_up && !route_served(r))
		fail_waiting(r, grpc_status, end, text);
	route_pump(r);
	route_put(r);
}

void upstream_free(struct upstream *u)
{
	assert(list_empty(&u->streams));
	chunk_put(&u->session->pool, u->rx);
	chunk_put(&u->session->pool, u->out);
	hpack_decoder_free(u->hpack);
	executor_put(u->executor);
	free(u);
}

static void upstream_expired(struct timer *t)
{
	struct upstream *u = container_of(t, struct upstream, timer);
	const struct timeouts *to = &u->session->env.config->timeouts;
	uint64_t now = u->session->now;
	char x[TICKET_HOST_MAX + 8];

	if (u->state == UPSTREAM_HANDSHAKE && to->handshake_ns &&
	    now >= u->opened_ns + to->handshake_ns) {
		upstream_fail(u, u->session->env.config->unreachable_status, END_DEADLINE,
			      H2_SETTINGS_TIMEOUT,
			      "handshake: executor %s sent no SETTINGS within %llu ms "
			      "(--handshake-timeout)",
			      name(u, x), (unsigned long long)(to->handshake_ns / NSEC_PER_MSEC));
		return;
	}
	if (!list_empty(&u->idle) && now >= u->idle_ns + IDLE_TIMEOUT) {
		upstream_close(u, H2_NO_ERROR);
		return;
	}
	if (u->hup && u->splice) {
		u->dp->readable(u); /* what was on its way to the tap may be there now */
		if (u->state == UPSTREAM_CLOSED)
			return;
	}
	if (u->block_ns && to->handshake_ns && now >= u->block_ns + to->handshake_ns) {
		session_exhausted(u->session, BUDGET_EXECUTOR_HEADER_TIME);
		upstream_fail(u, GRPC_UNKNOWN, END_DEADLINE, H2_ENHANCE_YOUR_CALM,
			      "executor %s: budget %s exhausted: a header block did not end within "
			      "%llu ms (--handshake-timeout)",
			      name(u, x), budget_name(BUDGET_EXECUTOR_HEADER_TIME),
			      (unsigned long long)(to->handshake_ns / NSEC_PER_MSEC));
		return;
	}
	if (u->promoting)
		spliced_consider(u);
	if (u->ping_out && now >= u->ping_ns + PING_TIMEOUT) {
		if (list_empty(&u->pause)) {
			upstream_fail(u, GRPC_DEADLINE_EXCEEDED, END_DEADLINE, H2_NO_ERROR,
				      "stall: executor %s has credit, sends nothing and does not "
				      "answer PING (--stall-timeout)",
				      name(u, x));
			return;
		}
		u->ping_ns = now; /* we did not read: it may have answered */
	}
	upstream_arm(u);
}

/* ------------------------------------------------------------- control frames */

static void on_settings(struct upstream *u, const struct h2_frame *f, const uint8_t *payload)
{
	int64_t before = u->settings.initial_window_size, delta;
	char x[TICKET_HOST_MAX + 8];
	struct list *pos, *tmp;
	uint32_t err;
	uint8_t *p;

	if (f->flags & H2_FLAG_ACK)
		return;
	err = h2_settings_apply(&u->settings, payload, f->length, H2_FROM_SERVER);
	delta = (int64_t)u->settings.initial_window_size - before;
	list_for_each_safe (pos, tmp, &u->streams) {
		struct stream *s = list_entry(pos, struct stream, on_up);

		if (!err)
			err = ledger_shift(&s->request_window, delta);
	}
	if (err) {
		upstream_fail(u, GRPC_UNKNOWN, END_EXECUTOR, err,
			      "executor %s: SETTINGS with a value out of range", name(u, x));
		return;
	}
	u->max_streams = u->settings.max_concurrent_streams;
	p = upstream_out(u, H2_HEADER_LEN);
	if (p)
		h2_put_settings_ack(p);
	pump_requests(u);
	if (u->state == UPSTREAM_HANDSHAKE) {
		u->state = UPSTREAM_READY;
		if (!u->route) {
			u->executor->n_ahead--;
			list_del(&u->link);
			u->idle_ns = u->session->now;
			executor_idle_add(u);
		}
		if (u->state != UPSTREAM_CLOSED)
			upstream_arm(u);
	}
	if (u->route && u->state == UPSTREAM_READY)
		route_pump(u->route);
	/* Whoever wanted it may have gone meanwhile. */
	if (u->route && u->state == UPSTREAM_READY && !u->n_streams)
		upstream_release(u);
}

static void on_goaway(struct upstream *u, const uint8_t *payload)
{
	uint32_t last = get_be32(payload) & H2_MAX_STREAM_ID, error = get_be32(payload + 4);
	char x[TICKET_HOST_MAX + 8];
	struct list *pos, *tmp;
	struct route *r;

	if (!u->n_streams) {
		upstream_close(u, H2_NO_ERROR);
		return;
	}
	u->state = UPSTREAM_GOAWAY;
	r = u->route;
	route_get(r);
	u->failing = true;
	list_for_each_safe (pos, tmp, &u->streams) {
		struct stream *s = list_entry(pos, struct stream, on_up);

		/* One that it is answering already is not one that it "will not process". */
		if (s->id + u->delta <= last || s->state != STREAM_SENT)
			continue;
		stream_detach(s, H2_NO_ERROR);
		if (may_retry(s))
			route_retry(s);
		else
			answer_status(s, GRPC_UNKNOWN, END_EXECUTOR,
				      "executor %s: GOAWAY (%s) before this stream", name(u, x),
				      h2_error_name(error));
	}
	u->failing = false;
	if (!u->n_streams)
		upstream_close(u, H2_NO_ERROR);
	route_pump(r);
	route_put(r);
}

static void on_rst_stream(struct upstream *u, struct stream *s, uint32_t error)
{
	char x[TICKET_HOST_MAX + 8];
	bool refused = error == H2_REFUSED_STREAM;

	if (!s)
		return;
	name(u, x);
	if (refused && may_retry(s)) {
		struct route *r = u->route;

		route_get(r);
		u->failing = true; /* not back to the pool in between */
		stream_detach(s, H2_NO_ERROR);
		u->failing = false;
		route_retry(s);
		if (!u->n_streams)
			upstream_close(u, H2_NO_ERROR);
		route_pump(r);
		route_put(r);
		return;
	}
	stream_detach(s, H2_NO_ERROR);
	answer_status(s, refused ? GRPC_UNAVAILABLE : GRPC_UNKNOWN, END_EXECUTOR,
		      "executor %s reset the stream (%s)", x, h2_error_name(error));
}

static void on_window_update(struct upstream *u, const struct h2_frame *f, struct stream *s,
			     uint32_t inc)
{
	char x[TICKET_HOST_MAX + 8];
	uint32_t err;

	if (f->stream && !s)
		return;
	err = ledger_open(s ? &s->request_window : &u->send_window, inc);
	if (err)
		upstream_fail(u, GRPC_UNKNOWN, END_EXECUTOR, err,
			      "executor %s: WINDOW_UPDATE of %u", name(u, x), inc);
	else if (s)
		upstream_pump_request(u, s);
	else
		pump_requests(u);
}

bool upstream_charge(struct upstream *u, enum budget_id id, uint32_t cost)
{
	if (budget_spend(&u->budgets, id, cost, u->session->now))
		return true;
	if (!u->broken) {
		u->broken = EBUSY;
		u->exhausted = id;
		session_exhausted(u->session, id);
	}
	upstream_dirty(u);
	return false;
}

void upstream_block_waits(struct upstream *u, bool waits)
{
	if (!waits) {
		u->block_ns = 0;
	} else if (!u->block_ns) {
		u->block_ns = u->session->now;
		upstream_arm(u);
	}
}

static bool charge_control(struct upstream *u, const struct h2_frame *f)
{
	bool ack = f->flags & H2_FLAG_ACK;

	switch (f->type) {
	case H2_SETTINGS:
		if (!ack)
			return upstream_charge(u, BUDGET_EXECUTOR_SETTINGS, 1 + f->length / 256);
		break;
	case H2_PING:
		if (!ack)
			return upstream_charge(u, BUDGET_EXECUTOR_PING, 1);
		break;
	case H2_RST_STREAM:
		return upstream_charge(u, BUDGET_EXECUTOR_RESET, 1);
	case H2_WINDOW_UPDATE:
		return upstream_charge(u, BUDGET_EXECUTOR_WINDOW_UPDATE, 1);
	default:
		break;
	}
	return upstream_charge(u, BUDGET_EXECUTOR_CONTROL, 1);
}

void upstream_control(struct upstream *u, const struct h2_frame *f, const uint8_t *payload)
{
	struct stream *s = NULL;
	char x[TICKET_HOST_MAX + 8];
	uint8_t *p;

	if (!charge_control(u, f))
		return;
	if (f->stream > u->last_id && (f->type == H2_RST_STREAM || f->type == H2_WINDOW_UPDATE)) {
		upstream_fail(u, GRPC_UNKNOWN, END_EXECUTOR, H2_PROTOCOL_ERROR,
			      "executor %s: protocol error: %s on an idle stream", name(u, x),
			      h2_type_name(f->type));
		return;
	}
	if (f->stream && u->route && f->stream > u->delta) {
		s = stream_find(u->route->client, f->stream - u->delta);
		if (s && (s->up != u || s->response_ended))
			s = NULL;
	}
	switch (f->type) {
	case H2_SETTINGS:
		on_settings(u, f, payload);
		break;
	case H2_PING:
		if (f->flags & H2_FLAG_ACK) {
			u->ping_out = false;
			upstream_arm(u);
		} else {
			p = upstream_out(u, 17);
			if (p)
				h2_put_ping(p, payload, true);
		}
		break;
	case H2_GOAWAY:
		on_goaway(u, payload);
		break;
	case H2_RST_STREAM:
		on_rst_stream(u, s, get_be32(payload));
		break;
	case H2_WINDOW_UPDATE:
		on_window_update(u, f, s, get_be32(payload) & H2_MAX_WINDOW);
		break;
	default: /* PRIORITY and extensions end here */
		break;
	}
}
