/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dialling over loopback. The names are in a hosts file of our own and the name
 * server is a socket of ours that never answers: both need a mount and a network
 * namespace, which take root; without it those tests are skipped.
 */
#include "unit/net_rig.h"

#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

static const char hosts[] = "127.0.0.1 localhost four.test two.test mixed.test\n"
			    "::1 six.test two.test\n"
			    "169.254.169.254 meta.test mixed.test\n"
			    "127.0.0.1 many.test\n"
			    "127.0.0.2 many.test\n"
			    "127.0.0.3 many.test\n";
/* Nothing listens on port 53 there but our silent socket. */
static const char resolv_conf[] = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";

static bool own_names; /* in namespaces of our own */
static int name_server = -1;

/* ---------------------------------------------------------------- namespaces */

static bool bind_file(const char *text, const char *over)
{
	char path[] = "/tmp/test_dial.XXXXXX";
	int fd = mkstemp(path);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
		  !fchmod(fd, 0644) && !mount(path, over, NULL, MS_BIND, NULL);

	if (fd >= 0) {
		close(fd);
		unlink(path);
	}
	return ok;
}

static bool loopback_up(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };
	bool ok;

	r.ifr_flags = IFF_UP;
	ok = !ioctl(fd, SIOCSIFFLAGS, &r);
	close(fd);
	return ok;
}

static int silent_name_server(void)
{
	struct addr a = ip("127.0.0.1", 53);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, &a.sa, a.len), 0);
	return fd;
}

static int group_open(void **state)
{
	own_names = !unshare(CLONE_NEWNS | CLONE_NEWNET) &&
		    !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) && loopback_up() &&
		    bind_file(hosts, "/etc/hosts") &&
		    (access("/etc/nsswitch.conf", F_OK) ||
		     bind_file("hosts: files dns\n", "/etc/nsswitch.conf")) &&
		    bind_file(resolv_conf, "/etc/resolv.conf");
	if (own_names)
		name_server = silent_name_server();
	else
		print_message("no namespaces (%s): tests with names are skipped\n",
			      strerror(errno));
	return rig_warm_up(state);
}

static int group_close(void **state)
{
	(void)state;
	if (name_server >= 0)
		close(name_server);
	return 0;
}

static void need_names(void)
{
	if (!own_names)
		skip();
}

/* ---------------------------------------------------------------- fixture */

struct call {
	struct rig rig;
	struct dial *dial;
	unsigned done;
	bool inside; /* dial_start() has not returned */
	struct port *port;
	struct dial_result res;
	char detail[128];
	uint64_t started, took;
	int listener, listener2, stuffing[2];
	uint16_t at;
	struct deferred between; /* runs before what the turn's events defer */
};

static void on_done(void *arg, struct port *port, const struct dial_result *res)
{
	struct call *c = arg;

	assert_false(c->inside);
	c->done++;
	c->port = port;
	c->res = *res;
	c->took = wall_ns() - c->started;
	assert_non_null(res->detail);
	snprintf(c->detail, sizeof(c->detail), "%s", res->detail);
	assert_true(!port == !!res->err);
}

static int call_open(void **state)
{
	struct call *c = calloc(1, sizeof(*c));

	rig_open(&c->rig);
	c->listener = c->listener2 = c->stuffing[0] = c->stuffing[1] = -1;
	*state = c;
	return 0;
}

static int call_close(void **state)
{
	struct call *c = *state;
	int fds[] = { c->listener, c->listener2, c->stuffing[0], c->stuffing[1] };

	if (c->port)
		c->port->ops->close(c->port, true);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	rig_close(&c->rig);
	free(c);
	return 0;
}

static void start(struct call *c, const char *host, uint64_t timeout_ns)
{
	c->started = wall_ns();
	c->inside = true;
	c->dial = dial_start(&c->rig.dialer, host, c->at, timeout_ns, on_done, c);
	c->inside = false;
	assert_non_null(c->dial);
	assert_int_equal(c->done, 0);
}

static void run(struct call *c, const char *host)
{
	start(c, host, 10 * NSEC_PER_SEC);
	rig_until(&c->rig, c->done);
	rig_settle(&c->rig);
	assert_int_equal(c->done, 1);
}

