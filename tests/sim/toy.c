/* SPDX-License-Identifier: Apache-2.0 */
#include "toy.h"

#include <stdio.h>
#include <stdlib.h>

#include "call.h"
#include "h2end.h"
#include "session/session.h"

enum toy_fault toy_fault;

#define LEND 65536 /* bytes an executor may be ahead of the client */

struct toy {
	struct env env;
	enum toy_fault fault;
	bool done_once; /* faults that happen once */
	struct session_stats st;
	struct toy_client **clients;
	unsigned n_clients;
	uint64_t cancel_at; /* TOY_LATE_CANCEL */
	struct toy_stream *cancel;
	struct dial *old_dial;
};

struct toy_client {
	struct toy *t;
	struct port *port;
	struct addr peer;
	struct h2end h;
	struct toy_stream **streams;
	unsigned n_streams;
	uint32_t last_window;
};

struct toy_stream {
	struct toy_client *c;
	struct h2stream *st;    /* to the client */
	struct bytes req, body; /* body: received and not sent */
	struct fields head, trailers;
	char host[254];
	uint32_t port_no;
	bool asked, over, ended, counted;
	int status;
	uint64_t sent;
	/* the executor's side */
	struct dial *dial;
	struct port *up;
	struct addr up_addr;
	struct h2end uh;
	struct h2stream *ust;
};

static void pump(struct toy_stream *s);

static bool fault_once(struct toy *t, enum toy_fault f)
{
	bool now = t->fault == f && !t->done_once;

	t->done_once |= now;
	return now;
}

static struct fields fields_copy(const struct fields *f)
{
	struct fields c = { xalloc(f->n * sizeof(*c.f)), f->n };

	for (size_t i = 0; i < f->n; i++) {
		c.f[i].name = xalloc(strlen(f->f[i].name) + 1);
		memcpy(c.f[i].name, f->f[i].name, strlen(f->f[i].name));
		c.f[i].value = xalloc(strlen(f->f[i].value) + 1);
		memcpy(c.f[i].value, f->f[i].value, strlen(f->f[i].value));
	}
	return c;
}

static void fields_drop(struct fields *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++) {
		if (name && strcmp(f->f[i].name, name))
			continue;
		free(f->f[i].name);
		free(f->f[i].value);
		f->f[i--] = f->f[--f->n];
		if (!name && !f->n)
			break;
	}
	if (!name) {
		free(f->f);
		f->f = NULL;
	}
}

/* ---- books ---------------------------------------------------------------- */

static void emit(struct toy *t, enum session_event_kind kind, const struct addr *peer)
{
	struct session_event e = { .kind = kind, .peer = peer, .text = "toy" };

	if (t->fault == TOY_NO_CLOSE_EVENT && kind == EVENT_UPSTREAM_CLOSED)
		return;
	t->env.emit->event(t->env.emit_ctx, &e);
}

static void record(struct toy_stream *s, enum stream_end end)
{
	struct toy *t = s->c->t;
	struct stream_record r = {
		.client = s->c->peer,
		.executor = s->up_addr,
		.method = "DoGet",
		.datapath = "toy",
		.stream_id = s->st->id,
		.data_bytes = s->sent + (t->fault == TOY_WRONG_BYTES),
		.grpc_status = s->status,
		.end = end,
		.reason = end == END_COMPLETE ? "" : "toy",
	};

	if (t->fault == TOY_WRONG_RECORD && s->status == 0)
		r.grpc_status = 2;
	t->st.streams_ended[end]++;
	t->st.streams_open--;
	if (s->status < 0)
		t->st.streams_reset++;
	else
		t->st.streams_status[s->status > 16 ? 16 : s->status]++;
	if (!fault_once(t, TOY_NO_RECORD))
		t->env.emit->stream_done(t->env.emit_ctx, &r);
	if (fault_once(t, TOY_TWO_RECORDS))
		t->env.emit->stream_done(t->env.emit_ctx, &r);
}

/* ---- ends ----------------------------------------------------------------- */

