/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look.h - the commands that look at running proxies: streams, executors, clients, stats and top.
 *
 * They see what the processes have pinned, by way of a source that main gives them, and ask nothing of
 * the processes themselves.
 */
#ifndef FS_CLI_LOOK_H
#define FS_CLI_LOOK_H

#include "session/snapshot.h"

struct look_source {
	/* See datapath/board_read.h. */
	int (*read)(const char *pin_dir, struct snapshot **ret, char why[SNAPSHOT_WHY_MAX]);
	void (*free)(struct snapshot *s);
};

/* argv[0] says which of them. Returns an exit code. */
int look_main(const struct look_source *source, int argc, char **argv);

/* Milliseconds between two looks with --watch, and in top. */
#define LOOK_PERIOD_MS 1000

#endif
