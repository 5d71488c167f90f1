/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: what they look like, that nothing in a value can break out of them, and
 * that whoever does not read them cannot stop us.
 */
#include "unit/hex.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "obs/emit.h"

/* A log that writes into one end of a pipe or socket; the test reads the other. */
struct fixture {
	struct log *log;
	int read_fd, write_fd;
	uint64_t now;
	char text[1 << 20]; /* what take() has read, NUL-terminated */
};

static uint64_t fake_now(void *arg)
{
	return *(uint64_t *)arg;
}

static void open_on(struct fixture *f, int fds[2], enum config_log_format format,
		    enum config_log_level level)
{
	struct log_options o = { .format = format, .level = level, .now = fake_now };

	f->read_fd = fds[0];
	f->write_fd = fds[1];
	f->now = NSEC_PER_SEC;
	o.fd = f->write_fd;
	o.now_arg = &f->now;
	f->log = log_new(&o);
	assert_non_null(f->log);
	assert_int_equal(fcntl(f->read_fd, F_SETFL, O_NONBLOCK), 0);
}

static struct fixture *open_pipe(enum config_log_format format, enum config_log_level level)
{
	static struct fixture f;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	open_on(&f, fds, format, level);
	return &f;
}

/* Adds all that can be read now to f->text. */
static const char *take_more(struct fixture *f)
{
	size_t n = strlen(f->text);
	ssize_t got;

	while ((got = read(f->read_fd, f->text + n, sizeof(f->text) - 1 - n)) > 0)
		n += (size_t)got;
	f->text[n] = '\0';
	return f->text;
}

/* All that can be read now. */
static const char *take(struct fixture *f)
{
	f->text[0] = '\0';
	return take_more(f);
}

static void close_all(struct fixture *f)
{
	log_free(f->log);
	close(f->write_fd);
	close(f->read_fd);
}

static unsigned count_lines(const char *s)
{
	unsigned n = 0;

	for (; (s = strchr(s, '\n')); s++)
		n++;
	return n;
}

/* The line without its time stamp, whose form is checked; there must be just one. */
static const char *one_line(struct fixture *f)
{
	static const char pattern[] = "ts=dddd-dd-ddTdd:dd:dd.dddZ ";
	char *s = (char *)take(f);

	assert_int_equal(count_lines(s), 1);
	for (unsigned i = 0; i < sizeof(pattern) - 1; i++) {
		if (pattern[i] == 'd')
			assert_in_range(s[i], '0', '9');
		else
			assert_int_equal(s[i], pattern[i]);
	}
	s[strlen(s) - 1] = '\0';
	return s + sizeof(pattern) - 1;
}

static void log_one(struct fixture *f, const char *value)
{
	struct log_line l;

	assert_true(log_begin(&l, f->log, LOG_INFO, "m"));
	log_str(&l, "v", value);
	log_end(&l);
}

static void expect_logfmt(struct fixture *f, const char *value, const char *written)
{
	char line[4096];

	log_one(f, value);
	snprintf(line, sizeof(line), "level=info msg=m v=%s", written);
	assert_string_equal(one_line(f), line);
}

