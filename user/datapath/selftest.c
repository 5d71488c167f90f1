/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.c - the list of checks, and those about the environment; selftest_checks.c has the
 * behaviour.
 */
#include <bpf/bpf.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "datapath/selftest_checks.h"

static const char *const status_names[] = { "pass", "FAIL", "skip", "note" };

const char *selftest_status_name(enum selftest_status s)
{
	return s <= SELFTEST_NOTE ? status_names[s] : "?";
}

/* Behaviour, in the order of what builds on what. */
static const struct {
	const char *name, *what;
	int (*run)(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
} behaviour[] = {
	{ "splice", "bytes arrive exact, through the kernel", check_splice },
	{ "slow-reader", "exact with tiny buffers and a slow reader", check_slow_reader },
	{ "verdict", "everything but plain DATA reaches userspace, in order", check_verdict },
	{ "fin", "FIN behind data loses nothing", check_fin },
	{ "wakeup", "epoll reports every socket of a pair", check_wakeup },
	{ "tap-hold", "fast path and userspace alternate under load", check_tap_hold },
	{ "injector", "own frames stay in order, back-pressure works", check_injector },
	{ "leave", "a pair leaves the kernel under load and goes on", check_leave },
	{ "limits", "an executor that ignores flow control is stopped", check_limits },
};

static bool listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		if (!strncmp(p, name, len) && (p[len] == ',' || !p[len]))
			return true;
	}
	return false;
}

static struct selftest_check *add(struct selftest *st, const char *name, const char *what)
{
	struct selftest_check *c = &st->checks[st->n];

	assert(st->n < SELFTEST_CHECKS);
	st->n++;
	*c = (struct selftest_check){ .name = name, .what = what };
	return c;
}

/* ---------------------------------------------------------------- environment */

static void check_bpffs(struct selftest *st, const struct selftest_options *opt)
{
	struct selftest_check *c = add(st, "bpffs", "maps can be pinned for bpftool");
	const char *dir = opt->pin_dir ? opt->pin_dir : "/sys/fs/bpf/flightsplice";
	struct statfs fs;
	char parent[256];
	char *slash;

	snprintf(parent, sizeof(parent), "%s", dir);
	slash = strrchr(parent, '/');
	if (slash && slash != parent)
		*slash = 0;
	if (!statfs(parent, &fs) && (unsigned long)fs.f_type == BPF_FS_MAGIC)
		return;
	c->status = SELFTEST_NOTE;
	snprintf(c->reason, sizeof(c->reason), "%.64s is not a bpf file system; %s%.64s", parent,
		 opt->may_mount ? "serve will mount one there" : "mount -t bpf bpf ",
		 opt->may_mount ? "" : parent);
}

static void check_btf(struct selftest *st)
{
	struct selftest_check *c = add(st, "btf", "the kernel describes its types");

	if (!access("/sys/kernel/btf/vmlinux", R_OK))
		return;
	c->status = SELFTEST_NOTE;
	snprintf(c->reason, sizeof(c->reason),
		 "no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF); the splice does not need it");
}

static bool of_sockmap(enum bpf_prog_type type)
{
	return type == BPF_PROG_TYPE_SK_SKB || type == BPF_PROG_TYPE_SK_MSG ||
	       type == BPF_PROG_TYPE_SOCK_OPS;
}

/* Programs of other agents that might put our sockets into their maps. Runs before ours load. */
static void check_foreign(struct selftest *st)
{
	struct selftest_check *c = add(st, "foreign", "no other sockmap programs on this machine");
	size_t len = 0;
	unsigned n = 0;
	uint32_t id = 0;

	while (!bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info = { 0 };
		uint32_t size = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd < 0)
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &size) && of_sockmap(info.type)) {
			n++;
			if (len + 32 < sizeof(c->reason) - 96)
				len += (size_t)snprintf(c->reason + len, sizeof(c->reason) - len,
							"%s%s (id %u)", len ? ", " : "", info.name,
							id);
		}
		close(fd);
	}
	if (!n && errno != ENOENT) {
		c->status = SELFTEST_NOTE;
		snprintf(c->reason, sizeof(c->reason), "cannot be listed: %s", strerror(errno));
	} else if (n) {
		c->status = SELFTEST_NOTE;
		snprintf(c->reason + len, sizeof(c->reason) - len,
			 ": sockets that such programs take stay on relay");
	}
}

