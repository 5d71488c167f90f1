/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.c - proof that the judges are awake.
 *
 * Two halves. A scene with a bit of everything runs on the toy forwarder, which
 * must pass with many seeds, and then on each of its mutants: one fault that a
 * proxy could have, and what the simulator must say about it. And the HTTP/2
 * judge (h2end.c) is fed frames that no proxy may send, one rule at a time.
 */
#include "selftest.h"

#include <stdio.h>
#include <stdlib.h>

#include "cases.h"
#include "toy.h"

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#else
#define ASAN 0
#endif

static const struct mutant {
	const char *name;
	enum toy_fault fault;
	const char *says; /* part of the failure */
	bool frees;       /* touches freed memory: the sanitizer would be first */
} mutants[] = {
	{ "flip-byte", TOY_FLIP_BYTE, "wrong byte", false },
	{ "lose-bytes", TOY_LOSE_BYTES, "wrong byte", false },
	{ "lose-tail", TOY_LOSE_TAIL, "clean end with bytes missing", false },
	{ "repeat-bytes", TOY_REPEAT_BYTES, "wrong byte", false },
	{ "end-on-data", TOY_END_ON_DATA, "END_STREAM on DATA", false },
	{ "false-ok", TOY_FALSE_OK, "the executor did not complete", false },
	{ "reset-cancel", TOY_RESET_CANCEL, "clients take for success", false },
	{ "no-status", TOY_NO_STATUS, "END_STREAM without grpc-status", false },
	{ "needless-failure", TOY_NEEDLESS_FAILURE, "should have succeeded", false },
	{ "change-message", TOY_CHANGE_MESSAGE, "message was changed", false },
	{ "drop-details", TOY_DROP_DETAILS, "details are lost", false },
	{ "half-frame", TOY_HALF_FRAME, "inside a frame", false },
	{ "hang", TOY_HANG, "stall", false },
	{ "ignore-stream-window", TOY_IGNORE_STREAM_WINDOW, "exceeds its window", false },
	{ "ignore-connection-window", TOY_IGNORE_CONNECTION_WINDOW, "exceeds the connection window",
	  false },
	{ "ignore-decrease", TOY_IGNORE_DECREASE, "exceeds its window", false },
	{ "overgrant", TOY_OVERGRANT, "credit:", false },
	{ "forward-ping", TOY_FORWARD_PING, "PING was forwarded", false },
	{ "forward-unknown", TOY_FORWARD_UNKNOWN, "frame type 66", false },
	{ "no-pong", TOY_NO_PONG, "PING never answered", false },
	{ "no-settings", TOY_NO_SETTINGS, "the first frame is of type", false },
	{ "other-settings", TOY_OTHER_SETTINGS, "the proxy's settings are", false },
	{ "bad-hpack", TOY_BAD_HPACK, "does not decode", false },
	{ "change-ticket", TOY_CHANGE_TICKET, "not what the client sent", false },
	{ "drop-timeout", TOY_DROP_TIMEOUT, "grpc-timeout was not forwarded", false },
	{ "drop-metadata", TOY_DROP_METADATA, "metadata is missing", false },
	{ "ask-twice", TOY_ASK_TWICE, "asked again", false },
	{ "no-cancel", TOY_NO_CANCEL, "upstreams stay", false },
	{ "late-cancel", TOY_LATE_CANCEL, "too late", false },
	{ "keep-upstream", TOY_KEEP_UPSTREAM, "busy loop", false },
	{ "two-records", TOY_TWO_RECORDS, "records", false },
	{ "no-record", TOY_NO_RECORD, "records", false },
	{ "wrong-record", TOY_WRONG_RECORD, "another status than the client saw", false },
	{ "wrong-bytes", TOY_WRONG_BYTES, "the record counts other bytes", false },
	{ "wrong-sum", TOY_WRONG_SUM, "data_in", false },
	{ "no-close-event", TOY_NO_CLOSE_EVENT, "upstreams opened", false },
	{ "timer-spin", TOY_TIMER_SPIN, "timer spin", false },
	{ "busy-loop", TOY_BUSY_LOOP, "busy loop", false },
	{ "use-closed", TOY_USE_CLOSED, "on a closed port", true },
	{ "close-twice", TOY_CLOSE_TWICE, "on a closed port", true },
	{ "recv-nothing", TOY_RECV_NOTHING, "recv() of no bytes", false },
	{ "cancel-dial-late", TOY_CANCEL_DIAL_LATE, "dial that is over", false },
	{ "leave-ports", TOY_LEAVE_PORTS, "left 1 ports", false },
};