static void logfmt(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_INFO);

	(void)state;
	expect_logfmt(f, "plain", "plain");
	expect_logfmt(f, "10.0.0.1:5", "10.0.0.1:5");
	expect_logfmt(f, "", "\"\"");
	expect_logfmt(f, NULL, "\"\"");
	expect_logfmt(f, "two words", "\"two words\"");
	expect_logfmt(f, "a=b", "\"a=b\"");
	expect_logfmt(f, "say \"no\"", "\"say \\\"no\\\"\"");
	expect_logfmt(f, "back\\slash", "\"back\\\\slash\"");
	expect_logfmt(f, "a\nlevel=error msg=forged", "\"a\\nlevel=error msg=forged\"");
	expect_logfmt(f, "\r\t\x01\x1b[31m\x7f", "\"\\r\\t\\u0001\\u001b[31m\\u007f\"");
	expect_logfmt(f, "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"");
	expect_logfmt(f, "\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\"");
	/* Not UTF-8: stray, cut off, too long a form, a surrogate, beyond Unicode. */
	expect_logfmt(f, "\xff", "\"\\ufffd\"");
	expect_logfmt(f, "a\x80", "\"a\\ufffd\"");
	expect_logfmt(f, "a\xc3", "\"a\\ufffd\"");
	expect_logfmt(f, "\xe2\x82", "\"\\ufffd\\ufffd\"");
	expect_logfmt(f, "\xc0\xaf", "\"\\ufffd\\ufffd\"");
	expect_logfmt(f, "\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"");
	expect_logfmt(f, "\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
	/* C1 control characters are valid UTF-8, and terminals obey them. */
	expect_logfmt(f,
		      "\xc2\x9b"
		      "31m",
		      "\"\\u009b31m\"");
	close_all(f);
}

static void all_fields(struct log_line *l)
{
	struct addr a;

	assert_int_equal(addr_parse("[fd00::1]:5", &a), 0);
	log_u64(l, "u", UINT64_MAX);
	log_i64(l, "i", INT64_MIN);
	log_bool(l, "yes", true);
	log_bool(l, "no", false);
	log_ms(l, "ms", 1234567890);
	log_ms(l, "small", 999);
	log_addr(l, "a", &a);
	log_addr(l, "none", NULL);
	a.len = 0;
	log_addr(l, "empty", &a);
}

static void fields(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_DEBUG);
	struct log_line l;

	(void)state;
	assert_true(log_begin(&l, f->log, LOG_DEBUG, "two words"));
	all_fields(&l);
	log_end(&l);
	assert_string_equal(one_line(f),
			    "level=debug msg=\"two words\" u=18446744073709551615 "
			    "i=-9223372036854775808 yes=true no=false ms=1234.567 small=0.000 "
			    "a=[fd00::1]:5 none=- empty=-");
	close_all(f);
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	assert_non_null(s);
	return s;
}

static json_t *one_json(struct fixture *f)
{
	const char *s = take(f);
	json_error_t e;
	json_t *o;

	assert_int_equal(count_lines(s), 1);
	o = json_loads(s, JSON_REJECT_DUPLICATES, &e);
	if (!o)
		fail_msg("%s in %s", e.text, s);
	return o;
}

static void json(void **state)
{
	struct fixture *f = open_pipe(LOG_JSON, LOG_DEBUG);
	struct log_line l;
	json_t *o;

	(void)state;
	assert_true(log_begin(&l, f->log, LOG_WARN, "two \"words\"\n"));
	log_u64(&l, "u", 12345678901234);
	log_i64(&l, "i", -5);
	log_bool(&l, "yes", true);
	log_ms(&l, "ms", 1234567890);
	log_str(&l, "bad", "\xff\x01\\\xc2\x85");
	log_str(&l, "good", "gr\xc3\xbc\xc3\x9f");
	log_end(&l);
	o = one_json(f);
	assert_string_equal(text_of(o, "level"), "warn");
	assert_string_equal(text_of(o, "msg"), "two \"words\"\n");
	assert_int_equal(json_integer_value(json_object_get(o, "u")), 12345678901234);
	assert_int_equal(json_integer_value(json_object_get(o, "i")), -5);
	assert_true(json_is_true(json_object_get(o, "yes")));
	assert_int_equal((int)(json_real_value(json_object_get(o, "ms")) * 1000 + 0.5), 1234567);
	assert_string_equal(text_of(o, "bad"), "\xef\xbf\xbd\x01\\\xc2\x85");
	assert_string_equal(text_of(o, "good"), "gr\xc3\xbc\xc3\x9f");
	assert_int_equal(strlen(text_of(o, "ts")), 24);
	json_decref(o);
	close_all(f);
}

/* Any bytes whatever: one line, valid JSON, within the limit. Seeded, so it repeats. */
static void json_of_anything(void **state)
{
	struct fixture *f = open_pipe(LOG_JSON, LOG_INFO);
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		char value[2000];
		size_t n = (size_t)round % sizeof(value);
		json_t *o;

		for (size_t i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			/* Half of the rounds in the range where UTF-8 is interesting. */
			value[i] = (char)(round & 1 ? 0xc0 | seed >> 26 : seed >> 24);
			if (!value[i])
				value[i] = '"';
		}
		value[n ? n - 1 : 0] = '\0';
		log_one(f, value);
		o = one_json(f);
		assert_true(strlen(f->text) <= LOG_LINE_MAX);
		json_decref(o);
	}
	close_all(f);
}

