/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - an in-memory world for one session: ports, dials, a clock, a splice.
 *
 * Single-threaded and without a will of its own: it does what it is told, one step after
 * the other, and world_turn() plays the loop. The invariants of every run are here
 * (world_turn, world_finish), those of each connection in peer.c.
 */
#ifndef TESTS_FUZZ_WORLD_H
#define TESTS_FUZZ_WORLD_H

#include "config/config.h"
#include "fuzz/peer.h"
#include "session/session.h"

#define WORLD_PEERS_MAX 48
#define WORLD_CLIENTS_MAX 4
#define WORLD_DIALS_MAX 32
#define WORLD_BUDGET (2u << 20) /* bytes that peers send in one run */
#define WORLD_START (1000 * NSEC_PER_SEC)

struct pair;

struct vport {
	struct port port;
	struct world *world;
	struct peer *peer;
	struct bytes rx; /* sent by the peer, not read by the session */
	bool fin, rst;
	bool hung_up; /* PORT_HANGUP has been told */
	unsigned want;
	uint64_t room;     /* bytes that a write still takes */
	unsigned short_by; /* so many reads to come are short: */
	size_t short_len;  /* ... of at most so many bytes */
	struct pair *pair; /* spliced */
	bool lost; /* bytes that the kernel had for it were dropped: only a reset is right */
};

struct dial {
	struct world *world;
	char host[64];
	dial_done_fn done;
	void *arg;
};

struct world {
	struct config config;
	struct session *session;
	struct session_stats stats; /* as of the last event: outlives the session */
	uint64_t now;
	uint64_t rng;
	bool no_memory; /* an allocation may fail in this run */
	bool inside;    /* the session's code runs: its allocations may fail, see test_failmalloc */
	uint64_t calls_out; /* in this turn */
	uint64_t budget;    /* bytes that peers may still send */
	bool refuse_splice, refuse_dial;
	unsigned eager; /* the kernel works on in one of 2^n calls of splice_ops; 0 never */

	struct peer peers[WORLD_PEERS_MAX]; /* in use: n_peers */
	unsigned n_peers, n_clients;
	struct dial *dials[WORLD_DIALS_MAX]; /* not resolved; n_dials */
	unsigned n_dials;
	struct pair *pairs[WORLD_PEERS_MAX];
	unsigned n_pairs;
	struct call **calls;
	unsigned n_calls;
	uint32_t last_key;
	uint64_t records, promotions;
};

/* splice: with a kernel that splices. */
void world_init(struct world *w, const struct config *config, bool splice);
/*
 * The end: orderly (everybody hangs up, nothing may be left) or at once. Checks the
 * balance, frees all of it.
 */
void world_finish(struct world *w, bool orderly);
/* The loop: callbacks for what is ready, session_run(), until nothing happens. */
void world_turn(struct world *w);
/* Lets ns pass, timer by timer. */
void world_wait(struct world *w, uint64_t ns);
uint32_t world_random(struct world *w);
/* By key; made when it is new. */
struct call *world_call(struct world *w, uint32_t key);

/* A connection comes in; NULL: there are too many. */
struct peer *world_accept(struct world *w);
/* A dial ends: with a connection (err 0), or in phase with err. */
struct peer *world_dialled(struct world *w, unsigned at, int err, enum dial_phase phase);

/* The peer sends; nothing happens when its connection is over or the budget is spent. */
void peer_send(struct peer *p, const void *data, size_t n);
void peer_frame(struct peer *p, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
		size_t n);
void peer_hangup(struct peer *p, bool reset);

/* kernel.c */
extern const struct splice_ops kernel_splice_ops;
/* Handles one skb of at most n bytes of each spliced upstream. False: there was nothing to do. */
bool kernel_step(struct world *w, size_t n);
/* Clients take n bytes of what the kernel holds for them. */
void kernel_drain(struct world *w, uint64_t n);
/* Room for injected bytes, until it is set again. */
void kernel_room(struct world *w, uint64_t n);
/* Tells the session about its pairs; false when there was nothing to tell. */
bool kernel_deliver(struct world *w);

/* Around each call into the session, and around each call out of it. */
static inline void world_enter(struct world *w)
{
	w->inside = true;
}

static inline bool world_out(struct world *w)
{
	bool was = w->inside;

	w->inside = false;
	w->calls_out++;
	return was;
}

static inline void world_back(struct world *w, bool was)
{
	w->inside = was;
}

#endif
