/* SPDX-License-Identifier: Apache-2.0 */
#include "util.h"

#include <stdlib.h>

uint64_t rng_next(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}

uint64_t rng_range(struct rng *r, uint64_t lo, uint64_t hi)
{
	return lo + rng_below(r, hi - lo + 1);
}

bool rng_chance(struct rng *r, unsigned percent)
{
	return rng_below(r, 100) < percent;
}

uint64_t rng_scale(struct rng *r, uint64_t lo, uint64_t hi)
{
	unsigned steps = 0;
	uint64_t top;

	while (lo << (steps + 1) <= hi && steps < 40)
		steps++;
	lo <<= rng_below(r, steps + 1);
	top = min_u64(2 * lo, hi);
	return top > lo ? rng_range(r, lo, top) : lo;
}

void *xalloc(size_t n)
{
	void *p = calloc(1, n ? n : 1);

	if (!p)
		abort();
	return p;
}

void *xgrow(void *p, size_t n)
{
	p = realloc(p, n);
	if (!p)
		abort();
	return p;
}

uint8_t *bytes_add(struct bytes *b, const void *p, size_t n)
{
	uint8_t *at;

	/* Moving is only worth it when it frees more than it copies. */
	if (b->off + b->len + n > b->cap && b->off > b->len) {
		memmove(b->mem, b->mem + b->off, b->len);
		b->off = 0;
	}
	if (b->off + b->len + n > b->cap) {
		b->cap = b->cap ? b->cap : 256;
		while (b->cap < b->off + b->len + n)
			b->cap *= 2;
		b->mem = xgrow(b->mem, b->cap);
	}
	at = b->mem + b->off + b->len;
	if (p && n)
		memcpy(at, p, n);
	b->len += n;
	return at;
}

void bytes_drop(struct bytes *b, size_t n)
{
	assert(n <= b->len);
	b->len -= n;
	b->off = b->len ? b->off + n : 0;
}

void bytes_free(struct bytes *b)
{
	free(b->mem);
	memset(b, 0, sizeof(*b));
}

/*
 * One table of random bytes, read at (position + a start that the key chooses)
 * modulo a prime: comparing is memcmp(), and no frame or buffer size divides
 * the period.
 */
#define PATTERN_PERIOD 65521

static const uint8_t *pattern_table(void)
{
	static uint8_t table[2 * PATTERN_PERIOD];
	static bool ready;
	struct rng r = { 20240229 };

	if (!ready) {
		for (size_t i = 0; i < PATTERN_PERIOD; i++)
			table[i] = table[i + PATTERN_PERIOD] = (uint8_t)rng_next(&r);
		ready = true;
	}
	return table;
}

static size_t pattern_start(uint32_t key, uint64_t pos)
{
	return (pos + (uint64_t)key * 7919) % PATTERN_PERIOD;
}

void pattern_fill(uint32_t key, uint64_t pos, uint8_t *buf, size_t n)
{
	const uint8_t *t = pattern_table();

	while (n) {
		size_t run = n < PATTERN_PERIOD ? n : PATTERN_PERIOD;

		memcpy(buf, t + pattern_start(key, pos), run);
		buf += run;
		pos += run;
		n -= run;
	}
}

size_t pattern_check(uint32_t key, uint64_t pos, const uint8_t *buf, size_t n)
{
	const uint8_t *t = pattern_table();
	size_t done = 0;

	while (done < n) {
		size_t run = n - done < PATTERN_PERIOD ? n - done : PATTERN_PERIOD;
		const uint8_t *want = t + pattern_start(key, pos + done);

		if (memcmp(buf + done, want, run)) {
			for (size_t i = 0; i < run; i++)
				if (buf[done + i] != want[i])
					return done + i;
		}
		done += run;
	}
	return n;
}