static void long_values(void **state)
{
	enum config_log_format formats[] = { LOG_LOGFMT, LOG_JSON };
	char value[3000], cut[LOG_VALUE_MAX + 4];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(formats); i++) {
		struct fixture *f = open_pipe(formats[i], LOG_INFO);
		struct log_line l;

		/* Cut at LOG_VALUE_MAX bytes. */
		memset(value, 'x', sizeof(value));
		value[LOG_VALUE_MAX] = '\0';
		log_one(f, value);
		assert_null(strstr(take(f), "..."));
		value[LOG_VALUE_MAX] = 'x';
		value[LOG_VALUE_MAX + 1] = '\0';
		log_one(f, value);
		memset(cut, 'x', LOG_VALUE_MAX);
		strcpy(cut + LOG_VALUE_MAX, "...");
		assert_non_null(strstr(take(f), cut));
		assert_null(strstr(f->text, "x....")); /* nothing but three dots */

		/* But not inside a character: three bytes each here. */
		for (unsigned k = 0; k + 3 < sizeof(value); k += 3)
			memcpy(value + k, "\xe2\x82\xac", 3);
		value[2700] = '\0';
		log_one(f, value);
		assert_null(strstr(take(f), "ufffd"));
		assert_non_null(strstr(f->text, "\xe2\x82\xac..."));

		/* Fields that no longer fit are left out whole, and it shows. */
		assert_true(log_begin(&l, f->log, LOG_INFO, "m"));
		memset(value, 'y', 900);
		value[900] = '\0';
		for (int k = 0; k < 10; k++)
			log_str(&l, "y", value);
		log_u64(&l, "small", 7); /* still fits */
		log_end(&l);
		take(f);
		assert_int_equal(count_lines(f->text), 1);
		assert_true(strlen(f->text) <= LOG_LINE_MAX);
		assert_non_null(strstr(f->text, i ? "\"small\":7,\"truncated\":true}\n"
						  : " small=7 truncated=true\n"));
		close_all(f);
	}
}

/* A line may be filled to its last byte. */
static void brim(void **state)
{
	(void)state;
	for (unsigned fill = 0; fill < 60; fill++) {
		struct fixture *f = open_pipe(LOG_JSON, LOG_INFO);
		struct log_line l;
		char value[1100];
		json_t *o;

		assert_true(log_begin(&l, f->log, LOG_INFO, "m"));
		memset(value, 'y', sizeof(value));
		value[1000] = '\0';
		for (char key[] = "a"; key[0] < 'e'; key[0]++)
			log_str(&l, key, value);
		value[LOG_LINE_MAX > l.len + 40 + fill ? LOG_LINE_MAX - l.len - 40 + fill : 0] =
			'\0';
		log_str(&l, "last", value);
		log_end(&l);
		o = one_json(f);
		assert_true(strlen(f->text) <= LOG_LINE_MAX);
		assert_int_equal(json_is_true(json_object_get(o, "truncated")),
				 !json_object_get(o, "last") || !json_object_get(o, "d"));
		json_decref(o);
		close_all(f);
	}
}

static void levels(void **state)
{
	struct log_line l;

	(void)state;
	for (int level = LOG_ERROR; level <= LOG_DEBUG; level++) {
		struct fixture *f = open_pipe(LOG_LOGFMT, (enum config_log_level)level);

		for (int k = LOG_ERROR; k <= LOG_DEBUG; k++) {
			enum config_log_level at = (enum config_log_level)k;

			assert_int_equal(log_begin(&l, f->log, at, "m"), k <= level);
			assert_int_equal(log_begin_limited(&l, f->log, at, "m", ""), k <= level);
			log_msg(f->log, at, "number %d", k);
		}
		assert_int_equal(count_lines(take(f)), level + 1);
		close_all(f);
	}
	assert_false(log_begin(&l, NULL, LOG_ERROR, "m"));
	assert_false(log_begin_limited(&l, NULL, LOG_ERROR, "m", ""));
	log_msg(NULL, LOG_ERROR, "%s", "nobody");
	log_tick(NULL);
	log_free(NULL);
}

