/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockmap_internal.h - what the files of the sockmap datapath know of each other.
 *
 *   sockmap.c         the process: programs, maps, pins, lifecycle
 *   sockmap_worker.c  one thread: slots, ring buffer, statistics
 *   sockmap_pair.c    one pair: enrolment, tap, injector, hold, leaving
 *
 * Slots are divided among the workers in equal ranges, so that nobody has to lock. A slot keeps its
 * tap and its injector (two AF_UNIX pairs, already in their maps) from one tenant to the next.
 */
#ifndef FS_DATAPATH_SOCKMAP_INTERNAL_H
#define FS_DATAPATH_SOCKMAP_INTERNAL_H

#include "base/list.h"
#include "datapath/sockmap.h"

struct splice;
struct lifecycle;
struct ring_buffer;

struct sockmap {
	struct splice *prog;
	struct lifecycle *life; /* NULL: not to be had */
	struct bpf_link *life_link;
	uint32_t workers, pairs; /* pairs: per worker */
	struct abi_pair *state;  /* mapped, workers * pairs entries */
	size_t state_len;
	struct abi_worker *worker_state; /* mapped */
	size_t worker_len;
	int upstreams, clients, taps, injectors, routes, inject_slots; /* map fds, owned by prog */
	int watched, conns;                                            /* owned by life; -1 */
	int ring_fd[ABI_MAX_WORKERS];
};

/* Sockets of a slot; -1 = not made yet. */
struct slot {
	struct list link; /* worker->free */
	int tap_tx, tap_rx;
	int inject_tx, inject_rx;
	uint64_t cookies[2]; /* of the injector's ends */
	uint32_t generation; /* of the present or last tenant */
	struct splice_pair *pair;
};

struct sockmap_worker {
	struct sockmap *sm;
	uint32_t index;
	struct slot *slots; /* sm->pairs of them; slots[i] is global slot first + i */
	uint32_t first;
	uint32_t idle; /* free slots that have sockets */
	struct list free;
	struct ring_buffer *ring;
	struct sockmap_callbacks cb;
	uint64_t lost_seen; /* of worker_state[index].lost */
	/*
	 * Totals of pairs that have ended, and what only this worker knows. Readers on other threads
	 * retry while `change` is odd or has moved.
	 */
	uint32_t change;
	struct sockmap_stats stats;
};

struct splice_pair {
	struct sockmap_worker *w;
	struct slot *slot;
	struct abi_pair *state;
	int client_fd, upstream_fd;
	uint32_t index; /* of the slot, global */
	uint64_t upstream_cookie;
	uint64_t upstream_base; /* tcpi_bytes_received before the first splice */
	uint64_t client_base;   /* what client_taken() said before the first splice */
	uint64_t read;          /* bytes of the tap returned to the caller */
	uint64_t consumed;      /* of those, dealt with */
	uint32_t open;          /* published with consumed */
	uint64_t sent;          /* injected bytes */
	bool detached;          /* U is plain again */
	bool lost;              /* bytes of U have been lost on the way out */
	bool left;              /* C is plain again */
	bool dead_told;
	void *owner;
};

/* Takes a free slot with its sockets made. 0, -ENOSPC (none free), or -errno. */
int slot_take(struct sockmap_worker *w, struct slot **ret);
/*
 * Makes the tap take `limit` bytes at once. When it is full the kernel does not wait for it to be
 * read, but tries again on its clock, one tick later (sk_psock_backlog(), net/core/skmsg.c): 2 MB in
 * each 8 ms. The bound on what waits is the pair's tap_limit either way. Twice for the overhead of
 * skbs, and the kernel doubles the figure again.
 */
void slot_tap_room(const struct slot *s, uint64_t limit);
/* Gives it back. dirty: something may still be in the tap or on its way there. */
void slot_give(struct sockmap_worker *w, struct slot *s, bool dirty);
static inline uint32_t slot_index(const struct sockmap_worker *w, const struct slot *s)
{
	return w->first + (uint32_t)(s - w->slots);
}

/* Brackets a change of w->stats and of the set of live pairs. */
void stats_begin(struct sockmap_worker *w);
void stats_end(struct sockmap_worker *w);
/* Adds what the kernel counted for a pair. */
void stats_add_pair(struct sockmap_stats *st, const struct abi_pair *p);

#define stats_count(w, field) __atomic_fetch_add(&(w)->stats.field, 1, __ATOMIC_RELAXED)

#endif
