
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The kernel for AVX2.  No ifunc and no target_clones (musl cannot load them):
 * the target attribute on single functions, reached by a pointer.
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


#define VECTOR         __m256i
#define VECTOR_TARGET  __attribute__((target("avx2")))

#define vector_load(p)   _mm256_loadu_si256((const __m256i *) (p))
#define vector_set(c)    _mm256_set1_epi8((char) (c))

/* the same 16 bytes in both halves: a shuffle looks up within a half */
#define vector_table(t)                                                       \
    _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) (t)))

#define vector_lookup      _mm256_shuffle_epi8
#define vector_lookup_low  _mm256_shuffle_epi8
#define vector_half(v)                                                        \
    _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(0x0f))

#define vector_or        _mm256_or_si256
#define vector_and       _mm256_and_si256
#define vector_xor       _mm256_xor_si256
#define vector_eq        _mm256_cmpeq_epi8
#define vector_min       _mm256_min_epu8
#define vector_subs      _mm256_subs_epu8

#define vector_any(v)    (!_mm256_testz_si256(v, v))
#define vector_mask(v)                                                        \
    ((uint32_t) _mm256_movemask_epi8((v)[0])                                  \
     | (uint64_t) (uint32_t) _mm256_movemask_epi8((v)[1]) << 32)


#include "ngx_http_llm_capture_scan_vector.h"


VECTOR_TARGET void
ngx_http_llm_capture_scan_avx2_feed(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    ngx_http_llm_capture_vector_feed(s, p, n);
}

#else

/* ISO C wants something in a file */
typedef int  ngx_http_llm_capture_scan_no_avx2_t;

#endif
