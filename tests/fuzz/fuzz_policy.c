/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy and an address to judge.
 *
 *   byte 0       bit 0: loopback is allowed; bit 1: there is an own listener, which the
 *                next 6 bytes name (IPv4 address, port); bit 2: the address is IPv4
 *   18 or 6 bytes  the address and its port
 *   rest         lines of text: "c..." an allowed range, "p..." allowed ports
 *
 * Held against it: nothing on the deny list is ever allowed, by masks that are written
 * down here a second time, whatever the lists say; with lists, what is allowed is in
 * them; the mapped form of an IPv4 address is judged as the address itself.
 */
#include "fuzz/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/prefix.h"
#include "policy/policy.h"

static bool never_v4(uint32_t ip, bool loopback)
{
	return (ip >> 24) == 0 || ((ip >> 24) == 127 && !loopback) || (ip >> 16) == 0xa9fe ||
	       (ip >> 28) >= 14 || ip == 0x646464c8 || ip == 0xa83f8110 || ip == 0xc00000c0;
}

static bool never_v6(const uint8_t *ip, bool loopback)
{
	static const uint8_t one[16] = { [15] = 1 }, nat64[12] = { 0, 0x64, 0xff, 0x9b };

	if (!memcmp(ip, one, 16))
		return !loopback;
	if (!memcmp(ip, one, 12)) /* the unspecified address among them */
		return true;
	if (!memcmp(ip, nat64, 12) && never_v4(get_be32(ip + 12), false))
		return true;
	if (ip[0] == 0x20 && ip[1] == 0x02 && never_v4(get_be32(ip + 2), false))
		return true;
	return ip[0] == 0xff || (ip[0] == 0xfe && ip[1] >= 0x80) || get_be32(ip) == 0xfd000ec2;
}

struct lists {
	struct prefix cidrs[64];
	struct port_range ports[64];
	unsigned n_cidrs, n_ports;
};

static void add_line(struct policy *p, struct lists *l, const char *line)
{
	if (line[0] == 'c' && l->n_cidrs < 64) {
		int err = prefix_parse(line + 1, &l->cidrs[l->n_cidrs]);

		CHECK(policy_allow_cidr(p, line + 1) == err);
		l->n_cidrs += !err;
	} else if (line[0] == 'p' && l->n_ports < 64) {
		int err = port_range_parse(line + 1, &l->ports[l->n_ports]);

		CHECK(policy_allow_port(p, line + 1) == err);
		l->n_ports += !err;
	}
}

static bool in_lists(const struct lists *l, const struct addr *a)
{
	bool cidr = !l->n_cidrs, port = !l->n_ports;

	for (unsigned i = 0; i < l->n_cidrs; i++)
		cidr |= prefix_contains(&l->cidrs[i], a);
	for (unsigned i = 0; i < l->n_ports; i++)
		port |= addr_port(a) >= l->ports[i].lo && addr_port(a) <= l->ports[i].hi;
	return cidr && port;
}

static struct addr make_v4(const uint8_t *p)
{
	struct addr a = { .in = { .sin_family = AF_INET }, .len = sizeof(a.in) };

	memcpy(&a.in.sin_addr, p, 4);
	memcpy(&a.in.sin_port, p + 4, 2);
	return a;
}

static struct addr make_v6(const uint8_t *ip, const uint8_t *port)
{
	struct addr a = { .in6 = { .sin6_family = AF_INET6 }, .len = sizeof(a.in6) };

	memcpy(&a.in6.sin6_addr, ip, 16);
	memcpy(&a.in6.sin6_port, port, 2);
	return a;
}

static void check_verdict(const struct policy *p, const struct lists *l, const struct addr *a,
			  bool loopback)
{
	enum policy_verdict v = policy_check(p, a);
	struct addr u = *a;
	bool never;

	CHECK((unsigned)v < POLICY_VERDICTS);
	addr_unmap(&u);
	if (u.sa.sa_family == AF_INET) {
		uint8_t mapped[16] = { [10] = 0xff, 0xff };
		uint8_t port[2];
		struct addr m;

		memcpy(mapped + 12, &u.in.sin_addr, 4);
		memcpy(port, &u.in.sin_port, 2);
		m = make_v6(mapped, port);
		CHECK(policy_check(p, &m) == v);
		never = never_v4(ntohl(u.in.sin_addr.s_addr), loopback);
	} else {
		never = never_v6(u.in6.sin6_addr.s6_addr, loopback);
	}
	if (never)
		CHECK(v != POLICY_ALLOW && v != POLICY_DENY_CIDR && v != POLICY_DENY_PORT);
	if (v == POLICY_ALLOW)
		CHECK(in_lists(l, a));
	if (v == POLICY_DENY_CIDR || v == POLICY_DENY_PORT)
		CHECK(!in_lists(l, a));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lists l = { .n_cidrs = 0 };
	struct addr self = { .len = 0 }, a;
	struct policy *p;
	uint8_t flags;
	char *text, *save = NULL;

	if (size < 1 + 6 + 18)
		return 0;
	flags = data[0];
	if (flags & 2)
		self = make_v4(data + 1);
	a = flags & 4 ? make_v4(data + 7) : make_v6(data + 7, data + 23);
	p = policy_new();
	text = strndup((const char *)data + 25, size - 25);
	if (!p || !text)
		goto out;
	if (flags & 1)
		policy_allow_loopback(p);
	if (self.len)
		CHECK(policy_add_self(p, &self) == 0);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		add_line(p, &l, line);
	if (self.len)
		CHECK(policy_check(p, &self) == POLICY_DENY_SELF);
	check_verdict(p, &l, &a, flags & 1);
out:
	free(text);
	policy_free(p);
	return 0;
}
