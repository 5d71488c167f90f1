/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_rig.h - a loop with a port pool on one side, plain sockets on the other, all
 * on one thread: a test turns the loop until what it waits for has happened.
 *
 * Each rig checks when it ends that no descriptor is left.
 */
#ifndef TESTS_UNIT_NET_RIG_H
#define TESTS_UNIT_NET_RIG_H

#include "unit/hex.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "net/dial.h"
#include "net/loop.h"
#include "net/tcp.h"

struct rig {
	struct loop loop;
	struct tcp_pool pool;
	struct policy *policy;
	struct dialer dialer;
	int descriptors;
};

/* Long enough to be a hang. */
#define RIG_PATIENCE_MS 20000

static inline int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline uint64_t wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* The first loop of a process makes libuv's descriptors for signals, which stay. */
static inline int rig_warm_up(void **state)
{
	struct loop l;

	(void)state;
	return loop_init(&l, NULL) || !loop_fini(&l);
}

static inline void rig_open(struct rig *r)
{
	r->descriptors = count_descriptors();
	assert_int_equal(loop_init(&r->loop, NULL), 0);
	tcp_pool_init(&r->pool, &r->loop);
	r->policy = policy_new();
	assert_non_null(r->policy);
	policy_allow_loopback(r->policy);
	r->dialer = (struct dialer){ &r->loop, &r->pool, r->policy };
}

/* Turns until `cond`; fails the test when it does not come. */
#define rig_until(r, cond)                                                                         \
	do {                                                                                       \
		uint64_t end_ = wall_ns() + RIG_PATIENCE_MS * NSEC_PER_MSEC;                       \
		while (!(cond)) {                                                                  \
			if (wall_ns() > end_)                                                      \
				fail_msg("never: %s", #cond);                                      \
			loop_turn(&(r)->loop, 10);                                                 \
		}                                                                                  \
	} while (0)

/* Everything that is due now, and nothing that is not. */
static inline void rig_settle(struct rig *r)
{
	for (int i = 0; i < 5; i++)
		loop_turn(&r->loop, 0);
}

static inline void rig_close(struct rig *r)
{
	rig_until(r, !r->pool.n_lingering);
	rig_until(r, r->loop.uv.active_reqs.count == 0);
	tcp_pool_fini(&r->pool);
	assert_true(loop_fini(&r->loop));
	policy_free(r->policy);
	assert_int_equal(count_descriptors(), r->descriptors);
}

/* ---- plain sockets ---- */

static inline struct addr ip(const char *text, uint16_t port)
{
	struct addr a;

	assert_int_equal(addr_parse_ip(text, port, &a), 0);
	return a;
}

/* A listener on the address; *ret_port is its port. */
static inline int peer_listen(const char *host, uint16_t port, int backlog, uint16_t *ret_port)
{
	struct addr a = ip(host, port);
	int one = 1, fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a.sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, &a.sa, a.len) || listen(fd, backlog))
		fail_msg("listening on %s: %s", host, strerror(errno));
	assert_int_equal(getsockname(fd, &a.sa, &a.len), 0);
	*ret_port = addr_port(&a);
	return fd;
}

/* A blocking connection; reads give up after RIG_PATIENCE_MS. */
static inline int peer_connect(const struct addr *to)
{
	struct timeval patience = { .tv_sec = RIG_PATIENCE_MS / 1000 };
	int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, &to->sa, to->len))
		fail_msg("connecting: %s", strerror(errno));
	return fd;
}

static inline void peer_reset(int fd)
{
	struct linger l = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static inline void peer_send(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

/* Bytes there now (up to cap), 0 at FIN, -errno. Never waits. */
static inline ssize_t peer_recv(int fd, void *buf, size_t cap)
{
	ssize_t n = recv(fd, buf, cap, MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

#endif
