/* SPDX-License-Identifier: Apache-2.0 */
/*
 * h2exec - a pretend Ballista executor.
 *
 *	h2exec -l ADDR:PORT [-f FRAME]
 *
 * Answers every request as a DoGet, with a body (wire.h) of as many bytes as the ticket asks for,
 * in DATA frames of at most FRAME bytes (16384, and never more than the peer allows).
 *
 * A pool of threads blocks in accept(); each serves one connection at a time. That costs one
 * wake-up for a connection, as an event loop would, and leaves it to the scheduler to balance the
 * connections over the CPUs. Input is handled before output; all frames that are due go out in one
 * writev(), their payload straight from the pattern.
 */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench/wire.h"

#define REQUEST_MAX 1024
#define BATCH_IOV 128
#define BATCH_STREAM_FRAMES 32 /* DATA frames of one stream in a row while others wait */
#define HEADERS_ROOM 64        /* a response head or trailers */
#define MIN_IDLE_THREADS 4

struct answer {
	uint32_t id;
	bool started, headers_sent;
	int64_t window;
	uint64_t sent;
	struct body body;
	size_t request_len;
	uint8_t request[REQUEST_MAX];
};

/*
 * What is being written: pieces of `control`, `arena` and the patterns. While it is not all gone
 * (`first` < `n`) no other is built; `control` may grow behind the part that is in the batch.
 */
struct batch {
	int n, first;
	size_t control_taken;
	size_t arena_used;
	struct iovec iov[BATCH_IOV];
	uint8_t arena[BATCH_IOV * HEADERS_ROOM];
};

struct connection {
	int fd;
	bool preface_seen;
	int64_t window, initial_window;
	uint32_t max_frame;
	uint64_t received; /* DATA not yet given back to the connection window */
	unsigned n_answers, turn;
	size_t have;
	struct answer answers[STREAMS_MAX]; /* the first n_answers are in use */
	struct frames control;
	struct batch batch;
	uint8_t in[128 * 1024];
};

static uint32_t frame_limit = DEFAULT_FRAME;
static atomic_int idle_threads;

static struct answer *find_answer(struct connection *c, uint32_t id)
{
	for (unsigned i = 0; i < c->n_answers; i++)
		if (c->answers[i].id == id)
			return &c->answers[i];
	return NULL;
}

static void drop_answer(struct connection *c, struct answer *a)
{
	*a = c->answers[--c->n_answers];
}

static void start_answer(struct answer *a)
{
	const char *text = memmem(a->request, a->request_len, "bytes=", 6);
	bool grpc = false;

	if (!text) {
		text = memmem(a->request, a->request_len, "grpc=", 5);
		grpc = text;
	}
	body_init(&a->body, text ? strtoull(strchr(text, '=') + 1, NULL, 10) : 0, grpc);
	a->started = true;
}

/* ---------------------------------------------------------------- input */

static int on_headers(struct connection *c, uint32_t id, uint8_t flags)
{
	struct answer *a = find_answer(c, id);

	if (!a) {
		if (c->n_answers == STREAMS_MAX)
			return -EPROTO;
		a = &c->answers[c->n_answers++];
		a->id = id;
		a->started = a->headers_sent = false;
		a->window = c->initial_window;
		a->sent = 0;
		a->request_len = 0;
	}
	if (flags & FLAG_END_STREAM)
		start_answer(a);
	return 0;
}

static int on_data(struct connection *c, uint32_t id, uint8_t flags, const uint8_t *p, uint32_t len)
{
	struct answer *a = find_answer(c, id);

	c->received += len;
	if (c->received >= DEFAULT_WINDOW / 2) {
		if (!frames_window(&c->control, 0, (uint32_t)c->received))
			return -ENOBUFS;
		c->received = 0;
	}
	if (!a)
		return 0;
	if (len >= DEFAULT_WINDOW / 4 && !(flags & FLAG_END_STREAM) &&
	    !frames_window(&c->control, id, len))
		return -ENOBUFS;
	/* The size is near the start; one byte stays for the terminating zero. */
	len = (uint32_t)min_u64(len, REQUEST_MAX - 1 - a->request_len);
	memcpy(a->request + a->request_len, p, len);
	a->request_len += len;
	a->request[a->request_len] = 0;
	if (flags & FLAG_END_STREAM)
		start_answer(a);
	return 0;
}

static int on_settings(struct connection *c, uint8_t flags, const uint8_t *p, uint32_t len)
{
	if (flags & FLAG_ACK)
		return 0;
	for (; len >= 6; p += 6, len -= 6) {
		uint32_t value = get_be32(p + 2);

		if (get_be16(p) == SETTING_MAX_FRAME)
			c->max_frame = value;
		if (get_be16(p) != SETTING_INITIAL_WINDOW)
			continue;
		for (unsigned i = 0; i < c->n_answers; i++)
			c->answers[i].window += (int64_t)value - c->initial_window;
		c->initial_window = value;
	}
	return frames_add(&c->control, 0, FRAME_SETTINGS, FLAG_ACK, 0) ? 0 : -ENOBUFS;
}

