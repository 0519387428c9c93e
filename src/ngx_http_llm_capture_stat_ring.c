
/*
 * Copyright (C) the llm-capture authors
 */

/* what a ring tells of itself, whoever is at work on it */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ngx_http_llm_capture_record.h"
#include "ngx_http_llm_capture_stat.h"


/* frames looked at in a ring for a request that waits, and requests begun */
#define NGX_HTTP_LLM_CAPTURE_LOOK     1024
#define NGX_HTTP_LLM_CAPTURE_BEGUN    16


/* requests of a ring whose END is looked for */

typedef struct {
    unsigned                       n;
    struct {
        uint64_t                   id;
        uint64_t                   mono;
    } request[NGX_HTTP_LLM_CAPTURE_BEGUN];
} ngx_http_llm_capture_begun_t;


/* bytes between two positions, and those that a lap left free at its end */

static uint64_t
ngx_http_llm_capture_stat_used(uint64_t head, uint64_t tail, size_t ring_size)
{
    uint64_t  units, h, t;

    units = ring_size / NGX_HTTP_LLM_CAPTURE_UNIT;
    h = (uint32_t) head;
    t = (uint32_t) tail;

    if (h > units || t > units) {
        return ring_size;
    }

    if (head >> 32 == tail >> 32) {
        return h > t ? (h - t) * NGX_HTTP_LLM_CAPTURE_UNIT : 0;
    }

    units = units - t + h;

    return units * NGX_HTTP_LLM_CAPTURE_UNIT < ring_size
           ? units * NGX_HTTP_LLM_CAPTURE_UNIT : ring_size;
}


/* when the request arrived that this frame ends; 0: it ends none of them */

static uint64_t
ngx_http_llm_capture_stat_frame(ngx_http_llm_capture_begun_t *b,
    const ngx_http_llm_capture_frame_t *f, const uint8_t *at)
{
    unsigned                      i;
    uint32_t                      body;
    const char                   *path;
    ngx_http_llm_capture_begin_t  begin;

    if (f->mark || f->id >= NGX_HTTP_LLM_CAPTURE_ID_OUTCOME
        || (f->flags & NGX_HTTP_LLM_CAPTURE_JUMP))
    {
        return 0;
    }

    if ((f->flags & NGX_HTTP_LLM_CAPTURE_BEGIN)
        && b->n < NGX_HTTP_LLM_CAPTURE_BEGUN
        && ngx_http_llm_capture_record_parse(at, f, &begin, &path, &body) == 0)
    {
        b->request[b->n].id = f->id;
        b->request[b->n].mono = begin.mono;
        b->n++;
    }

    if (f->flags & NGX_HTTP_LLM_CAPTURE_END) {
        for (i = 0; i < b->n; i++) {
            if (b->request[i].id == f->id) {
                return b->request[i].mono;
            }
        }
    }

    return 0;
}


/*
 * When the first request arrived that is whole and not finished, as far as the
 * ring tells without the helper, which may be gone; 0: none is seen
 */

static uint64_t
ngx_http_llm_capture_stat_first(ngx_http_llm_capture_zone_t *z, uint32_t ring,
    uint64_t head, uint64_t tail)
{
    size_t                         at;
    unsigned                       i;
    uint64_t                       mono;
    ngx_http_llm_capture_begun_t   begun;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    r.data = ngx_http_llm_capture_zone_data(z, ring);
    r.size = (uint32_t) (z->ring_size / NGX_HTTP_LLM_CAPTURE_UNIT);
    r.lap = (uint32_t) (tail >> 32);
    r.off = (uint32_t) tail;

    if (r.off > r.size) {
        return 0;
    }

    begun.n = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_LOOK; i++) {

        if (ngx_http_llm_capture_ring_read(&r, head, &f, &at) != 1) {
            break;
        }

        mono = ngx_http_llm_capture_stat_frame(&begun, &f, r.data + at);

        if (mono) {
            return mono;
        }
    }

    return 0;
}


void
ngx_http_llm_capture_stat_ring(ngx_http_llm_capture_stat_t *s,
    ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_stat_conf_t *conf, uint32_t ring)
{
    uint64_t                           head, tail, mono;
    ngx_http_llm_capture_ring_hdr_t   *hdr;
    ngx_http_llm_capture_stat_ring_t  *r;

    hdr = ngx_http_llm_capture_zone_ring(z, ring);
    r = &s->rings[ring];

    /* the tail first: read later it might have passed the head */

    tail = atomic_load_explicit(&hdr->tail, memory_order_acquire);
    head = atomic_load_explicit(&hdr->head, memory_order_acquire);

    r->owner = (uint32_t) atomic_load_explicit(&hdr->owner,
                                               memory_order_relaxed);
    r->used = ngx_http_llm_capture_stat_used(head, tail, z->ring_size);
    s->used += r->used;

    if (head == tail) {
        return;
    }

    mono = ngx_http_llm_capture_stat_first(z, ring, head, tail);

    /* in memory that is written anew meanwhile stands anything */

#ifndef __SANITIZE_THREAD__      /* gcc's knows no fences */
    atomic_thread_fence(memory_order_acquire);
#endif

    if (atomic_load_explicit(&hdr->tail, memory_order_relaxed) == tail) {
        ngx_http_llm_capture_stat_waits(s, conf->now, mono);
    }
}
