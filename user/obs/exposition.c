/* SPDX-License-Identifier: Apache-2.0 */
#include "obs/exposition.h"

#include <inttypes.h>

void expo_family(FILE *out, const char *name, enum expo_type type, const char *help)
{
	static const char *const types[] = {
		[EXPO_COUNTER] = "counter",
		[EXPO_GAUGE] = "gauge",
		[EXPO_HISTOGRAM] = "histogram",
	};

	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

static void put_escaped(FILE *out, const char *value)
{
	for (; *value; value++) {
		if (*value == '\n') {
			fputs("\\n", out);
			continue;
		}
		if (*value == '"' || *value == '\\')
			fputc('\\', out);
		fputc(*value, out);
	}
}

static void put_name(FILE *out, const char *name, const struct expo_label *labels, unsigned n)
{
	fputs(name, out);
	for (unsigned i = 0; i < n; i++) {
		fprintf(out, "%c%s=\"", i ? ',' : '{', labels[i].name);
		put_escaped(out, labels[i].value);
		fputc('"', out);
	}
	fputs(n ? "} " : " ", out);
}

void expo_labelled(FILE *out, const char *name, const struct expo_label *labels, unsigned n,
		   double value)
{
	put_name(out, name, labels, n);
	fprintf(out, "%.15g\n", value);
}

void expo_labelled_u64(FILE *out, const char *name, const struct expo_label *labels, unsigned n,
		       uint64_t value)
{
	put_name(out, name, labels, n);
	fprintf(out, "%" PRIu64 "\n", value);
}

void expo_histogram(FILE *out, const char *name, const struct histogram *h)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		total += h->count[i];
		if (i < HISTOGRAM_BUCKETS - 1)
			fprintf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
				(double)histogram_bound_ns[i] / (double)NSEC_PER_SEC, total);
		else
			fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, total);
	}
	fprintf(out, "%s_sum %.15g\n%s_count %" PRIu64 "\n", name,
		(double)h->sum_ns / (double)NSEC_PER_SEC, name, total);
}

void expo_single(FILE *out, const char *name, enum expo_type type, const char *help, double value)
{
	expo_family(out, name, type, help);
	expo_labelled(out, name, NULL, 0, value);
}

const char *expo_word(char buf[EXPO_WORD], const char *text)
{
	size_t n = 0;

	for (; n < EXPO_WORD - 1 && text[n]; n++) {
		buf[n] = text[n];
		if (strchr(" -", text[n]))
			buf[n] = '_';
	}
	buf[n] = '\0';
	return buf;
}
