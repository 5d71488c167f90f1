/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_rules.c - one or more cases for each of the session rules of the design.
 * Much of each rule is checked all the time by the peers (h2end.c, answer.c) and
 * the scene; a case makes the situation.
 */
#include "cases.h"

/* ---- 1: one upstream per client and executor, never shared ---------------- */

static void rule1_one_upstream(struct scene *s)
{
	struct exec *a = plain_exec(s, "exec0"), *b = plain_exec(s, "exec1");
	struct caller *c;

	scene_start(s);
	c = plain_client(s);
	for (int i = 0; i < 6; i++) {
		ask(s, c, "exec0", 200000);
		ask(s, c, "exec1", 1000);
	}
	scene_run(s, 60 * SEC);
	/* One in use, one dialled ahead. */
	expect(s, exec_dials(a) <= 2 && exec_dials(b) <= 2, "dialled %u and %u times",
	       exec_dials(a), exec_dials(b));
	scene_finish(s);
}

/* Two clients at once never meet on a connection (answer.c asserts it). */
static void rule1_never_shared(struct scene *s)
{
	struct exec *a = plain_exec(s, "exec0");

	scene_start(s);
	for (int i = 0; i < 5; i++) {
		struct caller *c = plain_client(s);

		ask(s, c, "exec0", 300000);
		ask(s, c, "exec0", 10)->ask.start_ns = 3 * MS;
	}
	scene_run(s, 60 * SEC);
	expect(s, exec_most_open(a) >= 5, "%u connections for 5 clients", exec_most_open(a));
	scene_finish(s);
}

static void rule1_reuse(struct scene *s)
{
	struct exec *a = plain_exec(s, "exec0");

	scene_start(s);
	for (int i = 0; i < 30; i++) {
		struct call *call = ask(s, plain_client(s), "exec0", 500);

		if (!until_over(s, call, 10 * SEC))
			break;
	}
	expect(s, exec_dials(a) <= 4, "%u connections for 30 fetches one after another",
	       exec_dials(a));
	expect(s, scene_stats(s)->upstream_reuses >= 20, "%llu reuses",
	       (unsigned long long)scene_stats(s)->upstream_reuses);
	scene_finish(s);
}

/* Tickets that become complete in another order than their streams were opened. */
static void rule1_ids_out_of_order(struct scene *s)
{
	struct caller *c;

	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	for (uint64_t i = 0; i < 6; i++)
		ask(s, c, "exec0", 50000)->ask.message_delay_ns = (6 - i) * 5 * MS;
	run_to_end(s);
}

/* A name or a case of a name is one executor; another port is another. */
static void rule1_many_executors(struct scene *s)
{
	static const char *const names[] = { "exec0", "exec1", "exec2", "exec3", "exec4" };
	struct caller *c;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		plain_exec(s, names[i]);
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 40; i++)
		ask(s, c, names[i % ARRAY_SIZE(names)], 1000 * i);
	run_to_end(s);
}

/* ---- 2: what we tell an executor ------------------------------------------ */

static void rule2_settings(struct scene *s)
{
	struct caller *c;
	struct caller_plan p = caller_plan_default;
	struct exec *a = plain_exec(s, "exec0");

	scene_start(s);
	p.settings.frame = 1 << 20;
	c = caller_new(s, &p);
	until_bytes(s, ask(s, c, "exec0", 500000), 1);
	if (exec_h2(a, 0)) {
		const struct h2settings *t = &exec_h2(a, 0)->remote;

		expect(s, t->table == 0 && t->push == 0 && t->window == 0,
		       "table %u push %u window %u", t->table, t->push, t->window);
		expect(s, t->frame >= 16384, "frame %u", t->frame);
		expect(s, t->list <= 16384, "MAX_HEADER_LIST_SIZE %u, the client's is 16384",
		       t->list);
		expect(s, exec_h2(a, 0)->send_win > (1 << 30), "connection window %lld",
		       (long long)exec_h2(a, 0)->send_win);
	}
	run_to_end(s);
}

