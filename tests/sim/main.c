/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "random.h"
#include "subject.h"

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	unsigned runs = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	unsigned bad = 0;

	world_verbose = argc > 3;
	scene_subject = &subject_session;
	for (unsigned i = 0; i < runs; i++) {
		char *why;
		if (getenv("SHOW")) fprintf(stderr, "seed %llu\n", (unsigned long long)seed + i);
		why = random_run(seed + i);
		if (why) {
			printf("FAIL %llu: %s\n", (unsigned long long)(seed + i), why);
			bad++;
		}
		free(why);
	}
	printf("%u of %u failed\n", bad, runs);
	return bad != 0;
}
