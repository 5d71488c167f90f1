/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockmap.c - the process's part of the sockmap datapath: the programs and maps, from load to unpin.
 *
 * Both BPF objects are loaded once. The sizes of the maps come from the options and are set before
 * loading; the ring buffers and the workers' counters are made by the splice object and handed to
 * the lifecycle object. Programs are attached to the sockmaps `upstreams` and `injectors` only, so
 * closing our descriptors detaches everything: nothing of the splice outlives the process. Pinned
 * are the maps that a person or `flightsplice streams` wants to read; when the process dies hard
 * the pins stay, hold plain memory, and are replaced by the next start (pins.h).
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cap-ng.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/version.h"
#include "datapath/sockmap_internal.h"
#include "lifecycle.skel.h"
#include "splice.skel.h"

#define DEFAULT_PAIRS 1024u
#define DEFAULT_CONNS 16384u
#define DEFAULT_RING 65536u

/* Adds a sentence to what why says already. */
static void printf_like(2, 3) say(char why[SOCKMAP_WHY_MAX], const char *format, ...)
{
	size_t have = strlen(why);
	va_list args;

	if (have && have + 3 < SOCKMAP_WHY_MAX) {
		memcpy(why + have, "; ", 3);
		have += 2;
	}
	va_start(args, format);
	vsnprintf(why + have, SOCKMAP_WHY_MAX - have, format, args);
	va_end(args);
}

/* What to tell a person about a refused bpf() call. */
static void explain(int err, const char *what, char why[SOCKMAP_WHY_MAX])
{
	static const struct {
		unsigned cap;
		const char *name;
	} needed[] = { { CAP_BPF, "CAP_BPF" }, { CAP_NET_ADMIN, "CAP_NET_ADMIN" } };

	if (err == -EPERM || err == -EACCES) {
		for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
			if (capng_have_capability(CAPNG_EFFECTIVE, needed[i].cap))
				continue;
			say(why, "%s: the privilege %s is missing", what, needed[i].name);
			return;
		}
		say(why,
		    "%s: %s although CAP_BPF and CAP_NET_ADMIN are there (seccomp profile? "
		    "kernel lockdown? kernel too old?)",
		    what, strerror(-err));
	} else if (err == -ENOMEM) {
		say(why, "%s: out of memory (memory cgroup or RLIMIT_MEMLOCK too small)", what);
	} else if (err == -EINVAL || err == -ENOTSUP) {
		say(why,
		    "%s: %s; the kernel is too old or was built without CONFIG_BPF_STREAM_PARSER",
		    what, strerror(-err));
	} else {
		say(why, "%s: %s", what, strerror(-err));
	}
}

static size_t page_round(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (n + page - 1) / page * page;
}

/* Maps an mmapable array of n values. NULL with errno. */
static void *map_array(const struct bpf_map *map, size_t value, size_t n, size_t *ret_len)
{
	size_t len = page_round(value * n);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	if (p == MAP_FAILED)
		return NULL;
	*ret_len = len;
	return p;
}

static int attach(struct sockmap *sm, char why[SOCKMAP_WHY_MAX])
{
	if (bpf_prog_attach(bpf_program__fd(sm->prog->progs.upstream_verdict), sm->upstreams,
			    BPF_SK_SKB_VERDICT, 0)) {
		int err = -errno;

		explain(err, "attaching the verdict to a sockmap", why);
		return err;
	}
	if (bpf_prog_attach(bpf_program__fd(sm->prog->progs.inject_verdict), sm->injectors,
			    BPF_SK_SKB_VERDICT, 0)) {
		int err = -errno;

		explain(err, "attaching the injector to a sockmap", why);
		return err;
	}
	return 0;
}

static int make_rings(struct sockmap *sm, uint32_t bytes)
{
	for (uint32_t i = 0; i < sm->workers; i++) {
		int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "events", 0, 0, bytes, NULL);

		if (fd < 0)
			return -errno;
		sm->ring_fd[i] = fd;
		if (bpf_map_update_elem(bpf_map__fd(sm->prog->maps.rings), &i, &fd, BPF_ANY))
			return -errno;
	}
	return 0;
}