/* ---- 3: requests ---------------------------------------------------------- */

static void rule3_request_forms(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;

	plain_exec(s, "exec0");
	scene_start(s);
	p.write_chunk = 40;
	p.write_gap_ns = 20000;
	p.junk = true;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 16; i++) {
		struct call *call = ask(s, c, "exec0", 100);

		call_ticket(call, scene_rng(s), i % 4 == 3 ? 40000 : 50 * i);
		call->ask.message_pieces = 1 + i * 3;
		call->ask.end_on_data = i & 1;
		call->ask.fragment = i & 2 ? 20 : 0;
		call->ask.metadata = i == 8;
		if (call->ask.metadata)
			call->ask.fragment = 200;
	}
	run_to_end(s);
}

/* An executor with tiny windows takes a large ticket in pieces. */
static void rule3_small_request_windows(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct caller *c;

	x.name = "exec0";
	x.settings.window = 100;
	x.conn_window = 65535;
	exec_new(s, &x);
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 4; i++)
		call_ticket(ask(s, c, "exec0", 1000), scene_rng(s), 20000);
	run_to_end(s);
}

/* The whole message is there, its END_STREAM comes late. */
static void rule3_late_end(struct scene *s)
{
	struct caller *c;
	struct call *call;

	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	call = ask(s, c, "exec0", 100000);
	call->ask.half_request = true;
	run_to_end(s);
}

/* ---- 4: header blocks ----------------------------------------------------- */

static void rule4_encodings(struct scene *s)
{
	static const char *const names[] = { "exec0", "exec1", "exec2", "exec3" };
	static const uint32_t tables[] = { 0, 100, 4096 };
	struct exec_plan x = exec_plan_default;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		x.name = names[i];
		x.encoding = (enum h2_encoding)i;
		exec_new(s, &x);
	}
	scene_start(s);
	for (unsigned t = 0; t < ARRAY_SIZE(tables); t++) {
		struct caller_plan p = caller_plan_default;
		struct caller *c;

		p.settings.table = tables[t];
		c = caller_new(s, &p);
		for (unsigned i = 0; i < 12; i++) {
			struct call *call = ask(s, c, names[i % 4], 3000 * i);

			call->answer[0].fragment = i % 3 == 2 ? 12 : 0;
			call->ask.start_ns = i * MS;
		}
	}
	run_to_end(s);
}

/* ---- 5: control frames end at their hop ----------------------------------- */

static void rule5_control_frames(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct caller_plan p = caller_plan_default;
	struct exec *a;
	struct caller *c;

	x.name = "exec0";
	x.junk = true;
	x.ping_gap_ns = 3 * MS;
	a = exec_new(s, &x);
	scene_start(s);
	p.junk = true;
	p.ping_gap_ns = 2 * MS;
	p.pong_within_ns = 20 * MS;
	p.settings_gap_ns = 5 * MS;
	p.settings_changes = 10;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 10; i++) {
		struct call *call = ask(s, c, "exec0", 100000);

		call->ask.start_ns = i * 4 * MS;
		call->answer[0].gap_ns = MS;
	}
	scene_run(s, 600 * SEC);
	expect(s, caller_pongs(c) > 5, "%u PINGs answered", caller_pongs(c));
	expect(s, exec_pings(a) == 0, "%u PINGs reached the executor", exec_pings(a));
	scene_finish(s);
}

/* ---- 6: the ledger -------------------------------------------------------- */

