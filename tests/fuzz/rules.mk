# SPDX-License-Identifier: Apache-2.0
#
# The world in which a session runs is shared by a fuzz target and a unit test.

FUZZ_WORLD := world peer kernel script

fuzz_world = $(FUZZ_WORLD:%=$(1)/obj/tests/fuzz/%.o)
$(BUILD)/fuzz/fuzz_session: $(call fuzz_world,$(BUILD)/fuzz)
$(BUILD)/tests/fuzz/fuzz_session: $(call fuzz_world,$(BUILD))
$(BUILD)/tests/unit/test_failmalloc: $(call fuzz_world,$(BUILD))
$(BUILD)/asan/tests/unit/test_failmalloc: $(call fuzz_world,$(BUILD)/asan)

# Each allocation of the product's own code goes through the test.
LDFLAGS_tests/unit/test_failmalloc := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free \
	-Wl,--wrap=nghttp2_hd_inflate_new
