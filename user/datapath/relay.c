/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.c - result bytes from an executor to its client, in userspace.
 *
 * One large recv() into the upstream's chunk, one walk over the frame headers in
 * place, one sendmsg() of everything that may go to the client. No copy and no
 * allocation per frame: consecutive frames that are forwarded form one piece,
 * and pieces are cut only where a frame ends here (control frames, data that has
 * to be held). Only whole frames leave: an executor that dies in the middle of one
 * cannot leave the client's connection unusable.
 *
 * When the client's socket is full, the chunk is handed to its queue as it is and
 * the upstream is paused, its next bytes waiting in the kernel. Frames that the
 * client's windows do not allow yet are copied to the stream's hold queue
 * (session/ledger.h tells why there are any).
 *
 * An executor's header blocks are checked before they are sent. As we announced
 * HEADER_TABLE_SIZE=0 a block normally has nothing to do with any dynamic table
 * and goes out verbatim; the very first block of a client's connection is given a
 * table size update in front, for which one byte of room before it is enough. What
 * does not comply is decoded and written anew.
 */
#include "datapath/relay.h"

#include <stdio.h>
#include <stdlib.h>

#include "session/response.h"
#include "session/state.h"

#define HEADROOM 16u /* before the first byte received, see forward_block() */
/*
 * A whole number of frames of the usual size: a full receive ends between two frames
 * and leaves nothing to be moved to the front.
 */
#define RECV_SPAN (17u * (H2_HEADER_LEN + H2_DEFAULT_FRAME_SIZE))
#define ROUNDS 4 /* recv() calls per wake-up: other connections wait, too */

/* One walk over what an upstream has received. */
struct walk {
	struct upstream *u;
	struct client *c; /* NULL on an idle upstream */
	struct chunk *chunk;
	struct iovec piece[OUTQ_PIECES_MAX];
	int n;
	uint64_t data;        /* DATA payload in the pieces */
	struct list finished; /* streams that end with the pieces, by stream->wait */
	bool held;            /* something went to a hold queue */
};

static char *executor_name(const struct upstream *u, char *buf, size_t cap)
{
	snprintf(buf, cap, "executor %s:%u", u->executor->host, u->executor->port);
	return buf;
}

#define EXECUTOR(u) executor_name((u), (char[TICKET_HOST_MAX + 20]){ 0 }, TICKET_HOST_MAX + 20)

/* The upstream ends at the next flush: there are pointers to it here. */
static void out_of_memory(struct walk *w)
{
	w->u->broken = ENOMEM;
	upstream_kick(w->u);
}

/* Data that is still in the chunk moves to a new one: the old one is the client's now. */
static bool replace_chunk(struct walk *w, struct chunk *taken, uint32_t from, uint32_t to)
{
	struct chunk *c = chunk_get(&w->u->session->pool, CHUNK_BIG);

	w->chunk = w->u->rx = c;
	if (!c)
		return false;
	c->start = HEADROOM;
	c->end = HEADROOM + (to - from);
	memcpy(c->data + HEADROOM, taken->data + from, to - from);
	return true;
}

/* Streams whose trailers have been handed over (written) or wait behind held data. */
static void finish(struct walk *w, bool written)
{
	while (!list_empty(&w->finished)) {
		struct stream *s = list_first(&w->finished, struct stream, wait);

		list_del(&s->wait);
		if (!written)
			continue; /* the client is dead: it takes the stream with it */
		if (list_empty(&s->hold)) {
			stream_finished(s);
			continue;
		}
		stream_set_state(s, STREAM_ENDING);
		stream_detach(s, s->request_ended ? H2_NO_ERROR : H2_CANCEL);
		stream_release(s);
	}
}

/* Sends the pieces gathered so far. The walk goes on at chunk->start. */
static bool flush(struct walk *w)
{
	struct chunk *owner = w->chunk;
	uint32_t from, to;
	bool ok = true;

	if (w->n) {
		from = w->chunk->start;
		to = w->chunk->end;
		ok = client_write(w->c, w->piece, w->n, w->data, &owner);
		w->n = 0;
		w->data = 0;
		if (!owner) {
			struct chunk *taken = list_entry(w->c->out.bulk.prev, struct chunk, link);

			if (!replace_chunk(w, taken, from, to)) {
				out_of_memory(w);
				ok = false;
			}
		}
	}
	finish(w, ok);
	return ok;
}

