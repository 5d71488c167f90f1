/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - a snapshot as a table: which rows and columns, their texts, in which order. The one-shot
 * commands print it, top draws it.
 */
#ifndef FS_CLI_VIEW_H
#define FS_CLI_VIEW_H

#include "cli/rates.h"

enum view_kind {
	VIEW_STREAMS,
	VIEW_EXECUTORS, /* one row for each name, whichever workers and processes use it */
	VIEW_CLIENTS,
	VIEW_DATAPATHS,
	VIEW_DROPS, /* summed over processes; reasons that occurred */
	VIEW_KINDS,
};
const char *view_kind_name(enum view_kind k); /* "streams", ... */

#define VIEW_CELL 96

struct view_column {
	const char *title;
	bool right; /* aligned */
};

struct view;

/*
 * s and r must outlive it. r NULL: without rates, and without their column. filter: rows in which some
 * cell contains it, whatever the case; NULL or "" = all. NULL: out of memory.
 */
struct view *view_new(enum view_kind kind, const struct snapshot *s, const struct rates *r,
		      const char *filter);
void view_free(struct view *v);

unsigned view_rows(const struct view *v);
unsigned view_hidden(const struct view *v); /* by the filter */
unsigned view_columns(const struct view *v);
const struct view_column *view_column(const struct view *v, unsigned column);
/* Where rates are, or what comes closest: by what to sort without a wish. */
unsigned view_default_column(const struct view *v);

/* Numbers descending, texts ascending; `reverse` the other way round. Ties keep their order. */
void view_sort(struct view *v, unsigned column, bool reverse);
/* Writes the text; returns buf. */
const char *view_cell(const struct view *v, unsigned row, unsigned column, char buf[VIEW_CELL]);

/* One line about a process that is not simply running; "" otherwise. */
#define VIEW_REMARK 512
const char *view_remark(const struct snapshot *s, unsigned instance, char buf[VIEW_REMARK]);

#endif