static_assert(ARRAY_SIZE(mutants) == TOY_FAULTS - 1, "a row for each fault");

/* A bit of everything that the toy can do. */
static void everything(struct scene *s)
{
	struct caller_plan p = caller_plan_default;
	struct caller *c;
	struct call *call;

	plain_exec(s, "exec0");
	plain_exec(s, "exec1");
	scene_start(s);
	p.settings.window = 20000;
	p.conn_window = 65535;
	p.ping_gap_ns = 10 * MS;
	p.pong_within_ns = 100 * MS;
	c = caller_new(s, &p);
	ask(s, c, "exec0", 300000)->answer[0].end_delay_ns = 300 * MS;
	call = ask(s, c, "exec1", 100000);
	call->ask.timeout = "60S";
	call->ask.metadata = true;
	call = ask_fail(s, c, "exec0", ANSWER_STATUS, 5000, MUST_STATUS, 9);
	call->answer[0].message = "no such file";
	ask_fail(s, c, "exec1", ANSWER_TRAILERS_ONLY, 0, MUST_STATUS, 5);
	ask_fail(s, c, "exec0", ANSWER_RST, 30000, MUST_FAIL, 0)->answer[0].code =
		NGHTTP2_INTERNAL_ERROR;
	ask_fail(s, c, "nowhere", ANSWER_OK, 0, MUST_STATUS, 2);
	call = ask(s, c, "exec0", 1 << 20);
	call->answer[0].gap_ns = MS;
	call->ask.cancel_after = 40000;
	/* A window that shrinks in the middle of a stream that is granted slowly. */
	p = caller_plan_default;
	p.settings.window = 30000;
	p.grant = GRANT_EMPTY;
	c = caller_new(s, &p);
	call = ask(s, c, "exec1", 200000);
	if (until_bytes(s, call, 1)) {
		struct h2settings t = caller_h2(c)->sent;

		t.window = 1000;
		h2_send_settings(caller_h2(c), &t);
		caller_poke(c);
	}
	/* Large stream windows, a connection window that is opened late. */
	p = caller_plan_default;
	p.conn_window = 65535;
	p.grant_conn = GRANT_EMPTY;
	p.grant_delay_ns = 10 * MS;
	ask(s, caller_new(s, &p), "exec1", 400000);
	ask_fail(s, plain_client(s), "exec1", ANSWER_FIN, 20000, MUST_FAIL, 0);
	scene_run(s, 60 * SEC);
	scene_finish(s);
}

static void free_early(struct scene *s)
{
	plain_exec(s, "exec0");
	scene_start(s);
	ask(s, plain_client(s), "exec0", 1 << 20);
	scene_wait(s, 2 * MS);
	s->unjudged = true;
	scene_finish(s);
}

/* Runs the scene on the toy; what it says is copied to why. */
static bool run_toy(enum toy_fault fault, uint64_t seed, char *why, size_t cap)
{
	struct scene *s;
	bool failed;

	toy_fault = fault;
	s = scene_new(seed);
	if (fault == TOY_LEAVE_PORTS)
		free_early(s);
	else
		everything(s);
	failed = world_failure(s->w);
	snprintf(why, cap, "%s", failed ? world_failure(s->w) : "");
	scene_free(s);
	return failed;
}

static bool toy_passes(uint64_t seed, void (*watch)(const char *name, uint64_t seed))
{
	char why[600];

	for (uint64_t i = 0; i < 20; i++) {
		watch("selftest-toy", seed + i);
		if (run_toy(TOY_NONE, seed + i, why, sizeof(why))) {
			printf("FAIL selftest-toy: seed %llu: %s\n", (unsigned long long)(seed + i),
			       why);
			return false;
		}
	}
	printf("PASS selftest-toy\n");
	return true;
}

static bool mutant_found(const struct mutant *m, uint64_t seed,
			 void (*watch)(const char *name, uint64_t seed))
{
	char why[600] = "";

	if (m->frees && ASAN)
		return true;
	/* Where the fault strikes depends on the seed, and not every place shows it. */
	for (uint64_t i = 0; i < 5; i++) {
		watch(m->name, seed + i);
		if (run_toy(m->fault, seed + i, why, sizeof(why)) && strstr(why, m->says))
			return true;
	}
	printf("FAIL selftest-%s: said \"%s\", not \"%s\"\n", m->name, why, m->says);
	return false;
}

