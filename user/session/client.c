/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - a client's connection: its socket, its output, its end.
 *
 * What its bytes mean is in client_frames.c. Here is how bytes leave: control
 * frames collect in the output queue and go out at the end of the loop turn
 * (client_flush from session_run), result bytes are written at once
 * (client_write). When the socket is full the client is `blocked`: its upstreams
 * are paused with their bytes in the kernel, and after SLOW_AFTER they are read
 * all the same, into memory that the ledger has bounded, so that an executor's
 * PING never goes unanswered because of a slow client.
 *
 * An end is always one of: client_fail (GOAWAY with an error), a graceful close
 * (GOAWAY or the client's FIN, flush, FIN), client_close (now).
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/state.h"

#define SLOW_AFTER (5 * NSEC_PER_SEC)
#define GREETING_HOLD (2 * NSEC_PER_MSEC)
#define CLOSING_MAX (5 * NSEC_PER_SEC) /* for a client that does not read our last words */
#define GOAWAY_GAP (1 * NSEC_PER_SEC)  /* between the two GOAWAYs when no PING ACK comes */
/*
 * From here on a chunk is handed over rather than copied; only the first one of a
 * queue: later ones are packed, so that memory stays near what is counted.
 */
#define TAKE_MIN (32 * KiB)

static void client_expired(struct timer *t);
static void client_event(struct port *p, unsigned events);

void client_arm(struct client *c)
{
	const struct timeouts *t = &c->session->env.config->timeouts;
	uint64_t due = UINT64_MAX;

	if (c->closing)
		; /* the flush ends it; below when its socket is full */
	else if (c->drain_soon)
		due = c->since_ns + GOAWAY_GAP;
	else if (!c->settings_seen && t->handshake_ns)
		due = c->opened_ns + t->handshake_ns;
	else if (!c->n_streams && t->idle_ns)
		due = c->active_ns + t->idle_ns;
	if (c->block_ns && t->handshake_ns && !c->closing)
		due = min_u64(due, c->block_ns + t->handshake_ns);
	if (c->greeting_held)
		due = min_u64(due, c->opened_ns + GREETING_HOLD);
	if (c->blocked && !c->slow)
		due = min_u64(due, c->blocked_ns + SLOW_AFTER);
	if (c->blocked && c->closing)
		due = min_u64(due, c->blocked_ns + CLOSING_MAX);
	else if (c->blocked && t->client_ns)
		due = min_u64(due, c->blocked_ns + t->client_ns);
	else if (c->closing && c->splice && t->client_ns)
		due = min_u64(due, c->active_ns + t->client_ns);
	if (due == UINT64_MAX)
		timer_disarm(&c->session->timers, &c->timer);
	else
		(void)timer_arm(&c->session->timers, &c->timer, due);
}

static void send_settings(struct client *c)
{
	const struct limits *l = &c->session->env.config->limits;
	uint8_t *p = client_ctrl(c, H2_HEADER_LEN + 18);

	if (!p)
		return;
	h2_frame_put(p, 18, H2_SETTINGS, 0, 0);
	p += H2_HEADER_LEN;
	p += h2_put_setting(p, H2_SETTINGS_MAX_CONCURRENT_STREAMS, l->max_streams);
	/* Never topped up: a request is one message of at most max_ticket bytes. */
	p += h2_put_setting(p, H2_SETTINGS_INITIAL_WINDOW_SIZE,
			    (uint32_t)max_u64(l->max_ticket + 5, H2_DEFAULT_WINDOW));
	h2_put_setting(p, H2_SETTINGS_MAX_HEADER_LIST_SIZE, CLIENT_HEADER_LIST_MAX);
}

void client_accept(struct session *s, struct port *port)
{
	struct client *c = calloc(1, sizeof(*c));

	if (c)
		c->hpack = hpack_decoder_new(4096);
	if (!c || !c->hpack) {
		free(c);
		STAT_ADD(s, clients_refused, 1);
		port->ops->close(port, true);
		return;
	}
	c->session = s;
	c->port = c->tx = port;
	c->peer = port->peer;
	c->number = session_number(s);
	c->settings = H2_SETTINGS_DEFAULT;
	c->window = H2_DEFAULT_WINDOW;
	c->goaway_id = H2_MAX_STREAM_ID;
	c->opened_ns = c->active_ns = s->now;
	c->timer.fire = client_expired;
	list_init(&c->dirty);
	list_init(&c->streams);
	list_init(&c->routes);
	list_init(&c->paused);
	outq_init(&c->out);
	list_add_tail(&s->clients, &c->link);
	port->owner = c;
	port->on_event = client_event;
	STAT_ADD(s, clients_accepted, 1);
	STAT_ADD(s, clients_open, 1);
	session_event(s, EVENT_CLIENT_OPEN, &c->peer, 0, "accepted");
	client_arm(c);
	client_readable(c);
	if (c->state == CLIENT_CLOSED)
		return;
	client_want(c);
	if (s->draining)
		client_drain(c);
}

/* The server preface goes out with the first thing we have to say, or at once. */
void client_greet(struct client *c)
{
	if (!c->greeted) {
		c->greeted = true;
		send_settings(c);
	}
}

static void client_event(struct port *p, unsigned events)
{
	struct client *c = p->owner;

	c->session->now = c->session->env.ops->now(c->session->env.ctx);
	if (events & PORT_READABLE)
		client_readable(c);
	if (c->state != CLIENT_CLOSED && events & PORT_WRITABLE)
		client_flush(c);
}

void client_dirty(struct client *c)
{
	if (list_empty(&c->dirty) && c->state != CLIENT_CLOSED)
		list_add_tail(&c->session->dirty_clients, &c->dirty);
}

/* Nothing more can be said to it. Closing waits for the flush: callers hold pointers. */
static void break_off(struct client *c, int err)
{
	if (!c->broken) {
		c->broken = err;
		client_dirty(c);
	}
}

uint8_t *client_ctrl(struct client *c, uint32_t len)
{
	uint8_t *p;

	if (c->state == CLIENT_CLOSED || c->broken)
		return NULL;
	p = outq_ctrl(&c->out, &c->session->pool, len);
	if (!p)
		break_off(c, ENOBUFS);
	else
		client_dirty(c);
	return p;
}

size_t client_block_start(struct client *c, uint8_t *p)
{
	if (c->table_reset_sent)
		return 0;
	/*
	 * Dynamic Table Size Update to 0 (RFC 7541 6.3): from here on nothing that an
	 * executor's block says can change this client's decoder.
	 */
	c->table_reset_sent = true;
	p[0] = 0x20;
	return 1;
}

/* Behind what is queued of the stream, its answer above all: nothing may follow a reset. */
void client_put_reset(struct client *c, uint32_t id, uint32_t h2_error)
{
	uint8_t frame[13], *p;
	struct iovec piece = { frame, sizeof(frame) };

	h2_put_rst_stream(frame, id, h2_error);
	if (!outq_bulk_empty(&c->out)) {
		if (!client_write(c, &piece, 1, 0, NULL))
			return;
	} else {
		p = client_ctrl(c, sizeof(frame));
		if (!p)
			return;
		memcpy(p, frame, sizeof(frame));
	}
	c->reset_ids[c->n_reset_ids++ % RESET_IDS] = id;
}

void client_want(struct client *c)
{
	unsigned read = c->eof ? 0 : PORT_READABLE, write = c->blocked ? PORT_WRITABLE : 0;
	const struct upstream *u = c->spliced;

	if (c->state == CLIENT_CLOSED)
		return;
	c->port->ops->want(c->port, c->tx == c->port ? read | write : read);
	if (c->splice)
		c->splice->port.ops->want(&c->splice->port,
					  (u && list_empty(&u->pause) ? PORT_READABLE : 0) |
						  (c->tx == c->port ? 0 : write));
}

static void set_blocked(struct client *c)
{
	if (c->blocked)
		return;
	c->blocked = true;
	c->blocked_ns = c->session->now;
	client_want(c);
	client_arm(c);
}

static void resume_upstreams(struct client *c)
{
	while (!c->blocked && !list_empty(&c->paused) && c->state != CLIENT_CLOSED) {
		struct upstream *u = list_first(&c->paused, struct upstream, pause);

		list_del(&u->pause);
		u->dp->readable(u);
	}
}

/* The socket takes bytes again: held data first, then the upstreams. */
static void unblocked(struct client *c)
{
	struct list *pos, *tmp;

	c->blocked = c->slow = c->release_due = false;
	client_want(c);
	list_for_each_safe (pos, tmp, &c->streams) {
		if (c->blocked || c->state == CLIENT_CLOSED)
			return;
		stream_release(list_entry(pos, struct stream, link));
	}
	resume_upstreams(c);
}

/*
 * A client that has sent its whole request with its preface, as Ballista's do, does not need
 * our SETTINGS to go on. They wait for the response, for a moment at most: one packet
 * less each way, and one wake-up less of everybody, in a fetch of which there may be
 * thousands.
 */
static bool hold_greeting(struct client *c)
{
	struct list *p;

	if (c->greeting_held || !outq_bulk_empty(&c->out) || c->closing || c->broken ||
	    c->session->draining || c->session->now >= c->opened_ns + GREETING_HOLD ||
	    list_empty(&c->streams))
		return false;
	for (p = c->streams.next; p != &c->streams; p = p->next) {
		const struct stream *s = list_entry(p, struct stream, link);

		if (s->state != STREAM_SENT || !s->client_ended)
			return false;
	}
	c->greeting_held = true;
	client_arm(c);
	return true;
}

/* Nothing of ours waits: a splice goes on, an end comes. */
static void run_empty(struct client *c)
{
	if (!c->closing)
		spliced_resume(c);
	else if (!c->splice)
		client_close(c, false, END_CLIENT); /* what was written is delivered */
	else if (c->spliced)
		upstream_release(c->spliced); /* its streams are over: comes back without it */
	else
		spliced_leave(c);
}

/* What is queued is memory as much as what is held: --total-inflight bounds both. */
static void count_queued(struct client *c, uint64_t bytes)
{
	c->session->queued += bytes - c->queued;
	c->queued = bytes;
}

void client_flush(struct client *c)
{
	uint64_t data = 0, before = c->out.bulk_bytes;
	int r;

	if (c->state == CLIENT_CLOSED)
		return;
	list_del(&c->dirty);
	if (hold_greeting(c))
		return;
	if (!c->broken && c->spliced && !outq_empty(&c->out))
		(void)spliced_begin_write(c);
	if (c->broken) {
		if (c->broken == ENOBUFS) {
			session_exhausted(c->session, BUDGET_CLIENT_UNREAD);
			session_event(c->session, EVENT_CLIENT_ERROR, &c->peer,
				      H2_ENHANCE_YOUR_CALM, "budget %s exhausted",
				      budget_name(BUDGET_CLIENT_UNREAD));
			client_note(c, "control frames pile up unread", 0);
		} else
			client_note(c, "connection lost", c->broken);
		client_close(c, true, END_CLIENT);
		return;
	}
	r = outq_flush(&c->out, c->tx, &c->session->pool, &data);
	count_queued(c, c->out.data);
	STAT_ADD(c->session, data_out, data);
	if (r && r != -EAGAIN) {
		c->broken = -r;
		client_flush(c);
		return;
	}
	if (c->out.bulk_bytes < before)
		c->blocked_ns = c->session->now;
	if (r == -EAGAIN)
		set_blocked(c);
	else if (c->blocked || c->release_due)
		unblocked(c);
	if (c->state != CLIENT_CLOSED && outq_empty(&c->out))
		run_empty(c);
}

void client_raw_sent(struct client *c, int r)
{
	if (r == -EAGAIN)
		set_blocked(c);
	else if (r)
		break_off(c, -r);
}

/* The client is inside a frame that the kernel has begun: frames of ours wait for its end. */
static bool write_later(struct client *c, const struct iovec *pieces, int n, size_t total,
			uint64_t data)
{
	uint8_t *p = client_ctrl(c, (uint32_t)total);

	if (!p)
		return false;
	for (int i = 0; i < n; i++) {
		memcpy(p, pieces[i].iov_base, pieces[i].iov_len);
		p += pieces[i].iov_len;
	}
	STAT_ADD(c->session, data_out, data);
	return true;
}

bool client_write(struct client *c, const struct iovec *pieces, int n, uint64_t data,
		  struct chunk **owner)
{
	struct session *s = c->session;
	uint64_t sent_data = 0;
	bool first = !c->blocked && outq_bulk_empty(&c->out);
	size_t total = 0;
	ssize_t sent = 0;

	for (int i = 0; i < n; i++)
		total += pieces[i].iov_len;
	if (c->state == CLIENT_CLOSED || c->broken) {
		STAT_ADD(s, dropped[DROP_CLIENT_GONE], data);
		return false;
	}
	if (c->splice && !spliced_begin_write(c))
		return write_later(c, pieces, n, total, data);
	if (first) {
		sent = outq_send(&c->out, c->tx, &s->pool, pieces, n);
		if (sent == (ssize_t)total) {
			STAT_ADD(s, data_out, data);
			return true;
		}
	}
	if (sent >= 0) {
		int r = 0;

		if (first && owner && *owner && total - (size_t)sent >= TAKE_MIN) {
			sent_data = outq_queue_chunk(&c->out, &s->pool, *owner, pieces, n,
						     (size_t)sent, data);
			*owner = NULL;
		} else {
			r = outq_queue_copy(&c->out, &s->pool, pieces, n, (size_t)sent, data,
					    &sent_data);
		}
		if (!r) {
			count_queued(c, c->out.data);
			STAT_ADD(s, data_out, sent_data);
			set_blocked(c);
			return true;
		}
		sent = r;
	}
	STAT_ADD(s, dropped[DROP_CLIENT_GONE], data);
	break_off(c, (int)-sent);
	return false;
}

/* Notes on each stream why its connection ended, before it does. */
void client_note(struct client *c, const char *why, int err)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &c->streams) {
		struct stream *s = list_entry(pos, struct stream, link);

		if (!s->reason[0])
			stream_reason(s, "client: %s%s%s", why, err ? ": " : "",
				      err ? strerror(err) : "");
	}
}

