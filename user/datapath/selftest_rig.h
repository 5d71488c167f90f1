/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_rig.h - an executor, a spliced pair and a client on loopback, all in this thread.
 *
 *   x ===TCP===> u  [kernel]  c ===TCP===> k
 *
 * The executor sends DATA frames whose length and content follow from their number, so that the
 * client's side can tell every lost, repeated or foreign byte. Everything is non-blocking and driven
 * by rig_run(); nothing sleeps but in poll(), and nothing outlives its deadline.
 */
#ifndef FS_DATAPATH_SELFTEST_RIG_H
#define FS_DATAPATH_SELFTEST_RIG_H

#include "datapath/pump.h"

#define RIG_STREAM 1u
#define RIG_FRAME_MAX (H2_DEFAULT_FRAME_SIZE + H2_HEADER_LEN)
#define RIG_WHY 160

struct rig_buffers {
	int client_snd, client_rcv; /* of c and of k; 0 = the system's own */
};

struct rig {
	struct sockmap_worker *w;
	int x, u, c, k; /* -1 = closed */
	struct splice_pair *pair;
	struct pump pump;

	/* executor */
	uint64_t tx_frames; /* made so far */
	uint64_t tx_bytes;  /* written so far */
	uint64_t tx_goal;   /* no new frame is begun once this many bytes have been made */
	uint64_t tx_made;
	uint64_t tx_data; /* flow-controlled bytes made */
	uint8_t tx[RIG_FRAME_MAX];
	size_t tx_len, tx_off;
	bool sabotage;      /* falsify one byte, see selftest.h */
	bool inject;        /* the frames come from us, not from the executor */
	uint64_t tx_pings;  /* of ours, by rig_ping() */
	bool plain;         /* the pair has left: u is read and c written in the ordinary way */
	uint8_t fwd[65536]; /* for that: [fwd_off, fwd_len) is to be written */
	size_t fwd_len, fwd_off;

	/* client */
	uint64_t rx_frames, rx_bytes; /* DATA that was right */
	uint64_t rx_pings;            /* PINGs, numbered from 0 in their payload */
	uint8_t rx[2 * RIG_FRAME_MAX];
	size_t rx_have;
	size_t rx_chunk; /* most bytes a read takes; 0 = all */
	bool rx_eof;

	bool hold_pump;    /* nobody reads the tap */
	int pump_result;   /* of the last pump_run() */
	uint64_t turns;    /* of rig_run() */
	uint64_t dead;     /* enum abi_reason, from the callback */
	char why[RIG_WHY]; /* the first thing that went wrong; "" = nothing */
};

/* Connects everything and enrols the pair (held; no stream yet). 0, or -1 with rig->why. */
int rig_open(struct rig *r, struct sockmap_worker *w, const struct rig_buffers *b,
	     uint64_t tap_limit);
/* Registers RIG_STREAM with credit without end and lets the fast path run. */
int rig_start(struct rig *r);
void rig_close(struct rig *r);

/* Says why, if nothing has gone wrong yet. Always -1. */
int rig_fail(struct rig *r, const char *format, ...) printf_like(2, 3);

/*
 * Moves bytes until done(r) is true. Optional step() is called each turn. 0, or -1 with rig->why:
 * wrong bytes, an error, or the deadline (ns, CLOCK_MONOTONIC) passed.
 */
int rig_run(struct rig *r, bool (*done)(struct rig *r), int (*step)(struct rig *r),
	    uint64_t deadline_ns);
/* Every byte the executor has made has arrived. */
bool rig_arrived(struct rig *r);

/* DATA frame number n at p: its whole length. */
size_t rig_frame(uint64_t n, uint8_t *p);
/* Sends a PING of ours through the pump, unless many wait already. 0, or -1 with rig->why. */
int rig_ping(struct rig *r);
/*
 * Injects DATA frames (the same sequence) until the injector is full or tx_goal is made. Bytes, or -1
 * with rig->why. With rig->inject rig_run() does this instead of writing at the executor.
 */
ssize_t rig_inject(struct rig *r);
/* Writes all len bytes from the executor. 0, or -1 with rig->why. */
int rig_write(struct rig *r, const void *p, size_t len, int flags);

uint64_t rig_now(void);
/* Waits until fd shows one of `events` (poll's). True, or false at the deadline. */
bool rig_wait(int fd, short events, uint64_t deadline_ns);

#endif
