/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - what the fuzz targets share: an assertion that stays in every
 * build, and input read piece by piece.
 */
#ifndef TESTS_FUZZ_CHECK_H
#define TESTS_FUZZ_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* What is left of the input. */
struct input {
	const uint8_t *p;
	size_t len;
};

/* The next byte, 0 when there is none. */
static inline uint8_t input_byte(struct input *in)
{
	if (!in->len)
		return 0;
	in->len--;
	return *in->p++;
}

/* The next n bytes, or as many as there are. */
static inline struct input input_take(struct input *in, size_t n)
{
	struct input part = { in->p, n < in->len ? n : in->len };

	if (part.len) {
		in->p += part.len;
		in->len -= part.len;
	}
	return part;
}

/* A heap copy that ends where the bytes end, so that ASan sees a read beyond them. */
static inline uint8_t *input_copy(const struct input *in)
{
	uint8_t *copy = malloc(in->len ? in->len : 1);

	CHECK(copy);
	if (in->len)
		memcpy(copy, in->p, in->len);
	return copy;
}

#endif
