/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.c - what an executor answers: one struct reply per stream walks
 * through its call's script, a frame at a time and in random turn with its
 * siblings, within the windows the proxy has granted.
 */
#include "exec_int.h"

#include <stdio.h>
#include <stdlib.h>

/* Empty DATA frames per stream: many are on a budget of the proxy's. */
#define EMPTIES_MAX 500

/* More than this in our own buffer and a PING would wait too long for its ACK. */
#define OUT_MAX 65536

static uint64_t now_of(const struct reply *r)
{
	return world_now(r->conn->x->w);
}

void reply_new(struct xconn *c, struct h2stream *st, const struct fields *f)
{
	struct reply *r = xalloc(sizeof(*r));
	const char *timeout = fields_get(f, "grpc-timeout"), *meta = fields_get(f, "x-meta-39");

	r->conn = c;
	r->st = st;
	st->user = r;
	r->metadata = meta != NULL;
	if (timeout) {
		r->timeout = xalloc(strlen(timeout) + 1);
		memcpy(r->timeout, timeout, strlen(timeout));
	}
	c->replies = xgrow(c->replies, (c->n_replies + 1) * sizeof(*c->replies));
	c->replies[c->n_replies++] = r;
}

void reply_free(struct reply *r)
{
	bytes_free(&r->request);
	free(r->timeout);
	free(r);
}

static void bad_request(struct reply *r, const char *why)
{
	char buf[500];

	world_fail(r->conn->x->w, "executor: %s: %s", why,
		   r->call ? call_describe(r->call, buf, sizeof(buf)) : "unknown call");
}

void reply_over(struct reply *r, bool broken)
{
	struct call *call = r->call;

	if (r->state == REPLY_OVER)
		return;
	r->state = REPLY_OVER;
	r->call = NULL;
	if (!call)
		return;
	call->x_stream = NULL;
	call->x_broken |= broken;
	call->x_gone_ns = now_of(r);
}

/* The ticket is complete: finds the script. */
static void begin(struct reply *r)
{
	struct exec *x = r->conn->x;
	struct call *call = scene_find(x->s, ticket_key(bytes_at(&r->request), r->request.len));
	bool strict = call && (call->must == MUST_OK || call->must == MUST_STATUS);

	if (!call) {
		bad_request(r, "a ticket nobody sent");
		return;
	}
	r->call = call;
	if (r->request.len != call->msg_len ||
	    memcmp(bytes_at(&r->request), call->msg, call->msg_len))
		bad_request(r, "the request message is not what the client sent");
	if (strcmp(call->host, x->plan.name) || call->port != x->plan.port)
		bad_request(r, "the request went to the wrong executor");
	if (call->attempts && call->bytes)
		bad_request(r, "asked again after the client has seen the response");
	/* Where connections die, the end of one and the next attempt may cross. */
	if (call->x_stream && strict)
		bad_request(r, "asked again while the first attempt is open");
	if (call->attempts && call->x_complete && strict)
		bad_request(r, "asked again after a complete answer");
	if (call->x_stream)
		reply_over(call->x_stream->user, true);
	for (unsigned i = 0; i < r->conn->n_replies; i++) {
		const struct call *other = r->conn->replies[i]->call;

		if (other && !addr_equal(&other->client, &call->client))
			bad_request(r, "the connection serves another client at the same time");
	}
	if (call->ask.metadata && !r->metadata)
		bad_request(r, "the client's metadata is missing");
	if (call->ask.timeout && !r->timeout)
		bad_request(r, "grpc-timeout was not forwarded");
	if (r->timeout && !call->x_timeout) {
		call->x_timeout = r->timeout;
		r->timeout = NULL;
	}
	r->a = call_answer(call, call->attempts++);
	call->x_stream = r->st;
	call->x_bytes = call->x_flow = call->x_padding = 0;
	call->x_complete = call->x_broken = false;
	r->state = REPLY_HEAD;
	r->not_before = now_of(r) + r->a->head_delay_ns;
	world_log(x->w, "%s: call %u arrives as stream %u of connection %u", x->plan.name,
		  call->key, r->st->id, r->conn->index);
}

void reply_request(struct reply *r, const uint8_t *p, size_t n, bool end)
{
	bytes_add(&r->request, p, n);
	if (r->state == REPLY_REQUEST && r->request.len >= 5 &&
	    r->request.len >= 5 + get_be32(bytes_at(&r->request) + 1))
		begin(r);
	else if (n && r->state != REPLY_OVER && r->state != REPLY_REQUEST)
		bad_request(r, "bytes after the request message");
	if (end && r->state == REPLY_REQUEST)
		bad_request(r, "END_STREAM inside the request message");
	r->request_ended |= end;
}

/* The next n bytes of the body in one DATA frame. */
static void send_bytes(struct reply *r, size_t n, uint8_t pad)
{
	struct call *call = r->call;
	uint8_t *buf = xalloc(n);

	pattern_fill(call->key, call->x_bytes, buf, n);
	h2_send_data(&r->conn->h, r->st, buf, n, false, pad);
	free(buf);
	call->x_bytes += n;
	call->x_flow += n + (pad ? pad + 1u : 0);
	call->x_padding += pad ? pad + 1u : 0;
	call->x_most = max_u64(call->x_most, call->x_bytes);
}

