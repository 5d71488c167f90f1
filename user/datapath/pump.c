/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pump.c - see pump.h.
 *
 * Each turn: forward what is ready, put own frames where a frame ends, publish, read more. What was
 * read is published as consumed only when it has been sent in full, own frames included, so the
 * kernel cannot overtake them. The beginning of a frame header at the end of what was read is kept
 * and not published: the fast path cannot start inside a header.
 */
#include <stdlib.h>

#include "datapath/pump.h"

int pump_init(struct pump *pu, struct splice_pair *p)
{
	memset(pu, 0, sizeof(*pu));
	pu->pair = p;
	pu->buf = malloc(PUMP_BUFFER);
	return pu->buf ? 0 : -ENOMEM;
}

void pump_free(struct pump *pu)
{
	if (pu)
		free(pu->buf);
}

/* Moves `ready` over whole headers and their payloads; stops at a frame's end when asked to. */
static void scan(struct pump *pu, bool stop_at_boundary)
{
	while (pu->ready < pu->have) {
		size_t left = pu->have - pu->ready;

		if (pu->open) {
			size_t n = (size_t)min_u64(pu->open, left);

			pu->ready += n;
			pu->scanned += n;
			pu->open -= (uint32_t)n;
			continue;
		}
		if (stop_at_boundary || left < H2_HEADER_LEN)
			return;
		struct h2_frame f = h2_frame_get(pu->buf + pu->ready);

		if (f.type == H2_DATA)
			pu->data += f.length;
		pu->ready += H2_HEADER_LEN;
		pu->scanned += H2_HEADER_LEN;
		pu->open = f.length;
	}
}

static int send_some(struct pump *pu, const uint8_t *p, size_t len, size_t *done)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)(p + *done), .iov_len = len - *done };
	ssize_t n = iov.iov_len ? splice_sendv(pu->pair, &iov, 1) : 0;

	if (n < 0)
		return (int)n;
	*done += (size_t)n;
	return *done < len ? -EAGAIN : 0;
}

/* Sends what is ready, and own frames if that ends a frame. */
static int forward(struct pump *pu)
{
	int err = send_some(pu, pu->buf, pu->ready, &pu->sent);

	if (err || pu->open || !pu->own_len)
		return err;
	err = send_some(pu, pu->own, pu->own_len, &pu->own_sent);
	if (err)
		return err;
	pu->own_len = pu->own_sent = 0;
	return 0;
}

/* All that is ready has been sent. */
static void publish(struct pump *pu)
{
	memmove(pu->buf, pu->buf + pu->ready, pu->have - pu->ready);
	pu->have -= pu->ready;
	pu->sent = pu->ready = 0;
	splice_consumed(pu->pair, pu->scanned, pu->open);
	pu->scanned = 0;
	if (pu->held && !pu->own_len) {
		pu->held = false;
		if (!pu->keep_hold)
			splice_release(pu->pair);
	}
}

int pump_run(struct pump *pu)
{
	for (;;) {
		ssize_t n;
		int err = forward(pu);

		if (err)
			return err;
		if (pu->ready < pu->have && (pu->open || pu->have - pu->ready >= H2_HEADER_LEN)) {
			scan(pu, pu->own_len);
			continue;
		}
		publish(pu);
		n = splice_recv(pu->pair, pu->buf + pu->have, PUMP_BUFFER - pu->have);
		if (n <= 0)
			return n == 0 ? 1 : n == -EAGAIN ? 0 : (int)n;
		if (!pu->have)
			pu->open = splice_open(pu->pair);
		pu->have += (size_t)n;
		scan(pu, pu->own_len);
	}
}

int pump_send(struct pump *pu, const void *frame, size_t len)
{
	if (len > PUMP_OWN - pu->own_len)
		return -ENOSPC;
	memcpy(pu->own + pu->own_len, frame, len);
	pu->own_len += len;
	if (!pu->held) {
		uint32_t open = splice_hold(pu->pair);

		pu->held = true;
		if (!pu->have)
			pu->open = open;
	}
	return pump_run(pu);
}
