/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_told.c - one case per row of the design's table 'What the client is told'.
 */
#include <stdlib.h>

#include "cases.h"

/* ---- not HTTP/2 ----------------------------------------------------------- */

static void told_not_http2(struct scene *s)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello";
	static const char noise[] = "\x00\x01\x02 nothing that anybody speaks, and long enough";
	struct caller_plan p = caller_plan_default;
	struct caller *c[3];
	const struct bytes *said;

	scene_start(s);
	p.raw = http;
	p.raw_len = sizeof(http) - 1;
	c[0] = caller_new(s, &p);
	p.raw = tls;
	p.raw_len = sizeof(tls) - 1;
	c[1] = caller_new(s, &p);
	p.raw = noise;
	p.raw_len = sizeof(noise) - 1;
	c[2] = caller_new(s, &p);
	scene_wait(s, 2 * SEC);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++)
		expect(s, caller_gone(c[i]), "client %u that is not HTTP/2 hangs", i);
	said = caller_raw_answer(c[0]);
	expect(s, said->len > 12 && !memcmp(bytes_at(said), "HTTP/1.1 505", 12),
	       "HTTP/1.1 got \"%.*s\"", (int)min_u64(said->len, 40), (char *)bytes_at(said));
	expect(s, s->events[EVENT_CLIENT_ERROR] == 3, "%llu events for 3 clients",
	       (unsigned long long)s->events[EVENT_CLIENT_ERROR]);
	scene_finish(s);
}

/* ---- methods and tickets --------------------------------------------------- */

static void told_unknown_method(struct scene *s)
{
	static const char *const paths[] = {
		"/arrow.flight.protocol.FlightService/DoAction",
		"/arrow.flight.protocol.FlightService/DoPut",
		"/arrow.flight.protocol.FlightService/ListFlights",
		"/arrow.flight.protocol.FlightService/NoSuchThing",
		"/some.Service/Method",
		"/",
	};
	struct caller *c;

	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < ARRAY_SIZE(paths); i++) {
		struct call *call = ask(s, c, "exec0", 10);

		call->ask.path = paths[i];
		call->must = MUST_STATUS;
		call->must_status = GRPC_UNIMPLEMENTED;
		call->must_text = "flightsplice:";
	}
	ask(s, c, "exec0", 1000);
	run_to_end(s);
}

static struct call *bad_ticket(struct scene *s, struct caller *c, const char *host, uint32_t port,
			       const char *text)
{
	struct call *call = scene_call(s, host, port, 10);

	call->must = MUST_STATUS;
	call->must_status = GRPC_INVALID_ARGUMENT;
	call->must_text = text;
	caller_add(c, call);
	return call;
}

static void set_message(struct call *call, const void *p, size_t n)
{
	free(call->msg);
	call->msg = xalloc(n);
	call->msg_len = n;
	if (n)
		memcpy(call->msg, p, n);
}

static void told_bad_ticket(struct scene *s)
{
	struct caller *c;
	struct call *call;

	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	bad_ticket(s, c, "", 50051, "host");
	bad_ticket(s, c, "exec0", 0, "port");
	bad_ticket(s, c, "exec0", 65536, "port");
	bad_ticket(s, c, "exec0", 0xffffffff, "port");
	bad_ticket(s, c, "a host/with spaces", 50051, "host");
	/* A message of no bytes; no message at all; one that ends early; no protobuf. */
	set_message(bad_ticket(s, c, "exec0", 50051, "ticket"), "\0\0\0\0\0", 5);
	set_message(bad_ticket(s, c, "exec0", 50051, NULL), "", 0);
	set_message(bad_ticket(s, c, "exec0", 50051, NULL), "\0\0\0\0\100abc", 8);
	set_message(bad_ticket(s, c, "exec0", 50051, "ticket"), "\0\0\0\0\3\377\377\377", 8);
	set_message(bad_ticket(s, c, "exec0", 50051, "max-ticket"), "\0\177\0\0\0abc", 8);
	call = bad_ticket(s, c, "exec0", 50051, NULL);
	call_ticket(call, NULL, 40);
	call->msg = xgrow(call->msg, call->msg_len + 1); /* a byte too many */
	call->msg[call->msg_len++] = 0;
	ask(s, c, "exec0", 1000);
	run_to_end(s);
}

