/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - the objects of one worker, shared by the files of user/session and
 * by the datapaths.
 *
 *   session ─┬─ client ──┬─ stream        one DoGet
 *            │           └─ route ─┬─ upstream   (client, executor): its connections
 *            │                     └─ waiting streams
 *            └─ executor ── idle upstreams, ready to be reused
 *
 * An upstream belongs to one client at a time, so one connection of an executor
 * never mixes clients. Its stream ids are the client's plus `delta`, an even
 * number fixed when it is bound: 0 on a fresh connection, else what keeps its
 * ids increasing (docs/decisions/0001).
 *
 * Nothing is freed while a callback may still hold a pointer to it: objects that
 * have ended go to session.dead and are freed by session_run().
 */
#ifndef FS_STATE_H
#define FS_STATE_H

#include "base/timer.h"
#include "flight/flight.h"
#include "h2/frame.h"
#include "h2/hpack.h"
#include "session/budget.h"
#include "session/chunk.h"
#include "session/ledger.h"
#include "session/outq.h"
#include "session/request.h"
#include "session/session.h"

#define STREAM_BUCKETS 64
#define RESET_IDS 32 /* a power of two */
#define REASON_MAX 192

/*
 * One DoGet (or a method that we answer ourselves).
 *
 * REQUEST  HEADERS seen; the message is being collected. Nothing sent anywhere.
 * WAITING  ticket decoded, no connection yet: in route->waiting. May be failed,
 *          moved to an upstream or cancelled.
 * SENT     request on an upstream, no response byte seen: still may be retried
 *          on another one. An answer of our own is a trailers-only response.
 * HEAD     response head forwarded: from here on an error is trailers, never a
 *          second head.
 * ENDING   the executor's trailers have come, but they wait behind held data.
 *          The upstream side is over: s->up is NULL.
 * ANSWERED END_STREAM has been sent to the client, which has not ended its
 *          request: it counts against max_streams until it does.
 * CLOSED   in session.dead, its record has been emitted.
 */
enum stream_state {
	STREAM_REQUEST,
	STREAM_WAITING,
	STREAM_SENT,
	STREAM_HEAD,
	STREAM_ENDING,
	STREAM_ANSWERED,
	STREAM_CLOSED,
	STREAM_STATES,
};

const char *stream_state_name(enum stream_state s);

struct client;
struct route;
struct upstream;

struct stream {
	struct list link;    /* client->streams, or session.dead_streams */
	struct list wait;    /* route->waiting */
	struct list on_up;   /* upstream->streams */
	struct stream *hash; /* next in the bucket */
	struct client *client;
	struct route *route;
	struct upstream *up;
	uint32_t number; /* see stream_view */
	uint32_t id;     /* on the client's connection */
	enum stream_state state;
	enum flight_method method;

	bool client_ended;  /* END_STREAM seen from the client */
	bool request_ended; /* END_STREAM sent to the executor */
	bool has_ticket;
	bool fresh_only;        /* a retry: no reused upstream */
	bool opened;            /* its window was opened in this turn */
	int64_t content_length; /* what the request announced, -1 = nothing */
	uint64_t body_len;      /* request DATA so far */
	bool response_ended;    /* the executor's END_STREAM has been seen */
	bool recorded;
	uint8_t attempts;

	struct ticket ticket;
	uint8_t *block; /* the request's header block, re-encoded; malloc'ed */
	uint32_t block_len;
	struct grpc_reader request;
	uint32_t request_mem;   /* its part of session.requests */
	uint32_t request_sent;  /* bytes of the message written upstream */
	int64_t request_window; /* what the executor lets us send on the stream */

	/* spliced in the kernel, see splice.c */
	const char *datapath, *datapath_why; /* static: the best it was on, why not better */
	uint64_t spliced;                    /* DATA that the kernel has counted so far */
	bool in_splice;                      /* in the pair's stream table */
	bool large;                          /* counted in session.n_large */

