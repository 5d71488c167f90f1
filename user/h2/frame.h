/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - HTTP/2 frames as bytes (RFC 9113 section 4 and 6).
 *
 * A codec without policy: it knows what a frame may look like and nothing of
 * sockets, windows or streams. frame_check() holds the per-type rules in one
 * table (stream id, length, who may send it); everything that depends on the
 * state of a connection is the session's business.
 */
#ifndef FS_H2_FRAME_H
#define FS_H2_FRAME_H

#include "base/base.h"

#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define H2_PREFACE_LEN 24
#define H2_HEADER_LEN 9
#define H2_DEFAULT_WINDOW 65535
#define H2_DEFAULT_FRAME_SIZE 16384
#define H2_MAX_WINDOW 0x7fffffff
#define H2_MAX_STREAM_ID 0x7fffffffu

enum h2_type {
	H2_DATA = 0,
	H2_HEADERS = 1,
	H2_PRIORITY = 2,
	H2_RST_STREAM = 3,
	H2_SETTINGS = 4,
	H2_PUSH_PROMISE = 5,
	H2_PING = 6,
	H2_GOAWAY = 7,
	H2_WINDOW_UPDATE = 8,
	H2_CONTINUATION = 9,
};

enum h2_flag {
	H2_FLAG_END_STREAM = 0x1,
	H2_FLAG_ACK = 0x1,
	H2_FLAG_END_HEADERS = 0x4,
	H2_FLAG_PADDED = 0x8,
	H2_FLAG_PRIORITY = 0x20,
};

/* RFC 9113 section 7. */
enum h2_error {
	H2_NO_ERROR = 0,
	H2_PROTOCOL_ERROR = 1,
	H2_INTERNAL_ERROR = 2,
	H2_FLOW_CONTROL_ERROR = 3,
	H2_SETTINGS_TIMEOUT = 4,
	H2_STREAM_CLOSED = 5,
	H2_FRAME_SIZE_ERROR = 6,
	H2_REFUSED_STREAM = 7,
	H2_CANCEL = 8,
	H2_COMPRESSION_ERROR = 9,
	H2_CONNECT_ERROR = 10,
	H2_ENHANCE_YOUR_CALM = 11,
	H2_INADEQUATE_SECURITY = 12,
	H2_HTTP_1_1_REQUIRED = 13,
};

/* "PROTOCOL_ERROR" etc.; "UNKNOWN_ERROR" for a code RFC 9113 does not name. Never NULL. */
const char *h2_error_name(uint32_t code);
/* "DATA" etc.; "EXTENSION" for a type RFC 9113 does not name. Never NULL. */
const char *h2_type_name(uint8_t type);

struct h2_frame {
	uint32_t length; /* payload bytes */
	uint8_t type;    /* enum h2_type, or an extension's */
	uint8_t flags;
	uint32_t stream; /* reserved bit removed */
};

/* The nine bytes at p. */
static inline struct h2_frame h2_frame_get(const uint8_t *p)
{
	return (struct h2_frame){ .length = get_be24(p),
				  .type = p[3],
				  .flags = p[4],
				  .stream = get_be32(p + 5) & H2_MAX_STREAM_ID };
}

static inline void h2_frame_put(uint8_t *p, uint32_t length, uint8_t type, uint8_t flags,
				uint32_t stream)
{
	put_be24(p, length);
	p[3] = type;
	p[4] = flags;
	put_be32(p + 5, stream);
}

/* Who sent the frame: to us as a server, or to us as a client of an executor. */
enum h2_peer { H2_FROM_CLIENT, H2_FROM_SERVER };

/*
 * Checks what can be checked from the header alone: length against
 * max_frame_size (bytes) and the type's fixed length, stream id zero or not,
 * direction (PUSH_PROMISE never; client stream ids odd), ACK with payload.
 * Unknown types pass. Returns 0, or an enum h2_error; *ret_stream_error is set
 * true when RFC 9113 makes it a stream error (FRAME_SIZE_ERROR of PRIORITY; a
 * WINDOW_UPDATE or RST_STREAM of the wrong size is a connection error).
 */
uint32_t h2_frame_check(const struct h2_frame *f, enum h2_peer from, uint32_t max_frame_size,
			bool *ret_stream_error);

/*
 * Finds the content of a DATA or HEADERS payload of f->length bytes at p: skips
 * Pad Length, the HEADERS priority fields and the padding. 0, or H2_PROTOCOL_ERROR
 * (padding longer than the frame) or H2_FRAME_SIZE_ERROR (too short for the
 * fields its flags promise). *ret_dependency is the stream depended on, 0 if none.
 */
uint32_t h2_payload(const struct h2_frame *f, const uint8_t *p, const uint8_t **ret_content,
		    uint32_t *ret_len, uint32_t *ret_dependency);

enum h2_setting {
	H2_SETTINGS_HEADER_TABLE_SIZE = 1,
	H2_SETTINGS_ENABLE_PUSH = 2,
	H2_SETTINGS_MAX_CONCURRENT_STREAMS = 3,
	H2_SETTINGS_INITIAL_WINDOW_SIZE = 4,
	H2_SETTINGS_MAX_FRAME_SIZE = 5,
	H2_SETTINGS_MAX_HEADER_LIST_SIZE = 6,
};

struct h2_settings {
	uint32_t header_table_size;      /* bytes, 4096 */
	uint32_t enable_push;            /* 0 or 1, 1 */
	uint32_t max_concurrent_streams; /* UINT32_MAX = no limit */
	uint32_t initial_window_size;    /* bytes, 65535 */
	uint32_t max_frame_size;         /* bytes, 16384 */
	uint32_t max_header_list_size;   /* bytes, UINT32_MAX = no limit */
};

#define H2_SETTINGS_DEFAULT                                                                        \
	((struct h2_settings){ 4096, 1, UINT32_MAX, H2_DEFAULT_WINDOW, H2_DEFAULT_FRAME_SIZE,      \
			       UINT32_MAX })

/*
 * Applies a SETTINGS payload of len bytes (a multiple of 6: h2_frame_check) to
 * *s in order; unknown ids are skipped. Values are checked as RFC 9113 6.5.2
 * says. 0, or PROTOCOL_ERROR, FLOW_CONTROL_ERROR; *s may be half applied then
 * (the connection ends anyway). from: a server must not send ENABLE_PUSH=1.
 */
uint32_t h2_settings_apply(struct h2_settings *s, const uint8_t *payload, uint32_t len,
			   enum h2_peer from);

/*
 * Each of these writes one whole frame at p and returns its length in bytes.
 * The caller has made the room: H2_HEADER_LEN plus the payload.
 */
size_t h2_put_settings_ack(uint8_t *p);
size_t h2_put_setting(uint8_t *p, uint16_t id, uint32_t value);  /* 6 bytes, no frame header */
size_t h2_put_ping(uint8_t *p, const uint8_t data[8], bool ack); /* 17 */
size_t h2_put_rst_stream(uint8_t *p, uint32_t stream, uint32_t error);  /* 13 */
size_t h2_put_window_update(uint8_t *p, uint32_t stream, uint32_t inc); /* 13; inc 1..2^31-1 */
/* debug may be NULL; at most 128 bytes of it are sent. 17 + strlen(debug) at most. */
size_t h2_put_goaway(uint8_t *p, uint32_t last_stream, uint32_t error, const char *debug);

#endif
