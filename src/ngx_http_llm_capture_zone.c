
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_control.h"


#define NGX_HTTP_LLM_CAPTURE_MAGIC  0x4c4c4d43617074ULL      /* "LLMCapt" */

#define NGX_HTTP_LLM_CAPTURE_MAX_RING  (64ULL * 1024 * 1024 * 1024)

#define align(n, a)  (((n) + (a) - 1) / (a) * (a))
#define line(n)      align(n, NGX_HTTP_LLM_CAPTURE_LINE)


#define NGX_HTTP_LLM_CAPTURE_NAME(name)  #name,

const char *const
    ngx_http_llm_capture_counter_names[NGX_HTTP_LLM_CAPTURE_C_max] =
{
    NGX_HTTP_LLM_CAPTURE_COUNTERS(NGX_HTTP_LLM_CAPTURE_NAME)
};


int
ngx_http_llm_capture_zone_layout(ngx_http_llm_capture_zone_t *z,
    uint32_t nrings, uint64_t queue, size_t page)
{
    size_t  rows;

    memset(z, 0, sizeof(ngx_http_llm_capture_zone_t));

    if (nrings == 0 || queue / nrings < page
        || queue / nrings > NGX_HTTP_LLM_CAPTURE_MAX_RING)
    {
        return -1;
    }

    rows = line(NGX_HTTP_LLM_CAPTURE_ROWS * sizeof(ngx_http_llm_capture_row_t));

    z->nrings = nrings;
    z->ring_size = (size_t) (queue / nrings) / page * page;
    z->nblocks = (uint32_t) (align(z->ring_size * nrings / 3,
                                   NGX_HTTP_LLM_CAPTURE_BLOCK)
                             / NGX_HTTP_LLM_CAPTURE_BLOCK);

    z->live = line(sizeof(ngx_http_llm_capture_zone_hdr_t));
    z->control = z->live + line(sizeof(ngx_http_llm_capture_live_t));
    z->intent = z->control + line(sizeof(ngx_http_llm_capture_control_t));
    z->helper = z->intent + line(sizeof(ngx_http_llm_capture_intent_t));
    z->rings = z->helper + rows;
    z->rows = z->rings + nrings * sizeof(ngx_http_llm_capture_ring_hdr_t);
    z->chains = z->rows + (nrings + 1) * NGX_HTTP_LLM_CAPTURE_ROWS
                                * sizeof(ngx_http_llm_capture_row_t);
    z->next = z->chains + line(NGX_HTTP_LLM_CAPTURE_CHAINS
                               * sizeof(ngx_http_llm_capture_chain_t));
    z->waits = line(z->next + z->nblocks * sizeof(uint32_t));
    z->accounts = z->waits + line(NGX_HTTP_LLM_CAPTURE_WAITS
                                  * sizeof(ngx_http_llm_capture_wait_t));
    z->gaps = z->accounts + line(NGX_HTTP_LLM_CAPTURE_ACCOUNTS
                                 * sizeof(ngx_http_llm_capture_account_t));
    z->data = align(z->gaps + NGX_HTTP_LLM_CAPTURE_ROWS
                              * sizeof(ngx_http_llm_capture_gaps_t), page);
    z->blocks = z->data + nrings * z->ring_size;
    z->size = z->blocks + (size_t) z->nblocks * NGX_HTTP_LLM_CAPTURE_BLOCK;

    return 0;
}


void
ngx_http_llm_capture_zone_format(ngx_http_llm_capture_zone_t *z, uint64_t id)
{
    ngx_http_llm_capture_zone_hdr_t  *h;

    /* the memory is fresh, and zeroed means: no owner, empty, no intent */

    h = ngx_http_llm_capture_zone_hdr(z);

    h->layout = NGX_HTTP_LLM_CAPTURE_LAYOUT;
    h->nrings = z->nrings;
    h->ring_size = z->ring_size;
    h->id = id;
    h->magic = NGX_HTTP_LLM_CAPTURE_MAGIC;
}


uint64_t
ngx_http_llm_capture_zone_hash(const char *text, size_t len, uint32_t format)
{
    size_t    i;
    uint64_t  h;

    /* FNV-1a: a name in a table, not a secret */

    h = 0xcbf29ce484222325ULL ^ format;
    h *= 0x100000001b3ULL;

    for (i = 0; i < len; i++) {
        h = (h ^ (uint8_t) text[i]) * 0x100000001b3ULL;
    }

    return h;
}


