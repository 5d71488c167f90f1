/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_faults.c - faults that proxies of this kind have really had, reduced to a
 * simulated situation each. The letters are those of the project's list of
 * public reports (netty 6159, pingora 910, hyper 2899, ...); each case says what
 * must not happen again.
 */
#include "cases.h"

/* A1: frames of two executors and of the proxy itself must reach the client whole. */
static void a1_framing(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;

	plain_exec(s, "exec0");
	plain_exec(s, "exec1");
	scene_start(s);
	p.link.buffer = 4096;
	p.read_chunk = 3000;
	p.read_gap_ns = 500000;
	p.ping_gap_ns = MS;
	c = caller_new(s, &p);
	ask(s, c, "exec0", 1 << 20);
	ask(s, c, "exec1", 1 << 20);
	for (unsigned i = 0; i < 40; i++) {
		struct call *bad = scene_call(s, "exec0", 0, 0);

		bad->must = MUST_STATUS;
		bad->must_status = GRPC_INVALID_ARGUMENT;
		bad->ask.start_ns = i * 7 * MS;
		caller_add(c, bad);
	}
	run_to_end(s);
}

/* A2: the windows of a connection survive streams that are reset with data in flight. */
static void a2_reset_leak(struct scene *s)
{
	struct exec *a = plain_exec(s, "exec0");
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	struct call *last;

	s->config.limits.max_streams = 300;
	scene_start(s);
	p.settings.window = 65536;
	p.conn_window = 1 << 20;
	p.linger = true;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 200; i++) {
		struct call *call = ask(s, c, "exec0", 1 << 20);

		call->must = MUST_END;
		call->ask.start_ns = i * MS;
		if (i & 1) {
			call->ask.cancel_after = 1 + i * 100;
		} else {
			call->answer[0].kind = ANSWER_RST;
			call->answer[0].cut = i * 200;
			call->answer[0].code = NGHTTP2_INTERNAL_ERROR;
		}
	}
	last = ask(s, c, "exec0", 2 << 20);
	last->ask.start_ns = 300 * MS;
	scene_run(s, 600 * SEC);
	expect(s, !exec_h2(a, 0) || exec_h2(a, 0)->send_win > (1 << 29),
	       "the connection window at the executor is down to %lld",
	       exec_h2(a, 0) ? (long long)exec_h2(a, 0)->send_win : 0);
	scene_finish(s);
}

/* A4: a stream that nobody reads must not take what its siblings need. */
static void a4_unread_sibling(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	struct call *stuck[3], *b;

	plain_exec(s, "exec0");
	scene_start(s);
	p.settings.window = 65536;
	p.conn_window = 1 << 20;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < ARRAY_SIZE(stuck); i++) {
		stuck[i] = ask(s, c, "exec0", 2 << 20);
		stuck[i]->ask.stop_after = 0;
	}
	b = ask(s, c, "exec0", 8 << 20);
	until_over(s, b, 60 * SEC);
	expect(s, scene_stats(s)->held <= 4 * 256 * KiB + 4 * 64 * KiB, "%llu bytes are held",
	       (unsigned long long)scene_stats(s)->held);
	for (unsigned i = 0; i < ARRAY_SIZE(stuck); i++)
		stuck[i]->ask.stop_after = NEVER;
	caller_poke(c);
	run_to_end(s);
}

/* A4: the connection window is used up, then opened again: all go on. */
static void a4_connection_window(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;

	plain_exec(s, "exec0");
	plain_exec(s, "exec1");
	scene_start(s);
	p.grant_conn = GRANT_NEVER;
	p.conn_window = 65535;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 6; i++)
		ask(s, c, i & 1 ? "exec0" : "exec1", 300000);
	scene_wait(s, 20 * SEC);
	expect(s, caller_h2(c)->received == 65535, "%lld bytes came through a window of 65535",
	       (long long)caller_h2(c)->received);
	caller_plan(c)->grant_conn = GRANT_HALF;
	caller_poke(c);
	run_to_end(s);
}

/* A4: credit lent to executors that say nothing is not missing elsewhere. */
static void a4_silent_siblings(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	struct call *b;

	plain_exec(s, "exec0");
	plain_exec(s, "exec1");
	s->config.limits.client_inflight = CONFIG_INFLIGHT_MIN;
	scene_start(s);
	p.conn_window = 65535;
	p.settings.window = 65535;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 20; i++)
		ask(s, c, i & 1 ? "exec0" : "exec1", 100)->answer[0].end_delay_ns = 200 * SEC;
	b = ask(s, c, "exec0", 4 << 20);
	until_over(s, b, 60 * SEC);
	run_to_end(s);
}

