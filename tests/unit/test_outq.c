/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output queue against a socket that takes as little as it likes: every frame
 * arrives whole, bulk in its order, control frames between frames only, and DATA
 * bytes are counted when their frame has left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "h2/frame.h"
#include "session/outq.h"

struct sink {
	struct port port;
	size_t room; /* bytes that it takes before EAGAIN */
	uint8_t *got;
	size_t len, cap;
	int err; /* what sendv returns instead, when not 0 */
};

static ssize_t sink_sendv(struct port *p, const struct iovec *iov, int n)
{
	struct sink *s = container_of(p, struct sink, port);
	size_t taken = 0;

	if (s->err)
		return s->err;
	for (int i = 0; i < n && s->room; i++) {
		size_t k = min_u64(iov[i].iov_len, s->room);

		assert_true(iov[i].iov_len > 0);
		assert_true(s->len + k <= s->cap);
		memcpy(s->got + s->len, iov[i].iov_base, k);
		s->len += k;
		s->room -= k;
		taken += k;
	}
	return taken ? (ssize_t)taken : -EAGAIN;
}

static const struct port_ops sink_ops = { .sendv = sink_sendv };

static void sink_init(struct sink *s, size_t cap)
{
	*s = (struct sink){ .port.ops = &sink_ops, .cap = cap, .got = malloc(cap) };
	assert_non_null(s->got);
}

static uint32_t seed = 1;

