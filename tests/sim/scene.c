/* SPDX-License-Identifier: Apache-2.0 */
#include "scene.h"

#include <stdlib.h>

#include "datapath/relay.h"
#include "h2/frame.h"
#include "peer_client.h"
#include "peer_exec.h"

/* What the ledger grants a stream whatever the caps say, so that none starves (ledger.h). */
#define STREAM_FLOOR (16 * KiB)

const struct subject_ops *scene_subject;
bool scene_splice;

/* ---- what the subject tells ---------------------------------------------- */

static void on_stream_done(void *ctx, const struct stream_record *r)
{
	struct scene *s = ctx;
	struct call *c = scene_find_stream(s, &r->client, r->stream_id);

	s->records++;
	world_log(s->w, "record: stream %u %s status %d \"%s\" bytes %llu dropped %llu attempts %u",
		  r->stream_id, stream_end_name(r->end), r->grpc_status, r->reason,
		  (unsigned long long)r->data_bytes, (unsigned long long)r->dropped_bytes,
		  r->attempts);
	if (!c) {
		world_fail(s->w, "a record of stream %u, which no client opened", r->stream_id);
		return;
	}
	if (!r->method || !r->reason || !r->datapath)
		world_fail(s->w, "a record without method, reason or datapath");
	if (r->ticket && (strcmp(r->ticket->host, c->host) || r->ticket->port != c->port))
		world_fail(s->w, "a record names executor %s:%u, the ticket %s:%u", r->ticket->host,
			   r->ticket->port, c->host, c->port);
	if (r->end == END_COMPLETE && !r->grpc_status && r->reason && r->reason[0])
		world_fail(s->w, "a complete stream has the reason \"%s\"", r->reason);
	if (r->end != END_COMPLETE && r->reason && !r->reason[0])
		world_fail(s->w, "a stream ended by %s without a reason", stream_end_name(r->end));
	c->records++;
	c->record_end = r->end;
	c->record_status = r->grpc_status;
	c->record_bytes = r->data_bytes;
	c->record_attempts = r->attempts;
}

static void on_event(void *ctx, const struct session_event *e)
{
	struct scene *s = ctx;

	if (e->kind >= EVENT_KINDS || !e->text) {
		world_fail(s->w, "an event of kind %d without text", e->kind);
		return;
	}
	s->events[e->kind]++;
	world_log(s->w, "event %d: %s (%u)", e->kind, e->text, e->h2_error);
}

static const struct emit_ops emit_ops = {
	.stream_done = on_stream_done,
	.event = on_event,
};

/* ---- building ------------------------------------------------------------ */

static void set_config(struct config *c)
{
	c->datapath = DATAPATH_RELAY;
	c->workers = 1;
	c->allow_loopback = true;
	c->unreachable_status = GRPC_UNKNOWN;
	c->timeouts = (struct timeouts){
		.connect_ns = 5 * NSEC_PER_SEC,
		.handshake_ns = 10 * NSEC_PER_SEC,
		.response_ns = 60 * NSEC_PER_SEC,
		.stall_ns = 30 * NSEC_PER_SEC,
		.client_ns = 300 * NSEC_PER_SEC,
		.idle_ns = 600 * NSEC_PER_SEC,
		.drain_ns = 300 * NSEC_PER_SEC,
	};
	c->limits = (struct limits){
		.max_clients = 1000,
		.max_streams = 100,
		.max_ticket = 65536,
		.client_inflight = 8 * MiB,
		.total_inflight = 256 * MiB,
		.promote_after = 0,
	};
}

struct scene *scene_new(uint64_t seed)
{
	struct scene *s = xalloc(sizeof(*s));

	s->w = world_new(seed);
	s->subject = scene_subject;
	s->splice = scene_splice;
	set_config(&s->config);
	if (s->splice)
		s->config.limits.promote_after = 20000;
	return s;
}

void scene_free(struct scene *s)
{
	world_detach(s->w);
	for (unsigned i = 0; i < s->n_clients; i++)
		caller_free(s->clients[i]);
	for (unsigned i = 0; i < s->n_execs; i++)
		exec_free(s->execs[i]);
	for (unsigned i = 0; i < s->n_calls; i++)
		call_free(s->calls[i]);
	world_free(s->w);
	free(s->clients);
	free(s->execs);
	free(s->calls);
	free(s);
}

struct rng *scene_rng(struct scene *s)
{
	return world_rng(s->w);
}

uint64_t scene_now(const struct scene *s)
{
	return world_now(s->w);
}

struct call *scene_call(struct scene *s, const char *host, uint32_t port, uint64_t total)
{
	struct call *c = call_new(s->n_calls + 1, host, port);

	c->answer[0].total = total;
	call_ticket(c, NULL, 0);
	s->calls = xgrow(s->calls, (s->n_calls + 1) * sizeof(*s->calls));
	s->calls[s->n_calls++] = c;
	return c;
}

struct call *scene_find(struct scene *s, uint32_t key)
{
	return key && key <= s->n_calls ? s->calls[key - 1] : NULL;
}

