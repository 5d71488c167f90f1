/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.h - bytes per second, from one snapshot to the next.
 */
#ifndef FS_CLI_RATES_H
#define FS_CLI_RATES_H

#include "session/snapshot.h"

struct rates;

struct rates *rates_new(void); /* NULL: out of memory */
void rates_free(struct rates *r);

/*
 * Takes s in. From then until the next call the functions below are about s, which the caller keeps
 * that long. False: out of memory, nothing is known then.
 */
bool rates_update(struct rates *r, const struct snapshot *s);

/* Of s->streams[i]. Negative: not known, it has been seen once only. */
double rates_stream(const struct rates *r, unsigned i);
/* Of all that instance i delivered, streams that came and went in between included. */
struct rates_of_instance {
	double relay, kernel;
};
struct rates_of_instance rates_instance(const struct rates *r, unsigned i);

#endif
