/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c - where log lines are built, and how they leave without ever blocking.
 *
 * Building. A line is a buffer on the caller's stack. Fields are added whole or not
 * at all, and the end always fits, because RESERVE bytes are kept back for it. Values
 * are untrusted: quotes, control characters (C1 too, terminals obey them) and bytes
 * that are not UTF-8 are escaped, with JSON's escapes in both formats.
 *
 * Leaving. A worker must not wait for whoever reads standard error. Setting O_NONBLOCK
 * there would set it for every process that shares the open file, a user's shell
 * included. So a pipe or terminal is opened once more through /proc, which gives an
 * open file of our own; on a socket (journald) one send can be told not to wait; a
 * file never makes one wait for a reader. What cannot leave at once is dropped and
 * counted, and the next line that gets through is followed by one that says how many
 * were lost before it. When a part of a line has left, the rest is kept and goes first, so that
 * a line is never torn.
 *
 * Repeats. log_begin_limited() keeps a small table of what was said lately. When it is
 * full of live entries all newcomers share one more, so that an attacker who varies
 * his input meets the limit as well.
 */
#include "obs/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What log_end() may have to append: ,"truncated":true}\n */
#define RESERVE 24

#define LIMIT_SLOTS 64
#define LIMIT_TEXT 80

struct repeat {
	uint64_t hash; /* 0 = free; the last slot is the shared one and never free */
	uint64_t since;
	unsigned count;
	uint64_t suppressed;
	enum config_log_level level;
	char msg[LIMIT_TEXT], key[LIMIT_TEXT];
};

enum how {
	HOW_WRITE, /* plain: a file, or a descriptor of our own that does not block */
	HOW_SEND,  /* a socket */
	HOW_POLL,  /* asked first; another writer could still make us wait */
};

struct log {
	int fd;
	int own_fd; /* opened by us, -1 = none */
	enum how how;
	enum config_log_format format;
	enum config_log_level level;
	uint64_t (*now)(void *arg);
	void *now_arg;

	uint64_t lines, dropped, suppressed; /* atomic; written under the lock */

	pthread_mutex_t lock; /* for all below */
	uint64_t dropped_told;
	unsigned tail_len; /* of a line that has left in part */
	char tail[LOG_LINE_MAX];
	uint64_t next_sweep;
	struct repeat repeats[LIMIT_SLOTS + 1];
};

static const char *const level_names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

