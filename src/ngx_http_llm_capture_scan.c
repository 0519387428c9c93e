
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The scan as its caller sees it.  The kernel (scan_kernel.c, or one with
 * vectors) takes a piece in blocks and checks its UTF-8; the walk (scan_walk.c)
 * is the grammar; number.c knows numbers.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_scan.h"
#include "ngx_http_llm_capture_scan_kernel.h"


void
ngx_http_llm_capture_scan_init(ngx_http_llm_capture_scan_t *s,
    unsigned max_depth, unsigned flags)
{
    memset(s, 0, sizeof(ngx_http_llm_capture_scan_t));

    if (max_depth > NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT) {
        max_depth = NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT;
    }

    s->max_depth = (uint16_t) max_depth;
    s->flags = (uint8_t) flags;
    s->state = NGX_HTTP_LLM_CAPTURE_SCAN_AT_TOP;
}


ngx_http_llm_capture_verdict_t
ngx_http_llm_capture_scan_feed(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    if (s->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK && n) {
        ngx_http_llm_capture_scan_kernel_feed(s, p, n);
    }

    return s->verdict;
}


ngx_http_llm_capture_verdict_t
ngx_http_llm_capture_scan_number(const ngx_http_llm_capture_scan_t *s)
{
    switch (ngx_http_llm_capture_number_end(&s->number)) {

    case NGX_HTTP_LLM_CAPTURE_NUMBER_OK:
        return NGX_HTTP_LLM_CAPTURE_SCAN_OK;

    case NGX_HTTP_LLM_CAPTURE_NUMBER_OVERFLOW:
        return NGX_HTTP_LLM_CAPTURE_SCAN_NUMBER;

    default:
        return NGX_HTTP_LLM_CAPTURE_SCAN_JSON;
    }
}


ngx_http_llm_capture_verdict_t
ngx_http_llm_capture_scan_end(ngx_http_llm_capture_scan_t *s)
{
    if (s->verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        return s->verdict;
    }

    /* a number that is all of the body ends with it */

    if (s->state == NGX_HTTP_LLM_CAPTURE_SCAN_AT_NUMBER && s->depth == 0) {
        s->verdict = ngx_http_llm_capture_scan_number(s);

        if (s->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
            s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_NOT_OBJECT;
        }

        return s->verdict;
    }

    if (s->state != NGX_HTTP_LLM_CAPTURE_SCAN_AT_DONE) {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_JSON;

    } else if (!s->top) {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_NOT_OBJECT;

    } else if (!s->members) {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_EMPTY;

    } else if ((s->flags & NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES)
               && !s->messages)
    {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_NO_MESSAGES;
    }

    return s->verdict;
}
