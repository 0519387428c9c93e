
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The kernels for SSE2 and for any machine, and the choice of one.  Prompts are
 * long strings, so what decides the speed is a block inside a string: it needs
 * no walk, only a look for quotes, backslashes and control characters.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_scan_kernel.h"


#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_SSE2)
#include <emmintrin.h>
#endif


typedef void (*ngx_http_llm_capture_feed_pt)(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);
typedef void (*ngx_http_llm_capture_find_pt)(const uint8_t *p,
    ngx_http_llm_capture_scan_block_t *m);


static ngx_http_llm_capture_feed_pt  ngx_http_llm_capture_feed;


/*
 * UTF-8, a byte at a time: Unicode, table 3-7.  Returns how many bytes may
 * stand.  A byte that begins no sequence is met at the one behind it, as by
 * the kernel that looks at pairs: so the reason for a refusal depends neither
 * on the kernel nor on the pieces.
 */

static size_t
ngx_http_llm_capture_utf8(ngx_http_llm_capture_scan_t *s, const uint8_t *p,
    size_t n)
{
    size_t   i;
    uint8_t  c;

    for (i = 0; i < n; i++) {
        c = p[i];

        if (s->need) {
            if (c < s->low || c > s->high) {
                return i;
            }

            s->need--;
            s->low = 0x80;
            s->high = 0xbf;
            continue;
        }

        if (c < 0x80) {
            continue;
        }

        if (c < 0xc0) {
            return i;
        }

        s->need = (uint8_t) (1 + (c >= 0xe0) + (c >= 0xf0));

        /* no overlong form, no surrogate, nothing above U+10FFFF */
        s->low = (c == 0xe0) ? 0xa0 : (c == 0xf0) ? 0x90 : 0x80;
        s->high = (c == 0xed) ? 0x9f : (c == 0xf4) ? 0x8f : 0xbf;

        if (c < 0xc2 || c > 0xf4) {
            s->low = 0xff;
            s->high = 0;
        }
    }

    return n;
}


/* the loop of the kernels that check UTF-8 byte by byte */

static inline void
ngx_http_llm_capture_feed_plain(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n, ngx_http_llm_capture_find_pt special,
    ngx_http_llm_capture_find_pt space)
{
    size_t                             len, good;
    uint8_t                            copy[NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK];
    const uint8_t                     *block;
    ngx_http_llm_capture_scan_block_t  m;

    for ( /* void */ ; n; p += len, n -= len) {

        if (n >= NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK) {
            len = NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK;
            block = p;

        } else {
            len = n;
            block = ngx_http_llm_capture_scan_copy(copy, p, n);
        }

        special(block, &m);

        if (m.high || s->need) {
            good = ngx_http_llm_capture_utf8(s, p, len);

            if (good < len) {
                ngx_http_llm_capture_scan_wrong(s, p, good);
                return;
            }
        }

        if (m.special || !ngx_http_llm_capture_scan_plain(s)) {
            space(block, &m);
            ngx_http_llm_capture_scan_walk(s, p, len, &m);

            if (s->verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
                return;
            }
        }

        s->total += len;
    }
}


/* portable: eight bytes of a word at once */

/* 0x80 in each byte that is c, nothing else: no carry passes between bytes */

static inline uint64_t
ngx_http_llm_capture_equal(uint64_t w, uint8_t c)
{
    uint64_t  low;

    w ^= ngx_http_llm_capture_scan_each(c);
    low = (w & ngx_http_llm_capture_scan_each(0x7f))
          + ngx_http_llm_capture_scan_each(0x7f);

    return ~(low | w) & ngx_http_llm_capture_scan_each(0x80);
}


/* 0x80 in byte i -> bit i */

static inline uint64_t
ngx_http_llm_capture_gather(uint64_t w)
{
    return (w >> 7) * UINT64_C(0x0102040810204080) >> 56;
}


static inline void
ngx_http_llm_capture_special_portable(const uint8_t *p,
    ngx_http_llm_capture_scan_block_t *m)
{
    unsigned  i;
    uint64_t  w, hit;

    m->special = 0;
    m->high = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK; i += 8) {
        w = ngx_http_llm_capture_scan_word(p + i);

        hit = ngx_http_llm_capture_equal(w, '"')
              | ngx_http_llm_capture_equal(w, '\\')
              | ngx_http_llm_capture_equal(
                    w & ngx_http_llm_capture_scan_each(0xe0), 0);

        m->special |= ngx_http_llm_capture_gather(hit) << i;
        m->high |= ngx_http_llm_capture_gather(
                       w & ngx_http_llm_capture_scan_each(0x80)) << i;
    }
}


