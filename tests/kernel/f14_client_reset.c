/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 14. When the client resets its connection, poll() says so at C; the map may keep C until it is
 * closed, and what is redirected to it vanishes without a word, so C has to be watched. Once it is out
 * of its map a redirect is refused in the verdict (SK_DROP), where it can be counted, and U goes on
 * with another client.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	struct linger hard = { 1, 0 };
	uint64_t deadline;

	begin(&r, "fact-14-client-reset");
	splice(&r);
	transfer(&r, 300000, 65536, 3000);
	setsockopt(r.k, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(r.k);
	if (!wait_for(r.c, POLLHUP, 2000))
		fail("c does not notice the reset");
	feed(&r, 1000);
	take(r.f->maps.targets, 0); /* -EINVAL when it has gone by itself */
	deadline = now_ms() + 2000;
	while (!r.f->bss->refused) {
		feed(&r, 1000);
		if (now_ms() > deadline)
			fail("redirects to nobody are not refused");
		usleep(1000);
	}
	/* U goes on with another client. */
	connection(&r.k, &r.c);
	errno = -put(r.f->maps.targets, 0, r.c);
	need(!errno, "another client into the map");
	usleep(20000);
	r.got = r.sent;
	transfer(&r, 100000, 65536, 3000);
	pass();
}
