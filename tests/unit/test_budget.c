/* SPDX-License-Identifier: Apache-2.0 */
/* Rates: what may be spent at once, what comes back, and that sides and kinds are apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "session/budget.h"

#define HOUR (3600 * NSEC_PER_SEC)

static unsigned spend_all(struct budgets *b, enum budget_id id, uint64_t now)
{
	unsigned n = 0;

	while (budget_spend(b, id, 1, now))
		n++;
	return n;
}

static void burst_and_rate(void **state)
{
	struct budgets b = { 0 };

	(void)state;
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_PING, HOUR), BUDGET_PING_BURST);
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_PING, HOUR), 0);
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_PING, HOUR + NSEC_PER_SEC), BUDGET_PING_RATE);
	/* In steps too short to earn one, nothing is lost. */
	for (unsigned i = 1; i <= 1000; i++)
		assert_false(budget_spend(&b, BUDGET_CLIENT_PING, 1000,
					  HOUR + NSEC_PER_SEC + i * NSEC_PER_USEC / 10));
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_PING, HOUR + 2 * NSEC_PER_SEC),
			 BUDGET_PING_RATE);
	/* Never more than the burst, however long nothing was spent. */
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_PING, 1000000 * HOUR), BUDGET_PING_BURST);
}

static void fresh_late(void **state)
{
	struct budgets b = { 0 };

	(void)state;
	/* A clock far from 0 must not overflow the product. */
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_WINDOW_UPDATE, UINT64_MAX),
			 BUDGET_WINDOW_BURST);
}

static void costs(void **state)
{
	struct budgets b = { 0 };

	(void)state;
	assert_true(budget_spend(&b, BUDGET_EXECUTOR_SETTINGS, BUDGET_SETTINGS_BURST - 1, HOUR));
	assert_false(budget_spend(&b, BUDGET_EXECUTOR_SETTINGS, 2, HOUR));
	assert_true(budget_spend(&b, BUDGET_EXECUTOR_SETTINGS, 1, HOUR));
}

static void apart(void **state)
{
	struct budgets client = { 0 }, executor = { 0 };

	(void)state;
	spend_all(&client, BUDGET_CLIENT_RESET, HOUR);
	for (unsigned id = 0; id < BUDGET_CLIENT_RESET; id++)
		assert_true(budget_spend(&client, id, 1, HOUR));
	assert_int_equal(spend_all(&executor, BUDGET_EXECUTOR_RESET, HOUR), BUDGET_RESET_BURST);
}

static void earning(void **state)
{
	struct budgets b = { 0 };

	(void)state;
	budget_earn(&b, BUDGET_CLIENT_CONTROL, 100);
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_CONTROL, HOUR), BUDGET_CONTROL_BURST);
	budget_earn(&b, BUDGET_CLIENT_CONTROL, 100);
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_CONTROL, HOUR), 100);
	budget_earn(&b, BUDGET_CLIENT_CONTROL, UINT32_MAX);
	assert_int_equal(spend_all(&b, BUDGET_CLIENT_CONTROL, HOUR), BUDGET_CONTROL_BURST);
}

static void names(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BUDGETS; i++) {
		assert_non_null(budget_name(i));
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(budget_name(i), budget_name(k));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(burst_and_rate), cmocka_unit_test(fresh_late),
		cmocka_unit_test(costs),          cmocka_unit_test(apart),
		cmocka_unit_test(earning),        cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
