/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin server over real loopback sockets: pages, methods, and what a peer that
 * misbehaves can do to the others.
 */
#include "unit/hex.h"

#include <jansson.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include "obs/admin.h"

struct fixture {
	struct admin *admin;
	enum admin_state state;
	struct config config;
	struct session_stats stats;
	unsigned missing;
	sem_t collecting, go_on; /* with `hold`: the collector waits in between */
	bool hold;
	char reply[1 << 20];
};

static enum admin_state get_state(void *ctx)
{
	struct fixture *f = ctx;

	return __atomic_load_n(&f->state, __ATOMIC_RELAXED);
}

static unsigned collect(void *ctx, unsigned timeout_ms, struct streams *into)
{
	struct fixture *f = ctx;
	struct stream_view v = { .stream_id = 7, .state = "s", .waits_for = "w", .datapath = "d" };
	struct executor_view x = { .host = "h", .port = 1 };

	assert_in_range(timeout_ms, 1, 10000);
	if (f->hold) {
		sem_post(&f->collecting);
		sem_wait(&f->go_on);
	}
	streams_add(into, &v);
	streams_add_executor(into, &x);
	return f->missing;
}

static int start(const char *address, struct fixture *f, const char **why)
{
	static const struct session_stats *stats[1];
	struct admin_source src = {
		.config = &f->config,
		.stats = stats,
		.n_stats = 1,
		.ctx = f,
		.state = get_state,
		.collect = collect,
	};
	struct addr a;

	stats[0] = &f->stats;
	assert_int_equal(addr_parse(address, &a), 0);
	return admin_start(&a, &src, &f->admin, why);
}

static int setup(void **state)
{
	static struct fixture f;
	char *argv[] = { (char *)"serve", (char *)"--workers=3", (char *)"--allow-port=5-6", NULL };
	const char *why;

	memset(&f, 0, sizeof(f));
	f.state = ADMIN_READY;
	sem_init(&f.collecting, 0, 0);
	sem_init(&f.go_on, 0, 0);
	assert_int_equal(config_parse(&f.config, 3, argv, NULL, stdout, stderr), CONFIG_OK);
	assert_int_equal(start("127.0.0.1:0", &f, &why), 0);
	assert_int_not_equal(addr_port(admin_addr(f.admin)), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	admin_stop(f->admin);
	config_free(&f->config);
	sem_destroy(&f->collecting);
	sem_destroy(&f->go_on);
	return 0;
}

static int dial(const struct addr *a)
{
	struct timeval limit = { .tv_sec = 20 }; /* a hang is a failure, not a wait */
	int fd = socket(a->sa.sa_family, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, &a->sa, a->len), 0);
	return fd;
}

static void put(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Everything up to the end of the connection. */
static void read_all(struct fixture *f, int fd)
{
	size_t n = 0;
	ssize_t got;

	while ((got = recv(fd, f->reply + n, sizeof(f->reply) - 1 - n, 0)) > 0)
		n += (size_t)got;
	assert_int_equal(got, 0);
	f->reply[n] = '\0';
	close(fd);
}

/* Sends a request; returns the status, *ret_body points behind the headers. */
static int request(struct fixture *f, const char *method, const char *path, const char **ret_body)
{
	int fd = dial(admin_addr(f->admin)), status;
	char text[512];

	snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		 method, path);
	put(fd, text);
	read_all(f, fd);
	assert_int_equal(sscanf(f->reply, "HTTP/1.1 %d ", &status), 1);
	*ret_body = strstr(f->reply, "\r\n\r\n");
	assert_non_null(*ret_body);
	*ret_body += 4;
	return status;
}

static void health(void **state)
{
	struct fixture *f = *state;
	const char *body;

	assert_int_equal(request(f, "GET", "/healthz", &body), 200);
	assert_string_equal(body, "ok\n");
	assert_int_equal(request(f, "GET", "/readyz", &body), 200);
	assert_string_equal(body, "ready\n");
	f->state = ADMIN_STARTING;
	assert_int_equal(request(f, "GET", "/readyz", &body), 503);
	assert_string_equal(body, "starting\n");
	f->state = ADMIN_DRAINING;
	assert_int_equal(request(f, "GET", "/readyz", &body), 503);
	assert_string_equal(body, "draining\n");
	assert_int_equal(request(f, "GET", "/healthz", &body), 200);
	assert_int_equal(request(f, "GET", "/metrics", &body), 200);
	assert_non_null(strstr(body, "\nflightsplice_draining 1\n"));
	assert_non_null(strstr(body, "\nflightsplice_ready 0\n"));
}

