/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockmap_worker.c - one thread's slots, its ring buffer, and its figures.
 *
 * A slot's sockets are made when it is first taken and kept for the next tenant, most recently used
 * first, so a worker holds about as many as it ever had pairs at once (KEEP_IDLE beyond that). A
 * tap that may still have bytes of its last tenant is not reused but made anew.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdlib.h>
#include <unistd.h>

#include "datapath/sockmap_internal.h"

#define KEEP_IDLE 64u
/* What userspace may have injected that C's TCP has not taken: beyond it splice_sendv() says -EAGAIN. */
#define INJECT_SNDBUF (1 << 20)

/* ---------------------------------------------------------------- slots */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Closing takes the sockets out of their maps. */
static void slot_close_tap(struct slot *s)
{
	close_fd(&s->tap_tx);
	close_fd(&s->tap_rx);
}

static void slot_close_injector(struct sockmap_worker *w, struct slot *s)
{
	for (int i = 0; i < 2; i++) {
		if (s->cookies[i])
			bpf_map_delete_elem(w->sm->inject_slots, &s->cookies[i]);
		s->cookies[i] = 0;
	}
	close_fd(&s->inject_tx);
	close_fd(&s->inject_rx);
}

static void force_sndbuf(int fd, int bytes)
{
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

static int put_socket(int map, uint32_t index, int fd)
{
	uint64_t value = (uint64_t)fd;

	return bpf_map_update_elem(map, &index, &value, BPF_ANY) ? -errno : 0;
}

static int slot_make_tap(struct sockmap_worker *w, struct slot *s)
{
	int fds[2], err;

	if (s->tap_tx >= 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		return -errno;
	s->tap_tx = fds[0];
	s->tap_rx = fds[1];
	err = put_socket(w->sm->taps, slot_index(w, s), s->tap_tx);
	if (err)
		slot_close_tap(s);
	return err;
}

static int slot_route_injector(struct sockmap_worker *w, struct slot *s)
{
	int fds[2] = { s->inject_tx, s->inject_rx };
	uint32_t index = slot_index(w, s);

	for (int i = 0; i < 2; i++) {
		uint64_t cookie;
		socklen_t len = sizeof(cookie);

		if (getsockopt(fds[i], SOL_SOCKET, SO_COOKIE, &cookie, &len) ||
		    bpf_map_update_elem(w->sm->inject_slots, &cookie, &index, BPF_ANY))
			return -errno;
		s->cookies[i] = cookie;
	}
	return put_socket(w->sm->injectors, index, s->inject_rx);
}

static int slot_make_injector(struct sockmap_worker *w, struct slot *s)
{
	int fds[2], err;

	if (s->inject_tx >= 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		return -errno;
	s->inject_tx = fds[0];
	s->inject_rx = fds[1];
	force_sndbuf(s->inject_tx, INJECT_SNDBUF);
	err = slot_route_injector(w, s);
	if (err)
		slot_close_injector(w, s);
	return err;
}

void slot_tap_room(const struct slot *s, uint64_t limit)
{
	force_sndbuf(s->tap_tx, (int)min_u64(2 * limit, INT32_MAX / 2));
}

int slot_take(struct sockmap_worker *w, struct slot **ret)
{
	struct slot *s;
	int err;

	if (list_empty(&w->free))
		return -ENOSPC;
	s = list_first(&w->free, struct slot, link);
	if (s->tap_tx >= 0)
		w->idle--;
	err = slot_make_tap(w, s);
	if (!err)
		err = slot_make_injector(w, s);
	if (err) {
		slot_close_tap(s);
		slot_close_injector(w, s);
		return err;
	}
	list_del(&s->link);
	if (!++s->generation)
		s->generation = 1;
	*ret = s;
	return 0;
}

void slot_give(struct sockmap_worker *w, struct slot *s, bool dirty)
{
	s->pair = NULL;
	if (dirty)
		slot_close_tap(s);
	if (w->idle >= KEEP_IDLE || dirty) {
		slot_close_tap(s);
		slot_close_injector(w, s);
		list_add_tail(&w->free, &s->link);
		return;
	}
	w->idle++;
	list_add_head(&w->free, &s->link);
}

/* ---------------------------------------------------------------- events */

static void tell_dead(struct sockmap_worker *w, struct splice_pair *p)
{
	uint32_t reason = __atomic_load_n(&p->state->dead, __ATOMIC_RELAXED);

	if (!reason || p->dead_told)
		return;
	p->dead_told = true;
	stats_count(w, dead);
	if (w->cb.dead)
		w->cb.dead(w->cb.arg, p, reason);
}

static void dead_event(struct sockmap_worker *w, const struct abi_event *e)
{
	struct splice_pair *p = NULL;

	if (e->slot >= w->first && e->slot - w->first < w->sm->pairs)
		p = w->slots[e->slot - w->first].pair;
	if (p && p->slot->generation == e->generation)
		tell_dead(w, p);
	else
		stats_count(w, stale_events);
}

static int on_event(void *arg, void *data, size_t len)
{
	struct sockmap_worker *w = arg;
	const struct abi_event *e = data;

	if (len < sizeof(*e))
		return 0;
	stats_count(w, events);
	if (e->kind == ABI_EVENT_DEAD)
		dead_event(w, e);
	else if (w->cb.socket)
		w->cb.socket(w->cb.arg, e);
	return 0;
}

/* Events were lost: what they would have said is in the pairs themselves. */
static void resync(struct sockmap_worker *w)
{
	stats_count(w, resyncs);
	for (uint32_t i = 0; i < w->sm->pairs; i++) {
		if (w->slots[i].pair)
			tell_dead(w, w->slots[i].pair);
	}
}

int sockmap_worker_fd(const struct sockmap_worker *w)
{
	return ring_buffer__epoll_fd(w->ring);
}

int sockmap_worker_poll(struct sockmap_worker *w)
{
	int n = ring_buffer__consume(w->ring);
	uint64_t lost = __atomic_load_n(&w->sm->worker_state[w->index].lost, __ATOMIC_RELAXED);

	if (lost != w->lost_seen) {
		__atomic_fetch_add(&w->stats.lost_events, lost - w->lost_seen, __ATOMIC_RELAXED);
		w->lost_seen = lost;
		resync(w);
	}
	return n;
}

/* ---------------------------------------------------------------- figures */

void stats_begin(struct sockmap_worker *w)
{
	__atomic_store_n(&w->change, w->change + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void stats_end(struct sockmap_worker *w)
{
	__atomic_store_n(&w->change, w->change + 1, __ATOMIC_RELEASE);
}

#define add_kernel(st, p, field)                                                                   \
	__atomic_store_n(&(st)->field,                                                             \
			 (st)->field + __atomic_load_n(&(p)->field, __ATOMIC_RELAXED),             \
			 __ATOMIC_RELAXED)

void stats_add_pair(struct sockmap_stats *st, const struct abi_pair *p)
{
	for (int i = 0; i < ABI_REASONS; i++)
		add_kernel(st, p, reasons[i]);
	add_kernel(st, p, redirected);
	add_kernel(st, p, passed);
	add_kernel(st, p, data);
	add_kernel(st, p, frames);
	add_kernel(st, p, excursions);
	add_kernel(st, p, injected);
	add_kernel(st, p, injections);
	add_kernel(st, p, inject_lost);
	add_kernel(st, p, holds);
}

static void stats_copy(const struct sockmap_stats *from, struct sockmap_stats *to)
{
	const uint64_t *src = (const uint64_t *)from;
	uint64_t *dst = (uint64_t *)to;

	for (size_t i = 0; i < sizeof(*from) / sizeof(uint64_t); i++)
		dst[i] = __atomic_load_n(&src[i], __ATOMIC_RELAXED);
}

void sockmap_worker_stats(const struct sockmap_worker *w, struct sockmap_stats *ret)
{
	uint32_t before, after;

	do {
		before = __atomic_load_n(&w->change, __ATOMIC_ACQUIRE);
		stats_copy(&w->stats, ret);
		ret->pairs = 0;
		for (uint32_t i = 0; i < w->sm->pairs; i++) {
			const struct abi_pair *p = &w->sm->state[w->first + i];

			if (!__atomic_load_n(&p->generation, __ATOMIC_RELAXED))
				continue;
			ret->pairs++;
			stats_add_pair(ret, p);
		}
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		after = __atomic_load_n(&w->change, __ATOMIC_RELAXED);
	} while (before != after || before & 1);
}

/* ---------------------------------------------------------------- life */

int sockmap_worker_new(struct sockmap *sm, uint32_t index, const struct sockmap_callbacks *cb,
		       struct sockmap_worker **ret)
{
	struct sockmap_worker *w;
	int err;

	if (index >= sm->workers)
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->sm = sm;
	w->index = index;
	w->first = index * sm->pairs;
	w->cb = *cb;
	list_init(&w->free);
	w->slots = calloc(sm->pairs, sizeof(*w->slots));
	w->ring = w->slots ? ring_buffer__new(sm->ring_fd[index], on_event, w, NULL) : NULL;
	if (!w->ring) {
		err = w->slots ? -errno : -ENOMEM;
		free(w->slots);
		free(w);
		return err;
	}
	for (uint32_t i = 0; i < sm->pairs; i++) {
		struct slot *s = &w->slots[i];

		s->tap_tx = s->tap_rx = s->inject_tx = s->inject_rx = -1;
		list_add_tail(&w->free, &s->link);
	}
	*ret = w;
	return 0;
}

void sockmap_worker_free(struct sockmap_worker *w)
{
	if (!w)
		return;
	for (uint32_t i = 0; i < w->sm->pairs; i++) {
		struct slot *s = &w->slots[i];

		if (s->pair)
			splice_free(s->pair);
		slot_close_tap(s);
		slot_close_injector(w, s);
	}
	ring_buffer__free(w->ring);
	free(w->slots);
	free(w);
}
