/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tcp.h"

#include <limits.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/*
 * How long a closed port waits for the peer's FIN: while the peer acknowledges what
 * was sent, then a little longer. And what it reads for that.
 */
#define LINGER_TICK_NS NSEC_PER_SEC
#define LINGER_ACKED_NS (5 * NSEC_PER_SEC)
#define LINGER_STALL_NS (30 * NSEC_PER_SEC)
#define LINGER_MAX_NS (300 * NSEC_PER_SEC)
#define LINGER_BYTES MiB
/* Memory kept for later connections; about 450 bytes each. */
#define POOL_IDLE_MAX 1024

enum {
	EV_READ = EPOLLIN | EPOLLRDHUP,
	EV_WRITE = EPOLLOUT,
};

struct tcp_port {
	struct port port;
	struct watch watch;
	struct tcp_pool *pool;
	struct deferred later; /* the next call, then the burial, then the pool's lists */
	atomic_uint *count;
	uint32_t registered; /* epoll events, 0 = not registered */
	uint8_t want, ready; /* masks of enum port_event */
	bool over;           /* FIN or an error has been returned: no more input will come */
	bool hup;            /* FIN, RST or an error has been signalled: there is no further edge */
	/* A program of the kernel may feed this socket: a short read need not mean empty. */
	bool shared;
	int broken; /* -errno of registering; what recv and sendv return then */
	/* lingering */
	struct timer linger;
	size_t lingered; /* bytes thrown away */
	int unacked;     /* bytes sent and not acknowledged, at the last look; -1 = none yet */
	uint64_t closed_ns, progress_ns;
};

static const struct port_ops tcp_ops;

static struct tcp_port *tcp_of(struct port *p)
{
	return container_of(p, struct tcp_port, port);
}

/* ---- readiness ---- */

static void note_events(struct tcp_port *t, unsigned events)
{
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		t->hup = true;
		t->ready |= PORT_READABLE | PORT_HANGUP;
	}
	if (events & (EPOLLHUP | EPOLLERR))
		t->ready |= PORT_WRITABLE;
	if (events & EPOLLIN)
		t->ready |= PORT_READABLE;
	if (events & EPOLLOUT)
		t->ready |= PORT_WRITABLE;
}

/* Tells the owner, who may close the port in the call. */
static void tell(struct tcp_port *t)
{
	unsigned events = t->want & t->ready;

	if (!events)
		return;
	t->ready &= (uint8_t)~PORT_HANGUP; /* told once */
	t->port.on_event(&t->port, events);
	if (t->watch.fn && (t->want & t->ready))
		loop_defer(t->pool->loop, &t->later);
}

/*
 * Nobody reads, and yet each segment that arrives is one more edge: not worth a
 * system call the first time, but then it is. The peer's FIN stays of interest.
 */
static void tcp_unregister_read(struct tcp_port *t)
{
	uint32_t events = t->registered & ~(uint32_t)EPOLLIN;

	if (!loop_mod(t->pool->loop, &t->watch, events))
		t->registered = events;
}

static void on_watch(struct watch *w, unsigned events)
{
	struct tcp_port *t = container_of(w, struct tcp_port, watch);

	if ((events & EPOLLIN) && (t->ready & PORT_READABLE) && !(t->want & PORT_READABLE))
		tcp_unregister_read(t);
	note_events(t, events);
	deferred_cancel(&t->later);
	tell(t);
}

static void on_later(struct deferred *d)
{
	tell(container_of(d, struct tcp_port, later));
}

static void tcp_register(struct tcp_port *t, uint32_t events)
{
	struct loop *l = t->pool->loop;
	int r;

	if ((t->registered & events) == events || t->broken)
		return;
	/* Reading is wanted of every port sooner or later: one call for both. */
	events |= t->registered ? t->registered : EV_READ | (uint32_t)EPOLLET;
	r = t->registered ? loop_mod(l, &t->watch, events) : loop_add(l, &t->watch, events);
	if (r) {
		t->broken = r;
		t->ready = PORT_READABLE | PORT_WRITABLE;
		return;
	}
	t->registered = events;
}

/* ---- life and death ---- */

void tcp_pool_init(struct tcp_pool *pool, struct loop *loop)
{
	*pool = (struct tcp_pool){ .loop = loop };
	list_init(&pool->idle);
	list_init(&pool->lingering);
}

static void recycle(struct deferred *d)
{
	struct tcp_port *t = container_of(d, struct tcp_port, later);
	struct tcp_pool *pool = t->pool;

	if (pool->closed || pool->n_idle >= POOL_IDLE_MAX) {
		free(t);
		return;
	}
	list_add_head(&pool->idle, &t->later.link);
	pool->n_idle++;
}

static struct tcp_port *take_memory(struct tcp_pool *pool)
{
	struct tcp_port *t;

	if (!pool->n_idle)
		return malloc(sizeof(*t));
	t = list_first(&pool->idle, struct tcp_port, later.link);
	list_del(&t->later.link);
	pool->n_idle--;
	return t;
}