static uint32_t rnd(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

/* A frame whose payload says which one it is. */
static uint32_t put_frame(uint8_t *p, uint8_t type, uint32_t len, uint32_t number)
{
	h2_frame_put(p, len, type, 0, type == H2_PING ? 0 : 1);
	for (uint32_t i = 0; i < len; i++)
		p[H2_HEADER_LEN + i] = (uint8_t)(number * 31 + i);
	if (len >= 4)
		put_be32(p + H2_HEADER_LEN, number);
	return H2_HEADER_LEN + len;
}

/* Walks what arrived; returns the number of bulk and control frames, in order each. */
static void check_frames(const struct sink *s, uint32_t *ret_bulk, uint32_t *ret_ctrl)
{
	uint32_t bulk = 0, ctrl = 0;
	size_t off = 0;

	while (s->len - off >= H2_HEADER_LEN) {
		struct h2_frame f = h2_frame_get(s->got + off);
		uint32_t *n = f.type == H2_PING ? &ctrl : &bulk;

		if (s->len - off < H2_HEADER_LEN + f.length)
			break;
		if (f.length >= 4)
			assert_int_equal(get_be32(s->got + off + H2_HEADER_LEN), *n);
		for (uint32_t i = 4; i < f.length; i++)
			assert_int_equal(s->got[off + H2_HEADER_LEN + i], (uint8_t)(*n * 31 + i));
		(*n)++;
		off += H2_HEADER_LEN + f.length;
	}
	*ret_bulk = bulk;
	*ret_ctrl = ctrl;
}

struct model {
	struct outq q;
	struct chunk_pool pool;
	struct sink sink;
	uint32_t bulk, ctrl; /* frames handed over */
	uint64_t data, done;
};

/* A batch of frames in one chunk, as pieces with gaps, as the relay makes them. */
static void write_batch(struct model *m)
{
	struct chunk *c = chunk_get(&m->pool, CHUNK_BIG);
	struct iovec pieces[8];
	int n = 1 + (int)rnd(6);
	uint64_t data = 0;
	size_t total = 0;
	ssize_t sent = 0;

	assert_non_null(c);
	c->end = 16;
	for (int i = 0; i < n; i++) {
		uint8_t *start = c->data + c->end;
		uint32_t frames = 1 + rnd(3);

		for (uint32_t k = 0; k < frames; k++) {
			uint8_t type = rnd(5) ? H2_DATA : H2_HEADERS;
			uint32_t len = 4 + rnd(rnd(3) ? 200 : 16381);

			c->end += put_frame(c->data + c->end, type, len, m->bulk++);
			data += type == H2_DATA ? len : 0;
		}
		pieces[i] = (struct iovec){ start, (size_t)(c->data + c->end - start) };
		total += pieces[i].iov_len;
		c->end += rnd(2) ? rnd(50) : 0; /* a frame that ended here */
	}
	m->data += data;
	if (outq_bulk_empty(&m->q)) {
		sent = outq_send(&m->q, &m->sink.port, &m->pool, pieces, n);
		assert_true(sent >= 0);
	}
	if ((size_t)sent == total) {
		m->done += data;
		chunk_put(&m->pool, c);
	} else if (rnd(2)) {
		m->done += outq_queue_chunk(&m->q, &m->pool, c, pieces, n, (size_t)sent, data);
	} else {
		uint64_t out = 0;

		assert_int_equal(
			outq_queue_copy(&m->q, &m->pool, pieces, n, (size_t)sent, data, &out), 0);
		m->done += out;
		chunk_put(&m->pool, c);
	}
}

static void write_ctrl(struct model *m)
{
	uint8_t *p = outq_ctrl(&m->q, &m->pool, 17);

	if (p)
		put_frame(p, H2_PING, 8, m->ctrl++);
}

static void flush_all(struct model *m)
{
	uint64_t data;

	m->sink.room = SIZE_MAX;
	assert_int_equal(outq_flush(&m->q, &m->sink.port, &m->pool, &data), 0);
	m->done += data;
	assert_true(outq_empty(&m->q));
	assert_int_equal(m->q.data, 0);
	assert_int_equal(m->q.bulk_bytes, 0);
	assert_int_equal(m->done, m->data);
}

static void random_traffic(void **state)
{
	(void)state;
	for (seed = 1; seed < 60; seed++) {
		uint32_t keep = seed, bulk, ctrl;
		struct model m = { .bulk = 0 };

		outq_init(&m.q);
		chunk_pool_init(&m.pool);
		sink_init(&m.sink, 64 * MiB);
		for (int i = 0; i < 60; i++) {
			uint64_t data = 0;

			m.sink.room = rnd(3) ? rnd(40000) : rnd(20);
			switch (rnd(4)) {
			case 0:
			case 1:
				if (m.q.bulk_bytes < 8 * MiB)
					write_batch(&m);
				break;
			case 2:
				write_ctrl(&m);
				break;
			default:
				(void)outq_flush(&m.q, &m.sink.port, &m.pool, &data);
				m.done += data;
			}
			assert_true(m.done <= m.data);
		}
		flush_all(&m);
		check_frames(&m.sink, &bulk, &ctrl);
		assert_int_equal(bulk, m.bulk);
		assert_int_equal(ctrl, m.ctrl);
		outq_free(&m.q, &m.pool);
		chunk_pool_free(&m.pool);
		free(m.sink.got);
		seed = keep;
	}
}

/* A control frame overtakes megabytes that wait, at the next boundary. */
static void control_overtakes(void **state)
{
	struct model m = { .bulk = 0 };
	struct h2_frame f;
	uint64_t data;

	(void)state;
	outq_init(&m.q);
	chunk_pool_init(&m.pool);
	sink_init(&m.sink, 64 * MiB);
	m.sink.room = 100; /* ends inside the first frame */
	for (int i = 0; i < 20; i++)
		write_batch(&m);
	write_ctrl(&m);
	m.sink.room = SIZE_MAX;
	(void)outq_flush(&m.q, &m.sink.port, &m.pool, &data);
	f = h2_frame_get(m.sink.got);
	f = h2_frame_get(m.sink.got + H2_HEADER_LEN + f.length);
	assert_int_equal(f.type, H2_PING);
	outq_free(&m.q, &m.pool);
	chunk_pool_free(&m.pool);
	free(m.sink.got);
}

/* The kernel has begun a frame: control frames wait for its rest, which may come in pieces. */
static void open_frame(void **state)
{
	uint8_t frame[H2_HEADER_LEN + 1000];
	struct model m = { .bulk = 0 };
	uint32_t bulk, ctrl;
	uint64_t data;
	int r;

	(void)state;
	for (uint32_t room = 0; room < 1200; room += 7) {
		outq_init(&m.q);
		chunk_pool_init(&m.pool);
		sink_init(&m.sink, MiB);
		m.bulk = m.ctrl = 0;
		put_frame(frame, H2_DATA, 1000, 0);
		memcpy(m.sink.got, frame, 209);
		m.sink.len = 209;
		outq_set_open(&m.q, sizeof(frame) - 209);
		write_ctrl(&m);
		m.sink.room = SIZE_MAX;
		assert_int_equal(outq_flush(&m.q, &m.sink.port, &m.pool, &data), 0);
		assert_int_equal(m.sink.len, 209); /* it waits */
		m.sink.room = room;
		r = outq_raw(&m.q, &m.sink.port, &m.pool, frame + 209, 400);
		assert_true(r == 0 || r == -EAGAIN);
		(void)outq_flush(&m.q, &m.sink.port, &m.pool, &data);
		r = outq_raw(&m.q, &m.sink.port, &m.pool, frame + 609, 400);
		assert_true(r == 0 || r == -EAGAIN);
		m.sink.room = SIZE_MAX;
		assert_int_equal(outq_flush(&m.q, &m.sink.port, &m.pool, &data), 0);
		assert_int_equal(data, 0); /* counted by whoever saw its header */
		check_frames(&m.sink, &bulk, &ctrl);
		assert_int_equal(bulk, 1);
		assert_int_equal(ctrl, 1);
		outq_free(&m.q, &m.pool);
		chunk_pool_free(&m.pool);
		free(m.sink.got);
	}
}

static void control_is_bounded(void **state)
{
	struct chunk_pool pool;
	struct outq q;
	int n = 0;

	(void)state;
	outq_init(&q);
	chunk_pool_init(&pool);
	while (outq_ctrl(&q, &pool, 17))
		n++;
	assert_int_equal(n, OUTQ_CTRL_MAX / 17);
	outq_free(&q, &pool);
	chunk_pool_free(&pool);
}

/* A peer that reads slowly and never everything: what it has read makes room. */
static void control_goes_on(void **state)
{
	struct model m = { .bulk = 0 };
	uint32_t bulk, ctrl;
	uint64_t data;

	(void)state;
	outq_init(&m.q);
	chunk_pool_init(&m.pool);
	sink_init(&m.sink, MiB);
	for (uint32_t i = 0; i < 100; i++)
		put_frame(outq_ctrl(&m.q, &m.pool, 17), H2_PING, 8, m.ctrl++);
	for (uint32_t i = 0; i < 50000; i++) {
		uint8_t *p = outq_ctrl(&m.q, &m.pool, 17);

		assert_non_null(p);
		put_frame(p, H2_PING, 8, m.ctrl++);
		m.sink.room = 17;
		assert_int_equal(outq_flush(&m.q, &m.sink.port, &m.pool, &data), -EAGAIN);
	}
	check_frames(&m.sink, &bulk, &ctrl);
	assert_int_equal(ctrl, 50000);
	outq_free(&m.q, &m.pool);
	chunk_pool_free(&m.pool);
	free(m.sink.got);
}

static void dead_socket(void **state)
{
	struct model m = { .bulk = 0 };
	uint64_t data;

	(void)state;
	outq_init(&m.q);
	chunk_pool_init(&m.pool);
	sink_init(&m.sink, MiB);
	write_ctrl(&m);
	m.sink.err = -ECONNRESET;
	assert_int_equal(outq_flush(&m.q, &m.sink.port, &m.pool, &data), -ECONNRESET);
	outq_free(&m.q, &m.pool);
	chunk_pool_free(&m.pool);
	free(m.sink.got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_traffic),  cmocka_unit_test(control_overtakes),
		cmocka_unit_test(open_frame),      cmocka_unit_test(control_is_bounded),
		cmocka_unit_test(control_goes_on), cmocka_unit_test(dead_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
