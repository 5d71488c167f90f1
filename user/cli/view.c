/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - see view.h.
 *
 * A kind of table is a list of columns, each a function from a row to a text and a number; what a row
 * is, the kind knows. Cells are made when they are asked for: top needs those on the screen only, and
 * sorting one column of them.
 */
#include "cli/view.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/units.h"

#define COLUMNS_MAX 16
/* Words that are this old say that their process does not run. */
#define SILENT_MS 4000

struct executor {
	struct board_executor v;
	double rate;
};

struct datapath {
	const char *name;
	unsigned streams;
	uint64_t bytes;
	double rate;
};

struct view {
	enum view_kind kind;
	const struct snapshot *s;
	const struct rates *r;
	const struct column *columns[COLUMNS_MAX];
	unsigned n_columns;
	unsigned *rows; /* places in what the kind has, in the order shown */
	unsigned n, hidden;
	/* made for the kind */
	struct executor *executors;
	struct snapshot_drop *drops;
	double *client_rates;
	struct datapath datapaths[2];
	unsigned n_made;
};

/* A cell: what is written, and what it is sorted by when it is a number. */
struct cell {
	char text[VIEW_CELL];
	double number;
};

struct column {
	struct view_column shown;
	void (*fill)(const struct view *v, unsigned place, struct cell *c);
	bool number;
	bool rate;      /* only with rates */
	bool processes; /* only when there are several */
	bool by_default;
};

#define TEXT(title_, fn)                                                                           \
	{                                                                                          \
		.shown = { .title = (title_), .right = false }, .fill = (fn)                       \
	}
#define NUMBER(title_, fn, ...)                                                                    \
	{                                                                                          \
		.shown = { .title = (title_), .right = true }, .fill = (fn), .number = true,       \
		__VA_ARGS__                                                                        \
	}

static void text(struct cell *c, const char *t)
{
	snprintf(c->text, sizeof(c->text), "%s", *t ? t : "-");
}

static void count(struct cell *c, uint64_t n)
{
	snprintf(c->text, sizeof(c->text), "%llu", (unsigned long long)n);
	c->number = (double)n;
}

static void bytes(struct cell *c, uint64_t n)
{
	units_bytes(c->text, n);
	c->number = (double)n;
}

static void rate(struct cell *c, double n)
{
	units_rate(c->text, n);
	c->number = n;
}

/* For how long it has been so, at the moment of reading. */
static void since(const struct view *v, struct cell *c, uint64_t unix_ms)
{
	uint64_t now = v->s->taken_unix_ms, ms = now > unix_ms ? now - unix_ms : 0;

	if (!unix_ms) {
		text(c, "");
		c->number = -1;
		return;
	}
	units_duration(c->text, ms);
	c->number = (double)ms;
}

static void process(const struct view *v, struct cell *c, unsigned instance)
{
	count(c, v->s->instances[instance].build.pid);
}

/* ---------------------------------------------------------------- streams */

#define FILL(name, type, from, what)                                                               \
	static void name(const struct view *v, unsigned place, struct cell *c)                     \
	{                                                                                          \
		const type *x = from;                                                              \
                                                                                                   \
		what;                                                                              \
	}
#define STREAM(name, what) FILL(stream_##name, struct snapshot_stream, &v->s->streams[place], what)

STREAM(process, process(v, c, x->instance))
STREAM(job, text(c, x->v.job))
STREAM(stage, count(c, x->v.stage))
STREAM(partition, count(c, x->v.partition))
STREAM(executor, text(c, x->v.executor))
STREAM(client, text(c, x->v.client))
STREAM(state, text(c, x->v.state))
STREAM(waits, text(c, x->v.waits_for))
STREAM(since, since(v, c, x->v.since_unix_ms))
STREAM(datapath, text(c, x->v.datapath))
STREAM(bytes, bytes(c, x->v.bytes))
STREAM(granted, bytes(c, x->v.granted_bytes))
STREAM(held, bytes(c, x->v.held_bytes))
STREAM(age, since(v, c, x->v.opened_unix_ms))

static void stream_rate(const struct view *v, unsigned place, struct cell *c)
{
	rate(c, rates_stream(v->r, place));
}

