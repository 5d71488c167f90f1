/* SPDX-License-Identifier: Apache-2.0 */
#include "base/timer.h"

#include <stdlib.h>

static void place(struct timers *ts, struct timer *t, uint32_t i)
{
	ts->heap[i - 1] = t;
	t->index = i;
}

static void sift_up(struct timers *ts, struct timer *t, uint32_t i)
{
	while (i > 1 && t->at_ns < ts->heap[i / 2 - 1]->at_ns) {
		place(ts, ts->heap[i / 2 - 1], i);
		i /= 2;
	}
	place(ts, t, i);
}

static void sift_down(struct timers *ts, struct timer *t, uint32_t i)
{
	for (;;) {
		uint32_t c = 2 * i;

		if (c > ts->len)
			break;
		if (c < ts->len && ts->heap[c]->at_ns < ts->heap[c - 1]->at_ns)
			c++;
		if (t->at_ns <= ts->heap[c - 1]->at_ns)
			break;
		place(ts, ts->heap[c - 1], i);
		i = c;
	}
	place(ts, t, i);
}

void timers_init(struct timers *ts)
{
	memset(ts, 0, sizeof(*ts));
}

void timers_free(struct timers *ts)
{
	for (uint32_t i = 0; i < ts->len; i++)
		ts->heap[i]->index = 0;
	free(ts->heap);
	timers_init(ts);
}

int timer_arm(struct timers *ts, struct timer *t, uint64_t at_ns)
{
	timer_disarm(ts, t);
	if (ts->len == ts->cap) {
		uint32_t cap = ts->cap ? 2 * ts->cap : 64;
		struct timer **heap = realloc(ts->heap, cap * sizeof(struct timer *));

		if (!heap)
			return -ENOMEM;
		ts->heap = heap;
		ts->cap = cap;
	}
	t->at_ns = ts->running_ns ? max_u64(at_ns, ts->running_ns + 1) : at_ns;
	sift_up(ts, t, ++ts->len);
	return 0;
}

void timer_disarm(struct timers *ts, struct timer *t)
{
	uint32_t i = t->index;
	struct timer *last;

	if (!i)
		return;
	assert(i <= ts->len && ts->heap[i - 1] == t);
	t->index = 0;
	last = ts->heap[--ts->len];
	if (last == t)
		return;
	if (i > 1 && last->at_ns < ts->heap[i / 2 - 1]->at_ns)
		sift_up(ts, last, i);
	else
		sift_down(ts, last, i);
}

uint64_t timers_next(const struct timers *ts)
{
	return ts->len ? ts->heap[0]->at_ns : UINT64_MAX;
}

void timers_run(struct timers *ts, uint64_t now_ns)
{
	ts->running_ns = now_ns;
	while (ts->len && ts->heap[0]->at_ns <= now_ns) {
		struct timer *t = ts->heap[0];

		timer_disarm(ts, t);
		t->fire(t);
	}
	ts->running_ns = 0;
}
