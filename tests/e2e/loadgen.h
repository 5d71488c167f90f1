/* SPDX-License-Identifier: Apache-2.0 */
/* loadgen.h - what loadgen's executor and its client have in common; see loadgen.c. */
#ifndef LOADGEN_H
#define LOADGEN_H

#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn {
	int fd;
	nghttp2_session *ng;
	void *owner;       /* the side's own, for its callbacks */
	bool dead;         /* to be closed by the loop */
	bool reading;      /* false: a reader that has stopped or pauses */
	uint32_t interest; /* epoll mask in force */
	uint8_t *out;      /* serialized and not yet taken by the kernel: out[out_off..out_len) */
	size_t out_off, out_len;
};

/* Prints "loadgen: WHAT: errno's text" and ends the program. */
void die(const char *what);

/* Zeroed memory, or the end of the program. */
void *xcalloc(size_t size);

/* CLOCK_MONOTONIC in seconds. */
double now(void);

/* Bytes [off, off + len) of the sequence named `seed`. */
void payload_fill(uint8_t *p, uint64_t seed, uint64_t off, size_t len);

/* Number of leading bytes that are right; len when all are. */
size_t payload_check(const uint8_t *p, uint64_t seed, uint64_t off, size_t len);

/* Takes `fd`; the caller sets ng. The epoll event's pointer is the connection. */
void conn_init(struct conn *c, int fd, int ep, void *owner);

/* Closes and frees all but `c` itself. */
void conn_close(struct conn *c);

/* Asks epoll for what the connection can use now. */
void conn_watch(struct conn *c, int ep);

/* Writes until the session has nothing to say or the socket takes no more. */
void conn_flush(struct conn *c);

/* Feeds the session; returns a static text when the connection has ended. */
const char *conn_read(struct conn *c);

nghttp2_nv nv(const char *name, const char *value);

/* "IPV4:PORT", or the end of the program. */
void parse_address(const char *text, struct sockaddr_in *ret);

/* Protobuf's base-128 varint; returns its length. */
size_t put_varint(uint8_t *p, uint64_t v);

/* The two programs: exit status, 2 for a wrong command line. */
int run_exec(int argc, char **argv);
int run_fetch(int argc, char **argv);

#endif
