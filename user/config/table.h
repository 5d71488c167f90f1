/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - the option table, inside config only. Others see it through options.h.
 */
#ifndef FS_CONFIG_TABLE_H
#define FS_CONFIG_TABLE_H

#include "config/options.h"

#define CONFIG_ENV_PREFIX "FLIGHTSPLICE_"
#define CONFIG_ENV_MAX 64 /* length of a variable's name, with its NUL */
#define CONFIG_TEXT_MAX 192

struct option;

/*
 * How a kind of value is read and written. `field` is the place in struct config
 * (of a repeatable option: of one element).
 */
struct option_type {
	/*
	 * 0 and *field written, or -EINVAL and why = the sentence that follows the flag's
	 * name: "'5x' is not a duration (like 250ms, 5s, 10m)".
	 */
	int (*parse)(const struct option *o, const char *text, void *field,
		     char why[CONFIG_TEXT_MAX]);
	/* The text one would write for it; may return a pointer into the field or static text. */
	const char *(*format)(const struct option *o, const void *field, char buf[CONFIG_TEXT_MAX]);
};

enum option_group {
	GROUP_LISTEN,
	GROUP_DATAPATH,
	GROUP_POLICY,
	GROUP_DEADLINES,
	GROUP_LIMITS,
	GROUP_LOGGING,
	GROUPS,
};

struct option_choice {
	const char *name; /* NULL ends the array */
	int value;
};

struct option {
	enum option_group group;
	const char *flag;
	const char *metavar; /* NULL: a switch, "--flag" means "--flag=true" */
	const char *def;     /* parsed like any other value; NULL = empty list */
	const char *help;
	const struct option_type *type;
	size_t offset;         /* of the field, or of the first element */
	size_t count_offset;   /* repeatable: of the unsigned that counts; 0 = not repeatable */
	size_t element;        /* repeatable: size of one */
	unsigned max_elements; /* repeatable */
	uint64_t min, max;     /* numbers, durations (ns), bytes */
	const struct option_choice *choices;
};

extern const struct option config_options[];
extern const unsigned config_n_options;
extern const char *const config_group_titles[GROUPS];

static inline bool option_repeatable(const struct option *o)
{
	return o->count_offset != 0;
}

static inline void *option_field(const struct option *o, struct config *c)
{
	return (char *)c + o->offset;
}

static inline unsigned *option_count(const struct option *o, struct config *c)
{
	return (unsigned *)(void *)((char *)c + o->count_offset);
}

/* "connect-timeout" -> "FLIGHTSPLICE_CONNECT_TIMEOUT". Returns buf. */
const char *option_env(const struct option *o, char buf[CONFIG_ENV_MAX]);

/* Writes the --help text of serve. */
void config_print_help(FILE *out);

#endif
