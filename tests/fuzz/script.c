/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/script.h"

#include "h2/hpack.h"

struct config script_config(unsigned variant)
{
	static const uint64_t inflight[] = { 256 * KiB, 1 * MiB, 8 * MiB, 64 * KiB };
	static const uint64_t promote[] = { 1, 4096, 65536, 300000 };
	struct config c = {
		.datapath = variant & 16 ? DATAPATH_AUTO : DATAPATH_SOCKMAP,
		.workers = 1,
		.unreachable_status = 2,
		.timeouts = {
			.connect_ns = 5 * NSEC_PER_SEC,
			.handshake_ns = 10 * NSEC_PER_SEC,
			.response_ns = 60 * NSEC_PER_SEC,
			.stall_ns = 30 * NSEC_PER_SEC,
			.client_ns = 300 * NSEC_PER_SEC,
			.idle_ns = 600 * NSEC_PER_SEC,
			.drain_ns = 300 * NSEC_PER_SEC,
		},
		.limits = {
			.max_clients = 100,
			.max_streams = 8,
			.max_ticket = 40000,
			.client_inflight = inflight[variant & 3],
			.total_inflight = 2 * inflight[variant & 3],
			.promote_after = promote[(variant >> 2) & 3],
		},
	};
	return c;
}

/* --------------------------------------------------------------------- frames */

void send_settings(struct peer *p, uint16_t id, uint32_t value)
{
	uint8_t b[6];

	(void)h2_put_setting(b, id, value);
	peer_frame(p, H2_SETTINGS, 0, 0, b, id ? sizeof(b) : 0);
}

static void send_u32(struct peer *p, uint8_t type, uint32_t stream, uint32_t v)
{
	uint8_t b[4];

	put_be32(b, v);
	peer_frame(p, type, 0, stream, b, sizeof(b));
}

void send_update(struct peer *p, uint32_t stream, uint32_t inc)
{
	send_u32(p, H2_WINDOW_UPDATE, stream, inc);
}

void send_rst(struct peer *p, uint32_t stream, uint32_t code)
{
	send_u32(p, H2_RST_STREAM, stream, code);
}

void send_ping(struct peer *p, bool ack)
{
	uint8_t b[8];

	put_be32(b, world_random(p->world));
	put_be32(b + 4, world_random(p->world));
	peer_frame(p, H2_PING, ack ? H2_FLAG_ACK : 0, 0, b, sizeof(b));
}

void send_goaway(struct peer *p, uint32_t last, uint32_t code)
{
	uint8_t b[8];

	put_be32(b, last);
	put_be32(b + 4, code);
	peer_frame(p, H2_GOAWAY, 0, 0, b, sizeof(b));
}

static void send_padded(struct peer *p, uint8_t type, uint8_t flags, uint32_t stream,
			const uint8_t *data, size_t n, uint8_t pad)
{
	static const uint8_t zero[255];
	struct bytes b = { .p = NULL };

	if (!pad) {
		peer_frame(p, type, flags, stream, data, n);
		return;
	}
	bytes_add(&b, &pad, 1);
	bytes_add(&b, data, n);
	bytes_add(&b, zero, pad);
	peer_frame(p, type, flags | H2_FLAG_PADDED, stream, b.p, b.len);
	bytes_free(&b);
}

/* A block in one frame, or cut in two. */
static void send_block(struct peer *p, uint32_t stream, const uint8_t *block, size_t n, bool end,
		       uint8_t pad, bool cut)
{
	uint8_t flags = end ? H2_FLAG_END_STREAM : 0;
	size_t first = cut ? n / 2 : n;

	if (!cut)
		flags |= H2_FLAG_END_HEADERS;
	send_padded(p, H2_HEADERS, flags, stream, block, first, pad);
	if (cut)
		peer_frame(p, H2_CONTINUATION, H2_FLAG_END_HEADERS, stream, block + first,
			   n - first);
}

/* ------------------------------------------------------------------- requests */

