/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lab.c - see lab.h.
 *
 * The namespaces have no names: each is made by a child that does nothing else, held by a descriptor
 * of ours, and the veth pairs are put into them by the children's pids.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "netns/lib/lab.h"

void lab_die(const char *what)
{
	perror(what);
	exit(1);
}

static int run(const char *command)
{
	int status = system(command);

	if (status)
		fprintf(stderr, "lab: '%s' failed\n", command);
	return status ? -1 : 0;
}

pid_t lab_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* A child in a new namespace; *ret_fd is the namespace. */
static pid_t holder(int *ret_fd)
{
	char path[64], ready;
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		return -1;
	pid = lab_fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNET))
			_exit(1);
		(void)!write(fds[1], "", 1);
		for (;;)
			pause();
	}
	close(fds[1]);
	if (pid < 0 || read(fds[0], &ready, 1) != 1) {
		close(fds[0]);
		return -1;
	}
	close(fds[0]);
	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? -1 : pid;
}

/* Runs in the caller's mount namespace, so /proc/sys is the entered network's. */
static void set_cubic(void)
{
	int fd = open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY);

	if (fd < 0)
		return;
	(void)!write(fd, "cubic", 5);
	close(fd);
}

static int wire(const struct lab *lab, const pid_t pid[LAB_PLACES])
{
	static const struct {
		enum lab_place at, to;
		const char *dev, *peer, *addr, *peer_addr;
	} veth[] = {
		{ LAB_PROXY, LAB_CLIENT, "cl", "px", "10.1.0.1/24", "10.1.0.2/24" },
		{ LAB_PROXY, LAB_EXECUTOR, "ex", "px", "10.2.0.1/24", "10.2.0.2/24" },
	};
	char c[512];
	int err = 0;

	for (int i = 0; i < 2 && !err; i++) {
		lab_enter(lab, veth[i].at);
		snprintf(c, sizeof(c),
			 "ip link set lo up && ip link add %s type veth peer name %s netns %d && "
			 "ip addr add %s dev %s && ip link set %s up",
			 veth[i].dev, veth[i].peer, pid[veth[i].to], veth[i].addr, veth[i].dev,
			 veth[i].dev);
		err = run(c);
		if (err)
			break;
		lab_enter(lab, veth[i].to);
		snprintf(c, sizeof(c),
			 "ip link set lo up && ip addr add %s dev %s && ip link set %s up",
			 veth[i].peer_addr, veth[i].peer, veth[i].peer);
		err = run(c);
	}
	return err;
}

int lab_new(struct lab *lab)
{
	pid_t pid[LAB_PLACES];
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), err = 0, made = 0;

	while (made < LAB_PLACES && !err) {
		pid[made] = holder(&lab->ns[made]);
		if (pid[made] < 0) {
			perror("lab: a network namespace");
			err = -1;
		} else {
			made++;
		}
	}
	if (!err)
		err = wire(lab, pid);
	for (int i = 0; i < LAB_PLACES && !err; i++) {
		lab_enter(lab, i);
		set_cubic();
	}
	for (int i = 0; i < made; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	if (setns(home, CLONE_NEWNET))
		err = -1;
	close(home);
	return err;
}

void lab_free(struct lab *lab)
{
	for (int i = 0; i < LAB_PLACES; i++)
		close(lab->ns[i]);
}

void lab_enter(const struct lab *lab, enum lab_place place)
{
	if (setns(lab->ns[place], CLONE_NEWNET))
		lab_die("lab: setns");
}

void lab_tcp(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5))
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

static struct sockaddr_in address(const char *ip, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, ip, &a.sin_addr);
	return a;
}

int lab_listen(const char *ip, uint16_t *ret_port)
{
	struct sockaddr_in a = address(ip, 0);
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) || listen(fd, 128) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		lab_die("lab: listen");
	*ret_port = ntohs(a.sin_port);
	return fd;
}

int lab_connect(const char *ip, uint16_t port)
{
	struct sockaddr_in a = address(ip, port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		lab_die("lab: connect");
	lab_tcp(fd);
	return fd;
}

double lab_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double lab_busy(void)
{
	unsigned long long v[8] = { 0 };
	FILE *f = fopen("/proc/stat", "re");

	if (!f)
		return 0;
	if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3, v + 4,
		   v + 5, v + 6, v + 7) != 8)
		v[0] = 0;
	fclose(f);
	return (double)(v[0] + v[1] + v[2] + v[5] + v[6]) / (double)sysconf(_SC_CLK_TCK);
}
