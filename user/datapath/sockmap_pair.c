/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockmap_pair.c - one spliced pair: how it gets into the kernel, how userspace takes part, and how
 * it gets out without losing a byte.
 *
 * The barrier. The verdict runs under U's socket lock, redirect included. So a system call that
 * takes this lock (getsockopt TCP_INFO) after `hold` has been raised returns when every verdict
 * that did not see the hold has put its skb into C's queue. All exact answers here (what is open,
 * what was counted, whether anything is left unread) are taken behind that barrier, and no waiting
 * for "the next skb" is needed.
 *
 * Stuck bytes. What reached U's receive queue between the caller's last read and the enrolment is
 * not shown to the verdict until more arrives. TCP_INFO's count of received bytes tells whether
 * there are any; setting SO_RCVLOWAT makes TCP announce them again, which runs the verdict.
 *
 * Taking U out. The kernel takes a socket out of a map without its lock: an skb that another CPU is
 * about to show to the verdict at that moment is dropped, and its bytes are lost although they have
 * been acknowledged. So U's packets are turned away meanwhile by a socket filter that accepts nothing,
 * which to TCP is a packet lost on the way and is sent again. What is left of the race is the time
 * between the filter's check and the socket lock; the byte counts tell, and the pair says -EIO.
 *
 * Queue of C. The kernel tells nobody how long it is; but every byte that leaves it is written into
 * C's TCP, whose count of bytes written since enrolment (acknowledged + SIOCOUTQ) then equals what
 * was redirected and injected.
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h> /* struct tcp_info in full; excludes netinet/tcp.h */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

#include "base/addr.h"
#include "datapath/sockmap_internal.h"

/*
 * Largest datagram of the injector: what stays in one piece of memory in the kernel (four pages less
 * its own overhead). Each further piece would be a send of its own on C.
 */
#define INJECT_MAX 16000u
#define INJECT_IOVS 64

/* Takes the socket lock: also the barrier. */
static int tcp_view(int fd, struct tcp_info *ret)
{
	socklen_t len = sizeof(*ret);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, ret, &len) ? -errno : 0;
}

static void barrier(const struct splice_pair *p)
{
	struct tcp_info v;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	tcp_view(p->upstream_fd, &v);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static uint64_t passed(const struct splice_pair *p)
{
	return __atomic_load_n(&p->state->passed, __ATOMIC_ACQUIRE);
}

static uint64_t socket_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len);
	return cookie;
}

/* ---------------------------------------------------------------- enrolment */

static const char *const refusal_names[] = {
	[SPLICE_OK] = "ok",
	[SPLICE_NO_SLOT] = "no-slot",
	[SPLICE_NOT_TCP] = "not-tcp",
	[SPLICE_NOT_OPEN] = "not-open",
	[SPLICE_FOREIGN] = "foreign-program",
	[SPLICE_BYTES_WAITING] = "bytes-waiting",
	[SPLICE_LIMIT] = "limit",
	[SPLICE_FAILED] = "failed",
};
_Static_assert(ARRAY_SIZE(refusal_names) == SPLICE_REFUSALS, "a refusal has no name");

const char *splice_refusal_name(enum splice_refusal r)
{
	return r < SPLICE_REFUSALS ? refusal_names[r] : "?";
}

static enum splice_refusal refusal_of(int err)
{
	switch (err) {
	case -EBUSY:
		return SPLICE_FOREIGN;
	case -ENOSPC:
		return SPLICE_NO_SLOT;
	case -ENOMEM:
	case -EMFILE:
	case -ENFILE:
	case -ENOBUFS:
		return SPLICE_LIMIT;
	case -EOPNOTSUPP:
	case -EPROTONOSUPPORT:
		return SPLICE_NOT_TCP;
	default:
		return SPLICE_FAILED;
	}
}

