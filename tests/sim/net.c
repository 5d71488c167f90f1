/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.c - the in-memory network: connections, the subject's ports, dialling.
 *
 * dir[i] of a connection carries what end i sends. Its `flight` is the sender's
 * send buffer (segments with the time at which they arrive), its `rcv` the
 * receiver's. move() is the network: it runs when a segment is due and when the
 * receiver has made room.
 */
#include "world_int.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define FREE_AT_ONCE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FREE_AT_ONCE 1
#endif
#endif
#ifndef FREE_AT_ONCE
#define FREE_AT_ONCE 0
#endif

/* Linux's IOV_MAX. */
#define PIECES_MAX 1024

/* What a connect() gives up after when nobody set a timeout. */
#define KERNEL_CONNECT_TIMEOUT (127 * NSEC_PER_SEC)

struct segment {
	size_t len;
	uint64_t at;
};

struct dir {
	struct conn *conn;
	int from;
	struct bytes flight, rcv;
	struct segment *segs;
	size_t seg_first, seg_n, seg_cap;
	uint64_t last_at; /* nothing overtakes */
	uint64_t blocked_until;
	bool fin, fin_arrived;
	bool discard;     /* the receiver is gone: swallow */
	bool rst_on_data; /* ... and its kernel answers data with RST */
	struct alarm move;
};

struct end {
	struct sock sock;
	struct alarm kick, rst;
	bool closed, shut, is_port;
	int err;
	struct vport *vport;
};

struct conn {
	struct world *world;
	struct list link;
	struct link prop;
	struct end end[2];
	struct dir dir[2];
	struct addr addr[2]; /* of the opener, of the acceptor */
	struct alarm accept;
	void (*accepted)(void *arg, struct sock *s);
	void *accept_arg;
};

static void move(void *arg);

static struct addr make_addr(unsigned net, unsigned n, uint16_t port)
{
	struct addr a = { .len = sizeof(struct sockaddr_in) };

	a.in.sin_family = AF_INET;
	a.in.sin_port = htons(port);
	a.in.sin_addr.s_addr = htonl(10u << 24 | net << 16 | (n & 0xffff));
	return a;
}

static struct conn *conn_new(struct world *w, const struct link *prop)
{
	struct conn *c = xalloc(sizeof(*c));

	c->world = w;
	c->prop = *prop;
	for (int i = 0; i < 2; i++) {
		c->end[i].sock = (struct sock){ .conn = c, .side = i };
		c->dir[i].conn = c;
		c->dir[i].from = i;
	}
	list_add_tail(&w->conns, &c->link);
	return c;
}

/* ---- the network -------------------------------------------------------- */

static void kick_fire(void *arg)
{
	struct end *e = arg;

	if (e->sock.ready && !e->closed)
		e->sock.ready(e->sock.arg);
}

static void kick(struct conn *c, int side)
{
	struct world *w = c->world;
	struct end *e = &c->end[side];

	if (!e->is_port && e->sock.ready && !e->closed)
		alarm_soon(w, &e->kick, w->now + rng_below(&w->rng, 50 * NSEC_PER_USEC), kick_fire,
			   e);
}

static uint64_t travel(struct conn *c)
{
	uint64_t jitter = c->prop.jitter_ns ? rng_below(&c->world->rng, c->prop.jitter_ns) : 0;

	return c->world->now + c->prop.latency_ns + jitter;
}

static void drop_flight(struct dir *d)
{
	bytes_free(&d->flight);
	d->seg_n = d->seg_first = 0;
}

static void rst_arrives(void *arg)
{
	struct end *e = arg;
	struct conn *c = e->sock.conn;
	struct dir *in = &c->dir[!e->sock.side];

	if (in->blocked_until > c->world->now) {
		if (in->blocked_until != UINT64_MAX)
			alarm_set(c->world, &e->rst, in->blocked_until, rst_arrives, e);
		return;
	}
	e->err = ECONNRESET;
	drop_flight(&c->dir[e->sock.side]);
	drop_flight(in);
	if (rng_chance(&c->world->rng, 50))
		bytes_free(&in->rcv);
	kick(c, e->sock.side);
}

