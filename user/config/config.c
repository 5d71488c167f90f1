/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - from defaults, environment and command line to one struct config.
 *
 * Three sources are read in rising order of precedence. All of them give texts to
 * the same readers, the defaults in the table too, so there is one notion of what a
 * value looks like. The first wrong thing ends the reading with one line that names
 * the flag or variable it came from.
 *
 * A repeatable option takes all its values from one source: the first value that a
 * source gives throws away what a weaker source said.
 *
 * Unknown FLIGHTSPLICE_* variables are refused, since a typo there would otherwise
 * be a limit that silently does not hold. Two families are not ours to judge:
 * Kubernetes puts variables for each Service of a namespace into every container
 * (a Service named "flightsplice" gives FLIGHTSPLICE_SERVICE_HOST, FLIGHTSPLICE_PORT,
 * FLIGHTSPLICE_PORT_50060_TCP_ADDR, ...), and the test suites have a few of their own.
 */
#include "config/config.h"

#include <stdarg.h>
#include <stdlib.h>

#include "config/suggest.h"
#include "config/table.h"
#include "config/values.h"

enum source { FROM_DEFAULT, FROM_ENV, FROM_ARGV };

struct parser {
	struct config *c;
	enum source from[64]; /* by index in the table: the strongest source seen */
	char *storage_end;    /* where the next list from the environment is copied to */
	FILE *err;
};

static enum config_result fail(struct parser *p, const char *fmt, ...) printf_like(2, 3);
static enum config_result fail(struct parser *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(p->err, fmt, ap);
	va_end(ap);
	fputc('\n', p->err);
	return CONFIG_ERROR;
}

/* Stores one value. name: as the user knows it, "--listen" or "FLIGHTSPLICE_LISTEN". */
static enum config_result set(struct parser *p, unsigned index, enum source from, const char *name,
			      const char *text)
{
	const struct option *o = &config_options[index];
	char *field = option_field(o, p->c);
	char why[CONFIG_TEXT_MAX];
	unsigned *count = NULL;

	if (option_repeatable(o)) {
		count = option_count(o, p->c);
		if (p->from[index] != from)
			*count = 0;
		if (*count == o->max_elements)
			return fail(p, "%s: more than %u values", name, o->max_elements);
		field += *count * o->element;
	}
	p->from[index] = from;
	if (o->type->parse(o, text, field, why))
		return fail(p, "%s: %s", name, why);
	if (count)
		++*count;
	return CONFIG_OK;
}

static enum config_result set_defaults(struct parser *p)
{
	enum config_result r;

	assert(config_n_options <= ARRAY_SIZE(p->from));
	for (unsigned i = 0; i < config_n_options; i++) {
		if (!config_options[i].def)
			continue;
		r = set(p, i, FROM_DEFAULT, config_options[i].flag, config_options[i].def);
		if (r)
			return r;
	}
	return CONFIG_OK;
}

/* ---- environment ---- */

static bool all_digits(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] < '0' || s[i] > '9')
			return false;
	return n > 0;
}

static bool ends_with(const char *s, size_t n, const char *end)
{
	size_t m = strlen(end);

	return n >= m && !memcmp(s + n - m, end, m);
}

/* Kubernetes' variables for a Service whose name begins with "flightsplice". */
static bool is_service_link(const char *name, size_t n, const char *value)
{
	const char *port;

	if (ends_with(name, n, "_SERVICE_HOST") || memmem(name, n, "_SERVICE_PORT", 13))
		return true;
	if (ends_with(name, n, "_PORT") && strstr(value, "://"))
		return true;
	/* ..._PORT_50060_TCP and that with _PROTO, _PORT, _ADDR */
	for (port = name; (port = memmem(port, n - (size_t)(port - name), "_PORT_", 6)); port++) {
		size_t left = n - (size_t)(port + 6 - name);
		const char *under = memchr(port + 6, '_', left);

		if (under && all_digits(port + 6, (size_t)(under - port - 6)))
			return true;
	}
	return false;
}

