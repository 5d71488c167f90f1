/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_client.c - see peer_client.h. One function, tick(), does everything that
 * is due: it runs when the socket changes and when an alarm says so.
 */
#include "peer_client.h"

#include <stdio.h>
#include <stdlib.h>

#include "peer_exec.h"

const struct caller_plan caller_plan_default = {
	.link = { .buffer = 65536, .latency_ns = 200 * NSEC_PER_USEC },
	.settings = { .table = 4096,
		      .push = 0,
		      .streams = UINT32_MAX,
		      .window = 2u << 20,
		      .frame = 16384,
		      .list = 16384 },
	.conn_window = 5u << 20,
	.dribble = 1024,
	.stop_ns = NEVER,
	.hangup = HANGUP_GOODBYE,
	.hangup_ns = NEVER,
};

/* Window updates of fewer bytes are on a budget of the proxy's, so a good client avoids them. */
#define TINY 64

/* The sending half of a call. */
struct ask_state {
	struct call *call;
	struct h2stream *st;
	size_t off; /* of the request message sent */
	bool done;  /* END_STREAM sent */
};

struct caller {
	struct scene *s;
	struct world *w;
	struct caller_plan plan;
	struct sock *sock;
	struct addr addr;
	struct h2end h;
	struct ask_state *asks;
	unsigned n_asks, n_sent;
	struct alarm tick;
	uint64_t born, read_at, write_at, ping_at, settings_at, grant_at;
	unsigned changes_left;
	bool gone, hung, stuck_out;
	uint32_t pings_sent, pongs;
	uint64_t ping_times[64];
	unsigned goaways;
	uint32_t goaway_last, goaway_code;
	struct bytes raw_answer;
};

static void tick(void *arg);

static void wake(struct caller *c, uint64_t at)
{
	if (at != NEVER && !c->gone)
		alarm_soon(c->w, &c->tick, at, tick, c);
}

static struct call *call_of(struct h2stream *st)
{
	return st->user;
}

/* ---- what arrives -------------------------------------------------------- */

static void call_failed(struct caller *c, struct call *call, const char *why)
{
	char buf[500];

	world_fail(c->w, "client: %s: %s", why, call_describe(call, buf, sizeof(buf)));
}

static void take_trailers(struct caller *c, struct call *call, const struct fields *f)
{
	const char *status = fields_get(f, "grpc-status"), *text = fields_get(f, "grpc-message");

	call->ended = true;
	call->end_ns = world_now(c->w);
	if (status)
		call->status = atoi(status);
	free(call->text);
	call->text = percent_decode(text ? text : "");
	call->details = fields_get(f, "grpc-status-details-bin") != NULL;
	world_log(c->w, "call %u ended: status %d \"%s\" after %llu bytes", call->key, call->status,
		  call->text, (unsigned long long)call->bytes);
}

static void on_head(struct h2end *h, struct h2stream *st, const struct fields *f, bool end)
{
	struct caller *c = h->user;
	struct call *call = call_of(st);
	const char *status = fields_get(f, ":status");

	if (call->cancelled)
		return;
	if ((st->heads == 1) != (status != NULL)) {
		call_failed(c, call, status ? "second :status" : "response without :status");
		return;
	}
	if (st->heads == 1) {
		call->headed = true;
		call->head_ns = world_now(c->w);
		call->http_status = atoi(status);
	} else if (!end) {
		call_failed(c, call, "HEADERS in the middle of a response");
		return;
	}
	if (end)
		take_trailers(c, call, f);
}

static void on_data(struct h2end *h, struct h2stream *st, const uint8_t *p, size_t len, size_t flow,
		    bool end)
{
	struct caller *c = h->user;
	struct call *call = call_of(st);
	size_t good;

	if (call->cancelled)
		return;
	if (!call->headed)
		call_failed(c, call, "DATA before HEADERS");
	good = pattern_check(call->key, call->bytes, p, len);
	call->bytes += len;
	call->flow += flow;
	if (good != len)
		call_failed(c, call, "wrong byte in the body");
	if (end)
		call_failed(c, call, "END_STREAM on DATA");
	if (call->ask.cancel_after <= call->bytes)
		caller_cancel(c, call);
}