/* End `side` sends a reset: what it has sent may be lost, from any segment on. */
static void send_rst(struct conn *c, int side)
{
	struct dir *out = &c->dir[side];
	struct end *other = &c->end[!side];

	if (rng_chance(&c->world->rng, 50))
		drop_flight(out);
	out->fin = false;
	if (!other->err)
		alarm_set(c->world, &other->rst, max_u64(travel(c), out->last_at), rst_arrives,
			  other);
}

static void send_fin(struct conn *c, int side)
{
	struct dir *d = &c->dir[side];

	if (d->fin)
		return;
	d->fin = true;
	d->last_at = max_u64(d->last_at, travel(c));
	alarm_soon(c->world, &d->move, d->seg_n ? d->segs[d->seg_first].at : d->last_at, move, d);
}

static size_t move_segment(struct dir *d, struct segment *s)
{
	size_t room = d->conn->prop.buffer > d->rcv.len ? d->conn->prop.buffer - d->rcv.len : 0;
	size_t n = d->discard ? s->len : min_u64(s->len, room);

	if (!d->discard)
		bytes_add(&d->rcv, bytes_at(&d->flight), n);
	bytes_drop(&d->flight, n);
	s->len -= n;
	return n;
}

static void move(void *arg)
{
	struct dir *d = arg;
	struct conn *c = d->conn;
	struct world *w = c->world;
	size_t moved = 0;

	if (d->blocked_until > w->now) {
		if (d->blocked_until != UINT64_MAX)
			alarm_set(w, &d->move, d->blocked_until, move, d);
		return;
	}
	while (d->seg_n && d->segs[d->seg_first].at <= w->now) {
		struct segment *s = &d->segs[d->seg_first];

		moved += move_segment(d, s);
		if (s->len)
			break;
		d->seg_first++;
		d->seg_n--;
	}
	if (moved && d->discard && d->rst_on_data) {
		d->rst_on_data = false;
		send_rst(c, !d->from);
	}
	if (d->fin && !d->fin_arrived && !d->seg_n && d->last_at <= w->now) {
		d->fin_arrived = true;
		kick(c, !d->from);
	}
	if (moved) {
		kick(c, !d->from);
		kick(c, d->from);
		if (c->end[d->from].vport && c->end[d->from].vport->pair)
			kernel_output(c->end[d->from].vport->pair);
		if (c->end[!d->from].vport && c->end[!d->from].vport->pair)
			kernel_input(c->end[!d->from].vport->pair);
	}
	/* Stuck for want of room: the reader calls again. */
	if (d->seg_n && d->segs[d->seg_first].at > w->now)
		alarm_set(w, &d->move, d->segs[d->seg_first].at, move, d);
	else if (!d->seg_n && d->fin && !d->fin_arrived)
		alarm_set(w, &d->move, d->last_at, move, d);
}

static void launch(struct conn *c, struct dir *d, size_t n)
{
	d->last_at = max_u64(d->last_at, travel(c));
	if (d->seg_n && d->segs[d->seg_first + d->seg_n - 1].at == d->last_at) {
		d->segs[d->seg_first + d->seg_n - 1].len += n;
	} else {
		if (d->seg_first && d->seg_first + d->seg_n == d->seg_cap) {
			memmove(d->segs, d->segs + d->seg_first, d->seg_n * sizeof(*d->segs));
			d->seg_first = 0;
		}
		if (d->seg_first + d->seg_n == d->seg_cap) {
			d->seg_cap = d->seg_cap ? 2 * d->seg_cap : 16;
			d->segs = xgrow(d->segs, d->seg_cap * sizeof(*d->segs));
		}
		d->segs[d->seg_first + d->seg_n++] = (struct segment){ n, d->last_at };
	}
	alarm_soon(c->world, &d->move, d->segs[d->seg_first].at, move, d);
}

