
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_live.h"


/* ms between two warnings about one reason */
#define NGX_HTTP_LLM_CAPTURE_WARN     60000
/* ms after which an unfinished batch of a predecessor is given up, and a try */
#define NGX_HTTP_LLM_CAPTURE_GIVE_UP  2000
#define NGX_HTTP_LLM_CAPTURE_RETRY    20


void
ngx_http_llm_capture_drain_say(ngx_http_llm_capture_drain_t *d, int level,
    int err, const char *fmt, ...)
{
    char     text[NGX_HTTP_LLM_CAPTURE_PATH + 512], *p;
    va_list  args;

    va_start(args, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    /* a path comes out of memory that a worker can write */

    for (p = text; *p; p++) {
        if ((unsigned char) *p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }

    d->conf.log(d->conf.ctx, level, err, text);
}


/* a predecessor's tail may lie anywhere: nothing in the zone is believed */

static void
ngx_http_llm_capture_ring_attach(ngx_http_llm_capture_drain_t *d,
    uint32_t ring)
{
    uint64_t                            tail;
    ngx_http_llm_capture_ring_hdr_t    *hdr;
    ngx_http_llm_capture_drain_ring_t  *r;

    r = &d->rings[ring];
    hdr = ngx_http_llm_capture_zone_ring(&d->zone, ring);

    atomic_store_explicit(&hdr->punch, 0, memory_order_release);

    tail = atomic_load_explicit(&hdr->tail, memory_order_relaxed);

    r->reader.data = ngx_http_llm_capture_zone_data(&d->zone, ring);
    r->reader.size = (uint32_t) (d->zone.ring_size
                                 / NGX_HTTP_LLM_CAPTURE_UNIT);
    r->reader.lap = (uint32_t) (tail >> 32);
    r->reader.off = (uint32_t) tail;

    if (r->reader.off > r->reader.size) {
        r->reader.off = r->reader.size;
    }

    r->touched = d->zone.ring_size;
}


uint64_t
ngx_http_llm_capture_drain_clock(ngx_http_llm_capture_drain_t *d)
{
    return d->conf.clock ? d->conf.clock() : d->now;
}


/* and what was dropped of each row since */

static void
ngx_http_llm_capture_sum(ngx_http_llm_capture_drain_t *d,
    uint64_t all[NGX_HTTP_LLM_CAPTURE_C_max])
{
    uint32_t  row, n;
    uint64_t  sum[NGX_HTTP_LLM_CAPTURE_C_max];
    unsigned  c;

    memset(all, 0, NGX_HTTP_LLM_CAPTURE_C_max * sizeof(uint64_t));

    d->wall = ngx_http_llm_capture_book_wall();

    n = atomic_load_explicit(
            &ngx_http_llm_capture_zone_hdr(&d->zone)->ntemplates,
            memory_order_acquire);

    for (row = 0; row < NGX_HTTP_LLM_CAPTURE_ROWS; row++) {

        if (row >= n && row != NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
            continue;
        }

        ngx_http_llm_capture_zone_sum(&d->zone, row, sum);
        ngx_http_llm_capture_books_gap(d, row, sum);

        for (c = 0; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
            all[c] += sum[c];
        }
    }

    d->looked = d->wall;
}


ngx_http_llm_capture_drain_t *
ngx_http_llm_capture_drain_create(
    const ngx_http_llm_capture_drain_conf_t *conf, uint64_t now)
{
    uint32_t                       i;
    ngx_http_llm_capture_drain_t  *d;

    d = calloc(1, sizeof(ngx_http_llm_capture_drain_t));

    if (d == NULL) {
        return NULL;
    }

    d->conf = *conf;
    d->zone = *conf->zone;
    d->now = now;
    d->give_up = now + NGX_HTTP_LLM_CAPTURE_GIVE_UP;

    d->rings = calloc(d->zone.nrings,
                      sizeof(ngx_http_llm_capture_drain_ring_t));

    d->waits = ngx_http_llm_capture_waits_open(&d->zone);

    if (d->rings == NULL || d->waits == NULL
        || ngx_http_llm_capture_books_open(d) == -1
        || ngx_http_llm_capture_spill_open(d) == -1)
    {
        ngx_http_llm_capture_drain_destroy(d);
        return NULL;
    }

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_ring_attach(d, i);
        ngx_http_llm_capture_assemble(d, i);
    }

    d->recovering = ngx_http_llm_capture_commit_recover(d) == -1;

    /* what was counted before has been told by a predecessor */

    ngx_http_llm_capture_sum(d, d->told);

    return d;
}


void
ngx_http_llm_capture_drain_destroy(ngx_http_llm_capture_drain_t *d)
{
    void                           *slab;
    unsigned                        i;
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_upload_t  *u;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->pairs[i]; u; u = u->pair) {
            free(u->text);
            free(u->told);
        }
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        while (d->dests[i]) {
            dest = d->dests[i];
            d->dests[i] = dest->bucket;
            free(dest);
        }
    }

    while (d->slabs) {
        slab = d->slabs;
        d->slabs = *(void **) slab;
        free(slab);
    }

    ngx_http_llm_capture_spill_close(d);
    ngx_http_llm_capture_waits_close(d->waits);
    ngx_http_llm_capture_books_close(d);

    free(d->rings);
    free(d->iov);
    free(d);
}


