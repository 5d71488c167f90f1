/* SPDX-License-Identifier: Apache-2.0 */
/*
 * h2end.c - receiving; see h2end.h. Sending is in h2send.c.
 */
#include "h2end.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFACE NGHTTP2_CLIENT_MAGIC
#define PREFACE_LEN NGHTTP2_CLIENT_MAGIC_LEN
#define BLOCK_MAX (1u << 20)

const struct h2settings h2_defaults = {
	.table = 4096,
	.push = 1,
	.streams = UINT32_MAX,
	.window = 65535,
	.frame = 16384,
	.list = UINT32_MAX,
};

struct frame {
	uint32_t len, stream;
	uint8_t type, flags;
	const uint8_t *p;
};

static void printf_like(2, 3) bad(struct h2end *h, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	if (h->broken)
		return;
	h->broken = true;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	h->ops->bad(h, text);
}

const char *fields_get(const struct fields *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (!strcmp(f->f[i].name, name))
			return f->f[i].value;
	return NULL;
}

static void fields_free(struct fields *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->f[i].name);
		free(f->f[i].value);
	}
	free(f->f);
}

static char *text_of(const uint8_t *p, size_t n)
{
	char *s = xalloc(n + 1);

	memcpy(s, p, n);
	return s;
}

void h2_init(struct h2end *h, const struct h2ops *ops, void *user, bool server)
{
	memset(h, 0, sizeof(*h));
	h->ops = ops;
	h->user = user;
	h->server = server;
	h->remote = h->local = h->sent = h2_defaults;
	h->send_win = h2_defaults.window;
	if (nghttp2_hd_inflate_new(&h->inflater) ||
	    nghttp2_hd_deflate_new(&h->deflater, h2_defaults.table))
		abort();
}

void h2_free(struct h2end *h)
{
	for (size_t i = 0; i < h->n_streams; i++)
		free(h->streams[i]);
	free(h->streams);
	bytes_free(&h->in);
	bytes_free(&h->out);
	bytes_free(&h->block);
	nghttp2_hd_inflate_del(h->inflater);
	nghttp2_hd_deflate_del(h->deflater);
	memset(h, 0, sizeof(*h));
}

struct h2stream *h2_stream(struct h2end *h, uint32_t id)
{
	size_t lo = 0, hi = h->n_streams;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (h->streams[mid]->id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < h->n_streams && h->streams[lo]->id == id ? h->streams[lo] : NULL;
}

/* Ids only grow, on both sides. */
static struct h2stream *stream_add(struct h2end *h, uint32_t id)
{
	struct h2stream *s = xalloc(sizeof(*s));

	assert(!h->n_streams || h->streams[h->n_streams - 1]->id < id);
	if (h->n_streams == h->cap_streams) {
		h->cap_streams = h->cap_streams ? 2 * h->cap_streams : 16;
		h->streams = xgrow(h->streams, h->cap_streams * sizeof(*h->streams));
	}
	s->id = id;
	s->send_win = h->remote.window;
	h->streams[h->n_streams++] = s;
	return s;
}

struct h2stream *h2_open(struct h2end *h, uint32_t id)
{
	if (!id)
		id = h->n_streams ? h->streams[h->n_streams - 1]->id + 2 : 1;
	return stream_add(h, id);
}

bool h2_stream_open(const struct h2stream *s)
{
	return !s->remote_rst && !s->local_rst && !(s->remote_end && s->local_end);
}

static int64_t initial_window(const struct h2end *h)
{
	int64_t win = h->local.window;

	for (unsigned i = 0; i < h->n_wait; i++)
		win = max_i64(win, h->wait[i].window);
	return win;
}

int64_t h2_recv_window(const struct h2end *h, const struct h2stream *s)
{
	if (!s)
		return h2_defaults.window + h->granted - h->received;
	return initial_window(h) + s->granted - s->received;
}

int64_t h2_sendable(const struct h2end *h, const struct h2stream *s)
{
	return max_i64(0, min_i64(h->send_win, s->send_win));
}

bool h2_in_frame(const struct h2end *h)
{
	return h->in.len || h->block_stream;
}

/* ---- header blocks ------------------------------------------------------- */

static bool inflate(struct h2end *h, struct fields *f)
{
	const uint8_t *p = bytes_at(&h->block);
	size_t left = h->block.len;
	int flags = 0;

	while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
		nghttp2_nv nv;
		ssize_t n = nghttp2_hd_inflate_hd2(h->inflater, &nv, &flags, p, left, 1);

		if (n < 0) {
			bad(h, "header block of stream %u does not decode: %s", h->block_stream,
			    nghttp2_strerror((int)n));
			return false;
		}
		p += n;
		left -= (size_t)n;
		if (flags & NGHTTP2_HD_INFLATE_EMIT) {
			f->f = xgrow(f->f, (f->n + 1) * sizeof(*f->f));
			f->f[f->n++] = (struct field){ text_of(nv.name, nv.namelen),
						       text_of(nv.value, nv.valuelen) };
		} else if (!(flags & NGHTTP2_HD_INFLATE_FINAL) && !left) {
			bad(h, "header block of stream %u is truncated", h->block_stream);
			return false;
		}
	}
	nghttp2_hd_inflate_end_headers(h->inflater);
	return true;
}

