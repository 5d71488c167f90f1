/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_frames.c - what a client's bytes mean.
 *
 * Bytes are received into the worker's scratch buffer and parsed in place; only
 * an incomplete frame (at most 16 KiB) is kept per client. A header block that
 * spans CONTINUATIONs is collected under caps of bytes and frames. Everything a
 * client can make us do without paying for it with requests is on a budget.
 *
 * WINDOW_UPDATEs are only noted while a batch is parsed; what they allow is sent
 * once, at its end.
 */
#include <stdlib.h>

#include "session/request.h"
#include "session/state.h"

/* One batch cannot be answered with more: no answer to a frame is longer than it. */
_Static_assert(OUTQ_CTRL_MAX > SCRATCH_SIZE + 1024, "else who reads everything may be cut off");

#define CREDIT_BACK (16 * KiB) /* request bytes before a connection WINDOW_UPDATE */

static bool alive(const struct client *c)
{
	return c->state != CLIENT_CLOSED && !c->closing;
}

/* Ends the client for a budget. Returns false. */
static bool over(struct client *c, enum budget_id id)
{
	session_exhausted(c->session, id);
	client_fail(c, H2_ENHANCE_YOUR_CALM, "budget %s exhausted", budget_name(id));
	return false;
}

/* For what costs the sender nothing. False when the client was ended. */
static bool charge(struct client *c, enum budget_id id, uint32_t cost)
{
	return budget_spend(&c->budgets, id, cost, c->session->now) || over(c, id);
}

/*
 * Frames that a peer sent before it saw our RST_STREAM are no error of its (RFC 9113
 * 5.1, "closed"); answering each with another reset would be one of ours.
 */
static bool reset_lately(const struct client *c, uint32_t id)
{
	if (id > c->goaway_id)
		return true; /* nor are those of a stream that we told it to try elsewhere */
	for (size_t i = 0; i < RESET_IDS; i++) {
		if (c->reset_ids[i] == id)
			return true;
	}
	return false;
}

/* A stream error: RST_STREAM, on the same budget as the client's own resets. */
static void stream_error(struct client *c, uint32_t id, uint32_t h2_error)
{
	struct stream *s = stream_find(c, id);

	if (!charge(c, BUDGET_CLIENT_RESET, 1))
		return;
	if (s) {
		stream_reason(s, "client: stream error %s", h2_error_name(h2_error));
		answer_reset(s, h2_error, END_CLIENT);
		return;
	}
	client_put_reset(c, id, h2_error);
}

/* --------------------------------------------------------------------- DATA */

static void credit_back(struct client *c, uint32_t n)
{
	uint8_t *p;

	c->recv_unacked += n;
	if (c->recv_unacked < CREDIT_BACK)
		return;
	p = client_ctrl(c, 13);
	if (!p)
		return;
	h2_put_window_update(p, 0, c->recv_unacked);
	c->recv_unacked = 0;
}

static void request_complete(struct stream *s)
{
	const uint8_t *msg;
	const char *why;
	uint32_t len;

	if (s->method != FLIGHT_DO_GET) {
		answer_health(s);
		return;
	}
	msg = grpc_reader_bytes(&s->request, &len);
	if (ticket_decode(msg + 5, len - 5, &s->ticket, &why)) {
		answer_status(s, GRPC_INVALID_ARGUMENT, END_PROXY, "ticket: %s", why);
		return;
	}
	s->has_ticket = true;
	route_stream(s);
}

/* Request bytes that the stream keeps from now on. False when it was answered. */
static bool keep(struct stream *s, uint32_t bytes)
{
	struct session *ss = s->client->session;

	s->request_mem += bytes;
	ss->requests += bytes;
	if (!session_full(ss))
		return true;
	session_exhausted(ss, BUDGET_MEMORY);
	answer_status(s, GRPC_RESOURCE_EXHAUSTED, END_PROXY,
		      "budget %s exhausted: results and requests in flight are over "
		      "--total-inflight",
		      budget_name(BUDGET_MEMORY));
	return false;
}

/* The client has ended its half. */
static void request_ended(struct stream *s)
{
	s->client_ended = true;
	if (s->content_length >= 0 && (uint64_t)s->content_length != s->body_len) {
		stream_error(s->client, s->id, H2_PROTOCOL_ERROR);
	} else if (s->state == STREAM_ANSWERED) {
		stream_close(s, END_PROXY);
	} else if (s->state == STREAM_REQUEST) {
		answer_status(s, GRPC_INVALID_ARGUMENT, END_PROXY, "ticket: %s",
			      s->request.have ? "request ended inside the message"
					      : "request has no message");
	} else if (s->up) {
		upstream_pump_request(s->up, s);
	}
}

