/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <stdio.h>
#include <stdlib.h>

const struct ask ask_default = {
	.cancel_after = NEVER,
	.cancel_ns = NEVER,
	.stop_after = NEVER,
};

struct call *call_new(uint32_t key, const char *host, uint32_t port)
{
	struct call *c = xalloc(sizeof(*c));

	c->key = key;
	c->host = host;
	c->port = port;
	c->ask = ask_default;
	c->status = -1;
	c->n_answers = 1;
	return c;
}

void call_free(struct call *c)
{
	free(c->msg);
	free(c->text);
	free(c->x_timeout);
	free(c);
}

/* ---- protobuf, just enough ----------------------------------------------- */

static void put_varint(struct bytes *b, uint64_t v)
{
	uint8_t byte;

	for (; v >= 128; v >>= 7) {
		byte = (uint8_t)(v | 128);
		bytes_add(b, &byte, 1);
	}
	byte = (uint8_t)v;
	bytes_add(b, &byte, 1);
}

static void put_uint(struct bytes *b, unsigned field, uint64_t v)
{
	put_varint(b, field << 3);
	put_varint(b, v);
}

static void put_blob(struct bytes *b, unsigned field, const void *p, size_t n)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, n);
	bytes_add(b, p, n);
}

static bool get_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
		uint8_t byte = *(*p)++;

		v |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

struct pb {
	unsigned field;
	uint64_t value;      /* varint */
	const uint8_t *blob; /* NULL: not length-delimited */
	size_t len;
};

/* Next field of [*p, end); false at the end or on nonsense. */
static bool pb_next(const uint8_t **p, const uint8_t *end, struct pb *ret)
{
	uint64_t tag;

	ret->blob = NULL;
	if (*p >= end || !get_varint(p, end, &tag))
		return false;
	ret->field = (unsigned)(tag >> 3);
	switch (tag & 7) {
	case 0:
		return get_varint(p, end, &ret->value);
	case 2:
		if (!get_varint(p, end, &ret->value) || ret->value > (size_t)(end - *p))
			return false;
		ret->blob = *p;
		ret->len = ret->value;
		*p += ret->len;
		return true;
	default:
		return false;
	}
}

/* Length-delimited field `field` of a message: the last one, as protobuf says. */
static bool pb_blob(const uint8_t *p, size_t n, unsigned field, struct pb *ret)
{
	const uint8_t *end = p + n;
	struct pb f;
	bool found = false;

	while (pb_next(&p, end, &f)) {
		if (f.field == field && f.blob) {
			*ret = f;
			found = true;
		}
	}
	return found;
}

static bool fetch_partition(const uint8_t *msg, size_t len, struct pb *ret)
{
	struct pb ticket;

	return len > 5 && pb_blob(msg + 5, len - 5, 1, &ticket) &&
	       pb_blob(ticket.blob, ticket.len, 3, ret);
}

uint32_t ticket_key(const uint8_t *msg, size_t len)
{
	struct pb fetch, job;
	char text[16];

	if (!fetch_partition(msg, len, &fetch) || !pb_blob(fetch.blob, fetch.len, 1, &job) ||
	    job.len < 2 || job.len >= sizeof(text) || job.blob[0] != 'k')
		return 0;
	memcpy(text, job.blob, job.len);
	text[job.len] = 0;
	return (uint32_t)strtoul(text + 1, NULL, 10);
}

bool ticket_target(const uint8_t *msg, size_t len, char host[254], uint32_t *port)
{
	struct pb fetch, name, f;
	const uint8_t *p;

	if (!fetch_partition(msg, len, &fetch) || !pb_blob(fetch.blob, fetch.len, 5, &name) ||
	    name.len > 253)
		return false;
	memcpy(host, name.blob, name.len);
	host[name.len] = 0;
	*port = 0;
	p = fetch.blob;
	while (pb_next(&p, fetch.blob + fetch.len, &f))
		if (f.field == 6 && !f.blob)
			*port = (uint32_t)f.value;
	return true;
}

