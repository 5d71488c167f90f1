/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.h - the admin HTTP server: metrics, health, live streams, configuration.
 *
 * Runs in threads of its own (libmicrohttpd), so that it answers while a worker
 * is busy. It only reads, by GET and HEAD:
 *	/healthz   200 while the process lives
 *	/readyz    200, or 503 "starting" / "draining"
 *	/metrics   Prometheus text
 *	/streams   JSON, see streams.h
 *	/executors likewise
 *	/config    JSON: each flag with its value
 *	/          a page that shows all this to a person, see status.html
 */
#ifndef FS_ADMIN_H
#define FS_ADMIN_H

#include "config/config.h"
#include "obs/log.h"
#include "obs/streams.h"

struct admin;

enum admin_state { ADMIN_STARTING, ADMIN_READY, ADMIN_DRAINING };

/* What the server shows. Everything must stay valid until admin_stop() has returned. */
struct admin_source {
	const struct config *config;
	struct log *log;                          /* may be NULL */
	const struct session_stats *const *stats; /* one per worker */
	unsigned n_stats;
	void *ctx; /* for the callbacks, which run on the server's threads, possibly two at once */
	enum admin_state (*state)(void *ctx);
	/*
	 * Adds the live streams and executors of every worker to *into and waits at most
	 * timeout_ms. Returns how many workers did not answer in time. One call at a time.
	 * NULL = /streams and /executors are 404.
	 */
	unsigned (*collect)(void *ctx, unsigned timeout_ms, struct streams *into);
	/* See metrics.h. May be NULL. */
	void (*more_metrics)(void *ctx, FILE *out);
};

/*
 * Listens on *addr (port 0 = any). src is copied. 0, or -errno with *ret_why a static
 * text naming the step that failed ("bind", "listen", ...).
 */
int admin_start(const struct addr *addr, const struct admin_source *src, struct admin **ret,
		const char **ret_why);
/* Answers what is being answered, then ends the threads. NULL is fine. */
void admin_stop(struct admin *a);
/* The address it really listens on. */
const struct addr *admin_addr(const struct admin *a);

#endif
