
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Between the parts of the scan: a kernel takes a piece in blocks of 64 bytes,
 * checks their UTF-8 and finds what is of interest in them; the walk goes from
 * one such byte to the next.  The kernel is chosen at run time, by what the
 * machine has; all give the same verdicts.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SCAN_KERNEL_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SCAN_KERNEL_H_INCLUDED_


#include <string.h>

#include "ngx_http_llm_capture_scan.h"


/* -DNGX_HTTP_LLM_CAPTURE_SCAN_NO_SIMD leaves the portable kernel alone */

#ifndef NGX_HTTP_LLM_CAPTURE_SCAN_NO_SIMD
#ifdef __x86_64__
#define NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_SSSE3  1
#define NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_AVX2   1
#endif
#ifdef __aarch64__
#define NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_NEON   1
#endif
#endif


#define NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK  64


/* bit i is for byte i */

typedef struct {
    uint64_t    special;        /* quote, backslash, below 0x20 */
    uint64_t    high;           /* 0x80 and above, some; not for the walk */
    uint64_t    space;          /* the four of JSON */
    uint64_t    eol;            /* CR, LF */
} ngx_http_llm_capture_scan_block_t;


/* what the next byte is to be; zeroed memory is no such state */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_STRING = 1,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_ESCAPE,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_HEX,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_PAIR_BACKSLASH,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_PAIR_U,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_TOP,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_FIRST_KEY,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_KEY,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_COLON,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_FIRST_ITEM,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_VALUE,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_AFTER,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_NUMBER,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_LITERAL,
    NGX_HTTP_LLM_CAPTURE_SCAN_AT_DONE
} ngx_http_llm_capture_scan_state_e;


/* worst to best; a machine has NEON or the others */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_SCAN_PORTABLE = 0,
    NGX_HTTP_LLM_CAPTURE_SCAN_NEON,
    NGX_HTTP_LLM_CAPTURE_SCAN_SSSE3,
    NGX_HTTP_LLM_CAPTURE_SCAN_AVX2
} ngx_http_llm_capture_scan_kernel_e;


/*
 * Makes the given kernel, or the best below it that there is, the one of this
 * process; returns which.  For tests and benches: without it the best is used.
 * Not while a scan is under way.
 */

ngx_http_llm_capture_scan_kernel_e ngx_http_llm_capture_scan_kernel_use(
    ngx_http_llm_capture_scan_kernel_e kernel);

/* takes n bytes; sets s->verdict when they are refused */

void ngx_http_llm_capture_scan_kernel_feed(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);

/* those that this machine's compiler makes */

void ngx_http_llm_capture_scan_avx2_feed(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);
void ngx_http_llm_capture_scan_ssse3_feed(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);
void ngx_http_llm_capture_scan_neon_feed(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);

/*
 * The byte behind n (0 to 63) of the block is no UTF-8: the verdict is that,
 * unless what stands before it is refused already
 */

void ngx_http_llm_capture_scan_wrong(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);

/* n: 1 to 64; bits of m from n on are set in space and clear in the rest */

void ngx_http_llm_capture_scan_walk(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n, const ngx_http_llm_capture_scan_block_t *m);


/* a number is complete */

ngx_http_llm_capture_verdict_t ngx_http_llm_capture_scan_number(
    const ngx_http_llm_capture_scan_t *s);


/* in a string that is no key to be compared, a plain block needs no walk */

static inline int
ngx_http_llm_capture_scan_plain(const ngx_http_llm_capture_scan_t *s)
{
    return s->state == NGX_HTTP_LLM_CAPTURE_SCAN_AT_STRING && !s->track;
}


/* the last block of a piece, which may be short: no byte behind it is read */

static inline const uint8_t *
ngx_http_llm_capture_scan_copy(uint8_t *to, const uint8_t *p, size_t n)
{
    memset(to + n, ' ', NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK - n);
    memcpy(to, p, n);

    return to;
}


/* eight bytes, the first lowest, whatever the machine */

static inline uint64_t
ngx_http_llm_capture_scan_word(const uint8_t *p)
{
    uint64_t  w;

    memcpy(&w, p, sizeof(w));

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif

    return w;
}


#define ngx_http_llm_capture_scan_each(c)  (UINT64_C(0x0101010101010101) * (c))


#endif /* _NGX_HTTP_LLM_CAPTURE_SCAN_KERNEL_H_INCLUDED_ */
