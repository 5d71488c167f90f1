/* SPDX-License-Identifier: Apache-2.0 */
#include "session/chunk.h"

#include <stdlib.h>

#define SPARE_BIG 16
#define SPARE_SMALL 256

void chunk_pool_init(struct chunk_pool *p)
{
	list_init(&p->big);
	list_init(&p->small);
	p->n_big = p->n_small = 0;
}

static void free_all(struct list *l)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, l)
		free(list_entry(pos, struct chunk, link));
	list_init(l);
}

void chunk_pool_free(struct chunk_pool *p)
{
	free_all(&p->big);
	free_all(&p->small);
	p->n_big = p->n_small = 0;
}

struct chunk *chunk_get(struct chunk_pool *p, uint32_t cap)
{
	struct list *spare = NULL;
	struct chunk *c;

	if (cap <= CHUNK_SMALL) {
		cap = CHUNK_SMALL;
		spare = &p->small;
	} else if (cap <= CHUNK_BIG) {
		cap = CHUNK_BIG;
		spare = &p->big;
	}
	if (spare && !list_empty(spare)) {
		c = list_first(spare, struct chunk, link);
		list_del(&c->link);
		(*(spare == &p->big ? &p->n_big : &p->n_small))--;
	} else {
		c = malloc(sizeof(*c) + cap);
		if (!c)
			return NULL;
		c->cap = cap;
		list_init(&c->link);
	}
	c->start = c->end = 0;
	return c;
}

void chunk_put(struct chunk_pool *p, struct chunk *c)
{
	if (!c)
		return;
	assert(list_empty(&c->link));
	if (c->cap == CHUNK_BIG && p->n_big < SPARE_BIG) {
		p->n_big++;
		list_add_head(&p->big, &c->link);
	} else if (c->cap == CHUNK_SMALL && p->n_small < SPARE_SMALL) {
		p->n_small++;
		list_add_head(&p->small, &c->link);
	} else {
		free(c);
	}
}

void chunk_put_all(struct chunk_pool *p, struct list *chunks)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, chunks) {
		list_del(pos);
		chunk_put(p, list_entry(pos, struct chunk, link));
	}
}
