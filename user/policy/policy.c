/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.c - the deny list, the allow lists, and ourselves.
 *
 * An address is judged in this order; the first that applies is the verdict:
 *
 *  1. It is taken out of ::ffff:0:0/96, where it is only another spelling.
 *  2. One of our own listeners: address and port, whatever else is allowed. A
 *     wildcard listener is every loopback address with its port (127.0.0.2 reaches
 *     it too); its other addresses are added one by one.
 *  3. The tables of ranges that nobody has an executor in. Nothing but
 *     --allow-loopback opens any of them, and it opens loopback only: the
 *     unspecified address, which the kernel takes for loopback as well, stays shut.
 *  4. IPv6 forms that carry an IPv4 address (6to4, NAT64, Teredo, ...): a gateway on
 *     the way would send the packet there, so what is refused in IPv4 is refused in
 *     disguise. A NAT64 prefix of the network's own cannot be known here.
 *  5. The allow lists, when given.
 *
 * Metadata services that do not use link-local addresses are listed one by one. The
 * ranges are IANA's special-purpose registries minus what clusters really use
 * (RFC 1918, 100.64/10, fc00::/7, documentation and benchmarking ranges).
 */
#include "policy/policy.h"

#include <stdlib.h>

#include "base/prefix.h"

#define POLICY_CIDR_MAX 1024
#define POLICY_PORT_MAX 1024
#define POLICY_SELF_MAX 4096 /* listeners times addresses of the host */

struct policy {
	bool loopback;
	struct prefix *cidrs;
	struct port_range *ports;
	struct addr *selves;
	unsigned n_cidrs, n_ports, n_selves;
};

static const char *const verdict_names[] = {
	[POLICY_ALLOW] = "allowed",
	[POLICY_DENY_LOOPBACK] = "loopback address",
	[POLICY_DENY_LINKLOCAL] = "link-local or metadata address",
	[POLICY_DENY_MULTICAST] = "multicast or broadcast address",
	[POLICY_DENY_RESERVED] = "reserved address",
	[POLICY_DENY_SELF] = "this proxy itself",
	[POLICY_DENY_CIDR] = "address not allowed",
	[POLICY_DENY_PORT] = "port not allowed",
};
static_assert(ARRAY_SIZE(verdict_names) == POLICY_VERDICTS, "a name for each verdict");

const char *policy_verdict_name(enum policy_verdict v)
{
	return (unsigned)v < POLICY_VERDICTS ? verdict_names[v] : "?";
}

struct policy *policy_new(void)
{
	return calloc(1, sizeof(struct policy));
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	free(p->cidrs);
	free(p->ports);
	free(p->selves);
	free(p);
}

/* Room for one more element; *array is replaced. Grows at start-up only, so one at a time. */
static int grow(void **array, unsigned n, size_t size, unsigned max)
{
	void *bigger;

	if (n >= max)
		return -ENOSPC;
	bigger = reallocarray(*array, n + 1, size);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	return 0;
}

int policy_allow_cidr(struct policy *p, const char *cidr)
{
	struct prefix prefix;
	void *array = p->cidrs;
	int err = prefix_parse(cidr, &prefix);

	if (!err)
		err = grow(&array, p->n_cidrs, sizeof(*p->cidrs), POLICY_CIDR_MAX);
	if (err)
		return err;
	p->cidrs = array;
	p->cidrs[p->n_cidrs++] = prefix;
	return 0;
}

int policy_allow_port(struct policy *p, const char *range)
{
	struct port_range r;
	void *array = p->ports;
	int err = port_range_parse(range, &r);

	if (!err)
		err = grow(&array, p->n_ports, sizeof(*p->ports), POLICY_PORT_MAX);
	if (err)
		return err;
	p->ports = array;
	p->ports[p->n_ports++] = r;
	return 0;
}

void policy_allow_loopback(struct policy *p)
{
	p->loopback = true;
}

int policy_add_self(struct policy *p, const struct addr *a)
{
	void *array = p->selves;
	int err;

	if (!a->len || (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6))
		return -EINVAL;
	err = grow(&array, p->n_selves, sizeof(*p->selves), POLICY_SELF_MAX);
	if (err)
		return err;
	p->selves = array;
	p->selves[p->n_selves] = *a;
	addr_unmap(&p->selves[p->n_selves++]);
	return 0;
}

/* ---- IPv4 ---- */

struct range4 {
	uint32_t net; /* host byte order */
	uint8_t bits;
	enum policy_verdict verdict;
};

