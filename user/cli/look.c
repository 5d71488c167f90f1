/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look.c - see look.h. Here: the arguments, plain text, and the repetition of --watch.
 *
 * Standard output has the answer only, standard error what has to be said about it (a process that is
 * stopped or gone), so that the one can be piped and the other is still seen.
 */
#include "cli/look.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/look_json.h"
#include "cli/top.h"
#include "cli/units.h"
#include "cli/view.h"

#define DEFAULT_PIN_DIR "/sys/fs/bpf/flightsplice"

struct look {
	const struct look_source *source;
	const char *command, *pin_dir;
	bool json, watch;
	struct rates *rates; /* with --watch */
};

/* ---- plain text ---- */

static void print_cell(const char *cell, unsigned width, bool right, bool last)
{
	if (right)
		printf("%*s", (int)width, cell);
	else if (last)
		printf("%s", cell);
	else
		printf("%-*s", (int)width, cell);
	fputs(last ? "\n" : "  ", stdout);
}

static void print_table(const struct view *v)
{
	unsigned width[64], n = view_columns(v);
	char buf[VIEW_CELL];

	assert(n <= ARRAY_SIZE(width));
	for (unsigned c = 0; c < n; c++) {
		width[c] = (unsigned)strlen(view_column(v, c)->title);
		for (unsigned r = 0; r < view_rows(v); r++)
			width[c] = (unsigned)max_u64(width[c], strlen(view_cell(v, r, c, buf)));
	}
	for (unsigned c = 0; c < n; c++)
		print_cell(view_column(v, c)->title, width[c], view_column(v, c)->right,
			   c + 1 == n);
	for (unsigned r = 0; r < view_rows(v); r++)
		for (unsigned c = 0; c < n; c++)
			print_cell(view_cell(v, r, c, buf), width[c], view_column(v, c)->right,
				   c + 1 == n);
}

static int print_view(const struct look *l, const struct snapshot *s, enum view_kind kind)
{
	struct view *v = view_new(kind, s, l->rates, NULL);

	if (!v) {
		fprintf(stderr, "flightsplice: out of memory\n");
		return CLI_FAILURE;
	}
	view_sort(v, view_default_column(v), false);
	if (kind == VIEW_DROPS && !view_rows(v))
		puts("nothing dropped or refused");
	else
		print_table(v);
	view_free(v);
	return CLI_OK;
}

static void print_bytes(const char *name, uint64_t bytes)
{
	char buf[UNITS_LEN];

	printf("  %-28s %20llu  %s\n", name, (unsigned long long)bytes, units_bytes(buf, bytes));
}

static void print_count(const char *name, uint64_t n)
{
	printf("  %-28s %20llu\n", name, (unsigned long long)n);
}

static void print_streams_and_dials(const struct board_totals *t)
{
	print_count("clients", t->clients);
	print_count("clients accepted", t->clients_accepted);
	print_count("clients refused", t->clients_refused);
	print_count("streams", t->streams);
	print_count("streams opened", t->streams_opened);
	print_count("  complete", t->streams_complete);
	print_count("  ended by the client", t->streams_ended_by_client);
	print_count("  ended by the executor", t->streams_ended_by_executor);
	print_count("  answered by the proxy", t->streams_ended_by_proxy);
	print_count("  ended by a deadline", t->streams_ended_by_deadline);
	print_count("  ended by shutdown", t->streams_ended_by_shutdown);
	print_count("executor connections", t->executor_connections);
	print_count("  idle", t->executor_connections_idle);
	print_count("dials", t->dials);
	print_count("  failed", t->dial_failures);
	print_count("connections reused", t->connections_reused);
	print_count("retries", t->retries);
	print_count("promotions", t->promotions);
}

static void print_instance(const struct look *l, const struct snapshot *s, unsigned index)
{
	const struct snapshot_instance *i = &s->instances[index];
	const struct board_totals *t = &i->totals;
	struct rates_of_instance r = rates_instance(l->rates, index);
	char buf[UNITS_LEN];

	printf("process %u, flightsplice %s, %s, listens on %s\n", i->build.pid, i->build.version,
	       t->state, i->build.listen);
	printf("  started %s, last wrote %s (UTC)\n", i->build.started, t->written);
	printf("  datapath %s%s%s, %u workers, maps in %s\n", i->build.datapath,
	       i->build.datapath_why[0] ? ": " : "", i->build.datapath_why, i->build.workers,
	       i->folder);
	print_streams_and_dials(t);
	print_bytes("bytes from executors", t->bytes_from_executors);
	print_bytes("bytes to clients", t->bytes_to_clients);
	print_bytes("  by relay", t->bytes_by_relay);
	if (l->rates)
		printf("  %-28s %20s\n", "    now", units_rate(buf, r.relay));
	print_bytes("  by the kernel", t->bytes_by_kernel);
	if (l->rates)
		printf("  %-28s %20s\n", "    now", units_rate(buf, r.kernel));
	print_bytes("bytes dropped", t->bytes_dropped);
	print_bytes("bytes granted, now", t->granted_bytes);
	print_bytes("bytes held here, now", t->held_bytes);
	if (t->streams_left_out || t->clients_left_out || t->executors_left_out)
		printf("  not shown, for lack of room: %llu streams, %llu clients, %llu "
		       "executors\n",
		       (unsigned long long)t->streams_left_out,
		       (unsigned long long)t->clients_left_out,
		       (unsigned long long)t->executors_left_out);
	putchar('\n');
}