void client_hello(struct peer *p, uint32_t initial)
{
	peer_send(p, H2_PREFACE, H2_PREFACE_LEN);
	send_settings(p, initial ? H2_SETTINGS_INITIAL_WINDOW_SIZE : 0, initial);
}

/* A Flight ticket for executor `host`, with bulk unknown bytes in it. */
static void put_ticket(struct bytes *m, const struct request_shape *s, uint32_t key)
{
	static const uint8_t padding[20000] = { 0 };
	uint8_t fetch[64], head[8];
	size_t n = 0, bulk = s->ticket == TICKET_BULKY ? sizeof(padding) : 0, total;
	char host[8];

	fetch[n++] = 0x0a; /* job_id */
	fetch[n++] = 8;
	n += (size_t)snprintf((char *)fetch + n, 9, "%08x", key);
	snprintf(host, sizeof(host), "exec%u", s->host % 3);
	if (s->ticket != TICKET_NO_HOST) {
		fetch[n++] = 0x2a;
		fetch[n++] = 5;
		memcpy(fetch + n, host, 5);
		n += 5;
	}
	fetch[n++] = 0x30; /* port 50050 */
	fetch[n++] = 0x82;
	fetch[n++] = 0x87;
	fetch[n++] = 0x03;
	/* Action: fetch_partition, then an unknown field of `bulk` bytes. */
	total = 2 + n + (bulk ? 4 + bulk : 0);
	head[0] = 0x0a;
	head[1] = (uint8_t)(total | 0x80);
	head[2] = (uint8_t)(total >> 7 | 0x80);
	head[3] = (uint8_t)(total >> 14);
	bytes_add(m, head, 4);
	head[0] = 0x1a;
	head[1] = (uint8_t)n;
	bytes_add(m, head, 2);
	bytes_add(m, fetch, n);
	if (bulk) {
		head[0] = 0x7a;
		head[1] = (uint8_t)(bulk | 0x80);
		head[2] = (uint8_t)(bulk >> 7 | 0x80);
		head[3] = (uint8_t)(bulk >> 14);
		bytes_add(m, head, 4);
		bytes_add(m, padding, bulk);
	}
}

static void put_message(struct bytes *m, const struct request_shape *s, uint32_t key)
{
	uint8_t prefix[5] = { s->ticket == TICKET_COMPRESSED };

	bytes_add(m, prefix, 5);
	if (s->ticket == TICKET_GARBAGE)
		bytes_add(m, "\xff\xff\xff\xff", 4);
	else if (s->path == PATH_DO_GET && s->ticket != TICKET_EMPTY)
		put_ticket(m, s, key);
	put_be32(m->p + 1, s->ticket == TICKET_TOO_LARGE ? 1u << 30 : (uint32_t)m->len - 5);
	if (s->ticket == TICKET_EXTRA)
		bytes_add(m, "x", 1);
	else if (s->ticket == TICKET_HALF)
		m->len /= 2;
}

static size_t put_request_block(uint8_t *b, size_t cap, const struct request_shape *s, uint32_t key)
{
	static const char *const paths[] = {
		[PATH_DO_GET] = "/arrow.flight.protocol.FlightService/DoGet",
		[PATH_CHECK] = "/grpc.health.v1.Health/Check",
		[PATH_WATCH] = "/grpc.health.v1.Health/Watch",
		[PATH_OTHER] = "/arrow.flight.protocol.FlightService/DoPut",
		[PATH_UNKNOWN] = "/x.Y/Z",
	};
	char text[5] = { 0 };
	size_t n = 0;
	int r = 0;

	memcpy(text, &key, 4);
	r |= hpack_encode_str(b, cap, &n, ":method", "POST");
	r |= hpack_encode_str(b, cap, &n, ":scheme", "http");
	r |= hpack_encode_str(b, cap, &n, ":path", paths[s->path % PATHS]);
	r |= hpack_encode_str(b, cap, &n, "te", "trailers");
	r |= hpack_encode_str(b, cap, &n, KEY_FIELD, text);
	if (s->timeout)
		r |= hpack_encode_str(b, cap, &n, "grpc-timeout", "1S");
	if (s->malformed)
		r |= hpack_encode_str(b, cap, &n, "Upper", "x");
	CHECK(!r);
	return n;
}

