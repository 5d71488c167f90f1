/* SPDX-License-Identifier: Apache-2.0 */
#include "session/outq.h"

#include "h2/frame.h"

#define FLUSH_IOV 32

void outq_init(struct outq *q)
{
	memset(q, 0, sizeof(*q));
	list_init(&q->bulk);
}

void outq_free(struct outq *q, struct chunk_pool *pool)
{
	chunk_put_all(pool, &q->bulk);
	chunk_put(pool, q->ctrl);
	outq_init(q);
}

/*
 * Makes room behind what waits: its written part is given up, or a larger chunk is
 * taken. One byte of the written part stays: start > 0 says that a frame has been begun.
 */
static bool ctrl_room(struct outq *q, struct chunk_pool *pool, uint32_t len)
{
	struct chunk *c = q->ctrl;
	uint32_t waits = chunk_len(c), start = c->start ? 1 : 0;

	if (c->cap < start + waits + len) {
		c = chunk_get(pool, start + OUTQ_CTRL_MAX);
		if (!c)
			return false;
	}
	memmove(c->data + start, q->ctrl->data + q->ctrl->start, waits);
	c->start = start;
	c->end = start + waits;
	if (c != q->ctrl)
		chunk_put(pool, q->ctrl);
	q->ctrl = c;
	return true;
}

uint8_t *outq_ctrl(struct outq *q, struct chunk_pool *pool, uint32_t len)
{
	uint8_t *p;

	if (!q->ctrl) {
		q->ctrl = chunk_get(pool, CHUNK_SMALL);
		if (!q->ctrl)
			return NULL;
	}
	if (chunk_len(q->ctrl) + len > OUTQ_CTRL_MAX)
		return NULL;
	if (chunk_room(q->ctrl) < len && !ctrl_room(q, pool, len))
		return NULL;
	p = q->ctrl->data + q->ctrl->end;
	q->ctrl->end += len;
	return p;
}

static void ctrl_consume(struct outq *q, struct chunk_pool *pool, size_t n)
{
	q->ctrl->start += (uint32_t)n;
	assert(q->ctrl->start <= q->ctrl->end);
	if (q->ctrl->start == q->ctrl->end) {
		chunk_put(pool, q->ctrl);
		q->ctrl = NULL;
	}
}

/* Takes n written bytes off the front of bulk; returns the DATA payload of frames that ended. */
static uint64_t bulk_consume(struct outq *q, struct chunk_pool *pool, size_t n)
{
	uint64_t done = 0;

	q->bulk_bytes -= n;
	while (n) {
		struct chunk *c = list_first(&q->bulk, struct chunk, link);
		uint32_t k;

		if (!q->frame_left) {
			struct h2_frame f = h2_frame_get(c->data + c->start);

			q->frame_left = H2_HEADER_LEN + f.length;
			q->frame_data = f.type == H2_DATA ? f.length : 0;
			assert(q->frame_left <= chunk_len(c));
		}
		k = (uint32_t)min_u64(min_u64(q->frame_left, n), chunk_len(c));
		c->start += k;
		q->frame_left -= k;
		n -= k;
		if (!q->frame_left)
			done += q->frame_data;
		if (c->start == c->end) {
			list_del(&c->link);
			chunk_put(pool, c);
		}
	}
	q->data -= done;
	return done;
}

ssize_t outq_send(struct outq *q, struct port *port, struct chunk_pool *pool,
		  const struct iovec *pieces, int n)
{
	struct iovec iov[OUTQ_PIECES_MAX + 1];
	size_t ctrl = q->ctrl ? chunk_len(q->ctrl) : 0;
	ssize_t k;

	assert(list_empty(&q->bulk) && !q->frame_left && n <= OUTQ_PIECES_MAX);
	if (!ctrl) {
		k = port->ops->sendv(port, pieces, n);
		return k == -EAGAIN ? 0 : k;
	}
	iov[0] = (struct iovec){ q->ctrl->data + q->ctrl->start, ctrl };
	memcpy(iov + 1, pieces, (size_t)n * sizeof(*pieces));
	k = port->ops->sendv(port, iov, n + 1);
	if (k < 0)
		return k == -EAGAIN ? 0 : k;
	ctrl_consume(q, pool, min_u64((uint64_t)k, ctrl));
	return (size_t)k > ctrl ? k - (ssize_t)ctrl : 0;
}

uint64_t outq_queue_chunk(struct outq *q, struct chunk_pool *pool, struct chunk *c,
			  const struct iovec *pieces, int n, size_t sent, uint64_t data)
{
	uint8_t *dst = (uint8_t *)pieces[0].iov_base + pieces[0].iov_len;

	for (int i = 1; i < n; i++) {
		if (dst != pieces[i].iov_base)
			memmove(dst, pieces[i].iov_base, pieces[i].iov_len);
		dst += pieces[i].iov_len;
	}
	c->start = (uint32_t)((uint8_t *)pieces[0].iov_base - c->data);
	c->end = (uint32_t)(dst - c->data);
	list_add_tail(&q->bulk, &c->link);
	q->bulk_bytes += chunk_len(c);
	q->data += data;
	return bulk_consume(q, pool, sent);
}

