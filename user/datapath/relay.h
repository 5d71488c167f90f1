/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_RELAY_H
#define FS_RELAY_H

struct datapath;

/* The userspace datapath; struct env wants its address. */
extern const struct datapath datapath_relay;

#endif
