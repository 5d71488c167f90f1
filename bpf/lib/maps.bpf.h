/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * maps.bpf.h - the maps that splice.bpf.c and lifecycle.bpf.c have in common, and the one way to
 * tell a worker something. Userspace makes them once and lets both objects use them.
 */
#ifndef FS_BPF_MAPS_H
#define FS_BPF_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

/* One ring buffer for each worker; userspace fills it in before anything is attached. */
struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ABI_MAX_WORKERS);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ABI_MAX_WORKERS);
	__type(key, __u32);
	__type(value, struct abi_worker);
} workers SEC(".maps");

/*
 * Tells a worker; counts it as lost when its ring buffer is full. (Written into the ring itself and
 * not on the stack: without CAP_PERFMON the 6.1 verifier refuses two 32-bit fields in one stack slot.)
 */
static __always_inline void emit(__u32 worker, __u32 kind, __u32 code, __u32 slot, __u32 generation,
				 __u64 cookie, __u32 role)
{
	struct abi_worker *w = bpf_map_lookup_elem(&workers, &worker);
	void *ring = bpf_map_lookup_elem(&rings, &worker);
	struct abi_event *e;

	if (!w || !ring)
		return;
	e = bpf_ringbuf_reserve(ring, sizeof(*e), 0);
	if (!e) {
		__sync_fetch_and_add(&w->lost, 1);
		return;
	}
	e->kind = kind;
	e->code = code;
	e->slot = slot;
	e->generation = generation;
	e->cookie = cookie;
	e->at_ns = bpf_ktime_get_ns();
	e->role = role;
	e->pad = 0;
	bpf_ringbuf_submit(e, 0);
	__sync_fetch_and_add(&w->events, 1);
}

#endif