/* at most one a minute for each reason, for all destinations together */

static void
ngx_http_llm_capture_warn(ngx_http_llm_capture_drain_t *d)
{
    uint64_t  all[NGX_HTTP_LLM_CAPTURE_C_max];
    unsigned  c;

    ngx_http_llm_capture_sum(d, all);

    d->warn_at = 0;

    for (c = NGX_HTTP_LLM_CAPTURE_C_encoded;
         c < NGX_HTTP_LLM_CAPTURE_C_recorded;
         c++)
    {
        if (all[c] == d->told[c]) {
            continue;
        }

        if (d->told_at[c]
            && d->now - d->told_at[c] < NGX_HTTP_LLM_CAPTURE_WARN)
        {
            if (d->warn_at == 0
                || d->told_at[c] + NGX_HTTP_LLM_CAPTURE_WARN < d->warn_at)
            {
                d->warn_at = d->told_at[c] + NGX_HTTP_LLM_CAPTURE_WARN;
            }

            continue;
        }

        ngx_http_llm_capture_drain_say(d,
            c == NGX_HTTP_LLM_CAPTURE_C_aborted ? LOG_NOTICE : LOG_WARNING, 0,
            "%llu requests not recorded: %s (%llu in all)",
            (unsigned long long) (all[c] - d->told[c]),
            ngx_http_llm_capture_counter_names[c],
            (unsigned long long) all[c]);

        d->told[c] = all[c];
        d->told_at[c] = d->now;
    }
}


unsigned
ngx_http_llm_capture_drain_pass(ngx_http_llm_capture_drain_t *d, uint64_t now)
{
    uint32_t  i;

    d->now = now;
    d->finished = 0;

    if (d->recovering) {
        d->recovering = ngx_http_llm_capture_commit_recover(d) == -1;

        if (d->recovering) {
            return 0;
        }
    }

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_look(d, i, 0);
        ngx_http_llm_capture_assemble(d, i);
    }

    ngx_http_llm_capture_settle(d);
    ngx_http_llm_capture_write_all(d);
    ngx_http_llm_capture_answer_retry(d);

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_unpin(d, i);
        ngx_http_llm_capture_advance(d, i);
        ngx_http_llm_capture_shrink(d, i);
    }

    ngx_http_llm_capture_leave(d);

    ngx_http_llm_capture_warn(d);
    ngx_http_llm_capture_books_pass(d);
    ngx_http_llm_capture_live_pass(d);

    return d->finished;
}


static void
ngx_http_llm_capture_sooner(uint64_t *due, uint64_t at)
{
    if (at && (*due == 0 || at < *due)) {
        *due = at;
    }
}