static bool limited(struct fixture *f, const char *msg, const char *key)
{
	struct log_line l;

	if (!log_begin_limited(&l, f->log, LOG_WARN, msg, key))
		return false;
	log_end(&l);
	return true;
}

static void repeats(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_INFO);
	struct log_stats s;

	(void)state;
	for (int i = 0; i < LOG_LIMIT_BURST; i++)
		assert_true(limited(f, "client error", "not HTTP/2"));
	for (int i = 0; i < 5; i++)
		assert_false(limited(f, "client error", "not HTTP/2"));
	assert_true(limited(f, "client error", "another"));
	assert_true(limited(f, "upstream error", "not HTTP/2"));
	assert_int_equal(count_lines(take(f)), LOG_LIMIT_BURST + 2);
	assert_null(strstr(f->text, "suppressed"));

	/* The window is over: what was held back is told, by itself or before another line. */
	f->now += LOG_LIMIT_WINDOW_NS - 1;
	log_tick(f->log);
	assert_string_equal(take(f), "");
	f->now += 1;
	log_tick(f->log);
	assert_string_equal(one_line(f), "level=warn msg=\"client error\" repeated=\"not HTTP/2\" "
					 "suppressed=5");
	log_tick(f->log);
	assert_string_equal(take(f), "");
	assert_true(limited(f, "client error", "not HTTP/2"));

	for (int i = 0; i < LOG_LIMIT_BURST; i++)
		limited(f, "client error", "not HTTP/2");
	take(f);
	f->now += LOG_LIMIT_WINDOW_NS;
	log_msg(f->log, LOG_INFO, "later");
	take(f);
	assert_int_equal(count_lines(f->text), 2);
	assert_non_null(strstr(f->text, "suppressed=1\n"));
	assert_non_null(strstr(strstr(f->text, "suppressed=1\n"), "msg=later\n"));
	log_get_stats(f->log, &s);
	assert_int_equal(s.suppressed, 6);
	assert_int_equal(s.dropped, 0);

	/* The end tells it too. */
	for (int i = 0; i < LOG_LIMIT_BURST + 3; i++)
		limited(f, "bye", "");
	take(f);
	log_free(f->log);
	assert_string_equal(one_line(f), "level=warn msg=bye suppressed=3");
	close(f->write_fd);
	close(f->read_fd);
}

/* Whoever varies what he provokes meets the limit as well. */
static void many_kinds_of_repeats(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_INFO);
	unsigned n = 0;
	char key[32];

	(void)state;
	for (int i = 0; i < 10000; i++) {
		snprintf(key, sizeof(key), "reason %d", i);
		n += limited(f, "client error", key);
		take(f);
	}
	assert_in_range(n, 10, 100);
	f->now += LOG_LIMIT_WINDOW_NS;
	log_tick(f->log);
	snprintf(key, sizeof(key), "suppressed=%u\n", 10000 - n);
	assert_non_null(strstr(take(f), key));
	/* Afterwards new kinds are let through again. */
	assert_true(limited(f, "client error", "new"));
	close_all(f);
}

/* About 3 kB: more than the smallest socket buffer takes at once. */
static void log_big(struct fixture *f, unsigned i)
{
	struct log_line l;
	char pad[1001];

	memset(pad, 'x', sizeof(pad) - 1);
	pad[sizeof(pad) - 1] = '\0';
	assert_true(log_begin(&l, f->log, LOG_INFO, "big"));
	log_u64(&l, "i", i);
	log_str(&l, "a", pad);
	log_str(&l, "b", pad);
	log_str(&l, "c", pad);
	log_end(&l);
}

/* Writes until lines are lost: returns how many were. */
static unsigned fill_up(struct fixture *f)
{
	struct log_stats s = { .dropped = 0 };
	unsigned written = 0;

	while (s.dropped < 50) {
		log_big(f, written++);
		log_get_stats(f->log, &s);
		assert_true(written < 100000);
	}
	assert_int_equal(s.lines + s.dropped, written);
	return (unsigned)s.dropped;
}

