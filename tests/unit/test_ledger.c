/* SPDX-License-Identifier: Apache-2.0 */
/* Flow-control arithmetic: RFC 9113 6.9 and the rules of session/ledger.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "session/ledger.h"

static void opening(void **state)
{
	int64_t w = 0;

	(void)state;
	assert_int_equal(ledger_open(&w, 0), H2_PROTOCOL_ERROR);
	assert_int_equal(ledger_open(&w, H2_MAX_WINDOW), 0);
	assert_int_equal(w, H2_MAX_WINDOW);
	assert_int_equal(ledger_open(&w, 1), H2_FLOW_CONTROL_ERROR);
	assert_int_equal(w, H2_MAX_WINDOW);
	w = -10;
	assert_int_equal(ledger_open(&w, H2_MAX_WINDOW), 0);
	assert_int_equal(w, (int64_t)H2_MAX_WINDOW - 10);
}

static void shifting(void **state)
{
	int64_t w = 100;

	(void)state;
	assert_int_equal(ledger_shift(&w, -65535), 0);
	assert_int_equal(w, 100 - 65535);
	assert_int_equal(ledger_shift(&w, H2_MAX_WINDOW), 0);
	assert_int_equal(ledger_shift(&w, 65536), H2_FLOW_CONTROL_ERROR);
}

static struct ledger_view view(void)
{
	return (struct ledger_view){ .stream_window = 2 * MiB,
				     .conn_window = 5 * MiB,
				     .client_cap = 4 * MiB,
				     .worker_cap = GiB,
				     .streams = 1 };
}

static void large_windows_are_used_whole(void **state)
{
	struct ledger_view v = view();

	(void)state;
	assert_int_equal(ledger_grant(&v), 2 * MiB);
	v.conn_window = MiB;
	assert_int_equal(ledger_grant(&v), MiB);
	v = view();
	v.stream_window = H2_MAX_WINDOW;
	v.conn_window = H2_MAX_WINDOW;
	assert_int_equal(ledger_grant(&v), 4 * MiB); /* our own bound */
}

static void small_windows_are_lent_to(void **state)
{
	struct ledger_view v = view();

	(void)state;
	v.stream_window = 65535;
	assert_int_equal(ledger_grant(&v), LEDGER_LEND);
	v.stream_window = -100000;
	assert_int_equal(ledger_grant(&v), LEDGER_LEND);
	/* What is held here is not lent again. */
	v.held = LEDGER_LEND;
	v.client_used = v.worker_used = v.held;
	assert_int_equal(ledger_grant(&v), 0);
	/* Strict: nothing is lent, the window is what it is. */
	v = view();
	v.strict = true;
	v.stream_window = 65535;
	assert_int_equal(ledger_grant(&v), 65535);
	v.stream_window = -1;
	assert_int_equal(ledger_grant(&v), 0);
}

static void small_top_ups_wait(void **state)
{
	struct ledger_view v = view();

	(void)state;
	v.granted = v.client_used = v.worker_used = 2 * MiB - 1000;
	assert_int_equal(ledger_grant(&v), 0);
	v.granted = v.client_used = v.worker_used = MiB;
	assert_int_equal(ledger_grant(&v), MiB);
}

/* Streams of one connection share its window, so that little has to be held here. */
static void shares(void **state)
{
	struct ledger_view v = view();

	(void)state;
	v.streams = 8;
	v.client_cap = 64 * MiB;
	assert_int_equal(ledger_grant(&v), 5 * MiB / 8);
	v.conn_window = -5; /* the client has fallen behind: what is lent is shared, too */
	assert_int_equal(ledger_grant(&v), LEDGER_LEND / 8);
	v.client_cap = 2 * MiB;
	v.conn_window = 5 * MiB;
	assert_int_equal(ledger_grant(&v), 2 * MiB / 8);
}

/* However much the others take, nobody is left without LEDGER_FLOOR: no stream waits for memory. */
static void nobody_starves(void **state)
{
	struct ledger_view v = view();

	(void)state;
	v.client_used = v.client_cap;
	assert_int_equal(ledger_grant(&v), LEDGER_FLOOR);
	v = view();
	v.worker_used = v.worker_cap;
	assert_int_equal(ledger_grant(&v), LEDGER_FLOOR);
	v = view();
	v.streams = 100000;
	assert_int_equal(ledger_grant(&v), LEDGER_FLOOR);
}

/* Strict: who asks first does not take the connection's window whole. */
static void strict_shares(void **state)
{
	struct ledger_view v = view();

	(void)state;
	v.strict = true;
	v.streams = 8;
	assert_int_equal(ledger_grant(&v), 4 * MiB / 8); /* of --client-inflight */
	v.client_cap = 64 * MiB;
	assert_int_equal(ledger_grant(&v), 5 * MiB / 8);
	v.conn_window = 100000;
	assert_int_equal(ledger_grant(&v), LEDGER_FLOOR);
	v.conn_window = 5000;
	assert_int_equal(ledger_grant(&v), 5000);
	v.conn_window = -5;
	assert_int_equal(ledger_grant(&v), 0);
}

/* Strict: a few bytes that the siblings left are not worth a WINDOW_UPDATE. */
static void strict_has_no_silly_window(void **state)
{
	struct ledger_view v = view();

	(void)state;
	v.strict = true;
	v.streams = 8;
	v.client_cap = 64 * MiB;
	v.others_granted = v.client_used = v.worker_used = 5 * MiB - 1000;
	assert_int_equal(ledger_grant(&v), 0);
	v.others_granted = v.client_used = v.worker_used = 5 * MiB - 5 * MiB / 32;
	assert_int_equal(ledger_grant(&v), 5 * MiB / 32);
	/* What the siblings have not used does not enlarge the share. */
	v.others_granted = v.client_used = v.worker_used = 0;
	assert_int_equal(ledger_grant(&v), 5 * MiB / 8);
}

/* A strict stream never gets more than windows and bound leave, in any state. */
static void strict_never_exceeds(void **state)
{
	uint32_t seed = 7;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		struct ledger_view v = { .strict = true, .worker_cap = GiB };
		uint32_t n, r[6];

		for (size_t k = 0; k < ARRAY_SIZE(r); k++)
			r[k] = seed = seed * 1664525 + 1013904223;
		v.stream_window = (int64_t)(r[0] >> 4) - 100000;
		v.conn_window = (int64_t)(r[1] >> 4) - 100000;
		v.client_cap = (r[2] >> 8) + 1;
		v.granted = r[3] >> 12;
		v.others_granted = r[4] >> 9;
		v.client_used = v.granted + v.others_granted;
		v.streams = 1 + r[5] % 100;
		n = ledger_grant(&v);
		if (!n)
			continue;
		assert_true((int64_t)(v.granted + n) <= v.stream_window);
		assert_true((int64_t)(v.granted + n) <= v.conn_window - (int64_t)v.others_granted);
		assert_true(v.client_used + n <= v.client_cap);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opening),
		cmocka_unit_test(shifting),
		cmocka_unit_test(large_windows_are_used_whole),
		cmocka_unit_test(small_windows_are_lent_to),
		cmocka_unit_test(small_top_ups_wait),
		cmocka_unit_test(shares),
		cmocka_unit_test(nobody_starves),
		cmocka_unit_test(strict_shares),
		cmocka_unit_test(strict_has_no_silly_window),
		cmocka_unit_test(strict_never_exceeds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