static void on_reset(struct h2end *h, struct h2stream *st, uint32_t code)
{
	struct caller *c = h->user;
	struct call *call = call_of(st);

	if (call->ended || call->cancelled)
		return;
	call->reset = true;
	call->reset_code = code;
	call->end_ns = world_now(c->w);
	world_log(c->w, "call %u reset: %s", call->key, nghttp2_http2_strerror(code));
}

static void on_goaway(struct h2end *h, uint32_t last, uint32_t code)
{
	struct caller *c = h->user;

	c->goaways++;
	c->goaway_last = last;
	c->goaway_code = code;
	/* What is above the last id was not processed and never will be here. */
	for (unsigned i = 0; i < c->n_sent; i++)
		if (c->asks[i].call->stream > last)
			c->asks[i].call->must = MUST_END;
	world_log(c->w, "client got GOAWAY(%u, %s)", last, nghttp2_http2_strerror(code));
}

static void on_window(struct h2end *h)
{
	struct caller *c = h->user;

	wake(c, world_now(c->w));
}

static void on_ping(struct h2end *h, const uint8_t data[8])
{
	struct caller *c = h->user;

	if (!memcmp(data, "EXEC", 4))
		world_fail(c->w, "client: an executor's PING was forwarded");
	h2_send_raw(h, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, data, 8);
}

static void on_pong(struct h2end *h, const uint8_t data[8])
{
	struct caller *c = h->user;
	uint64_t took = world_now(c->w) - c->ping_times[get_be32(data + 4) % 64];

	c->pongs++;
	if (c->plan.pong_within_ns && took > c->plan.pong_within_ns)
		world_fail(c->w, "client: PING answered after %.3f s", (double)took / 1e9);
}

static void on_bad(struct h2end *h, const char *what)
{
	struct caller *c = h->user;

	world_fail(c->w, "client: the proxy breaks HTTP/2: %s", what);
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

/* ---- what is sent -------------------------------------------------------- */

/*
 * A cancellation has to reach the executor within 100 ms of reaching the proxy;
 * allowed on top is what the network and the clients' and executors' loops take.
 */
static void set_cancel_bound(struct caller *c, struct call *call)
{
	const struct link *l = &c->plan.link;
	uint64_t slack = 100 * NSEC_PER_MSEC + l->latency_ns + l->jitter_ns + 10 * NSEC_PER_MSEC;

	if (c->plan.write_chunk || l->chunk || l->eagain_percent || c->stuck_out)
		return;
	for (unsigned i = 0; i < c->s->n_execs; i++) {
		const struct exec_plan *x = exec_plan_of(c->s->execs[i]);

		if (strcmp(x->name, call->host) || x->port != call->port)
			continue;
		/* A path so thin that a large request of a sibling fills it is no fault. */
		if (x->deaf || x->read_gap_ns || x->link.chunk || x->link.buffer < 65536)
			return;
		call->x_until_ns =
			world_now(c->w) + slack + 3 * x->link.latency_ns + 3 * x->link.jitter_ns;
	}
}

static void mark_cancelled(struct caller *c, struct call *call)
{
	call->cancelled = true;
	call->cancelled_ns = call->end_ns = world_now(c->w);
	set_cancel_bound(c, call);
}

void caller_cancel(struct caller *c, struct call *call)
{
	struct h2stream *st = h2_stream(&c->h, call->stream);

	if (!st || call_over(call) || c->gone)
		return;
	world_log(c->w, "call %u: client cancels at %llu bytes", call->key,
		  (unsigned long long)call->bytes);
	h2_send_rst(&c->h, st, NGHTTP2_CANCEL);
	mark_cancelled(c, call);
	wake(c, world_now(c->w));
}

static void send_head(struct caller *c, struct ask_state *a)
{
	struct call *call = a->call;
	struct h2_shape shape = { .fragment = call->ask.fragment,
				  .priority = c->plan.junk && rng_chance(world_rng(c->w), 50),
				  .pad = c->plan.junk ? 7 : 0 };
	struct field f[60] = {
		{ (char *)":method", (char *)"POST" },
		{ (char *)":scheme", (char *)"http" },
		{ (char *)":authority", (char *)"proxy:50060" },
		{ (char *)":path", (char *)(call->ask.path ? call->ask.path : DOGET_PATH) },
		{ (char *)"te", (char *)"trailers" },
		{ (char *)"content-type", (char *)"application/grpc" },
		{ (char *)"user-agent", (char *)"sim/1" },
	};
	char names[40][24], values[40][40];
	size_t n = 7;

	if (call->ask.timeout)
		f[n++] = (struct field){ (char *)"grpc-timeout", (char *)call->ask.timeout };
	for (unsigned i = 0; call->ask.metadata && i < ARRAY_SIZE(names); i++) {
		snprintf(names[i], sizeof(names[i]), "x-meta-%u", i);
		snprintf(values[i], sizeof(values[i]), "value %u of call %u", i, call->key);
		f[n++] = (struct field){ names[i], values[i] };
	}
	h2_send_head(&c->h, a->st, f, n, false, &shape);
}

static void send_message(struct caller *c, struct ask_state *a)
{
	struct call *call = a->call;
	uint32_t pieces = call->ask.message_pieces ? call->ask.message_pieces : 1;
	size_t step = (call->msg_len + pieces - 1) / pieces;

	if (call->sent_ns + call->ask.message_delay_ns > world_now(c->w)) {
		wake(c, call->sent_ns + call->ask.message_delay_ns);
		return;
	}
	while (a->off < call->msg_len) {
		size_t n = min_u64(call->msg_len - a->off, step);
		bool end;

		n = min_u64(n, (uint64_t)h2_sendable(&c->h, a->st));
		n = min_u64(n, c->h.remote.frame);
		if (!n)
			return;
		end = call->ask.end_on_data && a->off + n == call->msg_len;
		h2_send_data(&c->h, a->st, call->msg + a->off, n, end && !call->ask.half_request,
			     0);
		a->off += n;
		a->done |= end;
	}
	if (!a->done) {
		if (!call->ask.half_request)
			h2_send_data(&c->h, a->st, NULL, 0, true, 0);
		a->done = true;
	}
}

unsigned caller_open_calls(const struct caller *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->n_sent; i++)
		n += !call_over(c->asks[i].call);
	return n;
}

