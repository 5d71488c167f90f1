/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look_json.h - a snapshot as one line of JSON. Names are those of bpf/include/board.h.
 */
#ifndef FS_CLI_LOOK_JSON_H
#define FS_CLI_LOOK_JSON_H

#include <stdio.h>

#include "cli/rates.h"

/*
 * command: "streams", "executors", "clients" or "stats". r may be NULL: no rates. 0, or -ENOMEM or
 * -EIO (and said so on standard error).
 */
int look_json(FILE *out, const char *command, const struct snapshot *s, const struct rates *r);

#endif