#define IP4(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

static const struct range4 denied4[] = {
	/* Unspecified: the kernel takes it for loopback. */
	{ IP4(0, 0, 0, 0), 32, POLICY_DENY_LOOPBACK },
	{ IP4(0, 0, 0, 0), 8, POLICY_DENY_RESERVED }, /* "this network" */
	{ IP4(127, 0, 0, 0), 8, POLICY_DENY_LOOPBACK },
	/* Metadata of most clouds. */
	{ IP4(169, 254, 0, 0), 16, POLICY_DENY_LINKLOCAL },
	{ IP4(100, 100, 100, 200), 32, POLICY_DENY_LINKLOCAL }, /* Alibaba Cloud metadata */
	{ IP4(168, 63, 129, 16), 32, POLICY_DENY_LINKLOCAL },   /* Azure's host agent */
	{ IP4(192, 0, 0, 192), 32, POLICY_DENY_LINKLOCAL }, /* Oracle Cloud metadata, old form */
	{ IP4(224, 0, 0, 0), 4, POLICY_DENY_MULTICAST },
	{ IP4(255, 255, 255, 255), 32, POLICY_DENY_MULTICAST }, /* broadcast */
	{ IP4(240, 0, 0, 0), 4, POLICY_DENY_RESERVED },
};

static enum policy_verdict check_ranges4(uint32_t ip)
{
	for (unsigned i = 0; i < ARRAY_SIZE(denied4); i++)
		if (!((ip ^ denied4[i].net) >> (32 - denied4[i].bits)))
			return denied4[i].verdict;
	return POLICY_ALLOW;
}

/* ---- IPv6 ---- */

struct range6 {
	uint8_t net[16];
	uint8_t bits;
	enum policy_verdict verdict;
};

static const struct range6 denied6[] = {
	{ { 0 }, 128, POLICY_DENY_LOOPBACK },                      /* :: */
	{ { [15] = 1 }, 128, POLICY_DENY_LOOPBACK },               /* ::1 */
	{ { 0 }, 96, POLICY_DENY_RESERVED },                       /* "IPv4-compatible" */
	{ { 0xfe, 0x80 }, 10, POLICY_DENY_LINKLOCAL },             /* fe80::/10 */
	{ { 0xfe, 0xc0 }, 10, POLICY_DENY_RESERVED },              /* site-local */
	{ { 0xfd, 0x00, 0x0e, 0xc2 }, 32, POLICY_DENY_LINKLOCAL }, /* AWS: fd00:ec2::254, ::23 */
	{ { 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54 }, 128, POLICY_DENY_LINKLOCAL }, /* Google */
	{ { 0xff }, 8, POLICY_DENY_MULTICAST },       /* ff00::/8 */
	{ { 0x01, 0x00 }, 64, POLICY_DENY_RESERVED }, /* 100::/64, discard */
};

static enum policy_verdict check_ranges6(const uint8_t ip[16])
{
	for (unsigned i = 0; i < ARRAY_SIZE(denied6); i++)
		if (prefix_bits_equal(ip, denied6[i].net, denied6[i].bits))
			return denied6[i].verdict;
	return POLICY_ALLOW;
}

/*
 * Where IPv6 forms carry an IPv4 address: the byte of each of its four bytes.
 * `guess`: one of several layouts that share the prefix. What such a guess makes of
 * bytes that mean something else is often 0.x.y.z, which then says nothing.
 */
struct embedding {
	uint8_t net[16];
	uint8_t bits;
	uint8_t at[4];
	uint8_t flip; /* Teredo inverts the client's address */
	bool guess;
};

#define NAT64_LOCAL                                                                                \
	{                                                                                          \
		0x00, 0x64, 0xff, 0x9b, 0x00, 0x01                                                 \
	}

static const struct embedding embeddings[] = {
	{ { 0x20, 0x02 }, 16, { 2, 3, 4, 5 }, 0, false },                    /* 6to4 */
	{ { 0x00, 0x64, 0xff, 0x9b }, 96, { 12, 13, 14, 15 }, 0, false },    /* NAT64 */
	{ NAT64_LOCAL, 48, { 6, 7, 9, 10 }, 0, true },                       /* RFC 6052: /48 */
	{ NAT64_LOCAL, 48, { 7, 9, 10, 11 }, 0, true },                      /* /56 */
	{ NAT64_LOCAL, 48, { 9, 10, 11, 12 }, 0, true },                     /* /64 */
	{ NAT64_LOCAL, 48, { 12, 13, 14, 15 }, 0, true },                    /* /96 */
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, { 4, 5, 6, 7 }, 0, false },        /* Teredo server */
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, { 12, 13, 14, 15 }, 0xff, false }, /* Teredo client */
	{ { [8] = 0xff, 0xff }, 96, { 12, 13, 14, 15 }, 0, false }, /* ::ffff:0:a.b.c.d, SIIT */
};

