/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_writer.h - shows the process in pinned maps (bpf/include/board.h says what is in them).
 *
 * Each worker writes its own streams, clients and executors, from its own thread; the main thread
 * writes what belongs to the process. A write is bounded in entries and, because the next one is put
 * off in proportion to what it took, in the worker's time.
 */
#ifndef FS_DATAPATH_BOARD_WRITER_H
#define FS_DATAPATH_BOARD_WRITER_H

#include "datapath/pins.h"
#include "session/session.h"

struct board_writer;
struct sockmap_stats;

struct board_identity {
	const char *listen;       /* "[::]:50060,..." */
	const char *datapath;     /* where large results are promoted to */
	const char *datapath_why; /* why not better, or "" */
};

/*
 * Makes the maps; nothing is to be seen before board_writer_show(). 0, or -errno and why (which
 * privilege). pins must outlive it.
 */
int board_writer_new(struct pins *pins, unsigned workers, struct board_writer **ret,
		     char why[PINS_WHY_MAX]);
/* After the workers. The pins stay until pins_free(). NULL is fine. */
void board_writer_free(struct board_writer *b);

/* Pins the maps, `build` last: whoever finds that one finds all. Once, on the main thread. */
int board_writer_show(struct board_writer *b, const struct board_identity *id,
		      char why[PINS_WHY_MAX]);

/*
 * On worker `index`'s thread: writes what is in s and removes what has gone. now_ns: the session's
 * clock (CLOCK_MONOTONIC). Returns after how long to call it again, 0 = there is nothing left to show.
 */
uint64_t board_writer_worker(struct board_writer *b, unsigned index, const struct session *s,
			     uint64_t now_ns);

/* What the process has to say; on the main thread, about once a second (BOARD_PERIOD_NS). */
struct board_process {
	const char *state; /* "starting", "ready", "draining" */
	const struct session_stats *const *stats;
	unsigned n_stats;
	const struct sockmap_stats *kernel; /* of all workers; NULL = no kernel datapath */
};
void board_writer_process(struct board_writer *b, const struct board_process *p);

#define BOARD_PERIOD_NS NSEC_PER_SEC

#endif
