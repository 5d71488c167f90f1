/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 35 (a trap, and the way around it). The kernel takes a socket out of a map without its lock: an
 * skb that another CPU is about to show to the verdict is dropped then, acknowledged and lost. With a
 * socket filter on U that accepts nothing in the meantime nothing is lost: TCP sends it again.
 */
#include <linux/filter.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#include "kernel/lib/fact.h"

#define ROUNDS 150

static _Atomic bool stop;

static void *flood(void *arg)
{
	struct rig *r = arg;

	while (!stop) {
		if (!feed(r, 3000))
			wait_for(r->x, POLLOUT, 1);
	}
	return NULL;
}

static void *sink(void *arg)
{
	static uint8_t buf[1 << 20];
	struct rig *r = arg;

	while (!stop) {
		if (wait_for(r->k, POLLIN, 5))
			(void)!recv(r->k, buf, sizeof(buf), MSG_DONTWAIT);
	}
	return NULL;
}

static void turn_away(int fd, bool on)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog filter = { .len = 1, .filter = &none };

	need(!setsockopt(fd, SOL_SOCKET, on ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &filter,
			 sizeof(filter)),
	     "a socket filter");
}

/* One stay in the map; bytes that have been lost on the way out. */
static uint64_t stay(struct rig *r, bool filter)
{
	static uint8_t waste[1 << 20];
	uint64_t base, shown = r->f->bss->bytes, received, deadline = now_ms() + 3000;
	int unread;

	/* Quiet for a moment, so that the count can begin. */
	do {
		while (recv(r->u, waste, sizeof(waste), MSG_DONTWAIT) > 0)
			;
		base = tcp_info_of(r->u).tcpi_bytes_received;
		need(!ioctl(r->u, FIONREAD, &unread), "FIONREAD");
	} while ((unread || base != tcp_info_of(r->u).tcpi_bytes_received) && now_ms() < deadline);
	errno = -put(r->f->maps.sources, 0, r->u);
	need(!errno, "u into its map");
	while (r->f->bss->bytes == shown && now_ms() < deadline)
		;
	if (filter) {
		turn_away(r->u, true);
		tcp_info_of(r->u);
	}
	need(!take(r->f->maps.sources, 0), "taking u out");
	received = tcp_info_of(r->u).tcpi_bytes_received;
	if (filter)
		turn_away(r->u, false);
	do {
		received = tcp_info_of(r->u).tcpi_bytes_received;
		need(!ioctl(r->u, FIONREAD, &unread), "FIONREAD");
	} while (received != tcp_info_of(r->u).tcpi_bytes_received);
	return received - base - (r->f->bss->bytes - shown) - (uint64_t)unread;
}

int main(void)
{
	struct rig r;
	pthread_t a, b;
	unsigned bare = 0;

	begin(&r, "fact-35-leave-under-load");
	attach(r.f->progs.redirect, r.f->maps.sources);
	need(!put(r.f->maps.targets, 0, r.c), "c into its map");
	if (pthread_create(&a, NULL, flood, &r) || pthread_create(&b, NULL, sink, &r))
		fail("threads");
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t lost = stay(&r, true);

		if (lost)
			fail("%llu bytes were lost in round %d although packets were turned away",
			     (unsigned long long)lost, i);
	}
	for (int i = 0; i < ROUNDS; i++)
		bare += stay(&r, false) != 0;
	stop = true;
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	printf("# without a filter bytes were lost in %u of %d rounds\n", bare, ROUNDS);
	pass();
}
