/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 13. SO_SNDBUFFORCE goes beyond net.core.wmem_max, and an accepted socket inherits the
 * listener's.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a), int_len = sizeof(int);
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP), want = 32000000, is = 0, k, c;

	begin(&r, "fact-13-send-buffer");
	if (setsockopt(listener, SOL_SOCKET, SO_SNDBUFFORCE, &want, sizeof(want)))
		skip("SO_SNDBUFFORCE: %s", strerror(errno));
	need(!bind(listener, (struct sockaddr *)&a, len) && !listen(listener, 1) &&
		     !getsockname(listener, (struct sockaddr *)&a, &len),
	     "listen");
	k = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	need(!connect(k, (struct sockaddr *)&a, len), "connect");
	c = accept(listener, NULL, NULL);
	getsockopt(c, SOL_SOCKET, SO_SNDBUF, &is, &int_len);
	if (is < want)
		fail("the accepted socket has %d", is);
	pass();
}