static const struct column stream_columns[] = {
	NUMBER("PID", stream_process, .processes = true),
	TEXT("JOB", stream_job),
	NUMBER("STAGE", stream_stage),
	NUMBER("PART", stream_partition),
	TEXT("EXECUTOR", stream_executor),
	TEXT("CLIENT", stream_client),
	TEXT("STATE", stream_state),
	TEXT("WAITS FOR", stream_waits),
	NUMBER("SINCE", stream_since),
	TEXT("DATAPATH", stream_datapath),
	NUMBER("RATE", stream_rate, .rate = true, .by_default = true),
	NUMBER("BYTES", stream_bytes),
	NUMBER("GRANTED", stream_granted),
	NUMBER("HELD", stream_held),
	NUMBER("AGE", stream_age),
};

/* ---------------------------------------------------------------- executors */

#define EXECUTOR(name, what) FILL(executor_##name, struct executor, &v->executors[place], what)

EXECUTOR(name, text(c, x->v.executor))
EXECUTOR(address, text(c, x->v.address))
EXECUTOR(streams, count(c, x->v.streams))
EXECUTOR(unconnected, count(c, x->v.streams_unconnected))
EXECUTOR(on_it, count(c, x->v.streams_waiting_for_executor))
EXECUTOR(on_clients, count(c, x->v.streams_waiting_for_client))
EXECUTOR(quietest, since(v, c, x->v.quietest_since_unix_ms))
EXECUTOR(rate, rate(c, x->rate))
EXECUTOR(bytes, bytes(c, x->v.bytes))
EXECUTOR(granted, bytes(c, x->v.granted_bytes))
EXECUTOR(held, bytes(c, x->v.held_bytes))
EXECUTOR(idle, count(c, x->v.idle_connections))
EXECUTOR(served, count(c, x->v.streams_served))
EXECUTOR(used, since(v, c, x->v.used_unix_ms))

static const struct column executor_columns[] = {
	TEXT("EXECUTOR", executor_name),
	TEXT("ADDRESS", executor_address),
	NUMBER("STREAMS", executor_streams),
	NUMBER("UNCONNECTED", executor_unconnected),
	NUMBER("WAIT FOR IT", executor_on_it),
	NUMBER("LONGEST", executor_quietest),
	NUMBER("FOR CLIENTS", executor_on_clients),
	NUMBER("RATE", executor_rate, .rate = true, .by_default = true),
	NUMBER("BYTES", executor_bytes),
	NUMBER("GRANTED", executor_granted),
	NUMBER("HELD", executor_held),
	NUMBER("IDLE CONNS", executor_idle),
	NUMBER("SERVED", executor_served),
	NUMBER("USED", executor_used),
};

static int executor_by_name(const void *a, const void *b)
{
	return strcmp(((const struct executor *)a)->v.executor,
		      ((const struct executor *)b)->v.executor);
}

/* Adds b's streams and so on to a, which has the same name. */
static void executor_add(struct executor *a, const struct executor *b)
{
	a->v.bytes += b->v.bytes;
	a->v.granted_bytes += b->v.granted_bytes;
	a->v.held_bytes += b->v.held_bytes;
	a->v.streams += b->v.streams;
	a->v.streams_unconnected += b->v.streams_unconnected;
	a->v.streams_waiting_for_executor += b->v.streams_waiting_for_executor;
	a->v.streams_waiting_for_client += b->v.streams_waiting_for_client;
	a->v.idle_connections += b->v.idle_connections;
	a->v.streams_served += b->v.streams_served;
	a->v.used_unix_ms = max_u64(a->v.used_unix_ms, b->v.used_unix_ms);
	if (!a->v.address[0])
		memcpy(a->v.address, b->v.address, sizeof(a->v.address));
	if (!a->v.quietest_since_unix_ms ||
	    (b->v.quietest_since_unix_ms &&
	     b->v.quietest_since_unix_ms < a->v.quietest_since_unix_ms))
		a->v.quietest_since_unix_ms = b->v.quietest_since_unix_ms;
}

static bool make_executors(struct view *v)
{
	const struct snapshot *s = v->s;
	unsigned n = 0;

	v->executors = calloc(s->n_executors + 1, sizeof(*v->executors));
	if (!v->executors)
		return false;
	for (unsigned i = 0; i < s->n_executors; i++)
		v->executors[i] = (struct executor){ s->executors[i].v, v->r ? 0 : -1 };
	qsort(v->executors, s->n_executors, sizeof(*v->executors), executor_by_name);
	for (unsigned i = 0; i < s->n_executors; i++) {
		if (n && !executor_by_name(&v->executors[n - 1], &v->executors[i]))
			executor_add(&v->executors[n - 1], &v->executors[i]);
		else
			v->executors[n++] = v->executors[i];
	}
	v->n_made = n;
	for (unsigned i = 0; v->r && i < s->n_streams; i++) {
		double of_stream = rates_stream(v->r, i);
		struct executor key = { 0 }, *x;

		memcpy(key.v.executor, s->streams[i].v.executor, sizeof(key.v.executor));
		x = bsearch(&key, v->executors, n, sizeof(key), executor_by_name);
		if (x && of_stream > 0)
			x->rate += of_stream;
	}
	return true;
}

