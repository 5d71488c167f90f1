/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_cmd.c - runs the self-test and prints it for a person or a program.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "datapath/selftest.h"
#include "datapath/selftest_cmd.h"

static void print_text(const struct selftest *st)
{
	printf("kernel %s\n", st->kernel);
	for (size_t i = 0; i < st->n; i++) {
		const struct selftest_check *c = &st->checks[i];

		printf("%-4s  %-12s %5llu ms  %s\n", selftest_status_name(c->status), c->name,
		       (unsigned long long)(c->ns / NSEC_PER_MSEC), c->what);
		if (c->reason[0])
			printf("      %-12s           %s\n", "", c->reason);
	}
	if (st->sockmap)
		printf("sockmap: usable\n");
	else
		printf("sockmap: not usable (%s)\n", st->why);
	printf("relay: usable\n");
}

static int print_json(const struct selftest *st)
{
	json_t *checks = json_array(), *root;
	int err;

	for (size_t i = 0; i < st->n; i++) {
		const struct selftest_check *c = &st->checks[i];

		json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s, s:I}", "name",
							c->name, "what", c->what, "status",
							selftest_status_name(c->status), "reason",
							c->reason, "ns", (json_int_t)c->ns));
	}
	root = json_pack("{s:s, s:o, s:{s:{s:b, s:s}, s:{s:b, s:s}}}", "kernel", st->kernel,
			 "checks", checks, "datapaths", "sockmap", "usable", st->sockmap, "reason",
			 st->why, "relay", "usable", 1, "reason", "");
	err = !root || json_dumpf(root, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
	json_decref(root);
	return err;
}

int selftest_main(int argc, char **argv, char **envp)
{
	struct selftest_options opt = { .sabotage = getenv(SELFTEST_SABOTAGE_ENV) };
	struct selftest *st;
	bool json = argc == 2 && !strcmp(argv[1], "--json");
	bool usable;

	(void)envp;
	if (argc > 1 && !json) {
		fprintf(stderr, "usage: flightsplice selftest [--json]\n");
		return 2;
	}
	st = calloc(1, sizeof(*st));
	if (!st)
		return 1;
	selftest_run(&opt, st);
	if (json && print_json(st))
		fprintf(stderr, "flightsplice: out of memory\n");
	else if (!json)
		print_text(st);
	usable = st->sockmap;
	free(st);
	return usable ? 0 : 1;
}
