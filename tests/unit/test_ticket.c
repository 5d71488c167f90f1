/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets as Ballista's clients send them, and as nobody should. */
#include "unit/hex.h"

#include "flight/arena.h"
#include "flight/flight.h"

/* ---- writing protobuf ---- */

struct pb {
	uint8_t *p;
	size_t len, cap;
};

static void pb_raw(struct pb *b, const void *p, size_t n)
{
	if (b->len + n > b->cap) {
		b->cap = 2 * (b->len + n);
		b->p = realloc(b->p, b->cap);
		assert_non_null(b->p);
	}
	if (n)
		memcpy(b->p + b->len, p, n);
	b->len += n;
}

static void pb_varint(struct pb *b, uint64_t v)
{
	uint8_t c;

	for (; v >= 0x80; v >>= 7) {
		c = (uint8_t)(v | 0x80);
		pb_raw(b, &c, 1);
	}
	c = (uint8_t)v;
	pb_raw(b, &c, 1);
}

static void pb_uint(struct pb *b, unsigned field, uint64_t v)
{
	pb_varint(b, field << 3);
	pb_varint(b, v);
}

static void pb_bytes(struct pb *b, unsigned field, const void *p, size_t n)
{
	pb_varint(b, field << 3 | 2);
	pb_varint(b, n);
	pb_raw(b, p, n);
}

/* Frees inner. */
static void pb_nest(struct pb *b, unsigned field, struct pb *inner)
{
	pb_bytes(b, field, inner->p, inner->len);
	free(inner->p);
	*inner = (struct pb){ .p = NULL };
}

/* Ticket{Action{FetchPartition}}; frees fetch. */
static struct pb wrap(struct pb *fetch)
{
	struct pb action = { .p = NULL }, ticket = { .p = NULL };

	pb_nest(&action, 3, fetch);
	pb_nest(&ticket, 1, &action);
	return ticket;
}

static struct pb fetch_from(const void *host, size_t host_len, uint64_t port)
{
	struct pb fetch = { .p = NULL };

	pb_bytes(&fetch, 1, "job", 3);
	pb_uint(&fetch, 2, 7);
	pb_bytes(&fetch, 5, host, host_len);
	pb_uint(&fetch, 6, port);
	return fetch;
}

/* ---- judging ---- */

static void decodes(const uint8_t *p, size_t n, const char *host, uint16_t port, const char *job,
		    uint32_t stage, uint32_t partition)
{
	uint8_t *copy = exact_copy(p, n);
	const char *why = "untouched";
	struct ticket t;

	if (ticket_decode(copy, n, &t, &why))
		fail_msg("refused: %s", why);
	assert_string_equal(why, "untouched");
	assert_string_equal(t.host, host);
	assert_int_equal(t.port, port);
	assert_string_equal(t.job, job);
	assert_int_equal(t.stage, stage);
	assert_int_equal(t.partition, partition);
	free(copy);
}

static void refused(const uint8_t *p, size_t n, const char *want)
{
	uint8_t *copy = exact_copy(p, n);
	struct ticket t, before;
	const char *why = NULL;

	memset(&t, 0x5a, sizeof(t));
	before = t;
	assert_int_equal(ticket_decode(copy, n, &t, &why), -EINVAL);
	assert_non_null(why);
	assert_string_equal(why, want);
	assert_memory_equal(&t, &before, sizeof(t));
	free(copy);
}

static void refused_hex(const char *hex, const char *want)
{
	uint8_t buf[256];

	refused(buf, hex_read(buf, sizeof(buf), hex), want);
}

static void refused_pb(struct pb *b, const char *want)
{
	refused(b->p, b->len, want);
	free(b->p);
}

