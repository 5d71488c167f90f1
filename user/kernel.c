/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - see kernel.h. Part of `main`: it puts datapath/sockmap and board_writer, a worker's
 * loop and its session together, three layers that do not know each other.
 */
#include "kernel.h"

#include <stdlib.h>

#include "datapath/board_writer.h"
#include "datapath/selftest.h"
#include "datapath/splice_port.h"
#include "figures.h"
#include "net/poller.h"

struct kernel {
	const struct config *config;
	struct log *log;
	struct sockmap *sockmap; /* NULL: relay only */
	char why[SELFTEST_REASON + 16];
	struct selftest test;      /* n = 0: not run */
	struct splicer **splicers; /* by worker; NULL where it has none */

	struct pins *pins;          /* NULL: nothing is pinned */
	struct board_writer *board; /* NULL: likewise, or no privilege */
	bool shown;
	char pins_why[PINS_WHY_MAX];
};

static void say(struct kernel *k, enum config_log_level level, const char *what, const char *reason)
{
	struct log_line l;

	if (!log_begin(&l, k->log, level, what))
		return;
	log_str(&l, "reason", reason);
	log_end(&l);
}

/* Measured: docs/decisions/0004. */
static bool wants_kernel(const struct config *c, const char **ret_why)
{
	*ret_why = "";
	if (!c->limits.promote_after)
		*ret_why = "--promote-after 0";
	else if (c->datapath == DATAPATH_RELAY)
		*ret_why = "--datapath relay";
	return !**ret_why;
}

/* So that tests can make events be lost; no flag of serve, hence without its prefix. */
#define RING_BYTES_ENV "SPLICE_RING_BYTES"

