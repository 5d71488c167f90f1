/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - a copied list of live streams and of executors, to carry them from a
 * worker's thread to the admin server's.
 *
 * A worker fills one with session_each_stream(session, streams_add, list) and
 * session_each_executor(session, streams_add_executor, list); the admin server merges
 * and renders them. Not thread-safe: whoever holds it owns it.
 */
#ifndef FS_STREAMS_H
#define FS_STREAMS_H

#include "session/session.h"

struct streams;

/* Rows a list holds; more are only counted, so that asking stays cheap for the worker. */
#define STREAMS_MAX 10000

struct streams *streams_new(void); /* NULL: out of memory */
void streams_free(struct streams *s);
/* arg is a struct streams. Copies v; out of memory counts as omitted. */
void streams_add(void *arg, const struct stream_view *v);
/* The same for executors, at most STREAMS_EXECUTORS_MAX. One that is there already is added up. */
void streams_add_executor(void *arg, const struct executor_view *v);
#define STREAMS_EXECUTORS_MAX 2000
/* Moves the rows of from to the end of to; from is empty then (still to be freed). */
void streams_merge(struct streams *to, struct streams *from);
unsigned streams_count(const struct streams *s);
/*
 * {"streams":[...],"omitted":N,"workers_missing":N}; malloc'ed, for free(). NULL:
 * out of memory. workers_missing: workers that did not answer in time.
 */
char *streams_json(const struct streams *s, unsigned workers_missing);
/*
 * Executors in use or with connections kept, and what the live streams have to do with them:
 * {"executors":[...],"omitted":N,"workers_missing":N}, as above.
 */
char *streams_executors_json(const struct streams *s, unsigned workers_missing);

#endif
