/* SPDX-License-Identifier: Apache-2.0 */
#include "session/request.h"

void request_init(struct request *rq, uint64_t now_ns)
{
	/* The block's 16 KiB are written before they are read. */
	memset((uint8_t *)rq + offsetof(struct request, block_len), 0,
	       sizeof(*rq) - offsetof(struct request, block_len));
	rq->content_length = -1;
	rq->now_ns = now_ns;
}

static bool is(const struct hpack_field *f, const char *name)
{
	return f->name_len == strlen(name) && !memcmp(f->name, name, f->name_len);
}

static bool value_is(const struct hpack_field *f, const char *value)
{
	return f->value_len == strlen(value) && !memcmp(f->value, value, f->value_len);
}

/* RFC 9113 8.2.1: lower case, no control characters; 8.2.2: nothing of the connection. */
static bool legal_field(const struct hpack_field *f)
{
	static const char *const connection[] = { "connection", "keep-alive", "proxy-connection",
						  "transfer-encoding", "upgrade" };

	if (!f->name_len)
		return false;
	for (size_t i = 0; i < f->name_len; i++) {
		uint8_t ch = (uint8_t)f->name[i];

		if (ch <= 0x20 || ch >= 0x7f || (ch >= 'A' && ch <= 'Z') || (ch == ':' && i))
			return false;
	}
	for (size_t i = 0; i < f->value_len; i++) {
		uint8_t ch = (uint8_t)f->value[i];

		if (!ch || ch == '\r' || ch == '\n')
			return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(connection); i++) {
		if (is(f, connection[i]))
			return false;
	}
	return !is(f, "te") || value_is(f, "trailers");
}

static int once(bool *seen)
{
	if (*seen)
		return -EPROTO;
	*seen = true;
	return 0;
}

static int pseudo(struct request *rq, const struct hpack_field *f)
{
	if (rq->regular)
		return -EPROTO;
	if (is(f, ":method")) {
		rq->post = value_is(f, "POST");
		return once(&rq->seen_method);
	}
	if (is(f, ":scheme"))
		return once(&rq->seen_scheme);
	if (is(f, ":authority"))
		return once(&rq->seen_authority);
	if (is(f, ":path")) {
		if (!f->value_len)
			return -EPROTO;
		rq->path_len = min_u64(f->value_len, sizeof(rq->path));
		memcpy(rq->path, f->value, rq->path_len);
		return once(&rq->seen_path);
	}
	return -EPROTO;
}

static int content_length(struct request *rq, const struct hpack_field *f)
{
	int64_t v = 0;

	if (!f->value_len || f->value_len > 15)
		return -EPROTO;
	for (size_t i = 0; i < f->value_len; i++) {
		if (f->value[i] < '0' || f->value[i] > '9')
			return -EPROTO;
		v = v * 10 + (f->value[i] - '0');
	}
	if (rq->content_length >= 0 && rq->content_length != v)
		return -EPROTO;
	rq->content_length = v;
	return 0;
}

int request_field(void *arg, const struct hpack_field *f)
{
	struct request *rq = arg;
	uint64_t timeout;
	int r = 0;

	if (!legal_field(f))
		return -EPROTO;
	if (f->name[0] == ':') {
		r = pseudo(rq, f);
	} else {
		rq->regular = true;
		if (is(f, "content-length"))
			r = content_length(rq, f);
		else if (is(f, "grpc-timeout") &&
			 !grpc_timeout_parse(f->value, f->value_len, &timeout))
			rq->deadline_ns = rq->now_ns + min_u64(timeout, INT64_MAX);
	}
	return r ? r : hpack_encode(rq->block, sizeof(rq->block), &rq->block_len, f);
}

int request_trailer_field(void *arg, const struct hpack_field *f)
{
	(void)arg;
	return legal_field(f) && f->name[0] != ':' ? 0 : -EPROTO;
}

bool request_valid(const struct request *rq)
{
	return rq->seen_method && rq->seen_scheme && rq->seen_path;
}

enum flight_method request_method(const struct request *rq)
{
	return flight_method_find(rq->path, rq->path_len);
}