/* ---- ends ---------------------------------------------------------------- */

static void send_head(struct reply *r, const char *status, bool end)
{
	struct h2_shape shape = { .fragment = r->a->fragment, .pad = r->a->pad_percent ? 9 : 0 };
	struct field f[8] = {
		{ (char *)":status", (char *)status },
		{ (char *)"content-type", (char *)"application/grpc" },
		{ (char *)"date", (char *)"Thu, 01 Jan 1970 00:00:00 GMT" },
		{ (char *)"x-executor", (char *)r->conn->x->plan.name },
	};
	char number[12];
	size_t n = 4;

	if (r->a->kind == ANSWER_TRAILERS_ONLY) {
		snprintf(number, sizeof(number), "%d", r->a->status);
		f[n++] = (struct field){ (char *)"grpc-status", number };
		f[n++] = (struct field){ (char *)"grpc-status-details-bin", (char *)"ZGV0YWls" };
		if (r->a->message)
			f[n++] = (struct field){ (char *)"grpc-message", (char *)r->a->message };
	}
	h2_send_head(&r->conn->h, r->st, f, n, end, &shape);
	r->call->x_answered = true;
}

static void complete(struct reply *r)
{
	r->call->x_complete = true;
	if (r->a->rst_after)
		h2_send_rst(&r->conn->h, r->st, NGHTTP2_NO_ERROR);
	reply_over(r, false);
}

static void send_trailers(struct reply *r)
{
	struct h2_shape shape = { .fragment = r->a->fragment };
	struct field f[3];
	char number[12];
	size_t n = 0;

	snprintf(number, sizeof(number), "%d", r->a->kind == ANSWER_OK ? 0 : r->a->status);
	if (r->a->kind != ANSWER_NO_STATUS)
		f[n++] = (struct field){ (char *)"grpc-status", number };
	else
		f[n++] = (struct field){ (char *)"x-nothing", number };
	if (r->a->kind == ANSWER_STATUS) {
		f[n++] = (struct field){ (char *)"grpc-status-details-bin", (char *)"ZGV0YWls" };
		if (r->a->message)
			f[n++] = (struct field){ (char *)"grpc-message", (char *)r->a->message };
	}
	h2_send_head(&r->conn->h, r->st, f, n, true, &shape);
	if (r->a->kind != ANSWER_NO_STATUS)
		complete(r);
	else
		reply_over(r, false);
}

static void send_half_frame(struct reply *r, size_t room)
{
	uint8_t head[FRAME_HEAD + 200] = { 0 };
	size_t n = min_u64(room, 400);

	put_be24(head, (uint32_t)n);
	put_be32(head + 5, r->st->id);
	pattern_fill(r->call->key, r->call->x_bytes, head + FRAME_HEAD, n / 2);
	bytes_add(&r->conn->h.out, head, FRAME_HEAD + n / 2);
	/* Of a frame that was begun its first half may be delivered. */
	r->call->x_bytes += n / 2;
	r->call->x_flow += n / 2;
	r->call->x_most = max_u64(r->call->x_most, r->call->x_bytes);
}