static enum splice_refusal check_socket(int fd, struct tcp_info *ret)
{
	int protocol = 0;
	socklen_t len = sizeof(protocol);

	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) || protocol != IPPROTO_TCP)
		return SPLICE_NOT_TCP;
	if (tcp_view(fd, ret))
		return SPLICE_NOT_TCP;
	return ret->tcpi_state == BPF_TCP_ESTABLISHED ? SPLICE_OK : SPLICE_NOT_OPEN;
}

/* Bytes that C's TCP has ever been given, exact; the caller must not be writing. */
static int client_taken(int fd, uint64_t *ret)
{
	struct tcp_info before, after;
	int unacked, err;

	/* An ACK between the two readings would be counted twice or not at all. */
	do {
		err = tcp_view(fd, &before);
		if (!err && ioctl(fd, SIOCOUTQ, &unacked))
			err = -errno;
		if (!err)
			err = tcp_view(fd, &after);
		if (err)
			return err;
	} while (before.tcpi_bytes_acked != after.tcpi_bytes_acked);
	*ret = before.tcpi_bytes_acked + (uint64_t)unacked;
	return 0;
}

static void set_address(uint8_t to[16], uint16_t *ret_port, const struct addr *a)
{
	*ret_port = addr_port(a);
	if (a->sa.sa_family == AF_INET) {
		to[10] = to[11] = 0xff;
		memcpy(to + 12, &a->in.sin_addr, 4);
	} else if (a->sa.sa_family == AF_INET6) {
		memcpy(to, &a->in6.sin6_addr, 16);
	}
}

static int add_route(struct splice_pair *p)
{
	struct abi_route route = {
		.slot = p->index,
		.generation = p->slot->generation,
		.worker = p->w->index,
		.client_cookie = socket_cookie(p->client_fd),
	};
	struct addr client = { .len = sizeof(client.ss) }, executor = { .len = sizeof(client.ss) };
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	route.enrolled_ns = (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
	if (!getpeername(p->client_fd, &client.sa, &client.len))
		set_address(route.client_addr, &route.client_port, &client);
	if (!getpeername(p->upstream_fd, &executor.sa, &executor.len))
		set_address(route.executor_addr, &route.executor_port, &executor);
	p->upstream_cookie = socket_cookie(p->upstream_fd);
	if (bpf_map_update_elem(p->w->sm->routes, &p->upstream_cookie, &route, BPF_ANY))
		return -errno;
	return 0;
}

static int put_socket(int map, uint32_t index, int fd)
{
	uint64_t value = (uint64_t)fd;

	return bpf_map_update_elem(map, &index, &value, BPF_NOEXIST) ? -errno : 0;
}

static void init_state(struct splice_pair *p, const struct splice_params *params)
{
	struct abi_pair *st = p->state;

	memset(st, 0, sizeof(*st));
	st->worker = p->w->index;
	st->hold = 1;
	st->max_frame = params->max_frame;
	st->tap_limit = params->tap_limit;
	__atomic_store_n(&st->generation, p->slot->generation, __ATOMIC_RELEASE);
}

/* Every packet for fd is dropped before TCP sees it. */
static void turn_away(int fd, bool on)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog filter = { .len = 1, .filter = &none };

	if (on)
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
	else
		setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &(int){ 0 }, sizeof(int));
}

/* Whether all that U has received has been shown to the verdict or can be read. */
static bool nothing_lost(const struct splice_pair *p)
{
	uint64_t shown = passed(p) + __atomic_load_n(&p->state->redirected, __ATOMIC_ACQUIRE);
	struct tcp_info before, after;
	int unread;

	do {
		if (tcp_view(p->upstream_fd, &before) || ioctl(p->upstream_fd, FIONREAD, &unread) ||
		    tcp_view(p->upstream_fd, &after))
			return false;
	} while (before.tcpi_bytes_received != after.tcpi_bytes_received ||
		 before.tcpi_state != after.tcpi_state);
	switch (after.tcpi_state) {
	case BPF_TCP_CLOSE:
		return true; /* reset: nobody counts on it */
	case BPF_TCP_CLOSE_WAIT:
	case BPF_TCP_LAST_ACK:
	case BPF_TCP_CLOSING:
		shown++; /* FIN counts as one */
	}
	return after.tcpi_bytes_received - p->upstream_base == shown + (uint64_t)unread;
}