static const char not_a_ticket[] = "request is not a Flight Ticket";
static const char not_an_action[] = "ticket is not a Ballista Action";
static const char no_host[] = "ticket has no fetch_partition.host";
static const char no_port[] = "ticket has no fetch_partition.port";
static const char bad_port[] = "fetch_partition.port is out of range";
static const char bad_char[] = "fetch_partition.host has a character that no host has";
static const char bad_literal[] = "fetch_partition.host is neither a name nor an address";
static const char long_host[] = "fetch_partition.host is too long";
static const char too_many[] = "ticket has too many fields";

/* ---- real ones ---- */

/* clang-format off */
static const struct {
	const char *version, *hex, *job;
	uint32_t stage, partition;
} captured[] = {
	{ "55.0.0", "0a22 1a200a0d303338484254353436303030302a093132372e302e302e3130eb8e033800",
	  "038HBT5460000", 0, 0 },
	{ "55.0.0", "0a24 1a220a0d30333848425435354e4130303018032a093132372e302e302e3130eb8e033800",
	  "038HBT55NA000", 0, 3 },
	{ "55.0.0", "0a24 1a220a0d3033384842543534455230303018022a093132372e302e302e3130eb8e033800",
	  "038HBT54ER000", 0, 2 },
	{ "54.1.0", "0a1e 1a1c0a07324a3965427964100118022a093132372e302e302e3130eb8e03",
	  "2J9eByd", 1, 2 },
	{ "54.1.0", "0a1c 1a1a0a0770615863754b3410012a093132372e302e302e3130eb8e03",
	  "paXcuK4", 1, 0 },
};
/* clang-format on */

static void captured_tickets(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(captured); i++) {
		uint8_t buf[64];
		size_t n = hex_read(buf, sizeof(buf), captured[i].hex);

		decodes(buf, n, "127.0.0.1", 51051, captured[i].job, captured[i].stage,
			captured[i].partition);
	}
}

/* Cut anywhere, or with one byte changed to anything: an answer, and never out of bounds. */
static void captured_tickets_damaged(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(captured); i++) {
		uint8_t buf[64];
		size_t n = hex_read(buf, sizeof(buf), captured[i].hex);

		for (size_t cut = 1; cut < n; cut++)
			refused(buf, cut, not_a_ticket);
		refused(buf, 0, "ticket is empty");
		for (size_t at = 0; at < n; at++)
			for (unsigned v = 0; v < 256; v++) {
				uint8_t *copy = exact_copy(buf, n);
				const char *why = NULL;
				struct ticket t;

				copy[at] = (uint8_t)v;
				if (ticket_decode(copy, n, &t, &why)) {
					assert_non_null(why);
				} else {
					assert_true(t.port && strlen(t.host) <= TICKET_HOST_MAX);
					assert_true(strlen(t.job) <= TICKET_JOB_MAX);
				}
				free(copy);
			}
	}
}

/* The Action inside an intact Ticket, cut at every byte. */
static void truncated_action(void **state)
{
	uint8_t buf[64];
	size_t n = hex_read(buf, sizeof(buf), captured[0].hex);

	(void)state;
	for (size_t cut = 1; cut < n - 2; cut++) {
		struct pb ticket = { .p = NULL };

		pb_bytes(&ticket, 1, buf + 2, cut);
		refused_pb(&ticket, not_an_action);
	}
}

/* What other versions put beside the fields we read, before, between and after them. */
static void unknown_fields_are_skipped(void **state)
{
	struct pb fetch = { .p = NULL }, action = { .p = NULL }, ticket = { .p = NULL };
	struct pb range = { .p = NULL };

	(void)state;
	pb_uint(&fetch, 6, 50051); /* in any order */
	pb_bytes(&fetch, 4, "/tmp/data.arrow", 15);
	pb_bytes(&fetch, 5, "executor-7.ballista", 19);
	pb_uint(&fetch, 3, 4294967295);
	pb_uint(&fetch, 8, 1);
	pb_uint(&fetch, 2, 12);
	pb_uint(&range, 1, 1 << 20);
	pb_uint(&range, 2, 99);
	pb_nest(&fetch, 11, &range);
	pb_bytes(&fetch, 1, "j", 1);
	pb_uint(&fetch, 536870911, 1); /* the highest field number */

	pb_bytes(&action, 100, "\x0a\x01k\x12\x01v", 6);
	pb_nest(&action, 3, &fetch);
	pb_bytes(&action, 100, "\x0a\x01k\x12\x01w", 6);

	pb_varint(&ticket, 2 << 3 | 1);
	pb_raw(&ticket, "01234567", 8); /* 64 bit */
	pb_nest(&ticket, 1, &action);
	pb_varint(&ticket, 3 << 3 | 5);
	pb_raw(&ticket, "0123", 4); /* 32 bit */
	decodes(ticket.p, ticket.len, "executor-7.ballista", 50051, "j", 12, 4294967295u);
	free(ticket.p);
}