static unsigned open_streams(const struct h2end *h)
{
	unsigned n = 0;

	for (size_t i = 0; i < h->n_streams; i++)
		n += h2_stream_open(h->streams[i]);
	return n;
}

/* The most the other side may have understood as our MAX_CONCURRENT_STREAMS. */
static uint32_t stream_limit(const struct h2end *h)
{
	uint32_t limit = h->local.streams;

	for (unsigned i = 0; i < h->n_wait; i++)
		limit = limit > h->wait[i].streams ? limit : h->wait[i].streams;
	return limit;
}

static struct h2stream *stream_for_head(struct h2end *h, uint32_t id)
{
	struct h2stream *s = h2_stream(h, id);

	if (s || !h->server) {
		if (!s)
			bad(h, "HEADERS on stream %u that was never opened", id);
		return s;
	}
	if (!(id & 1) || id <= h->last_remote) {
		bad(h, "HEADERS open stream %u after stream %u", id, h->last_remote);
		return NULL;
	}
	h->last_remote = id;
	s = stream_add(h, id);
	if (open_streams(h) > stream_limit(h))
		bad(h, "stream %u is number %u, MAX_CONCURRENT_STREAMS is %u", id, open_streams(h),
		    stream_limit(h));
	if (open_streams(h) > h->max_open)
		h->max_open = open_streams(h);
	return s;
}

/* Frames that need a stream on which the other side may still send. */
static bool may_send(struct h2end *h, struct h2stream *s, const char *what)
{
	if (s->remote_rst)
		bad(h, "%s on stream %u after RST_STREAM", what, s->id);
	else if (s->remote_end)
		bad(h, "%s on stream %u after END_STREAM", what, s->id);
	return !h->broken;
}

static void block_done(struct h2end *h)
{
	struct fields f = { 0 };
	struct h2stream *s = NULL;
	bool end = h->block_flags & NGHTTP2_FLAG_END_STREAM;

	/* Decoded in any case: the table must follow. */
	if (inflate(h, &f))
		s = stream_for_head(h, h->block_stream);
	if (s && !h->broken && may_send(h, s, "HEADERS")) {
		s->heads++;
		s->remote_end |= end;
		if (!s->local_rst)
			h->ops->head(h, s, &f, end);
	}
	bytes_drop(&h->block, h->block.len);
	h->block_stream = 0;
	fields_free(&f);
}

