/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.c - session_stats of all workers, summed, as Prometheus text.
 *
 * One row of a table per metric: where its counter is in struct session_stats, and
 * for an array of them the label that tells its elements apart. Workers go on
 * counting meanwhile: each number is whole (64-bit relaxed loads), the set is not a
 * snapshot. So data_in = data_out + dropped holds exactly only when nothing moves.
 */
#include "obs/metrics.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/version.h"
#include "obs/exposition.h"

struct metric {
	const char *name; /* after "flightsplice_" */
	const char *help;
	size_t offset;
	bool gauge;
	/* An array of n: elements are told apart by label="name(i)". */
	const char *label;
	const char *(*label_value)(unsigned i);
	unsigned n;
};

static const char *end_label(unsigned i)
{
	return stream_end_name((enum stream_end)i);
}

static const char *wait_label(unsigned i)
{
	return stream_wait_name((enum stream_wait)i);
}

static const char *dial_label(unsigned i)
{
	return dial_end_name((enum dial_end)i);
}

static const char *drop_label(unsigned i)
{
	return drop_reason_name((enum drop_reason)i);
}

static const char *verdict_label(unsigned i)
{
	return policy_verdict_name((enum policy_verdict)i);
}

static const char *budget_label(unsigned i)
{
	return budget_name((enum budget_id)i);
}

static const char *status_label(unsigned i)
{
	/* The last one also has what gRPC gives no name. */
	return i < 16 ? grpc_status_name((int)i) : "UNAUTHENTICATED_OR_OTHER";
}

#define COUNTER(name_, field, help_)                                                               \
	{                                                                                          \
		.name = (name_), .help = (help_), .offset = offsetof(struct session_stats, field), \
		.n = 1                                                                             \
	}
#define GAUGE(name_, field, help_)                                                                 \
	{                                                                                          \
		.name = (name_), .help = (help_), .offset = offsetof(struct session_stats, field), \
		.n = 1, .gauge = true                                                              \
	}
#define FAMILY(name_, field, label_, fn, help_)                                                    \
	{                                                                                          \
		.name = (name_), .help = (help_), .offset = offsetof(struct session_stats, field), \
		.n = ARRAY_SIZE(((struct session_stats *)0)->field), .label = (label_),            \
		.label_value = (fn)                                                                \
	}
#define FAMILY_OF_GAUGES(name_, field, label_, fn, help_)                                          \
	{                                                                                          \
		.name = (name_), .help = (help_), .offset = offsetof(struct session_stats, field), \
		.n = ARRAY_SIZE(((struct session_stats *)0)->field), .label = (label_),            \
		.label_value = (fn), .gauge = true                                                 \
	}

static const struct metric metrics[] = {
	COUNTER("clients_accepted_total", clients_accepted, "Client connections accepted."),
	COUNTER("clients_refused_total", clients_refused,
		"Client connections refused, over --max-clients or "
		"--max-clients-per-source."),
	GAUGE("clients", clients_open, "Client connections open."),
	COUNTER("client_errors_total", client_errors,
		"Client connections ended for an error of the client."),
	COUNTER("streams_opened_total", streams_opened, "Streams (requests) opened by clients."),
	GAUGE("streams", streams_open, "Streams open."),
	FAMILY("streams_ended_total", streams_ended, "ended_by", end_label,
	       "Streams ended, by who ended them."),
	FAMILY("streams_status_total", streams_status, "grpc_status", status_label,
	       "Streams ended, by the gRPC status that the client was told."),
	COUNTER("streams_reset_total", streams_reset, "Streams ended without any gRPC status."),
	GAUGE("upstreams", upstreams_open, "Connections to executors."),
	GAUGE("upstreams_idle", upstreams_idle, "Connections to executors without a stream."),
	COUNTER("upstream_errors_total", upstream_errors,
		"Connections to executors ended for an error."),
	COUNTER("upstream_reuses_total", upstream_reuses,
		"Streams that found a connection to their executor."),
	COUNTER("dials_total", dials, "Attempts to connect to an executor."),
	FAMILY("dial_results_total", dial_ends, "result", dial_label,
	       "Attempts to connect to an executor that have ended, by how."),
	COUNTER("promotions_total", promotions, "Upstreams handed to a kernel datapath."),
	COUNTER("retries_total", retries, "Streams tried again on a new connection."),
	FAMILY("policy_verdicts_total", policy_verdicts, "verdict", verdict_label,
	       "What the policy said of executors to be connected to."),
	FAMILY_OF_GAUGES("streams_waiting", waiting, "for", wait_label,
			 "Streams open, by what they wait for, as of about a second ago."),
	FAMILY_OF_GAUGES("streams_stuck", stuck, "for", wait_label,
			 "The part of streams_waiting without progress for 10 seconds or more."),
	FAMILY("dropped_data_bytes_total", dropped, "reason", drop_label,
	       "The part of executor_data_bytes_total that was not delivered, by reason."),
	GAUGE("granted_bytes", granted,
	      "Flow-control credit that executors have and have not used."),
	GAUGE("held_bytes", held, "Bytes of results held in memory."),
	FAMILY("budget_exhausted_total", budget_exhausted, "budget", budget_label,
	       "Times that a peer, or all of them together, used up a budget (see "
	       "docs/limits.md)."),
	COUNTER("stale_events_total", stale_events, "Events for a handle that was gone already."),
};

