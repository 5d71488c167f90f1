/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 20. A socket that another program's map has under a verdict is refused with EBUSY.
 */
#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	struct fact *other;
	int err;

	begin(&r, "fact-20-busy");
	other = fact__open_and_load();
	need(other, "loading a second time");
	attach(other->progs.redirect, other->maps.sources);
	errno = -put(other->maps.sources, 0, r.u);
	need(!errno, "u into the other's map");
	attach(r.f->progs.redirect, r.f->maps.sources);
	err = put(r.f->maps.sources, 0, r.u);
	if (err != -EBUSY)
		fail("put says %s", err ? strerror(-err) : "ok");
	need(!take(other->maps.sources, 0), "taking it out again");
	/* The verdict of the first is gone; now it is ours. */
	splice(&r);
	transfer(&r, 100000, 65536, 3000);
	pass();
}
