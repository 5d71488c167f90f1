/* SPDX-License-Identifier: Apache-2.0 */
#include "net/loop.h"

#include <limits.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* ---- libuv, the guest ---- */

static void guest_readable(struct watch *w, unsigned events)
{
	struct loop *l = container_of(w, struct loop, uv_watch);

	(void)events;
	uv_run(&l->uv, UV_RUN_NOWAIT);
}

/*
 * Milliseconds until libuv must run again, -1 = not before its descriptor says so.
 * Handles started outside of uv_run() are registered by one more run of it, which
 * uv_backend_timeout() asks for by 0.
 */
static int guest_timeout(struct loop *l)
{
	int ms = uv_backend_timeout(&l->uv);

	if (ms > 0) {
		uv_update_time(&l->uv);
		ms = uv_backend_timeout(&l->uv);
	}
	return ms;
}

static void guest_run_if_due(struct loop *l)
{
	if (guest_timeout(l) == 0)
		uv_run(&l->uv, UV_RUN_NOWAIT);
}

static void guest_woken(uv_async_t *a)
{
	struct loop *l = container_of(a, struct loop, wake);

	if (l->hooks.woken)
		l->hooks.woken(l->hooks.arg);
}

static void guest_close_handle(uv_handle_t *h, void *arg)
{
	(void)arg;
	if (!uv_is_closing(h))
		uv_close(h, NULL);
}

/* ---- descriptors and calls ---- */

int loop_add(struct loop *l, struct watch *w, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	return epoll_ctl(l->epfd, EPOLL_CTL_ADD, w->fd, &ev) ? -errno : 0;
}

int loop_mod(struct loop *l, struct watch *w, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	return epoll_ctl(l->epfd, EPOLL_CTL_MOD, w->fd, &ev) ? -errno : 0;
}

void loop_del(struct loop *l, struct watch *w)
{
	(void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL);
	loop_forget(w);
}

void loop_forget(struct watch *w)
{
	w->fn = NULL;
}

void deferred_init(struct deferred *d, void (*fn)(struct deferred *d))
{
	list_init(&d->link);
	d->fn = fn;
}

void loop_defer(struct loop *l, struct deferred *d)
{
	if (list_empty(&d->link))
		list_add_tail(&l->deferred, &d->link);
}

void deferred_cancel(struct deferred *d)
{
	list_del(&d->link);
}

void loop_bury(struct loop *l, struct deferred *d)
{
	list_del(&d->link);
	list_add_tail(&l->graves, &d->link);
}

/* Calls what is in the list now; what these calls add waits for the next time. */
static void call_all(struct list *from)
{
	struct list now;

	if (list_empty(from))
		return;
	list_insert_between(&now, from->prev, from);
	list_del(from);
	while (!list_empty(&now)) {
		struct deferred *d = list_first(&now, struct deferred, link);

		list_del(&d->link);
		d->fn(d);
	}
}

/* ---- the loop ---- */

int loop_init(struct loop *l, const struct loop_hooks *hooks)
{
	int r;

	memset(l, 0, sizeof(*l));
	list_init(&l->deferred);
	list_init(&l->graves);
	timers_init(&l->timers);
	if (hooks)
		l->hooks = *hooks;
	l->now_ns = clock_now();

	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epfd < 0)
		return -errno;
	r = uv_loop_init(&l->uv);
	if (r)
		goto fail_epoll;
	l->uv_watch = (struct watch){ .fd = uv_backend_fd(&l->uv), .fn = guest_readable };
	r = loop_add(l, &l->uv_watch, EPOLLIN);
	if (r)
		goto fail_uv;
	/*
	 * Also keeps libuv's loop alive: uv_run() returns at once from a loop without
	 * active handles, and a late wake-up of its thread pool would make ours spin.
	 */
	r = uv_async_init(&l->uv, &l->wake, guest_woken);
	if (r)
		goto fail_uv;
	return 0;

fail_uv:
	uv_loop_close(&l->uv);
fail_epoll:
	close(l->epfd);
	return r;
}

bool loop_fini(struct loop *l)
{
	assert(list_empty(&l->deferred));
	call_all(&l->graves);
	/* Closing takes one run, the return of a look-up that was cancelled in time another. */
	uv_walk(&l->uv, guest_close_handle, NULL);
	uv_run(&l->uv, UV_RUN_NOWAIT);
	uv_run(&l->uv, UV_RUN_NOWAIT);
	timers_free(&l->timers);
	close(l->epfd);
	l->epfd = -1;
	return uv_loop_close(&l->uv) == 0;
}

/* How long the next wait may be, in ms. */
static int wait_limit(struct loop *l, int timeout_ms)
{
	uint64_t at = timers_next(&l->timers);
	int guest = guest_timeout(l);
	uint64_t ms;

	if (!list_empty(&l->deferred) || l->stopping)
		return 0;
	if (l->hooks.deadline)
		at = min_u64(at, l->hooks.deadline(l->hooks.arg));
	if (at != UINT64_MAX) {
		/* Rounded up: waking early would only mean to wait again. */
		ms = at <= l->now_ns ? 0 : (at - l->now_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
		if (timeout_ms < 0 || ms < (uint64_t)timeout_ms)
			timeout_ms = (int)min_u64(ms, INT_MAX);
	}
	if (guest >= 0 && (timeout_ms < 0 || guest < timeout_ms))
		timeout_ms = guest;
	return timeout_ms;
}

void loop_turn(struct loop *l, int timeout_ms)
{
	int n = epoll_wait(l->epfd, l->events, LOOP_BATCH, wait_limit(l, timeout_ms));

	l->now_ns = clock_now();
	l->turn++;
	__atomic_store_n(&l->stats.turn_began_ns, l->now_ns, __ATOMIC_RELAXED);
	for (int i = 0; i < n; i++) {
		struct watch *w = l->events[i].data.ptr;

		if (w->fn)
			w->fn(w, l->events[i].events);
	}
	call_all(&l->deferred);
	guest_run_if_due(l);
	timers_run(&l->timers, l->now_ns);
	if (l->hooks.turn_end)
		l->hooks.turn_end(l->hooks.arg);
	call_all(&l->graves);
	histogram_add(&l->stats.turns, clock_now() - l->now_ns);
	__atomic_store_n(&l->stats.turn_began_ns, 0, __ATOMIC_RELAXED);
}

void loop_wake(struct loop *l)
{
	uv_async_send(&l->wake);
}

void loop_run(struct loop *l)
{
	while (!l->stopping)
		loop_turn(l, -1);
}

void loop_stop(struct loop *l)
{
	l->stopping = true;
}
