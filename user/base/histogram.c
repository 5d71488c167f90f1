/* SPDX-License-Identifier: Apache-2.0 */
#include "base/histogram.h"

#define US(n) ((n)*NSEC_PER_USEC)
#define MS(n) ((n)*NSEC_PER_MSEC)
#define S(n) ((n)*NSEC_PER_SEC)

const uint64_t histogram_bound_ns[HISTOGRAM_BUCKETS - 1] = {
	US(100), US(250), US(500), MS(1),    US(2500), MS(5), MS(10), MS(25), MS(50), MS(100),
	MS(250), MS(500), S(1),    MS(2500), S(5),     S(10), S(30),  S(60),  S(300),
};

static void add(uint64_t *to, uint64_t n)
{
	__atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

void histogram_add(struct histogram *h, uint64_t ns)
{
	unsigned i = 0;

	while (i < HISTOGRAM_BUCKETS - 1 && ns > histogram_bound_ns[i])
		i++;
	add(&h->count[i], 1);
	add(&h->sum_ns, ns);
}

void histogram_sum(struct histogram *sum, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum->count[i] += __atomic_load_n(&from->count[i], __ATOMIC_RELAXED);
	sum->sum_ns += __atomic_load_n(&from->sum_ns, __ATOMIC_RELAXED);
}
