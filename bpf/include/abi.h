/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * abi.h - the only header that the BPF programs and the process share: what lies in the maps, who
 * may write which field, and what the numbers mean.
 *
 * A *pair* is one client socket C and one upstream socket U whose executor-to-client bytes are
 * spliced in the kernel. It lives in a *slot*, an index that is the same in every map, and is told
 * apart from earlier tenants of the slot by its *generation*.
 *
 *             U's skbs                 redirect               C's queue
 *   executor ---------> verdict --------------------------------> C ----> client
 *                          |  anything but plain DATA               ^
 *                          v                                        | injector verdict
 *                         tap (AF_UNIX stream) -> userspace -> injector (AF_UNIX datagram)
 *
 * What the verdict redirects to C: an skb in which every byte belongs to a DATA frame that has no
 * flag set, is not empty and not longer than max_frame, belongs to a stream of the table below, and
 * stays within that stream's credit. The skb may begin and end inside a frame, but not inside a
 * frame header. Everything else goes to the tap, whole and in order: HEADERS and trailers (so
 * userspace checks each header block *before* the client sees it), END_STREAM, RST_STREAM, every
 * control frame, unknown streams, padding, violations. It costs one excursion for each end of a
 * stream, and in exchange a redirected byte never needs to be judged after the fact.
 *
 * Order between the two ways is kept by three rules:
 *   - While consumed != passed, and while hold is set, every skb goes to the tap.
 *   - Userspace first injects what it forwards of the tap's bytes, then publishes how many bytes it
 *     has consumed and how many the frame at that point still lacks, in one word (`resume`). When
 *     consumed == passed the verdict takes over from there.
 *   - A frame's flow-controlled length is counted once, by whoever saw its header.
 *
 * Nothing here is locked. Each group of fields has one writer, named in its comment, and its own
 * cache lines. Counters are monotonic within a generation, and plain 64-bit loads read them.
 */
#ifndef FS_ABI_H
#define FS_ABI_H

#include <linux/types.h>

#ifndef __bpf__
#include <stddef.h>
#endif

/* Changes whenever the layout or the meaning of anything below does. */
#define ABI_VERSION 1

#define ABI_MAX_WORKERS 64
/* The stream table of a pair is ABI_STREAM_SETS sets of ABI_STREAM_WAYS entries. */
#define ABI_STREAM_SETS 16
#define ABI_STREAM_WAYS 4
#define ABI_STREAMS (ABI_STREAM_SETS * ABI_STREAM_WAYS)
/* Most frame headers looked at in one skb; an skb with more goes to the tap. */
#define ABI_SKB_FRAMES 1024

/* Client-initiated ids are odd and rise: 64 consecutive ones fill the table exactly. */
#define ABI_STREAM_SET(id) ((((id) >> 1) & (ABI_STREAM_SETS - 1)) * ABI_STREAM_WAYS)

/*
 * Why the verdict decided as it did. Each skb of U counts under exactly one reason; the first group
 * is the fast path, the second ends at the tap, the third loses bytes and is fatal for the pair
 * (but for EMPTY, which has no bytes to lose).
 */
enum abi_reason {
	ABI_REDIRECTED, /* the fast path */

	ABI_TAP_HOLD,    /* userspace asked for everything */
	ABI_TAP_ORDER,   /* earlier bytes are still with userspace */
	ABI_TAP_CONTROL, /* SETTINGS, PING, GOAWAY, WINDOW_UPDATE, PRIORITY, PUSH_PROMISE, unknown */
	ABI_TAP_HEADERS,    /* HEADERS or CONTINUATION */
	ABI_TAP_RESET,      /* RST_STREAM */
	ABI_TAP_END_STREAM, /* DATA with END_STREAM */
	ABI_TAP_FLAGS,      /* DATA with another flag (padding) */
	ABI_TAP_STREAM,     /* DATA of a stream that is not in the table */
	ABI_TAP_CREDIT,     /* DATA beyond the stream's limit */
	ABI_TAP_FRAME_SIZE, /* DATA longer than max_frame */
	ABI_TAP_EMPTY_DATA, /* DATA of length 0: costs no credit, so it must not be free */
	ABI_TAP_STRADDLE,   /* a frame header that lies in two skbs */
	ABI_TAP_MANY,       /* more than ABI_SKB_FRAMES frames */
	ABI_TAP_UNREADABLE, /* the bytes could not be loaded */