static void write_port(struct port *p, struct h2end *h, bool busy)
{
	unsigned want = PORT_READABLE;

	while (h->out.len) {
		struct iovec iov = { bytes_at(&h->out), h->out.len };
		ssize_t n = p->ops->sendv(p, &iov, 1);

		if (n < 0) {
			if (n == -EAGAIN)
				want |= PORT_WRITABLE;
			break; /* dead: reading will tell */
		}
		bytes_drop(&h->out, (size_t)n);
	}
	p->ops->want(p, want | (busy ? PORT_WRITABLE : 0));
}

static void close_up(struct toy_stream *s)
{
	struct toy *t = s->c->t;

	if (s->dial)
		t->env.ops->dial_cancel(t->env.ctx, s->dial);
	s->dial = NULL;
	if (!s->up || t->fault == TOY_KEEP_UPSTREAM)
		return;
	if (h2_stream_open(s->ust))
		h2_send_rst(&s->uh, s->ust, NGHTTP2_CANCEL);
	write_port(s->up, &s->uh, false);
	s->up->ops->close(s->up, false);
	if (fault_once(t, TOY_USE_CLOSED))
		s->up->ops->want(s->up, 0);
	if (fault_once(t, TOY_CLOSE_TWICE))
		s->up->ops->close(s->up, false);
	s->up = NULL;
	t->st.upstreams_open--;
	emit(t, EVENT_UPSTREAM_CLOSED, &s->up_addr);
}

static void end_stream(struct toy_stream *s, enum stream_end end)
{
	struct toy *t = s->c->t;

	if (s->over)
		return;
	s->over = true;
	record(s, end);
	t->st.dropped[DROP_STREAM_CLOSED] += s->body.len;
	bytes_drop(&s->body, s->body.len);
	if (end == END_CLIENT && t->fault == TOY_NO_CANCEL)
		return;
	if (end == END_CLIENT && t->fault == TOY_LATE_CANCEL && s->up && !t->cancel) {
		t->cancel = s;
		t->cancel_at = t->env.ops->now(t->env.ctx) + 300 * NSEC_PER_MSEC;
		return;
	}
	close_up(s);
}

static void answer(struct toy_stream *s, int status, const char *text)
{
	char number[12];
	struct field f[5];
	size_t n = 0;

	if (s->over)
		return;
	snprintf(number, sizeof(number), "%d", status);
	if (!s->head.n) {
		f[n++] = (struct field){ (char *)":status", (char *)"200" };
		f[n++] = (struct field){ (char *)"content-type", (char *)"application/grpc" };
	}
	f[n++] = (struct field){ (char *)"grpc-status", number };
	f[n++] = (struct field){ (char *)"grpc-message", (char *)text };
	h2_send_head(&s->c->h, s->st, f, n, true, NULL);
	s->status = status;
	end_stream(s, status ? END_EXECUTOR : END_COMPLETE);
}

/* The executor has gone before its trailers. */
static void broken(struct toy_stream *s)
{
	struct toy *t = s->c->t;

	if (s->over || s->ended)
		return;
	switch (t->fault) {
	case TOY_END_ON_DATA:
		h2_send_data(&s->c->h, s->st, NULL, 0, true, 0);
		end_stream(s, END_EXECUTOR);
		break;
	case TOY_FALSE_OK:
		answer(s, 0, "");
		break;
	case TOY_RESET_CANCEL:
		h2_send_rst(&s->c->h, s->st, NGHTTP2_CANCEL);
		end_stream(s, END_EXECUTOR);
		break;
	default:
		answer(s, 2, "flightsplice: executor gone");
	}
}

/* ---- the executor's side -------------------------------------------------- */

static void up_head(struct h2end *h, struct h2stream *st, const struct fields *f, bool end)
{
	struct toy_stream *s = h->user;

	(void)st;
	if (s->over)
		return;
	if (end && !s->head.n) { /* trailers only */
		h2_send_head(&s->c->h, s->st, f->f, f->n, true, NULL);
		s->status = fields_get(f, "grpc-status") ? atoi(fields_get(f, "grpc-status")) : 2;
		s->ended = true;
		end_stream(s, END_COMPLETE);
	} else if (end) {
		s->trailers = fields_copy(f);
		s->ended = true;
		pump(s);
	} else {
		s->head = fields_copy(f);
		h2_send_head(&s->c->h, s->st, f->f, f->n, false, NULL);
	}
}

