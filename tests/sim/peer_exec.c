/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_exec.c - see peer_exec.h. An executor's connection: reading requests,
 * giving answers (answer.c), dying.
 */
#include "exec_int.h"

#include <stdlib.h>

const struct exec_plan exec_plan_default = {
	.link = { .buffer = 65536, .latency_ns = 100 * NSEC_PER_USEC },
	.dial_ns = 200 * NSEC_PER_USEC,
	.verdict = POLICY_DENY_LOOPBACK,
	.settings = { .table = 4096,
		      .push = 1,
		      .streams = 200,
		      .window = 1u << 20,
		      .frame = 16384,
		      .list = 16384 },
	.conn_window = 1u << 20,
	.lower_streams_ns = NEVER,
	.die_ns = NEVER,
};

static void tick(void *arg);

void xconn_wake(struct xconn *c, uint64_t at)
{
	if (at != NEVER && !c->gone)
		alarm_soon(c->x->w, &c->tick, at, tick, c);
}

void xconn_die(struct xconn *c, enum exec_death how)
{
	if (c->gone)
		return;
	world_log(c->x->w, "%s: connection %u ends (%d)", c->x->plan.name, c->index, how);
	sock_close(c->sock, how == DEATH_RST ? SOCK_RST : SOCK_FIN);
	c->gone = true;
	alarm_clear(&c->tick);
	for (unsigned i = 0; i < c->n_replies; i++)
		reply_over(c->replies[i], true);
}

/* ---- what arrives -------------------------------------------------------- */

static void check_settings(struct xconn *c)
{
	const struct h2settings *s = &c->h.remote;

	if (c->x->plan.lenient)
		return;
	if (s->table || s->push || s->window)
		world_fail(c->x->w,
			   "executor: the proxy's settings are HEADER_TABLE_SIZE=%u ENABLE_PUSH=%u "
			   "INITIAL_WINDOW_SIZE=%u",
			   s->table, s->push, s->window);
}

