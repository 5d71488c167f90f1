/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's own layer: messages in pieces, timeouts, status names and texts, methods, health. */
#include "unit/hex.h"

#include "flight/flight.h"

/* ---- the message reader ---- */

/* One message of len counted-up bytes with its prefix, malloc'ed; *ret_n is the whole length. */
static uint8_t *message(uint32_t len, size_t *ret_n)
{
	uint8_t *p = malloc(5 + (size_t)len);

	assert_non_null(p);
	p[0] = 0;
	put_be32(p + 1, len);
	for (uint32_t i = 0; i < len; i++)
		p[5 + i] = (uint8_t)i;
	*ret_n = 5 + (size_t)len;
	return p;
}

/* Feeds a copy that ends where the piece ends. */
static enum grpc_read feed(struct grpc_reader *r, const uint8_t *p, size_t n)
{
	uint8_t *copy = exact_copy(p, n);
	enum grpc_read got = grpc_reader_feed(r, copy, n);

	free(copy);
	return got;
}

static void is_whole(const struct grpc_reader *r, const uint8_t *p, size_t n)
{
	const uint8_t *bytes;
	uint32_t len;

	assert_true(grpc_reader_done(r));
	bytes = grpc_reader_bytes(r, &len);
	assert_int_equal(len, n);
	assert_memory_equal(bytes, p, n);
}

/* Every way to cut a message into three pieces, empty ones included. */
static void split_everywhere(void **state)
{
	static const uint32_t lengths[] = { 0, 1, 2, 36, 60 };

	(void)state;
	for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
		size_t n;
		uint8_t *p = message(lengths[l], &n);

		for (size_t a = 0; a <= n; a++)
			for (size_t b = a; b <= n; b++) {
				struct grpc_reader r;

				grpc_reader_init(&r, 60);
				assert_false(grpc_reader_done(&r));
				assert_int_equal(feed(&r, p, a),
						 a == n ? GRPC_READ_DONE : GRPC_READ_MORE);
				assert_int_equal(feed(&r, p + a, b - a),
						 b == n ? GRPC_READ_DONE : GRPC_READ_MORE);
				assert_int_equal(grpc_reader_done(&r), b == n);
				assert_int_equal(feed(&r, p + b, n - b), GRPC_READ_DONE);
				is_whole(&r, p, n);
				grpc_reader_free(&r);
			}
		free(p);
	}
}

static void byte_by_byte(void **state)
{
	struct grpc_reader r;
	size_t n;
	uint8_t *p = message(70000, &n);

	(void)state;
	grpc_reader_init(&r, 70000);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(grpc_reader_feed(&r, p + i, 1),
				 i + 1 == n ? GRPC_READ_DONE : GRPC_READ_MORE);
	is_whole(&r, p, n);
	grpc_reader_free(&r);
	free(p);
}

static void more_than_one_message(void **state)
{
	struct grpc_reader r;
	size_t n;
	uint8_t *p = message(10, &n);
	uint8_t two[32];

	(void)state;
	memcpy(two, p, n);
	memcpy(two + n, p, n);

	/* Wherever the piece with the extra bytes begins. */
	for (size_t a = 0; a <= n; a++)
		for (size_t b = n + 1; b <= 2 * n; b++) {
			grpc_reader_init(&r, 10);
			feed(&r, two, a);
			assert_int_equal(feed(&r, two + a, b - a), GRPC_READ_EXTRA);
			is_whole(&r, p, n);
			/* Nothing more is legal but the end. */
			assert_int_equal(feed(&r, two, 1), GRPC_READ_EXTRA);
			assert_int_equal(grpc_reader_feed(&r, NULL, 0), GRPC_READ_DONE);
			grpc_reader_free(&r);
		}
	free(p);
}

