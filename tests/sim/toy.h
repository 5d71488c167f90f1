/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toy.h - the simplest forwarder that satisfies the judges, and ways to spoil it.
 *
 * It stands where the session stands, so that the self-test can show two things:
 * the world and the peers accept something that is right, and each judge finds
 * the fault it is there for. One connection to an executor per stream, store and
 * forward, no timers, no drain.
 */
#ifndef SIM_TOY_H
#define SIM_TOY_H

#include "world.h"

enum toy_fault {
	TOY_NONE,
	/* bytes */
	TOY_FLIP_BYTE,
	TOY_LOSE_BYTES,
	TOY_LOSE_TAIL,
	TOY_REPEAT_BYTES,
	/* ends */
	TOY_END_ON_DATA,
	TOY_FALSE_OK,
	TOY_RESET_CANCEL,
	TOY_NO_STATUS,
	TOY_NEEDLESS_FAILURE,
	TOY_CHANGE_MESSAGE,
	TOY_DROP_DETAILS,
	TOY_HALF_FRAME,
	TOY_HANG,
	/* flow control */
	TOY_IGNORE_STREAM_WINDOW,
	TOY_IGNORE_CONNECTION_WINDOW,
	TOY_IGNORE_DECREASE,
	TOY_OVERGRANT,
	/* frames */
	TOY_FORWARD_PING,
	TOY_FORWARD_UNKNOWN,
	TOY_NO_PONG,
	TOY_NO_SETTINGS,
	TOY_OTHER_SETTINGS,
	TOY_BAD_HPACK,
	/* requests */
	TOY_CHANGE_TICKET,
	TOY_DROP_TIMEOUT,
	TOY_DROP_METADATA,
	TOY_ASK_TWICE,
	/* cancellation, books */
	TOY_NO_CANCEL,
	TOY_LATE_CANCEL,
	TOY_KEEP_UPSTREAM,
	TOY_TWO_RECORDS,
	TOY_NO_RECORD,
	TOY_WRONG_RECORD,
	TOY_WRONG_BYTES,
	TOY_WRONG_SUM,
	TOY_NO_CLOSE_EVENT,
	/* the contract of env.h */
	TOY_TIMER_SPIN,
	TOY_BUSY_LOOP,
	TOY_USE_CLOSED,
	TOY_CLOSE_TWICE,
	TOY_RECV_NOTHING,
	TOY_CANCEL_DIAL_LATE,
	TOY_LEAVE_PORTS,
	TOY_FAULTS,
};

/* For the next toy that is created. */
extern enum toy_fault toy_fault;
extern const struct subject_ops subject_toy;

#endif