static bool is_isatap(const uint8_t ip[16])
{
	return (ip[8] & 0xfd) == 0 && ip[9] == 0 && ip[10] == 0x5e && ip[11] == 0xfe;
}

static enum policy_verdict check_self(const struct policy *p, const struct addr *a);

/* An IPv4 address inside an IPv6 one: would it be refused by itself? */
static bool hides_denied(const struct policy *p, uint32_t ip, uint16_t port, bool guess)
{
	struct addr a = { .in = { .sin_family = AF_INET, .sin_port = htons(port) },
			  .len = sizeof(a.in) };

	if (guess && !(ip >> 24))
		return false;
	a.in.sin_addr.s_addr = htonl(ip);
	return check_ranges4(ip) != POLICY_ALLOW || check_self(p, &a) != POLICY_ALLOW;
}

static enum policy_verdict check_embedded(const struct policy *p, const struct addr *a)
{
	const uint8_t *ip = a->in6.sin6_addr.s6_addr;

	for (unsigned i = 0; i < ARRAY_SIZE(embeddings); i++) {
		const struct embedding *e = &embeddings[i];
		uint32_t v4 = 0;

		if (!prefix_bits_equal(ip, e->net, e->bits))
			continue;
		for (unsigned b = 0; b < 4; b++)
			v4 = v4 << 8 | (uint8_t)(ip[e->at[b]] ^ e->flip);
		if (hides_denied(p, v4, addr_port(a), e->guess))
			return POLICY_DENY_RESERVED;
	}
	if (is_isatap(ip) && hides_denied(p, get_be32(ip + 12), addr_port(a), false))
		return POLICY_DENY_RESERVED;
	return POLICY_ALLOW;
}

/* ---- all of it ---- */

static bool is_unspecified(const struct addr *a)
{
	return a->sa.sa_family == AF_INET ? a->in.sin_addr.s_addr == 0
					  : IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

static bool is_loopback(const struct addr *a)
{
	return a->sa.sa_family == AF_INET ? (ntohl(a->in.sin_addr.s_addr) >> 24) == 127
					  : IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

static enum policy_verdict check_self(const struct policy *p, const struct addr *a)
{
	bool local = is_loopback(a) || is_unspecified(a);

	for (unsigned i = 0; i < p->n_selves; i++) {
		const struct addr *self = &p->selves[i];

		if (addr_equal(self, a))
			return POLICY_DENY_SELF;
		if (local && is_unspecified(self) && addr_port(self) == addr_port(a))
			return POLICY_DENY_SELF;
	}
	return POLICY_ALLOW;
}

static enum policy_verdict check_lists(const struct policy *p, const struct addr *a)
{
	uint16_t port = addr_port(a);
	bool found = !p->n_cidrs;

	for (unsigned i = 0; i < p->n_cidrs && !found; i++)
		found = prefix_contains(&p->cidrs[i], a);
	if (!found)
		return POLICY_DENY_CIDR;
	found = !p->n_ports;
	for (unsigned i = 0; i < p->n_ports && !found; i++)
		found = port >= p->ports[i].lo && port <= p->ports[i].hi;
	return found ? POLICY_ALLOW : POLICY_DENY_PORT;
}

enum policy_verdict policy_check(const struct policy *p, const struct addr *addr)
{
	struct addr a = *addr;
	enum policy_verdict v;
	bool v6;

	addr_unmap(&a);
	v6 = a.len && a.sa.sa_family == AF_INET6;
	if (!a.len || (!v6 && a.sa.sa_family != AF_INET))
		return POLICY_DENY_RESERVED;
	v = check_self(p, &a);
	if (v)
		return v;
	v = v6 ? check_ranges6(a.in6.sin6_addr.s6_addr)
	       : check_ranges4(ntohl(a.in.sin_addr.s_addr));
	if (v && !(p->loopback && is_loopback(&a)))
		return v;
	v = v6 ? check_embedded(p, &a) : POLICY_ALLOW;
	if (v)
		return v;
	return check_lists(p, &a);
}
