/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands print of a snapshot: units, rates, tables, JSON, arguments.
 */
#include "unit/hex.h"

#include <jansson.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/look.h"
#include "cli/rates.h"
#include "cli/units.h"
#include "cli/view.h"

#define START 1796000000000ULL

/* ---- a snapshot to look at ---- */

static struct snapshot_instance instances[2];
static struct snapshot_stream streams[4];
static struct snapshot_client clients[2];
static struct snapshot_executor executors[3];
static struct snapshot_drop drops[3];
static struct snapshot now;

static void set_instance(unsigned i, uint32_t pid)
{
	instances[i] = (struct snapshot_instance){
		.folder = "/sys/fs/bpf/x",
		.build = { .schema = BOARD_SCHEMA,
			   .pid = pid,
			   .version = "1.2.3",
			   .listen = "127.0.0.1:1",
			   .started_unix_ms = START,
			   .workers = 2 },
		.totals = { .written = "2026-11-30 00:00:00.000",
			    .written_unix_ms = START + 10000,
			    .state = "ready",
			    .bytes_by_relay = 1000,
			    .bytes_by_kernel = 5000 },
	};
}

static void set_stream(unsigned i, unsigned instance, uint32_t worker, uint32_t number,
		       const char *job, const char *executor, uint64_t bytes)
{
	struct snapshot_stream *s = &streams[i];

	*s = (struct snapshot_stream){ .instance = instance, .key = { worker, number } };
	snprintf(s->v.job, sizeof(s->v.job), "%s", job);
	snprintf(s->v.executor, sizeof(s->v.executor), "%s", executor);
	snprintf(s->v.waits_for, sizeof(s->v.waits_for), "client window");
	snprintf(s->v.datapath, sizeof(s->v.datapath), "%s", i ? "relay" : "sockmap");
	s->v.bytes = bytes;
	s->v.client_number = 7;
	s->v.since_unix_ms = START + 10000 - 1000ULL * i;
	s->v.opened_unix_ms = START + 5000;
	s->v.written_unix_ms = START + 10000;
}

static void set_executor(unsigned i, uint32_t worker, const char *name, uint32_t n_streams,
			 uint64_t quietest)
{
	executors[i] = (struct snapshot_executor){ .key = { worker, 1 + i } };
	snprintf(executors[i].v.executor, sizeof(executors[i].v.executor), "%s", name);
	executors[i].v.streams = n_streams;
	executors[i].v.bytes = 100;
	executors[i].v.quietest_since_unix_ms = quietest;
}

static void set_drop(unsigned i, unsigned instance, const char *reason, uint64_t times)
{
	drops[i] = (struct snapshot_drop){ .instance = instance, .v = { .times = times } };
	snprintf(drops[i].key.reason, sizeof(drops[i].key.reason), "%s", reason);
}

/* Two processes' worth; tests take of it what they need. */
static int setup(void **state)
{
	(void)state;
	set_instance(0, 100);
	set_instance(1, 200);
	set_stream(0, 0, 0, 1, "alpha", "exec-a:1", 5000);
	set_stream(1, 0, 1, 1, "Beta", "exec-b:1", 300);
	set_stream(2, 0, 0, 2, "gamma", "exec-a:1", 40000);
	set_stream(3, 1, 0, 1, "delta", "exec-b:1", 7);
	for (unsigned i = 0; i < 2; i++) {
		clients[i] = (struct snapshot_client){ .key = { i, 7 } };
		snprintf(clients[i].v.client, sizeof(clients[i].v.client), "10.0.0.%u:9", i);
	}
	set_executor(0, 0, "exec-b:1", 1, 0);
	set_executor(1, 0, "exec-a:1", 2, START + 9000);
	set_executor(2, 1, "exec-b:1", 4, START + 4000);
	set_drop(0, 0, "dial failure", 3);
	set_drop(1, 0, "bytes padding", 0);
	set_drop(2, 1, "dial failure", 4);
	now = (struct snapshot){ .taken_unix_ms = START + 10000,
				 .instances = instances,
				 .n_instances = 1,
				 .streams = streams,
				 .n_streams = 3,
				 .clients = clients,
				 .n_clients = 2,
				 .executors = executors,
				 .n_executors = 3,
				 .drops = drops,
				 .n_drops = 2 };
	return 0;
}