/* Removes padding and priority fields; false when they do not fit. */
static bool strip(struct h2end *h, const struct frame *f, const uint8_t **p, size_t *n)
{
	size_t skip = 0, pad = 0;

	*p = f->p;
	*n = f->len;
	if (f->flags & NGHTTP2_FLAG_PADDED) {
		if (!f->len) {
			bad(h, "padded frame without pad length");
			return false;
		}
		pad = f->p[0];
		skip = 1;
	}
	if (f->type == NGHTTP2_HEADERS && f->flags & NGHTTP2_FLAG_PRIORITY)
		skip += 5;
	if (skip + pad > f->len) {
		bad(h, "padding of %zu in a frame of %u", pad, f->len);
		return false;
	}
	*p += skip;
	*n -= skip + pad;
	return true;
}

static void on_headers(struct h2end *h, const struct frame *f)
{
	const uint8_t *p;
	size_t n;

	if (!strip(h, f, &p, &n))
		return;
	h->block_stream = f->stream;
	h->block_flags = f->flags;
	bytes_add(&h->block, p, n);
	if (f->flags & NGHTTP2_FLAG_END_HEADERS)
		block_done(h);
}

static void on_continuation(struct h2end *h, const struct frame *f)
{
	bytes_add(&h->block, f->p, f->len);
	if (h->block.len > BLOCK_MAX)
		bad(h, "header block of %zu bytes", h->block.len);
	else if (f->flags & NGHTTP2_FLAG_END_HEADERS)
		block_done(h);
}

/* ---- the other frames ---------------------------------------------------- */

static void on_data(struct h2end *h, const struct frame *f)
{
	struct h2stream *s = h2_stream(h, f->stream);
	const uint8_t *p;
	size_t n;

	if (!s) {
		bad(h, "DATA on idle stream %u", f->stream);
		return;
	}
	if (!strip(h, f, &p, &n) || !may_send(h, s, "DATA"))
		return;
	if (f->len && f->len > h2_recv_window(h, NULL)) {
		bad(h, "DATA of %u on stream %u exceeds the connection window %lld", f->len, s->id,
		    (long long)h2_recv_window(h, NULL));
		return;
	}
	/* What was on its way when we reset the stream still has to fit. */
	if (f->len && f->len > h2_recv_window(h, s)) {
		bad(h, "DATA of %u on stream %u exceeds its window %lld", f->len, s->id,
		    (long long)h2_recv_window(h, s));
		return;
	}
	h->received += f->len;
	s->received += f->len;
	h->data_flow += f->len;
	s->remote_end |= f->flags & NGHTTP2_FLAG_END_STREAM;
	h->ops->data(h, s, p, n, f->len, f->flags & NGHTTP2_FLAG_END_STREAM);
}

static void on_rst(struct h2end *h, const struct frame *f)
{
	struct h2stream *s = h2_stream(h, f->stream);

	if (!s) {
		bad(h, "RST_STREAM on idle stream %u", f->stream);
		return;
	}
	if (s->remote_rst) {
		bad(h, "second RST_STREAM on stream %u", s->id);
		return;
	}
	s->remote_rst = true;
	h->ops->reset(h, s, get_be32(f->p));
}

static void apply_setting(struct h2end *h, unsigned id, uint32_t v)
{
	switch (id) {
	case NGHTTP2_SETTINGS_HEADER_TABLE_SIZE:
		h->remote.table = v;
		if (h->encoding != ENCODE_DEFIANT)
			nghttp2_hd_deflate_change_table_size(h->deflater, v < 4096 ? v : 4096);
		break;
	case NGHTTP2_SETTINGS_ENABLE_PUSH:
		if (v > 1 || (!h->server && v))
			bad(h, "ENABLE_PUSH=%u", v);
		h->remote.push = v;
		break;
	case NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS:
		h->remote.streams = v;
		break;
	case NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE:
		if (v > WINDOW_MAX)
			bad(h, "INITIAL_WINDOW_SIZE=%u", v);
		for (size_t i = 0; i < h->n_streams; i++) {
			h->streams[i]->send_win += (int64_t)v - h->remote.window;
			if (h->streams[i]->send_win > WINDOW_MAX)
				bad(h, "INITIAL_WINDOW_SIZE=%u overflows stream %u", v,
				    h->streams[i]->id);
		}
		h->remote.window = v;
		break;
	case NGHTTP2_SETTINGS_MAX_FRAME_SIZE:
		if (v < 16384 || v > 0xffffff)
			bad(h, "MAX_FRAME_SIZE=%u", v);
		h->remote.frame = v;
		break;
	case NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE:
		h->remote.list = v;
		break;
	default:
		bad(h, "SETTINGS with the unknown id %#x: forwarded?", id);
	}
}