/* Adds len bytes at p to what is sent; joins them with the piece before. */
static void forward(struct walk *w, uint8_t *p, size_t len)
{
	struct iovec *last = w->n ? &w->piece[w->n - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == p) {
		last->iov_len += len;
		return;
	}
	assert(w->n < OUTQ_PIECES_MAX);
	w->piece[w->n++] = (struct iovec){ p, len };
}

static struct stream *find(const struct walk *w, uint32_t id)
{
	struct stream *s;

	if (!w->c || id <= w->u->delta)
		return NULL;
	s = stream_find(w->c, id - w->u->delta);
	return s && s->up == w->u && !s->response_ended ? s : NULL;
}

/* The executor broke the protocol: its connection ends. */
static void violation(struct walk *w, uint32_t h2_error, const char *what)
{
	flush(w);
	upstream_fail(w->u, GRPC_UNKNOWN, END_EXECUTOR, h2_error, "%s: protocol error: %s",
		      EXECUTOR(w->u), what);
}

/* ---------------------------------------------------------------------- DATA */

/* Behind the client's windows: a copy, without padding. */
static bool hold_data(struct walk *w, struct stream *s, const struct h2_frame *f, uint8_t *p)
{
	const uint8_t *content;
	uint32_t len, unused;
	uint8_t *frame;

	(void)h2_payload(f, p + H2_HEADER_LEN, &content, &len, &unused);
	if (len < f->length)
		stream_drop(s, f->length - len, DROP_PADDING);
	if (!len)
		return true;
	frame = p + (content - p) - H2_HEADER_LEN;
	h2_frame_put(frame, len, H2_DATA, 0, s->id);
	if (stream_hold(s, frame, H2_HEADER_LEN + len, len)) {
		stream_drop(s, len, DROP_STREAM_CLOSED);
		out_of_memory(w);
		return false;
	}
	w->held = true;
	return true;
}

/* END_STREAM on DATA: no trailers will come, so the result must not look complete. */
static void ended_on_data(struct walk *w, struct stream *s)
{
	if (!flush(w))
		return;
	/* The executor's half has ended; ours may not have. */
	stream_detach(s, s->request_ended ? H2_NO_ERROR : H2_CANCEL);
	answer_status(s, GRPC_UNKNOWN, END_EXECUTOR, "%s ended the stream without trailers",
		      EXECUTOR(w->u));
}

/* DATA that no stream waits for. It may have crossed our reset, within the credit of then. */
static void stray_data(struct walk *w, const struct h2_frame *f)
{
	struct upstream *u = w->u;
	bool idle = f->stream > u->last_id, late = !idle && f->length <= u->owed;

	STAT_ADD(u->session, dropped[late ? DROP_STREAM_CLOSED : DROP_VIOLATION], f->length);
	if (!late)
		violation(w, idle ? H2_PROTOCOL_ERROR : H2_STREAM_CLOSED,
			  idle ? "DATA on an idle stream" : "DATA on a closed stream");
	else if (f->length)
		u->owed -= f->length;
	else
		(void)upstream_charge(u, BUDGET_EXECUTOR_EMPTY_DATA, 1);
}

static void on_data(struct walk *w, const struct h2_frame *f, uint8_t *p)
{
	struct session *ss = w->u->session;
	struct stream *s = find(w, f->stream);
	const uint8_t *content;
	uint32_t len, unused, size = f->length;

	upstream_received(w->u, size);
	STAT_ADD(ss, data_in, size);
	if (!s) {
		stray_data(w, f);
		return;
	}
	if (size > s->granted || s->state != STREAM_HEAD ||
	    (f->flags & H2_FLAG_PADDED &&
	     h2_payload(f, p + H2_HEADER_LEN, &content, &len, &unused))) {
		stream_drop(s, size, DROP_VIOLATION);
		violation(w, size > s->granted ? H2_FLOW_CONTROL_ERROR : H2_PROTOCOL_ERROR,
			  size > s->granted         ? "DATA beyond the window"
			  : s->state != STREAM_HEAD ? "DATA before HEADERS"
						    : "bad padding");
		return;
	}
	stream_account(s, -(int64_t)size, 0);
	s->data_in += size;
	s->rx_ns = ss->now;
	if (!size) {
		/* Says nothing, unless it ends the stream; is not free all the same. */
		if (!(f->flags & H2_FLAG_END_STREAM) &&
		    !upstream_charge(w->u, BUDGET_EXECUTOR_EMPTY_DATA, 1))
			return;
	} else if (list_empty(&s->hold) && s->window >= size && w->c->window >= size &&
		   !spliced_must_wait(s)) {
		s->window -= size;
		w->c->window -= size;
		s->data_out += size;
		s->progress_ns = ss->now;
		p[4] &= (uint8_t)~H2_FLAG_END_STREAM;
		put_be32(p + 5, s->id);
		w->data += size;
		forward(w, p, H2_HEADER_LEN + size);
	} else if (!hold_data(w, s, f, p)) {
		return;
	}
	if (f->flags & H2_FLAG_END_STREAM)
		ended_on_data(w, s);
}

