/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_writer.c - see board_writer.h.
 *
 * A worker's part of a map is a *sheet*: what is there now, in memory, and the numbers of what the
 * map shows. To write is to fill the sheet anew from the session's views, take out of the map what the
 * sheet no longer has, and put all of the sheet into it: two system calls, whatever the number of
 * entries. Each worker may fill only its share of a map, so nobody finds it full because of another.
 *
 * Removing comes first, so that a share is never exceeded in between; a reader may so miss an entry
 * for some microseconds, but never sees one twice.
 */
#include "datapath/board_writer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "base/version.h"
#include "board.skel.h"
#include "datapath/board_rows.h"
#include "datapath/sockmap.h"

/* The next write is put off to this many times of what the last one took. */
#define REST 200
#define REST_MAX (10 * NSEC_PER_SEC)

struct sheet {
	int fd;
	size_t value_size;
	unsigned limit, n, cap;
	struct board_key *keys;
	char *values;
	unsigned left_out;
	/* What the map has of us, ascending. */
	uint32_t *shown;
	unsigned n_shown, cap_shown;
	/* number -> place in keys + 1, open addressing; 0 = free */
	uint32_t *index;
	unsigned index_size; /* a power of two */
};

struct board_worker {
	struct sheet streams, clients, executors;
	struct board_clock clock;
	struct board_address last;
	uint32_t *sorted; /* scratch */
	unsigned cap_sorted;
	uint32_t worker;
	/* read by the main thread */
	uint64_t left_out_streams, left_out_clients, left_out_executors;
	uint64_t writes, ns, errors;
};

struct board_writer {
	struct board *skel;
	struct pins *pins;
	uint64_t started_unix_ms;
	unsigned workers;
	uint64_t errors; /* of the main thread */
	struct board_clock clock;
	struct board_worker worker[];
};

static uint64_t read_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* One writer, the main thread reads. */
static void tell(uint64_t *to, uint64_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELAXED);
}