static bool is_test_variable(const char *name, size_t n)
{
	static const char shared[] = "SHARED", test[] = "TEST_";

	name += sizeof(CONFIG_ENV_PREFIX) - 1;
	n -= sizeof(CONFIG_ENV_PREFIX) - 1;
	return (n == sizeof(shared) - 1 && !memcmp(name, shared, n)) ||
	       (n >= sizeof(test) - 1 && !memcmp(name, test, sizeof(test) - 1));
}

/* Copies a list into the storage and sets each piece between commas. */
static enum config_result set_list(struct parser *p, unsigned index, const char *name,
				   const char *value)
{
	char *piece = p->storage_end, *comma;
	size_t size = strlen(value) + 1;

	memcpy(piece, value, size);
	p->storage_end += size;
	for (; piece; piece = comma) {
		enum config_result r;

		comma = strchr(piece, ',');
		if (comma)
			*comma++ = '\0';
		r = set(p, index, FROM_ENV, name, piece);
		if (r)
			return r;
	}
	return CONFIG_OK;
}

static enum config_result unknown_variable(struct parser *p, const char *name, size_t n)
{
	char typed[CONFIG_ENV_MAX + 8], env[CONFIG_ENV_MAX], q[QUOTED_MAX];
	struct suggest s;
	unsigned best = 0;

	snprintf(typed, sizeof(typed), "%.*s", (int)min_u64(n, sizeof(typed) - 1), name);
	config_quote(typed, q);
	/* Without the prefix, which is common to all and would make everything look near. */
	suggest_init(&s, typed + sizeof(CONFIG_ENV_PREFIX) - 1);
	for (unsigned i = 0; i < config_n_options; i++) {
		unsigned was = s.best ? s.distance : UINT32_MAX;

		suggest_offer(&s,
			      option_env(&config_options[i], env) + sizeof(CONFIG_ENV_PREFIX) - 1);
		if (s.best && s.distance < was)
			best = i;
	}
	if (s.best)
		return fail(p, "%s: unknown environment variable, did you mean %s?", q,
			    option_env(&config_options[best], env));
	return fail(p, "%s: unknown environment variable (see flightsplice serve --help)", q);
}

static enum config_result read_variable(struct parser *p, const char *entry)
{
	const char *eq = strchr(entry, '=');
	size_t n = eq ? (size_t)(eq - entry) : 0;
	char env[CONFIG_ENV_MAX];

	if (!eq || strncmp(entry, CONFIG_ENV_PREFIX, sizeof(CONFIG_ENV_PREFIX) - 1))
		return CONFIG_OK;
	for (unsigned i = 0; i < config_n_options; i++) {
		const struct option *o = &config_options[i];

		option_env(o, env);
		if (strlen(env) != n || memcmp(entry, env, n))
			continue;
		if (!eq[1])
			return CONFIG_OK;
		if (option_repeatable(o))
			return set_list(p, i, env, eq + 1);
		return set(p, i, FROM_ENV, env, eq + 1);
	}
	if (is_service_link(entry, n, eq + 1) || is_test_variable(entry, n))
		return CONFIG_OK;
	return unknown_variable(p, entry, n);
}

static enum config_result read_environment(struct parser *p, char **envp)
{
	enum config_result r = CONFIG_OK;
	size_t total = 0;

	for (char **e = envp; e && *e; e++)
		if (!strncmp(*e, CONFIG_ENV_PREFIX, sizeof(CONFIG_ENV_PREFIX) - 1))
			total += strlen(*e) + 1;
	if (!total)
		return CONFIG_OK;
	p->c->storage = p->storage_end = malloc(total);
	if (!p->c->storage)
		return fail(p, "out of memory");
	for (char **e = envp; *e && !r; e++)
		r = read_variable(p, *e);
	return r;
}

/* ---- command line ---- */

/* The option that an argument "--flag" or "--flag=value" names; -1: none. */
static int find_flag(const char *arg, const char **ret_value)
{
	size_t n = strcspn(arg, "=");

	if (n < 3 || arg[0] != '-' || arg[1] != '-')
		return -1;
	for (unsigned i = 0; i < config_n_options; i++) {
		const char *flag = config_options[i].flag;

		if (strlen(flag) == n - 2 && !memcmp(flag, arg + 2, n - 2)) {
			*ret_value = arg[n] ? arg + n + 1 : NULL;
			return (int)i;
		}
	}
	return -1;
}

