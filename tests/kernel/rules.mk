# SPDX-License-Identifier: Apache-2.0
# The kernel facts share one BPF object and lib/fact.c.
$(foreach f,$(filter-out %.bpf.c,$(wildcard tests/kernel/*.c)),$(eval \
	$(f:%.c=$(BUILD)/%): $(BUILD)/obj/tests/kernel/lib/fact.o)$(eval \
	$(f:%.c=$(BUILD)/obj/%.o): | $(BUILD)/tests/kernel/fact.skel.h))
$(BUILD)/obj/tests/kernel/lib/fact.o: | $(BUILD)/tests/kernel/fact.skel.h
