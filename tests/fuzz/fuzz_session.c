/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole session between hostile peers. The input is a program:
 *
 *   byte 0   bit 0: a kernel that splices; bits 1-5: limits; bit 6: everybody behaves at
 *            the end and every stream must come to its end; bit 7: stopped at once
 *   byte 1   how often the kernel works on in the middle of the session's own code
 *   then     operations of a few bytes each: what to do, to whom, how
 *
 * Operations address clients, executors and streams by small numbers that are reduced to
 * what there is, so that most programs mean something. What must hold is checked in
 * peer.c (each connection) and world.c (each turn, and the end).
 */
#include "fuzz/script.h"

#define OPS_MAX 400

static struct world world;

/* The n-th of the connections that are open, or NULL. */
static struct peer *pick(struct world *w, bool client, unsigned n)
{
	struct peer *open[WORLD_PEERS_MAX];
	unsigned count = 0;

	for (unsigned i = w->n_peers; i--;) {
		if (w->peers[i].client == client && w->peers[i].port)
			open[count++] = &w->peers[i];
	}
	return count ? open[n % count] : NULL;
}

/* The n-th of its streams, the latest first, those that are not over before the others. */
static struct half *pick_stream(const struct peer *p, unsigned n)
{
	struct half *s[64];
	unsigned count = 0;

	for (unsigned over = 0; over < 2; over++) {
		for (unsigned i = p->n_streams; i-- && count < ARRAY_SIZE(s);) {
			if (half_open(p->streams[i]) == !over)
				s[count++] = p->streams[i];
		}
		if (count > n)
			break;
	}
	return count ? s[n % count] : NULL;
}

static uint32_t stream_id(const struct peer *p, unsigned n)
{
	const struct half *s = pick_stream(p, n);

	return s ? s->id : p->next_id;
}

/* 0, 1, and around the powers of two. */
static uint32_t amount(uint8_t b)
{
	uint32_t v = 1u << (b & 31);

	return b & 0x80 ? v + (b >> 5 & 3) : v - (b >> 5 & 1);
}

/* -------------------------------------------------------------------- clients */

static void op_accept(struct world *w, struct input *in)
{
	uint8_t how = input_byte(in);
	struct peer *p = world_accept(w);

	if (!p)
		return;
	if (how & 1) {
		p->muddied = true;
		return;
	}
	client_hello(p, how & 2 ? amount(input_byte(in)) & H2_MAX_WINDOW : 0);
	if (how & 4)
		send_update(p, 0, 1u << 24);
}

static void op_request(struct world *w, struct input *in)
{
	uint8_t how = input_byte(in), kind = input_byte(in);
	struct peer *p = pick(w, true, how & 3);
	const struct request_shape s = {
		.ticket = how & 4 ? kind % TICKETS : TICKET_GOOD,
		.path = how & 8 ? (enum path_kind)((kind >> 4) % PATHS) : PATH_DO_GET,
		.host = kind & 3,
		.end_on_data = how & 16,
		.pieces = how & 32,
		.padded = how & 64,
		.continuation = how & 128,
		.no_end = (kind & 0xc4) == 0x44,
		.timeout = (kind & 0xc4) == 0x84,
		.malformed = (kind & 0xc8) == 0xc8,
	};

	if (p)
		(void)client_request(p, &s);
}

static void op_raw(struct world *w, struct input *in, bool client)
{
	uint8_t who = input_byte(in);
	struct peer *p = pick(w, client, who & 3);
	struct input part = input_take(in, input_byte(in) & 127);

	if (!p)
		return;
	p->muddied = true;
	peer_send(p, part.p, part.len);
}

/* A frame with everything chosen freely but for its length. */
static void op_frame(struct world *w, struct input *in, bool client)
{
	uint8_t who = input_byte(in), type = input_byte(in), flags = input_byte(in);
	struct peer *p = pick(w, client, who & 3);
	struct input part = input_take(in, input_byte(in) & 63);

	if (!p)
		return;
	p->muddied = true;
	peer_frame(p, type % 12, flags, who & 4 ? 0 : stream_id(p, who >> 3), part.p, part.len);
}

static void op_window(struct world *w, struct input *in, bool client)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	struct peer *p = pick(w, client, who & 3);
	uint32_t inc = amount(b) & H2_MAX_WINDOW, id;

	if (!p)
		return;
	id = who & 4 ? 0 : stream_id(p, who >> 3);
	p->muddied |= !inc || inc > 1u << 28 || (id && !peer_stream(p, id));
	send_update(p, id, inc);
}

