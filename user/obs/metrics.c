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
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/version.h"

struct metric {
	const char *name; /* after "flightsplice_" */
	const char *help;
	size_t offset;
	bool gauge;
	/* An array: elements [first, n), told apart by label="name(i)". */
	const char *label;
	const char *(*label_value)(unsigned i);
	unsigned first, n;
};

static const char *end_label(unsigned i)
{
	return stream_end_name((enum stream_end)i);
}

static const char *drop_label(unsigned i)
{
	return drop_reason_name((enum drop_reason)i);
}

static const char *verdict_label(unsigned i)
{
	return policy_verdict_name((enum policy_verdict)i);
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
#define FAMILY(name_, field, first_, label_, fn, help_)                                            \
	{                                                                                          \
		.name = (name_), .help = (help_), .offset = offsetof(struct session_stats, field), \
		.first = (first_), .n = ARRAY_SIZE(((struct session_stats *)0)->field),            \
		.label = (label_), .label_value = (fn)                                             \
	}

static const struct metric metrics[] = {
	COUNTER("clients_accepted_total", clients_accepted, "Client connections accepted."),
	COUNTER("clients_refused_total", clients_refused,
		"Client connections refused, over --max-clients."),
	GAUGE("clients", clients_open, "Client connections open."),
	COUNTER("client_errors_total", client_errors,
		"Client connections ended for an error of the client."),
	COUNTER("streams_opened_total", streams_opened, "Streams (requests) opened by clients."),
	GAUGE("streams", streams_open, "Streams open."),
	FAMILY("streams_ended_total", streams_ended, 0, "ended_by", end_label,
	       "Streams ended, by who ended them."),
	FAMILY("streams_status_total", streams_status, 0, "grpc_status", status_label,
	       "Streams ended, by the gRPC status that the client was told."),
	COUNTER("streams_reset_total", streams_reset, "Streams ended without any gRPC status."),
	GAUGE("upstreams", upstreams_open, "Connections to executors."),
	GAUGE("upstreams_idle", upstreams_idle, "Connections to executors without a stream."),
	COUNTER("upstream_errors_total", upstream_errors,
		"Connections to executors ended for an error."),
	COUNTER("upstream_reuses_total", upstream_reuses,
		"Streams that found a connection to their executor."),
	COUNTER("dials_total", dials, "Attempts to connect to an executor."),
	COUNTER("dial_failures_total", dial_failures,
		"Attempts to connect to an executor that failed."),
	COUNTER("promotions_total", promotions, "Upstreams handed to a kernel datapath."),
	COUNTER("retries_total", retries, "Streams tried again on a new connection."),
	FAMILY("policy_denied_total", policy_denied, POLICY_ALLOW + 1, "verdict", verdict_label,
	       "Destinations refused by policy, by verdict."),
	COUNTER("executor_data_bytes_total", data_in,
		"DATA received from executors, flow-controlled bytes."),
	COUNTER("spliced_data_bytes_total", data_spliced,
		"The part of executor_data_bytes_total that the kernel forwarded by itself."),
	COUNTER("client_data_bytes_total", data_out,
		"The part of executor_data_bytes_total that was written to clients."),
	FAMILY("dropped_data_bytes_total", dropped, 0, "reason", drop_label,
	       "The part of executor_data_bytes_total that was not delivered, by reason."),
	GAUGE("granted_bytes", granted,
	      "Flow-control credit that executors have and have not used."),
	GAUGE("held_bytes", held, "Bytes of results held in memory."),
	COUNTER("stale_events_total", stale_events, "Events for a handle that was gone already."),
};

static uint64_t sum(const struct metrics_source *src, const struct metric *m, unsigned i)
{
	uint64_t total = 0;

	for (unsigned w = 0; w < src->n_stats; w++) {
		const char *at = (const char *)src->stats[w] + m->offset + i * sizeof(uint64_t);

		total += __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
	}
	return total;
}

static void head(FILE *out, const char *name, const char *help, bool gauge)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, gauge ? "gauge" : "counter");
}

/* "link-local or metadata address" -> "link_local_or_metadata_address": easier in queries. */
static void put_label(FILE *out, const char *value)
{
	for (; *value; value++)
		fputc(*value == ' ' || *value == '-' ? '_' : *value, out);
}

static void put_metric(FILE *out, const struct metrics_source *src, const struct metric *m)
{
	char name[64];

	snprintf(name, sizeof(name), "flightsplice_%s", m->name);
	head(out, name, m->help, m->gauge);
	if (!m->label) {
		fprintf(out, "%s %" PRIu64 "\n", name, sum(src, m, 0));
		return;
	}
	for (unsigned i = m->first; i < m->n; i++) {
		fprintf(out, "%s{%s=\"", name, m->label);
		put_label(out, m->label_value(i));
		fprintf(out, "\"} %" PRIu64 "\n", sum(src, m, i));
	}
}

static void put_number(FILE *out, const char *name, const char *help, bool gauge, double value)
{
	head(out, name, help, gauge);
	fprintf(out, "%s %.15g\n", name, value);
}

static void put_state(FILE *out, const struct metrics_source *src)
{
	struct log_stats log = { .lines = 0 };

	head(out, "flightsplice_build_info", "What is running; always 1.", true);
	fprintf(out, "flightsplice_build_info{version=\"%s\"} 1\n", fs_version);
	put_number(out, "flightsplice_workers", "Worker threads.", true, src->n_stats);
	put_number(out, "flightsplice_ready", "Whether /readyz says yes.", true, src->ready);
	put_number(out, "flightsplice_draining", "Whether the proxy is being shut down.", true,
		   src->draining);
	if (src->log)
		log_get_stats(src->log, &log);
	put_number(out, "flightsplice_log_lines_total", "Log lines written.", false,
		   (double)log.lines);
	put_number(out, "flightsplice_log_dropped_lines_total",
		   "Log lines lost because their reader did not keep up.", false,
		   (double)log.dropped);
	put_number(out, "flightsplice_log_suppressed_lines_total", "Repeated log lines held back.",
		   false, (double)log.suppressed);
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
		put_number(out, "process_cpu_seconds_total", "User and system CPU time.", false,
			   seconds(usage.ru_utime) + seconds(usage.ru_stime));
	if (proc_stat_field(24, &pages))
		put_number(out, "process_resident_memory_bytes", "Resident memory.", true,
			   (double)pages * (double)sysconf(_SC_PAGESIZE));
	if (start_time(&started))
		put_number(out, "process_start_time_seconds", "Start, seconds since 1970.", true,
			   started);
	put_number(out, "process_open_fds", "Open file descriptors.", true, count_fds());
	if (!getrlimit(RLIMIT_NOFILE, &limit))
		put_number(out, "process_max_fds", "Limit of open file descriptors.", true,
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
	put_process(out);
	failed = ferror(out);
	if (fclose(out) || failed) {
		free(text);
		return NULL;
	}
	*ret_len = len;
	return text;
}