static void refused_prefix(const char *hex, uint32_t max, enum grpc_read want)
{
	uint8_t p[16];
	size_t n = hex_read(p, sizeof(p), hex);

	for (size_t cut = 0; cut <= 5; cut++) {
		struct grpc_reader r;

		grpc_reader_init(&r, max);
		assert_int_equal(feed(&r, p, cut), cut < 5 ? GRPC_READ_MORE : want);
		assert_int_equal(feed(&r, p + cut, n - cut), want);
		/* For good, and without ever having asked for memory. */
		assert_int_equal(feed(&r, p, n), want);
		assert_int_equal(grpc_reader_feed(&r, NULL, 0), want);
		assert_null(r.msg);
		assert_int_equal(r.have, 5);
		assert_false(grpc_reader_done(&r));
		grpc_reader_free(&r);
	}
}

static void refused_prefixes(void **state)
{
	(void)state;
	refused_prefix("00 0000000b 61", 10, GRPC_READ_TOO_LARGE);
	refused_prefix("00 00000001 61", 0, GRPC_READ_TOO_LARGE);
	refused_prefix("00 00989680", 65536, GRPC_READ_TOO_LARGE); /* 10 MB */
	refused_prefix("00 ffffffff", 65536, GRPC_READ_TOO_LARGE);
	refused_prefix("00 ffffffff", UINT32_MAX, GRPC_READ_TOO_LARGE); /* have would wrap */
	refused_prefix("01 00000001 61", 10, GRPC_READ_COMPRESSED);
	refused_prefix("ff 00000001 61", 10, GRPC_READ_COMPRESSED);
	refused_prefix("01 ffffffff", 10, GRPC_READ_COMPRESSED);
}

static void empty_message(void **state)
{
	struct grpc_reader r;
	static const uint8_t p[5];

	(void)state;
	grpc_reader_init(&r, 0);
	assert_int_equal(grpc_reader_feed(&r, NULL, 0), GRPC_READ_MORE);
	assert_int_equal(grpc_reader_feed(&r, p, 5), GRPC_READ_DONE);
	is_whole(&r, p, 5);
	grpc_reader_free(&r);
	/* Ready for another one. */
	assert_int_equal(grpc_reader_feed(&r, p, 4), GRPC_READ_MORE);
	grpc_reader_free(&r);
	grpc_reader_free(&r);
}

/* ---- grpc-timeout ---- */

static void timeout_is(const char *text, uint64_t want)
{
	size_t n = strlen(text);
	char *p = (char *)exact_copy((const uint8_t *)text, n);
	uint64_t ns = 1;

	if (grpc_timeout_parse(p, n, &ns))
		fail_msg("'%s' was refused", text);
	assert_true(ns == want);
	free(p);
}

static void timeout_refused(const char *text)
{
	size_t n = strlen(text);
	char *p = (char *)exact_copy((const uint8_t *)text, n);
	uint64_t ns = 77;

	if (grpc_timeout_parse(p, n, &ns) != -EINVAL)
		fail_msg("'%s' was not refused", text);
	assert_true(ns == 77);
	free(p);
}

static void timeouts(void **state)
{
	(void)state;
	timeout_is("1n", 1);
	timeout_is("1u", 1000);
	timeout_is("200m", 200 * NSEC_PER_MSEC);
	timeout_is("5S", 5 * NSEC_PER_SEC);
	timeout_is("2M", 120 * NSEC_PER_SEC);
	timeout_is("3H", 3 * 3600 * NSEC_PER_SEC);
	timeout_is("0S", 0);
	timeout_is("00000001S", NSEC_PER_SEC);
	timeout_is("99999999n", 99999999);
	timeout_is("99999999S", 99999999 * NSEC_PER_SEC);
	timeout_is("99999999M", 99999999ULL * 60 * NSEC_PER_SEC);
	timeout_is("2562047H", 2562047ULL * 3600 * NSEC_PER_SEC); /* the last below 2^63 */
	timeout_is("2562048H", INT64_MAX);
	timeout_is("5124096H", INT64_MAX); /* would wrap 64 bits */
	timeout_is("99999999H", INT64_MAX);

	timeout_refused("");
	timeout_refused("5");
	timeout_refused("S");
	timeout_refused("5s");
	timeout_refused("5h");
	timeout_refused("5 S");
	timeout_refused(" 5S");
	timeout_refused("5S ");
	timeout_refused("-5S");
	timeout_refused("+5S");
	timeout_refused("5.0S");
	timeout_refused("0x5S");
	timeout_refused("123456789S"); /* nine digits */
	timeout_refused("000000001S");
	timeout_refused("1234567890123456789012345678901234567890S");
}

