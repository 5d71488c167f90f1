# SPDX-License-Identifier: Apache-2.0
#
# Everything is built into $(BUILD) and nothing outside of it is written.
#
#   proto/*.proto   -> build/gen/*.pb-c.[ch]
#   user/obs/*.html -> build/gen/*.page.c
#   bpf/*.bpf.c     -> build/bpf/*.bpf.o -> build/gen/*.skel.h
#   user/**/*.c     -> build/libflightsplice.a (all but user/main.c) -> build/flightsplice
#   tests/SUITE/*.c -> build/tests/SUITE/NAME
#
# The user code is compiled in three variants, each a folder with the same inside: build (plain),
# build/asan (ASan+UBSan, gcc) and build/fuzz (libFuzzer+ASan+UBSan, clang). Sources are found by
# looking, so a new file needs no line here; a test folder that needs more than the rule for its
# kind puts it into a tests/SUITE/rules.mk.
#
# `make help` lists the targets.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
V ?= 0
# Layers of user/ that go into the library; `make LAYERS="base h2" BUILD=/tmp/x tests-unit` builds
# a part of it while another part does not compile.
LAYERS ?= $(notdir $(patsubst %/,%,$(wildcard user/*/)))

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin AR),default)
AR := gcc-ar
endif
first_of = $(firstword $(foreach t,$(1),$(shell command -v $(t) 2>/dev/null)) $(lastword $(1)))
CLANG ?= $(call first_of,clang-14 clang)
CLANG_TIDY ?= clang-tidy-14
CLANG_FORMAT ?= clang-format-14
CPPCHECK ?= cppcheck
PROTOC_C ?= protoc-c
PKG_CONFIG ?= pkg-config
# Ubuntu's /usr/sbin/bpftool is a wrapper that refuses every kernel but its own; the real ones
# are in /usr/lib/linux-tools*.
BPFTOOL ?= $(firstword $(lastword $(sort $(wildcard /usr/lib/linux-tools/*/bpftool))) \
	$(wildcard /usr/sbin/bpftool /usr/local/sbin/bpftool) bpftool)

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: FORCE
FORCE:
.DEFAULT_GOAL := all

ifeq ($(V),1)
Q :=
say :=
else
Q := @
say = @printf '  %-6s %s\n' $(1) $(2)
endif
# Writes text $(1) to the target when that changes it: a prerequisite that is as old as its content.
write_if_changed = @mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || \
	printf '%s\n' '$(subst ','\'',$(1))' >$@

# ---------------------------------------------------------------- flags

PACKAGES := libuv libnghttp2 libprotobuf-c libbpf jansson libmicrohttpd libcap-ng libseccomp ncursesw
# Asked at most once, and not before something is compiled: `make check` has to start on a machine
# that does not have them yet.
once = $(eval $(1) := $(2))$($(1))
PACKAGE_CFLAGS = $(call once,PACKAGE_CFLAGS,$(shell $(PKG_CONFIG) --cflags $(PACKAGES)))
PACKAGE_LIBS = $(call once,PACKAGE_LIBS,$(shell $(PKG_CONFIG) --libs $(PACKAGES)))

GEN := $(BUILD)/gen
WERROR ?= -Werror
WARNINGS := -Wall -Wextra $(WERROR) -Wshadow -Wstrict-prototypes -Wmissing-prototypes
CPPFLAGS_ALL = -D_GNU_SOURCE= -Iuser -Ibpf/include -I$(GEN) $(PACKAGE_CFLAGS) $(CPPFLAGS)
CFLAGS ?= -O2 -g
CFLAGS_ALL = -std=gnu11 $(WARNINGS) -fPIE -pthread $(CFLAGS)
LDFLAGS_ALL = -pie -pthread -Wl,-z,relro,-z,now -Wl,--as-needed $(LDFLAGS)
HARDEN := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer -U_FORTIFY_SOURCE

VERSION := $(shell cat VERSION)
# 0.1.0 on the tag v0.1.0 and outside of git, else 0.1.0+gCOMMIT[.dirty].
git = GIT_OPTIONAL_LOCKS=0 git $(1) 2>/dev/null
FULL_VERSION = $(call once,FULL_VERSION,$(VERSION)$(shell test -e .git && \
	{ $(call git,describe --exact-match --match v$(VERSION)) >/dev/null || \
	  $(call git,describe --always --dirty=.dirty --exclude '*') | sed 's/^/+g/'; }))

