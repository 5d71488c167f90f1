/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy's verdicts, asked with addresses written out; every special range has
 * its first and last address and the neighbours outside of it in the table.
 */
#include "unit/hex.h"

#include "base/prefix.h"
#include "policy/policy.h"

static struct addr at(const char *ip, uint16_t port)
{
	struct addr a;

	if (addr_parse_ip(ip, port, &a))
		fail_msg("not an address: %s", ip);
	return a;
}

static void expect(const struct policy *p, const char *ip, uint16_t port, enum policy_verdict v)
{
	struct addr a = at(ip, port);
	enum policy_verdict got = policy_check(p, &a);

	if (got != v)
		fail_msg("[%s]:%u: %s, expected %s", ip, port, policy_verdict_name(got),
			 policy_verdict_name(v));
}

#define ALLOW POLICY_ALLOW
#define LOOP POLICY_DENY_LOOPBACK
#define LINK POLICY_DENY_LINKLOCAL
#define MCAST POLICY_DENY_MULTICAST
#define RES POLICY_DENY_RESERVED

struct row {
	const char *ip;
	enum policy_verdict v;
};

static const struct row rows4[] = {
	{ "0.0.0.0", LOOP },          { "0.0.0.1", RES },           { "0.255.255.255", RES },
	{ "1.0.0.0", ALLOW },         { "10.0.0.1", ALLOW },        { "100.64.0.1", ALLOW },
	{ "100.100.100.199", ALLOW }, { "100.100.100.200", LINK },  { "100.100.100.201", ALLOW },
	{ "126.255.255.255", ALLOW }, { "127.0.0.0", LOOP },        { "127.0.0.1", LOOP },
	{ "127.255.255.255", LOOP },  { "128.0.0.0", ALLOW },       { "168.63.129.16", LINK },
	{ "168.63.129.17", ALLOW },   { "169.253.255.255", ALLOW }, { "169.254.0.0", LINK },
	{ "169.254.169.254", LINK },  { "169.254.170.2", LINK },    { "169.254.255.255", LINK },
	{ "169.255.0.0", ALLOW },     { "172.16.0.1", ALLOW },      { "192.0.0.192", LINK },
	{ "192.168.1.1", ALLOW },     { "198.18.0.1", ALLOW },      { "203.0.113.1", ALLOW },
	{ "223.255.255.255", ALLOW }, { "224.0.0.0", MCAST },       { "239.255.255.255", MCAST },
	{ "240.0.0.0", RES },         { "255.255.255.254", RES },   { "255.255.255.255", MCAST },
};

static const struct row rows6[] = {
	{ "::", LOOP },
	{ "::1", LOOP },
	{ "::2", RES },
	{ "::10.0.0.1", RES },
	{ "::127.0.0.1", RES },
	{ "::1:0:0", ALLOW },
	{ "100::1", RES },
	{ "100::ffff:ffff:ffff:ffff", RES },
	{ "100:0:0:1::", ALLOW },
	{ "2001:db8::1", ALLOW },
	{ "2600::1", ALLOW },
	{ "fc00::1", ALLOW },
	{ "fd00::1", ALLOW },
	{ "fd00:ec1:ffff::", ALLOW },
	{ "fd00:ec2::23", LINK },
	{ "fd00:ec2::254", LINK },
	{ "fd00:ec3::", ALLOW },
	{ "fd20:ce::253", ALLOW },
	{ "fd20:ce::254", LINK },
	{ "fd20:ce::255", ALLOW },
	{ "fe7f:ffff::", ALLOW },
	{ "fe80::", LINK },
	{ "fe80::1", LINK },
	{ "febf:ffff::", LINK },
	{ "fec0::1", RES },
	{ "feff::1", RES },
	{ "ff00::", MCAST },
	{ "ff02::1", MCAST },
	{ "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", MCAST },
};

static void deny_list(void **state)
{
	struct policy *p = policy_new();

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows4); i++)
		expect(p, rows4[i].ip, 50051, rows4[i].v);
	for (unsigned i = 0; i < ARRAY_SIZE(rows6); i++)
		expect(p, rows6[i].ip, 50051, rows6[i].v);
	policy_free(p);
}

