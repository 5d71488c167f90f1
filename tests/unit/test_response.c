/* SPDX-License-Identifier: Apache-2.0 */
/* Response header blocks: which are malformed, and what is read from the others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "session/response.h"

static int feed(struct response *r, const char *name, const char *value)
{
	struct hpack_field f = {
		.name = name, .value = value, .name_len = strlen(name), .value_len = strlen(value)
	};

	return response_field(r, &f);
}

static void legal(void **state)
{
	struct response r = RESPONSE_NONE;

	(void)state;
	assert_int_equal(feed(&r, ":status", "200"), 0);
	assert_int_equal(feed(&r, "content-type", "application/grpc"), 0);
	assert_int_equal(feed(&r, "grpc-status", "13"), 0);
	assert_int_equal(feed(&r, "grpc-message", "a%20b c"), 0);
	assert_int_equal(feed(&r, "x-empty", ""), 0);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.grpc_status, 13);
}

static void fields(void **state)
{
	static const struct {
		const char *name, *value;
	} bad[] = {
		{ ":status", "200" },
		{ ":path", "/" },
		{ "", "x" },
		{ "Upper", "x" },
		{ "a b", "x" },
		{ "a:b", "x" },
		{ "a\x7f", "x" },
		{ "a", "x\ny" },
		{ "a", "x\ry" },
		{ "a", " x" },
		{ "a", "x\t" },
		{ "connection", "close" },
		{ "keep-alive", "1" },
		{ "upgrade", "h2c" },
		{ "transfer-encoding", "chunked" },
		{ "proxy-connection", "" },
		{ "te", "gzip" },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct response r = RESPONSE_NONE;

		assert_int_equal(feed(&r, ":status", "200"), 0);
		if (feed(&r, bad[i].name, bad[i].value) != -EPROTO)
			fail_msg("%s: %s is let pass", bad[i].name, bad[i].value);
	}
}

static void statuses(void **state)
{
	static const char *const bad[] = { "", "20", "099", "2000", "2x0", "+20" };
	struct response r;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r = RESPONSE_NONE;
		assert_int_equal(feed(&r, ":status", bad[i]), -EPROTO);
	}
	r = RESPONSE_NONE;
	assert_int_equal(feed(&r, "a", "b"), 0);
	assert_int_equal(feed(&r, ":status", "200"), -EPROTO); /* behind a field */
	r = RESPONSE_NONE;
	assert_int_equal(feed(&r, "grpc-status", "nonsense"), 0);
	assert_int_equal(r.grpc_status, 2); /* never taken for success */
}

static void places(void **state)
{
	struct response none = RESPONSE_NONE, ok = RESPONSE_NONE, early = RESPONSE_NONE,
			upgrade = RESPONSE_NONE;

	(void)state;
	feed(&ok, ":status", "200");
	feed(&early, ":status", "103");
	feed(&upgrade, ":status", "101");
	assert_null(response_malformed(&ok, true, false));
	assert_null(response_malformed(&ok, true, true));
	assert_null(response_malformed(&early, true, false));
	assert_null(response_malformed(&none, false, true));
	assert_non_null(response_malformed(&none, true, false));
	assert_non_null(response_malformed(&none, true, true));
	assert_non_null(response_malformed(&none, false, false));
	assert_non_null(response_malformed(&ok, false, true));
	assert_non_null(response_malformed(&early, true, true));
	assert_non_null(response_malformed(&early, false, false));
	assert_non_null(response_malformed(&upgrade, true, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(legal),
		cmocka_unit_test(fields),
		cmocka_unit_test(statuses),
		cmocka_unit_test(places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
