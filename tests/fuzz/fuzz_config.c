/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command line and an environment, one word a line: lines that begin with '$' are
 * environment entries, the others arguments.
 *
 * Held against it: what is refused is refused in one printable line and leaves the
 * result alone; what is accepted is shown as values that, given as flags, make the
 * same configuration.
 */
#include "fuzz/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"

#define WORDS_MAX 300

struct text {
	char *s;
	size_t len;
};

static void check_message(const struct text *err)
{
	CHECK(err->len > 1 && err->s[err->len - 1] == '\n');
	for (size_t i = 0; i + 1 < err->len; i++)
		CHECK((unsigned char)err->s[i] >= 0x20 && err->s[i] != 0x7f);
}

/* "--flag=value" for each value, each with its NUL. */
static void show(void *arg, const struct option_view *o)
{
	FILE *f = arg;

	for (unsigned i = 0; i < o->n_values; i++)
		fprintf(f, "--%s=%s%c", o->flag, o->values[i], 0);
}

static struct text shown(const struct config *c)
{
	struct text t;
	FILE *f = open_memstream(&t.s, &t.len);

	config_each_option(c, show, f);
	fclose(f);
	return t;
}

static enum config_result parse(struct config *c, int argc, char **argv, char **envp,
				struct text *err)
{
	char *out;
	size_t out_len;
	FILE *o = open_memstream(&out, &out_len), *e = open_memstream(&err->s, &err->len);
	enum config_result r = config_parse(c, argc, argv, envp, o, e);

	fclose(o);
	fclose(e);
	CHECK((r == CONFIG_HELP) == (out_len > 0));
	free(out);
	return r;
}

static void check_again(const struct config *c)
{
	char *argv[2 * WORDS_MAX + 40] = { (char *)"serve" };
	struct text first = shown(c), second, err;
	struct config again;
	int argc = 1;

	for (size_t i = 0; i < first.len; i += strlen(first.s + i) + 1) {
		CHECK(argc < (int)(sizeof(argv) / sizeof(argv[0])) - 1);
		argv[argc++] = first.s + i;
	}
	CHECK(parse(&again, argc, argv, NULL, &err) == CONFIG_OK);
	CHECK(!err.len);
	second = shown(&again);
	CHECK(first.len == second.len && !memcmp(first.s, second.s, first.len));
	config_free(&again);
	free(err.s);
	free(first.s);
	free(second.s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *words = malloc(size + 1), *argv[WORDS_MAX + 2] = { (char *)"serve" };
	char *envp[WORDS_MAX + 1] = { NULL };
	struct config c, untouched;
	struct text err;
	int argc = 1, n_env = 0;
	enum config_result r;

	if (!words)
		return 0;
	memcpy(words, data, size);
	words[size] = '\0';
	for (char *w = words, *end; w && argc + n_env < WORDS_MAX; w = end) {
		end = strchr(w, '\n');
		if (end)
			*end++ = '\0';
		if (*w == '$')
			envp[n_env++] = w + 1;
		else
			argv[argc++] = w;
	}

	memset(&untouched, 0x5a, sizeof(untouched));
	c = untouched;
	r = parse(&c, argc, argv, envp, &err);
	if (r == CONFIG_ERROR)
		check_message(&err);
	else
		CHECK(!err.len);
	if (r == CONFIG_OK) {
		CHECK(c.n_listen >= 1 && c.workers >= 1);
		CHECK(c.limits.client_inflight <= c.limits.total_inflight);
		check_again(&c);
		config_free(&c);
	} else {
		CHECK(!memcmp(&c, &untouched, sizeof(c)));
	}
	free(err.s);
	free(words);
	return 0;
}
