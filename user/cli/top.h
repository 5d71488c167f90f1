/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.h - flightsplice top: what running proxies do, on the whole screen.
 */
#ifndef FS_CLI_TOP_H
#define FS_CLI_TOP_H

#include "cli/look.h"

/* Until q, or a signal. Returns an exit code. */
int top_main(const struct look_source *source, const char *pin_dir);

#endif