static void rule6_windows(struct scene *s)
{
	static const enum grant_mode modes[] = { GRANT_HALF, GRANT_ALL, GRANT_EMPTY,
						 GRANT_DRIBBLE };
	static const uint32_t windows[] = { 1, 1000, 65535, 2 << 20 };

	plain_exec(s, "exec0");
	plain_exec(s, "exec1");
	scene_start(s);
	for (unsigned m = 0; m < ARRAY_SIZE(modes); m++) {
		struct caller_plan p = caller_plan_default;
		struct caller *c;

		p.grant = modes[m];
		p.grant_conn = modes[(m + 1) % ARRAY_SIZE(modes)];
		p.settings.window = windows[m];
		p.conn_window = m & 1 ? 65535 : 1 << 20;
		p.dribble = 3000;
		c = caller_new(s, &p);
		for (unsigned i = 0; i < 4; i++) {
			struct call *call = ask(s, c, i & 1 ? "exec1" : "exec0", 150000);

			call->answer[0].pad_percent = i == 2 ? 50 : 0;
			call->answer[0].empty_percent = i == 3 ? 30 : 0;
		}
	}
	run_to_end(s);
}

/* What was granted and what is held stay within the caps, for readers that stop. */
static void rule6_caps(struct scene *s)
{
	struct caller *c[4];

	s->config.limits.client_inflight = 512 * KiB;
	s->config.limits.total_inflight = 1 * MiB;
	plain_exec(s, "exec0");
	scene_start(s);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		struct caller_plan p = caller_plan_default;

		p.settings.window = 8 << 20;
		p.conn_window = 32 << 20;
		p.stop_ns = 5 * MS;
		p.linger = true;
		c[i] = caller_new(s, &p);
		for (unsigned k = 0; k < 3; k++)
			ask(s, c[i], "exec0", 4 << 20);
	}
	scene_wait(s, 60 * SEC); /* the scene checks the caps after each turn */
	expect(s, !scene_calls_over(s), "calls of clients that do not read are over");
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		caller_plan(c[i])->stop_ns = NEVER;
		caller_plan(c[i])->linger = false;
		caller_poke(c[i]);
	}
	run_to_end(s);
}

/* Overflows are errors of the stream or of the connection. */
static void rule6_overflow(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *a, *b;
	struct call *x, *y;
	uint32_t code = 0;

	plain_exec(s, "exec0");
	scene_start(s);
	p.grant = p.grant_conn = GRANT_NEVER;
	p.settings.window = 1000;
	p.linger = true;
	a = caller_new(s, &p);
	x = ask(s, a, "exec0", 100000);
	x->must = MUST_END;
	b = caller_new(s, &p);
	y = ask(s, b, "exec0", 100000);
	y->must = MUST_END;
	until_bytes(s, x, 1000);
	until_bytes(s, y, 1000);
	h2_send_update(caller_h2(a), h2_stream(caller_h2(a), x->stream), 0x7fffffff);
	h2_send_update(caller_h2(a), h2_stream(caller_h2(a), x->stream), 0x7fffffff);
	h2_send_update(caller_h2(b), NULL, 0x7fffffff);
	caller_poke(a);
	caller_poke(b);
	until_over(s, x, SEC);
	until_over(s, y, SEC);
	expect(s, x->reset && x->reset_code == NGHTTP2_FLOW_CONTROL_ERROR,
	       "stream window overflow: reset %d code %u", x->reset, x->reset_code);
	caller_goaways(b, NULL, &code);
	expect(s, caller_gone(b) && code == NGHTTP2_FLOW_CONTROL_ERROR,
	       "connection window overflow: gone %d code %u", caller_gone(b), code);
	scene_finish(s);
}

/* ---- 7: completeness ------------------------------------------------------ */

