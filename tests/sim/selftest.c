/* SPDX-License-Identifier: Apache-2.0 */
#include "selftest.h"

unsigned selftest_run(uint64_t seed, void (*watch)(const char *name, uint64_t seed),
		      unsigned *total)
{
	(void)seed, (void)watch, (void)total;
	return 0;
}
