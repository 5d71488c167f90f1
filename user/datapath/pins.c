/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.c - see pins.h.
 *
 * Two locks on the open folder: flock() decides who owns it. An open-file-description read lock only
 * says so to readers, who can ask for it with F_OFD_GETLK: asking takes nothing, whereas a reader
 * that tried the flock() would be in the way of a process that starts at the same moment.
 *
 * A folder may be removed between our mkdir() and our flock() by an owner that ends. So the lock
 * counts only when the path still leads to what is locked, and nobody removes a folder without its
 * lock.
 */
#include "datapath/pins.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define LOCK_TRIES 8

/* Everything that any release has ever pinned. */
static const char *const names[] = { "build", "totals", "drops",  "streams", "clients", "executors",
				     "info",  "pairs",  "routes", "workers", "conns" };

struct pins {
	char dir[PINS_PATH_MAX], folder[PINS_PATH_MAX];
	unsigned index;
	int fd; /* of the folder, locked */
};

static int printf_like(3, 4) fail(char why[PINS_WHY_MAX], int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, PINS_WHY_MAX, format, args);
	va_end(args);
	return err;
}

bool pins_on_bpffs(const char *path)
{
	struct statfs fs;

	return !statfs(path, &fs) && (unsigned long)fs.f_type == BPF_FS_MAGIC;
}

int pins_path(const char *dir, unsigned i, char buf[PINS_PATH_MAX])
{
	int n = i ? snprintf(buf, PINS_PATH_MAX, "%s/%u", dir, i + 1)
		  : snprintf(buf, PINS_PATH_MAX, "%s", dir);

	return n < 0 || n >= PINS_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* ---------------------------------------------------------------- one folder */

/* "PATH/NAME" of a pin. Folders' paths leave room for it. */
static int pin_path(const char *folder, const char *name, char buf[PINS_PATH_MAX])
{
	int n = snprintf(buf, PINS_PATH_MAX, "%s/%s", folder, name);

	return n < 0 || n >= PINS_PATH_MAX ? -ENAMETOOLONG : 0;
}

static void empty(const char *folder)
{
	char path[PINS_PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!pin_path(folder, names[i], path))
			unlink(path);
}

static bool is_at(int fd, const char *path)
{
	struct stat a, b;

	return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int try_lock(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		int err = errno == EWOULDBLOCK ? -EBUSY : -errno;

		close(fd);
		return err;
	}
	if (is_at(fd, path))
		return fd;
	close(fd);
	return -ENOENT;
}

/* The folder's descriptor, locked, or -errno; -EBUSY: it has an owner. make: creates it if need be. */
static int lock_folder(const char *path, bool make)
{
	int r = -ENOENT;

	for (unsigned i = 0; i < LOCK_TRIES && r == -ENOENT; i++) {
		if (make && mkdir(path, 0755) && errno != EEXIST)
			return -errno;
		r = try_lock(path);
		if (!make)
			break;
	}
	return r;
}

static void show_held(int fd)
{
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

	/* Without it readers take us for dead: a wrong remark, no wrong data. */
	(void)fcntl(fd, F_OFD_SETLK, &l);
}

int pins_held(const char *folder)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = fcntl(fd, F_OFD_GETLK, &l) ? -errno : l.l_type != F_UNLCK;
	close(fd);
	return r;
}

/* ---------------------------------------------------------------- all of them */

/* Makes sure that dir lies in a bpf file system. */
static int find_bpffs(const char *dir, bool may_mount, char why[PINS_WHY_MAX])
{
	char parent[PINS_PATH_MAX];
	char *slash;

	snprintf(parent, sizeof(parent), "%s", dir);
	slash = strrchr(parent, '/');
	if (!slash || slash == parent)
		return fail(why, -EINVAL, "%.160s is not a folder below a bpf file system", dir);
	*slash = '\0';
	if (!pins_on_bpffs(parent) && may_mount)
		mount("bpf", parent, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700");
	if (pins_on_bpffs(parent))
		return 0;
	if (access(parent, X_OK))
		return fail(why, -errno, "%.128s: %s", parent, strerrordesc_np(errno));
	return fail(why, -ENODEV,
		    "%.64s is not a bpf file system; mount -t bpf bpf %.64s (in a container: a "
		    "hostPath volume of it)",
		    parent, parent);
}

/* Removes what dead owners have left. We hold the first folder, or somebody else does. */
static void sweep(const struct pins *p)
{
	char path[PINS_PATH_MAX];

	for (unsigned i = 1; i < PINS_FOLDERS; i++) {
		int fd;

		if (i == p->index || pins_path(p->dir, i, path))
			continue;
		fd = lock_folder(path, false);
		if (fd < 0)
			continue;
		empty(path);
		rmdir(path);
		close(fd);
	}
}

static int take_first_free(struct pins *p, char why[PINS_WHY_MAX])
{
	unsigned again = LOCK_TRIES;

	for (p->index = 0; p->index < PINS_FOLDERS; p->index++) {
		int r = pins_path(p->dir, p->index, p->folder);

		if (!r)
			r = lock_folder(p->folder, true);
		if (r >= 0) {
			p->fd = r;
			return 0;
		}
		/* The first folder's owner has ended meanwhile, and removed it. */
		if (r == -ENOENT && p->index && again--)
			p->index = UINT_MAX;
		else if (r != -EBUSY)
			return fail(why, r, "%.160s: %s", p->folder, strerrordesc_np(-r));
	}
	return fail(why, -EBUSY, "%.128s and its %u sub-folders belong to running processes",
		    p->dir, PINS_FOLDERS - 1);
}

int pins_claim(const char *dir, bool may_mount, struct pins **ret, char why[PINS_WHY_MAX])
{
	struct pins *p;
	int r;

	/* Room for "/16/executors". */
	if (strlen(dir) > PINS_PATH_MAX - 32)
		return fail(why, -ENAMETOOLONG, "--pin-dir is too long");
	r = find_bpffs(dir, may_mount, why);
	if (r)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fail(why, -ENOMEM, "out of memory");
	snprintf(p->dir, sizeof(p->dir), "%s", dir);
	r = take_first_free(p, why);
	if (r) {
		free(p);
		return r;
	}
	empty(p->folder);
	sweep(p);
	show_held(p->fd);
	*ret = p;
	return 0;
}

void pins_free(struct pins *p)
{
	int fd;

	if (!p)
		return;
	empty(p->folder);
	rmdir(p->folder);
	close(p->fd);
	/* Of the last one, the parent; it may be somebody's, or have a stranger's files. */
	fd = p->index ? lock_folder(p->dir, false) : -1;
	if (fd >= 0) {
		rmdir(p->dir);
		close(fd);
	}
	free(p);
}

const char *pins_folder(const struct pins *p)
{
	return p->folder;
}

int pins_put(struct pins *p, const char *name, int fd, char why[PINS_WHY_MAX])
{
	char path[PINS_PATH_MAX];
	int r = pin_path(p->folder, name, path);

	if (!r && bpf_obj_pin(fd, path))
		r = -errno;
	if (r)
		return fail(why, r, "%.160s: %s", path, strerrordesc_np(-r));
	return 0;
}
