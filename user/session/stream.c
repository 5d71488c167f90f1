/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - a stream's life, its credit and its held data.
 *
 * Every way a stream can end goes through stream_close(), which writes its
 * record exactly once. Every byte of DATA that an executor sends is counted
 * once in `granted` (taken off), once in `held` (if it waits here) and once in
 * data_out or dropped; stream_account() keeps the sums of the client and of the
 * worker beside those of the stream.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/state.h"

const char *stream_state_name(enum stream_state s)
{
	static const char *const names[] = {
		[STREAM_REQUEST] = "request", [STREAM_WAITING] = "waiting",
		[STREAM_SENT] = "sent",       [STREAM_HEAD] = "streaming",
		[STREAM_ENDING] = "ending",   [STREAM_ANSWERED] = "answered",
		[STREAM_CLOSED] = "closed",
	};

	static_assert(ARRAY_SIZE(names) == STREAM_STATES, "a name for each state");
	return names[s];
}

const char *stream_end_name(enum stream_end e)
{
	static const char *const names[] = {
		[END_COMPLETE] = "complete", [END_CLIENT] = "client",
		[END_EXECUTOR] = "executor", [END_PROXY] = "proxy",
		[END_DEADLINE] = "deadline", [END_SHUTDOWN] = "shutdown",
	};

	static_assert(ARRAY_SIZE(names) == END_REASONS, "a name for each end");
	return names[e];
}

const char *drop_reason_name(enum drop_reason r)
{
	static const char *const names[] = {
		[DROP_PADDING] = "padding",
		[DROP_STREAM_CLOSED] = "stream_closed",
		[DROP_CLIENT_GONE] = "client_gone",
		[DROP_VIOLATION] = "violation",
	};

	static_assert(ARRAY_SIZE(names) == DROP_REASONS, "a name for each reason");
	return names[r];
}

const char *stream_wait_name(enum stream_wait w)
{
	static const char *const names[] = {
		[WAIT_REQUEST] = "client request",      [WAIT_CONNECTION] = "executor connection",
		[WAIT_RESPONSE] = "executor response",  [WAIT_DATA] = "executor data",
		[WAIT_CLIENT_SOCKET] = "client socket", [WAIT_CLIENT_WINDOW] = "client window",
		[WAIT_PROMOTION] = "promotion",
	};

	static_assert(ARRAY_SIZE(names) == STREAM_WAITS, "a name for each");
	return names[w];
}

static struct stream **bucket(const struct client *c, uint32_t id)
{
	return (struct stream **)&c->table[(id >> 1) % STREAM_BUCKETS];
}

struct stream *stream_find(const struct client *c, uint32_t id)
{
	struct stream *s = *bucket(c, id);

	while (s && s->id != id)
		s = s->hash;
	return s;
}

static void stream_expired(struct timer *t);

struct stream *stream_new(struct client *c, uint32_t id)
{
	struct session *ss = c->session;
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->client = c;
	s->number = session_number(ss);
	s->id = id;
	s->state = STREAM_REQUEST;
	s->window = c->settings.initial_window_size;
	s->grpc_status = -1;
	s->content_length = -1;
	s->datapath = "relay";
	s->datapath_why = "";
	s->opened_ns = s->progress_ns = ss->now;
	s->timer.fire = stream_expired;
	list_init(&s->wait);
	list_init(&s->on_up);
	list_init(&s->hold);
	grpc_reader_init(&s->request, ss->env.config->limits.max_ticket);
	list_add_tail(&c->streams, &s->link);
	s->hash = *bucket(c, id);
	*bucket(c, id) = s;
	c->n_streams++;
	STAT_ADD(ss, streams_opened, 1);
	STAT_ADD(ss, streams_open, 1);
	return s;
}

