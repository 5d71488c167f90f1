/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadgen.c - pretend executors and fetching clients for volume tests.
 *
 *	loadgen exec  -l ADDR:PORT [-l ADDR:PORT]...
 *	loadgen fetch -c ADDR:PORT -e HOST:PORT[,HOST:PORT]... -b BYTES[-BYTES] [options]
 *
 * Both sides speak HTTP/2 through nghttp2's session API, which shares no code
 * with the proxy's own engine and is strict about what it receives: flow-control
 * overruns, bad frame sizes, undecodable header blocks and broken HTTP semantics
 * of the proxy end the connection here and are counted as failures.
 *
 * A fetch is a DoGet as Ballista's client sends it (message, then an empty DATA
 * with END_STREAM). Its ticket is a Ballista Action whose job id says how many
 * bytes to answer and with which seed; the executor answers with a byte sequence
 * that never repeats within a stream and differs between streams: the 64-bit
 * little-endian words (seed + i) * ODD. So a lost, repeated, reordered or foreign
 * byte is seen where it is, at the price of one addition a word.
 *
 * A fetch has succeeded when the response was 200, all bytes were right, their
 * number was right, and trailers brought grpc-status 0. Everything else is a
 * failure and the first one is told. One JSON object is printed at the end; the
 * exit status is 0 only if nothing failed.
 *
 * Readers that misbehave: -s stops reading the socket, -g stops granting credit,
 * both after so many bytes of a connection; "stopped" is printed when every
 * connection has got there, SIGUSR1 makes the first -r connections go on, and the
 * others are dropped when those have finished. -u leaves the first stream of a
 * connection unread until its siblings are done.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE (256u << 10)
#define OUT_SIZE (256u << 10)
#define ODD 0x9E3779B97F4A7C15ull
#define LISTEN_MAX 64
#define EXEC_MAX 64

static void die(const char *what)
{
	fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void *xcalloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		die("out of memory");
	return p;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- payload ---------------------------------------------------------------- */

static uint8_t payload_byte(uint64_t seed, uint64_t off)
{
	return (uint8_t)((seed + off / 8) * ODD >> (8 * (off % 8)));
}

static void payload_fill(uint8_t *p, uint64_t seed, uint64_t off, size_t len)
{
	while (len && off % 8) {
		*p++ = payload_byte(seed, off++);
		len--;
	}
	for (uint64_t w = (seed + off / 8) * ODD; len >= 8; w += ODD, p += 8, off += 8, len -= 8)
		memcpy(p, &w, 8);
	while (len--)
		*p++ = payload_byte(seed, off++);
}

/* Number of leading bytes that are right; len when all are. */
static size_t payload_check(const uint8_t *p, uint64_t seed, uint64_t off, size_t len)
{
	uint8_t want[16384];
	size_t done = 0;

	while (done < len) {
		size_t n = len - done < sizeof(want) ? len - done : sizeof(want);

		payload_fill(want, seed, off + done, n);
		if (memcmp(p + done, want, n)) {
			while (p[done] == payload_byte(seed, off + done))
				done++;
			return done;
		}
		done += n;
	}
	return len;
}

/* ---- a connection, either side ------------------------------------------------ */

struct conn {
	int fd;
	nghttp2_session *ng;
	bool dead;         /* to be closed by the loop */
	bool reading;      /* false: a stopped reader */
	uint32_t interest; /* epoll mask in force */
	uint8_t *out;      /* serialized and not yet taken by the kernel: out[off..len) */
	size_t out_off, out_len;

	uint16_t port; /* executor side: the listener's */

	/* client side only */
	unsigned index;
	unsigned live;       /* streams open */
	unsigned opened;     /* streams opened on this connection */
	uint64_t got;        /* payload bytes */
	bool counted_stop;   /* reported as stopped */
	bool granting;       /* false: consumed bytes are not given back */
	bool resumed;        /* SIGUSR1 came: no more stopping */
	uint64_t unconsumed; /* bytes withheld from the connection window */
	struct fetch *first; /* the one left unread by -u, while it lives */
};

static void conn_watch(struct conn *c, int ep)
{
	uint32_t want = (c->reading ? EPOLLIN : 0) | (c->out_len ? EPOLLOUT : 0);
	struct epoll_event e = { .events = want, .data.ptr = c };

	if (want == c->interest)
		return;
	c->interest = want;
	if (epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e))
		die("epoll_ctl");
}

