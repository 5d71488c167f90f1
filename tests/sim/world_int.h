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
	struct pair *pair; /* the kernel splices it; see kernel.c */
	bool hung_up;      /* PORT_HANGUP has been told */
	bool end_told;     /* recv() has reported the end: to hear it again is no progress */
	struct list link;
};

/* What may be delivered in this turn; both NULL once it has been closed. */
struct ready {
	struct vport *vport;
	struct pair *pair; /* the port of a splice */
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

	struct list ports, tombs, conns, dials, pairs;
	unsigned n_ports, n_dialled, n_dials, n_clients, n_pairs, n_enrolled;
	unsigned splice_refusals; /* percent of enrolments */
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

/* net.c for kernel.c: the socket behind a port, as a kernel sees it. */
const struct bytes *vport_received(const struct vport *v);
void vport_take(struct vport *v, size_t n); /* off the front of what was received */
size_t vport_push(struct vport *v, const uint8_t *p,
		  size_t n); /* returns what there was room for */
size_t vport_unacked(const struct vport *v);
int vport_error(const struct vport *v);
bool vport_fin(const struct vport *v); /* FIN has come, and all that came before has been taken */

/* kernel.c for net.c and world.c */
void kernel_input(struct pair *p);  /* the upstream's socket has received something */
void kernel_output(struct pair *p); /* the client's socket may have room */
bool kernel_left(const struct pair *p, const struct vport *v); /* v is a plain socket again */
unsigned kernel_events(struct pair *p);
void kernel_deliver(struct pair *p, unsigned events);
struct pair *kernel_pair(struct list *link);
void kernel_free(struct world *w);

#endif