	/* response */
	int64_t window;   /* client's, may be negative */
	uint64_t granted; /* credit at the executor */
	uint64_t held;    /* DATA payload in `hold` */
	struct list hold; /* chunks of whole frames that wait for the client's window */
	uint64_t data_in, data_out, dropped;
	int grpc_status; /* of the trailers, or ours; -1 unknown */

	struct timer timer;
	uint64_t opened_ns, sent_ns, head_ns;
	uint64_t deadline_ns; /* grpc-timeout, absolute; 0 = none */
	uint64_t progress_ns; /* DATA forwarded or window opened last */
	uint64_t excused_ns;  /* the client was not the one waited for, when looked at last */
	uint64_t rx_ns;       /* DATA or HEADERS from the executor last */
	struct addr executor_addr;
	char reason[REASON_MAX];
	char traceparent[TRACEPARENT_LEN + 1]; /* "" = none */
};

/*
 * A client's connection.
 *
 * PREFACE   nothing valid seen. Our SETTINGS may be queued already.
 * OPEN      its SETTINGS have come.
 * DRAINING  GOAWAY(last id) sent: new streams are ignored, old ones finish.
 * CLOSED    port closed, in session.dead_clients; only the free is left.
 */
enum client_state { CLIENT_PREFACE, CLIENT_OPEN, CLIENT_DRAINING, CLIENT_CLOSED };

struct client {
	struct list link;  /* session.clients or session.dead_clients */
	struct list dirty; /* session.dirty_clients */
	struct session *session;
	struct port *port;
	struct addr peer;
	uint32_t number; /* see client_view */
	enum client_state state;

	struct chunk *rx; /* an incomplete frame, or the preface */
	uint8_t *hblock;  /* header block being assembled; malloc'ed */
	uint32_t hblock_len, hblock_stream;
	uint8_t hblock_flags, hblock_frames;
	struct hpack_decoder *hpack;
	struct h2_settings settings; /* the client's */
	bool preface_seen, settings_seen;
	bool window_opened;    /* a connection WINDOW_UPDATE came in this turn */
	bool table_reset_sent; /* our first block carried the size update to 0 */
	bool greeted;          /* our SETTINGS are queued */
	bool greeting_held;    /* our SETTINGS wait for the response, see hold_greeting() */
	int broken;            /* errno of a dead socket: closed at the next flush */
	bool eof;              /* FIN seen */
	bool closing;          /* close once everything is flushed */
	bool goaway_seen;
	bool blocked;    /* the socket is full */
	bool slow;       /* blocked for so long that upstreams are read anyway */
	bool drain_soon; /* GOAWAY(2^31-1) sent, the second one is due */

	int64_t window;                /* connection window it gives us */
	uint32_t recv_unacked;         /* DATA received and not yet credited back */
	uint32_t last_id;              /* highest stream id seen */
	uint32_t goaway_id;            /* in our last GOAWAY: higher ones are ignored */
	uint32_t reset_ids[RESET_IDS]; /* streams that we reset lately, see client_frames.c */
	uint32_t n_reset_ids;
	struct list streams;
	struct stream *table[STREAM_BUCKETS];
	uint32_t n_streams;
	uint64_t inflight; /* granted + held over its streams */
	struct list routes;
	struct list paused; /* upstreams that wait for our socket */
	struct outq out;
	uint64_t queued;           /* out.data as session.queued knows it */
	struct port *tx;           /* where output goes: port, or the splice's */
	struct splice *splice;     /* NULL: relay only */
	struct upstream *spliced;  /* the upstream of the splice, NULL once it has ended */
	bool leaving;              /* the fast path is off for good */
	bool release_due;          /* it has been left: what waited for that is written next */
	bool left;                 /* output goes by `port` again; the tap may hold bytes yet */
	struct timer splice_timer; /* leaving, or credit that our own bound holds back */
	uint64_t splice_wait_ns;   /* its period */