static struct conn *conn_new(int fd, int ep)
{
	struct conn *c = xcalloc(sizeof(*c));
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
	int one = 1;

	c->fd = fd;
	c->reading = c->granting = true;
	c->interest = EPOLLIN;
	c->out = xcalloc(OUT_SIZE + 32768);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e))
		die("epoll_ctl");
	return c;
}

static void conn_free(struct conn *c)
{
	nghttp2_session_del(c->ng);
	close(c->fd);
	free(c->out);
	free(c);
}

/* Writes until the session has nothing to say or the socket takes no more. */
static void conn_flush(struct conn *c)
{
	for (;;) {
		while (c->out_off < c->out_len) {
			ssize_t n = send(c->fd, c->out + c->out_off, c->out_len - c->out_off,
					 MSG_NOSIGNAL | MSG_DONTWAIT);

			if (n < 0 && errno == EAGAIN)
				return;
			if (n < 0) {
				c->dead = true;
				return;
			}
			c->out_off += (size_t)n;
		}
		c->out_off = c->out_len = 0;
		while (c->out_len < OUT_SIZE) {
			const uint8_t *p;
			ssize_t n = nghttp2_session_mem_send(c->ng, &p);

			if (n < 0)
				c->dead = true;
			if (n <= 0)
				break;
			if (c->out_len + (size_t)n > OUT_SIZE + 32768)
				die("frame larger than the output buffer");
			memcpy(c->out + c->out_len, p, (size_t)n);
			c->out_len += (size_t)n;
		}
		if (!c->out_len)
			return;
	}
}

/* Feeds the session; returns a static text when the connection has ended. */
static const char *conn_read(struct conn *c)
{
	static __thread uint8_t buf[READ_SIZE];

	for (int turn = 0; turn < 8 && c->reading; turn++) {
		ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return NULL;
		if (n < 0)
			return "connection reset";
		if (n == 0)
			return "connection closed";
		n = nghttp2_session_mem_recv(c->ng, buf, (size_t)n);
		if (n < 0)
			return nghttp2_strerror((int)n);
	}
	return NULL;
}

static nghttp2_nv nv(const char *name, const char *value)
{
	return (nghttp2_nv){ (uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
			     NGHTTP2_NV_FLAG_NONE };
}

static void parse_address(const char *text, struct sockaddr_in *ret)
{
	char host[64];
	const char *colon = strrchr(text, ':');

	memset(ret, 0, sizeof(*ret));
	ret->sin_family = AF_INET;
	if (!colon || (size_t)(colon - text) >= sizeof(host))
		goto bad;
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = 0;
	ret->sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, host, &ret->sin_addr) == 1)
		return;
bad:
	fprintf(stderr, "loadgen: '%s' is not IPV4:PORT\n", text);
	exit(2);
}

static size_t put_varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v > 127; v >>= 7)
		p[n++] = (uint8_t)(v | 128);
	p[n++] = (uint8_t)v;
	return n;
}

/* ---- executor ------------------------------------------------------------------ */

struct answer {
	uint64_t seed, total, sent;
	uint8_t request[512];
	size_t request_len;
};

static ssize_t answer_read(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t len,
			   uint32_t *flags, nghttp2_data_source *src, void *arg)
{
	struct answer *a = src->ptr;
	nghttp2_nv status = nv("grpc-status", "0");

	(void)arg;
	if (len > a->total - a->sent)
		len = a->total - a->sent;
	payload_fill(buf, a->seed, a->sent, len);
	a->sent += len;
	if (a->sent == a->total) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(ng, id, &status, 1))
			return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	return (ssize_t)len;
}