uint32_t client_request(struct peer *p, const struct request_shape *s)
{
	struct bytes m = { .p = NULL };
	uint32_t id = p->next_id, key = 0;
	uint8_t block[512], pad = s->padded ? 7 : 0;
	size_t n, off = 0;

	/* Printable, so that it is a legal field value. */
	for (uint32_t v = ++p->world->last_key, i = 0; i < 4; i++, v >>= 4)
		key = key << 8 | ('a' + (v & 15));
	p->next_id += 2;
	n = put_request_block(block, sizeof(block), s, key);
	send_block(p, id, block, n, false, pad, s->continuation);
	put_message(&m, s, key);
	do {
		size_t k = min_u64(m.len - off, s->pieces ? 11 : 16000);
		bool end = off + k == m.len && s->end_on_data && !s->no_end;

		send_padded(p, H2_DATA, end ? H2_FLAG_END_STREAM : 0, id, m.p + off, k, pad);
		off += k;
	} while (off < m.len && p->port && p->world->budget > 100);
	if (!s->end_on_data && !s->no_end)
		peer_frame(p, H2_DATA, H2_FLAG_END_STREAM, id, NULL, 0);
	bytes_free(&m);
	return id;
}

/* ------------------------------------------------------------------ responses */

int64_t exec_credit(const struct half *s)
{
	return max_i64(s->granted - s->queued, 0);
}

void exec_head(struct peer *p, struct half *s, enum head_kind kind)
{
	/* A literal with incremental indexing, and an index into the dynamic table. */
	static const uint8_t added[] = { 0x40, 1, 'a', 1, 'b' };
	uint8_t b[128];
	size_t n = 0;
	bool end = kind == HEAD_ONLY || kind == HEAD_HTTP_503;
	const char *status = kind == HEAD_INFORMATIONAL ? "103"
			     : kind == HEAD_HTTP_503    ? "503"
							: "200";

	if (kind == HEAD_UPDATE)
		b[n++] = 0x20;
	if (kind != HEAD_NO_STATUS)
		CHECK(!hpack_encode_str(b, sizeof(b), &n, ":status", status));
	if (kind == HEAD_INCREMENTAL || kind == HEAD_DYNAMIC) {
		memcpy(b + n, added, sizeof(added));
		n += sizeof(added);
	}
	if (kind == HEAD_DYNAMIC)
		b[n++] = 0x80 | 62;
	CHECK(!hpack_encode_str(b, sizeof(b), &n, "content-type", "application/grpc"));
	if (kind == HEAD_ONLY)
		CHECK(!hpack_encode_str(b, sizeof(b), &n, "grpc-status", "0"));
	if (kind == HEAD_ILLEGAL)
		CHECK(!hpack_encode_str(b, sizeof(b), &n, "Bad", "x"));
	send_block(p, s->id, b, n, end, kind == HEAD_PADDED ? 3 : 0, kind == HEAD_CONTINUATION);
}

void exec_data(struct peer *p, struct half *s, size_t n, uint8_t pad, bool end)
{
	struct bytes b = { .p = NULL };
	uint8_t word[4];

	while (b.len < n) {
		put_be32(word, world_random(p->world));
		bytes_add(&b, word, min_u64(4, n - b.len));
	}
	s->queued += (int64_t)n + (pad ? 1 + pad : 0);
	send_padded(p, H2_DATA, end ? H2_FLAG_END_STREAM : 0, s->id, b.p, n, pad);
	bytes_free(&b);
}