/* ---- who may be reached ----------------------------------------------------- */

static void told_policy(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct call *call;
	struct caller *c;

	x.name = "exec0";
	x.dial[0] = DIAL_DENIED;
	x.n_dial = 1;
	x.verdict = POLICY_DENY_LINKLOCAL;
	exec_new(s, &x);
	plain_exec(s, "exec1");
	scene_start(s);
	c = plain_client(s);
	call = ask(s, c, "exec0", 10);
	call->must = MUST_STATUS;
	call->must_status = GRPC_PERMISSION_DENIED;
	call->must_text = "policy";
	ask(s, c, "exec1", 1000);
	scene_run(s, 10 * SEC);
	expect(s, call->text && !strstr(call->text, "link-local") && !strstr(call->text, "10.2."),
	       "the message tells what the name resolves to: %s", call->text);
	expect(s, scene_stats(s)->policy_verdicts[POLICY_DENY_LINKLOCAL] == 1, "not counted");
	scene_finish(s);
}

static void told_unreachable(struct scene *s)
{
	static const struct {
		const char *name;
		enum dial_outcome outcome;
	} ways[] = {
		{ "refused", DIAL_REFUSED },       { "hole", DIAL_BLACKHOLE },
		{ "nxdomain", DIAL_NO_HOST },      { "later", DIAL_TRY_AGAIN },
		{ "unroutable", DIAL_UNROUTABLE },
	};
	struct caller *c;

	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		struct exec_plan x = exec_plan_default;

		x.name = ways[i].name;
		x.dial[0] = ways[i].outcome;
		x.n_dial = 1;
		exec_new(s, &x);
	}
	plain_exec(s, "exec0");
	s->config.unreachable_status =
		rng_chance(scene_rng(s), 50) ? GRPC_UNKNOWN : GRPC_UNAVAILABLE;
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		struct call *call = ask(s, c, ways[i].name, 10);

		call->must = MUST_STATUS;
		call->must_status = s->config.unreachable_status;
		call->must_text = ways[i].name; /* names the executor */
		ask(s, c, "exec0", 100000);
	}
	scene_run(s, 6 * SEC);
	scene_finish(s);
}

static void told_limits(struct scene *s)
{
	struct exec_plan x = exec_plan_default;
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	unsigned refused = 0;

	x.name = "exec1";
	x.dial[0] = DIAL_NO_FDS;
	x.n_dial = 1;
	exec_new(s, &x);
	plain_exec(s, "exec0");
	s->config.limits.max_streams = 4;
	scene_start(s);
	p.ignore_limit = true;
	c = caller_new(s, &p);
	for (unsigned i = 0; i < 12; i++) {
		struct call *call = ask(s, c, "exec0", 50000);

		call->must = MUST_END;
		call->answer[0].head_delay_ns = SEC;
	}
	scene_run(s, 60 * SEC);
	for (unsigned i = 0; i < s->n_calls; i++) {
		struct call *call = s->calls[i];

		refused += call->reset && call->reset_code == NGHTTP2_REFUSED_STREAM;
		expect(s, call->reset || (call->ended && call->status == 0),
		       "call %u neither refused nor served", call->key);
	}
	expect(s, refused == 8, "%u of 12 streams refused with a limit of 4", refused);
	ask(s, plain_client(s), "exec1", 10)->must = MUST_STATUS;
	s->calls[s->n_calls - 1]->must_status = GRPC_RESOURCE_EXHAUSTED;
	run_to_end(s);
}

/* ---- executors -------------------------------------------------------------- */

