/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hex.h - bytes written as hex text in tests, and the include order cmocka needs.
 */
#ifndef TESTS_UNIT_HEX_H
#define TESTS_UNIT_HEX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#include <cmocka.h>

/* Reads "8286 84 41" (blanks are skipped) into buf; returns the number of bytes. */
static inline size_t hex_read(uint8_t *buf, size_t cap, const char *text)
{
	size_t n = 0;
	int high = -1;

	for (; *text; text++) {
		static const char digits[] = "0123456789abcdef";
		const char *d = strchr(digits, *text);

		if (*text == ' ')
			continue;
		assert_non_null(d);
		if (high < 0) {
			high = (int)(d - digits);
			continue;
		}
		assert_true(n < cap);
		buf[n++] = (uint8_t)(high << 4 | (int)(d - digits));
		high = -1;
	}
	assert_int_equal(high, -1);
	return n;
}

/*
 * A heap copy of exactly len bytes, so that a sanitizer sees a read of the byte
 * after them. The caller frees it.
 */
static inline uint8_t *exact_copy(const uint8_t *p, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	if (len)
		memcpy(copy, p, len);
	return copy;
}

/* A small generator of our own: the same numbers from a seed on every libc. */
static inline uint32_t rnd(uint64_t *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(*state >> 33);
}

/* The seed of a randomised test: TEST_SEED, or `usual`. Printed, to run it again. */
static inline uint64_t test_seed(uint64_t usual)
{
	const char *text = getenv("TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : usual;

	print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

#endif
