/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts 10 and 11. What is sent to an AF_UNIX datagram pair whose receiver has a verdict is in C's
 * queue when send() returns: behind all that was redirected before, ahead of all that comes later. A
 * datagram of 16 KiB arrives whole. The verdict sees the cookie of one of the pair's ends.
 */
#include "kernel/lib/fact.h"

#define ROUNDS 300

static uint64_t cookie(int fd)
{
	uint64_t c = 0;
	socklen_t len = sizeof(c);

	getsockopt(fd, SOL_SOCKET, SO_COOKIE, &c, &len);
	return c;
}

/* The stream's next bytes, sent by the other way. */
static void inject(struct rig *r, int tx, size_t len)
{
	uint8_t buf[16384];
	uint64_t before = r->f->bss->injected;

	pattern(r->sent, buf, len);
	need(send(tx, buf, len, 0) == (ssize_t)len, "send to the injector");
	if (r->f->bss->injected != before + len)
		fail("send() returned before the verdict ran");
	r->sent += len;
}

int main(void)
{
	struct rig r;
	int tx, rx;

	begin(&r, "fact-11-injector");
	splice(&r);
	tx = injector(&r, &rx);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t before = r.f->bss->bytes, deadline = now_ms() + 3000;
		size_t n = feed(&r, 1000 + (size_t)i * 37 % 9000);

		/* Redirected, then injected; the reader is not asked in between. */
		while (r.f->bss->bytes != before + n) {
			if (now_ms() > deadline)
				fail("the verdict does not run");
		}
		inject(&r, tx, i % 3 ? 17 : 16384);
		if (i % 5 == 0) {
			while (r.got < r.sent && wait_for(r.k, POLLIN, 3000))
				drain(&r, r.k, 65536);
		}
	}
	while (r.got < r.sent && wait_for(r.k, POLLIN, 3000))
		drain(&r, r.k, 65536);
	if (r.got != r.sent)
		fail("%llu of %llu bytes arrived", (unsigned long long)r.got,
		     (unsigned long long)r.sent);
	if (r.f->bss->inject_cookie != cookie(tx) && r.f->bss->inject_cookie != cookie(rx))
		fail("the verdict sees a cookie that is neither end's");
	pass();
}
