/* SPDX-License-Identifier: Apache-2.0 */
#include "net/poller.h"

#include <stdlib.h>

struct poller_item {
	struct watch watch;
	struct deferred later; /* the call, then the burial */
	void (*on_events)(void *arg, unsigned events);
	void (*on_soon)(void *arg);
	void *arg;
};

static void item_events(struct watch *w, unsigned events)
{
	struct poller_item *i = container_of(w, struct poller_item, watch);

	i->on_events(i->arg, events);
}

static void item_soon(struct deferred *d)
{
	struct poller_item *i = container_of(d, struct poller_item, later);

	i->on_soon(i->arg);
}

static void item_free(struct deferred *d)
{
	free(container_of(d, struct poller_item, later));
}

static void bury(struct loop *l, struct poller_item *i)
{
	i->later.fn = item_free;
	loop_bury(l, &i->later);
}

void *poller_watch(void *loop, int fd, unsigned events, void (*fn)(void *arg, unsigned events),
		   void *arg)
{
	struct poller_item *i = calloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->watch = (struct watch){ .fd = fd, .fn = item_events };
	i->on_events = fn;
	i->arg = arg;
	deferred_init(&i->later, item_free);
	if (loop_add(loop, &i->watch, events)) {
		free(i);
		return NULL;
	}
	return i;
}

void poller_forget(void *loop, void *watch)
{
	struct poller_item *i = watch;

	loop_del(loop, &i->watch);
	bury(loop, i);
}

void *poller_soon_new(void *loop, void (*fn)(void *arg), void *arg)
{
	struct poller_item *i = calloc(1, sizeof(*i));

	(void)loop;
	if (!i)
		return NULL;
	i->on_soon = fn;
	i->arg = arg;
	deferred_init(&i->later, item_soon);
	return i;
}

void poller_soon(void *loop, void *soon)
{
	loop_defer(loop, &((struct poller_item *)soon)->later);
}

void poller_soon_free(void *loop, void *soon)
{
	bury(loop, soon);
}
