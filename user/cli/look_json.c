/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look_json.c - see look_json.h. What a row has is a table of its fields, so that a field is named
 * once, and with the name that bpftool prints.
 */
#include "cli/look_json.h"

#include <jansson.h>

enum type { TEXT, U32, U64, S64 };

struct field {
	const char *name;
	size_t at;
	enum type type;
};

#define F(type_, field_, kind)                                                                     \
	{                                                                                          \
#field_, offsetof(struct type_, field_), kind                                      \
	}

#define S(field, kind) F(board_stream, field, kind)
static const struct field stream_fields[] = {
	S(job, TEXT),
	S(stage, U32),
	S(partition, U32),
	S(executor, TEXT),
	S(executor_address, TEXT),
	S(client, TEXT),
	S(stream_id, U32),
	S(state, TEXT),
	S(waits_for, TEXT),
	S(since, TEXT),
	S(since_unix_ms, U64),
	S(datapath, TEXT),
	S(datapath_why, TEXT),
	S(bytes, U64),
	S(granted_bytes, U64),
	S(held_bytes, U64),
	S(opened, TEXT),
	S(opened_unix_ms, U64),
	S(written_unix_ms, U64),
	S(client_number, U32),
	S(executor_number, U32),
	S(spliced, U32),
	S(kernel_slot, U32),
	S(kernel_generation, U32),
	S(kernel_bytes, U64),
};

#define C(field, kind) F(board_client, field, kind)
static const struct field client_fields[] = {
	C(client, TEXT),
	C(state, TEXT),
	C(waits_for, TEXT),
	C(since, TEXT),
	C(since_unix_ms, U64),
	C(datapath, TEXT),
	C(bytes, U64),
	C(inflight_bytes, U64),
	C(window_bytes, S64),
	C(opened, TEXT),
	C(opened_unix_ms, U64),
	C(streams, U32),
	C(streams_waiting_for_client, U32),
	C(streams_waiting_for_executor, U32),
};

#define X(field, kind) F(board_executor, field, kind)
static const struct field executor_fields[] = {
	X(executor, TEXT),
	X(address, TEXT),
	X(bytes, U64),
	X(granted_bytes, U64),
	X(held_bytes, U64),
	X(used, TEXT),
	X(used_unix_ms, U64),
	X(quietest_since, TEXT),
	X(quietest_since_unix_ms, U64),
	X(streams, U32),
	X(streams_unconnected, U32),
	X(streams_waiting_for_executor, U32),
	X(streams_waiting_for_client, U32),
	X(idle_connections, U32),
	X(streams_served, U32),
};

#define D(field, kind) F(board_drop, field, kind)
static const struct field drop_fields[] = { D(times, U64), D(bytes, U64), D(meaning, TEXT) };

#define T(field) F(board_totals, field, U64)
static const struct field totals_fields[] = {
	F(board_totals, written, TEXT),
	T(written_unix_ms),
	F(board_totals, state, TEXT),
	T(clients),
	T(clients_accepted),
	T(clients_refused),
	T(streams),
	T(streams_opened),
	T(streams_complete),
	T(streams_ended_by_client),
	T(streams_ended_by_executor),
	T(streams_ended_by_proxy),
	T(streams_ended_by_deadline),
	T(streams_ended_by_shutdown),
	T(executor_connections),
	T(executor_connections_idle),
	T(dials),
	T(dial_failures),
	T(connections_reused),
	T(retries),
	T(bytes_from_executors),
	T(bytes_to_clients),
	T(bytes_by_relay),
	T(bytes_by_kernel),
	T(bytes_dropped),
	T(promotions),
	T(granted_bytes),
	T(held_bytes),
	T(streams_left_out),
	T(clients_left_out),
	T(executors_left_out),
	T(board_writes),
	T(board_ns),
	T(board_errors),
};

#define B(field, kind) F(board_build, field, kind)
static const struct field build_fields[] = {
	B(schema, U32),          B(pid, U32),     B(version, TEXT),  B(started, TEXT),
	B(started_unix_ms, U64), B(listen, TEXT), B(datapath, TEXT), B(datapath_why, TEXT),
	B(workers, U32),
};

/* ---------------------------------------------------------------- rows */

/* Takes over value; NULL (out of memory, or a text that is none) makes it false. */
static bool put(json_t *o, const char *name, json_t *value)
{
	return value && !json_object_set_new_nocheck(o, name, value);
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)min_u64(n, INT64_MAX));
}

static json_t *value_of(const struct field *f, const char *row)
{
	uint32_t u32;
	uint64_t u64;

	if (f->type == TEXT)
		return json_string(row + f->at);
	if (f->type == U32) {
		memcpy(&u32, row + f->at, sizeof(u32));
		return number(u32);
	}
	memcpy(&u64, row + f->at, sizeof(u64));
	return f->type == S64 ? json_integer((json_int_t)u64) : number(u64);
}