/* Every way not to complete, at every place, with ample and with closed windows. */
static void rule7_incomplete(struct scene *s)
{
	static const uint64_t cuts[] = { 0, 1, 16384, 50000 };
	static const enum answer_kind kinds[] = { ANSWER_RST, ANSWER_FIN, ANSWER_TCP_RST,
						  ANSWER_END_DATA, ANSWER_NO_STATUS };

	for (unsigned i = 0; i < 2; i++)
		plain_exec(s, i ? "exec1" : "exec0");
	scene_start(s);
	for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
		for (unsigned n = 0; n < ARRAY_SIZE(cuts) * 4; n++) {
			struct caller_plan p = caller_plan_default;
			struct caller *c;
			struct call *call;

			p.settings.window = n & 1 ? 2 << 20 : 500;
			c = caller_new(s, &p);
			call = ask_fail(s, c, "exec0", kinds[k], cuts[n / 4], MUST_FAIL, 0);
			call->answer[0].mid_frame = n & 2;
			call->answer[0].code = n & 2 ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL;
			call->answer[0].no_head = !cuts[n / 4] && n & 1;
			/* A connection that dies before the head may be worth a second try. */
			call->n_answers = 1;
			until_over(s, call, 60 * SEC);
			if (world_failure(s->w))
				return;
		}
	}
	ask(s, plain_client(s), "exec1", 1000);
	run_to_end(s);
}

/* Data, trailers and FIN in one segment while the client is slow: all of it arrives. */
static void rule7_complete_then_gone(struct scene *s)
{
	struct exec_plan x = exec_plan_default;

	x.name = "exec0";
	x.link.buffer = 1 << 20;
	x.goaway_after = 1;
	exec_new(s, &x);
	scene_start(s);
	for (unsigned i = 0; i < 6; i++) {
		struct caller_plan p = caller_plan_default;

		p.link.buffer = 4096;
		p.settings.window = i & 1 ? 1000 : 1 << 20;
		p.read_chunk = 1000;
		p.read_gap_ns = MS;
		ask(s, caller_new(s, &p), "exec0", 100000);
	}
	run_to_end(s);
}

/* The client ends right after its last trailers, in any manner: they are recorded as complete. */
static void rule7_client_leaves(struct scene *s)
{
	plain_exec(s, "exec0");
	scene_start(s);
	for (unsigned i = 0; i < 9; i++) {
		struct caller_plan p = caller_plan_default;

		p.hangup = (enum hangup)(HANGUP_GOODBYE + i % 3);
		ask(s, caller_new(s, &p), "exec0", 1000 * i * i);
	}
	run_to_end(s);
}

/* ---- 8: cancellation ------------------------------------------------------ */

static void cancel_at(struct scene *s, unsigned how, unsigned where)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	struct call *call;

	p.linger = true;
	if (where == 3)
		p.settings.window = 1000, p.grant = GRANT_NEVER;
	c = caller_new(s, &p);
	call = ask(s, c, where ? "exec0" : "slow", 4 << 20);
	call->must = MUST_END;
	if (where == 1)
		call->answer[0].head_delay_ns = 50 * SEC;
	call->answer[0].gap_ns = 100000;
	if (where == 2)
		until_bytes(s, call, 100000);
	scene_wait(s, where == 3 ? 2 * SEC : 20 * MS);
	if (how == 0)
		caller_cancel(c, call);
	else
		caller_hangup(c, (enum hangup)how);
	scene_wait(s, SEC);
	expect(s, !call->x_stream, "how %u where %u: the executor still serves it", how, where);
	expect(s, !scene_stats(s)->streams_open, "how %u where %u: %llu streams open", how, where,
	       (unsigned long long)scene_stats(s)->streams_open);
}

static void rule8_cancel(struct scene *s)
{
	struct exec_plan x = exec_plan_default;

	plain_exec(s, "exec0");
	x.name = "slow"; /* never connects: the dial has to be cancelled */
	x.dial_ns = 4 * SEC;
	exec_new(s, &x);
	scene_start(s);
	for (unsigned how = 0; how <= HANGUP_RST; how++)
		for (unsigned where = 0; where < 4 && !world_failure(s->w); where++)
			cancel_at(s, how, where);
	scene_finish(s);
}

/* One cancelled stream does not end the connection that its siblings use. */
static void rule8_siblings_go_on(struct scene *s)
{
	struct caller *c;

	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 20; i++) {
		struct call *call = ask(s, c, "exec0", 300000);

		if (i % 2)
			call->ask.cancel_after = i * 5000;
	}
	run_to_end(s);
}

