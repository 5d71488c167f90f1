/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_client.h - a client of the proxy: one connection, any number of calls.
 *
 * Calls are sent in the order in which they were given, each at its time and
 * within the server's MAX_CONCURRENT_STREAMS. Reading and granting are two
 * things here: the client reads its socket as `read_chunk` and `read_gap_ns`
 * say, and opens windows for what it has read as `grant` says. A client that
 * reads but does not grant, and one that grants but does not read, are both
 * possible.
 */
#ifndef SIM_PEER_CLIENT_H
#define SIM_PEER_CLIENT_H

#include "scene.h"

enum grant_mode {
	GRANT_HALF,    /* once half of a window has been used */
	GRANT_ALL,     /* each byte as soon as it was read */
	GRANT_EMPTY,   /* only when the window is used up, all of it */
	GRANT_DRIBBLE, /* when it is used up, a few bytes */
	GRANT_NEVER,
};

enum hangup {
	HANGUP_NEVER,
	HANGUP_GOODBYE, /* GOAWAY and FIN, as Ballista's client does */
	HANGUP_FIN,
	HANGUP_RST,
};

struct caller_plan {
	struct link link;
	struct h2settings settings;
	bool silent;     /* connects and sends nothing */
	const void *raw; /* sent instead of HTTP/2 */
	size_t raw_len;
	uint32_t conn_window; /* the connection window is opened to this */
	enum grant_mode grant, grant_conn;
	uint32_t dribble;        /* most bytes of a GRANT_DRIBBLE */
	uint32_t read_chunk;     /* most bytes read at a time; 0 all */
	uint64_t read_gap_ns;    /* between reads */
	uint64_t grant_delay_ns; /* a grant is sent at most this much later */
	uint32_t write_chunk;    /* most bytes written at a time; 0 all */
	uint64_t write_gap_ns;
	uint64_t ping_gap_ns;     /* 0: no PINGs */
	uint64_t settings_gap_ns; /* a random change of settings each so often; 0: none */
	unsigned settings_changes;
	bool junk;               /* unknown frames and settings, PRIORITY, odd PINGs */
	uint64_t stop_ns;        /* stops reading this long after connecting; NEVER */
	enum hangup hangup;      /* when done, or at hangup_ns */
	uint64_t hangup_ns;      /* NEVER: when all calls are over */
	bool linger;             /* stays when all calls are over */
	bool patient;            /* sends no request before the server's SETTINGS */
	bool ignore_limit;       /* opens more streams than the server allows */
	uint64_t pong_within_ns; /* a PING unanswered for this long is a failure; 0 off */
};
extern const struct caller_plan caller_plan_default;

struct caller;

/* Connects at once. The plan is copied. */
struct caller *caller_new(struct scene *s, const struct caller_plan *plan);
void caller_free(struct caller *c);
void caller_add(struct caller *c, struct call *call);
/* For scripts. */
struct h2end *caller_h2(struct caller *c);
struct caller_plan *caller_plan(struct caller *c); /* may be changed while it runs */
struct sock *caller_sock(struct caller *c);
void caller_poke(struct caller *c); /* looks at plan and output again */
void caller_cancel(struct caller *c, struct call *call);
void caller_hangup(struct caller *c, enum hangup how);
bool caller_gone(const struct caller *c); /* closed by either side */
unsigned caller_pongs(const struct caller *c);
unsigned caller_open_calls(const struct caller *c); /* sent and not over */
/* The GOAWAYs received: how many, and the last one's code and id. */
unsigned caller_goaways(const struct caller *c, uint32_t *ret_last, uint32_t *ret_code);
/* The bytes received that were not HTTP/2 (plan.raw). */
const struct bytes *caller_raw_answer(const struct caller *c);
const struct addr *caller_addr(const struct caller *c);

#endif
