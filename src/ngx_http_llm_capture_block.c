
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The kernels.  Prompts are long strings of text, so what decides the speed is
 * a block inside a string: two loads, one test, on to the next; a walk is only
 * called for where a quote, a backslash or structure is.
 *
 * No ifunc and no target_clones (musl cannot load them): a pointer, and the
 * target attribute on single functions.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_block.h"


/* -DNGX_HTTP_LLM_CAPTURE_NO_SIMD leaves the portable kernel alone */

#if !defined(NGX_HTTP_LLM_CAPTURE_NO_SIMD)
#if defined(__SSE2__)
#define NGX_HTTP_LLM_CAPTURE_SSE2  1
#include <immintrin.h>
#endif
#if defined(__x86_64__)
#define NGX_HTTP_LLM_CAPTURE_AVX2  1
#endif
#endif


#define NGX_HTTP_LLM_CAPTURE_SIZE  NGX_HTTP_LLM_CAPTURE_BLOCK_SIZE

/* room for the bytes before a block that is copied, keeps it aligned */
#define NGX_HTTP_LLM_CAPTURE_PAD   32


typedef void (*ngx_http_llm_capture_feed_pt)(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);
typedef void (*ngx_http_llm_capture_find_pt)(const uint8_t *p,
    ngx_http_llm_capture_block_t *m);


static ngx_http_llm_capture_feed_pt  ngx_http_llm_capture_feed;


/* the bytes below, where the last block of a piece is short */

static inline const uint8_t *
ngx_http_llm_capture_block_copy(uint8_t *to, const uint8_t *p, size_t n)
{
    memset(to + n, ' ', NGX_HTTP_LLM_CAPTURE_SIZE - n);
    memcpy(to, p, n);

    return to;
}


/* UTF-8, a byte at a time: Unicode, table 3-7.  0: refused */

static int
ngx_http_llm_capture_utf8(ngx_http_llm_capture_scan_t *s, const uint8_t *p,
    size_t n)
{
    uint8_t         c;
    const uint8_t  *last;

    for (last = p + n; p < last; p++) {
        c = *p;

        if (s->need) {
            if (c < s->low || c > s->high) {
                return 0;
            }

            s->need--;
            s->low = 0x80;
            s->high = 0xbf;
            continue;
        }

        if (c < 0x80) {
            continue;
        }

        if (c < 0xc2 || c > 0xf4) {
            return 0;
        }

        s->need = (uint8_t) (1 + (c >= 0xe0) + (c >= 0xf0));

        /* no overlong form, no surrogate, nothing above U+10FFFF */
        s->low = (c == 0xe0) ? 0xa0 : (c == 0xf0) ? 0x90 : 0x80;
        s->high = (c == 0xed) ? 0x9f : (c == 0xf4) ? 0x8f : 0xbf;
    }

    return 1;
}


/* the loop of the kernels that check UTF-8 byte by byte */