static int write_info(struct sockmap *sm)
{
	struct abi_info info = {
		.version = ABI_VERSION,
		.pid = (uint32_t)getpid(),
		.slots = sm->workers * sm->pairs,
		.workers = sm->workers,
	};
	struct timespec now;
	uint32_t zero = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	info.started_ns = (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
	snprintf(info.release, sizeof(info.release), "%s", fs_version);
	if (bpf_map_update_elem(bpf_map__fd(sm->prog->maps.info), &zero, &info, BPF_ANY))
		return -errno;
	return 0;
}

static int size_maps(struct sockmap *sm)
{
	uint32_t slots = sm->workers * sm->pairs;
	struct {
		struct bpf_map *map;
		uint32_t n;
	} sizes[] = {
		{ sm->prog->maps.upstreams, slots },
		{ sm->prog->maps.clients, slots },
		{ sm->prog->maps.taps, slots },
		{ sm->prog->maps.injectors, slots },
		{ sm->prog->maps.pairs, slots },
		{ sm->prog->maps.routes, slots },
		{ sm->prog->maps.inject_slots, 2 * slots },
	};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		int err = bpf_map__set_max_entries(sizes[i].map, sizes[i].n);

		if (err)
			return err;
	}
	return 0;
}

static int load_splice(struct sockmap *sm, uint32_t ring_bytes, char why[SOCKMAP_WHY_MAX])
{
	int err;

	sm->prog = splice__open();
	err = sm->prog ? size_maps(sm) : -errno;
	if (!err)
		err = splice__load(sm->prog);
	if (err) {
		explain(err, "loading the splice program", why);
		return err;
	}
	sm->upstreams = bpf_map__fd(sm->prog->maps.upstreams);
	sm->clients = bpf_map__fd(sm->prog->maps.clients);
	sm->taps = bpf_map__fd(sm->prog->maps.taps);
	sm->injectors = bpf_map__fd(sm->prog->maps.injectors);
	sm->routes = bpf_map__fd(sm->prog->maps.routes);
	sm->inject_slots = bpf_map__fd(sm->prog->maps.inject_slots);
	sm->state = map_array(sm->prog->maps.pairs, sizeof(struct abi_pair),
			      (size_t)sm->workers * sm->pairs, &sm->state_len);
	sm->worker_state = map_array(sm->prog->maps.workers, sizeof(struct abi_worker),
				     ABI_MAX_WORKERS, &sm->worker_len);
	err = sm->state && sm->worker_state ? make_rings(sm, ring_bytes) : -errno;
	if (!err)
		err = write_info(sm);
	if (err) {
		explain(err, "making the maps", why);
		return err;
	}
	return attach(sm, why);
}

/* ---------------------------------------------------------------- lifecycle */

/* The folder of our own cgroup (v2). 0 or -ENOENT. */
static int own_cgroup(char *buf, size_t cap)
{
	char line[PATH_MAX], mount[PATH_MAX / 2] = "", group[PATH_MAX / 2] = "";
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && fgets(line, sizeof(line), f)) {
		char *type = strstr(line, " - cgroup2 ");

		if (type && sscanf(line, "%*s %*s %*s %*s %2047s", mount) == 1)
			break;
	}
	if (f)
		fclose(f);
	f = fopen("/proc/self/cgroup", "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "0::%2047s", group) == 1)
			break;
	}
	if (f)
		fclose(f);
	if (!mount[0] || (size_t)snprintf(buf, cap, "%s%s", mount, group) >= cap)
		return -ENOENT;
	/* Inside a container our group may lie above what is mounted here. */
	if (access(buf, F_OK))
		snprintf(buf, cap, "%s", mount);
	return 0;
}

static int share_map(struct bpf_map *map, const struct bpf_map *with)
{
	return bpf_map__reuse_fd(map, bpf_map__fd(with));
}

static void lifecycle_off(struct sockmap *sm)
{
	bpf_link__destroy(sm->life_link);
	lifecycle__destroy(sm->life);
	sm->life_link = NULL;
	sm->life = NULL;
	sm->watched = sm->conns = -1;
}

/* Optional: on failure it is off, and why says so. */
static int lifecycle_on(struct sockmap *sm, const struct sockmap_options *opt,
			char why[SOCKMAP_WHY_MAX])
{
	char path[PATH_MAX];
	int fd, err;

	if (opt->cgroup && !*opt->cgroup)
		return -ENOENT;
	if (!opt->cgroup && own_cgroup(path, sizeof(path))) {
		say(why, "no cgroup v2 is mounted: no RTT and retransmission figures");
		return -ENOENT;
	}
	fd = open(opt->cgroup ? opt->cgroup : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		err = -errno;
		explain(err, "opening the cgroup", why);
		return err;
	}
	sm->life = lifecycle__open();
	err = sm->life ? share_map(sm->life->maps.rings, sm->prog->maps.rings) : -errno;
	if (!err)
		err = share_map(sm->life->maps.workers, sm->prog->maps.workers);
	if (!err)
		err = bpf_map__set_max_entries(sm->life->maps.conns,
					       opt->conns ? opt->conns : DEFAULT_CONNS);
	if (!err)
		err = lifecycle__load(sm->life);
	if (!err) {
		sm->life_link = bpf_program__attach_cgroup(sm->life->progs.lifecycle, fd);
		err = sm->life_link ? 0 : -errno;
	}
	close(fd);
	if (err) {
		explain(err, "attaching the lifecycle program to the cgroup", why);
		lifecycle_off(sm);
		return err;
	}
	sm->watched = bpf_map__fd(sm->life->maps.watched);
	sm->conns = bpf_map__fd(sm->life->maps.conns);
	return 0;
}

