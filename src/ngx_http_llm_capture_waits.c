
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The table is in the zone, where every worker can write: the helper goes by
 * an index of its own, and takes a number, a row or a pid there for no more
 * than a value.  Slots are used from the front, or each would touch a page.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>

#include "ngx_http_llm_capture_waits.h"


#define NGX_HTTP_LLM_CAPTURE_WAITS_HASH  16384


struct ngx_http_llm_capture_waits_s {
    const ngx_http_llm_capture_zone_t  *zone;
    uint32_t                            n;
    uint32_t                            end;    /* slots used so far */
    uint32_t                            free;   /* of those; a list */

    uint32_t                            hash[NGX_HTTP_LLM_CAPTURE_WAITS_HASH];
    /* of the bucket, or of the free list; slot + 1, 0: no more */
    uint32_t                            next[NGX_HTTP_LLM_CAPTURE_WAITS];
    uint64_t                            uid[NGX_HTTP_LLM_CAPTURE_WAITS];
};


static uint32_t *
ngx_http_llm_capture_waits_bucket(ngx_http_llm_capture_waits_t *w,
    uint64_t uid)
{
    return &w->hash[uid % NGX_HTTP_LLM_CAPTURE_WAITS_HASH];
}


/* where the slot of a number is told, or would be */

static uint32_t *
ngx_http_llm_capture_waits_find(ngx_http_llm_capture_waits_t *w, uint64_t uid)
{
    uint32_t  *p;

    for (p = ngx_http_llm_capture_waits_bucket(w, uid);
         *p;
         p = &w->next[*p - 1])
    {
        if (w->uid[*p - 1] == uid) {
            break;
        }
    }

    return p;
}


static void
ngx_http_llm_capture_waits_link(ngx_http_llm_capture_waits_t *w,
    uint64_t uid, uint32_t slot)
{
    uint32_t  *bucket;

    bucket = ngx_http_llm_capture_waits_bucket(w, uid);

    w->uid[slot] = uid;
    w->next[slot] = *bucket;
    *bucket = slot + 1;
    w->n++;
}


ngx_http_llm_capture_waits_t *
ngx_http_llm_capture_waits_open(const ngx_http_llm_capture_zone_t *zone)
{
    uint64_t                       uid;
    uint32_t                       i, used;
    ngx_http_llm_capture_wait_t   *wait;
    ngx_http_llm_capture_waits_t  *w;

    w = calloc(1, sizeof(ngx_http_llm_capture_waits_t));

    if (w == NULL) {
        return NULL;
    }

    w->zone = zone;

    used = atomic_load_explicit(
               &ngx_http_llm_capture_zone_hdr(zone)->waits,
               memory_order_acquire);

    if (used > NGX_HTTP_LLM_CAPTURE_WAITS) {
        used = NGX_HTTP_LLM_CAPTURE_WAITS;
    }

    w->end = used;

    for (i = used; i-- > 0; /* void */) {
        wait = ngx_http_llm_capture_zone_wait(zone, i);
        uid = atomic_load_explicit(&wait->uid, memory_order_acquire);

        if (uid == 0 || *ngx_http_llm_capture_waits_find(w, uid)) {
            atomic_store_explicit(&wait->uid, 0, memory_order_relaxed);
            w->next[i] = w->free;
            w->free = i + 1;
            continue;
        }

        ngx_http_llm_capture_waits_link(w, uid, i);
    }

    return w;
}


void
ngx_http_llm_capture_waits_close(ngx_http_llm_capture_waits_t *w)
{
    free(w);
}


int
ngx_http_llm_capture_waits_add(ngx_http_llm_capture_waits_t *w, uint64_t uid,
    uint32_t pid, uint32_t row, uint64_t ts, uint64_t session)
{
    uint32_t                      slot;
    ngx_http_llm_capture_wait_t  *wait;

    if (*ngx_http_llm_capture_waits_find(w, uid)) {
        return 0;
    }

    if (w->free) {
        slot = w->free - 1;
        w->free = w->next[slot];

    } else if (w->end < NGX_HTTP_LLM_CAPTURE_WAITS) {
        slot = w->end++;
        atomic_store_explicit(&ngx_http_llm_capture_zone_hdr(w->zone)->waits,
                              w->end, memory_order_release);

    } else {
        return -1;
    }

    wait = ngx_http_llm_capture_zone_wait(w->zone, slot);

    wait->ts = ts;
    wait->session = session;
    wait->pid = pid;
    wait->row = row;

    atomic_store_explicit(&wait->uid, uid, memory_order_release);

    ngx_http_llm_capture_waits_link(w, uid, slot);

    return 0;
}


static void
ngx_http_llm_capture_waits_copy(ngx_http_llm_capture_waits_t *w,
    uint32_t slot, ngx_http_llm_capture_wait_t *copy)
{
    volatile ngx_http_llm_capture_wait_t  *wait;

    wait = ngx_http_llm_capture_zone_wait(w->zone, slot);

    copy->uid = w->uid[slot];
    copy->ts = wait->ts;
    copy->session = wait->session;
    copy->pid = wait->pid;
    copy->row = wait->row;

    if (copy->row >= NGX_HTTP_LLM_CAPTURE_ROWS) {
        copy->row = NGX_HTTP_LLM_CAPTURE_TEMPLATES;
    }
}


int
ngx_http_llm_capture_waits_get(ngx_http_llm_capture_waits_t *w, uint64_t uid,
    ngx_http_llm_capture_wait_t *wait)
{
    uint32_t  slot;

    slot = *ngx_http_llm_capture_waits_find(w, uid);

    if (slot == 0) {
        return 0;
    }

    ngx_http_llm_capture_waits_copy(w, slot - 1, wait);

    return 1;
}


void
ngx_http_llm_capture_waits_remove(ngx_http_llm_capture_waits_t *w,
    uint64_t uid)
{
    uint32_t  *p, slot;

    p = ngx_http_llm_capture_waits_find(w, uid);

    if (*p == 0) {
        return;
    }

    slot = *p - 1;
    *p = w->next[slot];

    w->uid[slot] = 0;
    w->next[slot] = w->free;
    w->free = slot + 1;
    w->n--;

    atomic_store_explicit(&ngx_http_llm_capture_zone_wait(w->zone, slot)->uid,
                          0, memory_order_release);
}


uint32_t
ngx_http_llm_capture_waits_n(const ngx_http_llm_capture_waits_t *w)
{
    return w->n;
}


int
ngx_http_llm_capture_waits_next(ngx_http_llm_capture_waits_t *w, uint32_t *at,
    ngx_http_llm_capture_wait_t *wait)
{
    while (*at < w->end) {

        if (w->uid[(*at)++]) {
            ngx_http_llm_capture_waits_copy(w, *at - 1, wait);
            return 1;
        }
    }

    return 0;
}