static void close_streams(struct client *c, enum stream_end end)
{
	while (!list_empty(&c->streams))
		stream_close(list_first(&c->streams, struct stream, link), end);
}

static void close_routes(struct client *c)
{
	/* The last upstream of a route takes the route with it. */
	while (!list_empty(&c->routes)) {
		struct route *r = list_first(&c->routes, struct route, link);

		assert(!list_empty(&r->upstreams));
		upstream_release(list_first(&r->upstreams, struct upstream, link));
	}
}

void client_fail(struct client *c, uint32_t h2_error, const char *fmt, ...)
{
	char text[REASON_MAX];
	uint8_t frame[17 + 128], *p;
	size_t len;
	va_list ap;

	if (c->state == CLIENT_CLOSED || c->closing)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	STAT_ADD(c->session, client_errors, 1);
	session_event(c->session, EVENT_CLIENT_ERROR, &c->peer, h2_error, "%s", text);
	client_greet(c);
	/* Never more than has been said before (RFC 9113 6.8). */
	c->goaway_id = (uint32_t)min_u64(c->last_id, c->goaway_id);
	len = h2_put_goaway(frame, c->goaway_id, h2_error, text);
	p = client_ctrl(c, (uint32_t)len);
	if (!p)
		return;
	memcpy(p, frame, len);
	c->closing = true;
	client_note(c, text, 0);
	close_streams(c, END_CLIENT);
}