/* A5: INITIAL_WINDOW_SIZE goes down in mid-stream: windows are signed, by the byte. */
static void a5_window_lowered(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct h2settings t;
	struct h2stream *st;
	struct caller *c;
	struct h2end *h;
	struct call *call;

	plain_exec(s, "exec0");
	scene_start(s);
	p.grant = GRANT_NEVER;
	p.settings.window = 65535;
	p.linger = true;
	c = caller_new(s, &p);
	h = caller_h2(c);
	call = ask(s, c, "exec0", 1 << 20);
	until_bytes(s, call, 65535);
	st = h2_stream(h, call->stream);
	t = h->sent;
	t.window = 10; /* the window is -65525 now */
	h2_send_settings(h, &t);
	caller_poke(c);
	scene_wait(s, SEC);
	expect(s, !h->n_wait && call->bytes == 65535, "no ACK, or %llu bytes",
	       (unsigned long long)call->bytes);
	h2_send_update(h, st, 65000);
	caller_poke(c);
	scene_wait(s, SEC);
	expect(s, call->bytes == 65535, "DATA with a window of -525");
	h2_send_update(h, st, 532);
	caller_poke(c);
	scene_wait(s, SEC);
	expect(s, call->bytes == 65542, "%llu bytes with a window of 7",
	       (unsigned long long)(call->bytes - 65535));
	t.window = 0x7fffffff;
	h2_send_settings(h, &t);
	caller_poke(c);
	until_over(s, call, 10 * SEC);
	scene_finish(s);
}

/* A5: the same while the client's socket is full of what the old window allowed. */
static void a5_lowered_under_load(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;

	plain_exec(s, "exec0");
	plain_exec(s, "exec1");
	scene_start(s);
	p.link.buffer = 8192;
	p.read_chunk = 2000;
	p.read_gap_ns = 200000;
	p.settings_gap_ns = 11 * MS;
	p.settings_changes = 40;
	p.dribble = 20000;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 4; i++)
		ask(s, c, i & 1 ? "exec0" : "exec1", 400000);
	run_to_end(s);
}

/* A5: an increase that overflows a stream's window ends the connection. */
static void a5_overflow(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct h2settings t;
	struct caller *c;
	struct call *call;
	uint32_t code = 0;

	plain_exec(s, "exec0");
	scene_start(s);
	p.grant = GRANT_NEVER;
	p.settings.window = 1000;
	c = caller_new(s, &p);
	call = ask(s, c, "exec0", 1 << 20);
	call->must = MUST_END;
	until_bytes(s, call, 1000);
	h2_send_update(caller_h2(c), h2_stream(caller_h2(c), call->stream), 0x7fffff00);
	t = caller_h2(c)->sent;
	t.window = 0x7fffffff;
	h2_send_settings(caller_h2(c), &t);
	caller_poke(c);
	until_over(s, call, SEC);
	caller_goaways(c, NULL, &code);
	expect(s, code == NGHTTP2_FLOW_CONTROL_ERROR, "GOAWAY code %u", code);
	scene_finish(s);
}

/* A6: HPACK state belongs to one connection, and tables change size in the middle. */
static void a6_hpack(struct scene *s)
{
	static const char *const names[] = { "exec0", "exec1", "exec2" };
	struct exec_plan x = exec_plan_default;
	struct caller_plan p = caller_plan_default;
	struct caller *c;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		x.name = names[i];
		x.encoding = (enum h2_encoding)((i + 1) % ENCODE_DEFIANT);
		exec_new(s, &x);
	}
	scene_start(s);
	p.settings.table = (uint32_t)rng_below(scene_rng(s), 5000);
	p.settings_gap_ns = 2 * MS;
	p.settings_changes = 30; /* table and window sizes at random */
	p.dribble = 30000;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 40; i++) {
		struct call *call = ask(s, c, names[i % 3], 5000);

		call->ask.start_ns = i * MS;
		call->answer[0].fragment = i % 5 == 4 ? 10 : 0;
	}
	run_to_end(s);
}

