/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadgen_fetch.c - the fetching client: one thread, one epoll set, and a verdict
 * on each fetch.
 */
#define _GNU_SOURCE
#include "loadgen.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXEC_MAX 64

static struct {
	struct sockaddr_in to;
	const char *authority;
	char *exec[EXEC_MAX];
	unsigned n_exec;
	uint64_t min, max; /* bytes of a fetch */
	uint64_t rnd;      /* state of the size generator */
	uint64_t fetches;  /* in all */
	unsigned conns;    /* at once */
	unsigned streams;  /* at once on one connection */
	bool fresh;        /* a new connection for each fetch */
	uint32_t window, conn_window;
	uint64_t stop_reading, stop_granting; /* bytes of a connection; UINT64_MAX never */
	bool unread_first;
	unsigned resume;
	uint64_t rate;      /* bytes a second of a connection; 0 unlimited */
	unsigned cancels;   /* of a thousand fetches */
	int receive_buffer; /* SO_RCVBUF; 0 the system's */
	double deadline;
} opt = { .fetches = 1,
	  .conns = 1,
	  .streams = 1,
	  .window = 2097152,
	  .conn_window = 5242880,
	  .stop_reading = UINT64_MAX,
	  .stop_granting = UINT64_MAX,
	  .resume = UINT32_MAX,
	  .rnd = 1 };

static struct {
	uint64_t started, ok, failed, abandoned, cancelled, bytes;
	uint64_t wrong, broken, hung; /* kinds of failure; the others were told */
	double slowest;               /* seconds of a fetch that was right */
	unsigned conns_open, stopped, cut;
	bool resumed;
	char error[256];
} sum;

static volatile sig_atomic_t resume_signal;

struct client {
	struct conn io;
	unsigned index;
	unsigned live;       /* streams open */
	unsigned opened;     /* streams opened on this connection */
	uint64_t got;        /* payload bytes */
	double since;        /* when it was opened */
	bool counted_stop;   /* reported as stopped */
	bool stopped;        /* reads no more, until SIGUSR1 */
	bool granting;       /* false: consumed bytes are not given back */
	bool resumed;        /* SIGUSR1 came: no more stopping */
	uint64_t unconsumed; /* bytes withheld from the connection window */
	struct fetch *first; /* the one left unread by -u, while it lives */
};

struct fetch {
	uint64_t seed, total, got;
	uint8_t request[512];
	size_t request_len;
	bool request_sent;
	int http, grpc;     /* -1 until seen */
	bool ended;         /* END_STREAM on a header block */
	uint64_t withheld;  /* bytes not given back to the stream window */
	uint64_t cancel_at; /* reset when so many bytes have come; UINT64_MAX never */
	bool cancelled;
	double since;
	uint64_t bad_at; /* offset of the first wrong byte, UINT64_MAX none */
	const char *exec;
	char message[128];
};

static uint64_t rnd(void)
{
	opt.rnd ^= opt.rnd << 13;
	opt.rnd ^= opt.rnd >> 7;
	opt.rnd ^= opt.rnd << 17;
	return opt.rnd;
}

static size_t put_bytes(uint8_t *p, uint8_t tag, const void *bytes, size_t len)
{
	size_t n = 0;

	p[n++] = tag;
	n += put_varint(p + n, len);
	memcpy(p + n, bytes, len);
	return n + len;
}

/* gRPC message { Ticket { Action { fetch_partition { job, stage, partition, host, port } } } } */
static void fetch_request(struct fetch *f, uint64_t number)
{
	uint8_t part[256], action[300], ticket[400];
	const char *colon = strrchr(f->exec, ':');
	char job[64];
	size_t n = 0;

	snprintf(job, sizeof(job), "b=%" PRIu64 ",s=%" PRIu64 ";", f->total, f->seed);
	n += put_bytes(part + n, 0x0a, job, strlen(job));
	part[n++] = 0x10;
	part[n++] = 1;
	part[n++] = 0x18;
	n += put_varint(part + n, number);
	n += put_bytes(part + n, 0x2a, f->exec, (size_t)(colon - f->exec));
	part[n++] = 0x30;
	n += put_varint(part + n, (uint64_t)atoi(colon + 1));
	n = put_bytes(action, 0x1a, part, n);
	n = put_bytes(ticket, 0x0a, action, n);
	memset(f->request, 0, 5);
	f->request[3] = (uint8_t)(n >> 8);
	f->request[4] = (uint8_t)n;
	memcpy(f->request + 5, ticket, n);
	f->request_len = 5 + n;
}

