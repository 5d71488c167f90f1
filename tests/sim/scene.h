/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scene.h - a world with a subject, clients, executors and calls in it, and the
 * judgement of what happened.
 *
 * A case builds a scene, says what everybody does, runs it and lets it be
 * judged. After each turn the scene checks what must hold at any time (credit
 * within the caps, gauges that agree with the counters, a bounded number of
 * upstream connections); scene_finish() hangs up the clients, waits for quiet
 * and checks what must hold in the end.
 */
#ifndef SIM_SCENE_H
#define SIM_SCENE_H

#include "call.h"
#include "world.h"

struct scene {
	struct world *w;
	struct config config;
	struct env env;
	const struct subject_ops *subject;
	struct call **calls;
	unsigned n_calls;
	struct caller **clients;
	unsigned n_clients;
	struct exec **execs;
	unsigned n_execs;
	uint64_t records, events[EVENT_KINDS];
	unsigned strange_records; /* of streams no client of ours opened */
	unsigned most_upstreams;
	bool started;
	bool unjudged;  /* the subject is ended in the middle: no final judgement */
	bool splice;    /* large results go to the made-up kernel (kernel.c) */
	bool no_ledger; /* clients break flow control: no bound on credit to check */
};

/* Which subject scenes are made of: the session, or a toy; set before scene_new(). */
extern const struct subject_ops *scene_subject;
/* Whether new scenes splice. */
extern bool scene_splice;

/* With defaults of the design; change s->config before scene_start(). */
struct scene *scene_new(uint64_t seed);
void scene_free(struct scene *s);
struct rng *scene_rng(struct scene *s);
uint64_t scene_now(const struct scene *s);

/* A call with a plain ticket for host:port and an answer of `total` bytes. */
struct call *scene_call(struct scene *s, const char *host, uint32_t port, uint64_t total);
struct call *scene_find(struct scene *s, uint32_t key); /* NULL: no such key */
/* The call of a client's stream, NULL when there is none. */
struct call *scene_find_stream(struct scene *s, const struct addr *client, uint32_t stream);

/* Creates the subject. Clients may connect from here on. */
void scene_start(struct scene *s);
/* Runs for so long, or until something fails. */
void scene_wait(struct scene *s, uint64_t ns);
/* Runs until done; fails naming `what` when it is not after ns. */
bool scene_until(struct scene *s, uint64_t ns, bool (*done)(void *arg), void *arg,
		 const char *what);
/* Runs until every call is over; a call that hangs fails after ns. */
bool scene_run(struct scene *s, uint64_t ns);
bool scene_calls_over(void *scene);
/* Hangs up, waits for quiet, judges. */
void scene_finish(struct scene *s);
const struct session_stats *scene_stats(const struct scene *s);

#endif
