/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * walk.h - judges one HTTP/2 frame header: may the frame be redirected to the client unseen?
 *
 * Pure decisions on a header and a pair, without helpers, so that it also compiles natively
 * (tests/unit). Everything that is not certainly plain DATA gets a reason to go to the tap.
 */
#ifndef FS_BPF_WALK_H
#define FS_BPF_WALK_H

#include "abi.h"

#define WALK_HEADER 9
#define WALK_DATA 0
#define WALK_HEADERS 1
#define WALK_RST_STREAM 3
#define WALK_CONTINUATION 9
#define WALK_END_STREAM 0x1

/* What userspace may be changing: one load, not several. */
#define WALK_READ(x) (*(const volatile __typeof__(x) *)&(x))

/*
 * Makes the compiler finish computing a pointer here. Otherwise it turns "the way that matched" into
 * an index and adds it later, which the verifier refuses without CAP_PERFMON.
 */
#define WALK_KEEP(pointer)                                                                         \
	({                                                                                         \
		__typeof__(pointer) kept = (pointer);                                              \
		__asm__ volatile("" : "+r"(kept));                                                 \
		kept;                                                                              \
	})

static inline __attribute__((always_inline)) __u32 walk_length(const __u8 *h)
{
	return (__u32)h[0] << 16 | (__u32)h[1] << 8 | h[2];
}

/* With the reserved bit, which makes it an id that no table has. */
static inline __attribute__((always_inline)) __u32 walk_stream_id(const __u8 *h)
{
	return (__u32)h[5] << 24 | (__u32)h[6] << 16 | (__u32)h[7] << 8 | h[8];
}

/* The table entry of id, or NULL. */
static inline __attribute__((always_inline)) struct abi_stream *walk_find(struct abi_pair *p,
									  __u32 id)
{
	struct abi_stream *set = &p->streams[ABI_STREAM_SET(id)];

	if (!id)
		return 0;
#pragma GCC unroll 4
	for (int i = 0; i < ABI_STREAM_WAYS; i++) {
		struct abi_stream *s = WALK_KEEP(&set[i]);

		if (WALK_READ(s->id) == id)
			return s;
	}
	return 0;
}

/* The entry in which the walk has noted bytes of id, although userspace may have just freed it. */
static inline __attribute__((always_inline)) struct abi_stream *
walk_find_counted(struct abi_pair *p, __u32 id)
{
	struct abi_stream *set = &p->streams[ABI_STREAM_SET(id)];

#pragma GCC unroll 4
	for (int i = 0; i < ABI_STREAM_WAYS; i++) {
		struct abi_stream *s = WALK_KEEP(&set[i]);

		if (s->counted == id)
			return s;
	}
	return 0;
}

/* A frame that walk_judge() has found good, of an skb that is still being walked. */
static inline __attribute__((always_inline)) void walk_note(struct abi_stream *s, const __u8 *h)
{
	s->counted = walk_stream_id(h);
	s->walked += walk_length(h);
}

/* Its skb is redirected, and the frame counts; or it is not, and never was. */
static inline __attribute__((always_inline)) void
walk_settle(struct abi_pair *p, struct abi_stream *s, const __u8 *h, int redirected)
{
	s->walked -= walk_length(h);
	if (!redirected)
		return;
	s->data += walk_length(h);
	s->frames++;
	p->data += walk_length(h);
	p->frames++;
}

/* ABI_REDIRECTED and *ret_stream, or why not. */
static inline __attribute__((always_inline)) __u32 walk_judge(struct abi_pair *p, const __u8 *h,
							      struct abi_stream **ret_stream)
{
	__u32 length = walk_length(h);
	struct abi_stream *s;

	switch (h[3]) {
	case WALK_DATA:
		break;
	case WALK_HEADERS:
	case WALK_CONTINUATION:
		return ABI_TAP_HEADERS;
	case WALK_RST_STREAM:
		return ABI_TAP_RESET;
	default:
		return ABI_TAP_CONTROL;
	}
	if (h[4])
		return h[4] & WALK_END_STREAM ? ABI_TAP_END_STREAM : ABI_TAP_FLAGS;
	if (!length)
		return ABI_TAP_EMPTY_DATA;
	if (length > WALK_READ(p->max_frame))
		return ABI_TAP_FRAME_SIZE;
	s = walk_find(p, walk_stream_id(h));
	if (!s)
		return ABI_TAP_STREAM;
	if (s->data + s->walked + length > WALK_READ(s->limit))
		return ABI_TAP_CREDIT;
	*ret_stream = s;
	return ABI_REDIRECTED;
}

#endif
