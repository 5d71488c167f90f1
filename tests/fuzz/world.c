/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/world.h"

#include "datapath/relay.h"

#define TURN_ROUNDS_MAX 20000   /* rounds of callbacks before a turn counts as a loop */
#define TURN_CALLS_MAX 3000000  /* calls out of the session, likewise */
#define STREAM_FLOOR (16 * KiB) /* what the ledger gives a stream whatever the limits say */

uint32_t world_random(struct world *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (uint32_t)(w->rng >> 16);
}

struct call *world_call(struct world *w, uint32_t key)
{
	struct call *c;

	for (unsigned i = 0; i < w->n_calls; i++) {
		if (w->calls[i]->key == key)
			return w->calls[i];
	}
	c = calloc(1, sizeof(*c));
	w->calls = realloc(w->calls, (w->n_calls + 1) * sizeof(struct call *));
	CHECK(c && w->calls);
	c->key = key;
	w->calls[w->n_calls++] = c;
	return c;
}

/* ---------------------------------------------------------------------- ports */

static struct vport *of(struct port *p)
{
	return container_of(p, struct vport, port);
}

static ssize_t do_recv(struct vport *v, uint8_t *buf, size_t len)
{
	size_t n = min_u64(len, v->rx.len);

	CHECK(len && (!v->pair || v->peer->client));
	if (v->rst)
		return -ECONNRESET;
	if (!v->rx.len)
		return v->fin ? 0 : -EAGAIN;
	if (v->short_by) {
		v->short_by--;
		n = min_u64(n, v->short_len);
	}
	memcpy(buf, v->rx.p, n);
	bytes_cut(&v->rx, n);
	peer_in(v->peer, buf, n);
	return (ssize_t)n;
}

static ssize_t port_recv(struct port *p, void *buf, size_t len)
{
	struct vport *v = of(p);
	bool was = world_out(v->world);
	ssize_t n = do_recv(v, buf, len);

	world_back(v->world, was);
	return n;
}

static ssize_t do_sendv(struct vport *v, const struct iovec *iov, int n)
{
	size_t done = 0;

	CHECK(n > 0 && !v->lost && !(v->pair && v->peer->client));
	if (v->rst)
		return -EPIPE;
	for (int i = 0; i < n && v->room; i++) {
		size_t k = min_u64(iov[i].iov_len, v->room);

		peer_out(v->peer, iov[i].iov_base, k);
		v->room -= v->room == UINT64_MAX ? 0 : k;
		done += k;
		if (k < iov[i].iov_len)
			break;
	}
	return done ? (ssize_t)done : -EAGAIN;
}

static ssize_t port_sendv(struct port *p, const struct iovec *iov, int n)
{
	struct vport *v = of(p);
	bool was = world_out(v->world);
	ssize_t r = do_sendv(v, iov, n);

	world_back(v->world, was);
	return r;
}

static void port_want(struct port *p, unsigned mask)
{
	of(p)->want = mask;
}

static void port_shutdown(struct port *p)
{
	(void)p;
}

static void port_close(struct port *p, bool reset)
{
	struct vport *v = of(p);
	struct world *w = v->world;
	bool was = world_out(w);

	CHECK(!v->lost || reset);
	CHECK(!v->pair); /* the splice ends first */
	v->peer->port = NULL;
	bytes_free(&v->rx);
	free(v);
	world_back(w, was);
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
	.shutdown = port_shutdown,
	.close = port_close,
	.fd = port_fd,
};

static struct peer *peer_new(struct world *w, bool client)
{
	struct peer *p = &w->peers[w->n_peers];
	struct vport *v = calloc(1, sizeof(*v));

	CHECK(v && w->n_peers < WORLD_PEERS_MAX);
	peer_init(p, w, client, w->n_peers++);
	v->port.ops = &port_ops;
	v->port.peer.in.sin_family = AF_INET;
	v->port.peer.in.sin_port = htons((uint16_t)(1000 + p->number));
	v->port.peer.len = sizeof(struct sockaddr_in);
	v->world = w;
	v->peer = p;
	v->room = UINT64_MAX;
	p->port = v;
	return p;
}

struct peer *world_accept(struct world *w)
{
	struct peer *p;

	if (!w->session || w->n_clients == WORLD_CLIENTS_MAX || w->n_peers == WORLD_PEERS_MAX)
		return NULL;
	w->n_clients++;
	p = peer_new(w, true);
	world_enter(w);
	session_accept(w->session, &p->port->port);
	world_back(w, false);
	return p;
}

void peer_send(struct peer *p, const void *data, size_t n)
{
	struct vport *v = p->port;

	if (!v || v->fin || v->rst || n > p->world->budget)
		return;
	p->world->budget -= n;
	bytes_add(&v->rx, data, n);
}

void peer_frame(struct peer *p, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
		size_t n)
{
	uint8_t h[H2_HEADER_LEN];

	if (!p->port || n + sizeof(h) > p->world->budget)
		return;
	h2_frame_put(h, (uint32_t)n, type, flags, stream);
	peer_send(p, h, sizeof(h));
	peer_send(p, data, n);
}

