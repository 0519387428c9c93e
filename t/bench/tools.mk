# The programs of the bench: make -f t/bench/tools.mk, from the top.
# GoReplay comes from the Go proxy by the go command, yyjson, which Debian 12 has
# not, from PyPI, where a package holds its source; without them their rows say
# so.  -O3, as config.make has it for the module.

PURE  := $(shell sh misc/sources.sh pure)
SRCS  := $(PURE:%=src/ngx_http_llm_capture_%.c)
B     := build/bench
LIBS  := -ljansson -lmd -lz -lzstd
FLAGS := -std=gnu11 -O3 -g -Wall -Wextra -Isrc -MMD -MP
CXX   ?= c++
GO    ?= go

PYTHON ?= /usr/bin/python3

all: $(B)/load $(B)/slow.so $(B)/memcpy $(B)/drain $(B)/scan $(B)/stream

.PHONY: all goreplay
.DELETE_ON_ERROR:

$(B)/%.o: src/%.c
	@mkdir -p $(@D)
	@$(CC) $(FLAGS) -c -o $@ $<

$(B)/%.o: t/bench/%.c
	@mkdir -p $(@D)
	@$(CC) $(FLAGS) -c -o $@ $<

$(B)/%.o: t/bench/%.cc
	@mkdir -p $(@D)
	@$(CXX) -std=c++17 -O2 -g -Wall -Wextra -MMD -MP -c -o $@ $<

PURE_OBJS := $(SRCS:src/%.c=$(B)/%.o)

$(B)/load: $(B)/load.o $(B)/wire.o
	@$(CC) -o $@ $^

$(B)/stream: $(B)/stream.o
	@$(CC) -o $@ $^ -lpthread

$(B)/memcpy: $(B)/memcpy.o
	@$(CC) -o $@ $^ -lpthread

$(B)/drain: $(B)/drain.o $(PURE_OBJS)
	@$(CC) -o $@ $^ $(LIBS)

# once; "make clean" to try again
$(B)/yyjson/looked-for:
	@rm -rf $(@D) && mkdir -p $(@D)
	@cd $(@D) && $(PYTHON) -m venv venv && venv/bin/pip -q \
	        --disable-pip-version-check download --no-deps \
	        --no-binary :all: yyjson==4.0.6 \
	    && tar -xzf yyjson-4.0.6.tar.gz --strip-components=2 \
	        yyjson-4.0.6/yyjson/yyjson.c yyjson-4.0.6/yyjson/yyjson.h \
	    || echo 'yyjson cannot be had here'
	@touch $@

# not our text: without our warnings
$(B)/yyjson.o: t/bench/yyjson.c $(B)/yyjson/looked-for
	@$(CC) -std=gnu11 -O3 -w -I$(B)/yyjson -c -o $@ $<

$(B)/scan: $(B)/scan.o $(B)/simdjson.o $(B)/yyjson.o $(PURE_OBJS)
	@$(CXX) -o $@ $^ $(LIBS) -lsimdjson

$(B)/slow.so: t/bench/slow.c
	@mkdir -p $(@D)
	@$(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -o $@ $<

goreplay:
	@test -x $(B)/goreplay \
	    || GOBIN='$(CURDIR)/$(B)' $(GO) install -mod=mod \
	        github.com/buger/goreplay@v1.3.2 \
	    || echo 'GoReplay cannot be built here'

-include $(wildcard $(B)/*.d)
