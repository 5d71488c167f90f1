/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * splice.bpf.c - sends an executor's DATA to the client's socket, and the rest to userspace.
 *
 * U is in the sockmap `upstreams`, which has a verdict and no stream parser: each skb of its receive
 * queue is shown here once, whole, and goes to one of two places (abi.h draws the picture):
 *
 *   clients[slot]  C, when the skb holds nothing but plain DATA within its credit. The kernel queues
 *                  it behind everything that was sent there before.
 *   taps[slot]     one end of an AF_UNIX stream pair, otherwise; userspace reads the other end.
 *
 * It never returns SK_PASS for U: bytes passed to U's own reader get lost or reordered when more
 * are arriving. It never changes an skb. The run for one socket is serialised by its socket lock, so
 * the verdict's fields need no atomics; and whoever takes that lock after raising `hold` (userspace
 * does, with a getsockopt) knows that no earlier verdict is under way.
 *
 * The walk notes a stream's bytes as it goes, because the credit check of the next frame needs
 * them; they are counted, or forgotten, by a second pass when it is known where the skb goes. Userspace
 * reads the counts at any moment: one that was taken back would make it count those bytes twice.
 *
 * The injector is an AF_UNIX datagram pair whose receiving end has a verdict too: what userspace
 * sends is redirected to clients[slot] before send() returns, and is so in order with the DATA.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "lib/maps.bpf.h"
#include "lib/walk.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct sockmap {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
};

struct sockmap upstreams SEC(".maps"); /* U, with `upstream_verdict` */
struct sockmap clients SEC(".maps");   /* C, no program: a target only */
struct sockmap taps SEC(".maps");      /* sending ends of the taps: targets only */
struct sockmap injectors SEC(".maps"); /* receiving ends of the injectors, with `inject_verdict` */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct abi_pair);
} pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct abi_route);
} routes SEC(".maps");

/* Socket cookie of either end of an injector (kernels differ in which one is seen) to its slot. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u64);
	__type(value, __u32);
} inject_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct abi_info);
} info SEC(".maps");

/*
 * The detour over memory makes the index unknown to the verifier on every path alike, as it demands
 * of a process without CAP_PERFMON (its bounds would be masked against speculation).
 */
static __always_inline void count(struct abi_pair *p, __u32 reason)
{
	p->reason = reason;
	p->reasons[WALK_READ(p->reason) & (ABI_REASON_SLOTS - 1)]++;
}

static __always_inline int kill_pair(struct abi_pair *p, __u32 slot, __u32 reason)
{
	count(p, reason);
	p->dead = reason;
	emit(p->worker, ABI_EVENT_DEAD, reason, slot, p->generation, 0, 0);
	return SK_DROP;
}

/*
 * The walk's offset and counts are kept in the pair, not here: what lies in a map is unknown to the
 * verifier, so it does not try every possible number of frames. 64 bits each, because the 6.1 verifier
 * without CAP_PERFMON wants no two fields in one stack slot.
 */
struct walk {
	struct __sk_buff *skb;
	struct abi_pair *pair;
	__u64 end; /* walk_off that ends the pass: of the skb, or of the frame that stopped the walk */
	__u64 reason; /* ABI_REDIRECTED, or what stopped the walk */
};

static long walk_frame(__u32 i, struct walk *w)
{
	struct abi_pair *p = w->pair;
	struct abi_stream *s = NULL;
	__u8 h[WALK_HEADER];

	if (p->walk_off >= w->end)
		return 1;
	w->reason = ABI_TAP_STRADDLE;
	if (p->walk_off + WALK_HEADER > w->end)
		return 1;
	w->reason = ABI_TAP_UNREADABLE;
	if (bpf_skb_load_bytes(w->skb, p->walk_off, h, sizeof(h)) < 0)
		return 1;
	w->reason = walk_judge(p, h, &s);
	if (w->reason != ABI_REDIRECTED || !s)
		return 1;
	walk_note(s, h);
	p->walk_off += WALK_HEADER + walk_length(h);
	return 0;
}

/* The second pass, over the frames that walk_frame() has noted. */
static long settle_frame(__u32 i, struct walk *w)
{
	struct abi_pair *p = w->pair;
	struct abi_stream *s;
	__u8 h[WALK_HEADER];

	if (p->walk_off >= w->end)
		return 1;
	if (bpf_skb_load_bytes(w->skb, p->walk_off, h, sizeof(h)) < 0)
		return 1;
	s = walk_find_counted(p, walk_stream_id(h));
	if (!s)
		return 1;
	walk_settle(p, s, h, w->reason == ABI_REDIRECTED);
	p->walk_off += WALK_HEADER + walk_length(h);
	return 0;
}

