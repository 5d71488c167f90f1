/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_checks.c - what must be true of a kernel before results are spliced by it.
 *
 * Each check has a subject and, for `sabotage`, a way to spoil exactly this subject: a check that
 * cannot fail would be worth nothing.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "datapath/selftest_checks.h"

#define TAP_LIMIT (64 * MiB)
#define SPLICE_BYTES (4 * MiB)
#define SLOW_BYTES (64 * KiB)
#define HOLD_BYTES (3 * MiB)
#define HOLD_EVERY (24 * KiB)
#define INJECT_BYTES (16 * MiB) /* more than any buffer between here and the client */
#define LEAVE_BYTES (2 * MiB)

static int check_clean(struct rig *r)
{
	if (r->dead)
		return rig_fail(r, "the verdict gave the pair up: %s", abi_reason_name(r->dead));
	return 0;
}

int check_splice(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	const struct abi_pair *st;

	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT) || rig_start(r))
		return -1;
	r->tx_goal = SPLICE_BYTES;
	if (rig_run(r, rig_arrived, NULL, deadline_ns) || check_clean(r))
		return -1;
	st = splice_state(r->pair);
	if (!st->redirected)
		return rig_fail(r, "no byte went through the kernel");
	if (st->redirected + st->injected != r->tx_bytes)
		return rig_fail(r, "counted %llu + %llu bytes where %llu were sent",
				(unsigned long long)st->redirected,
				(unsigned long long)st->injected, (unsigned long long)r->tx_bytes);
	if (splice_stream_data(r->pair, RIG_STREAM) + r->pump.data != r->tx_data)
		return rig_fail(r, "the stream's byte count is wrong");
	return 0;
}

/* Kernels that mishandle a full socket repeat or lose bytes here. */
int check_slow_reader(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	struct rig_buffers tiny = { .client_snd = 4608, .client_rcv = 4608 };

	if (rig_open(r, w, &tiny, TAP_LIMIT) || rig_start(r))
		return -1;
	r->tx_goal = SLOW_BYTES;
	r->rx_chunk = 1500;
	return rig_run(r, rig_arrived, NULL, deadline_ns) ? -1 : check_clean(r);
}

/* ---------------------------------------------------------------- verdict */

struct odd_frame {
	uint8_t type, flags;
	uint32_t length, stream;
	enum abi_reason reason;
};

/* Written to the client as they are, so their order is part of the check. */
static const struct odd_frame odd_frames[] = {
	{ H2_HEADERS, H2_FLAG_END_HEADERS, 20, RIG_STREAM, ABI_TAP_HEADERS },
	{ H2_CONTINUATION, H2_FLAG_END_HEADERS, 20, RIG_STREAM, ABI_TAP_HEADERS },
	{ H2_PING, 0, 8, 0, ABI_TAP_CONTROL },
	{ H2_SETTINGS, 0, 6, 0, ABI_TAP_CONTROL },
	{ H2_RST_STREAM, 0, 4, RIG_STREAM, ABI_TAP_RESET },
	{ H2_DATA, H2_FLAG_PADDED, 30, RIG_STREAM, ABI_TAP_FLAGS },
	{ H2_DATA, 0, 30, 3, ABI_TAP_STREAM },
	{ H2_DATA, 0, 30, RIG_STREAM | 1u << 31, ABI_TAP_STREAM },
	{ H2_DATA, 0, 16385, RIG_STREAM, ABI_TAP_FRAME_SIZE },
	{ H2_DATA, 0, 0, RIG_STREAM, ABI_TAP_EMPTY_DATA },
	{ H2_DATA, H2_FLAG_END_STREAM, 0, RIG_STREAM, ABI_TAP_END_STREAM },
};

