/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice_events.c - what the ring buffer and the lifecycle program say: each event once, to whom it
 * concerns, and nothing missed when events are lost or late.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "datapath/selftest_rig.h"
#include "netns/lib/lab.h"

#define CONNECTIONS 40
#define TAP_LIMIT (32 * KiB)
#define TAP_ROOM (5 * MiB)

struct heard {
	unsigned kinds[ABI_EVENT_KINDS];
	unsigned dead;
	struct rig *dead_rig;
	enum abi_reason reason;
};

static struct heard heard;
static int failed;

static void check(const char *name, bool good)
{
	printf("%s %s%s\n", good ? "PASS" : "FAIL", name, good ? "" : ": not as it should be");
	failed |= !good;
}

static void on_dead(void *arg, struct splice_pair *p, enum abi_reason reason)
{
	(void)arg;
	heard.dead++;
	heard.dead_rig = splice_owner(p);
	heard.reason = reason;
}

static void on_socket(void *arg, const struct abi_event *e)
{
	(void)arg;
	if (e->kind < ABI_EVENT_KINDS)
		heard.kinds[e->kind]++;
}

/* Polls until `*what` has come to `n`, a second at most. */
static bool hear(struct sockmap_worker *w, const unsigned *what, unsigned n)
{
	uint64_t end = rig_now() + NSEC_PER_SEC;

	while (*what < n && rig_now() < end) {
		rig_wait(sockmap_worker_fd(w), 1, rig_now() + 10 * NSEC_PER_MSEC);
		sockmap_worker_poll(w);
	}
	return *what == n;
}

/* ---------------------------------------------------------------- lifecycle */

struct link {
	int here, there;
};

static void open_links(struct link *l, int listener, uint16_t port, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		l[i].here = lab_connect("127.0.0.1", port);
		l[i].there = accept(listener, NULL, NULL);
	}
}

static void close_links(struct link *l, unsigned n, bool hard)
{
	struct linger reset = { .l_onoff = 1 };

	for (unsigned i = 0; i < n; i++) {
		if (hard)
			setsockopt(l[i].here, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(l[i].here);
	}
}

static void finish_links(struct link *l, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close(l[i].there);
}

static void lifecycle(struct sockmap *sm, struct sockmap_worker *w)
{
	struct link l[CONNECTIONS];
	struct abi_conn conn = { 0 };
	uint16_t port, other;
	int listener = lab_listen("127.0.0.1", &port), unwatched = lab_listen("127.0.0.1", &other);
	char byte = 'x';

	check("watch", !sockmap_watch(sm, 0, listener, ABI_ROLE_CLIENT));
	open_links(l, listener, port, CONNECTIONS);
	check("open-events", hear(w, &heard.kinds[ABI_EVENT_OPEN], CONNECTIONS));
	(void)!write(l[3].there, &byte, 1);
	(void)!read(l[3].here, &byte, 1);
	check("conn", !sockmap_conn(sm, l[3].there, &conn) && conn.role == ABI_ROLE_CLIENT &&
			      conn.state == 1 && conn.local_port == port && conn.rtt_samples);
	check("conn-of-others", sockmap_conn(sm, l[3].here, &conn) == -ENOENT);
	close_links(l, CONNECTIONS / 2, false);
	check("fin-events", hear(w, &heard.kinds[ABI_EVENT_FIN], CONNECTIONS / 2));
	close_links(l + CONNECTIONS / 2, CONNECTIONS / 2, true);
	check("reset-events", hear(w, &heard.kinds[ABI_EVENT_RESET], CONNECTIONS / 2));
	finish_links(l, CONNECTIONS);
	check("closed-events", hear(w, &heard.kinds[ABI_EVENT_CLOSED], CONNECTIONS / 2));
	open_links(l, unwatched, other, 5);
	close_links(l, 5, false);
	finish_links(l, 5);
	sockmap_worker_poll(w);
	check("others-are-silent", heard.kinds[ABI_EVENT_OPEN] == CONNECTIONS);
	close(listener);
	close(unwatched);
}

/* ---------------------------------------------------------------- deaths */

/* A pair whose tap nobody reads, and so much sent that the verdict gives it up. */
static void kill_pair(struct rig *r, struct sockmap_worker *w)
{
	uint8_t f[RIG_FRAME_MAX];
	uint64_t end = rig_now() + NSEC_PER_SEC;

	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT)) {
		printf("FAIL rig: %s\n", r->why);
		exit(1);
	}
	for (uint64_t i = 0; !splice_state(r->pair)->dead && rig_now() < end; i++)
		rig_write(r, f, rig_frame(i, f), 0);
}