static void op_settings(struct world *w, struct input *in, bool client)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	struct peer *p = pick(w, client, who & 3);
	uint32_t v = amount(b);

	if (!p)
		return;
	switch (who >> 2 & 7) {
	case 0:
		peer_frame(p, H2_SETTINGS, H2_FLAG_ACK, 0, NULL, 0);
		break;
	case 1:
		send_settings(p, H2_SETTINGS_MAX_CONCURRENT_STREAMS, b & 7);
		break;
	case 2:
		p->muddied |= v > 0xffffff || v < 16384;
		send_settings(p, H2_SETTINGS_MAX_FRAME_SIZE, v);
		break;
	case 3:
		p->muddied = true;
		send_settings(p, who >> 5, v);
		break;
	default:
		p->muddied |= v > 1u << 24;
		send_settings(p, H2_SETTINGS_INITIAL_WINDOW_SIZE, v);
		break;
	}
}

static void op_control(struct world *w, struct input *in, bool client)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	struct peer *p = pick(w, client, who & 3);

	if (!p)
		return;
	switch (who >> 2 & 7) {
	case 0:
		send_ping(p, b & 1);
		break;
	case 1:
		send_goaway(p, amount(b), b >> 5);
		break;
	case 2:
		for (unsigned i = 0; i < 400; i++)
			send_ping(p, false);
		p->pings_lost = p->muddied = true;
		break;
	default:
		send_rst(p, stream_id(p, who >> 5), b & 15);
		p->muddied |= !peer_stream(p, stream_id(p, who >> 5));
		break;
	}
}

static void op_client_data(struct world *w, struct input *in)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	static const uint8_t zero[255];
	struct peer *p = pick(w, true, who & 3);

	if (!p)
		return;
	p->muddied |= b & 0x7f || who & 4;
	peer_frame(p, H2_DATA, b & 0x80 ? H2_FLAG_END_STREAM : 0, stream_id(p, who >> 3), zero,
		   b & 0x7f);
}

/* ------------------------------------------------------------------ executors */

static void op_head(struct world *w, struct input *in)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	struct peer *p = pick(w, false, who & 3);
	struct half *s = p ? pick_stream(p, who >> 4) : NULL;

	if (!s)
		return;
	if (who & 4)
		send_settings(p, 0, 0);
	p->muddied |= b % HEADS != HEAD_PLAIN || s->in_head;
	exec_head(p, s, b % HEADS);
}

static void op_exec_data(struct world *w, struct input *in)
{
	uint8_t who = input_byte(in), b = input_byte(in), times = input_byte(in);
	struct peer *p = pick(w, false, who & 3);
	struct half *s = p ? pick_stream(p, who >> 4) : NULL;
	bool beyond = (who & 12) == 12, end = (times & 0xf8) == 0xf8;

	if (!s)
		return;
	p->muddied |= beyond || end || s->in_ended;
	for (unsigned i = 0; i <= (times & 31); i++) {
		size_t n = min_u64(amount(b & 0x8f), 16384 - 256);
		uint8_t pad = (who & 12) == 8 ? (uint8_t)(b >> 1) : 0;

		if (!beyond) {
			n = min_u64(n, (uint64_t)exec_credit(s));
			pad = (uint64_t)exec_credit(s) < n + pad + 1 ? 0 : pad;
		}
		exec_data(p, s, n, pad, end);
		if (!exec_credit(s) && !beyond)
			break;
	}
}

static void op_trailers(struct world *w, struct input *in)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	struct peer *p = pick(w, false, who & 3);
	struct half *s = p ? pick_stream(p, who >> 4) : NULL;

	if (!s)
		return;
	p->muddied |= (b & 15) > 1 || who & 4;
	exec_trailers(p, s, (b & 15) == 15 ? -1 : b & 15, who & 4);
}

static void op_dial(struct world *w, struct input *in)
{
	uint8_t which = input_byte(in), how = input_byte(in);
	struct peer *p;

	if (!w->n_dials)
		return;
	if (how & 0xc0) {
		p = world_dialled(w, which % w->n_dials, 0, DIAL_CONNECT);
		if (p && how & 1)
			send_settings(p, how & 2 ? H2_SETTINGS_INITIAL_WINDOW_SIZE : 0,
				      how >> 2 & 15);
		return;
	}
	(void)world_dialled(w, which % w->n_dials, -ETIMEDOUT, how % 3);
}

/* ------------------------------------------------------------------ the world */