/* Takes U out of its map. 0, or -EIO: bytes have been lost. */
static int detach_upstream(struct splice_pair *p)
{
	struct sockmap *sm = p->w->sm;

	if (p->detached)
		return p->lost ? -EIO : 0;
	splice_hold(p);
	turn_away(p->upstream_fd, true);
	barrier(p);
	bpf_map_delete_elem(sm->upstreams, &p->index);
	barrier(p);
	turn_away(p->upstream_fd, false);
	bpf_map_delete_elem(sm->routes, &p->upstream_cookie);
	p->detached = true;
	p->lost = !nothing_lost(p);
	return p->lost ? -EIO : 0;
}

/*
 * Sees that nothing is stuck in U's receive queue that the verdict has not been shown. A verdict may
 * run between the two readings, hence the loop.
 */
static enum splice_refusal flush_stuck(struct splice_pair *p)
{
	enum splice_refusal why = SPLICE_BYTES_WAITING;
	int one = 1;

	for (int i = 0; i < 8; i++) {
		struct tcp_info v;
		uint64_t before = passed(p);

		if (tcp_view(p->upstream_fd, &v) || v.tcpi_state != BPF_TCP_ESTABLISHED) {
			why = SPLICE_NOT_OPEN;
			break;
		}
		if (v.tcpi_bytes_received - p->upstream_base == before)
			return SPLICE_OK;
		if (passed(p) == before)
			setsockopt(p->upstream_fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
	}
	/* What is in the tap already can only be had from there. */
	return passed(p) ? SPLICE_OK : why;
}

static enum splice_refusal enter(struct splice_pair *p, int *ret_err)
{
	struct sockmap *sm = p->w->sm;
	int err = client_taken(p->client_fd, &p->client_base);

	p->detached = p->left = true;
	if (!err)
		err = put_socket(sm->clients, p->index, p->client_fd);
	if (!err) {
		p->left = false;
		err = add_route(p);
	}
	if (!err) {
		p->detached = false;
		err = put_socket(sm->upstreams, p->index, p->upstream_fd);
	}
	*ret_err = err;
	return err ? refusal_of(err) : flush_stuck(p);
}

/* U is at a quiet point: nothing to be read, as far as one can tell from outside. */
static enum splice_refusal check_quiet(int fd, uint64_t *ret_base)
{
	struct tcp_info before, after;
	int unread;
	enum splice_refusal why = check_socket(fd, &before);