/* The job id in the ticket is "b=BYTES,s=SEED;". A ticket for another port is refused. */
static int answer_start(nghttp2_session *ng, int32_t id, struct answer *a, uint16_t port)
{
	nghttp2_nv head[] = { nv(":status", "200"), nv("content-type", "application/grpc") };
	nghttp2_nv bad[] = { nv(":status", "200"), nv("content-type", "application/grpc"),
			     nv("grpc-status", "5"), nv("grpc-message", "no such job") };
	nghttp2_data_provider body = { .source.ptr = a, .read_callback = answer_read };
	uint8_t own[8] = { 0x30 };
	size_t own_len = 1 + put_varint(own + 1, port);
	char *job;

	a->request[a->request_len] = 0;
	job = memmem(a->request, a->request_len, "b=", 2);
	if (!job || !memmem(a->request, a->request_len, own, own_len) ||
	    sscanf(job, "b=%" SCNu64 ",s=%" SCNu64 ";", &a->total, &a->seed) != 2)
		return nghttp2_submit_response(ng, id, bad, 4, NULL);
	return nghttp2_submit_response(ng, id, head, 2, &body);
}

static int exec_begin_headers(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	(void)arg;
	return nghttp2_session_set_stream_user_data(ng, f->hd.stream_id,
						    xcalloc(sizeof(struct answer)));
}

static int exec_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t len,
		     void *arg)
{
	struct answer *a = nghttp2_session_get_stream_user_data(ng, id);

	(void)flags;
	(void)arg;
	if (!a || a->request_len + len >= sizeof(a->request))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	memcpy(a->request + a->request_len, p, len);
	a->request_len += len;
	return 0;
}

static int exec_frame(nghttp2_session *ng, const nghttp2_frame *f, void *arg)
{
	struct answer *a;

	if (f->hd.type > NGHTTP2_HEADERS || !(f->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	a = nghttp2_session_get_stream_user_data(ng, f->hd.stream_id);
	return a ? answer_start(ng, f->hd.stream_id, a, ((struct conn *)arg)->port) : 0;
}

static int exec_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg)
{
	(void)code;
	(void)arg;
	free(nghttp2_session_get_stream_user_data(ng, id));
	return 0;
}

static void exec_accept(int listener, int ep)
{
	nghttp2_settings_entry s = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 200 };
	nghttp2_session_callbacks *cb;
	struct sockaddr_in own;
	socklen_t len = sizeof(own);
	struct conn *c;
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		return;
	c = conn_new(fd, ep);
	if (!getsockname(fd, (struct sockaddr *)&own, &len))
		c->port = ntohs(own.sin_port);
	if (nghttp2_session_callbacks_new(&cb))
		die("out of memory");
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, exec_begin_headers);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, exec_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, exec_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, exec_stream_close);
	if (nghttp2_session_server_new(&c->ng, cb, c) ||
	    nghttp2_submit_settings(c->ng, NGHTTP2_FLAG_NONE, &s, 1))
		die("out of memory");
	nghttp2_session_callbacks_del(cb);
	conn_flush(c);
	conn_watch(c, ep);
}

/*
 * One listening address, one thread, one epoll set. A peer's end is not an
 * error here: what it means is judged on the client's side.
 */
static void *exec_thread(void *arg)
{
	int listener = (int)(intptr_t)arg, ep = epoll_create1(0);
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL }, ev[64];

	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e))
		die("epoll");
	for (;;) {
		int n = epoll_wait(ep, ev, 64, -1);

		for (int i = 0; i < n; i++) {
			struct conn *c = ev[i].data.ptr;

			if (!c) {
				exec_accept(listener, ep);
				continue;
			}
			if (ev[i].events & ~(uint32_t)EPOLLOUT && conn_read(c))
				c->dead = true;
			if (!c->dead)
				conn_flush(c);
			if (c->dead || (!nghttp2_session_want_read(c->ng) &&
					!nghttp2_session_want_write(c->ng)))
				conn_free(c);
			else
				conn_watch(c, ep);
		}
	}
	return NULL;
}

static int listen_on(const char *text)
{
	struct sockaddr_in a;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	parse_address(text, &a);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 4096))
		die(text);
	return fd;
}

static int run_exec(int argc, char **argv)
{
	int listeners[LISTEN_MAX], n = 0, opt;
	pthread_t t;

	while ((opt = getopt(argc, argv, "l:")) != -1) {
		if (opt != 'l' || n == LISTEN_MAX)
			return 2;
		listeners[n++] = listen_on(optarg);
	}
	for (int i = 0; i < n; i++)
		if (pthread_create(&t, NULL, exec_thread, (void *)(intptr_t)listeners[i]))
			die("thread");
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}

/* ---- client ---------------------------------------------------------------------- */

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
	uint64_t started, ok, failed, abandoned, bytes;
	unsigned conns_open, stopped, cut;
	bool resumed;
	char error[256];
} sum;