static int on_frame(struct connection *c, const uint8_t *head, uint32_t len)
{
	uint32_t id = get_be32(head + 5) & 0x7fffffff;
	const uint8_t *p = head + FRAME_HEAD;
	uint8_t flags = head[4];
	struct answer *a;

	switch (head[3]) {
	case FRAME_DATA:
		return on_data(c, id, flags, p, len);
	case FRAME_HEADERS:
		return on_headers(c, id, flags);
	case FRAME_SETTINGS:
		return on_settings(c, flags, p, len);
	case FRAME_PING:
		if (flags & FLAG_ACK || len != 8)
			return 0;
		return frames_ping_ack(&c->control, p) ? 0 : -ENOBUFS;
	case FRAME_RST_STREAM:
		a = find_answer(c, id);
		if (a)
			drop_answer(c, a);
		return 0;
	case FRAME_WINDOW_UPDATE:
		if (len != 4)
			return -EPROTO;
		a = find_answer(c, id);
		if (!id)
			c->window += get_be32(p) & 0x7fffffff;
		else if (a)
			a->window += get_be32(p) & 0x7fffffff;
		return 0;
	default:
		return 0;
	}
}

/* 0, or -errno when the connection is over. */
static int parse_input(struct connection *c)
{
	size_t at = 0;

	if (!c->preface_seen) {
		if (c->have < PREFACE_LEN)
			return 0;
		if (memcmp(c->in, PREFACE, PREFACE_LEN))
			return -EPROTO;
		c->preface_seen = true;
		at = PREFACE_LEN;
	}
	while (c->have - at >= FRAME_HEAD) {
		uint32_t len = get_be24(c->in + at);
		int err;

		if (len > sizeof(c->in) - FRAME_HEAD)
			return -EPROTO;
		if (c->have - at < FRAME_HEAD + len)
			break;
		err = on_frame(c, c->in + at, len);
		if (err)
			return err;
		at += FRAME_HEAD + len;
	}
	memmove(c->in, c->in + at, c->have - at);
	c->have -= at;
	return 0;
}

/* Takes what is there without waiting. 0, or -errno when the connection is over. */
static int read_input(struct connection *c)
{
	for (;;) {
		size_t room = sizeof(c->in) - c->have;
		ssize_t n = recv(c->fd, c->in + c->have, room, MSG_DONTWAIT);
		int err;

		if (n == 0)
			return -ECONNRESET;
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		c->have += (size_t)n;
		err = parse_input(c);
		if (err || (size_t)n < room)
			return err;
	}
}

/* ---------------------------------------------------------------- output */

static void batch_add(struct batch *b, const void *p, size_t len)
{
	b->iov[b->n++] = (struct iovec){ (void *)p, len };
}

static void batch_add_headers(struct batch *b, uint32_t id, const char *name, const char *value)
{
	uint8_t *head = b->arena + b->arena_used;
	uint8_t *p = head + FRAME_HEAD;
	bool trailers = !strcmp(name, "grpc-status");

	if (!trailers)
		*p++ = 0x88; /* :status 200 */
	p = put_literal(p, name, value);
	put_frame_head(head, (uint32_t)(p - head) - FRAME_HEAD, FRAME_HEADERS,
		       FLAG_END_HEADERS | (trailers ? FLAG_END_STREAM : 0), id);
	b->arena_used += (size_t)(p - head);
	batch_add(b, head, (size_t)(p - head));
}

static void batch_add_data(struct connection *c, struct answer *a, uint32_t len)
{
	struct batch *b = &c->batch;
	uint8_t *head = b->arena + b->arena_used;

	put_frame_head(head, len, FRAME_DATA, 0, a->id);
	b->arena_used += FRAME_HEAD;
	batch_add(b, head, FRAME_HEAD);
	a->window -= len;
	c->window -= len;
	while (len) {
		const uint8_t *p;
		size_t n = body_slice(&a->body, a->sent, len, &p);

		batch_add(b, p, n);
		a->sent += n;
		len -= (uint32_t)n;
	}
}