static uint64_t system_now(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void count(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* ---- leaving ---- */

static void choose_how(struct log *log, int fd)
{
	char path[32];
	struct stat st;

	log->fd = fd;
	log->own_fd = -1;
	log->how = HOW_POLL;
	if (fstat(fd, &st))
		return;
	if (S_ISREG(st.st_mode)) {
		log->how = HOW_WRITE;
	} else if (S_ISSOCK(st.st_mode)) {
		log->how = HOW_SEND;
	} else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		log->own_fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
		if (log->own_fd < 0)
			return; /* no /proc, or the terminal is another user's */
		log->fd = log->own_fd;
		log->how = HOW_WRITE;
	}
}

/* Bytes taken, or -errno. */
static ssize_t try_write(const struct log *log, const char *buf, size_t len)
{
	struct pollfd pfd = { .fd = log->fd, .events = POLLOUT };
	ssize_t n;

	do {
		if (log->how == HOW_POLL && poll(&pfd, 1, 0) != 1)
			return -EAGAIN;
		n = log->how == HOW_SEND ? send(log->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL)
					 : write(log->fd, buf, len);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static bool flush_tail(struct log *log)
{
	ssize_t n;

	if (!log->tail_len)
		return true;
	n = try_write(log, log->tail, log->tail_len);
	if (n <= 0)
		return false;
	log->tail_len -= (unsigned)n;
	memmove(log->tail, log->tail + n, log->tail_len);
	return !log->tail_len;
}

/* One finished line. False when it cannot leave. */
static bool put_line(struct log *log, const char *buf, unsigned len)
{
	ssize_t n = flush_tail(log) ? try_write(log, buf, len) : -EAGAIN;

	if (n <= 0)
		return false;
	log->tail_len = len - (unsigned)n;
	memcpy(log->tail, buf + n, log->tail_len);
	count(&log->lines, 1);
	return true;
}

/* ---- building ---- */

static bool put(struct log_line *l, const char *s, size_t n)
{
	if (n > LOG_LINE_MAX - RESERVE - l->len)
		return false;
	memcpy(l->buf + l->len, s, n);
	l->len += (unsigned)n;
	return true;
}

static bool put_text(struct log_line *l, const char *s)
{
	return put(l, s, strlen(s));
}

/* Length of the UTF-8 sequence at s (RFC 3629: shortest form, no surrogates); 0 = none. */
static unsigned utf8_len(const unsigned char *s, size_t n)
{
	/* By lead byte: how many bytes follow, and the range of the first of them. */
	static const struct {
		unsigned char lo, hi, more, min, max;
	} leads[] = {
		{ 0xc2, 0xdf, 1, 0x80, 0xbf }, { 0xe0, 0xe0, 2, 0xa0, 0xbf },
		{ 0xe1, 0xec, 2, 0x80, 0xbf }, { 0xed, 0xed, 2, 0x80, 0x9f },
		{ 0xee, 0xef, 2, 0x80, 0xbf }, { 0xf0, 0xf0, 3, 0x90, 0xbf },
		{ 0xf1, 0xf3, 3, 0x80, 0xbf }, { 0xf4, 0xf4, 3, 0x80, 0x8f },
	};

	if (s[0] < 0x80)
		return 1;
	for (unsigned i = 0; i < ARRAY_SIZE(leads); i++) {
		if (s[0] < leads[i].lo || s[0] > leads[i].hi)
			continue;
		if (n <= leads[i].more || s[1] < leads[i].min || s[1] > leads[i].max)
			return 0;
		for (unsigned k = 2; k <= leads[i].more; k++)
			if ((s[k] & 0xc0) != 0x80)
				return 0;
		return leads[i].more + 1U;
	}
	return 0;
}

/* One character of len bytes at s, escaped when it has to be. len 0: a stray byte. */
static bool put_char(struct log_line *l, const unsigned char *s, unsigned len)
{
	char esc[8];

	if (!len)
		return put_text(l, "\\ufffd");
	if (len == 2 && s[0] == 0xc2 && s[1] < 0xa0) {
		snprintf(esc, sizeof(esc), "\\u%04x", s[1]);
		return put_text(l, esc);
	}
	if (len > 1)
		return put(l, (const char *)s, len);
	switch (s[0]) {
	case '"':
		return put_text(l, "\\\"");
	case '\\':
		return put_text(l, "\\\\");
	case '\n':
		return put_text(l, "\\n");
	case '\r':
		return put_text(l, "\\r");
	case '\t':
		return put_text(l, "\\t");
	}
	if (s[0] >= 0x20 && s[0] != 0x7f)
		return put(l, (const char *)s, 1);
	snprintf(esc, sizeof(esc), "\\u%04x", s[0]);
	return put_text(l, esc);
}

/* Whether logfmt may write it without quotes. */
static bool is_bare(const char *value)
{
	const unsigned char *s = (const unsigned char *)value;

	for (; *s; s++)
		if (*s <= ' ' || *s >= 0x7f || *s == '=' || *s == '"' || *s == '\\')
			return false;
	return s != (const unsigned char *)value;
}

static bool put_quoted(struct log_line *l, const char *value)
{
	const unsigned char *s = (const unsigned char *)value;
	size_t n = strlen(value), i = 0;

	if (!put(l, "\"", 1))
		return false;
	while (i < n) {
		unsigned len = utf8_len(s + i, n - i);

		if (i + (len ? len : 1) > LOG_VALUE_MAX)
			break;
		if (!put_char(l, s + i, len))
			return false;
		i += len ? len : 1;
	}
	return (i == n || put(l, "...", 3)) && put(l, "\"", 1);
}

static bool put_key(struct log_line *l, const char *key)
{
	if (l->log->format == LOG_LOGFMT)
		return (!l->len || put(l, " ", 1)) && put_text(l, key) && put(l, "=", 1);
	return put_text(l, l->len ? ",\"" : "{\"") && put_text(l, key) && put(l, "\":", 2);
}

/* A field is there as a whole or not at all. */
static void keep_if(struct log_line *l, unsigned before, bool whole)
{
	if (whole)
		return;
	l->len = before;
	l->truncated = true;
}

/* value needs no escapes and, as JSON, no quotes. */
static void add_raw(struct log_line *l, const char *key, const char *value)
{
	unsigned before = l->len;

	keep_if(l, before, put_key(l, key) && put_text(l, value));
}

void log_str(struct log_line *l, const char *key, const char *value)
{
	unsigned before = l->len;
	bool ok = put_key(l, key);

	if (!value)
		value = "";
	if (l->log->format == LOG_LOGFMT && strlen(value) <= LOG_VALUE_MAX && is_bare(value))
		ok = ok && put_text(l, value);
	else
		ok = ok && put_quoted(l, value);
	keep_if(l, before, ok);
}

void log_u64(struct log_line *l, const char *key, uint64_t value)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%" PRIu64, value);
	add_raw(l, key, buf);
}

void log_i64(struct log_line *l, const char *key, int64_t value)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%" PRId64, value);
	add_raw(l, key, buf);
}

void log_bool(struct log_line *l, const char *key, bool value)
{
	add_raw(l, key, value ? "true" : "false");
}

void log_ms(struct log_line *l, const char *key, uint64_t ns)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%" PRIu64 ".%03u", (uint64_t)(ns / NSEC_PER_MSEC),
		 (unsigned)(ns % NSEC_PER_MSEC / NSEC_PER_USEC));
	add_raw(l, key, buf);
}

