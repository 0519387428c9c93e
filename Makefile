# make                 build/ngx_http_llm_capture_module.so
# make NGINX_SRC=dir   the same, against that nginx source tree
# make demo            a minute's tour: nginx, a mock LLM server, two files
# make test            t/*.t (installs what it needs)
# make check           the long half: t/check/*.t and t/faults/*.t (30 minutes)
# make check-ship      the package, images and examples: t/ship/*.t
# make check-ship-short    of these the package, one image, the manifests
# make check-long      the fault matrix with its long rows, into docs/
# make bench           what capture costs, into docs/ (20 minutes;
#                      with LLM_CAPTURE_BENCH=short a try of 3)
# make llm-capture     build/llm-capture, the command, and its manual
# make install         the module into nginx's modules directory, and the command
# make dist            the source as one file
# make deb             Debian's packages of both
# make picture         docs/capture.svg
# make clean
#
# On Debian, missing packages are installed when root, else named.  Settings:
# NGINX (the binary that is to load the module), NGINX_SRC, CC, CC_OPT, LD_OPT.

MAKEFLAGS += --no-builtin-rules
SHELL     := /bin/sh

NGINX     ?= $(or $(shell command -v nginx),/usr/sbin/nginx)
NGINX_SRC ?= /usr/share/nginx/src
PYTHON    ?= /usr/bin/python3

CC_OPT    ?= -g -O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2
LD_OPT    ?= -Wl,-z,relro -Wl,-z,now

MODULE    := build/ngx_http_llm_capture_module.so
VENV      := build/venv
TREE      := build/nginx

ifeq ($(origin CC),default)
CC        := cc
endif

export CC_OPT LD_OPT CC


all: $(MODULE)

.PHONY: all deps demo-deps test-deps check-deps unit test check check-long \
        demo bench install clean FORCE
.DELETE_ON_ERROR:


# packages

BUILD_PACKAGES := gcc libc6-dev make libpcre2-dev libjansson-dev libmd-dev \
                  zlib1g-dev libzstd-dev

ifeq ($(NGINX_SRC),/usr/share/nginx/src)
BUILD_PACKAGES += nginx nginx-dev
endif

DEMO_PACKAGES  := nginx python3
TEST_PACKAGES  := nginx python3 python3-venv libcmocka-dev perl binutils \
                  openssl strace groff-base

BENCH_PACKAGES := nginx python3 python3-matplotlib g++ libsimdjson-dev \
                  libnginx-mod-http-lua libnginx-mod-http-js valgrind \
                  golang-go libpcap-dev linux-perf python3-venv

# Debian's cargo is too old for the index of crates; cargo-web is not
CHECK_PACKAGES := clang libclang-rt-dev musl-tools valgrind logrotate \
                  ccache libssl-dev dpkg-dev xz-utils \
                  $(if $(shell command -v cargo),,cargo-web)

ifeq ($(NGINX_SRC),/usr/share/nginx/src)
CHECK_PACKAGES += libnginx-mod-http-lua libnginx-mod-http-js \
                  libnginx-mod-http-modsecurity
endif

DEPS = @! command -v dpkg-query > /dev/null || misc/deps.sh

deps:
	$(DEPS) $(BUILD_PACKAGES)

demo-deps:
	$(DEPS) $(sort $(BUILD_PACKAGES) $(DEMO_PACKAGES))

test-deps:
	$(DEPS) $(sort $(BUILD_PACKAGES) $(TEST_PACKAGES))
	@$(MAKE) --no-print-directory $(VENV)/done

check-deps: test-deps
	$(DEPS) $(CHECK_PACKAGES)

$(VENV)/done: t/lib/requirements.txt
	@echo "installing AIPerf and its company into $(VENV)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip -q --disable-pip-version-check install -r $<
	@touch $@


# the module: nginx's own build, in a directory of links to its source

WORDS = $(NGINX_SRC) $(NGINX) $(shell $(NGINX) -V 2>&1 | cksum) \
        $(CC) $(CC_OPT) $(LD_OPT)

build/configured-for: FORCE | deps
	@mkdir -p build
	@echo '$(WORDS)' | cmp -s - $@ || echo '$(WORDS)' > $@

$(TREE)/objs/Makefile: build/configured-for config config.make \
                       misc/configure.sh
	@misc/configure.sh '$(NGINX_SRC)' '$(NGINX)' $(TREE)

$(MODULE): $(TREE)/objs/Makefile FORCE
	@$(MAKE) --no-print-directory -s -C $(TREE) -f objs/Makefile modules
	@cmp -s $(TREE)/objs/$(@F) $@ || { \
	    cp $(TREE)/objs/$(@F) $@.new && mv $@.new $@ && echo "built $@"; }

FORCE:


# the pure half with the compiler alone, and its unit tests
#
# t/unit/NAME.c        -> build/unit/NAME
# t/unit/NAME_tsan.c   with -fsanitize=thread
# t/unit/NAME_asan.c   with -fsanitize=address,undefined
# one that includes the header of the fault points is built with them

PURE       := $(shell sh misc/sources.sh pure)
PURE_SRCS  := $(wildcard $(PURE:%=src/ngx_http_llm_capture_%.c))

UNIT_FLAGS := -std=c11 -O2 -g -Wall -Wextra -Werror -Isrc -MMD -MP
UNIT_LIBS  := -lcmocka -ljansson -lmd -lz -lzstd -lpthread

UNITS      := $(patsubst t/unit/%.c,%,$(wildcard t/unit/*.c))
TSAN       := $(filter %_tsan,$(UNITS))
ASAN       := $(filter %_asan,$(UNITS))
POINTS     := $(filter-out $(TSAN) $(ASAN),$(patsubst t/unit/%.c,%, \
                  $(shell grep -l 'capture_point' t/unit/*.c 2>/dev/null)))
PLAIN      := $(filter-out $(TSAN) $(ASAN) $(POINTS),$(UNITS))

unit: $(UNITS:%=build/unit/%)

COMMA := ,

# variant, its tests, its flags
define variant

build/$(1)/%.o: src/%.c
	@mkdir -p $$(@D)
	@$$(CC) $$(UNIT_FLAGS) $(3) -c -o $$@ $$<

build/$(1)/pure.a: $(PURE_SRCS:src/%.c=build/$(1)/%.o)
	@rm -f $$@
	@ar rcs $$@ $$^

$(2:%=build/unit/%): build/unit/%: t/unit/%.c build/$(1)/pure.a
	@mkdir -p $$(@D)
	@echo "  cc $$@"
	@$$(CC) $$(UNIT_FLAGS) $(3) -MF $$@.d -o $$@ $$< build/$(1)/pure.a $$(UNIT_LIBS)

-include $(PURE_SRCS:src/%.c=build/$(1)/%.d)

endef

$(eval $(call variant,pure,$(PLAIN),))
$(eval $(call variant,points,$(POINTS),-DNGX_HTTP_LLM_CAPTURE_POINTS))
$(eval $(call variant,tsan,$(TSAN),-fsanitize=thread))
$(eval $(call variant,asan,$(ASAN), \
           -fsanitize=address$(COMMA)undefined -fno-sanitize-recover))

-include $(UNITS:%=build/unit/%.d)


PROVE = PATH="$(CURDIR)/$(VENV)/bin:$$PATH" LLM_CAPTURE_NGINX='$(NGINX)' \
        LLM_CAPTURE_NGINX_SRC='$(NGINX_SRC)' CMOCKA_MESSAGE_OUTPUT=tap \
        LLM_CAPTURE_MODULE='$(CURDIR)/$(MODULE)' prove --timer

# what measures time, and would be hurried by others
ALONE := t/aiperf.t t/time.t

test: test-deps
	@$(MAKE) --no-print-directory all unit llm-capture
	$(PROVE) -j2 $(filter-out $(ALONE),$(wildcard t/*.t)) t/cli
	$(PROVE) $(ALONE)

check: check-deps
	@$(MAKE) --no-print-directory all unit
	$(PROVE) -j2 t/faults
	$(PROVE) t/check

check-long: check-deps
	@$(MAKE) --no-print-directory all
	LLM_CAPTURE_LONG=1 $(PROVE) t/faults
	@$(PYTHON) t/faults/report.py

demo: demo-deps
	@$(MAKE) --no-print-directory all build/demo/check
	@LLM_CAPTURE_NGINX='$(NGINX)' $(PYTHON) t/demo/demo.py

# the strict scan as a program, with nothing but the compiler
build/demo/check: t/demo/check.c $(wildcard src/*_scan*.[ch] src/*_number.[ch])
	@mkdir -p $(@D)
	@$(CC) -std=gnu11 -O2 -Wall -Wextra -Isrc -o $@ $(filter %.c,$^)


# one run, written to docs/performance.md; nothing passes or fails by time
bench:
	$(DEPS) $(sort $(BUILD_PACKAGES) $(BENCH_PACKAGES))
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory -s -f t/bench/tools.mk all goreplay
	@export LLM_CAPTURE_NGINX='$(NGINX)'; rc=0; \
	    $(PYTHON) t/bench/run.py || rc=1; $(PYTHON) t/bench/report.py; \
	    exit $$rc


include llm-capture/make.mk


MODULES_PATH = $(shell $(NGINX) -V 2>&1 \
                   | sed -n 's/.*--modules-path=\([^ ]*\).*/\1/p')

install: all install-llm-capture
	install -D -m 644 $(MODULE) \
	    '$(DESTDIR)$(or $(MODULES_PATH),/usr/lib/nginx/modules)/$(notdir $(MODULE))'

clean:
	rm -rf build

include packaging/make.mk