static void op_hangup(struct world *w, struct input *in)
{
	uint8_t who = input_byte(in);
	struct peer *p = pick(w, who & 4, who & 3);

	if (p)
		peer_hangup(p, who & 8);
}

static void op_time(struct world *w, struct input *in)
{
	uint8_t b = input_byte(in);

	/* 1 us to some 18 minutes. */
	world_wait(w, NSEC_PER_USEC << (b % 31));
}

static void op_room(struct world *w, struct input *in)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	struct peer *p = pick(w, who & 4, who & 3);
	uint64_t room = (b & 0x60) == 0x60 ? UINT64_MAX : amount(b & 0x9f) % (1u << 20);

	if (who & 8) {
		kernel_room(w, room);
	} else if (p) {
		p->port->room = room;
		p->throttled = true;
	}
}

static void op_short(struct world *w, struct input *in)
{
	uint8_t who = input_byte(in), b = input_byte(in);
	struct peer *p = pick(w, who & 4, who & 3);

	if (!p)
		return;
	p->port->short_by = 1 + (who >> 3);
	p->port->short_len = 1 + b;
}

static void op_kernel(struct world *w, struct input *in)
{
	uint8_t b = input_byte(in);

	if (b & 1)
		kernel_drain(w, amount(b >> 1 & 31));
	else
		(void)kernel_step(w, 1 + (amount(b >> 1 & 31) & 0xffff));
}

static void look_stream(void *arg, const struct stream_view *v)
{
	(void)arg;
	CHECK(v->state && v->waits_for && v->datapath && v->datapath_why);
}

static void look_client(void *arg, const struct client_view *v)
{
	(void)arg;
	CHECK(v->state && v->waits_for && v->datapath);
}

static void look_executor(void *arg, const struct executor_view *v)
{
	(void)arg;
	CHECK(v->host && v->port);
}

static void op_misc(struct world *w, struct input *in)
{
	uint8_t b = input_byte(in);

	switch (b & 7) {
	case 0:
		world_enter(w);
		session_drain(w->session);
		world_back(w, false);
		break;
	case 1:
		session_each_stream(w->session, look_stream, NULL);
		session_each_client(w->session, look_client, NULL);
		session_each_executor(w->session, look_executor, NULL);
		break;
	case 2:
		w->refuse_splice = b >> 3 & 1;
		break;
	case 3:
		w->refuse_dial = b >> 3 & 1;
		break;
	case 4:
		w->eager = b >> 3 & 7;
		break;
	default:
		script_serve(w, amount(b >> 3 & 15));
		break;
	}
}

static void operation(struct world *w, struct input *in, unsigned op)
{
	switch (op % 22) {
	case 0:
		op_accept(w, in);
		break;
	case 1:
	case 2:
		op_request(w, in);
		break;
	case 3:
	case 4:
		op_raw(w, in, op % 22 == 3);
		break;
	case 5:
	case 6:
		op_frame(w, in, op % 22 == 5);
		break;
	case 7:
	case 8:
		op_window(w, in, op % 22 == 7);
		break;
	case 9:
	case 10:
		op_settings(w, in, op % 22 == 9);
		break;
	case 11:
	case 12:
		op_control(w, in, op % 22 == 11);
		break;
	case 13:
		op_client_data(w, in);
		break;
	case 14:
		op_head(w, in);
		break;
	case 15:
		op_exec_data(w, in);
		break;
	case 16:
		op_trailers(w, in);
		break;
	case 17:
		op_dial(w, in);
		break;
	case 18:
		op_hangup(w, in);
		break;
	case 19:
		op_time(w, in);
		break;
	case 20:
		if (input_byte(in) & 1)
			op_room(w, in);
		else
			op_short(w, in);
		break;
	default:
		if (input_byte(in) & 1)
			op_kernel(w, in);
		else
			op_misc(w, in);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t how = input_byte(&in), eager = input_byte(&in);
	struct config config = script_config(how >> 1 & 31);
	struct world *w = &world;

	world_init(w, &config, how & 1);
	CHECK(w->session);
	w->eager = eager & 7;
	w->rng += (uint64_t)eager << 40;
	for (unsigned i = 0; i < OPS_MAX && in.len; i++) {
		uint8_t op = input_byte(&in);

		operation(w, &in, op & 127);
		/* Some operations come in one batch. */
		if (!(op & 128))
			world_turn(w);
	}
	world_turn(w);
	if (how & 64)
		script_complete(w);
	world_finish(w, !(how & 128));
	return 0;
}
