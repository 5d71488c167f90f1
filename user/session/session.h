/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one worker's clients, streams and upstreams, seen from outside.
 *
 * `net` accepts sockets and hands them in; everything else happens through the
 * callbacks of the ports and dials that the session holds. The simulator drives
 * exactly this interface.
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "base/histogram.h"
#include "flight/flight.h"
#include "session/budget.h"
#include "session/env.h"

struct session;

/* env is copied; config, ops and contexts must outlive the session. NULL: out of memory. */
struct session *session_new(const struct env *env);
/* Resets what is still open. */
void session_free(struct session *s);

/*
 * Takes an accepted connection; the session owns the port from here on, also on
 * failure (it then closes it and counts). May read from the port at once.
 */
void session_accept(struct session *s, struct port *port);

/* A connection was turned away before it became a client, for the budget: counts it. */
void session_refused(struct session *s, enum budget_id why);

/*
 * The loop's part: run due timers, then sleep until session_next_deadline() at
 * the latest (absolute, env clock; UINT64_MAX = nothing to wait for).
 * session_run() must also be called after each batch of port and dial callbacks:
 * it flushes what they left to be written.
 */
void session_run(struct session *s);
uint64_t session_next_deadline(const struct session *s);

/*
 * Graceful end: GOAWAY(2^31-1), then GOAWAY(last) to each client; streams in
 * flight finish; upstream pools are closed. New connections are still taken
 * (they are told the same). Idempotent.
 */
void session_drain(struct session *s);
/* No client and no stream left (upstreams may be closing). */
bool session_idle(const struct session *s);

/* Who ended a stream. */
enum stream_end {
	END_COMPLETE, /* the executor's trailers were delivered */
	END_CLIENT,   /* RST_STREAM, disconnect or error of the client */
	END_EXECUTOR, /* the executor's RST, FIN, GOAWAY or protocol error */
	END_PROXY,    /* we answered: bad ticket, policy, limit, unreachable */
	END_DEADLINE, /* one of our timeouts, or grpc-timeout */
	END_SHUTDOWN, /* drain timeout or second SIGTERM */
	END_REASONS,
};
const char *stream_end_name(enum stream_end e); /* "complete", "client", ... */

/* One finished stream: the log line and the counters come from it. */
struct stream_record {
	struct addr client;
	struct addr executor;        /* resolved; len 0 when never connected */
	const char *method;          /* "DoGet", "Check", ... */
	const struct ticket *ticket; /* NULL when none was decoded */
	uint32_t stream_id;
	const char *datapath;     /* "relay", ... */
	const char *datapath_why; /* why not a better one; static text */
	uint64_t data_bytes;      /* DATA payload delivered to the client */
	uint64_t dropped_bytes;   /* DATA payload received and not delivered */
	uint64_t first_byte_ns;   /* request HEADERS to response head sent; 0 = none */
	uint64_t duration_ns;
	int grpc_status; /* what the client was told; -1 = none (reset) */
	enum stream_end end;
	const char
		*reason; /* free text of the end: "connect: Connection refused"; "" when complete */
	unsigned attempts;       /* upstream connections tried */
	const char *traceparent; /* W3C Trace Context, as the client sent it; "" = none */
};

enum session_event_kind {
	EVENT_CLIENT_OPEN,
	EVENT_CLIENT_CLOSED,
	EVENT_CLIENT_REFUSED, /* over max_clients or max_clients_per_source */
	EVENT_CLIENT_ERROR,   /* GOAWAY with an error, not HTTP/2, ... */
	EVENT_UPSTREAM_OPEN,
	EVENT_UPSTREAM_CLOSED,
	EVENT_UPSTREAM_ERROR, /* dial failure, protocol error */
	EVENT_DRAIN,
	EVENT_BUDGET, /* a request is refused for a budget; the connection goes on */
	EVENT_KINDS,
};

struct session_event {
	enum session_event_kind kind;
	const struct addr *peer; /* may be NULL */
	const char *text;        /* reason, human readable; never NULL */
	uint32_t h2_error;       /* where one was sent or received */
};

/* Why DATA bytes of an executor did not reach the client. */
enum drop_reason {
	DROP_PADDING,       /* padding of frames that had to be split */
	DROP_STREAM_CLOSED, /* arrived after the client reset, or after we ended it */
	DROP_CLIENT_GONE,   /* held or queued when the client's connection ended */
	DROP_VIOLATION,     /* part of a frame or block that was refused */
	DROP_REASONS,
};
const char *drop_reason_name(enum drop_reason r);

/* What a stream cannot go on without. Nobody is to blame for what has just begun to wait. */
enum stream_wait {
	WAIT_REQUEST,       /* the client has not sent its whole request, or not ended it */
	WAIT_CONNECTION,    /* no connection to the executor yet */
	WAIT_RESPONSE,      /* the executor has the request and has said nothing */
	WAIT_DATA,          /* the executor has credit and sends nothing (more) */
	WAIT_CLIENT_SOCKET, /* the client's TCP takes nothing */
	WAIT_CLIENT_WINDOW, /* the client's HTTP/2 window is closed */
	WAIT_PROMOTION,     /* for a quiet moment, to be moved into the kernel */
	STREAM_WAITS,
};
const char *stream_wait_name(enum stream_wait w); /* "executor data", "client window", ... */
/* Streams without progress for so long count as stuck. */
#define STREAM_STUCK_NS (10 * NSEC_PER_SEC)

