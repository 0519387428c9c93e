
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


static ngx_uint_t ngx_http_llm_capture_left(
    ngx_http_llm_capture_main_conf_t *mcf);
static ngx_msec_t ngx_http_llm_capture_limit(
    ngx_http_llm_capture_main_conf_t *mcf);
static void ngx_http_llm_capture_last_child(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_msec_t limit);
static void ngx_http_llm_capture_wait_child(ngx_pid_t pid, ngx_msec_t limit,
    ngx_log_t *log);


/* all children are dead here */

void
ngx_http_llm_capture_exit_master(ngx_cycle_t *cycle)
{
    ngx_pid_t                          pid;
    ngx_msec_t                         limit;
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_http_llm_capture_main_conf(cycle);

    if (ngx_process != NGX_PROCESS_MASTER
        || mcf == NULL
        || mcf->shm_zone == NULL
        || !ngx_http_llm_capture_left(mcf))
    {
        return;
    }

    limit = ngx_http_llm_capture_limit(mcf);

    pid = fork();

    if (pid == -1) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_errno,
                      "llm capture: fork() failed, queued requests are lost");
        return;
    }

    if (pid == 0) {
        ngx_parent = ngx_pid;
        ngx_pid = ngx_getpid();
        ngx_http_llm_capture_last_child(cycle, mcf, limit);
        exit(0);
    }

    ngx_http_llm_capture_wait_child(pid, limit, cycle->log);
}


static ngx_uint_t
ngx_http_llm_capture_left(ngx_http_llm_capture_main_conf_t *mcf)
{
    ngx_uint_t                        i;
    ngx_http_llm_capture_zone_hdr_t  *h;
    ngx_http_llm_capture_ring_hdr_t  *ring;

    h = ngx_http_llm_capture_zone_hdr(&mcf->zone);

    if (atomic_load(&h->gave_up)) {
        return 0;
    }

    /* only the helper frees a ring, when there is nothing left of it */

    for (i = 0; i < mcf->zone.nrings; i++) {
        ring = ngx_http_llm_capture_zone_ring(&mcf->zone, i);

        if (atomic_load(&ring->owner)) {
            return 1;
        }
    }

    return 0;
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
 * limit: what is left of llm_capture_drain_timeout, in ms.  The locks and the
 * rings are those of the dead: nothing is waited for but the disk.
 */

static void
ngx_http_llm_capture_last_child(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_msec_t limit)
{
    uint64_t                        end;
    ngx_http_llm_capture_drainer_t  work;

    end = ngx_http_llm_capture_now() + limit;

    ngx_process = NGX_PROCESS_HELPER;
    ngx_cycle = cycle;

    ngx_setproctitle("llm capture helper process is shutting down");
    ngx_http_llm_capture_child_close_fds(cycle);
    ngx_http_llm_capture_child_become(cycle);

    if (ngx_http_llm_capture_drainer_open(&work, cycle, mcf) != NGX_OK) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "llm capture: the last drain could not begin, "
                      "queued requests are lost");
        return;
    }

    ngx_http_llm_capture_drainer_finish(&work, end);
    ngx_http_llm_capture_drainer_close(&work);
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
