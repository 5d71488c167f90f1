/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fact 8. An array map with BPF_F_MMAPABLE is shared memory between the verdict and the process, in
 * both directions and without system calls.
 */
#include <sys/mman.h>

#include "kernel/lib/fact.h"

int main(void)
{
	struct rig r;
	volatile uint64_t *shared;

	begin(&r, "fact-8-mapped-array");
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(r.f->maps.shared),
		      0);
	need(shared != MAP_FAILED, "mmap of an array map");
	splice(&r);
	transfer(&r, 10000, 65536, 3000);
	if (shared[0] != 10000)
		fail("the process reads %llu", (unsigned long long)shared[0]);
	shared[1] = 1000000;
	transfer(&r, 1, 65536, 3000);
	if (shared[0] != 1010001)
		fail("the program did not see what the process wrote: %llu",
		     (unsigned long long)shared[0]);
	pass();
}
