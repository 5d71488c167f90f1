/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Prometheus text: well-formed, complete (every counter of session_stats is in it),
 * and summed over workers. And the JSON of live streams.
 */
#include "unit/hex.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <time.h>
#include <unistd.h>

#include "obs/exposition.h"
#include "obs/metrics.h"
#include "obs/streams.h"

static char *render(const struct session_stats *const *stats, unsigned n)
{
	struct metrics_source src = { .stats = stats, .n_stats = n, .ready = true };
	size_t len = 0;
	char *text = metrics_render(&src, &len);

	assert_non_null(text);
	assert_int_equal(strlen(text), len);
	return text;
}

/* The value of the sample that a line begins with; fails when there is not just one. */
static double sample(const char *text, const char *name)
{
	char key[160];
	const char *at;

	snprintf(key, sizeof(key), "\n%s ", name);
	at = strstr(text, key);
	if (!at)
		fail_msg("no %s", name);
	assert_null(strstr(at + 1, key));
	return strtod(at + strlen(key), NULL);
}

/*
 * All counters of struct session_stats but these are in the text: the sum of failed dials is in
 * dial_results by result. Histograms have a test of their own.
 */
static bool is_hidden(size_t offset)
{
	return offset == offsetof(struct session_stats, dial_failures);
}

static void every_counter(void **state)
{
	enum { N = offsetof(struct session_stats, first_byte) / sizeof(uint64_t) };
	static union {
		struct session_stats s;
		uint64_t u[N];
	} one, two;
	const struct session_stats *const stats[] = { &one.s, &two.s };
	char *text, number[32];

	(void)state;
	assert_int_equal(sizeof(struct session_stats) % sizeof(uint64_t), 0);
	for (unsigned i = 0; i < N; i++) {
		one.u[i] = 1000000007000000ULL + i;
		two.u[i] = 3 * (1000000ULL + i);
	}
	text = render(stats, 2);
	for (unsigned i = 0; i < N; i++) {
		const char *at;

		snprintf(number, sizeof(number), " %" PRIu64 "\n", one.u[i] + two.u[i]);
		at = strstr(text, number);
		if (is_hidden(i * sizeof(uint64_t))) {
			assert_null(at);
			continue;
		}
		if (!at)
			fail_msg("the counter at byte %zu of session_stats is not exported",
				 i * sizeof(uint64_t));
		/* Once; what the kernel takes from executors it has also given to clients. */
		if (i != offsetof(struct session_stats, data_spliced) / sizeof(uint64_t))
			assert_null(strstr(at + 1, number));
	}
	free(text);
}

static void names(void **state)
{
	static struct session_stats s;
	const struct session_stats *const stats[] = { &s };
	char *text;

	(void)state;
	s.clients_accepted = 1;
	s.clients_open = 2;
	s.streams_ended[END_COMPLETE] = 3;
	s.streams_ended[END_EXECUTOR] = 4;
	s.streams_status[GRPC_OK] = 5;
	s.streams_status[GRPC_UNAVAILABLE] = 6;
	s.streams_status[16] = 7;
	s.policy_verdicts[POLICY_ALLOW] = 88;
	s.policy_verdicts[POLICY_DENY_LOOPBACK] = 8;
	s.data_in = 9;
	s.data_out = 10;
	s.data_spliced = 400;
	s.requests_out = 13;
	s.waiting[WAIT_CLIENT_WINDOW] = 14;
	s.stuck[WAIT_DATA] = 15;
	s.dial_ends[DIAL_END_TIMED_OUT] = 16;
	s.dropped[DROP_CLIENT_GONE] = 11;
	s.held = 12;
	text = render(stats, 1);
	assert_true(sample(text, "flightsplice_clients_accepted_total") == 1);
	assert_true(sample(text, "flightsplice_clients") == 2);
	assert_true(sample(text, "flightsplice_streams_ended_total{ended_by=\"complete\"}") == 3);
	assert_true(sample(text, "flightsplice_streams_ended_total{ended_by=\"executor\"}") == 4);
	assert_true(sample(text, "flightsplice_streams_status_total{grpc_status=\"OK\"}") == 5);
	assert_true(sample(text,
			   "flightsplice_streams_status_total{grpc_status=\"UNAVAILABLE\"}") == 6);
	assert_true(sample(text,
			   "flightsplice_streams_status_total{grpc_status=\"UNAUTHENTICATED_OR_"
			   "OTHER\"}") == 7);
	assert_true(
		sample(text, "flightsplice_policy_verdicts_total{verdict=\"loopback_address\"}") ==
		8);
	assert_true(sample(text, "flightsplice_policy_verdicts_total{verdict=\"allowed\"}") == 88);
	assert_true(sample(text, "flightsplice_executor_data_bytes_total") == 409);
	assert_true(sample(text, "flightsplice_client_data_bytes_total") == 410);
	assert_true(sample(text, "flightsplice_datapath_bytes_total{datapath=\"relay\","
				 "direction=\"from_executor\"}") == 9);
	assert_true(sample(text, "flightsplice_datapath_bytes_total{datapath=\"relay\","
				 "direction=\"to_client\"}") == 10);
	assert_true(sample(text, "flightsplice_datapath_bytes_total{datapath=\"relay\","
				 "direction=\"to_executor\"}") == 13);
	assert_true(sample(text, "flightsplice_datapath_bytes_total{datapath=\"sockmap\","
				 "direction=\"to_client\"}") == 400);
	assert_true(sample(text, "flightsplice_streams_waiting{for=\"client_window\"}") == 14);
	assert_true(sample(text, "flightsplice_streams_stuck{for=\"executor_data\"}") == 15);
	assert_true(sample(text, "flightsplice_dial_results_total{result=\"timed_out\"}") == 16);
	assert_true(sample(text, "flightsplice_dropped_data_bytes_total{reason=\"client_gone\"}") ==
		    11);
	assert_true(sample(text, "flightsplice_held_bytes") == 12);
	assert_true(sample(text, "flightsplice_workers") == 1);
	assert_true(sample(text, "flightsplice_ready") == 1);
	assert_true(sample(text, "flightsplice_draining") == 0);
	assert_non_null(strstr(text, "\nflightsplice_build_info{version=\""));
	free(text);
}