/* ---- what both kinds of ends do ------------------------------------------ */

static size_t limit_chunk(struct conn *c, size_t n)
{
	uint32_t chunk = c->prop.chunk;

	if (chunk && n > 1)
		n = min_u64(n, rng_range(&c->world->rng, 1, chunk));
	return n;
}

static ssize_t end_recv(struct conn *c, int side, void *buf, size_t len)
{
	struct dir *d = &c->dir[!side];
	size_t n = limit_chunk(c, min_u64(len, d->rcv.len));

	if (n) {
		memcpy(buf, bytes_at(&d->rcv), n);
		bytes_drop(&d->rcv, n);
		if (d->seg_n && d->segs[d->seg_first].at <= c->world->now)
			alarm_soon(c->world, &d->move, c->world->now + c->prop.latency_ns, move, d);
		return (ssize_t)n;
	}
	if (c->end[side].err)
		return -c->end[side].err;
	return d->fin_arrived ? 0 : -EAGAIN;
}

static size_t end_room(const struct conn *c, int side)
{
	size_t used = c->dir[side].flight.len;

	return c->prop.buffer > used ? c->prop.buffer - used : 0;
}

static ssize_t end_sendv(struct conn *c, int side, const struct iovec *iov, int n)
{
	struct dir *d = &c->dir[side];
	size_t total = 0, left;

	if (c->end[side].err)
		return -c->end[side].err;
	if (c->end[side].shut)
		return -EPIPE;
	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	left = limit_chunk(c, min_u64(total, end_room(c, side)));
	if (!left || rng_chance(&c->world->rng, c->prop.eagain_percent))
		return -EAGAIN;
	total = left;
	for (int i = 0; left; i++) {
		size_t part = min_u64(left, iov[i].iov_len);

		bytes_add(&d->flight, iov[i].iov_base, part);
		left -= part;
	}
	launch(c, d, total);
	return (ssize_t)total;
}

/* The end takes nothing more; `answer`: with RST. */
static void end_deaf(struct conn *c, int side, bool answer)
{
	struct dir *in = &c->dir[!side];

	c->end[side].closed = true;
	c->end[side].sock.ready = NULL;
	alarm_clear(&c->end[side].kick);
	in->discard = true;
	in->rst_on_data = answer;
	bytes_free(&in->rcv);
	if (in->seg_n)
		alarm_soon(c->world, &in->move, c->world->now, move, in);
}

/* ---- peers' sockets ------------------------------------------------------ */

ssize_t sock_recv(struct sock *s, void *buf, size_t len)
{
	return end_recv(s->conn, s->side, buf, len);
}

ssize_t sock_send(struct sock *s, const void *buf, size_t len)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return end_sendv(s->conn, s->side, &iov, 1);
}

size_t sock_room(const struct sock *s)
{
	return end_room(s->conn, s->side);
}

size_t sock_pending(const struct sock *s)
{
	const struct dir *d = &s->conn->dir[!s->side];

	return d->flight.len + d->rcv.len;
}

void sock_shutdown(struct sock *s)
{
	s->conn->end[s->side].shut = true;
	send_fin(s->conn, s->side);
}

void sock_close(struct sock *s, enum sock_close how)
{
	struct conn *c = s->conn;
	bool unread = c->dir[!s->side].rcv.len > 0;

	if (c->end[s->side].closed)
		return;
	if (c->end[s->side].err) {
		end_deaf(c, s->side, false);
	} else if (how == SOCK_RST || unread) {
		end_deaf(c, s->side, false);
		send_rst(c, s->side);
	} else {
		end_deaf(c, s->side, true);
		send_fin(c, s->side);
	}
}

bool sock_closed(const struct sock *s)
{
	return s->conn->end[s->side].closed;
}

bool sock_orphan(const struct sock *s)
{
	return s->conn->end[!s->side].closed;
}

static void block(struct dir *d, uint64_t until_ns)
{
	d->blocked_until = until_ns;
	if (until_ns != UINT64_MAX)
		alarm_soon(d->conn->world, &d->move, until_ns, move, d);
}