/* A counted connection has gone. */
static void count_down(struct tcp_pool *pool, atomic_uint *count, const struct addr *peer)
{
	if (!count)
		return;
	atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
	if (pool->sources)
		sources_leave(pool->sources, peer);
}

struct port *tcp_port_new(struct tcp_pool *pool, int fd, const struct addr *peer,
			  atomic_uint *count)
{
	struct tcp_port *t = take_memory(pool);

	if (!t) {
		close(fd);
		count_down(pool, count, peer);
		return NULL;
	}
	t->port.ops = &tcp_ops;
	t->port.on_event = NULL;
	t->port.owner = NULL;
	t->port.peer = *peer;
	t->port.local.len = 0;
	t->watch = (struct watch){ .fd = fd, .fn = on_watch };
	t->pool = pool;
	deferred_init(&t->later, on_later);
	t->count = count;
	t->registered = 0;
	t->want = t->ready = 0;
	t->over = t->hup = t->shared = false;
	t->broken = 0;
	t->linger.index = 0;
	t->lingered = 0;
	return &t->port;
}

/* Closes the descriptor; the memory is used again after this turn. */
static void destroy(struct tcp_port *t, bool reset)
{
	struct linger l = { .l_onoff = 1, .l_linger = 0 };
	struct loop *loop = t->pool->loop;

	if (reset)
		setsockopt(t->watch.fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	timer_disarm(&loop->timers, &t->linger);
	loop_forget(&t->watch);
	close(t->watch.fd);
	t->watch.fd = -1;
	count_down(t->pool, t->count, &t->port.peer);
	t->later.fn = recycle;
	loop_bury(loop, &t->later);
}

/* ---- lingering ---- */

static void linger_end(struct tcp_port *t, bool reset)
{
	t->pool->n_lingering--;
	destroy(t, reset);
}

/* Reads and throws away. True when there is nothing left to wait for. */
static bool linger_drain(struct tcp_port *t, bool *ret_reset)
{
	static _Thread_local char trash[64 * KiB];

	while (t->lingered < LINGER_BYTES) {
		ssize_t n = recv(t->watch.fd, trash, sizeof(trash), 0);

		if (n <= 0) {
			*ret_reset = false;
			return n == 0 || errno != EAGAIN;
		}
		t->lingered += (size_t)n;
	}
	*ret_reset = true;
	return true;
}

static void on_linger(struct watch *w, unsigned events)
{
	struct tcp_port *t = container_of(w, struct tcp_port, watch);
	bool reset;

	(void)events;
	if (linger_drain(t, &reset))
		linger_end(t, reset);
}

/*
 * Looks once in a while whether the peer still takes what was sent. Closing for
 * good is harmless for a peer that has stopped sending: the kernel goes on alone.
 */
static void linger_tick(struct timer *timer)
{
	struct tcp_port *t = container_of(timer, struct tcp_port, linger);
	struct loop *l = t->pool->loop;
	int unacked;

	if (ioctl(t->watch.fd, SIOCOUTQ, &unacked))
		unacked = 0;
	if (unacked != t->unacked) {
		t->unacked = unacked;
		t->progress_ns = l->now_ns;
	}
	if (l->now_ns - t->progress_ns >= (unacked ? LINGER_STALL_NS : LINGER_ACKED_NS) ||
	    l->now_ns - t->closed_ns >= LINGER_MAX_NS ||
	    timer_arm(&l->timers, &t->linger, l->now_ns + LINGER_TICK_NS))
		linger_end(t, false);
}

/* False when lingering is not needed or not possible. */
static bool linger_begin(struct tcp_port *t)
{
	struct loop *loop = t->pool->loop;
	bool reset;

	if (t->over || t->broken)
		return false;
	if (shutdown(t->watch.fd, SHUT_WR) || linger_drain(t, &reset))
		return false;
	tcp_register(t, EV_READ);
	t->linger.fire = linger_tick;
	if (t->broken || timer_arm(&loop->timers, &t->linger, loop->now_ns + LINGER_TICK_NS))
		return false;
	t->closed_ns = t->progress_ns = loop->now_ns;
	t->unacked = -1;
	t->watch.fn = on_linger;
	list_del(&t->later.link);
	list_add_tail(&t->pool->lingering, &t->later.link);
	t->pool->n_lingering++;
	return true;
}

void tcp_pool_fini(struct tcp_pool *pool)
{
	struct list *pos, *tmp;

	pool->closed = true;
	list_for_each_safe (pos, tmp, &pool->lingering)
		linger_end(list_entry(pos, struct tcp_port, later.link), false);
	list_for_each_safe (pos, tmp, &pool->idle) {
		list_del(pos);
		free(list_entry(pos, struct tcp_port, later.link));
	}
	pool->n_idle = 0;
}

/* ---- port_ops ---- */

static ssize_t tcp_recv(struct port *p, void *buf, size_t len)
{
	struct tcp_port *t = tcp_of(p);
	ssize_t n;

	assert(len > 0);
	if (t->broken)
		return t->broken;
	n = recv(t->watch.fd, buf, len, 0);
	if (n < 0) {
		if (errno == EAGAIN)
			t->ready &= (uint8_t)~PORT_READABLE;
		else
			t->over = true;
		return -errno;
	}
	if (n == 0)
		t->over = true;
	else if ((size_t)n < len && !t->hup && !t->shared)
		t->ready &= (uint8_t)~PORT_READABLE;
	return n;
}

static size_t iov_bytes(const struct iovec *iov, int n)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

static ssize_t tcp_sendv(struct port *p, const struct iovec *iov, int n)
{
	struct tcp_port *t = tcp_of(p);
	struct msghdr msg = { .msg_iov = (struct iovec *)iov };
	ssize_t sent;

	if (t->broken)
		return t->broken;
	if (n > IOV_MAX)
		n = IOV_MAX;
	msg.msg_iovlen = (size_t)n;
	sent = n == 1 ? send(t->watch.fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL)
		      : sendmsg(t->watch.fd, &msg, MSG_NOSIGNAL);
	if (sent < 0) {
		if (errno == EAGAIN)
			t->ready &= (uint8_t)~PORT_WRITABLE;
		else
			t->over = true;
		return -errno;
	}
	if ((size_t)sent < iov_bytes(iov, n) && !t->hup)
		t->ready &= (uint8_t)~PORT_WRITABLE;
	return sent;
}

/* Only the end is of interest: a socket that a program of the kernel reads must not wake us. */
static void tcp_want_hangup(struct tcp_port *t)
{
	uint32_t events = (t->registered & ~(uint32_t)EPOLLIN) | EPOLLRDHUP | (uint32_t)EPOLLET;

	if (!t->registered) {
		tcp_register(t, EPOLLRDHUP);
	} else if (events != t->registered && !loop_mod(t->pool->loop, &t->watch, events)) {
		t->registered = events;
	}
}

static void tcp_want(struct port *p, unsigned mask)
{
	struct tcp_port *t = tcp_of(p);

	t->want = (uint8_t)mask;
	if (!mask)
		return;
	if (mask & PORT_HANGUP)
		tcp_want_hangup(t);
	tcp_register(t, (mask & PORT_READABLE ? (uint32_t)EV_READ : 0) |
				(mask & PORT_WRITABLE ? (uint32_t)EV_WRITE : 0));
	if (t->want & t->ready)
		loop_defer(t->pool->loop, &t->later);
}

static void tcp_shutdown(struct port *p)
{
	shutdown(tcp_of(p)->watch.fd, SHUT_WR);
}

static void tcp_close(struct port *p, bool reset)
{
	struct tcp_port *t = tcp_of(p);

	t->want = 0;
	deferred_cancel(&t->later);
	if (reset || !linger_begin(t))
		destroy(t, reset);
}

static int tcp_fd(struct port *p)
{
	struct tcp_port *t = tcp_of(p);

	t->shared = true;
	return t->watch.fd;
}

static const struct port_ops tcp_ops = {
	.recv = tcp_recv,
	.sendv = tcp_sendv,
	.want = tcp_want,
	.shutdown = tcp_shutdown,
	.close = tcp_close,
	.fd = tcp_fd,
};

/* ---- connecting ---- */

int tcp_connect(struct tcp_pool *pool, const struct addr *to, struct port **ret)
{
	struct tcp_port *t;
	struct port *p;
	int one = 1, r, fd;

	/* The protocol is named so that no system-wide default turns this into MPTCP. */
	fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
	    (connect(fd, &to->sa, to->len) && errno != EINPROGRESS)) {
		r = -errno;
		close(fd);
		return r;
	}
	p = tcp_port_new(pool, fd, to, NULL);
	if (!p)
		return -ENOMEM;
	t = tcp_of(p);
	tcp_register(t, EV_READ | EV_WRITE);
	if (t->broken) {
		r = t->broken;
		destroy(t, true);
		return r;
	}
	*ret = p;
	return 0;
}

int tcp_port_connected(struct port *p)
{
	struct tcp_port *t = tcp_of(p);
	socklen_t len = sizeof(int);
	int err = 0, r;

	if (!(t->ready & PORT_WRITABLE))
		return -EINPROGRESS;
	if (t->hup) {
		if (getsockopt(t->watch.fd, SOL_SOCKET, SO_ERROR, &err, &len))
			return -errno;
		if (err)
			return -err;
	}
	r = tcp_port_find_local(p);
	if (r)
		return r;
	/*
	 * Dialling a free local port from the ephemeral range may connect a socket to
	 * itself, which would look like an executor that echoes.
	 */
	return addr_equal(&p->local, &p->peer) ? -ECONNREFUSED : 0;
}

int tcp_port_find_local(struct port *p)
{
	struct addr a = { .len = sizeof(a.ss) };

	if (p->local.len)
		return 0;
	if (getsockname(tcp_of(p)->watch.fd, &a.sa, &a.len))
		return -errno;
	p->local = a;
	return 0;
}