/* ---- statuses ---- */

static void status_names(void **state)
{
	(void)state;
	assert_string_equal(grpc_status_name(GRPC_OK), "OK");
	assert_string_equal(grpc_status_name(GRPC_CANCELLED), "CANCELLED");
	assert_string_equal(grpc_status_name(GRPC_UNKNOWN), "UNKNOWN");
	assert_string_equal(grpc_status_name(GRPC_INVALID_ARGUMENT), "INVALID_ARGUMENT");
	assert_string_equal(grpc_status_name(GRPC_DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED");
	assert_string_equal(grpc_status_name(GRPC_NOT_FOUND), "NOT_FOUND");
	assert_string_equal(grpc_status_name(6), "ALREADY_EXISTS");
	assert_string_equal(grpc_status_name(GRPC_PERMISSION_DENIED), "PERMISSION_DENIED");
	assert_string_equal(grpc_status_name(GRPC_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
	assert_string_equal(grpc_status_name(9), "FAILED_PRECONDITION");
	assert_string_equal(grpc_status_name(10), "ABORTED");
	assert_string_equal(grpc_status_name(11), "OUT_OF_RANGE");
	assert_string_equal(grpc_status_name(GRPC_UNIMPLEMENTED), "UNIMPLEMENTED");
	assert_string_equal(grpc_status_name(GRPC_INTERNAL), "INTERNAL");
	assert_string_equal(grpc_status_name(GRPC_UNAVAILABLE), "UNAVAILABLE");
	assert_string_equal(grpc_status_name(15), "DATA_LOSS");
	assert_string_equal(grpc_status_name(16), "UNAUTHENTICATED");
	assert_string_equal(grpc_status_name(17), "?");
	assert_string_equal(grpc_status_name(-1), "?");
	assert_string_equal(grpc_status_name(INT32_MIN), "?");
}

static void encodes_to(const char *msg, const char *want)
{
	char buf[256];

	assert_int_equal(grpc_message_encode(buf, sizeof(buf), msg), strlen(want));
	assert_string_equal(buf, want);
}

static void status_messages(void **state)
{
	(void)state;
	encodes_to("", "");
	encodes_to("flightsplice: 10.0.0.1:50051: connect: refused",
		   "flightsplice: 10.0.0.1:50051: connect: refused");
	encodes_to(" ~", " ~");
	encodes_to("100%", "100%25");
	encodes_to("a\nb\r\t\x01\x7f", "a%0Ab%0D%09%01%7F");
	encodes_to("\xc3\xa4\xff", "%C3%A4%FF");
}

/* Cut at a whole escape for every capacity; the byte after the buffer stays. */
static void status_message_capacity(void **state)
{
	static const char msg[] = "a%b\xc3\xa4z";
	static const char whole[] = "a%25b%C3%A4z";
	static const size_t ends[] = { 0, 1, 4, 5, 8, 11, 12 }; /* of whole characters */

	(void)state;
	for (size_t cap = 0; cap <= sizeof(whole) + 2; cap++) {
		char buf[32];
		size_t want = 0, n;

		memset(buf, 'x', sizeof(buf));
		for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
			if (ends[i] < cap)
				want = ends[i];
		n = grpc_message_encode(buf, cap, msg);
		assert_int_equal(n, want);
		assert_memory_equal(buf, whole, n);
		if (cap)
			assert_int_equal(buf[n], '\0');
		assert_int_equal(buf[cap], 'x');
	}
}

/* ---- methods ---- */

static enum flight_method find(const char *path)
{
	size_t n = strlen(path);
	char *p = (char *)exact_copy((const uint8_t *)path, n);
	enum flight_method m = flight_method_find(p, n);

	free(p);
	return m;
}

static void methods(void **state)
{
	static const char *const others[] = {
		"Handshake", "ListFlights", "GetFlightInfo", "PollFlightInfo", "GetSchema",
		"DoPut",     "DoExchange",  "DoAction",      "ListActions",
	};
	static const char *const unknown[] = {
		"",
		"/",
		"DoGet",
		"/DoGet",
		"/arrow.flight.protocol.FlightService",
		"/arrow.flight.protocol.FlightService/",
		"/arrow.flight.protocol.FlightService/DoGe",
		"/arrow.flight.protocol.FlightService/DoGett",
		"/arrow.flight.protocol.FlightService/DoGet/",
		"/arrow.flight.protocol.FlightService/DoGet?x",
		"/arrow.flight.protocol.FlightService/doget",
		"//arrow.flight.protocol.FlightService/DoGet",
		"/arrow.flight.protocol.sql.FlightSqlService/DoGet",
		"/grpc.health.v1.Health/List",
		"/grpc.health.v1.Health/check",
		"/ballista.protobuf.SchedulerGrpc/PollWork",
	};
	char path[100];

	(void)state;
	assert_int_equal(find("/arrow.flight.protocol.FlightService/DoGet"), FLIGHT_DO_GET);
	assert_int_equal(find("/grpc.health.v1.Health/Check"), FLIGHT_HEALTH_CHECK);
	assert_int_equal(find("/grpc.health.v1.Health/Watch"), FLIGHT_HEALTH_WATCH);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		snprintf(path, sizeof(path), "/arrow.flight.protocol.FlightService/%s", others[i]);
		assert_int_equal(find(path), FLIGHT_OTHER);
	}
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
		if (find(unknown[i]) != FLIGHT_UNKNOWN)
			fail_msg("'%s'", unknown[i]);
	/* A NUL is a byte like others. */
	assert_int_equal(flight_method_find("/grpc.health.v1.Health/Check\0", 29), FLIGHT_UNKNOWN);
}

/* ---- health ---- */

static int health(const char *hex, char *buf, size_t cap)
{
	uint8_t bytes[256];
	size_t n = hex_read(bytes, sizeof(bytes), hex);
	uint8_t *p = exact_copy(bytes, n);
	int err = health_request_decode(p, n, buf, cap);

	free(p);
	return err;
}

static void health_requests(void **state)
{
	char buf[8] = "before", one[1] = { 'x' };

	(void)state;
	assert_int_equal(health("", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "");
	assert_int_equal(health_request_decode(NULL, 0, buf, sizeof(buf)), 0);
	assert_int_equal(health("0a00", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "");
	assert_int_equal(health("0a03 616263", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "abc");
	assert_int_equal(health("0a09 616263646566676869", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "abcdefg");
	assert_int_equal(health("0a03 616263", one, sizeof(one)), 0);
	assert_string_equal(one, "");
	assert_int_equal(health("1005 0a03 616263 1a0178", buf, sizeof(buf)),
			 0); /* unknown fields */
	assert_string_equal(buf, "abc");

	strcpy(buf, "before");
	assert_int_equal(health("0a03 6100", buf, sizeof(buf)), -EINVAL);   /* truncated */
	assert_int_equal(health("0a03 610063", buf, sizeof(buf)), -EINVAL); /* NUL */
	assert_int_equal(health("0a01 00", buf, sizeof(buf)), -EINVAL);
	assert_int_equal(health("0801", buf, sizeof(buf)), -EINVAL); /* wrong wire type */
	assert_int_equal(health("0a", buf, sizeof(buf)), -EINVAL);
	assert_int_equal(health("0b", buf, sizeof(buf)), -EINVAL); /* group */
	assert_int_equal(health("0aff ffff ff0f", buf, sizeof(buf)), -EINVAL);
	assert_string_equal(buf, "before");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(split_everywhere),
		cmocka_unit_test(byte_by_byte),
		cmocka_unit_test(more_than_one_message),
		cmocka_unit_test(refused_prefixes),
		cmocka_unit_test(empty_message),
		cmocka_unit_test(timeouts),
		cmocka_unit_test(status_names),
		cmocka_unit_test(status_messages),
		cmocka_unit_test(status_message_capacity),
		cmocka_unit_test(methods),
		cmocka_unit_test(health_requests),
	};

	return cmocka_run_group_tests_name("grpc", tests, NULL, NULL);
}
