
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Which requests are kept when only some are: a draw of 32 bits against a
 * threshold.  Pure: no nginx header.  ngx_random() will not do: nginx seeds it
 * from pid and time, which pods started together have in common.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SAMPLE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SAMPLE_H_INCLUDED_


#include <stdint.h>


/* the threshold that keeps all; 0 keeps none */
#define NGX_HTTP_LLM_CAPTURE_SAMPLE_ALL  ((uint64_t) 1 << 32)


/* xoshiro256** by D. Blackman and S. Vigna, public domain */

typedef struct {
    uint64_t  s[4];
} ngx_http_llm_capture_sample_t;


/* any seed will do, all zeroes too; it is spread first */

void ngx_http_llm_capture_sample_init(ngx_http_llm_capture_sample_t *state,
    const uint64_t seed[4]);

uint64_t ngx_http_llm_capture_sample_next(ngx_http_llm_capture_sample_t *state);

/* 1: keep, with a chance of threshold in 2^32 */

int ngx_http_llm_capture_sample(ngx_http_llm_capture_sample_t *state,
    uint64_t threshold);


#endif /* _NGX_HTTP_LLM_CAPTURE_SAMPLE_H_INCLUDED_ */
