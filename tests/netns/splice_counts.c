/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice_counts.c - a stream's byte count as another CPU sees it: it never goes back.
 *
 * The verdict counts DATA before it knows whether the skb that holds it will be redirected. Whoever
 * read the count at that moment and then got the same bytes from the tap counted them twice. So skbs
 * are made whose last frame sends all of them to the tap, while a thread does nothing but read.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "datapath/selftest_rig.h"

#define ROUNDS 4000
#define FRAMES 24
#define FRAME_SIZE 600u
#define TAP_LIMIT (64 * MiB)

static const uint32_t streams[] = { 1, 3 };

#define STREAMS (sizeof(streams) / sizeof(streams[0]))

struct reader {
	const struct splice_pair *pair;
	bool stop;
	uint64_t reads, changes, back;
};

static void *read_counts(void *arg)
{
	struct reader *rd = arg;
	uint64_t last[STREAMS] = { 0 };

	while (!__atomic_load_n(&rd->stop, __ATOMIC_RELAXED)) {
		for (size_t i = 0; i < STREAMS; i++) {
			uint64_t now = splice_stream_data(rd->pair, streams[i]);

			rd->reads++;
			rd->changes += now != last[i];
			rd->back += now < last[i];
			last[i] = now;
		}
	}
	return NULL;
}

/* FRAMES frames of DATA, of one stream or of both in turn; with a PING the skb is for the tap. */
static size_t burst(uint8_t *p, unsigned of, bool ping)
{
	uint8_t *start = p;

	for (unsigned i = 0; i < FRAMES; i++) {
		h2_frame_put(p, FRAME_SIZE, H2_DATA, 0, streams[i % of]);
		memset(p + H2_HEADER_LEN, (int)i, FRAME_SIZE);
		p += H2_HEADER_LEN + FRAME_SIZE;
	}
	if (ping) {
		h2_frame_put(p, 8, H2_PING, 0, 0);
		memset(p + H2_HEADER_LEN, 0, 8);
		p += H2_HEADER_LEN + 8;
	}
	return (size_t)(p - start);
}

/* Until len bytes have come to the client. */
static void arrive(struct rig *r, size_t len)
{
	uint64_t end = rig_now() + 10 * NSEC_PER_SEC;
	uint8_t sink[65536];

	while (len) {
		ssize_t n = recv(r->k, sink, len < sizeof(sink) ? len : sizeof(sink), MSG_DONTWAIT);

		if (n > 0)
			len -= (size_t)n;
		else if (rig_now() > end)
			break;
		(void)pump_run(&r->pump);
	}
	if (len) {
		printf("FAIL counts: %zu bytes have not arrived\n", len);
		exit(1);
	}
}

static uint64_t drive(struct rig *r)
{
	static uint8_t p[FRAMES * (H2_HEADER_LEN + FRAME_SIZE) + 64];
	uint64_t sent = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t len = burst(p, 1 + i % STREAMS, i % 8);

		if (rig_write(r, p, len, 0)) {
			printf("FAIL counts: %s\n", r->why);
			exit(1);
		}
		arrive(r, len);
		sent += FRAMES * FRAME_SIZE;
	}
	return sent;
}

static int verdict(const struct rig *r, const struct reader *rd, uint64_t sent)
{
	uint64_t spliced = 0, tapped = r->pump.data;

	for (size_t i = 0; i < STREAMS; i++)
		spliced += splice_stream_data(r->pair, streams[i]);
	if (rd->back)
		printf("FAIL counts: went back %llu times in %llu reads\n",
		       (unsigned long long)rd->back, (unsigned long long)rd->reads);
	else if (spliced + tapped != sent || !spliced || !tapped)
		printf("FAIL counts: %llu spliced and %llu tapped, %llu sent\n",
		       (unsigned long long)spliced, (unsigned long long)tapped,
		       (unsigned long long)sent);
	else
		printf("PASS counts\n");
	printf("  %llu bytes spliced, %llu tapped, %llu reads, %llu changes\n",
	       (unsigned long long)spliced, (unsigned long long)tapped,
	       (unsigned long long)rd->reads, (unsigned long long)rd->changes);
	return rd->back || spliced + tapped != sent || !spliced || !tapped;
}

static void on_dead(void *arg, struct splice_pair *p, enum abi_reason reason)
{
	(void)arg;
	(void)p;
	printf("FAIL counts: the pair is dead: %s\n", abi_reason_name(reason));
	exit(1);
}

int main(void)
{
	struct sockmap_options opt = { .workers = 1, .pairs = 1, .ring_bytes = 8192 };
	struct sockmap_callbacks cb = { .dead = on_dead };
	struct rig *r = calloc(1, sizeof(*r));
	struct reader rd = { 0 };
	char why[SOCKMAP_WHY_MAX];
	struct sockmap *sm;
	struct sockmap_worker *w;
	unsigned lacks;
	uint64_t sent;
	pthread_t t;
	int rc;

	if (sockmap_new(&opt, &sm, &lacks, why) || sockmap_worker_new(sm, 0, &cb, &w)) {
		printf("SKIP splice_counts: %s\n", why);
		return 77;
	}
	if (!r || rig_open(r, w, &(struct rig_buffers){ 0 }, TAP_LIMIT) || rig_start(r) ||
	    splice_stream_add(r->pair, streams[1], UINT64_MAX >> 1)) {
		printf("FAIL counts: %s\n", r ? r->why : "out of memory");
		return 1;
	}
	rd.pair = r->pair;
	if (pthread_create(&t, NULL, read_counts, &rd))
		return 1;
	sent = drive(r);
	__atomic_store_n(&rd.stop, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	rc = verdict(r, &rd, sent);
	rig_close(r);
	free(r);
	sockmap_worker_free(w);
	sockmap_free(sm);
	return rc;
}