static bool put_fields(json_t *o, const struct field *f, size_t n, const void *row)
{
	for (size_t i = 0; i < n; i++)
		if (!put(o, f[i].name, value_of(&f[i], row)))
			return false;
	return true;
}

#define PUT_FIELDS(o, fields, row) put_fields(o, fields, ARRAY_SIZE(fields), row)

static bool put_key(json_t *o, const struct snapshot *s, unsigned instance,
		    const struct board_key *key)
{
	return put(o, "pid", number(s->instances[instance].build.pid)) &&
	       put(o, "worker", number(key->worker)) && put(o, "number", number(key->number));
}

static bool put_rate(json_t *o, const char *name, double rate)
{
	return put(o, name, rate >= 0 ? json_real(rate) : json_null());
}

static bool fill_stream(json_t *o, const struct snapshot *s, const struct rates *r, unsigned i)
{
	const struct snapshot_stream *st = &s->streams[i];

	return put_key(o, s, st->instance, &st->key) && PUT_FIELDS(o, stream_fields, &st->v) &&
	       (!r || put_rate(o, "bytes_per_second", rates_stream(r, i)));
}

static bool fill_client(json_t *o, const struct snapshot *s, const struct rates *r, unsigned i)
{
	const struct snapshot_client *c = &s->clients[i];

	(void)r;
	return put_key(o, s, c->instance, &c->key) && PUT_FIELDS(o, client_fields, &c->v);
}

static bool fill_executor(json_t *o, const struct snapshot *s, const struct rates *r, unsigned i)
{
	const struct snapshot_executor *x = &s->executors[i];

	(void)r;
	return put_key(o, s, x->instance, &x->key) && PUT_FIELDS(o, executor_fields, &x->v);
}

static bool fill_drop(json_t *o, const struct snapshot *s, const struct rates *r, unsigned i)
{
	const struct snapshot_drop *d = &s->drops[i];

	(void)r;
	return put(o, "pid", number(s->instances[d->instance].build.pid)) &&
	       put(o, "reason", json_string(d->key.reason)) && PUT_FIELDS(o, drop_fields, &d->v);
}

static bool fill_process(json_t *o, const struct snapshot *s, const struct rates *r, unsigned i)
{
	static const char *const names[] = {
		[SNAPSHOT_RUNNING] = "running",
		[SNAPSHOT_STOPPED] = "stopped",
		[SNAPSHOT_GONE] = "gone",
	};
	const struct snapshot_instance *p = &s->instances[i];
	struct rates_of_instance of = rates_instance(r, i);
	json_t *totals = json_object();
	bool ok = totals && PUT_FIELDS(totals, totals_fields, &p->totals);

	if (ok && r)
		ok = put_rate(totals, "bytes_per_second_by_relay", of.relay) &&
		     put_rate(totals, "bytes_per_second_by_kernel", of.kernel);
	ok = ok && put(o, "folder", json_string(p->folder)) &&
	     put(o, "process", json_string(names[p->process])) &&
	     PUT_FIELDS(o, build_fields, &p->build) && put(o, "totals", json_incref(totals));
	json_decref(totals);
	return ok;
}

/* ---------------------------------------------------------------- all of it */

static bool put_list(json_t *root, const char *name, const struct snapshot *s,
		     const struct rates *r, unsigned n,
		     bool (*fill)(json_t *o, const struct snapshot *s, const struct rates *r,
				  unsigned i))
{
	json_t *list = json_array();
	bool ok = list != NULL;

	for (unsigned i = 0; ok && i < n; i++) {
		json_t *o = json_object();

		ok = o && fill(o, s, r, i);
		/* Takes o over in either case. */
		ok = !json_array_append_new(list, o) && ok;
	}
	ok = ok && put(root, name, json_incref(list));
	json_decref(list);
	return ok;
}

static bool fill_root(json_t *root, const char *command, const struct snapshot *s,
		      const struct rates *r)
{
	bool ok = put(root, "taken_unix_ms", number(s->taken_unix_ms)) &&
		  put(root, "problem", json_string(s->problem)) &&
		  put_list(root, "processes", s, r, s->n_instances, fill_process);

	if (!ok)
		return false;
	if (!strcmp(command, "streams"))
		return put_list(root, "streams", s, r, s->n_streams, fill_stream);
	if (!strcmp(command, "clients"))
		return put_list(root, "clients", s, r, s->n_clients, fill_client);
	if (!strcmp(command, "executors"))
		return put_list(root, "executors", s, r, s->n_executors, fill_executor);
	return put_list(root, "drops", s, r, s->n_drops, fill_drop);
}

int look_json(FILE *out, const char *command, const struct snapshot *s, const struct rates *r)
{
	json_t *root = json_object();
	int err = 0;

	if (!root || !fill_root(root, command, s, r))
		err = -ENOMEM;
	else if (json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(12)) ||
		 fputc('\n', out) == EOF)
		err = -EIO;
	json_decref(root);
	if (err)
		fprintf(stderr, "flightsplice: %s\n",
			err == -ENOMEM ? "out of memory" : "cannot write the JSON");
	return err;
}
