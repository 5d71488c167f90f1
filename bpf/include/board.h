/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * board.h - what a flightsplice process tells everybody else about itself: the values of the pinned
 * maps of board.bpf.c. The process writes them about once a second; `bpftool map dump pinned` prints
 * them with the names below, and `flightsplice streams`, `top` and so on read them.
 *
 * They are for a person with bpftool first. So texts are texts (printable ASCII, NUL-terminated,
 * cut where too long), moments are there as text and as a number, units are in the names, and there
 * is nothing that has to be decoded.
 *
 *   build      array of 1   who writes here; `schema` says how everything else is to be read
 *   totals     array of 1   counters of the process since its start, and when it wrote last
 *   drops      hash         what was lost or refused, by reason
 *   streams    hash         live streams
 *   clients    hash         connections of clients
 *   executors  hash         executors in use or with connections kept, for each worker
 *
 * `number` names an object of a worker for as long as the process lives. A reader that is not of the
 * same schema must not interpret more than the first fields of `build`, which never move.
 */
#ifndef FS_BOARD_H
#define FS_BOARD_H

#include <linux/types.h>

/* Changes whenever the layout or the meaning of anything below does. */
#define BOARD_SCHEMA 1

/* Entries that the maps hold; the workers share them evenly. More are counted as left out. */
#define BOARD_STREAMS 16384
#define BOARD_CLIENTS 16384
#define BOARD_EXECUTORS 4096
#define BOARD_DROPS 96

#define BOARD_TIME_LEN 24 /* "2026-11-30 11:42:07.123", UTC */
#define BOARD_ADDR_LEN 56 /* "[v6]:port" */
#define BOARD_NAME_LEN 80 /* "host:port" as tickets have it; a longer host ends with '~' */
#define BOARD_JOB_LEN 40
#define BOARD_WORD_LEN 16 /* a state, a datapath */
#define BOARD_REASON_LEN 32

/* Key of streams, clients and executors. */
struct board_key {
	__u32 worker;
	__u32 number;
};

struct board_stream {
	char job[BOARD_JOB_LEN]; /* "" until the ticket has come */
	__u32 stage;
	__u32 partition;
	char executor[BOARD_NAME_LEN];         /* as the ticket names it */
	char executor_address[BOARD_ADDR_LEN]; /* connected to; "" before that */
	char client[BOARD_ADDR_LEN];
	char state[BOARD_WORD_LEN];
	char waits_for[BOARD_REASON_LEN];
	char since[BOARD_TIME_LEN]; /* when it moved on last */
	char datapath[BOARD_WORD_LEN];
	char datapath_why[48]; /* why not a better one */
	__u64 bytes;           /* DATA delivered */
	__u64 granted_bytes;   /* credit outstanding at the executor */
	__u64 held_bytes;      /* received, waiting here for the client */
	char opened[BOARD_TIME_LEN];
	__u64 since_unix_ms;
	__u64 opened_unix_ms;
	__u64 written_unix_ms; /* when all this was so */
	__u32 stream_id;       /* HTTP/2, on the client's connection */
	__u32 client_number;
	__u32 executor_number;
	/*
	 * While the kernel forwards it (spliced = 1): its counter is pairs[kernel_slot], if that
	 * has kernel_generation, and `bytes` contains the kernel_bytes of it.
	 */
	__u32 spliced;
	__u32 kernel_slot;
	__u32 kernel_generation;
	__u64 kernel_bytes;
};

struct board_client {
	char client[BOARD_ADDR_LEN];
	char state[BOARD_WORD_LEN];
	char waits_for[BOARD_REASON_LEN];
	char since[BOARD_TIME_LEN];
	char datapath[BOARD_WORD_LEN];
	__u64 bytes; /* of its live streams */
	__u64 inflight_bytes;
	__s64 window_bytes; /* what its connection window leaves us */
	char opened[BOARD_TIME_LEN];
	__u64 since_unix_ms;
	__u64 opened_unix_ms;
	__u32 streams;
	__u32 streams_waiting_for_client;
	__u32 streams_waiting_for_executor;
	__u32 pad;
};

