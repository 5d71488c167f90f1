/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fact.h - what the programs that judge one kernel fact each have in common.
 *
 *   x ===TCP===> u  [fact.bpf.c]  c ===TCP===> k        all on loopback, all in one process
 *
 * The numbers are those of docs/kernels.md. A program prints one line, PASS, FAIL or SKIP, and exits
 * with 0, 1 or 77. A fact that is only a trap the product steers around says SKIP when the kernel
 * does not have it (any more).
 */
#ifndef FS_TESTS_KERNEL_FACT_H
#define FS_TESTS_KERNEL_FACT_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fact.skel.h"

/* Ends the program with a line of its verdict. */
void pass(void) __attribute__((noreturn));
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* fail() with strerror(errno) unless `good`. */
void need(bool good, const char *what);

struct rig {
	struct fact *f;
	int x, u, c, k;
	uint64_t sent, got; /* bytes of the pattern written at x, read at k */
};

/* Says which fact is judged, loads the programs (SKIP without privilege), connects the sockets. */
void begin(struct rig *r, const char *fact);
/* c into targets[0], u into sources[0] with `redirect`. */
void splice(struct rig *r);
void attach(struct bpf_program *prog, struct bpf_map *map);
int put(struct bpf_map *map, uint32_t index, int fd); /* 0 or -errno */
int take(struct bpf_map *map, uint32_t index);
/* A loopback connection: *here connected, *there accepted (non-blocking both). */
void connection(int *here, int *there);
void unix_pair(int type, int *a, int *b);
/* An injector for targets[0]: returns the end to send to. */
int injector(struct rig *r, int *ret_receiver);

uint64_t now_ms(void);
bool wait_for(int fd, short events, int ms);
/* TCP_INFO, which takes the socket's lock. */
struct tcp_info tcp_info_of(int fd);
/* Bytes ever handed to fd's TCP. */
uint64_t tcp_written(int fd);

/* The pattern: a byte for each offset of the stream. */
void pattern(uint64_t offset, uint8_t *p, size_t len);
/* Fails when p is not the pattern at offset. */
void check_pattern(uint64_t offset, const uint8_t *p, size_t len);
/* Writes up to len bytes at x, without waiting; bytes written. */
size_t feed(struct rig *r, size_t len);
/* Reads what is there at fd (at most max) and checks it as the stream's next bytes. 0 = nothing. */
size_t drain(struct rig *r, int fd, size_t max);
/* feed() and drain(k) until `bytes` have arrived; fails after ms without progress. */
void transfer(struct rig *r, uint64_t bytes, size_t chunk, int ms);

#endif