/* On a bound, just above it, above all of them; two workers. */
static void histograms(void **state)
{
	static struct session_stats one, two;
	const struct session_stats *const stats[] = { &one, &two };
	uint64_t before = 0;
	char *text;

	(void)state;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
		assert_true(histogram_bound_ns[i] > before);
		before = histogram_bound_ns[i];
	}
	histogram_add(&one.duration, 0);
	histogram_add(&one.duration, NSEC_PER_MSEC);
	histogram_add(&two.duration, NSEC_PER_MSEC + 1);
	histogram_add(&two.duration, 1000 * NSEC_PER_SEC);
	text = render(stats, 2);
	assert_true(sample(text, "flightsplice_stream_duration_seconds_bucket{le=\"0.0001\"}") ==
		    1);
	assert_true(sample(text, "flightsplice_stream_duration_seconds_bucket{le=\"0.001\"}") == 2);
	assert_true(sample(text, "flightsplice_stream_duration_seconds_bucket{le=\"0.0025\"}") ==
		    3);
	assert_true(sample(text, "flightsplice_stream_duration_seconds_bucket{le=\"300\"}") == 3);
	assert_true(sample(text, "flightsplice_stream_duration_seconds_bucket{le=\"+Inf\"}") == 4);
	assert_true(sample(text, "flightsplice_stream_duration_seconds_count") == 4);
	assert_true(sample(text, "flightsplice_stream_duration_seconds_sum") == 1000.002000001);
	assert_true(sample(text, "flightsplice_dial_duration_seconds_count") == 0);
	assert_true(sample(text, "flightsplice_stream_first_byte_seconds_count") == 0);
	free(text);
}

/* Whoever is asked for more writes it; any text may be a label's value. */
static void write_more(void *ctx, FILE *out)
{
	const struct expo_label label = { "text", "a\"b\\c\nd" };

	expo_family(out, ctx, EXPO_GAUGE, "More.");
	expo_labelled(out, ctx, &label, 1, 0.5);
}

static void more(void **state)
{
	static char name[] = "flightsplice_more";
	struct metrics_source src = { .more = write_more, .ctx = name };
	size_t len;
	char *text = metrics_render(&src, &len), word[EXPO_WORD], longer[2 * EXPO_WORD];

	(void)state;
	assert_non_null(strstr(text, "\nflightsplice_more{text=\"a\\\"b\\\\c\\nd\"} 0.5\n"));
	free(text);
	assert_string_equal(expo_word(word, "link-local or not"), "link_local_or_not");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(strlen(expo_word(word, longer)), EXPO_WORD - 1);
}

