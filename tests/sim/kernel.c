/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - splicing without a kernel: struct splice_ops over the in-memory
 * network, as datapath/sockmap.h describes it.
 *
 * What an upstream's socket receives is cut into skbs of random size, and each is
 * judged by the product's own rules (bpf/lib/walk.h): redirected whole into the
 * client's queue, or passed whole to the tap. That happens a little after the
 * bytes have come, or, because a kernel does not wait for anybody, in the middle
 * of a call that the session makes. The queue of the client has no bound of its
 * own, as in a kernel: it drains into the client's socket as that has room.
 *
 * Bytes reach the tap later than they were passed (the tap is another socket).
 * What userspace publishes as consumed is compared with a parser that sees
 * everything, so that a wrong idea of where a frame ends is found here and not
 * as garbage at the client.
 */
#include "world_int.h"

#include <stdlib.h>

#include "abi.h"
#include "lib/walk.h"

#define SKB_MAX 65536
#define INJECT_ROOM 65536 /* what may be queued before sendv() says EAGAIN */
#define DELAY_MAX (200 * NSEC_PER_USEC)

struct pair {
	struct splice splice;
	struct world *world;
	struct vport *client, *upstream; /* NULL once taken out */
	struct list link;
	struct abi_pair state;
	struct bytes queue; /* for the client, not in its socket yet */
	struct bytes tap;   /* passed and not consumed */
	size_t arrived;     /* of it, what recv() may see */
	size_t read;        /* of it, what recv() has returned */
	uint64_t consumed;
	uint32_t open;  /* published with it */
	uint32_t truth; /* bytes that the frame at `consumed` really lacks */
	struct alarm input, deliver;
	unsigned want, fruitless;
	bool dead, told_dead, client_left;
	bool ready; /* readable was said, and recv() has not answered EAGAIN since */
};

static struct pair *of(const struct splice *sp)
{
	return container_of((struct splice *)(uintptr_t)sp, struct pair, splice);
}

static struct pair *of_port(struct port *p)
{
	return container_of(p, struct pair, splice.port);
}

struct pair *kernel_pair(struct list *link)
{
	return list_entry(link, struct pair, link);
}

bool kernel_left(const struct pair *p, const struct vport *v)
{
	return v->dialled ? !p->upstream : p->client_left;
}

/* ---- the verdict ---------------------------------------------------------- */

static bool on_fast_path(struct abi_pair *s)
{
	if (s->hold)
		return false;
	if (s->adopted == s->passed)
		return true;
	if ((s->resume ^ s->passed) & ABI_CONSUMED_MASK)
		return false;
	s->remaining = (uint32_t)(s->resume >> ABI_CONSUMED_BITS);
	s->adopted = s->passed;
	return true;
}

/* Counts the frames of an skb; false, with nothing counted, when it is for the tap. */
static bool walk(struct abi_pair *s, const uint8_t *skb, size_t n, size_t *ret_end)
{
	struct abi_pair before = *s;
	size_t off = s->remaining;

	while (off < n) {
		struct abi_stream *st = NULL;

		if (off + WALK_HEADER > n || walk_judge(s, skb + off, &st) != ABI_REDIRECTED) {
			*s = before;
			return false;
		}
		st->data += walk_length(skb + off);
		off += WALK_HEADER + walk_length(skb + off);
	}
	*ret_end = off;
	return true;
}

void kernel_output(struct pair *p)
{
	while (p->queue.len && p->client) {
		size_t n = vport_push(p->client, bytes_at(&p->queue), p->queue.len);

		if (!n)
			return;
		bytes_drop(&p->queue, n);
	}
}

static void enqueue(struct pair *p, const void *bytes, size_t n)
{
	bytes_add(&p->queue, bytes, n);
	kernel_output(p);
}

static void on_deliver(void *arg)
{
	struct pair *p = arg;
	size_t late = p->tap.len - p->arrived;

	if (!late)
		return;
	p->ready = true;
	p->arrived += rng_chance(&p->world->rng, 70) ? late : rng_range(&p->world->rng, 1, late);
	if (p->arrived < p->tap.len)
		alarm_set(p->world, &p->deliver,
			  p->world->now + rng_below(&p->world->rng, DELAY_MAX), on_deliver, p);
}

