
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ngx_http_llm_capture_blocks.h"


static void
ngx_http_llm_capture_blocks_next(ngx_http_llm_capture_blocks_t *b)
{
    b->fill = 0;

    ngx_http_llm_capture_siphash_init(&b->hash,
                                      ngx_http_llm_capture_siphash_zero);
    ngx_http_llm_capture_siphash_update(&b->hash, "block", sizeof("block"));
    ngx_http_llm_capture_siphash_number(&b->hash, b->chain);
}


void
ngx_http_llm_capture_blocks_init(ngx_http_llm_capture_blocks_t *b)
{
    b->chain = 0;
    b->n = 0;

    ngx_http_llm_capture_blocks_next(b);
}


void
ngx_http_llm_capture_blocks_update(ngx_http_llm_capture_blocks_t *b,
    const void *text, size_t n)
{
    size_t          some;
    const uint8_t  *p;

    for (p = text; n && b->n < NGX_HTTP_LLM_CAPTURE_HASHES; p += some) {

        some = NGX_HTTP_LLM_CAPTURE_HASH_BYTES - b->fill;
        some = n < some ? n : some;

        ngx_http_llm_capture_siphash_update(&b->hash, p, some);
        b->fill += (uint32_t) some;
        n -= some;

        if (b->fill == NGX_HTTP_LLM_CAPTURE_HASH_BYTES) {
            b->chain = ngx_http_llm_capture_siphash_end(&b->hash);
            b->id[b->n++] = b->chain >> 16;
            ngx_http_llm_capture_blocks_next(b);
        }
    }
}


void
ngx_http_llm_capture_blocks_seal(ngx_http_llm_capture_blocks_t *b,
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY])
{
    uint32_t                        i;
    ngx_http_llm_capture_siphash_t  s;

    for (i = 0; i < b->n; i++) {
        ngx_http_llm_capture_siphash_init(&s, key);
        ngx_http_llm_capture_siphash_update(&s, "hash", sizeof("hash"));
        ngx_http_llm_capture_siphash_number(&s, b->id[i]);

        b->id[i] = ngx_http_llm_capture_siphash_end(&s) >> 16;
    }
}


uint32_t
ngx_http_llm_capture_blocks_of(const ngx_http_llm_capture_blocks_t *b,
    int64_t tokens)
{
    int64_t  full;

    full = tokens > 0 ? tokens / NGX_HTTP_LLM_CAPTURE_HASH_TOKENS : 0;

    return full < (int64_t) b->n ? (uint32_t) full : b->n;
}