static void death(struct sockmap_worker *w)
{
	struct rig *r = calloc(1, sizeof(*r));

	kill_pair(r, w);
	check("dead-event",
	      hear(w, &heard.dead, 1) && heard.dead_rig == r && heard.reason == ABI_DROP_TAP_FULL);
	sockmap_worker_poll(w);
	check("dead-once", heard.dead == 1);
	rig_close(r);
	free(r);
}

/* The event of a pair that is gone by the time it is read must not hit its successor. */
static void stale(struct sockmap_worker *w)
{
	struct rig *first = calloc(1, sizeof(*first)), *second = calloc(1, sizeof(*second));
	struct sockmap_stats before, after;
	uint32_t slot;

	sockmap_worker_stats(w, &before);
	kill_pair(first, w);
	slot = splice_slot(first->pair);
	/* There is one slot only. */
	pump_run(&first->pump);
	rig_close(first);
	if (rig_open(second, w, &(struct rig_buffers){ 0 }, TAP_LIMIT)) {
		printf("FAIL rig: %s\n", second->why);
		exit(1);
	}
	sockmap_worker_poll(w);
	sockmap_worker_stats(w, &after);
	check("same-slot", splice_slot(second->pair) == slot);
	check("stale-event", after.stale_events == before.stale_events + 1 && heard.dead == 1);
	check("successor-lives", !splice_state(second->pair)->dead);
	rig_close(second);
	free(first);
	free(second);
}

/* The ring is full of other events when a pair dies. */
static void lost(struct sockmap *sm, struct sockmap_worker *w)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct sockmap_stats stats;
	struct link l[CONNECTIONS];
	uint16_t port;
	int listener = lab_listen("127.0.0.1", &port);

	sockmap_watch(sm, 0, listener, ABI_ROLE_CLIENT);
	for (int i = 0; i < 4; i++) {
		open_links(l, listener, port, CONNECTIONS);
		close_links(l, CONNECTIONS, true);
		finish_links(l, CONNECTIONS);
	}
	kill_pair(r, w);
	heard.dead = 0;
	sockmap_worker_poll(w);
	sockmap_worker_stats(w, &stats);
	check("events-lost", stats.lost_events > 0 && stats.resyncs > 0);
	check("death-found", heard.dead == 1 && heard.dead_rig == r);
	rig_close(r);
	free(r);
	close(listener);
}

/* ---------------------------------------------------------------- room */

static int unread(const struct rig *r)
{
	int n = 0;

	ioctl(splice_tap_fd(r->pair), FIONREAD, &n);
	return n;
}

/*
 * All that may wait can be read at once. Were the tap's buffer smaller, the rest would come at the
 * pace of the kernel's clock.
 */
static void room(struct sockmap_worker *w)
{
	struct rig *r = calloc(1, sizeof(*r));
	uint8_t f[RIG_FRAME_MAX];
	uint64_t end = rig_now() + 10 * NSEC_PER_SEC, sent = 0;

	if (rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_ROOM)) {
		printf("FAIL rig: %s\n", r->why);
		exit(1);
	}
	for (uint64_t i = 0; sent + RIG_FRAME_MAX <= TAP_ROOM && rig_now() < end; i++) {
		size_t len = rig_frame(i, f);

		if (rig_write(r, f, len, 0))
			break;
		sent += len;
	}
	while (splice_waiting(r->pair) < sent && rig_now() < end)
		sched_yield();
	check("all-passed", splice_waiting(r->pair) == sent && !splice_state(r->pair)->dead);
	while ((uint64_t)unread(r) < sent && rig_now() < end)
		sched_yield();
	check("tap-room", (uint64_t)unread(r) == sent);
	rig_close(r);
	free(r);
}

int main(void)
{
	struct sockmap_options opt = { .workers = 1, .pairs = 1, .ring_bytes = 8192 };
	struct sockmap_callbacks cb = { .dead = on_dead, .socket = on_socket };
	char why[SOCKMAP_WHY_MAX];
	struct sockmap *sm;
	struct sockmap_worker *w;
	unsigned lacks;

	if (sockmap_new(&opt, &sm, &lacks, why) || sockmap_worker_new(sm, 0, &cb, &w)) {
		printf("SKIP splice_events: %s\n", why);
		return 77;
	}
	if (lacks & SOCKMAP_NO_LIFECYCLE)
		printf("SKIP lifecycle: %s\n", why);
	else
		lifecycle(sm, w);
	room(w);
	death(w);
	stale(w);
	if (!(lacks & SOCKMAP_NO_LIFECYCLE))
		lost(sm, w);
	sockmap_worker_free(w);
	sockmap_free(sm);
	return failed;
}