void sock_partition_one(struct sock *s, bool outbound, uint64_t until_ns)
{
	block(&s->conn->dir[outbound ? s->side : !s->side], until_ns);
}

void sock_partition(struct sock *s, uint64_t until_ns)
{
	sock_partition_one(s, true, until_ns);
	sock_partition_one(s, false, until_ns);
}

const struct addr *sock_addr(const struct sock *s)
{
	return &s->conn->addr[0];
}

/* ---- the subject's ports ------------------------------------------------- */

unsigned vport_events(const struct vport *v)
{
	const struct conn *c = v->conn;
	const struct dir *in = &c->dir[!v->side];
	bool dead = c->end[v->side].err;
	unsigned events = 0;

	if (dead || in->rcv.len || in->fin_arrived)
		events |= PORT_READABLE;
	if (dead || end_room(c, v->side))
		events |= PORT_WRITABLE;
	/* What came before the end has been through the verdict by then, see kernel.c. */
	if ((dead || in->fin_arrived) && !v->hung_up && !(v->pair && in->rcv.len))
		events |= PORT_HANGUP;
	return events & v->want;
}

/* The port of a call the subject makes; complains when it may not make it. */
static struct vport *usable(struct port *p, const char *call)
{
	struct vport *v = container_of(p, struct vport, port);

	if (!v->world->in_subject)
		world_fail(v->world, "%s() outside any call into the subject", call);
	v->fruitless = 0;
	return v;
}

static ssize_t vport_recv(struct port *p, void *buf, size_t len)
{
	unsigned fruitless = container_of(p, struct vport, port)->fruitless;
	struct vport *v = usable(p, "recv");
	ssize_t n;

	if (!len) {
		world_fail(v->world, "recv() of no bytes: 0 would mean FIN");
		return -EINVAL;
	}
	if (v->dialled && v->pair && !kernel_left(v->pair, v))
		world_fail(v->world, "recv() from an upstream that the kernel reads");
	n = end_recv(v->conn, v->side, buf, len);
	if (n <= 0 && n != -EAGAIN) {
		if (v->end_told)
			v->fruitless = fruitless;
		v->end_told = true;
	}
	return n;
}

static ssize_t vport_sendv(struct port *p, const struct iovec *iov, int n)
{
	struct vport *v = usable(p, "sendv");
	size_t total = 0;

	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	if (n <= 0 || n > PIECES_MAX || !total) {
		world_fail(v->world, "sendv() of %d pieces, %zu bytes", n, total);
		return -EINVAL;
	}
	if (v->conn->end[v->side].shut)
		world_fail(v->world, "sendv() after shutdown()");
	if (!v->dialled && v->pair && !kernel_left(v->pair, v))
		world_fail(v->world, "sendv() to a client that the kernel writes to");
	return end_sendv(v->conn, v->side, iov, n);
}

static void vport_want(struct port *p, unsigned mask)
{
	struct vport *v = container_of(p, struct vport, port);
	unsigned fruitless = v->fruitless;

	usable(p, "want");
	v->fruitless = fruitless; /* asking is not doing something */
	if (mask & ~(unsigned)(PORT_READABLE | PORT_WRITABLE | PORT_HANGUP) ||
	    (mask & PORT_READABLE && mask & PORT_HANGUP))
		world_fail(v->world, "want(%#x)", mask);
	if (mask && !p->on_event)
		world_fail(v->world, "want(%#x) without on_event", mask);
	v->want = mask;
}

static void vport_shutdown(struct port *p)
{
	struct vport *v = usable(p, "shutdown");

	v->conn->end[v->side].shut = true;
	send_fin(v->conn, v->side);
}

static ssize_t dead_recv(struct port *p, void *buf, size_t len)
{
	(void)buf, (void)len;
	world_fail(container_of(p, struct vport, port)->world, "recv() on a closed port");
	return -EBADF;
}