static inline void
ngx_http_llm_capture_space_portable(const uint8_t *p,
    ngx_http_llm_capture_scan_block_t *m)
{
    unsigned  i;
    uint64_t  w, eol, hit;

    m->space = 0;
    m->eol = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK; i += 8) {
        w = ngx_http_llm_capture_scan_word(p + i);

        eol = ngx_http_llm_capture_equal(w, '\n')
              | ngx_http_llm_capture_equal(w, '\r');
        hit = ngx_http_llm_capture_equal(w, ' ')
              | ngx_http_llm_capture_equal(w, '\t');

        m->eol |= ngx_http_llm_capture_gather(eol) << i;
        m->space |= ngx_http_llm_capture_gather(eol | hit) << i;
    }
}


void
ngx_http_llm_capture_scan_wrong(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    uint8_t                            copy[NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK];
    ngx_http_llm_capture_scan_block_t  m;

    if (n) {
        (void) ngx_http_llm_capture_scan_copy(copy, p, n);

        ngx_http_llm_capture_special_portable(copy, &m);
        ngx_http_llm_capture_space_portable(copy, &m);
        ngx_http_llm_capture_scan_walk(s, p, n, &m);
    }

    if (s->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_UTF8;
    }
}


static void
ngx_http_llm_capture_feed_portable(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    ngx_http_llm_capture_feed_plain(s, p, n,
                                    ngx_http_llm_capture_special_portable,
                                    ngx_http_llm_capture_space_portable);
}


#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_SSE2)

static inline void
ngx_http_llm_capture_special_sse2(const uint8_t *p,
    ngx_http_llm_capture_scan_block_t *m)
{
    __m128i   v, hit;
    unsigned  i;

    m->special = 0;
    m->high = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK; i += 16) {
        v = _mm_loadu_si128((const __m128i *) (p + i));

        hit = _mm_or_si128(
                  _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')),
                               _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'))),
                  _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v));

        m->special |= (uint64_t) (uint32_t) _mm_movemask_epi8(hit) << i;
        m->high |= (uint64_t) (uint32_t) _mm_movemask_epi8(v) << i;
    }
}


static inline void
ngx_http_llm_capture_space_sse2(const uint8_t *p,
    ngx_http_llm_capture_scan_block_t *m)
{
    __m128i   v, eol, hit;
    unsigned  i;

    m->space = 0;
    m->eol = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK; i += 16) {
        v = _mm_loadu_si128((const __m128i *) (p + i));

        eol = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')),
                           _mm_cmpeq_epi8(v, _mm_set1_epi8('\r')));
        hit = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(' ')),
                           _mm_cmpeq_epi8(v, _mm_set1_epi8('\t')));
        hit = _mm_or_si128(hit, eol);

        m->eol |= (uint64_t) (uint32_t) _mm_movemask_epi8(eol) << i;
        m->space |= (uint64_t) (uint32_t) _mm_movemask_epi8(hit) << i;
    }
}


static void
ngx_http_llm_capture_feed_sse2(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    ngx_http_llm_capture_feed_plain(s, p, n,
                                    ngx_http_llm_capture_special_sse2,
                                    ngx_http_llm_capture_space_sse2);
}

#endif


ngx_http_llm_capture_scan_kernel_e
ngx_http_llm_capture_scan_kernel_use(ngx_http_llm_capture_scan_kernel_e kernel)
{
#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_AVX2)
    if (kernel >= NGX_HTTP_LLM_CAPTURE_SCAN_AVX2
        && __builtin_cpu_supports("avx2"))
    {
        ngx_http_llm_capture_feed = ngx_http_llm_capture_scan_avx2_feed;
        return NGX_HTTP_LLM_CAPTURE_SCAN_AVX2;
    }
#endif

#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_SSE2)
    if (kernel >= NGX_HTTP_LLM_CAPTURE_SCAN_SSE2) {
        ngx_http_llm_capture_feed = ngx_http_llm_capture_feed_sse2;
        return NGX_HTTP_LLM_CAPTURE_SCAN_SSE2;
    }
#endif

    (void) kernel;
    ngx_http_llm_capture_feed = ngx_http_llm_capture_feed_portable;

    return NGX_HTTP_LLM_CAPTURE_SCAN_PORTABLE;
}


void
ngx_http_llm_capture_scan_kernel_feed(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n)
{
    if (ngx_http_llm_capture_feed == NULL) {
        (void) ngx_http_llm_capture_scan_kernel_use(
                   NGX_HTTP_LLM_CAPTURE_SCAN_AVX2);
    }

    ngx_http_llm_capture_feed(s, p, n);
}