static uint32_t ring_bytes(void)
{
	const char *text = getenv(RING_BYTES_ENV);

	return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static int load(struct kernel *k)
{
	const struct config *c = k->config;
	struct selftest_options test = { .pin_dir = c->pin_dir,
					 .may_mount = true,
					 .sabotage = getenv(SELFTEST_SABOTAGE_ENV) };
	struct sockmap_options opt = { .workers = c->workers,
				       .ring_bytes = ring_bytes(),
				       .pins = k->pins };
	char why[SOCKMAP_WHY_MAX] = "";
	unsigned lacks;
	int r;

	selftest_run(&test, &k->test);
	if (!k->test.sockmap) {
		snprintf(k->why, sizeof(k->why), "self-test: %s", k->test.why);
		return -ENOTSUP;
	}
	r = sockmap_new(&opt, &k->sockmap, &lacks, why);
	if (r) {
		snprintf(k->why, sizeof(k->why), "%s", why);
		return r;
	}
	if (lacks)
		say(k, LOG_INFO, "kernel datapath without everything", why);
	return 0;
}

/* Optional: without the privilege or a bpf file system there is nothing to be seen. */
static void open_board(struct kernel *k)
{
	const struct config *c = k->config;

	if (pins_claim(c->pin_dir, true, &k->pins, k->pins_why))
		return;
	if (strcmp(pins_folder(k->pins), c->pin_dir))
		snprintf(k->pins_why, sizeof(k->pins_why), "%.128s belongs to a running process",
			 c->pin_dir);
	if (!board_writer_new(k->pins, c->workers, &k->board, k->pins_why))
		return;
	pins_free(k->pins);
	k->pins = NULL;
}

int kernel_new(const struct config *c, struct log *log, struct kernel **ret)
{
	struct kernel *k = calloc(1, sizeof(*k));
	const char *why;

	if (!k)
		return -ENOMEM;
	k->splicers = calloc(c->workers, sizeof(struct splicer *));
	if (!k->splicers) {
		free(k);
		return -ENOMEM;
	}
	k->config = c;
	k->log = log;
	if (c->datapath == DATAPATH_PACKET) {
		say(k, LOG_ERROR, "--datapath packet is not in this build",
		    "use auto, sockmap or relay");
		kernel_free(k);
		return -ENOTSUP;
	}
	open_board(k);
	if (!wants_kernel(c, &why)) {
		snprintf(k->why, sizeof(k->why), "%s", why);
	} else if (load(k) && c->datapath == DATAPATH_SOCKMAP) {
		say(k, LOG_ERROR, "--datapath sockmap cannot be had here", k->why);
		kernel_free(k);
		return -ENOTSUP;
	}
	*ret = k;
	return 0;
}

void kernel_free(struct kernel *k)
{
	if (!k)
		return;
	sockmap_free(k->sockmap);
	board_writer_free(k->board);
	pins_free(k->pins);
	free(k->splicers);
	free(k);
}

static void splice_new(void *arg, unsigned index, struct loop *loop, struct env *env, void **ret)
{
	struct kernel *k = arg;
	struct splice_poller poller = { .watch = poller_watch,
					.forget = poller_forget,
					.soon_new = poller_soon_new,
					.soon = poller_soon,
					.soon_free = poller_soon_free,
					.ctx = loop };
	struct splicer *s;

	env->splice_why = k->why;
	if (!k->sockmap)
		return;
	if (splicer_new(k->sockmap, index, k->config->limits.client_inflight, &poller, &s)) {
		env->splice_why = "the worker has no memory or descriptors for it";
		return;
	}
	env->splice = &splicer_ops;
	env->splice_ctx = s;
	k->splicers[index] = s;
	*ret = s;
}

static uint64_t publish(void *arg, unsigned index, const struct session *s, uint64_t now_ns)
{
	struct kernel *k = arg;

	return board_writer_worker(k->board, index, s, now_ns);
}

static void splice_free_worker(void *splice)
{
	splicer_free(splice);
}

void kernel_share(struct kernel *k, struct worker_shared *shared)
{
	shared->splice_new = splice_new;
	shared->splice_free = splice_free_worker;
	shared->splice_arg = k;
	if (k->board) {
		shared->publish = publish;
		shared->publish_arg = k;
	}
}

void kernel_show(struct kernel *k, const char *listen)
{
	const struct board_identity id = { .listen = listen,
					   .datapath = kernel_datapath(k),
					   .datapath_why = k->why };

	if (k->board)
		k->shown = !board_writer_show(k->board, &id, k->pins_why);
}

/* All of struct sockmap_stats are counts. */
static void add_splicer(struct sockmap_stats *sum, const struct splicer *s)
{
	struct sockmap_stats one = { 0 };
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)&one;

	static_assert(sizeof(one) % sizeof(uint64_t) == 0, "all of it is uint64_t");
	splicer_stats(s, &one);
	for (size_t i = 0; i < sizeof(one) / sizeof(*from); i++)
		to[i] += from[i];
}

static void sum_splicers(const struct kernel *k, struct sockmap_stats *ret)
{
	*ret = (struct sockmap_stats){ .pairs = 0 };
	for (unsigned i = 0; i < k->config->workers; i++)
		if (k->splicers[i])
			add_splicer(ret, k->splicers[i]);
}

void kernel_tick(struct kernel *k, const char *state, const struct session_stats *const *stats,
		 unsigned n_stats)
{
	struct sockmap_stats sum = { 0 };
	const struct board_process p = { .state = state,
					 .stats = stats,
					 .n_stats = n_stats,
					 .kernel = k->sockmap ? &sum : NULL };

	if (!k->board)
		return;
	sum_splicers(k, &sum);
	board_writer_process(k->board, &p);
}

void kernel_metrics(const struct kernel *k, FILE *out)
{
	struct sockmap_stats sum;

	figures_datapath(out, kernel_datapath(k), k->why);
	if (k->test.n)
		figures_selftest(out, &k->test);
	if (!k->sockmap)
		return;
	sum_splicers(k, &sum);
	figures_sockmap(out, &sum);
}

const char *kernel_pins(const struct kernel *k)
{
	return k->shown ? pins_folder(k->pins) : "off";
}

const char *kernel_pins_why(const struct kernel *k)
{
	return k->pins_why;
}

const char *kernel_datapath(const struct kernel *k)
{
	return k->sockmap ? splicer_ops.name : "relay";
}

const char *kernel_why(const struct kernel *k)
{
	return k->why;
}
