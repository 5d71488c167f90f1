/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.h - judges by behaviour whether this kernel splices correctly.
 *
 * Kernel versions say little: stable kernels have gained and lost sockmap bugs in the same series.
 * So the programs are loaded and made to work over loopback, with every byte compared. Each check
 * takes well below 300 ms, all of them half a second; on a machine that has no time for us they may
 * take SELFTEST_CHECK_NS, but once one has failed the others do not get that long.
 */
#ifndef FS_DATAPATH_SELFTEST_H
#define FS_DATAPATH_SELFTEST_H

#include "datapath/sockmap.h"

#define SELFTEST_CHECK_NS (10 * NSEC_PER_SEC)
#define SELFTEST_AFTER_FAILURE_NS (2 * NSEC_PER_SEC)
#define SELFTEST_REASON 256
#define SELFTEST_CHECKS 16

enum selftest_status {
	SELFTEST_PASS,
	SELFTEST_FAIL, /* the sockmap datapath must not be used */
	SELFTEST_SKIP, /* not tried: an earlier check makes it pointless */
	SELFTEST_NOTE, /* something optional is missing, or worth knowing; nothing depends on it */
};
const char *selftest_status_name(enum selftest_status s); /* "pass", "FAIL", "skip", "note" */

struct selftest_check {
	const char *name; /* "load", "splice", ... */
	const char *what; /* what it shows, in a few words */
	enum selftest_status status;
	uint64_t ns;                  /* how long it took */
	char reason[SELFTEST_REASON]; /* for a person; "" when it passed */
};

struct selftest {
	char kernel[65]; /* uname -r */
	struct selftest_check checks[SELFTEST_CHECKS];
	size_t n;
	bool sockmap;              /* every check that matters has passed */
	char why[SELFTEST_REASON]; /* the first failure: "splice: ..."; "" when sockmap */
};

struct selftest_options {
	const char *pin_dir; /* --pin-dir of serve: only looked at, nothing stays there */
	bool may_mount;
	const char *cgroup;
	/*
	 * Names of checks, separated by commas, whose subject is made to misbehave (a byte falsified, a
	 * wake-up withheld, a privilege denied), so that tests can see that the check notices and that
	 * the datapath is then really off. NULL or "" = none. The command and `serve` take it from the
	 * environment variable SELFTEST_SABOTAGE_ENV.
	 */
	const char *sabotage;
};
#define SELFTEST_SABOTAGE_ENV "SELFTEST_SABOTAGE" /* no flag of serve, hence without its prefix */

/* Never fails: what goes wrong is in *ret. */
void selftest_run(const struct selftest_options *opt, struct selftest *ret);

#endif