	ABI_DROP_EMPTY,     /* an skb without bytes (a bare FIN): nothing to redirect */
	ABI_DROP_DEAD,      /* the pair has been declared dead before */
	ABI_DROP_TAP_FULL,  /* tap_limit exceeded: the executor ignores flow control */
	ABI_DROP_NO_CLIENT, /* C is not in its map: closed, or taken out */
	ABI_DROP_NO_TAP,    /* the tap's socket is gone */
	ABI_DROP_STALE,     /* the route names another generation of the slot */
	ABI_REASONS,
};

#define ABI_REASON_SLOTS 32 /* room in struct abi_pair; enum abi_reason must fit */

/* One stream of a pair. */
struct abi_stream {
	__u32 id;     /* user: 0 = free. Written last when taken, first when freed. */
	__u32 frames; /* kernel: DATA frames redirected (wraps) */
	/*
	 * user: most that `data` may reach, bytes, counted from when the entry was taken: the
	 * stream's credit less what userspace itself has counted of it.
	 */
	__u64 limit;
	__u64 data; /* kernel: flow-controlled bytes of frames whose header was redirected; only grows */
	__u32 counted; /* kernel: the id of which it noted bytes last; user clears it with the entry */
	__u32 walked; /* kernel: bytes noted of the skb that is being walked, 0 between skbs */
};

/*
 * abi_pair.resume: consumed (its low 40 bits; a terabyte cannot be outstanding) and the bytes that
 * the frame there still lacks (24 bits, as in a frame's length). One word, so that no reader can see
 * one without the other, on any architecture.
 */
#define ABI_CONSUMED_BITS 40
#define ABI_CONSUMED_MASK ((1ULL << ABI_CONSUMED_BITS) - 1)
#define ABI_RESUME(consumed, open)                                                                 \
	(((consumed)&ABI_CONSUMED_MASK) | (__u64)(open) << ABI_CONSUMED_BITS)

/* One slot. Array map `pairs`, mapped into the process. */
struct abi_pair {
	/* Written by userspace only. */
	__u32 generation; /* 0 = no tenant */
	__u32 worker;     /* index of the ring buffer that hears of this pair */
	__u32 hold;       /* 1: everything to the tap */
	__u32 max_frame;  /* largest DATA payload to redirect, bytes */
	__u64 resume;     /* ABI_RESUME(): bytes of the tap dealt with, rest of the open frame */
	__u64 tap_limit;  /* most bytes passed and not consumed before the pair is dead */
	__u64 holds;      /* times that hold was raised */
	__u64 upad[3];

	/* Written by the verdict only (one at a time: under U's socket lock). */
	__u64 passed;     /* bytes sent to the tap */
	__u64 adopted;    /* passed when `remaining` was last taken from resume */
	__u64 redirected; /* bytes sent to C */
	__u64 data;       /* flow-controlled bytes of all streams, as in abi_stream */
	__u64 frames;     /* DATA frames redirected */
	__u32 excursions; /* times that the fast path was left */
	__u32 walk_off;   /* scratch: of the next frame header in the skb being walked */
	__u32 remaining;  /* bytes that the frame at the fast path's end still lacks */
	__u32 dead;       /* 0, or the enum abi_reason that killed the pair */
	__u32 fast;       /* 1: the last skb was redirected */
	__u32 reason;     /* of the last skb */

	/* Written by the injector's verdict only (in the context of the worker's send()). */
	__u64 injected;    /* bytes of ours sent to C */
	__u64 injections;  /* datagrams */
	__u64 inject_lost; /* datagrams that found no C */
	__u64 ipad[5];

	/* Written by the verdict only: skbs by enum abi_reason. */
	__u64 reasons[ABI_REASON_SLOTS];

	struct abi_stream streams[ABI_STREAMS];
};

/*
 * Hash map `routes`, key: U's socket cookie (__u64). The verdict needs slot and generation; the rest
 * is for whoever dumps the map. Addresses are IPv6 (IPv4 mapped) in network byte order, ports in
 * host byte order.
 */
struct abi_route {
	__u32 slot;
	__u32 generation;
	__u32 worker;
	__u32 pad;
	__u64 client_cookie;
	__u64 enrolled_ns; /* CLOCK_MONOTONIC */
	__u8 client_addr[16];
	__u8 executor_addr[16];
	__u16 client_port;
	__u16 executor_port;
	__u32 pad2;
};

