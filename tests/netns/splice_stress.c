/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice_stress.c - integrity of the sockmap library under everything at once.
 *
 *   splice_stress [GB=1] [CONNECTIONS=8] [SEED=time]
 *
 * Three processes in three namespaces. The clients' has a thread for each connection, which runs one
 * session after the other: it picks a size, buffers, a pace and perhaps a moment to die at, connects,
 * and checks every byte. The executors' answers with numbered frames, stays within the window that
 * the client opens (through shared memory), sprinkles control frames, and ends with FIN on its last
 * segment. The proxy (this process) splices, and every millisecond does something to some pairs: a
 * PING of its own, a hold for a while, leaving for good.
 *
 * It passes when GB gigabytes have arrived, not one byte was wrong, no session hung, and nothing is
 * left over.
 */
#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/list.h"
#include "datapath/pump.h"
#include "datapath/selftest_rig.h"
#include "netns/lib/lab.h"

#define MAX_CONNECTIONS 256
#define STALL_SECONDS 30
#define QUIET_SECONDS 10
#define PING_TYPE_OURS H2_FLAG_ACK /* told apart from the executor's by this flag */

/* What the processes share of one connection; written by the client before it connects. */
struct session {
	uint64_t goal;          /* bytes of frames that the executor makes */
	uint64_t window;        /* it stays that far ahead of `seen` */
	uint64_t base;          /* number of its first frame */
	uint32_t control_every; /* frames between two control frames of the executor; 0 = none */
	bool tiny;              /* C gets the smallest send buffer */
	_Atomic uint64_t seen;  /* bytes of frames that the client has */
	_Atomic uint32_t turn;  /* futex: goes up with seen */
};

struct shared {
	_Atomic uint64_t total; /* bytes delivered */
	_Atomic uint64_t sessions, killed, slow;
	_Atomic uint64_t pings; /* of ours, received */
	_Atomic bool stop, failed;
	uint64_t goal;
	struct session session[MAX_CONNECTIONS];
};

static struct shared *shared;
static struct lab lab;
static unsigned connections = 8;
static uint64_t seed;

