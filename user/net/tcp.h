/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - a TCP connection as a session's port.
 *
 * A port is registered with the loop once, edge-triggered, at the first want();
 * EPOLLOUT is added the first time somebody waits for it (a dialled port has it
 * from the start: that is how connecting ends). `ready` remembers what the kernel
 * said and is cleared by EAGAIN, or by a short read or write, which say the same.
 * The level-triggered contract of port.want() is made from the two: a port that
 * is wanted and still ready is called again in the next turn. So changing interest
 * is free, and 1 kB fetched costs one EPOLL_CTL_ADD.
 *
 * Closing without a reset must deliver what was sent, but the kernel answers
 * unread input, even when it comes after close(2), with RST, and that throws away
 * what the peer has not read yet. Unless the peer's FIN has been read, a closed
 * port therefore lingers: FIN out, input read and thrown away until the peer's FIN,
 * or until it no longer takes what was sent. The session does not know of it then.
 */
#ifndef FS_NET_TCP_H
#define FS_NET_TCP_H

#include <stdatomic.h>

#include "net/loop.h"
#include "net/sources.h"
#include "session/env.h"

/* One worker's ports; keeps the memory of closed ones for the next. */
struct tcp_pool {
	struct loop *loop;
	struct sources *sources; /* that counted ports have entered, or NULL */
	struct list idle;        /* of tcp_port.later.link */
	struct list lingering;   /* of tcp_port.later.link */
	unsigned n_idle, n_lingering;
	bool closed;
};

void tcp_pool_init(struct tcp_pool *pool, struct loop *loop);
/* Ends lingering ports and frees idle ones. Others must be closed before; *pool stays until loop_fini(). */
void tcp_pool_fini(struct tcp_pool *pool);

/*
 * A port for the connected, non-blocking descriptor fd; owns it, also on failure.
 * peer is copied, local is unknown (len 0). *count, when given, is decremented
 * when the descriptor is closed, and the peer leaves pool->sources. NULL: out of memory.
 */
struct port *tcp_port_new(struct tcp_pool *pool, int fd, const struct addr *peer,
			  atomic_uint *count);

/*
 * Starts to connect to *to, with TCP_NODELAY. The end of it is a PORT_WRITABLE event
 * for want(PORT_WRITABLE); then ask tcp_port_connected(). 0 or -errno.
 */
int tcp_connect(struct tcp_pool *pool, const struct addr *to, struct port **ret);
/* 0: connected, port.local is known. Otherwise -errno of connecting. */
int tcp_port_connected(struct port *p);
/* Fills p->local if it is not known yet. 0 or -errno. */
int tcp_port_find_local(struct port *p);

#endif