enum abi_role {
	ABI_ROLE_CLIENT = 1,
	ABI_ROLE_UPSTREAM = 2,
};

/*
 * Socket storage `watched`: which TCP sockets are ours. Put on a listener it is inherited by what
 * is accepted; put on a socket before connect() it covers the whole life of an upstream.
 */
struct abi_watch {
	__u32 role;   /* enum abi_role */
	__u32 worker; /* whose ring buffer hears of it */
};

/* TCP's view of one of our sockets. Hash map `conns`, key: socket cookie (__u64). */
struct abi_conn {
	__u64 established_ns; /* CLOCK_MONOTONIC */
	__u64 changed_ns;     /* last change of state */
	__u32 role;           /* enum abi_role */
	__u32 worker;
	__u32 state;      /* BPF_TCP_ESTABLISHED, ... (the kernel's numbers) */
	__u32 srtt_us;    /* smoothed, last seen */
	__u32 min_rtt_us; /* smallest smoothed value seen */
	__u32 rtt_samples;
	__u32 retransmits;   /* segments */
	__u32 family;        /* AF_INET or AF_INET6 */
	__u8 local_addr[16]; /* as in abi_route */
	__u8 remote_addr[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 pad;
};

/* Ring buffer records: one for each thing that userspace cannot see by itself at once. */
enum abi_event_kind {
	ABI_EVENT_DEAD = 1, /* a pair was declared dead; code: enum abi_reason */
	ABI_EVENT_OPEN,     /* lifecycle: established */
	ABI_EVENT_FIN,      /* lifecycle: the peer has sent FIN */
	ABI_EVENT_RESET,  /* lifecycle: closed from a state that an orderly close does not leave */
	ABI_EVENT_CLOSED, /* lifecycle: orderly */
	ABI_EVENT_KINDS,
};

struct abi_event {
	__u32 kind;       /* enum abi_event_kind */
	__u32 code;       /* DEAD: enum abi_reason; lifecycle: old state << 8 | new state */
	__u32 slot;       /* DEAD */
	__u32 generation; /* DEAD */
	__u64 cookie;     /* lifecycle: the socket */
	__u64 at_ns;      /* CLOCK_MONOTONIC */
	__u32 role;       /* lifecycle: enum abi_role */
	__u32 pad;
};

/* One worker's events. Array map `workers`, mapped. Written by the kernel side, atomically. */
struct abi_worker {
	__u64 events;   /* written to the ring buffer */
	__u64 lost;     /* the ring buffer was full: userspace must look at its pairs */
	__u64 unrouted; /* worker 0 only: skbs of a socket without a route */
	__u64 pad[5];
};

/* One entry in array map `info`: lets another process check that it reads what it thinks. */
struct abi_info {
	__u32 version; /* ABI_VERSION */
	__u32 pid;
	__u32 slots;
	__u32 workers;
	__u64 started_ns; /* CLOCK_REALTIME */
	char release[32]; /* of flightsplice */
};

/* The layout is a contract between two compilers (and readers of pinned maps). */
_Static_assert(ABI_REASONS <= ABI_REASON_SLOTS, "a reason has no counter");
_Static_assert(sizeof(struct abi_stream) == 32, "abi_stream");
_Static_assert(__builtin_offsetof(struct abi_pair, passed) == 64, "abi_pair: user's line");
_Static_assert(__builtin_offsetof(struct abi_pair, injected) == 128, "abi_pair: verdict's line");
_Static_assert(__builtin_offsetof(struct abi_pair, reasons) == 192, "abi_pair: injector's line");
_Static_assert(__builtin_offsetof(struct abi_pair, streams) == 448, "abi_pair: reasons");
_Static_assert(sizeof(struct abi_pair) == 448 + 32 * ABI_STREAMS, "abi_pair");
_Static_assert(sizeof(struct abi_route) == 72, "abi_route");
_Static_assert(sizeof(struct abi_watch) == 8, "abi_watch");
_Static_assert(sizeof(struct abi_conn) == 88, "abi_conn");
_Static_assert(sizeof(struct abi_event) == 40, "abi_event");
_Static_assert(sizeof(struct abi_worker) == 64, "abi_worker");
_Static_assert(sizeof(struct abi_info) == 56, "abi_info");

#endif
