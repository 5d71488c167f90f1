/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers as threads with real sessions: two on one port, tasks of other threads,
 * draining, the end with something open. What sessions say is tested elsewhere.
 */
#include "unit/net_rig.h"

#include <semaphore.h>

#include "datapath/relay.h"
#include "net/listen.h"
#include "net/worker.h"

#define WORKERS 2
#define CLIENTS 40

struct crew {
	struct worker_shared shared;
	struct config config;
	struct worker *workers[WORKERS];
	struct addr bound;
	sem_t idle, ran;
	int descriptors;
};

static void stream_done(void *ctx, const struct stream_record *r)
{
	(void)ctx;
	(void)r;
}

static void event(void *ctx, const struct session_event *e)
{
	(void)ctx;
	(void)e;
}

static const struct emit_ops emit = { stream_done, event };

static void told(void *arg, struct worker *w, enum worker_event e, int err, const struct addr *peer)
{
	struct crew *c = arg;

	(void)w;
	(void)err;
	(void)peer;
	if (e == WORKER_IDLE)
		sem_post(&c->idle);
}

static int crew_open(void **state)
{
	static char name[] = "serve";
	char *argv[] = { name, NULL };
	struct crew *c = calloc(1, sizeof(*c));
	struct addr a = ip("127.0.0.1", 0);

	c->descriptors = count_descriptors();
	sem_init(&c->idle, 0, 0);
	sem_init(&c->ran, 0, 0);
	assert_int_equal(config_parse(&c->config, 1, argv, NULL, stdout, stderr), CONFIG_OK);
	c->shared.config = &c->config;
	c->shared.policy = policy_new();
	c->shared.relay = &datapath_relay;
	c->shared.n_workers = WORKERS;
	c->shared.told = told;
	c->shared.told_arg = c;
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker_listener l;
		const char *step;

		l.fd = listen_open(&a, &l.bound, &step);
		assert_true(l.fd >= 0);
		a = c->bound = l.bound;
		assert_int_equal(worker_new(&c->shared, i, &l, 1, &emit, c, &c->workers[i]), 0);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(worker_start(c->workers[i]), 0);
	*state = c;
	return 0;
}

static int crew_close(void **state)
{
	struct crew *c = *state;

	for (unsigned i = 0; i < WORKERS; i++) {
		worker_stop(c->workers[i]);
		worker_join(c->workers[i]);
		worker_free(c->workers[i]);
	}
	assert_int_equal(c->shared.lookups_left, 0);
	assert_int_equal(atomic_load(&c->shared.clients), 0);
	policy_free((struct policy *)c->shared.policy);
	sem_destroy(&c->idle);
	sem_destroy(&c->ran);
	assert_int_equal(count_descriptors(), c->descriptors);
	free(c);
	return 0;
}

static void wait_for(sem_t *s)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += RIG_PATIENCE_MS / 1000;
	while (sem_timedwait(s, &t))
		if (errno != EINTR)
			fail_msg("never told");
}

/* Connects and reads the server's first frame, which must be SETTINGS. */
static int client(struct crew *c)
{
	static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
	uint8_t header[9], body[256];
	int fd = peer_connect(&c->bound);
	size_t len;

	peer_send(fd, hello, sizeof(hello) - 1);
	assert_int_equal(recv(fd, header, sizeof(header), MSG_WAITALL), sizeof(header));
	assert_int_equal(header[3], 4);
	len = get_be24(header);
	assert_true(len <= sizeof(body));
	assert_int_equal(recv(fd, body, len, MSG_WAITALL), len);
	return fd;
}

static uint64_t accepted(struct crew *c, unsigned i)
{
	return __atomic_load_n(&worker_stats(c->workers[i])->clients_accepted, __ATOMIC_RELAXED);
}