static ssize_t request_read(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t len,
			    uint32_t *flags, nghttp2_data_source *src, void *arg)
{
	struct fetch *f = src->ptr;

	(void)ng;
	(void)id;
	(void)arg;
	if (f->request_sent) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		return 0;
	}
	if (len < f->request_len)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	memcpy(buf, f->request, f->request_len);
	f->request_sent = true;
	return (ssize_t)f->request_len;
}

static void fetch_start(struct client *c)
{
	nghttp2_nv head[] = {
		nv(":method", "POST"),
		nv(":scheme", "http"),
		nv(":path", "/arrow.flight.protocol.FlightService/DoGet"),
		nv(":authority", opt.authority),
		nv("te", "trailers"),
		nv("content-type", "application/grpc"),
		nv("user-agent", "loadgen"),
	};
	struct fetch *f = xcalloc(sizeof(*f));
	nghttp2_data_provider body = { .source.ptr = f, .read_callback = request_read };
	uint64_t number = sum.started++;

	f->seed = (number + 1) << 40;
	f->total = opt.min + (opt.max > opt.min ? rnd() % (opt.max - opt.min + 1) : 0);
	f->exec = opt.exec[number % opt.n_exec];
	f->http = f->grpc = -1;
	f->bad_at = UINT64_MAX;
	f->cancel_at =
		opt.cancels && rnd() % 1000 < opt.cancels ? rnd() % (f->total + 1) : UINT64_MAX;
	f->since = now();
	fetch_request(f, number);
	if (opt.unread_first && !c->opened)
		c->first = f;
	if (nghttp2_submit_request(c->io.ng, NULL, head, 7, &body, f) < 0)
		die("submit_request");
	c->opened++;
	c->live++;
}

/* Counts `count` failures as of `kind` (NULL: they were told), and keeps the first text; a wrong result's
 * takes the place of any other. */
static void note_failure(uint64_t *kind, unsigned count, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void note_failure(uint64_t *kind, unsigned count, const char *fmt, ...)
{
	bool first_wrong = kind == &sum.wrong && !sum.wrong;
	va_list ap;

	sum.failed += count;
	if (kind)
		*kind += count;
	if (sum.error[0] && !first_wrong)
		return;
	va_start(ap, fmt);
	vsnprintf(sum.error, sizeof(sum.error), fmt, ap);
	va_end(ap);
	for (char *p = sum.error; *p; p++)
		if (*p == '"' || *p == '\\' || *p < ' ')
			*p = '\'';
}

static void fetch_judge(struct fetch *f, uint32_t code)
{
	double took = now() - f->since;

	if (f->bad_at != UINT64_MAX) {
		note_failure(&sum.wrong, 1, "wrong byte at offset %" PRIu64 " of %" PRIu64,
			     f->bad_at, f->total);
	} else if (f->cancelled) {
		sum.cancelled++;
	} else if (f->http != 200 || f->grpc || f->got != f->total || code || !f->ended) {
		bool says_complete = f->http == 200 && !f->grpc && !code;

		note_failure(says_complete ? &sum.wrong : NULL, 1,
			     "http %d grpc-status %d '%s', %" PRIu64 " of %" PRIu64
			     " bytes, stream error %u, end %d",
			     f->http, f->grpc, f->message, f->got, f->total, code, f->ended);
	} else {
		sum.ok++;
		if (took > sum.slowest)
			sum.slowest = took;
	}
}

static void release(struct client *c, int32_t id, struct fetch *f)
{
	if (f->withheld)
		nghttp2_session_consume_stream(c->io.ng, id, f->withheld);
	f->withheld = 0;
}

/* -R: it has read more than its rate allows by now. */
static bool client_ahead(struct client *c)
{
	return opt.rate && (double)c->got > (double)opt.rate * (now() - c->since);
}

static int fetch_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t len,
		      void *arg)
{
	struct fetch *f = nghttp2_session_get_stream_user_data(ng, id);
	struct client *c = arg;
	size_t right;

	(void)flags;
	if (!f)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	right = payload_check(p, f->seed, f->got, len);
	if (right < len && f->bad_at == UINT64_MAX)
		f->bad_at = f->got + right;
	f->got += len;
	c->got += len;
	sum.bytes += len;
	f->withheld += len;
	c->unconsumed += len;
	if (!c->resumed && c->got >= opt.stop_reading)
		c->stopped = true;
	if (!c->resumed && c->got >= opt.stop_granting)
		c->granting = false;
	if (c->stopped || client_ahead(c))
		c->io.reading = false;
	if (f->got >= f->cancel_at && !f->cancelled) {
		f->cancelled = true;
		nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
	}
	if (!c->granting || c->stopped)
		return 0;
	nghttp2_session_consume_connection(ng, c->unconsumed);
	c->unconsumed = 0;
	if (c->first != f)
		release(c, id, f);
	return 0;
}

