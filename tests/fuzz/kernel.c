/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - struct splice_ops without a kernel, as datapath/sockmap.h describes it.
 *
 * What a spliced upstream's peer sends waits in its port until kernel_step() makes an skb
 * of some of it and judges it as bpf/splice.bpf.c does, with the same bpf/lib/walk.h:
 * plain DATA of known streams within their limits goes to the client, everything else to
 * the tap. That happens between two turns of the loop, and, when world.eager says so,
 * inside the calls that the session makes: a kernel does not wait for anybody.
 */
#include "fuzz/world.h"

#include "abi.h"
#include "lib/walk.h"

struct pair {
	struct splice splice;
	struct world *world;
	struct vport *client, *upstream; /* NULL once taken out */
	struct peer *to, *from;          /* their peers */
	struct abi_pair state;
	struct bytes tap;
	uint64_t read, consumed; /* of the tap */
	uint32_t open;           /* as published with consumed */
	uint64_t queued;         /* for the client, and not taken yet */
	uint64_t room;           /* of the injector */
	/*
	 * As datapath/splice_port.c has it: what is ready is so until there is nothing, and is told when it
	 * becomes so, when it is asked for, and after each successful read.
	 */
	unsigned want;
	bool dead, readable, tell;
};

static struct pair *of(const struct splice *sp)
{
	return container_of((struct splice *)(uintptr_t)sp, struct pair, splice);
}

static struct pair *of_port(struct port *p)
{
	return container_of(p, struct pair, splice.port);
}

/* -------------------------------------------------------------------- the verdict */

static bool on_fast_path(struct abi_pair *p)
{
	if (p->hold)
		return false;
	if (p->adopted == p->passed)
		return true;
	if ((p->resume ^ p->passed) & ABI_CONSUMED_MASK)
		return false;
	p->remaining = (uint32_t)(p->resume >> ABI_CONSUMED_BITS);
	p->adopted = p->passed;
	return true;
}

/* Counts the frames of an skb; false, and nothing counted, when it has to go to the tap. */
static bool walk(struct abi_pair *p, const uint8_t *skb, size_t n, size_t *ret_end)
{
	struct abi_pair before = *p;
	size_t off = p->remaining;

	while (off < n) {
		struct abi_stream *s = NULL;

		if (off + WALK_HEADER > n || walk_judge(p, skb + off, &s) != ABI_REDIRECTED) {
			*p = before;
			return false;
		}
		s->data += walk_length(skb + off);
		off += WALK_HEADER + walk_length(skb + off);
	}
	*ret_end = off;
	return true;
}

static void die(struct pair *p)
{
	p->dead = p->readable = p->tell = true;
}

static void verdict(struct pair *p, const uint8_t *skb, size_t n)
{
	struct abi_pair *st = &p->state;
	size_t end = 0;

	if (p->dead)
		return;
	peer_in(p->from, skb, n);
	if (on_fast_path(st) && walk(st, skb, n, &end)) {
		if (!p->client || p->client->rst) {
			die(p); /* ABI_DROP_NO_CLIENT; counted, and lost */
			return;
		}
		st->remaining = (uint32_t)(end - n);
		st->redirected += n;
		p->queued += n;
		peer_out(p->to, skb, n);
		return;
	}
	if (((st->passed - st->resume) & ABI_CONSUMED_MASK) + n > st->tap_limit) {
		die(p); /* ABI_DROP_TAP_FULL */
		return;
	}
	bytes_add(&p->tap, skb, n);
	st->passed += n;
	p->readable = p->tell = true;
}

static bool step(struct pair *p, size_t max)
{
	struct vport *u = p->upstream;
	struct bytes skb = { .p = NULL };

	if (!u || !u->rx.len)
		return false;
	bytes_add(&skb, u->rx.p, min_u64(u->rx.len, max));
	bytes_cut(&u->rx, skb.len);
	verdict(p, skb.p, skb.len);
	bytes_free(&skb);
	return true;
}

/* The kernel works on while the session makes a call. */
static bool enter(struct pair *p)
{
	struct world *w = p->world;
	bool was = world_out(w);

	if (w->eager && !(world_random(w) & ((1u << w->eager) - 1)))
		(void)step(p, 1 + world_random(w) % 20000);
	return was;
}

/* ------------------------------------------------------------------------ streams */

