/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.c - runs in which the seed chooses everything: limits, links, what the
 * executors do, what the clients do, who fails and when.
 *
 * Executors come in two kinds. A good one answers every call as scripted, and
 * its connections live; a call to it from a client that behaves must come to
 * exactly the scripted end. A bad one breaks rules and connections, so that
 * its other calls may suffer; what is demanded of them is that they end, and
 * honestly. That a bad executor or client never harms others follows from the
 * demands on the good ones.
 */
#include "random.h"

#include <stdio.h>
#include <stdlib.h>

#include "peer_client.h"
#include "peer_exec.h"

#define EXECS_MAX 4
#define CLIENTS_MAX 4
#define CALLS_MAX 12

struct run {
	struct scene *s;
	struct rng *r;
	char names[EXECS_MAX][16];
	bool bad_exec[EXECS_MAX], slow_exec[EXECS_MAX];
	unsigned n_execs;
	uint64_t budget; /* body bytes left for this run */
};

static struct link random_link(struct rng *r)
{
	struct link l = {
		.buffer = (uint32_t)rng_scale(r, 1024, 1 << 20),
		.latency_ns = rng_scale(r, 1000, 20 * NSEC_PER_MSEC),
		.jitter_ns = rng_chance(r, 50) ? rng_scale(r, 1000, 5 * NSEC_PER_MSEC) : 0,
	};

	if (rng_chance(r, 30))
		l.chunk = (uint32_t)rng_scale(r, 1, 32768);
	/* Tiny steps of tiny buffers over a long way would take for ever. */
	if (l.chunk && l.chunk < 256)
		l.latency_ns = min_u64(l.latency_ns, 50000);
	if (rng_chance(r, 10))
		l.eagain_percent = 20;
	return l;
}

static void random_config(struct run *run)
{
	struct config *c = &run->s->config;
	struct rng *r = run->r;

	c->limits.client_inflight = rng_scale(r, CONFIG_INFLIGHT_MIN, 8 * MiB);
	c->limits.total_inflight = rng_scale(r, 1 * MiB, 256 * MiB);
	if (rng_chance(r, 10))
		c->limits.max_streams = (uint32_t)rng_range(r, 1, 4);
	if (rng_chance(r, 40)) {
		run->s->splice = true;
		c->limits.promote_after = rng_scale(r, 1, 256 * KiB);
		world_set_splice_refusals(run->s->w, rng_chance(r, 20) ? 40 : 0);
	} else {
		run->s->splice = false;
	}
	if (rng_chance(r, 10))
		c->unreachable_status = GRPC_UNAVAILABLE;
}

static void random_exec(struct run *run, unsigned i)
{
	struct exec_plan p = exec_plan_default;
	struct rng *r = run->r;

	snprintf(run->names[i], sizeof(run->names[i]), "exec%u", i);
	p.name = run->names[i];
	p.link = random_link(r);
	p.dial_ns = rng_scale(r, 1000, 50 * NSEC_PER_MSEC);
	p.encoding = (enum h2_encoding)rng_below(r, ENCODE_DEFIANT);
	p.settings.window = rng_chance(r, 20) ? (uint32_t)rng_scale(r, 1000, 65535) : 1u << 20;
	p.conn_window = rng_chance(r, 20) ? 65535 : 1u << 20;
	if (rng_chance(r, 20))
		p.settings.frame = (uint32_t)rng_scale(r, 16384, 1 << 20);
	if (rng_chance(r, 30))
		p.settings.streams = (uint32_t)rng_range(r, 1, 3);
	if (rng_chance(r, 20))
		p.settings_delay_ns = rng_scale(r, 1000, 2 * NSEC_PER_SEC);
	if (rng_chance(r, 20))
		p.ping_gap_ns = rng_scale(r, 10 * NSEC_PER_MSEC, 10 * NSEC_PER_SEC);
	p.junk = rng_chance(r, 20);
	p.polite = rng_chance(r, 50);
	if (rng_chance(r, 10))
		p.lower_streams_ns = rng_scale(r, NSEC_PER_MSEC, NSEC_PER_SEC);
	if (run->bad_exec[i]) {
		static const enum dial_outcome failures[] = { DIAL_REFUSED,   DIAL_BLACKHOLE,
							      DIAL_NO_HOST,   DIAL_TRY_AGAIN,
							      DIAL_DENIED,    DIAL_NO_FDS,
							      DIAL_UNROUTABLE };

		if (rng_chance(r, 30))
			p.encoding = ENCODE_DEFIANT;
		for (p.n_dial = 0; rng_chance(r, 30) && p.n_dial < 6; p.n_dial++)
			p.dial[p.n_dial] = rng_chance(r, 50)
						   ? DIAL_OK
						   : failures[rng_below(r, ARRAY_SIZE(failures))];
		if (rng_chance(r, 10))
			p.settings_delay_ns = NEVER;
		if (rng_chance(r, 30)) {
			p.death = (enum exec_death)rng_range(r, DEATH_FIN, DEATH_KILL);
			p.die_ns = rng_scale(r, 1000, NSEC_PER_SEC);
			p.death_conns = (unsigned)rng_below(r, 3);
		}
		if (rng_chance(r, 30)) {
			p.goaway_after = (unsigned)rng_range(r, 1, 4);
			p.goaway_conns = (unsigned)rng_below(r, 3);
		}
		p.no_pong = rng_chance(r, 10);
		p.deaf = rng_chance(r, 5);
		if (rng_chance(r, 10))
			p.read_gap_ns = rng_scale(r, NSEC_PER_MSEC, NSEC_PER_SEC);
	}
	exec_new(run->s, &p);
}