static uint64_t rnd(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static bool one_in(uint64_t *state, uint64_t n)
{
	return rnd(state) % n == 0;
}

static void complain(unsigned id, const char *what, uint64_t a, uint64_t b)
{
	fprintf(stderr, "connection %u: %s (%llu, %llu)\n", id, what, (unsigned long long)a,
		(unsigned long long)b);
	shared->failed = true;
	shared->stop = true;
}

static int write_all(int fd, const uint8_t *p, size_t len, int flags)
{
	while (len) {
		ssize_t n = send(fd, p, len, flags | MSG_NOSIGNAL);

		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* ---------------------------------------------------------------- executors */

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *limit)
{
	return syscall(SYS_futex, word, op, value, limit, NULL, 0);
}

/* Sleeps rather than polls: a crowd of threads that wake up all the time starves the kernel's. */
static int wait_for_window(struct session *s, uint64_t window, uint64_t sent)
{
	struct timespec limit = { .tv_nsec = 100000000 };

	for (;;) {
		uint32_t turn = atomic_load(&s->turn);

		if (shared->stop)
			return -1;
		if (sent - atomic_load(&s->seen) <= window)
			return 0;
		futex(&s->turn, FUTEX_WAIT, turn, &limit);
	}
}

static int send_session(int fd, struct session *shared_session)
{
	/* A session that has been killed may already have a successor there. */
	const struct session plan = *shared_session, *s = &plan;
	uint8_t f[RIG_FRAME_MAX], ping[H2_HEADER_LEN + 8];
	uint64_t sent = 0;

	h2_frame_put(ping, 8, H2_PING, 0, 0);
	memset(ping + H2_HEADER_LEN, 'x', 8);
	for (uint64_t i = 0; sent < s->goal; i++) {
		size_t len = rig_frame(s->base + i, f);
		bool last = sent + len >= s->goal;

		if (wait_for_window(shared_session, s->window, sent + len))
			return -1;
		/* The end stays in the socket until FIN goes with it. */
		if (write_all(fd, f, len, last ? MSG_MORE : 0))
			return -1;
		sent += len;
		if (s->control_every && i % s->control_every == 0 && !last &&
		    write_all(fd, ping, sizeof(ping), 0))
			return -1;
	}
	return shutdown(fd, SHUT_WR);
}

static void *executor_thread(void *arg)
{
	int fd = (int)(intptr_t)arg;
	uint8_t byte;
	uint32_t id;

	if (recv(fd, &id, sizeof(id), MSG_WAITALL) == sizeof(id) && id < connections &&
	    !send_session(fd, &shared->session[id]))
		(void)!recv(fd, &byte, 1, 0); /* until the proxy closes */
	close(fd);
	return NULL;
}

static void executors(int listener)
{
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		pthread_t t;

		if (fd < 0)
			_exit(1);
		lab_tcp(fd);
		if (pthread_create(&t, NULL, executor_thread, (void *)(intptr_t)fd))
			_exit(1);
		pthread_detach(t);
	}
}

/* ---------------------------------------------------------------- clients */

struct reader {
	unsigned id;
	uint64_t rng;
	uint64_t frame; /* number of the next one */
	uint64_t pings; /* of ours */
	uint64_t bytes; /* of frames */
	uint64_t kill_at;
	size_t have, chunk;
	unsigned nap_every; /* reads between two naps; 0 = none */
	uint8_t buf[4 * RIG_FRAME_MAX];
};

/* What the wrong bytes at p are: a later or earlier frame, or the right one after foreign bytes. */
static void analyse(const struct reader *r, const uint8_t *p, size_t have)
{
	uint8_t f[RIG_FRAME_MAX];

	fprintf(stderr, "connection %u: got", r->id);
	for (size_t i = 0; i < 32 && i < have; i++)
		fprintf(stderr, " %02x", p[i]);
	fprintf(stderr, " (%zu bytes there)\n", have);
	for (int64_t d = -200; d <= 200; d++) {
		rig_frame(r->frame + (uint64_t)d, f);
		for (size_t at = 0; at + 24 < have; at++) {
			if (!memcmp(p + at, f, 24))
				fprintf(stderr, "connection %u: frame %+lld begins at %zu\n", r->id,
					(long long)d, at);
		}
	}
	rig_frame(r->frame, f);
	for (size_t at = 0; at < have && at < sizeof(f); at++) {
		if (p[at] != f[at]) {
			fprintf(stderr, "connection %u: differs from the right frame at %zu\n",
				r->id, at);
			return;
		}
	}
}

/* Bytes of the frame at p, 0 when it is not whole, -1 when it is wrong. */
static ssize_t check_frame(struct reader *r, const uint8_t *p, size_t have)
{
	uint8_t want[RIG_FRAME_MAX];
	struct h2_frame f;
	size_t len;
	uint64_t n;

	if (have < H2_HEADER_LEN)
		return 0;
	f = h2_frame_get(p);
	len = H2_HEADER_LEN + f.length;
	if (f.length <= H2_DEFAULT_FRAME_SIZE && have < len)
		return 0;
	if (f.type == H2_PING && f.length == 8) {
		if (!(f.flags & PING_TYPE_OURS))
			return (ssize_t)len;
		memcpy(&n, p + H2_HEADER_LEN, 8);
		if (n != r->pings++) {
			complain(r->id, "injected frame out of order: is, due", n, r->pings - 1);
			return -1;
		}
		shared->pings++;
		return (ssize_t)len;
	}
	if (len != rig_frame(r->frame, want) || memcmp(p, want, len) != 0) {
		complain(r->id, "wrong bytes: frame, good bytes", r->frame, r->bytes);
		analyse(r, p, have);
		return -1;
	}
	r->frame++;
	r->bytes += len;
	return (ssize_t)len;
}

static int check_all(struct reader *r)
{
	struct session *s = &shared->session[r->id];
	uint64_t before = r->bytes;
	size_t off = 0;
	ssize_t n;

	while ((n = check_frame(r, r->buf + off, r->have - off)) > 0)
		off += (size_t)n;
	if (n < 0)
		return -1;
	memmove(r->buf, r->buf + off, r->have - off);
	r->have -= off;
	atomic_store(&s->seen, r->bytes);
	atomic_fetch_add(&s->turn, 1);
	futex(&s->turn, FUTEX_WAKE, 1, NULL);
	shared->total += r->bytes - before;
	return 0;
}

/* Sizes, buffers, pace and fate of the next session. */
static void choose(struct reader *r, int fd)
{
	struct session *s = &shared->session[r->id];
	int rcvbuf = 4608;

	*r = (struct reader){ .id = r->id, .rng = r->rng, .chunk = sizeof(r->buf) };
	memset((void *)s, 0, sizeof(*s));
	s->base = r->frame = rnd(&r->rng) & 0xffffffffffULL;
	s->goal = 64 * KiB + rnd(&r->rng) % (64 * MiB);
	s->window = one_in(&r->rng, 2) ? 5 * MiB : 64 * KiB;
	s->control_every = one_in(&r->rng, 2) ? 0 : 1 + (uint32_t)(rnd(&r->rng) % 300);
	s->tiny = one_in(&r->rng, 6);
	if (s->tiny || one_in(&r->rng, 6)) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
		s->goal = 64 * KiB + rnd(&r->rng) % MiB;
		r->chunk = 100 + rnd(&r->rng) % 4000;
		shared->slow++;
	}
	if (one_in(&r->rng, 3))
		r->nap_every = 1 + (unsigned)(rnd(&r->rng) % 200);
	if (one_in(&r->rng, 5))
		r->kill_at = 1 + rnd(&r->rng) % s->goal;
}

