/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - one DoGet, as a script for both ends and as what both ends saw.
 *
 * The key of a call travels in the job id of its ticket; so the executor that
 * receives the request finds the script of the answer, whatever stream id,
 * connection or retry brought it there. Each end writes down what happens, and
 * call_judge() compares the two: that is where completeness, cancellation and
 * verbatim answers are proven.
 */
#ifndef SIM_CALL_H
#define SIM_CALL_H

#include "h2end.h"
#include "session/session.h"
#include "world.h"

#define DOGET_PATH "/arrow.flight.protocol.FlightService/DoGet"
#define NEVER UINT64_MAX

/* How an answer ends. All but the first leave the client without a clean end. */
enum answer_kind {
	ANSWER_OK,            /* body, trailers with grpc-status 0 */
	ANSWER_STATUS,        /* `cut` bytes of body, trailers with `status` */
	ANSWER_TRAILERS_ONLY, /* one HEADERS with END_STREAM and `status` */
	ANSWER_RST,           /* RST_STREAM(code) after `cut` bytes */
	ANSWER_FIN,           /* the connection ends after `cut` bytes */
	ANSWER_TCP_RST,       /* ... with RST */
	ANSWER_SILENT,        /* nothing more after `cut` bytes, PINGs are answered */
	ANSWER_END_DATA,      /* END_STREAM on the last DATA, no trailers */
	ANSWER_NO_STATUS,     /* trailers without grpc-status */
	ANSWER_HTTP,          /* :status 503 and END_STREAM */
	ANSWER_VIOLATION,     /* breaks HTTP/2 as `violation` says, after `cut` bytes */
	ANSWER_KINDS,
};

enum violation {
	BREAK_STREAM_WINDOW, /* DATA beyond the stream's window */
	BREAK_HPACK,         /* a block that does not decode */
	BREAK_FRAME_SIZE,    /* a DATA frame above MAX_FRAME_SIZE */
	BREAK_DATA_FIRST,    /* DATA before HEADERS */
	BREAK_IDLE_STREAM,   /* DATA on a stream nobody opened */
	BREAK_PUSH,          /* PUSH_PROMISE */
	BREAK_ZERO_UPDATE,   /* WINDOW_UPDATE of 0 on the stream */
	BREAK_PADDING,       /* padding longer than its frame */
	BREAK_CONTINUATION,  /* HEADERS without END_HEADERS, then DATA */
	BREAK_SETTINGS,      /* INITIAL_WINDOW_SIZE above 2^31-1 */
	VIOLATIONS,
};

struct answer {
	enum answer_kind kind;
	uint64_t total; /* bytes of the whole body */
	uint64_t cut;   /* body bytes before the end that is not ANSWER_OK */
	bool no_head;   /* that end comes before the response HEADERS */
	bool mid_frame; /* FIN, RST of TCP: in the middle of a DATA frame */
	bool rst_after; /* RST_STREAM(NO_ERROR) after a whole answer */
	int status;
	const char *message; /* grpc-message; NULL none */
	uint32_t code;       /* of RST_STREAM */
	enum violation violation;
	uint32_t frame; /* most bytes per DATA frame; 0 = as the other side allows */
	unsigned pad_percent, empty_percent;
	uint32_t fragment; /* header blocks in pieces of this size; 0 = whole */
	uint64_t head_delay_ns, gap_ns, end_delay_ns;
};

#define ATTEMPTS_MAX 3

/* What the client does with its stream. */
struct ask {
	const char *path;          /* NULL: DoGet */
	const char *timeout;       /* grpc-timeout; NULL none */
	uint64_t start_ns;         /* after the client's connection */
	uint64_t cancel_after;     /* RST_STREAM(CANCEL) after this many bytes; NEVER */
	uint64_t cancel_ns;        /* ... or this long after the request; NEVER */
	uint64_t stop_after;       /* grants nothing on the stream after this many; NEVER */
	uint64_t hold_ns;          /* grants nothing in the first so many ns */
	uint64_t message_delay_ns; /* between HEADERS and the message */
	uint32_t message_pieces;   /* DATA frames of the request; 0 = one */
	bool end_on_data;          /* END_STREAM on the message, not on an empty frame */
	bool half_request;         /* never sends the end of it */
	bool metadata;             /* a few dozen extra headers */
	uint32_t fragment;         /* header fragments */
};
extern const struct ask ask_default;

enum must {
	MUST_END,    /* some end */
	MUST_OK,     /* the whole body and status 0 */
	MUST_STATUS, /* exactly must_status, in trailers */
	MUST_FAIL,   /* a status that is not 0, or an error reset */
};

struct call {
	uint32_t key;
	const char *host; /* as the ticket says */
	uint32_t port;
	uint8_t *msg; /* gRPC prefix and Ticket */
	size_t msg_len;
	struct ask ask;
	struct answer answer[ATTEMPTS_MAX]; /* by attempt; n_answers used, the last repeats */
	unsigned n_answers;
	enum must must;
	int must_status;
	const char *must_text; /* in grpc-message; NULL any */

	/* The executor's side, of the last attempt. */
	struct h2stream *x_stream; /* NULL: no attempt is open */
	unsigned attempts;         /* that reached an executor */
	uint64_t x_bytes, x_flow;  /* body bytes and flow-controlled bytes sent */
	uint64_t x_padding;        /* the difference */
	uint64_t x_most;           /* highest x_bytes of any attempt */
	bool x_answered;           /* any attempt has sent a HEADERS */
	bool x_complete;           /* the answer's END_STREAM was sent */
	bool x_broken;             /* an attempt ended otherwise than by the answer */
	uint64_t x_gone_ns;        /* when the last attempt ended */
	uint64_t x_until_ns;       /* a cancellation has to be known here by then; 0 none */
	char *x_timeout;           /* grpc-timeout received */

	/* The client's side. */
	struct addr client;
	uint32_t stream; /* 0 until sent */
	uint64_t sent_ns, head_ns, end_ns;
	uint64_t bytes, flow;
	bool headed, ended, reset, lost, cancelled;
	bool may_be_lost; /* its connection may be reset: a spliced frame may be cut off */
	uint64_t cancelled_ns;
	int http_status, status; /* status -1: none seen */
	uint32_t reset_code;
	char *text;   /* grpc-message */
	bool details; /* grpc-status-details-bin came */

	/* The session's side. */
	unsigned records;
	enum stream_end record_end;
	int record_status;
	uint64_t record_bytes;
	unsigned record_attempts;
};

struct call *call_new(uint32_t key, const char *host, uint32_t port);
void call_free(struct call *c);
/* Builds the ticket: r chooses the order of fields, unknown ones, padding up to `bulk` bytes. */
void call_ticket(struct call *c, struct rng *r, uint32_t bulk);
/* The key in a request message, or 0 when it is not a ticket of ours. */
uint32_t ticket_key(const uint8_t *msg, size_t len);
/* Host and port, for the toy. False when there are none. */
bool ticket_target(const uint8_t *msg, size_t len, char host[254], uint32_t *port);

const struct answer *call_answer(const struct call *c, unsigned attempt);
/* Nothing more will come on the client's side. */
bool call_over(const struct call *c);
/* Fails the world when the two sides' stories do not fit. At the end of a run. */
void call_judge(struct world *w, const struct call *c);
/* One line for -v and failures. */
const char *call_describe(const struct call *c, char *buf, size_t cap);

/* Parsed percent-encoding; malloc'ed. */
char *percent_decode(const char *s);

#endif