static struct abi_stream *find(struct pair *p, uint32_t id, uint32_t want)
{
	struct abi_stream *set = &p->state.streams[ABI_STREAM_SET(id)];

	for (int i = 0; i < ABI_STREAM_WAYS; i++) {
		if (set[i].id == want)
			return &set[i];
	}
	return NULL;
}

static int stream_add(struct splice *sp, uint32_t id, uint64_t limit)
{
	struct pair *p = of(sp);
	bool was = enter(p);
	struct abi_stream *s;

	CHECK(id && !find(p, id, id));
	s = find(p, id, 0);
	if (s)
		*s = (struct abi_stream){ .id = id, .limit = limit };
	world_back(p->world, was);
	return s ? 0 : -ENOSPC;
}

static void stream_limit(struct splice *sp, uint32_t id, uint64_t limit)
{
	struct pair *p = of(sp);
	bool was = enter(p);
	struct abi_stream *s = find(p, id, id);

	if (s)
		s->limit = limit;
	world_back(p->world, was);
}

static uint64_t stream_data(const struct splice *sp, uint32_t id)
{
	struct pair *p = of(sp);
	bool was = enter(p);
	struct abi_stream *s = find(p, id, id);

	world_back(p->world, was);
	return s ? s->data : 0;
}

static uint64_t stream_del(struct splice *sp, uint32_t id)
{
	struct pair *p = of(sp);
	bool was = enter(p);
	struct abi_stream *s = find(p, id, id);
	uint64_t data = s ? s->data : 0;

	if (s)
		s->id = 0;
	world_back(p->world, was);
	return data;
}

/* --------------------------------------------------------------- tap and injector */

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
	struct pair *p = of(sp);
	bool was = enter(p);

	p->state.hold = 1;
	world_back(p->world, was);
	return open_bytes(p);
}

static void pair_release(struct splice *sp)
{
	struct pair *p = of(sp);

	if (p->upstream)
		p->state.hold = 0;
	world_back(p->world, enter(p));
}

static bool pair_excursion(const struct splice *sp)
{
	const struct pair *p = of(sp);

	return p->state.hold || p->state.passed != p->consumed;
}

static void pair_consumed(struct splice *sp, uint64_t bytes, uint32_t open)
{
	struct pair *p = of(sp);

	CHECK(bytes <= p->read - p->consumed);
	p->consumed += bytes;
	if (bytes) {
		p->open = open;
		p->state.resume = ABI_RESUME(p->consumed, open);
	}
	world_back(p->world, enter(p));
}

static ssize_t tap_recv(struct pair *p, uint8_t *buf, size_t len)
{
	size_t n = min_u64(len, p->tap.len);

	CHECK(len);
	if (p->dead)
		return -EIO;
	if (n) {
		memcpy(buf, p->tap.p, n);
		bytes_cut(&p->tap, n);
		p->read += n;
		return (ssize_t)n;
	}
	if (!p->upstream)
		return -ENODATA;
	if (p->upstream->rst)
		return -ECONNRESET;
	return p->upstream->fin && !p->upstream->rx.len ? 0 : -EAGAIN;
}

static ssize_t pair_recv(struct port *port, void *buf, size_t len)
{
	struct pair *p = of_port(port);
	bool was = enter(p);
	ssize_t n = tap_recv(p, buf, len);

	p->readable &= n > 0;
	p->tell |= n > 0;
	world_back(p->world, was);
	return n;
}

static ssize_t inject(struct pair *p, const struct iovec *iov, int n)
{
	size_t done = 0;

	if (p->dead || !p->client || p->client->rst)
		return -EPIPE;
	/* Else the kernel could put something in between. */
	CHECK(pair_excursion(&p->splice));
	for (int i = 0; i < n && p->room; i++) {
		size_t k = min_u64(iov[i].iov_len, p->room);

		peer_out(p->to, iov[i].iov_base, k);
		p->room -= p->room == UINT64_MAX ? 0 : k;
		done += k;
		if (k < iov[i].iov_len)
			break;
	}
	p->queued += done;
	return done ? (ssize_t)done : -EAGAIN;
}

static ssize_t pair_sendv(struct port *port, const struct iovec *iov, int n)
{
	struct pair *p = of_port(port);
	bool was = enter(p);
	ssize_t r = inject(p, iov, n);

	world_back(p->world, was);
	return r;
}

