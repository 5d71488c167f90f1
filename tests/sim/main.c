/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim - the simulator of sessions: directed cases, random runs, and a self-test
 * that shows that the judges are awake.
 *
 *   sim [--seed N] [--runs N] [--case NAME] [--selftest] [-v]
 *
 * Without options: the self-test, each case with several seeds, then random runs
 * (SIM_RUNS of them, default 2000) from a fixed seed on. `--case random` runs only
 * those, `--case NAME` only that one. A failure prints the seed and the command
 * that repeats it. -v tells what happens, with the fake time.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "cases.h"
#include "random.h"
#include "selftest.h"
#include "subject.h"

#define CASE_SEEDS 12
#define RANDOM_RUNS 2000
/* CPU seconds that one run may take: not a measure, only a way out of an endless loop. */
#define RUN_MAX_SECONDS 120

struct options {
	uint64_t seed;
	bool seed_given;
	unsigned runs;
	const char *only;
	bool selftest;
};

static char repeat[200]; /* for the signal handler */

static void on_signal(int sig)
{
	static const char loop[] = "FAIL sim: a run does not end (endless loop?). Repeat with:\n";
	static const char crash[] = "FAIL sim: a run crashed. Repeat with:\n";

	if (sig == SIGVTALRM)
		(void)!write(STDOUT_FILENO, loop, sizeof(loop) - 1);
	else
		(void)!write(STDOUT_FILENO, crash, sizeof(crash) - 1);
	(void)!write(STDOUT_FILENO, repeat, strlen(repeat));
	signal(sig, SIG_DFL);
	if (sig == SIGVTALRM)
		_exit(1);
	raise(sig);
}

static void watch(const char *name, uint64_t seed)
{
	struct itimerval t = { .it_value.tv_sec = RUN_MAX_SECONDS };

	fflush(stdout);
	snprintf(repeat, sizeof(repeat), "  sim --case %s --seed %llu --runs 1 -v\n", name,
		 (unsigned long long)seed);
	setitimer(ITIMER_VIRTUAL, &t, NULL);
}

static char *copy(const char *s)
{
	char *c = s ? xalloc(strlen(s) + 1) : NULL;

	if (c)
		memcpy(c, s, strlen(s));
	return c;
}

/* Every other seed with a kernel to splice in, so that each case meets both datapaths. */
static char *run_case(const struct sim_case *c, uint64_t seed)
{
	struct scene *s;
	char *why;

	scene_splice = seed & 1;
	s = scene_new(seed);

	c->run(s);
	why = copy(world_failure(s->w));
	scene_free(s);
	return why;
}

/* Several seeds of one case (or random runs, c NULL); one line. */
static bool run_seeds(const char *name, const struct sim_case *c, const struct options *o,
		      unsigned runs)
{
	unsigned failed = 0;

	for (unsigned i = 0; i < runs; i++) {
		uint64_t seed = o->seed + i;
		char *why;

		watch(name, seed);
		why = c ? run_case(c, seed) : random_run(seed);
		if (why && ++failed <= 5)
			printf("%s seed %llu: %s\n%s", name, (unsigned long long)seed, why, repeat);
		free(why);
	}
	if (failed)
		printf("FAIL %s: %u of %u seeds, see above\n", name, failed, runs);
	else
		printf("PASS %s\n", name);
	return !failed;
}

static unsigned run_table(const struct sim_case *table, const struct options *o, unsigned *total)
{
	unsigned failed = 0;

	for (; table->name; table++) {
		if (o->only && strcmp(o->only, table->name))
			continue;
		(*total)++;
		failed += !run_seeds(table->name, table, o, o->runs ? o->runs : CASE_SEEDS);
	}
	return failed;
}

static unsigned random_runs(const struct options *o)
{
	const char *env = getenv("SIM_RUNS");

	if (o->runs)
		return o->runs;
	return env && atoi(env) > 0 ? (unsigned)atoi(env) : RANDOM_RUNS;
}

static int usage(FILE *out)
{
	fprintf(out, "usage: sim [--seed N] [--runs N] [--case NAME] [--selftest] [-v]\n");
	return out == stderr ? 2 : 0;
}

static bool parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "runs", required_argument, NULL, 'n' },
		{ "case", required_argument, NULL, 'c' },
		{ "selftest", no_argument, NULL, 't' },
		{ NULL, 0, NULL, 0 },
	};
	int ch;

	while ((ch = getopt_long(argc, argv, "v", longs, NULL)) != -1) {
		switch (ch) {
		case 's':
			o->seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			o->runs = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'c':
			o->only = optarg;
			break;
		case 't':
			o->selftest = true;
			break;
		case 'v':
			world_verbose = true;
			break;
		default:
			return false;
		}
	}
	return optind == argc;
}

int main(int argc, char **argv)
{
	struct options o = { .seed = 1 };
	unsigned failed = 0, total = 0;

	if (!parse(argc, argv, &o))
		return usage(stderr);
	signal(SIGVTALRM, on_signal);
	signal(SIGABRT, on_signal);
	signal(SIGSEGV, on_signal);
	if (o.selftest || !o.only)
		failed += selftest_run(o.seed, watch, &total);
	if (!o.selftest) {
		scene_subject = &subject_session;
		failed += run_table(cases_rules, &o, &total);
		failed += run_table(cases_told, &o, &total);
		failed += run_table(cases_faults, &o, &total);
		if (!o.only || !strcmp(o.only, "random")) {
			total++;
			failed += !run_seeds("random", NULL, &o, random_runs(&o));
		}
	}
	if (!total) {
		fprintf(stderr, "no case is called %s\n", o.only);
		return 2;
	}
	printf("%u cases, %u failed\n", total, failed);
	return failed != 0;
}