/* Calls whose time has come, in order. */
static void send_calls(struct caller *c)
{
	uint32_t limit = min_u64(c->h.remote.streams, c->s->config.limits.max_streams);

	for (unsigned i = 0; i < c->n_sent; i++)
		if (!c->asks[i].done && !call_over(c->asks[i].call))
			send_message(c, &c->asks[i]);
	if (c->plan.patient && !c->h.got_settings)
		return;
	while (c->n_sent < c->n_asks) {
		struct ask_state *a = &c->asks[c->n_sent];
		uint64_t at = c->born + a->call->ask.start_ns;

		if (at > world_now(c->w)) {
			wake(c, at);
			return;
		}
		if (c->goaways) {
			a->call->lost = true; /* stream 0: never sent */
			c->n_sent++;
			continue;
		}
		if (!c->plan.ignore_limit && caller_open_calls(c) >= limit)
			return;
		c->n_sent++;
		a->st = h2_open(&c->h, 0);
		a->st->user = a->call;
		a->call->stream = a->st->id;
		a->call->client = c->addr;
		a->call->sent_ns = world_now(c->w);
		world_log(c->w, "call %u to %s opens stream %u", a->call->key, a->call->host,
			  a->st->id);
		send_head(c, a);
		send_message(c, a);
		if (a->call->ask.cancel_ns != NEVER)
			wake(c, a->call->sent_ns + a->call->ask.cancel_ns);
	}
}

static void cancel_late(struct caller *c)
{
	for (unsigned i = 0; i < c->n_sent; i++) {
		struct call *call = c->asks[i].call;

		if (call->ask.cancel_ns == NEVER || call_over(call))
			continue;
		if (call->sent_ns + call->ask.cancel_ns <= world_now(c->w))
			caller_cancel(c, call);
		else
			wake(c, call->sent_ns + call->ask.cancel_ns);
	}
}

