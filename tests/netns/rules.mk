# SPDX-License-Identifier: Apache-2.0
# Programs of tests/netns share lib/lab.c; splice_bench compares with a program of the kernel facts.
NETNS_LAB := splice_bench splice_stress splice_events
$(foreach v,$(BUILD) $(BUILD)/asan,$(eval \
	$(NETNS_LAB:%=$(v)/tests/netns/%): $(v)/obj/tests/netns/lib/lab.o))
$(foreach v,$(BUILD) $(BUILD)/asan,$(eval \
	$(v)/obj/tests/netns/splice_bench.o: | $(BUILD)/tests/kernel/fact.skel.h))
