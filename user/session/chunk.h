/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.h - the two sizes of buffer that carry result bytes.
 *
 * CHUNK_BIG receives from an executor's socket: large enough that one recv()
 * and one writev() move a quarter of a megabyte, small enough to stay in a
 * core's L2 cache between the two. CHUNK_SMALL holds one DATA frame of the
 * default maximum size: held data, our own frames. Freed chunks are kept for
 * reuse up to a cap, so that the steady state allocates nothing.
 */
#ifndef FS_CHUNK_H
#define FS_CHUNK_H

#include "base/list.h"

#define CHUNK_BIG (288 * 1024u)
#define CHUNK_SMALL (16400u) /* 9 + 16384, rounded up */

struct chunk {
	struct list link;
	uint32_t cap;
	uint32_t start, end; /* the bytes in use are data[start..end) */
	uint8_t data[];
};

static inline uint32_t chunk_len(const struct chunk *c)
{
	return c->end - c->start;
}

static inline uint32_t chunk_room(const struct chunk *c)
{
	return c->cap - c->end;
}

struct chunk_pool {
	struct list big, small;
	uint32_t n_big, n_small; /* spare ones */
};

void chunk_pool_init(struct chunk_pool *p);
void chunk_pool_free(struct chunk_pool *p);
/* An empty chunk of at least cap bytes, start = end = 0. NULL: out of memory. */
struct chunk *chunk_get(struct chunk_pool *p, uint32_t cap);
/* NULL is fine. The chunk must not be in a list. */
void chunk_put(struct chunk_pool *p, struct chunk *c);
/* Puts back every chunk of the list. */
void chunk_put_all(struct chunk_pool *p, struct list *chunks);

#endif