/* How much to add to a window of `win` that is `full` when nothing has been used. */
static int64_t grant_size(struct caller *c, enum grant_mode mode, int64_t win, int64_t full)
{
	full = max_i64(full, max_i64(c->plan.dribble, 1));
	switch (mode) {
	case GRANT_HALF:
		return win <= full / 2 ? full - win : 0;
	case GRANT_ALL: /* but not for a few bytes of an open window: that would be abuse */
		return full - win >= TINY || win <= 0 ? full - win : 0;
	case GRANT_EMPTY:
		return win <= 0 ? full - win : 0;
	case GRANT_DRIBBLE:
		if (win > 0)
			return 0;
		return (int64_t)rng_range(world_rng(c->w), min_u64(TINY, c->plan.dribble),
					  c->plan.dribble) -
		       win;
	default:
		return 0;
	}
}

static void grant(struct caller *c, struct h2stream *st, enum grant_mode mode, int64_t full)
{
	int64_t base =
		st ? c->h.sent.window + st->granted - st->received : h2_recv_window(&c->h, NULL);
	int64_t add = grant_size(c, mode, base, full);

	/* Never above the limit, whichever initial size the other side uses now. */
	add = min_i64(add, WINDOW_MAX - h2_recv_window(&c->h, st));
	if (add > 0)
		h2_send_update(&c->h, st, (uint32_t)min_i64(add, WINDOW_MAX));
}

static void send_grants(struct caller *c)
{
	uint64_t now = world_now(c->w);

	if (c->h.out.len > 4096)
		return; /* it cannot even say what it has to say */
	if (c->plan.grant_delay_ns) {
		if (!c->grant_at)
			c->grant_at = now + rng_below(world_rng(c->w), c->plan.grant_delay_ns + 1);
		if (c->grant_at > now) {
			wake(c, c->grant_at);
			return;
		}
		c->grant_at = 0;
	}
	grant(c, NULL, c->plan.grant_conn, c->plan.conn_window);
	for (unsigned i = 0; i < c->n_sent; i++) {
		struct call *call = c->asks[i].call;

		if (!c->asks[i].st || call_over(call) || call->bytes >= call->ask.stop_after)
			continue;
		if (call->ask.hold_ns && call->sent_ns + call->ask.hold_ns > now) {
			wake(c, call->sent_ns + call->ask.hold_ns);
			continue;
		}
		grant(c, c->asks[i].st, c->plan.grant, c->h.sent.window);
	}
}

static void send_ping(struct caller *c)
{
	uint8_t data[8] = { 'C', 'L', 'N', 'T' };

	if (c->h.n_pings >= 60)
		return;
	put_be32(data + 4, c->pings_sent);
	c->ping_times[c->pings_sent++ % 64] = world_now(c->w);
	h2_send_ping(&c->h, data);
}

static void change_settings(struct caller *c)
{
	struct rng *r = world_rng(c->w);
	struct h2settings s = c->h.sent;
	static const uint32_t tables[] = { 0, 100, 4096, 65536 };

	if (c->h.n_wait >= SETTINGS_PENDING / 2)
		return;
	switch (rng_below(r, 4)) {
	case 0:
		s.table = tables[rng_below(r, ARRAY_SIZE(tables))];
		break;
	case 1:
		s.frame = (uint32_t)rng_scale(r, 16384, 1 << 20);
		break;
	default:
		s.window = rng_chance(r, 20) ? 0 : (uint32_t)rng_scale(r, 1, 1 << 20);
		break;
	}
	world_log(c->w, "client settings: window %u table %u frame %u", s.window, s.table, s.frame);
	h2_send_settings(&c->h, &s);
}

static void send_junk(struct caller *c)
{
	struct rng *r = world_rng(c->w);
	uint8_t payload[40];
	uint32_t stream = c->n_sent && rng_chance(r, 50) ? c->asks[c->n_sent - 1].call->stream : 0;

	memset(payload, 'J', sizeof(payload));
	if (rng_chance(r, 50) && stream) {
		memset(payload, 0, 5);
		h2_send_raw(&c->h, NGHTTP2_PRIORITY, 0, stream, payload, 5);
	} else {
		h2_send_raw(&c->h, 0x42, (uint8_t)rng_next(r), stream, payload,
			    rng_below(r, sizeof(payload)));
	}
}