static void process(void **state)
{
	char *text = render(NULL, 0);
	double now = (double)time(NULL), started, fds;
	int more[3];
	char *again;

	(void)state;
	started = sample(text, "process_start_time_seconds");
	assert_true(started > now - 3600 && started <= now + 1);
	assert_true(sample(text, "process_resident_memory_bytes") > 100 * 1024);
	assert_true(sample(text, "process_cpu_seconds_total") >= 0);
	assert_true(sample(text, "process_max_fds") >= 3);
	fds = sample(text, "process_open_fds");
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
		more[i] = dup(1);
	again = render(NULL, 0);
	assert_true(sample(again, "process_open_fds") == fds + 3);
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
		close(more[i]);
	free(again);
	free(text);
}

static void log_counters(void **state)
{
	struct log_options o = { .fd = -1, .level = LOG_INFO };
	struct log *log = log_new(&o);
	struct metrics_source src = { .log = log, .draining = true };
	size_t len;
	char *text;

	(void)state;
	log_msg(log, LOG_INFO, "lost");
	text = metrics_render(&src, &len);
	assert_true(sample(text, "flightsplice_log_dropped_lines_total") == 1);
	assert_true(sample(text, "flightsplice_log_lines_total") == 0);
	assert_true(sample(text, "flightsplice_draining") == 1);
	assert_true(sample(text, "flightsplice_ready") == 0);
	free(text);
	log_free(log);
}

static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!islower((unsigned char)s[i]) && s[i] != '_' &&
		    !(i && isdigit((unsigned char)s[i])))
			return false;
	return n > 0;
}

static bool is_sample_of(const char *line, size_t n, const char *family, bool histogram)
{
	static const char *const parts[] = { "_bucket", "_sum", "_count" };
	size_t len = strlen(family);

	if (n < len || memcmp(line, family, len))
		return false;
	for (unsigned i = 0; histogram && i < ARRAY_SIZE(parts); i++)
		if (n == len + strlen(parts[i]) && !memcmp(line + len, parts[i], n - len))
			return true;
	return !histogram && n == len;
}

/*
 * The exposition format as its page describes it: HELP and TYPE before the samples of a
 * family, families in one piece and once, counters and only they end in _total. (What
 * promtool finds as well is a case of tests/e2e.)
 */
static void well_formed(void **state)
{
	static struct session_stats s;
	const struct session_stats *const stats[] = { &s };
	char *text = render(stats, 1), *save = NULL, seen[32768] = "", family[128] = "";
	bool counter = false, histogram = false, typed = false;

	(void)state;
	assert_int_equal(text[strlen(text) - 1], '\n');
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char name[128], key[160];
		size_t n;
		char *end;

		if (!strncmp(line, "# HELP ", 7)) {
			n = strcspn(line + 7, " ");
			assert_true(is_name(line + 7, n));
			snprintf(family, sizeof(family), "%.*s", (int)n, line + 7);
			snprintf(key, sizeof(key), " %s ", family);
			assert_null(strstr(seen, key));
			strcat(seen, key);
			assert_int_equal(line[strlen(line) - 1], '.');
			typed = false;
			continue;
		}
		if (!strncmp(line, "# TYPE ", 7)) {
			assert_int_equal(sscanf(line, "# TYPE %127s %159s", name, key), 2);
			assert_string_equal(name, family);
			counter = !strcmp(key, "counter");
			histogram = !strcmp(key, "histogram");
			assert_true(counter || histogram || !strcmp(key, "gauge"));
			n = strlen(name);
			assert_int_equal(n > 6 && !strcmp(name + n - 6, "_total"), counter);
			typed = true;
			continue;
		}
		n = strcspn(line, "{ ");
		assert_true(typed && is_sample_of(line, n, family, histogram));
		if (line[n] == '{') {
			size_t label = strcspn(line + n + 1, "=");

			assert_true(is_name(line + n + 1, label));
			end = strstr(line, "\"} ");
			assert_non_null(end);
			n = (size_t)(end - line) + 2;
		}
		assert_int_equal(line[n], ' ');
		strtod(line + n + 1, &end);
		assert_true(end > line + n + 1 && !*end);
	}
	free(text);
}

/* ---- streams ---- */

static json_t *streams_parsed(const struct streams *s, unsigned missing)
{
	char *text = streams_json(s, missing);
	json_error_t e;
	json_t *o;

	assert_non_null(text);
	o = json_loads(text, JSON_REJECT_DUPLICATES, &e);
	if (!o)
		fail_msg("%s: %s", e.text, text);
	free(text);
	return o;
}

