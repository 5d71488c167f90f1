/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_rig.c - see selftest_rig.h.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "datapath/selftest_rig.h"

uint64_t rig_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

int rig_fail(struct rig *r, const char *format, ...)
{
	va_list args;

	if (!r->why[0]) {
		va_start(args, format);
		vsnprintf(r->why, sizeof(r->why), format, args);
		va_end(args);
	}
	return -1;
}

bool rig_wait(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd pf = { .fd = fd, .events = events };

	for (;;) {
		uint64_t now = rig_now();
		int ms = now < deadline_ns ? (int)((deadline_ns - now) / NSEC_PER_MSEC) + 1 : 0;

		if (poll(&pf, 1, ms) == 1 && pf.revents & events)
			return true;
		if (rig_now() >= deadline_ns)
			return false;
	}
}

/* ---------------------------------------------------------------- sockets */

/* Loopback has no use for pacing, and what the machine's default does is not under test. */
static void plain_tcp(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int listen_on_loopback(struct sockaddr_in *ret)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&a, len) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&a, &len)) {
		close(fd);
		return -1;
	}
	*ret = a;
	return fd;
}

/* A connection over loopback: *ret_here is the end that connected. 0 or -1. */
static int connection(int rcvbuf, int *ret_here, int *ret_there)
{
	struct sockaddr_in a;
	int listener = listen_on_loopback(&a), here, there = -1;

	if (listener < 0)
		return -1;
	here = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	if (here >= 0 && rcvbuf)
		setsockopt(here, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
	if (here >= 0 && !connect(here, (struct sockaddr *)&a, sizeof(a)))
		there = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	close(listener);
	if (there < 0) {
		if (here >= 0)
			close(here);
		return -1;
	}
	plain_tcp(here);
	plain_tcp(there);
	*ret_here = here;
	*ret_there = there;
	return 0;
}

int rig_open(struct rig *r, struct sockmap_worker *w, const struct rig_buffers *b,
	     uint64_t tap_limit)
{
	struct splice_params params = { .max_frame = H2_DEFAULT_FRAME_SIZE,
					.tap_limit = tap_limit,
					.owner = r };
	enum splice_refusal refusal;
	int err;

	r->w = w;
	r->x = r->u = r->c = r->k = -1;
	if (connection(0, &r->u, &r->x) || connection(b->client_rcv, &r->k, &r->c))
		return rig_fail(r, "no TCP connection over 127.0.0.1: %m");
	if (b->client_snd)
		setsockopt(r->c, SOL_SOCKET, SO_SNDBUF, &b->client_snd, sizeof(b->client_snd));
	else
		sockmap_client_sndbuf(r->c, 8 * MiB);
	refusal = splice_enrol(w, r->c, r->u, &params, &r->pair, &err);
	if (refusal == SPLICE_FOREIGN)
		return rig_fail(r, "another program has put our sockets into a sockmap (Cilium, "
				   "Beyla and the like do that)");
	if (refusal != SPLICE_OK)
		return rig_fail(r, "a pair cannot be enrolled: %s (%s)",
				splice_refusal_name(refusal), strerror(-err));
	if (pump_init(&r->pump, r->pair))
		return rig_fail(r, "out of memory");
	return 0;
}

int rig_start(struct rig *r)
{
	if (splice_stream_add(r->pair, RIG_STREAM, UINT64_MAX >> 1))
		return rig_fail(r, "a stream cannot be registered");
	splice_release(r->pair);
	return 0;
}

void rig_close(struct rig *r)
{
	int fds[] = { r->x, r->u, r->c, r->k };

	splice_free(r->pair);
	pump_free(&r->pump);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

/* ---------------------------------------------------------------- executor */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

static uint32_t frame_length(uint64_t n)
{
	if (n % 7 == 3)
		return 8 + (uint32_t)(mix(n) % 90);
	return n % 4 ? 8 + (uint32_t)(mix(n) % 16000) : H2_DEFAULT_FRAME_SIZE;
}

size_t rig_frame(uint64_t n, uint8_t *p)
{
	uint32_t length = frame_length(n);
	uint64_t word = n * 0x9e3779b97f4a7c15ULL;

	h2_frame_put(p, length, H2_DATA, 0, RIG_STREAM);
	p += H2_HEADER_LEN;
	for (uint32_t i = 0; i < length; i += 8, word++)
		memcpy(p + i, &word, min_u64(8, length - i));
	return H2_HEADER_LEN + length;
}

static void next_frame(struct rig *r)
{
	r->tx_len = rig_frame(r->tx_frames, r->tx);
	r->tx_off = 0;
	r->tx_data += r->tx_len - H2_HEADER_LEN;
	r->tx_made += r->tx_len;
	if (r->sabotage && r->tx_frames == 5)
		r->tx[H2_HEADER_LEN + 3] ^= 0x40;
	r->tx_frames++;
}

/* Bytes written this turn, or -1. */
static ssize_t source(struct rig *r)
{
	ssize_t total = 0;

	while (total < (ssize_t)(256 * KiB)) {
		ssize_t n;

		if (r->tx_off == r->tx_len) {
			if (r->tx_made >= r->tx_goal)
				break;
			next_frame(r);
		}
		n = send(r->x, r->tx + r->tx_off, r->tx_len - r->tx_off,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return rig_fail(r, "the executor's connection broke: %m");
		r->tx_off += (size_t)n;
		r->tx_bytes += (uint64_t)n;
		total += n;
	}
	return total;
}

int rig_write(struct rig *r, const void *p, size_t len, int flags)
{
	if (send(r->x, p, len, flags | MSG_NOSIGNAL) != (ssize_t)len)
		return rig_fail(r, "the executor cannot send: %m");
	r->tx_bytes += len;
	r->tx_made += len;
	return 0;
}

int rig_ping(struct rig *r)
{
	uint8_t ping[H2_HEADER_LEN + 8];
	int err;

	h2_frame_put(ping, 8, H2_PING, H2_FLAG_ACK, 0);
	memcpy(ping + H2_HEADER_LEN, &r->tx_pings, 8);
	err = pump_send(&r->pump, ping, sizeof(ping));
	if (err == -ENOSPC)
		return 0;
	r->tx_pings++;
	if (err < 0 && err != -EAGAIN)
		return rig_fail(r, "a frame cannot be injected: %s", strerror(-err));
	return 0;
}

ssize_t rig_inject(struct rig *r)
{
	ssize_t total = 0;

	for (;;) {
		struct iovec iov;
		ssize_t n;

		if (r->tx_off == r->tx_len) {
			if (r->tx_made >= r->tx_goal)
				return total;
			next_frame(r);
		}
		iov = (struct iovec){ r->tx + r->tx_off, r->tx_len - r->tx_off };
		n = splice_sendv(r->pair, &iov, 1);
		if (n == -EAGAIN)
			return total;
		if (n < 0)
			return rig_fail(r, "a frame cannot be injected: %s", strerror((int)-n));
		r->tx_off += (size_t)n;
		total += n;
	}
}

/* ---------------------------------------------------------------- client */

static int check_ping(struct rig *r, const uint8_t *payload)
{
	uint64_t n;

	memcpy(&n, payload, 8);
	if (n != r->rx_pings)
		return rig_fail(r,
				"an injected frame is lost or out of order: number %llu where %llu "
				"is due",
				(unsigned long long)n, (unsigned long long)r->rx_pings);
	r->rx_pings++;
	return 0;
}

/* Bytes of the frame at p that were right; 0: not whole yet; -1. */
static ssize_t check_frame(struct rig *r, const uint8_t *p, size_t have)
{
	uint8_t want[RIG_FRAME_MAX];
	struct h2_frame f;
	size_t len;

	if (have < H2_HEADER_LEN)
		return 0;
	f = h2_frame_get(p);
	len = H2_HEADER_LEN + f.length;
	if (f.type == H2_PING && f.length == 8) {
		if (have < len)
			return 0;
		return check_ping(r, p + H2_HEADER_LEN) ? -1 : (ssize_t)len;
	}
	if (f.length <= H2_DEFAULT_FRAME_SIZE && have < len)
		return 0;
	if (len != rig_frame(r->rx_frames, want) || memcmp(p, want, len) != 0)
		return rig_fail(r,
				"the client got wrong bytes in frame %llu, after %llu good bytes",
				(unsigned long long)r->rx_frames, (unsigned long long)r->rx_bytes);
	r->rx_frames++;
	r->rx_bytes += len;
	return (ssize_t)len;
}

/* Bytes read this turn, or -1. */
static ssize_t sink(struct rig *r)
{
	size_t room = sizeof(r->rx) - r->rx_have, off = 0;
	ssize_t n, used;

	if (r->rx_chunk)
		room = min_u64(room, r->rx_chunk);
	n = recv(r->k, r->rx + r->rx_have, room, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0)
		return rig_fail(r, "the client's connection broke: %m");
	if (n == 0) {
		r->rx_eof = true;
		return 0;
	}
	r->rx_have += (size_t)n;
	while ((used = check_frame(r, r->rx + off, r->rx_have - off)) > 0)
		off += (size_t)used;
	if (used < 0)
		return -1;
	memmove(r->rx, r->rx + off, r->rx_have - off);
	r->rx_have -= off;
	return n;
}

bool rig_arrived(struct rig *r)
{
	return r->tx_made >= r->tx_goal && r->tx_off == r->tx_len && r->rx_bytes == r->tx_made;
}

/* ---------------------------------------------------------------- the loop */

/* What the pump had read and not sent, what the tap still has, then what u has. */
static ssize_t plain_read(struct rig *r)
{
	size_t left = r->pump.have - r->pump.sent;
	ssize_t n;

	if (left) {
		memcpy(r->fwd, r->pump.buf + r->pump.sent, left);
		r->pump.have = r->pump.ready = r->pump.sent = 0;
		return (ssize_t)left;
	}
	n = splice_recv(r->pair, r->fwd, sizeof(r->fwd));
	if (n != -ENODATA)
		return n;
	n = recv(r->u, r->fwd, sizeof(r->fwd), MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

static int plain_turn(struct rig *r)
{
	for (;;) {
		ssize_t n;

		if (r->fwd_off == r->fwd_len) {
			r->fwd_off = r->fwd_len = 0;
			n = plain_read(r);
			if (n == -EAGAIN)
				return 0;
			if (n <= 0)
				return rig_fail(r, "the upstream cannot be read after leaving: %s",
						n ? strerror((int)-n) : "end");
			r->fwd_len = (size_t)n;
		}
		n = send(r->c, r->fwd + r->fwd_off, r->fwd_len - r->fwd_off,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN ? 0
					       : rig_fail(r, "the client cannot be written after "
							     "leaving: %m");
		r->fwd_off += (size_t)n;
	}
}

static int pump_turn(struct rig *r)
{
	if (r->plain)
		return plain_turn(r);
	if (r->hold_pump)
		return 0;
	r->pump_result = pump_run(&r->pump);
	if (r->pump_result < 0 && r->pump_result != -EAGAIN && r->pump_result != -ENODATA)
		return rig_fail(r, "the tap or the injector failed: %s", strerror(-r->pump_result));
	return 0;
}

static void wait_for_something(struct rig *r)
{
	struct pollfd pf[] = {
		{ .fd = r->k, .events = POLLIN },
		{ .fd = r->tx_off < r->tx_len && !r->inject ? r->x : -1, .events = POLLOUT },
		{ .fd = r->plain ? r->u : splice_tap_fd(r->pair), .events = POLLIN },
		{ .fd = r->inject || r->pump_result == -EAGAIN ? splice_inject_fd(r->pair) : -1,
		  .events = POLLOUT },
		{ .fd = sockmap_worker_fd(r->w), .events = POLLIN },
	};

	poll(pf, ARRAY_SIZE(pf), 5);
}

int rig_run(struct rig *r, bool (*done)(struct rig *r), int (*step)(struct rig *r),
	    uint64_t deadline_ns)
{
	while (!done(r)) {
		ssize_t out = r->inject ? rig_inject(r) : source(r), in;

		if (out < 0 || (step && step(r)) || pump_turn(r))
			return -1;
		in = sink(r);
		if (in < 0)
			return -1;
		r->turns++;
		sockmap_worker_poll(r->w);
		if (r->dead && !done(r))
			return rig_fail(r, "the verdict gave the pair up: %s",
					abi_reason_name((enum abi_reason)r->dead));
		if (rig_now() > deadline_ns)
			return rig_fail(r, "no end in time: %llu of %llu bytes arrived",
					(unsigned long long)r->rx_bytes,
					(unsigned long long)r->tx_made);
		if (!in && !out && !done(r))
			wait_for_something(r);
	}
	return 0;
}
