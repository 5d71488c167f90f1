/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 11, back-pressure. Datagrams that C's TCP has not taken stay charged to the sender: send()
 * says EAGAIN when its buffer is full, and poll() says POLLOUT when the client has read.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	int tx, rx, small = 65536;
	uint8_t buf[4096];

	begin(&r, "fact-11-injector-room");
	splice(&r);
	tx = injector(&r, &rx);
	setsockopt(tx, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	/* It is full only when it stays so: the queue's work may just not have run yet. */
	do {
		pattern(r.sent, buf, sizeof(buf));
		if (send(tx, buf, sizeof(buf), MSG_DONTWAIT) == (ssize_t)sizeof(buf))
			r.sent += sizeof(buf);
		else
			need(errno == EAGAIN, "a full injector");
		if (r.sent > 64 << 20)
			fail("64 MiB are taken although the client reads nothing");
	} while (wait_for(tx, POLLOUT, 200));
	while (r.got < r.sent && wait_for(r.k, POLLIN, 3000))
		drain(&r, r.k, 65536);
	if (r.got != r.sent)
		fail("%llu of %llu bytes arrived", (unsigned long long)r.got,
		     (unsigned long long)r.sent);
	if (!wait_for(tx, POLLOUT, 1000))
		fail("an empty injector does not say that it is writable");
	pass();
}