static void up_data(struct h2end *h, struct h2stream *st, const uint8_t *p, size_t len, size_t flow,
		    bool end)
{
	struct toy_stream *s = h->user;
	struct toy *t = s->c->t;

	(void)st;
	t->st.data_in += flow + (t->fault == TOY_WRONG_SUM);
	t->st.dropped[DROP_PADDING] += flow - len;
	if (s->over) {
		t->st.dropped[DROP_STREAM_CLOSED] += len;
		return;
	}
	if (len > 6000 && fault_once(t, TOY_LOSE_BYTES)) {
		t->st.dropped[DROP_VIOLATION] += 100;
		len -= 100;
	}
	if (len && t->fault == TOY_LOSE_TAIL && s->st->id > 1 && !t->done_once) {
		t->st.dropped[DROP_VIOLATION] += len;
		return;
	}
	bytes_add(&s->body, p, len);
	if (len > 2000 && fault_once(t, TOY_FLIP_BYTE))
		bytes_at(&s->body)[s->body.len - 1] ^= 1;
	if (len > 2000 && fault_once(t, TOY_REPEAT_BYTES)) {
		bytes_add(&s->body, p, 100);
		t->st.data_in += 100;
	}
	if (end)
		broken(s);
	pump(s);
}

static void up_reset(struct h2end *h, struct h2stream *st, uint32_t code)
{
	(void)st, (void)code;
	broken(h->user);
}

static void nothing_goaway(struct h2end *h, uint32_t last, uint32_t code)
{
	(void)h, (void)last, (void)code;
}

static void up_window(struct h2end *h)
{
	(void)h;
}

static void ping_ack(struct h2end *h, const uint8_t data[8])
{
	h2_send_raw(h, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, data, 8);
}

static void nothing_pong(struct h2end *h, const uint8_t data[8])
{
	(void)h, (void)data;
}

static void ignore_bad(struct h2end *h, const char *what)
{
	(void)what;
	h->broken = false; /* junk of a peer: read on */
}

static const struct h2ops up_ops = {
	.head = up_head,
	.data = up_data,
	.reset = up_reset,
	.goaway = nothing_goaway,
	.window = up_window,
	.ping = ping_ack,
	.pong = nothing_pong,
	.bad = ignore_bad,
};

static void up_event(struct port *p, unsigned events)
{
	struct toy_stream *s = p->owner;
	uint8_t buf[8192];
	ssize_t n = -EAGAIN;

	if (events & PORT_READABLE) {
		if (fault_once(s->c->t, TOY_RECV_NOTHING))
			p->ops->recv(p, buf, 0);
		while (s->up && (n = p->ops->recv(p, buf, sizeof(buf))) > 0)
			h2_feed(&s->uh, buf, (size_t)n);
	}
	if (!s->up)
		return;
	if (n != -EAGAIN) {
		broken(s);
		if (s->up)
			p->ops->want(p, 0);
		close_up(s);
	} else if (s->up) {
		write_port(p, &s->uh, false);
	}
}

static void send_message(struct toy_stream *s, struct h2stream *st)
{
	size_t off = 0;

	while (off < s->req.len) {
		size_t n = min_u64(s->req.len - off, 16384);

		h2_send_data(&s->uh, st, bytes_at(&s->req) + off, n, off + n == s->req.len, 0);
		off += n;
	}
}

