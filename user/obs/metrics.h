/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - counters as Prometheus text (exposition format 0.0.4).
 */
#ifndef FS_METRICS_H
#define FS_METRICS_H

#include "obs/log.h"
#include "session/session.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics_source {
	/* One per worker, summed. Read with relaxed atomic loads. */
	const struct session_stats *const *stats;
	unsigned n_stats;
	const struct log *log; /* may be NULL */
	bool ready, draining;
};

/* The text, malloc'ed, for free(). NULL: out of memory. */
char *metrics_render(const struct metrics_source *src, size_t *ret_len);

#endif
