/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_read.h - reads what the processes below a --pin-dir show (bpf/include/board.h).
 *
 * Nothing is asked of those processes: it works while they are stopped, stuck or dead.
 */
#ifndef FS_DATAPATH_BOARD_READ_H
#define FS_DATAPATH_BOARD_READ_H

#include "session/snapshot.h"

/*
 * All processes whose maps can be read. 0; or -errno and sentences for a person in why (what is
 * missing, what to do) when there is none.
 */
int board_read(const char *pin_dir, struct snapshot **ret, char why[SNAPSHOT_WHY_MAX]);
void board_read_free(struct snapshot *s); /* NULL is fine */

#endif
