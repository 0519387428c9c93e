
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
 * Takes the zone's lock, which the kernel gives back with the process.  zones:
 * how many this process has, which share its descriptors.
 * NGX_DECLINED: another process has it; NGX_ERROR: told in the log.
 */

ngx_int_t ngx_http_llm_capture_drainer_open(ngx_http_llm_capture_drainer_t *d,
    ngx_cycle_t *cycle, ngx_http_llm_capture_main_conf_t *mcf,
    ngx_uint_t zones);

/* leaves the counters in the log, at level notice; keeps the lock */

void ngx_http_llm_capture_drainer_end(ngx_http_llm_capture_drainer_t *d);

/* ends it, if that is still to do, and gives the lock back */

void ngx_http_llm_capture_drainer_close(ngx_http_llm_capture_drainer_t *d);

/* something is left to write, or its drainer died before the last report */

ngx_uint_t ngx_http_llm_capture_drainer_due(
    ngx_http_llm_capture_main_conf_t *mcf);

/* may anybody still put something into the zone? */

ngx_uint_t ngx_http_llm_capture_drainer_live(
    ngx_http_llm_capture_drainer_t *d);

/* gives up: what is left is counted as lost, with an alert */

void ngx_http_llm_capture_drainer_lose(ngx_http_llm_capture_drainer_t *d);

/*
 * A step to the end, for when nobody is alive.  NGX_OK: nothing is left, or it
 * was `end` and the rest is lost; NGX_BUSY: a disk must be waited for;
 * NGX_AGAIN: go on.
 */

ngx_int_t ngx_http_llm_capture_drainer_finish(
    ngx_http_llm_capture_drainer_t *d, uint64_t end);


/* CLOCK_MONOTONIC in ms; ngx_current_msec stands still over a long pass */

uint64_t ngx_http_llm_capture_now(void);

/* a byte of the memfd, type as of fcntl(2); never waits */

ngx_int_t ngx_http_llm_capture_lock_byte(off_t byte, int type);

/* 1: another process holds the byte */

ngx_uint_t ngx_http_llm_capture_byte_locked(off_t byte);

/* who that is; 0: none, or unknown */

ngx_pid_t ngx_http_llm_capture_byte_holder(off_t byte);

/* of a worker, beyond those of any zone: held for its life */

static inline off_t
ngx_http_llm_capture_pid_byte(ngx_pid_t pid)
{
    return ((off_t) 1 << 40) + (off_t) pid;
}


/* src/ngx_http_llm_capture_kept.c: zones that reloads replaced */

typedef struct ngx_http_llm_capture_kept_s  ngx_http_llm_capture_kept_t;

struct ngx_http_llm_capture_kept_s {
    /* what a drain asks for: zone, lock, drain_timeout */
    ngx_http_llm_capture_main_conf_t   mcf;

    void                              *addr;
    size_t                             size;

    /* the master's children of then, besides helpers, looked at for a while */
    ngx_pid_t                          users[NGX_MAX_PROCESSES];
    ngx_uint_t                         nusers;
    uint64_t                           until;

    ngx_http_llm_capture_kept_t       *next;
};

extern ngx_http_llm_capture_kept_t  *ngx_http_llm_capture_kept;

/*
 * Called by the master at a reload.  mcf: of the cycle before, whose pool goes
 * soon; new: NULL if nothing captures any more.
 */
void ngx_http_llm_capture_keep(ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_main_conf_t *new, ngx_log_t *log);

/* may anybody still put something into it? */
ngx_uint_t ngx_http_llm_capture_kept_live(ngx_http_llm_capture_kept_t *k);

/* forgets those that are done with */
void ngx_http_llm_capture_kept_sweep(void);


/* src/ngx_http_llm_capture_care.c: all zones that one helper drains */

typedef struct {
    ngx_http_llm_capture_drainer_t     work;
    ngx_http_llm_capture_main_conf_t  *mcf;
    ngx_http_llm_capture_kept_t       *kept;       /* NULL: not replaced */
    ngx_http_llm_capture_zone_hdr_t   *zone;
    uint64_t                           since;      /* the limit runs; 0: no */
    unsigned                           over:1;     /* nothing to do with it */
} ngx_http_llm_capture_care_zone_t;

typedef struct {
    ngx_cycle_t                       *cycle;
    ngx_http_llm_capture_care_zone_t  *zones;
    ngx_uint_t                         n;

    unsigned                           more:1;     /* to write, at the end */
    unsigned                           quit:1;     /* told to leave */
    unsigned                           orphan:1;   /* the master is gone */
} ngx_http_llm_capture_care_t;

/* the zone of the cycle, if it has one, and those kept; exits if it cannot */
void ngx_http_llm_capture_care_init(ngx_http_llm_capture_care_t *care,
    ngx_cycle_t *cycle);

/*
 * From now on a predecessor that was told to quit leaves: not before, as this
 * one might not have come so far.
 */
void ngx_http_llm_capture_care_announce(ngx_http_llm_capture_care_t *care);

/*
 * A pass over all.  Returns for how long there is nothing to do, in ms; -1:
 * for ever, until somebody wakes it.
 */
int ngx_http_llm_capture_care_work(ngx_http_llm_capture_care_t *care);

/* after a sleep: nobody need wake us */
void ngx_http_llm_capture_care_awake(ngx_http_llm_capture_care_t *care);

/* a process is gone: which ring was its? */
void ngx_http_llm_capture_care_owners(ngx_http_llm_capture_care_t *care);

/* TERM: limits run from now */
void ngx_http_llm_capture_care_limit(ngx_http_llm_capture_care_t *care);

/* nothing is left, of none of them, nor can come */
ngx_uint_t ngx_http_llm_capture_care_over(ngx_http_llm_capture_care_t *care);

/* the earliest limit, CLOCK_MONOTONIC in ms; 0: none */
uint64_t ngx_http_llm_capture_care_end(ngx_http_llm_capture_care_t *care);

void ngx_http_llm_capture_care_reopen(ngx_http_llm_capture_care_t *care);


/* src/ngx_http_llm_capture_child.c: what a child of the master must put down */

void ngx_http_llm_capture_child_close_fds(ngx_cycle_t *cycle);

/* waits if one of this generation was started a moment ago */

void ngx_http_llm_capture_child_back_off(
    ngx_http_llm_capture_zone_hdr_t *zone, uint64_t gen);

/* becomes the worker's user, or exits with code 2: not to be started again */

void ngx_http_llm_capture_child_become(ngx_cycle_t *cycle);

void ngx_http_llm_capture_child_reopen_logs(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_LLM_CAPTURE_DRAINER_H_INCLUDED_ */