struct board_executor {
	char executor[BOARD_NAME_LEN];
	char address[BOARD_ADDR_LEN]; /* of a live stream's connection; "" without one */
	__u64 bytes;                  /* of its live streams */
	__u64 granted_bytes;
	__u64 held_bytes;
	char used[BOARD_TIME_LEN]; /* last time that a stream asked for it */
	__u64 used_unix_ms;
	char quietest_since
		[BOARD_TIME_LEN]; /* of the stream that waits for it longest; "" = none */
	__u64 quietest_since_unix_ms;
	__u32 streams;
	__u32 streams_unconnected; /* still waiting for a connection to it */
	__u32 streams_waiting_for_executor;
	__u32 streams_waiting_for_client;
	__u32 idle_connections;
	__u32 streams_served; /* since it was first asked for, and not forgotten since */
};

struct board_drop_key {
	char reason[BOARD_REASON_LEN];
};

struct board_drop {
	__u64 times; /* how often; 0 where only bytes are counted */
	__u64 bytes; /* DATA of executors that reached no client; 0 where it is not about bytes */
	char meaning[64];
};

struct board_totals {
	char written[BOARD_TIME_LEN];
	__u64 written_unix_ms;
	char state[BOARD_WORD_LEN]; /* "starting", "ready", "draining" */
	__u64 clients;              /* open */
	__u64 clients_accepted;
	__u64 clients_refused;
	__u64 streams; /* open */
	__u64 streams_opened;
	__u64 streams_complete;
	__u64 streams_ended_by_client;
	__u64 streams_ended_by_executor;
	__u64 streams_ended_by_proxy;
	__u64 streams_ended_by_deadline;
	__u64 streams_ended_by_shutdown;
	__u64 executor_connections; /* open */
	__u64 executor_connections_idle;
	__u64 dials;
	__u64 dial_failures;
	__u64 connections_reused;
	__u64 retries;
	__u64 bytes_from_executors;
	__u64 bytes_to_clients;
	__u64 bytes_by_relay; /* bytes_to_clients = bytes_by_relay + bytes_by_kernel */
	__u64 bytes_by_kernel;
	__u64 bytes_dropped;
	__u64 promotions;
	__u64 granted_bytes; /* now */
	__u64 held_bytes;    /* now */
	/* Of the board itself: entries that had no room when last written, and what writing costs. */
	__u64 streams_left_out;
	__u64 clients_left_out;
	__u64 executors_left_out;
	__u64 board_writes;
	__u64 board_ns;
	__u64 board_errors;
};

struct board_build {
	/* These never move. */
	__u32 schema; /* BOARD_SCHEMA */
	__u32 pid;    /* in its own PID namespace */
	char version[48];
	char started[BOARD_TIME_LEN];
	/* These may. */
	__u64 started_unix_ms;
	char listen[128];
	char datapath[BOARD_WORD_LEN]; /* where large results are promoted to */
	char datapath_why[128];        /* why not better */
	__u32 workers;
	__u32 abi; /* ABI_VERSION of the maps `pairs`, `routes`, `conns`, `info`, `workers` beside these */
};

/* The layout is a contract with readers of another build. */
_Static_assert(sizeof(struct board_key) == 8, "board_key");
_Static_assert(sizeof(struct board_stream) == 480, "board_stream");
_Static_assert(__builtin_offsetof(struct board_stream, bytes) == 376, "board_stream: texts");
_Static_assert(sizeof(struct board_client) == 224, "board_client");
_Static_assert(sizeof(struct board_executor) == 248, "board_executor");
_Static_assert(sizeof(struct board_drop_key) == 32, "board_drop_key");
_Static_assert(sizeof(struct board_drop) == 80, "board_drop");
_Static_assert(sizeof(struct board_totals) == 296, "board_totals");
_Static_assert(sizeof(struct board_build) == 368, "board_build");
_Static_assert(__builtin_offsetof(struct board_build, pid) == 4, "board_build: pid");
_Static_assert(__builtin_offsetof(struct board_build, version) == 8, "board_build: version");
_Static_assert(__builtin_offsetof(struct board_build, started) == 56, "board_build: started");

#endif