static int read_session(struct reader *r, int fd)
{
	struct session *s = &shared->session[r->id];
	struct timespec nap = { 0, 500000 };
	unsigned reads = 0;

	while (!shared->stop) {
		size_t room = min_u64(sizeof(r->buf) - r->have, r->chunk);
		ssize_t n = recv(fd, r->buf + r->have, room, 0);

		if (n < 0 && errno == EAGAIN) {
			complain(r->id, "hangs: bytes, goal", r->bytes, s->goal);
			return -1;
		}
		if (n < 0) {
			if (!shared->stop)
				complain(r->id, "reset: bytes, goal", r->bytes, s->goal);
			return -1;
		}
		if (n == 0) {
			if ((r->bytes < s->goal || r->have) && !shared->stop)
				complain(r->id, "early end: bytes, goal", r->bytes, s->goal);
			return 0;
		}
		r->have += (size_t)n;
		if (check_all(r))
			return -1;
		if (r->kill_at && r->bytes >= r->kill_at) {
			shared->killed++;
			return 0;
		}
		if (r->nap_every && ++reads % r->nap_every == 0)
			nanosleep(&nap, NULL);
	}
	return -1;
}

static void *client_thread(void *arg)
{
	struct reader *r = arg;
	struct sockaddr_in a = { .sin_family = AF_INET };
	uint16_t port = (uint16_t)shared->session[r->id].goal;

	a.sin_port = htons(port);
	a.sin_addr.s_addr = htonl(0x0a010001); /* LAB_CLIENT_SIDE */
	while (!shared->stop) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
		struct timeval limit = { .tv_sec = STALL_SECONDS };
		struct linger hard = { .l_onoff = (int)one_in(&r->rng, 2) };

		choose(r, fd);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
			complain(r->id, "cannot connect", (uint64_t)errno, 0);
			break;
		}
		lab_tcp(fd);
		if (write_all(fd, (uint8_t *)&r->id, sizeof(r->id), 0) || read_session(r, fd)) {
			close(fd);
			break;
		}
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		close(fd);
		shared->sessions++;
		if (shared->total >= shared->goal)
			shared->stop = true;
	}
	return NULL;
}

static void clients(uint16_t port)
{
	static struct reader readers[MAX_CONNECTIONS];
	pthread_t t[MAX_CONNECTIONS];

	lab_enter(&lab, LAB_CLIENT);
	for (unsigned i = 0; i < connections; i++) {
		readers[i].id = i;
		readers[i].rng = seed + i * 7919;
		shared->session[i].goal = port;
		if (pthread_create(&t[i], NULL, client_thread, &readers[i]))
			_exit(1);
	}
	for (unsigned i = 0; i < connections; i++)
		pthread_join(t[i], NULL);
	_exit(shared->failed);
}

/* ---------------------------------------------------------------- the proxy */

