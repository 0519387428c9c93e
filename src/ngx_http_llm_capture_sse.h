
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Reads a stream of server-sent events as it goes by, in pieces of any size:
 * how many events there were, and when the first one came that carries what a
 * model said, or thought.  One pass, no allocation, no copy of the text.  Pure:
 * no nginx header.
 *
 * Events are split as the HTML standard has it: a line ends in CRLF, LF or CR;
 * an empty line ends an event; the values of its "data" lines are its data,
 * joined by line feeds; comments and other fields are passed over, as is a
 * byte order mark in front.  An event without data is none, and so is one that
 * the stream breaks off before its empty line, as clients have it too.
 *
 * What the data of an event carries: ngx_http_llm_capture_delta.h.  Once there
 * was content, an event is read up to the first content in it.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SSE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SSE_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_delta.h"


#define NGX_HTTP_LLM_CAPTURE_SSE_CONTENT    NGX_HTTP_LLM_CAPTURE_DELTA_CONTENT
#define NGX_HTTP_LLM_CAPTURE_SSE_REASONING  NGX_HTTP_LLM_CAPTURE_DELTA_REASONING
#define NGX_HTTP_LLM_CAPTURE_SSE_ERROR      NGX_HTTP_LLM_CAPTURE_DELTA_ERROR
/* data that begins with [DONE]; it is not counted as an event */
#define NGX_HTTP_LLM_CAPTURE_SSE_DONE       0x08


typedef struct {
    uint64_t                        events;     /* with data */
    uint64_t                        deltas;     /* with content or reasoning */
    uint8_t                         seen;       /* flags of all events so far */

    /* private */
    uint8_t                         state;      /* of the line */
    uint8_t                         cr;         /* a LF belongs to the last */
    uint8_t                         match;      /* bytes of mark or field */
    uint8_t                         lines;      /* there was one of data */
    uint8_t                         bytes;      /* that was not empty */
    uint8_t                         done;       /* bytes of [DONE] */
    ngx_http_llm_capture_delta_t    delta;
} ngx_http_llm_capture_sse_t;


void ngx_http_llm_capture_sse_init(ngx_http_llm_capture_sse_t *sse);

/*
 * Takes the next n bytes; any split gives the same state.  Returns the flags
 * that events which ended in these bytes have added to `seen`: the time of the
 * call is the time of the first content when NGX_HTTP_LLM_CAPTURE_SSE_CONTENT
 * is among them.
 */

unsigned ngx_http_llm_capture_sse_feed(ngx_http_llm_capture_sse_t *sse,
    const uint8_t *p, size_t n);


#endif /* _NGX_HTTP_LLM_CAPTURE_SSE_H_INCLUDED_ */