void client_close(struct client *c, bool reset, enum stream_end end)
{
	struct session *s = c->session;

	if (c->state == CLIENT_CLOSED)
		return;
	c->state = CLIENT_CLOSED;
	spliced_abort(c);
	STAT_ADD(s, dropped[DROP_CLIENT_GONE], c->out.data);
	count_queued(c, 0);
	close_streams(c, end);
	close_routes(c);
	c->port->ops->close(c->port, reset);
	c->port = NULL;
	timer_disarm(&s->timers, &c->timer);
	timer_disarm(&s->timers, &c->splice_timer);
	list_del(&c->dirty);
	list_del(&c->link);
	list_add_tail(&s->dead_clients, &c->link);
	STAT_SUB(s, clients_open, 1);
	session_event(s, EVENT_CLIENT_CLOSED, &c->peer, 0, "%s", reset ? "reset" : "closed");
}

void client_free(struct client *c)
{
	assert(list_empty(&c->streams) && list_empty(&c->routes) && !c->inflight);
	outq_free(&c->out, &c->session->pool);
	chunk_put(&c->session->pool, c->rx);
	free(c->hblock);
	hpack_decoder_free(c->hpack);
	free(c);
}

/* ------------------------------------------------------------ drain and time */

static void put_goaway(struct client *c, uint32_t last)
{
	uint8_t *p = client_ctrl(c, 17);

	c->goaway_id = last;
	if (p)
		h2_put_goaway(p, last, H2_NO_ERROR, NULL);
}