static void pages(void **state)
{
	struct fixture *f = *state;
	const char *body;
	json_t *o;

	f->stats.data_in = 4711;
	assert_int_equal(request(f, "GET", "/metrics", &body), 200);
	assert_non_null(strstr(f->reply, "\r\nContent-Type: text/plain; version=0.0.4"));
	assert_non_null(strstr(body, "\nflightsplice_executor_data_bytes_total 4711\n"));

	f->missing = 2;
	assert_int_equal(request(f, "GET", "/streams", &body), 200);
	assert_non_null(strstr(f->reply, "\r\nContent-Type: application/json\r\n"));
	o = json_loads(body, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(o, "workers_missing")), 2);
	assert_int_equal(json_array_size(json_object_get(o, "streams")), 1);
	json_decref(o);

	assert_int_equal(request(f, "GET", "/config", &body), 200);
	o = json_loads(body, 0, NULL);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(o, "flags"), "workers")), "3");
	assert_string_equal(json_string_value(json_array_get(
				    json_object_get(json_object_get(o, "flags"), "allow-port"), 0)),
			    "5-6");
	assert_int_equal(
		json_array_size(json_object_get(json_object_get(o, "flags"), "allow-cidr")), 0);
	assert_int_equal(json_object_size(json_object_get(o, "flags")), 25);
	json_decref(o);

	assert_int_equal(request(f, "GET", "/executors", &body), 200);
	o = json_loads(body, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(o, "workers_missing")), 2);
	assert_int_equal(json_array_size(json_object_get(o, "executors")), 1);
	json_decref(o);

	assert_int_equal(request(f, "GET", "/?x=1", &body), 200); /* a query is ignored */
	assert_int_equal(request(f, "GET", "/nothing", &body), 404);
	assert_non_null(strstr(body, "/metrics "));
	assert_int_equal(request(f, "GET", "/metrics/", &body), 404);
	assert_int_equal(request(f, "GET", "/../etc/passwd", &body), 404);
}

/* The only page with a script: it may run that and nothing else. Whole, and twice. */
static void status_page(void **state)
{
	struct fixture *f = *state;
	const char *body;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(request(f, "GET", "/", &body), 200);
		assert_non_null(strstr(f->reply, "\r\nContent-Type: text/html; charset=utf-8\r\n"));
		assert_non_null(strstr(f->reply, "\r\nContent-Security-Policy: default-src 'none'; "
						 "script-src 'sha256-"));
		assert_null(strstr(f->reply, "unsafe-"));
		assert_memory_equal(body, "<!DOCTYPE html>\n", 16);
		assert_string_equal(body + strlen(body) - 8, "</html>\n");
	}
	assert_int_equal(request(f, "GET", "/streams", &body), 200);
	assert_non_null(strstr(f->reply, "\r\nContent-Security-Policy: default-src 'none'\r\n"));
}

static void methods(void **state)
{
	static const char *const refused[] = {
		"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"
	};
	struct fixture *f = *state;
	const char *body;
	int fd;

	assert_int_equal(request(f, "HEAD", "/metrics", &body), 200);
	assert_string_equal(body, "");
	assert_non_null(strstr(f->reply, "\r\nContent-Length: "));
	assert_int_equal(request(f, "HEAD", "/nothing", &body), 404);
	for (unsigned i = 0; i < ARRAY_SIZE(refused); i++) {
		assert_int_equal(request(f, refused[i], "/healthz", &body), 405);
		assert_non_null(strstr(f->reply, "\r\nAllow: GET, HEAD\r\n"));
	}
	/* An endless body is not waited for. */
	fd = dial(admin_addr(f->admin));
	put(fd, "POST /config HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nabc");
	read_all(f, fd);
	assert_memory_equal(f->reply, "HTTP/1.1 405 ", 13);
	/* The body of a GET is skipped. */
	fd = dial(admin_addr(f->admin));
	put(fd, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
		"3\r\n\r\nabc");
	read_all(f, fd);
	assert_memory_equal(f->reply, "HTTP/1.1 200 ", 13);
}

static void keep_alive(void **state)
{
	struct fixture *f = *state;
	int fd = dial(admin_addr(f->admin));

	put(fd, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /readyz HTTP/1.1\r\nHost: x\r\n"
		"Connection: close\r\n\r\n");
	read_all(f, fd);
	assert_non_null(strstr(f->reply, "\r\n\r\nok\nHTTP/1.1 200 "));
	assert_non_null(strstr(f->reply, "\r\n\r\nready\n"));
}