static enum config_result unknown_flag(struct parser *p, const char *arg)
{
	size_t n = strcspn(arg, "=");
	char typed[64], q[QUOTED_MAX];
	struct suggest s;

	if (arg[0] != '-')
		return fail(p, "unexpected argument %s: serve takes only flags (see --help)",
			    config_quote(arg, q));
	snprintf(typed, sizeof(typed), "%.*s", (int)min_u64(n, sizeof(typed) - 1), arg);
	suggest_init(&s, typed + strspn(typed, "-"));
	for (unsigned i = 0; i < config_n_options; i++)
		suggest_offer(&s, config_options[i].flag);
	suggest_offer(&s, "help");
	config_quote(typed, q);
	if (s.best)
		return fail(p, "unknown flag %s, did you mean --%s?", q, s.best);
	return fail(p, "unknown flag %s (see --help)", q);
}

static bool is_help(const char *arg)
{
	return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

/* Whether --help is among the flags (and is not the value of one). */
static bool wants_help(int argc, char **argv)
{
	const char *value;

	for (int i = 1; i < argc; i++) {
		int o = find_flag(argv[i], &value);

		if (is_help(argv[i]))
			return true;
		if (o >= 0 && !value && config_options[o].metavar)
			i++;
	}
	return false;
}

static enum config_result read_command_line(struct parser *p, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *value = NULL;
		char name[64];
		enum config_result r;
		int o = find_flag(argv[i], &value);

		if (o < 0)
			return unknown_flag(p, argv[i]);
		snprintf(name, sizeof(name), "--%s", config_options[o].flag);
		if (!value && !config_options[o].metavar)
			value = "true";
		if (!value) {
			if (++i == argc)
				return fail(p, "%s: a value is missing (%s)", name,
					    config_options[o].metavar);
			value = argv[i];
		}
		r = set(p, (unsigned)o, FROM_ARGV, name, value);
		if (r)
			return r;
	}
	return CONFIG_OK;
}

/* ---- what only makes sense together ---- */

static enum config_result check_addresses(struct parser *p)
{
	const struct config *c = p->c;
	char buf[ADDR_STRLEN];

	for (unsigned i = 0; i < c->n_listen; i++) {
		if (!addr_port(&c->listen[i]))
			continue; /* any free port: never the same */
		for (unsigned j = 0; j < i; j++)
			if (addr_equal(&c->listen[i], &c->listen[j]))
				return fail(p, "--listen: %s is given twice",
					    addr_format(&c->listen[i], buf));
		if (addr_equal(&c->listen[i], &c->admin))
			return fail(p, "--admin: %s is also given to --listen",
				    addr_format(&c->admin, buf));
	}
	return CONFIG_OK;
}

static enum config_result check_limits(struct parser *p)
{
	const struct limits *l = &p->c->limits;
	uint64_t share;

	assert(p->c->workers); /* the table's minimum */
	share = l->total_inflight / p->c->workers;
	if (l->client_inflight > l->total_inflight)
		return fail(
			p,
			"--client-inflight: is larger than --total-inflight, which holds for all "
			"clients together");
	if (share < CONFIG_INFLIGHT_MIN)
		return fail(
			p,
			"--total-inflight: leaves each of %u workers less than 256KiB; raise it to "
			"%lluKiB or lower --workers",
			p->c->workers, p->c->workers * (CONFIG_INFLIGHT_MIN / KiB));
	return CONFIG_OK;
}

enum config_result config_parse(struct config *ret, int argc, char **argv, char **envp, FILE *out,
				FILE *err)
{
	struct config c = { .n_listen = 0 };
	struct parser p = { .c = &c, .err = err };
	enum config_result r;

	if (wants_help(argc, argv)) {
		config_print_help(out);
		return CONFIG_HELP;
	}
	r = set_defaults(&p);
	if (!r)
		r = read_environment(&p, envp);
	if (!r)
		r = read_command_line(&p, argc, argv);
	if (!r)
		r = check_addresses(&p);
	if (!r)
		r = check_limits(&p);
	if (r)
		config_free(&c);
	else
		*ret = c;
	return r;
}

void config_free(struct config *c)
{
	if (!c)
		return;
	free(c->storage);
	*c = (struct config){ .n_listen = 0 };
}