void peer_hangup(struct peer *p, bool reset)
{
	struct vport *v = p->port;

	if (!v)
		return;
	if (reset) {
		v->rst = true;
		v->rx.len = 0; /* as TCP does */
	}
	v->fin = true;
}

/* ---------------------------------------------------------------------- dials */

static struct dial *world_dial(void *ctx, const char *host, uint16_t port, uint64_t timeout_ns,
			       dial_done_fn done, void *arg)
{
	struct world *w = ctx;
	bool was = world_out(w);
	struct dial *d = NULL;

	(void)timeout_ns;
	CHECK(host[0] && port);
	if (!w->refuse_dial && w->n_dials < WORLD_DIALS_MAX &&
	    w->n_peers + w->n_dials + WORLD_CLIENTS_MAX < WORLD_PEERS_MAX) {
		d = calloc(1, sizeof(*d));
		CHECK(d);
		d->world = w;
		d->done = done;
		d->arg = arg;
		snprintf(d->host, sizeof(d->host), "%s", host);
		w->dials[w->n_dials++] = d;
	}
	world_back(w, was);
	return d;
}

static void dial_remove(struct world *w, const struct dial *d)
{
	unsigned i = 0;

	while (i < w->n_dials && w->dials[i] != d)
		i++;
	CHECK(i < w->n_dials);
	w->dials[i] = w->dials[--w->n_dials];
}

static void world_dial_cancel(void *ctx, struct dial *d)
{
	struct world *w = ctx;
	bool was = world_out(w);

	dial_remove(w, d);
	free(d);
	world_back(w, was);
}

struct peer *world_dialled(struct world *w, unsigned at, int err, enum dial_phase phase)
{
	struct dial_result res = { .err = err, .phase = phase, .verdict = POLICY_DENY_LOOPBACK };
	struct dial *d = w->dials[at];
	struct peer *p = NULL;

	dial_remove(w, d);
	if (!err)
		p = peer_new(w, false);
	world_enter(w);
	d->done(d->arg, p ? &p->port->port : NULL, &res);
	world_back(w, false);
	free(d);
	return p;
}

/* ---------------------------------------------------------------- clock and log */

static uint64_t world_now(void *ctx)
{
	return ((struct world *)ctx)->now;
}

static const struct env_ops env_ops = {
	.now = world_now,
	.dial = world_dial,
	.dial_cancel = world_dial_cancel,
};

static void on_stream_done(void *ctx, const struct stream_record *r)
{
	struct world *w = ctx;

	CHECK(r->method && r->reason && r->datapath && r->end < END_REASONS);
	CHECK(r->end != END_COMPLETE || r->grpc_status || !r->reason[0]);
	w->records++;
	w->stats = *session_stats(w->session);
}

static void on_event(void *ctx, const struct session_event *e)
{
	struct world *w = ctx;

	CHECK(e->kind < EVENT_KINDS && e->text);
	w->stats = *session_stats(w->session);
}

static const struct emit_ops emit_ops = { .stream_done = on_stream_done, .event = on_event };

void world_init(struct world *w, const struct config *config, bool splice)
{
	struct env env = {
		.ops = &env_ops,
		.emit = &emit_ops,
		.ctx = w,
		.emit_ctx = w,
		.config = &w->config,
		.inflight_share = config->limits.total_inflight,
		.relay = &datapath_relay,
		.splice = splice ? &kernel_splice_ops : NULL,
		.splice_ctx = w,
	};

	memset(w, 0, sizeof(*w));
	w->config = *config;
	w->now = WORLD_START;
	w->rng = 88172645463325252ULL;
	w->budget = WORLD_BUDGET;
	world_enter(w);
	w->session = session_new(&env);
	world_back(w, false);
}

/* ------------------------------------------------------------------- invariants */

static uint64_t dropped(const struct session_stats *st)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < DROP_REASONS; i++)
		sum += st->dropped[i];
	return sum;
}

/* What executors may still send, as they have been told. */
static void check_credit(const struct world *w)
{
	const struct limits *l = &w->config.limits;
	uint64_t sum = 0, streams = 0;

	for (unsigned i = 0; i < w->n_peers; i++) {
		const struct peer *p = &w->peers[i];

		/* A reset that has not left yet would not be seen. */
		if (p->client || !p->port || !p->port->room)
			continue;
		for (unsigned k = 0; k < p->n_streams; k++) {
			const struct half *s = p->streams[k];

			if (s->reset || s->in_ended || s->in_reset)
				continue;
			streams++;
			sum += (uint64_t)max_i64(s->granted - s->used, 0);
			CHECK(s->granted - s->used <= (int64_t)(l->client_inflight + STREAM_FLOOR));
		}
	}
	CHECK(sum <= WORLD_CLIENTS_MAX * l->client_inflight + streams * STREAM_FLOOR);
}

