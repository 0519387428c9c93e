
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The single process of master_process off: it has no helper and drains by a
 * timer.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture_drainer.h"
#include "ngx_http_llm_capture_live.h"


typedef struct {
    ngx_http_llm_capture_drainer_t     work;
    ngx_event_t                        event;
    ngx_connection_t                   dummy;       /* for debug logs */
} ngx_http_llm_capture_single_t;


static void ngx_http_llm_capture_single_handler(ngx_event_t *ev);


static ngx_http_llm_capture_single_t  single;


ngx_int_t
ngx_http_llm_capture_single_init(ngx_cycle_t *cycle)
{
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_http_llm_capture_main_conf(cycle);

    /* the writer wants EFBIG as an error, not as the end of the process */

    (void) signal(SIGXFSZ, SIG_IGN);

    if (ngx_http_llm_capture_drainer_open(&single.work, cycle, mcf, 1)
        != NGX_OK)
    {
        /* an alert has been logged, and serving comes first */
        return NGX_OK;
    }

    ngx_http_llm_capture_live_start(&mcf->zone, ngx_http_llm_capture_now());

    ngx_memzero(&single.event, sizeof(ngx_event_t));

    single.dummy.fd = (ngx_socket_t) -1;

    single.event.handler = ngx_http_llm_capture_single_handler;
    single.event.data = &single.dummy;
    single.event.log = cycle->log;
    /* or it would hold a graceful shutdown */
    single.event.cancelable = 1;

    return NGX_OK;
}


void
ngx_http_llm_capture_single_wake(void)
{
    if (single.work.drain == NULL) {
        return;
    }

    if (single.event.timer_set
        && (ngx_msec_int_t) (single.event.timer.key - ngx_current_msec)
           <= NGX_HTTP_LLM_CAPTURE_NAP)
    {
        return;
    }

    ngx_add_timer(&single.event, NGX_HTTP_LLM_CAPTURE_NAP);
}


static void
ngx_http_llm_capture_single_handler(ngx_event_t *ev)
{
    uint64_t  now, due;

    now = ngx_http_llm_capture_now();

    if (ngx_http_llm_capture_drain_pass(single.work.drain, now)) {
        ngx_add_timer(ev, NGX_HTTP_LLM_CAPTURE_NAP);
        return;
    }

    due = ngx_http_llm_capture_drain_due(single.work.drain);

    if (due) {
        due = (due > now) ? ngx_min(due - now, 60000) : 1;
        ngx_add_timer(ev, (ngx_msec_t) due);
    }
}


void
ngx_http_llm_capture_single_exit(ngx_cycle_t *cycle)
{
    uint64_t   end;
    ngx_int_t  rc;

    if (single.work.drain == NULL) {
        return;
    }

    if (single.event.timer_set) {
        ngx_del_timer(&single.event);
    }

    end = ngx_http_llm_capture_now() + single.work.mcf->drain_timeout;

    do {
        rc = ngx_http_llm_capture_drainer_finish(&single.work, end);

        if (rc == NGX_BUSY) {
            ngx_msleep(NGX_HTTP_LLM_CAPTURE_NAP);
        }

    } while (rc != NGX_OK);

    ngx_http_llm_capture_drainer_close(&single.work);
}