uint64_t
ngx_http_llm_capture_drain_due(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                      i;
    uint64_t                      due;
    ngx_http_llm_capture_dest_t  *dest;

    due = 0;

    if (d->recovering) {
        return d->now + NGX_HTTP_LLM_CAPTURE_RETRY;
    }

    for (dest = d->busy; dest; dest = dest->busy) {
        ngx_http_llm_capture_sooner(&due, dest->file->retry_at
                                          ? dest->file->retry_at
                                          : d->now
                                            + NGX_HTTP_LLM_CAPTURE_RETRY);
    }

    ngx_http_llm_capture_sooner(&due, d->warn_at);
    ngx_http_llm_capture_sooner(&due, ngx_http_llm_capture_books_due(d));

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_sooner(&due, d->rings[i].due);
    }

    return due;
}


void
ngx_http_llm_capture_drain_owners(ngx_http_llm_capture_drain_t *d)
{
    uint32_t  i;

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_look(d, i, 1);
    }

    ngx_http_llm_capture_answer_expire(d);
}


unsigned
ngx_http_llm_capture_drain_owned(ngx_http_llm_capture_drain_t *d)
{
    return ngx_http_llm_capture_zone_owned(&d->zone);
}


unsigned
ngx_http_llm_capture_drain_left(ngx_http_llm_capture_drain_t *d)
{
    return ngx_http_llm_capture_drain_owned(d)
           + ngx_http_llm_capture_waits_n(d->waits) + d->nheld;
}


unsigned
ngx_http_llm_capture_drain_live(ngx_http_llm_capture_drain_t *d)
{
    uint32_t  i, gone;

    for (gone = 0, i = 0; i < d->zone.nrings; i++) {
        gone += d->rings[i].gone;
    }

    return ngx_http_llm_capture_drain_owned(d) - gone;
}


uint64_t
ngx_http_llm_capture_drain_pending(ngx_http_llm_capture_drain_t *d)
{
    return d->nuploads - d->nanswers;
}


void
ngx_http_llm_capture_drain_renamed(ngx_http_llm_capture_drain_t *d)
{
    ngx_http_llm_capture_books_dirty(d);
}


void
ngx_http_llm_capture_drain_end(ngx_http_llm_capture_drain_t *d)
{
    ngx_http_llm_capture_books_end(d);
}


uint64_t
ngx_http_llm_capture_drain_lose(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                        i;
    uint64_t                        lost;
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_upload_t  *u;

    if (d->recovering) {

        /* what may stand in a file is not lost but uncertain */

        d->give_up = d->now;
        (void) ngx_http_llm_capture_commit_recover(d);
        d->recovering = 0;
    }

    /* what came since the last pass is left as well */

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_look(d, i, 0);
        ngx_http_llm_capture_assemble(d, i);
    }

    ngx_http_llm_capture_settle(d);

    for (dest = d->busy; dest; dest = dest->busy) {
        while (dest->ready.n) {
            u = dest->ready.first;
            dest->ready.first = u->next;
            dest->ready.n--;

            ngx_http_llm_capture_upload_refuse(d, u,
                                               NGX_HTTP_LLM_CAPTURE_C_lost);
        }
    }

    while (d->parked.n) {
        ngx_http_llm_capture_upload_give_up(d, d->parked.first);
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->pairs[i]; u; u = u->pair) {
            if (u->state == NGX_HTTP_LLM_CAPTURE_U_HELD) {
                ngx_http_llm_capture_trace_unanswered(d, u,
                                                 NGX_HTTP_LLM_CAPTURE_C_lost);
            }
        }
    }

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_upload_refuse_open(d, i,
                                                NGX_HTTP_LLM_CAPTURE_C_lost);
    }

    lost = ngx_http_llm_capture_drain_pending(d);

    ngx_http_llm_capture_settle(d);

    /* and what owners that are gone had counted and not put in */

    ngx_http_llm_capture_leave(d);

    return lost;
}