static void check_stats(const struct world *w)
{
	const struct session_stats *st = session_stats(w->session);
	uint64_t gone = st->data_out + dropped(st), memory, seen = 0, ended = 0;

	CHECK(gone <= st->data_in);
	memory = st->data_in - gone;
	CHECK(st->held <= memory);
	CHECK(st->granted + memory <=
	      w->config.limits.total_inflight + (st->streams_opened + 1) * STREAM_FLOOR);
	for (unsigned i = 0; i < END_REASONS; i++)
		ended += st->streams_ended[i];
	CHECK(ended == w->records && ended <= st->streams_opened);
	for (unsigned i = 0; i < w->n_peers; i++)
		seen += w->peers[i].client ? w->peers[i].data_out : 0;
	/*
	 * Spliced bytes are counted when somebody asks, and a frame when its header is seen. What
	 * was written of pieces that could not be queued is counted as dropped.
	 */
	CHECK(seen == st->data_out || st->promotions || w->no_memory);
}

/* ------------------------------------------------------------------------- loop */

static unsigned ready(const struct vport *v)
{
	unsigned events = 0;

	if (v->rst || v->fin || v->rx.len)
		events |= PORT_READABLE;
	if (v->rst || v->room)
		events |= PORT_WRITABLE;
	if ((v->rst || v->fin) && !v->hung_up && !(v->want & PORT_READABLE))
		events |= PORT_HANGUP;
	return events & v->want;
}

static bool deliver(struct world *w)
{
	bool any = false;

	for (unsigned i = 0; i < w->n_peers; i++) {
		struct vport *v = w->peers[i].port;
		unsigned events = v ? ready(v) : 0;

		if (!events)
			continue;
		v->hung_up |= (events & PORT_HANGUP) != 0;
		any = true;
		world_enter(w);
		v->port.on_event(&v->port, events);
		world_back(w, false);
	}
	return kernel_deliver(w) || any;
}

static void run(struct world *w)
{
	world_enter(w);
	session_run(w->session);
	world_back(w, false);
}

void world_turn(struct world *w)
{
	unsigned rounds = 0;

	if (!w->session)
		return;
	w->calls_out = 0;
	run(w);
	while (deliver(w)) {
		run(w);
		CHECK(++rounds < TURN_ROUNDS_MAX && w->calls_out < TURN_CALLS_MAX);
	}
	check_stats(w);
	check_credit(w);
}

void world_wait(struct world *w, uint64_t ns)
{
	uint64_t until = w->now + ns;

	for (unsigned i = 0; w->session && i < 1000; i++) {
		uint64_t next = session_next_deadline(w->session);

		if (next > until)
			break;
		w->now = max_u64(w->now, next);
		world_turn(w);
	}
	w->now = max_u64(w->now, until);
	world_turn(w);
}

static void hang_up_all(struct world *w)
{
	for (unsigned i = 0; i < w->n_peers; i++) {
		struct vport *v = w->peers[i].port;

		if (v) {
			v->room = UINT64_MAX;
			peer_hangup(&w->peers[i], false);
		}
	}
	kernel_room(w, UINT64_MAX);
}

static void settle(struct world *w)
{
	for (unsigned i = 0; i < 400; i++) {
		hang_up_all(w);
		while (w->n_dials)
			world_dialled(w, 0, -ECONNREFUSED, DIAL_CONNECT);
		while (kernel_step(w, SIZE_MAX))
			;
		kernel_drain(w, UINT64_MAX);
		world_turn(w);
		if (session_idle(w->session) && session_next_deadline(w->session) == UINT64_MAX &&
		    !w->n_dials)
			break;
		world_wait(w, NSEC_PER_SEC);
	}
}

static void check_end(const struct session_stats *st)
{
	uint64_t told = st->streams_reset;

	for (unsigned i = 0; i < ARRAY_SIZE(st->streams_status); i++)
		told += st->streams_status[i];
	CHECK(!st->clients_open && !st->streams_open && !st->upstreams_open && !st->upstreams_idle);
	CHECK(!st->granted && !st->held && told == st->streams_opened);
	CHECK(st->data_in == st->data_out + dropped(st));
}

void world_finish(struct world *w, bool orderly)
{
	if (w->session) {
		if (orderly) {
			settle(w);
			CHECK(session_idle(w->session) && !w->n_dials);
			w->stats = *session_stats(w->session);
		}
		world_enter(w);
		session_free(w->session);
		world_back(w, false);
		w->session = NULL;
		if (w->stats.clients_accepted)
			check_end(&w->stats);
	}
	CHECK(!w->n_dials && !w->n_pairs);
	for (unsigned i = 0; i < w->n_peers; i++) {
		CHECK(!w->peers[i].port);
		peer_free(&w->peers[i]);
	}
	for (unsigned i = 0; i < w->n_calls; i++) {
		bytes_free(&w->calls[i]->request);
		bytes_free(&w->calls[i]->content);
		free(w->calls[i]);
	}
	free(w->calls);
}
