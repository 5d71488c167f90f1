/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * fact.bpf.c - the smallest programs that show a kernel fact, steered by the globals below. They are
 * not the product's: a fact is to be judged without it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct sockmap {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
};

struct sockmap sources SEC(".maps");   /* with `redirect` or `walk` */
struct sockmap injectors SEC(".maps"); /* with `inject` */
struct sockmap targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[8]);
} shared SEC(".maps"); /* [0] written by the program, [1] by userspace */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

/* Set by userspace. */
volatile __u32 target;     /* index in `targets` of the next skb */
volatile __u32 held;       /* send to target + 1 instead */
volatile __u32 to_ring;    /* write 64 bytes to `ring` for each skb */
volatile __u32 drop_empty; /* SK_DROP what has no bytes */
volatile __u32 spin;       /* loop so long before redirecting: widens a race */

/* Counted here. */
volatile __u64 skbs, bytes, empty, unreadable, refused, ring_lost, injected, inject_cookie;
volatile __u64 frames, held_bytes, cookie_seen;
volatile __u64 remaining; /* of the frame that is open */

static __always_inline int to(struct __sk_buff *skb, __u32 index)
{
	int verdict = bpf_sk_redirect_map(skb, &targets, index, 0);

	if (verdict != SK_PASS)
		refused++;
	return verdict;
}

static __always_inline void ring_record(void)
{
	__u64 record[8] = { skbs };

	if (bpf_ringbuf_output(&ring, record, sizeof(record), 0))
		ring_lost++;
}

static long idle(__u32 i, void *ctx)
{
	return 0;
}

SEC("sk_skb")
int redirect(struct __sk_buff *skb)
{
	__u32 zero = 0, hold = held;
	__u64 *sh = bpf_map_lookup_elem(&shared, &zero);

	skbs++;
	cookie_seen = bpf_get_socket_cookie(skb);
	if (sh)
		sh[0] += skb->len + sh[1];
	if (to_ring)
		ring_record();
	if (!skb->len) {
		empty++;
		if (drop_empty)
			return SK_DROP;
	}
	if (spin)
		bpf_loop(spin, idle, NULL, 0);
	if (hold) {
		held_bytes += skb->len;
		return to(skb, target + 1);
	}
	bytes += skb->len;
	return to(skb, target);
}

/* The frame walk at its barest: lengths only, no table, no judgement. */
SEC("sk_skb")
int walk(struct __sk_buff *skb)
{
	__u32 len = skb->len, off = remaining;
	__u8 h[9];

	skbs++;
	for (int i = 0; i < 64 && off < len; i++) {
		if (off + 9 > len || bpf_skb_load_bytes(skb, off, h, 9) < 0) {
			unreadable++;
			return SK_DROP;
		}
		off += 9 + ((__u32)h[0] << 16 | (__u32)h[1] << 8 | h[2]);
		frames++;
	}
	remaining = off - len;
	bytes += len;
	return to(skb, 0);
}

SEC("sk_skb")
int inject(struct __sk_buff *skb)
{
	inject_cookie = bpf_get_socket_cookie(skb);
	injected += skb->len;
	return to(skb, 0);
}
