/* SPDX-License-Identifier: Apache-2.0 */
#include "obs/emit.h"

/* One row per event: level, message, and whether a peer can cause it at will. */
static const struct {
	const char *msg;
	enum config_log_level level;
	bool limited;
} events[EVENT_KINDS] = {
	[EVENT_CLIENT_OPEN] = { "client connected", LOG_DEBUG, false },
	[EVENT_CLIENT_CLOSED] = { "client closed", LOG_DEBUG, false },
	[EVENT_CLIENT_REFUSED] = { "client refused", LOG_WARN, true },
	[EVENT_CLIENT_ERROR] = { "client error", LOG_WARN, true },
	[EVENT_UPSTREAM_OPEN] = { "upstream connected", LOG_DEBUG, false },
	[EVENT_UPSTREAM_CLOSED] = { "upstream closed", LOG_DEBUG, false },
	[EVENT_UPSTREAM_ERROR] = { "upstream error", LOG_WARN, true },
	[EVENT_DRAIN] = { "draining", LOG_DEBUG, false },
	[EVENT_BUDGET] = { "budget exhausted", LOG_WARN, true },
};

static void add_ticket(struct log_line *l, const struct ticket *t)
{
	char executor[TICKET_HOST_MAX + 16];
	const char *fmt = strchr(t->host, ':') ? "[%s]:%u" : "%s:%u";

	snprintf(executor, sizeof(executor), fmt, t->host, t->port);
	log_str(l, "job", t->job);
	log_u64(l, "stage", t->stage);
	log_u64(l, "partition", t->partition);
	log_str(l, "executor", executor);
}

static enum config_log_level stream_level(const struct stream_record *r)
{
	bool well = r->end == END_CLIENT || (r->end == END_COMPLETE && r->grpc_status == GRPC_OK);

	return well ? LOG_INFO : LOG_WARN;
}

static void stream_done(void *ctx, const struct stream_record *r)
{
	const struct emit *e = ctx;
	struct log_line l;

	if (!log_begin(&l, e->log, stream_level(r), "stream"))
		return;
	log_str(&l, "method", r->method);
	if (r->ticket)
		add_ticket(&l, r->ticket);
	if (r->executor.len)
		log_addr(&l, "address", &r->executor);
	log_addr(&l, "client", &r->client);
	log_u64(&l, "stream", r->stream_id);
	log_u64(&l, "worker", e->worker);
	log_str(&l, "datapath", r->datapath);
	if (r->datapath_why && *r->datapath_why)
		log_str(&l, "datapath_why", r->datapath_why);
	log_u64(&l, "bytes", r->data_bytes);
	if (r->dropped_bytes)
		log_u64(&l, "dropped_bytes", r->dropped_bytes);
	if (r->first_byte_ns)
		log_ms(&l, "first_byte_ms", r->first_byte_ns);
	log_ms(&l, "duration_ms", r->duration_ns);
	log_str(&l, "grpc_status", r->grpc_status < 0 ? "none" : grpc_status_name(r->grpc_status));
	log_str(&l, "ended_by", stream_end_name(r->end));
	if (r->reason && *r->reason)
		log_str(&l, "reason", r->reason);
	log_u64(&l, "attempts", r->attempts);
	if (r->traceparent && *r->traceparent)
		log_str(&l, "traceparent", r->traceparent);
	log_end(&l);
}

static void event(void *ctx, const struct session_event *ev)
{
	const struct emit *e = ctx;
	struct log_line l;
	bool begun;

	if ((unsigned)ev->kind >= EVENT_KINDS)
		return;
	if (events[ev->kind].limited)
		begun = log_begin_limited(&l, e->log, events[ev->kind].level, events[ev->kind].msg,
					  ev->text);
	else
		begun = log_begin(&l, e->log, events[ev->kind].level, events[ev->kind].msg);
	if (!begun)
		return;
	if (ev->peer)
		log_addr(&l, "peer", ev->peer);
	if (*ev->text)
		log_str(&l, "reason", ev->text);
	if (ev->h2_error)
		log_u64(&l, "h2_error", ev->h2_error);
	log_u64(&l, "worker", e->worker);
	log_end(&l);
}

const struct emit_ops emit_log_ops = {
	.stream_done = stream_done,
	.event = event,
};