/* Ballista 55 may name many byte ranges and settings: an honest long ticket passes. */
static void many_settings(void **state)
{
	struct pb fetch = fetch_from("h", 1, 1), action = { .p = NULL }, ticket = { .p = NULL };
	char setting[64];

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		struct pb range = { .p = NULL };

		pb_uint(&range, 1, 5000000ULL * i);
		pb_uint(&range, 2, 5000000);
		pb_nest(&fetch, 11, &range);
	}
	pb_nest(&action, 3, &fetch);
	for (unsigned i = 0; i < 300; i++) {
		int n = snprintf(setting, sizeof(setting), "\x0a\x10setting.key.%04u\x12\x04true",
				 i);

		pb_bytes(&action, 100, setting, (size_t)n);
	}
	pb_nest(&ticket, 1, &action);
	decodes(ticket.p, ticket.len, "h", 1, "job", 7, 0);
	free(ticket.p);
}

/* ---- hosts ---- */

static void host_is(const char *host, const char *want)
{
	struct pb fetch = fetch_from(host, strlen(host), 50051), ticket = wrap(&fetch);

	decodes(ticket.p, ticket.len, want, 50051, "job", 7, 0);
	free(ticket.p);
}

static void host_refused(const void *host, size_t n, const char *why)
{
	struct pb fetch = fetch_from(host, n, 50051), ticket = wrap(&fetch);

	refused_pb(&ticket, why);
}

static void hosts(void **state)
{
	char longest[TICKET_HOST_MAX + 1];

	(void)state;
	host_is("a", "a");
	host_is("10.244.3.7", "10.244.3.7");
	host_is("Executor_0.ballista-executors.default.svc.cluster.local.",
		"Executor_0.ballista-executors.default.svc.cluster.local.");
	host_is("::1", "::1");
	host_is("[::1]", "::1");
	host_is("[fd00:10:244::1:7]", "fd00:10:244::1:7");
	host_is("::ffff:10.0.0.1", "::ffff:10.0.0.1");
	host_is("[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]",
		"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255");

	memset(longest, 'a', TICKET_HOST_MAX);
	longest[TICKET_HOST_MAX] = '\0';
	host_is(longest, longest);
}

