
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * One JSON number, in pieces of any size: its grammar, and whether the double
 * it is read as overflows.  Decided exactly and without arithmetic on doubles:
 * a value overflows from 2^1024 - 2^970 on, the middle between the largest
 * double and 2^1024 (IEEE 754, ties to even).  Pure: no nginx header.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_NUMBER_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_NUMBER_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


typedef struct {
    /* value = 0.DIGITS * 10^(point + exp), DIGITS without leading zeros */
    int64_t    point;
    int64_t    exp;             /* magnitude, stops growing above 10^17 */
    uint16_t   digits;          /* compared with the border: 0 .. 309 */
    int8_t     order;           /* of DIGITS against the border: -1, 0, 1 */
    uint8_t    negative;        /* the exponent */
    uint8_t    state;
} ngx_http_llm_capture_number_t;


typedef enum {
    NGX_HTTP_LLM_CAPTURE_NUMBER_OK = 0,
    NGX_HTTP_LLM_CAPTURE_NUMBER_SYNTAX,
    NGX_HTTP_LLM_CAPTURE_NUMBER_OVERFLOW
} ngx_http_llm_capture_number_e;


void ngx_http_llm_capture_number_init(ngx_http_llm_capture_number_t *number);

/*
 * Takes bytes as long as they belong to the number, from its first byte (a
 * minus or a digit) on.  Returns how many; less than n: the number ended, or
 * is none, before that byte; then ask ngx_http_llm_capture_number_end().
 */

size_t ngx_http_llm_capture_number_feed(ngx_http_llm_capture_number_t *number,
    const uint8_t *p, size_t n);

ngx_http_llm_capture_number_e ngx_http_llm_capture_number_end(
    const ngx_http_llm_capture_number_t *number);


#endif /* _NGX_HTTP_LLM_CAPTURE_NUMBER_H_INCLUDED_ */