static uint64_t heard(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------- sheets */

static void sheet_free(struct sheet *s)
{
	free(s->keys);
	free(s->values);
	free(s->shown);
	free(s->index);
}

static bool grow(void *array, unsigned *cap, unsigned n, size_t size)
{
	void **a = array;
	unsigned more = *cap ? *cap : 64;
	void *p;

	while (more < n)
		more *= 2;
	if (more == *cap)
		return true;
	p = reallocarray(*a, more, size);
	if (!p)
		return false;
	*a = p;
	*cap = more;
	return true;
}

static unsigned index_slot(const struct sheet *s, uint32_t number)
{
	return number * 2654435761u & (s->index_size - 1);
}

static void index_put(struct sheet *s, uint32_t number, unsigned place)
{
	unsigned i = index_slot(s, number);

	while (s->index[i])
		i = (i + 1) & (s->index_size - 1);
	s->index[i] = place + 1;
}

/* Room for one more entry in all arrays. */
static bool sheet_room(struct sheet *s)
{
	unsigned cap = s->cap, keys = s->cap;
	uint32_t *index;

	if (s->n < s->cap)
		return true;
	if (!grow(&s->keys, &keys, s->n + 1, sizeof(*s->keys)) ||
	    !grow(&s->values, &cap, s->n + 1, s->value_size))
		return false;
	index = calloc(2 * (size_t)cap, sizeof(*index));
	if (!index)
		return false;
	free(s->index);
	s->index = index;
	s->index_size = 2 * cap;
	s->cap = cap;
	for (unsigned i = 0; i < s->n; i++)
		index_put(s, s->keys[i].number, i);
	return true;
}

static void sheet_clear(struct sheet *s)
{
	s->n = 0;
	s->left_out = 0;
	if (s->index)
		memset(s->index, 0, s->index_size * sizeof(*s->index));
}

/* A zeroed value; NULL when it has to be left out. */
static void *sheet_add(struct sheet *s, uint32_t worker, uint32_t number)
{
	char *value;

	if (s->n >= s->limit || !sheet_room(s)) {
		s->left_out++;
		return NULL;
	}
	value = s->values + s->n * s->value_size;
	memset(value, 0, s->value_size);
	s->keys[s->n] = (struct board_key){ worker, number };
	index_put(s, number, s->n);
	s->n++;
	return value;
}

static void *sheet_find(struct sheet *s, uint32_t number)
{
	if (!s->index)
		return NULL;
	for (unsigned i = index_slot(s, number); s->index[i]; i = (i + 1) & (s->index_size - 1)) {
		unsigned place = s->index[i] - 1;

		if (s->keys[place].number == number)
			return s->values + place * s->value_size;
	}
	return NULL;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void remove_keys(struct board_worker *w, int fd, struct board_key *keys, unsigned n)
{
	DECLARE_LIBBPF_OPTS(bpf_map_batch_opts, opts);
	uint32_t count = n;

	if (!n || !bpf_map_delete_batch(fd, keys, &count, &opts))
		return;
	/* One that is not there ends a batch: somebody has been tidying up. */
	for (unsigned i = 0; i < n; i++)
		bpf_map_delete_elem(fd, &keys[i]);
	tell(&w->errors, w->errors + 1);
}

/* Takes out of the map what the sheet no longer has; numbers: the sheet's, ascending. */
static void remove_gone(struct board_worker *w, struct sheet *s, const uint32_t *numbers)
{
	unsigned at = 0, n_gone = 0;
	struct board_key gone[64];

	for (unsigned i = 0; i < s->n_shown; i++) {
		while (at < s->n && numbers[at] < s->shown[i])
			at++;
		if (at < s->n && numbers[at] == s->shown[i])
			continue;
		gone[n_gone++] = (struct board_key){ w->worker, s->shown[i] };
		if (n_gone == ARRAY_SIZE(gone)) {
			remove_keys(w, s->fd, gone, n_gone);
			n_gone = 0;
		}
	}
	remove_keys(w, s->fd, gone, n_gone);
}

static void sheet_write(struct board_worker *w, struct sheet *s)
{
	DECLARE_LIBBPF_OPTS(bpf_map_batch_opts, opts, .elem_flags = BPF_ANY);
	uint32_t count = s->n;

	if (!s->n && !s->n_shown)
		return;
	if (!grow(&w->sorted, &w->cap_sorted, s->n, sizeof(*w->sorted)) ||
	    !grow(&s->shown, &s->cap_shown, s->n, sizeof(*s->shown))) {
		tell(&w->errors, w->errors + 1);
		return;
	}
	for (unsigned i = 0; i < s->n; i++)
		w->sorted[i] = s->keys[i].number;
	qsort(w->sorted, s->n, sizeof(*w->sorted), by_number);
	remove_gone(w, s, w->sorted);
	memcpy(s->shown, w->sorted, s->n * sizeof(*s->shown));
	s->n_shown = s->n;
	if (s->n && bpf_map_update_batch(s->fd, s->keys, s->values, &count, &opts)) {
		/* Those that were not put are not there to be removed: harmless. */
		tell(&w->errors, w->errors + 1);
		s->left_out += s->n - min_u64(count, s->n);
	}
}

/* ---------------------------------------------------------------- a worker */

static void on_stream(void *arg, const struct stream_view *v)
{
	struct board_worker *w = arg;
	struct board_stream *row = sheet_add(&w->streams, w->worker, v->number);
	struct board_client *client;

	if (!row)
		return;
	client = sheet_find(&w->clients, v->client_number);
	board_stream_row(row, v, client, &w->last, &w->clock);
	board_count_stream(row, client, sheet_find(&w->executors, v->executor_number));
}

static void on_client(void *arg, const struct client_view *v)
{
	struct board_worker *w = arg;
	struct board_client *row = sheet_add(&w->clients, w->worker, v->number);

	if (row)
		board_client_row(row, v, &w->clock);
}

static void on_executor(void *arg, const struct executor_view *v)
{
	struct board_worker *w = arg;
	struct board_executor *row = sheet_add(&w->executors, w->worker, v->number);

	if (row)
		board_executor_row(row, v, &w->clock);
}

uint64_t board_writer_worker(struct board_writer *b, unsigned index, const struct session *s,
			     uint64_t now_ns)
{
	struct board_worker *w = &b->worker[index];
	/* CPU time: having to wait for a CPU is no reason to write less often. */
	uint64_t began = read_clock(CLOCK_THREAD_CPUTIME_ID), took;
	uint64_t ago = read_clock(CLOCK_MONOTONIC) - now_ns;

	board_clock_set(&w->clock, now_ns, (read_clock(CLOCK_REALTIME) - ago) / NSEC_PER_MSEC);
	sheet_clear(&w->streams);
	sheet_clear(&w->clients);
	sheet_clear(&w->executors);
	session_each_client(s, on_client, w);
	session_each_executor(s, on_executor, w);
	session_each_stream(s, on_stream, w);
	sheet_write(w, &w->clients);
	sheet_write(w, &w->executors);
	sheet_write(w, &w->streams);
	took = read_clock(CLOCK_THREAD_CPUTIME_ID) - began;
	tell(&w->left_out_streams, w->streams.left_out);
	tell(&w->left_out_clients, w->clients.left_out);
	tell(&w->left_out_executors, w->executors.left_out);
	tell(&w->writes, w->writes + 1);
	tell(&w->ns, w->ns + took);
	if (!w->streams.n && !w->clients.n && !w->executors.n)
		return 0;
	return max_u64(BOARD_PERIOD_NS, min_u64(took * REST, REST_MAX));
}

/* ---------------------------------------------------------------- the process */

/* All of struct session_stats are counters. */
static void add_stats(struct session_stats *sum, const struct session_stats *one)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)one;

	static_assert(sizeof(*sum) % sizeof(uint64_t) == 0, "all of it is uint64_t");
	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += heard(&from[i]);
}

