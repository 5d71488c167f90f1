/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.h - the folder of a bpf file system in which this process pins its maps.
 *
 * The first process gets --pin-dir itself, so that `bpftool map dump pinned DIR/streams` is right on
 * every host with one proxy. Each further one on the same DIR gets DIR/2, DIR/3, ... and so is as
 * visible; `flightsplice streams` looks at all of them. A folder belongs to who holds its flock(2)
 * lock: unlike a process id that works across PID namespaces (containers that share /sys/fs/bpf),
 * and the kernel lets go of it when the process dies, however it does.
 *
 * What a process that died has left stays to be read until somebody takes the folder: maps are never
 * reused, whatever they look like, but removed and pinned anew. Removed is only what we know by name.
 */
#ifndef FS_DATAPATH_PINS_H
#define FS_DATAPATH_PINS_H

#include "base/base.h"

struct pins;

#define PINS_WHY_MAX 256
/* Processes that can share a --pin-dir. */
#define PINS_FOLDERS 16
#define PINS_PATH_MAX 256

/*
 * Takes the first free folder and empties it, and removes what dead processes have left in the
 * others. may_mount: mounts a bpf file system above dir when there is none. 0, or -errno and a
 * sentence for a person in why.
 */
int pins_claim(const char *dir, bool may_mount, struct pins **ret, char why[PINS_WHY_MAX]);
/* Removes what was pinned, then the folder. NULL is fine. */
void pins_free(struct pins *p);

const char *pins_folder(const struct pins *p);
/* Pins a map; name is one of pins_names. 0, or -errno and why. */
int pins_put(struct pins *p, const char *name, int fd, char why[PINS_WHY_MAX]);

/* The path of the i-th folder, 0 <= i < PINS_FOLDERS, of dir. -ENAMETOOLONG. */
int pins_path(const char *dir, unsigned i, char buf[PINS_PATH_MAX]);
/* Somebody holds the folder. 0: nobody does; -errno: it cannot be told, -ENOENT: there is none. */
int pins_held(const char *folder);
bool pins_on_bpffs(const char *path);

#endif