/* ---- units ---- */

static void units(void **state)
{
	static const struct {
		uint64_t n;
		const char *bytes, *duration;
	} cases[] = {
		{ 0, "0 B", "0ms" },
		{ 999, "999 B", "999ms" },
		{ 1000, "1000 B", "1.0s" },
		{ 1023, "1023 B", "1.0s" },
		{ 1024, "1.0 KiB", "1.0s" },
		{ 1536, "1.5 KiB", "1.5s" },
		{ 59999, "58.6 KiB", "59.9s" },
		{ 60000, "58.6 KiB", "1m00s" },
		{ 102399, "100 KiB", "1m42s" },
		{ 1047552, "1023 KiB", "17m27s" },
		{ 1048575, "1.0 MiB", "17m28s" },
		{ 3600000, "3.4 MiB", "1h00m" },
		{ 90000000, "85.8 MiB", "1d01h" },
		{ UINT64_MAX, "16.0 EiB", "99999d07h" },
	};
	char buf[UNITS_LEN];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_string_equal(units_bytes(buf, cases[i].n), cases[i].bytes);
		if (cases[i].n != UINT64_MAX)
			assert_string_equal(units_duration(buf, cases[i].n), cases[i].duration);
	}
	units_duration(buf, UINT64_MAX);
	assert_true(strlen(buf) < UNITS_LEN);
	assert_string_equal(units_rate(buf, -1), "-");
	assert_string_equal(units_rate(buf, 0), "0 B/s");
	assert_string_equal(units_rate(buf, 2.5 * 1024), "2.5 KiB/s");
	assert_string_equal(units_rate(buf, 0.0 / 0.0), "-");
}

/* ---- rates ---- */

static void rates_between_writes(void **state)
{
	struct rates *r = rates_new();

	(void)state;
	assert_true(rates_update(r, &now));
	assert_true(rates_stream(r, 0) < 0);
	assert_true(rates_instance(r, 0).relay < 0);
	/* Half a second later by the writer's clock, two seconds by the reader's. */
	streams[0].v.bytes += 1000;
	streams[0].v.written_unix_ms += 500;
	now.taken_unix_ms += 2000;
	instances[0].totals.bytes_by_relay += 3000;
	instances[0].totals.bytes_by_kernel += 7000;
	instances[0].totals.written_unix_ms += 1000;
	assert_true(rates_update(r, &now));
	assert_true(rates_stream(r, 0) == 2000);
	assert_true(rates_stream(r, 1) <
		    0); /* not written since, and seen for the first time before */
	assert_true(rates_instance(r, 0).relay == 3000);
	assert_true(rates_instance(r, 0).kernel == 7000);
	/* Nothing new was written: the rate stays, and ends when that lasts. */
	now.taken_unix_ms += 500;
	assert_true(rates_update(r, &now));
	assert_true(rates_stream(r, 0) == 2000);
	now.taken_unix_ms += 10000;
	assert_true(rates_update(r, &now));
	assert_true(rates_stream(r, 0) == 0);
	assert_true(rates_instance(r, 0).kernel == 0);
	/* Fewer bytes than before is another stream under the number. */
	streams[0].v.bytes = 1;
	streams[0].v.written_unix_ms += 500;
	assert_true(rates_update(r, &now));
	assert_true(rates_stream(r, 0) == 0);
	rates_free(r);
}

static void rates_tell_apart(void **state)
{
	struct rates *r = rates_new();

	(void)state;
	now.n_instances = 2;
	now.n_streams = 4;
	assert_true(rates_update(r, &now));
	/* The same number in another worker, and in another process. */
	for (unsigned i = 0; i < 4; i++) {
		streams[i].v.bytes += 100 * (i + 1);
		streams[i].v.written_unix_ms += 1000;
	}
	assert_true(rates_update(r, &now));
	for (unsigned i = 0; i < 4; i++)
		assert_true(rates_stream(r, i) == 100 * (i + 1));
	/* Another process with the same pid has nothing to do with it. */
	instances[1].build.started_unix_ms++;
	streams[3].v.written_unix_ms += 1000;
	assert_true(rates_update(r, &now));
	assert_true(rates_stream(r, 3) < 0);
	rates_free(r);
	rates_free(NULL);
}