/* An IPv4-mapped address gets the verdict of the IPv4 address, whatever that is. */
static void mapped(void **state)
{
	struct policy *p = policy_new();
	char ip[64];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows4); i++) {
		snprintf(ip, sizeof(ip), "::ffff:%s", rows4[i].ip);
		expect(p, ip, 1, rows4[i].v);
	}
	policy_free(p);
}

/* Every form that embeds IPv4: what is refused there is refused in it, the rest is not. */
static void embedded(void **state)
{
	struct policy *p = policy_new();
	struct policy *loose = policy_new();

	(void)state;
	policy_allow_loopback(loose);
	for (unsigned i = 0; i < ARRAY_SIZE(rows4); i++) {
		const struct row *r = &rows4[i];
		struct addr v4 = at(r->ip, 0);
		const uint8_t *b = (const uint8_t *)&v4.in.sin_addr;
		enum policy_verdict v = r->v ? RES : ALLOW;
		char ip[64];

		snprintf(ip, sizeof(ip), "2002:%02x%02x:%02x%02x::1", b[0], b[1], b[2], b[3]);
		expect(p, ip, 1, v);
		/* allow-loopback does not open loopback in disguise. */
		expect(loose, ip, 1, v);
		snprintf(ip, sizeof(ip), "64:ff9b::%s", r->ip);
		expect(p, ip, 1, v);
		expect(loose, ip, 1, v);
		snprintf(ip, sizeof(ip), "::ffff:0:%s", r->ip);
		expect(p, ip, 1, v);
		snprintf(ip, sizeof(ip), "2001:0:%02x%02x:%02x%02x::f5ff:fffe", b[0], b[1], b[2],
			 b[3]);
		expect(p, ip, 1, v); /* Teredo, server; the client is 10.0.0.1 */
		snprintf(ip, sizeof(ip), "2001:0:c000:201::%02x%02x:%02x%02x", b[0] ^ 0xff,
			 b[1] ^ 0xff, b[2] ^ 0xff, b[3] ^ 0xff);
		expect(p, ip, 1, v);
		snprintf(ip, sizeof(ip), "2001:db8::5efe:%s", r->ip);
		expect(p, ip, 1, v);
		snprintf(ip, sizeof(ip), "2001:db8::200:5efe:%s", r->ip);
		expect(p, ip, 1, v);
		/*
		 * Four layouts share this prefix and all are looked at. 0.0.0.0/8 says
		 * nothing there, and an address may look bad in another's layout.
		 */
		if (!b[0] || !r->v)
			continue;
		snprintf(ip, sizeof(ip), "64:ff9b:1::%s", r->ip);
		expect(p, ip, 1, v);
		snprintf(ip, sizeof(ip), "64:ff9b:1:%02x%02x:%02x:%02x00::", b[0], b[1], b[2],
			 b[3]);
		expect(p, ip, 1, v);
		snprintf(ip, sizeof(ip), "64:ff9b:1:%02x:%02x:%02x%02x::", b[0], b[1], b[2], b[3]);
		expect(p, ip, 1, v);
		snprintf(ip, sizeof(ip), "64:ff9b:1::%02x:%02x%02x:%02x00:0", b[0], b[1], b[2],
			 b[3]);
		expect(p, ip, 1, v);
	}
	expect(p, "64:ff9b:1::10.0.0.1", 1, ALLOW);
	expect(p, "64:ff9b:1:a00:0:100::", 1, ALLOW);
	expect(p, "64:ff9b:1:a:0:1::", 1, ALLOW);
	expect(p, "64:ff9b:1::a:0:100:0", 1, ALLOW);
	policy_free(loose);
	policy_free(p);
}

static void loopback(void **state)
{
	struct policy *p = policy_new();

	(void)state;
	policy_allow_loopback(p);
	expect(p, "127.0.0.1", 1, ALLOW);
	expect(p, "127.255.255.254", 1, ALLOW);
	expect(p, "::ffff:127.0.0.1", 1, ALLOW);
	expect(p, "::1", 1, ALLOW);
	/* Only these. */
	expect(p, "0.0.0.0", 1, LOOP);
	expect(p, "::", 1, LOOP);
	expect(p, "::ffff:0.0.0.0", 1, LOOP);
	for (unsigned i = 0; i < ARRAY_SIZE(rows4); i++)
		if (strncmp(rows4[i].ip, "127.", 4))
			expect(p, rows4[i].ip, 1, rows4[i].v);
	for (unsigned i = 0; i < ARRAY_SIZE(rows6); i++)
		if (strcmp(rows6[i].ip, "::1"))
			expect(p, rows6[i].ip, 1, rows6[i].v);
	policy_free(p);
}

