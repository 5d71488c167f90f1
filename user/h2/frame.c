/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.c - the frame rules of RFC 9113 as data.
 *
 * What a frame may look like, judged by its nine header bytes alone, is one
 * table: a row per type with its length, its stream and its senders.
 * h2_frame_check() walks a row from the outside in, so that the first thing
 * wrong names the error:
 *
 *   1. length over MAX_FRAME_SIZE   FRAME_SIZE_ERROR, always of the connection:
 *      nobody reads, let alone stores, the payload of such a frame
 *   2. stream zero or not           PROTOCOL_ERROR
 *   3. sender                       PROTOCOL_ERROR
 *   4. length of the type           FRAME_SIZE_ERROR, for PRIORITY of the stream only
 *
 * No endpoint here ever pushes: clients cannot, and executors are told
 * ENABLE_PUSH=0. So PUSH_PROMISE has no sender, and an even stream id can only
 * be an idle stream's, on which every frame but PRIORITY is a connection error.
 *
 * SETTINGS values are a second table, of bounds and the error beyond them.
 */
#include "h2/frame.h"

enum { STREAM_ZERO = 1, STREAM_ODD = 2, STREAM_EVEN = 4 };
enum { CLIENT = 1 << H2_FROM_CLIENT, SERVER = 1 << H2_FROM_SERVER };

struct rule {
	const char *name;
	uint32_t min, max; /* payload bytes */
	uint8_t multiple;  /* payload is a multiple of this many bytes */
	uint8_t streams;   /* which ids are legal, a mask of STREAM_* */
	uint8_t senders;   /* a mask of CLIENT and SERVER */
	bool stream_error; /* a wrong length ends the stream only */
};

#define ANY_LENGTH 0, 0xffffff, 1
#define EXACTLY(n) n, n, 1
#define STREAM_ANY (STREAM_ODD | STREAM_EVEN)

/* clang-format off */
static const struct rule rules[] = {
	[H2_DATA]          = { "DATA",          ANY_LENGTH,     STREAM_ODD, CLIENT | SERVER, false },
	[H2_HEADERS]       = { "HEADERS",       ANY_LENGTH,     STREAM_ODD, CLIENT | SERVER, false },
	[H2_PRIORITY]      = { "PRIORITY",      EXACTLY(5),     STREAM_ANY, CLIENT | SERVER, true },
	[H2_RST_STREAM]    = { "RST_STREAM",    EXACTLY(4),     STREAM_ODD, CLIENT | SERVER, false },
	[H2_SETTINGS]      = { "SETTINGS",      0, 0xffffff, 6, STREAM_ZERO, CLIENT | SERVER, false },
	[H2_PUSH_PROMISE]  = { "PUSH_PROMISE",  ANY_LENGTH,     STREAM_ODD, 0, false },
	[H2_PING]          = { "PING",          EXACTLY(8),     STREAM_ZERO, CLIENT | SERVER, false },
	[H2_GOAWAY]        = { "GOAWAY",        8, 0xffffff, 1, STREAM_ZERO, CLIENT | SERVER, false },
	[H2_WINDOW_UPDATE] = { "WINDOW_UPDATE", EXACTLY(4),     STREAM_ZERO | STREAM_ODD,
			       CLIENT | SERVER, false },
	[H2_CONTINUATION]  = { "CONTINUATION",  ANY_LENGTH,     STREAM_ODD, CLIENT | SERVER, false },
};
/* clang-format on */

static const struct rule *rule_find(uint8_t type)
{
	return type < ARRAY_SIZE(rules) ? &rules[type] : NULL;
}

const char *h2_type_name(uint8_t type)
{
	const struct rule *r = rule_find(type);

	return r ? r->name : "EXTENSION";
}

const char *h2_error_name(uint32_t code)
{
	static const char *const names[] = {
		[H2_NO_ERROR] = "NO_ERROR",
		[H2_PROTOCOL_ERROR] = "PROTOCOL_ERROR",
		[H2_INTERNAL_ERROR] = "INTERNAL_ERROR",
		[H2_FLOW_CONTROL_ERROR] = "FLOW_CONTROL_ERROR",
		[H2_SETTINGS_TIMEOUT] = "SETTINGS_TIMEOUT",
		[H2_STREAM_CLOSED] = "STREAM_CLOSED",
		[H2_FRAME_SIZE_ERROR] = "FRAME_SIZE_ERROR",
		[H2_REFUSED_STREAM] = "REFUSED_STREAM",
		[H2_CANCEL] = "CANCEL",
		[H2_COMPRESSION_ERROR] = "COMPRESSION_ERROR",
		[H2_CONNECT_ERROR] = "CONNECT_ERROR",
		[H2_ENHANCE_YOUR_CALM] = "ENHANCE_YOUR_CALM",
		[H2_INADEQUATE_SECURITY] = "INADEQUATE_SECURITY",
		[H2_HTTP_1_1_REQUIRED] = "HTTP_1_1_REQUIRED",
	};

	return code < ARRAY_SIZE(names) ? names[code] : "UNKNOWN_ERROR";
}

static uint8_t stream_kind(uint32_t stream)
{
	if (!stream)
		return STREAM_ZERO;
	return stream & 1 ? STREAM_ODD : STREAM_EVEN;
}

uint32_t h2_frame_check(const struct h2_frame *f, enum h2_peer from, uint32_t max_frame_size,
			bool *ret_stream_error)
{
	const struct rule *r = rule_find(f->type);

	*ret_stream_error = false;
	if (f->length > max_frame_size)
		return H2_FRAME_SIZE_ERROR;
	if (!r)
		return 0;
	if (!(r->streams & stream_kind(f->stream)))
		return H2_PROTOCOL_ERROR;
	if (!(r->senders & (1 << from)))
		return H2_PROTOCOL_ERROR;
	if (f->length < r->min || f->length > r->max || f->length % r->multiple) {
		*ret_stream_error = r->stream_error;
		return H2_FRAME_SIZE_ERROR;
	}
	if (f->type == H2_SETTINGS && (f->flags & H2_FLAG_ACK) && f->length)
		return H2_FRAME_SIZE_ERROR;
	return 0;
}

