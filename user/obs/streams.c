/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.c - copies of live streams, and their JSON.
 *
 * The copying is on the worker's thread, between two turns of its loop, so a row is
 * plain memory and the array doubles; JSON is made on the admin server's thread.
 */
#include "obs/streams.h"

#include <jansson.h>
#include <stdlib.h>

struct row {
	struct stream_view v; /* its ticket points nowhere; see has_ticket */
	struct ticket ticket;
	bool has_ticket;
	/* State names are static, but only promised for the callback. */
	char state[24], waits_for[32], datapath[16];
};

struct streams {
	struct row *rows;
	unsigned n, cap;
	uint64_t omitted;
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

char *streams_json(const struct streams *s, unsigned workers_missing)
{
	json_t *root = json_object(), *list = json_array();
	bool ok = root && list;
	char *text = NULL;

	for (unsigned i = 0; ok && i < s->n; i++)
		ok = !json_array_append_new(list, row_json(&s->rows[i]));
	ok = ok && put(root, "streams", json_incref(list)) &&
	     put_number(root, "omitted", s->omitted) &&
	     put_number(root, "workers_missing", workers_missing);
	if (ok)
		text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(12));
	json_decref(list);
	json_decref(root);
	return text;
}