static void random_end(struct run *run, struct answer *a, bool bad)
{
	static const char *const texts[] = { NULL, "no such file", "100% wrong",
					     "IoError(\"disk\")" };
	static const uint32_t codes[] = { NGHTTP2_NO_ERROR, NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR,
					  NGHTTP2_REFUSED_STREAM, NGHTTP2_ENHANCE_YOUR_CALM };
	struct rng *r = run->r;

	a->kind = bad ? (enum answer_kind)rng_below(r, ANSWER_KINDS)
		      : (enum answer_kind)rng_below(r, ANSWER_RST);
	a->cut = rng_chance(r, 30) ? a->total : rng_below(r, a->total + 1);
	a->status = (int)rng_range(r, 1, 16);
	a->message = texts[rng_below(r, ARRAY_SIZE(texts))];
	a->code = codes[rng_below(r, ARRAY_SIZE(codes))];
	a->no_head = rng_chance(r, 20);
	a->mid_frame = rng_chance(r, 50);
	a->violation = (enum violation)rng_below(r, VIOLATIONS);
	if (a->kind == ANSWER_VIOLATION && a->violation == BREAK_DATA_FIRST)
		a->no_head = true;
	if (a->kind == ANSWER_OK || a->kind == ANSWER_STATUS)
		a->no_head = false;
	if (a->no_head)
		a->cut = 0;
}

static void random_answer(struct run *run, struct answer *a, bool bad)
{
	struct rng *r = run->r;

	a->total = rng_chance(r, 10) ? 0 : rng_scale(r, 1, max_u64(2, run->budget));
	run->budget -= min_u64(run->budget, a->total);
	if (rng_chance(r, 30))
		a->frame = (uint32_t)rng_scale(r, 1 + a->total / 4000, 16384);
	if (rng_chance(r, 20))
		a->pad_percent = (unsigned)rng_below(r, 60);
	if (rng_chance(r, 20))
		a->empty_percent = (unsigned)rng_below(r, 40);
	if (rng_chance(r, 10))
		a->fragment = (uint32_t)rng_scale(r, 8, 200);
	if (rng_chance(r, 20))
		a->head_delay_ns = rng_scale(r, 1000, 20 * NSEC_PER_SEC);
	if (rng_chance(r, 15))
		a->gap_ns = rng_scale(r, 1000, 10 * NSEC_PER_MSEC);
	if (rng_chance(r, 10))
		a->end_delay_ns = rng_scale(r, 1000, 40 * NSEC_PER_SEC);
	a->rst_after = rng_chance(r, 5);
	if (rng_chance(r, bad ? 60 : 25))
		random_end(run, a, bad);
}

