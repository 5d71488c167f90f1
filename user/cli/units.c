/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/units.h"

#include <stdio.h>

static const char *scaled(char buf[UNITS_LEN], double n, const char *end)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned u = 0;

	/* What would be printed as 1024 is one of the next unit. */
	while (n >= 1023.5 && u + 1 < ARRAY_SIZE(units)) {
		n /= 1024;
		u++;
	}
	snprintf(buf, UNITS_LEN, "%.*f %s%s", u && n < 99.95 ? 1 : 0, n, units[u], end);
	return buf;
}

const char *units_bytes(char buf[UNITS_LEN], uint64_t bytes)
{
	return scaled(buf, (double)bytes, "");
}

const char *units_rate(char buf[UNITS_LEN], double bytes_per_second)
{
	if (!(bytes_per_second >= 0)) {
		snprintf(buf, UNITS_LEN, "-");
		return buf;
	}
	return scaled(buf, bytes_per_second, "/s");
}

const char *units_duration(char buf[UNITS_LEN], uint64_t ms)
{
	uint64_t s = ms / 1000;

	if (ms < 1000)
		snprintf(buf, UNITS_LEN, "%ums", (unsigned)ms);
	else if (s < 60)
		snprintf(buf, UNITS_LEN, "%u.%us", (unsigned)s, (unsigned)(ms % 1000 / 100));
	else if (s < 3600)
		snprintf(buf, UNITS_LEN, "%um%02us", (unsigned)(s / 60), (unsigned)(s % 60));
	else if (s < 24ULL * 3600)
		snprintf(buf, UNITS_LEN, "%uh%02um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
	else
		snprintf(buf, UNITS_LEN, "%ud%02uh", (unsigned)min_u64(s / 86400, 99999),
			 (unsigned)(s / 3600 % 24));
	return buf;
}