	uint64_t block_ns; /* when a header block began that has not come whole, 0 = none */
	struct budgets budgets;
	struct timer timer;
	uint64_t opened_ns, active_ns, blocked_ns, since_ns; /* since: drain began */
};

/* A client's way to one executor. */
struct route {
	struct list link; /* client->routes */
	struct client *client;
	struct executor *executor;
	struct list upstreams;
	struct list waiting; /* streams, in the order their tickets came */
	uint32_t n_upstreams;
	uint64_t failed_ns; /* last failed dial, 0 = none */
	uint32_t refs;      /* streams and upstreams that point here */
};

/*
 * A connection to an executor.
 *
 * DIALLING  resolving or connecting; no port.
 * HANDSHAKE preface and SETTINGS sent; one stream may be sent at once (RFC 9113
 *           3.4), the rest wait for the executor's SETTINGS.
 * READY     its SETTINGS have come.
 * GOAWAY    it takes no new streams; those up to its last id finish.
 * CLOSED    port closed, in session.dead_upstreams.
 */
enum upstream_state {
	UPSTREAM_DIALLING,
	UPSTREAM_HANDSHAKE,
	UPSTREAM_READY,
	UPSTREAM_GOAWAY,
	UPSTREAM_CLOSED,
};

struct upstream {
	struct list link;  /* route->upstreams, session.ahead or session.dead_upstreams */
	struct list dirty; /* session.dirty_upstreams */
	struct list pause; /* client->paused */
	struct session *session;
	struct executor *executor;
	struct route *route; /* NULL while idle or dialled ahead */
	struct dial *dial;
	struct port *port;
	struct addr peer;
	enum upstream_state state;

	uint32_t delta;     /* our stream id = client's + delta */
	uint32_t last_id;   /* highest id used on it */
	uint32_t n_streams; /* live ones */
	struct list streams;
	uint32_t max_streams; /* the executor's MAX_CONCURRENT_STREAMS */
	struct h2_settings settings;
	int64_t send_window;   /* connection window for our requests */
	uint32_t recv_unacked; /* DATA received and not yet credited back */
	uint64_t owed;         /* credit of streams that we reset: so much DATA of them may come */
	bool reused;           /* served another client before */
	bool spoiled;          /* a stream was reset: not fit for reuse */
	bool ping_out;
	bool failing;     /* its streams are being taken off: it is not released in between */
	bool out_blocked; /* its socket is full */
	int broken;       /* errno: it does not read, or we have no memory; failed at the flush */

	struct chunk *rx;  /* received and not yet a whole frame */
	struct chunk *out; /* to be written */
	struct hpack_decoder *hpack;
	const struct datapath *dp;
	struct splice *splice; /* the client's, while we are its upstream */
	bool kicked;           /* to be read at the next flush */
	bool hup;              /* spliced: its FIN or RST has come, maybe behind data */
	uint32_t raw_left;     /* bytes to come from the tap that end a frame already begun */
	bool own;              /* the pair has left, inside a frame: its rest comes by U itself */
	uint64_t tapped;       /* bytes received from the tap and not yet published as consumed */
	bool promoting;        /* nothing is granted, so that a quiet moment comes */
	const char *why_relay; /* why it is not (or no longer) spliced */
	uint64_t promoting_ns; /* since when */
	uint64_t promote_at;   /* data_in of a stream from which on it is tried (again) */

	uint64_t block_ns;        /* when a header block began that has not come whole, 0 = none */
	enum budget_id exhausted; /* while broken is EBUSY */
	struct budgets budgets;
	struct timer timer;
	uint64_t opened_ns; /* the dial began; from HANDSHAKE on: connected */
	uint64_t rx_ns, ping_ns, idle_ns;
	struct list idle; /* executor->idle */
};

