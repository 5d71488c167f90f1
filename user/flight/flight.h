/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - the part of Arrow Flight, gRPC and Ballista that a result proxy
 * has to understand: which method a :path names, where a gRPC message ends,
 * which executor a ticket means, and how a status is written.
 *
 * Nothing of it does I/O. A ticket's bytes are only read: what is forwarded is
 * always what the client sent.
 */
#ifndef FS_FLIGHT_H
#define FS_FLIGHT_H

#include "base/base.h"

enum grpc_status {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
};

/* "UNKNOWN" etc. (gRPC core's names); "?" for a number that gRPC does not name. */
const char *grpc_status_name(int status);

/*
 * Percent-encodes msg for the grpc-message field (gRPC over HTTP/2, "Status-Message":
 * bytes outside 0x20..0x7e and '%' become %XX). Truncates at a whole escape so that
 * the result with its NUL fits cap. Returns its length.
 */
size_t grpc_message_encode(char *buf, size_t cap, const char *msg);

/*
 * Parses a grpc-timeout value ("200m", "5S", at most 8 digits). 0 and *ret_ns
 * (saturated at INT64_MAX), or -EINVAL.
 */
int grpc_timeout_parse(const char *value, size_t len, uint64_t *ret_ns);

enum flight_method {
	FLIGHT_DO_GET,       /* forwarded */
	FLIGHT_OTHER,        /* a FlightService method that we do not serve */
	FLIGHT_HEALTH_CHECK, /* grpc.health.v1.Health/Check */
	FLIGHT_HEALTH_WATCH,
	FLIGHT_UNKNOWN, /* any other path */
};

/* The method a :path names, by a table of FlightService and Health. */
enum flight_method flight_method_find(const char *path, size_t len);

/*
 * Length-prefixed message reader (gRPC over HTTP/2): collects exactly one
 * message that may arrive in any number of pieces. Bounded by `max` before a
 * byte is stored.
 */
struct grpc_reader {
	uint8_t prefix[5]; /* compressed flag, 32-bit length */
	uint32_t have;     /* bytes of prefix + message so far */
	uint32_t max;      /* largest message accepted, bytes */
	uint8_t *msg;      /* 5-byte prefix and message, malloc'ed once the length is known */
};

enum grpc_read {
	GRPC_READ_MORE,       /* all bytes taken, message incomplete */
	GRPC_READ_DONE,       /* exactly one message is complete */
	GRPC_READ_EXTRA,      /* bytes after the first message */
	GRPC_READ_TOO_LARGE,  /* the prefix announces more than max */
	GRPC_READ_COMPRESSED, /* compressed flag not 0 */
	GRPC_READ_NOMEM,
};

void grpc_reader_init(struct grpc_reader *r, uint32_t max_message);
void grpc_reader_free(struct grpc_reader *r);
/* Feeds len bytes. After DONE only a call with len 0 is legal; more bytes give EXTRA. */
enum grpc_read grpc_reader_feed(struct grpc_reader *r, const uint8_t *data, size_t len);
static inline bool grpc_reader_done(const struct grpc_reader *r)
{
	return r->msg && r->have == 5 + get_be32(r->prefix + 1);
}
/* The whole message with its 5-byte prefix, as it came. Valid once done. */
static inline const uint8_t *grpc_reader_bytes(const struct grpc_reader *r, uint32_t *ret_len)
{
	*ret_len = r->have;
	return r->msg;
}

#define TICKET_HOST_MAX 253 /* a DNS name, RFC 1035 */
#define TICKET_JOB_MAX 64

/* What we need of a ticket. Copied out: nothing points into the message. */
struct ticket {
	char host[TICKET_HOST_MAX + 1]; /* name or IP literal, brackets removed */
	uint16_t port;
	char job[TICKET_JOB_MAX + 1]; /* truncated and made printable ('?') for logs */
	uint32_t stage, partition;
};

/*
 * Decodes a Flight Ticket message (without the gRPC prefix) that holds a Ballista
 * Action{fetch_partition}. 0, or -EINVAL with *ret_why a static text that names the
 * field ("ticket has no fetch_partition.host", "... port 70000 ..." is "port is out of
 * range"). A host with characters no host name or address has (anything but letters,
 * digits, '-', '.', '_', ':', '[', ']') is refused. *ret is written only on success.
 */
int ticket_decode(const uint8_t *msg, size_t len, struct ticket *ret, const char **ret_why);

/* grpc.health.v1: decodes HealthCheckRequest.service into buf (truncated); 0 or -EINVAL. */
int health_request_decode(const uint8_t *msg, size_t len, char *buf, size_t cap);

#endif