static void expect_failure(struct call *c, enum dial_phase phase, int err, const char *detail)
{
	assert_null(c->port);
	assert_int_equal(c->res.err, err);
	assert_int_equal(c->res.phase, phase);
	assert_string_equal(c->detail, detail);
}

static void expect_connection(struct call *c, const char *host)
{
	struct addr want = ip(host, c->at);

	if (c->res.err)
		fail_msg("%s", c->detail);
	assert_non_null(c->port);
	assert_true(addr_equal(&c->res.addr, &want));
	assert_true(addr_equal(&c->port->peer, &want));
	assert_true(c->port->local.len > 0);
	assert_null(c->port->on_event);
}

/* A listener whose queue is full: the kernel drops further SYNs, as a black hole does. */
static int black_hole(struct call *c, const char *host, uint16_t port)
{
	int fd = peer_listen(host, port, 0, &c->at);
	struct addr a = ip(host, c->at);

	for (unsigned i = 0; i < ARRAY_SIZE(c->stuffing); i++) {
		c->stuffing[i] =
			socket(a.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		assert_true(connect(c->stuffing[i], &a.sa, a.len) == 0 || errno == EINPROGRESS);
	}
	return fd;
}

/* A port on which nothing listens. */
static uint16_t free_port(const char *host)
{
	uint16_t port;

	close(peer_listen(host, 0, 1, &port));
	return port;
}

/* ---------------------------------------------------------------- literals */

static void to_literal(struct call *c, const char *host, const char *literal)
{
	struct iovec hello = { (void *)"hello", 5 };
	char buf[8];
	int fd, nodelay = 0;
	socklen_t len = sizeof(nodelay);

	c->listener = peer_listen(host, 0, 8, &c->at);
	run(c, literal);
	expect_connection(c, host);
	assert_int_equal(getsockopt(c->port->ops->fd(c->port), IPPROTO_TCP, 1 /* TCP_NODELAY */,
				    &nodelay, &len),
			 0);
	assert_int_equal(nodelay, 1);
	fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_int_equal(c->port->ops->sendv(c->port, &hello, 1), 5);
	assert_int_equal(recv(fd, buf, sizeof(buf), 0), 5);
	close(fd);
}

static void ipv4_literal(void **state)
{
	to_literal(*state, "127.0.0.1", "127.0.0.1");
}

static void ipv6_literal(void **state)
{
	to_literal(*state, "::1", "::1");
}

static void ipv6_literal_in_brackets(void **state)
{
	to_literal(*state, "::1", "[::1]");
}

/* An executor speaks first; its bytes come with the end of connecting. */
static void input_before_done_is_not_lost(void **state)
{
	struct call *c = *state;
	char buf[8];
	int fd;

	c->listener = peer_listen("127.0.0.1", 0, 8, &c->at);
	start(c, "127.0.0.1", 0);
	fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
	peer_send(fd, "first", 5);
	rig_until(&c->rig, c->done);
	expect_connection(c, "127.0.0.1");
	assert_int_equal(c->port->ops->recv(c->port, buf, sizeof(buf)), 5);
	close(fd);
}

static void refused(void **state)
{
	struct call *c = *state;
	struct addr a;

	c->at = free_port("127.0.0.1");
	run(c, "127.0.0.1");
	expect_failure(c, DIAL_CONNECT, -ECONNREFUSED, "Connection refused");
	a = ip("127.0.0.1", c->at);
	assert_true(addr_equal(&c->res.addr, &a));
}

static void unreachable_at_once(void **state)
{
	struct call *c = *state;

	need_names(); /* a namespace without any route */
	c->at = 1;
	run(c, "192.0.2.1");
	expect_failure(c, DIAL_CONNECT, -ENETUNREACH, "Network is unreachable");
}

static void timed_out(void **state)
{
	struct call *c = *state;

	c->listener = black_hole(c, "127.0.0.1", 0);
	start(c, "127.0.0.1", 100 * NSEC_PER_MSEC);
	rig_until(&c->rig, c->done);
	expect_failure(c, DIAL_CONNECT, -ETIMEDOUT, "Connection timed out");
	assert_true(c->took >= 100 * NSEC_PER_MSEC);
}

/*
 * A socket that connects to itself is not an executor. The kernel does it now and
 * then for a free port of its ephemeral range: here that range is one port.
 */
static void connected_to_itself(void **state)
{
	static const char path[] = "/proc/sys/net/ipv4/ip_local_port_range";
	struct call *c = *state;
	char before[32];
	ssize_t n;
	int fd;

	need_names(); /* the range is the namespace's */
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		skip();
	n = read(fd, before, sizeof(before));
	assert_true(n > 0);
	assert_int_equal(pwrite(fd, "40001 40001\n", 12, 0), 12);
	c->at = 40001;
	run(c, "127.0.0.1");
	assert_int_equal(pwrite(fd, before, (size_t)n, 0), n);
	close(fd);
	expect_failure(c, DIAL_CONNECT, -ECONNREFUSED, "Connection refused");
}

/* ---------------------------------------------------------------- policy */

static void loopback_refused(void **state)
{
	struct call *c = *state;
	struct policy *strict = policy_new();
	const char *const hosts_of_ours[] = { "127.0.0.1", "[::1]", "::ffff:127.0.0.1" };

	c->listener = peer_listen("127.0.0.1", 0, 8, &c->at);
	c->rig.dialer.policy = strict;
	for (unsigned i = 0; i < ARRAY_SIZE(hosts_of_ours); i++) {
		c->done = 0;
		run(c, hosts_of_ours[i]);
		expect_failure(c, DIAL_POLICY, -EACCES, "loopback address");
		assert_int_equal(c->res.verdict, POLICY_DENY_LOOPBACK);
	}
	policy_free(strict);
	assert_int_equal(poll(&(struct pollfd){ .fd = c->listener, .events = POLLIN }, 1, 0), 0);
}

static void other_spellings_are_resolved_and_refused(void **state)
{
	struct call *c = *state;
	struct policy *strict = policy_new();
	const char *const spellings[] = { "127.1", "0x7f000001", "2130706433", "017700000001" };

	c->at = 1;
	c->rig.dialer.policy = strict;
	for (unsigned i = 0; i < ARRAY_SIZE(spellings); i++) {
		c->done = 0;
		run(c, spellings[i]);
		assert_int_equal(c->res.phase, DIAL_POLICY);
		assert_int_equal(c->res.verdict, POLICY_DENY_LOOPBACK);
	}
	policy_free(strict);
}

static void link_local_refused(void **state)
{
	struct call *c = *state;

	c->at = 80;
	run(c, "169.254.169.254");
	expect_failure(c, DIAL_POLICY, -EACCES, "link-local or metadata address");
	c->done = 0;
	run(c, "fe80::1");
	assert_int_equal(c->res.verdict, POLICY_DENY_LINKLOCAL);
}

static void name_of_a_refused_address(void **state)
{
	struct call *c = *state;

	need_names();
	c->at = 80;
	run(c, "meta.test");
	expect_failure(c, DIAL_POLICY, -EACCES, "link-local or metadata address");
	assert_int_equal(c->res.verdict, POLICY_DENY_LINKLOCAL);
}

/* One address of the name is refused: the other one is used, the refused one never tried. */
static void name_with_one_refused_address(void **state)
{
	struct call *c = *state;

	need_names();
	c->listener = peer_listen("127.0.0.1", 0, 8, &c->at);
	run(c, "mixed.test");
	expect_connection(c, "127.0.0.1");
	assert_int_equal(c->res.verdict, POLICY_ALLOW);
}

/* ---------------------------------------------------------------- names */

static void names_of_each_family(void **state)
{
	struct call *c = *state;

	need_names();
	c->listener = peer_listen("127.0.0.1", 0, 8, &c->at);
	run(c, "four.test");
	expect_connection(c, "127.0.0.1");
	c->port->ops->close(c->port, true);
	c->done = 0;
	c->listener2 = peer_listen("::1", 0, 8, &c->at);
	run(c, "six.test");
	expect_connection(c, "::1");
}

/* AAAA and A, and only one of them listens, either way round. */
static void falls_to_the_other_family(void **state)
{
	struct call *c = *state;

	need_names();
	c->listener = peer_listen("127.0.0.1", 0, 8, &c->at);
	run(c, "two.test");
	expect_connection(c, "127.0.0.1");
	c->port->ops->close(c->port, true);
	c->done = 0;
	c->listener2 = peer_listen("::1", 0, 8, &c->at);
	run(c, "two.test");
	expect_connection(c, "::1");
}

static void falls_to_the_last_address(void **state)
{
	struct call *c = *state;
	int others = 0;

	need_names();
	/* Which one is last is the resolver's choice: two of three must be passed over at most. */
	for (int i = 1; i <= 3; i++) {
		char host[16];

		snprintf(host, sizeof(host), "127.0.0.%d", i);
		c->listener = peer_listen(host, 0, 8, &c->at);
		c->done = 0;
		run(c, "many.test");
		expect_connection(c, host);
		c->port->ops->close(c->port, true);
		c->port = NULL;
		close(c->listener);
		c->listener = -1;
		others++;
	}
	assert_int_equal(others, 3);
	c->at = free_port("127.0.0.1");
	c->done = 0;
	run(c, "many.test");
	expect_failure(c, DIAL_CONNECT, -ECONNREFUSED, "Connection refused");
}

/* The first address swallows SYNs: the second is tried after the stagger, long before the limit. */
static void black_hole_first(void **state)
{
	struct call *c = *state;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *ai;
	bool six_first;

	need_names();
	assert_int_equal(getaddrinfo("two.test", NULL, &hints, &ai), 0);
	six_first = ai->ai_family == AF_INET6;
	freeaddrinfo(ai);
	c->listener = black_hole(c, six_first ? "::1" : "127.0.0.1", 0);
	c->listener2 = peer_listen(six_first ? "127.0.0.1" : "::1", c->at, 8, &c->at);
	run(c, "two.test");
	expect_connection(c, six_first ? "127.0.0.1" : "::1");
	assert_true(c->took >= DIAL_STAGGER_NS);
}

static void not_a_name(void **state)
{
	struct call *c = *state;
	char label[80];

	/* A label is 63 bytes at most; such a name is sent to no server. */
	memset(label, 'a', sizeof(label) - 1);
	label[sizeof(label) - 1] = '\0';
	c->at = 1;
	run(c, label);
	assert_null(c->port);
	assert_int_equal(c->res.phase, DIAL_RESOLVE);
	assert_int_equal(c->res.err, -ENOENT);
	c->done = 0;
	run(c, "");
	assert_int_equal(c->res.phase, DIAL_RESOLVE);
	c->done = 0;
	run(c, "\xff\xfe");
	assert_int_equal(c->res.phase, DIAL_RESOLVE);
}

static void silent_name_server_is_temporary(void **state)
{
	struct call *c = *state;

	need_names();
	c->at = 1;
	run(c, "nowhere.test");
	expect_failure(c, DIAL_RESOLVE, -EAGAIN, "Name servers did not answer");
}

static void resolving_timed_out(void **state)
{
	struct call *c = *state;

	need_names();
	c->at = 1;
	start(c, "nowhere.test", 50 * NSEC_PER_MSEC);
	rig_until(&c->rig, c->done);
	expect_failure(c, DIAL_RESOLVE, -ETIMEDOUT, "Name resolution timed out");
}

/* ---------------------------------------------------------------- cancelling */

static void cancel(struct call *c)
{
	dial_cancel(c->dial);
	rig_settle(&c->rig);
	assert_int_equal(c->done, 0);
}

static void cancel_at_once(void **state)
{
	struct call *c = *state;

	c->listener = peer_listen("127.0.0.1", 0, 8, &c->at);
	start(c, "127.0.0.1", NSEC_PER_SEC);
	cancel(c);
}

static void cancel_a_refusal(void **state)
{
	struct call *c = *state;

	c->at = 80;
	start(c, "169.254.169.254", NSEC_PER_SEC);
	cancel(c);
}

static void cancel_while_connecting(void **state)
{
	struct call *c = *state;

	c->listener = black_hole(c, "127.0.0.1", 0);
	start(c, "127.0.0.1", NSEC_PER_SEC);
	rig_settle(&c->rig);
	cancel(c);
}

static void cancel_between(struct deferred *d)
{
	struct call *c = container_of(d, struct call, between);

	dial_cancel(c->dial);
	c->dial = NULL;
}

/* Connected in this turn, done() not called yet: the connection must go too. */
static void cancel_after_the_connection_came(void **state)
{
	struct call *c = *state;
	char buf[4];
	int fd;

	c->listener = peer_listen("127.0.0.1", 0, 8, &c->at);
	start(c, "127.0.0.1", NSEC_PER_SEC);
	fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
	deferred_init(&c->between, cancel_between);
	loop_defer(&c->rig.loop, &c->between);
	rig_settle(&c->rig);
	assert_null(c->dial);
	assert_int_equal(c->done, 0);
	assert_int_equal(recv(fd, buf, sizeof(buf), 0), -1);
	assert_int_equal(errno, ECONNRESET);
	close(fd);
}

static void cancel_while_resolving(void **state)
{
	struct call *c = *state;
	char query[64];

	need_names();
	while (recv(name_server, query, sizeof(query), MSG_DONTWAIT) > 0)
		;
	c->at = 1;
	start(c, "nowhere.test", NSEC_PER_SEC);
	/* A thread is in the resolver once it has asked. */
	assert_true(recv(name_server, query, sizeof(query), 0) > 0);
	cancel(c);
	assert_int_equal(c->rig.loop.uv.active_reqs.count, 1);
}

static void cancel_before_resolving(void **state)
{
	struct call *c = *state;
	struct dial *dials[64];

	/* More look-ups than threads: most are cancelled in the queue. */
	for (unsigned i = 0; i < ARRAY_SIZE(dials); i++) {
		dials[i] = dial_start(&c->rig.dialer, "localhost", 1, 0, on_done, c);
		assert_non_null(dials[i]);
	}
	for (unsigned i = ARRAY_SIZE(dials); i-- > 0;)
		dial_cancel(dials[i]);
	rig_until(&c->rig, c->rig.loop.uv.active_reqs.count == 0);
	assert_int_equal(c->done, 0);
}

/* The loop of a worker that ends must outlive a look-up that does not. */
static void loop_with_a_lookup_left(void **state)
{
	static struct rig r;
	static struct call c;
	char query[64];

	(void)state;
	need_names();
	while (recv(name_server, query, sizeof(query), MSG_DONTWAIT) > 0)
		;
	rig_open(&r);
	c.rig.dialer = r.dialer;
	c.started = 0;
	c.dial = dial_start(&r.dialer, "nowhere.test", 1, 0, on_done, &c);
	assert_true(recv(name_server, query, sizeof(query), 0) > 0);
	dial_cancel(c.dial);
	tcp_pool_fini(&r.pool);
	assert_false(loop_fini(&r.loop));
	policy_free(r.policy);
	/* Its return is harmless, and is what lets the loop be closed after all. */
	while (uv_loop_close(&r.loop.uv))
		uv_run(&r.loop.uv, UV_RUN_ONCE);
}

#define call_test(f) cmocka_unit_test_setup_teardown(f, call_open, call_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		call_test(ipv4_literal),
		call_test(ipv6_literal),
		call_test(ipv6_literal_in_brackets),
		call_test(input_before_done_is_not_lost),
		call_test(refused),
		call_test(unreachable_at_once),
		call_test(timed_out),
		call_test(connected_to_itself),
		call_test(loopback_refused),
		call_test(other_spellings_are_resolved_and_refused),
		call_test(link_local_refused),
		call_test(name_of_a_refused_address),
		call_test(name_with_one_refused_address),
		call_test(names_of_each_family),
		call_test(falls_to_the_other_family),
		call_test(falls_to_the_last_address),
		call_test(black_hole_first),
		call_test(not_a_name),
		call_test(silent_name_server_is_temporary),
		call_test(resolving_timed_out),
		call_test(cancel_at_once),
		call_test(cancel_a_refusal),
		call_test(cancel_while_connecting),
		call_test(cancel_after_the_connection_came),
		call_test(cancel_while_resolving),
		call_test(cancel_before_resolving),
		cmocka_unit_test(loop_with_a_lookup_left),
	};

	return cmocka_run_group_tests(tests, group_open, group_close);
}