/* ---------------------------------------------------------------- the run */

static struct sockmap *check_load(struct selftest *st, const struct selftest_options *opt)
{
	struct selftest_check *c = add(st, "load", "privileges are there, the programs load");
	struct sockmap_options so = {
		.workers = 1, .pairs = 8, .conns = 64, .cgroup = opt->cgroup
	};
	struct sockmap *sm = NULL;
	unsigned lacks = 0;
	uint64_t start = rig_now();

	if (listed(opt->sabotage, "load")) {
		c->status = SELFTEST_FAIL;
		snprintf(c->reason, sizeof(c->reason), "refused on request");
		return NULL;
	}
	if (sockmap_new(&so, &sm, &lacks, c->reason))
		c->status = SELFTEST_FAIL;
	else if (lacks & SOCKMAP_NO_LIFECYCLE)
		c->status = SELFTEST_NOTE;
	c->ns = rig_now() - start;
	return sm;
}
_Static_assert(SELFTEST_REASON >= SOCKMAP_WHY_MAX, "sockmap_new() writes into a reason");

static void on_dead(void *arg, struct splice_pair *p, enum abi_reason reason)
{
	struct rig *r = splice_owner(p);

	(void)arg;
	r->dead = reason;
}

static void run_behaviour(struct selftest *st, size_t i, struct sockmap_worker *w, bool sabotage)
{
	struct selftest_check *c = add(st, behaviour[i].name, behaviour[i].what);
	struct rig *r = w ? calloc(1, sizeof(*r)) : NULL;
	uint64_t start = rig_now(), limit = SELFTEST_CHECK_NS;

	for (size_t k = 0; k < st->n; k++)
		if (st->checks[k].status == SELFTEST_FAIL)
			limit = SELFTEST_AFTER_FAILURE_NS;
	if (!r) {
		c->status = SELFTEST_SKIP;
		snprintf(c->reason, sizeof(c->reason), "the programs are not loaded");
		return;
	}
	r->sabotage = sabotage;
	if (behaviour[i].run(r, w, start + limit)) {
		c->status = SELFTEST_FAIL;
		snprintf(c->reason, sizeof(c->reason), "%s", r->why);
	}
	rig_close(r);
	free(r);
	c->ns = rig_now() - start;
}

static void conclude(struct selftest *st)
{
	st->sockmap = true;
	for (size_t i = 0; i < st->n; i++) {
		const struct selftest_check *c = &st->checks[i];

		if (c->status != SELFTEST_FAIL)
			continue;
		st->sockmap = false;
		snprintf(st->why, sizeof(st->why), "%s: %.200s", c->name, c->reason);
		return;
	}
}

void selftest_run(const struct selftest_options *opt, struct selftest *ret)
{
	struct sockmap_callbacks cb = { .dead = on_dead };
	struct sockmap_worker *w = NULL;
	struct utsname un;
	struct sockmap *sm;

	memset(ret, 0, sizeof(*ret));
	if (!uname(&un))
		snprintf(ret->kernel, sizeof(ret->kernel), "%.64s", un.release);
	check_btf(ret);
	check_bpffs(ret, opt);
	check_foreign(ret);
	sm = check_load(ret, opt);
	if (sm && sockmap_worker_new(sm, 0, &cb, &w)) {
		ret->checks[ret->n - 1].status = SELFTEST_FAIL;
		snprintf(ret->checks[ret->n - 1].reason, SELFTEST_REASON,
			 "a ring buffer cannot be read");
	}
	for (size_t i = 0; i < ARRAY_SIZE(behaviour); i++)
		run_behaviour(ret, i, w, listed(opt->sabotage, behaviour[i].name));
	sockmap_worker_free(w);
	sockmap_free(sm);
	conclude(ret);
}
