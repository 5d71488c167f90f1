/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written into the pinned maps: moments, texts, names, sums.
 */
#include "unit/hex.h"

#include <arpa/inet.h>
#include <time.h>

#include "datapath/board_rows.h"

#define DAY_MS (24ULL * 3600 * 1000)

static struct addr address(const char *text)
{
	struct addr a;

	assert_int_equal(addr_parse(text, &a), 0);
	return a;
}

static void moments(void **state)
{
	static const uint64_t moments_ms[] = { 1,
					       DAY_MS - 1,
					       DAY_MS,
					       951782399999ULL,
					       951782400000ULL, /* a leap day */
					       1796039478128ULL,
					       4102444800000ULL };
	struct board_clock c = { .now_ns = 0 };
	char text[BOARD_TIME_LEN], want[64];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(moments_ms); i++) {
		time_t s = (time_t)(moments_ms[i] / 1000);
		struct tm tm;
		size_t n;

		gmtime_r(&s, &tm);
		n = strftime(want, sizeof(want), "%Y-%m-%d %H:%M:%S", &tm);
		snprintf(want + n, sizeof(want) - n, ".%03u", (unsigned)(moments_ms[i] % 1000));
		board_clock_text(&c, moments_ms[i], text);
		assert_string_equal(text, want);
		assert_true(strlen(text) < BOARD_TIME_LEN);
	}
	board_clock_text(&c, 0, text);
	assert_string_equal(text, "");
}

static void clock_drift(void **state)
{
	struct board_clock c = { .now_ns = 0 };
	uint64_t opened;

	(void)state;
	board_clock_set(&c, 100 * NSEC_PER_SEC, 5000000);
	opened = board_clock_ms(&c, 10 * NSEC_PER_SEC);
	assert_int_equal(opened, 4990000);
	/* The wall clock gains: what happened has happened when it did. */
	board_clock_set(&c, 101 * NSEC_PER_SEC, 5001400);
	assert_int_equal(board_clock_ms(&c, 11 * NSEC_PER_SEC), opened);
	/* It is set: moments follow. */
	board_clock_set(&c, 102 * NSEC_PER_SEC, 9002000);
	assert_int_equal(board_clock_ms(&c, 12 * NSEC_PER_SEC), 8990000);
	assert_int_equal(c.now_unix_ms, 9002000);
}

static void texts(void **state)
{
	char to[8];

	(void)state;
	board_text(to, sizeof(to), "1234567");
	assert_string_equal(to, "1234567");
	board_text(to, sizeof(to), "12345678");
	assert_string_equal(to, "1234567");
	board_text(to, sizeof(to), "a\n\x7f\xc3\xa9 b");
	assert_string_equal(to, "a???? b");
	board_text(to, sizeof(to), NULL);
	assert_string_equal(to, "");
}

static void stream_of(struct board_stream *row, const char *host, uint16_t port)
{
	struct board_clock c = { .now_ns = 0 };
	struct board_address last = { .text = "" };
	struct ticket ticket = { .port = port, .job = "job", .stage = 4, .partition = 5 };
	struct stream_view v = { .client = address("10.0.0.1:5"),
				 .executor = address("[fd00::1]:50051"),
				 .ticket = &ticket,
				 .state = "streaming",
				 .waits_for = "executor data",
				 .datapath = "relay",
				 .datapath_why = "small",
				 .data_bytes = 10,
				 .granted = 20,
				 .held = 30,
				 .age_ns = 2 * NSEC_PER_SEC,
				 .quiet_ns = NSEC_PER_SEC };

	snprintf(ticket.host, sizeof(ticket.host), "%s", host);
	memset(row, 0, sizeof(*row));
	board_clock_set(&c, 100 * NSEC_PER_SEC, 1796039478128ULL);
	board_stream_row(row, &v, NULL, &last, &c);
}

static void stream_row(void **state)
{
	char host[TICKET_HOST_MAX + 1];
	struct board_stream row;

	(void)state;
	stream_of(&row, "exec-1.example", 50051);
	assert_string_equal(row.job, "job");
	assert_int_equal(row.partition, 5);
	assert_string_equal(row.executor, "exec-1.example:50051");
	assert_string_equal(row.executor_address, "[fd00::1]:50051");
	assert_string_equal(row.client, "10.0.0.1:5");
	assert_string_equal(row.since, "2026-11-30 11:51:17.128");
	assert_string_equal(row.opened, "2026-11-30 11:51:16.128");
	assert_int_equal(row.written_unix_ms, 1796039478128ULL);
	assert_int_equal(row.bytes + row.granted_bytes + row.held_bytes, 60);
	stream_of(&row, "fd00::2", 1);
	assert_string_equal(row.executor, "[fd00::2]:1");
	/* The longest host that fits, and one that does not: the port is there in any case. */
	memset(host, 'h', sizeof(host));
	host[BOARD_NAME_LEN - 10] = '\0';
	stream_of(&row, host, 65535);
	assert_int_equal(strlen(row.executor), BOARD_NAME_LEN - 10 + 6);
	assert_null(strchr(row.executor, '~'));
	memset(host, ':', sizeof(host));
	host[TICKET_HOST_MAX] = '\0';
	stream_of(&row, host, 65535);
	assert_int_equal(strlen(row.executor), BOARD_NAME_LEN - 1);
	assert_non_null(strstr(row.executor, "~]:65535"));
}

static void without_ticket(void **state)
{
	struct board_clock c = { .now_ns = 0 };
	struct board_address last = { .text = "" };
	struct board_client client = { .client = "its row's text" };
	struct board_stream row = { .stage = 0 };
	struct stream_view v = { .state = "request", .waits_for = "client request" };

	(void)state;
	board_stream_row(&row, &v, &client, &last, &c);
	assert_string_equal(row.job, "");
	assert_string_equal(row.executor, "");
	assert_string_equal(row.executor_address, "");
	assert_string_equal(row.client, "its row's text");
	assert_string_equal(row.datapath_why, "");
}

static void counted(struct board_client *client, struct board_executor *executor,
		    const char *waits_for, uint64_t since)
{
	struct board_stream s = { .bytes = 10, .granted_bytes = 1, .since_unix_ms = since };

	board_text(s.waits_for, sizeof(s.waits_for), waits_for);
	snprintf(s.since, sizeof(s.since), "at %u", (unsigned)since);
	board_count_stream(&s, client, executor);
}

static void sums(void **state)
{
	struct board_client client = { .bytes = 0 };
	struct board_executor x = { .bytes = 0 };

	(void)state;
	counted(&client, &x, "client window", 1);
	counted(&client, &x, "executor data", 70);
	counted(&client, &x, "executor connection", 60);
	counted(&client, &x, "executor response", 65);
	counted(&client, NULL, "client request", 1);
	counted(NULL, &x, "promotion", 1);
	assert_int_equal(client.bytes, 50);
	assert_int_equal(client.streams_waiting_for_client, 2);
	assert_int_equal(client.streams_waiting_for_executor, 3);
	assert_int_equal(x.streams, 5);
	assert_int_equal(x.granted_bytes, 5);
	assert_int_equal(x.streams_unconnected, 1);
	assert_int_equal(x.streams_waiting_for_executor, 3);
	assert_int_equal(x.streams_waiting_for_client, 1);
	assert_int_equal(x.quietest_since_unix_ms, 60);
	assert_string_equal(x.quietest_since, "at 60");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moments),        cmocka_unit_test(clock_drift),
		cmocka_unit_test(texts),          cmocka_unit_test(stream_row),
		cmocka_unit_test(without_ticket), cmocka_unit_test(sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