/* ---- tables ---- */

static unsigned column(const struct view *v, const char *title)
{
	for (unsigned c = 0; c < view_columns(v); c++)
		if (!strcmp(view_column(v, c)->title, title))
			return c;
	fail_msg("no column %s", title);
	return 0;
}

static void assert_cell(const struct view *v, unsigned row, const char *title, const char *want)
{
	char buf[VIEW_CELL];

	assert_string_equal(view_cell(v, row, column(v, title), buf), want);
}

static void table_of_streams(void **state)
{
	struct view *v = view_new(VIEW_STREAMS, &now, NULL, NULL);

	(void)state;
	assert_int_equal(view_rows(v), 3);
	assert_cell(v, 0, "JOB", "alpha");
	assert_cell(v, 1, "SINCE", "1.0s");
	assert_cell(v, 1, "CLIENT", "-");
	view_sort(v, column(v, "BYTES"), false);
	assert_cell(v, 0, "JOB", "gamma");
	assert_cell(v, 2, "JOB", "Beta");
	view_sort(v, column(v, "BYTES"), true);
	assert_cell(v, 0, "JOB", "Beta");
	view_sort(v, column(v, "JOB"), false);
	assert_cell(v, 0, "JOB", "Beta");
	/* Ties keep their order. */
	view_sort(v, column(v, "WAITS FOR"), false);
	assert_cell(v, 0, "JOB", "Beta");
	for (unsigned c = 0; c < view_columns(v); c++) {
		assert_string_not_equal(view_column(v, c)->title, "RATE");
		assert_string_not_equal(view_column(v, c)->title, "PID");
	}
	view_free(v);
	now.n_instances = 2;
	now.n_streams = 4;
	v = view_new(VIEW_STREAMS, &now, NULL, NULL);
	assert_cell(v, 3, "PID", "200");
	view_free(v);
	view_free(NULL);
}

static void filter(void **state)
{
	struct view *v = view_new(VIEW_STREAMS, &now, NULL, "BETA");

	(void)state;
	assert_int_equal(view_rows(v), 1);
	assert_int_equal(view_hidden(v), 2);
	assert_cell(v, 0, "JOB", "Beta");
	view_free(v);
	v = view_new(VIEW_STREAMS, &now, NULL, "exec-a");
	assert_int_equal(view_rows(v), 2);
	view_free(v);
	v = view_new(VIEW_STREAMS, &now, NULL, "exec-ab");
	assert_int_equal(view_rows(v), 0);
	view_free(v);
	v = view_new(VIEW_STREAMS, &now, NULL, "");
	assert_int_equal(view_rows(v), 3);
	view_free(v);
}

static void table_of_executors(void **state)
{
	struct rates *r = rates_new();
	struct view *v;

	(void)state;
	assert_true(rates_update(r, &now));
	for (unsigned i = 0; i < 3; i++) {
		streams[i].v.bytes += 1024;
		streams[i].v.written_unix_ms += 1000;
	}
	assert_true(rates_update(r, &now));
	v = view_new(VIEW_EXECUTORS, &now, r, NULL);
	/* Two workers use exec-b. */
	assert_int_equal(view_rows(v), 2);
	assert_int_equal(view_default_column(v), column(v, "RATE"));
	view_sort(v, view_default_column(v), false);
	assert_cell(v, 0, "EXECUTOR", "exec-a:1");
	assert_cell(v, 0, "RATE", "2.0 KiB/s");
	assert_cell(v, 0, "STREAMS", "2");
	assert_cell(v, 1, "RATE", "1.0 KiB/s");
	assert_cell(v, 1, "STREAMS", "5");
	assert_cell(v, 1, "BYTES", "200 B");
	assert_cell(v, 1, "LONGEST", "6.0s");
	assert_cell(v, 1, "USED", "-");
	view_free(v);
	v = view_new(VIEW_CLIENTS, &now, r, NULL);
	assert_int_equal(view_rows(v), 2);
	assert_cell(v, 0, "RATE", "2.0 KiB/s"); /* two streams of worker 0 */
	assert_cell(v, 1, "RATE", "1.0 KiB/s");
	view_free(v);
	rates_free(r);
}

