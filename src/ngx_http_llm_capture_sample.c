
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ngx_http_llm_capture_sample.h"


#define rotl(x, k)  (((x) << (k)) | ((x) >> (64 - (k))))


/* splitmix64 */

static uint64_t
ngx_http_llm_capture_sample_mix(uint64_t *x)
{
    uint64_t  z;

    z = (*x += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;

    return z ^ (z >> 31);
}


void
ngx_http_llm_capture_sample_init(ngx_http_llm_capture_sample_t *state,
    const uint64_t seed[4])
{
    uint64_t  x;
    unsigned  i;

    /*
     * Each word of the state hangs on each word of the seed: without getrandom
     * a seed is a pid and a clock, close to those of the next worker.  The
     * all-zero state, which xoshiro never leaves, cannot come out: splitmix64
     * is one to one, and four words of x in a row are never all its one zero.
     */

    x = 0;

    for (i = 0; i < 4; i++) {
        x ^= seed[i];
        x = ngx_http_llm_capture_sample_mix(&x);
    }

    for (i = 0; i < 4; i++) {
        state->s[i] = ngx_http_llm_capture_sample_mix(&x);
    }
}


uint64_t
ngx_http_llm_capture_sample_next(ngx_http_llm_capture_sample_t *state)
{
    uint64_t  *s, n, t;

    s = state->s;

    n = s[1] * 5;
    n = rotl(n, 7) * 9;
    t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);

    return n;
}


int
ngx_http_llm_capture_sample(ngx_http_llm_capture_sample_t *state,
    uint64_t threshold)
{
    if (threshold >= NGX_HTTP_LLM_CAPTURE_SAMPLE_ALL) {
        return 1;
    }

    if (threshold == 0) {
        return 0;
    }

    return (ngx_http_llm_capture_sample_next(state) >> 32) < threshold;
}