static void send_request(struct toy_stream *s, struct fields *head)
{
	struct h2settings set = h2_defaults;
	struct toy *t = s->c->t;

	set.table = set.push = set.window = 0;
	if (t->fault == TOY_OTHER_SETTINGS)
		set.window = 65535;
	h2_send_preface(&s->uh);
	if (t->fault != TOY_NO_SETTINGS)
		h2_send_settings(&s->uh, &set);
	h2_send_update(&s->uh, NULL, 0x7fffffff - 65535);
	if (t->fault == TOY_DROP_TIMEOUT)
		fields_drop(head, "grpc-timeout");
	if (t->fault == TOY_DROP_METADATA)
		fields_drop(head, "x-meta-39");
	if (fault_once(t, TOY_FORWARD_PING))
		h2_send_ping(&s->uh, (const uint8_t *)"CLNT\0\0\0");
	s->ust = h2_open(&s->uh, s->st->id);
	h2_send_head(&s->uh, s->ust, head->f, head->n, false, NULL);
	if (fault_once(t, TOY_CHANGE_TICKET))
		bytes_at(&s->req)[s->req.len - 1] ^= 1;
	send_message(s, s->ust);
	if (fault_once(t, TOY_ASK_TWICE)) {
		struct h2stream *again = h2_open(&s->uh, 0);

		h2_send_head(&s->uh, again, head->f, head->n, false, NULL);
		send_message(s, again);
	}
	h2_send_update(&s->uh, s->ust, t->fault == TOY_OVERGRANT ? 64u << 20 : LEND);
}

static void dialled(void *arg, struct port *port, const struct dial_result *res)
{
	struct toy_stream *s = arg;
	struct toy *t = s->c->t;
	struct fields head = s->head;

	t->old_dial = s->dial;
	s->dial = NULL;
	if (fault_once(t, TOY_CANCEL_DIAL_LATE))
		t->env.ops->dial_cancel(t->env.ctx, t->old_dial);
	s->head = (struct fields){ 0 };
	if (!port) {
		fields_drop(&head, NULL);
		if (t->fault != TOY_HANG)
			answer(s, res->phase == DIAL_POLICY ? 7 : 2, "flightsplice: unreachable");
		return;
	}
	s->up = port;
	s->up_addr = res->addr;
	port->owner = s;
	port->on_event = up_event;
	t->st.upstreams_open++;
	emit(t, EVENT_UPSTREAM_OPEN, &s->up_addr);
	h2_init(&s->uh, &up_ops, s, false);
	send_request(s, &head);
	fields_drop(&head, NULL);
	write_port(port, &s->uh, false);
}

/* ---- the client's side ---------------------------------------------------- */

static void send_some(struct toy_stream *s)
{
	struct h2end *h = &s->c->h;
	struct toy *t = s->c->t;

	while (s->body.len && !s->over) {
		int64_t room = min_i64(h->send_win, s->st->send_win);
		size_t n;

		if (t->fault == TOY_IGNORE_STREAM_WINDOW)
			room = h->send_win;
		if (t->fault == TOY_IGNORE_CONNECTION_WINDOW)
			room = s->st->send_win;
		if (room <= 0 || h->out.len > LEND)
			return;
		n = min_u64((uint64_t)min_i64(room, 16384), s->body.len);
		h2_send_data(h, s->st, bytes_at(&s->body), n, false, 0);
		bytes_drop(&s->body, n);
		s->sent += n;
		t->st.data_out += n;
	}
}

static void send_end(struct toy_stream *s)
{
	struct toy *t = s->c->t;
	const char *status = fields_get(&s->trailers, "grpc-status");

	if (t->fault == TOY_NO_STATUS)
		fields_drop(&s->trailers, "grpc-status");
	else if (!status) {
		answer(s, 2, "flightsplice: no status");
		return;
	}
	if (t->fault == TOY_NEEDLESS_FAILURE && !strcmp(status, "0")) {
		answer(s, 13, "flightsplice: not in the mood");
		return;
	}
	s->status = t->fault == TOY_NO_STATUS ? -1 : atoi(status);
	for (size_t i = 0; i < s->trailers.n; i++)
		if (t->fault == TOY_CHANGE_MESSAGE &&
		    !strcmp(s->trailers.f[i].name, "grpc-message"))
			s->trailers.f[i].value[0] ^= 1;
	if (t->fault == TOY_DROP_DETAILS)
		fields_drop(&s->trailers, "grpc-status-details-bin");
	if (t->fault == TOY_BAD_HPACK)
		h2_send_raw(&s->c->h, NGHTTP2_HEADERS, 5, s->st->id, "\xff\x00", 2);
	else
		h2_send_head(&s->c->h, s->st, s->trailers.f, s->trailers.n, true, NULL);
	end_stream(s, END_COMPLETE);
}

