/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - structured log lines, logfmt or JSON.
 *
 *	struct log_line l;
 *
 *	if (log_begin(&l, log, LOG_WARN, "upstream failed")) {
 *		log_addr(&l, "executor", &addr);
 *		log_str(&l, "reason", reason);
 *		log_end(&l);
 *	}
 *
 * A line is built on the stack and leaves in one write(2). All functions may be
 * called from any thread; none allocates, none waits for the reader of the log.
 */
#ifndef FS_LOG_H
#define FS_LOG_H

#include "base/addr.h"
#include "config/config.h"

struct log;

/* A pipe takes this much at once or not at all (PIPE_BUF). */
#define LOG_LINE_MAX 4096
/* Longer values are cut, and end in "...". Bytes before escaping. */
#define LOG_VALUE_MAX 1024

struct log_options {
	int fd; /* stays the caller's and open */
	enum config_log_format format;
	enum config_log_level level;
	uint64_t (*now)(void *arg); /* monotonic, ns; NULL = the system's. For tests. */
	void *now_arg;
};

/* NULL: out of memory. The process must ignore SIGPIPE. */
struct log *log_new(const struct log_options *o);
/* Writes pending "suppressed" lines first. NULL is fine. */
void log_free(struct log *log);

struct log_stats {
	uint64_t lines;      /* written */
	uint64_t dropped;    /* lost: the reader did not keep up, or the descriptor failed */
	uint64_t suppressed; /* repeats held back by log_begin_limited() */
};
void log_get_stats(const struct log *log, struct log_stats *ret);

struct log_line {
	struct log *log;
	enum config_log_level level;
	unsigned len;
	bool truncated;
	char buf[LOG_LINE_MAX];
};

/* False when the level is filtered out; the line must not be used then. log NULL = nothing logged. */
bool log_begin(struct log_line *l, struct log *log, enum config_log_level level, const char *msg);
/*
 * The same for lines that a peer can cause at will. Repeats of (msg, key) beyond
 * LOG_LIMIT_BURST in LOG_LIMIT_WINDOW_NS are held back (false); once the window is
 * over a line with the same msg and suppressed=N tells how many. key may be "".
 */
#define LOG_LIMIT_BURST 10
#define LOG_LIMIT_WINDOW_NS (10 * NSEC_PER_SEC)
bool log_begin_limited(struct log_line *l, struct log *log, enum config_log_level level,
		       const char *msg, const char *key);
/* Writes the "suppressed" lines of windows that are over. Any line written does so too. */
void log_tick(struct log *log);

/* key: [a-z0-9_]+, trusted. A field that no longer fits is left out and truncated=true says so. */
void log_str(struct log_line *l, const char *key, const char *value); /* NULL = "" */
void log_u64(struct log_line *l, const char *key, uint64_t value);
void log_i64(struct log_line *l, const char *key, int64_t value);
void log_bool(struct log_line *l, const char *key, bool value);
void log_ms(struct log_line *l, const char *key, uint64_t ns); /* milliseconds, 3 decimals */
void log_addr(struct log_line *l, const char *key, const struct addr *a); /* NULL or len 0: "-" */
void log_end(struct log_line *l);

/* A line without fields. */
void log_msg(struct log *log, enum config_log_level level, const char *fmt, ...) printf_like(3, 4);

#endif