/* The n-th of something that happens every gap; true when it is time. */
static bool every(struct caller *c, uint64_t *next, uint64_t gap)
{
	uint64_t now = world_now(c->w);

	if (!gap)
		return false;
	if (!*next)
		*next = c->born + gap;
	if (*next > now) {
		wake(c, *next);
		return false;
	}
	*next = now + gap;
	wake(c, *next);
	return true;
}

static void send_chatter(struct caller *c)
{
	if (every(c, &c->ping_at, c->plan.ping_gap_ns))
		send_ping(c);
	if (c->changes_left && every(c, &c->settings_at, c->plan.settings_gap_ns)) {
		c->changes_left--;
		change_settings(c);
	}
	if (c->plan.junk && !c->h.out.len && rng_chance(world_rng(c->w), 5))
		send_junk(c);
}

static void hello(struct caller *c)
{
	if (c->plan.raw) {
		bytes_add(&c->h.out, c->plan.raw, c->plan.raw_len);
		return;
	}
	c->h.grease = c->plan.junk;
	h2_send_preface(&c->h);
	h2_send_settings(&c->h, &c->plan.settings);
	if (c->plan.conn_window > h2_defaults.window)
		h2_send_update(&c->h, NULL, c->plan.conn_window - h2_defaults.window);
}

/* ---- the socket ---------------------------------------------------------- */

static void connection_over(struct caller *c, bool clean_fin)
{
	if (clean_fin && !c->hung && !c->plan.raw && h2_in_frame(&c->h))
		world_fail(c->w, "client: the connection ended inside a frame");
	c->gone = true;
	alarm_clear(&c->tick);
	sock_close(c->sock, SOCK_FIN);
	for (unsigned i = 0; i < c->n_asks; i++) {
		struct call *call = c->asks[i].call;

		if (!call_over(call)) {
			call->lost = true;
			call->end_ns = world_now(c->w);
		}
	}
	world_log(c->w, "client's connection is over%s", c->hung ? " (hung up)" : "");
}

static void do_read(struct caller *c)
{
	uint64_t now = world_now(c->w);
	uint8_t buf[16384];
	size_t left = c->plan.read_chunk ? c->plan.read_chunk : SIZE_MAX;

	if (c->plan.stop_ns != NEVER && now >= c->born + c->plan.stop_ns)
		return;
	if (c->read_at > now) {
		wake(c, c->read_at);
		return;
	}
	while (left && !c->gone) {
		ssize_t n = sock_recv(c->sock, buf, min_u64(left, sizeof(buf)));

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			connection_over(c, n == 0);
			return;
		}
		left -= min_u64((uint64_t)n, left);
		if (c->plan.raw)
			bytes_add(&c->raw_answer, buf, (size_t)n);
		else
			h2_feed(&c->h, buf, (size_t)n);
	}
	if (c->plan.read_gap_ns) {
		c->read_at = now + c->plan.read_gap_ns;
		wake(c, c->read_at);
	} else if (!c->gone) {
		wake(c, now);
	}
}

static void do_write(struct caller *c)
{
	uint64_t now = world_now(c->w);

	c->stuck_out = false;
	while (c->h.out.len && !c->gone) {
		size_t want = c->h.out.len;
		ssize_t n;

		if (c->write_at > now) {
			wake(c, c->write_at);
			return;
		}
		if (c->plan.write_chunk)
			want = min_u64(want, rng_range(world_rng(c->w), 1, c->plan.write_chunk));
		n = sock_send(c->sock, bytes_at(&c->h.out), want);
		if (n == -EAGAIN) {
			c->stuck_out = true;
			if (c->plan.link.eagain_percent)
				wake(c, now + NSEC_PER_MSEC);
			return;
		}
		if (n < 0) {
			connection_over(c, false);
			return;
		}
		bytes_drop(&c->h.out, (size_t)n);
		if (c->plan.write_gap_ns)
			c->write_at = now + rng_below(world_rng(c->w), c->plan.write_gap_ns);
	}
}