static void table_of_datapaths_and_drops(void **state)
{
	struct view *v = view_new(VIEW_DATAPATHS, &now, NULL, NULL);

	(void)state;
	assert_cell(v, 0, "DATAPATH", "relay");
	assert_cell(v, 0, "STREAMS", "2");
	assert_cell(v, 0, "BYTES SINCE START", "1000 B");
	assert_cell(v, 1, "STREAMS", "1");
	assert_cell(v, 1, "BYTES SINCE START", "4.9 KiB");
	view_free(v);
	now.n_instances = 2;
	now.n_drops = 3;
	v = view_new(VIEW_DROPS, &now, NULL, NULL);
	/* What never happened is not shown; two processes are one sum. */
	assert_int_equal(view_rows(v), 1);
	assert_cell(v, 0, "REASON", "dial failure");
	assert_cell(v, 0, "TIMES", "7");
	view_free(v);
}

static void empty_tables(void **state)
{
	struct snapshot none = { .instances = instances, .n_instances = 1 };

	(void)state;
	for (unsigned k = 0; k < VIEW_KINDS; k++) {
		struct view *v = view_new((enum view_kind)k, &none, NULL, "x");

		view_sort(v, 0, false);
		assert_int_equal(view_rows(v), 0);
		view_free(v);
	}
}

static void remarks(void **state)
{
	char buf[VIEW_REMARK];

	(void)state;
	assert_string_equal(view_remark(&now, 0, buf), "");
	now.taken_unix_ms += 12000;
	assert_non_null(
		strstr(view_remark(&now, 0, buf), "written nothing into /sys/fs/bpf/x for 12"));
	instances[0].process = SNAPSHOT_STOPPED;
	assert_non_null(strstr(view_remark(&now, 0, buf), "process 100 is stopped"));
	instances[0].process = SNAPSHOT_GONE;
	assert_non_null(strstr(view_remark(&now, 0, buf), "process 100 is gone"));
}

/* ---- the commands ---- */

static char asked_dir[64];
static int read_result;

static int fake_read(const char *pin_dir, struct snapshot **ret, char why[SNAPSHOT_WHY_MAX])
{
	snprintf(asked_dir, sizeof(asked_dir), "%s", pin_dir);
	if (read_result) {
		snprintf(why, SNAPSHOT_WHY_MAX, "there is nothing, says the test");
		return read_result;
	}
	*ret = &now;
	return 0;
}

static void fake_free(struct snapshot *s)
{
	if (s)
		assert_ptr_equal(s, &now);
}

static const struct look_source source = { fake_read, fake_free };

struct result {
	int code;
	char out[16384], err[4096];
};

static void read_back(FILE *f, char *buf, size_t cap)
{
	size_t n;

	rewind(f);
	n = fread(buf, 1, cap - 1, f);
	buf[n] = '\0';
	fclose(f);
}

static void command(struct result *r, unsigned argc, const char *const *words)
{
	FILE *files[2] = { tmpfile(), tmpfile() };
	char *argv[8] = { NULL };
	int saved[2];

	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		saved[i] = dup(i + 1);
		dup2(fileno(files[i]), i + 1);
	}
	for (unsigned i = 0; i < argc; i++)
		argv[i] = (char *)words[i];
	r->code = look_main(&source, (int)argc, argv);
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		dup2(saved[i], i + 1);
		close(saved[i]);
	}
	read_back(files[0], r->out, sizeof(r->out));
	read_back(files[1], r->err, sizeof(r->err));
}

#define COMMAND(r, ...)                                                                            \
	command(r, (unsigned)ARRAY_SIZE(((const char *[]){ __VA_ARGS__ })),                        \
		(const char *[]){ __VA_ARGS__ })