static void put_fetch_field(struct bytes *b, const struct call *c, unsigned field, uint32_t bulk)
{
	char job[16];
	uint8_t *junk;

	switch (field) {
	case 1:
		put_blob(b, 1, job, (size_t)snprintf(job, sizeof(job), "k%u", c->key));
		break;
	case 5:
		put_blob(b, 5, c->host, strlen(c->host));
		break;
	case 6:
		put_uint(b, 6, c->port);
		break;
	case 12: /* a field of some later version */
		junk = xalloc(bulk);
		pattern_fill(c->key, 0, junk, bulk);
		put_blob(b, 12, junk, bulk);
		free(junk);
		break;
	default: /* stage, partition, flags of some version */
		put_uint(b, field, c->key % 7);
		break;
	}
}

void call_ticket(struct call *c, struct rng *r, uint32_t bulk)
{
	unsigned order[] = { 1, 2, 3, 5, 6, 7, 12 };
	struct bytes fetch = { 0 }, action = { 0 }, ticket = { 0 };
	uint8_t prefix[5] = { 0 };

	for (unsigned i = ARRAY_SIZE(order) - 1; r && i > 0; i--) {
		unsigned j = (unsigned)rng_below(r, i + 1), t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
		if (order[i] != 12 || bulk)
			put_fetch_field(&fetch, c, order[i], bulk);
	put_blob(&action, 3, bytes_at(&fetch), fetch.len);
	if (r && rng_chance(r, 30))
		put_blob(&action, 100, "\n\001a\022\001b", 6); /* settings { a: b } */
	put_blob(&ticket, 1, bytes_at(&action), action.len);
	put_be32(prefix + 1, (uint32_t)ticket.len);
	free(c->msg);
	c->msg_len = 5 + ticket.len;
	c->msg = xalloc(c->msg_len);
	memcpy(c->msg, prefix, 5);
	memcpy(c->msg + 5, bytes_at(&ticket), ticket.len);
	bytes_free(&fetch);
	bytes_free(&action);
	bytes_free(&ticket);
}

char *percent_decode(const char *s)
{
	char *out = xalloc(strlen(s) + 1), *o = out;

	for (; *s; s++) {
		unsigned v;

		if (*s == '%' && sscanf(s + 1, "%2x", &v) == 1 && s[2]) {
			*o++ = (char)v;
			s += 2;
		} else {
			*o++ = *s;
		}
	}
	return out;
}

/* ---- judgement ----------------------------------------------------------- */

const struct answer *call_answer(const struct call *c, unsigned attempt)
{
	return &c->answer[attempt < c->n_answers ? attempt : c->n_answers - 1];
}

bool call_over(const struct call *c)
{
	return c->ended || c->reset || c->lost || c->cancelled;
}

const char *call_describe(const struct call *c, char *buf, size_t cap)
{
	snprintf(
		buf, cap,
		"call %u to %s:%u stream %u: %llu bytes, head %d ended %d status %d reset %d (%u) "
		"lost %d cancelled %d, \"%s\"; executor: attempts %u sent %llu complete %d open %d",
		c->key, c->host, c->port, c->stream, (unsigned long long)c->bytes, c->headed,
		c->ended, c->status, c->reset, c->reset_code, c->lost, c->cancelled,
		c->text ? c->text : "", c->attempts, (unsigned long long)c->x_bytes, c->x_complete,
		c->x_stream != NULL);
	return buf;
}

static void fail(struct world *w, const struct call *c, const char *why)
{
	char buf[500];

	world_fail(w, "%s: %s", why, call_describe(c, buf, sizeof(buf)));
}

static bool clean(const struct call *c)
{
	return c->ended && c->status == 0;
}

/* What holds for every call, whatever was scripted. */
static void judge_sound(struct world *w, const struct call *c)
{
	if (c->bytes > c->x_most)
		fail(w, c, "more bytes than any executor sent");
	if (clean(c)) {
		const struct answer *a = call_answer(c, c->attempts ? c->attempts - 1 : 0);

		if (!c->x_complete || a->kind != ANSWER_OK)
			fail(w, c, "clean end of an answer the executor did not complete");
		else if (c->bytes != a->total)
			fail(w, c, "clean end with bytes missing");
	}
	if (c->ended && c->status < 0 && !(c->http_status != 200 && c->http_status))
		fail(w, c, "END_STREAM without grpc-status");
	if (c->reset && !c->ended && !c->cancelled &&
	    (c->reset_code == NGHTTP2_NO_ERROR || c->reset_code == NGHTTP2_CANCEL))
		fail(w, c, "reset with a code that clients take for success");
	if (c->stream && !call_over(c))
		fail(w, c, "never ended");
	if (c->x_stream)
		fail(w, c, "stream left open at the executor");
	if (c->x_until_ns && c->x_gone_ns > c->x_until_ns)
		fail(w, c, "the executor learned of the cancellation too late");
	if (c->records > 1)
		fail(w, c, "more than one stream record");
	/* A stream refused at the door was never opened. */
	if (!c->records &&
	    (c->ended || c->headed || (c->reset && c->reset_code != NGHTTP2_REFUSED_STREAM)))
		fail(w, c, "no stream record");
}

static void judge_record(struct world *w, const struct call *c)
{
	if (!c->records)
		return;
	if (c->ended && c->status >= 0 && c->record_status != c->status)
		fail(w, c, "the record names another status than the client saw");
	if (clean(c) && c->record_end != END_COMPLETE)
		fail(w, c, "complete, but the record says otherwise");
	if (c->record_end == END_COMPLETE && !c->x_complete)
		fail(w, c, "the record says complete, the executor was not");
	if (c->record_bytes < c->bytes)
		fail(w, c, "the record counts fewer bytes than the client has");
	/* Padding is delivered with its frame, or stripped where one had to be split. */
	if (c->record_end == END_COMPLETE &&
	    (c->record_bytes < c->x_bytes || c->record_bytes > c->x_bytes + c->x_padding))
		fail(w, c, "the record counts other bytes than the executor sent");
}

static void judge_must(struct world *w, const struct call *c)
{
	const struct answer *a = call_answer(c, c->attempts ? c->attempts - 1 : 0);
	bool error_reset = c->reset && !c->ended;

	if (c->cancelled || !c->stream || (c->lost && c->may_be_lost))
		return;
	switch (c->must) {
	case MUST_END:
		break;
	case MUST_OK:
		/* A link so slow that a header block takes longer than docs/limits.md allows. */
		if (c->text && strstr(c->text, "budget executor_header_time exhausted"))
			break;
		if (!clean(c))
			fail(w, c, "should have succeeded");
		break;
	case MUST_STATUS:
		if (!c->ended || c->status != c->must_status)
			fail(w, c, "another status was due");
		else if (c->must_text && (!c->text || !strstr(c->text, c->must_text)))
			fail(w, c, "the message does not say why");
		break;
	case MUST_FAIL:
		if (!(c->ended && c->status) && !error_reset)
			fail(w, c, "should have failed");
		break;
	}
	if (!c->ended || !c->x_complete || c->status != a->status ||
	    (c->text && !strncmp(c->text, "flightsplice:", 13)))
		return;
	if (a->kind == ANSWER_STATUS || a->kind == ANSWER_TRAILERS_ONLY) {
		const char *want = a->message ? a->message : "";

		if (strcmp(c->text ? c->text : "", want))
			fail(w, c, "the executor's message was changed");
		if (!c->details)
			fail(w, c, "the executor's status details are lost");
		if (a->kind == ANSWER_STATUS && c->bytes != a->cut)
			fail(w, c, "bytes missing before the executor's status");
	}
}

void call_judge(struct world *w, const struct call *c)
{
	judge_sound(w, c);
	judge_record(w, c);
	judge_must(w, c);
}