static void verdict(struct pair *p, const uint8_t *skb, size_t n)
{
	struct abi_pair *s = &p->state;
	size_t end = 0;

	if (on_fast_path(s) && walk(s, skb, n, &end)) {
		if (p->client && vport_error(p->client)) {
			p->dead = true; /* ABI_DROP_NO_CLIENT */
			return;
		}
		s->remaining = p->truth = (uint32_t)(end - n);
		s->redirected += n;
		enqueue(p, skb, n);
		return;
	}
	if (p->tap.len + n > s->tap_limit) {
		world_fail(p->world, "kernel: %zu bytes in the tap, its limit is %llu",
			   p->tap.len + n, (unsigned long long)s->tap_limit);
		p->dead = true;
		return;
	}
	bytes_add(&p->tap, skb, n);
	s->passed += n;
	alarm_soon(p->world, &p->deliver, p->world->now + rng_below(&p->world->rng, DELAY_MAX),
		   on_deliver, p);
}

/* One skb. False when there is none. */
static bool judge_one(struct pair *p)
{
	const struct bytes *in;
	uint8_t skb[SKB_MAX];
	size_t n;

	if (!p->upstream || p->dead)
		return false;
	in = vport_received(p->upstream);
	if (!in->len)
		return false;
	n = min_u64(in->len, SKB_MAX);
	if (rng_chance(&p->world->rng, 50))
		n = rng_range(&p->world->rng, 1, n);
	memcpy(skb, bytes_at(in), n);
	vport_take(p->upstream, n);
	verdict(p, skb, n);
	return true;
}

static void on_input(void *arg)
{
	while (judge_one(arg))
		;
}

void kernel_input(struct pair *p)
{
	alarm_soon(p->world, &p->input, p->world->now + rng_below(&p->world->rng, 20000), on_input,
		   p);
}

/* A call of the session: the kernel may be working on another CPU. */
static struct pair *enter(const struct splice *sp, const char *call)
{
	struct pair *p = of(sp);

	if (!p->world->in_subject)
		world_fail(p->world, "%s() outside any call into the subject", call);
	if (rng_chance(&p->world->rng, 30))
		judge_one(p);
	return p;
}

/* ---- streams -------------------------------------------------------------- */

static struct abi_stream *entry(struct pair *p, uint32_t id, uint32_t want)
{
	struct abi_stream *set = &p->state.streams[ABI_STREAM_SET(id)];

	for (int i = 0; i < ABI_STREAM_WAYS; i++)
		if (set[i].id == want)
			return &set[i];
	return NULL;
}

static int stream_add(struct splice *sp, uint32_t id, uint64_t limit)
{
	struct pair *p = enter(sp, "stream_add");
	struct abi_stream *s = entry(p, id, 0);

	if (!id || entry(p, id, id))
		world_fail(p->world, "kernel: stream %u is there already", id);
	if (!s || rng_chance(&p->world->rng, 2))
		return -ENOSPC;
	*s = (struct abi_stream){ .id = id, .limit = limit };
	return 0;
}

static void stream_limit(struct splice *sp, uint32_t id, uint64_t limit)
{
	struct pair *p = enter(sp, "stream_limit");
	struct abi_stream *s = entry(p, id, id);

	if (s)
		s->limit = limit;
}

static uint64_t stream_data(const struct splice *sp, uint32_t id)
{
	struct abi_stream *s = entry(enter(sp, "stream_data"), id, id);

	return s ? s->data : 0;
}

static uint64_t stream_del(struct splice *sp, uint32_t id)
{
	struct abi_stream *s = entry(enter(sp, "stream_del"), id, id);

	if (!s)
		return 0;
	s->id = 0;
	return s->data;
}

/* ---- tap and injector ----------------------------------------------------- */

static uint32_t open_bytes(const struct pair *p)
{
	return p->state.adopted == p->consumed ? p->state.remaining : p->open;
}

static uint32_t pair_open(const struct splice *sp)
{
	return open_bytes(of(sp));
}

static uint32_t pair_hold(struct splice *sp)
{
	struct pair *p = enter(sp, "hold");

	p->state.hold = 1;
	return open_bytes(p);
}

static void pair_release(struct splice *sp)
{
	struct pair *p = enter(sp, "release");

	if (p->upstream)
		p->state.hold = 0;
}

static bool pair_excursion(const struct splice *sp)
{
	const struct pair *p = of(sp);

	return p->state.hold || p->state.passed != p->consumed;
}