/* The legal moves; everything may be CLOSED. */
static bool may_move(enum stream_state from, enum stream_state to)
{
	switch (to) {
	case STREAM_REQUEST:
		return false;
	case STREAM_WAITING:
		return from == STREAM_REQUEST || from == STREAM_SENT;
	case STREAM_SENT:
		return from == STREAM_WAITING;
	case STREAM_HEAD:
		return from == STREAM_SENT || from == STREAM_REQUEST;
	case STREAM_ENDING:
		return from == STREAM_HEAD || from == STREAM_SENT;
	case STREAM_ANSWERED:
		return from != STREAM_ANSWERED && from != STREAM_CLOSED;
	case STREAM_CLOSED:
		return from != STREAM_CLOSED;
	case STREAM_STATES:
		break;
	}
	return false;
}

void stream_set_state(struct stream *s, enum stream_state to)
{
	assert(may_move(s->state, to));
	s->state = to;
	if (to == STREAM_HEAD && !s->head_ns)
		s->head_ns = s->client->session->now;
	stream_arm(s);
}

void stream_reason(struct stream *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->reason, sizeof(s->reason), fmt, ap);
	va_end(ap);
}

/* ------------------------------------------------------------------ credit */

void stream_account(struct stream *s, int64_t granted, int64_t held)
{
	struct session *ss = s->client->session;

	assert(granted >= 0 || s->granted >= (uint64_t)-granted);
	assert(held >= 0 || s->held >= (uint64_t)-held);
	s->granted += (uint64_t)granted;
	s->held += (uint64_t)held;
	s->client->inflight += (uint64_t)(granted + held);
	ss->inflight += (uint64_t)(granted + held);
	STAT_ADD(ss, granted, granted);
	STAT_ADD(ss, held, held);
}

void stream_drop(struct stream *s, uint64_t bytes, enum drop_reason why)
{
	s->dropped += bytes;
	STAT_ADD(s->client->session, dropped[why], bytes);
}

void stream_drop_hold(struct stream *s, enum drop_reason why)
{
	stream_drop(s, s->held, why);
	stream_account(s, 0, -(int64_t)s->held);
	chunk_put_all(&s->client->session->pool, &s->hold);
}

void stream_grant(struct stream *s)
{
	struct client *c = s->client;
	struct session *ss = c->session;
	struct ledger_view v;
	uint32_t n;
	uint8_t *p;

	if (!s->up || (s->state != STREAM_SENT && s->state != STREAM_HEAD) || s->up->promoting)
		return;
	/*
	 * While the socket takes nothing, what arrives is queued: a stream without anything
	 * outstanding would get its floor again and again, until the client's window is in
	 * our memory. All streams are granted anew when the queue is empty (unblocked()).
	 */
	if (c->blocked && c->out.data && !s->up->splice)
		return;
	v = (struct ledger_view){
		.strict = s->up->splice,
		.stream_window = s->window,
		.conn_window = c->window,
		.granted = s->granted,
		.held = s->held,
		.client_cap = ss->env.config->limits.client_inflight,
		.client_used = c->inflight + c->out.data,
		.worker_cap = ss->env.inflight_share,
		.worker_used = ss->inflight + ss->queued,
		.streams = c->n_streams,
	};
	if (v.strict) {
		v.others_granted = c->inflight - s->granted - s->held;
		v.client_used += spliced_undelivered(s, &v);
	}
	n = ledger_grant(&v);
	/*
	 * The kernel uses up what is granted without a word, and a client whose window is
	 * open has no reason to say anything: what our bounds hold back, or a top-up that is
	 * too small, would be forgotten.
	 */
	if (v.strict && min_i64(v.stream_window, v.conn_window - (int64_t)v.others_granted) >
				(int64_t)(s->granted + n))
		spliced_look_again(c);
	if (!n)
		return;
	p = upstream_out(s->up, 13);
	if (!p)
		return;
	h2_put_window_update(p, s->id + s->up->delta, n);
	stream_account(s, n, 0);
	spliced_limit(s);
}

/* -------------------------------------------------------------------- hold */

int stream_hold(struct stream *s, const uint8_t *frame, uint32_t len, uint32_t data)
{
	struct chunk_pool *pool = &s->client->session->pool;
	struct chunk *c = NULL;

	if (!list_empty(&s->hold))
		c = list_entry(s->hold.prev, struct chunk, link);
	if (!c || chunk_room(c) < len) {
		c = chunk_get(pool, len);
		if (!c)
			return -ENOMEM;
		list_add_tail(&s->hold, &c->link);
	}
	memcpy(c->data + c->end, frame, len);
	c->end += len;
	stream_account(s, 0, data);
	return 0;
}

