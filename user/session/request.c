/* SPDX-License-Identifier: Apache-2.0 */
#include "session/request.h"

#include "h2/field.h"

void request_init(struct request *rq, uint64_t now_ns)
{
	/* The block's 16 KiB are written before they are read. */
	memset((uint8_t *)rq + offsetof(struct request, block_len), 0,
	       sizeof(*rq) - offsetof(struct request, block_len));
	rq->content_length = -1;
	rq->now_ns = now_ns;
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
	if (hpack_name_is(f, ":method")) {
		rq->post = hpack_value_is(f, "POST");
		return once(&rq->seen_method);
	}
	if (hpack_name_is(f, ":scheme"))
		return once(&rq->seen_scheme);
	if (hpack_name_is(f, ":authority"))
		return once(&rq->seen_authority);
	if (hpack_name_is(f, ":path")) {
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

/* Lower-case hexadecimal, not all zeros. */
static bool is_id(const char *s, size_t len)
{
	bool any = false;

	for (size_t i = 0; i < len; i++) {
		if (!(s[i] >= '0' && s[i] <= '9') && !(s[i] >= 'a' && s[i] <= 'f'))
			return false;
		any |= s[i] != '0';
	}
	return any;
}

static bool is_flags(const char *s)
{
	return is_id(s, 2) || !memcmp(s, "00", 2);
}

/*
 * Only what is one gets into the log: a version that we know, and ids, not whatever a client
 * chooses to write. The field itself goes on to the executor as it is.
 */
static void traceparent(struct request *rq, const struct hpack_field *f)
{
	const char *v = f->value;

	if (rq->traceparent[0] || f->value_len != TRACEPARENT_LEN || memcmp(v, "00-", 3) ||
	    v[35] != '-' || v[52] != '-' || !is_id(v + 3, 32) || !is_id(v + 36, 16) ||
	    !is_flags(v + 53))
		return;
	memcpy(rq->traceparent, v, TRACEPARENT_LEN);
}

int request_field(void *arg, const struct hpack_field *f)
{
	struct request *rq = arg;
	uint64_t timeout;
	int r = 0;

	if (!hpack_field_legal(f))
		return -EPROTO;
	if (f->name[0] == ':') {
		r = pseudo(rq, f);
	} else {
		rq->regular = true;
		if (hpack_name_is(f, "content-length"))
			r = content_length(rq, f);
		else if (hpack_name_is(f, "grpc-timeout") &&
			 !grpc_timeout_parse(f->value, f->value_len, &timeout))
			rq->deadline_ns = rq->now_ns + min_u64(timeout, INT64_MAX);
		else if (hpack_name_is(f, "traceparent"))
			traceparent(rq, f);
	}
	return r ? r : hpack_encode(rq->block, sizeof(rq->block), &rq->block_len, f);
}

int request_trailer_field(void *arg, const struct hpack_field *f)
{
	(void)arg;
	return hpack_field_legal(f) && f->name[0] != ':' ? 0 : -EPROTO;
}

bool request_valid(const struct request *rq)
{
	return rq->seen_method && rq->seen_scheme && rq->seen_path;
}

enum flight_method request_method(const struct request *rq)
{
	return flight_method_find(rq->path, rq->path_len);
}