/* An executor as tickets name it; kept while connections or clients use it. */
struct executor {
	struct list link; /* session.executors */
	struct session *session;
	char host[TICKET_HOST_MAX + 1];
	uint16_t port;
	uint32_t number;          /* see executor_view */
	struct list idle;         /* upstreams without a client, the most recently used first */
	uint32_t n_idle, n_ahead; /* n_ahead: dialled ahead, not yet ready */
	uint32_t refs;            /* routes and upstreams that point here */
	uint64_t used_ns;         /* last time a stream asked for it */
	uint32_t used_count;      /* streams since it was created */
	uint64_t large_ns;        /* last time a result of it was worth promoting; 0 = never */
};

/*
 * How result bytes move. The relay is the only one that a session needs; others
 * take an upstream over at a quiet moment and give it back (design: 'Datapaths,
 * and promotion').
 */
struct datapath {
	const char *name;
	/* The upstream's port is readable, or may be read on: move what is there. */
	void (*readable)(struct upstream *u);
};

struct session {
	struct env env;
	uint64_t now;
	struct timers timers;
	struct chunk_pool pool;
	struct list clients, executors;
	struct list dirty_clients, dirty_upstreams;
	struct list dead_clients, dead_upstreams, dead_streams;
	struct list ahead; /* upstreams dialled ahead, not yet ready */
	struct session_stats stats;
	uint64_t inflight; /* granted + held, all clients */
	uint32_t n_large;  /* streams that have brought --promote-after bytes */
	uint64_t requests; /* bytes of request blocks and messages */
	uint64_t queued;   /* DATA that waits for the sockets of all clients */
	uint32_t numbers;  /* given out so far */
	bool draining;
	uint8_t *scratch; /* where clients' bytes are received */
};

#define SCRATCH_SIZE 65536u
#define SPLICE_QUIET_MAX (200 * NSEC_PER_MSEC) /* how long a quiet moment is waited for */
#define SPLICE_HUP_RETRY (2 * NSEC_PER_MSEC)

/* One writer, any reader: see struct session_stats. */
#define STAT_ADD(s, field, n)                                                                      \
	__atomic_store_n(&(s)->stats.field, (s)->stats.field + (uint64_t)(n), __ATOMIC_RELAXED)
#define STAT_SUB(s, field, n)                                                                      \
	__atomic_store_n(&(s)->stats.field, (s)->stats.field - (uint64_t)(n), __ATOMIC_RELAXED)

/* session.c */
/* A budget is exhausted: counts. Who calls it tells the peer, and the log by that. */
void session_exhausted(struct session *s, enum budget_id id);
/* Its memory for results and requests is used up: no new requests. */
bool session_full(const struct session *s);
/* The next number for an object; never 0. */
uint32_t session_number(struct session *s);
void session_event(struct session *s, enum session_event_kind kind, const struct addr *peer,
		   uint32_t h2_error, const char *fmt, ...) printf_like(5, 6);

/* stream.c */
struct stream *stream_new(struct client *c, uint32_t id);
struct stream *stream_find(const struct client *c, uint32_t id);
void stream_set_state(struct stream *s, enum stream_state to);
void stream_reason(struct stream *s, const char *fmt, ...) printf_like(2, 3);
/* Removes it from its upstream (resetting it there when it is not over) and route. */
void stream_detach(struct stream *s, uint32_t h2_error);
/* Ends it for the client without another frame: emits the record, queues the free. */
void stream_close(struct stream *s, enum stream_end end);
/* Emits its record, once; stream_close() does it for a stream that has none yet. */
void stream_record(struct stream *s, enum stream_end end);
/* The trailers of the executor have been queued or sent: complete. */
void stream_finished(struct stream *s);
/* Starts or re-arms the deadline of the state it is in. */
void stream_arm(struct stream *s);
/* Grants the executor what the ledger allows now. */
void stream_grant(struct stream *s);
/* Takes n bytes of DATA payload out of held or granted, keeping the sums. */
void stream_account(struct stream *s, int64_t granted, int64_t held);
/* DATA that will not reach the client. */
void stream_drop(struct stream *s, uint64_t bytes, enum drop_reason why);
void stream_drop_hold(struct stream *s, enum drop_reason why);
/* Puts a whole frame (or a header block's frames) behind the stream's held data. */
int stream_hold(struct stream *s, const uint8_t *frame, uint32_t len, uint32_t data);
/* Sends what the windows allow of the held data. May close the stream or the client. */
void stream_release(struct stream *s);
void stream_view(const struct stream *s, struct stream_view *v);
/* *ret_stuck: for STREAM_STUCK_NS already. */
enum stream_wait stream_waits(const struct stream *s, bool *ret_stuck);

