/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - the clock and the loop; see world.h for the theory.
 *
 * Alarms live in the product's timer heap. When one is due it moves to an array
 * from which the turn picks at random, so two things that happen at the same
 * time happen in any order, and one may be left over for the next turn.
 */
#include "world_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool world_verbose;

/* A subject that asks for a run this often while nothing else happens burns CPU. */
#define SPIN_MAX 200
/* Events delivered to a port that neither reads nor writes, or reads nothing but its end. */
#define FRUITLESS_MAX 100

struct once {
	struct alarm alarm;
	struct list link;
	void (*fire)(void *arg);
	void *arg;
};

static void due_remove(struct alarm *a)
{
	struct world *w = a->world;
	struct alarm *last;

	if (!a->due)
		return;
	last = w->due[--w->n_due];
	w->due[a->due - 1] = last;
	last->due = a->due;
	a->due = 0;
}

static void on_due(struct timer *t)
{
	struct alarm *a = container_of(t, struct alarm, timer);
	struct world *w = a->world;

	if (w->n_due == w->cap_due) {
		w->cap_due = w->cap_due ? 2 * w->cap_due : 64;
		w->due = xgrow(w->due, w->cap_due * sizeof(*w->due));
	}
	w->due[w->n_due++] = a;
	a->due = w->n_due;
}

void alarm_set(struct world *w, struct alarm *a, uint64_t at_ns, void (*fire)(void *), void *arg)
{
	a->world = w;
	a->fire = fire;
	a->arg = arg;
	due_remove(a);
	a->timer.fire = on_due;
	if (timer_arm(&w->timers, &a->timer, at_ns))
		abort();
}

void alarm_soon(struct world *w, struct alarm *a, uint64_t at_ns, void (*fire)(void *), void *arg)
{
	if (a->due || (timer_armed(&a->timer) && a->timer.at_ns <= at_ns))
		return;
	alarm_set(w, a, at_ns, fire, arg);
}

void alarm_clear(struct alarm *a)
{
	if (!a->world)
		return;
	timer_disarm(&a->world->timers, &a->timer);
	due_remove(a);
}

static void once_fire(void *arg)
{
	struct once *o = arg;
	void (*fire)(void *) = o->fire;

	arg = o->arg;
	list_del(&o->link);
	free(o);
	fire(arg);
}

void world_at(struct world *w, uint64_t at_ns, void (*fire)(void *), void *arg)
{
	struct once *o = xalloc(sizeof(*o));

	o->fire = fire;
	o->arg = arg;
	list_add_tail(&w->once, &o->link);
	alarm_set(w, &o->alarm, at_ns, once_fire, o);
}

struct world *world_new(uint64_t seed)
{
	struct world *w = xalloc(sizeof(*w));

	w->rng.state = seed;
	w->now = NSEC_PER_SEC + rng_below(&w->rng, NSEC_PER_SEC);
	w->spurious = 2;
	timers_init(&w->timers);
	list_init(&w->once);
	list_init(&w->ports);
	list_init(&w->tombs);
	list_init(&w->conns);
	list_init(&w->dials);
	list_init(&w->pairs);
	return w;
}

void world_free(struct world *w)
{
	struct list *pos, *tmp;

	kernel_free(w);
	net_free(w);
	list_for_each_safe (pos, tmp, &w->once) {
		struct once *o = list_entry(pos, struct once, link);

		alarm_clear(&o->alarm);
		free(o);
	}
	timers_free(&w->timers);
	free(w->due);
	free(w->ready);
	free(w);
}

uint64_t world_now(const struct world *w)
{
	return w->now;
}

struct rng *world_rng(struct world *w)
{
	return &w->rng;
}

bool world_in_subject(const struct world *w)
{
	return w->in_subject;
}

void world_set_spurious(struct world *w, unsigned percent)
{
	w->spurious = percent;
}

void world_set_check(struct world *w, void (*check)(void *arg), void *arg)
{
	w->check = check;
	w->check_arg = arg;
}

void world_fail(struct world *w, const char *fmt, ...)
{
	int n;
	va_list ap;

	if (w->failure[0])
		return;
	n = snprintf(w->failure, sizeof(w->failure), "at %.6f s: ", (double)w->now / 1e9);
	va_start(ap, fmt);
	vsnprintf(w->failure + n, sizeof(w->failure) - (size_t)n, fmt, ap);
	va_end(ap);
	world_log(w, "FAILURE %s", w->failure);
}

const char *world_failure(const struct world *w)
{
	return w->failure[0] ? w->failure : NULL;
}