/* The counter at an offset of struct session_stats, of all workers. */
static uint64_t sum(const struct metrics_source *src, size_t offset)
{
	uint64_t total = 0;

	for (unsigned w = 0; w < src->n_stats; w++) {
		const char *at = (const char *)src->stats[w] + offset;

		total += __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
	}
	return total;
}

#define SUM(src, field) sum(src, offsetof(struct session_stats, field))

static void put_metric(FILE *out, const struct metrics_source *src, const struct metric *m)
{
	char name[64], word[EXPO_WORD];

	snprintf(name, sizeof(name), "flightsplice_%s", m->name);
	expo_family(out, name, m->gauge ? EXPO_GAUGE : EXPO_COUNTER, m->help);
	for (unsigned i = 0; i < m->n; i++) {
		struct expo_label label = { m->label, NULL };

		if (m->label)
			label.value = expo_word(word, m->label_value(i));
		expo_labelled_u64(out, name, &label, m->label ? 1 : 0,
				  sum(src, m->offset + i * sizeof(uint64_t)));
	}
}

static void put_total(FILE *out, const char *name, const char *help, uint64_t value)
{
	expo_family(out, name, EXPO_COUNTER, help);
	expo_labelled_u64(out, name, NULL, 0, value);
}

static void put_way(FILE *out, const char *datapath, const char *direction, uint64_t bytes)
{
	const struct expo_label labels[] = { { "datapath", datapath }, { "direction", direction } };

	expo_labelled_u64(out, "flightsplice_datapath_bytes_total", labels, ARRAY_SIZE(labels),
			  bytes);
}

static void put_bytes(FILE *out, const struct metrics_source *src)
{
	uint64_t in = SUM(src, data_in), sent = SUM(src, data_out);
	uint64_t spliced = SUM(src, data_spliced);

	put_total(out, "flightsplice_executor_data_bytes_total",
		  "DATA that came from executors, flow-controlled bytes.", in + spliced);
	put_total(out, "flightsplice_client_data_bytes_total",
		  "The part of executor_data_bytes_total that went to clients.", sent + spliced);
	expo_family(out, "flightsplice_datapath_bytes_total", EXPO_COUNTER,
		    "Bytes by the way they went: DATA of results, and request messages.");
	put_way(out, "relay", "from_executor", in);
	put_way(out, "relay", "to_client", sent);
	put_way(out, "relay", "to_executor", SUM(src, requests_out));
	/* What the kernel takes it also gives. */
	put_way(out, "sockmap", "from_executor", spliced);
	put_way(out, "sockmap", "to_client", spliced);
}

static void put_durations(FILE *out, const struct metrics_source *src)
{
	static const struct {
		const char *name, *help;
		size_t offset;
	} rows[] = {
		{ "flightsplice_stream_first_byte_seconds",
		  "DoGet streams: from the request's head to the response's.",
		  offsetof(struct session_stats, first_byte) },
		{ "flightsplice_stream_duration_seconds",
		  "DoGet streams: from the request's head to the end.",
		  offsetof(struct session_stats, duration) },
		{ "flightsplice_dial_duration_seconds",
		  "Connecting to an executor, look-up of its name included, when it succeeded.",
		  offsetof(struct session_stats, dial) },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct histogram h = { .sum_ns = 0 };

		for (unsigned w = 0; w < src->n_stats; w++) {
			const char *at = (const char *)src->stats[w] + rows[i].offset;

			histogram_sum(&h, (const struct histogram *)(const void *)at);
		}
		expo_family(out, rows[i].name, EXPO_HISTOGRAM, rows[i].help);
		expo_histogram(out, rows[i].name, &h);
	}
}

