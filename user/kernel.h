/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - the process's kernel datapath: judged at start, given to each worker.
 */
#ifndef FS_KERNEL_H
#define FS_KERNEL_H

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

/* "sockmap" or "relay": where large results are promoted to; and why not elsewhere, or "". */
const char *kernel_datapath(const struct kernel *k);
const char *kernel_why(const struct kernel *k);

#endif