/* ---- 9: deadlines --------------------------------------------------------- */

static void deadline(struct scene *s, struct call *call, uint64_t ns, int status)
{
	call->must = MUST_STATUS;
	call->must_status = status;
	until_over(s, call, 3600 * SEC);
	expect_after(s, call, ns, 2 * SEC);
}

static void rule9_connect(struct scene *s)
{
	struct exec_plan x = exec_plan_default;

	x.name = "exec0";
	x.n_dial = 1;
	x.dial[0] = DIAL_BLACKHOLE;
	exec_new(s, &x);
	s->config.timeouts.connect_ns = 7 * SEC;
	scene_start(s);
	deadline(s, ask(s, plain_client(s), "exec0", 10), 7 * SEC, GRPC_UNKNOWN);
	scene_finish(s);
}

static void rule9_handshake(struct scene *s)
{
	struct exec_plan x = exec_plan_default;

	x.name = "exec0";
	x.settings_delay_ns = NEVER;
	exec_new(s, &x);
	s->config.timeouts.handshake_ns = 4 * SEC;
	scene_start(s);
	deadline(s, ask(s, plain_client(s), "exec0", 10), 4 * SEC, GRPC_UNKNOWN);
	scene_finish(s);
}

static void rule9_response(struct scene *s)
{
	struct call *call;

	plain_exec(s, "exec0");
	s->config.timeouts.response_ns = 20 * SEC;
	scene_start(s);
	call = ask(s, plain_client(s), "exec0", 10);
	call->answer[0].head_delay_ns = 100 * SEC;
	deadline(s, call, 20 * SEC, GRPC_DEADLINE_EXCEEDED);
	scene_finish(s);
}

/* An executor with credit that sends nothing: a failure only when it fails PING, too. */
static void rule9_stall(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct call *call, *quiet;

	x.name = "exec0";
	x.no_pong = true;
	exec_new(s, &x);
	plain_exec(s, "exec1");
	s->config.timeouts.stall_ns = 15 * SEC;
	scene_start(s);
	call = ask_fail(s, plain_client(s), "exec0", ANSWER_SILENT, 50000, MUST_STATUS,
			GRPC_DEADLINE_EXCEEDED);
	quiet = ask(s, plain_client(s), "exec1", 50000);
	quiet->answer[0].end_delay_ns = 900 * SEC;
	until_over(s, call, 100 * SEC);
	expect(s, call->end_ns - call->sent_ns >= 15 * SEC, "stalled after %.1f s only",
	       (double)(call->end_ns - call->sent_ns) / 1e9);
	run_to_end(s);
}

/* A client that grants nothing, and one that does not read. */
static void rule9_slow_client(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	struct call *a, *b, *d;

	plain_exec(s, "exec0");
	s->config.timeouts.client_ns = 100 * SEC;
	scene_start(s);
	p.grant = GRANT_NEVER;
	p.settings.window = 30000;
	a = ask_fail(s, caller_new(s, &p), "exec0", ANSWER_OK, 100000, MUST_STATUS,
		     GRPC_DEADLINE_EXCEEDED);
	p = caller_plan_default;
	p.link.buffer = 20000;
	p.stop_ns = 0;
	p.hangup_ns = 400 * SEC;
	c = caller_new(s, &p);
	b = ask(s, c, "exec0", 1 << 20);
	b->must = MUST_END;
	d = ask(s, plain_client(s), "exec0", 1 << 20);
	until_over(s, a, 200 * SEC);
	expect_after(s, a, 100 * SEC, 3 * SEC);
	until_over(s, d, SEC);
	scene_wait(s, 10 * SEC);
	expect(s, !b->x_stream, "the executor still serves a client that does not read");
	run_to_end(s);
}