static void feed_request(struct stream *s, const uint8_t *p, uint32_t len)
{
	uint32_t max = s->request.max;
	bool had = s->request.msg;
	enum grpc_read r;

	if (s->state == STREAM_ANSWERED)
		return;
	r = grpc_reader_feed(&s->request, p, len);
	if (!had && s->request.msg && !keep(s, 5 + get_be32(s->request.prefix + 1)))
		return;
	switch (r) {
	case GRPC_READ_MORE:
		break;
	case GRPC_READ_DONE:
		if (s->state == STREAM_REQUEST)
			request_complete(s);
		break;
	case GRPC_READ_EXTRA:
		answer_status(s, GRPC_INVALID_ARGUMENT, END_PROXY,
			      "ticket: bytes after the request message");
		break;
	case GRPC_READ_TOO_LARGE:
		answer_status(s, GRPC_INVALID_ARGUMENT, END_PROXY,
			      "ticket: message of %u bytes is over %u (--max-ticket)",
			      get_be32(s->request.prefix + 1), max);
		break;
	case GRPC_READ_COMPRESSED:
		answer_status(s, GRPC_UNIMPLEMENTED, END_PROXY,
			      "ticket: compressed request messages are not supported");
		break;
	case GRPC_READ_NOMEM:
		answer_status(s, GRPC_RESOURCE_EXHAUSTED, END_PROXY, "out of memory");
		break;
	}
}

static void on_data(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	struct stream *s = stream_find(c, f->stream);
	const uint8_t *content;
	uint32_t len, dependency, err;

	if (f->stream > c->last_id) {
		client_fail(c, H2_PROTOCOL_ERROR, "DATA on an idle stream");
		return;
	}
	err = h2_payload(f, payload, &content, &len, &dependency);
	if (err) {
		client_fail(c, err, "DATA with bad padding");
		return;
	}
	credit_back(c, f->length);
	if (!s || s->client_ended) {
		if (s || !reset_lately(c, f->stream))
			stream_error(c, f->stream, H2_STREAM_CLOSED);
		return;
	}
	if (!len && !(f->flags & H2_FLAG_END_STREAM) && !charge(c, BUDGET_CLIENT_EMPTY_DATA, 1))
		return;
	s->body_len += len;
	if (f->flags & H2_FLAG_END_STREAM && s->content_length < 0) {
		/* Known before the request goes out, so that it can say so in one frame. */
		s->client_ended = true;
	}
	if (len)
		feed_request(s, content, len);
	if (f->flags & H2_FLAG_END_STREAM && s->state != STREAM_CLOSED)
		request_ended(s);
}

/* ------------------------------------------------------------------ HEADERS */

static int ignore_field(void *arg, const struct hpack_field *f)
{
	(void)arg;
	(void)f;
	return 0;
}

/* Decodes a block whose content does not matter: the table must stay right. */
static bool skip_block(struct client *c, const uint8_t *block, uint32_t len)
{
	int r = hpack_decode(c->hpack, block, len, CLIENT_HEADER_LIST_MAX, ignore_field, NULL);

	if (r && r != -E2BIG) {
		client_fail(c, H2_COMPRESSION_ERROR, "header block does not decode");
		return false;
	}
	return true;
}

/* A second header block of a stream: request trailers. */
static void on_trailers(struct client *c, struct stream *s, uint8_t flags, const uint8_t *block,
			uint32_t len)
{
	int r = hpack_decode(c->hpack, block, len, CLIENT_HEADER_LIST_MAX, request_trailer_field,
			     NULL);

	if (r == -EBADMSG || r == -ENOMEM)
		client_fail(c, H2_COMPRESSION_ERROR, "trailers do not decode");
	else if (r || !(flags & H2_FLAG_END_STREAM))
		stream_error(c, s->id, H2_PROTOCOL_ERROR);
	else
		request_ended(s);
}

