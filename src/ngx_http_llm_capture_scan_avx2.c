
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The kernel for AVX2, UTF-8 included.  Prompts are long strings, so what
 * decides the speed is a block inside a string: two loads, some compares, on
 * to the next.
 *
 * No ifunc and no target_clones (musl cannot load them): the target attribute
 * on single functions, reached by a pointer.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_scan_kernel.h"


#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_AVX2)

#include <immintrin.h>


/* room for the bytes before a block that is copied */
#define NGX_HTTP_LLM_CAPTURE_SCAN_PAD  32


#define ngx_http_llm_capture_avx2                                             \
    static inline __attribute__((target("avx2"), always_inline))

/* the same 16 bytes in both halves: a shuffle looks up within a half */
#define ngx_http_llm_capture_table(...)                                       \
    _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)


ngx_http_llm_capture_avx2 uint64_t
ngx_http_llm_capture_mask_avx2(__m256i a, __m256i b)
{
    return (uint32_t) _mm256_movemask_epi8(a)
           | (uint64_t) (uint32_t) _mm256_movemask_epi8(b) << 32;
}


ngx_http_llm_capture_avx2 __m256i
ngx_http_llm_capture_special_avx2(__m256i v)
{
    return _mm256_or_si256(
               _mm256_or_si256(_mm256_cmpeq_epi8(v, _mm256_set1_epi8('"')),
                               _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\\'))),
               _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(0x1f)),
                                 v));
}


ngx_http_llm_capture_avx2 __m256i
ngx_http_llm_capture_space_avx2(__m256i v)
{
    /* a byte is one of the four if the table has it at its low half */
    return _mm256_cmpeq_epi8(v, _mm256_shuffle_epi8(
               ngx_http_llm_capture_table(' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t',
                                          '\n', 0, 0, '\r', 0, 0), v));
}


ngx_http_llm_capture_avx2 __m256i
ngx_http_llm_capture_eol_avx2(__m256i v)
{
    return _mm256_or_si256(_mm256_cmpeq_epi8(v, _mm256_set1_epi8('\n')),
                           _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\r')));
}


/*
 * UTF-8 after J. Keiser and D. Lemire, "Validating UTF-8 in less than one
 * instruction per byte": three looked up sets of errors, by the halves of the
 * byte before and the upper half of this one, have a member in common where a
 * pair of bytes is wrong; TWO_CONTS is one only if no lead two or three bytes
 * back asks for it.  The sets:
 */

#define ERR_SHORT       0x01    /* a lead, and no continuation */
#define ERR_LONG        0x02    /* ASCII, and a continuation */
#define ERR_OVER3       0x04
#define ERR_LARGE       0x08    /* above U+10FFFF */
#define ERR_SURROGATE   0x10
#define ERR_OVER2       0x20
#define ERR_OVER4       0x40
#define ERR_LARGE8      0x40    /* F5.. 80..8F, shares a bit: other leads */
#define ERR_CONTS       0x80
#define ERR_ANY         (ERR_SHORT | ERR_LONG | ERR_CONTS)
#define ERR_CONT        (ERR_LONG | ERR_OVER2 | ERR_CONTS)


/* reads from p - 3 on; not 0 in each byte where a sequence is wrong */

ngx_http_llm_capture_avx2 __m256i
ngx_http_llm_capture_utf8_avx2(const uint8_t *p)
{
    __m256i  v, p1, p2, p3, nibble, a, b, c, must;

    v = _mm256_loadu_si256((const __m256i *) p);
    p1 = _mm256_loadu_si256((const __m256i *) (p - 1));
    p2 = _mm256_loadu_si256((const __m256i *) (p - 2));
    p3 = _mm256_loadu_si256((const __m256i *) (p - 3));
    nibble = _mm256_set1_epi8(0x0f);

    a = _mm256_shuffle_epi8(ngx_http_llm_capture_table(
            ERR_LONG, ERR_LONG, ERR_LONG, ERR_LONG,
            ERR_LONG, ERR_LONG, ERR_LONG, ERR_LONG,
            (char) ERR_CONTS, (char) ERR_CONTS,
            (char) ERR_CONTS, (char) ERR_CONTS,
            ERR_SHORT | ERR_OVER2,
            ERR_SHORT,
            ERR_SHORT | ERR_OVER3 | ERR_SURROGATE,
            ERR_SHORT | ERR_LARGE | ERR_LARGE8 | ERR_OVER4),
        _mm256_and_si256(_mm256_srli_epi16(p1, 4), nibble));

    b = _mm256_shuffle_epi8(ngx_http_llm_capture_table(
            (char) (ERR_ANY | ERR_OVER2 | ERR_OVER3 | ERR_OVER4),
            (char) (ERR_ANY | ERR_OVER2),
            (char) ERR_ANY,
            (char) ERR_ANY,
            (char) (ERR_ANY | ERR_LARGE),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8 | ERR_SURROGATE),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8),
            (char) (ERR_ANY | ERR_LARGE | ERR_LARGE8)),
        _mm256_and_si256(p1, nibble));

    c = _mm256_shuffle_epi8(ngx_http_llm_capture_table(
            ERR_SHORT, ERR_SHORT, ERR_SHORT, ERR_SHORT,
            ERR_SHORT, ERR_SHORT, ERR_SHORT, ERR_SHORT,
            (char) (ERR_CONT | ERR_OVER3 | ERR_LARGE8 | ERR_OVER4),
            (char) (ERR_CONT | ERR_OVER3 | ERR_LARGE),
            (char) (ERR_CONT | ERR_SURROGATE | ERR_LARGE),
            (char) (ERR_CONT | ERR_SURROGATE | ERR_LARGE),
            ERR_SHORT, ERR_SHORT, ERR_SHORT, ERR_SHORT),
        _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble));

    must = _mm256_or_si256(_mm256_subs_epu8(p2, _mm256_set1_epi8(0xe0 - 0x80)),
                           _mm256_subs_epu8(p3, _mm256_set1_epi8(0xf0 - 0x80)));
    must = _mm256_and_si256(must, _mm256_set1_epi8((char) 0x80));

    return _mm256_xor_si256(must,
               _mm256_and_si256(_mm256_and_si256(a, b), c));
}