static void fill_totals(struct board_totals *t, const struct session_stats *s)
{
	t->clients = s->clients_open;
	t->clients_accepted = s->clients_accepted;
	t->clients_refused = s->clients_refused;
	t->streams = s->streams_open;
	t->streams_opened = s->streams_opened;
	t->streams_complete = s->streams_ended[END_COMPLETE];
	t->streams_ended_by_client = s->streams_ended[END_CLIENT];
	t->streams_ended_by_executor = s->streams_ended[END_EXECUTOR];
	t->streams_ended_by_proxy = s->streams_ended[END_PROXY];
	t->streams_ended_by_deadline = s->streams_ended[END_DEADLINE];
	t->streams_ended_by_shutdown = s->streams_ended[END_SHUTDOWN];
	t->executor_connections = s->upstreams_open;
	t->executor_connections_idle = s->upstreams_idle;
	t->dials = s->dials;
	t->dial_failures = s->dial_failures;
	t->connections_reused = s->upstream_reuses;
	t->retries = s->retries;
	t->bytes_from_executors = s->data_in + s->data_spliced;
	t->bytes_to_clients = s->data_out + s->data_spliced;
	t->bytes_by_kernel = s->data_spliced;
	t->bytes_by_relay = s->data_out;
	t->promotions = s->promotions;
	t->granted_bytes = s->granted;
	t->held_bytes = s->held;
	for (unsigned i = 0; i < DROP_REASONS; i++)
		t->bytes_dropped += s->dropped[i];
}

static void write_totals(struct board_writer *b, const struct board_process *p,
			 const struct session_stats *sum)
{
	struct board_totals t = { .written_unix_ms = b->clock.now_unix_ms,
				  .board_errors = b->errors };
	uint32_t zero = 0;

	board_clock_text(&b->clock, t.written_unix_ms, t.written);
	board_text(t.state, sizeof(t.state), p->state);
	fill_totals(&t, sum);
	for (unsigned i = 0; i < b->workers; i++) {
		const struct board_worker *w = &b->worker[i];

		t.streams_left_out += heard(&w->left_out_streams);
		t.clients_left_out += heard(&w->left_out_clients);
		t.executors_left_out += heard(&w->left_out_executors);
		t.board_writes += heard(&w->writes);
		t.board_ns += heard(&w->ns);
		t.board_errors += heard(&w->errors);
	}
	if (bpf_map_update_elem(bpf_map__fd(b->skel->maps.totals), &zero, &t, BPF_ANY))
		b->errors++;
}