/* Appends len bytes, a whole frame, to the last chunk or to a new one. */
static int append_frame(struct outq *q, struct chunk_pool *pool, const uint8_t *p, uint32_t len)
{
	struct chunk *c = NULL;

	if (!list_empty(&q->bulk))
		c = list_entry(q->bulk.prev, struct chunk, link);
	if (!c || chunk_room(c) < len) {
		c = chunk_get(pool, len);
		if (!c)
			return -ENOMEM;
		list_add_tail(&q->bulk, &c->link);
	}
	memcpy(c->data + c->end, p, len);
	c->end += len;
	q->bulk_bytes += len;
	return 0;
}

int outq_queue_copy(struct outq *q, struct chunk_pool *pool, const struct iovec *pieces, int n,
		    size_t sent, uint64_t data, uint64_t *ret_sent_data)
{
	for (int i = 0; i < n; i++) {
		const uint8_t *p = pieces[i].iov_base, *end = p + pieces[i].iov_len;

		while (p < end) {
			uint32_t len = H2_HEADER_LEN + get_be24(p);
			int r = append_frame(q, pool, p, len);

			/* The connection ends on -ENOMEM: what was appended goes with it. */
			if (r)
				return r;
			p += len;
		}
	}
	q->data += data;
	*ret_sent_data = bulk_consume(q, pool, sent);
	return 0;
}

int outq_raw(struct outq *q, struct port *port, struct chunk_pool *pool, const uint8_t *p,
	     uint32_t len)
{
	struct iovec iov = { (void *)(uintptr_t)p, len };
	ssize_t n = 0;

	assert(len <= q->frame_left && !(q->ctrl && q->ctrl->start));
	if (list_empty(&q->bulk)) {
		n = port->ops->sendv(port, &iov, 1);
		if (n < 0 && n != -EAGAIN)
			return (int)n;
		n = n < 0 ? 0 : n;
		q->frame_left -= (uint32_t)n;
		if ((uint32_t)n == len)
			return 0;
	}
	return append_frame(q, pool, p + n, len - (uint32_t)n) ? -ENOMEM : -EAGAIN;
}

/*
 * The order of a flush: control frames at the next frame boundary, which is at the
 * front unless a frame has been begun; a control frame that has been begun itself
 * goes first. *ret_before: bytes of bulk that go before the control frames.
 */
static int gather(const struct outq *q, struct iovec *iov, int max, size_t *ret_before,
		  size_t *ret_ctrl)
{
	size_t ctrl = q->ctrl ? chunk_len(q->ctrl) : 0;
	size_t before = q->ctrl && q->ctrl->start ? 0 : q->frame_left, bulk = 0;
	struct list *pos;
	int n = 0;

	/* The rest of the open frame is not all here: control frames wait. */
	if (before > q->bulk_bytes)
		ctrl = 0;
	if (ctrl && !before)
		iov[n++] = (struct iovec){ q->ctrl->data + q->ctrl->start, ctrl };
	for (pos = q->bulk.next; pos != &q->bulk && n + 3 <= max; pos = pos->next) {
		struct chunk *c = list_entry(pos, struct chunk, link);
		uint8_t *p = c->data + c->start;
		size_t len = chunk_len(c);

		if (ctrl && before > bulk && before <= bulk + len) {
			iov[n++] = (struct iovec){ p, before - bulk };
			iov[n++] = (struct iovec){ q->ctrl->data + q->ctrl->start, ctrl };
			p += before - bulk;
			len -= before - bulk;
			bulk = before;
		}
		if (len)
			iov[n++] = (struct iovec){ p, len };
		bulk += len;
	}
	*ret_before = before;
	*ret_ctrl = bulk >= before ? ctrl : 0;
	return n;
}

/* Takes k written bytes off both lanes, in the order that gather() gave them. */
static uint64_t consume(struct outq *q, struct chunk_pool *pool, size_t before, size_t ctrl,
			size_t k)
{
	size_t n = ctrl ? min_u64(k, before) : k;
	uint64_t data = bulk_consume(q, pool, n);

	k -= n;
	n = min_u64(k, ctrl);
	if (n)
		ctrl_consume(q, pool, n);
	return data + bulk_consume(q, pool, k - n);
}

int outq_flush(struct outq *q, struct port *port, struct chunk_pool *pool, uint64_t *ret_data)
{
	uint64_t data = 0;
	int r = 0;

	while (!outq_empty(q)) {
		struct iovec iov[FLUSH_IOV];
		size_t before, ctrl, total = 0;
		int n = gather(q, iov, FLUSH_IOV, &before, &ctrl);
		ssize_t k;

		if (!n)
			break; /* control frames that wait for a boundary */
		for (int i = 0; i < n; i++)
			total += iov[i].iov_len;
		k = port->ops->sendv(port, iov, n);
		if (k < 0) {
			r = (int)k;
			break;
		}
		data += consume(q, pool, before, ctrl, (size_t)k);
		if ((size_t)k < total) {
			/* A short write: the socket is full, the next try would say so. */
			r = -EAGAIN;
			break;
		}
	}
	*ret_data = data;
	return r;
}