static void check_request(struct xconn *c, const struct fields *f)
{
	static const char *const want[][2] = {
		{ ":method", "POST" },
		{ ":path", DOGET_PATH },
		{ "te", "trailers" },
		{ "content-type", "application/grpc" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(want); i++) {
		const char *v = fields_get(f, want[i][0]);

		if (!v || strcmp(v, want[i][1]))
			world_fail(c->x->w, "executor: %s is \"%s\"", want[i][0], v ? v : "absent");
	}
	if (!fields_get(f, ":scheme") || !fields_get(f, ":authority"))
		world_fail(c->x->w, "executor: request without :scheme or :authority");
	if (fields_get(f, "connection") || fields_get(f, "host"))
		world_fail(c->x->w, "executor: request with connection or host");
}

static void on_head(struct h2end *h, struct h2stream *st, const struct fields *f, bool end)
{
	struct xconn *c = h->user;

	if (st->heads > 1) {
		world_fail(c->x->w, "executor: second HEADERS on stream %u", st->id);
		return;
	}
	if (end) {
		world_fail(c->x->w, "executor: request without a message");
		return;
	}
	check_settings(c);
	check_request(c, f);
	c->x->requests++;
	c->n_streams++;
	if (c->last_stream_cut && st->id > c->last_stream_cut) {
		world_log(c->x->w, "%s: stream %u is above the GOAWAY", c->x->plan.name, st->id);
		return;
	}
	reply_new(c, st, f);
}

static void on_data(struct h2end *h, struct h2stream *st, const uint8_t *p, size_t len, size_t flow,
		    bool end)
{
	struct xconn *c = h->user;

	(void)flow;
	if (st->user)
		reply_request(st->user, p, len, end);
	xconn_wake(c, world_now(c->x->w));
}

static void on_reset(struct h2end *h, struct h2stream *st, uint32_t code)
{
	struct xconn *c = h->user;

	world_log(c->x->w, "%s: stream %u reset by the proxy: %s", c->x->plan.name, st->id,
		  nghttp2_http2_strerror(code));
	if (st->user)
		reply_over(st->user, true);
}

static void on_goaway(struct h2end *h, uint32_t last, uint32_t code)
{
	struct xconn *c = h->user;

	(void)last;
	world_log(c->x->w, "%s: connection %u got GOAWAY (%s)", c->x->plan.name, c->index,
		  nghttp2_http2_strerror(code));
	c->got_goaway = true;
	if (code == NGHTTP2_FLOW_CONTROL_ERROR || code == NGHTTP2_PROTOCOL_ERROR ||
	    code == NGHTTP2_COMPRESSION_ERROR || code == NGHTTP2_FRAME_SIZE_ERROR)
		c->x->accusations++;
}

static void on_window(struct h2end *h)
{
	struct xconn *c = h->user;

	xconn_wake(c, world_now(c->x->w));
}

static void on_ping(struct h2end *h, const uint8_t data[8])
{
	struct xconn *c = h->user;

	c->x->pings++;
	if (!memcmp(data, "CLNT", 4))
		world_fail(c->x->w, "executor: a client's PING was forwarded");
	if (!c->x->plan.no_pong)
		h2_send_raw(h, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, data, 8);
}

static void on_pong(struct h2end *h, const uint8_t data[8])
{
	struct xconn *c = h->user;

	(void)data;
	if (!c->goaway_first || c->last_stream_cut)
		return;
	/* The second half of a graceful end: what the peer sent before it got the first is in. */
	c->last_stream_cut = c->x->plan.goaway_last ? c->x->plan.goaway_last : h->last_remote;
	h2_send_goaway(h, c->last_stream_cut, NGHTTP2_NO_ERROR, "EXEC");
	for (unsigned i = 0; i < c->n_replies; i++)
		if (c->replies[i]->st->id > c->last_stream_cut)
			reply_over(c->replies[i], true);
}

static void on_bad(struct h2end *h, const char *what)
{
	struct xconn *c = h->user;

	world_fail(c->x->w, "executor %s: the proxy breaks HTTP/2: %s", c->x->plan.name, what);
}

static const struct h2ops h2ops = {
	.head = on_head,
	.data = on_data,
	.reset = on_reset,
	.goaway = on_goaway,
	.window = on_window,
	.ping = on_ping,
	.pong = on_pong,
	.bad = on_bad,
};

/* ---- what is due --------------------------------------------------------- */

static bool first_conns(const struct xconn *c, unsigned n)
{
	return !n || c->index < n;
}

static bool due(struct xconn *c, uint64_t at)
{
	if (at == NEVER)
		return false;
	if (at > world_now(c->x->w)) {
		xconn_wake(c, at);
		return false;
	}
	return true;
}

static void hello(struct xconn *c)
{
	const struct exec_plan *plan = &c->x->plan;

	if (c->said_hello || plan->settings_delay_ns == NEVER ||
	    !due(c, c->born + plan->settings_delay_ns))
		return;
	c->said_hello = true;
	c->h.encoding = plan->encoding;
	h2_send_settings(&c->h, &plan->settings);
	if (plan->conn_window > h2_defaults.window)
		h2_send_update(&c->h, NULL, plan->conn_window - h2_defaults.window);
	if (c->index < plan->bye_conns) {
		h2_send_ping(&c->h, (const uint8_t *)"EXECPING");
		h2_send_goaway(&c->h, 0, NGHTTP2_NO_ERROR, "EXEC");
		c->die_flushed = DEATH_FIN;
	}
}

static void send_windows(struct xconn *c)
{
	int64_t win = h2_recv_window(&c->h, NULL);

	if (win <= c->x->plan.conn_window / 2 && c->x->plan.conn_window > win)
		h2_send_update(&c->h, NULL, (uint32_t)(c->x->plan.conn_window - win));
	for (unsigned i = 0; i < c->n_replies; i++) {
		struct h2stream *st = c->replies[i]->st;
		int64_t full = max_i64(1, c->h.sent.window);

		if (!h2_stream_open(st) || st->remote_end)
			continue;
		win = c->h.sent.window + st->granted - st->received;
		if (win <= full / 2)
			h2_send_update(&c->h, st, (uint32_t)(full - win));
	}
}

static void send_chatter(struct xconn *c)
{
	struct exec *x = c->x;
	struct rng *r = world_rng(x->w);
	uint8_t payload[30] = "EXEC";

	if (x->plan.ping_gap_ns && due(c, c->ping_at)) {
		c->ping_at = world_now(x->w) + x->plan.ping_gap_ns;
		xconn_wake(c, c->ping_at);
		if (c->h.n_pings < 60)
			h2_send_ping(&c->h, (const uint8_t *)"EXECPING");
	}
	if (x->plan.junk && !c->h.out.len && rng_chance(r, 5))
		h2_send_raw(&c->h, 0x77, (uint8_t)rng_next(r), h2_stream(&c->h, 1) ? 1 : 0, payload,
			    sizeof(payload));
	if (x->plan.lower_streams_ns != NEVER && !c->lowered &&
	    due(c, c->born + x->plan.lower_streams_ns)) {
		struct h2settings s = c->h.sent;

		c->lowered = true;
		s.streams = 1;
		h2_send_settings(&c->h, &s);
	}
	if (x->plan.goaway_after && c->n_streams >= x->plan.goaway_after && !c->goaway_first &&
	    first_conns(c, x->plan.goaway_conns)) {
		c->goaway_first = true;
		h2_send_goaway(&c->h, 0x7fffffff, NGHTTP2_NO_ERROR, "EXEC");
		h2_send_ping(&c->h, (const uint8_t *)"EXECDRAI");
	}
}

static bool replies_left(const struct xconn *c)
{
	for (unsigned i = 0; i < c->n_replies; i++)
		if (c->replies[i]->state < REPLY_OVER)
			return true;
	return false;
}

static void do_read(struct xconn *c)
{
	uint64_t now = world_now(c->x->w);
	uint8_t buf[16384];

	if (c->x->plan.deaf)
		return;
	if (c->read_at > now) {
		xconn_wake(c, c->read_at);
		return;
	}
	while (!c->gone) {
		ssize_t n = sock_recv(c->sock, buf, sizeof(buf));

		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			xconn_die(c, DEATH_FIN);
			return;
		}
		h2_feed(&c->h, buf, (size_t)n);
	}
	if (c->x->plan.read_gap_ns)
		c->read_at = now + c->x->plan.read_gap_ns;
}

