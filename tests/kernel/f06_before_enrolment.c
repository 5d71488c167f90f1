/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 6. Bytes that arrived before U entered its map are not shown to the verdict. They are not lost:
 * TCP_INFO counts them, recv() finds them when U has left the map again, and setting SO_RCVLOWAT makes
 * TCP announce them, which runs the verdict on them, in order.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	uint8_t byte;
	int one = 1;

	begin(&r, "fact-6-before-enrolment");
	feed(&r, 5000);
	if (!wait_for(r.u, POLLIN, 1000))
		fail("bytes do not arrive at u");
	splice(&r);
	usleep(20000);
	if (r.f->bss->skbs)
		skip("this kernel shows the verdict earlier bytes at once");
	if (tcp_info_of(r.u).tcpi_bytes_received != r.sent)
		fail("tcpi_bytes_received does not count them");
	need(!take(r.f->maps.sources, 0), "taking u out");
	if (recv(r.u, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 1)
		fail("they cannot be read after leaving");
	need(!put(r.f->maps.sources, 0, r.u), "u into its map again");
	need(!setsockopt(r.u, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)), "SO_RCVLOWAT");
	if (r.f->bss->bytes != r.sent)
		fail("SO_RCVLOWAT has not run the verdict: %llu of %llu bytes",
		     (unsigned long long)r.f->bss->bytes, (unsigned long long)r.sent);
	transfer(&r, 100000, 65536, 3000);
	if (r.f->bss->bytes != r.sent)
		fail("the verdict saw %llu of %llu bytes", (unsigned long long)r.f->bss->bytes,
		     (unsigned long long)r.sent);
	pass();
}