uint32_t h2_payload(const struct h2_frame *f, const uint8_t *p, const uint8_t **ret_content,
		    uint32_t *ret_len, uint32_t *ret_dependency)
{
	uint32_t left = f->length, dependency = 0, pad = 0;

	if (f->flags & H2_FLAG_PADDED) {
		if (left < 1)
			return H2_FRAME_SIZE_ERROR;
		pad = *p++;
		left--;
	}
	if (f->type == H2_HEADERS && (f->flags & H2_FLAG_PRIORITY)) {
		if (left < 5)
			return H2_FRAME_SIZE_ERROR;
		dependency = get_be32(p) & H2_MAX_STREAM_ID; /* without the exclusive bit */
		p += 5;
		left -= 5;
	}
	if (pad > left)
		return H2_PROTOCOL_ERROR;
	*ret_content = p;
	*ret_len = left - pad;
	*ret_dependency = dependency;
	return 0;
}

/* What RFC 9113 6.5.2 allows each setting to be. */
struct setting_rule {
	size_t offset; /* of its member in struct h2_settings */
	uint32_t min, max;
	uint32_t error; /* beyond min..max */
};

#define MEMBER(m) offsetof(struct h2_settings, m)

/* clang-format off */
static const struct setting_rule setting_rules[] = {
	[H2_SETTINGS_HEADER_TABLE_SIZE] =
		{ MEMBER(header_table_size), 0, UINT32_MAX, 0 },
	[H2_SETTINGS_ENABLE_PUSH] =
		{ MEMBER(enable_push), 0, 1, H2_PROTOCOL_ERROR },
	[H2_SETTINGS_MAX_CONCURRENT_STREAMS] =
		{ MEMBER(max_concurrent_streams), 0, UINT32_MAX, 0 },
	[H2_SETTINGS_INITIAL_WINDOW_SIZE] =
		{ MEMBER(initial_window_size), 0, H2_MAX_WINDOW, H2_FLOW_CONTROL_ERROR },
	[H2_SETTINGS_MAX_FRAME_SIZE] =
		{ MEMBER(max_frame_size), H2_DEFAULT_FRAME_SIZE, 0xffffff, H2_PROTOCOL_ERROR },
	[H2_SETTINGS_MAX_HEADER_LIST_SIZE] =
		{ MEMBER(max_header_list_size), 0, UINT32_MAX, 0 },
};
/* clang-format on */

static uint32_t setting_apply(struct h2_settings *s, uint16_t id, uint32_t value, enum h2_peer from)
{
	const struct setting_rule *r;

	if (id == 0 || id >= ARRAY_SIZE(setting_rules))
		return 0;
	r = &setting_rules[id];
	if (value < r->min || value > r->max)
		return r->error;
	if (id == H2_SETTINGS_ENABLE_PUSH && value && from == H2_FROM_SERVER)
		return H2_PROTOCOL_ERROR;
	memcpy((char *)s + r->offset, &value, sizeof(value));
	return 0;
}

uint32_t h2_settings_apply(struct h2_settings *s, const uint8_t *payload, uint32_t len,
			   enum h2_peer from)
{
	assert(len % 6 == 0);
	for (uint32_t i = 0; i < len; i += 6) {
		uint32_t err =
			setting_apply(s, get_be16(payload + i), get_be32(payload + i + 2), from);

		if (err)
			return err;
	}
	return 0;
}

size_t h2_put_settings_ack(uint8_t *p)
{
	h2_frame_put(p, 0, H2_SETTINGS, H2_FLAG_ACK, 0);
	return H2_HEADER_LEN;
}

size_t h2_put_setting(uint8_t *p, uint16_t id, uint32_t value)
{
	put_be16(p, id);
	put_be32(p + 2, value);
	return 6;
}

size_t h2_put_ping(uint8_t *p, const uint8_t data[8], bool ack)
{
	h2_frame_put(p, 8, H2_PING, ack ? H2_FLAG_ACK : 0, 0);
	memcpy(p + H2_HEADER_LEN, data, 8);
	return H2_HEADER_LEN + 8;
}

static size_t put_u32_frame(uint8_t *p, uint8_t type, uint32_t stream, uint32_t value)
{
	h2_frame_put(p, 4, type, 0, stream);
	put_be32(p + H2_HEADER_LEN, value);
	return H2_HEADER_LEN + 4;
}

size_t h2_put_rst_stream(uint8_t *p, uint32_t stream, uint32_t error)
{
	return put_u32_frame(p, H2_RST_STREAM, stream, error);
}

size_t h2_put_window_update(uint8_t *p, uint32_t stream, uint32_t inc)
{
	assert(inc > 0 && inc <= H2_MAX_WINDOW);
	return put_u32_frame(p, H2_WINDOW_UPDATE, stream, inc);
}

size_t h2_put_goaway(uint8_t *p, uint32_t last_stream, uint32_t error, const char *debug)
{
	size_t n = debug ? strnlen(debug, 128) : 0;

	h2_frame_put(p, (uint32_t)(8 + n), H2_GOAWAY, 0, 0);
	put_be32(p + H2_HEADER_LEN, last_stream);
	put_be32(p + H2_HEADER_LEN + 4, error);
	if (n)
		memcpy(p + H2_HEADER_LEN + 8, debug, n);
	return H2_HEADER_LEN + 8 + n;
}
