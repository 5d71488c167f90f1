/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h - an intrusive doubly linked list with a sentinel head.
 *
 * A node is in at most one list; list_del() leaves it pointing at itself, so
 * deleting twice is harmless and list_empty(node) tells whether it is linked.
 */
#ifndef FS_LIST_H
#define FS_LIST_H

#include "base/base.h"

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_between(struct list *n, struct list *prev, struct list *next)
{
	assert(prev && next); /* list_init() was called; static analysis cannot know */
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

/* Appends n; n must not be in a list. */
static inline void list_add_tail(struct list *head, struct list *n)
{
	list_insert_between(n, head->prev, head);
}

static inline void list_add_head(struct list *head, struct list *n)
{
	list_insert_between(n, head, head->next);
}

static inline void list_del(struct list *n)
{
	/* The analyser takes the node before, freed once out of the list, for still being in it. */
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)

/* Safe against deletion of `pos` (not of the node after it). */
#define list_for_each_safe(pos, tmp, head)                                                         \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head);                           \
	     (pos) = (tmp), (tmp) = (pos)->next)

#endif