/* While one request waits for the workers, a probe is answered. */
static void slow_collector(void **state)
{
	struct fixture *f = *state;
	int fd;
	const char *body;
	unsigned answered = 0;

	f->hold = true;
	fd = dial(admin_addr(f->admin));
	put(fd, "GET /streams HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	sem_wait(&f->collecting);
	/*
	 * The two threads share a listening socket; new connections go to the one that
	 * is free, since the other is not waiting for them.
	 */
	for (int i = 0; i < 20; i++)
		answered += request(f, "GET", "/healthz", &body) == 200;
	assert_int_equal(answered, 20);
	/* A second one does not take the other thread as well. */
	assert_int_equal(request(f, "GET", "/streams", &body), 503);
	assert_non_null(strstr(f->reply, "\r\nRetry-After: 1\r\n"));
	assert_int_equal(request(f, "GET", "/executors", &body), 503);
	sem_post(&f->go_on);
	read_all(f, fd);
	assert_memory_equal(f->reply, "HTTP/1.1 200 ", 13);
	f->hold = false;
	assert_int_equal(request(f, "GET", "/streams", &body), 200);
}

/* Half a request on more than half of the connections allowed is nobody else's trouble. */
static void silent_peers(void **state)
{
	struct fixture *f = *state;
	const char *body;
	int fds[40];

	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = dial(admin_addr(f->admin));
		put(fds[i], "GET /hea");
	}
	assert_int_equal(request(f, "GET", "/healthz", &body), 200);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

/* Too much of everything gets an error, not memory. */
static void oversized(void **state)
{
	struct fixture *f = *state;
	static char huge[200000];
	int fd = dial(admin_addr(f->admin)), status;

	strcpy(huge, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Pad: ");
	memset(huge + strlen(huge), 'x', sizeof(huge) - 100);
	send(fd, huge, strlen(huge), MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	{
		ssize_t n = recv(fd, f->reply, sizeof(f->reply) - 1, 0);

		close(fd);
		if (n <= 0)
			return; /* reset: as good */
		f->reply[n] = '\0';
	}
	assert_int_equal(sscanf(f->reply, "HTTP/1.1 %d ", &status), 1);
	assert_in_range(status, 400, 499);
}

static void no_collector(void **state)
{
	struct fixture *f = *state;
	struct admin_source src = { .config = &f->config, .ctx = f, .state = get_state };
	struct admin *first = f->admin;
	const char *body, *why;
	struct addr a;

	assert_int_equal(addr_parse("127.0.0.1:0", &a), 0);
	assert_int_equal(admin_start(&a, &src, &f->admin, &why), 0);
	assert_int_equal(request(f, "GET", "/streams", &body), 404);
	assert_int_equal(request(f, "GET", "/executors", &body), 404);
	assert_int_equal(request(f, "GET", "/metrics", &body), 200);
	admin_stop(f->admin);
	f->admin = first;
}

static void ipv6(void **state)
{
	struct fixture *f = *state;
	struct admin *first = f->admin;
	const char *body, *why;
	int err = start("[::1]:0", f, &why);

	if (err == -EADDRNOTAVAIL || err == -EAFNOSUPPORT) {
		f->admin = first;
		skip(); /* no IPv6 here */
	}
	assert_int_equal(err, 0);
	assert_int_equal(request(f, "GET", "/healthz", &body), 200);
	admin_stop(f->admin);
	f->admin = first;
}

static void address_in_use(void **state)
{
	struct fixture *f = *state;
	struct admin *first = f->admin;
	char text[ADDR_STRLEN];
	const char *why = NULL;

	addr_format(admin_addr(first), text);
	f->admin = NULL;
	assert_int_equal(start(text, f, &why), -EADDRINUSE);
	assert_non_null(why);
	assert_null(f->admin);
	f->admin = first;
	admin_stop(NULL);
}

/* No socket is left behind. */
static void start_stop(void **state)
{
	struct fixture *f = *state;
	struct admin *first = f->admin;
	const char *why;
	int before = dup(0), after;

	close(before);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(start("127.0.0.1:0", f, &why), 0);
		admin_stop(f->admin);
	}
	after = dup(0);
	close(after);
	assert_int_equal(after, before);
	f->admin = first;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(health),       TEST(pages),          TEST(status_page),    TEST(methods),
		TEST(keep_alive),   TEST(slow_collector), TEST(silent_peers),   TEST(oversized),
		TEST(no_collector), TEST(ipv6),           TEST(address_in_use), TEST(start_stop),
	};

	return cmocka_run_group_tests_name("admin", tests, NULL, NULL);
}
