/* SPDX-License-Identifier: Apache-2.0 */
/* The heap against a model that is too simple to be wrong: an array that is searched. */
#include "unit/hex.h"

#include "base/timer.h"

struct thing {
	struct timer timer;
	unsigned fired;
	void (*then)(struct thing *t); /* what fire() does besides counting */
	struct timers *ts;
	uint64_t arm_at;
	struct thing *other;
};

static struct thing *last_fired;

static void fire(struct timer *t)
{
	struct thing *x = container_of(t, struct thing, timer);

	assert_false(timer_armed(t));
	x->fired++;
	last_fired = x;
	if (x->then)
		x->then(x);
}

static void thing_init(struct thing *x, struct timers *ts)
{
	*x = (struct thing){ .timer.fire = fire, .ts = ts };
}

static void nothing_armed(void **state)
{
	struct timers ts;

	(void)state;
	timers_init(&ts);
	assert_true(timers_next(&ts) == UINT64_MAX);
	timers_run(&ts, UINT64_MAX);
	timers_free(&ts);
	timers_free(&ts);
}

static void one_timer(void **state)
{
	struct timers ts;
	struct thing x;

	(void)state;
	timers_init(&ts);
	thing_init(&x, &ts);
	timer_disarm(&ts, &x.timer); /* never armed */
	assert_int_equal(timer_arm(&ts, &x.timer, 100), 0);
	assert_true(timer_armed(&x.timer));
	assert_true(timers_next(&ts) == 100);
	timers_run(&ts, 99);
	assert_int_equal(x.fired, 0);
	timers_run(&ts, 100); /* due at the very instant */
	assert_int_equal(x.fired, 1);
	assert_false(timer_armed(&x.timer));
	timers_run(&ts, 1000);
	assert_int_equal(x.fired, 1);

	assert_int_equal(timer_arm(&ts, &x.timer, 200), 0);
	assert_int_equal(timer_arm(&ts, &x.timer, 300), 0); /* moved, not doubled */
	assert_true(timers_next(&ts) == 300);
	assert_int_equal(timer_arm(&ts, &x.timer, 50), 0);
	assert_true(timers_next(&ts) == 50);
	timer_disarm(&ts, &x.timer);
	timer_disarm(&ts, &x.timer);
	timers_run(&ts, UINT64_MAX);
	assert_int_equal(x.fired, 1);

	assert_int_equal(timer_arm(&ts, &x.timer, 0), 0);
	timers_run(&ts, 0);
	assert_int_equal(x.fired, 2);
	timers_free(&ts);
}

static void free_forgets(void **state)
{
	struct timers ts;
	struct thing x[3];

	(void)state;
	timers_init(&ts);
	for (size_t i = 0; i < ARRAY_SIZE(x); i++) {
		thing_init(&x[i], &ts);
		assert_int_equal(timer_arm(&ts, &x[i].timer, i), 0);
	}
	timers_free(&ts);
	for (size_t i = 0; i < ARRAY_SIZE(x); i++) {
		assert_false(timer_armed(&x[i].timer));
		assert_int_equal(x[i].fired, 0);
	}
	assert_int_equal(timer_arm(&ts, &x[0].timer, 1), 0); /* usable again */
	timers_run(&ts, 1);
	assert_int_equal(x[0].fired, 1);
	timers_free(&ts);
}

/* ---- what fire() may do ---- */

static void rearm(struct thing *x)
{
	if (x->fired < 3)
		assert_int_equal(timer_arm(x->ts, &x->timer, x->arm_at), 0);
}

static void disarm_other(struct thing *x)
{
	timer_disarm(x->ts, &x->other->timer);
}

static void arm_other(struct thing *x)
{
	assert_int_equal(timer_arm(x->ts, &x->other->timer, x->arm_at), 0);
}

static void free_itself(struct thing *x)
{
	free(x);
}

static void fire_may_rearm(void **state)
{
	struct timers ts;
	struct thing x;

	(void)state;
	timers_init(&ts);
	thing_init(&x, &ts);
	x.then = rearm;
	x.arm_at = 20; /* later: not in the same run */
	assert_int_equal(timer_arm(&ts, &x.timer, 10), 0);
	timers_run(&ts, 10);
	assert_int_equal(x.fired, 1);
	assert_true(timers_next(&ts) == 20);
	x.arm_at = 15; /* already due: in the next run, or a run might not end */
	timers_run(&ts, 20);
	assert_int_equal(x.fired, 2);
	assert_true(timers_next(&ts) == 21);
	timers_run(&ts, 21);
	assert_int_equal(x.fired, 3);
	assert_false(timer_armed(&x.timer));
	timers_free(&ts);
}

static void fire_may_touch_others(void **state)
{
	struct timers ts;
	struct thing a, b;

	(void)state;
	timers_init(&ts);
	thing_init(&a, &ts);
	thing_init(&b, &ts);
	a.other = &b;

	a.then = disarm_other; /* due at the same time, but told not to */
	assert_int_equal(timer_arm(&ts, &a.timer, 10), 0);
	assert_int_equal(timer_arm(&ts, &b.timer, 11), 0);
	timers_run(&ts, 11);
	assert_int_equal(a.fired, 1);
	assert_int_equal(b.fired, 0);

	a.then = arm_other;
	a.arm_at = 12;
	assert_int_equal(timer_arm(&ts, &a.timer, 10), 0);
	timers_run(&ts, 12);
	assert_int_equal(b.fired, 0); /* due already, so in the next run */
	timers_run(&ts, 13);
	assert_int_equal(b.fired, 1);
	timers_free(&ts);
}

