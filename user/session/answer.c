/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.c - what the proxy itself says to a client about a stream.
 *
 * Before a response head: one HEADERS with END_STREAM (gRPC "Trailers-Only").
 * After it: trailers. Both carry a non-zero grpc-status, so that no client can
 * take what it has got so far for a complete result. The text begins with
 * "flightsplice:" to tell who speaks. Trailers are not flow-controlled: held
 * data is dropped and they go out behind what is already queued, at once.
 */
#include <stdarg.h>
#include <stdio.h>

#include "session/state.h"

#define ANSWER_MAX 2048

/* Sends len bytes of header block that the caller put at buf + H2_HEADER_LEN. */
static bool send_block(struct stream *s, uint8_t *buf, size_t len, uint8_t flags)
{
	struct iovec piece = { buf, H2_HEADER_LEN + len };

	h2_frame_put(buf, (uint32_t)len, H2_HEADERS, flags | H2_FLAG_END_HEADERS, s->id);
	return client_write(s->client, &piece, 1, 0, NULL);
}

/* The upstream side and the held data end before the answer. */
static void abandon(struct stream *s)
{
	stream_detach(s, H2_CANCEL);
	stream_drop_hold(s, DROP_STREAM_CLOSED);
}

static void over(struct stream *s, enum stream_end end)
{
	s->progress_ns = s->client->session->now;
	if (s->client_ended) {
		stream_close(s, end);
	} else {
		/* Counted and logged now; the client still has to end its half. */
		if (!s->recorded)
			stream_record(s, end);
		stream_set_state(s, STREAM_ANSWERED);
	}
}

void answer_status(struct stream *s, int grpc_status, enum stream_end end, const char *fmt, ...)
{
	uint8_t buf[ANSWER_MAX];
	uint8_t *block = buf + H2_HEADER_LEN;
	char text[REASON_MAX + 16], encoded[3 * sizeof(text)], number[12];
	bool head = s->state == STREAM_HEAD || s->state == STREAM_ENDING;
	struct client *c = s->client;
	size_t len, cap = sizeof(buf) - H2_HEADER_LEN;
	va_list ap;
	int r = 0;

	if (s->state == STREAM_CLOSED || s->state == STREAM_ANSWERED)
		return;
	va_start(ap, fmt);
	vsnprintf(s->reason, sizeof(s->reason), fmt, ap);
	va_end(ap);
	snprintf(text, sizeof(text), "flightsplice: %s", s->reason);
	grpc_message_encode(encoded, sizeof(encoded), text);
	snprintf(number, sizeof(number), "%d", grpc_status);
	abandon(s);
	if (c->state == CLIENT_CLOSED) {
		stream_close(s, end);
		return;
	}
	len = client_block_start(c, block);
	if (!head) {
		r |= hpack_encode_str(block, cap, &len, ":status", "200");
		r |= hpack_encode_str(block, cap, &len, "content-type", "application/grpc");
	}
	r |= hpack_encode_str(block, cap, &len, "grpc-status", number);
	r |= hpack_encode_str(block, cap, &len, "grpc-message", encoded);
	assert(!r);
	s->grpc_status = grpc_status;
	if (!head)
		s->head_ns = c->session->now;
	if (send_block(s, buf, len, H2_FLAG_END_STREAM))
		over(s, end);
}

void answer_reset(struct stream *s, uint32_t h2_error, enum stream_end end)
{
	if (s->state == STREAM_CLOSED)
		return;
	abandon(s);
	client_put_reset(s->client, s->id, h2_error);
	stream_close(s, end);
}

/*
 * grpc.health.v1. Only the service as a whole ("") and FlightService are known.
 * SERVING, or NOT_SERVING while draining; Watch sends the state once and stays
 * open: a drain ends it with GOAWAY.
 */
void answer_health(struct stream *s)
{
	static const char *const service = "arrow.flight.protocol.FlightService";
	uint8_t buf[ANSWER_MAX];
	uint8_t *block = buf + H2_HEADER_LEN;
	size_t len, cap = sizeof(buf) - H2_HEADER_LEN;
	struct client *c = s->client;
	bool watch = s->method == FLIGHT_HEALTH_WATCH;
	/* gRPC prefix, then HealthCheckResponse{status = 1: varint} */
	uint8_t msg[H2_HEADER_LEN + 7] = { 0 };
	struct iovec piece = { msg, sizeof(msg) };
	char name[64];
	uint32_t n;
	const uint8_t *req = grpc_reader_bytes(&s->request, &n);
	uint8_t status = c->session->draining ? 2 : 1;
	int r;

	if (health_request_decode(req + 5, n - 5, name, sizeof(name))) {
		answer_status(s, GRPC_INVALID_ARGUMENT, END_PROXY, "health request is no protobuf");
		return;
	}
	if (name[0] && strcmp(name, service)) {
		if (!watch) {
			answer_status(s, GRPC_NOT_FOUND, END_PROXY, "unknown service");
			return;
		}
		status = 3; /* SERVICE_UNKNOWN */
	}
	h2_frame_put(msg, 7, H2_DATA, 0, s->id);
	put_be32(msg + H2_HEADER_LEN + 1, 2);
	msg[H2_HEADER_LEN + 5] = 0x08;
	msg[H2_HEADER_LEN + 6] = status;
	if (s->window < 7 || c->window < 7) {
		answer_status(s, GRPC_RESOURCE_EXHAUSTED, END_PROXY,
			      "health: the client's window is below 7 bytes");
		return;
	}
	len = client_block_start(c, block);
	r = hpack_encode_str(block, cap, &len, ":status", "200") |
	    hpack_encode_str(block, cap, &len, "content-type", "application/grpc");
	assert(!r);
	if (!send_block(s, buf, len, 0))
		return;
	stream_set_state(s, STREAM_HEAD);
	s->window -= 7;
	c->window -= 7;
	STAT_ADD(c->session, data_in, 7); /* what the balance calls an executor is us here */
	if (!client_write(c, &piece, 1, 7, NULL) || watch)
		return;
	len = client_block_start(c, block);
	r = hpack_encode_str(block, cap, &len, "grpc-status", "0");
	assert(!r);
	s->grpc_status = GRPC_OK;
	if (send_block(s, buf, len, H2_FLAG_END_STREAM))
		over(s, END_COMPLETE);
}
