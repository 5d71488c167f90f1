/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version.h - what this build calls itself.
 */
#ifndef FS_VERSION_H
#define FS_VERSION_H

/* "0.1.0" for a release, "0.1.0+gCOMMIT" or "0.1.0+gCOMMIT.dirty" otherwise. */
extern const char fs_version[];

#endif
