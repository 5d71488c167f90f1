/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 1. A verdict without a stream parser is shown each skb of the receive queue once and whole:
 * the lengths it sees add up to the bytes sent, and what it redirects arrives unchanged.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;

	begin(&r, "fact-1-whole-skbs");
	splice(&r);
	transfer(&r, 4 << 20, 65536, 3000);
	if (r.f->bss->bytes != r.sent)
		fail("the verdict saw %llu bytes of %llu", (unsigned long long)r.f->bss->bytes,
		     (unsigned long long)r.sent);
	if (r.f->bss->skbs < r.sent / (1 << 20))
		fail("only %llu skbs", (unsigned long long)r.f->bss->skbs);
	pass();
}