/* A6: an executor that uses a table it was not given harms its own calls at most. */
static void a6_defiant(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct caller *c;

	x.name = "exec0";
	x.encoding = ENCODE_DEFIANT;
	exec_new(s, &x);
	plain_exec(s, "exec1");
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 10; i++) {
		ask(s, c, "exec0", 20000)->must = MUST_END;
		ask(s, c, "exec1", 20000);
	}
	run_to_end(s);
	for (unsigned i = 0; i < s->n_calls && !world_failure(s->w); i++)
		if (s->calls[i]->must == MUST_END && !s->calls[i]->ended)
			world_fail(s->w, "call %u got no status", s->calls[i]->key);
}

/* A8: an executor dies in mid-message, between messages, before the trailers. */
static void a8_missing_trailers(struct scene *s)
{
	static const enum answer_kind kinds[] = { ANSWER_FIN, ANSWER_TCP_RST, ANSWER_END_DATA,
						  ANSWER_NO_STATUS, ANSWER_HTTP };

	plain_exec(s, "exec0");
	scene_start(s);
	for (unsigned i = 0; i < 30; i++) {
		struct caller_plan p = caller_plan_default;
		struct call *call;

		p.settings.window = i & 1 ? 4000 : 1 << 20;
		call = ask_fail(s, caller_new(s, &p), "exec0", kinds[i % 5], 40000, MUST_FAIL, 0);
		call->answer[0].mid_frame = i & 2;
		if (kinds[i % 5] == ANSWER_HTTP)
			call->must = MUST_END;
		call->answer[0].total = i & 4 ? 40000 : 50000;
		if (!until_over(s, call, 20 * SEC))
			return;
	}
	scene_finish(s);
}

/* A9: an answer of trailers only, before the request has ended, keeps its shape. */
static void a9_trailers_only(struct scene *s)
{
	plain_exec(s, "exec0");
	scene_start(s);
	for (unsigned i = 0; i < 6; i++) {
		struct call *call = ask_fail(s, plain_client(s), "exec0", ANSWER_TRAILERS_ONLY, 0,
					     MUST_STATUS, GRPC_NOT_FOUND);

		call->ask.half_request = i & 1;
		call->answer[0].message = "no such file";
		call->answer[0].rst_after = i & 2;
	}
	scene_run(s, 30 * SEC);
	for (unsigned i = 0; i < s->n_calls; i++)
		expect(s, !s->calls[i]->flow && s->calls[i]->details,
		       "call %u: DATA, or no details", s->calls[i]->key);
	scene_finish(s);
}

/* A11: whoever ends a stream, the other side is free within 100 ms (call.c checks it). */
static void a11_cancellation(struct scene *s)
{
	plain_exec(s, "exec0");
	scene_start(s);
	for (unsigned i = 0; i < 60; i++) {
		struct caller_plan p = caller_plan_default;
		struct call *call;

		if (i % 3 == 2) {
			p.settings.window = 100;
			p.grant = GRANT_NEVER;
		}
		if (i % 4 == 3) {
			p.hangup = HANGUP_RST;
			p.hangup_ns = i * MS;
		}
		call = ask(s, caller_new(s, &p), "exec0", 1 << 20);
		call->must = MUST_END;
		call->ask.cancel_ns = (i % 7) * 2 * MS;
		call->answer[0].gap_ns = MS;
		call->answer[0].head_delay_ns = i & 1 ? 8 * MS : 0;
	}
	run_to_end(s);
}

/* A16: streams up to the last id finish, those above are tried again elsewhere. */
static void a16_goaway(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct exec *a;
	struct caller *c;

	x.name = "exec0";
	x.goaway_after = 3;
	x.goaway_last = 5;
	x.goaway_conns = 1;
	a = exec_new(s, &x);
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 3; i++)
		ask(s, c, "exec0", 200000)->answer[0].gap_ns = 200000;
	/* From before the first GOAWAY to after the second. */
	for (unsigned i = 0; i < 6; i++)
		ask(s, c, "exec0", 20000)->ask.start_ns = MS + i * 150000;
	run_to_end(s);
	expect(s, exec_dials(a) > 1, "no second connection");
	expect(s, !caller_goaways(c, NULL, NULL), "the executor's GOAWAY reached the client");
}

/* A16: every connection says GOAWAY after two streams; nobody waits for ever. */
static void a16_goaway_always(struct scene *s)
{
	struct exec_plan x = exec_plan_default;

	x.name = "exec0";
	x.goaway_after = 2;
	exec_new(s, &x);
	plain_exec(s, "exec1");
	scene_start(s);
	for (unsigned k = 0; k < 3; k++) {
		struct caller *c = plain_client(s);

		for (unsigned i = 0; i < 12; i++)
			ask(s, c, "exec0", 20000)->must = MUST_END;
		ask(s, c, "exec1", 100000);
	}
	run_to_end(s);
}

