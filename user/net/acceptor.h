/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acceptor.h - takes connections off one listening socket.
 *
 * An accept4(2) that finds nothing costs as much as ten other calls (it makes the
 * socket first), so there is no loop until EAGAIN: one connection per wake-up. When
 * the queue is not empty for several turns in a row, turns are long or connections
 * many: then twice as many with each turn, up to a bound that keeps the connections
 * there are alive under a flood of new ones.
 *
 * Out of descriptors or memory: connections wait in the kernel's queue while we
 * pause. When that has lasted a second they are accepted with a descriptor held in
 * reserve and closed, because a client told at once can go elsewhere and one left
 * waiting can not.
 *
 * Over max_clients, or what its source may have (both counted over all workers), a
 * connection gets GOAWAY
 * (ENHANCE_YOUR_CALM) in place of the server's first frames, and is closed.
 */
#ifndef FS_NET_ACCEPTOR_H
#define FS_NET_ACCEPTOR_H

#include "net/tcp.h"

enum accept_trouble {
	ACCEPT_REFUSED,        /* over max_clients; peer is given */
	ACCEPT_REFUSED_SOURCE, /* over what pool->sources allows; peer is given */
	ACCEPT_PAUSED,  /* out of descriptors or memory: err; told once until it works again */
	ACCEPT_SHED,    /* closed a connection for the same reason; peer is given */
	ACCEPT_RESUMED, /* it works again */
};

struct acceptor_owner {
	void (*accepted)(void *arg, struct port *p);
	void (*trouble)(void *arg, enum accept_trouble what, int err, const struct addr *peer);
	void *arg;
	atomic_uint *clients; /* open ones, shared by all workers */
	unsigned max_clients;
};

struct acceptor {
	struct watch watch;
	struct tcp_pool *pool;
	const struct acceptor_owner *owner;
	struct addr local;   /* len 0: a wildcard */
	unsigned busy_turns; /* in a row */
	uint64_t last_turn;
	struct timer pause;
	uint64_t trouble_since; /* 0 = none */
	int reserve;            /* a descriptor to give up; -1 = none */
};

/* Takes fd over, also on failure. *owner must outlive it. 0 or -errno. */
int acceptor_init(struct acceptor *a, struct tcp_pool *pool, int fd, const struct addr *bound,
		  const struct acceptor_owner *owner);
/* Stops listening; connections still in the kernel's queue are reset. */
void acceptor_fini(struct acceptor *a);

#endif
