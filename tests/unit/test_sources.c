/* SPDX-License-Identifier: Apache-2.0 */
/* Connections per source address: who counts as one, and that a count goes with its connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "net/sources.h"

static struct addr at(const char *text)
{
	struct addr a;

	assert_int_equal(addr_parse(text, &a), 0);
	return a;
}

static bool enter(struct sources *s, const char *text)
{
	struct addr a = at(text);

	return sources_enter(s, &a);
}

static void leave(struct sources *s, const char *text)
{
	struct addr a = at(text);

	sources_leave(s, &a);
}

static void limit(void **state)
{
	struct sources *s = sources_new(2);

	(void)state;
	assert_true(enter(s, "10.0.0.1:1"));
	assert_true(enter(s, "10.0.0.1:2"));
	assert_false(enter(s, "10.0.0.1:3"));
	assert_true(enter(s, "10.0.0.2:3")); /* a neighbour */
	leave(s, "10.0.0.1:1");
	assert_true(enter(s, "10.0.0.1:4"));
	assert_false(enter(s, "10.0.0.1:5"));
	leave(s, "10.0.0.1:2");
	leave(s, "10.0.0.1:4");
	assert_true(enter(s, "10.0.0.1:6")); /* from nothing again */
	sources_free(s);
	sources_free(NULL);
}

static void who_is_one(void **state)
{
	struct sources *s = sources_new(1);

	(void)state;
	assert_true(enter(s, "10.0.0.1:1"));
	assert_false(enter(s, "[::ffff:10.0.0.1]:2")); /* the same on a dual-stack socket */
	assert_true(enter(s, "[2001:db8:0:1::1]:1"));
	assert_false(enter(s, "[2001:db8:0:1:ffff::2]:2")); /* one /64 */
	assert_true(enter(s, "[2001:db8:0:2::1]:1"));
	/* An IPv6 prefix whose bytes are those of an IPv4 address is another source. */
	assert_true(enter(s, "[a00:1::]:1"));
	sources_free(s);
}

static void many(void **state)
{
	struct sources *s = sources_new(1);
	char text[32];

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 20000; i++) {
			snprintf(text, sizeof(text), "10.%u.%u.%u:9", i >> 16, i >> 8 & 255,
				 i & 255);
			assert_true(enter(s, text));
			assert_false(enter(s, text));
		}
		for (unsigned i = 0; i < 20000; i++) {
			snprintf(text, sizeof(text), "10.%u.%u.%u:9", i >> 16, i >> 8 & 255,
				 i & 255);
			leave(s, text);
		}
	}
	sources_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limit),
		cmocka_unit_test(who_is_one),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