static void unserved(struct stream *s, const struct request *rq)
{
	if (s->method == FLIGHT_OTHER)
		answer_status(s, GRPC_UNIMPLEMENTED, END_PROXY,
			      "%.*s is not served here: this is a result proxy, it serves DoGet "
			      "(DoAction IO_BLOCK_TRANSPORT is between executors)",
			      (int)min_u64(rq->path_len, 80), rq->path);
	else
		answer_status(s, GRPC_UNIMPLEMENTED, END_PROXY, "unknown method %.*s",
			      (int)min_u64(rq->path_len, 80), rq->path);
}

/* One stream too many. Not only an attacker's: a client may not have seen our SETTINGS yet. */
static void refuse(struct client *c, uint32_t id)
{
	session_exhausted(c->session, BUDGET_CLIENT_STREAMS);
	session_event(c->session, EVENT_BUDGET, &c->peer, H2_REFUSED_STREAM,
		      "budget %s: over %u streams at once (--max-streams)",
		      budget_name(BUDGET_CLIENT_STREAMS),
		      c->session->env.config->limits.max_streams);
	stream_error(c, id, H2_REFUSED_STREAM);
}

static void new_request(struct client *c, uint32_t id, uint8_t flags, const uint8_t *block,
			uint32_t len)
{
	struct request rq;
	struct stream *s;
	int r;

	if (c->state == CLIENT_DRAINING) {
		/* Above the last id we announced: the client knows to go elsewhere. */
		skip_block(c, block, len);
		return;
	}
	if (c->n_streams >= c->session->env.config->limits.max_streams) {
		if (skip_block(c, block, len))
			refuse(c, id);
		return;
	}
	request_init(&rq, c->session->now);
	r = hpack_decode(c->hpack, block, len, CLIENT_HEADER_LIST_MAX, request_field, &rq);
	if (r == -EBADMSG || r == -ENOMEM) {
		client_fail(c, H2_COMPRESSION_ERROR, "header block does not decode");
		return;
	}
	s = stream_new(c, id);
	if (!s) {
		stream_error(c, id, H2_REFUSED_STREAM);
		return;
	}
	stream_arm(s);
	budget_earn(&c->budgets, BUDGET_CLIENT_CONTROL, BUDGET_CONTROL_EARNED);
	budget_earn(&c->budgets, BUDGET_CLIENT_WINDOW_UPDATE, BUDGET_WINDOW_EARNED);
	s->client_ended = flags & H2_FLAG_END_STREAM;
	s->method = request_method(&rq);
	s->content_length = rq.content_length;
	s->deadline_ns = rq.deadline_ns;
	memcpy(s->traceparent, rq.traceparent, sizeof(s->traceparent));
	if (r == -EPROTO || (r != -E2BIG && !request_valid(&rq))) {
		stream_error(c, id, H2_PROTOCOL_ERROR);
		return;
	}
	if (r == -E2BIG || r == -ENOSPC) {
		answer_status(s, GRPC_RESOURCE_EXHAUSTED, END_PROXY,
			      "request headers are over %u bytes", CLIENT_HEADER_LIST_MAX);
		return;
	}
	if (s->method == FLIGHT_OTHER || s->method == FLIGHT_UNKNOWN || !rq.post) {
		unserved(s, &rq);
		return;
	}
	s->block = malloc(rq.block_len);
	if (!s->block) {
		answer_status(s, GRPC_RESOURCE_EXHAUSTED, END_PROXY, "out of memory");
		return;
	}
	memcpy(s->block, rq.block, rq.block_len);
	s->block_len = (uint32_t)rq.block_len;
	stream_arm(s);
	if (!keep(s, s->block_len))
		return;
	if (s->client_ended)
		request_ended(s);
}

/* A whole block has come. */
static void on_block(struct client *c, uint32_t id, uint8_t flags, const uint8_t *block,
		     uint32_t len)
{
	struct stream *s = stream_find(c, id);

	c->block_ns = 0;
	if (id > c->last_id) {
		c->last_id = id;
		new_request(c, id, flags, block, len);
	} else if (s && !s->client_ended) {
		on_trailers(c, s, flags, block, len);
	} else if (s) {
		if (skip_block(c, block, len))
			stream_error(c, id, H2_STREAM_CLOSED);
	} else if (reset_lately(c, id)) {
		skip_block(c, block, len);
	} else {
		client_fail(c, H2_STREAM_CLOSED, "HEADERS on a closed stream");
	}
}

