
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_account.h"


/* ms between two drops that belong to one gap */
#define NGX_HTTP_LLM_CAPTURE_NEAR  1000


uint32_t
ngx_http_llm_capture_accounts(const ngx_http_llm_capture_zone_t *z)
{
    uint32_t                         i;
    ngx_http_llm_capture_account_t  *a;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_ACCOUNTS; i++) {
        a = ngx_http_llm_capture_zone_account(z, i);

        if (atomic_load_explicit(&a->state, memory_order_acquire)
            == NGX_HTTP_LLM_CAPTURE_ACCOUNT_FREE)
        {
            break;
        }

        if (a->row >= NGX_HTTP_LLM_CAPTURE_ROWS) {
            a->row = NGX_HTTP_LLM_CAPTURE_TEMPLATES;
        }

        if (a->path_len >= NGX_HTTP_LLM_CAPTURE_PATH) {
            a->path_len = 0;
        }

        if (a->format > NGX_HTTP_LLM_CAPTURE_OUTCOMES) {
            a->format = NGX_HTTP_LLM_CAPTURE_OUTCOMES;
        }
    }

    return i;
}


/* the first file of a template has all that was seen before, others have not */

static void
ngx_http_llm_capture_account_base(const ngx_http_llm_capture_zone_t *z,
    ngx_http_llm_capture_account_t *a, uint32_t row, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        if (ngx_http_llm_capture_zone_account(z, i)->row == row) {
            ngx_http_llm_capture_zone_sum(z, row, a->base);
            a->base[NGX_HTTP_LLM_CAPTURE_C_seen] -=
                               ngx_http_llm_capture_zone_pending(a->base);
            return;
        }
    }
}


uint32_t
ngx_http_llm_capture_account_find(const ngx_http_llm_capture_zone_t *z,
    const char *path, size_t len, uint32_t row, uint32_t format)
{
    uint32_t                         i, n;
    uint64_t                         hash;
    ngx_http_llm_capture_account_t  *a;

    hash = ngx_http_llm_capture_zone_hash(path, len, 0);
    n = ngx_http_llm_capture_accounts(z);

    for (i = 0; i < n; i++) {
        a = ngx_http_llm_capture_zone_account(z, i);

        if (a->hash == hash && a->path_len == len
            && memcmp(a->path, path, len) == 0)
        {
            return i;
        }
    }

    if (n == NGX_HTTP_LLM_CAPTURE_ACCOUNTS || len == 0
        || len >= NGX_HTTP_LLM_CAPTURE_PATH)
    {
        return NGX_HTTP_LLM_CAPTURE_NONE;
    }

    a = ngx_http_llm_capture_zone_account(z, n);

    a->row = row;
    a->format = format;
    a->hash = hash;

    ngx_http_llm_capture_account_base(z, a, row, n);

    a->path_len = (uint32_t) len;
    memcpy(a->path, path, len);
    a->path[len] = '\0';

    atomic_store_explicit(&a->state, NGX_HTTP_LLM_CAPTURE_ACCOUNT_OPEN,
                          memory_order_release);

    return n;
}


void
ngx_http_llm_capture_account_reset(ngx_http_llm_capture_account_t *a)
{
    atomic_store_explicit(&a->state, NGX_HTTP_LLM_CAPTURE_ACCOUNT_RESET,
                          memory_order_release);

    a->dev = 0;
    a->ino = 0;
    a->size = 0;
    a->seal = 0;
    a->begun = 0;
    a->first = 0;
    a->last = 0;
    a->t0 = 0;
    a->carried = a->pending;
    a->endpoints = 0;
    a->nmodels = 0;

    memset(a->n, 0, sizeof(a->n));
    memcpy(a->base, a->told, sizeof(a->base));

    atomic_store_explicit(&a->state, NGX_HTTP_LLM_CAPTURE_ACCOUNT_OPEN,
                          memory_order_release);
}


void
ngx_http_llm_capture_account_row(ngx_http_llm_capture_account_t *a,
    uint64_t ts)
{
    if (a->first == 0 || ts + 1 < a->first) {
        a->first = ts + 1;
    }

    if (ts + 1 > a->last) {
        a->last = ts + 1;
    }
}