uint32_t
ngx_http_llm_capture_zone_template(ngx_http_llm_capture_zone_t *z,
    const char *text, size_t len, uint32_t format)
{
    uint32_t                          row;
    uint64_t                          hash;
    ngx_http_llm_capture_zone_hdr_t  *h;
    ngx_http_llm_capture_template_t  *t;

    h = ngx_http_llm_capture_zone_hdr(z);

    hash = ngx_http_llm_capture_zone_hash(text, len, format);
    row = ngx_http_llm_capture_zone_row(z, hash);

    if (row < NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
        return row;
    }

    row = atomic_load_explicit(&h->ntemplates, memory_order_relaxed);

    if (row >= NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
        return NGX_HTTP_LLM_CAPTURE_TEMPLATES;
    }

    t = &h->templates[row];

    t->hash = hash;
    t->format = format;
    t->len = (uint32_t) (len < sizeof(t->text) ? len : sizeof(t->text));
    memcpy(t->text, text, t->len);

    atomic_store_explicit(&h->ntemplates, row + 1, memory_order_release);

    return row;
}


uint32_t
ngx_http_llm_capture_zone_row(ngx_http_llm_capture_zone_t *z, uint64_t hash)
{
    uint32_t                          i, n;
    ngx_http_llm_capture_zone_hdr_t  *h;

    h = ngx_http_llm_capture_zone_hdr(z);
    n = atomic_load_explicit(&h->ntemplates, memory_order_acquire);

    if (n > NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
        n = NGX_HTTP_LLM_CAPTURE_TEMPLATES;
    }

    for (i = 0; i < n; i++) {
        if (h->templates[i].hash == hash) {
            return i;
        }
    }

    return NGX_HTTP_LLM_CAPTURE_TEMPLATES;
}


static void
ngx_http_llm_capture_zone_add(ngx_http_llm_capture_row_t *row,
    uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max])
{
    unsigned  c;

    /* backwards, so that seen is last: it is counted before what follows */

    for (c = NGX_HTTP_LLM_CAPTURE_C_max; c--; ) {
        sum[c] += atomic_load_explicit(&row->n[c], memory_order_acquire);
    }
}


void
ngx_http_llm_capture_zone_sum(const ngx_http_llm_capture_zone_t *z,
    uint32_t row, uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max])
{
    uint32_t  i;

    memset(sum, 0, NGX_HTTP_LLM_CAPTURE_C_max * sizeof(uint64_t));

    /*
     * The helper's row first: what it finished was seen before, so a reader
     * in between finds too much pending, never less than nothing
     */

    ngx_http_llm_capture_zone_add(ngx_http_llm_capture_zone_helper(z) + row,
                                  sum);

    for (i = 0; i <= z->nrings; i++) {
        ngx_http_llm_capture_zone_add(ngx_http_llm_capture_zone_rows(z, i)
                                      + row, sum);
    }
}


uint64_t
ngx_http_llm_capture_zone_pending(
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max])
{
    unsigned  c;
    uint64_t  n;

    n = 0;

    for (c = NGX_HTTP_LLM_CAPTURE_C_seen + 1;
         c <= NGX_HTTP_LLM_CAPTURE_C_last;
         c++)
    {
        n += sum[c];
    }

    return sum[NGX_HTTP_LLM_CAPTURE_C_seen] > n
           ? sum[NGX_HTTP_LLM_CAPTURE_C_seen] - n : 0;
}


uint32_t
ngx_http_llm_capture_zone_owned(const ngx_http_llm_capture_zone_t *z)
{
    uint32_t  i, n;

    for (n = 0, i = 0; i < z->nrings; i++) {
        n += atomic_load_explicit(&ngx_http_llm_capture_zone_ring(z, i)->owner,
                                  memory_order_acquire)
             != 0;
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CHAINS; i++) {
        n += atomic_load_explicit(&ngx_http_llm_capture_zone_chain(z, i)->state,
                                  memory_order_acquire)
             == NGX_HTTP_LLM_CAPTURE_CHAIN_HELD;
    }

    return n;
}


uint32_t
ngx_http_llm_capture_zone_left(const ngx_http_llm_capture_zone_t *z)
{
    uint32_t  i, n, used;

    n = ngx_http_llm_capture_zone_owned(z);

    used = atomic_load_explicit(&ngx_http_llm_capture_zone_hdr(z)->waits,
                                memory_order_acquire);

    for (i = 0; i < used && i < NGX_HTTP_LLM_CAPTURE_WAITS; i++) {
        n += atomic_load_explicit(&ngx_http_llm_capture_zone_wait(z, i)->uid,
                                  memory_order_acquire)
             != 0;
    }

    return n;
}