/* ------------------------------------------------------------------- HEADERS */

/* HEADERS and its CONTINUATIONs, all of them in the chunk. */
struct block {
	uint8_t *first; /* HEADERS frame header */
	uint32_t size;  /* bytes of all its frames */
	uint32_t frames;
	uint8_t flags;    /* of HEADERS */
	uint8_t *content; /* contiguous block */
	uint32_t len;
	struct chunk *copy;   /* holds content when there are CONTINUATIONs */
	struct response says; /* decoded */
	struct hpack_scan scan;
	uint8_t *again; /* written anew, when it does not comply */
	size_t again_len;
};

static int block_field(void *arg, const struct hpack_field *f)
{
	struct block *b = arg;
	int r = response_field(&b->says, f);

	if (!r && b->again)
		r = hpack_encode(b->again, UPSTREAM_HEADER_LIST_MAX, &b->again_len, f);
	return r;
}

/*
 * Gathers the block that begins at p. 1: whole; 0: more bytes are needed; -1: the
 * executor broke a rule (*ret_error, *ret_what).
 */
static int block_gather(struct walk *w, uint8_t *p, uint8_t *end, struct block *b,
			uint32_t *ret_error, const char **ret_what)
{
	struct h2_frame f = h2_frame_get(p);
	uint8_t *q = p;
	const uint8_t *content;
	uint32_t len, unused;

	*b = (struct block){ .first = p, .flags = f.flags, .says = RESPONSE_NONE };
	for (;;) {
		q += H2_HEADER_LEN + f.length;
		b->frames++;
		if (q - p > UPSTREAM_HEADER_BLOCK_MAX || b->frames > UPSTREAM_CONTINUATION_MAX) {
			enum budget_id id = b->frames > UPSTREAM_CONTINUATION_MAX
						    ? BUDGET_EXECUTOR_HEADER_FRAMES
						    : BUDGET_EXECUTOR_HEADER_BYTES;

			/* Its upstream ends with this answer: counted once. */
			session_exhausted(w->u->session, id);
			*ret_error = H2_ENHANCE_YOUR_CALM;
			*ret_what = id == BUDGET_EXECUTOR_HEADER_FRAMES
					    ? "budget executor_header_frames exhausted"
					    : "budget executor_header_bytes exhausted";
			return -1;
		}
		if (q > end)
			return 0;
		if (f.flags & H2_FLAG_END_HEADERS)
			break;
		if (end - q < H2_HEADER_LEN)
			return 0;
		f = h2_frame_get(q);
		if (f.type != H2_CONTINUATION || f.stream != h2_frame_get(p).stream) {
			*ret_error = H2_PROTOCOL_ERROR;
			*ret_what = "header block without its end";
			return -1;
		}
		if (f.length > H2_DEFAULT_FRAME_SIZE) {
			*ret_error = H2_FRAME_SIZE_ERROR;
			*ret_what = "CONTINUATION";
			return -1;
		}
	}
	b->size = (uint32_t)(q - p);
	f = h2_frame_get(p);
	*ret_error = h2_payload(&f, p + H2_HEADER_LEN, &content, &len, &unused);
	*ret_what = "HEADERS with bad padding";
	if (*ret_error)
		return -1;
	b->content = (uint8_t *)(uintptr_t)content;
	b->len = len;
	if (b->frames == 1)
		return 1;
	b->copy = chunk_get(&w->u->session->pool, UPSTREAM_HEADER_BLOCK_MAX);
	*ret_error = H2_INTERNAL_ERROR;
	*ret_what = "out of memory";
	if (!b->copy)
		return -1;
	memcpy(b->copy->data, content, len);
	for (q = p + H2_HEADER_LEN + f.length; q < p + b->size; q += H2_HEADER_LEN + f.length) {
		f = h2_frame_get(q);
		memcpy(b->copy->data + b->len, q + H2_HEADER_LEN, f.length);
		b->len += f.length;
	}
	b->content = b->copy->data;
	return 1;
}