/* The second GOAWAY: streams above last_id are the client's to retry elsewhere. */
void client_drain_final(struct client *c)
{
	if (!c->drain_soon)
		return;
	c->drain_soon = false;
	c->state = CLIENT_DRAINING;
	put_goaway(c, c->last_id);
	client_stream_gone(c);
	if (c->state != CLIENT_CLOSED)
		client_arm(c);
}

void client_drain(struct client *c)
{
	static const uint8_t token[8] = "fs-drain";
	struct list *pos, *tmp;
	uint8_t *p;

	if (c->state == CLIENT_CLOSED || c->state == CLIENT_DRAINING || c->drain_soon || c->closing)
		return;
	client_greet(c);
	put_goaway(c, H2_MAX_STREAM_ID);
	p = client_ctrl(c, 17);
	if (!p)
		return;
	h2_put_ping(p, token, false);
	c->drain_soon = true;
	c->since_ns = c->session->now;
	list_for_each_safe (pos, tmp, &c->streams) {
		struct stream *s = list_entry(pos, struct stream, link);

		if (s->method == FLIGHT_HEALTH_WATCH && s->state == STREAM_HEAD)
			answer_status(s, GRPC_UNAVAILABLE, END_SHUTDOWN, "draining");
		if (c->state == CLIENT_CLOSED)
			return;
	}
	client_arm(c);
}