static volatile sig_atomic_t resume_signal;

struct fetch {
	uint64_t seed, total, got;
	uint8_t request[512];
	size_t request_len;
	bool request_sent;
	int http, grpc;    /* -1 until seen */
	bool ended;        /* END_STREAM on a header block */
	uint64_t withheld; /* bytes not given back to the stream window */
	uint64_t bad_at;   /* offset of the first wrong byte, UINT64_MAX none */
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

static void fetch_start(struct conn *c)
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
	fetch_request(f, number);
	if (opt.unread_first && !c->opened)
		c->first = f;
	if (nghttp2_submit_request(c->ng, NULL, head, 7, &body, f) < 0)
		die("submit_request");
	c->opened++;
	c->live++;
}

static void note_failure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void note_failure(const char *fmt, ...)
{
	va_list ap;

	sum.failed++;
	if (sum.error[0])
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
	if (f->bad_at != UINT64_MAX)
		note_failure("wrong byte at offset %" PRIu64 " of %" PRIu64, f->bad_at, f->total);
	else if (f->http != 200 || f->grpc || f->got != f->total || code || !f->ended)
		note_failure("http %d grpc-status %d '%s', %" PRIu64 " of %" PRIu64
			     " bytes, stream error %u, end %d",
			     f->http, f->grpc, f->message, f->got, f->total, code, f->ended);
	else
		sum.ok++;
}

static void release(struct conn *c, int32_t id, struct fetch *f)
{
	if (f->withheld)
		nghttp2_session_consume_stream(c->ng, id, f->withheld);
	f->withheld = 0;
}

static int fetch_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t len,
		      void *arg)
{
	struct fetch *f = nghttp2_session_get_stream_user_data(ng, id);
	struct conn *c = arg;
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
		c->reading = false;
	if (!c->resumed && c->got >= opt.stop_granting)
		c->granting = false;
	if (!c->granting || !c->reading)
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
	struct conn *c = arg;

	if (!f)
		return 0;
	fetch_judge(f, code);
	if (c->first == f)
		c->first = NULL;
	free(f);
	c->live--;
	return 0;
}

static struct conn *client_open(int ep, unsigned index)
{
	nghttp2_settings_entry s[] = { { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
				       { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, opt.window },
				       { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16384 } };
	nghttp2_session_callbacks *cb;
	nghttp2_option *no;
	struct conn *c;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&opt.to, sizeof(opt.to))) {
		sum.started++;
		note_failure("connect: %s", strerror(errno));
		close(fd);
		return NULL;
	}
	c = conn_new(fd, ep);
	c->index = index;
	if (nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&no))
		die("out of memory");
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, fetch_data);
	nghttp2_session_callbacks_set_on_header_callback(cb, fetch_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, fetch_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, fetch_close);
	nghttp2_option_set_no_auto_window_update(no, 1);
	if (nghttp2_session_client_new2(&c->ng, cb, c, no) ||
	    nghttp2_submit_settings(c->ng, NGHTTP2_FLAG_NONE, s, 3) ||
	    nghttp2_session_set_local_window_size(c->ng, NGHTTP2_FLAG_NONE, 0,
						  (int32_t)opt.conn_window))
		die("session");
	nghttp2_option_del(no);
	nghttp2_session_callbacks_del(cb);
	sum.conns_open++;
	return c;
}

static void client_each(struct conn *c, void (*fn)(struct conn *c, int32_t id, struct fetch *f))
{
	int32_t last = nghttp2_session_get_next_stream_id(c->ng);

	for (int32_t id = 1; id < last; id += 2) {
		struct fetch *f = nghttp2_session_get_stream_user_data(c->ng, id);

		if (f)
			fn(c, id, f);
	}
}

static void abandon(struct conn *c, int32_t id, struct fetch *f)
{
	nghttp2_session_set_stream_user_data(c->ng, id, NULL);
	free(f);
}

/* Streams that the connection's end left open are failures, or abandoned on purpose. */
static void client_close(struct conn *c, const char *why, bool on_purpose)
{
	if (c->live && on_purpose) {
		sum.abandoned += c->live;
	} else if (c->live) {
		note_failure("%s with %u streams open after %" PRIu64 " bytes", why, c->live,
			     c->got);
		sum.failed += c->live - 1;
	}
	client_each(c, abandon);
	nghttp2_session_terminate_session(c->ng, NGHTTP2_NO_ERROR);
	if (!c->dead)
		conn_flush(c);
	conn_free(c);
	sum.conns_open--;
}

