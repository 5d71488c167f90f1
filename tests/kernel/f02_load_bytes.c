/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 2. bpf_skb_load_bytes() reads a frame header wherever it lies in the skb: in its linear part,
 * in a page fragment, or in both.
 */
#include "kernel/lib/fact.h"

#define FRAMES 200

int main(void)
{
	struct rig r;
	static uint8_t out[70000], in[70000];
	uint64_t made = 0, frames = 0;

	begin(&r, "fact-2-load-bytes");
	attach(r.f->progs.walk, r.f->maps.sources);
	need(!put(r.f->maps.targets, 0, r.c) && !put(r.f->maps.sources, 0, r.u), "sockmap");
	for (int round = 0; round < FRAMES; round++) {
		size_t len = 0, have = 0;

		/* Odd lengths, several frames a write, so that headers fall everywhere. */
		for (int i = 0; i <= round % 4; i++) {
			size_t payload = (size_t)(1 + (round * 397 + i * 1021) % 16384);

			memset(out + len, 0, 9);
			out[len] = (uint8_t)(payload >> 16);
			out[len + 1] = (uint8_t)(payload >> 8);
			out[len + 2] = (uint8_t)payload;
			pattern(made + len, out + len + 9, payload);
			len += 9 + payload;
			frames++;
		}
		need(send(r.x, out, len, MSG_NOSIGNAL) == (ssize_t)len, "send");
		while (have < len) {
			ssize_t n;

			if (!wait_for(r.k, POLLIN, 3000))
				fail("stall in round %d", round);
			n = recv(r.k, in + have, sizeof(in) - have, 0);
			need(n > 0, "recv");
			have += (size_t)n;
		}
		if (have != len || memcmp(in, out, len) != 0)
			fail("wrong bytes in round %d", round);
		made += len;
	}
	if (r.f->bss->unreadable || r.f->bss->frames != frames)
		fail("%llu of %llu headers found, %llu unreadable",
		     (unsigned long long)r.f->bss->frames, (unsigned long long)frames,
		     (unsigned long long)r.f->bss->unreadable);
	pass();
}
