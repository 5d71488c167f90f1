/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pump.h - the smallest correct user of sockmap.h: forwards whatever comes out of a pair's tap, and
 * sends frames of its own at frame boundaries.
 *
 * It knows where HTTP/2 frames begin and end and nothing else of them: no windows, no header blocks,
 * every frame goes to the client. The self-test, the stress test and the bench are built on it; the
 * product's session does the same with meaning.
 */
#ifndef FS_DATAPATH_PUMP_H
#define FS_DATAPATH_PUMP_H

#include "datapath/sockmap.h"
#include "h2/frame.h"

#define PUMP_BUFFER 65536u
#define PUMP_OWN 4096u

struct pump {
	struct splice_pair *pair;
	uint8_t *buf; /* bytes of the tap: [0, sent) forwarded, [sent, ready) to be forwarded */
	size_t sent, ready, have; /* [ready, have): the beginning of a frame header */
	uint64_t scanned; /* bytes forwarded or ready that splice_consumed() does not know of */
	uint32_t open;    /* bytes that the frame at `ready` still lacks */
	uint8_t own[PUMP_OWN]; /* frames of our own that wait for a boundary */
	size_t own_len, own_sent;
	uint64_t data;  /* flow-controlled bytes whose headers came by here */
	bool held;      /* by us, for own frames */
	bool keep_hold; /* the caller's: never release */
};

/* 0 or -ENOMEM. The pair stays the caller's. */
int pump_init(struct pump *pu, struct splice_pair *p);
void pump_free(struct pump *pu);
/*
 * Queues one whole frame for the client, to be sent at the next frame boundary (often at once).
 * 0, -ENOSPC, or what pump_run() says.
 */
int pump_send(struct pump *pu, const void *frame, size_t len);
/*
 * Does what can be done now. 0: waits for the tap (or for nothing); -EAGAIN: waits for room in the
 * injector; 1: the executor has sent FIN and all is forwarded; other -errno as splice_recv() and
 * splice_sendv().
 */
int pump_run(struct pump *pu);

#endif