static void block_free(struct walk *w, struct block *b)
{
	chunk_put(&w->u->session->pool, b->copy);
	if (b->again)
		free(b->again);
}

/* Decodes; prepares the rewritten form when the block may not cross as it is. */
static int block_decode(struct walk *w, struct block *b)
{
	int r = hpack_scan(b->content, b->len, &b->scan);

	if (r)
		return r;
	if (b->scan.dynamic_ref || b->scan.size_update_more) {
		b->again = malloc(UPSTREAM_HEADER_LIST_MAX);
		if (!b->again)
			return -ENOMEM;
		b->again[0] = 0x20;
		b->again_len = 1;
	}
	return hpack_decode(w->u->hpack, b->content, b->len, UPSTREAM_HEADER_LIST_MAX, block_field,
			    b);
}

/* Writes len bytes of block as HEADERS + CONTINUATIONs at p; returns the bytes used. */
static uint32_t put_block(uint8_t *p, const uint8_t *block, size_t len, uint8_t flags, uint32_t id)
{
	uint8_t *q = p;
	uint8_t type = H2_HEADERS;

	do {
		uint32_t n = (uint32_t)min_u64(len, H2_DEFAULT_FRAME_SIZE);

		len -= n;
		h2_frame_put(q, n, type,
			     (type == H2_HEADERS ? flags & H2_FLAG_END_STREAM : 0) |
				     (len ? 0 : H2_FLAG_END_HEADERS),
			     id);
		memmove(q + H2_HEADER_LEN, block, n);
		q += H2_HEADER_LEN + n;
		block += n;
		type = H2_CONTINUATION;
	} while (len);
	return (uint32_t)(q - p);
}

/* The frames of the block, to the client or behind the stream's held data. */
static bool send_frames(struct walk *w, struct stream *s, uint8_t *p, uint32_t size, bool in_place)
{
	struct iovec piece = { p, size };

	if (!list_empty(&s->hold)) {
		w->held = true;
		if (!stream_hold(s, p, size, 0))
			return true;
		out_of_memory(w);
		return false;
	}
	if (!in_place)
		return flush(w) && client_write(w->c, &piece, 1, 0, NULL);
	forward(w, p, size);
	return true;
}

static bool forward_block(struct walk *w, struct stream *s, struct block *b)
{
	bool reset = !w->c->table_reset_sent && !b->scan.size_update_zero;
	uint8_t flags = b->flags & H2_FLAG_END_STREAM;
	uint8_t *buf, *p;
	uint32_t size;
	bool ok;

	w->c->table_reset_sent = true;
	if (!b->again && b->frames == 1 && b->len + reset <= H2_DEFAULT_FRAME_SIZE) {
		/* The byte before it is free: walk_frames() has sent what was there. */
		assert(!reset || !w->n);
		p = b->content - H2_HEADER_LEN - reset;
		h2_frame_put(p, b->len + reset, H2_HEADERS, flags | H2_FLAG_END_HEADERS, s->id);
		if (reset)
			p[H2_HEADER_LEN] = 0x20;
		return send_frames(w, s, p, H2_HEADER_LEN + b->len + reset, true);
	}
	/* Rare: several frames, or a block that does not comply. */
	buf = malloc((size_t)2 * UPSTREAM_HEADER_LIST_MAX);
	if (!buf) {
		out_of_memory(w);
		return false;
	}
	p = buf + UPSTREAM_HEADER_LIST_MAX;
	if (b->again) {
		size = put_block(buf, b->again, b->again_len, flags, s->id);
	} else {
		p[0] = 0x20;
		memcpy(p + 1, b->content, b->len);
		size = put_block(buf, p + !reset, b->len + reset, flags, s->id);
	}
	ok = send_frames(w, s, buf, size, false);
	free(buf);
	return ok;
}

/* A message that must not be forwarded: the stream ends, its siblings go on (RFC 9113 8.1.1). */
static void malformed(struct walk *w, struct stream *s, const char *what)
{
	if (!flush(w))
		return;
	stream_detach(s, H2_PROTOCOL_ERROR);
	answer_status(s, GRPC_UNKNOWN, END_EXECUTOR, "%s: protocol error: %s", EXECUTOR(w->u),
		      what);
}

