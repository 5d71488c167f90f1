/* SPDX-License-Identifier: Apache-2.0 */
/*
 * util.h - what every part of the simulator needs: random numbers from a seed,
 * growable byte queues, and the pattern that response bodies are made of.
 *
 * Out of memory ends the program: this is a test.
 */
#ifndef SIM_UTIL_H
#define SIM_UTIL_H

#include "base/base.h"

/* splitmix64: good enough to shuffle with, and one word of state. */
struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *r);
/* 0 .. n - 1; n > 0. */
uint64_t rng_below(struct rng *r, uint64_t n);
/* lo .. hi, both included. */
uint64_t rng_range(struct rng *r, uint64_t lo, uint64_t hi);
bool rng_chance(struct rng *r, unsigned percent);
/* Log-uniform: each power of two between lo and hi is as likely as the others. */
uint64_t rng_scale(struct rng *r, uint64_t lo, uint64_t hi);

/* A queue of bytes: appended at the end, taken from the front. */
struct bytes {
	uint8_t *mem;
	size_t off, len, cap;
};

static inline uint8_t *bytes_at(const struct bytes *b)
{
	return b->mem + b->off;
}
/* Appends n bytes of p; p NULL: uninitialised room. Returns where they are. */
uint8_t *bytes_add(struct bytes *b, const void *p, size_t n);
void bytes_drop(struct bytes *b, size_t n); /* n <= len, from the front */
void bytes_free(struct bytes *b);

void *xalloc(size_t n); /* zeroed */
void *xgrow(void *p, size_t n);

/*
 * Body bytes: byte `pos` of the response `key`. Depends on the position, so that
 * a lost, repeated or swapped byte shows, and on the key, so that a byte of
 * another stream shows.
 */
void pattern_fill(uint32_t key, uint64_t pos, uint8_t *buf, size_t n);
/* n, or the offset of the first byte that is wrong. */
size_t pattern_check(uint32_t key, uint64_t pos, const uint8_t *buf, size_t n);

#endif
