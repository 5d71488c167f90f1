/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.h - what peers that know HTTP/2 send, right or wrong on purpose, and a way to
 * bring everything that is still open to its end.
 */
#ifndef TESTS_FUZZ_SCRIPT_H
#define TESTS_FUZZ_SCRIPT_H

#include "fuzz/world.h"

/* Limits that are small, so that a short run reaches them. variant: any number. */
struct config script_config(unsigned variant);

/* Preface and SETTINGS. initial: INITIAL_WINDOW_SIZE, 0 = the default. */
void client_hello(struct peer *p, uint32_t initial);

enum ticket_kind {
	TICKET_GOOD,
	TICKET_NO_HOST,
	TICKET_GARBAGE,
	TICKET_COMPRESSED,
	TICKET_TOO_LARGE,
	TICKET_EXTRA,
	TICKET_HALF,
	TICKET_EMPTY,
	TICKET_BULKY, /* good, and longer than a frame */
	TICKETS,
};

enum path_kind { PATH_DO_GET, PATH_CHECK, PATH_WATCH, PATH_OTHER, PATH_UNKNOWN, PATHS };

struct request_shape {
	enum ticket_kind ticket;
	enum path_kind path;
	unsigned host;
	bool end_on_data;  /* END_STREAM on the message; else on an empty frame */
	bool no_end;       /* never */
	bool pieces;       /* the message in several frames */
	bool padded;       /* HEADERS and DATA */
	bool continuation; /* the block in two frames */
	bool timeout;      /* grpc-timeout: 1S */
	bool malformed;    /* a field that is not legal */
};
/* Returns the stream's id. */
uint32_t client_request(struct peer *p, const struct request_shape *s);

void send_settings(struct peer *p, uint16_t id, uint32_t value);
void send_update(struct peer *p, uint32_t stream, uint32_t inc);
void send_rst(struct peer *p, uint32_t stream, uint32_t code);
void send_ping(struct peer *p, bool ack);
void send_goaway(struct peer *p, uint32_t last, uint32_t code);

enum head_kind {
	HEAD_PLAIN,
	HEAD_PADDED,
	HEAD_CONTINUATION,
	HEAD_INCREMENTAL, /* literals to be added to a table */
	HEAD_DYNAMIC,     /* then used from it */
	HEAD_UPDATE,      /* with a table size update in front */
	HEAD_INFORMATIONAL,
	HEAD_HTTP_503, /* ends the stream without a grpc-status */
	HEAD_ONLY,     /* trailers-only, grpc-status 0 */
	HEAD_NO_STATUS,
	HEAD_ILLEGAL,
	HEADS,
};
void exec_head(struct peer *p, struct half *s, enum head_kind kind);
/* n bytes of content that is nowhere repeated. */
void exec_data(struct peer *p, struct half *s, size_t n, uint8_t pad, bool end);
/* status < 0: trailers without one. split: in two frames. */
void exec_trailers(struct peer *p, struct half *s, int status, bool split);
/* What the executor may still send. */
int64_t exec_credit(const struct half *s);

/*
 * All peers behave: dials succeed, executors answer with at most `bytes` more of DATA for each
 * stream and then end it, clients take everything.
 */
void script_serve(struct world *w, size_t bytes);
/*
 * Goes on until every stream of every client that has not been muddied is over; a stream that
 * is not, a few seconds later, hangs.
 */
void script_complete(struct world *w);

#endif