/* ---------------------------------------------------------------- clients */

#define CLIENT(name, what) FILL(client_##name, struct snapshot_client, &v->s->clients[place], what)

CLIENT(process, process(v, c, x->instance))
CLIENT(name, text(c, x->v.client))
CLIENT(state, text(c, x->v.state))
CLIENT(streams, count(c, x->v.streams))
CLIENT(waits, text(c, x->v.waits_for))
CLIENT(since, since(v, c, x->v.since_unix_ms))
CLIENT(on_it, count(c, x->v.streams_waiting_for_client))
CLIENT(on_executors, count(c, x->v.streams_waiting_for_executor))
CLIENT(datapath, text(c, x->v.datapath))
CLIENT(bytes, bytes(c, x->v.bytes))
CLIENT(inflight, bytes(c, x->v.inflight_bytes))
CLIENT(window, bytes(c, x->v.window_bytes > 0 ? (uint64_t)x->v.window_bytes : 0))
CLIENT(age, since(v, c, x->v.opened_unix_ms))

static void client_rate(const struct view *v, unsigned place, struct cell *c)
{
	rate(c, v->client_rates[place]);
}

static const struct column client_columns[] = {
	NUMBER("PID", client_process, .processes = true),
	TEXT("CLIENT", client_name),
	TEXT("STATE", client_state),
	NUMBER("STREAMS", client_streams),
	NUMBER("WAIT FOR IT", client_on_it),
	NUMBER("FOR EXECUTORS", client_on_executors),
	TEXT("WAITS FOR", client_waits),
	NUMBER("SINCE", client_since),
	TEXT("DATAPATH", client_datapath),
	NUMBER("RATE", client_rate, .rate = true, .by_default = true),
	NUMBER("BYTES", client_bytes),
	NUMBER("INFLIGHT", client_inflight),
	NUMBER("WINDOW", client_window),
	NUMBER("AGE", client_age),
};

/* What a client is told apart by, and its place. */
struct client_at {
	unsigned instance;
	struct board_key key;
	unsigned place;
};

static int client_order(const void *va, const void *vb)
{
	const struct client_at *a = va, *b = vb;

	if (a->instance != b->instance)
		return a->instance < b->instance ? -1 : 1;
	if (a->key.worker != b->key.worker)
		return a->key.worker < b->key.worker ? -1 : 1;
	return a->key.number < b->key.number ? -1 : a->key.number > b->key.number;
}

static bool make_clients(struct view *v)
{
	const struct snapshot *s = v->s;
	struct client_at *at = calloc(s->n_clients + 1, sizeof(*at));

	v->client_rates = calloc(s->n_clients + 1, sizeof(*v->client_rates));
	v->n_made = s->n_clients;
	if (!at || !v->client_rates) {
		free(at);
		return false;
	}
	for (unsigned i = 0; i < s->n_clients; i++)
		at[i] = (struct client_at){ s->clients[i].instance, s->clients[i].key, i };
	qsort(at, s->n_clients, sizeof(*at), client_order);
	for (unsigned i = 0; v->r && i < s->n_streams; i++) {
		const struct snapshot_stream *st = &s->streams[i];
		const struct client_at key = { st->instance,
					       { st->key.worker, st->v.client_number },
					       0 };
		const struct client_at *x =
			bsearch(&key, at, s->n_clients, sizeof(key), client_order);
		double of_stream = rates_stream(v->r, i);

		if (x && of_stream > 0)
			v->client_rates[x->place] += of_stream;
	}
	free(at);
	return true;
}

/* ---------------------------------------------------------------- datapaths */

#define DATAPATH(name, what) FILL(datapath_##name, struct datapath, &v->datapaths[place], what)

DATAPATH(name, text(c, x->name))
DATAPATH(streams, count(c, x->streams))
DATAPATH(bytes, bytes(c, x->bytes))
DATAPATH(rate, rate(c, x->rate))

static const struct column datapath_columns[] = {
	TEXT("DATAPATH", datapath_name),
	NUMBER("STREAMS", datapath_streams),
	NUMBER("RATE", datapath_rate, .rate = true, .by_default = true),
	NUMBER("BYTES SINCE START", datapath_bytes),
};

