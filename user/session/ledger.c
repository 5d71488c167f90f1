/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ledger.h"

uint32_t ledger_open(int64_t *window, uint32_t increment)
{
	if (!increment)
		return H2_PROTOCOL_ERROR;
	if (*window + increment > H2_MAX_WINDOW)
		return H2_FLOW_CONTROL_ERROR;
	*window += increment;
	return 0;
}

uint32_t ledger_shift(int64_t *window, int64_t delta)
{
	if (*window + delta > H2_MAX_WINDOW)
		return H2_FLOW_CONTROL_ERROR;
	*window += delta;
	return 0;
}

/* Room below cap, at most what is asked for. */
static uint64_t room(uint64_t cap, uint64_t used, uint64_t want)
{
	return used < cap ? min_u64(want, cap - used) : 0;
}

/*
 * The target is a fair share, and the grant is what is left of it: without the share, the stream
 * that asks first would take the connection's window whole, its siblings a few bytes at a time.
 */
static uint32_t grant_strict(const struct ledger_view *v)
{
	int64_t window = max_i64(v->conn_window, 0), target, grant;
	uint64_t others = v->client_used - v->granted;
	uint64_t elsewhere = v->worker_used - min_u64(v->worker_used, v->granted);

	target = max_i64(window / v->streams, min_i64(window, LEDGER_FLOOR));
	target = min_i64(target, v->stream_window);
	target = min_i64(target, (int64_t)max_u64(v->client_cap / v->streams, LEDGER_FLOOR));
	grant = min_i64(target, v->conn_window - (int64_t)v->others_granted);
	grant = min_i64(grant, (int64_t)room(v->client_cap, others, v->client_cap));
	grant = min_i64(grant, (int64_t)max_u64(room(v->worker_cap, elsewhere, v->worker_cap),
						LEDGER_FLOOR));
	grant -= (int64_t)v->granted;
	/* No small top-ups: a receiver's silly window (RFC 9293 3.8.6.2.2). */
	if (grant <= 0 || grant < target / 4)
		return 0;
	return (uint32_t)min_i64(grant, H2_MAX_WINDOW);
}

uint32_t ledger_grant(const struct ledger_view *v)
{
	uint64_t outstanding = v->granted + v->held;
	uint64_t share = max_u64(LEDGER_LEND, (uint64_t)max_i64(v->conn_window, 0)) / v->streams;
	uint64_t target, grant;

	if (v->strict)
		return grant_strict(v);
	target = max_u64(LEDGER_LEND, (uint64_t)max_i64(v->stream_window, 0));
	target = min_u64(target, min_u64(share, v->client_cap / v->streams));
	target = max_u64(target, LEDGER_FLOOR);
	if (outstanding >= target)
		return 0;
	grant = target - outstanding;
	grant = room(v->client_cap, v->client_used, grant);
	grant = room(v->worker_cap, v->worker_used, grant);
	if (outstanding + grant < LEDGER_FLOOR)
		grant = LEDGER_FLOOR - outstanding;
	/* Small top-ups wait until a quarter of the target is due. */
	if (outstanding && grant < target / 4)
		return 0;
	return (uint32_t)min_u64(grant, H2_MAX_WINDOW - v->granted);
}