/*
 * Makes the front frame of a chunk fit k bytes of window: its first k bytes of
 * payload become a frame of their own, and the header of the rest is written
 * over the end of what has been sent by then (see stream_release).
 */
struct split {
	uint8_t *rest; /* where the rest's header goes, NULL = no split */
	uint32_t rest_len;
	uint8_t flags;
};

/* Adds whole frames of the hold queue to iov while windows allow; returns pieces. */
static int gather(struct stream *s, struct iovec *iov, int max, uint64_t *ret_data, bool *ret_end,
		  struct split *split)
{
	struct client *c = s->client;
	struct list *pos, *tmp;
	uint64_t data = 0;
	int n = 0;

	list_for_each_safe (pos, tmp, &s->hold) {
		struct chunk *k = list_entry(pos, struct chunk, link);
		uint8_t *begin = k->data + k->start, *p = begin, *end = k->data + k->end;

		if (n == max)
			break;
		while (p < end) {
			struct h2_frame f = h2_frame_get(p);
			int64_t room = min_i64(s->window, c->window) - (int64_t)data;

			if (f.type == H2_DATA && (int64_t)f.length > room) {
				if (room > 0) {
					split->flags = f.flags;
					split->rest_len = f.length - (uint32_t)room;
					split->rest = p + room;
					h2_frame_put(p, (uint32_t)room, H2_DATA, 0, f.stream);
					p += H2_HEADER_LEN + room;
					data += (uint64_t)room;
				}
				if (p > begin)
					iov[n++] = (struct iovec){ begin, (size_t)(p - begin) };
				*ret_data = data;
				return n;
			}
			if (f.type == H2_DATA)
				data += f.length;
			else if (f.flags & H2_FLAG_END_STREAM && f.type == H2_HEADERS)
				*ret_end = true;
			p += H2_HEADER_LEN + f.length;
		}
		iov[n++] = (struct iovec){ begin, (size_t)(p - begin) };
	}
	*ret_data = data;
	return n;
}

/* Takes the bytes that client_write() took off the hold queue. */
static void consume_hold(struct stream *s, size_t n)
{
	while (n) {
		struct chunk *c = list_first(&s->hold, struct chunk, link);
		uint32_t k = (uint32_t)min_u64(n, chunk_len(c));

		c->start += k;
		n -= k;
		if (c->start == c->end) {
			list_del(&c->link);
			chunk_put(&s->client->session->pool, c);
		}
	}
}

void stream_release(struct stream *s)
{
	struct client *c = s->client;

	while (!list_empty(&s->hold) && !c->blocked && !c->broken && !spliced_must_wait(s) &&
	       c->state != CLIENT_CLOSED) {
		struct iovec iov[OUTQ_PIECES_MAX];
		struct split split = { NULL, 0, 0 };
		uint64_t data = 0;
		bool ended = false;
		size_t total = 0;
		int n = gather(s, iov, OUTQ_PIECES_MAX, &data, &ended, &split);
		bool alive;

		if (!n)
			break;
		for (int i = 0; i < n; i++)
			total += iov[i].iov_len;
		s->window -= (int64_t)data;
		c->window -= (int64_t)data;
		s->data_out += data;
		stream_account(s, 0, -(int64_t)data);
		s->progress_ns = c->session->now;
		/* Counted as out, it may not stay here: the next release would count it again. */
		alive = client_write(c, iov, n, data, NULL);
		consume_hold(s, total);
		if (!alive)
			return;
		if (split.rest) {
			struct chunk *k = list_first(&s->hold, struct chunk, link);

			/* The header lies over nine bytes that have left. */
			k->start -= H2_HEADER_LEN;
			assert(k->data + k->start == split.rest);
			h2_frame_put(split.rest, split.rest_len, H2_DATA, split.flags, s->id);
		}
		if (ended) {
			stream_finished(s);
			return;
		}
	}
	stream_grant(s);
}

