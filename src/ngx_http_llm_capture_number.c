
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A number in one pass.  Digits are compared with the border as they come and
 * then forgotten, so a number of a million digits needs no memory; only where
 * its point is, and its exponent, decide beside them.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include "ngx_http_llm_capture_number.h"


#define NGX_HTTP_LLM_CAPTURE_BORDER  309

/* no body has as many digits: the point cannot bring such a value back */
#define NGX_HTTP_LLM_CAPTURE_EXP     INT64_C(100000000000000000)


typedef enum {
    st_start = 0,
    st_minus,
    st_zero,
    st_int,
    st_dot,
    st_frac,
    st_e,
    st_e_sign,
    st_exp,
    st_bad
} ngx_http_llm_capture_number_state_e;


/* 2^1024 - 2^970 */

static const char  ngx_http_llm_capture_border[] =
    "1797693134862315807937289714053034150799341327100378269361737789804449682"
    "9276475094664901797758720709633028641669288791094655554785194040263065748"
    "8671505820681908902000708383676273854845817711531764475730270069855571366"
    "9596228429148198608349364752927190741684443655107043427115596995080930428"
    "80177904174497792";


_Static_assert(sizeof(ngx_http_llm_capture_border)
               == NGX_HTTP_LLM_CAPTURE_BORDER + 1, "digits of the border");


static void ngx_http_llm_capture_number_digit(
    ngx_http_llm_capture_number_t *number, uint8_t c);
static unsigned ngx_http_llm_capture_number_step(
    ngx_http_llm_capture_number_t *number, uint8_t c);


void
ngx_http_llm_capture_number_init(ngx_http_llm_capture_number_t *number)
{
    number->point = 0;
    number->exp = 0;
    number->digits = 0;
    number->order = 0;
    number->negative = 0;
    number->state = st_start;
}


size_t
ngx_http_llm_capture_number_feed(ngx_http_llm_capture_number_t *number,
    const uint8_t *p, size_t n)
{
    size_t  i;

    for (i = 0; i < n; i++) {
        if (!ngx_http_llm_capture_number_step(number, p[i])) {
            break;
        }
    }

    return i;
}


static unsigned
ngx_http_llm_capture_number_step(ngx_http_llm_capture_number_t *number,
    uint8_t c)
{
    unsigned  digit, e;

    digit = (c >= '0' && c <= '9');
    e = (c == 'e' || c == 'E');

    switch (number->state) {

    case st_start:
        if (c == '-') {
            number->state = st_minus;
            return 1;
        }

        /* fall through */

    case st_minus:
        if (!digit) {
            break;
        }

        number->state = (c == '0') ? st_zero : st_int;
        ngx_http_llm_capture_number_digit(number, c);
        return 1;

    case st_zero:
    case st_int:
        if (digit && number->state == st_int) {
            ngx_http_llm_capture_number_digit(number, c);
            return 1;
        }

        if (c == '.') {
            number->state = st_dot;
            return 1;
        }

        if (e) {
            number->state = st_e;
            return 1;
        }

        if (digit) {
            break;
        }

        return 0;

    case st_dot:
    case st_frac:
        if (digit) {
            number->state = st_frac;
            ngx_http_llm_capture_number_digit(number, c);
            return 1;
        }

        if (e && number->state == st_frac) {
            number->state = st_e;
            return 1;
        }

        if (number->state == st_dot) {
            break;
        }

        return 0;

    case st_e:
        if (c == '+' || c == '-') {
            number->negative = (c == '-');
            number->state = st_e_sign;
            return 1;
        }

        /* fall through */

    case st_e_sign:
    case st_exp:
        if (digit) {
            if (number->exp < NGX_HTTP_LLM_CAPTURE_EXP) {
                number->exp = number->exp * 10 + (c - '0');
            }

            number->state = st_exp;
            return 1;
        }

        if (number->state != st_exp) {
            break;
        }

        return 0;
    }

    number->state = st_bad;

    return 0;
}


static void
ngx_http_llm_capture_number_digit(ngx_http_llm_capture_number_t *number,
    uint8_t c)
{
    uint8_t  border;

    if (number->digits == 0 && c == '0') {
        number->point -= (number->state == st_frac);
        return;
    }

    number->point += (number->state == st_int);

    if (number->digits == NGX_HTTP_LLM_CAPTURE_BORDER) {
        return;
    }

    border = (uint8_t) ngx_http_llm_capture_border[number->digits++];

    if (number->order == 0) {
        number->order = (int8_t) ((c > border) - (c < border));
    }
}


ngx_http_llm_capture_number_e
ngx_http_llm_capture_number_end(const ngx_http_llm_capture_number_t *number)
{
    int64_t  point;

    if (number->state != st_zero && number->state != st_int
        && number->state != st_frac && number->state != st_exp)
    {
        return NGX_HTTP_LLM_CAPTURE_NUMBER_SYNTAX;
    }

    if (number->digits == 0) {
        return NGX_HTTP_LLM_CAPTURE_NUMBER_OK;
    }

    point = number->point + (number->negative ? -number->exp : number->exp);

    if (point != NGX_HTTP_LLM_CAPTURE_BORDER) {
        return point > NGX_HTTP_LLM_CAPTURE_BORDER
               ? NGX_HTTP_LLM_CAPTURE_NUMBER_OVERFLOW
               : NGX_HTTP_LLM_CAPTURE_NUMBER_OK;
    }

    /* the border's last digit is not 0: fewer digits that equal it are less */

    if (number->order > 0
        || (number->order == 0
            && number->digits == NGX_HTTP_LLM_CAPTURE_BORDER))
    {
        return NGX_HTTP_LLM_CAPTURE_NUMBER_OVERFLOW;
    }

    return NGX_HTTP_LLM_CAPTURE_NUMBER_OK;
}
