/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - what h2exec and h2load have in common: frames, and the body of a result.
 *
 * Both speak HTTP/2 and Flight from scratch and share nothing with the product but the byte-order
 * helpers, so that a mistake of the product is not repeated here, and so that they cost as little
 * as possible: what is left of the machine belongs to the proxy under test.
 *
 * The size of a result travels in the job id of its ticket, "bytes=N", or "grpc=N" for a body of
 * valid gRPC messages that hold FlightData. The "bytes" body is a fixed pattern without message
 * prefixes, which no proxy on the way looks at. In both every byte follows from its offset, so
 * that h2load -V can check all of them.
 */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define PREFACE_LEN 24
#define FRAME_HEAD 9
#define DEFAULT_WINDOW 65535
#define DEFAULT_FRAME 16384
#define STREAMS_MAX 256

enum frame_type {
	FRAME_DATA = 0,
	FRAME_HEADERS = 1,
	FRAME_RST_STREAM = 3,
	FRAME_SETTINGS = 4,
	FRAME_PING = 6,
	FRAME_GOAWAY = 7,
	FRAME_WINDOW_UPDATE = 8,
};

enum {
	FLAG_END_STREAM = 0x1,
	FLAG_ACK = 0x1,
	FLAG_END_HEADERS = 0x4,
	FLAG_PADDED = 0x8,
};

enum {
	SETTING_ENABLE_PUSH = 2,
	SETTING_MAX_STREAMS = 3,
	SETTING_INITIAL_WINDOW = 4,
	SETTING_MAX_FRAME = 5,
	SETTING_MAX_HEADER_LIST = 6,
};

static inline void __attribute__((noreturn)) printf_like(1, 2) die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static inline void *must_alloc(size_t n)
{
	void *p = calloc(1, n);

	if (!p)
		die("out of memory");
	return p;
}

static inline struct sockaddr_in parse_addr(const char *text)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	const char *colon = strrchr(text, ':');
	char host[64];

	if (!colon || (size_t)(colon - text) >= sizeof(host))
		die("%s: not ADDR:PORT", text);
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	a.sin_port = htons((uint16_t)atoi(colon + 1));
	if (!a.sin_port || inet_pton(AF_INET, host, &a.sin_addr) != 1)
		die("%s: not an IPv4 address and a port", text);
	return a;
}

/* ---------------------------------------------------------------- frames to send */

/* Frames of a few bytes, collected until they are written together. */
struct frames {
	size_t len;
	uint8_t bytes[8192];
};

static inline void put_frame_head(uint8_t *p, uint32_t len, uint8_t type, uint8_t flags,
				  uint32_t stream)
{
	put_be24(p, len);
	p[3] = type;
	p[4] = flags;
	put_be32(p + 5, stream);
}

/* Returns where the payload goes; NULL when the peer made us owe more than `frames` holds. */
static inline uint8_t *frames_add(struct frames *f, uint32_t len, uint8_t type, uint8_t flags,
				  uint32_t stream)
{
	uint8_t *p = f->bytes + f->len;

	if (f->len + FRAME_HEAD + len > sizeof(f->bytes))
		return NULL;
	put_frame_head(p, len, type, flags, stream);
	f->len += FRAME_HEAD + len;
	return p + FRAME_HEAD;
}

static inline bool frames_window(struct frames *f, uint32_t stream, uint32_t increment)
{
	uint8_t *p = frames_add(f, 4, FRAME_WINDOW_UPDATE, 0, stream);

	if (p)
		put_be32(p, increment);
	return p;
}

static inline bool frames_ping_ack(struct frames *f, const uint8_t *opaque)
{
	uint8_t *p = frames_add(f, 8, FRAME_PING, FLAG_ACK, 0);

	if (p)
		memcpy(p, opaque, 8);
	return p;
}

static inline uint8_t *put_setting(uint8_t *p, uint16_t id, uint32_t value)
{
	put_be16(p, id);
	put_be32(p + 2, value);
	return p + 6;
}

/* An HPACK literal without indexing, both strings plain and shorter than 127 bytes. */
static inline uint8_t *put_literal(uint8_t *p, const char *name, const char *value)
{
	size_t name_len = strlen(name), value_len = strlen(value);

	*p++ = 0;
	*p++ = (uint8_t)name_len;
	memcpy(p, name, name_len);
	p += name_len;
	*p++ = (uint8_t)value_len;
	memcpy(p, value, value_len);
	return p + value_len;
}

/* ---------------------------------------------------------------- the body of a result */

/*
 * Plain: byte i is pattern[i % PATTERN_PERIOD].
 *
 * gRPC: messages of MESSAGE_LEN bytes, prefix included, after a first one that takes what is left of
 * the total when it is divided into those. A message is the 5-byte prefix and one FlightData
 * field, data_body (1000), whose length is always written as four bytes so that any size is possible.
 */
#define PATTERN_PERIOD 65536
#define MESSAGE_LEN (512 * 1024)
#define MESSAGE_HEAD 11

struct body {
	uint64_t total;
	uint32_t first; /* length of the odd first message, 0 = there is none */
	bool grpc;
	uint8_t head[MESSAGE_HEAD]; /* of the first message */
};

static uint8_t pattern[2 * PATTERN_PERIOD];
static uint8_t messages[2 * MESSAGE_LEN];

static inline void put_message_head(uint8_t *p, uint32_t len)
{
	uint32_t data_len = len - MESSAGE_HEAD;

	p[0] = 0;
	put_be32(p + 1, len - 5);
	p[5] = 0xc2; /* field 1000, length-delimited */
	p[6] = 0x3e;
	p[7] = (uint8_t)(data_len | 0x80);
	p[8] = (uint8_t)(data_len >> 7 | 0x80);
	p[9] = (uint8_t)(data_len >> 14 | 0x80);
	p[10] = (uint8_t)(data_len >> 21 & 0x7f);
}

static inline void make_patterns(void)
{
	for (uint32_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)((i % PATTERN_PERIOD) * 2654435761u >> 24);
	for (size_t i = 0; i < sizeof(messages); i += sizeof(pattern))
		memcpy(messages + i, pattern, sizeof(pattern));
	for (size_t i = 0; i < sizeof(messages); i += MESSAGE_LEN)
		put_message_head(messages + i, MESSAGE_LEN);
}

static inline void body_init(struct body *b, uint64_t total, bool grpc)
{
	b->total = total;
	b->grpc = grpc;
	b->first = 0;
	if (!grpc || !total)
		return;
	b->first = (uint32_t)(total % MESSAGE_LEN);
	if (b->first && b->first < MESSAGE_HEAD)
		b->first += MESSAGE_LEN;
	if (b->first)
		put_message_head(b->head, b->first);
}

/* Where the bytes from `offset` on are, and how many of the at most `max` wanted lie there in a row. */
static inline size_t body_slice(const struct body *b, uint64_t offset, size_t max,
				const uint8_t **ret)
{
	size_t there;

	if (!b->grpc || (offset >= MESSAGE_HEAD && offset < b->first)) {
		size_t at = offset % PATTERN_PERIOD;

		*ret = pattern + at;
		there = sizeof(pattern) - at;
		if (b->grpc)
			there = min_u64(there, b->first - offset);
	} else if (offset < b->first) {
		*ret = b->head + offset;
		there = MESSAGE_HEAD - (size_t)offset;
	} else {
		size_t at = (offset - b->first) % MESSAGE_LEN;

		*ret = messages + at;
		there = sizeof(messages) - at;
	}
	return there < max ? there : max;
}

#endif
