/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.c - copies of live streams and executors, and their JSON.
 *
 * The copying is on the worker's thread, between two turns of its loop, so a row is
 * plain memory and the array doubles; JSON is made on the admin server's thread.
 */
#include "obs/streams.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

struct row {
	struct stream_view v; /* its ticket points nowhere; see has_ticket */
	struct ticket ticket;
	bool has_ticket;
	/* State names are static, but only promised for the callback. */
	char state[24], waits_for[32], datapath[16];
};

/* An executor as tickets name it, whichever workers use it. */
struct executor_row {
	char host[TICKET_HOST_MAX + 1];
	uint16_t port;
	uint64_t idle, dialling, served, unused_ns;
};

struct streams {
	struct row *rows;
	unsigned n, cap;
	uint64_t omitted;
	struct executor_row *executors;
	unsigned n_executors, cap_executors;
	uint64_t executors_omitted;
};

struct streams *streams_new(void)
{
	return calloc(1, sizeof(struct streams));
}

void streams_free(struct streams *s)
{
	if (!s)
		return;
	free(s->rows);
	free(s->executors);
	free(s);
}

unsigned streams_count(const struct streams *s)
{
	return s->n;
}

/* Room for one more, at most STREAMS_MAX. */
static bool reserve(struct streams *s, unsigned n)
{
	unsigned cap = s->cap ? s->cap : 64;
	struct row *rows;

	if (n > STREAMS_MAX)
		return false;
	while (cap < n)
		cap *= 2;
	if (cap == s->cap)
		return true;
	rows = reallocarray(s->rows, cap, sizeof(*rows));
	if (!rows)
		return false;
	s->rows = rows;
	s->cap = cap;
	return true;
}

static struct executor_row *find_executor(const struct streams *s, const char *host, uint16_t port)
{
	for (unsigned i = 0; i < s->n_executors; i++)
		if (s->executors[i].port == port && !strcasecmp(s->executors[i].host, host))
			return &s->executors[i];
	return NULL;
}

/* Room for one more, at most STREAMS_EXECUTORS_MAX. */
static bool reserve_executor(struct streams *s)
{
	unsigned cap = s->cap_executors ? 2 * s->cap_executors : 16;
	struct executor_row *rows;

	if (s->n_executors == STREAMS_EXECUTORS_MAX)
		return false;
	if (s->n_executors < s->cap_executors)
		return true;
	rows = reallocarray(s->executors, cap, sizeof(*rows));
	if (!rows)
		return false;
	s->executors = rows;
	s->cap_executors = cap;
	return true;
}

static void add_executor(struct streams *s, const struct executor_row *x)
{
	struct executor_row *known = find_executor(s, x->host, x->port);

	if (known) {
		known->idle += x->idle;
		known->dialling += x->dialling;
		known->served += x->served;
		known->unused_ns = min_u64(known->unused_ns, x->unused_ns);
		return;
	}
	if (reserve_executor(s))
		s->executors[s->n_executors++] = *x;
	else
		s->executors_omitted++;
}

void streams_add_executor(void *arg, const struct executor_view *v)
{
	struct executor_row x = { .port = v->port,
				  .idle = v->idle,
				  .dialling = v->dialling_ahead,
				  .served = v->served,
				  .unused_ns = v->unused_ns };

	snprintf(x.host, sizeof(x.host), "%s", v->host);
	add_executor(arg, &x);
}

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

void streams_add(void *arg, const struct stream_view *v)
{
	struct streams *s = arg;
	struct row *r;

	if (!reserve(s, s->n + 1)) {
		s->omitted++;
		return;
	}
	r = &s->rows[s->n++];
	r->v = *v;
	r->v.ticket = NULL;
	r->has_ticket = v->ticket != NULL;
	if (v->ticket)
		r->ticket = *v->ticket;
	copy_text(r->state, sizeof(r->state), v->state);
	copy_text(r->waits_for, sizeof(r->waits_for), v->waits_for);
	copy_text(r->datapath, sizeof(r->datapath), v->datapath);
}

void streams_merge(struct streams *to, struct streams *from)
{
	unsigned room = STREAMS_MAX - to->n, n = from->n < room ? from->n : room;

	if (n && !reserve(to, to->n + n))
		n = 0;
	if (n)
		memcpy(to->rows + to->n, from->rows, n * sizeof(*from->rows));
	to->n += n;
	to->omitted += from->omitted + (from->n - n);
	from->n = 0;
	from->omitted = 0;
	for (unsigned i = 0; i < from->n_executors; i++)
		add_executor(to, &from->executors[i]);
	to->executors_omitted += from->executors_omitted;
	from->n_executors = 0;
	from->executors_omitted = 0;
}

/* Takes over value (NULL: out of memory, or text that is not UTF-8). */
static bool put(json_t *object, const char *key, json_t *value)
{
	return value && !json_object_set_new_nocheck(object, key, value);
}

static bool put_text(json_t *object, const char *key, const char *text)
{
	json_t *value = json_string(text);

	return put(object, key, value ? value : json_string_nocheck("?"));
}

