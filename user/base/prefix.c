/* SPDX-License-Identifier: Apache-2.0 */
#include "base/prefix.h"

#include <arpa/inet.h>

/* Decimal digits only: no sign, no space, no second spelling of a number. */
static int parse_uint(const char *s, size_t len, unsigned max, unsigned *ret)
{
	unsigned v = 0;

	if (!len || len > 5 || (s[0] == '0' && len > 1))
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		v = v * 10 + (unsigned)(s[i] - '0');
	}
	if (v > max)
		return -EINVAL;
	*ret = v;
	return 0;
}

static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

static bool bits_clear_from(const uint8_t *bytes, unsigned n, unsigned from)
{
	for (unsigned i = 0; i < n; i++) {
		uint8_t keep = 0;

		if (from >= 8 * (i + 1))
			continue;
		if (from > 8 * i)
			keep = (uint8_t)(0xff << (8 - (from - 8 * i)));
		if (bytes[i] & (uint8_t)~keep)
			return false;
	}
	return true;
}

int prefix_parse(const char *text, struct prefix *ret)
{
	const char *slash = strchr(text, '/');
	size_t n = slash ? (size_t)(slash - text) : strlen(text);
	char host[INET6_ADDRSTRLEN + 1];
	struct prefix p = { .v4 = false };
	struct addr a;
	unsigned bits;

	if (n >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, n);
	host[n] = '\0';
	if (host[0] == '[' || addr_parse_ip(host, 0, &a))
		return -EINVAL;

	p.v4 = a.sa.sa_family == AF_INET;
	bits = p.v4 ? 32 : 128;
	if (slash && parse_uint(slash + 1, strlen(slash + 1), bits, &bits))
		return -EINVAL;
	if (p.v4)
		memcpy(p.bytes, &a.in.sin_addr, 4);
	else
		memcpy(p.bytes, &a.in6.sin6_addr, 16);
	if (!p.v4 && bits >= 96 && !memcmp(p.bytes, mapped, sizeof(mapped))) {
		memmove(p.bytes, p.bytes + 12, 4);
		memset(p.bytes + 4, 0, 12);
		p.v4 = true;
		bits -= 96;
	}
	if (!bits_clear_from(p.bytes, p.v4 ? 4 : 16, bits))
		return -EINVAL;
	p.bits = (uint8_t)bits;
	*ret = p;
	return 0;
}

bool prefix_bits_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	return !memcmp(a, b, whole) && (!rest || !((a[whole] ^ b[whole]) >> (8 - rest)));
}

bool prefix_contains(const struct prefix *p, const struct addr *a)
{
	struct addr u = *a;

	addr_unmap(&u);
	if (!u.len || (u.sa.sa_family == AF_INET) != p->v4)
		return false;
	return prefix_bits_equal(p->v4 ? (const uint8_t *)&u.in.sin_addr : u.in6.sin6_addr.s6_addr,
				 p->bytes, p->bits);
}

int port_range_parse(const char *text, struct port_range *ret)
{
	const char *dash = strchr(text, '-');
	unsigned lo, hi;

	if (parse_uint(text, dash ? (size_t)(dash - text) : strlen(text), 65535, &lo))
		return -EINVAL;
	hi = lo;
	if (dash && parse_uint(dash + 1, strlen(dash + 1), 65535, &hi))
		return -EINVAL;
	if (!lo || hi < lo)
		return -EINVAL;
	*ret = (struct port_range){ .lo = (uint16_t)lo, .hi = (uint16_t)hi };
	return 0;
}