/* answer.c: responses of our own. Each ends the stream (or leaves it ANSWERED). */
void answer_status(struct stream *s, int grpc_status, enum stream_end end, const char *fmt, ...)
	printf_like(4, 5);
void answer_health(struct stream *s);
/* RST_STREAM to the client; ends the stream. */
void answer_reset(struct stream *s, uint32_t h2_error, enum stream_end end);

/* client.c */
void client_accept(struct session *s, struct port *port);
void client_dirty(struct client *c);
/* Sets its timer anew, after what it waits for has changed. */
void client_arm(struct client *c);
/* Writes what waits, then lets paused upstreams go on. */
void client_flush(struct client *c);
/*
 * Room for a control frame; NULL when too many wait unread, or the client has
 * ended. It is closed at the next flush then, never inside this call.
 */
uint8_t *client_ctrl(struct client *c, uint32_t len);
/*
 * Sends pieces (whole frames, `data` bytes of DATA payload) to the client, or
 * queues them. *owner is the chunk they lie in, or NULL; when it is taken, *owner
 * becomes NULL (its bytes behind the last piece stay readable until the next
 * call). False when the client is dead: it is closed at the next flush.
 */
bool client_write(struct client *c, const struct iovec *pieces, int n, uint64_t data,
		  struct chunk **owner);
/* GOAWAY with an error, then the end. */
void client_fail(struct client *c, uint32_t h2_error, const char *fmt, ...) printf_like(3, 4);
/* The end without another word. reset: RST. */
void client_close(struct client *c, bool reset, enum stream_end end);
void client_drain(struct client *c);
void client_drain_final(struct client *c);
void client_greet(struct client *c);
/* Notes on each stream why the client's connection is about to end. err: errno or 0. */
void client_note(struct client *c, const char *why, int err);
/* A stream has gone: the connection may be over. */
void client_stream_gone(struct client *c);
void client_view(const struct client *c, struct client_view *v);
void client_free(struct client *c);
/* Writes what must precede our first header block; returns its length. */
size_t client_block_start(struct client *c, uint8_t *p);
/* The interest in its sockets, from what it is doing. */
void client_want(struct client *c);
/* What outq_raw() said: keeps the state of the socket. */
void client_raw_sent(struct client *c, int r);

/* RST_STREAM to the client; what it has on the way for the stream will be ignored. */
void client_put_reset(struct client *c, uint32_t id, uint32_t h2_error);

/* client_frames.c: what a client's bytes mean. */
void client_readable(struct client *c);

/* route.c: which connection a stream goes to. */
void route_stream(struct stream *s);
/* Puts a stream whose attempt failed back into the queue, for a fresh connection. */
void route_retry(struct stream *s);
void route_pump(struct route *r);
/* A connection of it takes streams, or will. */
bool route_served(const struct route *r);
void route_get(struct route *r);
void route_put(struct route *r);
struct executor *executor_get(struct executor *x);
void executor_put(struct executor *x);
void executor_idle_add(struct upstream *u);
void executor_idle_remove(struct upstream *u);
void executors_close_idle(struct session *s);