static void demand(struct run *run, struct call *c, unsigned exec, bool good_client)
{
	const struct answer *a = &c->answer[0];

	c->must = MUST_END;
	/* One of the client's executors may die inside a frame that the kernel has begun. */
	for (unsigned i = 0; run->s->splice && i < run->n_execs; i++)
		c->may_be_lost |= run->bad_exec[i];
	if (run->bad_exec[exec] || !good_client)
		return;
	switch (a->kind) {
	case ANSWER_OK:
		c->must = MUST_OK;
		break;
	case ANSWER_STATUS:
	case ANSWER_TRAILERS_ONLY:
		c->must = MUST_STATUS;
		c->must_status = a->status;
		break;
	default:
		c->must = MUST_FAIL;
		break;
	}
}

static struct call *random_call(struct run *run, bool good_client)
{
	struct rng *r = run->r;
	unsigned exec = (unsigned)rng_below(r, run->n_execs);
	struct call *c = scene_call(run->s, run->names[exec], 50051, 0);

	call_ticket(c, r, rng_chance(r, 10) ? (uint32_t)rng_below(r, 40000) : 0);
	random_answer(run, &c->answer[0], run->bad_exec[exec]);
	if (run->bad_exec[exec] && rng_chance(r, 50)) {
		c->n_answers = 2;
		random_answer(run, &c->answer[1], rng_chance(r, 50));
	}
	c->ask.start_ns = rng_chance(r, 60) ? 0 : rng_scale(r, 1000, 3 * NSEC_PER_SEC);
	if (rng_chance(r, 20))
		c->ask.message_pieces = (uint32_t)rng_range(r, 2, 9);
	c->ask.end_on_data = rng_chance(r, 20);
	c->ask.metadata = rng_chance(r, 10);
	if (rng_chance(r, 10))
		c->ask.fragment = (uint32_t)rng_scale(r, c->ask.metadata ? 200 : 16, 300);
	if (rng_chance(r, 10))
		c->ask.hold_ns = rng_scale(r, NSEC_PER_MSEC, 5 * NSEC_PER_SEC);
	if (rng_chance(r, 15)) {
		if (rng_chance(r, 50))
			c->ask.cancel_after = rng_below(r, c->answer[0].total + 1);
		else
			c->ask.cancel_ns = rng_scale(r, 1000, 2 * NSEC_PER_SEC);
	}
	demand(run, c, exec, good_client);
	/* An executor that is silent but answers PINGs may take as long as it likes. */
	for (unsigned i = 0; i < c->n_answers; i++)
		if ((c->answer[i].kind == ANSWER_SILENT || c->answer[i].kind == ANSWER_VIOLATION) &&
		    c->ask.cancel_ns == NEVER)
			c->ask.cancel_ns = 100 * NSEC_PER_SEC;
	if (rng_chance(r, 5)) {
		c->ask.timeout = rng_chance(r, 50) ? "200m" : "3S";
		if (c->must == MUST_OK || c->must == MUST_STATUS)
			c->must = MUST_END;
	}
	return c;
}

static void random_windows(struct rng *r, struct caller_plan *p, bool good)
{
	/* Small windows over long links: bounded by the number of round trips. */
	p->settings.window = (uint32_t)rng_scale(r, 1, 4 << 20);
	if (rng_chance(r, 5))
		p->settings.window = 0;
	p->conn_window = (uint32_t)rng_scale(r, 65535, 8 << 20);
	p->grant = (enum grant_mode)rng_below(r, good ? GRANT_NEVER : GRANT_NEVER + 1);
	p->grant_conn = (enum grant_mode)rng_below(r, good ? GRANT_NEVER : GRANT_NEVER + 1);
	p->dribble = (uint32_t)rng_scale(r, 64, 65536);
	if (rng_chance(r, 20))
		p->grant_delay_ns = rng_scale(r, 1000, 20 * NSEC_PER_MSEC);
	p->settings.table = rng_chance(r, 50) ? 4096 : (uint32_t)rng_below(r, 200);
	if (rng_chance(r, 20))
		p->settings.frame = (uint32_t)rng_scale(r, 16384, 1 << 20);
	if (rng_chance(r, 20)) {
		p->settings_gap_ns = rng_scale(r, NSEC_PER_MSEC, NSEC_PER_SEC);
		p->settings_changes = (unsigned)rng_range(r, 1, 12);
	}
}