/* Reads exactly len bytes at the client, running the pump meanwhile. */
static int expect(struct rig *r, const uint8_t *want, size_t len, uint64_t deadline_ns)
{
	uint8_t got[2 * RIG_FRAME_MAX];
	size_t have = 0;

	while (have < len) {
		ssize_t n = recv(r->k, got + have, len - have, MSG_DONTWAIT);
		int err;

		if (n > 0) {
			have += (size_t)n;
			continue;
		}
		err = pump_run(&r->pump);
		if (n == 0 || (err < 0 && err != -EAGAIN))
			return rig_fail(r, "the connection broke");
		if (rig_now() > deadline_ns)
			return rig_fail(r, "%zu of %zu bytes arrived", have, len);
		rig_wait(r->k, POLLIN, min_u64(deadline_ns, rig_now() + 2 * NSEC_PER_MSEC));
	}
	return memcmp(got, want, len) ? rig_fail(r, "wrong bytes arrived") : 0;
}

static int check_odd(struct rig *r, const struct odd_frame *o, uint64_t deadline_ns)
{
	const struct abi_pair *st = splice_state(r->pair);
	uint64_t tapped = st->reasons[o->reason], redirected = st->redirected;
	uint8_t f[2 * RIG_FRAME_MAX];
	size_t len = H2_HEADER_LEN + o->length, plain;

	/* Behind a plain frame, in the same segment as far as TCP is concerned. */
	plain = rig_frame(3, f);
	h2_frame_put(f + plain, o->length, o->type, o->flags, o->stream);
	memset(f + plain + H2_HEADER_LEN, 0x5a, o->length);
	if (r->sabotage && o->type == H2_DATA && o->flags == H2_FLAG_PADDED)
		f[plain + 4] = 0;
	if (rig_write(r, f, plain + len, 0) || expect(r, f, plain + len, deadline_ns))
		return -1;
	if (st->reasons[o->reason] != tapped + 1 && st->reasons[o->reason] != tapped + 2)
		return rig_fail(r, "a frame of type %u with flags %#x was not taken for '%s'",
				o->type, o->flags, abi_reason_name(o->reason));
	if (st->redirected - redirected > plain)
		return rig_fail(r, "a frame of type %u with flags %#x was redirected", o->type,
				o->flags);
	return 0;
}

/* A header in two pieces has to reach userspace too. */
static int check_split(struct rig *r, uint64_t deadline_ns)
{
	const struct abi_pair *st = splice_state(r->pair);
	uint64_t split = st->reasons[ABI_TAP_STRADDLE];
	uint8_t f[RIG_FRAME_MAX];
	size_t len = rig_frame(1, f);

	if (rig_write(r, f, 5, 0))
		return -1;
	while (st->reasons[ABI_TAP_STRADDLE] == split) {
		if (rig_now() > deadline_ns)
			return rig_fail(r, "a split frame header was not noticed");
		rig_wait(splice_tap_fd(r->pair), POLLIN, rig_now() + NSEC_PER_MSEC);
	}
	if (rig_write(r, f + 5, len - 5, 0))
		return -1;
	return expect(r, f, len, deadline_ns);
}

/* After all the excursions the fast path works. */
static int check_plain(struct rig *r, uint64_t deadline_ns)
{
	uint8_t f[RIG_FRAME_MAX];
	size_t len = rig_frame(4, f);
	uint64_t before = splice_state(r->pair)->redirected;

	if (rig_write(r, f, len, 0) || expect(r, f, len, deadline_ns))
		return -1;
	if (splice_state(r->pair)->redirected != before + len)
		return rig_fail(r, "the fast path did not come back after an excursion");
	return 0;
}

int check_verdict(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT) || rig_start(r))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(odd_frames); i++) {
		if (check_odd(r, &odd_frames[i], deadline_ns))
			return -1;
	}
	if (check_split(r, deadline_ns))
		return -1;
	return check_plain(r, deadline_ns) ? -1 : check_clean(r);
}

/* ---------------------------------------------------------------- fin */

static bool ended(struct rig *r)
{
	return rig_arrived(r) && r->pump_result == 1;
}

