/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.h - directed cases. Each is run with a number of seeds, which change the
 * order and the timing of events but not what must come out.
 */
#ifndef SIM_CASES_H
#define SIM_CASES_H

#include "peer_client.h"
#include "peer_exec.h"
#include "scene.h"

struct sim_case {
	const char *name;
	/* Fills, runs and finishes a new scene; failures go to the world. */
	void (*run)(struct scene *s);
};

extern const struct sim_case cases_rules[], cases_told[], cases_faults[]; /* end: name NULL */

/* An executor "exec0"... that does everything right, not yet started. */
struct exec *plain_exec(struct scene *s, const char *name);
struct caller *plain_client(struct scene *s);
/* A call of `c` to host that must succeed with `total` bytes. */
struct call *ask(struct scene *s, struct caller *c, const char *host, uint64_t total);
/* The same with another end: an answer of kind after `cut` bytes, and what must come of it. */
struct call *ask_fail(struct scene *s, struct caller *c, const char *host, enum answer_kind kind,
		      uint64_t cut, enum must must, int status);
/* Runs until all calls are over, then ends and judges. */
void run_to_end(struct scene *s);
/* A failure when ok is false. */
void expect(struct scene *s, bool ok, const char *fmt, ...) printf_like(3, 4);
/* Runs until the call has received n bytes. */
bool until_bytes(struct scene *s, struct call *c, uint64_t n);
bool until_over(struct scene *s, struct call *c, uint64_t ns);
/* The call must end ns after it was sent, and not more than slack_ns later. */
void expect_after(struct scene *s, const struct call *c, uint64_t ns, uint64_t slack_ns);

#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

#endif