static inline void
ngx_http_llm_capture_feed_plain(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n, ngx_http_llm_capture_find_pt special,
    ngx_http_llm_capture_find_pt space)
{
    size_t                         len;
    uint8_t                        copy[NGX_HTTP_LLM_CAPTURE_SIZE];
    const uint8_t                 *block;
    ngx_http_llm_capture_block_t   m;

    for ( /* void */ ; n; p += len, n -= len) {

        if (n >= NGX_HTTP_LLM_CAPTURE_SIZE) {
            len = NGX_HTTP_LLM_CAPTURE_SIZE;
            block = p;

        } else {
            len = n;
            block = ngx_http_llm_capture_block_copy(copy, p, n);
        }

        special(block, &m);

        if ((m.high || s->need) && !ngx_http_llm_capture_utf8(s, p, len)) {
            s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_UTF8;
            return;
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

#define ngx_http_llm_capture_each(c)  (UINT64_C(0x0101010101010101) * (c))


/* 0x80 in each byte that is 0, nothing else: no carry passes between bytes */

static inline uint64_t
ngx_http_llm_capture_zero(uint64_t w)
{
    uint64_t  low;

    low = (w & ngx_http_llm_capture_each(0x7f))
          + ngx_http_llm_capture_each(0x7f);

    return ~(low | w) & ngx_http_llm_capture_each(0x80);
}


/* 0x80 in byte i -> bit i */

static inline uint64_t
ngx_http_llm_capture_gather(uint64_t w)
{
    return (w >> 7) * UINT64_C(0x0102040810204080) >> 56;
}


/* byte 0 lowest, whatever the machine */

static inline uint64_t
ngx_http_llm_capture_word(const uint8_t *p)
{
    uint64_t  w;

    memcpy(&w, p, sizeof(w));

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif

    return w;
}


static inline void
ngx_http_llm_capture_special_portable(const uint8_t *p,
    ngx_http_llm_capture_block_t *m)
{
    unsigned  i;
    uint64_t  w, hit;

    m->special = 0;
    m->high = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SIZE; i += 8) {
        w = ngx_http_llm_capture_word(p + i);

        hit = ngx_http_llm_capture_zero(w ^ ngx_http_llm_capture_each('"'))
              | ngx_http_llm_capture_zero(w ^ ngx_http_llm_capture_each('\\'))
              | ngx_http_llm_capture_zero(w & ngx_http_llm_capture_each(0xe0));

        m->special |= ngx_http_llm_capture_gather(hit) << i;
        m->high |= ngx_http_llm_capture_gather(
                       w & ngx_http_llm_capture_each(0x80)) << i;
    }
}


static inline void
ngx_http_llm_capture_space_portable(const uint8_t *p,
    ngx_http_llm_capture_block_t *m)
{
    unsigned  i;
    uint64_t  w, eol, hit;

    m->space = 0;
    m->eol = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SIZE; i += 8) {
        w = ngx_http_llm_capture_word(p + i);

        eol = ngx_http_llm_capture_zero(w ^ ngx_http_llm_capture_each('\n'))
              | ngx_http_llm_capture_zero(w ^ ngx_http_llm_capture_each('\r'));
        hit = ngx_http_llm_capture_zero(w ^ ngx_http_llm_capture_each(' '))
              | ngx_http_llm_capture_zero(w ^ ngx_http_llm_capture_each('\t'));

        m->eol |= ngx_http_llm_capture_gather(eol) << i;
        m->space |= ngx_http_llm_capture_gather(eol | hit) << i;
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


#if (NGX_HTTP_LLM_CAPTURE_SSE2)

static inline void
ngx_http_llm_capture_special_sse2(const uint8_t *p,
    ngx_http_llm_capture_block_t *m)
{
    __m128i   v, hit;
    unsigned  i;

    m->special = 0;
    m->high = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SIZE; i += 16) {
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
    ngx_http_llm_capture_block_t *m)
{
    __m128i   v, eol, hit;
    unsigned  i;

    m->space = 0;
    m->eol = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SIZE; i += 16) {
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


#if (NGX_HTTP_LLM_CAPTURE_AVX2)

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

static __attribute__((target("avx2"), noinline)) int
ngx_http_llm_capture_edge_avx2(const ngx_http_llm_capture_scan_t *s,
    const uint8_t *start, const uint8_t *p, size_t n)
{
    size_t    i;
    uint8_t   copy[NGX_HTTP_LLM_CAPTURE_PAD + NGX_HTTP_LLM_CAPTURE_SIZE];
    uint64_t  wrong;
    uint8_t  *block;

    block = copy + NGX_HTTP_LLM_CAPTURE_PAD;

    /* a block begins where its piece does, or 64 bytes and more behind */

    for (i = 1; i <= sizeof(s->last); i++) {
        *(block - i) = (p == start) ? s->last[sizeof(s->last) - i] : *(p - i);
    }

    ngx_http_llm_capture_block_copy(block, p, n);

    wrong = ngx_http_llm_capture_wrong_avx2(block);

    return (n == NGX_HTTP_LLM_CAPTURE_SIZE)
           ? wrong == 0 : (wrong & ((UINT64_C(1) << n) - 1)) == 0;
}


static __attribute__((target("avx2"))) void
ngx_http_llm_capture_feed_avx2(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    int                            ok;
    size_t                         len, all;
    __m256i                        a, b, x, y;
    uint8_t                        copy[NGX_HTTP_LLM_CAPTURE_SIZE];
    uint64_t                       open;
    const uint8_t                 *start, *block;
    ngx_http_llm_capture_block_t   m;

    start = p;
    all = n;

    /* not 0: a sequence may be open where the block begins */
    open = (s->last[0] | s->last[1] | s->last[2]) & 0x80;

    for ( /* void */ ; n; p += len, n -= len) {

        if (n >= NGX_HTTP_LLM_CAPTURE_SIZE) {
            len = NGX_HTTP_LLM_CAPTURE_SIZE;
            block = p;

        } else {
            len = n;
            block = ngx_http_llm_capture_block_copy(copy, p, n);
        }

        a = _mm256_loadu_si256((const __m256i *) block);
        b = _mm256_loadu_si256((const __m256i *) (block + 32));

        m.high = ngx_http_llm_capture_mask_avx2(a, b);

        if (m.high | open) {
            ok = (p == start || block != p)
                 ? ngx_http_llm_capture_edge_avx2(s, start, p, len)
                 : ngx_http_llm_capture_wrong_avx2(p) == 0;

            if (!ok) {
                s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_UTF8;
                return;
            }

            open = m.high >> (NGX_HTTP_LLM_CAPTURE_SIZE - sizeof(s->last));
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

#endif


ngx_http_llm_capture_kernel_e
ngx_http_llm_capture_kernel_use(ngx_http_llm_capture_kernel_e kernel)
{
#if (NGX_HTTP_LLM_CAPTURE_AVX2)
    if (kernel >= NGX_HTTP_LLM_CAPTURE_KERNEL_AVX2
        && __builtin_cpu_supports("avx2"))
    {
        ngx_http_llm_capture_feed = ngx_http_llm_capture_feed_avx2;
        return NGX_HTTP_LLM_CAPTURE_KERNEL_AVX2;
    }
#endif

#if (NGX_HTTP_LLM_CAPTURE_SSE2)
    if (kernel >= NGX_HTTP_LLM_CAPTURE_KERNEL_SSE2) {
        ngx_http_llm_capture_feed = ngx_http_llm_capture_feed_sse2;
        return NGX_HTTP_LLM_CAPTURE_KERNEL_SSE2;
    }
#endif

    (void) kernel;
    ngx_http_llm_capture_feed = ngx_http_llm_capture_feed_portable;

    return NGX_HTTP_LLM_CAPTURE_KERNEL_PORTABLE;
}


void
ngx_http_llm_capture_kernel_feed(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    if (ngx_http_llm_capture_feed == NULL) {
        (void) ngx_http_llm_capture_kernel_use(
                   NGX_HTTP_LLM_CAPTURE_KERNEL_AVX2);
    }

    ngx_http_llm_capture_feed(s, p, n);
}
