/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fact.c - see fact.h.
 */
#include <linux/sockios.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <time.h>

#include "kernel/lib/fact.h"

static const char *name = "?";

static void verdict(int status, const char *word, const char *format, va_list args)
{
	printf("%s %s: ", word, name);
	vprintf(format, args);
	putchar('\n');
	fflush(stdout);
	exit(status);
}

void pass(void)
{
	printf("PASS %s\n", name);
	exit(0);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	verdict(1, "FAIL", format, args);
	abort();
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	verdict(77, "SKIP", format, args);
	abort();
}

void need(bool good, const char *what)
{
	if (!good)
		fail("%s: %s", what, strerror(errno));
}

/* ---------------------------------------------------------------- sockets and maps */

void connection(int *here, int *there)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP), one = 1, fds[2];

	need(listener >= 0 && !bind(listener, (struct sockaddr *)&a, len) && !listen(listener, 1) &&
		     !getsockname(listener, (struct sockaddr *)&a, &len),
	     "listen");
	fds[0] = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	need(!connect(fds[0], (struct sockaddr *)&a, len), "connect");
	fds[1] = accept4(listener, NULL, NULL, 0);
	need(fds[1] >= 0, "accept");
	close(listener);
	for (int i = 0; i < 2; i++) {
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	}
	*here = fds[0];
	*there = fds[1];
}

void unix_pair(int type, int *a, int *b)
{
	int fds[2];

	need(!socketpair(AF_UNIX, type, 0, fds), "socketpair");
	*a = fds[0];
	*b = fds[1];
}

int put(struct bpf_map *map, uint32_t index, int fd)
{
	uint64_t value = (uint64_t)fd;

	return bpf_map_update_elem(bpf_map__fd(map), &index, &value, BPF_ANY) ? -errno : 0;
}

int take(struct bpf_map *map, uint32_t index)
{
	return bpf_map_delete_elem(bpf_map__fd(map), &index) ? -errno : 0;
}

void attach(struct bpf_program *prog, struct bpf_map *map)
{
	need(!bpf_prog_attach(bpf_program__fd(prog), bpf_map__fd(map), BPF_SK_SKB_VERDICT, 0),
	     "attaching a verdict");
}

int injector(struct rig *r, int *ret_receiver)
{
	int tx, rx;

	unix_pair(SOCK_DGRAM, &tx, &rx);
	attach(r->f->progs.inject, r->f->maps.injectors);
	errno = -put(r->f->maps.injectors, 0, rx);
	need(!errno, "an AF_UNIX datagram socket into a sockmap");
	*ret_receiver = rx;
	return tx;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

void begin(struct rig *r, const char *fact)
{
	memset(r, 0, sizeof(*r));
	name = fact;
	libbpf_set_print(quiet);
	r->f = fact__open_and_load();
	if (!r->f && (errno == EPERM || errno == EACCES))
		skip("bpf(2) needs CAP_BPF and CAP_NET_ADMIN");
	need(r->f, "loading the programs");
	connection(&r->u, &r->x);
	connection(&r->k, &r->c);
}

void splice(struct rig *r)
{
	attach(r->f->progs.redirect, r->f->maps.sources);
	errno = -put(r->f->maps.targets, 0, r->c);
	need(!errno, "c into its sockmap");
	errno = -put(r->f->maps.sources, 0, r->u);
	need(!errno, "u into its sockmap");
}

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool wait_for(int fd, short events, int ms)
{
	struct pollfd pf = { .fd = fd, .events = events };

	return poll(&pf, 1, ms) == 1 && pf.revents & events;
}

struct tcp_info tcp_info_of(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	need(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), "TCP_INFO");
	return info;
}

uint64_t tcp_written(int fd)
{
	uint64_t before, after;
	int unacked;

	do {
		before = tcp_info_of(fd).tcpi_bytes_acked;
		need(!ioctl(fd, SIOCOUTQ, &unacked), "SIOCOUTQ");
		after = tcp_info_of(fd).tcpi_bytes_acked;
	} while (before != after);
	return before + (uint64_t)unacked;
}

/* ---------------------------------------------------------------- bytes */

static uint8_t pattern_byte(uint64_t offset)
{
	uint64_t x = (offset >> 3) * 0x9e3779b97f4a7c15ULL;

	return (uint8_t)(x >> (8 * (offset & 7)));
}

void pattern(uint64_t offset, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = pattern_byte(offset + i);
}

void check_pattern(uint64_t offset, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (p[i] != pattern_byte(offset + i))
			fail("wrong byte at offset %llu", (unsigned long long)(offset + i));
	}
}

size_t feed(struct rig *r, size_t len)
{
	uint8_t buf[65536];
	ssize_t n;

	if (len > sizeof(buf))
		len = sizeof(buf);
	if (!len)
		return 0;
	pattern(r->sent, buf, len);
	n = send(r->x, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	need(n >= 0 || errno == EAGAIN, "send at x");
	if (n < 0)
		return 0;
	r->sent += (uint64_t)n;
	return (size_t)n;
}

size_t drain(struct rig *r, int fd, size_t max)
{
	uint8_t buf[65536];
	ssize_t n = recv(fd, buf, max < sizeof(buf) ? max : sizeof(buf), MSG_DONTWAIT);

	need(n >= 0 || errno == EAGAIN, "recv");
	if (n <= 0)
		return 0;
	check_pattern(r->got, buf, (size_t)n);
	r->got += (uint64_t)n;
	return (size_t)n;
}

void transfer(struct rig *r, uint64_t bytes, size_t chunk, int ms)
{
	uint64_t goal = r->sent + bytes, last = now_ms();

	while (r->got < goal) {
		size_t out = feed(r, (size_t)(goal - r->sent)), in = drain(r, r->k, chunk);

		if (in || out)
			last = now_ms();
		else if (now_ms() - last > (uint64_t)ms)
			fail("stall: %llu bytes sent, %llu arrived", (unsigned long long)r->sent,
			     (unsigned long long)r->got);
		else
			wait_for(r->k, POLLIN, 2);
	}
}
