
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The master's last act: what a helper left that was killed (the master does
 * so 3 seconds after SIGTERM) or died while it was not to be started again, is
 * written by a last child.  Not by the master itself: the files are the worker
 * user's, and root must not follow paths in that user's directory.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>
#include <sys/wait.h>

#include "ngx_http_llm_capture_drainer.h"


/* ms after SIGTERM until the master kills its children, as seen */
#define NGX_HTTP_LLM_CAPTURE_KILL   3150

/* ms the last child always has */
#define NGX_HTTP_LLM_CAPTURE_LEAST  500


typedef struct {
    ngx_http_llm_capture_main_conf_t  *mcf;
    ngx_msec_t                         limit;   /* of its time, what is left */
    ngx_http_llm_capture_drainer_t     work;
} ngx_http_llm_capture_left_t;


static ngx_uint_t ngx_http_llm_capture_left(ngx_cycle_t *cycle,
    ngx_http_llm_capture_left_t **left);
static ngx_uint_t ngx_http_llm_capture_due(
    ngx_http_llm_capture_main_conf_t *mcf);
static ngx_msec_t ngx_http_llm_capture_limit(
    ngx_http_llm_capture_main_conf_t *mcf);
static void ngx_http_llm_capture_last_child(ngx_cycle_t *cycle,
    ngx_http_llm_capture_left_t *left, ngx_uint_t n);
static ngx_int_t ngx_http_llm_capture_last_pass(
    ngx_http_llm_capture_left_t *left, ngx_uint_t n, uint64_t start);
static void ngx_http_llm_capture_wait_child(ngx_pid_t pid, ngx_msec_t limit,
    ngx_log_t *log);


/* all children are dead here */

void
ngx_http_llm_capture_exit_master(ngx_cycle_t *cycle)
{
    ngx_pid_t                     pid;
    ngx_uint_t                    i, n;
    ngx_msec_t                    limit;
    ngx_http_llm_capture_left_t  *left;

    if (ngx_process != NGX_PROCESS_MASTER) {
        return;
    }

    n = ngx_http_llm_capture_left(cycle, &left);

    if (n == 0) {
        ngx_free(left);
        return;
    }

    limit = 0;

    for (i = 0; i < n; i++) {
        limit = ngx_max(limit, left[i].limit);
    }

    pid = fork();

    if (pid == -1) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_errno,
                      "llm capture: fork() failed, queued requests are lost");
        ngx_free(left);
        return;
    }

    if (pid == 0) {
        ngx_parent = ngx_pid;
        ngx_pid = ngx_getpid();
        ngx_http_llm_capture_last_child(cycle, left, n);
        exit(0);
    }

    ngx_free(left);

    ngx_http_llm_capture_wait_child(pid, limit, cycle->log);
}


/* zones with something left to write or tell, of this cycle and of others */

static ngx_uint_t
ngx_http_llm_capture_left(ngx_cycle_t *cycle,
    ngx_http_llm_capture_left_t **left)
{
    ngx_uint_t                         n;
    ngx_http_llm_capture_kept_t       *k;
    ngx_http_llm_capture_main_conf_t  *mcf;

    n = 1;

    for (k = ngx_http_llm_capture_kept; k; k = k->next) {
        n++;
    }

    *left = ngx_calloc(n * sizeof(ngx_http_llm_capture_left_t), cycle->log);

    if (*left == NULL) {
        return 0;
    }

    n = 0;
    k = ngx_http_llm_capture_kept;
    mcf = ngx_http_llm_capture_main_conf(cycle);

    for ( ;; ) {

        if (mcf && ngx_http_llm_capture_due(mcf)) {
            (*left)[n].mcf = mcf;
            (*left)[n++].limit = ngx_http_llm_capture_limit(mcf);
        }

        if (k == NULL) {
            return n;
        }

        mcf = &k->mcf;
        k = k->next;
    }
}


/* a helper that gave up has tried for as long as it may */

static ngx_uint_t
ngx_http_llm_capture_due(ngx_http_llm_capture_main_conf_t *mcf)
{
    ngx_http_llm_capture_zone_hdr_t  *zone;

    zone = ngx_http_llm_capture_zone_hdr(&mcf->zone);

    return atomic_load(&zone->gave_up) ? atomic_load(&zone->open) != 0
                                       : ngx_http_llm_capture_drainer_due(mcf);
}