static bool block_append(struct client *c, const uint8_t *p, uint32_t len)
{
	uint8_t *q;

	if (c->hblock_len + len > CLIENT_HEADER_BLOCK_MAX)
		return over(c, BUDGET_CLIENT_HEADER_BYTES);
	if (++c->hblock_frames > CLIENT_CONTINUATION_MAX)
		return over(c, BUDGET_CLIENT_HEADER_FRAMES);
	q = realloc(c->hblock, c->hblock_len + len + 1);
	if (!q) {
		client_fail(c, H2_INTERNAL_ERROR, "out of memory");
		return false;
	}
	c->hblock = q;
	memcpy(q + c->hblock_len, p, len);
	c->hblock_len += len;
	return true;
}

static void on_headers(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	const uint8_t *content;
	uint32_t len, dependency, err;

	err = h2_payload(f, payload, &content, &len, &dependency);
	if (err) {
		client_fail(c, err, "HEADERS with bad padding or priority");
		return;
	}
	if (f->flags & H2_FLAG_END_HEADERS) {
		on_block(c, f->stream, f->flags, content, len);
	} else {
		c->hblock_len = 0;
		c->hblock_frames = 0;
		if (!block_append(c, content, len))
			return;
		c->hblock_stream = f->stream;
		c->hblock_flags = f->flags;
	}
	if (dependency == f->stream && f->flags & H2_FLAG_PRIORITY && alive(c))
		stream_error(c, f->stream, H2_PROTOCOL_ERROR);
}

static void on_continuation(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	uint32_t id = c->hblock_stream;

	if (!id) {
		client_fail(c, H2_PROTOCOL_ERROR, "CONTINUATION without HEADERS");
		return;
	}
	if (!block_append(c, payload, f->length) || !(f->flags & H2_FLAG_END_HEADERS))
		return;
	c->hblock_stream = 0;
	on_block(c, id, c->hblock_flags, c->hblock, c->hblock_len);
	free(c->hblock);
	c->hblock = NULL;
}

/* ------------------------------------------------------------ control frames */

static void on_rst_stream(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	struct stream *s = stream_find(c, f->stream);

	if (f->stream > c->last_id) {
		client_fail(c, H2_PROTOCOL_ERROR, "RST_STREAM on an idle stream");
		return;
	}
	if (!charge(c, BUDGET_CLIENT_RESET, 1) || !s)
		return;
	stream_reason(s, "client: RST_STREAM %s", h2_error_name(get_be32(payload)));
	stream_close(s, END_CLIENT);
}

/*
 * The ACK must not overtake DATA that was allowed by the old settings: behind a
 * queue it goes into the queue.
 */
static void ack_settings(struct client *c)
{
	uint8_t frame[H2_HEADER_LEN], *p;
	struct iovec piece = { frame, sizeof(frame) };

	h2_put_settings_ack(frame);
	if (!outq_bulk_empty(&c->out)) {
		client_write(c, &piece, 1, 0, NULL);
		return;
	}
	p = client_ctrl(c, sizeof(frame));
	if (p)
		memcpy(p, frame, sizeof(frame));
}

static void on_settings(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	int64_t before = c->settings.initial_window_size, delta;
	struct list *pos, *tmp;
	uint32_t err;

	if (f->flags & H2_FLAG_ACK) {
		(void)charge(c, BUDGET_CLIENT_CONTROL, 1);
		return;
	}
	if (!charge(c, BUDGET_CLIENT_SETTINGS, 1 + f->length / 256))
		return;
	err = h2_settings_apply(&c->settings, payload, f->length, H2_FROM_CLIENT);
	if (err) {
		client_fail(c, err, "SETTINGS with a value out of range");
		return;
	}
	delta = (int64_t)c->settings.initial_window_size - before;
	if (delta < 0 && c->spliced)
		(void)spliced_begin_write(c); /* what is forwarded from here on is held to it */
	list_for_each_safe (pos, tmp, &c->streams) {
		struct stream *s = list_entry(pos, struct stream, link);

		if (ledger_shift(&s->window, delta)) {
			client_fail(c, H2_FLOW_CONTROL_ERROR,
				    "INITIAL_WINDOW_SIZE makes a window overflow");
			return;
		}
		s->opened = s->opened || delta > 0;
	}
	if (!c->settings_seen) {
		c->settings_seen = true;
		c->state = CLIENT_OPEN;
	}
	ack_settings(c);
}

static void on_ping(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	uint8_t *p;

	if (f->flags & H2_FLAG_ACK) {
		if (charge(c, BUDGET_CLIENT_CONTROL, 1))
			client_drain_final(c);
		return;
	}
	if (!charge(c, BUDGET_CLIENT_PING, 1))
		return;
	p = client_ctrl(c, 17);
	if (p)
		h2_put_ping(p, payload, true);
}

