
/*
 * Copyright (C) the llm-capture authors
 */

/* The kernel for 64-bit ARM, which has NEON always. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_scan_kernel.h"


#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_NEON)

#include <arm_neon.h>


#define VECTOR         uint8x16_t
#define VECTOR_TARGET

#define vector_load      vld1q_u8
#define vector_set(c)    vdupq_n_u8(c)
#define vector_table     vld1q_u8

#define vector_lookup    vqtbl1q_u8
#define vector_lookup_low(t, v)                                               \
    vqtbl1q_u8(t, vandq_u8(v, vdupq_n_u8(0x0f)))
#define vector_half(v)   vshrq_n_u8(v, 4)

#define vector_or        vorrq_u8
#define vector_and       vandq_u8
#define vector_xor       veorq_u8
#define vector_eq        vceqq_u8
#define vector_min       vminq_u8
#define vector_subs      vqsubq_u8

#define vector_any(v)    (vmaxvq_u8(v) != 0)


/* there is no such instruction: a bit for each byte, then sums of neighbours */

static inline uint64_t
vector_mask(const uint8x16_t *v)
{
    uint8x16_t  bits, a, b;

    static const uint8_t  bit[16] = {
        1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128
    };

    bits = vld1q_u8(bit);

#define vector_bits(v)                                                        \
    vandq_u8(vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(v), 7)), bits)

    a = vpaddq_u8(vector_bits(v[0]), vector_bits(v[1]));
    b = vpaddq_u8(vector_bits(v[2]), vector_bits(v[3]));

    a = vpaddq_u8(a, b);
    a = vpaddq_u8(a, a);

    return vgetq_lane_u64(vreinterpretq_u64_u8(a), 0);
}


#include "ngx_http_llm_capture_scan_vector.h"


void
ngx_http_llm_capture_scan_neon_feed(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    ngx_http_llm_capture_vector_feed(s, p, n);
}

#else

/* ISO C wants something in a file */
typedef int  ngx_http_llm_capture_scan_no_neon_t;

#endif
