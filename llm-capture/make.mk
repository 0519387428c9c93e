# the command llm-capture: the module's pure code, jansson, zlib, zstd, libmd,
# and OpenSSL

CLI_FLAGS := -std=gnu11 -O3 -g -Wall -Wextra -Isrc -Illm-capture \
             -Ibuild/cli -MMD -MP
CLI_PURE  := scan scan_walk scan_kernel scan_avx2 scan_ssse3 scan_neon \
             number siphash blocks conversation epoch path row
CLI_SRCS  := $(wildcard llm-capture/*.c) \
             $(CLI_PURE:%=src/ngx_http_llm_capture_%.c)
CLI_OBJS  := $(patsubst %.c,build/cli/%.o,$(notdir $(CLI_SRCS)))

vpath %.c llm-capture src

.PHONY: llm-capture man-llm-capture cli-deps test-llm-capture bench-llm-capture \
        install-llm-capture

llm-capture: build/llm-capture man-llm-capture

# programs for python3, as strings of C
build/cli/%.inc: llm-capture/%.py
	@mkdir -p $(@D)
	@sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $< > $@

build/cli/llm_capture_plot.o: build/cli/llm_capture_plot.inc
build/cli/llm_capture_baseten.o: build/cli/llm_capture_columns.inc

CLI_PACKAGES := libssl-dev

cli-deps:
	$(DEPS) $(BUILD_PACKAGES) $(CLI_PACKAGES)

$(CLI_OBJS): | cli-deps

build/cli/%.o: %.c
	@mkdir -p $(@D)
	@$(CC) $(CLI_FLAGS) $(CC_OPT) -O3 -c -o $@ $<

build/llm-capture: $(CLI_OBJS)
	@echo "  cc $@"
	@$(CC) $(CC_OPT) $(LD_OPT) -o $@ $^ -ljansson -lz -lzstd -lmd -lcrypto -lm

-include $(CLI_OBJS:.o=.d)

# a page for each command, out of the one of all; man finds it as git's are
CLI_PAGE  := llm-capture/llm-capture.1
CLI_PAGES := $(patsubst %,build/cli/man/llm-capture-%.1, \
                 $(shell sed -n 's/^\.It Ic \([a-z-]*\) .*/\1/p' $(CLI_PAGE)))

build/cli/man/llm-capture-%.1: $(CLI_PAGE) llm-capture/man.sh build/llm-capture
	@mkdir -p $(@D)
	@llm-capture/man.sh build/llm-capture $(CLI_PAGE) $* > $@

man-llm-capture: $(CLI_PAGES)

install-llm-capture: llm-capture
	install -D -m 755 build/llm-capture '$(DESTDIR)$(or $(PREFIX),/usr)/bin/llm-capture'
	install -d '$(DESTDIR)$(or $(PREFIX),/usr)/share/man/man1'
	install -m 644 $(CLI_PAGE) $(CLI_PAGES) \
	    '$(DESTDIR)$(or $(PREFIX),/usr)/share/man/man1'

# what needs nothing but the command and $(VENV)
test-llm-capture: llm-capture
	$(PROVE) t/cli

# a table into docs/; nothing passes or fails by time
bench-llm-capture: build/llm-capture $(VENV)/done
	$(DEPS) jq time util-linux
	@$(VENV)/bin/python t/bench/cli.py > docs/command-speed.md.new
	@mv docs/command-speed.md.new docs/command-speed.md