/*
 * The helper notes in the zone since when its limit runs.  If it has not (it
 * was stopped, or dead), the time of SIGTERM is told by the master's own
 * patience.  A worker can write any number there: the result is bounded.
 */

static ngx_msec_t
ngx_http_llm_capture_limit(ngx_http_llm_capture_main_conf_t *mcf)
{
    uint64_t    since, now, spent;

    since = atomic_load(&ngx_http_llm_capture_zone_hdr(&mcf->zone)->quit_ms);
    now = ngx_http_llm_capture_now();

    if (since && since <= now) {
        spent = now - since;

    } else {
        spent = ngx_terminate ? NGX_HTTP_LLM_CAPTURE_KILL : 0;
    }

    if (mcf->drain_timeout < spent + NGX_HTTP_LLM_CAPTURE_LEAST) {
        return NGX_HTTP_LLM_CAPTURE_LEAST;
    }

    return mcf->drain_timeout - (ngx_msec_t) spent;
}


/*
 * The locks and the rings are those of the dead: nothing is waited for but the
 * disk
 */

static void
ngx_http_llm_capture_last_child(ngx_cycle_t *cycle,
    ngx_http_llm_capture_left_t *left, ngx_uint_t n)
{
    uint64_t    start;
    ngx_int_t   rc;
    ngx_uint_t  i;

    start = ngx_http_llm_capture_now();

    ngx_process = NGX_PROCESS_HELPER;
    ngx_cycle = cycle;

    ngx_setproctitle("llm capture helper process is shutting down");
    ngx_http_llm_capture_child_close_fds(cycle);
    ngx_http_llm_capture_child_become(cycle);

    for (i = 0; i < n; i++) {
        if (ngx_http_llm_capture_drainer_open(&left[i].work, cycle,
                                              left[i].mcf, n)
            != NGX_OK)
        {
            ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                          "llm capture: the last drain could not begin, "
                          "queued requests are lost");
        }
    }

    do {
        rc = ngx_http_llm_capture_last_pass(left, n, start);

        if (rc == NGX_BUSY) {
            ngx_msleep(NGX_HTTP_LLM_CAPTURE_NAP);
        }

    } while (rc != NGX_OK);
}


/* one zone's full disk does not hold the others */

static ngx_int_t
ngx_http_llm_capture_last_pass(ngx_http_llm_capture_left_t *left, ngx_uint_t n,
    uint64_t start)
{
    ngx_int_t   rc, all;
    ngx_uint_t  i;

    all = NGX_OK;

    for (i = 0; i < n; i++) {

        if (left[i].work.drain == NULL) {
            continue;
        }

        rc = ngx_http_llm_capture_drainer_finish(&left[i].work,
                                                 start + left[i].limit);
        if (rc == NGX_OK) {
            ngx_http_llm_capture_drainer_close(&left[i].work);

        } else if (all != NGX_AGAIN) {
            all = rc;
        }
    }

    return all;
}


/* the child keeps the limit itself; one that hangs must not hold the master */

static void
ngx_http_llm_capture_wait_child(ngx_pid_t pid, ngx_msec_t limit,
    ngx_log_t *log)
{
    uint64_t         now, end;
    sigset_t         set;
    ngx_uint_t       killed;
    struct timespec  ts;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);

    killed = 0;
    end = ngx_http_llm_capture_now() + limit + NGX_HTTP_LLM_CAPTURE_LEAST;

    while (waitpid(pid, NULL, WNOHANG) == 0) {

        now = ngx_http_llm_capture_now();

        if (now >= end) {

            if (killed) {
                /* in the kernel, waiting for a disk: not for us */
                return;
            }

            ngx_log_error(NGX_LOG_ALERT, log, 0,
                          "llm capture: the last drain hangs, killed");
            (void) kill(pid, SIGKILL);

            killed = 1;
            end = now + NGX_HTTP_LLM_CAPTURE_LEAST;
        }

        /* blocked in the master, so one that came before is still here */

        ts.tv_sec = (time_t) ((end - now) / 1000);
        ts.tv_nsec = (long) ((end - now) % 1000) * 1000000;

        (void) sigtimedwait(&set, NULL, &ts);
    }
}