static bool make_datapaths(struct view *v)
{
	struct datapath *relay = &v->datapaths[0], *kernel = &v->datapaths[1];

	relay->name = "relay";
	kernel->name = "sockmap";
	relay->rate = kernel->rate = -1;
	v->n_made = 2;
	for (unsigned i = 0; i < v->s->n_instances; i++) {
		const struct board_totals *t = &v->s->instances[i].totals;
		struct rates_of_instance r = rates_instance(v->r, i);

		relay->bytes += t->bytes_by_relay;
		kernel->bytes += t->bytes_by_kernel;
		if (r.relay >= 0)
			relay->rate = r.relay + (relay->rate < 0 ? 0 : relay->rate);
		if (r.kernel >= 0)
			kernel->rate = r.kernel + (kernel->rate < 0 ? 0 : kernel->rate);
	}
	for (unsigned i = 0; i < v->s->n_streams; i++) {
		if (strcmp(v->s->streams[i].v.datapath, relay->name))
			kernel->streams++;
		else
			relay->streams++;
	}
	return true;
}

/* ---------------------------------------------------------------- drops */

#define DROP(name, what) FILL(drop_##name, struct snapshot_drop, &v->drops[place], what)

DROP(reason, text(c, x->key.reason))
DROP(times, count(c, x->v.times))
DROP(bytes, bytes(c, x->v.bytes))
DROP(meaning, text(c, x->v.meaning))

static const struct column drop_columns[] = {
	TEXT("REASON", drop_reason),
	NUMBER("TIMES", drop_times, .by_default = true),
	NUMBER("BYTES", drop_bytes),
	TEXT("MEANING", drop_meaning),
};

static int drop_order(const void *a, const void *b)
{
	return strcmp(((const struct snapshot_drop *)a)->key.reason,
		      ((const struct snapshot_drop *)b)->key.reason);
}

static bool make_drops(struct view *v)
{
	const struct snapshot *s = v->s;
	unsigned n = 0;

	v->drops = calloc(s->n_drops + 1, sizeof(*v->drops));
	if (!v->drops)
		return false;
	for (unsigned i = 0; i < s->n_drops; i++)
		if (s->drops[i].v.times || s->drops[i].v.bytes)
			v->drops[v->n_made++] = s->drops[i];
	qsort(v->drops, v->n_made, sizeof(*v->drops), drop_order);
	for (unsigned i = 0; i < v->n_made; i++) {
		if (n && !drop_order(&v->drops[n - 1], &v->drops[i])) {
			v->drops[n - 1].v.times += v->drops[i].v.times;
			v->drops[n - 1].v.bytes += v->drops[i].v.bytes;
		} else {
			v->drops[n++] = v->drops[i];
		}
	}
	v->n_made = n;
	return true;
}

/* ---------------------------------------------------------------- any kind */

static bool make_streams(struct view *v)
{
	v->n_made = v->s->n_streams;
	return true;
}

static const struct {
	const char *name;
	const struct column *columns;
	unsigned n;
	bool (*make)(struct view *v);
} kinds[VIEW_KINDS] = {
	[VIEW_STREAMS] = { "streams", stream_columns, ARRAY_SIZE(stream_columns), make_streams },
	[VIEW_EXECUTORS] = { "executors", executor_columns, ARRAY_SIZE(executor_columns),
			     make_executors },
	[VIEW_CLIENTS] = { "clients", client_columns, ARRAY_SIZE(client_columns), make_clients },
	[VIEW_DATAPATHS] = { "datapaths", datapath_columns, ARRAY_SIZE(datapath_columns),
			     make_datapaths },
	[VIEW_DROPS] = { "drops", drop_columns, ARRAY_SIZE(drop_columns), make_drops },
};

const char *view_kind_name(enum view_kind k)
{
	return kinds[k].name;
}

/* What is compared has been lowered before. */
static bool contains(const char *cell, const char *lowered)
{
	for (; *cell; cell++) {
		size_t i = 0;

		while (lowered[i] && tolower((unsigned char)cell[i]) == (unsigned char)lowered[i])
			i++;
		if (!lowered[i])
			return true;
	}
	return false;
}

static bool passes(const struct view *v, unsigned place, const char *lowered)
{
	for (unsigned i = 0; i < v->n_columns; i++) {
		struct cell c;

		v->columns[i]->fill(v, place, &c);
		if (contains(c.text, lowered))
			return true;
	}
	return false;
}