/*
 * GREETING  waits for the client's number.
 * SPLICED   the pair is in the kernel.
 * LEAVING   on its way out, to go on as PLAIN; LAST: likewise, after the executor's FIN.
 * PLAIN     read and write.
 * CLOSING   FIN sent to the client; waits for it to close.
 */
enum state { GREETING, SPLICED, LEAVING, LAST, PLAIN, CLOSING };

struct conn {
	struct list link;
	enum state state;
	int c, u;
	uint32_t id;
	struct splice_pair *pair;
	struct pump pump;
	uint64_t pings;
	unsigned hold_ticks;
	uint64_t moved, moved_ns; /* all counters together, and when they last changed */
	size_t fwd_len, fwd_off;
	bool over; /* to be freed */
	uint8_t fwd[65536];
};

static struct list conns = { &conns, &conns };
static int ep;
static uint64_t left_early, holds_forced;

static void conn_watch(struct conn *c, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = c };

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) && errno == EEXIST)
		epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e);
}

/* The slot's sockets outlive the pair. */
static void conn_unwatch(struct conn *c)
{
	if (!c->pair)
		return;
	epoll_ctl(ep, EPOLL_CTL_DEL, splice_tap_fd(c->pair), NULL);
	epoll_ctl(ep, EPOLL_CTL_DEL, splice_inject_fd(c->pair), NULL);
}

static void conn_free(struct conn *c)
{
	conn_unwatch(c);
	splice_free(c->pair);
	pump_free(&c->pump);
	if (c->u >= 0)
		close(c->u);
	close(c->c);
	list_del(&c->link);
	free(c);
}

static void conn_splice(struct conn *c, struct sockmap_worker *w, uint16_t executor_port)
{
	struct splice_params params = { .max_frame = H2_DEFAULT_FRAME_SIZE,
					.tap_limit = 64 * MiB,
					.owner = c };
	enum splice_refusal why;
	int tiny = 4608, err;

	if (shared->session[c->id].tiny)
		setsockopt(c->c, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof(tiny));
	else
		sockmap_client_sndbuf(c->c, shared->session[c->id].window);
	lab_tcp(c->c);
	lab_enter(&lab, LAB_PROXY);
	c->u = lab_connect(LAB_EXECUTOR_ADDR, executor_port);
	why = splice_enrol(w, c->c, c->u, &params, &c->pair, &err);
	if (why == SPLICE_NOT_OPEN) { /* the client is gone already */
		c->over = true;
		return;
	}
	if (why != SPLICE_OK || pump_init(&c->pump, c->pair) ||
	    splice_stream_add(c->pair, RIG_STREAM, UINT64_MAX >> 1)) {
		complain(c->id, splice_refusal_name(why), (uint64_t)-err, 0);
		c->over = true;
		return;
	}
	splice_release(c->pair);
	conn_watch(c, splice_tap_fd(c->pair), EPOLLIN);
	conn_watch(c, c->u, EPOLLRDHUP | EPOLLET);
	c->state = SPLICED;
	(void)!send(c->u, &c->id, sizeof(c->id), MSG_NOSIGNAL);
}

