/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - everything that a peer can make us do or keep without paying for it, and how much
 * of it it may: the numbers, in one place. docs/limits.md says the same to operators.
 *
 * Two kinds. A rate refills: a peer may spend `burst` at once and `per_second` for ever, and
 * some rates also earn with each request, so that a connection that carries thousands of small
 * results is not taken for an attacker. A cap is a size that is never exceeded.
 *
 * A peer that exhausts one is told ENHANCE_YOUR_CALM (or refused, where a request or a
 * connection is what is too much), the log names the budget, and
 * flightsplice_budget_exhausted_total{budget="..."} counts. Nobody else is affected: each budget
 * belongs to one connection, except `clients`, `clients_per_source` and `memory`.
 *
 * What is not here is paid for: HEADERS with a whole request, DATA that uses flow-control credit
 * that we gave.
 */
#ifndef FS_BUDGET_H
#define FS_BUDGET_H

#include "base/base.h"

/* Rates: burst, per second. */
#define BUDGET_PING_BURST 10000
#define BUDGET_PING_RATE 2500
#define BUDGET_SETTINGS_BURST 1000 /* one for the frame and one for each 256 bytes of it */
#define BUDGET_SETTINGS_RATE 100
#define BUDGET_EMPTY_BURST 10000 /* DATA without content and without END_STREAM */
#define BUDGET_EMPTY_RATE 2500
#define BUDGET_WINDOW_BURST                                                                        \
	20000 /* a client's WINDOW_UPDATE below BUDGET_TINY_WINDOW; all of an executor */
#define BUDGET_WINDOW_RATE 5000
#define BUDGET_WINDOW_EARNED 4 /* with each request */
#define BUDGET_TINY_WINDOW 64  /* bytes */
/* PRIORITY, extensions, ACKs, GOAWAY, frames of streams that are over, informational heads. */
#define BUDGET_CONTROL_BURST 10000
#define BUDGET_CONTROL_RATE 2500
#define BUDGET_CONTROL_EARNED 4
#define BUDGET_RESET_BURST 1000 /* RST_STREAM of a client, and ours for its stream errors */
#define BUDGET_RESET_RATE 100
#define BUDGET_EXECUTOR_RESET_EARNED 1 /* each request may be refused */

/* Caps of one header block: HEADERS and CONTINUATIONs together. */
#define CLIENT_HEADER_BLOCK_MAX 32768u /* bytes on the wire */
#define CLIENT_HEADER_LIST_MAX 16384u  /* decoded, RFC 9113 6.5.2; what we announce */
#define CLIENT_CONTINUATION_MAX 16     /* frames */
#define UPSTREAM_HEADER_BLOCK_MAX 65536u
#define UPSTREAM_HEADER_LIST_MAX 65536u
#define UPSTREAM_CONTINUATION_MAX 64
/* Time from its first byte to its last: --handshake-timeout. */

/* Caps of the bytes that wait for a peer that does not read them. */
#define OUTQ_CTRL_MAX 81920u        /* to a client: the answers of one batch, and more */
#define UPSTREAM_OUT_MAX (1u << 20) /* to an executor */

/*
 * Bytes of results and requests in a worker beyond its part of --total-inflight. When that is
 * used up each stream still gets LEDGER_FLOOR, so that all of them go on: this is for 4096.
 */
#define BUDGET_MEMORY_SLACK (64 * MiB)

/* Connections of one client to one executor. */
#define ROUTE_UPSTREAMS_MAX 16

enum budget_id {
	/* Rates of a client's connection ... */
	BUDGET_CLIENT_PING,
	BUDGET_CLIENT_SETTINGS,
	BUDGET_CLIENT_EMPTY_DATA,
	BUDGET_CLIENT_WINDOW_UPDATE,
	BUDGET_CLIENT_CONTROL,
	BUDGET_CLIENT_RESET,
	/* ... and of an executor's, in the same order. */
	BUDGET_EXECUTOR_PING,
	BUDGET_EXECUTOR_SETTINGS,
	BUDGET_EXECUTOR_EMPTY_DATA,
	BUDGET_EXECUTOR_WINDOW_UPDATE,
	BUDGET_EXECUTOR_CONTROL,
	BUDGET_EXECUTOR_RESET,
	BUDGET_RATES,

	/* Caps. */
	BUDGET_CLIENT_HEADER_BYTES = BUDGET_RATES,
	BUDGET_CLIENT_HEADER_FRAMES,
	BUDGET_CLIENT_HEADER_TIME,
	BUDGET_CLIENT_UNREAD,
	BUDGET_CLIENT_STREAMS, /* --max-streams */
	BUDGET_EXECUTOR_HEADER_BYTES,
	BUDGET_EXECUTOR_HEADER_FRAMES,
	BUDGET_EXECUTOR_HEADER_TIME,
	BUDGET_EXECUTOR_UNREAD,
	BUDGET_CLIENTS,            /* --max-clients */
	BUDGET_CLIENTS_PER_SOURCE, /* --max-clients-per-source */
	BUDGET_MEMORY,             /* --total-inflight and BUDGET_MEMORY_SLACK */
	BUDGETS,
};

#define BUDGET_RATES_EACH BUDGET_EXECUTOR_PING

/* "client_ping" etc.: the label and what the log says. */
const char *budget_name(enum budget_id id);

/* The rates of one connection. All zero: nothing spent. */
struct budgets {
	struct {
		uint64_t at_ns; /* when it was settled last */
		uint32_t spent;
	} rate[BUDGET_RATES_EACH];
};

/* Spends cost of rate `id`; false when it is exhausted (nothing is spent then). now_ns never goes back. */
bool budget_spend(struct budgets *b, enum budget_id id, uint32_t cost, uint64_t now_ns);
/* Gives back up to n of what has been spent. */
void budget_earn(struct budgets *b, enum budget_id id, uint32_t n);

#endif
