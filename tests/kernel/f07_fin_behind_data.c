/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 7. When FIN comes in the segment of the last bytes, the verdict is shown these bytes before
 * the socket's state says that FIN has come, and poll() reports RDHUP.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	uint8_t last[3000];

	begin(&r, "fact-7-fin-behind-data");
	splice(&r);
	r.f->bss->drop_empty = 1;
	transfer(&r, 200000, 65536, 3000);
	pattern(r.sent, last, sizeof(last));
	need(send(r.x, last, sizeof(last), MSG_MORE) == (ssize_t)sizeof(last), "send");
	r.sent += sizeof(last);
	shutdown(r.x, SHUT_WR);
	if (!wait_for(r.u, POLLRDHUP, 3000))
		fail("no RDHUP at u");
	if (tcp_info_of(r.u).tcpi_state != BPF_TCP_CLOSE_WAIT)
		fail("state %u", tcp_info_of(r.u).tcpi_state);
	if (r.f->bss->bytes != r.sent)
		fail("FIN is visible, %llu of %llu bytes have been shown",
		     (unsigned long long)r.f->bss->bytes, (unsigned long long)r.sent);
	while (r.got < r.sent) {
		if (!wait_for(r.k, POLLIN, 3000))
			fail("%llu of %llu bytes arrived", (unsigned long long)r.got,
			     (unsigned long long)r.sent);
		drain(&r, r.k, 65536);
	}
	pass();
}
