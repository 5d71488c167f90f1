/* SPDX-License-Identifier: Apache-2.0 */
#include "net/acceptor.h"

#include <fcntl.h>
#include <unistd.h>

#include "net/listen.h"

#define BATCH_PATIENCE 4
#define BATCH_MAX_LOG2 6
#define PAUSE_NS (50 * NSEC_PER_MSEC)
#define PATIENCE_NS NSEC_PER_SEC
#define SHED_MAX 64
/* Refused clients that are given time to read why; beyond, they are reset. */
#define REFUSED_LINGERING_MAX 256

static int take_reserve(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int accept_one(struct acceptor *a, struct addr *peer)
{
	int fd;

	peer->len = sizeof(peer->ss);
	fd = accept4(a->watch.fd, &peer->sa, &peer->len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* An empty SETTINGS, which must be the server's first frame, and GOAWAY(0, ENHANCE_YOUR_CALM). */
static const char too_many[] = "\0\0\0\x04\0\0\0\0\0"
			       "\0\0\x26\x07\0\0\0\0\0"
			       "\0\0\0\0\0\0\0\x0b"
			       "flightsplice: too many clients";
_Static_assert(sizeof(too_many) - 1 == 9 + 9 + 0x26, "GOAWAY's length field");

static void refuse(struct acceptor *a, int fd, const struct addr *peer, enum accept_trouble why)
{
	/* Best effort: the port lingers until the client has closed, or five seconds. */
	struct iovec iov = { .iov_base = (void *)too_many, .iov_len = sizeof(too_many) - 1 };
	struct port *p = tcp_port_new(a->pool, fd, peer, NULL);

	if (p) {
		p->ops->sendv(p, &iov, 1);
		p->ops->close(p, a->pool->n_lingering >= REFUSED_LINGERING_MAX);
	}
	a->owner->trouble(a->owner->arg, why, 0, peer);
}

static void admit(struct acceptor *a, int fd, const struct addr *peer)
{
	const struct acceptor_owner *o = a->owner;
	struct port *p;

	if (atomic_fetch_add_explicit(o->clients, 1, memory_order_relaxed) >= o->max_clients) {
		atomic_fetch_sub_explicit(o->clients, 1, memory_order_relaxed);
		refuse(a, fd, peer, ACCEPT_REFUSED);
		return;
	}
	if (a->pool->sources && !sources_enter(a->pool->sources, peer)) {
		atomic_fetch_sub_explicit(o->clients, 1, memory_order_relaxed);
		refuse(a, fd, peer, ACCEPT_REFUSED_SOURCE);
		return;
	}
	p = tcp_port_new(a->pool, fd, peer, o->clients);
	if (!p)
		return;
	p->local = a->local;
	o->accepted(o->arg, p);
}

/* ---- out of descriptors ---- */

/* Empties the kernel's queue, a descriptor at a time. */
static void shed(struct acceptor *a, int err)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	struct addr peer;

	for (int i = 0; i < SHED_MAX && a->reserve >= 0; i++) {
		int fd;

		close(a->reserve);
		fd = accept_one(a, &peer);
		if (fd >= 0) {
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
			close(fd);
			a->owner->trouble(a->owner->arg, ACCEPT_SHED, err, &peer);
		}
		a->reserve = take_reserve();
		if (fd == -EAGAIN)
			break;
	}
}

static void pause_over(struct timer *t)
{
	struct acceptor *a = container_of(t, struct acceptor, pause);

	if (a->reserve < 0)
		a->reserve = take_reserve();
	/* Level-triggered: what waits is reported in the next turn. */
	loop_mod(a->pool->loop, &a->watch, EPOLLIN);
}

static void out_of_resources(struct acceptor *a, int err)
{
	struct loop *l = a->pool->loop;

	if (!a->trouble_since) {
		a->trouble_since = l->now_ns;
		a->owner->trouble(a->owner->arg, ACCEPT_PAUSED, err, NULL);
	} else if (l->now_ns - a->trouble_since >= PATIENCE_NS) {
		shed(a, err);
	}
	/* Without a timer we would never come back: then rather spin. */
	if (!timer_arm(&l->timers, &a->pause, l->now_ns + PAUSE_NS))
		loop_mod(l, &a->watch, 0);
}

static void works_again(struct acceptor *a)
{
	a->trouble_since = 0;
	a->owner->trouble(a->owner->arg, ACCEPT_RESUMED, 0, NULL);
}

/* ---- the normal case ---- */

static bool is_shortage(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOBUFS || err == -ENOMEM;
}

/* How many to take in this turn. */
static unsigned batch_size(struct acceptor *a)
{
	uint64_t turn = a->pool->loop->turn;

	a->busy_turns = turn == a->last_turn + 1 ? a->busy_turns + 1 : 0;
	a->last_turn = turn;
	if (a->busy_turns < BATCH_PATIENCE)
		return 1;
	return 1u << min_u64(a->busy_turns - BATCH_PATIENCE, BATCH_MAX_LOG2);
}

static void on_connection(struct watch *w, unsigned events)
{
	struct acceptor *a = container_of(w, struct acceptor, watch);
	unsigned batch = batch_size(a);

	(void)events;
	for (unsigned i = 0; i < batch; i++) {
		struct addr peer;
		int fd = accept_one(a, &peer);

		if (fd == -EAGAIN)
			return;
		if (is_shortage(fd)) {
			out_of_resources(a, fd);
			return;
		}
		/* Anything else is the fate of one connection that is gone already. */
		if (fd < 0)
			continue;
		if (a->trouble_since)
			works_again(a);
		admit(a, fd, &peer);
	}
}

int acceptor_init(struct acceptor *a, struct tcp_pool *pool, int fd, const struct addr *bound,
		  const struct acceptor_owner *owner)
{
	int r;

	*a = (struct acceptor){
		.watch = { .fd = fd, .fn = on_connection },
		.pool = pool,
		.owner = owner,
		.pause = { .fire = pause_over },
		.reserve = take_reserve(),
	};
	if (!listen_is_wildcard(bound))
		a->local = *bound;
	r = loop_add(pool->loop, &a->watch, EPOLLIN);
	if (r)
		acceptor_fini(a);
	return r;
}

void acceptor_fini(struct acceptor *a)
{
	timer_disarm(&a->pool->loop->timers, &a->pause);
	loop_forget(&a->watch);
	if (a->watch.fd >= 0)
		close(a->watch.fd);
	if (a->reserve >= 0)
		close(a->reserve);
	a->watch.fd = a->reserve = -1;
}