/* All lines whole: each begins with a time and ends with what was logged. */
static void assert_whole(const char *text)
{
	for (const char *end; (end = strchr(text, '\n')); text = end + 1)
		if (strncmp(text, "ts=", 3) || !memmem(text, (size_t)(end - text), " level=", 7) ||
		    memmem(text + 3, (size_t)(end - text - 3), "ts=", 3))
			fail_msg("torn: %.*s", (int)(end - text), text);
	assert_string_equal(text, "");
}

/* True when the last line had left only in part before the reader went on. */
static bool reader_stops(struct fixture *f)
{
	unsigned lost = fill_up(f); /* must not hang */
	char told[40];
	struct log_stats s;
	bool torn;

	take(f);
	torn = f->text[strlen(f->text) - 1] != '\n';
	log_msg(f->log, LOG_INFO, "after");
	take_more(f); /* on a socket first the rest of the line that had left in part */
	assert_whole(f->text);
	snprintf(told, sizeof(told), " dropped=%u\n", lost);
	assert_non_null(strstr(f->text, "msg=after\n"));
	assert_non_null(strstr(strstr(f->text, "msg=after\n"), told));
	log_msg(f->log, LOG_INFO, "again");
	assert_null(strstr(take(f), "dropped="));
	log_get_stats(f->log, &s);
	assert_int_equal(s.dropped, lost);
	close_all(f);
	return torn;
}

static void pipe_full(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_INFO);

	(void)state;
	/* The descriptor that was given stays as it was: others share it. */
	assert_int_equal(fcntl(f->write_fd, F_GETFL) & O_NONBLOCK, 0);
	assert_false(reader_stops(f));
}

static void socket_full(void **state)
{
	static struct fixture f;
	unsigned torn = 0;

	(void)state;
	/* Where in a line a socket gets full depends on its size. */
	for (int size = 1024; size < 32768; size += 64) {
		int fds[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		open_on(&f, fds, LOG_LOGFMT, LOG_INFO);
		assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
		torn += reader_stops(&f);
	}
	print_message("%u lines left in part at first\n", torn);
	assert_true(torn > 0);
}

static void reader_gone(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_INFO);
	struct log_stats s;

	(void)state;
	close(f->read_fd);
	log_msg(f->log, LOG_INFO, "anybody?");
	log_msg(f->log, LOG_INFO, "anybody?");
	log_get_stats(f->log, &s);
	assert_int_equal(s.dropped, 2);
	assert_int_equal(s.lines, 0);
	log_free(f->log);
	close(f->write_fd);
}

static void file(void **state)
{
	static struct fixture f;
	char path[] = "/tmp/flightsplice-log-XXXXXX";
	int fds[2];

	(void)state;
	fds[1] = mkstemp(path);
	assert_true(fds[1] >= 0);
	assert_int_equal(write(fds[1], "before\n", 7), 7);
	fds[0] = open(path, O_RDONLY);
	unlink(path);
	open_on(&f, fds, LOG_LOGFMT, LOG_INFO);
	log_msg(f.log, LOG_INFO, "in the file");
	assert_int_equal(write(fds[1], "after\n", 6), 6); /* shares our position */
	take(&f);
	assert_int_equal(count_lines(f.text), 3);
	assert_memory_equal(f.text, "before\nts=", 10);
	assert_non_null(strstr(f.text, "msg=\"in the file\"\nafter\n"));
	close_all(&f);
}

static void bad_descriptor(void **state)
{
	struct log_options o = { .fd = -1, .level = LOG_INFO };
	struct log *log = log_new(&o);
	struct log_stats s;

	(void)state;
	log_msg(log, LOG_INFO, "nowhere");
	log_get_stats(log, &s);
	assert_int_equal(s.dropped, 1);
	log_free(log);
}

enum { THREADS = 4, LINES = 2000 };