static void hostile_hosts(void **state)
{
	static const char *const characters[] = {
		"a b", "a\n",          "a\r\nb", "a/b",  "a@b", "a?b",  "a#b", "a%b",
		"%61", "fe80::1%eth0", "a,b",    "a\"b", "a'b", "a\\b", "a;b", "$(a)",
		"*",   "h\xc3\xb6st",  "a\x7f",  "\x01",
	};
	static const char *const literals[] = {
		"[",
		"]",
		"[]",
		":",
		"::1]",
		"[::1",
		"[[::1]]",
		"[::1]a",
		"a[::1]",
		"host:80",
		"10.0.0.1:80",
		"[10.0.0.1]",
		"[::1]:80",
		"1::2::3",
		"12345::",
		":::",
		"[a]",
		"1:2:3:4:5:6:7:8:9",
		"::00000000000000000000000000000000000000000000000000001",
	};
	char longer[TICKET_HOST_MAX + 1];
	static char huge[100000];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(characters); i++)
		host_refused(characters[i], strlen(characters[i]), bad_char);
	for (size_t i = 0; i < ARRAY_SIZE(literals); i++)
		host_refused(literals[i], strlen(literals[i]), bad_literal);
	/* A C string would end at the NUL, and "127.0.0.1" be what is left. */
	host_refused("127.0.0.1\0.example.com", 22, bad_char);
	host_refused("127.0.0.1\0", 10, bad_char);
	host_refused("\0", 1, bad_char);
	host_refused("::1\0", 4, bad_char);
	host_refused("", 0, no_host);
	memset(longer, 'a', sizeof(longer));
	host_refused(longer, sizeof(longer), long_host);
	memset(huge, ':', sizeof(huge));
	host_refused(huge, sizeof(huge), long_host);
	/* Every byte that a host may not have. */
	for (unsigned c = 0; c < 256; c++) {
		uint8_t host[3] = { 'a', (uint8_t)c, 'b' };
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			     (c >= '0' && c <= '9') || (c && c < 128 && strchr("-._", (int)c));

		if (!plain)
			host_refused(host, 3,
				     c && c < 128 && strchr(":[]", (int)c) ? bad_literal
									   : bad_char);
	}
}

/* ---- ports ---- */

static void ports(void **state)
{
	static const uint64_t bad[] = { 65536,          70000,          0xffffffff,
					0x100000000ULL, 0x10000c76bULL, /* 2^32 + 51051 */
					UINT64_MAX };

	(void)state;
	for (uint64_t port = 1; port <= 65535; port += port < 1000 || port > 65000 ? 1 : 97) {
		struct pb fetch = fetch_from("h", 1, port), ticket = wrap(&fetch);

		decodes(ticket.p, ticket.len, "h", (uint16_t)port, "job", 7, 0);
		free(ticket.p);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct pb fetch = fetch_from("h", 1, bad[i]), ticket = wrap(&fetch);

		refused_pb(&ticket, bad_port);
	}
	{
		struct pb fetch = fetch_from("h", 1, 0), ticket = wrap(&fetch);

		refused_pb(&ticket, no_port);
	}
	{
		struct pb fetch = { .p = NULL }, ticket;

		pb_bytes(&fetch, 5, "h", 1);
		ticket = wrap(&fetch);
		refused_pb(&ticket, no_port);
	}
}

/* ---- what is missing ---- */

static void missing_parts(void **state)
{
	(void)state;
	refused_hex("", "ticket is empty");
	refused(NULL, 0, "ticket is empty");
	refused_hex("0a00", "ticket is empty");
	refused_hex("1201 61", "ticket is empty");                 /* another field only */
	refused_hex("0a02 1000", "ticket has no fetch_partition"); /* an Action without one */
	refused_hex("0a02 1a00", no_host);                         /* an empty one */
	refused_hex("0a06 1a04 3091 2b00", not_an_action); /* trailing garbage: field number 0 */
	refused_hex("0a05 1a03 308d 03", no_host);
	refused_hex("0a05 1a03 2a01 61", no_port);
	/* What pyarrow and others send: a ticket of their own. */
	refused_hex("0a05 68656c6c6f", not_an_action);
	refused_hex("68656c6c6f", not_a_ticket);
	refused_hex("ffffffffffffffffffff", not_a_ticket);
}

/* The last of two counts, as for every protobuf decoder. */
static void repeated_fields(void **state)
{
	struct pb fetch = fetch_from("first", 5, 1), again = { .p = NULL };
	struct pb action = { .p = NULL }, ticket = { .p = NULL };

	(void)state;
	pb_bytes(&fetch, 5, "second", 6);
	pb_uint(&fetch, 6, 2);
	pb_nest(&action, 3, &fetch);
	pb_uint(&again, 2, 8); /* a second fetch_partition is merged into the first */
	pb_uint(&again, 6, 3);
	pb_nest(&action, 3, &again);
	pb_bytes(&ticket, 1, "junk", 4);
	pb_nest(&ticket, 1, &action);
	decodes(ticket.p, ticket.len, "second", 3, "job", 8, 0);
	free(ticket.p);
}