static void on_settings_ack(struct h2end *h)
{
	if (!h->n_wait) {
		bad(h, "SETTINGS ACK for no SETTINGS");
		return;
	}
	if (h->wait[0].table != h->local.table)
		nghttp2_hd_inflate_change_table_size(h->inflater, h->wait[0].table);
	h->local = h->wait[0];
	memmove(h->wait, h->wait + 1, --h->n_wait * sizeof(h->wait[0]));
}

static void on_settings(struct h2end *h, const struct frame *f)
{
	if (f->flags & NGHTTP2_FLAG_ACK) {
		if (f->len)
			bad(h, "SETTINGS ACK with a payload");
		else
			on_settings_ack(h);
		return;
	}
	if (f->len % 6) {
		bad(h, "SETTINGS of %u bytes", f->len);
		return;
	}
	for (uint32_t i = 0; i < f->len && !h->broken; i += 6)
		apply_setting(h, get_be16(f->p + i), get_be32(f->p + i + 2));
	h->got_settings = true;
	if (h->broken)
		return;
	h->settings_unanswered++;
	if (!h->hold_acks)
		h2_send_ack(h);
	h->ops->window(h);
}

static void on_ping(struct h2end *h, const struct frame *f)
{
	if (!(f->flags & NGHTTP2_FLAG_ACK)) {
		h->ops->ping(h, f->p);
		return;
	}
	if (!h->n_pings || memcmp(h->pings[0], f->p, 8)) {
		bad(h, "PING ACK for no PING of ours");
		return;
	}
	memmove(h->pings, h->pings + 1, --h->n_pings * sizeof(h->pings[0]));
	h->ops->pong(h, f->p);
}

static void on_goaway(struct h2end *h, const struct frame *f)
{
	uint32_t last = get_be32(f->p) & 0x7fffffff;

	if (h->goaway && last > h->goaway_last)
		bad(h, "GOAWAY raises the last stream from %u to %u", h->goaway_last, last);
	h->goaway = true;
	h->goaway_last = last;
	if (!h->broken)
		h->ops->goaway(h, last, get_be32(f->p + 4));
}

static void on_window_update(struct h2end *h, const struct frame *f)
{
	uint32_t inc = get_be32(f->p) & 0x7fffffff;
	struct h2stream *s = f->stream ? h2_stream(h, f->stream) : NULL;
	int64_t *win = s ? &s->send_win : &h->send_win;

	if (f->stream && !s) {
		bad(h, "WINDOW_UPDATE on idle stream %u", f->stream);
		return;
	}
	if (s && s->remote_rst) {
		bad(h, "WINDOW_UPDATE on stream %u after RST_STREAM", s->id);
		return;
	}
	if (!inc || *win + inc > WINDOW_MAX) {
		bad(h, "WINDOW_UPDATE of %u on stream %u, window %lld", inc, f->stream,
		    (long long)*win);
		return;
	}
	*win += inc;
	h->ops->window(h);
}

