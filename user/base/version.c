/* SPDX-License-Identifier: Apache-2.0 */
#include "base/version.h"

/* The Makefile defines it for the files that name it. */
#ifndef FLIGHTSPLICE_VERSION
#define FLIGHTSPLICE_VERSION "development"
#endif

const char fs_version[] = FLIGHTSPLICE_VERSION;