static ssize_t dead_sendv(struct port *p, const struct iovec *iov, int n)
{
	(void)iov, (void)n;
	world_fail(container_of(p, struct vport, port)->world, "sendv() on a closed port");
	return -EBADF;
}

static void dead_want(struct port *p, unsigned mask)
{
	(void)mask;
	world_fail(container_of(p, struct vport, port)->world, "want() on a closed port");
}

static void dead_shutdown(struct port *p)
{
	world_fail(container_of(p, struct vport, port)->world, "shutdown() on a closed port");
}

static void dead_close(struct port *p, bool reset)
{
	(void)reset;
	world_fail(container_of(p, struct vport, port)->world, "close() on a closed port");
}

static int vport_fd(struct port *p)
{
	(void)p;
	return -1;
}

static const struct port_ops dead_ops = {
	.recv = dead_recv,
	.sendv = dead_sendv,
	.want = dead_want,
	.shutdown = dead_shutdown,
	.close = dead_close,
	.fd = vport_fd,
};

static void vport_close(struct port *p, bool reset)
{
	struct vport *v = usable(p, "close");
	struct world *w = v->world;
	struct conn *c = v->conn;

	for (size_t i = 0; i < w->n_ready; i++)
		if (w->ready[i].vport == v)
			w->ready[i].vport = NULL;
	if (v->pair && !kernel_left(v->pair, v))
		world_fail(w, "close() of a port that is spliced");
	c->end[v->side].vport = NULL;
	end_deaf(c, v->side, false);
	if (!c->end[v->side].err) {
		if (reset)
			send_rst(c, v->side);
		else
			send_fin(c, v->side);
	}
	w->n_ports--;
	w->n_dialled -= v->dialled;
	list_del(&v->link);
	if (FREE_AT_ONCE) {
		free(v);
		return;
	}
	v->want = 0;
	p->ops = &dead_ops;
	list_add_tail(&w->tombs, &v->link);
}

static const struct port_ops vport_ops = {
	.recv = vport_recv,
	.sendv = vport_sendv,
	.want = vport_want,
	.shutdown = vport_shutdown,
	.close = vport_close,
	.fd = vport_fd,
};

static struct vport *vport_new(struct conn *c, int side)
{
	struct vport *v = xalloc(sizeof(*v));
	struct world *w = c->world;

	v->port.ops = &vport_ops;
	v->port.peer = c->addr[!side];
	v->port.local = c->addr[side];
	v->world = w;
	v->conn = c;
	v->side = side;
	v->dialled = side == 0;
	c->end[side].is_port = true;
	c->end[side].vport = v;
	list_add_tail(&w->ports, &v->link);
	w->n_ports++;
	w->n_dialled += v->dialled;
	return v;
}

unsigned world_ports(const struct world *w)
{
	return w->n_ports;
}

unsigned world_dialled_ports(const struct world *w)
{
	return w->n_dialled;
}

static void accept_client(void *arg)
{
	struct conn *c = arg;
	struct world *w = c->world;
	struct vport *v;

	if (!w->subject)
		return;
	v = vport_new(c, 1);
	subject_enter(w);
	w->ops->accept(w->subject, &v->port);
	subject_leave(w);
}

struct sock *world_connect(struct world *w, const struct link *link)
{
	struct conn *c = conn_new(w, link);
	unsigned n = w->n_clients++;

	c->addr[0] = make_addr(1, n, (uint16_t)(20000 + n % 40000));
	c->addr[1] = make_addr(0, 1, 50060);
	c->end[1].is_port = true;
	alarm_set(w, &c->accept, travel(c), accept_client, c);
	return &c->end[0].sock;
}

/* ---- for the kernel ------------------------------------------------------ */

const struct bytes *vport_received(const struct vport *v)
{
	return &v->conn->dir[!v->side].rcv;
}

void vport_take(struct vport *v, size_t n)
{
	struct conn *c = v->conn;
	struct dir *d = &c->dir[!v->side];

	bytes_drop(&d->rcv, n);
	if (d->seg_n && d->segs[d->seg_first].at <= c->world->now)
		alarm_soon(c->world, &d->move, c->world->now, move, d);
}

