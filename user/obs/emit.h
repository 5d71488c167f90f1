/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit.h - the sessions' "somebody to tell": log lines for finished streams and
 * for events.
 *
 * One line per finished stream, never rate limited: info when the executor's
 * answer was delivered or the client left, warn otherwise. Events: clients and
 * upstreams coming and going, and each worker's drain, at debug; errors and
 * refusals at warn, repeats limited.
 */
#ifndef FS_EMIT_H
#define FS_EMIT_H

#include "obs/log.h"
#include "session/session.h"

/* The emit_ctx of one worker; emit_ctx outlives the session. */
struct emit {
	struct log *log; /* may be NULL: silence */
	unsigned worker;
};

extern const struct emit_ops emit_log_ops;

#endif