static void random_client(struct run *run)
{
	struct caller_plan p = caller_plan_default;
	struct rng *r = run->r;
	bool good = rng_chance(r, 70);
	unsigned n = rng_chance(r, 40) ? 1 : (unsigned)rng_range(r, 1, CALLS_MAX);
	struct caller *c;

	p.link = random_link(r);
	random_windows(r, &p, good);
	if (rng_chance(r, 20)) {
		p.read_chunk = (uint32_t)rng_scale(r, 256, 65536);
		p.read_gap_ns = rng_scale(r, 1000, 5 * NSEC_PER_MSEC);
	}
	if (rng_chance(r, 15)) {
		p.write_chunk = (uint32_t)rng_scale(r, 1, 100);
		p.write_gap_ns = rng_scale(r, 1000, 100000);
	}
	if (rng_chance(r, 20))
		p.ping_gap_ns = rng_scale(r, 10 * NSEC_PER_MSEC, 5 * NSEC_PER_SEC);
	p.junk = rng_chance(r, 15);
	p.patient = rng_chance(r, 20);
	p.hangup = (enum hangup)rng_range(r, HANGUP_GOODBYE, HANGUP_RST);
	if (!good) {
		if (rng_chance(r, 40))
			p.hangup_ns = rng_scale(r, 1000, 2 * NSEC_PER_SEC);
		if (rng_chance(r, 30)) {
			p.stop_ns = rng_scale(r, 1000, NSEC_PER_SEC);
			/* It does not read, so it does not see that it was cut off. */
			if (p.hangup_ns == NEVER)
				p.hangup_ns = 2000 * NSEC_PER_SEC;
		}
		p.ignore_limit = rng_chance(r, 20);
	}
	world_log(run->s->w,
		  "client: good %d link %u/%u/%llu us window %u conn %u grant %d/%d dribble %u "
		  "read %u/%llu us "
		  "write %u/%llu us grant delay %llu us",
		  good, p.link.buffer, p.link.chunk, (unsigned long long)p.link.latency_ns / 1000,
		  p.settings.window, p.conn_window, p.grant, p.grant_conn, p.dribble, p.read_chunk,
		  (unsigned long long)p.read_gap_ns / 1000, p.write_chunk,
		  (unsigned long long)p.write_gap_ns / 1000,
		  (unsigned long long)p.grant_delay_ns / 1000);
	c = caller_new(run->s, &p);
	for (unsigned i = 0; i < n; i++)
		caller_add(c, random_call(run, good));
}

static void heal_then_end(void *arg)
{
	world_drain(arg);
}

char *random_run(uint64_t seed)
{
	struct run run = { .s = scene_new(seed) };
	struct scene *s = run.s;
	char *why = NULL;
	unsigned n;

	run.r = scene_rng(s);
	run.budget = rng_chance(run.r, 20) ? 4 * MiB : 400 * KiB;
	random_config(&run);
	world_set_spurious(s->w, rng_chance(run.r, 30) ? 30 : 2);
	run.n_execs = (unsigned)rng_range(run.r, 1, EXECS_MAX);
	for (unsigned i = 0; i < run.n_execs; i++) {
		run.bad_exec[i] = rng_chance(run.r, 40);
		random_exec(&run, i);
	}
	scene_start(s);
	n = (unsigned)rng_range(run.r, 1, CLIENTS_MAX);
	for (unsigned i = 0; i < n; i++) {
		random_client(&run);
		if (rng_chance(run.r, 50))
			scene_wait(s, rng_scale(run.r, 1000, NSEC_PER_SEC));
	}
	if (rng_chance(run.r, 5)) {
		/* A second SIGTERM: everything is open, nothing may leak. */
		scene_wait(s, rng_scale(run.r, 1000, NSEC_PER_SEC));
		s->unjudged = true;
	} else {
		if (rng_chance(run.r, 5))
			world_at(s->w, scene_now(s) + rng_scale(run.r, 1000, NSEC_PER_SEC),
				 heal_then_end, s->w);
		scene_run(s, 3600 * NSEC_PER_SEC);
	}
	scene_finish(s);
	if (world_failure(s->w)) {
		why = xalloc(strlen(world_failure(s->w)) + 1);
		memcpy(why, world_failure(s->w), strlen(world_failure(s->w)));
	}
	scene_free(s);
	return why;
}
