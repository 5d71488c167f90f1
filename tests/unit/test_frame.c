/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules are written down here a second time, in RFC 9113's own terms, and
 * every combination of type, stream, sender and length is asked.
 */
#include "unit/hex.h"

#include "h2/frame.h"

#define ANY UINT32_MAX

struct row {
	uint8_t type;
	const char *name;
	bool zero, odd, even; /* stream ids on which it is legal */
	bool client, server;  /* who may send it */
	uint32_t fixed;       /* payload length, ANY */
	uint32_t at_least;
	uint32_t multiple;
	bool stream_error;
};

static const struct row rows[] = {
	{ H2_DATA, "DATA", false, true, false, true, true, ANY, 0, 1, false },
	{ H2_HEADERS, "HEADERS", false, true, false, true, true, ANY, 0, 1, false },
	{ H2_PRIORITY, "PRIORITY", false, true, true, true, true, 5, 0, 1, true },
	{ H2_RST_STREAM, "RST_STREAM", false, true, false, true, true, 4, 0, 1, false },
	{ H2_SETTINGS, "SETTINGS", true, false, false, true, true, ANY, 0, 6, false },
	{ H2_PUSH_PROMISE, "PUSH_PROMISE", false, false, false, false, false, ANY, 0, 1, false },
	{ H2_PING, "PING", true, false, false, true, true, 8, 0, 1, false },
	{ H2_GOAWAY, "GOAWAY", true, false, false, true, true, ANY, 8, 1, false },
	{ H2_WINDOW_UPDATE, "WINDOW_UPDATE", true, true, false, true, true, 4, 0, 1, false },
	{ H2_CONTINUATION, "CONTINUATION", false, true, false, true, true, ANY, 0, 1, false },
};

static bool stream_ok(const struct row *r, uint32_t stream)
{
	if (!stream)
		return r->zero;
	return stream & 1 ? r->odd : r->even;
}

static bool length_ok(const struct row *r, uint32_t n)
{
	if (r->fixed != ANY)
		return n == r->fixed;
	return n >= r->at_least && n % r->multiple == 0;
}

static void check_one(const struct row *r, uint32_t stream, enum h2_peer from, uint32_t length,
		      uint8_t flags)
{
	struct h2_frame f = { .length = length, .type = r->type, .flags = flags, .stream = stream };
	bool from_ok = from == H2_FROM_CLIENT ? r->client : r->server;
	bool stream_error = true;
	uint32_t want = 0, got;

	if (length > H2_DEFAULT_FRAME_SIZE)
		want = H2_FRAME_SIZE_ERROR;
	else if (!stream_ok(r, stream) || !from_ok)
		want = H2_PROTOCOL_ERROR;
	else if (!length_ok(r, length))
		want = H2_FRAME_SIZE_ERROR;
	else if (r->type == H2_SETTINGS && (flags & H2_FLAG_ACK) && length)
		want = H2_FRAME_SIZE_ERROR;

	got = h2_frame_check(&f, from, H2_DEFAULT_FRAME_SIZE, &stream_error);
	if (got != want)
		fail_msg("%s stream %u from %d length %u flags %#x: %s, not %s", r->name, stream,
			 from, length, flags, h2_error_name(got), h2_error_name(want));
	/* Only where the rule is about the type's own length. */
	assert_int_equal(stream_error, want == H2_FRAME_SIZE_ERROR && r->stream_error &&
					       length <= H2_DEFAULT_FRAME_SIZE);
}

static void every_rule(void **state)
{
	static const uint32_t streams[] = { 0, 1, 2, 3, 4, 0x7ffffffe, 0x7fffffff };
	static const uint32_t lengths[] = { 0, 1,  2,  3,     4,     5,     6,     7,       8,
					    9, 11, 12, 16383, 16384, 16385, 65536, 0xffffff };
	static const uint8_t flags[] = { 0, H2_FLAG_ACK, 0x2, H2_FLAG_PADDED, 0xff };

	(void)state;
	for (size_t r = 0; r < ARRAY_SIZE(rows); r++)
		for (size_t s = 0; s < ARRAY_SIZE(streams); s++)
			for (size_t l = 0; l < ARRAY_SIZE(lengths); l++)
				for (size_t f = 0; f < ARRAY_SIZE(flags); f++) {
					check_one(&rows[r], streams[s], H2_FROM_CLIENT, lengths[l],
						  flags[f]);
					check_one(&rows[r], streams[s], H2_FROM_SERVER, lengths[l],
						  flags[f]);
				}
}

