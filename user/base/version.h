/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version.h - what this build calls itself. The Makefile passes both; a plain
 * compile without it is a development build.
 */
#ifndef FS_VERSION_H
#define FS_VERSION_H

#ifndef FS_VERSION
#define FS_VERSION "0.1.0-dev"
#endif

/* Abbreviated commit, "unknown" outside a checkout. */
#ifndef FS_REVISION
#define FS_REVISION "unknown"
#endif

#endif
