/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports, listeners and the acceptor over loopback, with a scripted peer at the other
 * end of each connection.
 */
#include "unit/net_rig.h"

#include <netinet/tcp.h>
#include <sys/resource.h>

#include "net/acceptor.h"
#include "net/listen.h"

/* ---------------------------------------------------------------- one port and its peer */

struct pair {
	struct rig rig;
	struct port *port;
	int peer;
	/* what the port's callbacks saw */
	unsigned calls, events;
	size_t take; /* bytes that on_event reads each time; 0 = it only counts */
	uint8_t got[4096];
	size_t n_got;
	ssize_t last; /* of recv */
	bool close_on_event;
	struct port *close_too;
};

static void on_event(struct port *p, unsigned events)
{
	struct pair *t = p->owner;

	t->calls++;
	t->events |= events;
	if (events & PORT_READABLE && t->take) {
		assert_true(t->n_got + t->take <= sizeof(t->got));
		t->last = p->ops->recv(p, t->got + t->n_got, t->take);
		if (t->last > 0)
			t->n_got += (size_t)t->last;
		else if (t->last != -EAGAIN)
			p->ops->want(p, 0);
	}
	if (t->close_too) {
		t->close_too->ops->close(t->close_too, true);
		t->close_too = NULL;
	}
	if (t->close_on_event) {
		p->ops->close(p, true);
		t->port = NULL;
	}
}

/* A port for one end of a new connection; returns the other end. */
static struct port *new_port(struct pair *t, int *ret_peer)
{
	uint16_t port;
	int listener = peer_listen("127.0.0.1", 0, 8, &port), fd;
	struct addr at = ip("127.0.0.1", port), from = { .len = sizeof(from.ss) };
	struct port *p;