static void a_larger_frame_size_is_honoured(void **state)
{
	struct h2_frame f = { .length = 100000, .type = H2_DATA, .stream = 1 };
	bool stream_error;

	(void)state;
	assert_int_equal(h2_frame_check(&f, H2_FROM_SERVER, 100000, &stream_error), 0);
	f.length++;
	assert_int_equal(h2_frame_check(&f, H2_FROM_SERVER, 100000, &stream_error),
			 H2_FRAME_SIZE_ERROR);
	f.length = 0xffffff;
	assert_int_equal(h2_frame_check(&f, H2_FROM_SERVER, 0xffffff, &stream_error), 0);
}

static void unknown_types_pass(void **state)
{
	(void)state;
	for (unsigned type = 10; type < 256; type++) {
		struct h2_frame f = { .length = 16384, .type = (uint8_t)type, .flags = 0xff };
		bool stream_error = true;

		for (f.stream = 0; f.stream < 3; f.stream++)
			assert_int_equal(h2_frame_check(&f, H2_FROM_CLIENT, 16384, &stream_error),
					 0);
		assert_false(stream_error);
		f.length++;
		assert_int_equal(h2_frame_check(&f, H2_FROM_CLIENT, 16384, &stream_error),
				 H2_FRAME_SIZE_ERROR);
		assert_false(stream_error);
		assert_string_equal(h2_type_name((uint8_t)type), "EXTENSION");
	}
}

