/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 32. The verdict runs under U's socket lock, redirect included. So after a flag has been raised
 * and getsockopt(TCP_INFO), which takes that lock, has returned, every verdict that did not see the
 * flag has put its skb into C's queue: what is injected then comes directly behind it.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "kernel/lib/fact.h"

#define ROUNDS 400

static _Atomic bool stop;

static void *flood(void *arg)
{
	struct rig *r = arg;

	while (!stop) {
		if (!feed(r, 65536))
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

int main(void)
{
	struct rig r;
	int tx, rx, sndbuf = 8 << 20, spare_rx, spare_tx;
	pthread_t a, b;
	uint64_t base, caught = 0;

	begin(&r, "fact-32-barrier");
	setsockopt(r.c, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof(sndbuf));
	unix_pair(SOCK_STREAM, &spare_tx, &spare_rx);
	splice(&r);
	/* While the flag is up, skbs go there and are forgotten. */
	need(!put(r.f->maps.targets, 1, spare_tx), "second target");
	tx = injector(&r, &rx);
	r.f->bss->spin = 2000;
	base = tcp_written(r.c);
	if (pthread_create(&a, NULL, flood, &r) || pthread_create(&b, NULL, sink, &r))
		fail("threads");
	for (int i = 0; i < ROUNDS; i++) {
		static uint8_t waste[1 << 20];
		uint64_t bytes, deadline;

		usleep(200);
		r.f->bss->held = 1;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		tcp_info_of(r.u);
		bytes = r.f->bss->bytes;
		/* Everything redirected is queued: C's TCP comes to exactly that, and no further. */
		deadline = now_ms() + 3000;
		while (tcp_written(r.c) - base != bytes + r.f->bss->injected) {
			if (now_ms() > deadline)
				fail("round %d: queued bytes do not add up", i);
		}
		caught += r.f->bss->held_bytes != 0;
		if (r.f->bss->bytes != bytes)
			fail("round %d: a verdict redirected after the barrier", i);
		need(send(tx, "12345678", 8, 0) == 8, "inject");
		r.f->bss->held = 0;
		while (recv(spare_rx, waste, sizeof(waste), MSG_DONTWAIT) > 0)
			;
	}
	stop = true;
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	if (!caught)
		fail("the load never met the barrier: nothing was tested");
	pass();
}