static void wrong_wire_types(void **state)
{
	(void)state;
	refused_hex("08 01", not_a_ticket);               /* Ticket.ticket as a varint */
	refused_hex("09 0102030405060708", not_a_ticket); /* 64 bit */
	refused_hex("0d 01020304", not_a_ticket);         /* 32 bit */
	refused_hex("0a02 1801", not_an_action);          /* fetch_partition as a varint */
	refused_hex("0a05 1d 01020304", not_an_action);
	refused_hex("0a06 1a04 2801 3001", not_an_action);          /* host as a varint */
	refused_hex("0a08 1a06 2a0161 3201 01", not_an_action);     /* port as bytes */
	refused_hex("0a0a 1a08 2a0161 35 01000000", not_an_action); /* port as 32 bit */
	refused_hex("0a08 1a06 1201 01 2a0161", not_an_action);     /* stage as bytes */
	/* Groups, known and unknown numbers; wire types 6 and 7. */
	refused_hex("0b 0c", not_a_ticket);
	refused_hex("13 14", not_a_ticket);
	refused_hex("0e", not_a_ticket);
	refused_hex("0f", not_a_ticket);
	refused_hex("0a02 1b1c", not_an_action);
	refused_hex("0a04 1a02 2b2c", not_an_action);
	/* A varint that never ends; one of eleven bytes. */
	refused_hex("10 ffffffffffffffffff", not_a_ticket);
	refused_hex("10 ffffffffffffffffffff01", not_a_ticket);
}

static void lying_lengths(void **state)
{
	(void)state;
	refused_hex("0a 80ade204", not_a_ticket); /* 10 MB that are not there */
	refused_hex("0a 80ade204 6161", not_a_ticket);
	refused_hex("0a ffffffff0f 61", not_a_ticket); /* 4 GB */
	refused_hex("0a ffffffffffffffffff01 61", not_a_ticket);
	refused_hex("0a05 1a 80ade204", not_an_action);
	refused_hex("0a07 1a05 2a 80ade204", not_an_action);
	refused_hex("0a08 1a06 0a ffffffff07", not_an_action);
	refused_hex("0a03 1a 02 2a", not_an_action);
}

/* Nobody recurses into what we do not know. */
static void deep_nesting(void **state)
{
	struct pb inner = { .p = NULL }, fetch = fetch_from("h", 1, 1), ticket;

	(void)state;
	for (unsigned depth = 0; depth < 2000; depth++) {
		struct pb outer = { .p = NULL };

		pb_nest(&outer, 3, &inner);
		inner = outer;
	}
	pb_nest(&fetch, 9, &inner);
	ticket = wrap(&fetch);
	decodes(ticket.p, ticket.len, "h", 1, "job", 7, 0);
	free(ticket.p);
}

/* ---- memory ---- */

/* A ticket of nothing but two-byte fields would cost protobuf-c about 70 times its size. */
static void many_tiny_fields(void **state)
{
	(void)state;
	for (unsigned level = 0; level < 3; level++) {
		struct pb fetch = fetch_from("h", 1, 1), action = { .p = NULL };
		struct pb ticket = { .p = NULL };
		struct pb *at[] = { &ticket, &action, &fetch };

		for (unsigned i = 0; i < 30000; i++)
			pb_uint(at[level], 12, 1);
		pb_nest(&action, 3, &fetch);
		pb_nest(&ticket, 1, &action);
		refused_pb(&ticket, too_many);
	}
}

/* The same known field over and over is replaced each time, and its memory is not given back. */
static void many_replacements(void **state)
{
	struct pb action = { .p = NULL }, ticket = { .p = NULL };

	(void)state;
	for (unsigned i = 0; i < 20000; i++)
		pb_bytes(&action, 3, "\x30\x01", 2);
	pb_nest(&ticket, 1, &action);
	refused_pb(&ticket, too_many);
}

