/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - what the process has in the kernel: the datapath, judged at start and given to each
 * worker, and the pinned maps in which it shows itself.
 */
#ifndef FS_KERNEL_H
#define FS_KERNEL_H

#include <stdio.h>

#include "config/config.h"
#include "net/worker.h"
#include "obs/log.h"

struct kernel;

/*
 * Runs the self-test when --datapath allows a kernel datapath and loads it when the
 * kernel has earned it. A datapath that was demanded and cannot be had is -ENOTSUP
 * and has been logged; otherwise 0, *ret is never NULL then.
 */
int kernel_new(const struct config *c, struct log *log, struct kernel **ret);
/* After the workers. NULL is fine. */
void kernel_free(struct kernel *k);

/* Fills the splice_* members: each worker gets its part. */
void kernel_share(struct kernel *k, struct worker_shared *shared);

/*
 * Pins the maps that show the process: once it serves, with its listening addresses. Without the
 * privilege nothing is pinned, and kernel_pins_why() says so.
 */
void kernel_show(struct kernel *k, const char *listen);
/* What the process as a whole shows; about once a second, on the main thread. */
#define KERNEL_TICK_MS 1000
void kernel_tick(struct kernel *k, const char *state, const struct session_stats *const *stats,
		 unsigned n_stats);
/* The folder of the pins, or "off"; and why it is off or not the one asked for, or "". */
const char *kernel_pins(const struct kernel *k);
const char *kernel_pins_why(const struct kernel *k);

/* Its families of /metrics. Any thread, until kernel_free(). */
void kernel_metrics(const struct kernel *k, FILE *out);

/* "sockmap" or "relay": where large results are promoted to; and why not elsewhere, or "". */
const char *kernel_datapath(const struct kernel *k);
const char *kernel_why(const struct kernel *k);

#endif