void
ngx_http_llm_capture_account_model(ngx_http_llm_capture_account_t *a,
    const char *name, size_t n)
{
    uint32_t  i, have;

    have = a->nmodels & ~NGX_HTTP_LLM_CAPTURE_MORE;

    for (i = 0; i < have && i < NGX_HTTP_LLM_CAPTURE_MODELS; i++) {
        if (n < NGX_HTTP_LLM_CAPTURE_MODEL
            && strncmp(a->models[i], name, n) == 0
            && a->models[i][n] == '\0')
        {
            return;
        }
    }

    if (have >= NGX_HTTP_LLM_CAPTURE_MODELS
        || n >= NGX_HTTP_LLM_CAPTURE_MODEL)
    {
        a->nmodels |= NGX_HTTP_LLM_CAPTURE_MORE;
        return;
    }

    memcpy(a->models[i], name, n);
    a->models[i][n] = '\0';
    a->nmodels++;
}


void
ngx_http_llm_capture_account_since(const ngx_http_llm_capture_account_t *a,
    const uint64_t now[NGX_HTTP_LLM_CAPTURE_C_max],
    uint64_t since[NGX_HTTP_LLM_CAPTURE_C_max])
{
    unsigned  c;

    for (c = 0; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
        since[c] = now[c] > a->base[c] ? now[c] - a->base[c] : 0;
    }
}


uint64_t
ngx_http_llm_capture_account_dropped(
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max])
{
    return sum[NGX_HTTP_LLM_CAPTURE_C_queue_full]
           + sum[NGX_HTTP_LLM_CAPTURE_C_unreadable]
           + sum[NGX_HTTP_LLM_CAPTURE_C_no_outcome]
           + sum[NGX_HTTP_LLM_CAPTURE_C_disk_limit]
           + sum[NGX_HTTP_LLM_CAPTURE_C_failed]
           + sum[NGX_HTTP_LLM_CAPTURE_C_uncertain]
           + sum[NGX_HTTP_LLM_CAPTURE_C_lost];
}


/* the two that lie nearest to each other become one */

static void
ngx_http_llm_capture_account_merge(ngx_http_llm_capture_gaps_t *gaps)
{
    uint32_t  i, best;

    best = 1;

    for (i = 2; i < NGX_HTTP_LLM_CAPTURE_GAPS; i++) {
        if (gaps->gap[i].from - gaps->gap[i - 1].to
            < gaps->gap[best].from - gaps->gap[best - 1].to)
        {
            best = i;
        }
    }

    gaps->gap[best - 1].to = gaps->gap[best].to;
    gaps->gap[best - 1].after = gaps->gap[best].after;

    memmove(&gaps->gap[best], &gaps->gap[best + 1],
            (NGX_HTTP_LLM_CAPTURE_GAPS - best - 1)
            * sizeof(ngx_http_llm_capture_gap_t));
}


void
ngx_http_llm_capture_account_gap(ngx_http_llm_capture_gaps_t *gaps,
    uint64_t dropped, uint64_t before, uint64_t now)
{
    uint32_t                     n;
    uint64_t                     told;
    ngx_http_llm_capture_gap_t  *gap;

    /* read once: a worker may change it under our eyes */

    n = *(volatile uint32_t *) &gaps->n;

    if (n > NGX_HTTP_LLM_CAPTURE_GAPS) {
        n = 0;
    }

    gap = n ? &gaps->gap[n - 1] : NULL;
    told = gap ? gap->after : 0;

    if (dropped <= told) {
        return;
    }

    /* the clock may have been set back */

    before = before < now ? before : now;

    if (gap && before < gap->to + NGX_HTTP_LLM_CAPTURE_NEAR) {
        gap->to = now > gap->to ? now : gap->to;
        gap->after = dropped;
        return;
    }

    if (n == NGX_HTTP_LLM_CAPTURE_GAPS) {
        ngx_http_llm_capture_account_merge(gaps);
        n--;
    }

    gap = &gaps->gap[n];

    gap->from = before;
    gap->to = now;
    gap->before = told;
    gap->after = dropped;

    gaps->n = n + 1;
}
