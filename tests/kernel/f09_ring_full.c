/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 9. A full ring buffer makes bpf_ringbuf_output() fail, so a lost event can be counted, and
 * nothing else is disturbed.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;

	begin(&r, "fact-9-ring-full");
	splice(&r);
	r.f->bss->to_ring = 1;
	for (int i = 0; i < 200; i++)
		transfer(&r, 100, 65536, 3000);
	if (!r.f->bss->ring_lost)
		fail("200 records of 64 bytes fit into 4096");
	if (r.f->bss->ring_lost >= r.f->bss->skbs)
		fail("none was written");
	pass();
}