static void do_write(struct xconn *c)
{
	while (c->h.out.len && !c->gone) {
		ssize_t n = sock_send(c->sock, bytes_at(&c->h.out), c->h.out.len);

		if (n == -EAGAIN) {
			/* It may have been a whim; room wakes us otherwise. */
			if (c->x->plan.link.eagain_percent)
				xconn_wake(c, world_now(c->x->w) + NSEC_PER_MSEC);
			return;
		}
		if (n < 0) {
			/* What came before the reset may still be read. */
			if (c->h.out.len)
				bytes_drop(&c->h.out, c->h.out.len);
			do_read(c);
			xconn_die(c, DEATH_FIN);
			return;
		}
		bytes_drop(&c->h.out, (size_t)n);
	}
}

static void tick(void *arg)
{
	struct xconn *c = arg;
	const struct exec_plan *plan = &c->x->plan;
	bool more = false;

	if (c->gone)
		return;
	do_read(c);
	if (c->gone)
		return;
	hello(c);
	if (c->said_hello && !c->die_flushed) {
		send_windows(c);
		send_chatter(c);
		more = replies_pump(c);
	}
	do_write(c);
	if (c->gone)
		return;
	if (more && !c->h.out.len)
		xconn_wake(c, world_now(c->x->w));
	if (!c->die_flushed && !c->h.out.len) {
		bool drained = c->last_stream_cut || (c->got_goaway && plan->polite);

		if (drained && !replies_left(c))
			c->die_flushed = DEATH_FIN;
	}
	if (c->die_flushed && !c->h.out.len)
		xconn_die(c, c->die_flushed);
	else if (plan->death && first_conns(c, plan->death_conns) && plan->die_ns != NEVER &&
		 due(c, c->born + plan->die_ns))
		xconn_die(c, plan->death);
}

