/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suggest.c - edit distance with swaps of neighbours counted as one edit (optimal
 * string alignment), which is what typing mistakes look like.
 */
#include "config/suggest.h"

/* Longer names are never meant by anybody; bounds the work on hostile input. */
#define NAME_MAX_LEN 40

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

static unsigned edit_distance(const char *a, size_t n, const char *b, size_t m)
{
	/* Rows i-2, i-1 and i of the matrix of distances between prefixes. */
	unsigned rows[3][NAME_MAX_LEN + 1];
	unsigned *before = rows[0], *prev = rows[1], *row = rows[2], *spare;

	for (size_t j = 0; j <= m; j++)
		prev[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			row[j] = min3(prev[j] + 1, row[j - 1] + 1,
				      prev[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1 < row[j])
				row[j] = before[j - 2] + 1;
		}
		spare = before;
		before = prev;
		prev = row;
		row = spare;
	}
	return prev[m];
}

void suggest_init(struct suggest *s, const char *text)
{
	*s = (struct suggest){ .text = text };
}

void suggest_offer(struct suggest *s, const char *candidate)
{
	size_t n = strlen(s->text), m = strlen(candidate);
	unsigned d, near;

	if (!n || n > NAME_MAX_LEN || m > NAME_MAX_LEN)
		return;
	d = edit_distance(s->text, n, candidate, m);
	/* A third of it wrong is a typo, more is another word. */
	near = (unsigned)(n > m ? n : m) / 3;
	if (d > (near > 1 ? near : 1) || (s->best && d >= s->distance))
		return;
	s->best = candidate;
	s->distance = d;
}
