/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.h - one connection as the other side of it sees it: a client of the session, or
 * an executor.
 *
 * Bytes are looked at in both directions, at the moment the session reads or writes them.
 *   in   peer to session. Anything at all; it is followed as far as it makes sense, to
 *        know what the session has been told: streams, windows, settings, content.
 *   out  session to peer. Must be legal HTTP/2 and must fit what `in` has said; what is
 *        not ends the program.
 *
 * A request carries a key in its metadata, so that both ends of one DoGet find the same
 * struct call, where content and outcome are compared.
 */
#ifndef TESTS_FUZZ_PEER_H
#define TESTS_FUZZ_PEER_H

#include <nghttp2/nghttp2.h>

#include "fuzz/check.h"
#include "h2/frame.h"

#define KEY_FIELD "x-key"

struct bytes {
	uint8_t *p;
	size_t len, cap;
};

void bytes_add(struct bytes *b, const void *p, size_t n);
/* Takes n bytes off the front. */
void bytes_cut(struct bytes *b, size_t n);
void bytes_free(struct bytes *b);

struct half;

/* One DoGet, by the key in its request. */
struct call {
	uint32_t key;
	struct bytes request; /* what the client has sent as its body */
	struct bytes content; /* what the executor has sent in the last attempt */
	size_t forwarded;     /* of request, in the last attempt */
	size_t got;           /* of content, at the client */
	struct half *attempt;
	bool claimed; /* a client's stream has the key */
	bool shared;  /* several have: nothing can be said */
	bool ok;      /* the executor has ended with grpc-status 0 */
};

/* One stream on one connection. */
struct half {
	uint32_t id;
	struct call *call; /* NULL: no key, or none that is known */
	bool health;
	int64_t window;          /* WINDOW_UPDATEs of the peer less DATA of the session */
	int64_t granted;         /* WINDOW_UPDATEs of the session ... */
	int64_t used, queued;    /* ... and DATA of the peer: read by the session, and sent */
	bool head, ended, reset; /* by the session */
	bool in_head, in_ended, in_reset; /* by the peer */
};

#define PEER_SETTINGS_MAX 64
#define PEER_PINGS_MAX 64

struct world;
struct vport;

struct peer {
	struct world *world;
	struct vport *port; /* NULL once the session has closed it */
	bool client;        /* the peer is a client, the session its server */
	unsigned number;
	bool throttled; /* its socket was full at times */
	bool muddied;   /* sent what no rule covers: only safety is judged, not progress */
	uint32_t next_id;

	struct bytes in, out;
	nghttp2_hd_inflater *in_hpack, *out_hpack;
	bool in_preface, out_preface, in_stop, out_stop;
	struct bytes in_block, out_block; /* header block being collected */
	uint32_t in_block_id, out_block_id;
	uint8_t in_block_flags, out_block_flags;

	/* INITIAL_WINDOW_SIZE and MAX_CONCURRENT_STREAMS: acknowledged, and told but not yet. */
	uint32_t initial, max_streams;
	uint32_t told_initial[PEER_SETTINGS_MAX], told_streams[PEER_SETTINGS_MAX];
	unsigned n_told;
	uint8_t pings[PEER_PINGS_MAX][8];
	unsigned n_pings;
	bool pings_lost; /* too many to remember */
	int64_t window;  /* of the connection, as in struct half */
	uint32_t last_in, last_out, goaway;
	bool settings_out, said_settings, priority_seen;
	uint64_t data_out; /* DATA bytes in whole frames */
	struct half **streams;
	unsigned n_streams;
};

void peer_init(struct peer *p, struct world *w, bool client, unsigned number);
void peer_free(struct peer *p);
void peer_in(struct peer *p, const uint8_t *data, size_t n);
void peer_out(struct peer *p, const uint8_t *data, size_t n);
struct half *peer_stream(const struct peer *p, uint32_t id);
/* Neither side has ended it for good. */
bool half_open(const struct half *s);

#endif