static void self(void **state)
{
	struct policy *p = policy_new();
	struct addr a;

	(void)state;
	policy_allow_loopback(p);
	assert_int_equal(policy_allow_cidr(p, "0.0.0.0/0"), 0);
	assert_int_equal(policy_allow_cidr(p, "::/0"), 0);
	a = at("10.0.0.5", 50060);
	assert_int_equal(policy_add_self(p, &a), 0);
	a = at("::ffff:10.0.0.6", 50060);
	assert_int_equal(policy_add_self(p, &a), 0);
	a = at("fd00::5", 50060);
	assert_int_equal(policy_add_self(p, &a), 0);
	a = at("127.0.0.1", 9550);
	assert_int_equal(policy_add_self(p, &a), 0);

	expect(p, "10.0.0.5", 50060, POLICY_DENY_SELF);
	expect(p, "::ffff:10.0.0.5", 50060, POLICY_DENY_SELF);
	expect(p, "10.0.0.5", 50061, ALLOW); /* an executor beside us */
	expect(p, "10.0.0.6", 50060, POLICY_DENY_SELF);
	expect(p, "10.0.0.7", 50060, ALLOW);
	expect(p, "fd00::5", 50060, POLICY_DENY_SELF);
	expect(p, "fd00::5", 50059, ALLOW);
	expect(p, "127.0.0.1", 9550, POLICY_DENY_SELF);
	expect(p, "127.0.0.1", 9551, ALLOW);
	expect(p, "127.0.0.2", 9550, ALLOW); /* that listener is not there */
	/* Ourselves in disguise. */
	expect(p, "64:ff9b::10.0.0.5", 50060, RES);
	expect(p, "64:ff9b::10.0.0.5", 50061, ALLOW);
	expect(p, "2002:a00:5::1", 50060, RES);

	/* A wildcard listener is on all of loopback. */
	a = at("::", 50070);
	assert_int_equal(policy_add_self(p, &a), 0);
	expect(p, "127.0.0.1", 50070, POLICY_DENY_SELF);
	expect(p, "127.9.9.9", 50070, POLICY_DENY_SELF);
	expect(p, "::1", 50070, POLICY_DENY_SELF);
	expect(p, "0.0.0.0", 50070, POLICY_DENY_SELF);
	expect(p, "127.0.0.1", 50071, ALLOW);
	expect(p, "10.0.0.9", 50070, ALLOW);

	a.len = 0;
	assert_int_equal(policy_add_self(p, &a), -EINVAL);
	policy_free(p);
}

