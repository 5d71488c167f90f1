/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - what a session asks of the world: byte streams, dialling, a clock,
 * and somebody to tell.
 *
 * These narrow tables are implemented by `net` and `obs` in the product and by
 * the simulator in tests; `session` knows nothing else of the outside. All of
 * it is single-threaded: one worker, one `struct env`.
 *
 * Rules for implementers
 *   - Callbacks into the session (port.on_event, dial_done_fn) come from the
 *     loop, never from inside a call that the session makes.
 *   - After close() or dial_cancel() no callback comes for that object.
 */
#ifndef FS_ENV_H
#define FS_ENV_H

#include <sys/uio.h>

#include "base/addr.h"
#include "config/config.h"
#include "policy/policy.h"

enum port_event {
	PORT_READABLE = 1,
	PORT_WRITABLE = 2,
	/*
	 * The peer's FIN or RST has come. Told once, and only while PORT_READABLE is not
	 * wanted: for a socket that the kernel reads for us, where data must not wake anybody.
	 */
	PORT_HANGUP = 4,
};

struct port;

struct port_ops {
	/* Up to len bytes. > 0 bytes; 0 the peer's FIN; -EAGAIN; any other -errno: dead. */
	ssize_t (*recv)(struct port *p, void *buf, size_t len);
	/* May be short. > 0 bytes taken; -EAGAIN; any other -errno: dead (no SIGPIPE). */
	ssize_t (*sendv)(struct port *p, const struct iovec *iov, int n);
	/* Level-triggered interest, a mask of enum port_event; 0 = none. Cheap when unchanged. */
	void (*want)(struct port *p, unsigned mask);
	/* FIN after what has been sent; reading goes on. */
	void (*shutdown)(struct port *p);
	/*
	 * Ends and frees the port. reset: RST instead of FIN, what the peer has not
	 * yet acknowledged may be lost. Otherwise all that sendv() took is delivered.
	 */
	void (*close)(struct port *p, bool reset);
	/* The socket behind it, -1 when there is none. For datapaths that program the kernel. */
	int (*fd)(struct port *p);
};

/* Embedded in the implementer's own connection object. */
struct port {
	const struct port_ops *ops;
	void (*on_event)(struct port *p, unsigned events); /* set by the session */
	void *owner;                                       /* the session's object */
	struct addr peer, local;
};

enum dial_phase { DIAL_RESOLVE, DIAL_POLICY, DIAL_CONNECT };

struct dial_result {
	int err;               /* 0, or -errno (resolver: -ENOENT not found, -EAGAIN temporary) */
	enum dial_phase phase; /* where it failed */
	enum policy_verdict verdict; /* DIAL_POLICY: why */
	const char *detail;          /* static or callback-lifetime text: "Connection refused" */
	struct addr addr;            /* the address tried last, or connected to */
};

/* port is NULL on failure; otherwise the session owns it now (want() is 0, on_event unset). */
typedef void (*dial_done_fn)(void *arg, struct port *port, const struct dial_result *res);

struct dial; /* opaque */

struct env_ops {
	/* Monotonic, cached per loop turn is fine. */
	uint64_t (*now)(void *ctx);
	/*
	 * Resolves host (name or IP literal; literals must not touch a resolver),
	 * checks each address with the worker's policy, connects to the first that
	 * accepts, TCP_NODELAY set. All of it within timeout_ns (0 = none: -ETIMEDOUT).
	 * Calls done() exactly once, later. NULL when out of memory or descriptors
	 * (done() is not called then).
	 */
	struct dial *(*dial)(void *ctx, const char *host, uint16_t port, uint64_t timeout_ns,
			     dial_done_fn done, void *arg);
	/* Before done() only. */
	void (*dial_cancel)(void *ctx, struct dial *d);
};

/*
 * A client's and an upstream's socket that the kernel has been told to splice
 * (datapath/sockmap). Towards the session it is one more port: recv() gives the
 * executor's bytes that the kernel did not forward, sendv() sends to the client in
 * order with what it did; want() and on_event are for these two. recv() besides
 * what every port returns: 0 and -errno mean the end of the *upstream*, -EIO that
 * the kernel gave the pair up and bytes may be missing, -EDQUOT that it did because
 * the executor ignores flow control. close and shutdown are not
 * used. The upstream's socket is still written, and the client's still read, by
 * their own ports.
 *
 * datapath/sockmap.h explains hold, consumed and open; here they mean the same.
 */
struct splice {
	struct port port;
	const struct splice_ops *ops;
};

struct splice_ops {
	const char *name; /* "sockmap" */
	/*
	 * Starts held, without streams. NULL and a static *ret_why when it cannot be;
	 * -EAGAIN-like refusals (bytes were waiting) set *ret_again.
	 */
	struct splice *(*enrol)(void *ctx, struct port *client, struct port *upstream,
				uint64_t tap_limit, const char **ret_why, bool *ret_again);
	int (*stream_add)(struct splice *sp, uint32_t id, uint64_t limit);
	void (*stream_limit)(struct splice *sp, uint32_t id, uint64_t limit);
	uint64_t (*stream_data)(const struct splice *sp, uint32_t id);
	uint64_t (*stream_del)(struct splice *sp, uint32_t id);
	uint32_t (*open)(const struct splice *sp);
	uint32_t (*hold)(struct splice *sp);
	void (*release)(struct splice *sp);
	bool (*excursion)(const struct splice *sp); /* the fast path is off */
	void (*consumed)(struct splice *sp, uint64_t bytes, uint32_t open_bytes);
	/* Bytes that went towards the client and that it has not acknowledged. */
	uint64_t (*undelivered)(const struct splice *sp);
	int (*leave)(struct splice *sp); /* 0: sockets are plain; -EAGAIN: call again */
	/* Which entry of the kernel's table of pairs it is, for whoever shows both. */
	void (*place)(const struct splice *sp, uint32_t *ret_slot, uint32_t *ret_generation);
	void (*free)(struct splice *sp);
};

struct stream_record;
struct session_event;
struct datapath;

/* Implemented by obs; called on the worker's thread, must not block. */
struct emit_ops {
	void (*stream_done)(void *ctx, const struct stream_record *r);
	void (*event)(void *ctx, const struct session_event *e);
};

struct env {
	const struct env_ops *ops;
	const struct emit_ops *emit;
	void *ctx;      /* passed to ops */
	void *emit_ctx; /* passed to emit */
	const struct config *config;
	/* This worker's part of limits.total_inflight, bytes. */
	uint64_t inflight_share;
	/* How result bytes move: &datapath_relay (datapath/relay.h). */
	const struct datapath *relay;
	/* Where large results are promoted to; NULL: nowhere, and splice_why says why. */
	const struct splice_ops *splice;
	void *splice_ctx;
	const char *splice_why; /* static */
};

#endif