/* Adds what this stream may send now; true when it is finished. */
static bool batch_add_answer(struct connection *c, struct answer *a)
{
	struct batch *b = &c->batch;
	uint32_t limit = c->max_frame < frame_limit ? c->max_frame : frame_limit;

	if (!a->headers_sent) {
		batch_add_headers(b, a->id, "content-type", "application/grpc");
		a->headers_sent = true;
	}
	/* A frame is at most five pieces: head, end of a message, head and start of the next. */
	for (int i = 0; i < BATCH_STREAM_FRAMES && b->n + 6 <= BATCH_IOV; i++) {
		int64_t len = min_i64(limit, (int64_t)(a->body.total - a->sent));

		len = min_i64(len, min_i64(a->window, c->window));
		if (len <= 0)
			break;
		batch_add_data(c, a, (uint32_t)len);
	}
	if (a->sent < a->body.total || b->n == BATCH_IOV)
		return false;
	batch_add_headers(b, a->id, "grpc-status", "0");
	return true;
}

/* Control frames first, then each stream in turn, beginning with another one each time. */
static void batch_build(struct connection *c)
{
	struct batch *b = &c->batch;
	unsigned left = c->n_answers;

	b->n = b->first = 0;
	b->arena_used = 0;
	b->control_taken = c->control.len;
	if (b->control_taken)
		batch_add(b, c->control.bytes, b->control_taken);
	while (left-- && b->n + 8 <= BATCH_IOV) {
		struct answer *a;

		if (c->turn >= c->n_answers)
			c->turn = 0;
		a = &c->answers[c->turn];
		if (a->started && batch_add_answer(c, a))
			drop_answer(c, a);
		else
			c->turn++;
	}
}

/* Writes what there is to write. 1 when the socket is full, 0 when all is gone, or -errno. */
static int write_output(struct connection *c)
{
	struct batch *b = &c->batch;

	for (;;) {
		ssize_t n;

		if (b->first == b->n) {
			c->control.len -= b->control_taken;
			memmove(c->control.bytes, c->control.bytes + b->control_taken,
				c->control.len);
			batch_build(c);
			if (!b->n)
				return 0;
		}
		n = writev(c->fd, b->iov + b->first, b->n - b->first);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 1 : -errno;
		while (b->first < b->n && (size_t)n >= b->iov[b->first].iov_len)
			n -= (ssize_t)b->iov[b->first++].iov_len;
		if (b->first < b->n) {
			b->iov[b->first].iov_base = (uint8_t *)b->iov[b->first].iov_base + n;
			b->iov[b->first].iov_len -= (size_t)n;
		}
	}
}

/* ---------------------------------------------------------------- threads */

static void serve(struct connection *c, int fd)
{
	int one = 1, full;
	uint8_t *p;

	c->fd = fd;
	c->preface_seen = false;
	c->window = c->initial_window = DEFAULT_WINDOW;
	c->max_frame = DEFAULT_FRAME;
	c->received = 0;
	c->n_answers = c->turn = 0;
	c->have = 0;
	c->control.len = 0;
	c->batch.n = c->batch.first = 0;
	c->batch.control_taken = 0;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	p = frames_add(&c->control, 6, FRAME_SETTINGS, 0, 0);
	put_setting(p, SETTING_MAX_STREAMS, STREAMS_MAX);

	while ((full = write_output(c)) >= 0) {
		struct pollfd pfd = { fd, full ? POLLOUT : POLLIN, 0 };

		/* Input waits while output is stuck: it could only lead to smaller writes. */
		if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
			break;
		if (read_input(c) < 0)
			break;
	}
	close(fd);
}

static void *serve_thread(void *arg);

static void spawn_thread(int listener)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	atomic_fetch_add(&idle_threads, 1);
	if (pthread_create(&thread, &attr, serve_thread, (void *)(intptr_t)listener))
		die("cannot start a thread");
	pthread_attr_destroy(&attr);
}

static void *serve_thread(void *arg)
{
	struct connection *c = must_alloc(sizeof(*c));
	int listener = (int)(intptr_t)arg;

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		if (atomic_fetch_sub(&idle_threads, 1) <= MIN_IDLE_THREADS)
			spawn_thread(listener);
		serve(c, fd);
		atomic_fetch_add(&idle_threads, 1);
	}
	return NULL;
}

static void serve_all(const char *listen_on)
{
	struct sockaddr_in a;
	int fd, one = 1;

	a = parse_addr(listen_on);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 4096))
		die("cannot listen on %s: %s", listen_on, strerror(errno));
	spawn_thread(fd);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	const char *listen_on = NULL;
	int o;

	signal(SIGPIPE, SIG_IGN);
	while ((o = getopt(argc, argv, "l:f:")) != -1) {
		if (o == 'l')
			listen_on = optarg;
		else if (o == 'f')
			frame_limit = (uint32_t)atoi(optarg);
		else
			die("usage: see the head of tests/bench/h2exec.c");
	}
	if (!frame_limit || frame_limit > PATTERN_PERIOD)
		die("-f must be 1 to %d", PATTERN_PERIOD);
	if (!listen_on)
		die("-l ADDR:PORT is missing");
	make_patterns();
	serve_all(listen_on);
}