static void put_state(FILE *out, const struct metrics_source *src)
{
	const struct expo_label version = { "version", fs_version };
	struct log_stats log = { .lines = 0 };

	expo_family(out, "flightsplice_build_info", EXPO_GAUGE, "What is running; always 1.");
	expo_labelled_u64(out, "flightsplice_build_info", &version, 1, 1);
	expo_single(out, "flightsplice_workers", EXPO_GAUGE, "Worker threads.", src->n_stats);
	expo_single(out, "flightsplice_ready", EXPO_GAUGE, "Whether /readyz says yes.", src->ready);
	expo_single(out, "flightsplice_draining", EXPO_GAUGE,
		    "Whether the proxy is being shut down.", src->draining);
	if (src->log)
		log_get_stats(src->log, &log);
	put_total(out, "flightsplice_log_lines_total", "Log lines written.", log.lines);
	put_total(out, "flightsplice_log_dropped_lines_total",
		  "Log lines lost because their reader did not keep up.", log.dropped);
	put_total(out, "flightsplice_log_suppressed_lines_total", "Repeated log lines held back.",
		  log.suppressed);
}

/* ---- the process, under the names that Prometheus' own clients use ---- */

/* Field n (from 1, as proc(5) counts) of /proc/self/stat, n > 2; false when unreadable. */
static bool proc_stat_field(unsigned n, unsigned long long *ret)
{
	char buf[1024], *s, *save = NULL;
	FILE *f = fopen("/proc/self/stat", "re");
	size_t len = f ? fread(buf, 1, sizeof(buf) - 1, f) : 0;

	if (f)
		fclose(f);
	buf[len] = '\0';
	s = strrchr(buf, ')'); /* the name before it may hold anything */
	if (!s)
		return false;
	s = strtok_r(s + 1, " ", &save);
	for (unsigned i = 3; s && i < n; i++)
		s = strtok_r(NULL, " ", &save);
	if (!s)
		return false;
	*ret = strtoull(s, NULL, 10);
	return true;
}

static bool start_time(double *ret)
{
	struct timespec wall, boot;
	unsigned long long ticks;

	if (!proc_stat_field(22, &ticks))
		return false;
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	*ret = (double)(wall.tv_sec - boot.tv_sec) +
	       (double)(wall.tv_nsec - boot.tv_nsec) / (double)NSEC_PER_SEC +
	       (double)ticks / (double)sysconf(_SC_CLK_TCK);
	return true;
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself */
}

static void put_process(FILE *out)
{
	struct rusage usage;
	struct rlimit limit;
	unsigned long long pages;
	double started;

	if (!getrusage(RUSAGE_SELF, &usage))
		expo_single(out, "process_cpu_seconds_total", EXPO_COUNTER,
			    "User and system CPU time.",
			    seconds(usage.ru_utime) + seconds(usage.ru_stime));
	if (proc_stat_field(24, &pages))
		expo_single(out, "process_resident_memory_bytes", EXPO_GAUGE, "Resident memory.",
			    (double)pages * (double)sysconf(_SC_PAGESIZE));
	if (start_time(&started))
		expo_single(out, "process_start_time_seconds", EXPO_GAUGE,
			    "Start, seconds since 1970.", started);
	expo_single(out, "process_open_fds", EXPO_GAUGE, "Open file descriptors.", count_fds());
	if (!getrlimit(RLIMIT_NOFILE, &limit))
		expo_single(out, "process_max_fds", EXPO_GAUGE, "Limit of open file descriptors.",
			    (double)limit.rlim_cur);
}

char *metrics_render(const struct metrics_source *src, size_t *ret_len)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	bool failed;

	if (!out)
		return NULL;
	put_state(out, src);
	for (unsigned i = 0; i < ARRAY_SIZE(metrics); i++)
		put_metric(out, src, &metrics[i]);
	put_bytes(out, src);
	put_durations(out, src);
	if (src->more)
		src->more(src->ctx, out);
	put_process(out);
	failed = ferror(out);
	if (fclose(out) || failed) {
		free(text);
		return NULL;
	}
	*ret_len = len;
	return text;
}
