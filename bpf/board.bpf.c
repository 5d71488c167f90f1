/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * board.bpf.c - the maps in which a process shows itself; see include/board.h for what is in them.
 *
 * There is no program here. The maps are declared in BPF because this is what gives them BTF types:
 * with those bpftool prints every field by its name.
 *
 * Memory is taken as entries come (NO_PREALLOC): an idle process has none.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "board.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct board_build);
} build SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct board_totals);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, BOARD_DROPS);
	__type(key, struct board_drop_key);
	__type(value, struct board_drop);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, BOARD_STREAMS);
	__type(key, struct board_key);
	__type(value, struct board_stream);
} streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, BOARD_CLIENTS);
	__type(key, struct board_key);
	__type(value, struct board_client);
} clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, BOARD_EXECUTORS);
	__type(key, struct board_key);
	__type(value, struct board_executor);
} executors SEC(".maps");