size_t vport_push(struct vport *v, const uint8_t *p, size_t n)
{
	struct iovec iov = { (void *)(uintptr_t)p, n };
	ssize_t r;

	do /* the whims of a link are for userspace */
		r = end_sendv(v->conn, v->side, &iov, 1);
	while (r == -EAGAIN && end_room(v->conn, v->side));
	return r > 0 ? (size_t)r : 0;
}

size_t vport_unacked(const struct vport *v)
{
	return v->conn->dir[v->side].flight.len;
}

int vport_error(const struct vport *v)
{
	return v->conn->end[v->side].err;
}

bool vport_fin(const struct vport *v)
{
	const struct dir *d = &v->conn->dir[!v->side];

	return d->fin_arrived && !d->rcv.len;
}

/* ---- dialling ------------------------------------------------------------ */

struct dial {
	struct world *world;
	struct host *host; /* NULL: no such name */
	struct addr addr;
	enum dial_outcome outcome;
	dial_done_fn done;
	void *arg;
	struct alarm alarm;
	struct list link;
};

void world_add_host(struct world *w, const struct host *h)
{
	w->hosts = xgrow(w->hosts, (w->n_hosts + 1) * sizeof(*w->hosts));
	w->hosts[w->n_hosts++] = *h;
}

static int find_host(struct world *w, const char *name, uint16_t port)
{
	for (unsigned i = 0; i < w->n_hosts; i++)
		if (!strcmp(w->hosts[i].name, name) && w->hosts[i].port == port)
			return (int)i;
	return -1;
}

static void accept_executor(void *arg)
{
	struct conn *c = arg;

	c->accepted(c->accept_arg, &c->end[1].sock);
}

static struct port *connect_host(struct world *w, struct dial *d)
{
	struct conn *c = conn_new(w, &d->host->link);

	c->addr[0] = make_addr(0, 1, (uint16_t)(30000 + rng_below(&w->rng, 20000)));
	c->addr[1] = d->addr;
	c->accepted = d->host->accepted;
	c->accept_arg = d->host->arg;
	alarm_set(w, &c->accept, travel(c), accept_executor, c);
	return &vport_new(c, 0)->port;
}

static void describe_failure(struct dial *d, struct dial_result *r)
{
	static const struct {
		int err;
		enum dial_phase phase;
		const char *text;
	} table[] = {
		[DIAL_OK] = { 0, DIAL_CONNECT, "" },
		[DIAL_REFUSED] = { -ECONNREFUSED, DIAL_CONNECT, "Connection refused" },
		[DIAL_BLACKHOLE] = { -ETIMEDOUT, DIAL_CONNECT, "Connection timed out" },
		[DIAL_NO_HOST] = { -ENOENT, DIAL_RESOLVE, "Name or service not known" },
		[DIAL_TRY_AGAIN] = { -EAGAIN, DIAL_RESOLVE,
				     "Temporary failure in name resolution" },
		[DIAL_DENIED] = { -EACCES, DIAL_POLICY, "destination refused" },
		[DIAL_NO_FDS] = { -EMFILE, DIAL_CONNECT, "Too many open files" },
		[DIAL_UNROUTABLE] = { -EHOSTUNREACH, DIAL_CONNECT, "No route to host" },
	};

	r->err = table[d->outcome].err;
	r->phase = table[d->outcome].phase;
	r->detail = table[d->outcome].text;
	r->verdict = d->outcome == DIAL_DENIED && d->host ? d->host->verdict : POLICY_ALLOW;
	if (r->phase == DIAL_CONNECT)
		r->addr = d->addr;
}