/* Stream id and length by type; RFC 9113 section 6. */
static bool well_formed(struct h2end *h, const struct frame *f)
{
	static const struct {
		bool on_stream, on_zero;
		int fixed; /* -1: any length */
	} rules[] = {
		[NGHTTP2_DATA] = { true, false, -1 },
		[NGHTTP2_HEADERS] = { true, false, -1 },
		[NGHTTP2_PRIORITY] = { false, false, -1 },
		[NGHTTP2_RST_STREAM] = { true, false, 4 },
		[NGHTTP2_SETTINGS] = { false, true, -1 },
		[NGHTTP2_PUSH_PROMISE] = { false, false, -1 },
		[NGHTTP2_PING] = { false, true, 8 },
		[NGHTTP2_GOAWAY] = { false, true, -1 },
		[NGHTTP2_WINDOW_UPDATE] = { true, true, 4 },
		[NGHTTP2_CONTINUATION] = { true, false, -1 },
	};

	if (f->type >= ARRAY_SIZE(rules) || (!rules[f->type].on_stream && !rules[f->type].on_zero))
		bad(h, "frame type %u, which a proxy must not send: forwarded?", f->type);
	else if (f->stream ? !rules[f->type].on_stream : !rules[f->type].on_zero)
		bad(h, "frame type %u on stream %u", f->type, f->stream);
	else if (rules[f->type].fixed >= 0 && f->len != (uint32_t)rules[f->type].fixed)
		bad(h, "frame type %u of %u bytes", f->type, f->len);
	else if (f->type == NGHTTP2_GOAWAY && f->len < 8)
		bad(h, "GOAWAY of %u bytes", f->len);
	else if (h->block_stream &&
		 (f->type != NGHTTP2_CONTINUATION || f->stream != h->block_stream))
		bad(h, "frame type %u inside the header block of stream %u", f->type,
		    h->block_stream);
	else if (!h->block_stream && f->type == NGHTTP2_CONTINUATION)
		bad(h, "CONTINUATION without HEADERS");
	else if (!h->got_settings && (f->type != NGHTTP2_SETTINGS || f->flags & NGHTTP2_FLAG_ACK))
		bad(h, "the first frame is of type %u, not SETTINGS", f->type);
	return !h->broken;
}

static void on_frame(struct h2end *h, const struct frame *f)
{
	static void (*const handlers[])(struct h2end *, const struct frame *) = {
		[NGHTTP2_DATA] = on_data,
		[NGHTTP2_HEADERS] = on_headers,
		[NGHTTP2_RST_STREAM] = on_rst,
		[NGHTTP2_SETTINGS] = on_settings,
		[NGHTTP2_PING] = on_ping,
		[NGHTTP2_GOAWAY] = on_goaway,
		[NGHTTP2_WINDOW_UPDATE] = on_window_update,
		[NGHTTP2_CONTINUATION] = on_continuation,
	};

	h->frames[f->type < 10 ? f->type : 10]++;
	if (well_formed(h, f))
		handlers[f->type](h, f);
}

static uint32_t frame_limit(const struct h2end *h)
{
	uint32_t limit = h->local.frame;

	for (unsigned i = 0; i < h->n_wait; i++)
		limit = limit > h->wait[i].frame ? limit : h->wait[i].frame;
	return limit;
}

static bool take_preface(struct h2end *h)
{
	size_t n = min_u64(h->in.len, PREFACE_LEN);

	if (memcmp(bytes_at(&h->in), PREFACE, n)) {
		bad(h, "not the client preface");
		return false;
	}
	if (n < PREFACE_LEN)
		return false;
	bytes_drop(&h->in, PREFACE_LEN);
	h->got_preface = true;
	return true;
}

void h2_feed(struct h2end *h, const uint8_t *p, size_t n)
{
	if (h->broken)
		return;
	bytes_add(&h->in, p, n);
	if (h->server && !h->got_preface && !take_preface(h))
		return;
	while (!h->broken && h->in.len >= FRAME_HEAD) {
		const uint8_t *at = bytes_at(&h->in);
		struct frame f = { .len = get_be24(at),
				   .type = at[3],
				   .flags = at[4],
				   .stream = get_be32(at + 5) & 0x7fffffff,
				   .p = at + FRAME_HEAD };

		if (f.len > frame_limit(h)) {
			bad(h, "frame type %u of %u bytes, MAX_FRAME_SIZE is %u", f.type, f.len,
			    frame_limit(h));
			return;
		}
		if (h->in.len < FRAME_HEAD + f.len)
			return;
		on_frame(h, &f);
		bytes_drop(&h->in, FRAME_HEAD + f.len);
	}
}
