
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Between the two halves of the scan: a kernel takes a piece in blocks of 64
 * bytes, checks its UTF-8 and finds what is of interest in a block; the walk
 * goes from one such byte to the next.  The kernel is chosen at run time, by
 * what the machine has; all give the same verdicts.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_BLOCK_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_BLOCK_H_INCLUDED_


#include "ngx_http_llm_capture_scan.h"


#define NGX_HTTP_LLM_CAPTURE_BLOCK_SIZE  64


/* bit i is for byte i */

typedef struct {
    uint64_t    special;        /* quote, backslash, below 0x20 */
    uint64_t    high;           /* 0x80 and above; not for the walk */
    uint64_t    space;          /* the four of JSON */
    uint64_t    eol;            /* CR, LF */
} ngx_http_llm_capture_block_t;


/* worst to best */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_KERNEL_PORTABLE = 0,
    NGX_HTTP_LLM_CAPTURE_KERNEL_SSE2,
    NGX_HTTP_LLM_CAPTURE_KERNEL_AVX2
} ngx_http_llm_capture_kernel_e;


/*
 * Makes the given kernel, or the best below it that there is, the one of this
 * process; returns which.  For tests and benches: without it the best is used.
 * Not while a scan is under way.
 */

ngx_http_llm_capture_kernel_e ngx_http_llm_capture_kernel_use(
    ngx_http_llm_capture_kernel_e kernel);

/* takes n bytes; sets s->verdict when they are refused */

void ngx_http_llm_capture_kernel_feed(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);

/* n: 1 to 64; bits of m from n on are set in space and clear in the rest */

void ngx_http_llm_capture_scan_walk(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n, const ngx_http_llm_capture_block_t *m);


/* a block of a string that is no key to be compared needs no walk */

#define ngx_http_llm_capture_scan_plain(s)                                    \
    ((s)->state == NGX_HTTP_LLM_CAPTURE_SCAN_STRING && !(s)->track)

/* the first, so that a kernel can ask for it without knowing the others */
#define NGX_HTTP_LLM_CAPTURE_SCAN_STRING  0


#endif /* _NGX_HTTP_LLM_CAPTURE_BLOCK_H_INCLUDED_ */
