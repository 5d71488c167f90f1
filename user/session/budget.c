/* SPDX-License-Identifier: Apache-2.0 */
#include "session/budget.h"

struct budget {
	const char *name;
	uint32_t burst, per_second; /* rates only */
};

static const struct budget budgets[BUDGETS] = {
	[BUDGET_CLIENT_PING] = { "client_ping", BUDGET_PING_BURST, BUDGET_PING_RATE },
	[BUDGET_CLIENT_SETTINGS] = { "client_settings", BUDGET_SETTINGS_BURST,
				     BUDGET_SETTINGS_RATE },
	[BUDGET_CLIENT_EMPTY_DATA] = { "client_empty_data", BUDGET_EMPTY_BURST, BUDGET_EMPTY_RATE },
	[BUDGET_CLIENT_WINDOW_UPDATE] = { "client_window_update", BUDGET_WINDOW_BURST,
					  BUDGET_WINDOW_RATE },
	[BUDGET_CLIENT_CONTROL] = { "client_control", BUDGET_CONTROL_BURST, BUDGET_CONTROL_RATE },
	[BUDGET_CLIENT_RESET] = { "client_reset", BUDGET_RESET_BURST, BUDGET_RESET_RATE },
	[BUDGET_EXECUTOR_PING] = { "executor_ping", BUDGET_PING_BURST, BUDGET_PING_RATE },
	[BUDGET_EXECUTOR_SETTINGS] = { "executor_settings", BUDGET_SETTINGS_BURST,
				       BUDGET_SETTINGS_RATE },
	[BUDGET_EXECUTOR_EMPTY_DATA] = { "executor_empty_data", BUDGET_EMPTY_BURST,
					 BUDGET_EMPTY_RATE },
	[BUDGET_EXECUTOR_WINDOW_UPDATE] = { "executor_window_update", BUDGET_WINDOW_BURST,
					    BUDGET_WINDOW_RATE },
	[BUDGET_EXECUTOR_CONTROL] = { "executor_control", BUDGET_CONTROL_BURST,
				      BUDGET_CONTROL_RATE },
	[BUDGET_EXECUTOR_RESET] = { "executor_reset", BUDGET_RESET_BURST, BUDGET_RESET_RATE },
	[BUDGET_CLIENT_HEADER_BYTES] = { .name = "client_header_bytes" },
	[BUDGET_CLIENT_HEADER_FRAMES] = { .name = "client_header_frames" },
	[BUDGET_CLIENT_HEADER_TIME] = { .name = "client_header_time" },
	[BUDGET_CLIENT_UNREAD] = { .name = "client_unread" },
	[BUDGET_CLIENT_STREAMS] = { .name = "client_streams" },
	[BUDGET_EXECUTOR_HEADER_BYTES] = { .name = "executor_header_bytes" },
	[BUDGET_EXECUTOR_HEADER_FRAMES] = { .name = "executor_header_frames" },
	[BUDGET_EXECUTOR_HEADER_TIME] = { .name = "executor_header_time" },
	[BUDGET_EXECUTOR_UNREAD] = { .name = "executor_unread" },
	[BUDGET_CLIENTS] = { .name = "clients" },
	[BUDGET_CLIENTS_PER_SOURCE] = { .name = "clients_per_source" },
	[BUDGET_MEMORY] = { .name = "memory" },
};

_Static_assert(BUDGET_RATES == 2 * BUDGET_RATES_EACH, "an executor's rates follow a client's");

const char *budget_name(enum budget_id id)
{
	return budgets[id].name;
}

bool budget_spend(struct budgets *b, enum budget_id id, uint32_t cost, uint64_t now_ns)
{
	const struct budget *limit = &budgets[id];
	uint64_t earned;
	uint32_t *spent = &b->rate[id % BUDGET_RATES_EACH].spent;
	uint64_t *at = &b->rate[id % BUDGET_RATES_EACH].at_ns;

	assert(id < BUDGET_RATES);
	/* Fresh or long idle: the product below must not overflow. */
	earned = min_u64(now_ns - *at, 3600 * NSEC_PER_SEC) * limit->per_second / NSEC_PER_SEC;
	if (earned) {
		*spent = earned >= *spent ? 0 : *spent - (uint32_t)earned;
		*at = now_ns;
	}
	if (*spent + cost > limit->burst)
		return false;
	*spent += cost;
	return true;
}

void budget_earn(struct budgets *b, enum budget_id id, uint32_t n)
{
	uint32_t *spent = &b->rate[id % BUDGET_RATES_EACH].spent;

	*spent -= (uint32_t)min_u64(*spent, n);
}
