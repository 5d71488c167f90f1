/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world_int.h - shared by world.c (clock, loop) and net.c (connections, ports,
 * dials); nobody else includes it.
 */
#ifndef SIM_WORLD_INT_H
#define SIM_WORLD_INT_H

#include "base/list.h"
#include "world.h"

/* A port of the subject: freed when closed (ASan finds late users), else kept as a tombstone. */
struct vport {
	struct port port;
	struct world *world;
	struct conn *conn;
	int side;
	unsigned want;
	unsigned fruitless; /* events delivered since the subject last read or wrote here */
	bool dialled;
	bool end_told; /* recv() has reported the end: to hear it again is no progress */
	struct list link;
};

/* What may be delivered in this turn; vport NULL once it has been closed. */
struct ready {
	struct vport *vport;
	unsigned events;
};

struct world {
	uint64_t now;
	struct rng rng;
	struct timers timers;
	struct alarm **due;
	size_t n_due, cap_due;
	struct list once; /* of struct once: world_at() */

	const struct subject_ops *ops;
	void *subject;
	bool in_subject, touched;
	unsigned spins; /* runs of the subject that nothing but its own deadline asked for */

	struct list ports, tombs, conns, dials;
	unsigned n_ports, n_dialled, n_dials, n_clients;
	struct ready *ready;
	size_t n_ready, cap_ready;
	struct host *hosts;
	unsigned n_hosts;

	unsigned spurious;
	void (*check)(void *arg);
	void *check_arg;
	char failure[600];
};

/* Around every call into the subject. */
void subject_enter(struct world *w);
void subject_leave(struct world *w);

/* net.c: what of (want) is true now. */
unsigned vport_events(const struct vport *v);
void net_free(struct world *w);

#endif