int sockmap_watch(struct sockmap *sm, uint32_t worker, int fd, enum abi_role role)
{
	struct abi_watch watch = { .role = role, .worker = worker };

	if (sm->watched < 0)
		return -ENOTSUP;
	return bpf_map_update_elem(sm->watched, &fd, &watch, BPF_ANY) ? -errno : 0;
}

int sockmap_conn(struct sockmap *sm, int fd, struct abi_conn *ret)
{
	struct abi_conn conn;
	uint64_t cookie;
	socklen_t len = sizeof(cookie);

	if (sm->conns < 0 || getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) ||
	    bpf_map_lookup_elem(sm->conns, &cookie, &conn))
		return -ENOENT;
	*ret = conn;
	return 0;
}

/* ---------------------------------------------------------------- pins */

struct pin {
	const char *name;
	const struct bpf_map *map;
};

#define MAX_PINS 5

static size_t pins_of(const struct sockmap *sm, struct pin pins[MAX_PINS])
{
	size_t n = 0;

	pins[n++] = (struct pin){ "info", sm->prog->maps.info };
	pins[n++] = (struct pin){ "pairs", sm->prog->maps.pairs };
	pins[n++] = (struct pin){ "routes", sm->prog->maps.routes };
	pins[n++] = (struct pin){ "workers", sm->prog->maps.workers };
	if (sm->life)
		pins[n++] = (struct pin){ "conns", sm->life->maps.conns };
	return n;
}

static int pin(struct sockmap *sm, struct pins *folder, char why[SOCKMAP_WHY_MAX])
{
	struct pin pins[MAX_PINS];
	size_t n = pins_of(sm, pins);
	char reason[PINS_WHY_MAX];

	for (size_t i = 0; i < n; i++) {
		int err = pins_put(folder, pins[i].name, bpf_map__fd(pins[i].map), reason);

		if (err) {
			say(why, "%s", reason);
			return err;
		}
	}
	return 0;
}

/* ---------------------------------------------------------------- life */

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

static bool options_ok(const struct sockmap_options *opt)
{
	uint32_t ring = opt->ring_bytes ? opt->ring_bytes : DEFAULT_RING;

	return opt->workers && opt->workers <= ABI_MAX_WORKERS && opt->pairs <= 1u << 16 &&
	       !(ring & (ring - 1)) && ring % (uint32_t)sysconf(_SC_PAGESIZE) == 0;
}

int sockmap_new(const struct sockmap_options *opt, struct sockmap **ret, unsigned *ret_lacks,
		char why[SOCKMAP_WHY_MAX])
{
	struct sockmap *sm;
	unsigned lacks = 0;
	int err;

	why[0] = 0;
	if (!options_ok(opt)) {
		say(why, "sockmap: options out of range");
		return -EINVAL;
	}
	sm = calloc(1, sizeof(*sm));
	if (!sm) {
		say(why, "out of memory");
		return -ENOMEM;
	}
	sm->workers = opt->workers;
	sm->pairs = opt->pairs ? opt->pairs : DEFAULT_PAIRS;
	sm->watched = sm->conns = -1;
	for (size_t i = 0; i < ABI_MAX_WORKERS; i++)
		sm->ring_fd[i] = -1;
	libbpf_set_print(quiet);
	err = load_splice(sm, opt->ring_bytes ? opt->ring_bytes : DEFAULT_RING, why);
	if (err) {
		sockmap_free(sm);
		return err;
	}
	if (lifecycle_on(sm, opt, why))
		lacks |= SOCKMAP_NO_LIFECYCLE;
	if (!opt->pins || pin(sm, opt->pins, why))
		lacks |= SOCKMAP_NO_PINS;
	*ret = sm;
	*ret_lacks = lacks;
	return 0;
}

void sockmap_free(struct sockmap *sm)
{
	if (!sm)
		return;
	lifecycle_off(sm);
	for (size_t i = 0; i < ABI_MAX_WORKERS; i++) {
		if (sm->ring_fd[i] >= 0)
			close(sm->ring_fd[i]);
	}
	if (sm->state)
		munmap(sm->state, sm->state_len);
	if (sm->worker_state)
		munmap(sm->worker_state, sm->worker_len);
	splice__destroy(sm->prog);
	free(sm);
}