void world_log(const struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (!world_verbose)
		return;
	printf("  %11.6f ", (double)w->now / 1e9);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

void subject_enter(struct world *w)
{
	if (w->in_subject)
		world_fail(w, "world: callback from inside a call of the subject");
	w->in_subject = true;
	w->touched = true;
}

void subject_leave(struct world *w)
{
	w->in_subject = false;
}

void world_attach(struct world *w, const struct subject_ops *ops, const struct env *env)
{
	w->ops = ops;
	subject_enter(w);
	w->subject = ops->create(env);
	subject_leave(w);
	if (!w->subject)
		world_fail(w, "the subject could not be created");
}

void world_detach(struct world *w)
{
	if (!w->subject)
		return;
	subject_enter(w);
	w->ops->destroy(w->subject);
	subject_leave(w);
	w->subject = NULL;
	if (w->n_ports || w->n_dials || w->n_pairs)
		world_fail(w, "freeing the subject left %u ports, %u dials and %u splices",
			   w->n_ports, w->n_dials, w->n_pairs);
}

const void *world_stats(const struct world *w)
{
	return w->ops->stats(w->subject);
}

bool world_subject_idle(const struct world *w)
{
	return w->ops->idle(w->subject);
}

uint64_t world_subject_deadline(const struct world *w)
{
	return w->subject ? w->ops->next_deadline(w->subject) : UINT64_MAX;
}

void world_drain(struct world *w)
{
	subject_enter(w);
	w->ops->drain(w->subject);
	subject_leave(w);
}

static void ready_add(struct world *w, struct vport *v, struct pair *p, unsigned events)
{
	if (w->n_ready == w->cap_ready) {
		w->cap_ready = w->cap_ready ? 2 * w->cap_ready : 64;
		w->ready = xgrow(w->ready, w->cap_ready * sizeof(*w->ready));
	}
	w->ready[w->n_ready++] = (struct ready){ v, p, events };
}

static void collect_ports(struct world *w)
{
	struct list *pos, *tmp;
	bool spurious = rng_chance(&w->rng, w->spurious);

	w->n_ready = 0;
	list_for_each_safe (pos, tmp, &w->ports) {
		struct vport *v = list_entry(pos, struct vport, link);
		unsigned events = vport_events(v);

		/* A loop may report one of two things that are true, and sometimes one that is not. */
		if (events == (PORT_READABLE | PORT_WRITABLE) && rng_chance(&w->rng, 30))
			events = rng_chance(&w->rng, 50) ? PORT_READABLE : PORT_WRITABLE;
		if (spurious && v->want && rng_chance(&w->rng, 30))
			events |= v->want & ~(unsigned)PORT_HANGUP;
		if (events)
			ready_add(w, v, NULL, events);
	}
	list_for_each_safe (pos, tmp, &w->pairs) {
		struct pair *p = kernel_pair(pos);
		unsigned events = kernel_events(p);

		if (events)
			ready_add(w, NULL, p, events);
	}
}

static void deliver(struct world *w, struct ready r)
{
	struct vport *v = r.vport;
	unsigned events = r.events & v->want; /* an earlier callback may have changed its mind */

	if (!events)
		return;
	v->hung_up |= (events & PORT_HANGUP) != 0;
	if (++v->fruitless > FRUITLESS_MAX) {
		world_fail(w, "busy loop: a %s port wants %s%s and does nothing with it",
			   v->dialled ? "executor's" : "client's",
			   v->want & PORT_READABLE ? "R" : "", v->want & PORT_WRITABLE ? "W" : "");
		return;
	}
	if (!v->port.on_event) {
		world_fail(w, "port has interest but no on_event");
		return;
	}
	subject_enter(w);
	v->port.on_event(&v->port, events);
	subject_leave(w);
}

/* One thing that may happen now, at random. */
static void step(struct world *w)
{
	size_t pick = rng_below(&w->rng, w->n_due + w->n_ready);

	if (pick < w->n_due) {
		struct alarm *a = w->due[pick];

		due_remove(a);
		a->fire(a->arg);
	} else {
		struct ready r = w->ready[pick - w->n_due];

		w->ready[pick - w->n_due] = w->ready[--w->n_ready];
		if (r.vport)
			deliver(w, r);
		else if (r.pair)
			kernel_deliver(r.pair, r.events);
	}
}

static void run_subject(struct world *w)
{
	if (!w->subject)
		return;
	subject_enter(w);
	w->ops->run(w->subject);
	subject_leave(w);
	w->touched = false;
}

/* False when nothing can ever happen again. The clock does not jump over until_ns. */
static bool turn(struct world *w, uint64_t until_ns)
{
	size_t n;
	bool happened;

	timers_run(&w->timers, w->now);
	collect_ports(w);
	n = w->n_due + w->n_ready;
	happened = n > 0;
	if (!n && world_subject_deadline(w) > w->now) {
		uint64_t next = min_u64(timers_next(&w->timers), world_subject_deadline(w));

		if (next == UINT64_MAX)
			return false;
		if (next > w->now + 100 * NSEC_PER_USEC)
			w->spins = 0;
		if (next > until_ns) {
			w->now = until_ns;
			return true;
		}
		/* Loops are late, mostly by little. */
		w->now = max_u64(w->now, next);
		if (rng_chance(&w->rng, 20))
			w->now += rng_below(&w->rng, 300 * NSEC_PER_USEC);
		return true;
	}
	if (n > 1 && rng_chance(&w->rng, 50))
		n = 1 + rng_below(&w->rng, n);
	while (n-- && w->n_due + w->n_ready && !w->failure[0])
		step(w);
	if (happened)
		w->spins = 0;
	else if (++w->spins > SPIN_MAX)
		world_fail(w, "timer spin: the subject's deadline is always due");
	if (w->touched || world_subject_deadline(w) <= w->now)
		run_subject(w);
	w->now += rng_below(&w->rng, 10 * NSEC_PER_USEC);
	return true;
}

int world_run(struct world *w, uint64_t until_ns, bool (*done)(void *arg), void *arg)
{
	for (;;) {
		if (w->failure[0])
			return -ECANCELED;
		if (done && done(arg))
			return 0;
		if (w->now >= until_ns)
			return -ETIMEDOUT;
		if (!turn(w, until_ns)) {
			if (!done)
				w->now = until_ns;
			return -EDEADLK;
		}
		if (w->check)
			w->check(w->check_arg);
	}
}