void caller_hangup(struct caller *c, enum hangup how)
{
	uint64_t waited = 0;

	if (c->gone || how == HANGUP_NEVER)
		return;
	for (unsigned i = 0; i < c->h.n_pings; i++)
		waited = max_u64(waited,
				 world_now(c->w) - c->ping_times[(c->pings_sent - 1 - i) % 64]);
	if (c->plan.pong_within_ns && waited > c->plan.pong_within_ns)
		world_fail(c->w, "client: PING never answered (%.3f s)", (double)waited / 1e9);
	c->hung = true;
	for (unsigned i = 0; i < c->n_asks; i++)
		if (!call_over(c->asks[i].call))
			mark_cancelled(c, c->asks[i].call);
	if (how == HANGUP_GOODBYE && !c->plan.raw) {
		h2_send_goaway(&c->h, 0, NGHTTP2_NO_ERROR, "");
		do_write(c);
	}
	if (!c->gone) {
		sock_close(c->sock, how == HANGUP_RST ? SOCK_RST : SOCK_FIN);
		connection_over(c, false);
	}
}

static bool all_over(const struct caller *c)
{
	if (c->n_sent < c->n_asks)
		return false;
	for (unsigned i = 0; i < c->n_asks; i++)
		if (!call_over(c->asks[i].call))
			return false;
	return true;
}

static void consider_hangup(struct caller *c)
{
	if (c->plan.hangup_ns != NEVER) {
		uint64_t at = c->born + c->plan.hangup_ns;

		if (at <= world_now(c->w))
			caller_hangup(c, c->plan.hangup);
		else
			wake(c, at);
	} else if (!c->plan.linger && c->n_asks && all_over(c)) {
		caller_hangup(c, c->plan.hangup);
	}
}

static void tick(void *arg)
{
	struct caller *c = arg;

	if (c->gone)
		return;
	do_read(c);
	if (c->gone)
		return;
	if (!c->plan.raw && !c->plan.silent) {
		send_calls(c);
		cancel_late(c);
		send_grants(c);
		send_chatter(c);
	}
	do_write(c);
	if (!c->gone)
		consider_hangup(c);
}

struct caller *caller_new(struct scene *s, const struct caller_plan *plan)
{
	struct caller *c = xalloc(sizeof(*c));

	c->s = s;
	c->w = s->w;
	c->plan = *plan;
	c->born = world_now(s->w);
	c->changes_left = plan->settings_changes;
	h2_init(&c->h, &h2ops, c, false);
	c->sock = world_connect(s->w, &plan->link);
	c->sock->ready = tick;
	c->sock->arg = c;
	c->addr = *sock_addr(c->sock);
	if (!plan->silent)
		hello(c);
	s->clients = xgrow(s->clients, (s->n_clients + 1) * sizeof(*s->clients));
	s->clients[s->n_clients++] = c;
	wake(c, c->born);
	return c;
}

void caller_free(struct caller *c)
{
	alarm_clear(&c->tick);
	h2_free(&c->h);
	bytes_free(&c->raw_answer);
	free(c->asks);
	free(c);
}

void caller_add(struct caller *c, struct call *call)
{
	c->asks = xgrow(c->asks, (c->n_asks + 1) * sizeof(*c->asks));
	c->asks[c->n_asks++] = (struct ask_state){ .call = call };
	if (c->gone)
		call->lost = true;
	wake(c, world_now(c->w));
}

struct h2end *caller_h2(struct caller *c)
{
	return &c->h;
}

struct caller_plan *caller_plan(struct caller *c)
{
	return &c->plan;
}

struct sock *caller_sock(struct caller *c)
{
	return c->sock;
}

void caller_poke(struct caller *c)
{
	wake(c, world_now(c->w));
}

bool caller_gone(const struct caller *c)
{
	return c->gone;
}

unsigned caller_pongs(const struct caller *c)
{
	return c->pongs;
}

unsigned caller_goaways(const struct caller *c, uint32_t *ret_last, uint32_t *ret_code)
{
	if (c->goaways && ret_last)
		*ret_last = c->goaway_last;
	if (c->goaways && ret_code)
		*ret_code = c->goaway_code;
	return c->goaways;
}

const struct bytes *caller_raw_answer(const struct caller *c)
{
	return &c->raw_answer;
}

const struct addr *caller_addr(const struct caller *c)
{
	return &c->addr;
}
