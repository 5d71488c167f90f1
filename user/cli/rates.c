/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.c - see rates.h.
 *
 * Processes write about once a second and we read about once a second, so two looks are now and then
 * at the same words, or two writes apart. A rate is therefore taken between the moments of writing,
 * and one that has no newer word stays, until the word is so old that it means nothing any more.
 */
#include "cli/rates.h"

#include <stdlib.h>

#define STALE_MS 4000

/* A counter at a moment. */
struct point {
	/* Who: process (start and pid), worker, number; worker UINT32_MAX: the process itself. */
	uint64_t started;
	uint32_t pid, worker, number;
	uint64_t bytes, kernel_bytes, at_ms;
	double rate, kernel_rate;
};

struct rates {
	struct point *points; /* in the order of the snapshot: streams, then instances */
	struct point *sorted;
	unsigned n, n_streams;
};

struct rates *rates_new(void)
{
	return calloc(1, sizeof(struct rates));
}

static void forget(struct rates *r)
{
	free(r->points);
	free(r->sorted);
	*r = (struct rates){ .points = NULL };
}

void rates_free(struct rates *r)
{
	if (!r)
		return;
	forget(r);
	free(r);
}

static int order(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_who(const void *va, const void *vb)
{
	const struct point *a = va, *b = vb;
	int o = order(a->started, b->started);

	if (!o)
		o = order(a->pid, b->pid);
	if (!o)
		o = order(a->worker, b->worker);
	return o ? o : order(a->number, b->number);
}

static struct point of_stream(const struct snapshot *s, const struct snapshot_stream *st)
{
	const struct board_build *b = &s->instances[st->instance].build;

	return (struct point){ .started = b->started_unix_ms,
			       .pid = b->pid,
			       .worker = st->key.worker,
			       .number = st->key.number,
			       .bytes = st->v.bytes,
			       .at_ms = st->v.written_unix_ms };
}

static struct point of_instance(const struct snapshot_instance *i)
{
	return (struct point){ .started = i->build.started_unix_ms,
			       .pid = i->build.pid,
			       .worker = UINT32_MAX,
			       .bytes = i->totals.bytes_by_relay,
			       .kernel_bytes = i->totals.bytes_by_kernel,
			       .at_ms = i->totals.written_unix_ms };
}

static double rate_of(uint64_t before, uint64_t now, uint64_t ms)
{
	return now < before ? 0 : (double)(now - before) * 1000 / (double)ms;
}

static void compare(struct point *p, const struct point *before, uint64_t now_ms)
{
	p->rate = p->kernel_rate = -1;
	if (!before)
		return;
	if (p->at_ms > before->at_ms) {
		uint64_t ms = p->at_ms - before->at_ms;

		p->rate = rate_of(before->bytes, p->bytes, ms);
		p->kernel_rate = rate_of(before->kernel_bytes, p->kernel_bytes, ms);
	} else if (now_ms < p->at_ms + STALE_MS) {
		p->rate = before->rate;
		p->kernel_rate = before->kernel_rate;
	} else {
		p->rate = p->kernel_rate = 0;
	}
}

static const struct point *find(const struct rates *r, const struct point *who)
{
	return r->n ? bsearch(who, r->sorted, r->n, sizeof(*who), by_who) : NULL;
}

bool rates_update(struct rates *r, const struct snapshot *s)
{
	struct rates next = { .n = s->n_streams + s->n_instances, .n_streams = s->n_streams };

	next.points = calloc(next.n, sizeof(*next.points));
	next.sorted = calloc(next.n, sizeof(*next.sorted));
	if (!next.points || !next.sorted) {
		forget(&next);
		forget(r);
		return false;
	}
	for (unsigned i = 0; i < next.n; i++) {
		struct point p = i < s->n_streams ? of_stream(s, &s->streams[i])
						  : of_instance(&s->instances[i - s->n_streams]);

		compare(&p, find(r, &p), s->taken_unix_ms);
		next.points[i] = next.sorted[i] = p;
	}
	qsort(next.sorted, next.n, sizeof(*next.sorted), by_who);
	forget(r);
	*r = next;
	return true;
}

double rates_stream(const struct rates *r, unsigned i)
{
	return r && i < r->n_streams ? r->points[i].rate : -1;
}

struct rates_of_instance rates_instance(const struct rates *r, unsigned i)
{
	const struct point *p;

	if (!r || r->n_streams + i >= r->n)
		return (struct rates_of_instance){ -1, -1 };
	p = &r->points[r->n_streams + i];
	return (struct rates_of_instance){ p->rate, p->kernel_rate };
}