static void on_window_update(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	uint32_t inc = get_be32(payload) & H2_MAX_WINDOW, err;
	struct stream *s;

	if (inc < BUDGET_TINY_WINDOW && !charge(c, BUDGET_CLIENT_WINDOW_UPDATE, 1))
		return;
	if (!f->stream) {
		err = ledger_open(&c->window, inc);
		if (err)
			client_fail(c, err, "connection WINDOW_UPDATE of %u", inc);
		c->window_opened = true;
		return;
	}
	if (f->stream > c->last_id) {
		client_fail(c, H2_PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream");
		return;
	}
	s = stream_find(c, f->stream);
	if (!s) {
		(void)charge(c, BUDGET_CLIENT_CONTROL, 1);
		return;
	}
	err = ledger_open(&s->window, inc);
	if (err)
		stream_error(c, f->stream, err);
	else
		s->opened = true;
}

static void on_priority(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	if (!charge(c, BUDGET_CLIENT_CONTROL, 1))
		return;
	if ((get_be32(payload) & H2_MAX_STREAM_ID) == f->stream)
		stream_error(c, f->stream, H2_PROTOCOL_ERROR);
}

static void on_frame(struct client *c, const struct h2_frame *f, const uint8_t *payload)
{
	if (!c->settings_seen && (f->type != H2_SETTINGS || f->flags & H2_FLAG_ACK)) {
		client_fail(c, H2_PROTOCOL_ERROR, "first frame is not SETTINGS");
		return;
	}
	if (c->hblock_stream && (f->type != H2_CONTINUATION || f->stream != c->hblock_stream)) {
		client_fail(c, H2_PROTOCOL_ERROR, "%s inside a header block",
			    h2_type_name(f->type));
		return;
	}
	switch (f->type) {
	case H2_DATA:
		on_data(c, f, payload);
		break;
	case H2_HEADERS:
		on_headers(c, f, payload);
		break;
	case H2_PRIORITY:
		on_priority(c, f, payload);
		break;
	case H2_RST_STREAM:
		on_rst_stream(c, f, payload);
		break;
	case H2_SETTINGS:
		on_settings(c, f, payload);
		break;
	case H2_PING:
		on_ping(c, f, payload);
		break;
	case H2_GOAWAY:
		c->goaway_seen = true;
		(void)charge(c, BUDGET_CLIENT_CONTROL, 1);
		break;
	case H2_WINDOW_UPDATE:
		on_window_update(c, f, payload);
		break;
	case H2_CONTINUATION:
		on_continuation(c, f, payload);
		break;
	default:
		(void)charge(c, BUDGET_CLIENT_CONTROL, 1);
	}
}

/* ------------------------------------------------------------------- parsing */

/* A request line of HTTP/1, as far as it has come: "GET /x HTTP/1.1". */
static bool is_http1(const uint8_t *p, size_t len)
{
	const uint8_t *eol = memchr(p, '\n', len);

	return p[0] >= 'A' && p[0] <= 'Z' &&
	       memmem(p, eol ? (size_t)(eol - p) : len, " HTTP/1.", 8);
}

/*
 * Somebody who does not speak HTTP/2: one line in the log, an answer if it is HTTP/1.
 * Anybody else could not read one (RFC 9113 3.4).
 */
static void not_http2(struct client *c, const uint8_t *p, size_t len)
{
	static const char answer[] =
		"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\n"
		"Content-Type: text/plain\r\nContent-Length: 59\r\n\r\n"
		"flightsplice: this port speaks gRPC over HTTP/2 (h2c) only\n";
	struct iovec iov = { (void *)answer, sizeof(answer) - 1 };
	bool tls = p[0] == 0x16, http1 = is_http1(p, len);

	STAT_ADD(c->session, client_errors, 1);
	session_event(c->session, EVENT_CLIENT_ERROR, &c->peer, H2_HTTP_1_1_REQUIRED,
		      "not HTTP/2: %s",
		      tls     ? "TLS on the plain port"
		      : http1 ? "HTTP/1"
			      : "no connection preface");
	if (http1)
		(void)c->port->ops->sendv(c->port, &iov, 1);
	c->closing = true;
	client_dirty(c);
}

/* Returns the bytes consumed. */
static size_t parse(struct client *c, const uint8_t *buf, size_t len)
{
	size_t off = 0;

	if (!c->preface_seen) {
		if (memcmp(buf, H2_PREFACE, min_u64(len, H2_PREFACE_LEN))) {
			not_http2(c, buf, len);
			return len;
		}
		if (len < H2_PREFACE_LEN)
			return 0;
		c->preface_seen = true;
		client_greet(c);
		off = H2_PREFACE_LEN;
	}
	while (alive(c) && len - off >= H2_HEADER_LEN) {
		struct h2_frame f = h2_frame_get(buf + off);
		bool on_stream = false;
		uint32_t err =
			h2_frame_check(&f, H2_FROM_CLIENT, H2_DEFAULT_FRAME_SIZE, &on_stream);

		if (err && !on_stream) {
			client_fail(c, err, "malformed %s frame", h2_type_name(f.type));
			break;
		}
		if (len - off < H2_HEADER_LEN + f.length)
			break;
		if (err)
			stream_error(c, f.stream, err);
		else
			on_frame(c, &f, buf + off + H2_HEADER_LEN);
		off += H2_HEADER_LEN + f.length;
	}
	return alive(c) ? off : len;
}

/* What the batch's WINDOW_UPDATEs and SETTINGS allow now, one stream after another. */
static void use_windows(struct client *c)
{
	bool all = c->window_opened;

	c->window_opened = false;
	for (uint32_t n = c->n_streams; n && !list_empty(&c->streams); n--) {
		struct stream *s = list_first(&c->streams, struct stream, link);

		if (all && c->window <= 0)
			break; /* the next opening begins with this stream */
		list_del(&s->link);
		list_add_tail(&c->streams, &s->link);
		if (!all && !s->opened)
			continue;
		s->opened = false;
		stream_release(s);
		if (!alive(c))
			break;
	}
	if (alive(c))
		spliced_resume(c);
}

static void keep_rest(struct client *c, const uint8_t *p, size_t len)
{
	if (!len) {
		chunk_put(&c->session->pool, c->rx);
		c->rx = NULL;
		return;
	}
	if (!c->rx)
		c->rx = chunk_get(&c->session->pool, CHUNK_SMALL);
	if (!c->rx) {
		client_fail(c, H2_INTERNAL_ERROR, "out of memory");
		return;
	}
	assert(len <= c->rx->cap);
	memcpy(c->rx->data, p, len);
	c->rx->end = (uint32_t)len;
}

/* A header block that has begun has to end, see client_expired(). */
static void watch_block(struct client *c, const uint8_t *rest, size_t len)
{
	if (!c->hblock_stream && (len < H2_HEADER_LEN || h2_frame_get(rest).type != H2_HEADERS)) {
		c->block_ns = 0;
	} else if (!c->block_ns) {
		c->block_ns = c->session->now;
		client_arm(c);
	}
}

static void on_eof(struct client *c)
{
	c->eof = true;
	/* HTTP/2 has no half-closed connections: nobody waits for unfinished results. */
	client_note(c, "disconnected", 0);
	while (!list_empty(&c->streams))
		stream_close(list_first(&c->streams, struct stream, link), END_CLIENT);
	if (outq_empty(&c->out) && !c->splice) {
		client_close(c, false, END_CLIENT);
		return;
	}
	/* A complete result may still be on its way: it is delivered first. */
	c->closing = true;
	client_want(c);
	client_dirty(c);
}

void client_readable(struct client *c)
{
	uint8_t *buf = c->session->scratch;
	size_t have = c->rx ? c->rx->end : 0, used;
	ssize_t n;

	if (have)
		memcpy(buf, c->rx->data, have);
	n = c->port->ops->recv(c->port, buf + have, SCRATCH_SIZE - have);
	if (n == -EAGAIN)
		return;
	if (n < 0) {
		client_note(c, "connection lost", (int)-n);
		client_close(c, true, END_CLIENT);
		return;
	}
	if (!n) {
		on_eof(c);
		return;
	}
	c->active_ns = c->session->now;
	if (c->closing)
		return;
	/* What it acknowledges now has left before: its windows must not seem to overflow. */
	if (c->spliced)
		spliced_sync(c->spliced);
	used = parse(c, buf, have + (size_t)n);
	if (!alive(c))
		return;
	watch_block(c, buf + used, have + (size_t)n - used);
	keep_rest(c, buf + used, have + (size_t)n - used);
	if (alive(c))
		use_windows(c);
}
