/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_rows.c - see board_rows.h.
 *
 * A worker does this once a second for each of its streams, so numbers are turned into text by hand
 * where printf() would cost more than everything else together.
 */
#include "datapath/board_rows.h"

#include <time.h>

#define MS_PER_DAY (24ULL * 3600 * 1000)
#define DRIFT_MS 1000

void board_clock_set(struct board_clock *c, uint64_t now_ns, uint64_t now_unix_ms)
{
	uint64_t offset = now_unix_ms - now_ns / NSEC_PER_MSEC;
	int64_t moved = (int64_t)(offset - c->offset_ms);

	if (moved > DRIFT_MS || moved < -DRIFT_MS)
		c->offset_ms = offset;
	c->now_ns = now_ns;
	c->now_unix_ms = now_ns / NSEC_PER_MSEC + c->offset_ms;
}

uint64_t board_clock_ms(const struct board_clock *c, uint64_t ago_ns)
{
	return (c->now_ns - ago_ns) / NSEC_PER_MSEC + c->offset_ms;
}

static void set_day(struct board_clock *c, uint64_t day)
{
	time_t at = (time_t)(day * 24 * 3600);
	struct tm tm;

	if (!gmtime_r(&at, &tm) || !strftime(c->day_text, sizeof(c->day_text), "%Y-%m-%d ", &tm))
		memcpy(c->day_text, "0000-00-00 ", sizeof(c->day_text));
	c->day = day;
}

static char *digits(char *to, unsigned n, unsigned value, char end)
{
	for (unsigned i = n; i--; value /= 10)
		to[i] = (char)('0' + value % 10);
	to[n] = end;
	return to + n + 1;
}

void board_clock_text(struct board_clock *c, uint64_t unix_ms, char to[BOARD_TIME_LEN])
{
	uint64_t day = unix_ms / MS_PER_DAY;
	unsigned ms = (unsigned)(unix_ms % MS_PER_DAY);

	static_assert(BOARD_TIME_LEN >= sizeof(c->day_text) + sizeof("11:42:07.123") - 1, "room");
	to[0] = '\0';
	if (!unix_ms)
		return;
	if (day != c->day || !c->day_text[0])
		set_day(c, day);
	memcpy(to, c->day_text, sizeof(c->day_text) - 1);
	to += sizeof(c->day_text) - 1;
	to = digits(to, 2, ms / 3600000, ':');
	to = digits(to, 2, ms / 60000 % 60, ':');
	to = digits(to, 2, ms / 1000 % 60, '.');
	digits(to, 3, ms % 1000, '\0');
}

void board_text(char *to, size_t size, const char *from)
{
	size_t i = 0;

	for (; from && from[i] && i + 1 < size; i++)
		to[i] = (char)(from[i] < 0x20 || from[i] > 0x7e ? '?' : from[i]);
	to[i] = '\0';
}

static char *number(char *to, unsigned value)
{
	unsigned n = 1;

	for (unsigned rest = value / 10; rest; rest /= 10)
		n++;
	digits(to, n, value, '\0');
	return to + n;
}

/* "host:port", brackets around an IPv6 literal; a host that does not fit ends with '~'. */
static void name(char to[BOARD_NAME_LEN], const char *host, uint16_t port)
{
	bool v6 = strchr(host, ':') != NULL;
	/* Two brackets, '~', ':', five digits, NUL. */
	size_t len = strlen(host), room = BOARD_NAME_LEN - 10;

	if (v6)
		*to++ = '[';
	board_text(to, room + 1, host);
	to += min_u64(len, room);
	if (len > room)
		*to++ = '~';
	if (v6)
		*to++ = ']';
	*to++ = ':';
	number(to, port);
}

static void address(char to[BOARD_ADDR_LEN], const struct addr *a)
{
	char text[ADDR_STRLEN];

	if (a->len)
		board_text(to, BOARD_ADDR_LEN, addr_format(a, text));
}