	if (why != SPLICE_OK)
		return why;
	if (ioctl(fd, FIONREAD, &unread) || unread || tcp_view(fd, &after) ||
	    before.tcpi_bytes_received != after.tcpi_bytes_received)
		return SPLICE_BYTES_WAITING;
	*ret_base = before.tcpi_bytes_received;
	return SPLICE_OK;
}

static struct splice_pair *pair_new(struct sockmap_worker *w, struct slot *slot, int client_fd,
				    int upstream_fd, const struct splice_params *params)
{
	struct splice_pair *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->w = w;
	p->slot = slot;
	p->index = slot_index(w, slot);
	p->state = &w->sm->state[p->index];
	p->client_fd = client_fd;
	p->upstream_fd = upstream_fd;
	p->owner = params->owner;
	return p;
}

static enum splice_refusal enrol(struct sockmap_worker *w, int client_fd, int upstream_fd,
				 const struct splice_params *params, struct splice_pair **ret,
				 int *ret_err)
{
	struct tcp_info client;
	struct slot *slot;
	struct splice_pair *p;
	uint64_t base;
	enum splice_refusal why = check_socket(client_fd, &client);
	int err;

	if (why == SPLICE_OK)
		why = check_quiet(upstream_fd, &base);
	if (why != SPLICE_OK)
		return why;
	err = slot_take(w, &slot);
	if (err) {
		*ret_err = err;
		return refusal_of(err);
	}
	p = pair_new(w, slot, client_fd, upstream_fd, params);
	if (!p) {
		slot_give(w, slot, false);
		return SPLICE_LIMIT;
	}
	p->upstream_base = base;
	init_state(p, params);
	slot_tap_room(slot, params->tap_limit);
	why = enter(p, ret_err);
	if (why != SPLICE_OK) {
		detach_upstream(p);
		if (!p->left)
			bpf_map_delete_elem(w->sm->clients, &p->index);
		slot_give(w, slot, passed(p) != 0);
		p->state->generation = 0;
		free(p);
		return why;
	}
	slot->pair = p;
	*ret = p;
	return SPLICE_OK;
}

enum splice_refusal splice_enrol(struct sockmap_worker *w, int client_fd, int upstream_fd,
				 const struct splice_params *params, struct splice_pair **ret,
				 int *ret_err)
{
	enum splice_refusal why;

	*ret_err = 0;
	why = enrol(w, client_fd, upstream_fd, params, ret, ret_err);
	if (why == SPLICE_OK)
		stats_count(w, enrolled);
	else
		stats_count(w, refused[why]);
	return why;
}

/* ---------------------------------------------------------------- what a pair is */

void *splice_owner(const struct splice_pair *p)
{
	return p->owner;
}

uint32_t splice_slot(const struct splice_pair *p)
{
	return p->index;
}

uint32_t splice_generation(const struct splice_pair *p)
{
	return p->slot->generation;
}

const struct abi_pair *splice_state(const struct splice_pair *p)
{
	return p->state;
}

int splice_tap_fd(const struct splice_pair *p)
{
	return p->slot->tap_rx;
}

int splice_inject_fd(const struct splice_pair *p)
{
	return p->slot->inject_tx;
}

/* ---------------------------------------------------------------- streams */

/* The entry of id (0: a free one) in the set where id belongs. */
static struct abi_stream *find_stream(const struct splice_pair *p, uint32_t id, uint32_t want)
{
	uint32_t first = ABI_STREAM_SET(id);
	struct abi_stream *set = &p->state->streams[first];