/* Opens what the options still ask for; true when the connection has no more to do. */
static bool client_fill(struct conn *c)
{
	unsigned room = opt.fresh ? 1 : opt.streams;

	while (c->live < room && sum.started < opt.fetches && !(opt.fresh && c->opened))
		fetch_start(c);
	return !c->live;
}

/* -u: the siblings are done, so the first stream may be read now. */
static void client_unread(struct conn *c)
{
	struct fetch *f;

	if (!c->first || c->live != 1 || sum.started < opt.fetches)
		return;
	f = c->first;
	c->first = NULL;
	release(c, 1, f); /* it was the connection's first request */
}

static void client_resume(struct conn *c)
{
	if (c->index >= opt.resume || c->resumed)
		return;
	c->resumed = c->reading = c->granting = true;
	nghttp2_session_consume_connection(c->ng, c->unconsumed);
	c->unconsumed = 0;
	client_each(c, release);
}

static void client_count_stop(struct conn *c)
{
	if (c->counted_stop || (c->reading && c->granting))
		return;
	c->counted_stop = true;
	if (++sum.stopped == opt.conns) {
		printf("stopped\n");
		fflush(stdout);
	}
}

/* One turn of a connection. NULL: it has been closed. */
static struct conn *client_turn(struct conn *c, int ep, uint32_t events)
{
	const char *end = NULL;

	if (events & ~(uint32_t)EPOLLOUT)
		end = c->reading ? conn_read(c) : NULL;
	client_unread(c);
	client_count_stop(c);
	/* Sending a RST_STREAM closes a stream, and leaves room for another. */
	while (!end && !client_fill(c)) {
		unsigned live = c->live;

		conn_flush(c);
		if (c->dead) {
			end = "write failed";
		} else if (c->live == live) {
			conn_watch(c, ep);
			return c;
		}
	}
	client_close(c, end, false);
	return NULL;
}

static void on_usr1(int sig)
{
	(void)sig;
	resume_signal = 1;
}

static void client_loop(int ep, struct conn **conns)
{
	struct epoll_event ev[64];

	for (;;) {
		unsigned wanted = 0, finishing = 0;
		int n;

		for (unsigned i = 0; i < opt.conns; i++) {
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
			note_failure("deadline: %u connections unfinished", wanted);
			return;
		}
		n = epoll_wait(ep, ev, 64, 100);
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
			struct conn *c = ev[i].data.ptr;

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

	while ((o = getopt(argc, argv, "c:e:b:n:j:m:w:W:S:s:g:ur:t:1")) != -1) {
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

static int run_fetch(int argc, char **argv)
{
	struct conn **conns;
	double start = now();
	int ep = epoll_create1(0);

	if (!parse_fetch(argc, argv))
		return 2;
	signal(SIGUSR1, on_usr1);
	conns = xcalloc(opt.conns * sizeof(*conns));
	client_loop(ep, conns);
	for (unsigned i = 0; i < opt.conns; i++)
		if (conns[i])
			client_close(conns[i], "left open", sum.resumed);
	free(conns);
	printf("{\"fetches\": %" PRIu64 ", \"ok\": %" PRIu64 ", \"failed\": %" PRIu64
	       ", \"abandoned\": %" PRIu64 ", \"bytes\": %" PRIu64
	       ", \"seconds\": %.3f, \"error\": \"%s\"}\n",
	       sum.started, sum.ok, sum.failed, sum.abandoned, sum.bytes, now() - start, sum.error);
	return sum.failed || sum.ok + sum.abandoned < opt.fetches;
}

int main(int argc, char **argv)
{
	int rc = 2;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlives the test that started it */
	if (argc > 1 && !strcmp(argv[1], "exec"))
		rc = run_exec(argc - 1, argv + 1);
	else if (argc > 1 && !strcmp(argv[1], "fetch"))
		rc = run_fetch(argc - 1, argv + 1);
	if (rc == 2)
		fprintf(stderr, "usage: see the top of loadgen.c\n");
	return rc;
}
