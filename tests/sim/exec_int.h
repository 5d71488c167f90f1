/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_int.h - shared by peer_exec.c (connections) and answer.c (answers);
 * nobody else includes it.
 */
#ifndef SIM_EXEC_INT_H
#define SIM_EXEC_INT_H

#include "peer_exec.h"

struct exec {
	struct scene *s;
	struct world *w;
	struct exec_plan plan;
	struct xconn **conns; /* closed ones too */
	unsigned n_conns, most_open, requests, pings;
	unsigned accusations; /* GOAWAYs that say the executor broke the protocol */
};

enum reply_state {
	REPLY_REQUEST, /* the message is not complete */
	REPLY_HEAD,    /* the response HEADERS are due at not_before */
	REPLY_BODY,
	REPLY_END,    /* all bytes sent; the end is due at not_before */
	REPLY_SILENT, /* sends nothing more, on purpose */
	REPLY_OVER,
};

/* One stream at an executor. */
struct reply {
	struct xconn *conn;
	struct h2stream *st;
	struct bytes request;
	struct call *call; /* NULL until the ticket is known, and once it is over */
	const struct answer *a;
	char *timeout;
	bool metadata, request_ended;
	enum reply_state state;
	uint64_t not_before;
	unsigned empties; /* empty DATA frames in a row */
	unsigned all_empties;
};

struct xconn {
	struct exec *x;
	struct sock *sock;
	struct h2end h;
	struct alarm tick;
	unsigned index; /* 0 for the first connection to this host */
	uint64_t born, ping_at, read_at;
	bool gone, said_hello, lowered, goaway_first, got_goaway;
	uint32_t last_stream_cut; /* of our final GOAWAY; 0 none */
	unsigned n_streams;
	enum exec_death die_flushed; /* ends like this once the output is sent */
	struct reply **replies;
	unsigned n_replies;
};

void xconn_wake(struct xconn *c, uint64_t at);
void xconn_die(struct xconn *c, enum exec_death how);

/* answer.c */
void reply_new(struct xconn *c, struct h2stream *st, const struct fields *f);
void reply_free(struct reply *r);
void reply_request(struct reply *r, const uint8_t *p, size_t n, bool end);
/* Nothing more on this stream. broken: not because the answer was complete. */
void reply_over(struct reply *r, bool broken);
/* Sends what may be sent now. True: stopped because the output is full, there may be more. */
bool replies_pump(struct xconn *c);

#endif
