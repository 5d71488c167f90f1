/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c - reading and writing the values of options.
 *
 * Each kind of value is a pair of functions. The readers take the text as a whole:
 * no leading or trailing space, no sign, one spelling of a unit but for its case.
 * Their refusals say what would be right, because they are all that a person sees
 * of a typo. What a writer returns reads back as the same value.
 */
#include "config/values.h"

#include <ctype.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <strings.h>

#include "base/prefix.h"

static_assert(sizeof(enum config_datapath) == sizeof(int), "choices are stored as int");
static_assert(sizeof(enum config_log_format) == sizeof(int), "choices are stored as int");
static_assert(sizeof(enum config_log_level) == sizeof(int), "choices are stored as int");

const char *config_quote(const char *text, char buf[QUOTED_MAX])
{
	size_t n = 0;

	buf[n++] = '\'';
	for (; *text && n < QUOTED_MAX - 5; text++, n++) {
		buf[n] = *text;
		if (iscntrl((unsigned char)*text))
			buf[n] = '?';
	}
	memcpy(buf + n, *text ? "...'" : "'", *text ? 5 : 2);
	return buf;
}

static int refuse(char why[CONFIG_TEXT_MAX], const char *text, const char *is_not)
{
	char q[QUOTED_MAX];

	snprintf(why, CONFIG_TEXT_MAX, "%s is not %s", config_quote(text, q), is_not);
	return -EINVAL;
}

struct unit {
	const char *name;
	uint64_t factor;
};

/* "12KiB" by a table of units ("" = none) that ends with a NULL name. 0, -EINVAL, -ERANGE. */
static int parse_with_unit(const char *text, const struct unit *units, uint64_t *ret)
{
	uint64_t v = 0;
	const char *s = text;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	}
	if (s == text)
		return -EINVAL;
	for (; units->name; units++) {
		if (strcasecmp(s, units->name))
			continue;
		if (__builtin_mul_overflow(v, units->factor, &v))
			return -ERANGE;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}

/* The largest of the units that come out even. Units ascend. */
static const char *format_with_unit(uint64_t v, const struct unit *units, char buf[CONFIG_TEXT_MAX])
{
	const struct unit *best = units;

	for (; v && units->name; units++)
		if (v % units->factor == 0)
			best = units;
	snprintf(buf, CONFIG_TEXT_MAX, "%" PRIu64 "%s", v / best->factor, v ? best->name : "");
	return buf;
}

static const struct unit duration_units[] = {
	{ "ms", NSEC_PER_MSEC },      { "s", NSEC_PER_SEC }, { "m", 60 * NSEC_PER_SEC },
	{ "h", 3600 * NSEC_PER_SEC }, { NULL, 0 },
};

/* The spelled-out ones come last, so that format_with_unit() would not find them first. */
static const struct unit byte_units[] = {
	{ "", 1 },    { "KiB", KiB }, { "MiB", MiB }, { "GiB", GiB }, { "B", 1 },
	{ "K", KiB }, { "M", MiB },   { "G", GiB },   { NULL, 0 },
};
static const struct unit byte_units_written[] = {
	{ "", 1 }, { "KiB", KiB }, { "MiB", MiB }, { "GiB", GiB }, { NULL, 0 },
};

/* Ten years: sums of such deadlines and a monotonic clock stay far from 2^64. */
#define DURATION_MAX (10ULL * 366 * 24 * 3600 * NSEC_PER_SEC)

int config_parse_duration(const char *text, uint64_t *ret_ns)
{
	uint64_t v;

	if (!strcmp(text, "0")) {
		*ret_ns = 0;
		return 0;
	}
	if (parse_with_unit(text, duration_units, &v) || v > DURATION_MAX)
		return -EINVAL;
	*ret_ns = v;
	return 0;
}

int config_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	return parse_with_unit(text, byte_units, ret_bytes) ? -EINVAL : 0;
}

static int parse_duration(const struct option *o, const char *text, void *field,
			  char why[CONFIG_TEXT_MAX])
{
	(void)o;
	if (config_parse_duration(text, field))
		return refuse(why, text, "a duration (like 250ms, 5s, 10m; 0 = off)");
	return 0;
}

