/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.h - numbers as a person reads them, at most 11 characters wide.
 */
#ifndef FS_CLI_UNITS_H
#define FS_CLI_UNITS_H

#include "base/base.h"

#define UNITS_LEN 16

/* "0 B", "999 B", "1.0 KiB", "15.9 MiB", "1023 GiB". Returns buf, as the others do. */
const char *units_bytes(char buf[UNITS_LEN], uint64_t bytes);
/* The same per second, "1.2 MiB/s". Negative: "-", it is not known (yet). */
const char *units_rate(char buf[UNITS_LEN], double bytes_per_second);
/* "850ms", "12.3s", "3m12s", "2h05m", "3d04h" */
const char *units_duration(char buf[UNITS_LEN], uint64_t ms);

#endif
