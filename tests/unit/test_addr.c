/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/hex.h"

#include <arpa/inet.h>

#include "base/addr.h"

static struct addr must_parse(const char *text)
{
	struct addr a;

	if (addr_parse(text, &a))
		fail_msg("'%s' was refused", text);
	return a;
}

static void parses_as(const char *text, const char *want, int family, uint16_t port)
{
	struct addr a = must_parse(text), b;
	char buf[ADDR_STRLEN];

	assert_ptr_equal(addr_format(&a, buf), buf);
	assert_string_equal(buf, want);
	assert_int_equal(a.sa.sa_family, family);
	assert_int_equal(a.len, family == AF_INET ? sizeof(struct sockaddr_in)
						  : sizeof(struct sockaddr_in6));
	assert_int_equal(addr_port(&a), port);
	/* What is printed reads back as the same address. */
	b = must_parse(buf);
	assert_true(addr_equal(&a, &b));
}

static void refused(const char *text)
{
	struct addr a, before;

	memset(&a, 0x5a, sizeof(a));
	before = a;
	if (addr_parse(text, &a) != -EINVAL)
		fail_msg("'%s' was not refused", text);
	assert_memory_equal(&a, &before, sizeof(a));
}

static void parse(void **state)
{
	(void)state;
	parses_as("127.0.0.1:80", "127.0.0.1:80", AF_INET, 80);
	parses_as("0.0.0.0:0", "0.0.0.0:0", AF_INET, 0);
	parses_as("255.255.255.255:65535", "255.255.255.255:65535", AF_INET, 65535);
	parses_as("[127.0.0.1]:80", "127.0.0.1:80", AF_INET, 80);
	parses_as("[::1]:50060", "[::1]:50060", AF_INET6, 50060);
	parses_as("[::]:1", "[::]:1", AF_INET6, 1);
	parses_as(":50060", "[::]:50060", AF_INET6, 50060);
	parses_as("[FD00:0:0::1]:00080", "[fd00::1]:80", AF_INET6, 80);
	parses_as("[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535",
		  "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", AF_INET6, 65535);
	/* Mapped: kept as it is, shown as what it means. */
	parses_as("[::ffff:10.1.2.3]:9", "10.1.2.3:9", AF_INET6, 9);
}

static void parse_refuses(void **state)
{
	static const char *const texts[] = {
		"",
		":",
		"127.0.0.1",
		"127.0.0.1:",
		"127.0.0.1:-1",
		"127.0.0.1:+1",
		"127.0.0.1: 1",
		"127.0.0.1:1 ",
		"127.0.0.1:0x1",
		"127.0.0.1:65536",
		"127.0.0.1:99999",
		"127.0.0.1:000080",
		"127.0.0.1:4294967376",
		"127.1:80",
		"1.2.3.4.5:80",
		"256.0.0.1:80",
		"01.2.3.4:80",
		" 1.2.3.4:80",
		"localhost:80",
		"example.com:80",
		"*:80",
		"::1",
		"::1:80",
		"[::1]",
		"[::1]80",
		"[::1:80",
		"::1]:80",
		"[[::1]]:80",
		"[]:80",
		"[::1]a:80",
		"[fe80::1%lo]:80",
		"[1::2::3]:80",
		"[12345::]:80",
		"[1:2:3:4:5:6:7:8:9]:80",
		"http://1.2.3.4:80",
		"[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.2555555555555]:1",
		"111111111111111111111111111111111111111111111111111111111111111111111111:1",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		refused(texts[i]);
}

static void parse_ip(void **state)
{
	static const char *const bad[] = {
		"",           "[]",
		"[",          "]",
		"1.2.3",      "[::1",
		"::1]",       "1.2.3.4 ",
		"::g",        "::1%lo",
		"a.b",        "[[::1]]",
		"1.2.3.4:5",  "[::1]:5",
		"0x7f.0.0.1", "::111111111111111111111111111111111111111111111111111"
	};
	struct addr a, before;
	char buf[ADDR_STRLEN];

	(void)state;
	assert_int_equal(addr_parse_ip("10.0.0.1", 7, &a), 0);
	assert_string_equal(addr_format(&a, buf), "10.0.0.1:7");
	assert_int_equal(addr_parse_ip("::1", 7, &a), 0);
	assert_string_equal(addr_format(&a, buf), "[::1]:7");
	assert_int_equal(addr_parse_ip("[::1]", 0, &a), 0);
	assert_string_equal(addr_format(&a, buf), "[::1]:0");
	assert_int_equal(addr_parse_ip("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", 7, &a), 0);
	before = a;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (addr_parse_ip(bad[i], 7, &a) != -EINVAL)
			fail_msg("'%s' was not refused", bad[i]);
		assert_memory_equal(&a, &before, sizeof(a));
	}
}

