/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listen.h"

#include <netinet/tcp.h>
#include <unistd.h>

/* A client whose machine is gone is noticed after about two minutes of silence. */
#define KEEPALIVE_IDLE_S 60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_COUNT 4
/* The kernel lowers it to net.core.somaxconn. */
#define BACKLOG 65535

bool listen_is_wildcard(const struct addr *a)
{
	if (a->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
	return a->in.sin_addr.s_addr == htonl(INADDR_ANY);
}

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

static int open_socket(const struct addr *a)
{
	int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	int r;

	if (fd < 0)
		return -errno;
	if (set(fd, SOL_SOCKET, SO_REUSEADDR, 1) ||
	    (a->sa.sa_family == AF_INET6 &&
	     set(fd, IPPROTO_IPV6, IPV6_V6ONLY, !listen_is_wildcard(a)))) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int listen_probe(const struct addr *a)
{
	int fd, r;

	if (!addr_port(a))
		return 0;
	fd = open_socket(a);
	if (fd < 0)
		return fd;
	r = bind(fd, &a->sa, a->len) ? -errno : 0;
	close(fd);
	return r;
}

/* All of these are inherited by accepted sockets. */
static int set_inherited(int fd)
{
	return set(fd, IPPROTO_TCP, TCP_NODELAY, 1) || set(fd, SOL_SOCKET, SO_KEEPALIVE, 1) ||
	       set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S) ||
	       set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S) ||
	       set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
}

int listen_open(const struct addr *a, struct addr *ret_bound, const char **ret_step)
{
	struct addr bound = { .len = sizeof(bound.ss) };
	const char *step = "socket";
	int r, fd = open_socket(a);

	if (fd < 0) {
		*ret_step = step;
		return fd;
	}
	step = "setsockopt";
	if (set(fd, SOL_SOCKET, SO_REUSEPORT, 1) || set_inherited(fd))
		goto fail;
	step = "bind";
	if (bind(fd, &a->sa, a->len))
		goto fail;
	step = "listen";
	if (listen(fd, BACKLOG))
		goto fail;
	step = "getsockname";
	if (getsockname(fd, &bound.sa, &bound.len))
		goto fail;
	*ret_bound = bound;
	return fd;

fail:
	r = -errno;
	close(fd);
	*ret_step = step;
	return r;
}
