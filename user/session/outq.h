/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outq.h - what waits to be written to a client's socket.
 *
 * Two lanes. `bulk` is a list of chunks that hold whole frames of streams in
 * their order. `ctrl` is a small buffer of control frames (SETTINGS, PING ACK,
 * GOAWAY, WINDOW_UPDATE, RST_STREAM of finished streams), which overtakes bulk
 * at the next frame boundary: a PING is answered at once even with megabytes
 * queued. RFC 9113 allows it, control frames are not ordered with other
 * streams' frames.
 *
 * In the common case nothing waits: the relay calls outq_send() with pieces of
 * its receive buffer and all of them are written. Only after a short write is
 * the buffer handed over (outq_queue_chunk) or copied (outq_queue_copy), and
 * only then are frame headers walked again, to know where the next boundary is
 * and how many DATA bytes have really left.
 */
#ifndef FS_OUTQ_H
#define FS_OUTQ_H

#include "session/budget.h"
#include "session/chunk.h"
#include "session/env.h"

/*
 * frame_left may be set while bulk is empty: the kernel has forwarded the header
 * of a frame whose rest is still to come (session/splice.c). Its rest is sent or
 * queued with outq_raw(); until then control frames wait.
 */
#define OUTQ_PIECES_MAX 64

struct outq {
	struct list bulk;
	uint64_t bulk_bytes;
	uint64_t data;       /* DATA payload of frames not yet written whole */
	uint32_t frame_left; /* bytes to the next frame boundary of bulk */
	uint32_t frame_data; /* DATA payload of the frame begun, 0 if it is none */
	struct chunk *ctrl;
};

void outq_init(struct outq *q);
void outq_free(struct outq *q, struct chunk_pool *pool);

static inline bool outq_empty(const struct outq *q)
{
	return list_empty(&q->bulk) && !q->ctrl;
}

static inline bool outq_bulk_empty(const struct outq *q)
{
	return list_empty(&q->bulk);
}

/*
 * Room for len bytes of control frames; the caller fills them. NULL when more
 * than OUTQ_CTRL_MAX bytes would wait (a peer that provokes and does not read)
 * or out of memory.
 */
uint8_t *outq_ctrl(struct outq *q, struct chunk_pool *pool, uint32_t len);

/*
 * Writes waiting control frames and then the pieces, whole frames that hold
 * `data` bytes of DATA payload. Bulk must be empty. Returns the bytes of the
 * pieces that were written (0 on EAGAIN; all of them = done, and *ret_data =
 * data), or -errno when the socket is dead. When short, the caller queues the
 * same pieces with `sent` = that number.
 */
ssize_t outq_send(struct outq *q, struct port *port, struct chunk_pool *pool,
		  const struct iovec *pieces, int n);

/*
 * Queues pieces of chunk c, taking c over; gaps between the pieces are closed.
 * `sent` bytes of them have been written already. Returns the DATA payload of
 * the frames among those that are complete.
 */
uint64_t outq_queue_chunk(struct outq *q, struct chunk_pool *pool, struct chunk *c,
			  const struct iovec *pieces, int n, size_t sent, uint64_t data);
/* The same by copying. -ENOMEM (nothing queued), or 0 with *ret_sent_data. */
int outq_queue_copy(struct outq *q, struct chunk_pool *pool, const struct iovec *pieces, int n,
		    size_t sent, uint64_t data, uint64_t *ret_sent_data);

/* The next `len` bytes of bulk, which is empty, are the rest of a frame begun elsewhere. */
static inline void outq_set_open(struct outq *q, uint32_t len)
{
	q->frame_left = len;
	q->frame_data = 0;
}

/*
 * Sends or queues len bytes (at most frame_left) of the open frame's rest; bulk
 * holds nothing but earlier ones. 0, -EAGAIN (all taken, some of it queued),
 * other -errno: dead.
 */
int outq_raw(struct outq *q, struct port *port, struct chunk_pool *pool, const uint8_t *p,
	     uint32_t len);

/*
 * Writes what waits. 0: all of it; -EAGAIN: the socket is full; other -errno:
 * dead. *ret_data: DATA payload of frames completed by this call.
 */
int outq_flush(struct outq *q, struct port *port, struct chunk_pool *pool, uint64_t *ret_data);

#endif
