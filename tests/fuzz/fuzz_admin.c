/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin server, over a socket: whatever bytes come, it answers in HTTP/1.1 or closes the
 * connection, and then still answers the next one.
 *
 *   byte 0   in how many pieces the rest is sent
 *   rest     what a client says before it goes away
 *
 * HTTP is read by libmicrohttpd, whose faults are not looked for; ours are what we make of the path, the
 * method and the connection's end.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz/check.h"

#include "obs/admin.h"

#define REPLY_MAX (1u << 20)

static enum admin_state ready(void *ctx)
{
	(void)ctx;
	return ADMIN_READY;
}

static unsigned collect(void *ctx, unsigned timeout_ms, struct streams *into)
{
	struct stream_view v = { .stream_id = 7, .state = "s", .waits_for = "w", .datapath = "d" };

	(void)ctx;
	(void)timeout_ms;
	streams_add(into, &v);
	return 0;
}

static struct admin *server(void)
{
	static const struct session_stats stats, *all[1] = { &stats };
	static struct config config;
	static struct admin *admin;
	char *argv[] = { (char *)"serve", NULL };
	struct admin_source src = {
		.config = &config, .stats = all, .n_stats = 1, .state = ready, .collect = collect
	};
	const char *why;
	struct addr a;

	if (admin)
		return admin;
	(void)signal(SIGPIPE, SIG_IGN);
	CHECK(config_parse(&config, 1, argv, NULL, stdout, stderr) == CONFIG_OK);
	CHECK(!addr_parse("127.0.0.1:0", &a));
	CHECK(!admin_start(&a, &src, &admin, &why));
	return admin;
}

/*
 * Says it in `pieces` and reads until the server closes, or (patient is false) says nothing for a moment:
 * it may wait for the rest of a request until its timeout. Bytes of the reply.
 */
static size_t talk(const struct input *in, unsigned pieces, bool patient, char *reply)
{
	const struct addr *a = admin_addr(server());
	struct timeval limit = { .tv_sec = patient ? 20 : 0, .tv_usec = patient ? 0 : 2000 };
	int fd = socket(a->sa.sa_family, SOCK_STREAM, 0);
	size_t sent = 0, have = 0;
	ssize_t n;

	CHECK(fd >= 0 && !connect(fd, &a->sa, a->len));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (unsigned i = 1; i <= pieces; i++) {
		size_t to = in->len * i / pieces;

		if (to > sent && send(fd, in->p + sent, to - sent, MSG_NOSIGNAL) < 0)
			break;
		sent = to;
	}
	while (have < REPLY_MAX && (n = recv(fd, reply + have, REPLY_MAX - have, 0)) > 0)
		have += (size_t)n;
	CHECK(!patient || have);
	close(fd);
	return have;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char next[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	const struct input healthy = { (const uint8_t *)next, sizeof(next) - 1 };
	static char reply[REPLY_MAX + 1];
	struct input in = { data, size };
	unsigned pieces = 1 + input_byte(&in) % 8;
	size_t n = talk(&in, pieces, false, reply);

	CHECK(n < 9 || !memcmp(reply, "HTTP/1.", 7));
	n = talk(&healthy, 1, true, reply);
	reply[n] = '\0';
	CHECK(!strncmp(reply, "HTTP/1.1 200 ", 13));
	return 0;
}