static void executor_address(char to[BOARD_ADDR_LEN], const struct addr *a,
			     struct board_address *last)
{
	if (!a->len)
		return;
	if (!addr_equal(a, &last->addr)) {
		last->addr = *a;
		address(last->text, a);
	}
	memcpy(to, last->text, BOARD_ADDR_LEN);
}

void board_stream_row(struct board_stream *to, const struct stream_view *v,
		      const struct board_client *client, struct board_address *last,
		      struct board_clock *c)
{
	if (v->ticket) {
		board_text(to->job, sizeof(to->job), v->ticket->job);
		to->stage = v->ticket->stage;
		to->partition = v->ticket->partition;
		name(to->executor, v->ticket->host, v->ticket->port);
	}
	executor_address(to->executor_address, &v->executor, last);
	if (client)
		memcpy(to->client, client->client, sizeof(to->client));
	else
		address(to->client, &v->client);
	board_text(to->state, sizeof(to->state), v->state);
	board_text(to->waits_for, sizeof(to->waits_for), v->waits_for);
	board_text(to->datapath, sizeof(to->datapath), v->datapath);
	board_text(to->datapath_why, sizeof(to->datapath_why), v->datapath_why);
	to->bytes = v->data_bytes;
	to->granted_bytes = v->granted;
	to->held_bytes = v->held;
	to->since_unix_ms = board_clock_ms(c, v->quiet_ns);
	to->opened_unix_ms = board_clock_ms(c, v->age_ns);
	board_clock_text(c, to->since_unix_ms, to->since);
	board_clock_text(c, to->opened_unix_ms, to->opened);
	to->written_unix_ms = c->now_unix_ms;
	to->stream_id = v->stream_id;
	to->client_number = v->client_number;
	to->executor_number = v->executor_number;
	to->spliced = v->spliced;
	to->kernel_slot = v->kernel_slot;
	to->kernel_generation = v->kernel_generation;
	to->kernel_bytes = v->kernel_bytes;
}

void board_client_row(struct board_client *to, const struct client_view *v, struct board_clock *c)
{
	address(to->client, &v->peer);
	board_text(to->state, sizeof(to->state), v->state);
	board_text(to->waits_for, sizeof(to->waits_for), v->waits_for);
	board_text(to->datapath, sizeof(to->datapath), v->datapath);
	to->inflight_bytes = v->inflight;
	to->window_bytes = v->window;
	to->since_unix_ms = board_clock_ms(c, v->quiet_ns);
	to->opened_unix_ms = board_clock_ms(c, v->age_ns);
	board_clock_text(c, to->since_unix_ms, to->since);
	board_clock_text(c, to->opened_unix_ms, to->opened);
	to->streams = v->streams;
}

void board_executor_row(struct board_executor *to, const struct executor_view *v,
			struct board_clock *c)
{
	name(to->executor, v->host, v->port);
	to->used_unix_ms = board_clock_ms(c, v->unused_ns);
	board_clock_text(c, to->used_unix_ms, to->used);
	to->idle_connections = v->idle;
	to->streams_served = v->served;
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

void board_count_stream(const struct board_stream *s, struct board_client *client,
			struct board_executor *executor)
{
	bool for_executor = begins(s->waits_for, "executor"),
	     for_client = begins(s->waits_for, "client");

	if (client) {
		client->bytes += s->bytes;
		client->streams_waiting_for_client += for_client;
		client->streams_waiting_for_executor += for_executor;
	}
	if (!executor)
		return;
	executor->streams++;
	executor->bytes += s->bytes;
	executor->granted_bytes += s->granted_bytes;
	executor->held_bytes += s->held_bytes;
	executor->streams_unconnected += !strcmp(s->waits_for, "executor connection");
	executor->streams_waiting_for_executor += for_executor;
	executor->streams_waiting_for_client += for_client;
	if (!executor->address[0])
		memcpy(executor->address, s->executor_address, sizeof(executor->address));
	if (for_executor && (!executor->quietest_since_unix_ms ||
			     s->since_unix_ms < executor->quietest_since_unix_ms)) {
		executor->quietest_since_unix_ms = s->since_unix_ms;
		memcpy(executor->quietest_since, s->since, sizeof(executor->quietest_since));
	}
}
