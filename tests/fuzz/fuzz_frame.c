/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection's bytes, taken apart frame by frame as a session would.
 *
 *   byte 0   bit 0: who sends; bits 1..2: MAX_FRAME_SIZE
 *   rest     frames
 *
 * Held against it: a frame that passes h2_frame_check() has what its type's
 * reader relies on (fixed lengths, bounded payload, a stream or none); a payload
 * lies within its frame and accounts for every byte of it; settings stay within
 * the bounds of RFC 9113 and do not depend on how they are cut into frames.
 */
#include "fuzz/check.h"

#include "h2/frame.h"

/* What code that reads the payload of a checked frame takes for granted. */
static void check_promises(const struct h2_frame *f, enum h2_peer from, uint32_t max)
{
	CHECK(f->length <= max);
	switch (f->type) {
	case H2_DATA:
	case H2_HEADERS:
	case H2_CONTINUATION:
		CHECK(f->stream & 1);
		break;
	case H2_PRIORITY:
		CHECK(f->length == 5 && f->stream);
		break;
	case H2_RST_STREAM:
		CHECK(f->length == 4 && (f->stream & 1));
		break;
	case H2_SETTINGS:
		CHECK(f->length % 6 == 0 && !f->stream);
		CHECK(!(f->flags & H2_FLAG_ACK) || !f->length);
		break;
	case H2_PUSH_PROMISE:
		CHECK(!"PUSH_PROMISE is never legal");
		break;
	case H2_PING:
		CHECK(f->length == 8 && !f->stream);
		break;
	case H2_GOAWAY:
		CHECK(f->length >= 8 && !f->stream);
		break;
	case H2_WINDOW_UPDATE:
		CHECK(f->length == 4 && (!f->stream || (f->stream & 1)));
		break;
	default:
		CHECK(f->type > H2_CONTINUATION);
	}
	(void)from;
}

static void check_payload(const struct h2_frame *f, const uint8_t *p)
{
	const uint8_t *content;
	uint32_t len, dependency;
	uint32_t err = h2_payload(f, p, &content, &len, &dependency);
	bool padded = f->flags & H2_FLAG_PADDED;
	bool priority = f->type == H2_HEADERS && (f->flags & H2_FLAG_PRIORITY);
	uint32_t before = (padded ? 1 : 0) + (priority ? 5 : 0);

	if (f->length < before) {
		CHECK(err == H2_FRAME_SIZE_ERROR);
		return;
	}
	if (padded && p[0] > f->length - before) {
		CHECK(err == H2_PROTOCOL_ERROR);
		return;
	}
	CHECK(!err);
	CHECK(content == p + before);
	CHECK(before + len + (padded ? p[0] : 0) == f->length);
	CHECK(dependency <= H2_MAX_STREAM_ID);
	CHECK(priority || !dependency);
}

static void check_settings(const uint8_t *p, uint32_t len, enum h2_peer from)
{
	struct h2_settings whole = H2_SETTINGS_DEFAULT, parts = H2_SETTINGS_DEFAULT;
	uint32_t err = h2_settings_apply(&whole, p, len, from), part_err = 0;

	for (uint32_t i = 0; i < len && !part_err; i += 6)
		part_err = h2_settings_apply(&parts, p + i, 6, from);
	CHECK(err == part_err);
	CHECK(!memcmp(&whole, &parts, sizeof(whole)));
	/* A refused value is never stored. */
	CHECK(whole.enable_push <= 1);
	CHECK(whole.initial_window_size <= H2_MAX_WINDOW);
	CHECK(whole.max_frame_size >= 16384 && whole.max_frame_size <= 0xffffff);
	CHECK(err == 0 || err == H2_PROTOCOL_ERROR || err == H2_FLOW_CONTROL_ERROR);
}

/* Returns false when the connection would end here. */
static bool one_frame(struct input *in, enum h2_peer from, uint32_t max)
{
	struct input header = input_take(in, H2_HEADER_LEN), payload;
	uint8_t again[H2_HEADER_LEN];
	struct h2_frame f;
	bool stream_error;
	uint8_t *p;
	uint32_t err;

	if (header.len < H2_HEADER_LEN)
		return false;
	f = h2_frame_get(header.p);
	h2_frame_put(again, f.length, f.type, f.flags, f.stream);
	again[5] |= header.p[5] & 0x80;
	CHECK(!memcmp(again, header.p, H2_HEADER_LEN));

	err = h2_frame_check(&f, from, max, &stream_error);
	CHECK(!stream_error || (err == H2_FRAME_SIZE_ERROR && f.type == H2_PRIORITY));
	if (err) {
		CHECK(err == H2_FRAME_SIZE_ERROR || err == H2_PROTOCOL_ERROR);
		CHECK(f.type <= H2_CONTINUATION || f.length > max);
		input_take(in, f.length);
		return stream_error;
	}
	check_promises(&f, from, max);

	payload = input_take(in, f.length);
	if (payload.len < f.length)
		return false;
	p = input_copy(&payload);
	if (f.type == H2_DATA || f.type == H2_HEADERS)
		check_payload(&f, p);
	else if (f.type == H2_SETTINGS)
		check_settings(p, f.length, from);
	free(p);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t sizes[] = { 16384, 16384, 20000, 0xffffff };
	struct input in = { data, size };
	uint8_t mode = input_byte(&in);
	enum h2_peer from = mode & 1 ? H2_FROM_SERVER : H2_FROM_CLIENT;

	while (one_frame(&in, from, sizes[mode >> 1 & 3]))
		;
	return 0;
}