/* Progress that is slow is progress. */
static void rule9_slow_is_fine(struct scene *s)
{
	struct caller_plan p = caller_plan_default;

	plain_exec(s, "exec0");
	s->config.timeouts.client_ns = 10 * SEC;
	scene_start(s);
	p.settings.window = 2000;
	p.grant_delay_ns = 9 * SEC;
	ask(s, caller_new(s, &p), "exec0", 60000);
	p = caller_plan_default;
	p.link.buffer = 4096;
	p.read_chunk = 2000;
	p.read_gap_ns = 5 * SEC;
	ask(s, caller_new(s, &p), "exec0", 100000);
	run_to_end(s);
}

static void rule9_idle(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	uint32_t code = 99;
	uint64_t then;

	plain_exec(s, "exec0");
	s->config.timeouts.idle_ns = 50 * SEC;
	scene_start(s);
	p.linger = true;
	c = caller_new(s, &p);
	until_over(s, ask(s, c, "exec0", 1000), SEC);
	then = scene_now(s);
	scene_wait(s, 49 * SEC);
	expect(s, !caller_gone(c), "closed before its time");
	scene_wait(s, 3 * SEC);
	expect(s, caller_gone(c), "still there after %.1f s", (double)(scene_now(s) - then) / 1e9);
	expect(s, caller_goaways(c, NULL, &code) && code == NGHTTP2_NO_ERROR,
	       "closed without GOAWAY(NO_ERROR)");
	scene_finish(s);
}

/* A client that never says anything, or only half of it. */
static void rule9_client_handshake(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *quiet, *half, *slow;

	plain_exec(s, "exec0");
	s->config.timeouts.handshake_ns = 6 * SEC;
	scene_start(s);
	p.silent = true;
	quiet = caller_new(s, &p);
	p.silent = false;
	p.raw = "PRI * HTTP/2.0\r\n";
	p.raw_len = 16;
	half = caller_new(s, &p);
	p = caller_plan_default;
	slow = caller_new(s, &p);
	ask(s, slow, "exec0", 10)->ask.message_delay_ns = 60 * SEC;
	s->calls[0]->must = MUST_STATUS;
	s->calls[0]->must_status = GRPC_DEADLINE_EXCEEDED;
	scene_wait(s, 9 * SEC);
	expect(s, caller_gone(quiet), "a silent client stays");
	expect(s, caller_gone(half), "a client with half a preface stays");
	expect(s, call_over(s->calls[0]), "a request without its message stays");
	run_to_end(s);
}

const struct sim_case cases_rules[] = {
	{ "rule1-one-upstream", rule1_one_upstream },
	{ "rule1-never-shared", rule1_never_shared },
	{ "rule1-reuse", rule1_reuse },
	{ "rule1-ids-out-of-order", rule1_ids_out_of_order },
	{ "rule1-many-executors", rule1_many_executors },
	{ "rule2-settings", rule2_settings },
	{ "rule3-request-forms", rule3_request_forms },
	{ "rule3-small-request-windows", rule3_small_request_windows },
	{ "rule3-late-end", rule3_late_end },
	{ "rule4-encodings", rule4_encodings },
	{ "rule5-control-frames", rule5_control_frames },
	{ "rule6-windows", rule6_windows },
	{ "rule6-caps", rule6_caps },
	{ "rule6-overflow", rule6_overflow },
	{ "rule7-incomplete", rule7_incomplete },
	{ "rule7-complete-then-gone", rule7_complete_then_gone },
	{ "rule7-client-leaves", rule7_client_leaves },
	{ "rule8-cancel", rule8_cancel },
	{ "rule8-siblings-go-on", rule8_siblings_go_on },
	{ "rule9-connect", rule9_connect },
	{ "rule9-handshake", rule9_handshake },
	{ "rule9-response", rule9_response },
	{ "rule9-stall", rule9_stall },
	{ "rule9-slow-client", rule9_slow_client },
	{ "rule9-slow-is-fine", rule9_slow_is_fine },
	{ "rule9-idle", rule9_idle },
	{ "rule9-client-handshake", rule9_client_handshake },
	{ NULL, NULL },
};
