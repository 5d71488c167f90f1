/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - libFuzzer's "run these files" mode for a build without libFuzzer.
 *
 * Linked with a fuzz target it runs each file named on the command line once.
 * So a corpus is replayed against the optimised gcc code that is shipped too,
 * not only against the instrumented clang code that the fuzzer explores. Input
 * is copied into an allocation of just its size, so that valgrind or a guarding
 * allocator sees a read past its end.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	long size = -1;
	int r = -1;

	if (f && !fseek(f, 0, SEEK_END))
		size = ftell(f);
	if (size >= 0)
		data = malloc(size ? (size_t)size : 1);
	if (data) {
		rewind(f);
		if (fread(data, 1, (size_t)size, f) == (size_t)size)
			r = 0;
	}
	if (f)
		fclose(f);
	if (r)
		perror(path);
	else
		LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
	return r;
}

int main(int argc, char **argv)
{
	int r = 0;

	for (int i = 1; i < argc; i++) {
		printf("Running: %s\n", argv[i]);
		fflush(stdout);
		if (replay(argv[i]))
			r = 1;
	}
	return r;
}
