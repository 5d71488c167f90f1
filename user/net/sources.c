/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sources.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#define BUCKETS 4096

struct source {
	struct source *next;
	uint64_t key;
	bool v4;
	unsigned open;
};

struct sources {
	pthread_mutex_t lock;
	unsigned max;
	uint64_t seed; /* so that nobody can choose addresses that fall into one bucket */
	struct source *bucket[BUCKETS];
};

struct sources *sources_new(unsigned max)
{
	struct sources *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->max = max;
	if (getrandom(&s->seed, sizeof(s->seed), GRND_NONBLOCK) != sizeof(s->seed))
		s->seed = (uint64_t)(uintptr_t)s; /* early boot: not much to guess at either */
	return s;
}

void sources_free(struct sources *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < BUCKETS; i++) {
		while (s->bucket[i]) {
			struct source *next = s->bucket[i]->next;

			free(s->bucket[i]);
			s->bucket[i] = next;
		}
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static uint64_t key_of(const struct addr *peer, bool *ret_v4)
{
	struct addr a = *peer;
	uint64_t key;

	addr_unmap(&a);
	*ret_v4 = a.sa.sa_family == AF_INET;
	if (*ret_v4)
		return a.in.sin_addr.s_addr;
	memcpy(&key, a.in6.sin6_addr.s6_addr, sizeof(key));
	return key;
}

/* Where the source's pointer is, or would be. */
static struct source **find(struct sources *s, uint64_t key, bool v4)
{
	uint64_t h = (key ^ s->seed) * 0x9e3779b97f4a7c15ull;
	struct source **pp;

	h = (h ^ h >> 29 ^ s->seed >> 7) * 0xbf58476d1ce4e5b9ull;
	pp = &s->bucket[h >> 52];
	_Static_assert(BUCKETS == 1 << (64 - 52), "the top bits are the bucket");
	while (*pp && ((*pp)->key != key || (*pp)->v4 != v4))
		pp = &(*pp)->next;
	return pp;
}

bool sources_enter(struct sources *s, const struct addr *peer)
{
	struct source **pp;
	bool v4, ok = false;
	uint64_t key = key_of(peer, &v4);

	pthread_mutex_lock(&s->lock);
	pp = find(s, key, v4);
	if (!*pp) {
		*pp = calloc(1, sizeof(**pp));
		if (*pp) {
			(*pp)->key = key;
			(*pp)->v4 = v4;
		}
	}
	if (*pp && (*pp)->open < s->max) {
		(*pp)->open++;
		ok = true;
	}
	pthread_mutex_unlock(&s->lock);
	return ok;
}

void sources_leave(struct sources *s, const struct addr *peer)
{
	struct source **pp, *gone = NULL;
	bool v4;
	uint64_t key = key_of(peer, &v4);

	pthread_mutex_lock(&s->lock);
	pp = find(s, key, v4);
	assert(*pp && (*pp)->open);
	if (!--(*pp)->open) {
		gone = *pp;
		*pp = gone->next;
	}
	pthread_mutex_unlock(&s->lock);
	free(gone);
}
