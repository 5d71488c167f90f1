/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * lifecycle.bpf.c - TCP's own view of our sockets: established, FIN, reset, closed, round-trip time
 * and retransmissions.
 *
 * A sock_ops program sees every TCP socket of the cgroup it is attached to. Ours are told apart by
 * socket storage that userspace puts on a listener (what it accepts inherits it, BPF_F_CLONE) or on
 * a socket before connect(); for all others the program returns at once, and the kernel does not
 * call it again for them, because only for ours the per-connection callbacks are switched on.
 *
 * Each of our connections has a record in the typed hash `conns`, from its establishment to its
 * end. What a worker should hear of goes to its ring buffer; the figures just lie in the map.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "lib/maps.bpf.h"

#define AF_INET 2
#define AF_INET6 10

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct abi_watch);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct abi_conn);
} conns SEC(".maps");

static __always_inline struct abi_watch *watch_of(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	return sk ? bpf_sk_storage_get(&watched, sk, NULL, 0) : NULL;
}

static __always_inline void map_ipv4(__u8 addr[16], __u32 ip4)
{
	addr[10] = addr[11] = 0xff;
	__builtin_memcpy(addr + 12, &ip4, 4);
}

static __always_inline void fill_addresses(struct abi_conn *c, struct bpf_sock_ops *ops)
{
	c->family = ops->family;
	c->local_port = ops->local_port;
	c->remote_port = bpf_ntohl(ops->remote_port);
	if (ops->family == AF_INET) {
		map_ipv4(c->local_addr, ops->local_ip4);
		map_ipv4(c->remote_addr, ops->remote_ip4);
	} else if (ops->family == AF_INET6) {
		__u32 *l = (__u32 *)c->local_addr, *r = (__u32 *)c->remote_addr;

		l[0] = ops->local_ip6[0];
		l[1] = ops->local_ip6[1];
		l[2] = ops->local_ip6[2];
		l[3] = ops->local_ip6[3];
		r[0] = ops->remote_ip6[0];
		r[1] = ops->remote_ip6[1];
		r[2] = ops->remote_ip6[2];
		r[3] = ops->remote_ip6[3];
	}
}

static __always_inline void tell(const struct abi_watch *watch, __u32 kind, __u32 code,
				 __u64 cookie)
{
	emit(watch->worker, kind, code, 0, 0, cookie, watch->role);
}

static const struct abi_conn no_conn;

static __always_inline void established(struct bpf_sock_ops *ops, struct abi_watch *watch)
{
	__u64 cookie = bpf_get_socket_cookie(ops);
	struct abi_conn *conn;

	bpf_sock_ops_cb_flags_set(ops, BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_RETRANS_CB_FLAG |
					       BPF_SOCK_OPS_RTT_CB_FLAG);
	bpf_map_update_elem(&conns, &cookie, &no_conn, BPF_ANY);
	conn = bpf_map_lookup_elem(&conns, &cookie);
	if (conn) {
		conn->role = watch->role;
		conn->worker = watch->worker;
		conn->established_ns = conn->changed_ns = bpf_ktime_get_ns();
		conn->state = BPF_TCP_ESTABLISHED;
		fill_addresses(conn, ops);
	}
	tell(watch, ABI_EVENT_OPEN, BPF_TCP_ESTABLISHED, cookie);
}

/*
 * A socket goes to CLOSE from LAST_ACK, TIME_WAIT, CLOSING or FIN_WAIT2 (whose TIME_WAIT is a
 * minisocket) when both sides have said FIN; from anywhere else it was reset, timed out or aborted.
 */
static __always_inline __u32 closed_kind(__u32 from)
{
	switch (from) {
	case BPF_TCP_LAST_ACK:
	case BPF_TCP_TIME_WAIT:
	case BPF_TCP_CLOSING:
	case BPF_TCP_FIN_WAIT2:
		return ABI_EVENT_CLOSED;
	default:
		return ABI_EVENT_RESET;
	}
}

static __always_inline void state_changed(struct bpf_sock_ops *ops, struct abi_watch *watch)
{
	__u64 cookie = bpf_get_socket_cookie(ops);
	__u32 from = ops->args[0], to = ops->args[1];
	struct abi_conn *conn = bpf_map_lookup_elem(&conns, &cookie);

	if (conn) {
		conn->state = to;
		conn->changed_ns = bpf_ktime_get_ns();
	}
	if (to == BPF_TCP_CLOSE) {
		tell(watch, closed_kind(from), from << 8 | to, cookie);
		bpf_map_delete_elem(&conns, &cookie);
	} else if (to == BPF_TCP_CLOSE_WAIT) {
		tell(watch, ABI_EVENT_FIN, from << 8 | to, cookie);
	}
}

static __always_inline void measured(struct bpf_sock_ops *ops)
{
	__u64 cookie = bpf_get_socket_cookie(ops);
	struct abi_conn *conn = bpf_map_lookup_elem(&conns, &cookie);
	__u32 srtt;

	if (!conn)
		return;
	if (ops->op == BPF_SOCK_OPS_RETRANS_CB) {
		conn->retransmits += ops->args[1];
		return;
	}
	srtt = ops->srtt_us >> 3;
	conn->srtt_us = srtt;
	if (!conn->rtt_samples || srtt < conn->min_rtt_us)
		conn->min_rtt_us = srtt;
	conn->rtt_samples++;
}

SEC("sockops")
int lifecycle(struct bpf_sock_ops *ops)
{
	struct abi_watch *watch;

	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		watch = watch_of(ops);
		if (watch)
			established(ops, watch);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		watch = watch_of(ops);
		if (watch)
			state_changed(ops, watch);
		break;
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_RETRANS_CB:
		measured(ops);
		break;
	}
	return 1;
}
