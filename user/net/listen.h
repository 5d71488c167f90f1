/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.h - listening sockets, opened by the main thread before the workers run.
 *
 * Every worker has a socket of its own for each address, joined by SO_REUSEPORT:
 * the kernel spreads connections over them by a hash and no lock is shared. All
 * are opened before any worker starts, so that an error is one message and an
 * exit code, and so that no connection is hashed to a worker that is not there.
 * Options that connections inherit are set here, once, instead of on each of them.
 */
#ifndef FS_NET_LISTEN_H
#define FS_NET_LISTEN_H

#include "base/addr.h"

/*
 * Fails with -EADDRINUSE when somebody listens there already. SO_REUSEPORT alone
 * would let a second process of the same user join silently and take a part of the
 * connections. 0 or -errno; nothing stays open. Port 0 is always free.
 */
int listen_probe(const struct addr *a);
/*
 * Opens one non-blocking listening socket. The IPv6 wildcard takes IPv4 too, any
 * other IPv6 address does not. *ret_bound is the address with its real port.
 * The descriptor, or -errno with *ret_step the name of the call that failed.
 */
int listen_open(const struct addr *a, struct addr *ret_bound, const char **ret_step);

bool listen_is_wildcard(const struct addr *a);

#endif