static void fire_may_free(void **state)
{
	struct timers ts;

	(void)state;
	timers_init(&ts);
	for (unsigned i = 0; i < 100; i++) {
		struct thing *x = malloc(sizeof(*x));

		assert_non_null(x);
		thing_init(x, &ts);
		x->then = free_itself;
		assert_int_equal(timer_arm(&ts, &x->timer, 1000 - i), 0);
	}
	timers_run(&ts, 2000);
	assert_true(timers_next(&ts) == UINT64_MAX);
	timers_free(&ts);
}

/* ---- against the model ---- */

#define THINGS 300
#define NOT_ARMED UINT64_MAX

struct model {
	uint64_t at[THINGS];
};

static uint64_t model_next(const struct model *m)
{
	uint64_t next = NOT_ARMED;

	for (size_t i = 0; i < THINGS; i++)
		if (m->at[i] < next)
			next = m->at[i];
	return next;
}

/* Fires one after the other by hand, so that the order can be checked. */
static void run_both(struct timers *ts, struct thing *x, struct model *m, uint64_t now)
{
	unsigned due = 0, fired = 0;

	for (size_t i = 0; i < THINGS; i++) {
		x[i].fired = 0;
		due += m->at[i] <= now;
	}
	while (timers_next(ts) <= now) {
		uint64_t next = model_next(m);
		size_t i;

		assert_true(timers_next(ts) == next);
		last_fired = NULL;
		/* As far as the earliest only: all that fire have the same deadline. */
		timers_run(ts, next);
		assert_non_null(last_fired);
		for (i = 0; i < THINGS; i++)
			if (m->at[i] == next) {
				assert_int_equal(x[i].fired, 1);
				m->at[i] = NOT_ARMED;
				fired++;
			}
	}
	assert_int_equal(fired, due);
	for (size_t i = 0; i < THINGS; i++)
		assert_int_equal(timer_armed(&x[i].timer), m->at[i] != NOT_ARMED);
}

static void check_heap(const struct timers *ts, const struct model *m)
{
	uint32_t armed = 0;

	for (size_t i = 0; i < THINGS; i++)
		armed += m->at[i] != NOT_ARMED;
	assert_int_equal(ts->len, armed);
	for (uint32_t i = 1; i <= ts->len; i++) {
		assert_int_equal(ts->heap[i - 1]->index, i);
		if (i > 1)
			assert_true(ts->heap[i / 2 - 1]->at_ns <= ts->heap[i - 1]->at_ns);
	}
}

static void against_model(void **state)
{
	static struct thing x[THINGS];
	uint64_t seed = test_seed(42), now = 0;
	struct timers ts;
	struct model m;

	(void)state;
	timers_init(&ts);
	for (size_t i = 0; i < THINGS; i++) {
		thing_init(&x[i], &ts);
		m.at[i] = NOT_ARMED;
	}
	for (unsigned step = 0; step < 40000; step++) {
		size_t i = rnd(&seed) % THINGS;
		/* Few distinct values at times, so that many are equal. */
		uint64_t in = rnd(&seed) % (step % 2000 < 1000 ? 10 : 5000);

		switch (rnd(&seed) % 8) {
		case 0:
		case 1:
			timer_disarm(&ts, &x[i].timer);
			m.at[i] = NOT_ARMED;
			break;
		case 2:
			now += rnd(&seed) % 40;
			run_both(&ts, x, &m, now);
			break;
		default:
			assert_int_equal(timer_arm(&ts, &x[i].timer, now + in), 0);
			m.at[i] = now + in;
		}
		assert_true(timers_next(&ts) == model_next(&m));
		if (step % 16 == 0)
			check_heap(&ts, &m);
	}
	timers_free(&ts);
}

static uint64_t last_at;

static void in_order(struct timer *t)
{
	assert_true(t->at_ns >= last_at);
	last_at = t->at_ns;
}

/* A whole batch in one run comes oldest first. */
static void oldest_first(void **state)
{
	static struct timer t[5000];
	uint64_t seed = test_seed(43);
	struct timers ts;

	(void)state;
	timers_init(&ts);
	last_at = 0;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		t[i].fire = in_order;
		assert_int_equal(timer_arm(&ts, &t[i], rnd(&seed) % 3000), 0);
	}
	timers_run(&ts, 2000);
	assert_true(last_at <= 2000);
	assert_true(timers_next(&ts) > 2000);
	timers_run(&ts, 3000);
	assert_true(timers_next(&ts) == UINT64_MAX);
	timers_free(&ts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_armed),         cmocka_unit_test(one_timer),
		cmocka_unit_test(free_forgets),          cmocka_unit_test(fire_may_rearm),
		cmocka_unit_test(fire_may_touch_others), cmocka_unit_test(fire_may_free),
		cmocka_unit_test(against_model),         cmocka_unit_test(oldest_first),
	};

	return cmocka_run_group_tests_name("timer", tests, NULL, NULL);
}