static bool choose_rows(struct view *v, const char *filter)
{
	char lowered[VIEW_CELL];

	snprintf(lowered, sizeof(lowered), "%s", filter ? filter : "");
	for (char *p = lowered; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	v->rows = calloc(v->n_made + 1, sizeof(*v->rows));
	if (!v->rows)
		return false;
	for (unsigned i = 0; i < v->n_made; i++) {
		if (!*lowered || passes(v, i, lowered))
			v->rows[v->n++] = i;
		else
			v->hidden++;
	}
	return true;
}

struct view *view_new(enum view_kind kind, const struct snapshot *s, const struct rates *r,
		      const char *filter)
{
	struct view *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->kind = kind;
	v->s = s;
	v->r = r;
	for (unsigned i = 0; i < kinds[kind].n; i++) {
		const struct column *c = &kinds[kind].columns[i];

		if ((!c->rate || r) && (!c->processes || s->n_instances > 1))
			v->columns[v->n_columns++] = c;
	}
	if (kinds[kind].make(v) && choose_rows(v, filter))
		return v;
	view_free(v);
	return NULL;
}

void view_free(struct view *v)
{
	if (!v)
		return;
	free(v->rows);
	free(v->executors);
	free(v->drops);
	free(v->client_rates);
	free(v);
}

unsigned view_rows(const struct view *v)
{
	return v->n;
}

unsigned view_hidden(const struct view *v)
{
	return v->hidden;
}

unsigned view_columns(const struct view *v)
{
	return v->n_columns;
}

const struct view_column *view_column(const struct view *v, unsigned column)
{
	return &v->columns[column]->shown;
}

unsigned view_default_column(const struct view *v)
{
	for (unsigned i = 0; i < v->n_columns; i++)
		if (v->columns[i]->by_default)
			return i;
	return 0;
}

const char *view_cell(const struct view *v, unsigned row, unsigned column, char buf[VIEW_CELL])
{
	struct cell c;

	v->columns[column]->fill(v, v->rows[row], &c);
	memcpy(buf, c.text, sizeof(c.text));
	return buf;
}

struct keyed {
	struct cell c;
	unsigned row, place;
};

struct sorting {
	bool number;
	int sign;
};

static int compare(const void *va, const void *vb, void *arg)
{
	const struct keyed *a = va, *b = vb;
	const struct sorting *by = arg;
	int o;

	if (by->number)
		o = a->c.number > b->c.number ? -1 : a->c.number < b->c.number;
	else
		o = strcmp(a->c.text, b->c.text);
	return o ? o * by->sign : a->row < b->row ? -1 : 1;
}

void view_sort(struct view *v, unsigned column, bool reverse)
{
	struct sorting by = { v->columns[column]->number, reverse ? -1 : 1 };
	struct keyed *k = calloc(v->n + 1, sizeof(*k));

	if (!k)
		return;
	for (unsigned i = 0; i < v->n; i++) {
		k[i].row = i;
		k[i].place = v->rows[i];
		v->columns[column]->fill(v, v->rows[i], &k[i].c);
	}
	qsort_r(k, v->n, sizeof(*k), compare, &by);
	for (unsigned i = 0; i < v->n; i++)
		v->rows[i] = k[i].place;
	free(k);
}

const char *view_remark(const struct snapshot *s, unsigned instance, char buf[VIEW_REMARK])
{
	const struct snapshot_instance *i = &s->instances[instance];
	uint64_t written = i->totals.written_unix_ms,
		 ms = s->taken_unix_ms > written ? s->taken_unix_ms - written : 0;
	char ago[UNITS_LEN];

	units_duration(ago, ms);
	buf[0] = '\0';
	if (i->process == SNAPSHOT_GONE)
		snprintf(buf, VIEW_REMARK,
			 "process %u is gone without having cleaned up; what %s shows is from %s, "
			 "%s ago",
			 i->build.pid, i->folder, i->totals.written, ago);
	else if (i->process == SNAPSHOT_STOPPED)
		snprintf(buf, VIEW_REMARK,
			 "process %u is stopped (kill -CONT %u lets it go on); what %s shows is "
			 "from "
			 "%s ago, but for bytes that the kernel forwards",
			 i->build.pid, i->build.pid, i->folder, ago);
	else if (ms > SILENT_MS)
		snprintf(buf, VIEW_REMARK,
			 "process %u has written nothing into %s for %s: it is stuck, or gets no "
			 "CPU",
			 i->build.pid, i->folder, ago);
	return buf;
}