static void arena_limits(void **state)
{
	struct arena a;
	void *p, *q;

	(void)state;
	/* Small things come from the arena itself, 8-byte aligned. */
	arena_init(&a, 0);
	p = a.allocator.alloc(a.allocator.allocator_data, 3);
	q = a.allocator.alloc(a.allocator.allocator_data, 8);
	assert_true((uint8_t *)p >= a.own && (uint8_t *)q < a.own + sizeof(a.own));
	assert_int_equal((uint8_t *)q - (uint8_t *)p, 8);
	a.allocator.free(a.allocator.allocator_data, p);
	/* Then from one heap block of the budget. */
	p = a.allocator.alloc(a.allocator.allocator_data, ARENA_BASE - 8);
	assert_non_null(p);
	memset(p, 1, ARENA_BASE - 8);
	assert_non_null(a.allocator.alloc(a.allocator.allocator_data, 8));
	assert_false(a.exhausted);
	assert_null(a.allocator.alloc(a.allocator.allocator_data, 1));
	assert_true(a.exhausted);
	arena_free(&a);

	/* Sizes that would wrap. */
	arena_init(&a, 100);
	assert_null(a.allocator.alloc(a.allocator.allocator_data, SIZE_MAX));
	assert_null(a.allocator.alloc(a.allocator.allocator_data, SIZE_MAX - 6));
	assert_true(a.exhausted);
	arena_free(&a);

	arena_init(&a, 1000);
	assert_int_equal(a.budget, ARENA_BASE + ARENA_PER_BYTE * 1000);
	arena_free(&a);
	arena_init(&a, SIZE_MAX / 2);
	assert_int_equal(a.budget, ARENA_MAX);
	arena_free(&a);
}

/* ---- the job's name ---- */

static void job_is(const void *job, size_t n, const char *want)
{
	struct pb fetch = { .p = NULL }, ticket;

	pb_bytes(&fetch, 1, job, n);
	pb_bytes(&fetch, 5, "h", 1);
	pb_uint(&fetch, 6, 1);
	ticket = wrap(&fetch);
	decodes(ticket.p, ticket.len, "h", 1, want, 0, 0);
	free(ticket.p);
}

static void jobs(void **state)
{
	char long_job[100], cut[TICKET_JOB_MAX + 1];

	(void)state;
	job_is("", 0, "");
	job_is("2J9eByd", 7, "2J9eByd");
	job_is("a b~", 4, "a b~");
	job_is("a\nb\0c\x1b[0m\x7f\xff", 11, "a?b?c?[0m??");
	memset(long_job, 'j', sizeof(long_job));
	memset(cut, 'j', TICKET_JOB_MAX);
	cut[TICKET_JOB_MAX] = '\0';
	job_is(long_job, sizeof(long_job), cut);
	job_is(long_job, TICKET_JOB_MAX, cut);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(captured_tickets),
		cmocka_unit_test(captured_tickets_damaged),
		cmocka_unit_test(truncated_action),
		cmocka_unit_test(unknown_fields_are_skipped),
		cmocka_unit_test(many_settings),
		cmocka_unit_test(hosts),
		cmocka_unit_test(hostile_hosts),
		cmocka_unit_test(ports),
		cmocka_unit_test(missing_parts),
		cmocka_unit_test(repeated_fields),
		cmocka_unit_test(wrong_wire_types),
		cmocka_unit_test(lying_lengths),
		cmocka_unit_test(deep_nesting),
		cmocka_unit_test(many_tiny_fields),
		cmocka_unit_test(many_replacements),
		cmocka_unit_test(arena_limits),
		cmocka_unit_test(jobs),
	};

	return cmocka_run_group_tests_name("ticket", tests, NULL, NULL);
}
