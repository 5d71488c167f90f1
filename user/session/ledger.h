/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - flow-control arithmetic (RFC 9113 5.2, 6.9), nothing else.
 *
 * Two ledgers meet in a stream. Towards the client, `window` is what it still
 * lets us send; a DATA byte is written only after it has been taken from both
 * the stream's and the connection's window. Towards the executor, `granted` is
 * credit that we gave and that has not come back as DATA. Its stream windows
 * start at 0 (INITIAL_WINDOW_SIZE=0), so an executor can send only what this
 * ledger granted, and what it has sent beyond the client's windows waits in our
 * memory (`held`). granted + held is the memory a stream can cost, and its
 * bound is the target computed here:
 *
 *   - as much as the client's windows allow, so that a large window is used
 *     whole and nothing waits here; of the connection's window, and of
 *     --client-inflight, an equal share for each stream, so that one that nobody
 *     reads never takes what its siblings need;
 *   - but at least LEDGER_LEND for the client as a whole: with small windows the
 *     executor's next bytes are then already here when the client's WINDOW_UPDATE
 *     comes, and the second round trip is off the path (docs/decisions/0002);
 *   - and never less than LEDGER_FLOOR, so that no stream has to wait for
 *     another one's memory.
 *
 * A `strict` stream's bytes reach the client without us: it is granted what the
 * client's windows allow and not a byte more, within the same bounds; of the
 * connection's window an equal share, and a share that is worth a WINDOW_UPDATE or
 * nothing.
 */
#ifndef FS_LEDGER_H
#define FS_LEDGER_H

#include "h2/frame.h"

#define LEDGER_LEND (256 * KiB)
#define LEDGER_FLOOR (16 * KiB)

/*
 * Adds a WINDOW_UPDATE increment to a window. 0, or H2_PROTOCOL_ERROR (increment
 * 0) or H2_FLOW_CONTROL_ERROR (above 2^31-1); *window is unchanged then.
 */
uint32_t ledger_open(int64_t *window, uint32_t increment);

/*
 * INITIAL_WINDOW_SIZE changed: shifts a stream's window by the signed difference
 * (RFC 9113 6.9.2). 0 or H2_FLOW_CONTROL_ERROR.
 */
uint32_t ledger_shift(int64_t *window, int64_t delta);

struct ledger_view {
	int64_t stream_window, conn_window; /* what the client lets us send */
	uint64_t granted, held;             /* bytes, this stream */
	uint64_t others_granted;            /* bytes, the client's other streams */
	uint64_t client_cap;                /* --client-inflight */
	uint64_t client_used;               /* granted + held + queued, all streams of the client */
	uint64_t worker_cap, worker_used;   /* the same for the worker */
	uint32_t streams;                   /* live streams of the client, >= 1 */
	bool strict; /* spliced in the kernel: nothing can be held, so nothing is lent */
};

/*
 * Bytes of credit to grant the executor now; 0 when it is not worth a
 * WINDOW_UPDATE yet (the executor still has enough).
 */
uint32_t ledger_grant(const struct ledger_view *v);

#endif