void log_addr(struct log_line *l, const char *key, const struct addr *a)
{
	char buf[ADDR_STRLEN];

	log_str(l, key, a ? addr_format(a, buf) : "-");
}

static void start_line(struct log_line *l, struct log *log, enum config_log_level level,
		       const char *msg)
{
	char stamp[40];
	struct timespec ts;
	struct tm tm;
	size_t n;

	l->log = log;
	l->level = level;
	l->len = 0;
	l->truncated = false;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(stamp + n, sizeof(stamp) - n, ".%03uZ", (unsigned)(ts.tv_nsec / 1000000) % 1000);
	log_str(l, "ts", stamp);
	log_str(l, "level", level_names[level]);
	log_str(l, "msg", msg);
}

/* Appends what RESERVE was kept for. */
static void finish_line(struct log_line *l)
{
	bool json = l->log->format == LOG_JSON;
	const char *end = json ? "}\n" : "\n";

	if (l->truncated)
		end = json ? ",\"truncated\":true}\n" : " truncated=true\n";
	static_assert(sizeof(",\"truncated\":true}\n") <= RESERVE, "the end of a line fits");
	memcpy(l->buf + l->len, end, strlen(end));
	l->len += (unsigned)strlen(end);
}

/* ---- repeats ---- */

static uint64_t hash_text(uint64_t h, const char *s)
{
	do
		h = (h ^ (unsigned char)*s) * 0x100000001b3ULL; /* FNV-1a, the NUL too */
	while (*s++);
	return h;
}

static struct repeat *find_repeat(struct log *log, uint64_t hash)
{
	struct repeat *spare = NULL;

	for (unsigned i = 0; i < LIMIT_SLOTS; i++) {
		if (log->repeats[i].hash == hash)
			return &log->repeats[i];
		if (!spare && !log->repeats[i].hash)
			spare = &log->repeats[i];
	}
	return spare ? spare : &log->repeats[LIMIT_SLOTS];
}

static void tell_suppressed(struct log *log, const struct repeat *r)
{
	struct log_line l;

	start_line(&l, log, r->level, r->msg);
	if (r->key[0])
		log_str(&l, "repeated", r->key);
	log_u64(&l, "suppressed", r->suppressed);
	finish_line(&l);
	if (!put_line(log, l.buf, l.len))
		count(&log->dropped, 1);
}

/* Ends the windows that are over at `now` (UINT64_MAX: all). */
static void sweep(struct log *log, uint64_t now)
{
	if (now < log->next_sweep)
		return;
	log->next_sweep = UINT64_MAX;
	for (unsigned i = 0; i <= LIMIT_SLOTS; i++) {
		struct repeat *r = &log->repeats[i];

		if (!r->hash)
			continue;
		if (now != UINT64_MAX && now - r->since < LOG_LIMIT_WINDOW_NS) {
			log->next_sweep = min_u64(log->next_sweep, r->since + LOG_LIMIT_WINDOW_NS);
			continue;
		}
		if (r->suppressed)
			tell_suppressed(log, r);
		*r = (struct repeat){ .hash = 0 };
	}
}

