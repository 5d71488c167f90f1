/* SPDX-License-Identifier: Apache-2.0 */
#include "session/response.h"

#include <errno.h>

#include "h2/field.h"

/* A number of up to three digits, or -1. */
static int number(const struct hpack_field *f)
{
	int v = 0;

	if (!f->value_len || f->value_len > 3)
		return -1;
	for (size_t i = 0; i < f->value_len; i++) {
		if (f->value[i] < '0' || f->value[i] > '9')
			return -1;
		v = v * 10 + (f->value[i] - '0');
	}
	return v;
}

int response_field(struct response *r, const struct hpack_field *f)
{
	int v;

	if (!hpack_field_legal(f) || hpack_value_blank(f))
		return -EPROTO;
	if (f->name[0] == ':') {
		v = number(f);
		if (r->regular || r->status >= 0 || !hpack_name_is(f, ":status") || v < 100)
			return -EPROTO;
		r->status = v;
		return 0;
	}
	r->regular = true;
	if (hpack_name_is(f, "grpc-status")) {
		v = number(f);
		r->grpc_status = v < 0 ? 2 : v;
	}
	return 0;
}

const char *response_malformed(const struct response *r, bool head, bool end)
{
	if (!head) {
		if (!end)
			return "trailers without END_STREAM";
		return r->status >= 0 ? "trailers with :status" : NULL;
	}
	if (r->status < 0)
		return "response without :status";
	if (r->status == 101)
		return "status 101 does not exist in HTTP/2";
	if (response_informational(r) && end)
		return "informational response with END_STREAM";
	return NULL;
}
