/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 18. A socket that is in a map without a verdict (C) still wakes its poller and can be read. Some
 * stable kernels have broken this.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	uint8_t buf[64];

	begin(&r, "fact-18-wakeups");
	splice(&r);
	transfer(&r, 100000, 65536, 3000);
	for (int i = 0; i < 50; i++) {
		need(send(r.k, "13 bytes long", 13, 0) == 13, "send");
		if (!wait_for(r.c, POLLIN, 1000))
			fail("no POLLIN at c in round %d", i);
		if (recv(r.c, buf, sizeof(buf), MSG_DONTWAIT) != 13)
			fail("c cannot be read in round %d", i);
		transfer(&r, 5000, 65536, 3000);
	}
	shutdown(r.k, SHUT_WR);
	if (!wait_for(r.c, POLLRDHUP, 1000))
		fail("no RDHUP at c");
	if (recv(r.c, buf, sizeof(buf), MSG_DONTWAIT) != 0)
		fail("no end of stream at c");
	transfer(&r, 100000, 65536, 3000);
	pass();
}
