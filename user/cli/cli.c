/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.c - finds the command that argv names and runs it.
 *
 * Two tables are searched as one: main's commands and the two that live here. Texts
 * that were asked for go to standard output, complaints to standard error with exit
 * code 2.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/version.h"
#include "config/suggest.h"

struct commands {
	const struct cli_command *list;
	size_t n;
};

static const struct cli_command *find(const struct commands *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->list[i].name, name))
			return &c->list[i];
	return NULL;
}

static const struct {
	const char *name, *args, *summary;
} builtin[] = {
	{ "version", "", "print the version" },
	{ "help", "[COMMAND]", "print this, or what COMMAND can do" },
};

static void print_row(FILE *out, const char *name, const char *args, const char *summary)
{
	char usage[64];

	snprintf(usage, sizeof(usage), "%s %s", name, args);
	fprintf(out, "  flightsplice %-18s %s\n", usage, summary);
}

static void print_usage(FILE *out, const struct commands *c)
{
	fputs("flightsplice - a result proxy for Apache DataFusion Ballista\n\nUsage:\n", out);
	for (size_t i = 0; i < c->n; i++)
		print_row(out, c->list[i].name, c->list[i].args, c->list[i].summary);
	for (size_t i = 0; i < ARRAY_SIZE(builtin); i++)
		print_row(out, builtin[i].name, builtin[i].args, builtin[i].summary);
	fputs("\n"
	      "Start the scheduler with --advertise-flight-endpoint HOST:PORT of the proxy, and\n"
	      "clients fetch their results through it instead of from the executors.\n"
	      "\n"
	      "Exit codes: 0 ended cleanly, 1 failed while running, 2 wrong flags or environment.\n"
	      "More: flightsplice help serve, man flightsplice.\n",
	      out);
}

static int unknown_command(const struct commands *c, const char *name)
{
	struct suggest s;

	suggest_init(&s, name);
	for (size_t i = 0; i < c->n; i++)
		suggest_offer(&s, c->list[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(builtin); i++)
		suggest_offer(&s, builtin[i].name);
	fprintf(stderr, "flightsplice: unknown command '%.40s'", name);
	if (s.best)
		fprintf(stderr, ", did you mean %s?\n", s.best);
	else
		fprintf(stderr, " (see flightsplice --help)\n");
	return CLI_USAGE;
}

static int too_many(const char *command, const char *arg)
{
	fprintf(stderr, "flightsplice %s: unexpected argument '%.40s'\n", command, arg);
	return CLI_USAGE;
}

/* A full disk or closed pipe must not look like success. */
static int flushed(void)
{
	return fflush(stdout) || ferror(stdout) ? CLI_FAILURE : CLI_OK;
}

static int run_version(int argc, char **argv)
{
	if (argc > 1)
		return too_many(argv[0], argv[1]);
	printf("flightsplice %s\n", fs_version);
	return flushed();
}

static int run_help(const struct commands *c, int argc, char **argv, char **envp)
{
	char flag[] = "--help", *args[3] = { NULL, flag, NULL };
	const struct cli_command *command;

	if (argc > 2)
		return too_many(argv[0], argv[2]);
	if (argc == 2) {
		command = find(c, argv[1]);
		if (command) {
			args[0] = argv[1];
			return command->run(2, args, envp);
		}
		if (strcmp(argv[1], "help") && strcmp(argv[1], "version"))
			return unknown_command(c, argv[1]);
	}
	print_usage(stdout, c);
	return flushed();
}

static bool is_any(const char *s, const char *a, const char *b, const char *c)
{
	return !strcmp(s, a) || !strcmp(s, b) || !strcmp(s, c);
}

int cli_dispatch(const struct cli_command *commands, size_t n, int argc, char **argv, char **envp)
{
	const struct commands c = { commands, n };
	const struct cli_command *command;

	if (argc < 2) {
		print_usage(stderr, &c);
		return CLI_USAGE;
	}
	if (is_any(argv[1], "--help", "-h", "help"))
		return run_help(&c, argc - 1, argv + 1, envp);
	if (is_any(argv[1], "--version", "-V", "version"))
		return run_version(argc - 1, argv + 1);
	command = find(&c, argv[1]);
	if (!command)
		return unknown_command(&c, argv[1]);
	return command->run(argc - 1, argv + 1, envp);
}