struct drops {
	struct board_drop_key keys[BOARD_DROPS];
	struct board_drop values[BOARD_DROPS];
	unsigned n;
};

static void put_drop(struct drops *d, const char *prefix, const char *reason, uint64_t times,
		     uint64_t bytes, const char *meaning)
{
	char text[2 * BOARD_REASON_LEN];

	if (d->n == BOARD_DROPS)
		return;
	snprintf(text, sizeof(text), "%s%.*s", prefix, BOARD_REASON_LEN, reason);
	board_text(d->keys[d->n].reason, BOARD_REASON_LEN, text);
	d->values[d->n].times = times;
	d->values[d->n].bytes = bytes;
	board_text(d->values[d->n].meaning, sizeof(d->values[d->n].meaning), meaning);
	d->n++;
}

static void put_session_drops(struct drops *d, const struct session_stats *s)
{
	static const char *const meanings[DROP_REASONS] = {
		[DROP_PADDING] = "padding of DATA frames that had to be split",
		[DROP_STREAM_CLOSED] = "came after the stream had been ended",
		[DROP_CLIENT_GONE] = "held or queued when the client's connection ended",
		[DROP_VIOLATION] = "part of a frame or block that was refused",
	};

	for (unsigned i = 0; i < DROP_REASONS; i++)
		put_drop(d, "bytes ", drop_reason_name(i), 0, s->dropped[i], meanings[i]);
	for (unsigned i = POLICY_ALLOW + 1; i < POLICY_VERDICTS; i++)
		put_drop(d, "policy ", policy_verdict_name(i), s->policy_verdicts[i], 0,
			 "executor addresses that the policy refused to dial");
	put_drop(d, "", "client refused", s->clients_refused, 0,
		 "connections over --max-clients, or without memory for them");
	put_drop(d, "", "client error", s->client_errors, 0,
		 "connections ended because the client broke HTTP/2");
	put_drop(d, "", "executor error", s->upstream_errors, 0,
		 "connections that failed or were broken by the executor");
	put_drop(d, "", "dial failure", s->dial_failures, 0,
		 "connections to executors that could not be made");
	put_drop(d, "", "stream reset", s->streams_reset, 0,
		 "streams that ended without any grpc-status");
	for (unsigned i = 0; i < BUDGETS; i++)
		put_drop(d, "budget ", budget_name(i), s->budget_exhausted[i], 0,
			 "times that a peer used it up, see docs/limits.md");
	put_drop(d, "", "stale event", s->stale_events, 0,
		 "events for objects that were gone (harmless)");
}

static void put_kernel_drops(struct drops *d, const struct sockmap_stats *k)
{
	for (unsigned i = ABI_DROP_EMPTY; i < ABI_REASONS; i++)
		put_drop(d, "kernel ", abi_reason_name(i), k->reasons[i], 0,
			 "socket buffers that the verdict dropped");
	put_drop(d, "kernel ", "inject lost", k->inject_lost, 0,
		 "own frames that found no client socket");
	put_drop(d, "kernel ", "events lost", k->lost_events, 0,
		 "ring buffer full: all pairs were looked at instead");
}

void board_writer_process(struct board_writer *b, const struct board_process *p)
{
	DECLARE_LIBBPF_OPTS(bpf_map_batch_opts, opts, .elem_flags = BPF_ANY);
	struct session_stats sum = { 0 };
	struct drops d = { .n = 0 };
	uint32_t count;

	board_clock_set(&b->clock, read_clock(CLOCK_MONOTONIC),
			read_clock(CLOCK_REALTIME) / NSEC_PER_MSEC);
	for (unsigned i = 0; i < p->n_stats; i++)
		add_stats(&sum, p->stats[i]);
	write_totals(b, p, &sum);
	put_session_drops(&d, &sum);
	if (p->kernel)
		put_kernel_drops(&d, p->kernel);
	count = d.n;
	if (bpf_map_update_batch(bpf_map__fd(b->skel->maps.drops), d.keys, d.values, &count, &opts))
		b->errors++;
}