/* upstream.c */
/* r NULL: dialled ahead, for whoever comes. NULL when out of memory or descriptors. */
struct upstream *upstream_dial(struct executor *x, struct route *r);
void upstream_bind(struct upstream *u, struct route *r);
/* Whether the stream may be sent on it now. */
bool upstream_takes(const struct upstream *u, const struct stream *s);
/* It may take streams later: it is being set up. */
bool upstream_pending(const struct upstream *u);
void upstream_send(struct upstream *u, struct stream *s);
void upstream_pump_request(struct upstream *u, struct stream *s);
void upstream_flush(struct upstream *u);
/* len bytes at the end of its output; NULL when it does not read (it fails at the flush). */
uint8_t *upstream_out(struct upstream *u, uint32_t len);
void upstream_want(struct upstream *u);
void upstream_arm(struct upstream *u);
/* Reads from it at the next flush, as if it had become readable. */
void upstream_kick(struct upstream *u);
void upstream_ping(struct upstream *u);
/* DATA bytes that have come: gives the connection window back in time. */
void upstream_received(struct upstream *u, uint32_t bytes);
/* Error or end: its streams are retried or answered with `status` and the text. */
void upstream_fail(struct upstream *u, int grpc_status, enum stream_end end, uint32_t h2_error,
		   const char *fmt, ...) printf_like(5, 6);
/* After its last stream or its client: reuse or close. */
void upstream_release(struct upstream *u);
/* Closes one without streams; the executor is told GOAWAY with the error. */
void upstream_close(struct upstream *u, uint32_t h2_error);
void upstream_free(struct upstream *u);
/* A frame that costs the executor nothing. False when it was one too many: u is broken. */
bool upstream_charge(struct upstream *u, enum budget_id id, uint32_t cost);
/* The header block at the front of its input is (not) whole: how long it may take. */
void upstream_block_waits(struct upstream *u, bool waits);
/* A control frame (whole) from the executor. May end the upstream. */
void upstream_control(struct upstream *u, const struct h2_frame *f, const uint8_t *payload);
/* A stream of it is over on the wire. */
void upstream_stream_gone(struct upstream *u);

/* splice.c: promotion, and what is special about a spliced pair. */
/* After a batch of the executor's frames: takes the next step towards promotion. */
void spliced_consider(struct upstream *u);
/* Bytes for the relay: from the tap, when spliced. As port.recv(). */
ssize_t spliced_receive(struct upstream *u, void *buf, size_t len);
/* Sends the rest of a frame that the kernel has begun; true when frames may follow. */
bool spliced_raw(struct upstream *u);
/* After the batch has been dealt with: lets the fast path go on, if it may. */
void spliced_settle(struct upstream *u);
/* Takes over what the kernel has counted since. */
void spliced_sync(struct upstream *u);
/*
 * Before frames of ours are written: holds the fast path. False when the client is
 * inside a frame, whose rest has to come first: control lane only.
 */
bool spliced_begin_write(struct client *c);
/* After the client's output queue has run empty. */
void spliced_resume(struct client *c);
/*
 * What the client has not taken of the bytes the kernel was given, when v says that our
 * own bound matters.
 */
uint64_t spliced_undelivered(const struct stream *s, const struct ledger_view *v);
/* Grants again soon: something was held back that no event has to release. */
void spliced_look_again(struct client *c);
/* The stream's credit as the kernel must know it, before the executor does. */
void spliced_limit(struct stream *s);
void spliced_stream_begin(struct stream *s);
void spliced_stream_end(struct stream *s);
/* The stream's DATA has to wait until its client has left the splice of another upstream. */
bool spliced_must_wait(const struct stream *s);
/* Gives the pair up; its upstream goes on, by the relay. */
void spliced_leave(struct client *c);
/* The upstream ends; the client goes on if it is between two frames, else it is broken. */
void spliced_upstream_ends(struct upstream *u);
/* At once; what is queued in the kernel is lost: the client is to be reset. */
void spliced_abort(struct client *c);
/* Why a stream on u is not spliced. Static. */
const char *spliced_why(const struct upstream *u);

#endif