	for (int i = 0; i < ABI_STREAM_WAYS; i++) {
		if (set[i].id == want)
			return &set[i];
	}
	return NULL;
}

int splice_stream_add(struct splice_pair *p, uint32_t id, uint64_t limit)
{
	struct abi_stream *s;

	if (!id || id > INT32_MAX)
		return -EINVAL;
	if (find_stream(p, id, id))
		return -EEXIST;
	s = find_stream(p, id, 0);
	if (!s)
		return -ENOSPC;
	s->data = 0;
	s->frames = 0;
	s->counted = 0;
	s->walked = 0;
	s->limit = limit;
	__atomic_store_n(&s->id, id, __ATOMIC_RELEASE);
	return 0;
}

int splice_stream_limit(struct splice_pair *p, uint32_t id, uint64_t limit)
{
	struct abi_stream *s = id ? find_stream(p, id, id) : NULL;

	if (!s)
		return -ENOENT;
	__atomic_store_n(&s->limit, limit, __ATOMIC_RELEASE);
	return 0;
}

uint64_t splice_stream_data(const struct splice_pair *p, uint32_t id)
{
	const struct abi_stream *s = id ? find_stream(p, id, id) : NULL;

	return s ? __atomic_load_n(&s->data, __ATOMIC_RELAXED) : 0;
}

int splice_stream_del(struct splice_pair *p, uint32_t id, uint64_t *ret_data)
{
	struct abi_stream *s = id ? find_stream(p, id, id) : NULL;

	if (!s)
		return -ENOENT;
	__atomic_store_n(&s->id, 0, __ATOMIC_RELEASE);
	barrier(p);
	s->counted = 0;
	*ret_data = s->data;
	return 0;
}

/* ---------------------------------------------------------------- tap */

uint64_t splice_waiting(const struct splice_pair *p)
{
	return passed(p) - p->read;
}

bool splice_excursion(const struct splice_pair *p)
{
	return p->state->hold || passed(p) != p->consumed;
}

/* The kernel's own figure counts until it has passed something, or taken over what we published. */
uint32_t splice_open(const struct splice_pair *p)
{
	if (__atomic_load_n(&p->state->adopted, __ATOMIC_ACQUIRE) == p->consumed)
		return __atomic_load_n(&p->state->remaining, __ATOMIC_RELAXED);
	return p->open;
}

/* The tap is empty: is more on its way, or is U at its end? */
static ssize_t upstream_end(struct splice_pair *p)
{
	struct tcp_info v;
	int err = 0;
	socklen_t len = sizeof(err);

	if (passed(p) != p->read)
		return -EAGAIN;
	if (p->detached)
		return -ENODATA;
	if (tcp_view(p->upstream_fd, &v))
		return -ECONNRESET;
	if (passed(p) != p->read)
		return -EAGAIN;
	switch (v.tcpi_state) {
	case BPF_TCP_CLOSE:
		getsockopt(p->upstream_fd, SOL_SOCKET, SO_ERROR, &err, &len);
		return err ? -ECONNRESET : 0;
	case BPF_TCP_CLOSE_WAIT:
	case BPF_TCP_LAST_ACK:
	case BPF_TCP_CLOSING:
	case BPF_TCP_TIME_WAIT:
		return 0;
	default:
		return -EAGAIN;
	}
}

ssize_t splice_recv(struct splice_pair *p, void *buf, size_t len)
{
	ssize_t n = recv(p->slot->tap_rx, buf, len, MSG_DONTWAIT);

	if (n <= 0)
		return upstream_end(p);
	p->read += (uint64_t)n;
	return n;
}

void splice_consumed(struct splice_pair *p, uint64_t bytes, uint32_t open_bytes)
{
	assert(bytes <= p->read - p->consumed);
	if (!bytes)
		return;
	p->consumed += bytes;
	p->open = open_bytes;
	__atomic_store_n(&p->state->resume, ABI_RESUME(p->consumed, open_bytes), __ATOMIC_RELEASE);
}

/* ---------------------------------------------------------------- injector */

/* Points at up to `max` bytes of iov from byte `skip`; their number, and *ret_n pieces. */
static size_t slice(const struct iovec *iov, int n, size_t skip, size_t max, struct iovec *out,
		    int *ret_n)
{
	size_t bytes = 0;
	int pieces = 0;

	for (int i = 0; i < n && bytes < max && pieces < INJECT_IOVS; i++) {
		size_t len = iov[i].iov_len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		len = (size_t)min_u64(len - skip, max - bytes);
		out[pieces].iov_base = (char *)iov[i].iov_base + skip;
		out[pieces++].iov_len = len;
		bytes += len;
		skip = 0;
	}
	*ret_n = pieces;
	return bytes;
}

ssize_t splice_sendv(struct splice_pair *p, const struct iovec *iov, int n)
{
	struct iovec piece[INJECT_IOVS];
	size_t done = 0;

	if (p->left)
		return -EPIPE;
	for (;;) {
		struct msghdr msg = { .msg_iov = piece };
		int pieces;
		size_t bytes = slice(iov, n, done, INJECT_MAX, piece, &pieces);

		if (!bytes)
			return (ssize_t)done;
		msg.msg_iovlen = (size_t)pieces;
		if (sendmsg(p->slot->inject_tx, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			if (done)
				return (ssize_t)done;
			return errno == EAGAIN || errno == ENOBUFS ? -EAGAIN : -EPIPE;
		}
		p->sent += bytes;
		done += bytes;
		if (__atomic_load_n(&p->state->inject_lost, __ATOMIC_RELAXED))
			return -EPIPE;
	}
}

uint32_t splice_hold(struct splice_pair *p)
{
	if (!p->state->hold) {
		p->state->holds++;
		__atomic_store_n(&p->state->hold, 1, __ATOMIC_RELEASE);
		barrier(p);
	}
	return splice_open(p);
}

void splice_release(struct splice_pair *p)
{
	if (!p->detached)
		__atomic_store_n(&p->state->hold, 0, __ATOMIC_RELEASE);
}

bool splice_held(const struct splice_pair *p)
{
	return p->state->hold;
}

/* ---------------------------------------------------------------- end */

/* May be too large for a moment, never too small: an ACK that comes in between is left out. */
int splice_undelivered(const struct splice_pair *p, uint64_t *ret_queued, uint64_t *ret_unacked)
{
	struct tcp_info v;
	uint64_t given, due;
	int unacked, err = tcp_view(p->client_fd, &v);

	if (err || v.tcpi_state == BPF_TCP_CLOSE || ioctl(p->client_fd, SIOCOUTQ, &unacked))
		return -EPIPE;
	due = p->client_base + p->sent + __atomic_load_n(&p->state->redirected, __ATOMIC_ACQUIRE);
	given = v.tcpi_bytes_acked + (uint64_t)unacked;
	if (ret_queued)
		*ret_queued = due > given ? due - given : 0;
	if (ret_unacked)
		*ret_unacked = due > v.tcpi_bytes_acked ? due - v.tcpi_bytes_acked : 0;
	return 0;
}

int splice_leave(struct splice_pair *p)
{
	uint64_t queued;
	int err = detach_upstream(p);

	if (err || p->left)
		return err;
	err = splice_undelivered(p, &queued, NULL);
	if (!err && queued)
		return -EAGAIN;
	bpf_map_delete_elem(p->w->sm->clients, &p->index);
	p->left = true;
	return err;
}

void splice_free(struct splice_pair *p)
{
	struct sockmap_worker *w;

	if (!p)
		return;
	w = p->w;
	detach_upstream(p);
	if (!p->left)
		bpf_map_delete_elem(w->sm->clients, &p->index);
	stats_begin(w);
	stats_add_pair(&w->stats, p->state);
	__atomic_store_n(&p->state->generation, 0, __ATOMIC_RELEASE);
	stats_end(w);
	slot_give(w, p->slot, passed(p) != p->read);
	free(p);
}

int sockmap_client_sndbuf(int fd, uint64_t inflight)
{
	/*
	 * The kernel doubles the figure and charges each skb's overhead to it; a quarter on top covers
	 * what is between two full buffers.
	 */
	uint64_t want = inflight + inflight / 4 + 65536;
	int bytes = (int)min_u64(want, INT32_MAX / 2);

	return setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) ? -errno : 0;
}

static const char *const reason_names[] = {
	[ABI_REDIRECTED] = "redirected",
	[ABI_TAP_HOLD] = "hold",
	[ABI_TAP_ORDER] = "order",
	[ABI_TAP_CONTROL] = "control-frame",
	[ABI_TAP_HEADERS] = "headers",
	[ABI_TAP_RESET] = "rst-stream",
	[ABI_TAP_END_STREAM] = "end-stream",
	[ABI_TAP_FLAGS] = "padding",
	[ABI_TAP_STREAM] = "unknown-stream",
	[ABI_TAP_CREDIT] = "over-credit",
	[ABI_TAP_FRAME_SIZE] = "frame-size",
	[ABI_TAP_EMPTY_DATA] = "empty-data",
	[ABI_TAP_STRADDLE] = "split-header",
	[ABI_TAP_MANY] = "many-frames",
	[ABI_TAP_UNREADABLE] = "unreadable",
	[ABI_DROP_EMPTY] = "empty-skb",
	[ABI_DROP_DEAD] = "dead",
	[ABI_DROP_TAP_FULL] = "tap-full",
	[ABI_DROP_NO_CLIENT] = "no-client",
	[ABI_DROP_NO_TAP] = "no-tap",
	[ABI_DROP_STALE] = "stale",
};
_Static_assert(ARRAY_SIZE(reason_names) == ABI_REASONS, "a reason has no name");

const char *abi_reason_name(enum abi_reason r)
{
	return r < ABI_REASONS ? reason_names[r] : "?";
}