static void on_block(struct walk *w, struct stream *s, struct block *b)
{
	bool end = b->flags & H2_FLAG_END_STREAM;
	bool head = s->state == STREAM_SENT;
	const char *what = response_malformed(&b->says, head, end);

	s->rx_ns = s->progress_ns = w->u->session->now;
	if (what) {
		malformed(w, s, what);
		return;
	}
	if (response_informational(&b->says)) {
		if (upstream_charge(w->u, BUDGET_EXECUTOR_CONTROL, 1))
			forward_block(w, s, b); /* the head is still to come */
		return;
	}
	if (end && b->says.grpc_status < 0 && (!head || b->says.status == 200)) {
		/* Some clients would take it for success. */
		if (!flush(w))
			return;
		stream_detach(s, s->request_ended ? H2_NO_ERROR : H2_CANCEL);
		answer_status(s, GRPC_UNKNOWN, END_EXECUTOR,
			      "%s ended the response without grpc-status", EXECUTOR(w->u));
		return;
	}
	if (!forward_block(w, s, b))
		return;
	if (head)
		stream_set_state(s, STREAM_HEAD);
	if (end) {
		s->grpc_status = b->says.grpc_status;
		if (b->says.grpc_status)
			stream_reason(s, "executor: grpc-status %d", b->says.grpc_status);
		s->response_ended = true;
		list_add_tail(&w->finished, &s->wait); /* ends when the pieces have been sent */
	}
}

/*
 * Returns the bytes of the block at p, 0 when it is not whole yet. The client may
 * see it only after it has been decoded.
 */
static uint32_t on_headers(struct walk *w, uint8_t *p, uint8_t *end)
{
	struct h2_frame f = h2_frame_get(p);
	struct stream *s;
	struct block b;
	uint32_t error, size;
	const char *what;
	int r;

	r = block_gather(w, p, end, &b, &error, &what);
	upstream_block_waits(w->u, !r);
	if (r <= 0) {
		if (r < 0)
			violation(w, error, what);
		return 0;
	}
	size = b.size;
	r = block_decode(w, &b);
	s = find(w, f.stream);
	if (r == -ENOMEM)
		out_of_memory(w);
	else if (r == -EBADMSG)
		violation(w, H2_COMPRESSION_ERROR, "header block does not decode");
	else if (f.stream > w->u->last_id)
		violation(w, H2_PROTOCOL_ERROR, "HEADERS on an idle stream");
	else if (!s)
		(void)upstream_charge(w->u, BUDGET_EXECUTOR_CONTROL,
				      1); /* crossed our reset, or is nobody's */
	else if (r)
		malformed(w, s, r == -EPROTO ? "illegal field" : "header list too large");
	else
		on_block(w, s, &b);
	block_free(w, &b);
	return size;
}

/* ----------------------------------------------------------------------- walk */

/* Whether the frame can make us write to the client, behind what it got so far. */
static bool speaks(const struct h2_frame *f)
{
	return f->type == H2_RST_STREAM || f->type == H2_GOAWAY || f->type == H2_SETTINGS ||
	       f->type == H2_WINDOW_UPDATE;
}

/* Walks the whole frames of the chunk; an incomplete one stays at chunk->start. */
static void walk_frames(struct walk *w)
{
	if (w->u->raw_left && !spliced_raw(w->u))
		return;
	while (w->u->state != UPSTREAM_CLOSED && !w->u->broken && w->chunk &&
	       chunk_len(w->chunk) >= H2_HEADER_LEN) {
		uint8_t *p = w->chunk->data + w->chunk->start;
		uint8_t *end = w->chunk->data + w->chunk->end;
		struct h2_frame f = h2_frame_get(p);
		bool on_stream = false;
		uint32_t size = H2_HEADER_LEN + f.length;
		uint32_t err =
			h2_frame_check(&f, H2_FROM_SERVER, H2_DEFAULT_FRAME_SIZE, &on_stream);

		if (err || f.type == H2_CONTINUATION ||
		    (w->u->state == UPSTREAM_HANDSHAKE && f.type != H2_SETTINGS)) {
			violation(w, err ? err : H2_PROTOCOL_ERROR, h2_type_name(f.type));
			return;
		}
		if (chunk_len(w->chunk) < size) {
			upstream_block_waits(w->u, f.type == H2_HEADERS);
			return;
		}
		/* Room for one more piece, or the chance to write in front of a block. */
		if ((w->n == OUTQ_PIECES_MAX || speaks(&f) ||
		     (f.type == H2_HEADERS && w->c && !w->c->table_reset_sent)) &&
		    w->n) {
			if (!flush(w))
				return;
			continue; /* the chunk may be another one now */
		}
		if (f.type == H2_HEADERS) {
			size = on_headers(w, p, end);
			if (!size || !w->chunk)
				return;
		} else {
			w->chunk->start += size;
			if (f.type == H2_DATA)
				on_data(w, &f, p);
			else
				upstream_control(w->u, &f, p + H2_HEADER_LEN);
			continue;
		}
		w->chunk->start += size;
	}
}

