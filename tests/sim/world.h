/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - a clock, a network and a loop, all of them made up.
 *
 * The world implements what session/env.h asks for: byte streams (`struct
 * port`), dialling and a clock. Peers (clients, executors) use the other ends
 * of the same connections through `struct sock`. Everything random comes from
 * one seed, so a run can be repeated exactly.
 *
 * A connection has two directions. Bytes that were sent sit in the send buffer
 * until the link's latency has passed *and* the receive buffer has room, then
 * they are readable: so a reader that stops fills first one, then the other,
 * and the sender gets EAGAIN. The network loses nothing that TCP would not
 * lose; a lossy one shows as delay (jitter, partitions) and as resets.
 *
 * One turn of the loop collects everything that may legally happen now (timers
 * that are due, ports with an event that was asked for, and now and then a
 * spurious event), runs a random part of it in random order, then lets the
 * subject run, as session_run() is to be called after each batch. When nothing
 * may happen the clock jumps to the next deadline.
 *
 * The contract of env.h is asserted on both sides: no callback while the
 * subject is active or after close() or dial_cancel(); no operation on a port
 * that was closed, outside a call into the subject, or with an argument that
 * makes no sense.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "base/timer.h"
#include "session/env.h"
#include "util.h"

struct world;
struct conn;

/* Something that happens at a time. Intrusive; zero-initialised is not armed. */
struct alarm {
	struct timer timer;
	struct world *world;
	void (*fire)(void *arg);
	void *arg;
	size_t due; /* 1-based place among what may happen now; 0 = not due */
};

void alarm_set(struct world *w, struct alarm *a, uint64_t at_ns, void (*fire)(void *), void *arg);
/* Like alarm_set(), but never later than it already is. */
void alarm_soon(struct world *w, struct alarm *a, uint64_t at_ns, void (*fire)(void *), void *arg);
void alarm_clear(struct alarm *a); /* idempotent */
/* Runs fire(arg) once at at_ns; nothing to free. */
void world_at(struct world *w, uint64_t at_ns, void (*fire)(void *), void *arg);

/* What a connection is made of. Both directions have the same properties. */
struct link {
	uint32_t buffer; /* bytes of a send buffer, and of a receive buffer */
	uint32_t chunk;  /* the most one read or write moves; 0 = no limit */
	uint64_t latency_ns;
	uint64_t jitter_ns;
	unsigned eagain_percent; /* writes that say EAGAIN although there is room */
};

/* A peer's end. */
struct sock {
	struct conn *conn;
	int side; /* 0 opened the connection, 1 accepted it */
	/* Something may have changed: bytes, room, FIN or RST. Never inside a sock_ call. */
	void (*ready)(void *arg);
	void *arg;
};

enum sock_close {
	SOCK_FIN, /* as close(2) does: FIN, or RST when there is unread data; later data earns RST */
	SOCK_RST, /* RST; what was not delivered yet is lost */
};

/* > 0 bytes, 0 FIN, -EAGAIN, other -errno dead. */
ssize_t sock_recv(struct sock *s, void *buf, size_t len);
ssize_t sock_send(struct sock *s, const void *buf, size_t len);
size_t sock_room(const struct sock *s);
/* Bytes sent in the other direction that this end has not read yet. */
size_t sock_pending(const struct sock *s);
void sock_shutdown(struct sock *s);
/* No ready() any more. Idempotent. */
void sock_close(struct sock *s, enum sock_close how);
bool sock_closed(const struct sock *s);
/* Nothing crosses, in either direction, until until_ns (UINT64_MAX: for ever). */
void sock_partition(struct sock *s, uint64_t until_ns);
/* The same for what this end sends (outbound) or receives only. */
void sock_partition_one(struct sock *s, bool outbound, uint64_t until_ns);
const struct addr *sock_addr(const struct sock *s); /* of the end that opened it */
/* Both ends are closed, or the other one was a port that is closed now. */
bool sock_orphan(const struct sock *s);

