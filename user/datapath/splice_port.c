/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice_port.c - see splice_port.h.
 *
 * Tap and injector are watched edge-triggered, once per pair; `ready` remembers
 * what was said until the pair says EAGAIN, and a want() for what is ready is
 * answered by a call from the loop (as net/tcp.c does for sockets).
 */
#include "datapath/splice_port.h"

#include <stdlib.h>
#include <sys/epoll.h>

struct splicer {
	struct sockmap_worker *worker;
	struct splice_poller poll;
	void *ring_watch;
	uint64_t inflight;
};

struct pair_port {
	struct splice splice;
	struct splicer *owner;
	struct splice_pair *pair;
	void *tap_watch, *inject_watch, *soon;
	unsigned want, ready; /* masks of enum port_event */
	int dead;             /* the kernel gave it up: what recv() says, -errno */
};

static struct pair_port *of_port(struct port *p)
{
	return container_of(p, struct pair_port, splice.port);
}

static struct pair_port *of(const struct splice *sp)
{
	return container_of((struct splice *)(uintptr_t)sp, struct pair_port, splice);
}

/* ---- events ---- */

static void tell(void *arg)
{
	struct pair_port *pp = arg;
	unsigned events = pp->want & pp->ready;

	if (events)
		pp->splice.port.on_event(&pp->splice.port, events);
}

static void again(struct pair_port *pp)
{
	if (pp->want & pp->ready)
		pp->owner->poll.soon(pp->owner->poll.ctx, pp->soon);
}

static void on_tap(void *arg, unsigned events)
{
	struct pair_port *pp = arg;

	(void)events;
	pp->ready |= PORT_READABLE;
	again(pp);
}

static void on_inject(void *arg, unsigned events)
{
	struct pair_port *pp = arg;

	(void)events;
	pp->ready |= PORT_WRITABLE;
	again(pp);
}

static void on_ring(void *arg, unsigned events)
{
	struct splicer *s = arg;

	(void)events;
	(void)sockmap_worker_poll(s->worker);
}

static void on_dead(void *arg, struct splice_pair *p, enum abi_reason reason)
{
	struct pair_port *pp = splice_owner(p);

	(void)arg;
	pp->dead = reason == ABI_DROP_TAP_FULL ? -EDQUOT : -EIO;
	pp->ready |= PORT_READABLE;
	again(pp);
}

/* ---- port ---- */

static ssize_t port_recv(struct port *p, void *buf, size_t len)
{
	struct pair_port *pp = of_port(p);
	ssize_t n;

	if (pp->dead)
		return pp->dead;
	n = splice_recv(pp->pair, buf, len);
	/* -ENODATA too: while the client's queue drains it would be told again and again. */
	if (n <= 0) {
		pp->ready &= ~(unsigned)PORT_READABLE;
		return n;
	}
	/*
	 * Not only when the watch has said so: an edge whose bytes are read before epoll_wait() comes
	 * to it is not reported, and what follows them, the end, makes no edge of its own.
	 */
	pp->ready |= PORT_READABLE;
	again(pp);
	return n;
}

static ssize_t port_sendv(struct port *p, const struct iovec *iov, int n)
{
	struct pair_port *pp = of_port(p);
	ssize_t k;

	if (pp->dead)
		return -EPIPE;
	k = splice_sendv(pp->pair, iov, n);
	if (k == -EAGAIN)
		pp->ready &= ~(unsigned)PORT_WRITABLE;
	return k;
}

static void port_want(struct port *p, unsigned mask)
{
	struct pair_port *pp = of_port(p);

	pp->want = mask;
	again(pp);
}

static void port_nothing(struct port *p)
{
	(void)p;
}

static void port_close(struct port *p, bool reset)
{
	(void)p;
	(void)reset;
}

static int port_fd(struct port *p)
{
	(void)p;
	return -1;
}

static const struct port_ops port_ops = {
	.recv = port_recv,
	.sendv = port_sendv,
	.want = port_want,
	.shutdown = port_nothing,
	.close = port_close,
	.fd = port_fd,
};

/* ---- splice ---- */

static void pair_free(struct splice *sp)
{
	struct pair_port *pp = of(sp);
	struct splice_poller *poll = &pp->owner->poll;

	if (pp->tap_watch)
		poll->forget(poll->ctx, pp->tap_watch);
	if (pp->inject_watch)
		poll->forget(poll->ctx, pp->inject_watch);
	if (pp->soon)
		poll->soon_free(poll->ctx, pp->soon);
	if (pp->pair)
		splice_free(pp->pair);
	free(pp);
}