static void pair_want(struct port *port, unsigned mask)
{
	struct pair *p = of_port(port);

	p->want = mask;
	p->tell = true;
}

static const struct port_ops pair_port_ops = {
	.recv = pair_recv,
	.sendv = pair_sendv,
	.want = pair_want,
};

/* -------------------------------------------------------------- beginning and end */

static struct splice *pair_enrol(void *ctx, struct port *client, struct port *upstream,
				 uint64_t tap_limit, const char **ret_why, bool *ret_again)
{
	struct world *w = ctx;
	bool was = world_out(w);
	struct vport *c = container_of(client, struct vport, port);
	struct vport *u = container_of(upstream, struct vport, port);
	struct pair *p = NULL;

	CHECK(!c->pair && !u->pair);
	*ret_again = u->rx.len;
	*ret_why = "refused";
	if (u->rx.len || w->refuse_splice || c->fin || c->rst || u->fin || u->rst)
		goto out;
	p = calloc(1, sizeof(*p));
	CHECK(p && w->n_pairs < WORLD_PEERS_MAX);
	p->splice.ops = &kernel_splice_ops;
	p->splice.port.ops = &pair_port_ops;
	p->world = w;
	p->client = c;
	p->upstream = u;
	p->to = c->peer;
	p->from = u->peer;
	p->room = UINT64_MAX;
	p->readable = true;
	p->state.hold = 1;
	p->state.max_frame = H2_DEFAULT_FRAME_SIZE;
	p->state.tap_limit = tap_limit;
	c->pair = u->pair = p;
	w->pairs[w->n_pairs++] = p;
out:
	world_back(w, was);
	return p ? &p->splice : NULL;
}

static uint64_t pair_undelivered(const struct splice *sp)
{
	struct pair *p = of(sp);

	world_back(p->world, enter(p));
	return p->queued;
}

static void take_out(struct vport **v)
{
	if (*v)
		(*v)->pair = NULL;
	*v = NULL;
}

static int pair_leave(struct splice *sp)
{
	struct pair *p = of(sp);
	bool was = enter(p), dead = p->client && p->client->rst;

	p->state.hold = 1;
	take_out(&p->upstream);
	world_back(p->world, was);
	if (p->queued && !dead)
		return -EAGAIN;
	take_out(&p->client);
	return dead ? -EPIPE : 0;
}

static void pair_place(const struct splice *sp, uint32_t *ret_slot, uint32_t *ret_generation)
{
	(void)sp;
	*ret_slot = *ret_generation = 1;
}

static void pair_free(struct splice *sp)
{
	struct pair *p = of(sp);
	struct world *w = p->world;
	bool was = world_out(w);
	unsigned i = 0;

	if (p->client && p->queued)
		p->client->lost = true;
	take_out(&p->upstream);
	take_out(&p->client);
	while (w->pairs[i] != p)
		i++;
	w->pairs[i] = w->pairs[--w->n_pairs];
	bytes_free(&p->tap);
	free(p);
	world_back(w, was);
}

const struct splice_ops kernel_splice_ops = {
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

/* ----------------------------------------------------------------- for the world */

bool kernel_step(struct world *w, size_t n)
{
	bool any = false;

	for (unsigned i = 0; i < w->n_pairs; i++)
		any |= step(w->pairs[i], n);
	return any;
}

void kernel_drain(struct world *w, uint64_t n)
{
	for (unsigned i = 0; i < w->n_pairs; i++)
		w->pairs[i]->queued -= min_u64(n, w->pairs[i]->queued);
}

void kernel_room(struct world *w, uint64_t n)
{
	for (unsigned i = 0; i < w->n_pairs; i++) {
		w->pairs[i]->room = n;
		w->pairs[i]->tell = true;
	}
}

bool kernel_deliver(struct world *w)
{
	bool any = false;

	for (unsigned i = 0; i < w->n_pairs; i++) {
		struct pair *p = w->pairs[i];
		unsigned events = 0;

		if (!p->tell)
			continue;
		p->tell = false;
		if (p->readable)
			events |= PORT_READABLE;
		if (p->room)
			events |= PORT_WRITABLE;
		events &= p->want;
		if (!events)
			continue;
		any = true;
		world_enter(w);
		p->splice.port.on_event(&p->splice.port, events);
		world_back(w, false);
	}
	return any;
}