static bool put_number(json_t *object, const char *key, uint64_t n)
{
	return put(object, key, json_integer((json_int_t)min_u64(n, INT64_MAX)));
}

static bool put_ms(json_t *object, const char *key, uint64_t ns)
{
	return put(object, key, json_real((double)ns / (double)NSEC_PER_MSEC));
}

static bool put_ticket(json_t *o, const struct ticket *t)
{
	return put_text(o, "host", t->host) && put_number(o, "port", t->port) &&
	       put_text(o, "job", t->job) && put_number(o, "stage", t->stage) &&
	       put_number(o, "partition", t->partition);
}

static json_t *row_json(const struct row *r)
{
	json_t *o = json_object();
	char buf[ADDR_STRLEN];
	bool ok = o && put_text(o, "client", addr_format(&r->v.client, buf)) &&
		  put_number(o, "stream", r->v.stream_id) &&
		  (!r->has_ticket || put_ticket(o, &r->ticket));

	if (ok && r->v.executor.len)
		ok = put_text(o, "address", addr_format(&r->v.executor, buf));
	ok = ok && put_text(o, "state", r->state) && put_text(o, "waits_for", r->waits_for) &&
	     put_text(o, "datapath", r->datapath) && put_number(o, "bytes", r->v.data_bytes) &&
	     put_number(o, "granted_bytes", r->v.granted) &&
	     put_number(o, "held_bytes", r->v.held) && put_ms(o, "age_ms", r->v.age_ns) &&
	     put_ms(o, "quiet_ms", r->v.quiet_ns);
	if (!ok) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* {"<name>":[...],"omitted":N,"workers_missing":N} as text; takes over list. */
static char *list_json(const char *name, json_t *list, uint64_t omitted, unsigned workers_missing)
{
	json_t *root = json_object();
	char *text = NULL;

	if (root && put(root, name, list ? json_incref(list) : NULL) &&
	    put_number(root, "omitted", omitted) &&
	    put_number(root, "workers_missing", workers_missing))
		text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(12));
	json_decref(list);
	json_decref(root);
	return text;
}

char *streams_json(const struct streams *s, unsigned workers_missing)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < s->n; i++) {
		if (!json_array_append_new(list, row_json(&s->rows[i])))
			continue;
		json_decref(list);
		list = NULL;
	}
	return list_json("streams", list, s->omitted, workers_missing);
}

/* What the live streams of one executor come to. */
struct load {
	uint64_t streams, unconnected, for_executor, for_client, bytes, granted, held, longest_ns;
};

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

static void add_load(struct load *l, const struct row *r)
{
	bool for_executor = begins(r->waits_for, "executor");

	l->streams++;
	l->unconnected += !strcmp(r->waits_for, stream_wait_name(WAIT_CONNECTION));
	l->for_executor += for_executor;
	l->for_client += begins(r->waits_for, "client");
	l->bytes += r->v.data_bytes;
	l->granted += r->v.granted;
	l->held += r->v.held;
	if (for_executor)
		l->longest_ns = max_u64(l->longest_ns, r->v.quiet_ns);
}

static json_t *executor_json(const struct executor_row *x, const struct load *l)
{
	char name[TICKET_HOST_MAX + 16];
	json_t *o = json_object();

	snprintf(name, sizeof(name), strchr(x->host, ':') ? "[%s]:%u" : "%s:%u", x->host, x->port);
	if (o && put_text(o, "executor", name) && put_number(o, "streams", l->streams) &&
	    put_number(o, "unconnected", l->unconnected) &&
	    put_number(o, "waiting_for_executor", l->for_executor) &&
	    put_number(o, "waiting_for_client", l->for_client) &&
	    put_ms(o, "longest_wait_ms", l->longest_ns) && put_number(o, "bytes", l->bytes) &&
	    put_number(o, "granted_bytes", l->granted) && put_number(o, "held_bytes", l->held) &&
	    put_number(o, "idle_connections", x->idle) &&
	    put_number(o, "dialling_ahead", x->dialling) &&
	    put_number(o, "streams_served", x->served) && put_ms(o, "unused_ms", x->unused_ns))
		return o;
	json_decref(o);
	return NULL;
}

char *streams_executors_json(const struct streams *s, unsigned workers_missing)
{
	struct load *loads = calloc(s->n_executors + 1, sizeof(*loads));
	json_t *list = loads ? json_array() : NULL;

	for (unsigned i = 0; list && i < s->n; i++) {
		const struct ticket *t = s->rows[i].has_ticket ? &s->rows[i].ticket : NULL;
		const struct executor_row *x = t ? find_executor(s, t->host, t->port) : NULL;

		if (x)
			add_load(&loads[x - s->executors], &s->rows[i]);
	}
	for (unsigned i = 0; list && i < s->n_executors; i++) {
		if (!json_array_append_new(list, executor_json(&s->executors[i], &loads[i])))
			continue;
		json_decref(list);
		list = NULL;
	}
	free(loads);
	return list_json("executors", list, s->executors_omitted, workers_missing);
}
