/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command table: who is run with which words, exit codes, and where texts go.
 */
#include "unit/hex.h"

#include <unistd.h>

#include "base/version.h"
#include "cli/cli.h"

static int last_argc;
static char last_args[256];
static char **last_envp;

static int run_serve(int argc, char **argv, char **envp)
{
	last_argc = argc;
	last_args[0] = '\0';
	for (int i = 0; i < argc; i++) {
		strcat(last_args, argv[i]);
		strcat(last_args, "|");
	}
	assert_null(argv[argc]);
	last_envp = envp;
	return 42;
}

static const struct cli_command commands[] = {
	{ "serve", "[flags]", "run the proxy in the foreground", run_serve },
	{ "selftest", "[--json]", "judge this kernel", run_serve },
};

struct result {
	int code;
	char out[8192], err[8192];
};

static void read_back(FILE *f, char *buf, size_t cap)
{
	size_t n;

	rewind(f);
	n = fread(buf, 1, cap - 1, f);
	buf[n] = '\0';
	fclose(f);
}

/* Runs cli_dispatch() with standard output and error going to files. */
static void dispatch(struct result *r, int argc, const char *const *words)
{
	FILE *files[2] = { tmpfile(), tmpfile() };
	char *argv[8] = { NULL }, *envp[] = { NULL };
	int saved[2];

	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		saved[i] = dup(i + 1);
		dup2(fileno(files[i]), i + 1);
	}
	for (int i = 0; i < argc; i++)
		argv[i] = (char *)words[i];
	last_argc = 0;
	r->code = cli_dispatch(commands, ARRAY_SIZE(commands), argc, argv, envp);
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		dup2(saved[i], i + 1);
		close(saved[i]);
	}
	read_back(files[0], r->out, sizeof(r->out));
	read_back(files[1], r->err, sizeof(r->err));
}

#define DISPATCH(r, ...)                                                                           \
	dispatch(r, (int)ARRAY_SIZE(((const char *[]){ "flightsplice", __VA_ARGS__ })),            \
		 (const char *[]){ "flightsplice", __VA_ARGS__ })

static void runs_commands(void **state)
{
	struct result r;

	(void)state;
	DISPATCH(&r, "serve", "--listen", ":5");
	assert_int_equal(r.code, 42);
	assert_string_equal(last_args, "serve|--listen|:5|");
	DISPATCH(&r, "selftest");
	assert_string_equal(last_args, "selftest|");
	DISPATCH(&r, "help", "serve");
	assert_int_equal(r.code, 42);
	assert_string_equal(last_args, "serve|--help|");
}

static void shows_help(void **state)
{
	static const char *const words[] = { "--help", "-h", "help" };
	struct result r;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
		DISPATCH(&r, words[i]);
		assert_int_equal(r.code, CLI_OK);
		assert_string_equal(r.err, "");
		assert_non_null(strstr(r.out, "flightsplice serve [flags]"));
		assert_non_null(strstr(r.out, "judge this kernel"));
		assert_non_null(strstr(r.out, "flightsplice version"));
		assert_non_null(strstr(r.out, "Exit codes: 0"));
		assert_int_equal(last_argc, 0);
	}
	DISPATCH(&r, "help", "version");
	assert_int_equal(r.code, CLI_OK);
	/* Nothing said is not a wish for help. */
	dispatch(&r, 1, (const char *[]){ "flightsplice" });
	assert_int_equal(r.code, CLI_USAGE);
	assert_string_equal(r.out, "");
	assert_non_null(strstr(r.err, "Usage:"));
}

static void shows_version(void **state)
{
	static const char *const words[] = { "--version", "-V", "version" };
	char expected[128];
	struct result r;

	(void)state;
	snprintf(expected, sizeof(expected), "flightsplice %s\n", fs_version);
	for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
		DISPATCH(&r, words[i]);
		assert_int_equal(r.code, CLI_OK);
		assert_string_equal(r.out, expected);
		assert_string_equal(r.err, "");
	}
}

static void refuses(void **state)
{
	struct result r;

	(void)state;
	DISPATCH(&r, "srve");
	assert_int_equal(r.code, CLI_USAGE);
	assert_string_equal(r.err, "flightsplice: unknown command 'srve', did you mean serve?\n");
	assert_string_equal(r.out, "");
	DISPATCH(&r, "verison");
	assert_string_equal(r.err,
			    "flightsplice: unknown command 'verison', did you mean version?\n");
	DISPATCH(&r, "frobnicate");
	assert_int_equal(r.code, CLI_USAGE);
	assert_string_equal(r.err, "flightsplice: unknown command 'frobnicate' (see flightsplice "
				   "--help)\n");
	DISPATCH(&r, "help", "frobnicate");
	assert_int_equal(r.code, CLI_USAGE);
	DISPATCH(&r, "help", "serve", "now");
	assert_int_equal(r.code, CLI_USAGE);
	assert_string_equal(r.err, "flightsplice help: unexpected argument 'now'\n");
	DISPATCH(&r, "version", "--json");
	assert_int_equal(r.code, CLI_USAGE);
	assert_int_equal(last_argc, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_commands),
		cmocka_unit_test(shows_help),
		cmocka_unit_test(shows_version),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