static void allow_cidr(void **state)
{
	struct policy *p = policy_new();

	(void)state;
	assert_int_equal(policy_allow_cidr(p, "10.1.0.0/16"), 0);
	assert_int_equal(policy_allow_cidr(p, "192.168.0.0/31"), 0);
	assert_int_equal(policy_allow_cidr(p, "fd00:1::/33"), 0);
	assert_int_equal(policy_allow_cidr(p, "172.16.5.5"), 0);
	expect(p, "10.0.255.255", 1, POLICY_DENY_CIDR);
	expect(p, "10.1.0.0", 1, ALLOW);
	expect(p, "::ffff:10.1.0.0", 1, ALLOW);
	expect(p, "10.1.255.255", 1, ALLOW);
	expect(p, "10.2.0.0", 1, POLICY_DENY_CIDR);
	expect(p, "192.168.0.1", 1, ALLOW);
	expect(p, "192.168.0.2", 1, POLICY_DENY_CIDR);
	expect(p, "fd00:1:7fff::", 1, ALLOW);
	expect(p, "fd00:1:8000::", 1, POLICY_DENY_CIDR);
	expect(p, "172.16.5.5", 1, ALLOW);
	expect(p, "172.16.5.4", 1, POLICY_DENY_CIDR);
	/* A NAT64 form of an allowed address is another address. */
	expect(p, "64:ff9b::10.1.0.1", 1, POLICY_DENY_CIDR);

	/* Allowing everything allows nothing of the deny list. */
	assert_int_equal(policy_allow_cidr(p, "0.0.0.0/0"), 0);
	assert_int_equal(policy_allow_cidr(p, "::/0"), 0);
	assert_int_equal(policy_allow_cidr(p, "169.254.169.254"), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(rows4); i++)
		expect(p, rows4[i].ip, 1, rows4[i].v);
	for (unsigned i = 0; i < ARRAY_SIZE(rows6); i++)
		expect(p, rows6[i].ip, 1, rows6[i].v);
	policy_free(p);

	/* Loopback, too, must be in the list when there is one. */
	p = policy_new();
	policy_allow_loopback(p);
	assert_int_equal(policy_allow_cidr(p, "10.0.0.0/8"), 0);
	expect(p, "127.0.0.1", 1, POLICY_DENY_CIDR);
	policy_free(p);

	/* IPv6 ranges hold no IPv4 addresses. */
	p = policy_new();
	assert_int_equal(policy_allow_cidr(p, "::/0"), 0);
	expect(p, "10.0.0.1", 1, POLICY_DENY_CIDR);
	expect(p, "fd00::1", 1, ALLOW);
	policy_free(p);

	/* But ::ffff:0:0/96 is IPv4. */
	p = policy_new();
	assert_int_equal(policy_allow_cidr(p, "::ffff:10.0.0.0/104"), 0);
	expect(p, "10.9.9.9", 1, ALLOW);
	expect(p, "11.0.0.0", 1, POLICY_DENY_CIDR);
	policy_free(p);
}

static void allow_port(void **state)
{
	struct policy *p = policy_new();

	(void)state;
	assert_int_equal(policy_allow_port(p, "50051"), 0);
	assert_int_equal(policy_allow_port(p, "50100-50102"), 0);
	expect(p, "10.0.0.1", 50050, POLICY_DENY_PORT);
	expect(p, "10.0.0.1", 50051, ALLOW);
	expect(p, "10.0.0.1", 50052, POLICY_DENY_PORT);
	expect(p, "10.0.0.1", 50099, POLICY_DENY_PORT);
	expect(p, "10.0.0.1", 50100, ALLOW);
	expect(p, "10.0.0.1", 50102, ALLOW);
	expect(p, "10.0.0.1", 50103, POLICY_DENY_PORT);
	expect(p, "fd00::1", 50051, ALLOW);
	expect(p, "127.0.0.1", 50051, LOOP);
	/* The address is judged first: its verdict says nothing about ports. */
	assert_int_equal(policy_allow_cidr(p, "10.0.0.0/24"), 0);
	expect(p, "10.0.1.1", 1, POLICY_DENY_CIDR);
	policy_free(p);
}

static void wrong_texts(void **state)
{
	static const char *const cidrs[] = {
		"",
		"/",
		"/8",
		"10.0.0.0/",
		"10.0.0.0/33",
		"10.0.0.0/-1",
		"10.0.0/8",
		"10.0.0.1/8",
		"10.0.0.0/08",
		"10.0.0.0/8 ",
		" 10.0.0.0/8",
		"fd00::/129",
		"fd00::1/8",
		"[fd00::]/8",
		"fd00::/8/8",
		"all",
		"localhost",
		"10.0.0.0/8,",
		"10.0.0.0/0x8",
		"10.0.0.0/1",
		"fe80::1%lo",
		"::ffff:10.0.0.1/104",
		"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc/128",
	};
	static const char *const ports[] = {
		"",      "0",   "65536", "-1", "5-", "-5", "6-5",         "0-5",   "1-65536", "1,2",
		"1-2-3", "0x5", "http",  " 5", "5 ", "05", "99999999999", "1 - 2", "+5",
	};
	struct policy *p = policy_new();

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cidrs); i++)
		if (policy_allow_cidr(p, cidrs[i]) != -EINVAL)
			fail_msg("accepted: %s", cidrs[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(ports); i++)
		if (policy_allow_port(p, ports[i]) != -EINVAL)
			fail_msg("accepted: %s", ports[i]);
	/* What was refused has left nothing behind. */
	expect(p, "10.0.0.1", 1, ALLOW);
	policy_free(p);
}