static void *write_lines(void *arg)
{
	struct fixture *f = arg;
	struct log_line l;

	for (int i = 0; i < LINES; i++) {
		if (i % 10 == 0)
			limited(f, "often", "key");
		if (!log_begin(&l, f->log, LOG_INFO, "from a thread"))
			continue;
		log_u64(&l, "i", (uint64_t)i);
		log_str(&l, "pad", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
		log_end(&l);
	}
	return NULL;
}

static void threads(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_INFO);
	pthread_t t[THREADS];
	struct log_stats s = { .lines = 0 };
	size_t n = 0;

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, write_lines, f), 0);
	/* Reads until every line has been written or lost. */
	while (s.lines + s.dropped < THREADS * LINES + LOG_LIMIT_BURST) {
		struct pollfd p = { .fd = f->read_fd, .events = POLLIN };
		ssize_t got;

		poll(&p, 1, 10);
		got = read(f->read_fd, f->text + n, sizeof(f->text) - 1 - n);
		n += got > 0 ? (size_t)got : 0;
		log_get_stats(f->log, &s);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	f->text[n] = '\0';
	take_more(f);
	log_get_stats(f->log, &s);
	assert_whole(f->text);
	assert_int_equal(count_lines(f->text), s.lines);
	assert_int_equal(s.suppressed, THREADS * LINES / 10 - LOG_LIMIT_BURST);
	close_all(f);
}

/* ---- emit ---- */

static struct ticket ticket(void)
{
	return (struct ticket){
		.host = "exec-1", .port = 50051, .job = "AbC1234", .stage = 3, .partition = 0
	};
}

static void stream_line(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_INFO);
	struct emit e = { .log = f->log, .worker = 1 };
	struct ticket t = ticket();
	struct stream_record r = {
		.method = "DoGet",
		.ticket = &t,
		.stream_id = 1,
		.datapath = "relay",
		.datapath_why = "small",
		.data_bytes = 123456,
		.first_byte_ns = 2500000,
		.duration_ns = 12000000,
		.grpc_status = GRPC_OK,
		.end = END_COMPLETE,
		.reason = "",
		.attempts = 1,
	};

	(void)state;
	addr_parse("10.0.0.9:40000", &r.client);
	addr_parse("10.1.0.4:50051", &r.executor);
	emit_log_ops.stream_done(&e, &r);
	assert_string_equal(one_line(f),
			    "level=info msg=stream method=DoGet job=AbC1234 stage=3 partition=0 "
			    "executor=exec-1:50051 address=10.1.0.4:50051 client=10.0.0.9:40000 "
			    "stream=1 worker=1 datapath=relay datapath_why=small bytes=123456 "
			    "first_byte_ms=2.500 duration_ms=12.000 grpc_status=OK "
			    "ended_by=complete attempts=1");

	/* The executor's own error: delivered, but worth a warning. */
	r.grpc_status = GRPC_INTERNAL;
	emit_log_ops.stream_done(&e, &r);
	assert_non_null(strstr(one_line(f), "level=warn msg=stream "));

	/* A client that left is no failure. */
	r.end = END_CLIENT;
	r.grpc_status = -1;
	r.reason = "RST_STREAM(CANCEL)";
	r.dropped_bytes = 77;
	emit_log_ops.stream_done(&e, &r);
	one_line(f);
	assert_non_null(strstr(f->text, "level=info "));
	assert_non_null(strstr(f->text, " dropped_bytes=77 "));
	assert_non_null(strstr(f->text, " grpc_status=none ended_by=client "
					"reason=RST_STREAM(CANCEL) attempts=1"));
	r.traceparent = "";
	emit_log_ops.stream_done(&e, &r);
	assert_null(strstr(one_line(f), "traceparent"));
	r.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
	emit_log_ops.stream_done(&e, &r);
	assert_non_null(strstr(one_line(f), " attempts=1 traceparent=00-4bf92f3577b34da6a3ce929d0e"
					    "0e4736-00f067aa0ba902b7-01"));
	close_all(f);
}

