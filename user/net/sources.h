/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sources.h - how many connections each source address has open, for all workers.
 *
 * A source is an IPv4 address or the first 64 bits of an IPv6 one, which is what a single host
 * usually has. The table holds only sources with a connection, so --max-clients bounds it. One
 * mutex: it is taken once when a connection comes and once when it goes, and there is no table
 * at all while --max-clients-per-source is off.
 */
#ifndef FS_NET_SOURCES_H
#define FS_NET_SOURCES_H

#include "base/addr.h"

struct sources;

/* max: connections of one source, at least 1. NULL: out of memory. */
struct sources *sources_new(unsigned max);
void sources_free(struct sources *s); /* NULL is fine */

/* One more; false when that is one too many, or out of memory. Any thread. */
bool sources_enter(struct sources *s, const struct addr *peer);
/* One less, after a sources_enter() that was true. Any thread. */
void sources_leave(struct sources *s, const struct addr *peer);

#endif
