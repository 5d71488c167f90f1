/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial.h - connecting to an executor by name or address (env_ops.dial).
 *
 * An IP literal is checked against the policy and connected to at once. A name
 * goes to the resolver (libuv's threads), both families, whatever addresses this
 * host has itself; every address it gives is checked with the policy, and those
 * that pass are tried in turn, families alternating: the next one starts when the
 * last has failed or has not answered for a quarter of a second, whichever is
 * first, and the first connection wins (RFC 8305 without the DNS part). Nothing is
 * remembered between dials, so a changed name is seen at once.
 *
 * A look-up cannot be stopped once a thread has begun it. A dial that ends before
 * leaves the request behind, which frees itself when it returns.
 */
#ifndef FS_NET_DIAL_H
#define FS_NET_DIAL_H

#include "net/loop.h"
#include "net/tcp.h"

/* Addresses of one name that are tried; more are ignored. */
#define DIAL_ADDRS_MAX 16
#define DIAL_STAGGER_NS (250 * NSEC_PER_MSEC)

/* What the dials of one worker need; all must outlive them. */
struct dialer {
	struct loop *loop;
	struct tcp_pool *pool;
	const struct policy *policy;
};

/* The contract of env_ops.dial. */
struct dial *dial_start(struct dialer *dr, const char *host, uint16_t port, uint64_t timeout_ns,
			dial_done_fn done, void *arg);
/* Before done() only; it will not be called then. */
void dial_cancel(struct dial *d);

#endif