static int fetch_header(nghttp2_session *ng, const nghttp2_frame *fr, const uint8_t *name,
			size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
			void *arg)
{
	struct fetch *f = nghttp2_session_get_stream_user_data(ng, fr->hd.stream_id);

	(void)flags;
	(void)arg;
	if (!f)
		return 0;
	if (name_len == 7 && !memcmp(name, ":status", 7))
		f->http = atoi((const char *)value);
	if (name_len == 11 && !memcmp(name, "grpc-status", 11))
		f->grpc = atoi((const char *)value);
	if (name_len == 12 && !memcmp(name, "grpc-message", 12))
		snprintf(f->message, sizeof(f->message), "%.*s", (int)value_len,
			 (const char *)value);
	return 0;
}

static int fetch_frame(nghttp2_session *ng, const nghttp2_frame *fr, void *arg)
{
	struct fetch *f;

	(void)arg;
	if (fr->hd.type != NGHTTP2_HEADERS || !(fr->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	f = nghttp2_session_get_stream_user_data(ng, fr->hd.stream_id);
	if (f)
		f->ended = true;
	return 0;
}

static int fetch_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
	struct fetch *f = nghttp2_session_get_stream_user_data(ng, id);
	struct client *c = arg;

	if (!f)
		return 0;
	fetch_judge(f, code);
	if (c->first == f)
		c->first = NULL;
	free(f);
	c->live--;
	return 0;
}

/* What nghttp2 finds wrong with the proxy's frames ends in a GOAWAY of ours. */
static int fetch_sent(nghttp2_session *ng, const nghttp2_frame *fr, void *arg)
{
	(void)ng;
	(void)arg;
	if (fr->hd.type == NGHTTP2_GOAWAY && fr->goaway.error_code)
		note_failure(&sum.wrong, 1, "HTTP/2 violated, our GOAWAY says %u: %.*s",
			     fr->goaway.error_code, (int)fr->goaway.opaque_data_len,
			     (const char *)fr->goaway.opaque_data);
	return 0;
}

static struct client *client_open(int ep, unsigned index)
{
	nghttp2_settings_entry s[] = { { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
				       { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, opt.window },
				       { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16384 } };
	nghttp2_session_callbacks *cb;
	nghttp2_option *no;
	struct client *c;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (opt.receive_buffer)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &opt.receive_buffer,
			   sizeof(opt.receive_buffer));
	if (fd < 0 || connect(fd, (struct sockaddr *)&opt.to, sizeof(opt.to))) {
		sum.started++;
		note_failure(&sum.broken, 1, "connect: %s", strerror(errno));
		close(fd);
		return NULL;
	}
	c = xcalloc(sizeof(*c));
	conn_init(&c->io, fd, ep, c);
	c->granting = true;
	c->since = now();
	c->index = index;
	if (nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&no))
		die("out of memory");
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, fetch_data);
	nghttp2_session_callbacks_set_on_header_callback(cb, fetch_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, fetch_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, fetch_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, fetch_sent);
	nghttp2_option_set_no_auto_window_update(no, 1);
	if (nghttp2_session_client_new2(&c->io.ng, cb, c, no) ||
	    nghttp2_submit_settings(c->io.ng, NGHTTP2_FLAG_NONE, s, 3) ||
	    nghttp2_session_set_local_window_size(c->io.ng, NGHTTP2_FLAG_NONE, 0,
						  (int32_t)opt.conn_window))
		die("session");
	nghttp2_option_del(no);
	nghttp2_session_callbacks_del(cb);
	sum.conns_open++;
	return c;
}