static void dial_decided(void *arg)
{
	struct dial *d = arg;
	struct world *w = d->world;
	struct dial_result res = { 0 };
	struct port *port = d->outcome == DIAL_OK ? connect_host(w, d) : NULL;
	char *detail;
	dial_done_fn done = d->done;
	void *done_arg = d->arg;

	describe_failure(d, &res);
	/* A copy that dies with the callback, as the contract allows. */
	detail = xalloc(strlen(res.detail) + 1);
	memcpy(detail, res.detail, strlen(res.detail));
	res.detail = detail;
	list_del(&d->link);
	w->n_dials--;
	free(d);
	subject_enter(w);
	done(done_arg, port, &res);
	subject_leave(w);
	memset(detail, '!', strlen(detail));
	free(detail);
}

static struct dial *world_dial(void *ctx, const char *host, uint16_t port, uint64_t timeout_ns,
			       dial_done_fn done, void *arg)
{
	struct world *w = ctx;
	struct dial *d;
	uint64_t limit = timeout_ns ? timeout_ns : KERNEL_CONNECT_TIMEOUT;
	uint64_t takes = NSEC_PER_MSEC;
	int at = find_host(w, host, port);
	enum dial_outcome outcome = DIAL_NO_HOST;

	if (!w->in_subject)
		world_fail(w, "dial() outside any call into the subject");
	if (!host[0] || strlen(host) > 253 || !port || !done)
		world_fail(w, "dial(\"%s\", %u)", host, port);
	if (at >= 0) {
		struct host *h = &w->hosts[at];

		outcome = h->outcome ? h->outcome(h->arg, h->dials) : DIAL_OK;
		h->dials++;
		takes = h->dial_ns + rng_below(&w->rng, 1 + h->dial_ns / 4);
	}
	if (outcome == DIAL_NO_FDS)
		return NULL;
	if (outcome == DIAL_BLACKHOLE || takes >= limit) {
		outcome = DIAL_BLACKHOLE;
		takes = limit;
	}
	d = xalloc(sizeof(*d));
	d->world = w;
	d->host = at >= 0 ? &w->hosts[at] : NULL;
	d->addr = make_addr(2, (unsigned)at + 1, port);
	d->outcome = outcome;
	d->done = done;
	d->arg = arg;
	list_add_tail(&w->dials, &d->link);
	w->n_dials++;
	alarm_set(w, &d->alarm, w->now + takes, dial_decided, d);
	return d;
}

static void world_dial_cancel(void *ctx, struct dial *d)
{
	struct world *w = ctx;
	struct list *pos, *tmp;

	if (!w->in_subject)
		world_fail(w, "dial_cancel() outside any call into the subject");
	/* Looked up, not believed: d may be gone. */
	list_for_each_safe (pos, tmp, &w->dials) {
		if (list_entry(pos, struct dial, link) != d)
			continue;
		alarm_clear(&d->alarm);
		list_del(&d->link);
		w->n_dials--;
		free(d);
		return;
	}
	world_fail(w, "dial_cancel() of a dial that is over");
}

unsigned world_dials(const struct world *w)
{
	return w->n_dials;
}

static uint64_t env_now(void *ctx)
{
	return ((struct world *)ctx)->now;
}

const struct env_ops world_env_ops = {
	.now = env_now,
	.dial = world_dial,
	.dial_cancel = world_dial_cancel,
};

static void conn_free(struct conn *c)
{
	for (int i = 0; i < 2; i++) {
		bytes_free(&c->dir[i].flight);
		bytes_free(&c->dir[i].rcv);
		free(c->dir[i].segs);
		alarm_clear(&c->dir[i].move);
		alarm_clear(&c->end[i].kick);
		alarm_clear(&c->end[i].rst);
	}
	alarm_clear(&c->accept);
	free(c);
}

void net_free(struct world *w)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &w->conns)
		conn_free(list_entry(pos, struct conn, link));
	list_for_each_safe (pos, tmp, &w->tombs)
		free(list_entry(pos, struct vport, link));
	list_for_each_safe (pos, tmp, &w->ports)
		free(list_entry(pos, struct vport, link));
	list_for_each_safe (pos, tmp, &w->dials) {
		struct dial *d = list_entry(pos, struct dial, link);

		alarm_clear(&d->alarm);
		free(d);
	}
	free(w->hosts);
}
