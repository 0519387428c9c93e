
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The kernel for any machine, and the choice of one.  Eight bytes of a word at
 * once; UTF-8 byte by byte, by a table of what follows on what.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_scan_kernel.h"


typedef void (*ngx_http_llm_capture_feed_pt)(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n);


static ngx_http_llm_capture_feed_pt  ngx_http_llm_capture_feed;


/*
 * UTF-8: Unicode, table 3-7, as an automaton.  A state is a number of bits to
 * shift by; for a byte there is a word, and in it at each state the next one.
 * So a byte takes no branch, and the word is loaded while the state before it
 * is still being found.
 *
 * A byte that begins no sequence is met at the one behind it, as by the
 * kernels that look at pairs: so the reason for a refusal depends neither on
 * the kernel nor on the pieces.
 */

#define U_WRONG  0                      /* for good */
#define U_START  6
#define U_ONE    12                     /* more bytes, 80..BF */
#define U_TWO    18
#define U_THREE  24
#define U_E0     30                     /* no overlong form behind it, */
#define U_ED     36                     /* no surrogate, */
#define U_F0     42
#define U_F4     48                     /* nothing above U+10FFFF */
#define U_NONE   54                     /* whatever follows is wrong */

#define U_MASK   63

#define u(from, to)  ((uint64_t) U_##to << U_##from)

#define U_ASCII  u(START, START)
#define U_CONT   (u(ONE, START) | u(TWO, ONE) | u(THREE, TWO))
#define U_80     (U_CONT | u(ED, ONE) | u(F4, TWO))
#define U_90     (U_CONT | u(ED, ONE) | u(F0, TWO))
#define U_A0     (U_CONT | u(E0, ONE) | u(F0, TWO))

#define u2(word)   word, word
#define u4(word)   u2(word), u2(word)
#define u16(word)  u4(word), u4(word), u4(word), u4(word)

static const uint64_t  ngx_http_llm_capture_utf8_next[256] = {
    u16(U_ASCII), u16(U_ASCII), u16(U_ASCII), u16(U_ASCII),
    u16(U_ASCII), u16(U_ASCII), u16(U_ASCII), u16(U_ASCII),
    u16(U_80), u16(U_90), u16(U_A0), u16(U_A0),
    u2(u(START, NONE)), u2(u(START, ONE)), u4(u(START, ONE)),     /* C0 */
    u4(u(START, ONE)), u4(u(START, ONE)), u16(u(START, ONE)),
    u(START, E0), u2(u(START, TWO)), u(START, TWO),               /* E0 */
    u4(u(START, TWO)), u4(u(START, TWO)),
    u(START, TWO), u(START, ED), u2(u(START, TWO)),
    u(START, F0), u2(u(START, THREE)), u(START, THREE),           /* F0 */
    u(START, F4), u(START, NONE), u2(u(START, NONE)),
    u4(u(START, NONE)), u4(u(START, NONE))
};


/* returns how many bytes may stand */

static size_t
ngx_http_llm_capture_utf8(ngx_http_llm_capture_scan_t *s, const uint8_t *p,
    size_t n)
{
    size_t    i;
    uint64_t  state;

    /* zeroed memory is to be the start */

    state = s->utf8 ^ U_START;

    for (i = 0; i < n; i++) {
        state = ngx_http_llm_capture_utf8_next[p[i]] >> (state & U_MASK);
    }

    if ((state & U_MASK) != U_WRONG) {
        s->utf8 = (uint8_t) ((state & U_MASK) ^ U_START);
        return n;
    }

    /* once more, for where */

    state = s->utf8 ^ U_START;

    for (i = 0; i < n; i++) {
        state = ngx_http_llm_capture_utf8_next[p[i]] >> (state & U_MASK);

        if ((state & U_MASK) == U_WRONG) {
            break;
        }
    }

    return i;
}


/* is a byte of the eight special?  The carry of one that is goes no lower */

static inline uint64_t
ngx_http_llm_capture_some(uint64_t w)
{
    uint64_t  hit;

    hit = ((w ^ ngx_http_llm_capture_scan_each('"'))
           - ngx_http_llm_capture_scan_each(0x01))
          | ((w ^ ngx_http_llm_capture_scan_each('\\'))
             - ngx_http_llm_capture_scan_each(0x01))
          | (w - ngx_http_llm_capture_scan_each(0x20));

    return hit & ~w & ngx_http_llm_capture_scan_each(0x80);
}


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


/* what decides of a block inside a string; high says no more than whether */

static inline void
ngx_http_llm_capture_special(const uint8_t *p,
    ngx_http_llm_capture_scan_block_t *m)
{
    unsigned  i;
    uint64_t  w, some, hit;

    some = 0;
    m->special = 0;
    m->high = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK; i += 8) {
        w = ngx_http_llm_capture_scan_word(p + i);
        some |= ngx_http_llm_capture_some(w);
        m->high |= w;
    }

    m->high &= ngx_http_llm_capture_scan_each(0x80);

    if (some == 0) {
        return;
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK; i += 8) {
        w = ngx_http_llm_capture_scan_word(p + i);

        hit = ngx_http_llm_capture_equal(w, '"')
              | ngx_http_llm_capture_equal(w, '\\')
              | ngx_http_llm_capture_equal(
                    w & ngx_http_llm_capture_scan_each(0xe0), 0);

        m->special |= ngx_http_llm_capture_gather(hit) << i;
    }
}


static inline void
ngx_http_llm_capture_space(const uint8_t *p,
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

        ngx_http_llm_capture_special(copy, &m);
        ngx_http_llm_capture_space(copy, &m);
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

        ngx_http_llm_capture_special(block, &m);

        if (m.high || s->utf8) {
            good = ngx_http_llm_capture_utf8(s, p, len);

            if (good < len) {
                ngx_http_llm_capture_scan_wrong(s, p, good);
                return;
            }
        }

        if (m.special || !ngx_http_llm_capture_scan_plain(s)) {
            ngx_http_llm_capture_space(block, &m);
            ngx_http_llm_capture_scan_walk(s, p, len, &m);

            if (s->verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
                return;
            }
        }

        s->total += len;
    }
}


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

#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_SSSE3)
    if (kernel >= NGX_HTTP_LLM_CAPTURE_SCAN_SSSE3
        && __builtin_cpu_supports("ssse3"))
    {
        ngx_http_llm_capture_feed = ngx_http_llm_capture_scan_ssse3_feed;
        return NGX_HTTP_LLM_CAPTURE_SCAN_SSSE3;
    }
#endif

#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_NEON)
    if (kernel >= NGX_HTTP_LLM_CAPTURE_SCAN_NEON) {
        ngx_http_llm_capture_feed = ngx_http_llm_capture_scan_neon_feed;
        return NGX_HTTP_LLM_CAPTURE_SCAN_NEON;
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