static void client_each(struct client *c, void (*fn)(struct client *c, int32_t id, struct fetch *f))
{
	int32_t last = nghttp2_session_get_next_stream_id(c->io.ng);

	for (int32_t id = 1; id < last; id += 2) {
		struct fetch *f = nghttp2_session_get_stream_user_data(c->io.ng, id);

		if (f)
			fn(c, id, f);
	}
}

static void abandon(struct client *c, int32_t id, struct fetch *f)
{
	nghttp2_session_set_stream_user_data(c->io.ng, id, NULL);
	free(f);
}

/* Streams that the connection's end left open are failures, or abandoned on purpose. */
static void client_close(struct client *c, uint64_t *kind, const char *why, bool on_purpose)
{
	if (c->live && on_purpose)
		sum.abandoned += c->live;
	else if (c->live)
		note_failure(kind, c->live, "%s with %u streams open after %" PRIu64 " bytes", why,
			     c->live, c->got);
	client_each(c, abandon);
	nghttp2_session_terminate_session(c->io.ng, NGHTTP2_NO_ERROR);
	if (!c->io.dead)
		conn_flush(&c->io);
	conn_close(&c->io);
	free(c);
	sum.conns_open--;
}

/* Opens what the options still ask for; true when the connection has no more to do. */
static bool client_fill(struct client *c)
{
	unsigned room = opt.fresh ? 1 : opt.streams;

	while (c->live < room && sum.started < opt.fetches && !(opt.fresh && c->opened))
		fetch_start(c);
	return !c->live;
}

/* -u: the siblings are done, so the first stream may be read now. */
static void client_unread(struct client *c)
{
	struct fetch *f;

	if (!c->first || c->live != 1 || sum.started < opt.fetches)
		return;
	f = c->first;
	c->first = NULL;
	release(c, 1, f); /* it was the connection's first request */
}

static void client_resume(struct client *c)
{
	if (c->index >= opt.resume || c->resumed)
		return;
	c->resumed = c->io.reading = c->granting = true;
	c->stopped = false;
	nghttp2_session_consume_connection(c->io.ng, c->unconsumed);
	c->unconsumed = 0;
	client_each(c, release);
}

static void client_count_stop(struct client *c)
{
	if (c->counted_stop || (!c->stopped && c->granting))
		return;
	c->counted_stop = true;
	if (++sum.stopped == opt.conns) {
		printf("stopped\n");
		fflush(stdout);
	}
}

/* One turn of a connection. NULL: it has been closed. */
static struct client *client_turn(struct client *c, int ep, uint32_t events)
{
	const char *end = NULL;

	if (events & ~(uint32_t)EPOLLOUT)
		end = c->io.reading ? conn_read(&c->io) : NULL;
	client_unread(c);
	client_count_stop(c);
	/* Sending a RST_STREAM closes a stream, and leaves room for another. */
	while (!end && !client_fill(c)) {
		unsigned live = c->live;

		conn_flush(&c->io);
		if (c->io.dead) {
			end = "write failed";
		} else if (c->live == live) {
			conn_watch(&c->io, ep);
			return c;
		}
	}
	client_close(c, &sum.broken, end, false);
	return NULL;
}

static void on_usr1(int sig)
{
	(void)sig;
	resume_signal = 1;
}

/* -R: a pause is over. */
static bool client_rested(struct client *c)
{
	if (c->io.reading || c->stopped || client_ahead(c))
		return false;
	c->io.reading = true;
	return true;
}

static void deadline_passed(struct client **conns)
{
	for (unsigned i = 0; i < opt.conns; i++) {
		if (conns[i])
			client_close(conns[i], &sum.hung, "deadline", false);
		conns[i] = NULL;
	}
}

