/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - a client's request header block, read and written anew.
 *
 * Fields are checked as RFC 9113 8.2-8.3 asks, and re-encoded as stateless
 * literals in the order they came, so that the block is valid on any upstream
 * connection. Nothing is added or left out.
 */
#ifndef FS_REQUEST_H
#define FS_REQUEST_H

#include "flight/flight.h"
#include "h2/hpack.h"

#define REQUEST_BLOCK_MAX 16384u /* one HEADERS frame of the default size */

/* A traceparent of W3C Trace Context, version 00: "00-TRACE-PARENT-FLAGS", all hexadecimal. */
#define TRACEPARENT_LEN 55

struct request {
	uint8_t block[REQUEST_BLOCK_MAX];
	size_t block_len;
	char path[256]; /* truncated: what is longer is no method of ours */
	size_t path_len;
	bool seen_method, seen_scheme, seen_path, seen_authority;
	bool regular; /* a field that is no pseudo-header has been seen */
	bool post;
	int64_t content_length;                /* -1 = none */
	uint64_t now_ns, deadline_ns;          /* deadline: now + grpc-timeout, 0 = none */
	char traceparent[TRACEPARENT_LEN + 1]; /* for the log; "" = none that is valid */
};

void request_init(struct request *rq, uint64_t now_ns);
/* hpack_decode() callback; arg is the struct request. 0, -EPROTO (malformed) or -ENOSPC. */
int request_field(void *arg, const struct hpack_field *f);
/* The same for request trailers, which are checked and dropped; arg is not used. */
int request_trailer_field(void *arg, const struct hpack_field *f);
/* All pseudo-headers that a request needs were there. */
bool request_valid(const struct request *rq);
enum flight_method request_method(const struct request *rq);

#endif
