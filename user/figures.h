/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.h - the part of /metrics that only `main` can write: of the kernel datapath and of the
 * workers' loops, which obs does not know.
 */
#ifndef FS_FIGURES_H
#define FS_FIGURES_H

#include <stdio.h>

#include "datapath/selftest.h"
#include "net/worker.h"

/* Where large results are promoted to, and why not elsewhere ("" = nothing to say). */
void figures_datapath(FILE *out, const char *datapath, const char *why);
void figures_selftest(FILE *out, const struct selftest *t);
/* s: the sum over workers. */
void figures_sockmap(FILE *out, const struct sockmap_stats *s);
/* Any thread, while they run. */
void figures_workers(FILE *out, struct worker *const *workers, unsigned n);

#endif
