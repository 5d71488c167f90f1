/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc.c - gRPC over HTTP/2: length-prefixed messages, timeouts, statuses.
 *
 * The reader copies: a request is some forty bytes and is needed in one piece,
 * first to read its ticket and then to be forwarded. `have` counts prefix and
 * message together. While it is below 5 bytes go to `prefix`; once the prefix is
 * whole it is judged, and only a length within `max` gets memory. A refused
 * prefix stays in place, so every later call judges it again and answers the same.
 */
#include "flight/flight.h"

#include <stdlib.h>

#define PREFIX_LEN 5u

const char *grpc_status_name(int status)
{
	static const char *const names[] = {
		"OK",
		"CANCELLED",
		"UNKNOWN",
		"INVALID_ARGUMENT",
		"DEADLINE_EXCEEDED",
		"NOT_FOUND",
		"ALREADY_EXISTS",
		"PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED",
		"FAILED_PRECONDITION",
		"ABORTED",
		"OUT_OF_RANGE",
		"UNIMPLEMENTED",
		"INTERNAL",
		"UNAVAILABLE",
		"DATA_LOSS",
		"UNAUTHENTICATED",
	};

	return status >= 0 && (size_t)status < ARRAY_SIZE(names) ? names[status] : "?";
}

size_t grpc_message_encode(char *buf, size_t cap, const char *msg)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;

	if (!cap)
		return 0;
	for (; *msg; msg++) {
		uint8_t c = (uint8_t)*msg;
		bool plain = c >= 0x20 && c <= 0x7e && c != '%';

		if (n + (plain ? 1 : 3) >= cap)
			break;
		if (plain) {
			buf[n++] = (char)c;
		} else {
			buf[n++] = '%';
			buf[n++] = hex[c >> 4];
			buf[n++] = hex[c & 15];
		}
	}
	buf[n] = '\0';
	return n;
}

/* Nanoseconds of a TimeoutUnit, 0 when there is no such unit. */
static uint64_t timeout_unit(char unit)
{
	switch (unit) {
	case 'H':
		return 3600 * NSEC_PER_SEC;
	case 'M':
		return 60 * NSEC_PER_SEC;
	case 'S':
		return NSEC_PER_SEC;
	case 'm':
		return NSEC_PER_MSEC;
	case 'u':
		return NSEC_PER_USEC;
	case 'n':
		return 1;
	default:
		return 0;
	}
}

int grpc_timeout_parse(const char *value, size_t len, uint64_t *ret_ns)
{
	uint64_t v = 0, unit, ns;

	if (len < 2 || len > 9)
		return -EINVAL;
	unit = timeout_unit(value[len - 1]);
	if (!unit)
		return -EINVAL;
	for (size_t i = 0; i < len - 1; i++) {
		if (value[i] < '0' || value[i] > '9')
			return -EINVAL;
		v = v * 10 + (uint64_t)(value[i] - '0');
	}
	if (__builtin_mul_overflow(v, unit, &ns) || ns > INT64_MAX)
		ns = INT64_MAX;
	*ret_ns = ns;
	return 0;
}

void grpc_reader_init(struct grpc_reader *r, uint32_t max_message)
{
	memset(r, 0, sizeof(*r));
	/* So that `have` can hold prefix and message. */
	r->max = (uint32_t)min_u64(max_message, UINT32_MAX - PREFIX_LEN);
}

void grpc_reader_free(struct grpc_reader *r)
{
	free(r->msg);
	grpc_reader_init(r, r->max);
}

/* The prefix is whole: refuses it, or makes room for what it announces. */
static enum grpc_read start_message(struct grpc_reader *r)
{
	uint32_t len = get_be32(r->prefix + 1);

	if (r->prefix[0])
		return GRPC_READ_COMPRESSED;
	if (len > r->max)
		return GRPC_READ_TOO_LARGE;
	r->msg = malloc(PREFIX_LEN + (size_t)len);
	if (!r->msg)
		return GRPC_READ_NOMEM;
	memcpy(r->msg, r->prefix, PREFIX_LEN);
	return GRPC_READ_MORE;
}

/* Moves up to `upto - have` bytes from *data to `to`, where byte 0 belongs. */
static void collect(struct grpc_reader *r, uint8_t *to, uint32_t upto, const uint8_t **data,
		    size_t *len)
{
	size_t n = min_u64(upto - r->have, *len);

	if (!n)
		return;
	memcpy(to + r->have, *data, n);
	r->have += (uint32_t)n;
	*data += n;
	*len -= n;
}

enum grpc_read grpc_reader_feed(struct grpc_reader *r, const uint8_t *data, size_t len)
{
	if (!r->msg) {
		enum grpc_read state;

		collect(r, r->prefix, PREFIX_LEN, &data, &len);
		if (r->have < PREFIX_LEN)
			return GRPC_READ_MORE;
		state = start_message(r);
		if (state != GRPC_READ_MORE)
			return state;
	}
	collect(r, r->msg, PREFIX_LEN + get_be32(r->prefix + 1), &data, &len);
	if (len)
		return GRPC_READ_EXTRA;
	return grpc_reader_done(r) ? GRPC_READ_DONE : GRPC_READ_MORE;
}
