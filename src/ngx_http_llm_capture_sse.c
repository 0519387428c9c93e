
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_sse.h"


#define DELTAS  (NGX_HTTP_LLM_CAPTURE_SSE_CONTENT                             \
                 | NGX_HTTP_LLM_CAPTURE_SSE_REASONING)


typedef enum {
    ln_mark = 0,
    ln_field,                   /* "data" so far */
    ln_value,                   /* behind its colon: one space is cut */
    ln_data,
    ln_other
} ngx_http_llm_capture_sse_state_e;


static const char  ngx_http_llm_capture_sse_mark[] = "\xef\xbb\xbf";
static const char  ngx_http_llm_capture_sse_field[] = "data";
static const char  ngx_http_llm_capture_sse_last[] = "[DONE]";

#define FIELD  (sizeof(ngx_http_llm_capture_sse_field) - 1)
#define LAST   (sizeof(ngx_http_llm_capture_sse_last) - 1)
/* bytes that differ */
#define NOT    0xff


static void
ngx_http_llm_capture_sse_start(ngx_http_llm_capture_sse_t *sse)
{
    sse->lines = 0;
    sse->bytes = 0;
    sse->done = 0;

    ngx_http_llm_capture_delta_init(&sse->delta,
                                    sse->seen
                                    & NGX_HTTP_LLM_CAPTURE_SSE_CONTENT);
}


void
ngx_http_llm_capture_sse_init(ngx_http_llm_capture_sse_t *sse)
{
    memset(sse, 0, sizeof(ngx_http_llm_capture_sse_t));

    sse->state = ln_mark;
    ngx_http_llm_capture_sse_start(sse);
}


static void
ngx_http_llm_capture_sse_event(ngx_http_llm_capture_sse_t *sse)
{
    unsigned  flags;

    if (sse->bytes) {

        if (sse->done == LAST) {
            flags = NGX_HTTP_LLM_CAPTURE_SSE_DONE;

        } else {
            flags = ngx_http_llm_capture_delta_end(&sse->delta);
            sse->events++;
            sse->deltas += (flags & DELTAS) != 0;
        }

        sse->seen |= (uint8_t) flags;
    }

    if (sse->lines) {
        ngx_http_llm_capture_sse_start(sse);
    }
}


static void
ngx_http_llm_capture_sse_eol(ngx_http_llm_capture_sse_t *sse)
{
    switch (sse->state) {

    case ln_field:
        if (sse->match == 0) {
            ngx_http_llm_capture_sse_event(sse);
            break;
        }

        if (sse->match != FIELD) {
            break;
        }

        /* fall through */

    case ln_value:
    case ln_data:
        sse->lines = 1;
        break;
    }

    sse->state = ln_field;
    sse->match = 0;
}


static void
ngx_http_llm_capture_sse_data(ngx_http_llm_capture_sse_t *sse,
    const uint8_t *p, const uint8_t *end)
{
    const uint8_t  *c;

    if (p == end) {
        return;
    }

    for (c = p; c < end && sse->done < LAST; c++) {

        sse->done = (*c == (uint8_t) ngx_http_llm_capture_sse_last[sse->done])
                    ? sse->done + 1 : NOT;
    }

    ngx_http_llm_capture_delta_feed(&sse->delta, p, (size_t) (end - p));
}


/* [p, end): bytes of one line, without its end */

static void
ngx_http_llm_capture_sse_line(ngx_http_llm_capture_sse_t *sse,
    const uint8_t *p, const uint8_t *end)
{
    const uint8_t  eol[] = { '\n' };

    for ( /* void */ ; p < end && sse->state != ln_other; p++) {

        switch (sse->state) {

        case ln_mark:
            if (*p == (uint8_t) ngx_http_llm_capture_sse_mark[sse->match]) {

                if (++sse->match == sizeof(ngx_http_llm_capture_sse_mark) - 1)
                {
                    sse->state = ln_field;
                    sse->match = 0;
                }

                break;
            }

            sse->state = ln_field;

            /* a part of a mark is some other field's name */

            if (sse->match) {
                sse->state = ln_other;
                break;
            }

            /* fall through */

        case ln_field:
            if (sse->match < FIELD
                && *p == (uint8_t) ngx_http_llm_capture_sse_field[sse->match])
            {
                sse->match++;

            } else {
                sse->state = (sse->match == FIELD && *p == ':') ? ln_value
                                                                : ln_other;
            }

            break;

        case ln_value:
            sse->state = ln_data;

            if (sse->lines) {
                ngx_http_llm_capture_sse_data(sse, eol, eol + 1);
            }

            if (*p == ' ') {
                break;
            }

            /* fall through */

        default: /* ln_data */
            sse->bytes = 1;
            ngx_http_llm_capture_sse_data(sse, p, end);
            return;
        }
    }
}


/* the line's end in [p, end), or end; *lf: the next LF, found before */

static const uint8_t *
ngx_http_llm_capture_sse_find(const uint8_t *p, const uint8_t *end,
    const uint8_t **lf)
{
    const uint8_t  *cr;

    if (*lf == NULL || *lf < p) {
        *lf = memchr(p, '\n', (size_t) (end - p));

        if (*lf == NULL) {
            *lf = end;
        }
    }

    cr = memchr(p, '\r', (size_t) (*lf - p));

    return cr ? cr : *lf;
}


unsigned
ngx_http_llm_capture_sse_feed(ngx_http_llm_capture_sse_t *sse,
    const uint8_t *p, size_t n)
{
    unsigned        before;
    const uint8_t  *end, *eol, *lf;

    if (n == 0) {
        return 0;
    }

    before = sse->seen;
    end = p + n;

    if (sse->cr && *p == '\n') {
        p++;
    }

    sse->cr = 0;

    for (lf = NULL; p < end; p = eol + 1) {
        eol = ngx_http_llm_capture_sse_find(p, end, &lf);

        ngx_http_llm_capture_sse_line(sse, p, eol);

        if (eol == end) {
            break;
        }

        ngx_http_llm_capture_sse_eol(sse);

        if (*eol == '\r') {

            if (eol + 1 == end) {
                sse->cr = 1;

            } else if (eol[1] == '\n') {
                eol++;
            }
        }
    }

    return sse->seen & ~before;
}
