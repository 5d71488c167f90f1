/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 15. Taking C out of its map discards its queue; but once C's TCP has been given as many bytes
 * as were redirected (acknowledged + SIOCOUTQ), the queue is empty and nothing is lost.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	uint64_t base, deadline;

	begin(&r, "fact-15-drained");
	splice(&r);
	base = tcp_written(r.c);
	for (int i = 0; i < 20; i++)
		transfer(&r, 50000, 65536, 3000);
	if (tcp_written(r.c) - base != r.sent)
		fail("c's TCP counts %llu bytes, %llu were redirected",
		     (unsigned long long)(tcp_written(r.c) - base), (unsigned long long)r.sent);
	/* More than the buffers hold, nobody reads: the queue is long. */
	deadline = now_ms() + 1000;
	while (r.sent < 24 << 20 && now_ms() < deadline) {
		if (!feed(&r, 65536))
			wait_for(r.x, POLLOUT, 10);
	}
	if (tcp_written(r.c) - base >= r.f->bss->bytes)
		skip("the buffers took it all");
	deadline = now_ms() + 10000;
	while (tcp_written(r.c) - base < r.f->bss->bytes) {
		if (now_ms() > deadline)
			fail("the queue does not drain");
		if (!drain(&r, r.k, 65536))
			wait_for(r.k, POLLIN, 5);
	}
	need(!take(r.f->maps.targets, 0), "taking c out");
	while (r.got < r.f->bss->bytes && wait_for(r.k, POLLIN, 3000))
		drain(&r, r.k, 65536);
	if (r.got < r.f->bss->bytes)
		fail("%llu bytes were lost", (unsigned long long)(r.f->bss->bytes - r.got));
	pass();
}
