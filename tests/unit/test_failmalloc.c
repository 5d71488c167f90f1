/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out of memory, at each allocation in turn (nghttp2's failmalloc idea).
 *
 * A script is run in the world of tests/fuzz once to count the allocations that the
 * session makes, then again and again, where allocation k fails (and only it), or k and
 * all after it for as long as the script goes on. Memory is back for the end, when
 * everything has to be given back and the balance has to hold. The world judges what
 * both ends see: a correct result, or an error.
 *
 * The linker's --wrap leads malloc() and its kin here, and the inflater of nghttp2 is
 * given an allocator. Only what is asked for from inside the session's calls is counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fuzz/script.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
int __wrap_nghttp2_hd_inflate_new(nghttp2_hd_inflater **ret);

static struct world world;
static uint64_t counted, fail_at, failed, asked; /* asked: counted by the script */
static bool fail_on;                             /* and all after it */
static int64_t live; /* the session's and the world's, without nghttp2's */

static bool fails(void)
{
	if (!world.inside)
		return false;
	counted++;
	if (!fail_at || (fail_on ? counted < fail_at : counted != fail_at))
		return false;
	failed++;
	return true;
}

void *__wrap_malloc(size_t n)
{
	void *p = fails() ? NULL : __real_malloc(n);

	live += p != NULL;
	return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
	void *p = fails() ? NULL : __real_calloc(n, size);

	live += p != NULL;
	return p;
}

void *__wrap_realloc(void *old, size_t n)
{
	void *p = fails() ? NULL : __real_realloc(old, n);

	live += p && !old;
	return p;
}

void __wrap_free(void *p)
{
	live -= p != NULL;
	__real_free(p);
}

static void *mem_malloc(size_t n, void *arg)
{
	(void)arg;
	return __wrap_malloc(n);
}

static void mem_free(void *p, void *arg)
{
	(void)arg;
	__wrap_free(p);
}

static void *mem_calloc(size_t n, size_t size, void *arg)
{
	(void)arg;
	return __wrap_calloc(n, size);
}

static void *mem_realloc(void *p, size_t n, void *arg)
{
	(void)arg;
	return __wrap_realloc(p, n);
}

int __wrap_nghttp2_hd_inflate_new(nghttp2_hd_inflater **ret)
{
	static nghttp2_mem mem = {
		.malloc = mem_malloc,
		.free = mem_free,
		.calloc = mem_calloc,
		.realloc = mem_realloc,
	};

	return nghttp2_hd_inflate_new2(ret, &mem);
}

/* -------------------------------------------------------------------- scripts */

static void serve(struct world *w, size_t bytes, unsigned times)
{
	for (unsigned i = 0; w->session && i < times; i++)
		script_serve(w, bytes);
}

static void request(struct peer *p, struct request_shape s)
{
	if (p && p->port)
		(void)client_request(p, &s);
}

/* Everything as it should be: several requests, connections reused and new. */
static void happy(struct world *w)
{
	struct peer *a = world_accept(w), *b;

	if (!a)
		return;
	client_hello(a, 0);
	request(a, (struct request_shape){ .end_on_data = true });
	serve(w, 1000, 4);
	request(a, (struct request_shape){ .pieces = true, .continuation = true });
	serve(w, 16000, 4);
	request(a, (struct request_shape){ .ticket = TICKET_BULKY, .host = 1 });
	request(a, (struct request_shape){ .path = PATH_CHECK });
	serve(w, 5, 4);
	b = world_accept(w);
	if (!b)
		return;
	client_hello(b, 0);
	request(b, (struct request_shape){ .timeout = true });
	request(b, (struct request_shape){ .end_on_data = true });
	serve(w, 3000, 4);
}

/* One result of an executor, large; the client's socket and windows come and go. */
static void one_large(struct world *w, uint32_t initial)
{
	struct peer *c = world_accept(w), *x = NULL;

	if (!c)
		return;
	client_hello(c, initial);
	send_update(c, 0, 1 << 24);
	request(c, (struct request_shape){ .end_on_data = true });
	world_turn(w);
	if (w->n_dials)
		x = world_dialled(w, 0, 0, DIAL_CONNECT);
	if (x)
		send_settings(x, 0, 0);
	world_turn(w);
	for (unsigned i = 0; i < 60; i++) {
		struct half *s = x && x->port && x->n_streams ? x->streams[0] : NULL;

		if (!s || !half_open(s) || !c->port)
			break;
		if (!s->in_head)
			exec_head(x, s, i & 1 ? HEAD_CONTINUATION : HEAD_DYNAMIC);
		for (unsigned k = 0; k < 4 && exec_credit(s); k++)
			exec_data(x, s, min_u64((uint64_t)exec_credit(s), 9000), 0, false);
		c->port->room = i % 8 < 4 ? UINT64_MAX : 5000;
		world_turn(w);
		(void)kernel_step(w, 7000);
		if (i % 5 == 4 && c->port) {
			send_update(c, 1, 60000);
			send_ping(c, false);
		}
		if (i == 45)
			request(c, (struct request_shape){ .end_on_data = true });
		world_turn(w);
		kernel_drain(w, 20000);
	}
	if (c->port)
		c->port->room = UINT64_MAX;
	serve(w, 3000, 4);
}

static void small_windows(struct world *w)
{
	one_large(w, 40000);
}

static void large_windows(struct world *w)
{
	one_large(w, 1 << 22);
}

/* Nothing as it should be. */
static void unhappy(struct world *w)
{
	struct peer *c = world_accept(w), *x;

	if (!c)
		return;
	client_hello(c, 0);
	for (unsigned i = TICKET_NO_HOST; i < TICKETS; i++)
		request(c, (struct request_shape){ .ticket = i, .end_on_data = i & 1 });
	request(c, (struct request_shape){ .path = PATH_OTHER, .end_on_data = true });
	request(c, (struct request_shape){ .malformed = true });
	world_turn(w);
	request(c, (struct request_shape){ .end_on_data = true });
	world_turn(w);
	while (w->n_dials)
		(void)world_dialled(w, 0, -ECONNREFUSED, DIAL_CONNECT);
	world_turn(w);
	for (unsigned i = 0; i < 4; i++) {
		request(c, (struct request_shape){ .end_on_data = true });
		world_turn(w);
		x = w->n_dials ? world_dialled(w, 0, 0, DIAL_CONNECT) : NULL;
		if (!x)
			continue;
		send_settings(x, 0, 0);
		world_turn(w);
		if (!x->port || !x->n_streams)
			continue;
		exec_head(x, x->streams[0], HEAD_PLAIN);
		exec_data(x, x->streams[0], 100, 0, false);
		if (i == 0)
			send_rst(x, x->streams[0]->id, H2_INTERNAL_ERROR);
		else if (i == 1)
			peer_hangup(x, true);
		else if (i == 2)
			send_goaway(x, 0, H2_NO_ERROR);
		else
			exec_trailers(x, x->streams[0], -1, false);
		world_turn(w);
	}
	world_wait(w, 20 * NSEC_PER_SEC);
	c = world_accept(w);
	if (c) {
		client_hello(c, 0);
		request(c, (struct request_shape){ .no_end = true });
	}
	world_turn(w);
	world_enter(w);
	session_drain(w->session);
	world_back(w, false);
	world_turn(w);
	serve(w, 100, 2);
}

/* -------------------------------------------------------------------- the runs */

static void run(void (*script)(struct world *w), bool splice, uint64_t at, bool on)
{
	struct config config = script_config(1 << 2);
	int64_t before = live;

	counted = failed = 0;
	fail_at = at;
	fail_on = on;
	world_init(&world, &config, splice);
	world.no_memory = at;
	if (world.session)
		script(&world);
	fail_at = 0;
	asked = counted;
	if (world.session && !on)
		script_complete(&world);
	world_finish(&world, true);
	assert_int_equal(live, before);
}

static void each_in_turn(void (*script)(struct world *w), bool splice, const char *name)
{
	uint64_t n;

	run(script, splice, 0, false);
	n = asked;
	assert_true(n > 20);
	assert_int_equal(failed, 0);
	for (uint64_t k = 1; k <= n; k++) {
		run(script, splice, k, false);
		run(script, splice, k, true);
		assert_true(failed);
	}
	printf("%s%s: %llu allocations, each failed alone and with all after it\n", name,
	       splice ? ", spliced" : "", (unsigned long long)n);
}

static void test_happy(void **state)
{
	(void)state;
	each_in_turn(happy, false, "happy");
	each_in_turn(happy, true, "happy");
}

static void test_large(void **state)
{
	(void)state;
	each_in_turn(small_windows, false, "small windows");
	each_in_turn(small_windows, true, "small windows");
	each_in_turn(large_windows, false, "large windows");
	run(large_windows, true, 0, false);
	assert_true(world.stats.promotions);
	each_in_turn(large_windows, true, "large windows");
}

static void test_unhappy(void **state)
{
	(void)state;
	each_in_turn(unhappy, false, "unhappy");
	each_in_turn(unhappy, true, "unhappy");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_happy),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_unhappy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