static const char *format_duration(const struct option *o, const void *field,
				   char buf[CONFIG_TEXT_MAX])
{
	(void)o;
	return format_with_unit(*(const uint64_t *)field, duration_units, buf);
}

static int parse_bytes(const struct option *o, const char *text, void *field,
		       char why[CONFIG_TEXT_MAX])
{
	char lo[CONFIG_TEXT_MAX], hi[CONFIG_TEXT_MAX], q[QUOTED_MAX];
	uint64_t v;

	if (config_parse_bytes(text, &v))
		return refuse(why, text, "a number of bytes (like 65536, 64KiB, 8MiB)");
	if (v < o->min || v > o->max) {
		format_with_unit(o->min, byte_units_written, lo);
		format_with_unit(o->max, byte_units_written, hi);
		snprintf(why, CONFIG_TEXT_MAX, "%s is out of range, it must be %.30s to %.30s",
			 config_quote(text, q), lo, hi);
		return -EINVAL;
	}
	*(uint64_t *)field = v;
	return 0;
}

static const char *format_bytes(const struct option *o, const void *field,
				char buf[CONFIG_TEXT_MAX])
{
	(void)o;
	return format_with_unit(*(const uint64_t *)field, byte_units_written, buf);
}

/* o->max keeps it inside 32 bits. */
static int parse_bytes32(const struct option *o, const char *text, void *field,
			 char why[CONFIG_TEXT_MAX])
{
	uint64_t v;
	int err = parse_bytes(o, text, &v, why);

	if (!err)
		*(uint32_t *)field = (uint32_t)v;
	return err;
}

static const char *format_bytes32(const struct option *o, const void *field,
				  char buf[CONFIG_TEXT_MAX])
{
	uint64_t v = *(const uint32_t *)field;

	return format_bytes(o, &v, buf);
}

static int parse_count(const struct option *o, const char *text, void *field,
		       char why[CONFIG_TEXT_MAX])
{
	static const struct unit none[] = { { "", 1 }, { NULL, 0 } };
	char q[QUOTED_MAX];
	uint64_t v;
	int err = parse_with_unit(text, none, &v);

	if (err == -EINVAL)
		return refuse(why, text, "a whole number");
	if (err || v < o->min || v > o->max) {
		snprintf(why, CONFIG_TEXT_MAX,
			 "%s is out of range, it must be %" PRIu64 " to %" PRIu64,
			 config_quote(text, q), o->min, o->max);
		return -EINVAL;
	}
	*(uint32_t *)field = (uint32_t)v;
	return 0;
}

static const char *format_count(const struct option *o, const void *field,
				char buf[CONFIG_TEXT_MAX])
{
	(void)o;
	snprintf(buf, CONFIG_TEXT_MAX, "%" PRIu32, *(const uint32_t *)field);
	return buf;
}

/* CPUs that this process may run on: a container's cpuset counts, not the machine. */
static uint32_t usable_cpus(uint32_t max)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1; /* more than 1,024 CPUs, or forbidden */
	n = CPU_COUNT(&set);
	return n < 1 ? 1 : (uint32_t)min_u64((uint64_t)n, max);
}

static int parse_workers(const struct option *o, const char *text, void *field,
			 char why[CONFIG_TEXT_MAX])
{
	if (!strcmp(text, "auto")) {
		*(unsigned *)field = usable_cpus((uint32_t)o->max);
		return 0;
	}
	if (*text < '0' || *text > '9')
		return refuse(why, text, "a whole number or 'auto'");
	return parse_count(o, text, field, why);
}

static int parse_choice(const struct option *o, const char *text, void *field,
			char why[CONFIG_TEXT_MAX])
{
	char q[QUOTED_MAX];
	int n;

	for (const struct option_choice *c = o->choices; c->name; c++) {
		if (!strcmp(text, c->name)) {
			*(int *)field = c->value;
			return 0;
		}
	}
	n = snprintf(why, CONFIG_TEXT_MAX, "%s is not one of", config_quote(text, q));
	for (const struct option_choice *c = o->choices; c->name && n < CONFIG_TEXT_MAX; c++)
		n += snprintf(why + n, CONFIG_TEXT_MAX - (size_t)n, "%s %s",
			      c == o->choices ? "" : ",", c->name);
	return -EINVAL;
}

