/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.h - what processes showed at one moment: the views of session.h as another process has
 * them, after a detour by the kernel's memory. Plain values; datapath/board_read makes one, cli
 * shows it.
 */
#ifndef FS_SNAPSHOT_H
#define FS_SNAPSHOT_H

#include "base/base.h"
#include "board.h"

#define SNAPSHOT_FOLDER_MAX 256
#define SNAPSHOT_WHY_MAX 512

enum snapshot_process {
	SNAPSHOT_RUNNING,
	SNAPSHOT_STOPPED, /* by a signal: SIGSTOP, a debugger */
	SNAPSHOT_GONE,    /* died without cleaning up: these are its last words */
};

/* One process. */
struct snapshot_instance {
	char folder[SNAPSHOT_FOLDER_MAX];
	enum snapshot_process process;
	struct board_build build;
	struct board_totals totals;
};

struct snapshot_stream {
	unsigned instance; /* index */
	struct board_key key;
	/*
	 * For a spliced one bytes, granted_bytes and written_unix_ms are those of the moment of
	 * reading: the kernel counts on whatever the process does.
	 */
	struct board_stream v;
};

struct snapshot_client {
	unsigned instance;
	struct board_key key;
	struct board_client v;
};

struct snapshot_executor {
	unsigned instance;
	struct board_key key;
	struct board_executor v;
};

struct snapshot_drop {
	unsigned instance;
	struct board_drop_key key;
	struct board_drop v;
};

struct snapshot {
	uint64_t taken_unix_ms;
	struct snapshot_instance *instances;
	unsigned n_instances; /* at least 1 */
	struct snapshot_stream *streams;
	unsigned n_streams;
	struct snapshot_client *clients;
	unsigned n_clients;
	struct snapshot_executor *executors;
	unsigned n_executors;
	struct snapshot_drop *drops;
	unsigned n_drops;
	char problem[SNAPSHOT_WHY_MAX]; /* of processes that could not be read; "" = none */
};

#endif
