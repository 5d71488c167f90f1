/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice_port.h - sockmap pairs as a session sees them (struct splice of
 * session/env.h).
 *
 * datapath/sockmap.h knows pairs, taps and injectors; a session knows ports and
 * events. Between them: two descriptors per pair to be polled and a ring buffer
 * per worker, by whatever loop the worker has (struct splice_poller).
 */
#ifndef FS_SPLICE_PORT_H
#define FS_SPLICE_PORT_H

#include "datapath/sockmap.h"
#include "session/env.h"

/* The worker's loop (net/poller.h has functions of these shapes). Events are EPOLL* bits. */
struct splice_poller {
	/* NULL: out of memory or descriptors. fn is called from the loop. */
	void *(*watch)(void *ctx, int fd, unsigned events, void (*fn)(void *arg, unsigned events),
		       void *arg);
	/* No call of fn after this; before fd is closed. */
	void (*forget)(void *ctx, void *watch);
	/* Calls fn(arg) once, soon, from the loop; cancel forgets it. */
	void *(*soon_new)(void *ctx, void (*fn)(void *arg), void *arg);
	void (*soon)(void *ctx, void *soon);
	void (*soon_free)(void *ctx, void *soon);
	void *ctx;
};

struct splicer;

/*
 * One worker's part of sm. poller is copied. 0 or -errno. inflight: most bytes that
 * a client may have in flight, for its send buffer.
 */
int splicer_new(struct sockmap *sm, uint32_t worker, uint64_t inflight,
		const struct splice_poller *poller, struct splicer **ret);
/* After the session. NULL is fine. */
void splicer_free(struct splicer *s);
/* For env.splice; ctx is the splicer. */
extern const struct splice_ops splicer_ops;

/* Figures of the worker's pairs, any thread. */
void splicer_stats(const struct splicer *s, struct sockmap_stats *ret);

#endif