/* ---- the HTTP/2 judge ------------------------------------------------------ */

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"
/* A header block on a stream: END_HEADERS, one indexed field. */
#define HEADERS(id) "\0\0\1\1\4\0\0\0" id "\x83"

static const struct bad_frames {
	const char *name;
	bool server; /* judged by an executor; else by a client whose streams 1 and 3 are open */
	const char *bytes;
	size_t len;
	const char *says;
} bad_frames[] = {
#define BAD(server, name, bytes, says)                                                             \
	{                                                                                          \
		name, server, bytes, sizeof(bytes) - 1, says                                       \
	}
	BAD(true, "preface", "PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n", "preface"),
	BAD(true, "settings-first", PREFACE HEADERS("\1"), "not SETTINGS"),
	BAD(true, "ids-go-down", PREFACE SETTINGS HEADERS("\5") HEADERS("\3"),
	    "stream 3 after stream 5"),
	BAD(true, "even-id", PREFACE SETTINGS HEADERS("\2"), "stream 2"),
	BAD(true, "too-many-streams",
	    PREFACE SETTINGS HEADERS("\1") HEADERS("\3") HEADERS("\5") HEADERS("\7"),
	    "MAX_CONCURRENT_STREAMS is 3"),
	BAD(true, "data-on-idle", PREFACE SETTINGS "\0\0\1\0\0\0\0\0\1x", "idle stream 1"),
	BAD(true, "data-beyond-window",
	    PREFACE SETTINGS HEADERS("\1") "\0\0\13\0\0\0\0\0\1"
					   "0123456789A",
	    "exceeds its window 10"),
	BAD(true, "push-promise", PREFACE SETTINGS HEADERS("\1") "\0\0\4\5\4\0\0\0\1\0\0\0\2",
	    "type 5"),
	BAD(true, "priority", PREFACE SETTINGS "\0\0\5\2\0\0\0\0\1\0\0\0\0\0", "type 2"),
	BAD(true, "unknown-setting", PREFACE "\0\0\6\4\0\0\0\0\0\xf0\xf0\0\0\0\1", "unknown id"),
	BAD(true, "settings-length", PREFACE "\0\0\5\4\0\0\0\0\0\0\1\0\0\0", "of 5 bytes"),
	BAD(true, "ack-with-payload", PREFACE SETTINGS "\0\0\6\4\1\0\0\0\0\0\1\0\0\0\0",
	    "with a payload"),
	BAD(true, "second-ack", PREFACE SETTINGS "\0\0\0\4\1\0\0\0\0\0\0\0\4\1\0\0\0\0",
	    "ACK for no SETTINGS"),
	BAD(false, "ping-ack",
	    SETTINGS "\0\0\10\6\1\0\0\0\0"
		     "12345678",
	    "for no PING"),
	BAD(false, "ping-on-stream",
	    SETTINGS "\0\0\10\6\0\0\0\0\1"
		     "12345678",
	    "on stream 1"),
	BAD(false, "update-of-zero", SETTINGS "\0\0\4\10\0\0\0\0\0\0\0\0\0", "WINDOW_UPDATE of 0"),
	BAD(false, "update-overflow", SETTINGS "\0\0\4\10\0\0\0\0\0\x7f\xff\xff\xff",
	    "WINDOW_UPDATE of 2147483647"),
	BAD(false, "update-on-idle", SETTINGS "\0\0\4\10\0\0\0\0\11\0\0\0\1", "idle stream 9"),
	BAD(false, "goaway-goes-up",
	    SETTINGS "\0\0\10\7\0\0\0\0\0\0\0\0\1\0\0\0\0"
		     "\0\0\10\7\0\0\0\0\0\0\0\0\3\0\0\0\0",
	    "raises the last stream"),
	BAD(false, "rst-on-idle", SETTINGS "\0\0\4\3\0\0\0\0\11\0\0\0\0", "idle stream 9"),
	BAD(false, "rst-twice",
	    SETTINGS "\0\0\4\3\0\0\0\0\1\0\0\0\0"
		     "\0\0\4\3\0\0\0\0\1\0\0\0\0",
	    "second RST_STREAM"),
	BAD(false, "data-after-rst",
	    SETTINGS "\0\0\4\3\0\0\0\0\1\0\0\0\0"
		     "\0\0\1\0\0\0\0\0\1x",
	    "after RST_STREAM"),
	BAD(false, "data-after-end",
	    SETTINGS "\0\0\0\0\1\0\0\0\1"
		     "\0\0\1\0\0\0\0\0\1x",
	    "after END_STREAM"),
	BAD(false, "frame-in-block",
	    SETTINGS "\0\0\1\1\0\0\0\0\1\x88"
		     "\0\0\1\0\0\0\0\0\1x",
	    "inside the header block"),
	BAD(false, "continuation", SETTINGS "\0\0\1\11\4\0\0\0\1\x88", "without HEADERS"),
	BAD(false, "padding", SETTINGS "\0\0\2\0\10\0\0\0\1\5x", "padding of 5"),
	BAD(false, "frame-size", SETTINGS "\0\x40\1\0\0\0\0\0\1", "MAX_FRAME_SIZE is 16384"),
	BAD(false, "hpack", SETTINGS "\0\0\1\1\4\0\0\0\1\xbe", "does not decode"),
	BAD(false, "push-setting", SETTINGS "\0\0\6\4\0\0\0\0\0\0\2\0\0\0\1", "ENABLE_PUSH"),
#undef BAD
};