/* After the pieces: held data, credit. */
static void settle(struct walk *w)
{
	struct list *pos, *tmp;

	if (w->u->state == UPSTREAM_CLOSED)
		return;
	list_for_each_safe (pos, tmp, &w->u->streams) {
		struct stream *s = list_entry(pos, struct stream, on_up);

		if (w->held && !list_empty(&s->hold))
			stream_release(s);
		else
			stream_grant(s);
	}
}

static bool walk(struct upstream *u)
{
	struct walk w = { .u = u, .c = u->route ? u->route->client : NULL, .chunk = u->rx };

	list_init(&w.finished);
	walk_frames(&w);
	flush(&w);
	settle(&w);
	if (u->splice)
		spliced_settle(u);
	else
		spliced_consider(u);
	return u->state != UPSTREAM_CLOSED && !u->broken;
}

/* The socket ended. r: 0 for FIN, else -errno. */
static void gone(struct upstream *u, ssize_t r)
{
	if (u->splice && (r == -EIO || r == -EDQUOT)) {
		/* The kernel dropped bytes: what the client has got so far is not to be continued. */
		client_note(u->route->client,
			    r == -EIO ? "kernel datapath failed" : "executor ignores flow control",
			    0);
		u->route->client->broken = EIO;
		client_dirty(u->route->client);
	}
	upstream_fail(u, GRPC_UNKNOWN, END_EXECUTOR, H2_NO_ERROR,
		      r ? "%s: connection lost: %s" : "%s closed the connection%s", EXECUTOR(u),
		      r ? strerror((int)-r) : "");
}

/* The chunk to receive into, what is left of the last frame at its front. */
static struct chunk *rx_chunk(struct upstream *u)
{
	struct chunk *c = u->rx;
	uint32_t len;

	if (!c) {
		c = u->rx = chunk_get(&u->session->pool, CHUNK_BIG);
		if (!c) {
			upstream_fail(u, GRPC_RESOURCE_EXHAUSTED, END_PROXY, H2_INTERNAL_ERROR,
				      "out of memory");
			return NULL;
		}
		c->start = c->end = HEADROOM;
	} else if (c->start > HEADROOM) {
		len = chunk_len(c);
		memmove(c->data + HEADROOM, c->data + c->start, len);
		c->start = HEADROOM;
		c->end = HEADROOM + len;
	}
	return c;
}

static bool must_pause(const struct upstream *u)
{
	const struct client *c = u->route ? u->route->client : NULL;

	return c && c->blocked && !c->slow;
}

static void pause(struct upstream *u)
{
	if (list_empty(&u->pause))
		list_add_tail(&u->route->client->paused, &u->pause);
	upstream_block_waits(u, false); /* it may come, and nobody looks */
	upstream_want(u);
}

static void relay_readable(struct upstream *u)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct chunk *c;
		uint32_t room;
		ssize_t n;

		if (must_pause(u)) {
			pause(u);
			return;
		}
		c = rx_chunk(u);
		if (!c)
			return;
		room = chunk_len(c) < RECV_SPAN ? RECV_SPAN - chunk_len(c) : chunk_room(c);
		n = spliced_receive(u, c->data + c->end, room);
		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			gone(u, n);
			return;
		}
		c->end += (uint32_t)n;
		u->rx_ns = u->session->now;
		if (!walk(u))
			return;
		if ((uint32_t)n < room)
			break;
	}
	if (u->rx && !chunk_len(u->rx)) {
		chunk_put(&u->session->pool, u->rx);
		u->rx = NULL;
	}
	if (must_pause(u))
		pause(u);
	else
		upstream_want(u);
}

const struct datapath datapath_relay = {
	.name = "relay",
	.readable = relay_readable,
};