/* bit i: byte i of the block is wrong behind those before it */

ngx_http_llm_capture_avx2 uint64_t
ngx_http_llm_capture_wrong_avx2(const uint8_t *p)
{
    __m256i  zero, a, b;

    zero = _mm256_setzero_si256();
    a = ngx_http_llm_capture_utf8_avx2(p);
    b = ngx_http_llm_capture_utf8_avx2(p + 32);

    if (_mm256_testz_si256(_mm256_or_si256(a, b), _mm256_set1_epi8(-1))) {
        return 0;
    }

    return ~ngx_http_llm_capture_mask_avx2(_mm256_cmpeq_epi8(a, zero),
                                           _mm256_cmpeq_epi8(b, zero));
}


/* the last three bytes of the body, behind a piece that begins at p */

static void
ngx_http_llm_capture_last(ngx_http_llm_capture_scan_t *s, const uint8_t *p,
    size_t n)
{
    size_t  keep;

    keep = n < sizeof(s->last) ? n : sizeof(s->last);

    memmove(s->last, s->last + keep, sizeof(s->last) - keep);
    memcpy(s->last + sizeof(s->last) - keep, p + n - keep, keep);
}


/* where the bytes before the block do not stand before it, or it is short */

static __attribute__((target("avx2"), noinline)) uint64_t
ngx_http_llm_capture_edge_avx2(const ngx_http_llm_capture_scan_t *s,
    const uint8_t *start, const uint8_t *p, size_t n)
{
    size_t    i;
    uint8_t   copy[NGX_HTTP_LLM_CAPTURE_SCAN_PAD
                   + NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK];
    uint64_t  wrong;
    uint8_t  *block;

    block = copy + NGX_HTTP_LLM_CAPTURE_SCAN_PAD;

    /* a block begins where its piece does, or 64 bytes and more behind */

    for (i = 1; i <= sizeof(s->last); i++) {
        *(block - i) = (p == start) ? s->last[sizeof(s->last) - i] : *(p - i);
    }

    ngx_http_llm_capture_scan_copy(block, p, n);

    wrong = ngx_http_llm_capture_wrong_avx2(block);

    return wrong & (~UINT64_C(0) >> (NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK - n));
}


__attribute__((target("avx2"))) void
ngx_http_llm_capture_scan_avx2_feed(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    size_t                             len, all;
    __m256i                            a, b, x, y;
    uint8_t                            copy[NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK];
    uint64_t                           open, wrong;
    const uint8_t                     *start, *block;
    ngx_http_llm_capture_scan_block_t  m;

    start = p;
    all = n;

    /* not 0: a sequence may be open where the block begins */
    open = (s->last[0] | s->last[1] | s->last[2]) & 0x80;

    for ( /* void */ ; n; p += len, n -= len) {

        if (n >= NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK) {
            len = NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK;
            block = p;

        } else {
            len = n;
            block = ngx_http_llm_capture_scan_copy(copy, p, n);
        }

        a = _mm256_loadu_si256((const __m256i *) block);
        b = _mm256_loadu_si256((const __m256i *) (block + 32));

        m.high = ngx_http_llm_capture_mask_avx2(a, b);

        if (m.high | open) {
            wrong = (p == start || block != p)
                    ? ngx_http_llm_capture_edge_avx2(s, start, p, len)
                    : ngx_http_llm_capture_wrong_avx2(p);

            if (wrong) {
                ngx_http_llm_capture_scan_wrong(s, p,
                                          (size_t) __builtin_ctzll(wrong));
                return;
            }

            open = m.high
                   >> (NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK - sizeof(s->last));
        }

        x = ngx_http_llm_capture_special_avx2(a);
        y = ngx_http_llm_capture_special_avx2(b);
        m.special = ngx_http_llm_capture_mask_avx2(x, y);

        if (m.special || !ngx_http_llm_capture_scan_plain(s)) {
            m.space = ngx_http_llm_capture_mask_avx2(
                          ngx_http_llm_capture_space_avx2(a),
                          ngx_http_llm_capture_space_avx2(b));
            m.eol = ngx_http_llm_capture_mask_avx2(
                        ngx_http_llm_capture_eol_avx2(a),
                        ngx_http_llm_capture_eol_avx2(b));

            ngx_http_llm_capture_scan_walk(s, p, len, &m);

            if (s->verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
                return;
            }
        }

        s->total += len;
    }

    ngx_http_llm_capture_last(s, start, all);
}

#else

/* ISO C wants something in a file */
typedef int  ngx_http_llm_capture_scan_no_avx2_t;

#endif

