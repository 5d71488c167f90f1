/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - counters as Prometheus text (exposition format 0.0.4).
 */
#ifndef FS_METRICS_H
#define FS_METRICS_H

#include <stdio.h>

#include "obs/log.h"
#include "session/session.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/*
 * Names end in their unit (bytes, seconds), those of counters in _total. Labels only
 * have values of our own choosing, so the number of samples is fixed.
 */
struct metrics_source {
	/* One per worker, summed. Read with relaxed atomic loads. */
	const struct session_stats *const *stats;
	unsigned n_stats;
	const struct log *log; /* may be NULL */
	bool ready, draining;
	/* Writes more families (exposition.h): of layers that obs does not know. May be NULL. */
	void (*more)(void *ctx, FILE *out);
	void *ctx;
};

/* The text, malloc'ed, for free(). NULL: out of memory. */
char *metrics_render(const struct metrics_source *src, size_t *ret_len);

#endif
