/* SPDX-License-Identifier: Apache-2.0 */
#include "flight/arena.h"

#include <stdlib.h>

static void *take(struct arena *a, size_t n)
{
	void *p;

	if (n > a->size - a->used)
		return NULL;
	p = a->block + a->used;
	a->used += n;
	return p;
}

static void *arena_alloc(void *data, size_t n)
{
	struct arena *a = data;
	void *p = NULL;

	if (n <= ARENA_MAX) {
		n = (n + 7) & ~(size_t)7; /* nothing in a protobuf-c message is wider */
		p = take(a, n);
		if (!p && a->block == a->own) {
			uint8_t *heap = malloc(a->budget);

			if (heap) {
				a->block = heap;
				a->size = a->budget;
				a->used = 0;
				p = take(a, n);
			}
		}
	}
	if (!p)
		a->exhausted = true;
	return p;
}

static void arena_release(void *data, void *p)
{
	(void)data;
	(void)p;
}

void arena_init(struct arena *a, size_t message_len)
{
	a->allocator = (ProtobufCAllocator){ arena_alloc, arena_release, a };
	a->block = a->own;
	a->used = 0;
	a->size = sizeof(a->own);
	a->budget =
		min_u64(ARENA_MAX, ARENA_BASE + ARENA_PER_BYTE * min_u64(message_len, ARENA_MAX));
	a->exhausted = false;
}

void arena_free(struct arena *a)
{
	if (a->block != a->own)
		free(a->block);
	a->block = a->own;
}