static char judged[300];

static void note_bad(struct h2end *h, const char *what)
{
	(void)h;
	snprintf(judged, sizeof(judged), "%s", what);
}

static void no_head(struct h2end *h, struct h2stream *st, const struct fields *f, bool end)
{
	(void)h, (void)st, (void)f, (void)end;
}

static void no_data(struct h2end *h, struct h2stream *st, const uint8_t *p, size_t len, size_t flow,
		    bool end)
{
	(void)h, (void)st, (void)p, (void)len, (void)flow, (void)end;
}

static void no_reset(struct h2end *h, struct h2stream *st, uint32_t code)
{
	(void)h, (void)st, (void)code;
}

static void no_goaway(struct h2end *h, uint32_t last, uint32_t code)
{
	(void)h, (void)last, (void)code;
}

static void no_window(struct h2end *h)
{
	(void)h;
}

static void no_ping(struct h2end *h, const uint8_t data[8])
{
	(void)h, (void)data;
}

static const struct h2ops judge_ops = {
	.head = no_head,
	.data = no_data,
	.reset = no_reset,
	.goaway = no_goaway,
	.window = no_window,
	.ping = no_ping,
	.pong = no_ping,
	.bad = note_bad,
};

static bool judge_objects(const struct bad_frames *b)
{
	struct h2settings s = h2_defaults;
	struct h2end h;
	bool ok;

	judged[0] = 0;
	h2_init(&h, &judge_ops, NULL, b->server);
	if (b->server) {
		s.streams = 3;
		s.window = 10;
		h2_send_settings(&h, &s);
		/* As if acknowledged. */
		h.local = s;
		h.n_wait = !strcmp(b->name, "second-ack");
	} else {
		h2_open(&h, 1);
		h2_open(&h, 3);
	}
	/* A byte at a time: the judge must not depend on segments. */
	for (size_t i = 0; i < b->len; i++)
		h2_feed(&h, (const uint8_t *)b->bytes + i, 1);
	ok = strstr(judged, b->says);
	if (!ok)
		printf("FAIL selftest-frames-%s: said \"%s\", not \"%s\"\n", b->name, judged,
		       b->says);
	h2_free(&h);
	return ok;
}

unsigned selftest_run(uint64_t seed, void (*watch)(const char *name, uint64_t seed),
		      unsigned *total)
{
	unsigned failed = 0, missed = 0;

	scene_subject = &subject_toy;
	scene_splice = false;
	*total += 3;
	failed += !toy_passes(seed, watch);
	for (unsigned i = 0; i < ARRAY_SIZE(mutants); i++)
		missed += !mutant_found(&mutants[i], seed, watch);
	if (!missed)
		printf("PASS selftest-mutants\n");
	failed += missed;
	missed = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(bad_frames); i++)
		missed += !judge_objects(&bad_frames[i]);
	if (!missed)
		printf("PASS selftest-frames\n");
	return failed + missed;
}