struct call *scene_find_stream(struct scene *s, const struct addr *client, uint32_t stream)
{
	for (unsigned i = 0; i < s->n_calls; i++)
		if (s->calls[i]->stream == stream && stream &&
		    addr_equal(&s->calls[i]->client, client))
			return s->calls[i];
	return NULL;
}

/* ---- what holds at any time ---------------------------------------------- */

static uint64_t dropped_sum(const struct session_stats *st)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < DROP_REASONS; i++)
		sum += st->dropped[i];
	return sum;
}

static uint64_t ended_sum(const struct session_stats *st)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < END_REASONS; i++)
		sum += st->streams_ended[i];
	return sum;
}

static void check_gauges(struct scene *s)
{
	const struct session_stats *st = scene_stats(s);
	uint64_t memory;

	/* A stream that was answered before the client ended its half is still open. */
	if (st->streams_opened - ended_sum(st) > st->streams_open)
		world_fail(s->w, "stats: %llu streams opened, %llu ended, %llu open",
			   (unsigned long long)st->streams_opened,
			   (unsigned long long)ended_sum(st), (unsigned long long)st->streams_open);
	if (ended_sum(st) != s->records)
		world_fail(s->w, "stats: %llu streams ended, %llu records",
			   (unsigned long long)ended_sum(st), (unsigned long long)s->records);
	if (st->data_out + dropped_sum(st) > st->data_in)
		world_fail(s->w, "stats: data_out %llu + dropped %llu > data_in %llu",
			   (unsigned long long)st->data_out, (unsigned long long)dropped_sum(st),
			   (unsigned long long)st->data_in);
	/* Bytes in memory: held for a window, or queued for a socket. */
	memory = st->data_in - st->data_out - dropped_sum(st);
	if (st->held > memory)
		world_fail(s->w, "stats: held %llu, %llu bytes are in memory",
			   (unsigned long long)st->held, (unsigned long long)memory);
	if (st->granted + memory > s->env.inflight_share + st->streams_open * STREAM_FLOOR)
		world_fail(s->w, "stats: granted %llu + in memory %llu exceed the worker's share",
			   (unsigned long long)st->granted, (unsigned long long)memory);
}

/*
 * What executors may still send for a client, plus what they have sent and the
 * client has not received, seen from outside the proxy. Bytes on their way to
 * the client have left the proxy's care.
 */
static int64_t outstanding(struct scene *s, struct caller *c)
{
	int64_t sum = 0;

	for (unsigned i = 0; i < s->n_calls; i++) {
		struct call *call = s->calls[i];

		/*
		 * With its record written the proxy has let go of it, executor and client may lag;
		 * so may an executor that was given up for another attempt.
		 */
		if (call->records || !call->x_stream ||
		    (call->must == MUST_END && scene_stats(s)->retries) ||
		    !addr_equal(&call->client, caller_addr(c)) || call_over(call))
			continue;
		sum += max_i64(0, call->x_stream->send_win) +
		       (int64_t)(call->x_bytes - min_u64(call->bytes, call->x_bytes));
	}
	return sum;
}

static void check_credit(struct scene *s)
{
	for (unsigned i = 0; i < s->n_clients; i++) {
		struct caller *c = s->clients[i];
		int64_t out, cap = (int64_t)s->config.limits.client_inflight;

		if (caller_gone(c))
			continue;
		cap += (int64_t)(caller_open_calls(c) * STREAM_FLOOR);
		/*
		 * The kernel counts a frame when its header passes; the rest of that one frame is
		 * then neither credit nor on its way to the client yet.
		 */
		if (s->env.splice)
			cap += H2_HEADER_LEN + H2_DEFAULT_FRAME_SIZE;
		out = outstanding(s, c) - (int64_t)sock_pending(caller_sock(c)) -
		      (int64_t)caller_h2(c)->in.len;
		if (out > cap)
			world_fail(s->w,
				   "credit: %lld bytes granted or held for one client, cap %lld",
				   (long long)out, (long long)cap);
	}
}

static void check(void *arg)
{
	struct scene *s = arg;

	if (!s->w || !s->started)
		return;
	check_gauges(s);
	if (!s->no_ledger)
		check_credit(s);
	if (world_dialled_ports(s->w) > s->most_upstreams)
		s->most_upstreams = world_dialled_ports(s->w);
}

const struct session_stats *scene_stats(const struct scene *s)
{
	return world_stats(s->w);
}

/* ---- running ------------------------------------------------------------- */

void scene_start(struct scene *s)
{
	s->env = (struct env){
		.ops = &world_env_ops,
		.emit = &emit_ops,
		.ctx = s->w,
		.emit_ctx = s,
		.config = &s->config,
		.inflight_share = s->config.limits.total_inflight,
		.relay = &datapath_relay,
	};
	if (s->splice) {
		s->config.datapath = DATAPATH_SOCKMAP;
		s->env.splice = &world_splice_ops;
		s->env.splice_ctx = s->w;
	} else {
		s->env.splice_why = "not in this scene";
	}
	world_attach(s->w, s->subject, &s->env);
	s->started = true;
	world_set_check(s->w, check, s);
}