/* A17: the executor's limit of streams is respected, also when it comes late and sinks. */
static void a17_concurrency(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct caller *c;

	x.name = "exec0";
	x.settings.streams = 3;
	x.settings_delay_ns = 300 * MS;
	x.lower_streams_ns = 320 * MS;
	exec_new(s, &x);
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 50; i++)
		ask(s, c, "exec0", 10000)->answer[0].head_delay_ns = 20 * MS;
	run_to_end(s);
}

/* A18: PINGs are answered beside bulk data; silence is no failure. */
static void a18_keepalive(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct exec_plan x = exec_plan_default;
	struct exec *a;
	struct call *call;

	x.name = "exec0";
	x.ping_gap_ns = 10 * SEC;
	a = exec_new(s, &x);
	s->config.timeouts.response_ns = 0;
	scene_start(s);
	p.read_chunk = 5000; /* 50 KB/s */
	p.read_gap_ns = 100 * MS;
	p.link.buffer = 32768;
	p.ping_gap_ns = SEC;
	p.pong_within_ns = 5 * SEC;
	ask(s, caller_new(s, &p), "exec0", 4 << 20);
	call = ask(s, plain_client(s), "exec0", 1000);
	call->answer[0].head_delay_ns = 600 * SEC;
	call = ask(s, plain_client(s), "exec0", 1000);
	call->answer[0].gap_ns = 200 * SEC;
	call->answer[0].frame = 600;
	run_to_end(s);
	(void)a;
}

/* A19: what a failed connection was owed is not sent to its replacement. */
static void a19_stale_control(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct caller *c;

	x.name = "exec0";
	x.bye_conns = 1;
	exec_new(s, &x);
	scene_start(s);
	c = plain_client(s);
	ask(s, c, "exec0", 1000)->must = MUST_END;
	ask(s, c, "exec0", 1000)->ask.start_ns = 100 * MS;
	run_to_end(s); /* h2end.c fails on an ACK that was not asked for */
}

/* A21: grpc-timeout is forwarded and ends the call on both sides. */
static void a21_timeout(struct scene *s)
{
	struct call *call;

	plain_exec(s, "exec0");
	scene_start(s);
	for (unsigned i = 0; i < 3; i++) {
		call = ask_fail(s, plain_client(s), "exec0", ANSWER_SILENT, i ? 20000 : 0,
				MUST_STATUS, GRPC_DEADLINE_EXCEEDED);
		call->answer[0].no_head = i != 1;
		call->ask.timeout = i == 2 ? "2S" : "200m";
		call->answer[0].cut = i == 1 ? 20000 : 0;
		until_over(s, call, 10 * SEC);
		expect_after(s, call, i == 2 ? 2 * SEC : 200 * MS, 10 * MS);
		scene_wait(s, 100 * MS);
		expect(s, !call->x_stream, "the executor still serves it");
		expect(s, call->x_timeout && call->x_timeout[0], "grpc-timeout was not forwarded");
	}
	scene_finish(s);
}

/* B1: whatever an executor does after accepting, the wait ends, and can be cancelled. */
static void b1_never_answered(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct call *calls[6];

	x.name = "tcp";
	x.settings_delay_ns = NEVER;
	exec_new(s, &x);
	x = exec_plan_default;
	x.name = "settings";
	exec_new(s, &x);
	x.name = "headers";
	x.no_pong = true;
	exec_new(s, &x);
	scene_start(s);
	for (unsigned i = 0; i < ARRAY_SIZE(calls); i++) {
		static const char *const names[] = { "tcp", "settings", "headers" };

		calls[i] =
			ask_fail(s, plain_client(s), names[i % 3], ANSWER_SILENT, 0, MUST_FAIL, 0);
		calls[i]->answer[0].no_head = i % 3 != 2;
		if (i >= 3)
			calls[i]->ask.cancel_ns = 3 * SEC;
	}
	scene_run(s, 100 * SEC);
	for (unsigned i = 0; i < ARRAY_SIZE(calls); i++)
		expect(s, !calls[i]->x_stream || world_failure(s->w),
		       "call %u is still open at the executor", calls[i]->key);
	scene_finish(s);
}