/* The parser that sees everything goes over the n bytes that are consumed now. */
static void follow(struct pair *p, size_t n)
{
	const uint8_t *at = bytes_at(&p->tap);
	size_t off = 0;

	while (off < n) {
		size_t k;

		if (!p->truth) {
			if (n - off < WALK_HEADER) {
				world_fail(p->world, "kernel: consumed into a frame header");
				return;
			}
			p->truth = WALK_HEADER + walk_length(at + off);
		}
		k = min_u64(p->truth, n - off);
		p->truth -= (uint32_t)k;
		off += k;
	}
}

static void pair_consumed(struct splice *sp, uint64_t bytes, uint32_t open)
{
	struct pair *p = enter(sp, "consumed");

	if (bytes > p->read) {
		world_fail(p->world, "kernel: %llu bytes consumed, %zu were read",
			   (unsigned long long)bytes, p->read);
		return;
	}
	if (!bytes)
		return;
	follow(p, bytes);
	if (p->truth != open)
		world_fail(p->world, "kernel: consumed with %u bytes open, it is %u", open,
			   p->truth);
	bytes_drop(&p->tap, bytes);
	p->arrived -= bytes;
	p->read -= bytes;
	p->consumed += bytes;
	p->open = open;
	p->state.resume = ABI_RESUME(p->consumed, open);
}

static ssize_t tap_recv(struct pair *p, void *buf, size_t len)
{
	size_t n;

	if (p->dead)
		return -EIO;
	n = min_u64(len, p->arrived - p->read);
	if (n > 1 && rng_chance(&p->world->rng, 20))
		n = rng_range(&p->world->rng, 1, n);
	if (n) {
		memcpy(buf, bytes_at(&p->tap) + p->read, n);
		p->read += n;
		return (ssize_t)n;
	}
	if (p->read < p->tap.len)
		return -EAGAIN; /* on its way */
	if (!p->upstream)
		return p->client_left ? -ENODATA : -EAGAIN;
	if (vport_error(p->upstream) && !vport_received(p->upstream)->len)
		return -ECONNRESET;
	return vport_fin(p->upstream) ? 0 : -EAGAIN;
}

static ssize_t pair_recv(struct port *port, void *buf, size_t len)
{
	struct pair *p = enter(container_of(port, struct splice, port), "recv");
	ssize_t n = tap_recv(p, buf, len);

	if (n > 0 || n == -EAGAIN)
		p->fruitless = 0;
	if (n == -EAGAIN)
		p->ready = false;
	return n;
}

static ssize_t pair_sendv(struct port *port, const struct iovec *iov, int n)
{
	struct pair *p = of_port(port);
	size_t room, done = 0;

	enter(&p->splice, "sendv");
	p->fruitless = 0;
	if (p->client_left)
		world_fail(p->world, "kernel: sendv() after leave()");
	if (!pair_excursion(&p->splice))
		world_fail(p->world, "kernel: sendv() while the fast path is on");
	if (p->dead || !p->client || vport_error(p->client))
		return -EPIPE;
	room = p->queue.len < INJECT_ROOM ? INJECT_ROOM - p->queue.len : 0;
	if (room > 1 && rng_chance(&p->world->rng, 20))
		room = rng_range(&p->world->rng, 1, room);
	for (int i = 0; i < n && done < room; i++) {
		size_t k = min_u64(iov[i].iov_len, room - done);

		bytes_add(&p->queue, iov[i].iov_base, k);
		done += k;
	}
	kernel_output(p);
	return done ? (ssize_t)done : -EAGAIN;
}

static void pair_want(struct port *port, unsigned mask)
{
	of_port(port)->want = mask;
}

static void pair_never(struct port *port)
{
	world_fail(of_port(port)->world, "kernel: shutdown() of a splice");
}

static void pair_never_close(struct port *port, bool reset)
{
	(void)reset;
	world_fail(of_port(port)->world, "kernel: close() of a splice");
}

static int pair_fd(struct port *port)
{
	(void)port;
	return -1;
}

static const struct port_ops pair_port_ops = {
	.recv = pair_recv,
	.sendv = pair_sendv,
	.want = pair_want,
	.shutdown = pair_never,
	.close = pair_never_close,
	.fd = pair_fd,
};

/* The tap says when it has bytes; an upstream's end is told by its own port. */
unsigned kernel_events(struct pair *p)
{
	unsigned events = 0;

	if (p->ready || (p->dead && !p->told_dead))
		events |= PORT_READABLE;
	if (p->queue.len < INJECT_ROOM)
		events |= PORT_WRITABLE;
	return events & p->want;
}