void scene_wait(struct scene *s, uint64_t ns)
{
	world_run(s->w, world_now(s->w) + ns, NULL, NULL);
}

bool scene_until(struct scene *s, uint64_t ns, bool (*done)(void *arg), void *arg, const char *what)
{
	int rc = world_run(s->w, world_now(s->w) + ns, done, arg);
	char buf[500] = "";

	if (!rc)
		return true;
	for (unsigned i = 0; i < s->n_calls && !buf[0]; i++)
		if (s->calls[i]->stream && !call_over(s->calls[i]))
			call_describe(s->calls[i], buf, sizeof(buf));
	world_fail(s->w, "%s: %s%s%s", rc == -EDEADLK ? "dead stall" : "stall", what,
		   buf[0] ? "; " : "", buf);
	return false;
}

bool scene_calls_over(void *scene)
{
	struct scene *s = scene;

	for (unsigned i = 0; i < s->n_calls; i++)
		if (!call_over(s->calls[i]))
			return false;
	return true;
}

bool scene_run(struct scene *s, uint64_t ns)
{
	return scene_until(s, ns, scene_calls_over, s, "a call has not ended");
}

/* ---- the end ------------------------------------------------------------- */

static bool clients_gone(void *arg)
{
	struct scene *s = arg;
	const struct session_stats *st = scene_stats(s);

	return !st->clients_open && !st->streams_open &&
	       world_ports(s->w) == world_dialled_ports(s->w);
}

static bool all_quiet(void *arg)
{
	struct scene *s = arg;

	return !world_ports(s->w) && !world_dials(s->w);
}

static void check_totals(struct scene *s)
{
	const struct session_stats *st = scene_stats(s);
	uint64_t told = st->streams_reset, sent = 0, closed = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(st->streams_status); i++)
		told += st->streams_status[i];
	for (unsigned i = 0; i < s->n_calls; i++)
		sent += s->calls[i]->stream != 0;
	if (st->data_in != st->data_out + dropped_sum(st))
		world_fail(s->w, "stats: data_in %llu != data_out %llu + dropped %llu",
			   (unsigned long long)st->data_in, (unsigned long long)st->data_out,
			   (unsigned long long)dropped_sum(st));
	if (st->streams_open || st->clients_open || st->upstreams_open || st->upstreams_idle)
		world_fail(s->w, "stats: %llu streams, %llu clients, %llu + %llu upstreams left",
			   (unsigned long long)st->streams_open,
			   (unsigned long long)st->clients_open,
			   (unsigned long long)st->upstreams_open,
			   (unsigned long long)st->upstreams_idle);
	if (st->granted || st->held)
		world_fail(s->w, "stats: granted %llu, held %llu left",
			   (unsigned long long)st->granted, (unsigned long long)st->held);
	if (told != st->streams_opened)
		world_fail(s->w, "stats: %llu streams opened, %llu with a status or reset",
			   (unsigned long long)st->streams_opened, (unsigned long long)told);
	if (st->streams_opened > sent)
		world_fail(s->w, "stats: %llu streams opened, clients sent %llu",
			   (unsigned long long)st->streams_opened, (unsigned long long)sent);
	closed = s->events[EVENT_CLIENT_CLOSED];
	if (s->events[EVENT_CLIENT_OPEN] != closed)
		world_fail(s->w, "events: %llu clients opened, %llu closed",
			   (unsigned long long)s->events[EVENT_CLIENT_OPEN],
			   (unsigned long long)closed);
	closed = s->events[EVENT_UPSTREAM_CLOSED];
	if (s->events[EVENT_UPSTREAM_OPEN] != closed)
		world_fail(s->w, "events: %llu upstreams opened, %llu closed",
			   (unsigned long long)s->events[EVENT_UPSTREAM_OPEN],
			   (unsigned long long)closed);
}

void scene_finish(struct scene *s)
{
	if (s->unjudged || world_failure(s->w)) {
		world_detach(s->w);
		return;
	}
	for (unsigned i = 0; i < s->n_clients; i++)
		caller_hangup(s->clients[i], HANGUP_FIN);
	scene_until(s, 1200 * NSEC_PER_SEC, clients_gone, s, "clients hung up, still served");
	scene_until(s, 1800 * NSEC_PER_SEC, all_quiet, s, "no clients, upstreams stay");
	/* Whatever is still on its way, and timers that should not be there. */
	scene_wait(s, 60 * NSEC_PER_SEC);
	if (world_subject_deadline(s->w) != UINT64_MAX)
		world_fail(s->w, "a timer is left with nothing to wait for");
	if (world_failure(s->w)) {
		world_detach(s->w);
		return;
	}
	check_totals(s);
	for (unsigned i = 0; i < s->n_calls; i++)
		call_judge(s->w, s->calls[i]);
	world_detach(s->w);
}