/* Counts one line of (level, msg, key); false when it is one too many. */
static bool within_limit(struct log *log, enum config_log_level level, const char *msg,
			 const char *key)
{
	uint64_t hash = hash_text(hash_text(0xcbf29ce484222325ULL ^ level, msg), key) | 1;
	uint64_t now = log->now(log->now_arg);
	struct repeat *r;

	sweep(log, now);
	r = find_repeat(log, hash);
	if (!r->hash) {
		bool shared = r == &log->repeats[LIMIT_SLOTS];

		r->hash = hash;
		r->since = now;
		r->level = level;
		snprintf(r->msg, sizeof(r->msg), "%s", shared ? "various" : msg);
		snprintf(r->key, sizeof(r->key), "%s", shared ? "" : key);
		log->next_sweep = min_u64(log->next_sweep, now + LOG_LIMIT_WINDOW_NS);
	}
	if (r->count < LOG_LIMIT_BURST) {
		r->count++;
		return true;
	}
	r->suppressed++;
	count(&log->suppressed, 1);
	return false;
}

/* ---- the interface ---- */

struct log *log_new(const struct log_options *o)
{
	struct log *log = calloc(1, sizeof(*log));

	if (!log)
		return NULL;
	if (pthread_mutex_init(&log->lock, NULL)) {
		free(log);
		return NULL;
	}
	choose_how(log, o->fd);
	log->format = o->format;
	log->level = o->level;
	log->now = o->now ? o->now : system_now;
	log->now_arg = o->now_arg;
	log->next_sweep = UINT64_MAX;
	return log;
}

void log_free(struct log *log)
{
	if (!log)
		return;
	sweep(log, UINT64_MAX);
	flush_tail(log);
	if (log->own_fd >= 0)
		close(log->own_fd);
	pthread_mutex_destroy(&log->lock);
	free(log);
}

void log_get_stats(const struct log *log, struct log_stats *ret)
{
	ret->lines = __atomic_load_n(&log->lines, __ATOMIC_RELAXED);
	ret->dropped = __atomic_load_n(&log->dropped, __ATOMIC_RELAXED);
	ret->suppressed = __atomic_load_n(&log->suppressed, __ATOMIC_RELAXED);
}

bool log_begin(struct log_line *l, struct log *log, enum config_log_level level, const char *msg)
{
	if (!log || level > log->level)
		return false;
	start_line(l, log, level, msg);
	return true;
}

bool log_begin_limited(struct log_line *l, struct log *log, enum config_log_level level,
		       const char *msg, const char *key)
{
	bool ok;

	if (!log || level > log->level)
		return false;
	pthread_mutex_lock(&log->lock);
	ok = within_limit(log, level, msg, key);
	pthread_mutex_unlock(&log->lock);
	if (ok)
		start_line(l, log, level, msg);
	return ok;
}

void log_tick(struct log *log)
{
	if (!log)
		return;
	pthread_mutex_lock(&log->lock);
	sweep(log, log->now(log->now_arg));
	pthread_mutex_unlock(&log->lock);
}

/*
 * Says how many lines were lost since this was last said. After a line that got through:
 * a nearly full pipe may take this short one again and again, but no other.
 */
static void tell_dropped(struct log *log)
{
	uint64_t dropped = log->dropped; /* written under the lock only */
	struct log_line l;

	if (dropped == log->dropped_told)
		return;
	start_line(&l, log, LOG_WARN, "log lines lost, the reader is too slow");
	log_u64(&l, "dropped", dropped - log->dropped_told);
	finish_line(&l);
	if (put_line(log, l.buf, l.len))
		log->dropped_told = dropped;
}

void log_end(struct log_line *l)
{
	struct log *log = l->log;

	finish_line(l);
	pthread_mutex_lock(&log->lock);
	sweep(log, log->now(log->now_arg));
	if (put_line(log, l->buf, l->len))
		tell_dropped(log);
	else
		count(&log->dropped, 1);
	pthread_mutex_unlock(&log->lock);
}

void log_msg(struct log *log, enum config_log_level level, const char *fmt, ...)
{
	char text[LOG_VALUE_MAX + 1];
	struct log_line l;
	va_list ap;

	if (!log || level > log->level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (log_begin(&l, log, level, text))
		log_end(&l);
}
