/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - the table of commands: `flightsplice COMMAND [flags]`.
 *
 * `help` and `version` live here; what needs the rest of the program (serve) is
 * given by main, so that cli depends on nothing but config.
 */
#ifndef FS_CLI_H
#define FS_CLI_H

#include <stddef.h>

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILURE = 1, /* something failed while running */
	CLI_USAGE = 2,   /* the command line or environment is wrong */
};

struct cli_command {
	const char *name;
	const char *args;    /* "[flags]", for the usage line */
	const char *summary; /* one line, for --help */
	/* argv[0] is the command's name. Returns an exit code. */
	int (*run)(int argc, char **argv, char **envp);
};

/*
 * Runs the command that argv[1] names, from `commands` (n of them, main's own) or
 * the built-in ones. Returns the exit code for the process.
 */
int cli_dispatch(const struct cli_command *commands, size_t n, int argc, char **argv, char **envp);

#endif
