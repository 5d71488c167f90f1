/* SPDX-License-Identifier: Apache-2.0 */
#include "base/addr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

static int parse_port(const char *s, uint16_t *ret)
{
	unsigned long v = 0;

	if (!*s || strlen(s) > 5)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		v = v * 10 + (unsigned long)(*s - '0');
	}
	if (v > 65535)
		return -EINVAL;
	*ret = (uint16_t)v;
	return 0;
}

int addr_parse_ip(const char *text, uint16_t port, struct addr *ret)
{
	char buf[INET6_ADDRSTRLEN + 2];
	struct addr a = { .len = 0 };
	size_t n = strlen(text);

	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	if (!n || n >= sizeof(buf))
		return -EINVAL;
	memcpy(buf, text, n);
	buf[n] = '\0';
	if (inet_pton(AF_INET, buf, &a.in.sin_addr) == 1) {
		a.in.sin_family = AF_INET;
		a.in.sin_port = htons(port);
		a.len = sizeof(a.in);
	} else if (inet_pton(AF_INET6, buf, &a.in6.sin6_addr) == 1) {
		a.in6.sin6_family = AF_INET6;
		a.in6.sin6_port = htons(port);
		a.len = sizeof(a.in6);
	} else {
		return -EINVAL;
	}
	*ret = a;
	return 0;
}

int addr_parse(const char *text, struct addr *ret)
{
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 3];
	uint16_t port;
	size_t n;

	if (!colon || parse_port(colon + 1, &port))
		return -EINVAL;
	n = (size_t)(colon - text);
	if (n >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, n);
	host[n] = '\0';
	if (!n)
		return addr_parse_ip("::", port, ret);
	/* An unbracketed IPv6 address would make the last group a port. */
	if (strchr(host, ':') && host[0] != '[')
		return -EINVAL;
	return addr_parse_ip(host, port, ret);
}

uint16_t addr_port(const struct addr *a)
{
	if (!a->len)
		return 0;
	return ntohs(a->sa.sa_family == AF_INET6 ? a->in6.sin6_port : a->in.sin_port);
}

void addr_unmap(struct addr *a)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (!a->len || a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return;
	in.sin_port = a->in6.sin6_port;
	memcpy(&in.sin_addr, &a->in6.sin6_addr.s6_addr[12], 4);
	a->in = in;
	a->len = sizeof(in);
}

const char *addr_format(const struct addr *a, char buf[ADDR_STRLEN])
{
	struct addr u = *a;
	char ip[INET6_ADDRSTRLEN] = "";

	addr_unmap(&u);
	if (!u.len) {
		snprintf(buf, ADDR_STRLEN, "-");
	} else if (u.sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &u.in6.sin6_addr, ip, sizeof(ip));
		snprintf(buf, ADDR_STRLEN, "[%s]:%u", ip, addr_port(&u));
	} else {
		inet_ntop(AF_INET, &u.in.sin_addr, ip, sizeof(ip));
		snprintf(buf, ADDR_STRLEN, "%s:%u", ip, addr_port(&u));
	}
	return buf;
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
	struct addr x = *a, y = *b;

	addr_unmap(&x);
	addr_unmap(&y);
	if (x.len != y.len || addr_port(&x) != addr_port(&y))
		return false;
	if (!x.len)
		return true;
	if (x.sa.sa_family != y.sa.sa_family)
		return false;
	if (x.sa.sa_family == AF_INET6)
		return !memcmp(&x.in6.sin6_addr, &y.in6.sin6_addr, 16);
	return x.in.sin_addr.s_addr == y.in.sin_addr.s_addr;
}
