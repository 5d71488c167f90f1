/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockmap.h - splices an executor's DATA to a client inside the kernel, and hands everything else
 * to the caller.
 *
 * The unit is a *pair*: one client socket C, one upstream socket U. bpf/include/abi.h says what the
 * kernel half does with each skb of U; this is the user half. To its caller a spliced pair looks
 * like two streams of bytes with the fast path taken out of the middle:
 *
 *   splice_recv()  instead of recv(U)    the bytes that the kernel did *not* forward, in order
 *   splice_sendv() instead of send(C)    ordered after everything forwarded or sent before
 *   splice_consumed()                    "forwarded or dealt with": lets the fast path go on
 *
 * WHEN THE CALLER MAY SEND. splice_sendv() appends to C's queue behind what the kernel has put
 * there, wherever that ends, so a frame of one's own needs a frame boundary:
 *
 *	open = splice_hold(p);        everything that comes now goes to the tap
 *	if (open == 0)                the queue ends at a frame boundary (and nothing is tapped)
 *		splice_sendv(p, ...)  own frames, whole
 *	else                          the tap's next `open` bytes are the rest of a frame: forward
 *		...                   them (splice_recv, splice_sendv), then the own frame
 *	splice_consumed(p, ...);      whatever was read
 *	splice_release(p);
 *
 * While bytes have been passed and not consumed the fast path is off anyway, and userspace owns the
 * order: frames of one's own may go between two frames that are being forwarded. The caller parses
 * frames exactly as relay does, but for where it begins: whenever all it has read is also consumed,
 * the kernel may have gone on without it, and the next bytes of splice_recv() begin with the
 * splice_open() bytes that the frame of the moment still lacks. A frame's flow-controlled length is
 * counted by whoever saw its header: the kernel in stream->data, or the caller.
 *
 * A short splice_sendv() leaves part of a frame unsent; until the rest has gone the caller must
 * neither consume nor release.
 *
 * EXCURSIONS end when splice_consumed() catches up with what was passed. Under full load the source
 * may stay ahead of the caller; the caller ends it by granting nothing until it has caught up.
 *
 * LEAVING. splice_leave() stops the fast path for good and returns -EAGAIN until C's queue has been
 * handed to its TCP; then C and U are plain sockets again and nothing has been lost on the way:
 * first splice_recv() until it gives -ENODATA, then recv(U). splice_free() alone does not wait: what is
 * queued for C is lost, so C must be closed.
 *
 * THREADS. A `struct sockmap` belongs to the process, is read-only after sockmap_new() and may be
 * used by all workers; a `struct sockmap_worker` and its pairs belong to one thread. No call blocks.
 * Nothing here logs. Errors are negative errno.
 */
#ifndef FS_DATAPATH_SOCKMAP_H
#define FS_DATAPATH_SOCKMAP_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "abi.h"
#include "base/base.h"
#include "datapath/pins.h"

struct sockmap;
struct sockmap_worker;

/* ---------------------------------------------------------------- process */

struct sockmap_options {
	uint32_t workers;    /* 1..ABI_MAX_WORKERS */
	uint32_t pairs;      /* slots per worker; about 2.5 KiB of kernel memory each. 0 = 1024 */
	uint32_t conns;      /* sockets that lifecycle remembers. 0 = 16384 */
	uint32_t ring_bytes; /* per worker, a power of two and a multiple of the page. 0 = 64 KiB */
	struct pins *pins;   /* where to pin, until it is freed; NULL = do not pin */
	const char *cgroup;  /* cgroup v2 folder for lifecycle; NULL = our own, "" = no lifecycle */
};

/* What could not be had although the datapath as such works. A mask. */
enum sockmap_lack {
	SOCKMAP_NO_PINS =
		1, /* not asked for, no bpffs, or not writable: bpftool and `streams` see nothing */
	SOCKMAP_NO_LIFECYCLE = 2, /* no cgroup v2 or no permission: no RTT, no retransmissions */
};

#define SOCKMAP_WHY_MAX 256

/*
 * Loads the programs, attaches them, makes and pins the maps. 0, or -errno with a sentence for a
 * person in why (which privilege, which limit, what to do). *ret_lacks and why are also set on
 * success when something optional is missing. Needs CAP_BPF and CAP_NET_ADMIN, and CAP_PERFMON for
 * nothing. The process may drop them afterwards but for CAP_NET_ADMIN (sockmap updates, SO_SNDBUFFORCE)
 * and CAP_BPF (map updates where unprivileged bpf is off).
 */
int sockmap_new(const struct sockmap_options *opt, struct sockmap **ret, unsigned *ret_lacks,
		char why[SOCKMAP_WHY_MAX]);
/* After all its workers. Unloads; pins stay until pins_free(). NULL is fine. */
void sockmap_free(struct sockmap *sm);

/* ---------------------------------------------------------------- worker */

struct splice_pair;

