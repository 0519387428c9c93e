# The programs of the bench: make -f t/bench/tools.mk, from the top.
# GoReplay comes from the Go proxy by the go command; without it its rows say
# so.  -O3, as config.make has it for the module.

PURE  := $(shell sh misc/sources.sh pure)
SRCS  := $(PURE:%=src/ngx_http_llm_capture_%.c)
B     := build/bench
FLAGS := -std=gnu11 -O3 -g -Wall -Wextra -Isrc -MMD -MP
CXX   ?= c++
GO    ?= go

all: $(B)/load $(B)/slow.so $(B)/memcpy $(B)/drain $(B)/scan

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

$(B)/memcpy: $(B)/memcpy.o
	@$(CC) -o $@ $^ -lpthread

$(B)/drain: $(B)/drain.o $(PURE_OBJS)
	@$(CC) -o $@ $^ -ljansson

$(B)/scan: $(B)/scan.o $(B)/simdjson.o $(PURE_OBJS)
	@$(CXX) -o $@ $^ -ljansson -lsimdjson

$(B)/slow.so: t/bench/slow.c
	@mkdir -p $(@D)
	@$(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -o $@ $<

goreplay:
	@test -x $(B)/goreplay \
	    || GOBIN='$(CURDIR)/$(B)' $(GO) install -mod=mod \
	        github.com/buger/goreplay@v1.3.2 \
	    || echo 'GoReplay cannot be built here'

-include $(wildcard $(B)/*.d)