static void break_rule(struct reply *r)
{
	static const uint8_t nonsense[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct h2end *h = &r->conn->h;
	uint32_t id = r->st->id;
	size_t big = (size_t)h->remote.frame + 1;
	uint8_t *zero = xalloc(big + 100), setting[6] = { 0, 4, 0x80 };

	switch (r->a->violation) {
	case BREAK_STREAM_WINDOW:
		while (r->st->send_win >= 16384)
			send_bytes(r, 16384, 0);
		/* Right bytes: a grant that is on its way may make it legal after all. */
		send_bytes(r, (size_t)r->st->send_win + 1, 0);
		break;
	case BREAK_HPACK:
		h2_send_raw(h, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, id, nonsense,
			    sizeof(nonsense));
		break;
	case BREAK_FRAME_SIZE:
		h2_send_raw(h, NGHTTP2_DATA, 0, id, zero, big);
		break;
	case BREAK_DATA_FIRST: /* no_head: nothing has been sent yet */
		h2_send_raw(h, NGHTTP2_DATA, 0, id, zero,
			    (size_t)min_i64(1, h2_sendable(h, r->st)));
		break;
	case BREAK_IDLE_STREAM:
		h2_send_raw(h, NGHTTP2_DATA, 0, h->last_remote + 1000, zero, 0);
		break;
	case BREAK_PUSH:
		put_be32(zero, 2);
		h2_send_raw(h, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, id, zero, 4);
		break;
	case BREAK_ZERO_UPDATE:
		h2_send_raw(h, NGHTTP2_WINDOW_UPDATE, 0, id, zero, 4);
		break;
	case BREAK_PADDING:
		zero[0] = 255;
		h2_send_raw(h, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, id, zero,
			    (size_t)min_i64(10, h2_sendable(h, r->st)));
		break;
	case BREAK_CONTINUATION:
		h2_send_raw(h, NGHTTP2_HEADERS, 0, id, "\x88", 1);
		h2_send_raw(h, NGHTTP2_DATA, 0, id, zero, 0);
		break;
	default:
		h2_send_raw(h, NGHTTP2_SETTINGS, 0, 0, setting, sizeof(setting));
		break;
	}
	free(zero);
	r->state = REPLY_SILENT;
}

static void finish(struct reply *r)
{
	struct h2end *h = &r->conn->h;
	uint64_t room = (uint64_t)h2_sendable(h, r->st);

	switch (r->a->kind) {
	case ANSWER_OK:
	case ANSWER_STATUS:
	case ANSWER_NO_STATUS:
		send_trailers(r);
		break;
	case ANSWER_TRAILERS_ONLY:
		send_head(r, "200", true);
		complete(r);
		break;
	case ANSWER_HTTP:
		send_head(r, "503", true);
		complete(r);
		break;
	case ANSWER_RST:
		h2_send_rst(h, r->st, r->a->code);
		reply_over(r, true);
		break;
	case ANSWER_END_DATA:
		h2_send_data(h, r->st, NULL, 0, true, 0);
		reply_over(r, false);
		break;
	case ANSWER_SILENT:
		r->state = REPLY_SILENT;
		break;
	case ANSWER_VIOLATION:
		break_rule(r);
		break;
	default:
		if (r->a->mid_frame && room < 4 && r->call->x_answered)
			return; /* waits for credit */
		if (r->a->mid_frame && r->call->x_answered)
			send_half_frame(r, room);
		r->conn->die_flushed = r->a->kind == ANSWER_FIN ? DEATH_FIN : DEATH_RST;
		break;
	}
}

/* ---- the body ------------------------------------------------------------ */

static uint64_t body_end(const struct reply *r)
{
	return r->a->kind == ANSWER_OK ? r->a->total : min_u64(r->a->cut, r->a->total);
}

/* False when the windows are closed. */
static bool send_body(struct reply *r)
{
	struct h2end *h = &r->conn->h;
	struct rng *rng = world_rng(r->conn->x->w);
	struct call *call = r->call;
	uint64_t left = body_end(r) - call->x_bytes, room = (uint64_t)h2_sendable(h, r->st);
	uint64_t most = r->a->frame ? min_u64(r->a->frame, h->remote.frame) : h->remote.frame;
	uint8_t pad = 0;
	size_t n;

	if (r->a->empty_percent && r->empties < 5 && r->all_empties < EMPTIES_MAX &&
	    rng_chance(rng, r->a->empty_percent)) {
		r->empties++;
		r->all_empties++;
		h2_send_data(h, r->st, NULL, 0, false, 0);
		return true;
	}
	r->empties = 0;
	if (!room)
		return false;
	most = min_u64(most, room);
	if (r->a->pad_percent && most > 1 && rng_chance(rng, r->a->pad_percent))
		pad = (uint8_t)rng_below(rng, min_u64(255, most - 1));
	n = min_u64(left, most - (pad ? pad + 1u : 0));
	if (n > 1 && rng_chance(rng, 20))
		n = rng_range(rng, 1, n);
	send_bytes(r, n, pad);
	return true;
}

/* One frame, or one step. False when this reply has to wait. */
static bool step(struct reply *r)
{
	if (r->state == REPLY_REQUEST || r->state >= REPLY_SILENT)
		return false;
	if (r->not_before > now_of(r)) {
		xconn_wake(r->conn, r->not_before);
		return false;
	}
	switch (r->state) {
	case REPLY_HEAD:
		if (r->a->no_head || r->a->kind == ANSWER_TRAILERS_ONLY ||
		    r->a->kind == ANSWER_HTTP) {
			r->state = REPLY_END;
			return true;
		}
		send_head(r, "200", false);
		r->state = REPLY_BODY;
		r->not_before = now_of(r) + r->a->gap_ns;
		return true;
	case REPLY_BODY:
		if (r->call->x_bytes >= body_end(r)) {
			r->state = REPLY_END;
			r->not_before = now_of(r) + r->a->end_delay_ns;
			return true;
		}
		r->not_before = now_of(r) + r->a->gap_ns;
		return send_body(r);
	default:
		finish(r);
		return r->state != REPLY_END;
	}
}

bool replies_pump(struct xconn *c)
{
	struct rng *rng = world_rng(c->x->w);
	unsigned start, stuck = 0;

	if (!c->n_replies || !c->h.got_settings)
		return false;
	start = (unsigned)rng_below(rng, c->n_replies);
	for (unsigned i = start; stuck < c->n_replies; i++) {
		if (c->h.out.len > OUT_MAX || c->die_flushed)
			return true;
		stuck = step(c->replies[i % c->n_replies]) ? 0 : stuck + 1;
	}
	return false;
}