static json_int_t number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	assert_true(json_is_integer(v));
	return json_integer_value(v);
}

static void expect_text(const json_t *o, const char *key, const char *text)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s)
		fail_msg("no %s", key);
	assert_string_equal(s, text);
}

static void stream_rows(void **state)
{
	struct streams *s = streams_new();
	struct ticket t = {
		.host = "exec-1", .port = 50051, .job = "j", .stage = 2, .partition = 3
	};
	char state_name[] = "relaying", waits[] = "client window";
	struct stream_view v = {
		.ticket = &t,
		.stream_id = 5,
		.state = state_name,
		.waits_for = waits,
		.datapath = "relay",
		.data_bytes = 1000,
		.granted = 2000,
		.held = 30,
		.age_ns = 1500000000,
		.quiet_ns = 250000,
	};
	json_t *o, *row;

	(void)state;
	addr_parse("10.0.0.9:4", &v.client);
	addr_parse("10.1.0.4:50051", &v.executor);
	streams_add(s, &v);
	/* Everything was copied. */
	memset(&t, 'x', sizeof(t));
	memset(state_name, 'x', sizeof(state_name) - 1);
	memset(waits, 'x', sizeof(waits) - 1);
	v.ticket = NULL;
	v.executor.len = 0;
	v.state = NULL;
	streams_add(s, &v);
	assert_int_equal(streams_count(s), 2);

	o = streams_parsed(s, 1);
	assert_int_equal(number(o, "omitted"), 0);
	assert_int_equal(number(o, "workers_missing"), 1);
	assert_int_equal(json_array_size(json_object_get(o, "streams")), 2);
	row = json_array_get(json_object_get(o, "streams"), 0);
	expect_text(row, "client", "10.0.0.9:4");
	expect_text(row, "address", "10.1.0.4:50051");
	expect_text(row, "host", "exec-1");
	expect_text(row, "job", "j");
	expect_text(row, "state", "relaying");
	expect_text(row, "waits_for", "client window");
	expect_text(row, "datapath", "relay");
	assert_int_equal(number(row, "stream"), 5);
	assert_int_equal(number(row, "port"), 50051);
	assert_int_equal(number(row, "stage"), 2);
	assert_int_equal(number(row, "partition"), 3);
	assert_int_equal(number(row, "bytes"), 1000);
	assert_int_equal(number(row, "granted_bytes"), 2000);
	assert_int_equal(number(row, "held_bytes"), 30);
	assert_true(json_real_value(json_object_get(row, "age_ms")) == 1500.0);
	assert_true(json_real_value(json_object_get(row, "quiet_ms")) == 0.25);
	row = json_array_get(json_object_get(o, "streams"), 1);
	assert_null(json_object_get(row, "host"));
	assert_null(json_object_get(row, "address"));
	expect_text(row, "state", "");
	json_decref(o);
	streams_free(s);
	streams_free(NULL);
}

static void stream_lists(void **state)
{
	struct streams *a = streams_new(), *b = streams_new();
	struct stream_view v = { .state = "s", .waits_for = "w", .datapath = "d" };
	json_t *o, *list;

	(void)state;
	o = streams_parsed(a, 0);
	assert_int_equal(json_array_size(json_object_get(o, "streams")), 0);
	json_decref(o);

	/* Merged in order, one emptied. */
	for (v.stream_id = 1; v.stream_id <= 100; v.stream_id++)
		streams_add(a, &v);
	for (; v.stream_id <= 300; v.stream_id++)
		streams_add(b, &v);
	streams_merge(a, b);
	assert_int_equal(streams_count(a), 300);
	assert_int_equal(streams_count(b), 0);
	o = streams_parsed(a, 0);
	list = json_object_get(o, "streams");
	for (unsigned i = 0; i < 300; i++)
		assert_int_equal(number(json_array_get(list, i), "stream"), i + 1);
	json_decref(o);
	streams_merge(a, b);
	assert_int_equal(streams_count(a), 300);

	/* Bounded, each and together; what is left out is counted. */
	for (unsigned i = 0; i < STREAMS_MAX + 5; i++)
		streams_add(b, &v);
	assert_int_equal(streams_count(b), STREAMS_MAX);
	streams_merge(a, b);
	assert_int_equal(streams_count(a), STREAMS_MAX);
	o = streams_parsed(a, 0);
	assert_int_equal(number(o, "omitted"), 5 + 300);
	json_decref(o);
	streams_free(a);
	streams_free(b);
}