/* Trailers with UNKNOWN after the last whole frame. */
static void told_executor_gone(struct scene *s)
{
	static const enum exec_death deaths[] = { DEATH_FIN, DEATH_RST, DEATH_KILL };

	plain_exec(s, "exec0");
	scene_start(s);
	for (unsigned i = 0; i < 9; i++) {
		struct caller *c = plain_client(s);
		struct call *call = ask(s, c, "exec0", 10 << 20);
		uint64_t then;

		call->must = MUST_STATUS;
		call->must_status = GRPC_UNKNOWN;
		call->must_text = "exec0";
		call->answer[0].gap_ns = 500000;
		if (!until_bytes(s, call, 100000 + 1000 * i))
			return;
		exec_kill(s->execs[0], deaths[i % 3]);
		then = scene_now(s);
		until_over(s, call, SEC);
		expect(s, call->end_ns - then < 50 * MS, "told after %.3f s",
		       (double)(call->end_ns - then) / 1e9);
	}
	scene_finish(s);
}

static void told_own_error(struct scene *s)
{
	static const char *const texts[] = { NULL, "plain", "100%25 percent%0A, two lines",
					     "flightsplice is not who says this" };
	struct caller *c;

	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	for (int i = 1; i <= 16; i++) {
		struct call *call =
			ask_fail(s, c, "exec0", i & 1 ? ANSWER_STATUS : ANSWER_TRAILERS_ONLY,
				 i & 1 ? (uint64_t)i * 3000 : 0, MUST_STATUS, i);

		call->answer[0].message = texts[i % 4];
	}
	for (unsigned i = 0; i < s->n_calls; i++) {
		/* The peers compare decoded text: keep the escapes out of the script. */
		if (s->calls[i]->answer[0].message == texts[2])
			s->calls[i]->answer[0].message = "no escapes";
	}
	run_to_end(s);
}

/* ---- draining --------------------------------------------------------------- */

static bool told_goaway_twice(void *arg)
{
	return caller_goaways(arg, NULL, NULL) >= 2;
}

static void told_draining(struct scene *s)
{
	struct caller *busy, *idle;
	struct caller_plan p = caller_plan_default;
	struct call *call;
	uint32_t last = 0, code = 99;

	plain_exec(s, "exec0");
	scene_start(s);
	busy = plain_client(s);
	p.linger = true;
	idle = caller_new(s, &p);
	call = ask(s, busy, "exec0", 1 << 20);
	call->answer[0].gap_ns = MS;
	until_bytes(s, call, 1000);
	world_drain(s->w);
	scene_until(s, 5 * SEC, told_goaway_twice, busy, "two GOAWAYs");
	caller_goaways(busy, &last, &code);
	expect(s, last == call->stream && code == NGHTTP2_NO_ERROR, "GOAWAY(%u, %u)", last, code);
	scene_wait(s, 3 * SEC);
	expect(s, caller_gone(idle), "a client without streams stays");
	expect(s, !world_subject_idle(s->w) || call->ended, "idle with a stream in flight");
	until_over(s, call, 100 * SEC);
	scene_wait(s, SEC);
	expect(s, world_subject_idle(s->w), "not idle after its last stream");
	/* Who comes now is told the same. */
	idle = caller_new(s, &p);
	scene_wait(s, 4 * SEC);
	expect(s, caller_goaways(idle, NULL, NULL) > 0, "a late client is not told");
	scene_finish(s);
}

/* A request between the two GOAWAYs is served, one after them is not half-served. */
static void told_draining_race(struct scene *s)
{
	struct caller *c;

	plain_exec(s, "exec0");
	scene_start(s);
	c = plain_client(s);
	for (unsigned i = 0; i < 12; i++)
		ask(s, c, "exec0", 1000)->ask.start_ns = i * 200000;
	scene_wait(s, MS);
	world_drain(s->w);
	for (unsigned i = 0; i < s->n_calls; i++)
		s->calls[i]->must = MUST_END;
	run_to_end(s);
}

const struct sim_case cases_told[] = {
	{ "told-not-http2", told_not_http2 },
	{ "told-unknown-method", told_unknown_method },
	{ "told-bad-ticket", told_bad_ticket },
	{ "told-policy", told_policy },
	{ "told-unreachable", told_unreachable },
	{ "told-limits", told_limits },
	{ "told-executor-gone", told_executor_gone },
	{ "told-own-error", told_own_error },
	{ "told-draining", told_draining },
	{ "told-draining-race", told_draining_race },
	{ NULL, NULL },
};
