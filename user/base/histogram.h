/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram.h - how long things took, counted in fixed buckets.
 *
 * One thread adds, any thread reads: relaxed 64-bit stores and loads, as struct
 * session_stats has them, and nothing but 64-bit counters inside, so that histograms may
 * be a part of it. The buckets are the same everywhere, from what a cached result takes
 * to what only a stuck one does: histograms of all workers can be summed.
 */
#ifndef FS_HISTOGRAM_H
#define FS_HISTOGRAM_H

#include "base/base.h"

#define HISTOGRAM_BUCKETS 20

struct histogram {
	uint64_t count[HISTOGRAM_BUCKETS]; /* not cumulative */
	uint64_t sum_ns;
};

/* Bucket i counts what took no longer than this; the last bucket has no bound. */
extern const uint64_t histogram_bound_ns[HISTOGRAM_BUCKETS - 1];

/* From the one thread that writes it. */
void histogram_add(struct histogram *h, uint64_t ns);
/* Adds what *from has to *sum, which is the caller's own. */
void histogram_sum(struct histogram *sum, const struct histogram *from);

#endif
