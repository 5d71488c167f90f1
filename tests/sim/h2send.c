/* SPDX-License-Identifier: Apache-2.0 */
/*
 * h2send.c - sending; see h2end.h. These functions keep the windows and the
 * stream states as a correct peer would, and refuse nothing.
 */
#include "h2end.h"

#include <stdlib.h>

static uint8_t *frame(struct h2end *h, size_t len, uint8_t type, uint8_t flags, uint32_t stream)
{
	uint8_t *p = bytes_add(&h->out, NULL, FRAME_HEAD + len);

	put_be24(p, (uint32_t)len);
	p[3] = type;
	p[4] = flags;
	put_be32(p + 5, stream);
	return p + FRAME_HEAD;
}

void h2_send_raw(struct h2end *h, uint8_t type, uint8_t flags, uint32_t stream, const void *p,
		 size_t n)
{
	uint8_t *at = frame(h, n, type, flags, stream);

	if (n)
		memcpy(at, p, n);
}

void h2_send_preface(struct h2end *h)
{
	bytes_add(&h->out, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
}

static uint8_t *setting(uint8_t *p, uint16_t id, uint32_t v)
{
	put_be16(p, id);
	put_be32(p + 2, v);
	return p + 6;
}

void h2_send_settings(struct h2end *h, const struct h2settings *s)
{
	uint8_t buf[42], *p = buf;

	assert(h->n_wait < SETTINGS_PENDING);
	if (s->table != h->sent.table)
		p = setting(p, NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, s->table);
	if (s->push != h->sent.push)
		p = setting(p, NGHTTP2_SETTINGS_ENABLE_PUSH, s->push);
	if (s->streams != h->sent.streams)
		p = setting(p, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, s->streams);
	if (s->window != h->sent.window)
		p = setting(p, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, s->window);
	if (s->frame != h->sent.frame)
		p = setting(p, NGHTTP2_SETTINGS_MAX_FRAME_SIZE, s->frame);
	if (s->list != h->sent.list)
		p = setting(p, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, s->list);
	if (h->grease)
		p = setting(p, 0xf0f0, 42);
	h2_send_raw(h, NGHTTP2_SETTINGS, 0, 0, buf, (size_t)(p - buf));
	h->sent = *s;
	h->wait[h->n_wait++] = *s;
}

void h2_send_ack(struct h2end *h)
{
	if (!h->settings_unanswered)
		return;
	h->settings_unanswered--;
	h2_send_raw(h, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
}

/* A literal with a literal name; first is 0x00 (not indexed) or 0x40 (to be added). */
static void put_literal(struct bytes *b, uint8_t first, const struct field *f)
{
	const char *text[2] = { f->name, f->value };

	bytes_add(b, &first, 1);
	for (int i = 0; i < 2; i++) {
		size_t n = strlen(text[i]);
		uint8_t len = (uint8_t)n;

		if (n < 127) {
			bytes_add(b, &len, 1);
		} else {
			len = 127;
			bytes_add(b, &len, 1);
			for (n -= 127; n >= 128; n >>= 7) {
				len = (uint8_t)(n | 128);
				bytes_add(b, &len, 1);
			}
			len = (uint8_t)n;
			bytes_add(b, &len, 1);
		}
		bytes_add(b, text[i], strlen(text[i]));
	}
}

static void put_deflated(struct h2end *h, struct bytes *b, const struct field *f, size_t n)
{
	nghttp2_nv *nv = xalloc(n * sizeof(*nv));
	size_t bound;
	ssize_t len;

	for (size_t i = 0; i < n; i++)
		nv[i] = (nghttp2_nv){ (uint8_t *)f[i].name, (uint8_t *)f[i].value,
				      strlen(f[i].name), strlen(f[i].value), 0 };
	bound = nghttp2_hd_deflate_bound(h->deflater, nv, n);
	bytes_add(b, NULL, bound);
	len = nghttp2_hd_deflate_hd(h->deflater, bytes_at(b), bound, nv, n);
	if (len < 0)
		abort();
	b->len = (size_t)len;
	free(nv);
}

static void encode(struct h2end *h, struct bytes *b, const struct field *f, size_t n)
{
	static const uint8_t empty_table = 0x20;

	switch (h->encoding) {
	case ENCODE_NGHTTP2:
	case ENCODE_DEFIANT:
		put_deflated(h, b, f, n);
		return;
	case ENCODE_UPDATES:
		bytes_add(b, &empty_table, 1);
		break;
	default:
		break;
	}
	for (size_t i = 0; i < n; i++)
		put_literal(b, h->encoding == ENCODE_INCREMENTAL ? 0x40 : 0, &f[i]);
}

void h2_send_head(struct h2end *h, struct h2stream *s, const struct field *f, size_t n, bool end,
		  const struct h2_shape *shape)
{
	static const struct h2_shape plain;
	struct bytes b = { 0 };
	const struct h2_shape *sh = shape ? shape : &plain;
	size_t limit = sh->fragment ? sh->fragment : h->remote.frame - 300;
	bool first = true;

	encode(h, &b, f, n);
	do {
		size_t part = min_u64(b.len, limit);
		uint8_t flags = part == b.len ? NGHTTP2_FLAG_END_HEADERS : 0;
		size_t pad = first && sh->pad ? 1u + sh->pad : 0;
		size_t pri = first && sh->priority ? 5 : 0;
		uint8_t *p;

		flags |= first && end ? NGHTTP2_FLAG_END_STREAM : 0;
		flags |= pad ? NGHTTP2_FLAG_PADDED : 0;
		flags |= pri ? NGHTTP2_FLAG_PRIORITY : 0;
		p = frame(h, part + pad + pri, first ? NGHTTP2_HEADERS : NGHTTP2_CONTINUATION,
			  flags, s->id);
		memset(p, 0, part + pad + pri);
		if (pad)
			*p++ = sh->pad;
		if (pri) {
			p[4] = 15;
			p += 5;
		}
		memcpy(p, bytes_at(&b), part);
		bytes_drop(&b, part);
		first = false;
	} while (b.len);
	bytes_free(&b);
	s->local_end |= end;
}

void h2_send_data(struct h2end *h, struct h2stream *s, const uint8_t *p, size_t n, bool end,
		  uint8_t pad)
{
	size_t extra = pad ? 1u + pad : 0;
	uint8_t flags =
		(uint8_t)((end ? NGHTTP2_FLAG_END_STREAM : 0) | (pad ? NGHTTP2_FLAG_PADDED : 0));
	uint8_t *at = frame(h, n + extra, NGHTTP2_DATA, flags, s->id);

	memset(at, 0, n + extra);
	if (pad)
		*at++ = pad;
	if (n)
		memcpy(at, p, n);
	s->send_win -= (int64_t)(n + extra);
	h->send_win -= (int64_t)(n + extra);
	s->local_end |= end;
}

void h2_send_update(struct h2end *h, struct h2stream *s, uint32_t inc)
{
	uint8_t p[4];

	put_be32(p, inc);
	h2_send_raw(h, NGHTTP2_WINDOW_UPDATE, 0, s ? s->id : 0, p, 4);
	if (s)
		s->granted += inc;
	else
		h->granted += inc;
}

void h2_send_rst(struct h2end *h, struct h2stream *s, uint32_t code)
{
	uint8_t p[4];

	put_be32(p, code);
	h2_send_raw(h, NGHTTP2_RST_STREAM, 0, s->id, p, 4);
	s->local_rst = true;
}

void h2_send_ping(struct h2end *h, const uint8_t data[8])
{
	assert(h->n_pings < ARRAY_SIZE(h->pings));
	memcpy(h->pings[h->n_pings++], data, 8);
	h2_send_raw(h, NGHTTP2_PING, 0, 0, data, 8);
}

void h2_send_goaway(struct h2end *h, uint32_t last, uint32_t code, const char *debug)
{
	uint8_t p[8 + 128];
	size_t n = debug ? min_u64(strlen(debug), 128) : 0;

	put_be32(p, last);
	put_be32(p + 4, code);
	if (n)
		memcpy(p + 8, debug, n);
	h2_send_raw(h, NGHTTP2_GOAWAY, 0, 0, p, 8 + n);
}