static void names(void **state)
{
	static const char *const errors[] = {
		"NO_ERROR",
		"PROTOCOL_ERROR",
		"INTERNAL_ERROR",
		"FLOW_CONTROL_ERROR",
		"SETTINGS_TIMEOUT",
		"STREAM_CLOSED",
		"FRAME_SIZE_ERROR",
		"REFUSED_STREAM",
		"CANCEL",
		"COMPRESSION_ERROR",
		"CONNECT_ERROR",
		"ENHANCE_YOUR_CALM",
		"INADEQUATE_SECURITY",
		"HTTP_1_1_REQUIRED",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(h2_type_name(rows[i].type), rows[i].name);
	for (uint32_t i = 0; i < ARRAY_SIZE(errors); i++)
		assert_string_equal(h2_error_name(i), errors[i]);
	assert_string_equal(h2_error_name(14), "UNKNOWN_ERROR");
	assert_string_equal(h2_error_name(UINT32_MAX), "UNKNOWN_ERROR");
}

static void header_round_trip(void **state)
{
	uint64_t seed = 1;
	uint8_t p[H2_HEADER_LEN];

	(void)state;
	for (int i = 0; i < 10000; i++) {
		struct h2_frame a = { rnd(&seed) & 0xffffff, (uint8_t)rnd(&seed),
				      (uint8_t)rnd(&seed), rnd(&seed) & H2_MAX_STREAM_ID };
		struct h2_frame b;

		h2_frame_put(p, a.length, a.type, a.flags, a.stream);
		p[5] |= (uint8_t)(rnd(&seed) & 0x80); /* the reserved bit is ignored */
		b = h2_frame_get(p);
		assert_int_equal(a.length, b.length);
		assert_int_equal(a.type, b.type);
		assert_int_equal(a.flags, b.flags);
		assert_int_equal(a.stream, b.stream);
	}
	hex_read(p, sizeof(p), "000018 04 00 80000000");
	assert_int_equal(h2_frame_get(p).length, 24);
	assert_int_equal(h2_frame_get(p).stream, 0);
}

/* The payload's own bytes are counted up from 1, so content shows where it begins. */
static void payload_is(uint8_t type, uint8_t flags, const char *hex, uint32_t want_err,
		       uint32_t want_at, uint32_t want_len, uint32_t want_dependency)
{
	uint8_t buf[64];
	uint32_t n = (uint32_t)hex_read(buf, sizeof(buf), hex);
	struct h2_frame f = { .length = n, .type = type, .flags = flags, .stream = 1 };
	uint8_t *p = exact_copy(buf, n);
	const uint8_t *content = NULL;
	uint32_t len = 77, dependency = 77;
	uint32_t err = h2_payload(&f, p, &content, &len, &dependency);

	if (err != want_err)
		fail_msg("%s flags %#x '%s': %s", h2_type_name(type), flags, hex,
			 h2_error_name(err));
	if (err) { /* outputs untouched */
		assert_null(content);
		assert_int_equal(len, 77);
		assert_int_equal(dependency, 77);
	} else {
		assert_ptr_equal(content, p + want_at);
		assert_int_equal(len, want_len);
		assert_int_equal(dependency, want_dependency);
	}
	free(p);
}

static void payloads(void **state)
{
	const uint8_t pad = H2_FLAG_PADDED, prio = H2_FLAG_PRIORITY;

	(void)state;
	payload_is(H2_DATA, 0, "", 0, 0, 0, 0);
	payload_is(H2_DATA, 0, "0102", 0, 0, 2, 0);
	payload_is(H2_DATA, H2_FLAG_END_STREAM, "0102", 0, 0, 2, 0);
	payload_is(H2_DATA, pad, "", H2_FRAME_SIZE_ERROR, 0, 0, 0);
	payload_is(H2_DATA, pad, "00", 0, 1, 0, 0);
	payload_is(H2_DATA, pad, "00aabb", 0, 1, 2, 0);
	payload_is(H2_DATA, pad, "01aabb", 0, 1, 1, 0);
	payload_is(H2_DATA, pad, "02aabb", 0, 1, 0, 0); /* nothing but padding */
	payload_is(H2_DATA, pad, "03aabb", H2_PROTOCOL_ERROR, 0, 0, 0);
	payload_is(H2_DATA, pad, "ff", H2_PROTOCOL_ERROR, 0, 0, 0);
	/* PRIORITY means nothing on DATA. */
	payload_is(H2_DATA, prio, "0102", 0, 0, 2, 0);

	payload_is(H2_HEADERS, 0, "82", 0, 0, 1, 0);
	payload_is(H2_HEADERS, prio, "", H2_FRAME_SIZE_ERROR, 0, 0, 0);
	payload_is(H2_HEADERS, prio, "00000003", H2_FRAME_SIZE_ERROR, 0, 0, 0);
	payload_is(H2_HEADERS, prio, "0000000310", 0, 5, 0, 3);
	payload_is(H2_HEADERS, prio, "800000031082", 0, 5, 1, 3); /* exclusive */
	payload_is(H2_HEADERS, prio, "ffffffff1082", 0, 5, 1, H2_MAX_STREAM_ID);
	payload_is(H2_HEADERS, prio, "000000001082", 0, 5, 1, 0);
	payload_is(H2_HEADERS, pad | prio, "", H2_FRAME_SIZE_ERROR, 0, 0, 0);
	payload_is(H2_HEADERS, pad | prio, "0000000003", H2_FRAME_SIZE_ERROR, 0, 0, 0);
	payload_is(H2_HEADERS, pad | prio, "000000000310", 0, 6, 0, 3);
	payload_is(H2_HEADERS, pad | prio, "01000000031082", 0, 6, 0, 3);
	payload_is(H2_HEADERS, pad | prio, "0100000003108200", 0, 6, 1, 3);
	payload_is(H2_HEADERS, pad | prio, "02000000031082", H2_PROTOCOL_ERROR, 0, 0, 0);
}

static void padding_of_every_length(void **state)
{
	(void)state;
	for (uint32_t pad = 0; pad < 256; pad++)
		for (uint32_t body = 0; body < 300; body += 7) {
			struct h2_frame f = { 1 + body, H2_DATA, H2_FLAG_PADDED, 1 };
			uint8_t p[301] = { (uint8_t)pad };
			uint32_t len, dependency;
			const uint8_t *content;
			uint32_t err = h2_payload(&f, p, &content, &len, &dependency);

			assert_int_equal(err, pad > body ? H2_PROTOCOL_ERROR : 0);
			if (!err)
				assert_int_equal(len, body - pad);
		}
}

static uint32_t apply(struct h2_settings *s, enum h2_peer from, const char *hex)
{
	uint8_t buf[128];
	size_t n = hex_read(buf, sizeof(buf), hex);
	uint8_t *p = exact_copy(buf, n);
	uint32_t err = h2_settings_apply(s, p, (uint32_t)n, from);

	free(p);
	return err;
}

static void settings(void **state)
{
	struct h2_settings s = H2_SETTINGS_DEFAULT;
	const struct h2_settings initial = H2_SETTINGS_DEFAULT;

	(void)state;
	assert_int_equal(apply(&s, H2_FROM_CLIENT, ""), 0);
	assert_memory_equal(&s, &initial, sizeof(s));

	/* As a Ballista client sends it. */
	assert_int_equal(apply(&s, H2_FROM_CLIENT,
			       "0002 00000000 0004 00200000 0005 00004000 0006 00004000"),
			 0);
	assert_int_equal(s.enable_push, 0);
	assert_int_equal(s.initial_window_size, 2097152);
	assert_int_equal(s.max_frame_size, 16384);
	assert_int_equal(s.max_header_list_size, 16384);
	assert_int_equal(s.header_table_size, 4096);
	assert_int_equal(s.max_concurrent_streams, UINT32_MAX);

	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0001 ffffffff 0003 00000000"), 0);
	assert_int_equal(s.header_table_size, UINT32_MAX);
	assert_int_equal(s.max_concurrent_streams, 0);

	/* Unknown ids, 0 and those far away are skipped; the last of two counts. */
	assert_int_equal(apply(&s, H2_FROM_SERVER,
			       "0000 00000009 0007 00000001 ffff ffffffff 0003 00000005 "
			       "0003 00000006"),
			 0);
	assert_int_equal(s.max_concurrent_streams, 6);
	assert_int_equal(apply(&s, H2_FROM_SERVER, "0000 00000000"), 0);
	assert_int_equal(s.header_table_size, UINT32_MAX);
}

static void setting_bounds(void **state)
{
	struct h2_settings s = H2_SETTINGS_DEFAULT;

	(void)state;
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0002 00000001"), 0);
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0002 00000002"), H2_PROTOCOL_ERROR);
	assert_int_equal(apply(&s, H2_FROM_SERVER, "0002 00000000"), 0);
	assert_int_equal(apply(&s, H2_FROM_SERVER, "0002 00000001"), H2_PROTOCOL_ERROR);

	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0004 7fffffff"), 0);
	assert_int_equal(s.initial_window_size, H2_MAX_WINDOW);
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0004 80000000"), H2_FLOW_CONTROL_ERROR);
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0004 00000000"), 0);
	assert_int_equal(s.initial_window_size, 0);

	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0005 00003fff"), H2_PROTOCOL_ERROR);
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0005 00004000"), 0);
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0005 00ffffff"), 0);
	assert_int_equal(s.max_frame_size, 0xffffff);
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0005 01000000"), H2_PROTOCOL_ERROR);

	/* Those before the bad one may count, those after it do not. */
	assert_int_equal(apply(&s, H2_FROM_CLIENT, "0005 00000000 0003 00000009"),
			 H2_PROTOCOL_ERROR);
	assert_int_equal(s.max_concurrent_streams, UINT32_MAX);
}

static void wrote(const uint8_t *p, size_t n, const char *hex)
{
	uint8_t want[256];
	size_t len = hex_read(want, sizeof(want), hex);
	struct h2_frame f = h2_frame_get(p);
	bool stream_error;

	assert_int_equal(n, len);
	assert_memory_equal(p, want, n);
	/* What we write passes our own rules. */
	assert_int_equal(f.length + H2_HEADER_LEN, n);
	assert_int_equal(h2_frame_check(&f, H2_FROM_CLIENT, 16384, &stream_error), 0);
}

static void writers(void **state)
{
	static const uint8_t data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	uint8_t p[512];

	(void)state;
	wrote(p, h2_put_settings_ack(p), "000000 04 01 00000000");
	wrote(p, h2_put_ping(p, data, false), "000008 06 00 00000000 0102030405060708");
	wrote(p, h2_put_ping(p, data, true), "000008 06 01 00000000 0102030405060708");
	wrote(p, h2_put_rst_stream(p, 5, H2_CANCEL), "000004 03 00 00000005 00000008");
	wrote(p, h2_put_window_update(p, 0, 1), "000004 08 00 00000000 00000001");
	wrote(p, h2_put_window_update(p, 7, H2_MAX_WINDOW), "000004 08 00 00000007 7fffffff");
	wrote(p, h2_put_goaway(p, H2_MAX_STREAM_ID, H2_NO_ERROR, NULL),
	      "000008 07 00 00000000 7fffffff 00000000");
	wrote(p, h2_put_goaway(p, 3, H2_ENHANCE_YOUR_CALM, "hi"),
	      "00000a 07 00 00000000 00000003 0000000b 6869");
	wrote(p, h2_put_goaway(p, 3, H2_NO_ERROR, ""), "000008 07 00 00000000 00000003 00000000");

	assert_int_equal(h2_put_setting(p, H2_SETTINGS_INITIAL_WINDOW_SIZE, 0x01020304), 6);
	assert_memory_equal(p, "\x00\x04\x01\x02\x03\x04", 6);
}

static void goaway_debug_is_cut(void **state)
{
	char debug[300];
	uint8_t p[512];

	(void)state;
	memset(debug, 'x', sizeof(debug) - 1);
	debug[sizeof(debug) - 1] = '\0';
	memset(p, 0xee, sizeof(p));
	assert_int_equal(h2_put_goaway(p, 1, 1, debug), 17 + 128);
	assert_int_equal(h2_frame_get(p).length, 8 + 128);
	assert_int_equal(p[17 + 127], 'x');
	assert_int_equal(p[17 + 128], 0xee);
	debug[128] = '\0';
	assert_int_equal(h2_put_goaway(p, 1, 1, debug), 17 + 128);
	debug[127] = '\0';
	assert_int_equal(h2_put_goaway(p, 1, 1, debug), 17 + 127);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule),
		cmocka_unit_test(a_larger_frame_size_is_honoured),
		cmocka_unit_test(unknown_types_pass),
		cmocka_unit_test(names),
		cmocka_unit_test(header_round_trip),
		cmocka_unit_test(payloads),
		cmocka_unit_test(padding_of_every_length),
		cmocka_unit_test(settings),
		cmocka_unit_test(setting_bounds),
		cmocka_unit_test(writers),
		cmocka_unit_test(goaway_debug_is_cut),
	};

	return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
