/* SPDX-License-Identifier: Apache-2.0 */
/*
 * board_read.c - see board_read.h.
 *
 * `build` is read first and decides: maps of another schema are not interpreted, however well their
 * sizes fit. Hash maps are read by batches of whole buckets, so a map that is written meanwhile gives
 * each entry once.
 */
#include "datapath/board_read.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "base/version.h"
#include "datapath/pins.h"

/* What `build` has in every schema. */
#define BUILD_FIXED (offsetof(struct board_build, started) + BOARD_TIME_LEN)
#define BUILD_MAX 4096

static void printf_like(2, 3) say(char why[SNAPSHOT_WHY_MAX], const char *format, ...)
{
	size_t have = strlen(why);
	va_list args;

	if (have && have + 3 < SNAPSHOT_WHY_MAX) {
		memcpy(why + have, "; ", 3);
		have += 2;
	}
	va_start(args, format);
	vsnprintf(why + have, SNAPSHOT_WHY_MAX - have, format, args);
	va_end(args);
}

static int map_open(const char *folder, const char *name, struct bpf_map_info *ret_info)
{
	char path[PINS_PATH_MAX + 16];
	uint32_t len = sizeof(*ret_info);
	int fd;

	memset(ret_info, 0, sizeof(*ret_info));
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = bpf_obj_get(path);
	if (fd < 0)
		return -errno;
	if (bpf_obj_get_info_by_fd(fd, ret_info, &len)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* ---------------------------------------------------------------- one map */

struct batch {
	char *keys, *values;
	unsigned n;
};

static int read_batches(int fd, const struct bpf_map_info *info, struct batch *b)
{
	DECLARE_LIBBPF_OPTS(bpf_map_batch_opts, opts);
	uint32_t token = 0;
	bool first = true;

	while (b->n < info->max_entries) {
		uint32_t count = info->max_entries - b->n;
		int r = bpf_map_lookup_batch(
			fd, first ? NULL : &token, &token, b->keys + (size_t)b->n * info->key_size,
			b->values + (size_t)b->n * info->value_size, &count, &opts);

		if (r && errno != ENOENT)
			return -errno;
		b->n += count;
		first = false;
		if (r)
			break; /* the end */
	}
	return 0;
}

/* Appends what is in a hash map to an array of {unsigned instance; key; value}. */
struct target {
	void **rows;
	unsigned *n;
	size_t row, key_at, key_size, value_at, value_size;
};

static int append(const struct target *t, unsigned instance, const struct batch *b)
{
	size_t n = (size_t)*t->n + b->n;
	char *rows = reallocarray(*t->rows, n ? n : 1, t->row);

	if (!rows)
		return -ENOMEM;
	*t->rows = rows;
	for (unsigned i = 0; i < b->n; i++) {
		char *row = rows + (*t->n + (size_t)i) * t->row;

		memset(row, 0, t->row);
		memcpy(row, &instance, sizeof(instance));
		memcpy(row + t->key_at, b->keys + i * t->key_size, t->key_size);
		memcpy(row + t->value_at, b->values + i * t->value_size, t->value_size);
	}
	*t->n = (unsigned)n;
	return 0;
}

static int read_hash(const char *folder, const char *name, unsigned instance,
		     const struct target *t)
{
	struct bpf_map_info info;
	struct batch b = { .values = NULL };
	int fd = map_open(folder, name, &info), r;

	if (fd < 0)
		return fd;
	r = -EPROTO;
	if (info.key_size == t->key_size && info.value_size == t->value_size &&
	    info.type == BPF_MAP_TYPE_HASH) {
		b.keys = calloc(info.max_entries, info.key_size);
		b.values = calloc(info.max_entries, info.value_size);
		r = b.keys && b.values ? read_batches(fd, &info, &b) : -ENOMEM;
	}
	if (!r)
		r = append(t, instance, &b);
	free(b.keys);
	free(b.values);
	close(fd);
	return r;
}

#define TARGET(array, count)                                                                       \
	{                                                                                          \
		.rows = (void **)&(array), .n = &(count), .row = sizeof(*(array)),                 \
		.key_at = offsetof(typeof(*(array)), key), .key_size = sizeof((array)->key),       \
		.value_at = offsetof(typeof(*(array)), v), .value_size = sizeof((array)->v)        \
	}

/* The one entry of an array map. Its size must be that of ret. */
static int read_single(const char *folder, const char *name, void *ret, size_t size)
{
	struct bpf_map_info info;
	uint32_t zero = 0;
	int fd = map_open(folder, name, &info), r = 0;

	if (fd < 0)
		return fd;
	if (info.value_size != size)
		r = -EPROTO;
	else if (bpf_map_lookup_elem(fd, &zero, ret))
		r = -errno;
	close(fd);
	return r;
}

/* ---------------------------------------------------------------- who writes there */

/* -EPROTO and a sentence when the maps are of another schema. */
static int read_build(const char *folder, struct board_build *ret, char why[SNAPSHOT_WHY_MAX])
{
	char raw[BUILD_MAX] __attribute__((aligned(8))) = { 0 };
	struct bpf_map_info info;
	uint32_t zero = 0;
	int fd = map_open(folder, "build", &info), r = 0;

	if (fd < 0)
		return fd;
	if (info.key_size != sizeof(zero) || info.value_size < BUILD_FIXED ||
	    info.value_size > sizeof(raw))
		r = -EPROTO;
	else if (bpf_map_lookup_elem(fd, &zero, raw))
		r = -errno;
	close(fd);
	if (r == -EPROTO)
		say(why, "%s/build was not written by flightsplice", folder);
	if (r)
		return r;
	memcpy(ret, raw, sizeof(*ret));
	if (ret->schema == BOARD_SCHEMA && info.value_size == sizeof(*ret))
		return 0;
	say(why,
	    "%s: written by flightsplice %.*s (process %u) with schema %u, while this is %s with "
	    "schema %u: use the commands of that version, or bpftool map dump pinned %s/streams",
	    folder, (int)sizeof(ret->version) - 1, ret->version, ret->pid, ret->schema, fs_version,
	    BOARD_SCHEMA, folder);
	return -EPROTO;
}

/* Whether /proc says that pid is ours and stopped. In another PID namespace it says nothing. */
static bool is_stopped(uint32_t pid)
{
	char path[32], line[128] = "";
	const char *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	state = strrchr(line, ')');
	return strstr(line, "(flightsplice)") && state && (state[2] == 'T' || state[2] == 't');
}

static enum snapshot_process process_of(const char *folder, uint32_t pid)
{
	if (pins_held(folder) == 0)
		return SNAPSHOT_GONE;
	return is_stopped(pid) ? SNAPSHOT_STOPPED : SNAPSHOT_RUNNING;
}

/* ---------------------------------------------------------------- the kernel's own counters */

static const struct abi_stream *find_stream(const struct abi_pair *p, uint32_t id)
{
	uint32_t first = ABI_STREAM_SET(id);
	const struct abi_stream *set = &p->streams[first];

	for (unsigned i = 0; i < ABI_STREAM_WAYS; i++)
		if (set[i].id == id)
			return &set[i];
	return NULL;
}

static void count_live(struct board_stream *v, const struct abi_pair *p, uint64_t now_unix_ms)
{
	const struct abi_stream *s;
	uint64_t more;

	if (p->generation != v->kernel_generation)
		return;
	s = find_stream(p, v->stream_id);
	if (!s || s->data < v->kernel_bytes)
		return;
	more = s->data - v->kernel_bytes;
	v->bytes += more;
	v->granted_bytes -= min_u64(more, v->granted_bytes);
	v->kernel_bytes = s->data;
	v->written_unix_ms = now_unix_ms;
}

/* A spliced stream moves on while its process is stopped; the pairs are pinned beside the board. */
static void add_kernel_counts(struct snapshot *s, unsigned first, const char *folder)
{
	struct bpf_map_info info;
	struct abi_pair pair;
	int fd = map_open(folder, "pairs", &info);

	if (fd < 0)
		return;
	for (unsigned i = first; info.value_size == sizeof(pair) && i < s->n_streams; i++) {
		struct board_stream *v = &s->streams[i].v;

		if (v->spliced && !bpf_map_lookup_elem(fd, &v->kernel_slot, &pair))
			count_live(v, &pair, s->taken_unix_ms);
	}
	close(fd);
}

/* ---------------------------------------------------------------- all of it */

static int read_maps(struct snapshot *s, unsigned index, const char *folder,
		     const struct board_build *build)
{
	struct target streams = TARGET(s->streams, s->n_streams),
		      clients = TARGET(s->clients, s->n_clients),
		      executors = TARGET(s->executors, s->n_executors),
		      drops = TARGET(s->drops, s->n_drops);
	unsigned first = s->n_streams;
	int r = read_hash(folder, "streams", index, &streams);

	if (!r)
		r = read_hash(folder, "clients", index, &clients);
	if (!r)
		r = read_hash(folder, "executors", index, &executors);
	if (!r)
		r = read_hash(folder, "drops", index, &drops);
	if (!r && build->abi == ABI_VERSION)
		add_kernel_counts(s, first, folder);
	return r;
}

/* 0, or -errno; what there is to be said about it is in s->problem. */
static int read_instance(struct snapshot *s, const char *folder)
{
	struct snapshot_instance *more, *i;
	struct board_build build;
	int r = read_build(folder, &build, s->problem);

	if (r)
		return r;
	more = reallocarray(s->instances, s->n_instances + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	s->instances = more;
	i = &more[s->n_instances];
	memset(i, 0, sizeof(*i));
	snprintf(i->folder, sizeof(i->folder), "%s", folder);
	i->build = build;
	i->process = process_of(folder, build.pid);
	r = read_single(folder, "totals", &i->totals, sizeof(i->totals));
	if (!r)
		r = read_maps(s, s->n_instances, folder, &build);
	if (r)
		say(s->problem, "%s: %s", folder, strerrordesc_np(-r));
	/* Rows that refer to it may be there already. */
	s->n_instances++;
	return r;
}

static void explain(const char *dir, int err, char why[SNAPSHOT_WHY_MAX])
{
	char parent[PINS_PATH_MAX];
	char *slash;

	snprintf(parent, sizeof(parent), "%s", dir);
	slash = strrchr(parent, '/');
	if (slash && slash != parent)
		*slash = '\0';
	if (err == -EPERM || err == -EACCES)
		snprintf(why, SNAPSHOT_WHY_MAX,
			 "may not read the pinned maps in %.128s: be root, or have CAP_BPF and the "
			 "permission to read that folder",
			 dir);
	else if (access(parent, X_OK) && errno == EACCES)
		snprintf(why, SNAPSHOT_WHY_MAX,
			 "may not look into %.128s: be root, or have CAP_DAC_OVERRIDE and CAP_BPF",
			 parent);
	else if (err != -ENOENT)
		snprintf(why, SNAPSHOT_WHY_MAX, "%.128s: %s", dir, strerrordesc_np(-err));
	else if (!pins_on_bpffs(parent))
		snprintf(why, SNAPSHOT_WHY_MAX,
			 "there are no pinned maps: %.128s is not a bpf file system (in a "
			 "container: "
			 "mount the host's /sys/fs/bpf; or name another folder with --pin-dir)",
			 parent);
	else
		snprintf(why, SNAPSHOT_WHY_MAX,
			 "there are no pinned maps in %.128s: no flightsplice runs with that "
			 "--pin-dir, or it runs without CAP_BPF (its line msg=serving then says "
			 "pins=off and why)",
			 dir);
}

static uint64_t now_unix_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / NSEC_PER_MSEC;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

int board_read(const char *pin_dir, struct snapshot **ret, char why[SNAPSHOT_WHY_MAX])
{
	struct snapshot *s = calloc(1, sizeof(*s));
	int first_err = -ENOENT;

	if (!s) {
		snprintf(why, SNAPSHOT_WHY_MAX, "out of memory");
		return -ENOMEM;
	}
	libbpf_set_print(quiet);
	s->taken_unix_ms = now_unix_ms();
	for (unsigned i = 0; i < PINS_FOLDERS; i++) {
		char folder[PINS_PATH_MAX];
		int r = pins_path(pin_dir, i, folder);

		if (!r)
			r = read_instance(s, folder);
		if (r && first_err == -ENOENT)
			first_err = r;
	}
	if (s->n_instances) {
		*ret = s;
		return 0;
	}
	if (s->problem[0])
		snprintf(why, SNAPSHOT_WHY_MAX, "%s", s->problem);
	else
		explain(pin_dir, first_err, why);
	board_read_free(s);
	return first_err;
}

void board_read_free(struct snapshot *s)
{
	if (!s)
		return;
	free(s->instances);
	free(s->streams);
	free(s->clients);
	free(s->executors);
	free(s->drops);
	free(s);
}
