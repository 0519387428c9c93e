
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <string.h>

#include "ngx_http_llm_capture_arena.h"
#include "ngx_http_llm_capture_live.h"


static inline void
ngx_http_llm_capture_live_set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}


/* one writer */

static inline void
ngx_http_llm_capture_live_add(_Atomic uint64_t *word, uint64_t n)
{
    ngx_http_llm_capture_live_set(word,
                                  atomic_load_explicit(word,
                                                       memory_order_relaxed)
                                  + n);
}


void
ngx_http_llm_capture_live_start(const ngx_http_llm_capture_zone_t *z,
    uint64_t now)
{
    ngx_http_llm_capture_live_t  *live;

    live = ngx_http_llm_capture_zone_live(z);

    ngx_http_llm_capture_live_add(&live->starts, 1);
    ngx_http_llm_capture_live_set(&live->started, now);
}


void
ngx_http_llm_capture_live_draining(const ngx_http_llm_capture_zone_t *z,
    uint64_t n)
{
    ngx_http_llm_capture_live_set(&ngx_http_llm_capture_zone_live(z)->draining,
                                  n);
}


/* its end, if it is too long: the beginning is that of the template */

static void
ngx_http_llm_capture_live_path(ngx_http_llm_capture_live_row_t *row,
    const char *path, size_t len)
{
    size_t    i;
    uint32_t  n;
    uint64_t  word;

    if (len > NGX_HTTP_LLM_CAPTURE_SHOW) {
        path += len - NGX_HTTP_LLM_CAPTURE_SHOW;
        len = NGX_HTTP_LLM_CAPTURE_SHOW;
    }

    /* a predecessor may have died in between: then it is odd already */

    n = atomic_load_explicit(&row->changes, memory_order_relaxed) | 1;

    atomic_store_explicit(&row->changes, n, memory_order_relaxed);
    atomic_store_explicit(&row->path_len, (uint32_t) len,
                          memory_order_release);

    for (i = 0; i < len; i += sizeof(word)) {
        word = 0;
        memcpy(&word, path + i, len - i < sizeof(word) ? len - i
                                                       : sizeof(word));
        atomic_store_explicit(&row->path[i / sizeof(word)], word,
                              memory_order_release);
    }

    atomic_store_explicit(&row->changes, n + 1, memory_order_release);
}


static void
ngx_http_llm_capture_live_second(ngx_http_llm_capture_live_row_t *row,
    uint64_t now, unsigned records, uint64_t bytes)
{
    uint64_t                        second;
    ngx_http_llm_capture_second_t  *s;

    second = now / 1000;
    s = &row->seconds[second % NGX_HTTP_LLM_CAPTURE_SECONDS];

    if (atomic_load_explicit(&s->second, memory_order_relaxed) != second) {
        ngx_http_llm_capture_live_set(&s->records, 0);
        ngx_http_llm_capture_live_set(&s->bytes, 0);
        atomic_store_explicit(&s->second, second, memory_order_release);
    }

    ngx_http_llm_capture_live_add(&s->records, records);
    ngx_http_llm_capture_live_add(&s->bytes, bytes);
}


void
ngx_http_llm_capture_live_written(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, unsigned n, uint64_t bytes)
{
    uint64_t                          now, mono;
    ngx_http_llm_capture_live_t      *live;
    ngx_http_llm_capture_live_row_t  *row;

    if (n == 0 || dest->format == NGX_HTTP_LLM_CAPTURE_OUTCOMES) {
        return;
    }

    now = ngx_http_llm_capture_drain_clock(d);

    live = ngx_http_llm_capture_zone_live(&d->zone);
    row = &live->rows[dest->row];

    /*
     * The newest one tells how far behind the helper is: an older one may have
     * been a slow upload.  A trace waited for its answer.
     */

    if (!ngx_http_llm_capture_is_trace(dest->format)) {
        mono = d->batch[n - 1]->mono;
        ngx_http_llm_capture_live_set(&live->lag,
                                      now > mono ? now - mono + 1 : 1);
    }

    if (!dest->shown) {
        dest->shown = 1;
        ngx_http_llm_capture_live_set(&row->files, ++d->nfiles[dest->row]);
    }

    if (d->newest[dest->row] != dest->file) {
        d->newest[dest->row] = dest->file;
        ngx_http_llm_capture_live_path(row, dest->file->path, dest->file->len);
    }

    /* as it was left; unknown if it was short */

    if (dest->file->size >= 0) {
        ngx_http_llm_capture_live_set(&row->size,
                                      (uint64_t) dest->file->size);
    }

    ngx_http_llm_capture_live_second(row, now, n, bytes);
    ngx_http_llm_capture_live_set(&row->written, now);
}


void
ngx_http_llm_capture_live_failed(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest)
{
    ngx_http_llm_capture_live_t  *live;

    /* only a lock that another process holds */

    if (dest->file->error == EAGAIN) {
        return;
    }

    live = ngx_http_llm_capture_zone_live(&d->zone);

    atomic_store_explicit(&live->error, (uint32_t) dest->file->error,
                          memory_order_relaxed);
    atomic_store_explicit(&live->error_row, dest->row, memory_order_relaxed);
    ngx_http_llm_capture_live_set(&live->failed,
                                  ngx_http_llm_capture_drain_clock(d));
}


void
ngx_http_llm_capture_live_pass(ngx_http_llm_capture_drain_t *d)
{
    uint64_t                        oldest;
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_live_t    *live;
    ngx_http_llm_capture_upload_t  *u;

    oldest = 0;

    /* left after a write, each sorted but for what came since */

    for (dest = d->busy; dest; dest = dest->busy) {
        u = dest->ready.n ? dest->ready.first : NULL;

        if (u && (oldest == 0 || u->mono < oldest)) {
            oldest = u->mono;
        }
    }

    live = ngx_http_llm_capture_zone_live(&d->zone);

    ngx_http_llm_capture_live_set(&live->oldest, oldest);
    ngx_http_llm_capture_live_set(&live->blocks, d->zone.nblocks
                                                 - d->spill->nwarm
                                                 - d->spill->ncold);
}