static const char *format_choice(const struct option *o, const void *field,
				 char buf[CONFIG_TEXT_MAX])
{
	(void)buf;
	for (const struct option_choice *c = o->choices; c->name; c++)
		if (c->value == *(const int *)field)
			return c->name;
	return "?";
}

static int parse_switch(const struct option *o, const char *text, void *field,
			char why[CONFIG_TEXT_MAX])
{
	static const char *const words[][2] = {
		{ "false", "true" },
		{ "no", "yes" },
		{ "off", "on" },
		{ "0", "1" },
	};

	(void)o;
	for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
		for (int v = 0; v < 2; v++) {
			if (!strcasecmp(text, words[i][v])) {
				*(bool *)field = v;
				return 0;
			}
		}
	}
	return refuse(why, text, "true or false");
}

static const char *format_switch(const struct option *o, const void *field,
				 char buf[CONFIG_TEXT_MAX])
{
	(void)o;
	(void)buf;
	return *(const bool *)field ? "true" : "false";
}

static int parse_listen(const struct option *o, const char *text, void *field,
			char why[CONFIG_TEXT_MAX])
{
	(void)o;
	if (addr_parse(text, field))
		return refuse(why, text,
			      "an IP address and port (like 0.0.0.0:50060, [::1]:50060, :50060)");
	return 0;
}

static int parse_admin(const struct option *o, const char *text, void *field,
		       char why[CONFIG_TEXT_MAX])
{
	(void)o;
	if (!strcmp(text, "off")) {
		*(struct addr *)field = (struct addr){ .len = 0 };
		return 0;
	}
	if (addr_parse(text, field))
		return refuse(why, text,
			      "an IP address and port (like 127.0.0.1:9550, [::]:9550) or 'off'");
	return 0;
}

static const char *format_addr(const struct option *o, const void *field, char buf[CONFIG_TEXT_MAX])
{
	const struct addr *a = field;

	(void)o;
	static_assert(CONFIG_TEXT_MAX >= ADDR_STRLEN, "an address fits");
	return a->len ? addr_format(a, buf) : "off";
}

/* The policy reads the text again; here it is only judged. */
static int parse_cidr(const struct option *o, const char *text, void *field,
		      char why[CONFIG_TEXT_MAX])
{
	struct prefix p;

	(void)o;
	if (prefix_parse(text, &p))
		return refuse(why, text,
			      "an address range (like 10.0.0.0/8, fd00::/8, 10.1.2.3; no bits set "
			      "behind the length)");
	*(const char **)field = text;
	return 0;
}

static int parse_ports(const struct option *o, const char *text, void *field,
		       char why[CONFIG_TEXT_MAX])
{
	struct port_range r;

	(void)o;
	if (port_range_parse(text, &r))
		return refuse(why, text, "a port or range of ports (like 50051, 50000-50100)");
	*(const char **)field = text;
	return 0;
}

/* Room for the names of the maps below it, and their NUL, inside PATH_MAX (4096). */
#define DIR_MAX 3840

static int parse_dir(const struct option *o, const char *text, void *field,
		     char why[CONFIG_TEXT_MAX])
{
	(void)o;
	if (text[0] != '/' || strlen(text) > DIR_MAX)
		return refuse(why, text, "an absolute path");
	*(const char **)field = text;
	return 0;
}

static const char *format_string(const struct option *o, const void *field,
				 char buf[CONFIG_TEXT_MAX])
{
	(void)o;
	(void)buf;
	return *(const char *const *)field;
}

const struct option_type type_duration = { parse_duration, format_duration };
const struct option_type type_bytes = { parse_bytes, format_bytes };
const struct option_type type_bytes32 = { parse_bytes32, format_bytes32 };
const struct option_type type_count = { parse_count, format_count };
const struct option_type type_workers = { parse_workers, format_count };
const struct option_type type_choice = { parse_choice, format_choice };
const struct option_type type_switch = { parse_switch, format_switch };
const struct option_type type_listen = { parse_listen, format_addr };
const struct option_type type_admin = { parse_admin, format_addr };
const struct option_type type_cidr = { parse_cidr, format_string };
const struct option_type type_ports = { parse_ports, format_string };
const struct option_type type_dir = { parse_dir, format_string };
