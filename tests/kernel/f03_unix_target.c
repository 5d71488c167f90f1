/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 3. An AF_UNIX stream socket can be the target of a redirect, and its peer reads the bytes in
 * order and complete, also when the socket's buffer is full again and again.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	int tx, rx;
	uint64_t last, goal = 3 << 20;

	begin(&r, "fact-3-unix-target");
	unix_pair(SOCK_STREAM, &tx, &rx);
	attach(r.f->progs.redirect, r.f->maps.sources);
	errno = -put(r.f->maps.targets, 0, tx);
	need(!errno, "an AF_UNIX stream socket into a sockmap");
	errno = -put(r.f->maps.sources, 0, r.u);
	need(!errno, "u into a sockmap");
	last = now_ms();
	while (r.got < goal) {
		size_t out = feed(&r, (size_t)(goal - r.sent)), in = 0;

		if (wait_for(rx, POLLIN, 2))
			in = drain(&r, rx, 20000);
		if (in || out)
			last = now_ms();
		if (now_ms() - last > 3000)
			fail("stall after %llu bytes", (unsigned long long)r.got);
	}
	if (r.f->bss->refused)
		fail("%llu redirects refused", (unsigned long long)r.f->bss->refused);
	pass();
}