static void client_loop(int ep, struct client **conns)
{
	struct epoll_event ev[64];

	for (;;) {
		unsigned wanted = 0, finishing = 0;
		int n;

		for (unsigned i = 0; i < opt.conns; i++) {
			if (conns[i] && client_rested(conns[i]))
				conns[i] = client_turn(conns[i], ep, EPOLLIN);
			if (!conns[i] && sum.started < opt.fetches && !sum.resumed) {
				conns[i] = client_open(ep, i);
				if (conns[i])
					conns[i] = client_turn(conns[i], ep, 0);
			}
			wanted += conns[i] != NULL;
			finishing += conns[i] && i < opt.resume;
		}
		if (!wanted && sum.started >= opt.fetches)
			return;
		if (sum.resumed && !finishing)
			return;
		if (now() > opt.deadline) {
			deadline_passed(conns);
			return;
		}
		n = epoll_wait(ep, ev, 64, opt.rate ? 5 : 100);
		if (resume_signal && !sum.resumed) {
			sum.resumed = true;
			for (unsigned i = 0; i < opt.conns; i++)
				if (conns[i]) {
					client_resume(conns[i]);
					conns[i] = client_turn(conns[i], ep, EPOLLIN);
				}
			continue; /* the events may name what was just closed */
		}
		for (int i = 0; i < n; i++) {
			struct client *c = ((struct conn *)ev[i].data.ptr)->owner;

			conns[c->index] = client_turn(c, ep, ev[i].events);
		}
	}
}

static bool parse_fetch(int argc, char **argv)
{
	const char *to = NULL;
	char *save, *p;
	int o;
	double limit = 3600;

	while ((o = getopt(argc, argv, "c:e:b:n:j:m:w:W:S:s:g:ur:t:1R:x:B:")) != -1) {
		switch (o) {
		case 'c':
			to = optarg;
			break;
		case 'e':
			for (p = strtok_r(optarg, ",", &save); p && opt.n_exec < EXEC_MAX;
			     p = strtok_r(NULL, ",", &save))
				opt.exec[opt.n_exec++] = p;
			break;
		case 'b':
			opt.min = opt.max = strtoull(optarg, &p, 0);
			if (*p == '-')
				opt.max = strtoull(p + 1, NULL, 0);
			break;
		case 'n':
			opt.fetches = strtoull(optarg, NULL, 0);
			break;
		case 'j':
			opt.conns = (unsigned)atoi(optarg);
			break;
		case 'm':
			opt.streams = (unsigned)atoi(optarg);
			break;
		case 'w':
			opt.window = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'W':
			opt.conn_window = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'S':
			opt.rnd = strtoull(optarg, NULL, 0) | 1;
			break;
		case 's':
			opt.stop_reading = strtoull(optarg, NULL, 0);
			break;
		case 'g':
			opt.stop_granting = strtoull(optarg, NULL, 0);
			break;
		case 'u':
			opt.unread_first = true;
			break;
		case 'r':
			opt.resume = (unsigned)atoi(optarg);
			break;
		case 't':
			limit = atof(optarg);
			break;
		case 'R':
			opt.rate = strtoull(optarg, NULL, 0);
			break;
		case 'B':
			opt.receive_buffer = atoi(optarg);
			break;
		case 'x':
			opt.cancels = (unsigned)atoi(optarg);
			break;
		case '1':
			opt.fresh = true;
			break;
		default:
			return false;
		}
	}
	if (!to || !opt.n_exec || !opt.conns || !opt.streams)
		return false;
	parse_address(to, &opt.to);
	opt.authority = to;
	opt.deadline = now() + limit;
	return true;
}

int run_fetch(int argc, char **argv)
{
	struct client **conns;
	double start = now();
	int ep = epoll_create1(0);

	if (!parse_fetch(argc, argv))
		return 2;
	signal(SIGUSR1, on_usr1);
	conns = xcalloc(opt.conns * sizeof(*conns));
	client_loop(ep, conns);
	for (unsigned i = 0; i < opt.conns; i++)
		if (conns[i])
			client_close(conns[i], &sum.hung, "left open", sum.resumed);
	free(conns);
	printf("{\"fetches\": %" PRIu64 ", \"ok\": %" PRIu64 ", \"failed\": %" PRIu64
	       ", \"wrong\": %" PRIu64 ", \"broken\": %" PRIu64 ", \"hung\": %" PRIu64
	       ", \"abandoned\": %" PRIu64 ", \"cancelled\": %" PRIu64 ", \"bytes\": %" PRIu64
	       ", \"slowest\": %.3f, \"seconds\": %.3f, \"error\": \"%s\"}\n",
	       sum.started, sum.ok, sum.failed, sum.wrong, sum.broken, sum.hung, sum.abandoned,
	       sum.cancelled, sum.bytes, sum.slowest, now() - start, sum.error);
	return sum.failed || sum.ok + sum.abandoned + sum.cancelled < opt.fetches;
}