void exec_trailers(struct peer *p, struct half *s, int status, bool split)
{
	uint8_t b[128];
	char text[12];
	size_t n = 0;

	snprintf(text, sizeof(text), "%d", status);
	if (status >= 0)
		CHECK(!hpack_encode_str(b, sizeof(b), &n, "grpc-status", text));
	CHECK(!hpack_encode_str(b, sizeof(b), &n, "grpc-message", "said"));
	send_block(p, s->id, b, n, true, 0, split);
}

/* ---------------------------------------------------------------- to the end */

static void serve_stream(struct peer *p, struct half *s, size_t bytes)
{
	bool head = s->in_head;

	if (!half_open(s) || s->in_ended)
		return;
	if (!head)
		exec_head(p, s, HEAD_PLAIN);
	if (exec_credit(s) && bytes)
		exec_data(p, s, min_u64(min_u64((uint64_t)exec_credit(s), bytes), 16384), 0, false);
	exec_trailers(p, s, 0, false);
}

static void serve_executor(struct peer *p, size_t bytes)
{
	if (!p->port)
		return;
	if (p->muddied) {
		peer_hangup(p, false);
		return;
	}
	/* What is still in the port says more than what has been read. */
	if (p->port->rx.len)
		return;
	if (!p->said_settings)
		send_settings(p, 0, 0);
	else if (p->max_streams < 8 && !p->n_told)
		send_settings(p, H2_SETTINGS_MAX_CONCURRENT_STREAMS, 100);
	if (p->window < 200000)
		send_update(p, 0, 1000000);
	for (unsigned i = 0; i < p->n_streams; i++) {
		struct half *s = p->streams[i];

		/* Enough for any request that is left. */
		if (half_open(s) && !s->ended && p->initial + s->window < 100000)
			send_update(p, s->id, 100000);
		serve_stream(p, s, bytes);
	}
}

static void serve_client(struct peer *p)
{
	if (!p->port || p->muddied || p->port->rx.len)
		return;
	if (!p->in_preface) {
		client_hello(p, 0);
		return;
	}
	if (p->window < 1000000)
		send_update(p, 0, 1000000);
	for (unsigned i = 0; i < p->n_streams; i++) {
		struct half *s = p->streams[i];

		if (s->ended || s->reset || s->in_reset)
			continue;
		if (!s->in_ended)
			peer_frame(p, H2_DATA, H2_FLAG_END_STREAM, s->id, NULL, 0);
		if (p->initial + s->window < 100000)
			send_update(p, s->id, 1000000);
	}
}

void script_serve(struct world *w, size_t bytes)
{
	while (w->n_dials)
		(void)world_dialled(w, 0, 0, DIAL_CONNECT);
	for (unsigned i = 0; i < w->n_peers; i++) {
		struct peer *p = &w->peers[i];

		if (p->port) {
			p->port->room = UINT64_MAX;
			p->port->short_by = 0;
		}
		if (p->client)
			serve_client(p);
		else
			serve_executor(p, bytes);
	}
	kernel_room(w, UINT64_MAX);
	world_turn(w);
	while (kernel_step(w, 20000))
		world_turn(w);
	kernel_drain(w, UINT64_MAX);
	world_turn(w);
}

/* A stream of a client that behaves and has not been told how it ended. */
static bool unfinished(const struct world *w)
{
	for (unsigned i = 0; i < w->n_peers; i++) {
		const struct peer *p = &w->peers[i];

		if (!p->client || !p->port || p->muddied || p->port->fin || p->in_stop)
			continue;
		for (unsigned k = 0; k < p->n_streams; k++) {
			const struct half *s = p->streams[k];

			/* A health watch goes on until the client leaves. */
			if (!s->ended && !s->reset && !s->in_reset && !s->health &&
			    s->id <= p->goaway)
				return true;
		}
	}
	return false;
}

void script_complete(struct world *w)
{
	w->refuse_dial = false;
	w->budget = WORLD_BUDGET;
	for (unsigned i = 0; i < 70 && (i < 3 || unfinished(w)); i++) {
		script_serve(w, 0);
		if (i >= 10)
			world_wait(w, 100 * NSEC_PER_MSEC);
	}
	CHECK(!unfinished(w));
}