/* --------------------------------------------------------------------- end */

/* Why it was not spliced, while the upstream that knows is still there. */
static void note_datapath(struct stream *s)
{
	if (s->up && !s->up->splice && !s->datapath_why[0] && !s->spliced)
		s->datapath_why = spliced_why(s->up);
}

void stream_detach(struct stream *s, uint32_t h2_error)
{
	struct upstream *u = s->up;
	uint8_t *p;

	list_del(&s->wait);
	if (!u)
		return;
	if (s->large) {
		s->large = false;
		u->session->n_large--;
	}
	spliced_stream_end(s);
	note_datapath(s);
	s->up = NULL;
	list_del(&s->on_up);
	if (!s->response_ended && h2_error != H2_NO_ERROR)
		u->owed += s->granted;
	stream_account(s, -(int64_t)s->granted, 0);
	if (h2_error != H2_NO_ERROR && u->state != UPSTREAM_CLOSED) {
		u->spoiled = true;
		p = upstream_out(u, 13);
		if (p)
			h2_put_rst_stream(p, s->id + u->delta, h2_error);
	}
	upstream_stream_gone(u);
}

void stream_record(struct stream *s, enum stream_end end)
{
	static const char *const methods[] = {
		[FLIGHT_DO_GET] = "DoGet",       [FLIGHT_OTHER] = "other",
		[FLIGHT_HEALTH_CHECK] = "Check", [FLIGHT_HEALTH_WATCH] = "Watch",
		[FLIGHT_UNKNOWN] = "unknown",
	};
	struct session *ss = s->client->session;
	struct stream_record r;

	note_datapath(s);
	r = (struct stream_record){
		.client = s->client->peer,
		.executor = s->executor_addr,
		.method = methods[s->method],
		.ticket = s->has_ticket ? &s->ticket : NULL,
		.stream_id = s->id,
		.datapath = s->datapath,
		.datapath_why = s->datapath_why,
		.data_bytes = s->data_out,
		.dropped_bytes = s->dropped,
		.first_byte_ns = s->head_ns ? s->head_ns - s->opened_ns : 0,
		.duration_ns = ss->now - s->opened_ns,
		.grpc_status = s->grpc_status,
		.end = end,
		.reason = s->reason,
		.attempts = s->attempts,
		.traceparent = s->traceparent,
	};

	s->recorded = true;
	STAT_ADD(ss, streams_ended[end], 1);
	if (s->grpc_status < 0)
		STAT_ADD(ss, streams_reset, 1);
	else
		STAT_ADD(ss, streams_status[min_u64((uint64_t)s->grpc_status, 16)], 1);
	if (s->method == FLIGHT_DO_GET) {
		histogram_add(&ss->stats.duration, r.duration_ns);
		if (r.first_byte_ns)
			histogram_add(&ss->stats.first_byte, r.first_byte_ns);
	}
	ss->env.emit->stream_done(ss->env.emit_ctx, &r);
}

void stream_close(struct stream *s, enum stream_end end)
{
	struct client *c = s->client;
	struct session *ss = c->session;
	struct route *r = s->route;
	struct stream **pp;

	if (s->state == STREAM_CLOSED)
		return;
	stream_detach(s, H2_CANCEL);
	stream_drop_hold(s, c->state == CLIENT_CLOSED ? DROP_CLIENT_GONE : DROP_STREAM_CLOSED);
	if (!s->recorded)
		stream_record(s, end);
	for (pp = bucket(c, s->id); *pp != s; pp = &(*pp)->hash)
		;
	*pp = s->hash;
	c->n_streams--;
	STAT_SUB(ss, streams_open, 1);
	s->state = STREAM_CLOSED;
	timer_disarm(&ss->timers, &s->timer);
	list_del(&s->link);
	list_add_tail(&ss->dead_streams, &s->link);
	ss->requests -= s->request_mem;
	grpc_reader_free(&s->request);
	free(s->block);
	s->block = NULL;
	s->route = NULL;
	if (r)
		route_put(r);
	client_stream_gone(c);
}

