/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_exec.h - an executor: a host that can be dialled, its connections, and
 * the answers it gives as the calls' scripts say.
 */
#ifndef SIM_PEER_EXEC_H
#define SIM_PEER_EXEC_H

#include "scene.h"

enum exec_death {
	DEATH_NONE,
	DEATH_FIN,
	DEATH_RST,
	DEATH_KILL, /* as the kernel closes for a killed process */
};

struct exec_plan {
	const char *name;
	uint16_t port;
	struct link link;
	uint64_t dial_ns;
	/* Outcomes of the first dials, the last repeats; none: DIAL_OK. */
	enum dial_outcome dial[8];
	unsigned n_dial;
	enum policy_verdict verdict;

	struct h2settings settings;
	uint64_t settings_delay_ns; /* NEVER: not even a SETTINGS frame */
	uint32_t conn_window;       /* for requests */
	enum h2_encoding encoding;
	uint64_t ping_gap_ns;
	bool no_pong; /* PINGs stay without answer */
	bool deaf;    /* reads nothing at all */
	bool junk;    /* unknown frames, PRIORITY */
	uint64_t read_gap_ns;
	uint64_t lower_streams_ns; /* MAX_CONCURRENT_STREAMS becomes 1 then; NEVER */
	unsigned goaway_after; /* GOAWAY(max), PING, GOAWAY(last) after so many streams; 0 off */
	uint32_t goaway_last;  /* ... with this id instead of the last; 0 = the last */
	unsigned goaway_conns; /* only the first so many connections do; 0 = all */
	uint64_t die_ns;       /* after connecting; NEVER */
	enum exec_death death;
	unsigned death_conns; /* only the first so many connections; 0 = all */
	bool polite;          /* follows a GOAWAY of the other side with FIN */
	unsigned bye_conns;   /* the first so many: SETTINGS, PING, GOAWAY(0), FIN at once */
	bool lenient;         /* does not insist on the settings the design fixes */
};
extern const struct exec_plan exec_plan_default;

struct exec;

struct exec *exec_new(struct scene *s, const struct exec_plan *plan);
void exec_free(struct exec *x);
struct exec_plan *exec_plan(struct exec *x);
const struct exec_plan *exec_plan_of(const struct exec *x);
unsigned exec_dials(const struct exec *x);    /* connections accepted so far */
unsigned exec_open(const struct exec *x);     /* connections open now */
unsigned exec_requests(const struct exec *x); /* streams seen */
/* Most connections open at the same time. */
unsigned exec_most_open(const struct exec *x);
unsigned exec_pings(const struct exec *x);           /* PINGs received */
unsigned exec_accusations(const struct exec *x);     /* GOAWAYs that blame this executor */
void exec_kill(struct exec *x, enum exec_death how); /* all its connections */
void exec_poke(struct exec *x);
struct sock *exec_sock(struct exec *x, unsigned i); /* of the i-th connection still open, or NULL */
struct h2end *exec_h2(struct exec *x, unsigned i);

#endif