# ---------------------------------------------------------------- sources

rwildcard = $(foreach d,$(wildcard $(1)/*),$(call rwildcard,$(d),$(2)) $(filter $(2),$(d)))
USER_SRC := $(sort $(foreach l,$(LAYERS),$(call rwildcard,user/$(l),%.c)) \
	$(if $(filter file,$(origin LAYERS)),$(filter-out user/main.c,$(wildcard user/*.c))))
MAIN_SRC := $(wildcard user/main.c)
PROTO := $(wildcard proto/*.proto)
PROTO_C := $(PROTO:proto/%.proto=$(GEN)/%.pb-c.c)
BPF_SRC := $(wildcard bpf/*.bpf.c)
SKELETONS := $(BPF_SRC:bpf/%.bpf.c=$(GEN)/%.skel.h)
PAGES := $(wildcard user/obs/*.html)
PAGES_C := $(PAGES:user/obs/%.html=$(GEN)/%.page.c)

suite_src = $(filter-out %.bpf.c,$(wildcard tests/$(1)/*.c))
suite_bin = $(patsubst tests/%.c,$(2)/tests/%,$(call suite_src,$(1)))
# Each .c is a program that is linked with the library (those of `unit` with cmocka too). The tools of
# tests/e2e are not among them: they share no code with what they judge, and its script builds them.
LIBRARY_SUITES := unit netns bench
SIM_SRC := $(call suite_src,sim)
KERNEL_BPF := $(wildcard tests/kernel/*.bpf.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZERS := $(FUZZ_SRC:tests/fuzz/%.c=$(BUILD)/fuzz/%)

# ---------------------------------------------------------------- generated code

gen: $(PROTO_C) $(SKELETONS) $(PAGES_C)

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h &: proto/%.proto
	$(call say,PROTOC,$<)
	$(Q)mkdir -p $(GEN)
	$(Q)$(PROTOC_C) -Iproto --c_out=$(GEN) $<

$(GEN)/%.page.c: user/obs/%.html scripts/embed-page
	$(call say,PAGE,$<)
	$(Q)mkdir -p $(GEN)
	$(Q)scripts/embed-page $< >$@

# The types of the running kernel. CO-RE relocates field offsets when a program is loaded, so any
# recent kernel's file will do and the object runs on other kernels. It is made rather than checked
# in (100,000 generated lines); where a kernel shows no BTF (some containers, old distributions),
# point VMLINUX_BTF to another kernel's image or VMLINUX_H to a header made elsewhere.
VMLINUX_BTF ?= /sys/kernel/btf/vmlinux
VMLINUX_H ?=
$(BUILD)/vmlinux/vmlinux.h:
	$(call say,BTF,$(or $(VMLINUX_H),$(VMLINUX_BTF)))
	$(Q)mkdir -p $(@D)
ifneq ($(VMLINUX_H),)
	$(Q)cp $(VMLINUX_H) $@
else
	$(Q)test -r $(VMLINUX_BTF) || { \
		echo "$(VMLINUX_BTF) is missing: this kernel shows no type information (CONFIG_DEBUG_INFO_BTF)." >&2; \
		echo "The BPF programs need it to be compiled. Build on a machine that has it, or name another" >&2; \
		echo "kernel's: make VMLINUX_BTF=/path/to/vmlinux, or make VMLINUX_H=/path/to/vmlinux.h" >&2; \
		exit 1; }
	$(Q)$(BPFTOOL) btf dump file $(VMLINUX_BTF) format c >$@
endif

BPF_ARCH := $(shell uname -m | sed 's/x86_64/x86/; s/aarch64/arm64/; s/ppc64le/powerpc/; s/riscv64/riscv/')
BPF_CFLAGS := -O2 -g -target bpf -std=gnu11 -D__TARGET_ARCH_$(BPF_ARCH) -Wall -Werror \
	-Ibpf/include -Ibpf -isystem $(BUILD)/vmlinux -idirafter /usr/include/$(shell uname -m)-linux-gnu

# $(1) source folder, $(2) object folder, $(3) skeleton folder
define bpf_rules
$(2)/%.bpf.o: $(1)/%.bpf.c $(BUILD)/vmlinux/vmlinux.h
	$$(call say,BPF,$$<)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(CLANG) $$(BPF_CFLAGS) -MMD -MP -c -o $$@ $$<
$(3)/%.skel.h: $(2)/%.bpf.o
	$$(call say,SKEL,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q){ echo '/* NOLINTBEGIN: generated */' && $$(BPFTOOL) gen skeleton $$< name $$(subst -,_,$$*) && \
		echo '/* NOLINTEND */'; } >$$@
endef
$(eval $(call bpf_rules,bpf,$(BUILD)/bpf,$(GEN)))
$(eval $(call bpf_rules,tests/kernel,$(BUILD)/bpf/tests,$(BUILD)/tests/kernel))

# ---------------------------------------------------------------- the variants

# $(1) folder, $(2) compiler, $(3) flags for compiling and linking, $(4) flags for compiling only
define variant_rules
$(1)/flags: FORCE
	@$$(PKG_CONFIG) --exists --print-errors $$(PACKAGES) || \
		{ echo "A library is missing; scripts/setup installs all of them." >&2; exit 1; }
	$$(call write_if_changed,$(2) $$(CPPFLAGS_ALL) $$(CFLAGS_ALL) $(3) $(4) $$(LDFLAGS_ALL))

$(1)/version: FORCE
	$$(call write_if_changed,$$(FULL_VERSION))

$(1)/obj/%.o: %.c $(1)/flags | $$(PROTO_C)
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(2) $$(CPPFLAGS_ALL) $$(CFLAGS_ALL) $(3) $(4) $$(CFLAGS_$$*) -MMD -MP -c -o $$@ $$<

$(1)/obj/gen/%.o: $(GEN)/%.c $(1)/flags
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(2) $$(CPPFLAGS_ALL) $$(CFLAGS_ALL) $(3) $(4) -MMD -MP -c -o $$@ $$<

# `private`: a target's own flags are not those of its prerequisites, $(1)/flags above all.
# Only the files that name it are compiled again when the version changes.
$$(patsubst %.c,$(1)/obj/%.o,$$(VERSIONED)): private CPPFLAGS_ALL += -DFLIGHTSPLICE_VERSION='"$$(FULL_VERSION)"'
$$(patsubst %.c,$(1)/obj/%.o,$$(VERSIONED)): $(1)/version

$$(patsubst %.c,$(1)/obj/%.o,$$(filter user/datapath/%,$$(USER_SRC)) $$(MAIN_SRC)): | $$(SKELETONS)

# The list is a prerequisite so that a file that is gone leaves the archive too.
$(1)/library.list: FORCE
	$$(call write_if_changed,$$(USER_SRC) $$(PROTO) $$(PAGES))
$(1)/libflightsplice.a: $(1)/library.list $$(USER_SRC:%.c=$(1)/obj/%.o) $$(patsubst $(GEN)/%.c,$(1)/obj/gen/%.o,$$(PROTO_C) $$(PAGES_C))
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@
	$$(Q)$$(AR) rcsD $$@ $$(filter %.o,$$^)

$(1)/flightsplice: $(1)/obj/user/main.o $(1)/libflightsplice.a
	$$(call say,LINK,$$@)
	$$(Q)$(2) $$(LDFLAGS_ALL) $(3) -o $$@ $$(filter %.o %.a,$$^) $$(PACKAGE_LIBS) $$(LDLIBS)
endef

# $(1) folder, $(2) compiler, $(3) flags, $(4) suite
define suite_rules
$(1)/tests/$(4)/%: $(1)/obj/tests/$(4)/%.o $(1)/libflightsplice.a
	$$(call say,LINK,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(2) $$(LDFLAGS_ALL) $(3) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) $$(LDFLAGS_tests/$(4)/$$*) \
		$$(if $$(filter unit,$(4)),-lcmocka) $$(PACKAGE_LIBS) $$(LDLIBS) $$(LDLIBS_$(4))
endef

# $(1) folder, $(2) compiler, $(3) flags
define test_rules
$(foreach s,$(LIBRARY_SUITES),$(eval $(call suite_rules,$(1),$(2),$(3),$(s))))

# All files of tests/sim make one program.
$(1)/tests/sim/sim: $$(SIM_SRC:%.c=$(1)/obj/%.o) $(1)/libflightsplice.a
	$$(call say,LINK,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(2) $$(LDFLAGS_ALL) $(3) -o $$@ $$(filter %.o %.a,$$^) -lcmocka $$(PACKAGE_LIBS) $$(LDLIBS)
endef

VERSIONED := $(shell grep -rl --include='*.c' FLIGHTSPLICE_VERSION user tests 2>/dev/null)

$(eval $(call variant_rules,$(BUILD),$(CC),$(HARDEN)))
$(eval $(call test_rules,$(BUILD),$(CC),$(HARDEN)))
$(eval $(call variant_rules,$(BUILD)/asan,$(CC),$(SANITIZE)))
$(eval $(call test_rules,$(BUILD)/asan,$(CC),$(SANITIZE)))
$(eval $(call variant_rules,$(BUILD)/fuzz,$(CLANG),$(SANITIZE),-fsanitize=fuzzer-no-link))

# Tests include each other's headers from tests/, inline functions shared with BPF from bpf/ and a
# kernel test its skeleton.
$(BUILD)/obj/tests/%.o $(BUILD)/asan/obj/tests/%.o $(BUILD)/fuzz/obj/tests/%.o: \
	private CPPFLAGS_ALL += -Itests -Ibpf -I$(BUILD)/tests/kernel

# libFuzzer calls an entry point that no header declares.
$(BUILD)/fuzz/obj/tests/%.o $(BUILD)/obj/tests/fuzz/%.o: private WARNINGS += -Wno-missing-prototypes
$(FUZZERS): $(BUILD)/fuzz/%: $(BUILD)/fuzz/obj/tests/fuzz/%.o $(BUILD)/fuzz/libflightsplice.a
	$(call say,LINK,$@)
	$(Q)$(CLANG) $(LDFLAGS_ALL) $(SANITIZE) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(filter %.a,$^) $(PACKAGE_LIBS)

# The same entry point without libFuzzer, to replay a corpus against the code as it is shipped.
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/obj/tests/fuzz/replay.o $(BUILD)/libflightsplice.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(HARDEN) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(PACKAGE_LIBS)

# Kernel facts are tested without the product's code: libbpf and the test's own BPF program only.
$(foreach b,$(KERNEL_BPF),$(eval \
	$(b:tests/%.bpf.c=$(BUILD)/obj/tests/%.o): | $(b:tests/%.bpf.c=$(BUILD)/tests/%.skel.h)))
$(BUILD)/tests/kernel/%: $(BUILD)/obj/tests/kernel/%.o
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) $(HARDEN) -o $@ $(filter %.o %.a,$^) $(PACKAGE_LIBS)

-include $(wildcard tests/*/rules.mk)

# ---------------------------------------------------------------- targets

.PHONY: all gen tests tests-asan tests-unit-asan tests-sim-asan asan check quickstart bench install
.PHONY: lint format fuzz soak clean help

program = $(MAIN_SRC:user/main.c=$(1)/flightsplice)

all: $(BUILD)/libflightsplice.a $(SKELETONS) $(call program,$(BUILD))

asan: $(BUILD)/asan/libflightsplice.a $(call program,$(BUILD)/asan)

SUITES_BUILT := unit sim kernel fuzz netns bench
$(foreach s,unit kernel netns bench,$(eval tests-$(s): $(call suite_bin,$(s),$(BUILD))))
tests-sim: $(if $(SIM_SRC),$(BUILD)/tests/sim/sim)
tests-fuzz: $(FUZZERS) $(FUZZERS:$(BUILD)/fuzz/%=$(BUILD)/tests/fuzz/%)
tests: $(SUITES_BUILT:%=tests-%)
.PHONY: $(SUITES_BUILT:%=tests-%)
tests-unit-asan: $(call suite_bin,unit,$(BUILD)/asan)
tests-sim-asan: $(if $(SIM_SRC),$(BUILD)/asan/tests/sim/sim)
tests-asan: asan tests-unit-asan tests-sim-asan

check:
	@BUILD=$(BUILD) scripts/test $(SUITES)

quickstart:
	@scripts/quickstart

bench: all $(call suite_bin,bench,$(BUILD))
	@tests/bench/run $(BENCH)

SECONDS ?= 60
fuzz: $(FUZZERS)
	@scripts/fuzz $(SECONDS) $(FUZZERS)

MINUTES ?= 30
soak: all
	@tests/e2e/soak $(MINUTES)

install: all
	$(Q)install -D -m 755 $(BUILD)/flightsplice $(DESTDIR)$(PREFIX)/sbin/flightsplice
	$(Q)for page in $(wildcard docs/*.[1-8] docs/man/*.[1-8]); do \
		install -D -m 644 $$page \
			$(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/} || exit 1; done

clean:
	$(Q)rm -rf $(BUILD)

# ---------------------------------------------------------------- lint

FORMATTED = $(foreach d,user bpf tests,$(call rwildcard,$(d),%.c %.h))
TIDY_SRC := $(USER_SRC) $(MAIN_SRC)

$(BUILD)/lint/%.tidy: %.c $(BUILD)/obj/%.o .clang-tidy
	$(call say,TIDY,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG_TIDY) --quiet $< -- -std=gnu11 $(CPPFLAGS_ALL) 2>$@.err || { cat $@.err >&2; exit 1; }
	$(Q)touch $@

.PHONY: lint-tidy lint-cppcheck lint-format lint-includes lint-shell
lint: lint-includes lint-shell lint-format lint-cppcheck lint-tidy
lint-includes:
	$(call say,CHECK,includes)
	$(Q)scripts/check-includes
lint-shell:
	$(call say,CHECK,scripts)
	$(Q)scripts/check-scripts
lint-format:
	$(call say,CHECK,format)
	$(Q)$(CLANG_FORMAT) --dry-run --Werror $(FORMATTED)
lint-cppcheck: gen
	$(call say,CHECK,cppcheck)
	$(Q)mkdir -p $(BUILD)/lint/cppcheck
	$(Q)$(CPPCHECK) --quiet -j2 --std=c11 --enable=warning,performance,portability --inline-suppr \
		--suppressions-list=.cppcheck-suppressions --error-exitcode=1 \
		--cppcheck-build-dir=$(BUILD)/lint/cppcheck -D_GNU_SOURCE= -D__GNUC__=12 -DFLIGHTSPLICE_VERSION='""' \
		-D'LIBBPF_OPTS(t,n,...)=struct t n = {0}' -D'DECLARE_LIBBPF_OPTS(t,n,...)=struct t n = {0}' \
		-Iuser -Ibpf/include -I$(GEN) $(TIDY_SRC)
lint-tidy: $(TIDY_SRC:%.c=$(BUILD)/lint/%.tidy)

format:
	$(Q)$(CLANG_FORMAT) -i $(FORMATTED)

help:
	@echo 'make                     build/flightsplice (V=1 shows the commands)'
	@echo 'make check               install packages, build, run every test suite (SUITES="unit sim" for some)'
	@echo 'make quickstart          a real query through the proxy on this machine, from nothing'
	@echo 'make bench               measure against other proxies (BENCH=arguments of tests/bench/run)'
	@echo 'make install             DESTDIR= PREFIX=$(PREFIX)'
	@echo 'make lint                clang-tidy, cppcheck, format, include order, script syntax'
	@echo 'make format              apply .clang-format'
	@echo 'make asan                build/asan/flightsplice with ASan and UBSan'
	@echo 'make tests tests-asan    build the test programs (also tests-unit, -sim, -kernel, -fuzz)'
	@echo 'make fuzz SECONDS=60     fuzz each target that long, on top of its corpus'
	@echo 'make soak MINUTES=30     long run under load'
	@echo 'make clean               remove $(BUILD)/'

-include $(foreach v,$(BUILD) $(BUILD)/asan $(BUILD)/fuzz,$(call rwildcard,$(v)/obj,%.d))
-include $(call rwildcard,$(BUILD)/bpf,%.d)