static void prints_tables(void **state)
{
	struct result r;

	(void)state;
	read_result = 0;
	COMMAND(&r, "streams");
	assert_int_equal(r.code, CLI_OK);
	assert_string_equal(r.err, "");
	assert_string_equal(asked_dir, "/sys/fs/bpf/flightsplice");
	assert_true(!strncmp(r.out, "JOB  ", 5));
	/* Without rates, by bytes as they came: three rows. */
	assert_non_null(strstr(r.out, "\ngamma "));
	COMMAND(&r, "executors", "--pin-dir", "/sys/fs/bpf/y");
	assert_string_equal(asked_dir, "/sys/fs/bpf/y");
	assert_non_null(strstr(r.out, "exec-b:1"));
	COMMAND(&r, "clients", "--pin-dir=/sys/fs/bpf/z");
	assert_string_equal(asked_dir, "/sys/fs/bpf/z");
	assert_non_null(strstr(r.out, "10.0.0.1:9"));
	COMMAND(&r, "stats");
	assert_non_null(strstr(r.out, "process 100, flightsplice 1.2.3, ready, listens on"));
	assert_non_null(strstr(r.out, "dial failure"));
	now.n_drops = 0;
	COMMAND(&r, "stats");
	assert_non_null(strstr(r.out, "nothing dropped or refused"));
}

static void prints_json(void **state)
{
	static const char *const lists[] = { "streams", "executors", "clients", "stats" };
	struct result r;

	(void)state;
	read_result = 0;
	instances[0].process = SNAPSHOT_STOPPED;
	for (unsigned i = 0; i < ARRAY_SIZE(lists); i++) {
		const char *list = i == 3 ? "drops" : lists[i];
		json_t *root, *rows;

		COMMAND(&r, lists[i], "--json");
		assert_int_equal(r.code, CLI_OK);
		assert_non_null(strstr(r.err, "is stopped"));
		root = json_loads(r.out, 0, NULL);
		assert_non_null(root);
		rows = json_object_get(root, list);
		assert_int_equal(json_array_size(rows), i == 0 || i == 1 ? 3 : 2);
		assert_int_equal(
			json_integer_value(json_object_get(json_array_get(rows, 0), "pid")), 100);
		rows = json_array_get(json_object_get(root, "processes"), 0);
		assert_string_equal(json_string_value(json_object_get(rows, "process")), "stopped");
		assert_int_equal(json_integer_value(json_object_get(json_object_get(rows, "totals"),
								    "bytes_by_kernel")),
				 5000);
		json_decref(root);
	}
	COMMAND(&r, "streams", "--json");
	assert_non_null(strstr(r.out, "\"job\":\"gamma\",\"stage\":0"));
	assert_null(strstr(r.out, "bytes_per_second"));
}

static void refuses(void **state)
{
	struct result r;

	(void)state;
	read_result = -ENOENT;
	COMMAND(&r, "streams");
	assert_int_equal(r.code, CLI_FAILURE);
	assert_string_equal(r.out, "");
	assert_string_equal(r.err, "flightsplice streams: there is nothing, says the test\n");
	COMMAND(&r, "streams", "--watch", "--json");
	assert_int_equal(r.code, CLI_FAILURE);
	COMMAND(&r, "top");
	assert_int_equal(r.code, CLI_FAILURE);
	assert_non_null(strstr(r.err, "there is nothing"));
	read_result = 0;
	COMMAND(&r, "top", "--json");
	assert_int_equal(r.code, CLI_USAGE);
	COMMAND(&r, "streams", "--pin-dir");
	assert_int_equal(r.code, CLI_USAGE);
	COMMAND(&r, "streams", "extra");
	assert_int_equal(r.code, CLI_USAGE);
	assert_non_null(strstr(r.err, "'extra'"));
	COMMAND(&r, "stats", "--help");
	assert_int_equal(r.code, CLI_OK);
	assert_non_null(strstr(r.out, "--watch"));
	/* No terminal here. */
	COMMAND(&r, "top");
	assert_int_equal(r.code, CLI_FAILURE);
	assert_non_null(strstr(r.err, "needs a terminal"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(units, setup),
		cmocka_unit_test_setup(rates_between_writes, setup),
		cmocka_unit_test_setup(rates_tell_apart, setup),
		cmocka_unit_test_setup(table_of_streams, setup),
		cmocka_unit_test_setup(filter, setup),
		cmocka_unit_test_setup(table_of_executors, setup),
		cmocka_unit_test_setup(table_of_datapaths_and_drops, setup),
		cmocka_unit_test_setup(empty_tables, setup),
		cmocka_unit_test_setup(remarks, setup),
		cmocka_unit_test_setup(prints_tables, setup),
		cmocka_unit_test_setup(prints_json, setup),
		cmocka_unit_test_setup(refuses, setup),
	};

	unsetenv("FLIGHTSPLICE_PIN_DIR");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