/* ---------------------------------------------------------------- life */

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

static unsigned share(unsigned entries, unsigned workers)
{
	return entries / workers;
}

static void sheet_init(struct sheet *s, const struct bpf_map *map, unsigned share_of_it)
{
	s->fd = bpf_map__fd(map);
	s->value_size = bpf_map__value_size(map);
	s->limit = share_of_it;
}

int board_writer_new(struct pins *pins, unsigned workers, struct board_writer **ret,
		     char why[PINS_WHY_MAX])
{
	struct board_writer *b = calloc(1, sizeof(*b) + workers * sizeof(b->worker[0]));
	int r;

	if (!b) {
		snprintf(why, PINS_WHY_MAX, "out of memory");
		return -ENOMEM;
	}
	b->pins = pins;
	b->workers = workers;
	b->started_unix_ms = read_clock(CLOCK_REALTIME) / NSEC_PER_MSEC;
	libbpf_set_print(quiet);
	b->skel = board__open();
	r = b->skel ? board__load(b->skel) : -errno;
	if (r) {
		snprintf(why, PINS_WHY_MAX, "making BPF maps: %s%s", strerrordesc_np(-r),
			 r == -EPERM || r == -EACCES ? " (the privilege CAP_BPF is missing)" : "");
		board_writer_free(b);
		return r;
	}
	for (unsigned i = 0; i < workers; i++) {
		struct board_worker *w = &b->worker[i];

		w->worker = i;
		sheet_init(&w->streams, b->skel->maps.streams, share(BOARD_STREAMS, workers));
		sheet_init(&w->clients, b->skel->maps.clients, share(BOARD_CLIENTS, workers));
		sheet_init(&w->executors, b->skel->maps.executors, share(BOARD_EXECUTORS, workers));
	}
	*ret = b;
	return 0;
}

void board_writer_free(struct board_writer *b)
{
	if (!b)
		return;
	for (unsigned i = 0; i < b->workers; i++) {
		sheet_free(&b->worker[i].streams);
		sheet_free(&b->worker[i].clients);
		sheet_free(&b->worker[i].executors);
		free(b->worker[i].sorted);
	}
	board__destroy(b->skel);
	free(b);
}

static int write_build(struct board_writer *b, const struct board_identity *id)
{
	struct board_build build = { .schema = BOARD_SCHEMA,
				     .pid = (uint32_t)getpid(),
				     .started_unix_ms = b->started_unix_ms,
				     .workers = b->workers,
				     .abi = ABI_VERSION };
	uint32_t zero = 0;

	board_text(build.version, sizeof(build.version), fs_version);
	board_clock_text(&b->clock, build.started_unix_ms, build.started);
	board_text(build.listen, sizeof(build.listen), id->listen);
	board_text(build.datapath, sizeof(build.datapath), id->datapath);
	board_text(build.datapath_why, sizeof(build.datapath_why), id->datapath_why);
	return bpf_map_update_elem(bpf_map__fd(b->skel->maps.build), &zero, &build, BPF_ANY)
		       ? -errno
		       : 0;
}

int board_writer_show(struct board_writer *b, const struct board_identity *id,
		      char why[PINS_WHY_MAX])
{
	const struct {
		const char *name;
		const struct bpf_map *map;
	} pins[] = {
		{ "totals", b->skel->maps.totals },       { "drops", b->skel->maps.drops },
		{ "streams", b->skel->maps.streams },     { "clients", b->skel->maps.clients },
		{ "executors", b->skel->maps.executors }, { "build", b->skel->maps.build },
	};
	int r = write_build(b, id);

	if (r)
		snprintf(why, PINS_WHY_MAX, "writing a BPF map: %s", strerrordesc_np(-r));
	for (size_t i = 0; !r && i < ARRAY_SIZE(pins); i++)
		r = pins_put(b->pins, pins[i].name, bpf_map__fd(pins[i].map), why);
	return r;
}
