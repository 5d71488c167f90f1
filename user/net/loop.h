/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - one worker's event loop: edge-triggered epoll outside, libuv as its guest.
 *
 * Sockets are the hot path: at a 1 kB fetch nearly all of our time is system
 * calls. libuv 1.44's uv_poll_t costs six of them per connection (its init tries
 * an EPOLL_CTL_ADD and DEL and sets FIONBIO, each start is a DEL and an ADD) and
 * two for each change of interest, where an edge-triggered registration costs one
 * in a connection's life and none for a change. So sockets register here, and the
 * readiness they were told of is remembered by their owner (tcp.c) until the
 * kernel answers EAGAIN.
 *
 * libuv keeps what it is good at: the resolver's threads, and any handle that a
 * datapath wants. Its loop is embedded by its own descriptor (uv_backend_fd()) and
 * run without waiting when that becomes readable, when one of its timers is due,
 * or when a handle was started since. Whoever has `loop->uv` may use it as usual,
 * from this thread.
 *
 * A turn: wait; events; deferred calls; libuv; timers; the owner's turn_end
 * (session_run); burials. An object whose watch may still be in the batch of
 * events being worked on is buried, not freed.
 */
#ifndef FS_LOOP_H
#define FS_LOOP_H

#include <sys/epoll.h>
#include <uv.h>

#include "base/histogram.h"
#include "base/list.h"
#include "base/timer.h"

/* A descriptor registered with the loop. */
struct watch {
	int fd;
	/* events: EPOLL* bits. NULL = no longer interested (the memory stays until the turn's end). */
	void (*fn)(struct watch *w, unsigned events);
};

/* A call that is made from the loop, later; at most once per defer(). */
struct deferred {
	struct list link;
	void (*fn)(struct deferred *d);
};

struct loop_hooks {
	void (*turn_end)(void *arg);
	/* After loop_wake(), once or more often than that was called. */
	void (*woken)(void *arg);
	/* Absolute, the loop's clock; UINT64_MAX = none. Asked before each wait. */
	uint64_t (*deadline)(void *arg);
	void *arg;
};

/*
 * How long others had to wait: what has become ready is not looked at before the turn is
 * over. Read with relaxed atomic loads, from any thread.
 */
struct loop_stats {
	uint64_t turn_began_ns; /* CLOCK_MONOTONIC; 0 = it sleeps */
	struct histogram turns; /* from waking to the end of the turn */
};

#define LOOP_BATCH 128

struct loop {
	uint64_t now_ns; /* CLOCK_MONOTONIC, read once per turn */
	uint64_t turn;   /* counts turns */
	struct timers timers;
	struct loop_stats stats;
	uv_loop_t uv;
	/* private */
	int epfd;
	bool stopping;
	struct watch uv_watch;
	uv_async_t wake;
	struct list deferred, graves;
	struct loop_hooks hooks;
	struct epoll_event events[LOOP_BATCH];
};

/* hooks is copied; NULL functions are not called. 0 or -errno. */
int loop_init(struct loop *l, const struct loop_hooks *hooks);
/*
 * Frees what loop_init() made; nothing may be registered any more. False when
 * libuv still has work in another thread (a name look-up that cannot be stopped):
 * *l must then never be freed and exit(3) may wait for it.
 */
bool loop_fini(struct loop *l);

/* 0 or -errno. events as for epoll_ctl(2). */
int loop_add(struct loop *l, struct watch *w, uint32_t events);
int loop_mod(struct loop *l, struct watch *w, uint32_t events);
/* No call after this; w->fd stays open and is no longer registered. */
void loop_del(struct loop *l, struct watch *w);
/* No call after this. The caller closes w->fd next, which is what unregisters it. */
void loop_forget(struct watch *w);

void deferred_init(struct deferred *d, void (*fn)(struct deferred *d));
/* Idempotent. Called in the next turn at the latest, never from in here. */
void loop_defer(struct loop *l, struct deferred *d);
void deferred_cancel(struct deferred *d);
/* At the end of this turn, once nothing can refer to the object. Takes d out of the deferred. */
void loop_bury(struct loop *l, struct deferred *d);

/* From any thread, before loop_fini(): the loop's thread calls hooks.woken soon. */
void loop_wake(struct loop *l);

/* Runs turns until loop_stop(). */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
/* One turn; waits at most timeout_ms (-1 = as long as there is nothing to do). */
void loop_turn(struct loop *l, int timeout_ms);

#endif
