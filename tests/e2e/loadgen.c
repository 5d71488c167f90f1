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
 * Failures are of four kinds. "wrong": a byte that is not the right one, a result
 * that is short and says it is complete, a violation of HTTP/2. "broken": the
 * connection ended. "hung": unfinished at the deadline (-t). All others were told
 * by a status or a stream error.
 *
 * Readers that misbehave: -s stops reading the socket, -g stops granting credit,
 * both after so many bytes of a connection; "stopped" is printed when every
 * connection has got there, SIGUSR1 makes the first -r connections go on, and the
 * others are dropped when those have finished. -u leaves the first stream of a
 * connection unread until its siblings are done. -R reads so many bytes a second of
 * each connection, in bursts. -x is how many of a thousand fetches are cancelled,
 * each at a random byte. -B is the receive buffer of a connection.
 */
#define _GNU_SOURCE
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
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

void die(const char *what)
{
	fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
	exit(2);
}

void *xcalloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		die("out of memory");
	return p;
}

double now(void)
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

void payload_fill(uint8_t *p, uint64_t seed, uint64_t off, size_t len)
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

size_t payload_check(const uint8_t *p, uint64_t seed, uint64_t off, size_t len)
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

void conn_watch(struct conn *c, int ep)
{
	uint32_t want = (c->reading ? EPOLLIN : 0) | (c->out_len ? EPOLLOUT : 0);
	struct epoll_event e = { .events = want, .data.ptr = c };

	if (want == c->interest)
		return;
	c->interest = want;
	if (epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e))
		die("epoll_ctl");
}

void conn_init(struct conn *c, int fd, int ep, void *owner)
{
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
	int one = 1;

	c->fd = fd;
	c->owner = owner;
	c->reading = true;
	c->interest = EPOLLIN;
	c->out = xcalloc(OUT_SIZE + 32768);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e))
		die("epoll_ctl");
}

void conn_close(struct conn *c)
{
	nghttp2_session_del(c->ng);
	close(c->fd);
	free(c->out);
}

void conn_flush(struct conn *c)
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

const char *conn_read(struct conn *c)
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

nghttp2_nv nv(const char *name, const char *value)
{
	return (nghttp2_nv){ (uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
			     NGHTTP2_NV_FLAG_NONE };
}

void parse_address(const char *text, struct sockaddr_in *ret)
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

size_t put_varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v > 127; v >>= 7)
		p[n++] = (uint8_t)(v | 128);
	p[n++] = (uint8_t)v;
	return n;
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
