/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - the memory that one protobuf message may take while it is decoded.
 *
 * protobuf-c keeps a note of every field it meets and a copy of every unknown
 * one, some hundred bytes for two on the wire. An arena is its allocator with a
 * budget in proportion to the message: ordinary messages fit into the arena's
 * own kilobyte and cost no allocation, longer ones get one block, and one that
 * is made of nothing but tiny fields runs out and is refused.
 *
 * Memory is given back all at once. Lives on the stack of the function that
 * decodes; what was unpacked from it is gone with arena_free().
 */
#ifndef FS_FLIGHT_ARENA_H
#define FS_FLIGHT_ARENA_H

#include <protobuf-c/protobuf-c.h>

#include "base/base.h"

#define ARENA_BASE 4096u    /* bytes that any message may take, */
#define ARENA_PER_BYTE 16u  /* and this many more for each byte of its own, */
#define ARENA_MAX (8 * MiB) /* and never more than this */

struct arena {
	ProtobufCAllocator allocator; /* for protobuf-c's unpack functions */
	uint8_t *block;               /* being filled: `own`, then a heap block of `budget` */
	size_t used, size;            /* bytes of block */
	size_t budget;                /* bytes of the heap block, if one is needed */
	bool exhausted;               /* an allocation was refused */
	_Alignas(max_align_t) uint8_t own[1024];
};

/* For one message of message_len bytes, and what is nested in it. */
void arena_init(struct arena *a, size_t message_len);
void arena_free(struct arena *a);

#endif
