/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 33 (a trap). A bare FIN is shown to the verdict as an skb without bytes. Redirecting it is a
 * send of nothing, which ends C's queue; dropping it harms neither C nor the end of stream at U.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	uint8_t byte;
	int tx, rx;

	begin(&r, "fact-33-empty-skb");
	splice(&r);
	r.f->bss->drop_empty = 1;
	tx = injector(&r, &rx);
	transfer(&r, 100000, 65536, 3000);
	shutdown(r.x, SHUT_WR);
	if (!wait_for(r.u, POLLRDHUP, 2000))
		fail("no RDHUP at u");
	if (recv(r.u, &byte, 1, MSG_DONTWAIT) != 0)
		fail("no end of stream at u");
	pattern(r.sent, &byte, 1);
	need(send(tx, &byte, 1, 0) == 1, "inject after FIN");
	r.sent++;
	if (!wait_for(r.k, POLLIN, 2000) || !drain(&r, r.k, 10))
		fail("c's queue has ended");
	if (!r.f->bss->empty)
		skip("this kernel does not show a bare FIN");
	pass();
}