static void both_workers_are_used(void **state)
{
	struct crew *c = *state;
	int fds[CLIENTS];

	for (unsigned i = 0; i < CLIENTS; i++)
		fds[i] = client(c);
	assert_int_equal(accepted(c, 0) + accepted(c, 1), CLIENTS);
	/* By a hash: all on one side is as likely as 2^-39. */
	assert_true(accepted(c, 0) > 0 && accepted(c, 1) > 0);
	assert_int_equal(atomic_load(&c->shared.clients), CLIENTS);
	for (unsigned i = 0; i < CLIENTS; i++)
		close(fds[i]);
}

struct test_task {
	struct worker_task task;
	struct crew *crew;
	pthread_t ran_on;
	struct worker *ran_with;
};

static void on_task(struct worker_task *t, struct worker *w)
{
	struct test_task *tt = container_of(t, struct test_task, task);

	tt->ran_on = pthread_self();
	tt->ran_with = w;
	assert_non_null(worker_session(w));
	sem_post(&tt->crew->ran);
}

static void tasks_run_on_the_worker(void **state)
{
	struct crew *c = *state;
	struct test_task t[8];

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		t[i] = (struct test_task){ .task = { .fn = on_task }, .crew = c };
		assert_true(worker_post(c->workers[i % WORKERS], &t[i].task));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		wait_for(&c->ran);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		assert_ptr_equal(t[i].ran_with, c->workers[i % WORKERS]);
		assert_false(pthread_equal(t[i].ran_on, pthread_self()));
	}
}

static void ended_workers_take_no_tasks(void **state)
{
	struct crew *c = *state;
	struct test_task t = { .task = { .fn = on_task }, .crew = c };

	worker_stop(c->workers[0]);
	worker_join(c->workers[0]);
	assert_false(worker_post(c->workers[0], &t.task));
	assert_int_equal(sem_trywait(&c->ran), -1);
}

/* Reads to the FIN; true when a GOAWAY was among the frames. */
static bool read_to_the_end(int fd)
{
	bool goaway = false;
	uint8_t header[9], body[1024];

	while (recv(fd, header, sizeof(header), MSG_WAITALL) == sizeof(header)) {
		size_t len = get_be24(header);

		assert_true(len <= sizeof(body));
		if (len)
			assert_int_equal(recv(fd, body, len, MSG_WAITALL), len);
		goaway = goaway || header[3] == 7;
		/* PING: a client answers, which ends the first part of draining. */
		if (header[3] == 6 && !(header[4] & 1)) {
			header[4] = 1;
			peer_send(fd, header, sizeof(header));
			peer_send(fd, body, len);
		}
	}
	return goaway;
}

static void draining(void **state)
{
	struct crew *c = *state;
	int fds[8], late;

	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = client(c);
	for (unsigned i = 0; i < WORKERS; i++) {
		worker_drain(c->workers[i]);
		worker_drain(c->workers[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		assert_true(read_to_the_end(fds[i]));
		close(fds[i]);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		wait_for(&c->idle);
	/* Not refused: it is told why, and then leaves. */
	late = client(c);
	assert_true(read_to_the_end(late));
	close(late);
	wait_for(&c->idle);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_true(worker_is_idle(c->workers[i]));
}

/* What is open when a worker is stopped is reset, and counted back. */
static void stopping_with_clients(void **state)
{
	struct crew *c = *state;
	int fds[8];
	char buf[256];
	ssize_t n;

	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = client(c);
	c->descriptors += (int)ARRAY_SIZE(fds);
	crew_close(state);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		do
			n = recv(fds[i], buf, sizeof(buf), 0);
		while (n > 0);
		assert_true(n == 0 || errno == ECONNRESET);
		close(fds[i]);
	}
	crew_open(state);
}

#define crew_test(f) cmocka_unit_test_setup_teardown(f, crew_open, crew_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		crew_test(both_workers_are_used),       crew_test(tasks_run_on_the_worker),
		crew_test(ended_workers_take_no_tasks), crew_test(draining),
		crew_test(stopping_with_clients),
	};

	return cmocka_run_group_tests(tests, rig_warm_up, NULL);
}