static void pump(struct toy_stream *s)
{
	if (!s->ust)
		return;
	send_some(s);
	if (s->up && !s->over && s->c->t->fault != TOY_OVERGRANT) {
		int64_t ahead = h2_recv_window(&s->uh, s->ust) + (int64_t)s->body.len;

		if (ahead <= LEND / 2)
			h2_send_update(&s->uh, s->ust, (uint32_t)(LEND - ahead));
	}
	if (s->ended && !s->body.len && !s->over)
		send_end(s);
}

static void cl_head(struct h2end *h, struct h2stream *st, const struct fields *f, bool end)
{
	struct toy_client *c = h->user;
	struct toy_stream *s = xalloc(sizeof(*s));

	(void)end;
	s->c = c;
	s->st = st;
	st->user = s;
	s->status = -1;
	s->head = fields_copy(f);
	c->streams = xgrow(c->streams, (c->n_streams + 1) * sizeof(*c->streams));
	c->streams[c->n_streams++] = s;
	c->t->st.streams_opened++;
	c->t->st.streams_open++;
}

static void cl_data(struct h2end *h, struct h2stream *st, const uint8_t *p, size_t len, size_t flow,
		    bool end)
{
	struct toy_stream *s = st->user;
	struct toy *t = s->c->t;

	(void)h, (void)flow, (void)end;
	if (s->over)
		return;
	bytes_add(&s->req, p, len);
	if (s->asked || s->req.len < 5 || s->req.len < 5 + get_be32(bytes_at(&s->req) + 1))
		return;
	s->asked = true;
	if (!ticket_target(bytes_at(&s->req), s->req.len, s->host, &s->port_no) || !s->port_no) {
		fields_drop(&s->head, NULL);
		answer(s, 3, "flightsplice: ticket");
		return;
	}
	s->dial = t->env.ops->dial(t->env.ctx, s->host, (uint16_t)s->port_no, 5 * NSEC_PER_SEC,
				   dialled, s);
	if (!s->dial) {
		fields_drop(&s->head, NULL);
		answer(s, 8, "flightsplice: no descriptors");
	}
}

static void cl_reset(struct h2end *h, struct h2stream *st, uint32_t code)
{
	(void)h, (void)code;
	if (st->user)
		end_stream(st->user, END_CLIENT);
}

static void cl_window(struct h2end *h)
{
	struct toy_client *c = h->user;

	if (c->t->fault == TOY_IGNORE_DECREASE && h->remote.window < c->last_window)
		for (unsigned i = 0; i < c->n_streams; i++)
			c->streams[i]->st->send_win += c->last_window - h->remote.window;
	c->last_window = h->remote.window;
}

static void cl_ping(struct h2end *h, const uint8_t data[8])
{
	struct toy_client *c = h->user;

	if (c->t->fault != TOY_NO_PONG)
		ping_ack(h, data);
}

static const struct h2ops client_ops = {
	.head = cl_head,
	.data = cl_data,
	.reset = cl_reset,
	.goaway = nothing_goaway,
	.window = cl_window,
	.ping = cl_ping,
	.pong = nothing_pong,
	.bad = ignore_bad,
};

static void close_client(struct toy_client *c)
{
	for (unsigned i = 0; i < c->n_streams; i++)
		end_stream(c->streams[i], END_CLIENT);
	c->port->ops->close(c->port, false);
	c->port = NULL;
	c->t->st.clients_open--;
	emit(c->t, EVENT_CLIENT_CLOSED, &c->peer);
}

static void client_event(struct port *p, unsigned events)
{
	struct toy_client *c = p->owner;
	uint8_t buf[8192];
	ssize_t n = -EAGAIN;

	if (events & PORT_READABLE)
		while ((n = p->ops->recv(p, buf, sizeof(buf))) > 0)
			h2_feed(&c->h, buf, (size_t)n);
	if (n != -EAGAIN)
		close_client(c);
}

