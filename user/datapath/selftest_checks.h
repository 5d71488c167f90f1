/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_checks.h - one function for each behaviour that selftest.c lists. 0, or -1 with
 * rig->why. The caller has zeroed the rig and closes it.
 */
#ifndef FS_DATAPATH_SELFTEST_CHECKS_H
#define FS_DATAPATH_SELFTEST_CHECKS_H

#include "datapath/selftest.h"
#include "datapath/selftest_rig.h"

int check_splice(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_slow_reader(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_verdict(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_fin(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_wakeup(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_tap_hold(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_injector(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_leave(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);
int check_limits(struct rig *r, struct sockmap_worker *w, uint64_t deadline_ns);

#endif