/* Says goodbye to a client without streams and closes after the flush. */
static void farewell(struct client *c)
{
	if (c->closing)
		return;
	client_greet(c);
	if (c->state != CLIENT_DRAINING)
		put_goaway(c, c->last_id);
	if (c->state == CLIENT_CLOSED)
		return;
	c->closing = true;
	client_dirty(c);
}

void client_stream_gone(struct client *c)
{
	if (c->state == CLIENT_CLOSED || c->n_streams)
		return;
	c->active_ns = c->session->now;
	if (c->state == CLIENT_DRAINING || c->eof) {
		c->closing = true;
		client_dirty(c);
	} else {
		client_arm(c);
	}
}

static void client_expired(struct timer *t)
{
	struct client *c = container_of(t, struct client, timer);
	const struct timeouts *to = &c->session->env.config->timeouts;
	uint64_t now = c->session->now;

	if (c->blocked && c->closing && now >= c->blocked_ns + CLOSING_MAX) {
		client_close(c, true, END_CLIENT);
		return;
	}
	if (to->client_ns && ((c->blocked && now >= c->blocked_ns + to->client_ns) ||
			      (c->closing && c->splice && now >= c->active_ns + to->client_ns))) {
		client_note(c, "stopped reading (--client-timeout)", 0);
		client_close(c, true, END_DEADLINE);
		return;
	}
	if (c->blocked && !c->slow && now >= c->blocked_ns + SLOW_AFTER) {
		c->slow = true;
		while (!list_empty(&c->paused)) {
			struct upstream *u = list_first(&c->paused, struct upstream, pause);

			list_del(&u->pause);
			u->dp->readable(u);
		}
	}
	if (c->greeting_held && now >= c->opened_ns + GREETING_HOLD) {
		c->greeting_held = false;
		client_dirty(c);
	}
	if (c->block_ns && to->handshake_ns && now >= c->block_ns + to->handshake_ns) {
		session_exhausted(c->session, BUDGET_CLIENT_HEADER_TIME);
		client_fail(c, H2_ENHANCE_YOUR_CALM,
			    "budget %s exhausted: a header block did not end within %llu ms "
			    "(--handshake-timeout)",
			    budget_name(BUDGET_CLIENT_HEADER_TIME),
			    (unsigned long long)(to->handshake_ns / NSEC_PER_MSEC));
		return;
	}
	if (c->drain_soon && now >= c->since_ns + GOAWAY_GAP)
		client_drain_final(c);
	else if (!c->settings_seen && to->handshake_ns && now >= c->opened_ns + to->handshake_ns)
		client_fail(c, H2_SETTINGS_TIMEOUT, "no preface and SETTINGS within %llu ms",
			    (unsigned long long)(to->handshake_ns / NSEC_PER_MSEC));
	else if (!c->n_streams && to->idle_ns && now >= c->active_ns + to->idle_ns)
		farewell(c);
	if (c->state != CLIENT_CLOSED)
		client_arm(c);
}

void client_view(const struct client *c, struct client_view *v)
{
	static const char *const states[] = {
		[CLIENT_PREFACE] = "preface",
		[CLIENT_OPEN] = "open",
		[CLIENT_DRAINING] = "draining",
		[CLIENT_CLOSED] = "closed",
	};
	uint64_t now = c->session->now, since = c->active_ns;
	const char *waits = "nothing";

	if (c->blocked) {
		waits = "client socket";
		since = c->blocked_ns;
	} else if (c->closing) {
		waits = "the end";
	} else if (!c->settings_seen) {
		waits = "client SETTINGS";
	} else if (!c->n_streams) {
		waits = "client request";
	} else if (c->window <= 0) {
		waits = "client window";
	}
	*v = (struct client_view){
		.number = c->number,
		.peer = c->peer,
		.state = states[c->state],
		.waits_for = waits,
		.datapath = c->spliced ? c->session->env.splice->name : "relay",
		.streams = c->n_streams,
		.inflight = c->inflight,
		.window = c->window,
		.age_ns = now - c->opened_ns,
		.quiet_ns = now - since,
	};
}