/* How an attempt to connect to an executor ended. One that its client left behind has no result. */
enum dial_end {
	DIAL_END_CONNECTED,
	DIAL_END_NOT_RESOLVED,
	DIAL_END_POLICY,
	DIAL_END_NOT_CONNECTED,
	DIAL_END_TIMED_OUT, /* --connect-timeout, the look-up of the name included */
	DIAL_ENDS,
};
const char *dial_end_name(enum dial_end o);

/*
 * Counters, all monotonic unless marked gauge. Written by the worker with
 * relaxed atomic stores, so that another thread may read them at any time.
 * What the kernel forwards by itself is in data_spliced only, so that no figure has to
 * be a difference of two. Invariant once nothing is in flight:
 *   data_in == data_out + sum(dropped).
 */
struct session_stats {
	uint64_t clients_accepted, clients_refused;
	uint64_t clients_open; /* gauge */
	uint64_t streams_opened;
	uint64_t streams_open; /* gauge */
	uint64_t streams_ended[END_REASONS];
	uint64_t streams_status[17]; /* by grpc-status told; [16] also takes anything else */
	uint64_t streams_reset;      /* ended without any status */
	uint64_t upstreams_open, upstreams_idle; /* gauges */
	uint64_t dials, dial_failures, upstream_reuses, retries;
	uint64_t dial_ends[DIAL_ENDS];
	uint64_t data_in;  /* flow-controlled bytes of DATA received from executors */
	uint64_t data_out; /* the part of them written to clients' sockets */
	uint64_t dropped[DROP_REASONS];
	uint64_t data_spliced;  /* DATA that the kernel took from executors to clients by itself */
	uint64_t requests_out;  /* bytes of request messages written to executors */
	uint64_t promotions;    /* upstreams handed to a kernel datapath */
	uint64_t granted, held; /* gauges: credit outstanding at executors; bytes in our memory */
	uint64_t waiting[STREAM_WAITS]; /* gauge, as of the last session_count_waits() */
	uint64_t stuck[STREAM_WAITS];   /* gauge, likewise: those of them that are stuck */
	uint64_t policy_verdicts[POLICY_VERDICTS]; /* one for each dial that got so far */
	uint64_t client_errors, upstream_errors;
	uint64_t stale_events;
	uint64_t budget_exhausted[BUDGETS]; /* how often, see budget.h */
	/* DoGet streams: from the request's head to the response's, and to the end. */
	struct histogram first_byte, duration;
	struct histogram dial; /* successful ones, the look-up of the name included */
};

const struct session_stats *session_stats(const struct session *s);
/* Brings the gauges of what streams wait for up to date: looks at every stream. */
void session_count_waits(struct session *s);

/*
 * What is there, for whoever shows it. Strings live during the callback. A `number`
 * names one object for as long as the session lives (it wraps after 2^32 of them).
 */

/* A live stream, for /streams. */
struct stream_view {
	uint32_t number, client_number;
	uint32_t executor_number; /* 0: it has none yet */
	struct addr client, executor;
	const struct ticket *ticket; /* may be NULL */
	uint32_t stream_id;
	const char *state;     /* enum stream_state's name */
	const char *waits_for; /* "executor data", "client window", "client socket", ... */
	const char *datapath, *datapath_why; /* why not a better one, "" = it is on it */
	uint64_t data_bytes, granted, held;
	uint64_t age_ns, quiet_ns; /* since opened; since the last progress */
	/* While the kernel forwards it by itself: the pair, and its count that data_bytes has. */
	bool spliced;
	uint32_t kernel_slot, kernel_generation;
	uint64_t kernel_bytes;
};
void session_each_stream(const struct session *s,
			 void (*fn)(void *arg, const struct stream_view *v), void *arg);

/* A client's connection. */
struct client_view {
	uint32_t number;
	struct addr peer;
	const char *state; /* "preface", "open", "draining" */
	/* What its connection as a whole waits for: "nothing", "client socket", "client window", ... */
	const char *waits_for;
	const char *datapath;
	uint32_t streams;
	uint64_t inflight; /* bytes granted to executors or held for it */
	int64_t window;    /* connection window that it leaves us, bytes */
	uint64_t age_ns;
	uint64_t quiet_ns; /* since it began to wait, or was active last */
};
void session_each_client(const struct session *s,
			 void (*fn)(void *arg, const struct client_view *v), void *arg);

/* An executor that is in use, or to which connections are kept. */
struct executor_view {
	uint32_t number;
	const char *host; /* as tickets name it */
	uint16_t port;
	uint32_t idle, dialling_ahead; /* connections without a client */
	uint32_t served;               /* streams that asked for it so far */
	uint64_t unused_ns;            /* since one did last */
};
void session_each_executor(const struct session *s,
			   void (*fn)(void *arg, const struct executor_view *v), void *arg);

#endif
