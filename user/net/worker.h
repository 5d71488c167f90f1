/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - one thread: a loop, its listening sockets, and one session on them.
 *
 * Workers share nothing but what struct worker_shared holds, all of it immutable
 * or atomic. Other threads talk to a worker by tasks, which run on its thread
 * between two turns.
 *
 * Life: worker_new() (main thread) - worker_start() - tasks - worker_drain() -
 * WORKER_IDLE is told - worker_stop() - worker_join() - worker_free(). Draining
 * keeps the listeners open: with several replicas readiness has sent new clients
 * elsewhere, and one that comes nevertheless is told GOAWAY, which it can act on,
 * where a refused connection looks like a broken network.
 */
#ifndef FS_NET_WORKER_H
#define FS_NET_WORKER_H

#include <stdatomic.h>

#include "net/acceptor.h"
#include "session/session.h"

struct worker;

enum worker_event {
	WORKER_IDLE, /* draining, and nothing is left */
	WORKER_ACCEPT_PAUSED,
	WORKER_ACCEPT_RESUMED,
	WORKER_ACCEPT_SHED,
};

/* The same for all workers; must outlive them. */
struct worker_shared {
	/*
	 * A kernel datapath for the worker with this loop: fills env.splice, splice_ctx and
	 * splice_why. *ret is given to splice_free() after the session. May be NULL.
	 */
	void (*splice_new)(void *arg, unsigned index, struct loop *loop, struct env *env,
			   void **ret);
	void (*splice_free)(void *splice);
	void *splice_arg;
	/*
	 * Shows the session to others, now and then while there is something: on the worker's
	 * thread, at the end of a turn. Returns after how many ns to be called again, 0 = not
	 * before there is a client again. May be NULL.
	 */
	uint64_t (*publish)(void *arg, unsigned index, const struct session *s, uint64_t now_ns);
	void *publish_arg;
	const struct config *config;
	const struct policy *policy;
	unsigned n_workers;
	const struct datapath *relay; /* see struct env */
	atomic_uint clients;          /* open connections of clients */
	struct sources *sources;      /* the same by address; NULL = no limit. Its own lock */
	/*
	 * Workers freed while a name look-up of theirs was still running in libuv's
	 * threads. exit(3) waits for those, _exit(2) does not.
	 */
	unsigned lookups_left;
	/* On the worker's thread. err: -errno for the ACCEPT events, peer for SHED; else 0, NULL. */
	void (*told)(void *arg, struct worker *w, enum worker_event e, int err,
		     const struct addr *peer);
	void *told_arg;
};

struct worker_listener {
	int fd;
	struct addr bound;
};

/*
 * Takes the n listeners' descriptors over, also on failure (n <= CONFIG_LISTEN_MAX).
 * emit_ctx is for emit. 0 or -errno.
 */
int worker_new(struct worker_shared *shared, unsigned index,
	       const struct worker_listener *listeners, unsigned n, const struct emit_ops *emit,
	       void *emit_ctx, struct worker **ret);
/* After worker_join(), or when it was never started: resets what is open. NULL is fine. */
void worker_free(struct worker *w);

/* The thread runs with all signals blocked. 0 or -errno. */
int worker_start(struct worker *w);
/* Waits for the thread to end. */
void worker_join(struct worker *w);

/*
 * A call on a worker's thread. Owned by whoever posted it until fn is called; fn may
 * free it. A worker that ends calls the fn of every task it still has, with the
 * session in place.
 */
struct worker_task {
	struct worker_task *next;
	void (*fn)(struct worker_task *t, struct worker *w);
};
/* From any thread. False when the worker has ended: fn will not be called. */
bool worker_post(struct worker *w, struct worker_task *t);

/* From any thread, any number of times. */
void worker_drain(struct worker *w);
/* Ends the thread after its current turn. What is open is reset by worker_free(). */
void worker_stop(struct worker *w);

unsigned worker_index(const struct worker *w);
/* On the worker's thread (in a task) only. */
struct session *worker_session(struct worker *w);
/* Valid until worker_free(); read with relaxed atomic loads. */
const struct session_stats *worker_stats(const struct worker *w);
/* Likewise. */
const struct loop_stats *worker_loop_stats(const struct worker *w);
/* Since WORKER_IDLE was told; a client may have come since. From any thread. */
bool worker_is_idle(const struct worker *w);

#endif