/* Text that is not UTF-8 must not cost the list. */
static void stream_bad_text(void **state)
{
	struct streams *s = streams_new();
	struct ticket t = { .host = "h", .port = 1, .job = "\xff" };
	struct stream_view v = { .ticket = &t, .state = "s", .waits_for = "w", .datapath = "d" };
	json_t *o;

	(void)state;
	streams_add(s, &v);
	o = streams_parsed(s, 0);
	expect_text(json_array_get(json_object_get(o, "streams"), 0), "job", "?");
	json_decref(o);
	streams_free(s);
}

static json_t *executors_parsed(const struct streams *s)
{
	char *text = streams_executors_json(s, 0);
	json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

	assert_non_null(o);
	free(text);
	return o;
}

/* Two workers that use the same executor, and what their streams wait for. */
static void executor_rows(void **state)
{
	struct streams *one = streams_new(), *two = streams_new();
	struct executor_view x = { .host = "Exec-1", .port = 5, .idle = 1, .served = 7 };
	struct ticket t = { .host = "exec-1", .port = 5, .job = "j" };
	struct stream_view v = { .ticket = &t,
				 .state = "s",
				 .datapath = "d",
				 .data_bytes = 10,
				 .granted = 3,
				 .held = 2 };
	static const struct {
		const char *waits_for;
		uint64_t quiet_ns;
	} waits[] = { { "client window", 9000000000 },
		      { "executor data", 2000000000 },
		      { "executor connection", 4000000000 } };
	json_t *o, *row;

	(void)state;
	x.unused_ns = 5000000;
	streams_add_executor(one, &x);
	x.host = "fd00::7";
	streams_add_executor(one, &x);
	x.host = "exec-1";
	x.unused_ns = 1000000;
	streams_add_executor(two, &x);
	for (unsigned i = 0; i < ARRAY_SIZE(waits); i++) {
		v.waits_for = waits[i].waits_for;
		v.quiet_ns = waits[i].quiet_ns;
		streams_add(i ? two : one, &v);
	}
	streams_merge(one, two);
	o = executors_parsed(one);
	assert_int_equal(json_array_size(json_object_get(o, "executors")), 2);
	row = json_array_get(json_object_get(o, "executors"), 0);
	expect_text(row, "executor", "Exec-1:5");
	assert_int_equal(number(row, "streams"), 3);
	assert_int_equal(number(row, "unconnected"), 1);
	assert_int_equal(number(row, "waiting_for_executor"), 2);
	assert_int_equal(number(row, "waiting_for_client"), 1);
	assert_int_equal(number(row, "bytes"), 30);
	assert_int_equal(number(row, "granted_bytes"), 9);
	assert_int_equal(number(row, "held_bytes"), 6);
	assert_int_equal(number(row, "idle_connections"), 2);
	assert_int_equal(number(row, "streams_served"), 14);
	assert_true(json_real_value(json_object_get(row, "longest_wait_ms")) == 4000);
	assert_true(json_real_value(json_object_get(row, "unused_ms")) == 1);
	row = json_array_get(json_object_get(o, "executors"), 1);
	expect_text(row, "executor", "[fd00::7]:5");
	assert_int_equal(number(row, "streams"), 0);
	json_decref(o);
	/* What came with the merge is not there twice. */
	o = executors_parsed(two);
	assert_int_equal(json_array_size(json_object_get(o, "executors")), 0);
	json_decref(o);
	for (unsigned i = 0; i < STREAMS_EXECUTORS_MAX + 5; i++) {
		x.port = (uint16_t)(100 + i);
		streams_add_executor(two, &x);
	}
	o = executors_parsed(two);
	assert_int_equal(json_array_size(json_object_get(o, "executors")), STREAMS_EXECUTORS_MAX);
	assert_int_equal(number(o, "omitted"), 5);
	json_decref(o);
	streams_free(one);
	streams_free(two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_counter), cmocka_unit_test(names),
		cmocka_unit_test(histograms),    cmocka_unit_test(more),
		cmocka_unit_test(process),       cmocka_unit_test(log_counters),
		cmocka_unit_test(well_formed),   cmocka_unit_test(stream_rows),
		cmocka_unit_test(stream_lists),  cmocka_unit_test(stream_bad_text),
		cmocka_unit_test(executor_rows),
	};

	return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