static int print_text(const struct look *l, const struct snapshot *s)
{
	for (unsigned k = 0; k < VIEW_KINDS; k++)
		if (!strcmp(l->command, view_kind_name((enum view_kind)k)))
			return print_view(l, s, (enum view_kind)k);
	for (unsigned i = 0; i < s->n_instances; i++)
		print_instance(l, s, i);
	return print_view(l, s, VIEW_DROPS);
}

/* ---- a look, and many ---- */

static void print_remarks(const struct snapshot *s)
{
	char buf[VIEW_REMARK];

	for (unsigned i = 0; i < s->n_instances; i++)
		if (*view_remark(s, i, buf))
			fprintf(stderr, "flightsplice: %s\n", buf);
	if (s->problem[0])
		fprintf(stderr, "flightsplice: %s\n", s->problem);
}

static int look(const struct look *l)
{
	char why[SNAPSHOT_WHY_MAX] = "";
	struct snapshot *s;
	int r = l->source->read(l->pin_dir, &s, why), code;

	if (r) {
		fprintf(stderr, "flightsplice %s: %s\n", l->command, why);
		return CLI_FAILURE;
	}
	if (l->rates)
		rates_update(l->rates, s);
	if (l->json) {
		code = look_json(stdout, l->command, s, l->rates) ? CLI_FAILURE : CLI_OK;
	} else {
		if (l->watch && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		code = print_text(l, s);
	}
	if (fflush(stdout) || ferror(stdout))
		code = CLI_FAILURE;
	print_remarks(s);
	/* Rates have what they need of it. */
	l->source->free(s);
	return code;
}

static int watch(struct look *l)
{
	const struct timespec period = { .tv_sec = LOOK_PERIOD_MS / 1000,
					 .tv_nsec = (long)(LOOK_PERIOD_MS % 1000) * 1000000L };
	int code;

	l->rates = rates_new();
	if (!l->rates) {
		fprintf(stderr, "flightsplice: out of memory\n");
		return CLI_FAILURE;
	}
	/* Ends with a signal, or when nobody reads any more. */
	code = look(l);
	while (code == CLI_OK) {
		if (nanosleep(&period, NULL))
			break;
		code = look(l);
		if (!l->json && code == CLI_OK)
			putchar('\n');
	}
	rates_free(l->rates);
	return code;
}

/* ---- arguments ---- */

static int usage(FILE *out, const char *command)
{
	bool top = !strcmp(command, "top");

	fprintf(out, "usage: flightsplice %s%s [--pin-dir DIR]\n", command,
		top ? "" : " [--json] [--watch]");
	if (out != stdout)
		return CLI_USAGE;
	if (!top)
		fputs("  --json         JSON; with --watch one object on each line\n"
		      "  --watch        again every second, with rates\n",
		      out);
	fprintf(out,
		"  --pin-dir DIR  what serve was told (default %s,\n"
		"                 or FLIGHTSPLICE_PIN_DIR). Further proxies with the same DIR pin "
		"their\n"
		"                 maps in DIR/2, DIR/3, ...; all of them are shown.\n",
		DEFAULT_PIN_DIR);
	return fflush(out) ? CLI_FAILURE : CLI_OK;
}

static bool parse_flag(struct look *l, int argc, char **argv, int *at)
{
	const char *a = argv[*at];

	if (!strcmp(a, "--json") && strcmp(l->command, "top")) {
		l->json = true;
	} else if (!strcmp(a, "--watch") && strcmp(l->command, "top")) {
		l->watch = true;
	} else if (!strncmp(a, "--pin-dir=", 10) && a[10]) {
		l->pin_dir = a + 10;
	} else if (!strcmp(a, "--pin-dir") && *at + 1 < argc) {
		l->pin_dir = argv[++*at];
	} else {
		fprintf(stderr, "flightsplice %s: unexpected argument '%.40s'\n", l->command, a);
		return false;
	}
	return true;
}

int look_main(const struct look_source *source, int argc, char **argv)
{
	const char *from_env = getenv("FLIGHTSPLICE_PIN_DIR");
	struct look l = { .source = source,
			  .command = argv[0],
			  .pin_dir = from_env && *from_env ? from_env : DEFAULT_PIN_DIR };

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return usage(stdout, l.command);
		if (!parse_flag(&l, argc, argv, &i))
			return usage(stderr, l.command);
	}
	if (!strcmp(l.command, "top"))
		return top_main(source, l.pin_dir);
	return l.watch ? watch(&l) : look(&l);
}