	*ret_peer = peer_connect(&at);
	fd = accept4(listener, &from.sa, &from.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(fd >= 0);
	close(listener);
	p = tcp_port_new(&t->rig.pool, fd, &from, NULL);
	assert_non_null(p);
	p->owner = t;
	p->on_event = on_event;
	return p;
}

static int pair_open(void **state)
{
	struct pair *t = calloc(1, sizeof(*t));

	rig_open(&t->rig);
	t->port = new_port(t, &t->peer);
	*state = t;
	return 0;
}

static int pair_close(void **state)
{
	struct pair *t = *state;

	if (t->port)
		t->port->ops->close(t->port, true);
	if (t->peer >= 0)
		close(t->peer);
	rig_close(&t->rig);
	free(t);
	return 0;
}

static void want(struct pair *t, unsigned mask)
{
	t->port->ops->want(t->port, mask);
}

static void calls_only_later(void **state)
{
	struct pair *t = *state;

	peer_send(t->peer, "x", 1);
	want(t, PORT_READABLE);
	assert_int_equal(t->calls, 0);
	rig_until(&t->rig, t->calls);
	assert_int_equal(t->events, PORT_READABLE);
}

/* Whoever does not read is told again and again: interest is a level. */
static void unread_input_is_told_again(void **state)
{
	struct pair *t = *state;

	peer_send(t->peer, "x", 1);
	want(t, PORT_READABLE);
	rig_until(&t->rig, t->calls >= 5);
	t->take = 100;
	rig_until(&t->rig, t->n_got == 1);
	t->calls = 0;
	rig_settle(&t->rig);
	assert_int_equal(t->calls, 0);
}

static void input_read_in_parts(void **state)
{
	struct pair *t = *state;

	t->take = 3;
	peer_send(t->peer, "0123456789", 10);
	want(t, PORT_READABLE);
	rig_until(&t->rig, t->n_got == 10);
	peer_send(t->peer, "ab", 2);
	rig_until(&t->rig, t->n_got == 12);
	assert_memory_equal(t->got, "0123456789ab", 12);
}

static void recv_before_want(void **state)
{
	struct pair *t = *state;
	char buf[8];

	assert_int_equal(t->port->ops->recv(t->port, buf, sizeof(buf)), -EAGAIN);
	peer_send(t->peer, "x", 1);
	assert_int_equal(t->port->ops->recv(t->port, buf, sizeof(buf)), 1);
	/* Arrives between the last recv and the registration. */
	peer_send(t->peer, "yz", 2);
	t->take = 8;
	want(t, PORT_READABLE);
	rig_until(&t->rig, t->n_got == 2);
}

static void nothing_wanted_nothing_told(void **state)
{
	struct pair *t = *state;

	t->take = 8;
	want(t, PORT_READABLE);
	rig_settle(&t->rig);
	want(t, 0);
	peer_send(t->peer, "x", 1);
	rig_settle(&t->rig);
	assert_int_equal(t->calls, 0);
	/* The input was told of while nobody wanted it. */
	want(t, PORT_READABLE);
	rig_until(&t->rig, t->n_got == 1);
}

/* want(0) with a peer that goes on sending must not cost a wake-up per segment for ever. */
static void unwanted_input_stops_waking(void **state)
{
	struct pair *t = *state;
	struct epoll_event ev;

	want(t, PORT_READABLE);
	rig_settle(&t->rig);
	want(t, 0);
	for (int i = 0; i < 3; i++) {
		peer_send(t->peer, "x", 1);
		rig_settle(&t->rig);
	}
	peer_send(t->peer, "x", 1);
	assert_int_equal(epoll_wait(t->rig.loop.epfd, &ev, 1, 0), 0);
	assert_int_equal(t->calls, 0);
	t->take = 8;
	want(t, PORT_READABLE);
	rig_until(&t->rig, t->n_got == 4);
	peer_send(t->peer, "x", 1);
	rig_until(&t->rig, t->n_got == 5);
}

static void want_changes_nothing_when_unchanged(void **state)
{
	struct pair *t = *state;

	t->take = 8;
	for (int i = 0; i < 100; i++) {
		want(t, PORT_READABLE);
		want(t, 0);
		want(t, PORT_READABLE | PORT_WRITABLE);
		want(t, PORT_READABLE);
	}
	rig_settle(&t->rig);
	assert_int_equal(t->calls, 0);
	peer_send(t->peer, "x", 1);
	rig_until(&t->rig, t->n_got == 1);
	assert_int_equal(t->events, PORT_READABLE);
}

static void writable_is_a_level_too(void **state)
{
	struct pair *t = *state;

	want(t, PORT_WRITABLE);
	rig_until(&t->rig, t->calls >= 3);
	assert_int_equal(t->events, PORT_WRITABLE);
	want(t, 0);
	t->calls = 0;
	rig_settle(&t->rig);
	assert_int_equal(t->calls, 0);
}

/* ---------------------------------------------------------------- output */

static uint8_t pattern(size_t offset)
{
	return (uint8_t)(offset * 7 + offset / 251);
}

/* Sends up to `len` more bytes of the pattern in odd pieces; what sendv gave last. */
static ssize_t send_pattern(struct port *p, size_t *offset, size_t len)
{
	static uint8_t buf[64 * KiB];

	while (len) {
		size_t n = min_u64(len, sizeof(buf));
		struct iovec iov[3] = { { buf, n / 3 },
					{ buf + n / 3, n / 2 - n / 3 },
					{ buf + n / 2, n - n / 2 } };
		ssize_t r;

		for (size_t i = 0; i < n; i++)
			buf[i] = pattern(*offset + i);
		r = p->ops->sendv(p, iov, 3);
		if (r < 0)
			return r;
		*offset += (size_t)r;
		len -= (size_t)r;
	}
	return 0;
}

/* Reads what is there and compares; false at FIN, fails at anything else. */
static bool check_pattern(int peer, size_t *offset)
{
	static uint8_t buf[64 * KiB];
	ssize_t n = peer_recv(peer, buf, sizeof(buf));

	if (n == -EAGAIN)
		return true;
	if (n < 0)
		fail_msg("peer after %zu bytes: %s", *offset, strerror((int)-n));
	for (ssize_t i = 0; i < n; i++)
		assert_int_equal(buf[i], pattern(*offset + (size_t)i));
	*offset += (size_t)n;
	return n > 0;
}

static void short_writes_go_on_when_writable(void **state)
{
	struct pair *t = *state;
	size_t sent = 0, got = 0, total = 30 * MiB;
	unsigned blocked = 0;

	while (sent < total) {
		if (send_pattern(t->port, &sent, total - sent) == -EAGAIN) {
			blocked++;
			t->events = 0;
			want(t, PORT_WRITABLE);
			/* No event while the peer reads nothing. */
			if (blocked == 1) {
				rig_settle(&t->rig);
				assert_int_equal(t->events, 0);
			}
			rig_until(&t->rig, (check_pattern(t->peer, &got), t->events));
			want(t, 0);
		}
	}
	rig_until(&t->rig, (check_pattern(t->peer, &got), got == total));
	assert_true(blocked > 0);
}

static void sending_to_a_dead_peer_is_an_error(void **state)
{
	struct pair *t = *state;
	struct iovec one = { (void *)"x", 1 };
	size_t sent = 0;

	peer_reset(t->peer);
	t->peer = -1;
	want(t, PORT_READABLE);
	rig_until(&t->rig, t->calls);
	assert_int_equal(t->port->ops->sendv(t->port, &one, 1), -ECONNRESET);
	assert_int_equal(send_pattern(t->port, &sent, 100), -EPIPE);
}

/* ---------------------------------------------------------------- ends */

static void fin(void **state)
{
	struct pair *t = *state;

	t->take = 8;
	t->last = -1;
	want(t, PORT_READABLE);
	rig_settle(&t->rig);
	shutdown(t->peer, SHUT_WR);
	rig_until(&t->rig, t->last == 0);
}

/* One segment, one edge: the short read must not hide the FIN behind it. */
static void fin_with_data(void **state)
{
	struct pair *t = *state;
	int on = 1;

	t->take = 100;
	t->last = -1;
	want(t, PORT_READABLE);
	rig_settle(&t->rig);
	setsockopt(t->peer, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
	peer_send(t->peer, "last", 4);
	shutdown(t->peer, SHUT_WR);
	rig_until(&t->rig, t->last == 0);
	assert_int_equal(t->n_got, 4);
}

static void rst(void **state)
{
	struct pair *t = *state;

	t->take = 8;
	want(t, PORT_READABLE);
	rig_settle(&t->rig);
	peer_reset(t->peer);
	t->peer = -1;
	rig_until(&t->rig, t->last == -ECONNRESET);
}

static void half_close_goes_on_reading(void **state)
{
	struct pair *t = *state;
	char buf[4];

	t->take = 8;
	t->port->ops->shutdown(t->port);
	assert_int_equal(recv(t->peer, buf, sizeof(buf), 0), 0);
	want(t, PORT_READABLE);
	peer_send(t->peer, "after", 5);
	rig_until(&t->rig, t->n_got == 5);
}

static void reset_is_a_reset(void **state)
{
	struct pair *t = *state;
	char buf[4];

	t->port->ops->close(t->port, true);
	t->port = NULL;
	assert_int_equal(recv(t->peer, buf, sizeof(buf), 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

/* Unread input and a full send buffer: close(2) alone would reset and lose the tail. */
static void close_delivers(void **state)
{
	struct pair *t = *state;
	size_t sent = 0, got = 0;

	peer_send(t->peer, "unread", 6);
	assert_int_equal(send_pattern(t->port, &sent, 64 * MiB), -EAGAIN);
	t->port->ops->close(t->port, false);
	t->port = NULL;
	assert_int_equal(t->rig.pool.n_lingering, 1);
	/* The peer goes on sending, as one that opens windows does. */
	while (check_pattern(t->peer, &got)) {
		peer_send(t->peer, "more", 4);
		loop_turn(&t->rig.loop, 1);
	}
	assert_int_equal(got, sent);
	close(t->peer);
	t->peer = -1;
	rig_until(&t->rig, !t->rig.pool.n_lingering);
	assert_int_equal(t->calls, 0);
}

/* The peer neither sends nor leaves; what was sent has arrived, so a few seconds are enough. */
static void lingering_ends(void **state)
{
	struct pair *t = *state;
	char buf[4];

	t->port->ops->close(t->port, false);
	t->port = NULL;
	assert_int_equal(t->rig.pool.n_lingering, 1);
	rig_until(&t->rig, !t->rig.pool.n_lingering);
	assert_int_equal(recv(t->peer, buf, sizeof(buf), 0), 0);
}

static void a_flood_ends_lingering(void **state)
{
	struct pair *t = *state;
	static char flood[64 * KiB];

	t->port->ops->close(t->port, false);
	t->port = NULL;
	while (t->rig.pool.n_lingering) {
		if (send(t->peer, flood, sizeof(flood), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			assert_true(errno == EAGAIN || errno == ECONNRESET || errno == EPIPE);
		loop_turn(&t->rig.loop, 1);
	}
}

static void close_after_fin_leaves_at_once(void **state)
{
	struct pair *t = *state;

	t->take = 8;
	t->last = -1;
	shutdown(t->peer, SHUT_WR);
	want(t, PORT_READABLE);
	rig_until(&t->rig, t->last == 0);
	t->port->ops->close(t->port, false);
	t->port = NULL;
	assert_int_equal(t->rig.pool.n_lingering, 0);
}

static void closed_in_its_own_callback(void **state)
{
	struct pair *t = *state;

	t->close_on_event = true;
	peer_send(t->peer, "x", 1);
	want(t, PORT_READABLE);
	rig_until(&t->rig, !t->port);
	rig_settle(&t->rig);
	assert_int_equal(t->calls, 1);
}

/* Both have events in one batch; the first closes the second. */
static void closed_by_another_callback(void **state)
{
	struct pair *t = *state;
	int peer;
	struct port *other = new_port(t, &peer);

	want(t, PORT_READABLE);
	other->ops->want(other, PORT_READABLE);
	rig_settle(&t->rig);
	peer_send(t->peer, "x", 1);
	peer_send(peer, "x", 1);
	t->close_too = other;
	t->take = 8;
	rig_until(&t->rig, t->calls);
	rig_settle(&t->rig);
	assert_int_equal(t->calls, 1);
	close(peer);
}

static void fd_and_local_address(void **state)
{
	struct pair *t = *state;
	struct addr a = { .len = sizeof(a.ss) };

	assert_int_equal(t->port->local.len, 0);
	assert_int_equal(tcp_port_find_local(t->port), 0);
	assert_int_equal(getpeername(t->peer, &a.sa, &a.len), 0);
	assert_true(addr_equal(&a, &t->port->local));
	a.len = sizeof(a.ss);
	assert_int_equal(getpeername(t->port->ops->fd(t->port), &a.sa, &a.len), 0);
	assert_true(addr_equal(&a, &t->port->peer));
}

/* ---------------------------------------------------------------- accepting */

#define MANY 400

struct gate {
	struct rig rig;
	struct acceptor acceptor;
	struct acceptor_owner owner;
	struct addr bound;
	atomic_uint clients;
	struct port *ports[MANY];
	unsigned n, refused, paused, shed, resumed;
	int err;
	struct addr refused_peer;
};

static void on_accepted(void *arg, struct port *p)
{
	struct gate *g = arg;

	assert_true(g->n < MANY);
	g->ports[g->n++] = p;
}

static void on_trouble(void *arg, enum accept_trouble what, int err, const struct addr *peer)
{
	struct gate *g = arg;

	g->refused += what == ACCEPT_REFUSED;
	g->paused += what == ACCEPT_PAUSED;
	g->shed += what == ACCEPT_SHED;
	g->resumed += what == ACCEPT_RESUMED;
	if (err)
		g->err = err;
	if (what == ACCEPT_REFUSED)
		g->refused_peer = *peer;
}

static void gate_open(struct gate *g, const char *host, unsigned max_clients)
{
	struct addr a = ip(host, 0);
	const char *step;
	int fd;

	memset(g, 0, sizeof(*g));
	rig_open(&g->rig);
	g->owner = (struct acceptor_owner){ on_accepted, on_trouble, g, &g->clients, max_clients };
	fd = listen_open(&a, &g->bound, &step);
	assert_true(fd >= 0);
	assert_int_equal(acceptor_init(&g->acceptor, &g->rig.pool, fd, &g->bound, &g->owner), 0);
}

static void gate_close(struct gate *g)
{
	for (unsigned i = 0; i < g->n; i++)
		if (g->ports[i])
			g->ports[i]->ops->close(g->ports[i], true);
	acceptor_fini(&g->acceptor);
	rig_close(&g->rig);
	assert_int_equal(atomic_load(&g->clients), 0);
}

static int option(struct port *p, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	assert_int_equal(getsockopt(p->ops->fd(p), level, name, &value, &len), 0);
	return value;
}

static void accepts_many(void **state)
{
	static struct gate g;
	static int peers[MANY];
	struct addr a = { .len = 0 };

	(void)state;
	gate_open(&g, "127.0.0.1", MANY);
	for (unsigned i = 0; i < MANY; i++)
		peers[i] = peer_connect(&g.bound);
	rig_until(&g.rig, g.n == MANY);
	assert_int_equal(atomic_load(&g.clients), MANY);
	for (unsigned i = 0; i < MANY; i++) {
		a.len = sizeof(a.ss);
		assert_int_equal(getsockname(peers[i], &a.sa, &a.len), 0);
		assert_true(addr_equal(&a, &g.ports[i]->peer));
		assert_true(addr_equal(&g.bound, &g.ports[i]->local));
		close(peers[i]);
	}
	gate_close(&g);
}

/* What the listener is told once must hold for each connection. */
static void options_are_inherited(void **state)
{
	static struct gate g;
	int peer, flags;

	(void)state;
	gate_open(&g, "127.0.0.1", MANY);
	peer = peer_connect(&g.bound);
	rig_until(&g.rig, g.n == 1);
	assert_int_equal(option(g.ports[0], IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option(g.ports[0], SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option(g.ports[0], IPPROTO_TCP, TCP_KEEPIDLE), 60);
	assert_int_equal(option(g.ports[0], IPPROTO_TCP, TCP_KEEPINTVL), 15);
	assert_int_equal(option(g.ports[0], IPPROTO_TCP, TCP_KEEPCNT), 4);
	flags = fcntl(g.ports[0]->ops->fd(g.ports[0]), F_GETFL);
	assert_true(flags & O_NONBLOCK);
	assert_true(fcntl(g.ports[0]->ops->fd(g.ports[0]), F_GETFD) & FD_CLOEXEC);
	close(peer);
	gate_close(&g);
}

/* The frames are written out: SETTINGS, then GOAWAY(last 0, ENHANCE_YOUR_CALM) with a text. */
static void over_max_clients(void **state)
{
	static struct gate g;
	static const char text[] = "flightsplice: too many clients";
	uint8_t expect[128], got[128];
	size_t n = hex_read(expect, sizeof(expect),
			    "000000 04 00 00000000 000026 07 00 00000000 00000000 0000000b");
	int a, b, c;
	struct addr at = { .len = sizeof(at.ss) };

	(void)state;
	memcpy(expect + n, text, strlen(text));
	n += strlen(text);
	gate_open(&g, "127.0.0.1", 1);
	a = peer_connect(&g.bound);
	rig_until(&g.rig, g.n == 1);
	b = peer_connect(&g.bound);
	/* It has sent something already, which must not turn the answer into a reset. */
	peer_send(b, "PRI * HTTP/2.0", 14);
	rig_until(&g.rig, g.refused == 1);
	assert_int_equal(recv(b, got, sizeof(got), MSG_WAITALL), n);
	assert_memory_equal(got, expect, n);
	assert_int_equal(getsockname(b, &at.sa, &at.len), 0);
	assert_true(addr_equal(&at, &g.refused_peer));
	close(b);
	assert_int_equal(atomic_load(&g.clients), 1);
	/* A place that is free again can be taken. */
	g.ports[0]->ops->close(g.ports[0], true);
	g.ports[0] = NULL;
	c = peer_connect(&g.bound);
	rig_until(&g.rig, g.n == 2);
	close(a);
	close(c);
	gate_close(&g);
}

static void out_of_descriptors(void **state)
{
	static struct gate g;
	struct rlimit before, low;
	int fds[3], lowest;
	char buf[1];

	(void)state;
	gate_open(&g, "127.0.0.1", MANY);
	for (int i = 0; i < 3; i++)
		fds[i] = peer_connect(&g.bound);
	/* Nothing above the lowest free descriptor may be opened. */
	lowest = dup(0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = before;
	low.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	rig_until(&g.rig, g.paused == 1);
	assert_int_equal(g.err, -EMFILE);
	assert_int_equal(g.shed, 0);
	/* They wait, then they are told. */
	rig_until(&g.rig, g.shed == 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(recv(fds[i], buf, 1, 0), -1);
		assert_int_equal(errno, ECONNRESET);
		close(fds[i]);
	}
	assert_int_equal(g.paused, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	fds[0] = peer_connect(&g.bound);
	rig_until(&g.rig, g.n == 1);
	assert_int_equal(g.resumed, 1);
	close(fds[0]);
	gate_close(&g);
}

static void closed_before_accept(void **state)
{
	static struct gate g;
	char buf[4];

	(void)state;
	gate_open(&g, "127.0.0.1", MANY);
	peer_reset(peer_connect(&g.bound));
	rig_until(&g.rig, g.n == 1);
	assert_int_equal(g.ports[0]->ops->recv(g.ports[0], buf, sizeof(buf)), -ECONNRESET);
	gate_close(&g);
}

/* ---------------------------------------------------------------- listening */

static bool can_connect(const char *host, uint16_t port)
{
	struct addr a = ip(host, port);
	int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && !connect(fd, &a.sa, a.len);

	if (fd >= 0)
		close(fd);
	return ok;
}

static int open_at(const char *host, uint16_t port, struct addr *ret_bound)
{
	struct addr a = ip(host, port);
	const char *step;

	return listen_open(&a, ret_bound, &step);
}

static void taken_port_is_found(void **state)
{
	struct addr bound, a, other = ip("127.0.0.2", 0);
	int first = open_at("127.0.0.1", 0, &bound), second;

	(void)state;
	assert_true(first >= 0);
	assert_int_equal(listen_probe(&bound), -EADDRINUSE);
	a = ip("0.0.0.0", addr_port(&bound));
	assert_int_equal(listen_probe(&a), -EADDRINUSE);
	assert_int_equal(listen_probe(&other), 0);
	/* Another worker's socket joins all the same. */
	second = open_at("127.0.0.1", addr_port(&bound), &a);
	assert_true(second >= 0);
	assert_true(addr_equal(&a, &bound));
	close(first);
	close(second);
	assert_int_equal(listen_probe(&bound), 0);
}

static void foreign_address_is_an_error(void **state)
{
	struct addr a = ip("192.0.2.1", 1), bound = { .len = 0 };
	const char *step = NULL;

	(void)state;
	assert_int_equal(listen_open(&a, &bound, &step), -EADDRNOTAVAIL);
	assert_string_equal(step, "bind");
	assert_int_equal(bound.len, 0);
}

static void ipv6_wildcard_takes_ipv4(void **state)
{
	struct addr bound;
	int fd = open_at("::", 0, &bound), only;
	socklen_t len = sizeof(only);

	(void)state;
	if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) {
		print_message("no IPv6 on this host: skipped\n");
		skip();
	}
	assert_true(fd >= 0);
	assert_true(listen_is_wildcard(&bound));
	assert_true(can_connect("127.0.0.1", addr_port(&bound)));
	assert_true(can_connect("::1", addr_port(&bound)));
	close(fd);
	fd = open_at("::1", 0, &bound);
	assert_true(fd >= 0);
	assert_false(listen_is_wildcard(&bound));
	assert_int_equal(getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &len), 0);
	assert_int_equal(only, 1);
	assert_false(can_connect("127.0.0.1", addr_port(&bound)));
	assert_true(can_connect("::1", addr_port(&bound)));
	close(fd);
}

#define port_test(f) cmocka_unit_test_setup_teardown(f, pair_open, pair_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		port_test(calls_only_later),
		port_test(unread_input_is_told_again),
		port_test(input_read_in_parts),
		port_test(recv_before_want),
		port_test(nothing_wanted_nothing_told),
		port_test(unwanted_input_stops_waking),
		port_test(want_changes_nothing_when_unchanged),
		port_test(writable_is_a_level_too),
		port_test(short_writes_go_on_when_writable),
		port_test(sending_to_a_dead_peer_is_an_error),
		port_test(fin),
		port_test(fin_with_data),
		port_test(rst),
		port_test(half_close_goes_on_reading),
		port_test(reset_is_a_reset),
		port_test(close_delivers),
		port_test(lingering_ends),
		port_test(a_flood_ends_lingering),
		port_test(close_after_fin_leaves_at_once),
		port_test(closed_in_its_own_callback),
		port_test(closed_by_another_callback),
		port_test(fd_and_local_address),
		cmocka_unit_test(accepts_many),
		cmocka_unit_test(options_are_inherited),
		cmocka_unit_test(over_max_clients),
		cmocka_unit_test(out_of_descriptors),
		cmocka_unit_test(closed_before_accept),
		cmocka_unit_test(taken_port_is_found),
		cmocka_unit_test(foreign_address_is_an_error),
		cmocka_unit_test(ipv6_wildcard_takes_ipv4),
	};

	return cmocka_run_group_tests(tests, rig_warm_up, NULL);
}
