/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suggest.h - "did you mean": the nearest of some names.
 */
#ifndef FS_SUGGEST_H
#define FS_SUGGEST_H

#include "base/base.h"

/*
 * Feed each candidate; .best is the nearest by edits (insert, delete, replace, swap),
 * NULL when none is near enough to be meant.
 */
struct suggest {
	const char *text; /* what was typed */
	const char *best;
	unsigned distance; /* of best */
};

void suggest_init(struct suggest *s, const char *text);
void suggest_offer(struct suggest *s, const char *candidate);

#endif