void stream_finished(struct stream *s)
{
	if (!s->recorded)
		stream_record(s, END_COMPLETE);
	/* An early answer: the executor has ended, the client has not. */
	stream_detach(s, s->request_ended ? H2_NO_ERROR : H2_CANCEL);
	if (s->client_ended)
		stream_close(s, END_COMPLETE);
	else
		stream_set_state(s, STREAM_ANSWERED);
}

/* --------------------------------------------------------------- deadlines */

/* Whether it is the client's turn: something waits for its window or its socket. */
static bool waits_for_client(const struct stream *s)
{
	if (s->up && s->up->splice && !s->granted)
		return true; /* strict: no credit means no window */
	return s->held || !list_empty(&s->hold) || s->client->blocked;
}

/* Since when the client has taken nothing: of this stream, or of what its socket waits for. */
static uint64_t client_quiet_since(const struct stream *s)
{
	const struct client *c = s->client;

	return max_u64(max_u64(s->progress_ns, s->excused_ns), c->blocked ? c->blocked_ns : 0);
}

/*
 * When to look at the stream again, UINT64_MAX = never. Activity does not re-arm
 * the timer: when it fires, this is computed anew.
 */
static uint64_t stream_due(const struct stream *s)
{
	const struct timeouts *t = &s->client->session->env.config->timeouts;
	uint64_t due = s->deadline_ns ? s->deadline_ns : UINT64_MAX, at = UINT64_MAX;

	switch (s->state) {
	case STREAM_REQUEST:
	case STREAM_ANSWERED:
		if (t->handshake_ns)
			at = s->progress_ns + t->handshake_ns;
		break;
	case STREAM_WAITING:
	case STREAM_SENT:
		if (t->response_ns)
			at = s->sent_ns + t->response_ns;
		break;
	case STREAM_HEAD:
		if (s->method != FLIGHT_DO_GET)
			break; /* a health watch is silent by nature */
		if (t->client_ns)
			at = client_quiet_since(s) + t->client_ns;
		if (t->stall_ns && s->granted && !waits_for_client(s))
			at = min_u64(at, s->rx_ns + t->stall_ns);
		break;
	case STREAM_ENDING:
		if (t->client_ns)
			at = client_quiet_since(s) + t->client_ns;
		break;
	case STREAM_CLOSED:
	case STREAM_STATES:
		break;
	}
	return min_u64(due, at);
}

void stream_arm(struct stream *s)
{
	struct session *ss = s->client->session;
	uint64_t due = stream_due(s);

	if (due == UINT64_MAX) {
		timer_disarm(&ss->timers, &s->timer);
		return;
	}
	/* Out of memory: a deadline late is better than a result lost. */
	(void)timer_arm(&ss->timers, &s->timer, due);
}

/* An executor that owes us data is asked whether it lives; upstream.c judges the answer. */
static void check_stall(struct stream *s)
{
	const struct timeouts *t = &s->client->session->env.config->timeouts;
	struct session *ss = s->client->session;
	struct upstream *u = s->up;

	if (u && s->granted && !waits_for_client(s) && ss->now >= s->rx_ns + t->stall_ns) {
		upstream_ping(u);
		s->rx_ns = ss->now; /* the next look is one stall timeout away */
	}
}

