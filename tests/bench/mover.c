/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover - copies bytes between two TCP connections and does nothing else.
 *
 *	mover -l ADDR:PORT -u ADDR:PORT [-s]
 *
 * The reference for what a proxy in userspace can reach at all: no HTTP/2, no ticket, one fixed
 * destination. Bytes go by read() and write() through a buffer of COPY_LEN, or, with -s, from
 * the executor to the client by splice() through a pipe of that size.
 *
 * A pool of threads blocks in accept(); each serves one client. It waits for either side, reads
 * what is there and writes all of it before it looks again. A client that does not read therefore
 * blocks its own thread, requests included, which is no harm to a client that is only measuring.
 */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/wire.h"

#define COPY_LEN (256 * 1024)
#define MIN_IDLE_THREADS 4

struct mover {
	int pipe[2];
	uint8_t *buffer;
};

static struct sockaddr_in upstream;
static int listener;
static bool use_splice;
static atomic_int idle_threads;

static bool write_all(int fd, const uint8_t *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return true;
}

/* False when that direction is at its end. */
static bool copy_some(struct mover *m, int from, int to)
{
	ssize_t n = read(from, m->buffer, COPY_LEN);

	return n > 0 && write_all(to, m->buffer, (size_t)n);
}

static bool splice_some(struct mover *m, int from, int to)
{
	ssize_t n = splice(from, NULL, m->pipe[1], NULL, COPY_LEN, SPLICE_F_MOVE);

	if (n <= 0)
		return false;
	while (n) {
		ssize_t k = splice(m->pipe[0], NULL, to, NULL, (size_t)n, SPLICE_F_MOVE);

		if (k <= 0)
			return false;
		n -= k;
	}
	return true;
}

static int connect_upstream(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&upstream, sizeof(upstream))) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void serve(struct mover *m, int client)
{
	int executor = connect_upstream(), one = 1;
	bool (*move)(struct mover *, int, int) = use_splice ? splice_some : copy_some;
	struct pollfd pfd[2] = { { client, POLLIN, 0 }, { executor, POLLIN, 0 } };

	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (executor >= 0) {
		if (poll(pfd, 2, -1) < 0 && errno != EINTR)
			break;
		if (pfd[0].revents && !copy_some(m, client, executor))
			break;
		if (pfd[1].revents && !move(m, executor, client))
			break;
	}
	if (executor >= 0)
		close(executor);
	close(client);
}

static void open_pipe(struct mover *m)
{
	if (pipe2(m->pipe, O_CLOEXEC) || fcntl(m->pipe[1], F_SETPIPE_SZ, COPY_LEN) < 0)
		die("cannot make a pipe: %s", strerror(errno));
}

static void *serve_thread(void *arg);

static void spawn_thread(void)
{
	pthread_t thread;

	atomic_fetch_add(&idle_threads, 1);
	if (pthread_create(&thread, NULL, serve_thread, NULL) || pthread_detach(thread))
		die("cannot start a thread");
}

static void *serve_thread(void *arg)
{
	struct mover m = { .buffer = must_alloc(COPY_LEN) };

	(void)arg;
	open_pipe(&m);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		if (atomic_fetch_sub(&idle_threads, 1) <= MIN_IDLE_THREADS)
			spawn_thread();
		serve(&m, fd);
		if (use_splice) { /* what a broken transfer has left in the pipe */
			close(m.pipe[0]);
			close(m.pipe[1]);
			open_pipe(&m);
		}
		atomic_fetch_add(&idle_threads, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *listen_on = NULL, *to = NULL;
	struct sockaddr_in a;
	int o, one = 1;

	signal(SIGPIPE, SIG_IGN);
	while ((o = getopt(argc, argv, "l:u:s")) != -1) {
		if (o == 'l')
			listen_on = optarg;
		else if (o == 'u')
			to = optarg;
		else if (o == 's')
			use_splice = true;
		else
			die("usage: see the head of tests/bench/mover.c");
	}
	if (!listen_on || !to)
		die("-l ADDR:PORT and -u ADDR:PORT are needed");
	a = parse_addr(listen_on);
	upstream = parse_addr(to);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&a, sizeof(a)) || listen(listener, 4096))
		die("cannot listen on %s: %s", listen_on, strerror(errno));
	spawn_thread();
	for (;;)
		pause();
}
