/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exposition.h - Prometheus' text format 0.0.4, written family by family.
 *
 *	expo_family(out, "flightsplice_streams", EXPO_GAUGE, "Streams open.");
 *	expo_labelled_u64(out, "flightsplice_streams", NULL, 0, 7);
 *
 * A family's samples follow its head at once. A label's values come from a fixed set
 * known when the program was compiled or started (never from a peer), so that their
 * number is bounded.
 */
#ifndef FS_EXPOSITION_H
#define FS_EXPOSITION_H

#include <stdio.h>

#include "base/histogram.h"

enum expo_type { EXPO_COUNTER, EXPO_GAUGE, EXPO_HISTOGRAM };

/* One name="value"; any text may be a value. */
struct expo_label {
	const char *name, *value;
};

/* help: a sentence with its full stop. */
void expo_family(FILE *out, const char *name, enum expo_type type, const char *help);
void expo_labelled(FILE *out, const char *name, const struct expo_label *labels, unsigned n,
		   double value);
/* Counters are exact beyond 2^53. */
void expo_labelled_u64(FILE *out, const char *name, const struct expo_label *labels, unsigned n,
		       uint64_t value);
/* The samples of a family of type EXPO_HISTOGRAM, in seconds. */
void expo_histogram(FILE *out, const char *name, const struct histogram *h);

/* A family of one sample without labels. */
void expo_single(FILE *out, const char *name, enum expo_type type, const char *help, double value);

/*
 * "link-local or metadata address" -> "link_local_or_metadata_address": easier in queries.
 * Returns buf; a longer text is cut.
 */
#define EXPO_WORD 64
const char *expo_word(char buf[EXPO_WORD], const char *text);

#endif