static void not_addresses(void **state)
{
	struct policy *p = policy_new();
	struct addr none = { .len = 0 }, local = { .sa.sa_family = AF_UNIX, .len = 20 };

	(void)state;
	assert_int_equal(policy_check(p, &none), RES);
	assert_int_equal(policy_check(p, &local), RES);
	assert_int_equal(policy_add_self(p, &local), -EINVAL);
	policy_free(p);
	policy_free(NULL);
}

static void bounded(void **state)
{
	struct policy *p = policy_new();
	unsigned n = 0;
	int err;

	(void)state;
	while (!(err = policy_allow_cidr(p, "10.0.0.0/8")) && n < 100000)
		n++;
	assert_int_equal(err, -ENOSPC);
	assert_in_range(n, 256, 10000); /* all that config can hold */
	n = 0;
	while (!(err = policy_allow_port(p, "5")) && n < 100000)
		n++;
	assert_int_equal(err, -ENOSPC);
	assert_in_range(n, 256, 10000);
	expect(p, "10.0.0.1", 5, ALLOW);
	policy_free(p);
}

static void names(void **state)
{
	(void)state;
	for (int v = 0; v < POLICY_VERDICTS; v++) {
		const char *name = policy_verdict_name(v);

		assert_true(strlen(name) > 3);
		for (int w = 0; w < v; w++)
			assert_string_not_equal(name, policy_verdict_name(w));
	}
	assert_string_equal(policy_verdict_name(POLICY_ALLOW), "allowed");
	assert_string_equal(policy_verdict_name(POLICY_VERDICTS), "?");
}

/* Every length against the arithmetic written out bit by bit. */
static void every_length(void **state)
{
	const uint8_t base[16] = { 0xfd, 0xa5, 0x3c, 0xff, 0x80, 0x01, 0x7f, 0xfe,
				   0x55, 0xaa, 0x0f, 0xf0, 0x99, 0x66, 0x81, 0x18 };

	(void)state;
	for (unsigned bits = 0; bits <= 128; bits++) {
		struct prefix p = { .bits = (uint8_t)bits };
		char text[80], ip[64] = "";
		struct addr a;

		for (unsigned i = 0; i < bits; i++)
			p.bytes[i / 8] |= base[i / 8] & (0x80 >> i % 8);
		for (unsigned i = 0; i < 16; i += 2)
			sprintf(ip + strlen(ip), "%s%02x%02x", i ? ":" : "", p.bytes[i],
				p.bytes[i + 1]);
		snprintf(text, sizeof(text), "%s/%u", ip, bits);
		memset(&p, 0, sizeof(p));
		assert_int_equal(prefix_parse(text, &p), 0);
		assert_int_equal(p.bits, bits);
		assert_false(p.v4);
		for (unsigned flip = 0; flip < 128; flip++) {
			a = at("::", 0);
			memcpy(&a.in6.sin6_addr, base, 16);
			a.in6.sin6_addr.s6_addr[flip / 8] ^= (uint8_t)(0x80 >> flip % 8);
			assert_int_equal(prefix_contains(&p, &a), flip >= bits);
		}
		/* A bit behind the length is refused. */
		if (bits < 128 && bits >= 16) {
			struct prefix q;

			snprintf(text, sizeof(text), "fda5:3cff:8001:7ffe:55aa:ff0:9966:8119/%u",
				 bits);
			assert_int_equal(prefix_parse(text, &q), -EINVAL);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deny_list),     cmocka_unit_test(mapped),
		cmocka_unit_test(embedded),      cmocka_unit_test(loopback),
		cmocka_unit_test(self),          cmocka_unit_test(allow_cidr),
		cmocka_unit_test(allow_port),    cmocka_unit_test(wrong_texts),
		cmocka_unit_test(not_addresses), cmocka_unit_test(bounded),
		cmocka_unit_test(names),         cmocka_unit_test(every_length),
	};

	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
