/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 34. U can be taken out of its map while bytes stream in: what the verdict was shown has been
 * redirected, and recv(U) goes on with exactly the next byte.
 */
#include "kernel/lib/fact.h"

#define ROUNDS 20

static void round_trip(struct rig *r)
{
	uint64_t shown, deadline = now_ms() + 5000;

	errno = -put(r->f->maps.sources, 0, r->u);
	need(!errno, "u into its map");
	transfer(r, 300000, 65536, 3000);
	for (int i = 0; i < 4; i++)
		feed(r, 65536);
	need(!take(r->f->maps.sources, 0), "taking u out");
	tcp_info_of(r->u);
	shown = r->f->bss->bytes;
	feed(r, 65536);
	while (r->got < shown) {
		if (now_ms() > deadline)
			fail("%llu of %llu redirected bytes arrived", (unsigned long long)r->got,
			     (unsigned long long)shown);
		if (!drain(r, r->k, (size_t)(shown - r->got)))
			wait_for(r->k, POLLIN, 5);
	}
	while (r->got < r->sent) {
		if (now_ms() > deadline)
			fail("%llu of %llu bytes can be read at u", (unsigned long long)r->got,
			     (unsigned long long)r->sent);
		if (!drain(r, r->u, 65536))
			wait_for(r->u, POLLIN, 5);
	}
	/* The next round counts only what it shows. */
	r->f->bss->bytes = r->got;
}

int main(void)
{
	struct rig r;

	begin(&r, "fact-34-leave");
	attach(r.f->progs.redirect, r.f->maps.sources);
	need(!put(r.f->maps.targets, 0, r.c), "c into its map");
	for (int i = 0; i < ROUNDS; i++)
		round_trip(&r);
	pass();
}
