/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 18 (a trap). FIONREAD of a socket in a map without a verdict says 0 on some stable kernels. The
 * product does not ask it there.
 */
#include <sys/ioctl.h>

#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	int unread = -1;

	begin(&r, "fact-18-fionread");
	splice(&r);
	need(send(r.k, "13 bytes long", 13, 0) == 13, "send");
	if (!wait_for(r.c, POLLIN, 1000))
		fail("no POLLIN at c");
	need(!ioctl(r.c, FIONREAD, &unread), "FIONREAD");
	if (unread != 13)
		skip("this kernel says %d of 13", unread);
	pass();
}