/* One segment with the last bytes and FIN: where kernels have lost data. */
int check_fin(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	bool sabotage = r->sabotage;
	uint8_t f[RIG_FRAME_MAX];

	r->sabotage = false;
	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT) || rig_start(r))
		return -1;
	r->tx_goal = 64 * KiB;
	if (rig_run(r, rig_arrived, NULL, deadline_ns))
		return -1;
	for (int i = 0; i < 3; i++) {
		size_t len = rig_frame(r->tx_frames++, f);

		if (rig_write(r, f, len, MSG_MORE))
			return -1;
	}
	if (sabotage)
		r->tx_made++; /* a byte that will never come */
	shutdown(r->x, SHUT_WR);
	r->tx_goal = r->tx_made;
	return rig_run(r, ended, NULL, deadline_ns) ? -1 : check_clean(r);
}

/* ---------------------------------------------------------------- wakeup */

/* Whether epoll reports fd for `events`; it is asked before the cause exists and after. */
static int epoll_sees(struct rig *r, int ep, const char *what, uint32_t events,
		      uint64_t deadline_ns)
{
	struct epoll_event e;

	while (rig_now() < deadline_ns) {
		if (epoll_wait(ep, &e, 1, 20) == 1 && e.events & events)
			return 0;
	}
	return rig_fail(r, "epoll does not report %s", what);
}

static int watch(struct rig *r, int ep, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events | EPOLLET };
	int err;

	while (epoll_wait(ep, &e, 1, 0) > 0)
		;
	e.events = events | EPOLLET;
	err = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	while (epoll_wait(ep, &e, 1, 0) > 0)
		;
	return err ? rig_fail(r, "epoll: %m") : 0;
}

static int wakeups(struct rig *r, int ep, uint64_t deadline_ns)
{
	uint8_t f[RIG_FRAME_MAX], byte = 0;
	size_t len = rig_frame(0, f);

	if (watch(r, ep, r->c, EPOLLIN))
		return -1;
	if (!r->sabotage && send(r->k, "hello", 5, MSG_NOSIGNAL) != 5)
		return rig_fail(r, "the client cannot send: %m");
	if (epoll_sees(r, ep, "what a spliced client sends", EPOLLIN, deadline_ns))
		return -1;
	if (recv(r->c, &byte, 1, MSG_DONTWAIT) != 1 || byte != 'h')
		return rig_fail(r, "what a spliced client sends cannot be read");
	splice_hold(r->pair);
	if (watch(r, ep, splice_tap_fd(r->pair), EPOLLIN) || rig_write(r, f, len, 0) ||
	    epoll_sees(r, ep, "bytes in the tap", EPOLLIN, deadline_ns))
		return -1;
	if (watch(r, ep, r->u, EPOLLRDHUP))
		return -1;
	shutdown(r->x, SHUT_WR);
	return epoll_sees(r, ep, "the executor's FIN", EPOLLRDHUP, deadline_ns);
}

int check_wakeup(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	int ep, err;

	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT) || rig_start(r))
		return -1;
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0)
		return rig_fail(r, "epoll: %m");
	err = wakeups(r, ep, deadline_ns);
	close(ep);
	return err;
}

/* ---------------------------------------------------------------- tap-hold */

/*
 * Every HOLD_EVERY bytes a PING of ours, which needs a frame boundary; and every few turns all goes
 * through the tap for a while, whether that suits the frames or not.
 */
static int ping_and_hold(struct rig *r)
{
	switch (r->turns % 8) {
	case 4:
		r->pump.keep_hold = true;
		splice_hold(r->pair);
		break;
	case 6:
		r->pump.keep_hold = false;
		if (!r->pump.held)
			splice_release(r->pair);
		break;
	}
	return r->tx_pings < r->tx_bytes / HOLD_EVERY ? rig_ping(r) : 0;
}

static bool arrived_with_pings(struct rig *r)
{
	return rig_arrived(r) && r->rx_pings == r->tx_pings && !splice_excursion(r->pair);
}

