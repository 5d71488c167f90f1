/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_rows.h - from a session's views to the values of the pinned maps. No system calls.
 */
#ifndef FS_DATAPATH_BOARD_ROWS_H
#define FS_DATAPATH_BOARD_ROWS_H

#include "board.h"
#include "session/session.h"

/* Two clocks: the session's, and the one that a person reads. */
struct board_clock {
	uint64_t now_ns;      /* the session's, of this moment */
	uint64_t now_unix_ms; /* the same moment */
	uint64_t offset_ms;   /* between the two, kept as long as it holds */
	uint64_t day;         /* days since 1970 that the text is about */
	char day_text[12];    /* "2026-11-30 " */
};

/*
 * Moves on to a moment. A difference between the clocks that changes by less than a second is
 * drift: what has not happened again keeps its time of day to the millisecond.
 */
void board_clock_set(struct board_clock *c, uint64_t now_ns, uint64_t now_unix_ms);
/* The moment `ago_ns` ago, in milliseconds since 1970. */
uint64_t board_clock_ms(const struct board_clock *c, uint64_t ago_ns);
/* "2026-11-30 11:42:07.123"; "" for 0. */
void board_clock_text(struct board_clock *c, uint64_t unix_ms, char to[BOARD_TIME_LEN]);

/* Copies text, cut to what fits; anything but printable ASCII becomes '?'. from NULL: "". */
void board_text(char *to, size_t size, const char *from);

/* The executor's address that was turned into text last: often the next one's, too. */
struct board_address {
	struct addr addr;
	char text[BOARD_ADDR_LEN];
};

/* *to is zeroed before. client: the row of its client, NULL when that was left out. */
void board_stream_row(struct board_stream *to, const struct stream_view *v,
		      const struct board_client *client, struct board_address *last,
		      struct board_clock *c);
void board_client_row(struct board_client *to, const struct client_view *v, struct board_clock *c);
void board_executor_row(struct board_executor *to, const struct executor_view *v,
			struct board_clock *c);
/* Adds a stream to the row of its client and of its executor; either may be NULL. */
void board_count_stream(const struct board_stream *s, struct board_client *client,
			struct board_executor *executor);

#endif
