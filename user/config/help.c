/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.c - `flightsplice serve --help`, from the option table.
 */
#include "config/table.h"

#define WIDTH 96
#define INDENT 6

/* Words of text, broken at WIDTH; the cursor is at column `col`. Ends with a newline. */
static void print_wrapped(FILE *out, const char *text, int col)
{
	bool fresh = true;

	while (*text) {
		int n = (int)strcspn(text, " ");

		if (!fresh && col + 1 + n > WIDTH) {
			fprintf(out, "\n%*s", INDENT, "");
			col = INDENT;
			fresh = true;
		}
		fprintf(out, "%s%.*s", fresh ? "" : " ", n, text);
		col += n + !fresh;
		fresh = false;
		text += n;
		text += *text == ' ';
	}
	fputc('\n', out);
}

static void print_option(FILE *out, const struct option *o)
{
	char env[CONFIG_ENV_MAX];

	fprintf(out, "  --%s%s%s%s\n%*s", o->flag, o->metavar ? " " : "",
		o->metavar ? o->metavar : "", option_repeatable(o) ? "   (repeatable)" : "", INDENT,
		"");
	print_wrapped(out, o->help, INDENT);
	fprintf(out, "%*sdefault %s, env %s\n", INDENT, "", o->def ? o->def : "none",
		option_env(o, env));
}

static const char intro[] =
	"Usage: flightsplice serve [flags]\n"
	"\n"
	"Runs the result proxy in the foreground. Ballista clients fetch every result partition\n"
	"from the data port; the proxy reads which executor each ticket names, checks that it may "
	"be\n"
	"dialled, and passes the executor's answer on unchanged.\n"
	"\n"
	"Examples:\n"
	"  flightsplice serve\n"
	"      on port 50060; start the scheduler with --advertise-flight-endpoint "
	"THIS_HOST:50060\n"
	"  flightsplice serve --allow-cidr 10.0.0.0/8 --allow-port 50051\n"
	"      in a cluster whose executors have pod addresses in 10.0.0.0/8\n"
	"  flightsplice serve --listen 127.0.0.1:50060 --allow-loopback\n"
	"      everything on one machine\n"
	"  FLIGHTSPLICE_LISTEN=0.0.0.0:50060,[::1]:50061 flightsplice serve --log-format=json\n"
	"      two data ports, from the environment\n";

static const char outro[] =
	"\n"
	"Each flag may be written --flag VALUE or --flag=VALUE. Each has the environment variable\n"
	"shown; a flag on the command line wins, and replaces all values of a repeatable one. In "
	"a\n"
	"variable the values of a repeatable flag are separated by commas. An empty variable "
	"counts\n"
	"as not set; one that starts with FLIGHTSPLICE_ and is not listed here is an error.\n"
	"\n"
	"Signals: SIGTERM and SIGINT drain: clients are told to go elsewhere, running streams "
	"finish,\n"
	"then the proxy ends. A second one ends it at once.\n"
	"\n"
	"Exit codes: 0 ended cleanly, 1 failed while running, 2 wrong flags or environment.\n";

void config_print_help(FILE *out)
{
	fputs(intro, out);
	for (int g = 0; g < GROUPS; g++) {
		fprintf(out, "\n%s:\n", config_group_titles[g]);
		for (unsigned i = 0; i < config_n_options; i++)
			if ((int)config_options[i].group == g)
				print_option(out, &config_options[i]);
	}
	fputs(outro, out);
}
