/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 12 (a trap). The redirect queue has no back-pressure: the executor may send without end while
 * the client reads nothing. Only HTTP/2 credit bounds it, which is why the product enforces it.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	uint64_t last;

	begin(&r, "fact-12-no-back-pressure");
	splice(&r);
	last = now_ms();
	while (r.sent < 32 << 20) {
		if (feed(&r, 65536))
			last = now_ms();
		else if (now_ms() - last > 500)
			skip("this kernel stops the executor after %llu bytes",
			     (unsigned long long)r.sent);
		else
			wait_for(r.x, POLLOUT, 10);
	}
	while (r.got < r.sent && wait_for(r.k, POLLIN, 3000))
		drain(&r, r.k, 65536);
	if (r.got != r.sent)
		fail("%llu of %llu bytes arrived", (unsigned long long)r.got,
		     (unsigned long long)r.sent);
	pass();
}
