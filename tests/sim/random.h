/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_RANDOM_H
#define SIM_RANDOM_H

#include "scene.h"

/*
 * One run in which everything is chosen by the seed. NULL when all is well, else
 * why not, malloc'ed.
 */
char *random_run(uint64_t seed);

#endif
