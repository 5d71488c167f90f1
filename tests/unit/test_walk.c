/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_walk.c - the verdict's judgement of a frame header, compiled for the process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../bpf/lib/walk.h"
#include "h2/frame.h"

static struct abi_pair *pair(void **state)
{
	return *state;
}

static int setup(void **state)
{
	struct abi_pair *p = calloc(1, sizeof(*p));

	if (!p)
		return -1;
	p->max_frame = 16384;
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* In the first free way of its set, as splice_stream_add() does. */
static struct abi_stream *add(struct abi_pair *p, uint32_t id, uint64_t limit)
{
	for (int i = 0; i < ABI_STREAM_WAYS; i++) {
		struct abi_stream *s = &p->streams[ABI_STREAM_SET(id) + i];

		if (s->id)
			continue;
		*s = (struct abi_stream){ .id = id, .limit = limit };
		return s;
	}
	return NULL;
}

static uint32_t judge(struct abi_pair *p, uint32_t length, uint8_t type, uint8_t flags, uint32_t id)
{
	struct abi_stream *s = NULL;
	uint8_t h[WALK_HEADER];
	uint32_t reason;

	h2_frame_put(h, length, type, flags, id);
	reason = walk_judge(p, h, &s);
	assert_int_equal(reason == ABI_REDIRECTED, s != NULL);
	return reason;
}

static void plain_data_is_redirected(void **state)
{
	add(pair(state), 1, 100000);
	assert_int_equal(judge(pair(state), 1, H2_DATA, 0, 1), ABI_REDIRECTED);
	assert_int_equal(judge(pair(state), 16384, H2_DATA, 0, 1), ABI_REDIRECTED);
}

/* Every type and every flag that is not plain DATA goes to the tap. */
static void everything_else_is_not(void **state)
{
	add(pair(state), 1, UINT64_MAX);
	for (unsigned type = 0; type < 256; type++) {
		for (unsigned flags = 0; flags < 256; flags++) {
			uint32_t reason = judge(pair(state), 8, (uint8_t)type, (uint8_t)flags, 1);

			if (type == H2_DATA && !flags)
				assert_int_equal(reason, ABI_REDIRECTED);
			else
				assert_in_range(reason, ABI_TAP_HOLD, ABI_TAP_UNREADABLE);
		}
	}
}

static void reasons_are_named_right(void **state)
{
	add(pair(state), 1, UINT64_MAX);
	assert_int_equal(judge(pair(state), 8, H2_HEADERS, 4, 1), ABI_TAP_HEADERS);
	assert_int_equal(judge(pair(state), 8, H2_CONTINUATION, 4, 1), ABI_TAP_HEADERS);
	assert_int_equal(judge(pair(state), 4, H2_RST_STREAM, 0, 1), ABI_TAP_RESET);
	assert_int_equal(judge(pair(state), 8, H2_PING, 0, 0), ABI_TAP_CONTROL);
	assert_int_equal(judge(pair(state), 8, H2_PUSH_PROMISE, 0, 1), ABI_TAP_CONTROL);
	assert_int_equal(judge(pair(state), 8, 200, 0, 1), ABI_TAP_CONTROL);
	assert_int_equal(judge(pair(state), 8, H2_DATA, H2_FLAG_END_STREAM, 1), ABI_TAP_END_STREAM);
	assert_int_equal(judge(pair(state), 8, H2_DATA, H2_FLAG_PADDED | H2_FLAG_END_STREAM, 1),
			 ABI_TAP_END_STREAM);
	assert_int_equal(judge(pair(state), 8, H2_DATA, H2_FLAG_PADDED, 1), ABI_TAP_FLAGS);
	assert_int_equal(judge(pair(state), 0, H2_DATA, 0, 1), ABI_TAP_EMPTY_DATA);
	assert_int_equal(judge(pair(state), 16385, H2_DATA, 0, 1), ABI_TAP_FRAME_SIZE);
	assert_int_equal(judge(pair(state), 0xffffff, H2_DATA, 0, 1), ABI_TAP_FRAME_SIZE);
}

static void unknown_streams_are_not(void **state)
{
	add(pair(state), 1, UINT64_MAX);
	assert_int_equal(judge(pair(state), 8, H2_DATA, 0, 0), ABI_TAP_STREAM);
	assert_int_equal(judge(pair(state), 8, H2_DATA, 0, 3), ABI_TAP_STREAM);
	/* Same set, other id; and the reserved bit set. */
	assert_int_equal(judge(pair(state), 8, H2_DATA, 0, 1 + 2 * ABI_STREAM_SETS),
			 ABI_TAP_STREAM);
	assert_int_equal(judge(pair(state), 8, H2_DATA, 0, 1u | 1u << 31), ABI_TAP_STREAM);
}

static void credit_is_exact(void **state)
{
	struct abi_stream *s = add(pair(state), 1, 1000);

	s->data = 900;
	assert_int_equal(judge(pair(state), 100, H2_DATA, 0, 1), ABI_REDIRECTED);
	assert_int_equal(judge(pair(state), 101, H2_DATA, 0, 1), ABI_TAP_CREDIT);
	s->limit = 0;
	assert_int_equal(judge(pair(state), 1, H2_DATA, 0, 1), ABI_TAP_CREDIT);
}

/* An skb that is given to the tap after all leaves no trace, and meanwhile uses up credit. */
static void what_is_noted_is_not_counted(void **state)
{
	struct abi_stream *s = add(pair(state), 1, 1000);
	uint8_t h[WALK_HEADER];

	h2_frame_put(h, 600, H2_DATA, 0, 1);
	for (int redirected = 0; redirected <= 1; redirected++) {
		walk_note(s, h);
		assert_int_equal(s->data, 0);
		assert_ptr_equal(walk_find_counted(pair(state), 1), s);
		assert_int_equal(judge(pair(state), 401, H2_DATA, 0, 1), ABI_TAP_CREDIT);
		assert_int_equal(judge(pair(state), 400, H2_DATA, 0, 1), ABI_REDIRECTED);
		walk_settle(pair(state), s, h, redirected);
		assert_int_equal(s->walked, 0);
		assert_int_equal(s->data, redirected * 600);
		assert_int_equal(pair(state)->data, redirected * 600);
	}
	assert_int_equal(s->frames, 1);
}

static void the_table_holds_64_consecutive_ids(void **state)
{
	for (uint32_t id = 101; id < 101 + 2 * ABI_STREAMS; id += 2)
		assert_non_null(add(pair(state), id, UINT64_MAX));
	assert_null(add(pair(state), 101 + 2 * ABI_STREAMS, 1));
	for (uint32_t id = 101; id < 101 + 2 * ABI_STREAMS; id += 2) {
		assert_int_equal(walk_find(pair(state), id)->id, id);
		assert_int_equal(judge(pair(state), 8, H2_DATA, 0, id), ABI_REDIRECTED);
	}
	assert_null(walk_find(pair(state), 99));
	assert_null(walk_find(pair(state), 0x7fffffff));
}

static void resume_is_one_word(void **state)
{
	uint64_t consumed = (1ULL << 50) + 12345, word = ABI_RESUME(consumed, 0xffffff);

	(void)state;
	assert_int_equal(word >> ABI_CONSUMED_BITS, 0xffffff);
	assert_int_equal((word ^ consumed) & ABI_CONSUMED_MASK, 0);
	assert_int_not_equal((word ^ (consumed + 1)) & ABI_CONSUMED_MASK, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(plain_data_is_redirected, setup, teardown),
		cmocka_unit_test_setup_teardown(everything_else_is_not, setup, teardown),
		cmocka_unit_test_setup_teardown(reasons_are_named_right, setup, teardown),
		cmocka_unit_test_setup_teardown(unknown_streams_are_not, setup, teardown),
		cmocka_unit_test_setup_teardown(credit_is_exact, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_noted_is_not_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(the_table_holds_64_consecutive_ids, setup,
						teardown),
		cmocka_unit_test(resume_is_one_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
