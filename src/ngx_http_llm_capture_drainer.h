
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The pure drain tied to nginx: its lock, its clock, its log.  Used by the
 * helper, by the last child of a master, and by the single process.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_DRAINER_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_DRAINER_H_INCLUDED_


#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_drain.h"
#include "ngx_http_llm_capture_writer.h"


#define NGX_HTTP_LLM_CAPTURE_NAP  10        /* ms in which a batch gathers */


typedef struct {
    ngx_log_t                         *log;
    ngx_http_llm_capture_main_conf_t  *mcf;
    ngx_http_llm_capture_writer_t     *writer;
    ngx_http_llm_capture_drain_t      *drain;      /* NULL: not open */
} ngx_http_llm_capture_drainer_t;


/*
 * Takes the zone's lock, which the kernel gives back with the process.
 * NGX_DECLINED: another process has it; NGX_ERROR: told in the log.
 */

ngx_int_t ngx_http_llm_capture_drainer_open(ngx_http_llm_capture_drainer_t *d,
    ngx_cycle_t *cycle, ngx_http_llm_capture_main_conf_t *mcf);

/* leaves the counters in the log, at level notice */

void ngx_http_llm_capture_drainer_close(ngx_http_llm_capture_drainer_t *d);

/* may anybody still put something into the zone? */

ngx_uint_t ngx_http_llm_capture_drainer_live(
    ngx_http_llm_capture_drainer_t *d);

/* gives up: what is left is counted as lost, with an alert */

void ngx_http_llm_capture_drainer_lose(ngx_http_llm_capture_drainer_t *d);

/* drains until nothing is left or it is `end`; for when nobody is alive */

void ngx_http_llm_capture_drainer_finish(ngx_http_llm_capture_drainer_t *d,
    uint64_t end);


/* CLOCK_MONOTONIC in ms; ngx_current_msec stands still over a long pass */

uint64_t ngx_http_llm_capture_now(void);

/* a byte of the memfd, type as of fcntl(2); never waits */

ngx_int_t ngx_http_llm_capture_lock_byte(ngx_uint_t byte, int type);

/* 1: another process holds the byte */

ngx_uint_t ngx_http_llm_capture_byte_locked(ngx_uint_t byte);


/* src/ngx_http_llm_capture_child.c: what a child of the master must put down */

void ngx_http_llm_capture_child_close_fds(ngx_cycle_t *cycle);

/* waits if one of this generation was started a moment ago */

void ngx_http_llm_capture_child_back_off(
    ngx_http_llm_capture_main_conf_t *mcf);

/* becomes the worker's user, or exits with code 2: not to be started again */

void ngx_http_llm_capture_child_become(ngx_cycle_t *cycle);

void ngx_http_llm_capture_child_reopen_logs(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_LLM_CAPTURE_DRAINER_H_INCLUDED_ */
