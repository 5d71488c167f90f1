/* SPDX-License-Identifier: Apache-2.0 */
/*
 * response.h - what an executor's header block says, as far as the proxy cares.
 *
 * The block itself travels verbatim (datapath/relay.c). It is read to know where the
 * response stands, and because whoever stands between two peers must not forward a
 * malformed message (RFC 9113 8.1.1): a client would have to blame its own connection,
 * and with it the results of other executors.
 */
#ifndef FS_RESPONSE_H
#define FS_RESPONSE_H

#include "h2/hpack.h"

struct response {
	int status;      /* :status, 100..999; -1 = not there */
	int grpc_status; /* -1 = not there; what is no number counts as 2 (UNKNOWN) */
	bool regular;    /* a field that is no pseudo-header has been seen */
};

#define RESPONSE_NONE ((struct response){ .status = -1, .grpc_status = -1 })

/* For each field of a block; *r starts as RESPONSE_NONE. 0, or -EPROTO: malformed. */
int response_field(struct response *r, const struct hpack_field *f);

/*
 * What is wrong with a block of legal fields at its place, or NULL. head: nothing but
 * informational responses came before it; end: it has END_STREAM. Static text.
 */
const char *response_malformed(const struct response *r, bool head, bool end);

/* An informational response: the head is still to come. */
static inline bool response_informational(const struct response *r)
{
	return r->status >= 100 && r->status < 200;
}

#endif
