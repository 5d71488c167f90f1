/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - the option table as data, for what shows it: /config, the man
 * page check, --help.
 */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

#include "config/config.h"

/* One option. All text is static but value, which lives during the callback. */
struct option_view {
	const char *flag;    /* "connect-timeout", without dashes */
	const char *env;     /* "FLIGHTSPLICE_CONNECT_TIMEOUT", lives during the callback */
	const char *metavar; /* "DURATION"; NULL for a switch */
	const char *def;     /* default as one would write it; NULL = none */
	const char *help;
	bool repeatable;
	const char *const
		*values; /* as one would write them: n_values texts, 1 unless repeatable */
	unsigned n_values;
};

/* c NULL: no values (n_values 0). */
void config_each_option(const struct config *c, void (*fn)(void *arg, const struct option_view *o),
			void *arg);

#endif
