/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lab.h - three network namespaces in a row, which nobody else can see and which are gone when the
 * process is.
 *
 *   client 10.1.0.2 --veth-- 10.1.0.1 proxy 10.2.0.1 --veth-- 10.2.0.2 executor
 *
 * Needs root and ip(8).
 */
#ifndef FS_TESTS_NETNS_LAB_H
#define FS_TESTS_NETNS_LAB_H

#include <stdint.h>
#include <sys/types.h>

enum lab_place { LAB_CLIENT, LAB_PROXY, LAB_EXECUTOR, LAB_PLACES };

#define LAB_CLIENT_SIDE "10.1.0.1" /* the proxy's address for clients */
#define LAB_EXECUTOR_ADDR "10.2.0.2"

struct lab {
	int ns[LAB_PLACES];
};

/* Makes it; congestion control is cubic where the kernel lets us. 0, or -1 with a message on stderr. */
int lab_new(struct lab *lab);
void lab_free(struct lab *lab);
/* This thread's new sockets are there from now on. */
void lab_enter(const struct lab *lab, enum lab_place place);

/* fork(); the child dies with its parent. */
pid_t lab_fork(void);

/* Sockets in the present namespace; they end the process with a message when they cannot be had. */
int lab_listen(const char *ip, uint16_t *ret_port);
int lab_connect(const char *ip, uint16_t port);
void lab_tcp(int fd); /* TCP_NODELAY, cubic (or reno) */

double lab_now(void);  /* s */
double lab_busy(void); /* CPU s of the whole machine since boot */
/* Ends the process. */
void lab_die(const char *what) __attribute__((noreturn));

#endif