static void toy_accept(void *arg, struct port *port)
{
	struct toy *t = arg;
	struct toy_client *c = xalloc(sizeof(*c));
	struct h2settings s = h2_defaults;

	c->t = t;
	c->port = port;
	c->peer = port->peer;
	c->last_window = h2_defaults.window;
	h2_init(&c->h, &client_ops, c, true);
	s.streams = 100;
	s.window = 1 << 20;
	h2_send_settings(&c->h, &s);
	port->owner = c;
	port->on_event = client_event;
	port->ops->want(port, PORT_READABLE);
	t->clients = xgrow(t->clients, (t->n_clients + 1) * sizeof(*t->clients));
	t->clients[t->n_clients++] = c;
	t->st.clients_accepted++;
	t->st.clients_open++;
	emit(t, EVENT_CLIENT_OPEN, &c->peer);
}

static void toy_run(void *arg)
{
	struct toy *t = arg;

	if (t->cancel && t->env.ops->now(t->env.ctx) >= t->cancel_at) {
		close_up(t->cancel);
		t->cancel = NULL;
	}
	for (unsigned i = 0; i < t->n_clients; i++) {
		struct toy_client *c = t->clients[i];

		for (unsigned k = 0; k < c->n_streams; k++) {
			pump(c->streams[k]);
			if (c->streams[k]->up)
				write_port(c->streams[k]->up, &c->streams[k]->uh, false);
		}
		if (!c->port)
			continue;
		if (c->h.out.len > 2000 && fault_once(t, TOY_FORWARD_UNKNOWN))
			h2_send_raw(&c->h, 0x42, 0, 0, "JJJ", 3);
		if (c->h.out.len > 2000 && fault_once(t, TOY_HALF_FRAME)) {
			struct iovec iov = { bytes_at(&c->h.out), 20 };

			c->port->ops->sendv(c->port, &iov, 1);
			close_client(c);
			continue;
		}
		write_port(c->port, &c->h, t->fault == TOY_BUSY_LOOP);
	}
}

static uint64_t toy_deadline(const void *arg)
{
	const struct toy *t = arg;

	if (t->fault == TOY_TIMER_SPIN)
		return 0;
	return t->cancel ? t->cancel_at : UINT64_MAX;
}

static void *toy_create(const struct env *env)
{
	struct toy *t = xalloc(sizeof(*t));

	t->env = *env;
	t->fault = toy_fault;
	return t;
}

static void toy_drain(void *arg)
{
	(void)arg;
}

static bool toy_idle(const void *arg)
{
	return !((const struct toy *)arg)->st.clients_open;
}

static const void *toy_stats(const void *arg)
{
	return &((const struct toy *)arg)->st;
}

static void stream_free(struct toy_stream *s)
{
	if (s->ust)
		h2_free(&s->uh);
	bytes_free(&s->req);
	bytes_free(&s->body);
	fields_drop(&s->head, NULL);
	fields_drop(&s->trailers, NULL);
	free(s);
}

static void toy_destroy(void *arg)
{
	struct toy *t = arg;
	bool leave = t->fault == TOY_LEAVE_PORTS;

	for (unsigned i = 0; i < t->n_clients; i++) {
		struct toy_client *c = t->clients[i];

		for (unsigned k = 0; k < c->n_streams; k++) {
			struct toy_stream *s = c->streams[k];

			if (s->dial)
				t->env.ops->dial_cancel(t->env.ctx, s->dial);
			if (s->up)
				s->up->ops->close(s->up, true);
			stream_free(s);
		}
		if (c->port && !leave)
			c->port->ops->close(c->port, true);
		h2_free(&c->h);
		free(c->streams);
		free(c);
	}
	free(t->clients);
	free(t);
}

const struct subject_ops subject_toy = {
	.create = toy_create,
	.accept = toy_accept,
	.run = toy_run,
	.next_deadline = toy_deadline,
	.drain = toy_drain,
	.idle = toy_idle,
	.stats = toy_stats,
	.destroy = toy_destroy,
};
