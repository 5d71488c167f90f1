/* SPDX-License-Identifier: Apache-2.0 */
/*
 * h2end.h - one end of an HTTP/2 connection, for the peers of the simulator.
 *
 * Written from RFC 9113 and independent of user/h2 and user/session; only HPACK
 * is nghttp2's. Its first purpose is to be a strict judge of what the other
 * side sends: everything the RFC forbids and everything that must not cross a
 * proxy (PRIORITY, unknown frames) is reported through bad(). Its second
 * purpose is to send anything, right or wrong: the h2_send_ functions do what
 * they are told, and only keep the books.
 *
 * No I/O: bytes go in through h2_feed() and come out in `out`.
 *
 * Windows. send_win of the connection and of each stream are what the other
 * side has granted us. What we have granted is kept as two sums, `granted` by
 * WINDOW_UPDATE and `received`; a DATA frame is legal when it fits the window
 * computed with the initial size the other side has acknowledged, or with one
 * that is still on the way and larger (it may apply that before we see the
 * ACK). So a decrease binds from its ACK on, and not a frame earlier.
 */
#ifndef SIM_H2END_H
#define SIM_H2END_H

#include <nghttp2/nghttp2.h>

#include "util.h"

#define FRAME_HEAD 9
#define WINDOW_MAX 0x7fffffffLL

struct h2end;

struct field {
	char *name, *value;
};

struct fields {
	struct field *f;
	size_t n;
};

/* The value, or NULL. */
const char *fields_get(const struct fields *f, const char *name);

struct h2stream {
	uint32_t id;
	int64_t send_win;
	int64_t granted, received; /* flow-controlled bytes */
	unsigned heads;            /* header blocks received */
	bool remote_end, local_end, remote_rst, local_rst;
	void *user;
};

struct h2ops {
	/* A whole header block. end: END_STREAM. */
	void (*head)(struct h2end *h, struct h2stream *s, const struct fields *f, bool end);
	/* len bytes of content in a frame of flow flow-controlled bytes. */
	void (*data)(struct h2end *h, struct h2stream *s, const uint8_t *p, size_t len, size_t flow,
		     bool end);
	void (*reset)(struct h2end *h, struct h2stream *s, uint32_t code);
	void (*goaway)(struct h2end *h, uint32_t last, uint32_t code);
	/* Something about sending has changed: a window, a setting. */
	void (*window)(struct h2end *h);
	void (*ping)(struct h2end *h, const uint8_t data[8]);
	void (*pong)(struct h2end *h, const uint8_t data[8]);
	/* The other side has broken a rule. After it the connection is not read any more. */
	void (*bad)(struct h2end *h, const char *what);
};

struct h2settings {
	uint32_t table, push, streams, window, frame, list;
};
extern const struct h2settings h2_defaults;

/* Header blocks as different executors might encode them; all but the last are legal. */
enum h2_encoding {
	ENCODE_NGHTTP2,     /* obeys the other side's table size */
	ENCODE_LITERAL,     /* literals, nothing else */
	ENCODE_INCREMENTAL, /* literals "to be added", which at table size 0 adds nothing */
	ENCODE_UPDATES,     /* each block begins with a table size update to 0 */
	ENCODE_DEFIANT,     /* fills and uses a table of 4096 whatever it was told */
	ENCODINGS,
};

#define SETTINGS_PENDING 16

struct h2end {
	const struct h2ops *ops;
	void *user;
	bool server;
	struct bytes in, out;
	bool got_preface, got_settings, broken;

	struct h2settings remote;                 /* what the other side has told us */
	struct h2settings local;                  /* what it has acknowledged */
	struct h2settings sent;                   /* what we have told it last */
	struct h2settings wait[SETTINGS_PENDING]; /* told, not acknowledged; oldest first */
	unsigned n_wait, settings_unanswered;     /* of the other side, when we answer late */
	bool hold_acks;
	bool grease; /* each SETTINGS carries an unknown id too */

	int64_t send_win, granted, received; /* of the connection */
	struct h2stream **streams;           /* by increasing id */
	size_t n_streams, cap_streams;
	uint32_t last_remote; /* highest id the other side has opened */
	uint32_t goaway_last; /* of the last GOAWAY received */
	bool goaway;

	uint8_t pings[64][8]; /* sent, not answered */
	unsigned n_pings;
	unsigned max_open; /* most streams of the other side open at once */

	nghttp2_hd_inflater *inflater;
	nghttp2_hd_deflater *deflater;
	enum h2_encoding encoding;
	struct bytes block; /* header block being received */
	uint32_t block_stream;
	uint8_t block_flags;

	/* For inspection: frames received by type (10: unknown). */
	uint64_t frames[11];
	uint64_t data_flow; /* flow-controlled bytes received */
};

void h2_init(struct h2end *h, const struct h2ops *ops, void *user, bool server);
void h2_free(struct h2end *h);
/* All that arrived. Callbacks come from inside. */
void h2_feed(struct h2end *h, const uint8_t *p, size_t n);
/* True when the bytes received end in the middle of a frame or a header block. */
bool h2_in_frame(const struct h2end *h);
struct h2stream *h2_stream(struct h2end *h, uint32_t id); /* NULL: none */
/* Client: opens a stream with the next legal id above the last, or with the given one. */
struct h2stream *h2_open(struct h2end *h, uint32_t id);
/* Bytes of DATA the other side may still send: negative after a decrease. */
int64_t h2_recv_window(const struct h2end *h, const struct h2stream *s);
int64_t h2_sendable(const struct h2end *h, const struct h2stream *s);
bool h2_stream_open(const struct h2stream *s);

/* How a header block or a DATA frame is cut. */
struct h2_shape {
	uint8_t pad;       /* bytes of padding; 0 = none */
	uint32_t fragment; /* most bytes per HEADERS or CONTINUATION; 0 = frame size */
	bool priority;     /* HEADERS with the priority fields */
};

void h2_send_preface(struct h2end *h); /* client only */
/* The settings that differ from what was told last; all of them the first time. */
void h2_send_settings(struct h2end *h, const struct h2settings *s);
void h2_send_ack(struct h2end *h);
void h2_send_head(struct h2end *h, struct h2stream *s, const struct field *f, size_t n, bool end,
		  const struct h2_shape *shape);
void h2_send_data(struct h2end *h, struct h2stream *s, const uint8_t *p, size_t n, bool end,
		  uint8_t pad);
void h2_send_update(struct h2end *h, struct h2stream *s, uint32_t inc); /* s NULL: connection */
void h2_send_rst(struct h2end *h, struct h2stream *s, uint32_t code);
void h2_send_ping(struct h2end *h, const uint8_t data[8]);
void h2_send_goaway(struct h2end *h, uint32_t last, uint32_t code, const char *debug);
/* Any frame, legal or not; books are not kept. */
void h2_send_raw(struct h2end *h, uint8_t type, uint8_t flags, uint32_t stream, const void *p,
		 size_t n);

#endif
