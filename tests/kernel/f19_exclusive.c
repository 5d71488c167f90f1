/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 19. MPTCP shows as its own protocol (and is refused by that), plain TCP as IPPROTO_TCP. kTLS
 * and the sockmap are not to be mixed; the product never tries.
 */
#include "kernel/lib/fact.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static int protocol(int fd)
{
	int p = -1;
	socklen_t len = sizeof(p);

	getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &p, &len);
	return p;
}

int main(void)
{
	struct rig r;
	int mptcp;

	begin(&r, "fact-19-exclusive");
	if (protocol(r.c) != IPPROTO_TCP || protocol(r.u) != IPPROTO_TCP)
		fail("plain TCP says protocol %d", protocol(r.c));
	mptcp = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
	if (mptcp < 0)
		skip("no MPTCP here");
	if (protocol(mptcp) != IPPROTO_MPTCP)
		fail("MPTCP says protocol %d", protocol(mptcp));
	pass();
}