/* What is proven: a forwarder behind this table (the session, or the toy of the self-test). */
struct subject_ops {
	void *(*create)(const struct env *env);
	void (*accept)(void *s, struct port *port);
	void (*run)(void *s);
	uint64_t (*next_deadline)(const void *s);
	void (*drain)(void *s);
	bool (*idle)(const void *s);
	const void *(*stats)(const void *s); /* struct session_stats */
	void (*destroy)(void *s);
};

enum dial_outcome {
	DIAL_OK,
	DIAL_REFUSED,
	DIAL_BLACKHOLE,  /* nothing ever comes back */
	DIAL_NO_HOST,    /* the resolver says: not found */
	DIAL_TRY_AGAIN,  /* the resolver says: temporary */
	DIAL_DENIED,     /* policy */
	DIAL_NO_FDS,     /* dial() itself returns NULL */
	DIAL_UNROUTABLE, /* EHOSTUNREACH */
};

struct host {
	const char *name;
	uint16_t port;
	struct link link;
	uint64_t dial_ns; /* until a dial is decided */
	/* Outcome of the n-th dial, n from 0. */
	enum dial_outcome (*outcome)(void *arg, unsigned n);
	enum policy_verdict verdict; /* for DIAL_DENIED */
	/* Takes the accepting end. */
	void (*accepted)(void *arg, struct sock *s);
	void *arg;
	unsigned dials; /* filled by the world */
};

struct world *world_new(uint64_t seed);
/* The subject must be gone. Peers' sockets are invalid afterwards. */
void world_free(struct world *w);
uint64_t world_now(const struct world *w);
struct rng *world_rng(struct world *w);
/* The tables of the env this world offers; ctx is the world. */
extern const struct env_ops world_env_ops;

void world_attach(struct world *w, const struct subject_ops *ops, const struct env *env);
void world_detach(struct world *w); /* destroys the subject; idempotent */
const void *world_stats(const struct world *w);
void world_drain(struct world *w);
/* When it wants to run next; UINT64_MAX: never. */
uint64_t world_subject_deadline(const struct world *w);
bool world_subject_idle(const struct world *w);
/* True while a call into the subject is on the stack. */
bool world_in_subject(const struct world *w);

/* The kernel that large results are promoted to; ctx is the world. */
extern const struct splice_ops world_splice_ops;
/* So many percent of enrolments are refused, for good or until later. */
void world_set_splice_refusals(struct world *w, unsigned percent);
unsigned world_pairs(const struct world *w);    /* spliced now */
unsigned world_enrolled(const struct world *w); /* ever */

void world_add_host(struct world *w, const struct host *h); /* copied */
/* A client connects; the subject gets the other end after the link's latency. */
struct sock *world_connect(struct world *w, const struct link *link);

/* Ports the subject holds, and dials under way. */
unsigned world_ports(const struct world *w);
unsigned world_dialled_ports(const struct world *w);
unsigned world_dials(const struct world *w);

/* Called after each turn, for invariants. */
void world_set_check(struct world *w, void (*check)(void *arg), void *arg);

/* Percent of turns with a spurious event; order is always shuffled. */
void world_set_spurious(struct world *w, unsigned percent);

/*
 * Turns the loop until done() says so (0), the fake clock has passed until_ns
 * (-ETIMEDOUT), nothing is left that could ever happen (-EDEADLK), or something
 * has failed (-ECANCELED). done may be NULL.
 */
int world_run(struct world *w, uint64_t until_ns, bool (*done)(void *arg), void *arg);

/* Notes the first failure; the run ends at the next turn. */
void world_fail(struct world *w, const char *fmt, ...) printf_like(2, 3);
const char *world_failure(const struct world *w); /* NULL: none */
/* Prints when verbose. */
void world_log(const struct world *w, const char *fmt, ...) printf_like(2, 3);
extern bool world_verbose;

#endif
