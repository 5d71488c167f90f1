/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC layer's readers of text and of messages.
 *
 *   byte 0   the largest message accepted
 *   byte 1   how the stream is cut: pieces of 1, 2, ... up to this many bytes
 *   rest     a stream of messages; also read as a grpc-timeout, a status message,
 *            a :path and a health request
 *
 * The reader is held against the answer that the whole stream gives at a glance,
 * for the whole stream and for its pieces. Encoded status messages are decoded
 * again, timeouts computed a second time in 128 bits.
 */
#include "fuzz/check.h"

#include "flight/flight.h"

/* What a reader has to say once it has seen these bytes. */
static enum grpc_read answer(const struct input *in, uint32_t max)
{
	uint64_t whole;

	if (in->len < 5)
		return GRPC_READ_MORE;
	if (in->p[0])
		return GRPC_READ_COMPRESSED;
	if (get_be32(in->p + 1) > max)
		return GRPC_READ_TOO_LARGE;
	whole = 5 + (uint64_t)get_be32(in->p + 1);
	if (in->len > whole)
		return GRPC_READ_EXTRA;
	return in->len == whole ? GRPC_READ_DONE : GRPC_READ_MORE;
}

static void check_reader(const struct grpc_reader *r, const struct input *seen, uint32_t max)
{
	enum grpc_read want = answer(seen, max);
	bool done = want == GRPC_READ_DONE || want == GRPC_READ_EXTRA;
	const uint8_t *bytes;
	uint32_t len;

	CHECK(grpc_reader_done(r) == done);
	CHECK(r->have <= 5 + max);
	if (!done)
		return;
	bytes = grpc_reader_bytes(r, &len);
	CHECK(len == 5 + get_be32(seen->p + 1));
	CHECK(!memcmp(bytes, seen->p, len));
}

/* Stops at an error as a session does, and at EXTRA. */
static void feed_in_pieces(const struct input *in, uint32_t max, uint8_t largest)
{
	struct input left = *in;
	struct grpc_reader r;
	size_t n = 0;

	grpc_reader_init(&r, max);
	while (left.len) {
		struct input piece = input_take(&left, n), seen = { in->p, in->len - left.len };
		uint8_t *copy = input_copy(&piece);
		enum grpc_read got = grpc_reader_feed(&r, copy, piece.len);

		free(copy);
		CHECK(got == answer(&seen, max));
		check_reader(&r, &seen, max);
		if (got != GRPC_READ_MORE && got != GRPC_READ_DONE)
			break;
		n = n < largest ? n + 1 : 1;
	}
	grpc_reader_free(&r);
}

static void feed_at_once(const struct input *in, uint32_t max)
{
	uint8_t *copy = input_copy(in);
	struct grpc_reader r;

	grpc_reader_init(&r, max);
	CHECK(grpc_reader_feed(&r, copy, in->len) == answer(in, max));
	check_reader(&r, in, max);
	free(copy);
	grpc_reader_free(&r);
}

static void check_timeout(const struct input *in)
{
	static const char units[] = "numSMH";
	static const uint64_t ns[] = { 1, 1000, 1000000, 1000000000, 60000000000, 3600000000000 };
	uint8_t *copy = input_copy(in);
	uint64_t got = 77;
	int err = grpc_timeout_parse((char *)copy, in->len, &got);
	const char *unit;
	__int128 want = 0;
	bool ok = in->len >= 2 && in->len <= 9;

	for (size_t i = 0; ok && i < in->len - 1; i++) {
		ok = copy[i] >= '0' && copy[i] <= '9';
		want = want * 10 + (copy[i] - '0');
	}
	if (ok) {
		unit = memchr(units, copy[in->len - 1], sizeof(units) - 1);
		ok = unit != NULL;
		if (ok)
			want *= ns[unit - units];
	}
	CHECK(err == (ok ? 0 : -EINVAL));
	CHECK(got == (ok ? (want > INT64_MAX ? (uint64_t)INT64_MAX : (uint64_t)want) : 77));
	free(copy);
}

static int hex_digit(char c)
{
	return c >= 'A' ? c - 'A' + 10 : c - '0';
}

/* Decodes what was encoded: a prefix of the message, all of it when there was room. */
static void check_message(const struct input *in, size_t cap)
{
	char *msg = malloc(in->len + 1), *buf = malloc(cap ? cap : 1);
	size_t n, at = 0;

	CHECK(msg && buf);
	if (in->len)
		memcpy(msg, in->p, in->len);
	msg[in->len] = '\0';
	n = grpc_message_encode(buf, cap, msg);
	CHECK(cap ? n < cap && buf[n] == '\0' : n == 0);
	for (size_t i = 0; i < n; i++, at++) {
		uint8_t c = (uint8_t)buf[i];

		CHECK(c >= 0x20 && c <= 0x7e);
		if (c == '%') {
			CHECK(i + 2 < n);
			c = (uint8_t)(hex_digit(buf[i + 1]) << 4 | hex_digit(buf[i + 2]));
			i += 2;
		}
		CHECK(c && c == (uint8_t)msg[at]);
	}
	if (cap > 3 * strlen(msg))
		CHECK(msg[at] == '\0');
	else if (msg[at])
		CHECK(cap - n <= 3); /* it stopped for want of room */
	free(msg);
	free(buf);
}

static void check_health(const struct input *in, size_t cap)
{
	uint8_t *copy = input_copy(in);
	char *buf = malloc(cap), *whole = malloc(in->len + 1);
	int err;

	CHECK(buf && whole);
	err = health_request_decode(copy, in->len, buf, cap);
	CHECK(err == health_request_decode(copy, in->len, whole, in->len + 1));
	if (!err) {
		CHECK(strlen(buf) < cap && strlen(whole) <= in->len);
		CHECK(strlen(buf) == min_u64(strlen(whole), cap - 1));
		CHECK(!strncmp(buf, whole, strlen(buf)));
	}
	free(buf);
	free(whole);
	free(copy);
}

static void check_path(const struct input *in)
{
	static const char service[] = "/arrow.flight.protocol.FlightService/";
	static const char health[] = "/grpc.health.v1.Health/";
	uint8_t *copy = input_copy(in);
	bool flight = in->len > sizeof(service) && !memcmp(copy, service, sizeof(service) - 1);

	switch (flight_method_find((char *)copy, in->len)) {
	case FLIGHT_DO_GET:
		CHECK(flight && in->len == sizeof(service) - 1 + 5 &&
		      !memcmp(copy + in->len - 5, "DoGet", 5));
		break;
	case FLIGHT_OTHER:
		CHECK(flight);
		break;
	case FLIGHT_HEALTH_CHECK:
	case FLIGHT_HEALTH_WATCH:
		CHECK(in->len == sizeof(health) - 1 + 5 &&
		      !memcmp(copy, health, sizeof(health) - 1));
		break;
	case FLIGHT_UNKNOWN:
		break;
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t max = input_byte(&in), largest = input_byte(&in);

	feed_at_once(&in, max);
	feed_in_pieces(&in, max, largest ? largest : 1);
	check_timeout(&in);
	check_message(&in, largest);
	check_health(&in, largest + 1u);
	check_path(&in);
	return 0;
}