int check_tap_hold(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	const struct abi_pair *st;

	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT) || rig_start(r))
		return -1;
	st = splice_state(r->pair);
	r->tx_goal = HOLD_BYTES;
	if (rig_run(r, arrived_with_pings, ping_and_hold, deadline_ns) || check_clean(r))
		return -1;
	if (!st->passed || !st->redirected || !r->rx_pings)
		return rig_fail(
			r,
			"the fast path and the tap did not alternate (%llu redirected, %llu "
			"passed)",
			(unsigned long long)st->redirected, (unsigned long long)st->passed);
	if (st->redirected + st->passed != r->tx_bytes)
		return rig_fail(r, "redirected and passed bytes do not add up");
	return 0;
}

/* ---------------------------------------------------------------- injector */

int check_injector(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	struct rig_buffers small = { .client_snd = 262144, .client_rcv = 262144 };

	if (rig_open(r, w, &small, TAP_LIMIT))
		return -1;
	r->inject = true;
	r->tx_goal = INJECT_BYTES;
	/* It is full only when it stays so: the queue's work may just not have run yet. */
	do {
		if (rig_inject(r) < 0)
			return -1;
		if (r->tx_made >= INJECT_BYTES)
			return rig_fail(r, "the injector takes bytes without end while the client "
					   "reads none");
	} while (rig_wait(splice_inject_fd(r->pair), POLLOUT, rig_now() + 30 * NSEC_PER_MSEC));
	r->tx_goal = r->tx_made + 256 * KiB;
	if (rig_run(r, rig_arrived, NULL, deadline_ns) || check_clean(r))
		return -1;
	if (splice_state(r->pair)->injected != r->tx_made)
		return rig_fail(r, "injected bytes are miscounted");
	return 0;
}

/* ---------------------------------------------------------------- leave */

/* In the middle of the load: out of the kernel, and on as an ordinary pair of sockets. */
static int leave_halfway(struct rig *r)
{
	int err;

	if (r->plain || r->tx_bytes < LEAVE_BYTES / 2)
		return 0;
	err = splice_leave(r->pair);
	if (err == -EAGAIN)
		return 0;
	if (err)
		return rig_fail(r, "the pair cannot leave: %s", strerror(-err));
	r->plain = true;
	return 0;
}

int check_leave(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT) || rig_start(r))
		return -1;
	r->tx_goal = LEAVE_BYTES;
	if (rig_run(r, rig_arrived, leave_halfway, deadline_ns) || check_clean(r))
		return -1;
	if (!r->plain || !splice_state(r->pair)->redirected)
		return rig_fail(r, "the pair was never spliced, or never left");
	return 0;
}

/* ---------------------------------------------------------------- limits */

static bool died(struct rig *r)
{
	return r->dead;
}

/* Credit is enforced by the verdict; what ignores even the tap's limit costs the pair its life. */
int check_limits(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns)
{
	const struct abi_pair *st;
	uint64_t limit = r->sabotage ? 1 * MiB : 64 * KiB;
	uint64_t tap_limit = r->sabotage ? 16 * MiB : 512 * KiB;

	if (rig_open(r, w, &(struct rig_buffers){ 0 }, tap_limit) ||
	    splice_stream_add(r->pair, RIG_STREAM, limit))
		return rig_fail(r, "a stream cannot be registered");
	splice_release(r->pair);
	st = splice_state(r->pair);
	r->tx_goal = 256 * KiB;
	if (rig_run(r, rig_arrived, NULL, deadline_ns) || check_clean(r))
		return -1;
	if (!st->reasons[ABI_TAP_CREDIT] || splice_stream_data(r->pair, RIG_STREAM) > 64 * KiB)
		return rig_fail(r, "DATA beyond the stream's credit was redirected");
	/* Nobody reads the tap now. */
	r->hold_pump = true;
	splice_hold(r->pair);
	r->tx_goal = r->tx_made + 2 * MiB;
	if (rig_run(r, died, NULL, deadline_ns))
		return rig_fail(r, "the tap took more than its limit");
	if (r->dead != ABI_DROP_TAP_FULL || st->dead != ABI_DROP_TAP_FULL)
		return rig_fail(r, "the pair died of the wrong cause: %s",
				abi_reason_name(r->dead));
	return 0;
}