/* From the ring buffer. Called inside sockmap_worker_poll() only. */
struct sockmap_callbacks {
	/* The verdict gave the pair up (see enum abi_reason, *_DROP_*): bytes are lost, end it. */
	void (*dead)(void *arg, struct splice_pair *p, enum abi_reason reason);
	/* Lifecycle of a watched socket; kind is never ABI_EVENT_DEAD. May be NULL. */
	void (*socket)(void *arg, const struct abi_event *e);
	void *arg;
};

/* index < options.workers, each once. */
int sockmap_worker_new(struct sockmap *sm, uint32_t index, const struct sockmap_callbacks *cb,
		       struct sockmap_worker **ret);
/* Aborts the pairs that are left. NULL is fine. */
void sockmap_worker_free(struct sockmap_worker *w);
/* Readable (level-triggered) when sockmap_worker_poll() has something to do. */
int sockmap_worker_fd(const struct sockmap_worker *w);
/*
 * Takes the events that are there; number of them, or -errno. After a lost event it looks at every
 * pair instead, so that no dead() is missed.
 */
int sockmap_worker_poll(struct sockmap_worker *w);

/*
 * Marks a TCP socket as ours for lifecycle: a listener (what it accepts is marked then), or a socket
 * before connect(). 0, or -ENOTSUP when lifecycle is off.
 */
int sockmap_watch(struct sockmap *sm, uint32_t worker, int fd, enum abi_role role);
/* What lifecycle knows of a watched socket. 0 or -ENOENT. */
int sockmap_conn(struct sockmap *sm, int fd, struct abi_conn *ret);

/* ---------------------------------------------------------------- pair */

/* Why a pair cannot be spliced. Names are for logs and metrics. */
enum splice_refusal {
	SPLICE_OK,
	SPLICE_NO_SLOT,       /* all slots of this worker are taken */
	SPLICE_NOT_TCP,       /* one of the sockets is not plain TCP (MPTCP, AF_UNIX) */
	SPLICE_NOT_OPEN,      /* one of them is closing or closed */
	SPLICE_FOREIGN,       /* EBUSY: another program has the socket in a sockmap, or kTLS */
	SPLICE_BYTES_WAITING, /* U has unread bytes: not at a quiet point */
	SPLICE_LIMIT,         /* out of memory or descriptors */
	SPLICE_FAILED,        /* anything else; *ret_err says what */
	SPLICE_REFUSALS,
};
const char *splice_refusal_name(enum splice_refusal r); /* "no-slot", ... */

struct splice_params {
	uint32_t max_frame; /* largest DATA payload that may be redirected, bytes */
	/*
	 * Most bytes that may wait in the tap before the pair is declared dead. Has to be above all
	 * credit that may be granted, plus frame headers and what the executor may send without
	 * credit (control frames, header blocks).
	 */
	uint64_t tap_limit;
	void *owner; /* the caller's object, see splice_owner() */
};

/*
 * Puts C and U into the kernel. Preconditions, the caller's to know: U has been read to a frame
 * boundary, and everything read has been written to C (in full, also to a frame boundary). Whether U
 * is really empty is checked here, after the fact and race-free; on SPLICE_BYTES_WAITING (and every
 * other refusal) both sockets are as before and relay just goes on.
 *
 * The descriptors stay the caller's and must stay open until splice_free(). C is
 * still read by the caller with recv(), U is still written with send(); neither is to be read (U)
 * or written (C) in any other way than by this interface. Epoll works on both: C as usual, U for
 * EPOLLOUT, EPOLLRDHUP, EPOLLERR and EPOLLHUP (ignore EPOLLIN there).
 *
 * The pair starts held, with no stream: register the streams, then splice_release().
 */
enum splice_refusal splice_enrol(struct sockmap_worker *w, int client_fd, int upstream_fd,
				 const struct splice_params *params, struct splice_pair **ret,
				 int *ret_err);

void *splice_owner(const struct splice_pair *p);
uint32_t splice_slot(const struct splice_pair *p);
uint32_t splice_generation(const struct splice_pair *p);
/* The shared state, read-only: counters for whoever wants them. */
const struct abi_pair *splice_state(const struct splice_pair *p);

/*
 * Streams. DATA of `id` may be redirected while the stream's kernel count stays within limit (bytes
 * of credit granted less what the caller itself has counted). Adding is wait-free; -ENOSPC when its
 * set of the table is full (its DATA then goes through the tap), -EEXIST.
 */
int splice_stream_add(struct splice_pair *p, uint32_t id, uint64_t limit);
/* Has to precede the WINDOW_UPDATE that tells the executor. -ENOENT. */
int splice_stream_limit(struct splice_pair *p, uint32_t id, uint64_t limit);
/* Flow-controlled bytes that the kernel has counted; 0 for a stream that is not there. */
uint64_t splice_stream_data(const struct splice_pair *p, uint32_t id);
/* From now on its DATA goes to the tap. *ret_data is the final count. One syscall. -ENOENT. */
int splice_stream_del(struct splice_pair *p, uint32_t id, uint64_t *ret_data);

