/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_SELFTEST_H
#define SIM_SELFTEST_H

#include "world.h"

/*
 * Runs the toy forwarder, which must pass, and each of its mutants, which must be
 * found out. Calls watch(name, seed) before each run. Adds to *total, returns the
 * number of failures.
 */
unsigned selftest_run(uint64_t seed, void (*watch)(const char *name, uint64_t seed),
		      unsigned *total);

#endif