static void stream_expired(struct timer *t)
{
	struct stream *s = container_of(t, struct stream, timer);
	struct session *ss = s->client->session;
	const struct timeouts *to = &ss->env.config->timeouts;
	uint64_t due;

	if (s->up)
		spliced_sync(s->up);
	due = stream_due(s);
	if (ss->now < due) {
		stream_arm(s);
		return;
	}
	if (s->deadline_ns && ss->now >= s->deadline_ns && s->state != STREAM_ANSWERED) {
		answer_status(s, GRPC_DEADLINE_EXCEEDED, END_DEADLINE,
			      "grpc-timeout of the client expired");
		return;
	}
	switch (s->state) {
	case STREAM_REQUEST:
		answer_status(s, GRPC_DEADLINE_EXCEEDED, END_DEADLINE,
			      "request: no complete ticket within %llu ms (--handshake-timeout)",
			      (unsigned long long)(to->handshake_ns / NSEC_PER_MSEC));
		return;
	case STREAM_ANSWERED:
		/* The answer was complete; NO_ERROR asks the client to stop (RFC 9113 8.1). */
		answer_reset(s, H2_NO_ERROR, END_PROXY);
		return;
	case STREAM_WAITING:
	case STREAM_SENT:
		answer_status(s, GRPC_DEADLINE_EXCEEDED, END_DEADLINE,
			      "response: executor %s:%u sent no response head within %llu ms "
			      "(--response-timeout)",
			      s->ticket.host, s->ticket.port,
			      (unsigned long long)(to->response_ns / NSEC_PER_MSEC));
		return;
	case STREAM_HEAD:
	case STREAM_ENDING:
		if (to->client_ns && waits_for_client(s) &&
		    ss->now >= client_quiet_since(s) + to->client_ns) {
			answer_status(s, GRPC_DEADLINE_EXCEEDED, END_DEADLINE,
				      "client: took nothing for %llu ms (--client-timeout)",
				      (unsigned long long)(to->client_ns / NSEC_PER_MSEC));
			return;
		}
		if (!waits_for_client(s))
			s->excused_ns = ss->now;
		if (to->stall_ns && s->state == STREAM_HEAD)
			check_stall(s);
		if (s->state != STREAM_CLOSED)
			stream_arm(s);
		return;
	case STREAM_CLOSED:
	case STREAM_STATES:
		break;
	}
}

/* What the kernel has forwarded of it since its count was taken over last. */
static uint64_t not_taken_over(const struct stream *s)
{
	const struct splice *sp = s->in_splice && s->up ? s->up->splice : NULL;

	return sp ? min_u64(sp->ops->stream_data(sp, s->id) - s->spliced, s->granted) : 0;
}

static enum stream_wait waits_for(const struct stream *s)
{
	if (s->state == STREAM_REQUEST || s->state == STREAM_ANSWERED)
		return WAIT_REQUEST;
	if (s->state == STREAM_WAITING)
		return WAIT_CONNECTION;
	if (s->state == STREAM_SENT)
		return WAIT_RESPONSE;
	if (s->client->blocked)
		return WAIT_CLIENT_SOCKET;
	if (s->up && s->up->promoting && !s->granted)
		return WAIT_PROMOTION;
	return waits_for_client(s) ? WAIT_CLIENT_WINDOW : WAIT_DATA;
}

enum stream_wait stream_waits(const struct stream *s, bool *ret_stuck)
{
	*ret_stuck =
		s->client->session->now >= s->progress_ns + STREAM_STUCK_NS && !not_taken_over(s);
	return waits_for(s);
}

void stream_view(const struct stream *s, struct stream_view *v)
{
	uint64_t now = s->client->session->now, ahead = not_taken_over(s);

	*v = (struct stream_view){
		.number = s->number,
		.client_number = s->client->number,
		.executor_number = s->route ? s->route->executor->number : 0,
		.client = s->client->peer,
		.executor = s->executor_addr,
		.ticket = s->has_ticket ? &s->ticket : NULL,
		.stream_id = s->id,
		.state = stream_state_name(s->state),
		.waits_for = stream_wait_name(waits_for(s)),
		.datapath = s->up && s->up->splice ? s->datapath : "relay",
		.datapath_why = s->up ? spliced_why(s->up) : s->datapath_why,
		.data_bytes = s->data_out + ahead,
		.granted = s->granted - ahead,
		.held = s->held,
		.age_ns = now - s->opened_ns,
		.quiet_ns = ahead ? 0 : now - s->progress_ns,
	};
	if (!s->in_splice || !s->up || !s->up->splice)
		return;
	v->spliced = true;
	v->kernel_bytes = s->spliced + ahead;
	s->up->splice->ops->place(s->up->splice, &v->kernel_slot, &v->kernel_generation);
}