/* B2: an executor that is not there does not hurt the others, and is told apart. */
static void b2_unreachable(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct caller *c;
	struct call *call;

	x.name = "refused";
	x.n_dial = 1;
	x.dial[0] = DIAL_REFUSED;
	exec_new(s, &x);
	x.name = "flaky"; /* comes back */
	x.n_dial = 2;
	x.dial[1] = DIAL_OK;
	exec_new(s, &x);
	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 5; i++) {
		call = ask(s, c, "refused", 10);
		call->must = MUST_STATUS;
		call->must_status = GRPC_UNKNOWN;
		call->must_text = "refused";
		ask(s, c, "exec0", 50000);
		ask(s, c, "flaky", 1000)->must = MUST_END;
	}
	call = ask_fail(s, c, "exec0", ANSWER_STATUS, 10000, MUST_STATUS, GRPC_INTERNAL);
	call->answer[0].message = "IoError: No such file or directory";
	ask(s, c, "flaky", 1000)->ask.start_ns = 20 * SEC;
	run_to_end(s);
}

/* A network that stands still for a while, then goes on: nothing is lost. */
static void partition_heals(struct scene *s)
{
	struct exec *a = plain_exec(s, "exec0");
	struct caller *c;

	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 4; i++)
		ask(s, c, "exec0", 2 << 20)->answer[0].gap_ns = 100000;
	until_bytes(s, s->calls[0], 100000);
	if (exec_sock(a, 0))
		sock_partition(exec_sock(a, 0), scene_now(s) + 20 * SEC);
	sock_partition_one(caller_sock(c), false, scene_now(s) + 10 * SEC);
	run_to_end(s);
}

/* An executor that is cut off for good is found out by its PING; its client too. */
static void partition_stays(struct scene *s)
{
	struct exec *a = plain_exec(s, "exec0");
	struct caller *c, *lost;
	struct call *call, *gone;

	plain_exec(s, "exec1");
	scene_start(s);
	c = plain_client(s);
	call = ask(s, c, "exec0", 16 << 20);
	call->answer[0].gap_ns = MS;
	call->must = MUST_STATUS;
	call->must_status = GRPC_DEADLINE_EXCEEDED;
	lost = plain_client(s);
	gone = ask(s, lost, "exec1", 64 << 20);
	gone->must = MUST_END;
	gone->answer[0].gap_ns = MS;
	until_bytes(s, call, 100000);
	until_bytes(s, gone, 100000);
	if (exec_sock(a, 0))
		sock_partition(exec_sock(a, 0), UINT64_MAX);
	sock_partition(caller_sock(lost), UINT64_MAX);
	until_over(s, call, 120 * SEC);
	scene_wait(s, 400 * SEC);
	expect(s, !gone->x_stream, "the executor still serves a client that is cut off");
	expect(s, !scene_stats(s)->streams_open, "a stream of a lost client is open");
	/* For the end: the executor's own side of a dead connection. */
	exec_kill(a, DEATH_KILL);
	sock_partition(caller_sock(lost), 0);
	scene_finish(s);
}

const struct sim_case cases_faults[] = {
	{ "A1-framing", a1_framing },
	{ "A2-reset-leak", a2_reset_leak },
	{ "A4-unread-sibling", a4_unread_sibling },
	{ "A4-connection-window", a4_connection_window },
	{ "A4-silent-siblings", a4_silent_siblings },
	{ "A5-window-lowered", a5_window_lowered },
	{ "A5-lowered-under-load", a5_lowered_under_load },
	{ "A5-overflow", a5_overflow },
	{ "A6-hpack", a6_hpack },
	{ "A6-defiant", a6_defiant },
	{ "A8-missing-trailers", a8_missing_trailers },
	{ "A9-trailers-only", a9_trailers_only },
	{ "A11-cancellation", a11_cancellation },
	{ "A16-goaway", a16_goaway },
	{ "A16-goaway-always", a16_goaway_always },
	{ "A17-concurrency", a17_concurrency },
	{ "A18-keepalive", a18_keepalive },
	{ "A19-stale-control", a19_stale_control },
	{ "A21-timeout", a21_timeout },
	{ "B1-never-answered", b1_never_answered },
	{ "B2-unreachable", b2_unreachable },
	{ "partition-heals", partition_heals },
	{ "partition-stays", partition_stays },
	{ NULL, NULL },
};