/* ---------------------------------------------------------------- tap and injector */

/* To be polled for EPOLLIN: splice_recv() has bytes. Same for the pair's whole life. */
int splice_tap_fd(const struct splice_pair *p);
/* To be polled for EPOLLOUT after splice_sendv() gave -EAGAIN or fell short. */
int splice_inject_fd(const struct splice_pair *p);

/*
 * Bytes for userspace, in order. > 0; -EAGAIN: none at the moment (or they are on their way to the
 * tap); 0: the executor has sent FIN and all that came before it has been read or spliced;
 * -ECONNRESET: U is dead, likewise; -ENODATA: the pair has left and the tap is empty.
 * Call it when the tap is readable, and when U says RDHUP, ERR or HUP (0 or the error comes from
 * here, in its turn).
 */
ssize_t splice_recv(struct splice_pair *p, void *buf, size_t len);
/* Bytes passed to userspace that splice_recv() has not returned yet. No syscall. */
uint64_t splice_waiting(const struct splice_pair *p);
/* The fast path is off: held, or bytes are passed and not consumed. No syscall. */
bool splice_excursion(const struct splice_pair *p);
/*
 * Bytes still to come of the frame that is open where the next byte of splice_recv() begins. Valid
 * while the fast path is off (held, or bytes have been read or are waiting) and all bytes read have
 * been consumed; afterwards the caller's own parser knows.
 */
uint32_t splice_open(const struct splice_pair *p);
/*
 * `bytes` more of what splice_recv() returned have been dealt with: injected or dropped for good.
 * open_bytes: how many bytes the frame at that point still lacks. It must be a frame whose rest may
 * be redirected blindly (DATA of a registered stream without END_STREAM), else consume up to the
 * frame's beginning only and stay. Never inside a frame header.
 */
void splice_consumed(struct splice_pair *p, uint64_t bytes, uint32_t open_bytes);

/*
 * Sends to C, in order. Bytes taken (may be short), -EAGAIN, -EPIPE (C is dead). Caller holds the
 * fast path off, see above.
 */
ssize_t splice_sendv(struct splice_pair *p, const struct iovec *iov, int n);

/*
 * Everything that comes from now on goes to the tap; when it returns, everything that came before
 * is in C's queue. Returns splice_open(). One syscall; idempotent.
 */
uint32_t splice_hold(struct splice_pair *p);
/* Ends a hold. The fast path goes on once nothing is passed and unconsumed. */
void splice_release(struct splice_pair *p);
bool splice_held(const struct splice_pair *p);

/* ---------------------------------------------------------------- end */

/*
 * Bytes that were redirected or injected, and that C's TCP has not taken yet (*ret_queued) or that
 * the client has not acknowledged (*ret_unacked). Either may be NULL. One syscall. -EPIPE when C's
 * connection is gone.
 */
int splice_undelivered(const struct splice_pair *p, uint64_t *ret_queued, uint64_t *ret_unacked);

/*
 * Begins to leave, or goes on with it: takes U out of the kernel path at once, C as soon as its
 * queue is empty. 0: both sockets are plain; -EAGAIN: call again (a few ms later, or when C gets
 * writable); -EPIPE: C is dead, its queue cannot be delivered; -EIO: the kernel has lost bytes of U on
 * the way out (seen before anything wrong is delivered; end the client with an error). Leaving under
 * load costs the executor a retransmission; at a quiet point it costs nothing. splice_recv(),
 * splice_consumed() and splice_sendv() go on working until 0 is returned; then splice_sendv() must
 * not be used any more (write C), and splice_recv() gives what the tap still has, then -ENODATA.
 */
int splice_leave(struct splice_pair *p);
/*
 * Ends the pair at once and frees it, slot and all; required after splice_leave() too. What has not
 * left is lost.
 */
void splice_free(struct splice_pair *p);

/* ---------------------------------------------------------------- helpers and figures */

/*
 * Makes room in C's send buffer for `inflight` bytes of spliced credit, so that the kernel's queue
 * never has to wait for it. May be given a listener (inherited). 0 or -errno; needs CAP_NET_ADMIN to
 * exceed net.core.wmem_max.
 */
int sockmap_client_sndbuf(int fd, uint64_t inflight);

/* Totals of a worker, pairs that have ended included. Any thread. */
struct sockmap_stats {
	uint64_t pairs; /* gauge */
	uint64_t enrolled;
	uint64_t refused[SPLICE_REFUSALS];
	uint64_t reasons[ABI_REASONS]; /* skbs */
	uint64_t redirected, passed;   /* bytes */
	uint64_t data, frames, excursions;
	uint64_t injected, injections, inject_lost;
	uint64_t holds;
	uint64_t dead;
	uint64_t events, lost_events, stale_events, resyncs;
};
void sockmap_worker_stats(const struct sockmap_worker *w, struct sockmap_stats *ret);
/* "redirected", "hold", "control", ...: label values. */
const char *abi_reason_name(enum abi_reason r);

#endif