/* ---- the host ------------------------------------------------------------ */

static void on_accepted(void *arg, struct sock *s)
{
	struct exec *x = arg;
	struct xconn *c = xalloc(sizeof(*c));

	c->x = x;
	c->sock = s;
	c->index = x->n_conns;
	c->born = world_now(x->w);
	c->ping_at = c->born + x->plan.ping_gap_ns;
	h2_init(&c->h, &h2ops, c, true);
	s->ready = tick;
	s->arg = c;
	x->conns = xgrow(x->conns, (x->n_conns + 1) * sizeof(*x->conns));
	x->conns[x->n_conns++] = c;
	if (exec_open(x) > x->most_open)
		x->most_open = exec_open(x);
	xconn_wake(c, c->born);
}

static enum dial_outcome dial_outcome(void *arg, unsigned n)
{
	struct exec *x = arg;

	if (!x->plan.n_dial)
		return DIAL_OK;
	return x->plan.dial[n < x->plan.n_dial ? n : x->plan.n_dial - 1];
}

struct exec *exec_new(struct scene *s, const struct exec_plan *plan)
{
	struct exec *x = xalloc(sizeof(*x));
	struct host h = { .name = plan->name,
			  .port = plan->port ? plan->port : 50051,
			  .link = plan->link,
			  .dial_ns = plan->dial_ns,
			  .outcome = dial_outcome,
			  .verdict = plan->verdict,
			  .accepted = on_accepted,
			  .arg = x };

	x->s = s;
	x->w = s->w;
	x->plan = *plan;
	x->plan.port = h.port;
	world_add_host(s->w, &h);
	s->execs = xgrow(s->execs, (s->n_execs + 1) * sizeof(*s->execs));
	s->execs[s->n_execs++] = x;
	return x;
}

void exec_free(struct exec *x)
{
	for (unsigned i = 0; i < x->n_conns; i++) {
		struct xconn *c = x->conns[i];

		alarm_clear(&c->tick);
		for (unsigned j = 0; j < c->n_replies; j++)
			reply_free(c->replies[j]);
		free(c->replies);
		h2_free(&c->h);
		free(c);
	}
	free(x->conns);
	free(x);
}

struct exec_plan *exec_plan(struct exec *x)
{
	return &x->plan;
}

const struct exec_plan *exec_plan_of(const struct exec *x)
{
	return &x->plan;
}

unsigned exec_dials(const struct exec *x)
{
	return x->n_conns;
}

unsigned exec_open(const struct exec *x)
{
	unsigned n = 0;

	for (unsigned i = 0; i < x->n_conns; i++)
		n += !x->conns[i]->gone;
	return n;
}

unsigned exec_most_open(const struct exec *x)
{
	return x->most_open;
}

unsigned exec_requests(const struct exec *x)
{
	return x->requests;
}

unsigned exec_pings(const struct exec *x)
{
	return x->pings;
}

unsigned exec_accusations(const struct exec *x)
{
	return x->accusations;
}

void exec_kill(struct exec *x, enum exec_death how)
{
	for (unsigned i = 0; i < x->n_conns; i++)
		xconn_die(x->conns[i], how);
}

void exec_poke(struct exec *x)
{
	for (unsigned i = 0; i < x->n_conns; i++)
		xconn_wake(x->conns[i], world_now(x->w));
}

static struct xconn *nth_open(struct exec *x, unsigned n)
{
	for (unsigned i = 0; i < x->n_conns; i++)
		if (!x->conns[i]->gone && !n--)
			return x->conns[i];
	return NULL;
}

struct sock *exec_sock(struct exec *x, unsigned i)
{
	struct xconn *c = nth_open(x, i);

	return c ? c->sock : NULL;
}

struct h2end *exec_h2(struct exec *x, unsigned i)
{
	struct xconn *c = nth_open(x, i);

	return c ? &c->h : NULL;
}