/* Nothing was decoded or reached: the fields are left out. */
static void stream_line_of_nothing(void **state)
{
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_WARN);
	struct emit e = { .log = f->log };
	struct stream_record r = {
		.method = "DoGet",
		.stream_id = 3,
		.datapath = "relay",
		.duration_ns = 1,
		.grpc_status = GRPC_INVALID_ARGUMENT,
		.end = END_PROXY,
		.reason = "ticket has no fetch_partition.host",
	};
	struct ticket t = ticket();

	(void)state;
	addr_parse("10.0.0.9:40000", &r.client);
	emit_log_ops.stream_done(&e, &r);
	assert_string_equal(one_line(f),
			    "level=warn msg=stream method=DoGet client=10.0.0.9:40000 stream=3 "
			    "worker=0 datapath=relay bytes=0 duration_ms=0.000 "
			    "grpc_status=INVALID_ARGUMENT ended_by=proxy "
			    "reason=\"ticket has no fetch_partition.host\" attempts=0");
	/* An IPv6 literal gets its brackets back. */
	strcpy(t.host, "fd00::1");
	r.ticket = &t;
	emit_log_ops.stream_done(&e, &r);
	assert_non_null(strstr(one_line(f), " executor=[fd00::1]:50051 "));
	/* Streams are never limited. */
	for (int i = 0; i < 100; i++)
		emit_log_ops.stream_done(&e, &r);
	assert_int_equal(count_lines(take(f)), 100);
	/* Filtered by level. */
	r.end = END_COMPLETE;
	r.grpc_status = GRPC_OK;
	emit_log_ops.stream_done(&e, &r);
	assert_string_equal(take(f), "");
	e.log = NULL;
	r.end = END_PROXY;
	emit_log_ops.stream_done(&e, &r);
	assert_string_equal(take(f), "");
	close_all(f);
}

static void events(void **state)
{
	static const struct {
		enum session_event_kind kind;
		const char *begins;
		bool limited;
	} rows[] = {
		{ EVENT_CLIENT_OPEN, "level=debug msg=\"client connected\" ", false },
		{ EVENT_CLIENT_CLOSED, "level=debug msg=\"client closed\" ", false },
		{ EVENT_CLIENT_REFUSED, "level=warn msg=\"client refused\" ", true },
		{ EVENT_CLIENT_ERROR, "level=warn msg=\"client error\" ", true },
		{ EVENT_UPSTREAM_OPEN, "level=debug msg=\"upstream connected\" ", false },
		{ EVENT_UPSTREAM_CLOSED, "level=debug msg=\"upstream closed\" ", false },
		{ EVENT_UPSTREAM_ERROR, "level=warn msg=\"upstream error\" ", true },
		{ EVENT_DRAIN, "level=debug msg=draining ", false },
		{ EVENT_BUDGET, "level=warn msg=\"budget exhausted\" ", true },
	};
	struct fixture *f = open_pipe(LOG_LOGFMT, LOG_DEBUG);
	struct emit e = { .log = f->log, .worker = 2 };
	struct addr peer;

	(void)state;
	assert_int_equal(ARRAY_SIZE(rows), EVENT_KINDS);
	addr_parse("10.0.0.9:40000", &peer);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct session_event ev = { .kind = rows[i].kind, .peer = &peer, .text = "why" };
		const char *line;

		emit_log_ops.event(&e, &ev);
		line = one_line(f);
		assert_memory_equal(line, rows[i].begins, strlen(rows[i].begins));
		assert_string_equal(line + strlen(rows[i].begins),
				    "peer=10.0.0.9:40000 reason=why worker=2");
		for (int k = 0; k < 100; k++)
			emit_log_ops.event(&e, &ev);
		if (rows[i].limited)
			assert_true(count_lines(take(f)) < LOG_LIMIT_BURST);
		else
			assert_int_equal(count_lines(take(f)), 100);
	}
	{
		struct session_event ev = { .kind = EVENT_CLIENT_ERROR, .text = "", .h2_error = 9 };

		emit_log_ops.event(&e, &ev);
		assert_string_equal(one_line(f),
				    "level=warn msg=\"client error\" h2_error=9 worker=2");
	}
	close_all(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logfmt),
		cmocka_unit_test(fields),
		cmocka_unit_test(json),
		cmocka_unit_test(json_of_anything),
		cmocka_unit_test(long_values),
		cmocka_unit_test(brim),
		cmocka_unit_test(levels),
		cmocka_unit_test(repeats),
		cmocka_unit_test(many_kinds_of_repeats),
		cmocka_unit_test(pipe_full),
		cmocka_unit_test(socket_full),
		cmocka_unit_test(reader_gone),
		cmocka_unit_test(file),
		cmocka_unit_test(bad_descriptor),
		cmocka_unit_test(threads),
		cmocka_unit_test(stream_line),
		cmocka_unit_test(stream_line_of_nothing),
		cmocka_unit_test(events),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
