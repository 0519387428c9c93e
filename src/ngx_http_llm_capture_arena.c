
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>
#include <sys/mman.h>

#include "ngx_http_llm_capture_arena.h"


uint32_t
ngx_http_llm_capture_arena_blocks(uint64_t bytes)
{
    uint64_t  n;

    n = bytes / NGX_HTTP_LLM_CAPTURE_BLOCK
        + (bytes % NGX_HTTP_LLM_CAPTURE_BLOCK != 0);

    return n < NGX_HTTP_LLM_CAPTURE_NONE ? (uint32_t) n
                                         : NGX_HTTP_LLM_CAPTURE_NONE;
}


void
ngx_http_llm_capture_arena_free(ngx_http_llm_capture_drain_t *d,
    uint32_t block)
{
    ngx_http_llm_capture_spill_t  *s = d->spill;

    if (s->nwarm < NGX_HTTP_LLM_CAPTURE_WARM) {
        s->warm[s->nwarm++] = block;
        return;
    }

    (void) madvise(ngx_http_llm_capture_zone_block(&d->zone, block),
                   NGX_HTTP_LLM_CAPTURE_BLOCK, MADV_REMOVE);

    s->cold[s->ncold++] = block;
}


/* one more block behind a chain; the caller has made sure that there is one */

static void
ngx_http_llm_capture_arena_add(ngx_http_llm_capture_drain_t *d,
    uint32_t chain)
{
    uint32_t                        block;
    ngx_http_llm_capture_spill_t   *s = d->spill;
    ngx_http_llm_capture_extent_t  *c;

    block = s->nwarm ? s->warm[--s->nwarm] : s->cold[--s->ncold];

    c = &s->chains[chain];

    if (c->n == 0) {
        c->first = block;

    } else {
        s->next[c->last] = block;
        atomic_store_explicit(ngx_http_llm_capture_zone_next(&d->zone,
                                                             c->last),
                              block, memory_order_relaxed);
    }

    s->next[block] = NGX_HTTP_LLM_CAPTURE_NONE;
    c->last = block;
    c->n++;
}


/* bytes behind `used` of a chain, whose blocks are there */

void
ngx_http_llm_capture_arena_append(ngx_http_llm_capture_drain_t *d,
    uint32_t chain, uint64_t used, const uint8_t *p, size_t n)
{
    size_t                          at, part;
    ngx_http_llm_capture_extent_t  *c;

    c = &d->spill->chains[chain];

    while (n) {
        at = (size_t) (used % NGX_HTTP_LLM_CAPTURE_BLOCK);

        if (used / NGX_HTTP_LLM_CAPTURE_BLOCK == c->n) {
            ngx_http_llm_capture_arena_add(d, chain);
        }

        part = NGX_HTTP_LLM_CAPTURE_BLOCK - at;

        if (part > n) {
            part = n;
        }

        memcpy(ngx_http_llm_capture_zone_block(&d->zone, c->last) + at, p,
               part);

        p += part;
        n -= part;
        used += part;
    }
}


/* the next piece of a body in blocks; 0: no more */

int
ngx_http_llm_capture_arena_next(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_walk_t *w, struct iovec *v)
{
    if (w->n == 0) {
        return 0;
    }

    v->iov_base = ngx_http_llm_capture_zone_block(&d->zone, w->block)
                  + w->skip;
    v->iov_len = NGX_HTTP_LLM_CAPTURE_BLOCK - w->skip;

    if (v->iov_len > w->left) {
        v->iov_len = (size_t) w->left;
    }

    w->left -= v->iov_len;
    w->skip = 0;
    w->block = d->spill->next[w->block];
    w->n--;

    return 1;
}


ngx_http_llm_capture_walk_t
ngx_http_llm_capture_arena_walk(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    ngx_http_llm_capture_walk_t     w;
    ngx_http_llm_capture_extent_t  *c;

    c = &d->spill->chains[u->chain];

    w.block = c->first;
    w.n = c->n;
    w.skip = c->extra;
    w.left = u->len;

    return w;
}