static ssize_t plain_read(struct conn *c)
{
	size_t left = c->pump.have - c->pump.sent;
	ssize_t n;

	if (left) {
		memcpy(c->fwd, c->pump.buf + c->pump.sent, left);
		c->pump.have = c->pump.ready = c->pump.sent = 0;
		return (ssize_t)left;
	}
	n = splice_recv(c->pair, c->fwd, sizeof(c->fwd));
	if (n != -ENODATA)
		return n;
	n = recv(c->u, c->fwd, sizeof(c->fwd), MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

static void plain_turn(struct conn *c)
{
	for (int turns = 0; turns < 16; turns++) {
		ssize_t n;

		if (c->fwd_off == c->fwd_len) {
			n = plain_read(c);
			c->fwd_off = 0;
			c->fwd_len = n > 0 ? (size_t)n : 0;
			if (n == 0) {
				shutdown(c->c, SHUT_WR);
				c->state = CLOSING;
			} else if (n < 0 && n != -EAGAIN) {
				c->over = true;
			}
			if (n <= 0)
				return;
		}
		n = send(c->c, c->fwd + c->fwd_off, c->fwd_len - c->fwd_off,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0) {
			c->over = errno != EAGAIN;
			return;
		}
		c->fwd_off += (size_t)n;
	}
}

/* Out of the kernel: the rest of an own frame is lost with the pump, so there must be none. */
static void leave_turn(struct conn *c)
{
	int err;

	if (c->pump.own_len)
		return;
	err = splice_leave(c->pair);
	if (err == -EAGAIN)
		return;
	if (err == -EIO)
		complain(c->id, "bytes of U were lost on leaving",
			 splice_state(c->pair)->redirected, splice_state(c->pair)->passed);
	if (err) {
		c->over = true;
	} else if (c->state == LAST) {
		shutdown(c->c, SHUT_WR);
		c->state = CLOSING;
	} else {
		c->state = PLAIN;
		conn_watch(c, c->u, EPOLLIN | EPOLLRDHUP);
		epoll_ctl(ep, EPOLL_CTL_DEL, splice_tap_fd(c->pair), NULL);
		left_early++;
	}
}

static void splice_turn(struct conn *c)
{
	int r = pump_run(&c->pump);

	if (r == 1) {
		c->state = LAST;
	} else if (r == -EAGAIN) {
		conn_watch(c, splice_inject_fd(c->pair), EPOLLOUT | EPOLLONESHOT);
	} else if (r < 0 && r != -ENODATA) {
		c->over = true; /* C or U is dead */
	}
}

static void conn_turn(struct conn *c)
{
	if (c->state == SPLICED || c->state == LEAVING)
		splice_turn(c);
	if (!c->over && (c->state == LEAVING || c->state == LAST))
		leave_turn(c);
	if (!c->over && c->state == PLAIN)
		plain_turn(c);
}

/* What C says; clients send nothing but their number. */
static void client_said(struct conn *c, struct sockmap_worker *w, uint16_t executor_port)
{
	uint32_t word;
	ssize_t n = recv(c->c, &word, sizeof(word), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (c->state == GREETING && n == sizeof(word)) {
		c->id = word;
		conn_splice(c, w, executor_port);
	} else {
		c->over = true;
	}
}

/* A pair in which nothing has moved for QUIET_SECONDS is described, once. */
static void explain_quiet(struct conn *c)
{
	const struct abi_pair *st = c->pair && c->state != PLAIN ? splice_state(c->pair) : NULL;
	uint64_t moved = st ? st->redirected + st->passed + st->injected : 0;
	uint64_t queued = 0, unacked = 0, now = rig_now();
	struct tcp_info u = { 0 };
	socklen_t len = sizeof(u);

	if (!st || moved != c->moved || !c->moved_ns) {
		c->moved = moved;
		c->moved_ns = now;
		return;
	}
	if (c->moved_ns == UINT64_MAX || now - c->moved_ns < QUIET_SECONDS * NSEC_PER_SEC)
		return;
	c->moved_ns = UINT64_MAX;
	splice_undelivered(c->pair, &queued, &unacked);
	getsockopt(c->u, IPPROTO_TCP, TCP_INFO, &u, &len);
	fprintf(stderr,
		"connection %u is quiet: state %d, window %llu, client has %llu of %llu; "
		"redirected "
		"%llu, passed %llu, adopted %llu, resume %llu + %llu, remaining %u, hold %u, dead "
		"%u; "
		"waiting %llu, pump %zu/%zu/%zu, open %u, own %zu; C queued %llu, unacked %llu; U "
		"got "
		"%llu, state %u\n",
		c->id, c->state, (unsigned long long)shared->session[c->id].window,
		(unsigned long long)shared->session[c->id].seen,
		(unsigned long long)shared->session[c->id].goal, (unsigned long long)st->redirected,
		(unsigned long long)st->passed, (unsigned long long)st->adopted,
		(unsigned long long)(st->resume & ABI_CONSUMED_MASK),
		(unsigned long long)(st->resume >> ABI_CONSUMED_BITS), st->remaining, st->hold,
		st->dead, (unsigned long long)splice_waiting(c->pair), c->pump.sent, c->pump.ready,
		c->pump.have, c->pump.open, c->pump.own_len, (unsigned long long)queued,
		(unsigned long long)unacked, (unsigned long long)u.tcpi_bytes_received,
		u.tcpi_state);
}

/* Every millisecond. */
static void disturb(struct conn *c, uint64_t *rng)
{
	uint8_t ping[H2_HEADER_LEN + 8];

	explain_quiet(c);
	if (c->state == LEAVING || c->state == LAST || c->state == PLAIN)
		conn_turn(c);
	if (c->state != SPLICED || c->over)
		return;
	if (c->hold_ticks && !--c->hold_ticks) {
		c->pump.keep_hold = false;
		if (!c->pump.held)
			splice_release(c->pair);
	} else if (!c->hold_ticks && one_in(rng, 30)) {
		c->hold_ticks = 1 + (unsigned)(rnd(rng) % 5);
		c->pump.keep_hold = true;
		splice_hold(c->pair);
		holds_forced++;
	}
	h2_frame_put(ping, 8, H2_PING, PING_TYPE_OURS, 0);
	memcpy(ping + H2_HEADER_LEN, &c->pings, 8);
	if (pump_send(&c->pump, ping, sizeof(ping)) != -ENOSPC)
		c->pings++;
	if (one_in(rng, 2000))
		c->state = LEAVING;
	conn_turn(c);
}

static void accept_all(int listener)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct conn *c = fd < 0 ? NULL : calloc(1, sizeof(*c));

		if (!c)
			return;
		c->c = fd;
		c->u = -1;
		list_add_tail(&conns, &c->link);
		conn_watch(c, fd, EPOLLIN | EPOLLRDHUP);
	}
}

static void events(struct sockmap_worker *w, int listener, uint16_t executor_port)
{
	struct epoll_event e[64];
	int n = epoll_wait(ep, e, 64, 1);

	for (int i = 0; i < n; i++) {
		struct conn *c = e[i].data.ptr;

		if (!c) {
			accept_all(listener);
			continue;
		}
		if (!c->over)
			client_said(c, w, executor_port);
		if (!c->over)
			conn_turn(c);
	}
	sockmap_worker_poll(w);
}

static void proxy(struct sockmap_worker *w, int listener, uint16_t executor_port, pid_t client)
{
	uint64_t rng = seed, tick = 0;
	struct list *pos, *next;

	while (waitpid(client, NULL, WNOHANG) == 0) {
		bool due = rig_now() - tick > NSEC_PER_MSEC;

		events(w, listener, executor_port);
		list_for_each_safe (pos, next, &conns) {
			struct conn *c = list_entry(pos, struct conn, link);

			if (due && !c->over)
				disturb(c, &rng);
			if (c->over)
				conn_free(c);
		}
		if (due)
			tick = rig_now();
	}
	list_for_each_safe (pos, next, &conns)
		conn_free(list_entry(pos, struct conn, link));
}

static void on_dead(void *arg, struct splice_pair *p, enum abi_reason reason)
{
	struct conn *c = splice_owner(p);

	(void)arg;
	/* A client that was killed takes its map entry with it. */
	if (reason == ABI_DROP_NO_CLIENT)
		c->over = true;
	else
		complain(c->id, abi_reason_name(reason), 0, 0);
}

/* ---------------------------------------------------------------- main */

static unsigned open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Entries of a pinned hash that is keyed by a cookie. */
static unsigned entries(const char *path)
{
	int fd = bpf_obj_get(path);
	uint64_t key, next;
	unsigned n = 0;
	bool more = fd >= 0 && !bpf_map_get_next_key(fd, NULL, &next);

	while (more) {
		n++;
		key = next;
		more = !bpf_map_get_next_key(fd, &key, &next);
	}
	if (fd >= 0)
		close(fd);
	return n;
}

static int verdict(const char *name, bool good, uint64_t is, uint64_t due)
{
	if (good)
		printf("PASS %s\n", name);
	else
		printf("FAIL %s: %llu, %llu\n", name, (unsigned long long)is,
		       (unsigned long long)due);
	return !good;
}

static int report(const struct sockmap_stats *st, unsigned routes, double seconds)
{
	int failed = 0;

	printf("%.2f GB in %.1f s, %llu sessions (%llu slow, %llu killed), seed %llu\n",
	       (double)shared->total / 1e9, seconds, (unsigned long long)shared->sessions,
	       (unsigned long long)shared->slow, (unsigned long long)shared->killed,
	       (unsigned long long)seed);
	printf("%llu redirected, %llu passed, %llu injected bytes; %llu holds (%llu forced), %llu "
	       "excursions, %llu left early, %llu pings\n",
	       (unsigned long long)st->redirected, (unsigned long long)st->passed,
	       (unsigned long long)st->injected, (unsigned long long)st->holds,
	       (unsigned long long)holds_forced, (unsigned long long)st->excursions,
	       (unsigned long long)left_early, (unsigned long long)shared->pings);
	for (int i = 0; i < ABI_REASONS; i++) {
		if (st->reasons[i])
			printf("  %-14s %llu skbs\n", abi_reason_name((enum abi_reason)i),
			       (unsigned long long)st->reasons[i]);
	}
	failed += verdict("bytes", !shared->failed, shared->failed, 0);
	failed += verdict("volume", shared->total >= shared->goal, shared->total, shared->goal);
	failed += verdict("pairs-gone", !st->pairs, st->pairs, 0);
	failed += verdict("routes-gone", !routes, routes, 0);
	failed += verdict("nothing-stale", !st->stale_events && !st->reasons[ABI_DROP_STALE],
			  st->stale_events, st->reasons[ABI_DROP_STALE]);
	failed += verdict("both-ways", st->redirected && st->passed, st->redirected, st->passed);
	return failed;
}

static int stress(void)
{
	struct sockmap_options opt = { .workers = 1, .pairs = MAX_CONNECTIONS * 2, .cgroup = "" };
	struct sockmap_callbacks cb = { .dead = on_dead };
	struct sockmap_stats stats;
	char why[SOCKMAP_WHY_MAX];
	struct pins *pins = NULL;
	struct sockmap *sm;
	struct sockmap_worker *w;
	struct epoll_event e = { .events = EPOLLIN };
	uint16_t executor_port, port;
	unsigned lacks, files, routes, before;
	int at_executor, at_proxy;
	double start;
	pid_t ex, cl;

	lab_enter(&lab, LAB_EXECUTOR);
	at_executor = lab_listen(LAB_EXECUTOR_ADDR, &executor_port);
	ex = lab_fork();
	if (!ex)
		executors(at_executor);
	close(at_executor);
	lab_enter(&lab, LAB_PROXY);
	at_proxy = lab_listen(LAB_CLIENT_SIDE, &port);
	cl = lab_fork();
	if (!cl)
		clients(port);
	before = open_files();
	if (pins_claim("/sys/fs/bpf/stress", true, &pins, why)) {
		printf("FAIL pins: %s\n", why);
		return 1;
	}
	opt.pins = pins;
	if (sockmap_new(&opt, &sm, &lacks, why) || sockmap_worker_new(sm, 0, &cb, &w)) {
		printf("FAIL load: %s\n", why);
		return 1;
	}
	ep = epoll_create1(EPOLL_CLOEXEC);
	fcntl(at_proxy, F_SETFL, O_NONBLOCK);
	epoll_ctl(ep, EPOLL_CTL_ADD, at_proxy, &e);
	start = lab_now();
	proxy(w, at_proxy, executor_port, cl);
	start = lab_now() - start;
	sockmap_worker_stats(w, &stats);
	routes = entries("/sys/fs/bpf/stress/routes");
	sockmap_worker_free(w);
	sockmap_free(sm);
	pins_free(pins);
	close(ep);
	files = open_files();
	kill(ex, SIGKILL);
	waitpid(ex, NULL, 0);
	return report(&stats, routes, start) +
	       verdict("files-gone", files == before, files, before);
}

int main(int argc, char **argv)
{
	double gb = argc > 1 ? atof(argv[1]) : 1;

	connections = argc > 2 ? (unsigned)atoi(argv[2]) : connections;
	seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
	if (geteuid()) {
		printf("SKIP splice_stress: needs root\n");
		return 77;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || !connections || connections > MAX_CONNECTIONS)
		return 1;
	shared->goal = (uint64_t)(gb * 1e9);
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    lab_new(&lab)) {
		printf("FAIL lab: %s\n", strerror(errno));
		return 1;
	}
	return stress() ? 1 : 0;
}
