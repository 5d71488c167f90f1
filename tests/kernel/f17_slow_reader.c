/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 17. With the smallest buffers and a slow reader, where the queue's work is refused by TCP
 * again and again, no byte is lost or repeated.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	int tiny = 4608;

	begin(&r, "fact-17-slow-reader");
	setsockopt(r.c, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof(tiny));
	setsockopt(r.k, SOL_SOCKET, SO_RCVBUF, &tiny, sizeof(tiny));
	splice(&r);
	transfer(&r, 300000, 1000, 5000);
	pass();
}