static __always_inline int to_tap(struct __sk_buff *skb, struct abi_pair *p, __u32 slot,
				  __u32 reason)
{
	__u64 waiting = (p->passed - WALK_READ(p->resume)) & ABI_CONSUMED_MASK;

	if (waiting + skb->len > p->tap_limit)
		return kill_pair(p, slot, ABI_DROP_TAP_FULL);
	if (bpf_sk_redirect_map(skb, &taps, slot, 0) != SK_PASS)
		return kill_pair(p, slot, ABI_DROP_NO_TAP);
	p->excursions += p->fast;
	p->fast = 0;
	count(p, reason);
	p->passed += skb->len;
	return SK_PASS;
}

/* Whether the fast path is on; takes over from userspace when it has caught up. */
static __always_inline __u32 take_over(struct abi_pair *p)
{
	__u64 resume;

	if (WALK_READ(p->hold))
		return ABI_TAP_HOLD;
	if (p->adopted == p->passed)
		return ABI_REDIRECTED;
	resume = WALK_READ(p->resume);
	if ((resume ^ p->passed) & ABI_CONSUMED_MASK)
		return ABI_TAP_ORDER;
	p->remaining = resume >> ABI_CONSUMED_BITS;
	p->adopted = p->passed;
	return ABI_REDIRECTED;
}

static __always_inline int splice(struct __sk_buff *skb, struct abi_pair *p, __u32 slot)
{
	struct walk w = { .skb = skb, .pair = p, .end = skb->len };

	w.reason = take_over(p);
	if (w.reason != ABI_REDIRECTED)
		return to_tap(skb, p, slot, w.reason);
	p->walk_off = p->remaining;
	bpf_loop(ABI_SKB_FRAMES, walk_frame, &w, 0);
	if (w.reason == ABI_REDIRECTED && p->walk_off < skb->len)
		w.reason = ABI_TAP_MANY;
	w.end = p->walk_off;
	p->walk_off = p->remaining;
	bpf_loop(ABI_SKB_FRAMES, settle_frame, &w, 0);
	if (w.reason != ABI_REDIRECTED)
		return to_tap(skb, p, slot, w.reason);
	if (bpf_sk_redirect_map(skb, &clients, slot, 0) != SK_PASS)
		return kill_pair(p, slot, ABI_DROP_NO_CLIENT);
	p->remaining = w.end - skb->len;
	p->redirected += skb->len;
	p->fast = 1;
	count(p, ABI_REDIRECTED);
	return SK_PASS;
}

static __always_inline int unrouted(void)
{
	__u32 zero = 0;
	struct abi_worker *w = bpf_map_lookup_elem(&workers, &zero);

	if (w)
		__sync_fetch_and_add(&w->unrouted, 1);
	return SK_DROP;
}

SEC("sk_skb")
int upstream_verdict(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct abi_route *route = bpf_map_lookup_elem(&routes, &cookie);
	struct abi_pair *p;
	__u32 slot;

	if (!route)
		return unrouted();
	slot = route->slot;
	p = bpf_map_lookup_elem(&pairs, &slot);
	if (!p)
		return unrouted();
	if (p->generation != route->generation) {
		count(p, ABI_DROP_STALE);
		return SK_DROP;
	}
	if (p->dead) {
		count(p, ABI_DROP_DEAD);
		return SK_DROP;
	}
	/* A bare FIN. Redirecting nothing would look to the kernel like a failed send on C. */
	if (!skb->len) {
		count(p, ABI_DROP_EMPTY);
		return SK_DROP;
	}
	return splice(skb, p, slot);
}

SEC("sk_skb")
int inject_verdict(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	__u32 *slot = bpf_map_lookup_elem(&inject_slots, &cookie);
	struct abi_pair *p = slot ? bpf_map_lookup_elem(&pairs, slot) : NULL;

	if (!p)
		return unrouted();
	if (bpf_sk_redirect_map(skb, &clients, *slot, 0) != SK_PASS) {
		p->inject_lost++;
		return SK_DROP;
	}
	p->injected += skb->len;
	p->injections++;
	return SK_PASS;
}
