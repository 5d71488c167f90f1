/* SPDX-License-Identifier: Apache-2.0 */
/* Request header blocks: what RFC 9113 8.2 and 8.3 refuse, and that the rest goes on unchanged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "session/request.h"

static int feed(struct request *rq, const char *name, const char *value)
{
	struct hpack_field f = {
		.name = name, .value = value, .name_len = strlen(name), .value_len = strlen(value)
	};

	return request_field(rq, &f);
}

static void begin(struct request *rq)
{
	request_init(rq, 1000);
	assert_int_equal(feed(rq, ":method", "POST"), 0);
	assert_int_equal(feed(rq, ":scheme", "http"), 0);
	assert_int_equal(feed(rq, ":path", "/arrow.flight.protocol.FlightService/DoGet"), 0);
	assert_int_equal(feed(rq, ":authority", "proxy:50060"), 0);
}

struct list_of {
	char text[2048];
};

static int append(void *arg, const struct hpack_field *f)
{
	struct list_of *l = arg;
	size_t at = strlen(l->text);

	snprintf(l->text + at, sizeof(l->text) - at, "%.*s=%.*s\n", (int)f->name_len, f->name,
		 (int)f->value_len, f->value);
	return 0;
}

/* What went in comes out of any decoder, in its order, with what we do not know. */
static void goes_on_unchanged(void **state)
{
	struct hpack_decoder *d = hpack_decoder_new(4096);
	struct list_of l = { "" };
	struct request rq;

	(void)state;
	begin(&rq);
	assert_int_equal(feed(&rq, "te", "trailers"), 0);
	assert_int_equal(feed(&rq, "content-type", "application/grpc"), 0);
	assert_int_equal(feed(&rq, "traceparent", "00-4bf92f-00f067-01"), 0);
	assert_int_equal(feed(&rq, "x-bin", "\x01\x7f"), 0);
	assert_true(request_valid(&rq) && rq.post);
	assert_int_equal(request_method(&rq), FLIGHT_DO_GET);
	assert_int_equal(hpack_decode(d, rq.block, rq.block_len, 16384, append, &l), 0);
	assert_string_equal(l.text, ":method=POST\n:scheme=http\n"
				    ":path=/arrow.flight.protocol.FlightService/DoGet\n"
				    ":authority=proxy:50060\nte=trailers\n"
				    "content-type=application/grpc\n"
				    "traceparent=00-4bf92f-00f067-01\nx-bin=\x01\x7f\n");
	hpack_decoder_free(d);
}

/* Only a valid one is kept for the log. */
static void trace(void **state)
{
#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
	static const char *const bad[] = {
		"",
		"00-" TRACE "-" SPAN,
		"00-" TRACE "-" SPAN "-01-more",
		"00-" TRACE "-" SPAN "-0",
		"00-" TRACE "-" SPAN "-0g",
		"ff-" TRACE "-" SPAN "-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
		"00-00000000000000000000000000000000-" SPAN "-01",
		"00-" TRACE "-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e473 -" SPAN "-01",
		"00 " TRACE "-" SPAN "-01",
		"00-" TRACE "_" SPAN "-01",
		"00-" TRACE "-" SPAN "_01",
	};
	struct request rq;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin(&rq);
		assert_int_equal(feed(&rq, "traceparent", bad[i]), 0);
		assert_string_equal(rq.traceparent, "");
	}
	begin(&rq);
	assert_int_equal(feed(&rq, "traceparent", "00-" TRACE "-" SPAN "-00"), 0);
	assert_string_equal(rq.traceparent, "00-" TRACE "-" SPAN "-00");
	assert_int_equal(feed(&rq, "traceparent", "00-" TRACE "-" SPAN "-01"), 0);
	assert_string_equal(rq.traceparent, "00-" TRACE "-" SPAN "-00");
}

static void refused(void **state)
{
	static const struct {
		const char *name, *value;
	} bad[] = {
		{ "Upper", "x" },
		{ "", "x" },
		{ "sp ace", "x" },
		{ "colon:inside", "x" },
		{ "connection", "close" },
		{ "keep-alive", "1" },
		{ "proxy-connection", "x" },
		{ "transfer-encoding", "chunked" },
		{ "upgrade", "h2c" },
		{ "te", "gzip" },
		{ "value", "new\nline" },
		{ "value", "re\rturn" },
		{ ":method", "POST" }, /* twice */
		{ ":path", "/" },
		{ ":unknown", "x" },
		{ ":status", "200" },
		{ "content-length", "1x" },
		{ "content-length", "" },
	};
	struct request rq;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		begin(&rq);
		if (feed(&rq, bad[i].name, bad[i].value) != -EPROTO)
			fail_msg("%s: %s was accepted", bad[i].name, bad[i].value);
	}
	begin(&rq);
	assert_int_equal(feed(&rq, "te", "trailers"), 0);
	assert_int_equal(feed(&rq, ":authority", "late"), -EPROTO); /* after a regular field */
	request_init(&rq, 0);
	assert_int_equal(feed(&rq, ":path", ""), -EPROTO);
	request_init(&rq, 0);
	assert_int_equal(feed(&rq, ":method", "POST"), 0);
	assert_int_equal(feed(&rq, ":path", "/x"), 0);
	assert_false(request_valid(&rq)); /* no :scheme */
}

static void deadline_and_length(void **state)
{
	struct request rq;

	(void)state;
	begin(&rq);
	assert_int_equal(rq.deadline_ns, 0);
	assert_int_equal(rq.content_length, -1);
	assert_int_equal(feed(&rq, "grpc-timeout", "200m"), 0);
	assert_int_equal(rq.deadline_ns, 1000 + 200 * NSEC_PER_MSEC);
	assert_int_equal(feed(&rq, "content-length", "42"), 0);
	assert_int_equal(rq.content_length, 42);
	assert_int_equal(feed(&rq, "content-length", "42"), 0);
	assert_int_equal(feed(&rq, "content-length", "43"), -EPROTO);
}

/* A block that does not fit one frame is told, not cut. */
static void too_large(void **state)
{
	char value[4000];
	struct request rq;
	int r = 0;

	(void)state;
	memset(value, 'x', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	begin(&rq);
	for (int i = 0; i < 5 && !r; i++)
		r = feed(&rq, "x-large", value);
	assert_int_equal(r, -ENOSPC);
	assert_true(rq.block_len <= REQUEST_BLOCK_MAX);
}

static void trailers(void **state)
{
	struct hpack_field good = { "x-sum", "1", 5, 1, false };
	struct hpack_field bad = { ":path", "/", 5, 1, false };

	(void)state;
	assert_int_equal(request_trailer_field(NULL, &good), 0);
	assert_int_equal(request_trailer_field(NULL, &bad), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_on_unchanged), cmocka_unit_test(trace),
		cmocka_unit_test(refused),           cmocka_unit_test(deadline_and_length),
		cmocka_unit_test(too_large),         cmocka_unit_test(trailers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