static struct splice *pair_enrol(void *ctx, struct port *client, struct port *upstream,
				 uint64_t tap_limit, const char **ret_why, bool *ret_again)
{
	struct splicer *s = ctx;
	struct pair_port *pp = calloc(1, sizeof(*pp));
	int c = client->ops->fd(client), u = upstream->ops->fd(upstream), err = 0;
	struct splice_params params = { .max_frame = 16384, .tap_limit = tap_limit, .owner = pp };
	enum splice_refusal r = SPLICE_LIMIT;

	*ret_again = false;
	*ret_why = splice_refusal_name(r);
	if (!pp)
		return NULL;
	pp->owner = s;
	pp->splice.ops = &splicer_ops;
	pp->splice.port.ops = &port_ops;
	pp->splice.port.peer = upstream->peer;
	pp->soon = s->poll.soon_new(s->poll.ctx, tell, pp);
	if (!pp->soon)
		goto fail;
	(void)sockmap_client_sndbuf(c, s->inflight);
	r = splice_enrol(s->worker, c, u, &params, &pp->pair, &err);
	if (r != SPLICE_OK)
		goto fail;
	pp->tap_watch =
		s->poll.watch(s->poll.ctx, splice_tap_fd(pp->pair), EPOLLIN | EPOLLET, on_tap, pp);
	pp->inject_watch = s->poll.watch(s->poll.ctx, splice_inject_fd(pp->pair),
					 EPOLLOUT | EPOLLET, on_inject, pp);
	r = SPLICE_LIMIT;
	if (!pp->tap_watch || !pp->inject_watch)
		goto fail;
	pp->ready = PORT_READABLE | PORT_WRITABLE;
	return &pp->splice;
fail:
	*ret_again = r == SPLICE_BYTES_WAITING;
	*ret_why = splice_refusal_name(r);
	pair_free(&pp->splice);
	return NULL;
}

static int pair_stream_add(struct splice *sp, uint32_t id, uint64_t limit)
{
	return splice_stream_add(of(sp)->pair, id, limit);
}

static void pair_stream_limit(struct splice *sp, uint32_t id, uint64_t limit)
{
	(void)splice_stream_limit(of(sp)->pair, id, limit);
}

static uint64_t pair_stream_data(const struct splice *sp, uint32_t id)
{
	return splice_stream_data(of(sp)->pair, id);
}

static uint64_t pair_stream_del(struct splice *sp, uint32_t id)
{
	uint64_t data = 0;

	(void)splice_stream_del(of(sp)->pair, id, &data);
	return data;
}

static uint32_t pair_open(const struct splice *sp)
{
	return splice_open(of(sp)->pair);
}

static uint32_t pair_hold(struct splice *sp)
{
	return splice_hold(of(sp)->pair);
}

static void pair_release(struct splice *sp)
{
	splice_release(of(sp)->pair);
}

static bool pair_excursion(const struct splice *sp)
{
	return splice_excursion(of(sp)->pair);
}

static void pair_consumed(struct splice *sp, uint64_t bytes, uint32_t open_bytes)
{
	splice_consumed(of(sp)->pair, bytes, open_bytes);
}

static uint64_t pair_undelivered(const struct splice *sp)
{
	uint64_t queued = 0, unacked = 0;

	/* A dead client's socket is noticed where it is read. */
	(void)splice_undelivered(of(sp)->pair, &queued, &unacked);
	return max_u64(queued, unacked);
}

static int pair_leave(struct splice *sp)
{
	return splice_leave(of(sp)->pair);
}

static void pair_place(const struct splice *sp, uint32_t *ret_slot, uint32_t *ret_generation)
{
	*ret_slot = splice_slot(of(sp)->pair);
	*ret_generation = splice_generation(of(sp)->pair);
}

const struct splice_ops splicer_ops = {
	.name = "sockmap",
	.enrol = pair_enrol,
	.stream_add = pair_stream_add,
	.stream_limit = pair_stream_limit,
	.stream_data = pair_stream_data,
	.stream_del = pair_stream_del,
	.open = pair_open,
	.hold = pair_hold,
	.release = pair_release,
	.excursion = pair_excursion,
	.consumed = pair_consumed,
	.undelivered = pair_undelivered,
	.leave = pair_leave,
	.place = pair_place,
	.free = pair_free,
};

/* ---- worker ---- */

int splicer_new(struct sockmap *sm, uint32_t worker, uint64_t inflight,
		const struct splice_poller *poller, struct splicer **ret)
{
	struct splicer *s = calloc(1, sizeof(*s));
	struct sockmap_callbacks cb = { .dead = on_dead, .arg = s };
	int r;

	if (!s)
		return -ENOMEM;
	s->poll = *poller;
	s->inflight = inflight;
	r = sockmap_worker_new(sm, worker, &cb, &s->worker);
	if (!r) {
		s->ring_watch = s->poll.watch(s->poll.ctx, sockmap_worker_fd(s->worker), EPOLLIN,
					      on_ring, s);
		r = s->ring_watch ? 0 : -ENOMEM;
	}
	if (r) {
		splicer_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void splicer_free(struct splicer *s)
{
	if (!s)
		return;
	if (s->ring_watch)
		s->poll.forget(s->poll.ctx, s->ring_watch);
	sockmap_worker_free(s->worker);
	free(s);
}

void splicer_stats(const struct splicer *s, struct sockmap_stats *ret)
{
	sockmap_worker_stats(s->worker, ret);
}
