/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poller.h - a worker's loop for descriptors that are not connections: what a
 * datapath or another guest wants watched. ctx is always the struct loop.
 */
#ifndef FS_NET_POLLER_H
#define FS_NET_POLLER_H

#include "net/loop.h"

/* events: EPOLL* bits, EPOLLET among them if wanted. NULL: out of memory or descriptors. */
void *poller_watch(void *loop, int fd, unsigned events, void (*fn)(void *arg, unsigned events),
		   void *arg);
/* Unregisters; fn is not called after this. The descriptor stays open. */
void poller_forget(void *loop, void *watch);

/* A call of fn(arg) that can be asked for again and again. NULL: out of memory. */
void *poller_soon_new(void *loop, void (*fn)(void *arg), void *arg);
void poller_soon(void *loop, void *soon);
void poller_soon_free(void *loop, void *soon);

#endif