void kernel_deliver(struct pair *p, unsigned events)
{
	struct world *w = p->world;

	events &= p->want;
	if (!events)
		return;
	p->told_dead |= p->dead && events & PORT_READABLE;
	if (++p->fruitless > 100) {
		world_fail(w, "busy loop: a splice is told %u again and again", events);
		return;
	}
	subject_enter(w);
	p->splice.port.on_event(&p->splice.port, events); /* may free p */
	subject_leave(w);
}

/* ---- beginning and end ---------------------------------------------------- */

static struct splice *pair_enrol(void *ctx, struct port *client, struct port *upstream,
				 uint64_t tap_limit, const char **ret_why, bool *ret_again)
{
	struct world *w = ctx;
	struct vport *c = container_of(client, struct vport, port);
	struct vport *u = container_of(upstream, struct vport, port);
	struct pair *p;

	*ret_again = vport_received(u)->len > 0;
	*ret_why = *ret_again ? "bytes-waiting" : "failed";
	if (c->pair || u->pair)
		world_fail(w, "kernel: enrolled twice");
	if (vport_received(u)->len || vport_error(c) || vport_error(u) || vport_fin(u) ||
	    vport_fin(c))
		return NULL;
	if (rng_chance(&w->rng, w->splice_refusals)) {
		*ret_again = rng_chance(&w->rng, 50);
		return NULL;
	}
	p = xalloc(sizeof(*p));
	p->splice.ops = &world_splice_ops;
	p->splice.port.ops = &pair_port_ops;
	p->splice.port.peer = u->port.peer;
	p->world = w;
	p->client = c;
	p->upstream = u;
	p->state.hold = 1;
	p->state.max_frame = 16384;
	p->state.tap_limit = tap_limit;
	p->ready = true;
	c->pair = u->pair = p;
	list_add_tail(&w->pairs, &p->link);
	w->n_pairs++;
	w->n_enrolled++;
	world_log(w, "kernel: spliced");
	return &p->splice;
}

static uint64_t pair_undelivered(const struct splice *sp)
{
	struct pair *p = enter(sp, "undelivered");

	return p->queue.len + (p->client ? vport_unacked(p->client) : 0);
}

static void take_out(struct vport **v)
{
	if (*v)
		(*v)->pair = NULL;
	*v = NULL;
}

static int pair_leave(struct splice *sp)
{
	struct pair *p = enter(sp, "leave");

	p->state.hold = 1;
	take_out(&p->upstream);
	if (p->client && vport_error(p->client))
		return -EPIPE;
	if (p->queue.len)
		return -EAGAIN;
	take_out(&p->client);
	p->client_left = true;
	world_log(p->world, "kernel: left");
	return 0;
}

static void pair_place(const struct splice *sp, uint32_t *ret_slot, uint32_t *ret_generation)
{
	(void)sp;
	*ret_slot = *ret_generation = 1;
}

static void pair_free(struct splice *sp)
{
	struct pair *p = enter(sp, "free");
	struct world *w = p->world;

	for (size_t i = 0; i < w->n_ready; i++)
		if (w->ready[i].pair == p)
			w->ready[i].pair = NULL;
	/* What was queued is lost; the session has to reset the client. */
	take_out(&p->upstream);
	take_out(&p->client);
	alarm_clear(&p->input);
	alarm_clear(&p->deliver);
	bytes_free(&p->queue);
	bytes_free(&p->tap);
	list_del(&p->link);
	w->n_pairs--;
	free(p);
}

const struct splice_ops world_splice_ops = {
	.name = "kernel",
	.enrol = pair_enrol,
	.stream_add = stream_add,
	.stream_limit = stream_limit,
	.stream_data = stream_data,
	.stream_del = stream_del,
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

void world_set_splice_refusals(struct world *w, unsigned percent)
{
	w->splice_refusals = percent;
}

unsigned world_pairs(const struct world *w)
{
	return w->n_pairs;
}

unsigned world_enrolled(const struct world *w)
{
	return w->n_enrolled;
}

void kernel_free(struct world *w)
{
	struct list *pos, *tmp;
	bool was = w->in_subject;

	w->in_subject = true;
	list_for_each_safe (pos, tmp, &w->pairs)
		pair_free(&kernel_pair(pos)->splice);
	w->in_subject = was;
}
