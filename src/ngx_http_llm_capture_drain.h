
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper's work: rings -> records -> scan -> batches -> files.  Pure: it
 * knows the zone, the writer and the clock it is given, and no nginx.
 *
 * One process at a time may drain a zone: the caller holds the zone's lock.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_DRAIN_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_DRAIN_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_policy.h"
#include "ngx_http_llm_capture_zone.h"
#include "ngx_http_llm_capture_writer.h"


typedef struct {
    const ngx_http_llm_capture_zone_t  *zone;
    ngx_http_llm_capture_writer_t      *writer;

    /* 1: the process that owns this ring is gone; asked for owned rings */
    int                               (*dead)(void *ctx, uint32_t ring);
    /* 1: the worker of this pid is alive; asked for those that wait */
    int                               (*alive)(void *ctx, uint32_t pid);
    /* level: LOG_ALERT, LOG_ERR, LOG_WARNING, LOG_NOTICE of <syslog.h> */
    void                              (*log)(void *ctx, int level, int err,
                                          const char *text);
    /* CLOCK_MONOTONIC, ms, in the middle of a pass; NULL: as at its begin */
    uint64_t                          (*clock)(void);
    void                               *ctx;

    /* what it points to must stay; all 0: manifests, and no more than that */
    ngx_http_llm_capture_keeping_t      keeping;
} ngx_http_llm_capture_drain_conf_t;

typedef struct ngx_http_llm_capture_drain_s  ngx_http_llm_capture_drain_t;


/*
 * Attaches to the zone and first finishes what a predecessor left under way.
 * The conf is copied; zone and writer must outlive the drain.  NULL: no memory.
 */

ngx_http_llm_capture_drain_t *ngx_http_llm_capture_drain_create(
    const ngx_http_llm_capture_drain_conf_t *conf, uint64_t now);
void ngx_http_llm_capture_drain_destroy(ngx_http_llm_capture_drain_t *d);

/*
 * Takes what is new out of all rings and writes what is complete.  now:
 * CLOCK_MONOTONIC, ms.  Returns the number of records finished by it, written
 * or counted; 0: nothing to do at present.
 */

unsigned ngx_http_llm_capture_drain_pass(ngx_http_llm_capture_drain_t *d,
    uint64_t now);

/* when the next pass is due without a wake-up, in ms as now; 0: never */

uint64_t ngx_http_llm_capture_drain_due(ngx_http_llm_capture_drain_t *d);

/* looks which owners are gone and frees the rings that are empty; cheap */

void ngx_http_llm_capture_drain_owners(ngx_http_llm_capture_drain_t *d);

/* rings with an owner; rings whose owner may still push; records unfinished */

unsigned ngx_http_llm_capture_drain_owned(ngx_http_llm_capture_drain_t *d);
unsigned ngx_http_llm_capture_drain_live(ngx_http_llm_capture_drain_t *d);
uint64_t ngx_http_llm_capture_drain_pending(ngx_http_llm_capture_drain_t *d);

/* rings with an owner and answers to come: 0 when all is ended */

unsigned ngx_http_llm_capture_drain_left(ngx_http_llm_capture_drain_t *d);

/* files may have other names now */

void ngx_http_llm_capture_drain_renamed(ngx_http_llm_capture_drain_t *d);

/* nobody will drain the zone any more: manifests are sealed */

void ngx_http_llm_capture_drain_end(ngx_http_llm_capture_drain_t *d);

/* the limit at exit was hit: what is left is counted lost; returns how many */

uint64_t ngx_http_llm_capture_drain_lose(ngx_http_llm_capture_drain_t *d);


#endif /* _NGX_HTTP_LLM_CAPTURE_DRAIN_H_INCLUDED_ */
