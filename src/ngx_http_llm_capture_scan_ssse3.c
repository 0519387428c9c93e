
/*
 * Copyright (C) the llm-capture authors
 */

/* The kernel for SSSE3, which x86 has had since 2006 (AMD: 2011). */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_scan_kernel.h"


#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_SSSE3)

#include <tmmintrin.h>


#define VECTOR         __m128i
#define VECTOR_TARGET  __attribute__((target("ssse3")))

#define vector_load(p)   _mm_loadu_si128((const __m128i *) (p))
#define vector_set(c)    _mm_set1_epi8((char) (c))
#define vector_table     vector_load

#define vector_lookup      _mm_shuffle_epi8
#define vector_lookup_low  _mm_shuffle_epi8
#define vector_half(v)                                                        \
    _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(0x0f))

#define vector_or        _mm_or_si128
#define vector_and       _mm_and_si128
#define vector_xor       _mm_xor_si128
#define vector_eq        _mm_cmpeq_epi8
#define vector_min       _mm_min_epu8
#define vector_subs      _mm_subs_epu8

#define vector_any(v)                                                         \
    (_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_setzero_si128())) != 0xffff)

#define vector_bits(v)   ((uint64_t) (uint32_t) _mm_movemask_epi8(v))
#define vector_mask(v)                                                        \
    (vector_bits((v)[0]) | vector_bits((v)[1]) << 16                          \
     | vector_bits((v)[2]) << 32 | vector_bits((v)[3]) << 48)


#include "ngx_http_llm_capture_scan_vector.h"


VECTOR_TARGET void
ngx_http_llm_capture_scan_ssse3_feed(ngx_http_llm_capture_scan_t *s,
    uint8_t *p, size_t n)
{
    ngx_http_llm_capture_vector_feed(s, p, n);
}

#else

/* ISO C wants something in a file */
typedef int  ngx_http_llm_capture_scan_no_ssse3_t;

#endif
