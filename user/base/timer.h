/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timer.h - deadlines on an explicit clock.
 *
 * An array binary heap of intrusive timers. Nobody here reads a clock: the
 * owner passes `now`, so that the simulator owns time. Arming is O(log n);
 * activity that merely postpones a deadline should not re-arm but be checked
 * when the timer fires.
 */
#ifndef FS_TIMER_H
#define FS_TIMER_H

#include "base/base.h"

struct timer {
	uint64_t at_ns;                /* absolute, same clock as timers_run()'s now */
	uint32_t index;                /* 1-based place in the heap, 0 = not armed */
	void (*fire)(struct timer *t); /* called disarmed; may re-arm or free t */
};

struct timers {
	struct timer **heap;
	uint32_t len, cap;
	uint64_t running_ns; /* now of the timers_run() we are in, 0 = none */
};

void timers_init(struct timers *ts);
/* Frees the heap; armed timers are forgotten, not fired. */
void timers_free(struct timers *ts);
/*
 * Arms or re-arms t. Inside timers_run() a deadline that is due already is taken for
 * the next run, so that a timer which keeps asking for the past cannot stop the loop. 0, or
 * -ENOMEM (t is then not armed).
 */
int timer_arm(struct timers *ts, struct timer *t, uint64_t at_ns);
/* Idempotent. */
void timer_disarm(struct timers *ts, struct timer *t);
static inline bool timer_armed(const struct timer *t)
{
	return t->index != 0;
}
/* Earliest deadline, UINT64_MAX when none is armed. */
uint64_t timers_next(const struct timers *ts);
/* Fires all that are due at now_ns, oldest first. */
void timers_run(struct timers *ts, uint64_t now_ns);

#endif