/* Texts around the sizes of the buffers that addresses are copied to. */
static void long_texts(void **state)
{
	(void)state;
	for (size_t n = 40; n < 60; n++) {
		char *text = malloc(n + sizeof(":1"));
		struct addr a;

		assert_non_null(text);
		memset(text, ':', n);
		text[n] = '\0';
		assert_int_equal(addr_parse_ip(text, 1, &a), -EINVAL);
		text[0] = '[';
		text[n - 1] = ']';
		assert_int_equal(addr_parse_ip(text, 1, &a), -EINVAL);
		strcpy(text + n, ":1");
		assert_int_equal(addr_parse(text, &a), -EINVAL);
		free(text);
	}
}

static void no_address(void **state)
{
	struct addr none = { .len = 0 }, other = { .len = 0 }, some = must_parse("0.0.0.0:0");
	char buf[ADDR_STRLEN];

	(void)state;
	assert_string_equal(addr_format(&none, buf), "-");
	assert_int_equal(addr_port(&none), 0);
	addr_unmap(&none);
	assert_int_equal(none.len, 0);
	other.sa.sa_family = AF_INET; /* leftovers do not count */
	other.in.sin_port = htons(5);
	assert_int_equal(addr_port(&other), 0);
	assert_true(addr_equal(&none, &other));
	assert_false(addr_equal(&none, &some));
	assert_false(addr_equal(&some, &none));
}

static void unmap(void **state)
{
	struct addr mapped = must_parse("[::ffff:10.1.2.3]:9"), plain = must_parse("10.1.2.3:9");
	/* IPv4-compatible, translated and other neighbours of the mapped prefix stay. */
	static const char *const stay[] = { "[::10.1.2.3]:9",
					    "[::fffe:10.1.2.3]:9",
					    "[::1:ffff:10.1.2.3]:9",
					    "[64:ff9b::10.1.2.3]:9",
					    "[::1]:9",
					    "10.1.2.3:9" };

	(void)state;
	assert_int_equal(mapped.sa.sa_family, AF_INET6);
	assert_true(addr_equal(&mapped, &plain));
	assert_true(addr_equal(&plain, &mapped));
	addr_unmap(&mapped);
	assert_int_equal(mapped.sa.sa_family, AF_INET);
	assert_int_equal(mapped.len, sizeof(struct sockaddr_in));
	assert_int_equal(mapped.in.sin_addr.s_addr, htonl(0x0a010203));
	assert_int_equal(addr_port(&mapped), 9);
	for (size_t i = 0; i < ARRAY_SIZE(stay); i++) {
		struct addr a = must_parse(stay[i]), before = a;

		addr_unmap(&a);
		assert_memory_equal(&a, &before, sizeof(a));
	}
}

static void equal(void **state)
{
	static const char *const different[] = {
		"1.2.3.4:5", "1.2.3.4:6", "1.2.3.5:5", "[::1]:5",
		"[::1]:6",   "[::2]:5",   "[1::]:5",   "[::1.2.3.4]:5",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(different); i++)
		for (size_t j = 0; j < ARRAY_SIZE(different); j++) {
			struct addr a = must_parse(different[i]), b = must_parse(different[j]);

			assert_int_equal(addr_equal(&a, &b), i == j);
		}
	{
		struct addr a = must_parse("[::1]:5"), b = a;

		b.in6.sin6_flowinfo = 7; /* not part of the address */
		assert_true(addr_equal(&a, &b));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_texts),    cmocka_unit_test(parse),
		cmocka_unit_test(parse_refuses), cmocka_unit_test(parse_ip),
		cmocka_unit_test(no_address),    cmocka_unit_test(unmap),
		cmocka_unit_test(equal),
	};

	return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
