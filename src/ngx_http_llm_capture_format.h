
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The lines of a batch as iovecs.  A body is never copied: only what stands
 * between two bodies is made here.
 *
 *     mooncake_payload   {"timestamp":N,"payload":BODY} LF
 *                        {"timestamp":N,"id":"HEX","session_id":"HEX",
 *                         "payload":BODY} LF, either of them alone too
 *     raw_payload        BODY LF
 *     mooncake_trace     {"timestamp":N REST LF
 *     baseten_trace      ROW LF
 *     outcomes           ROW LF
 *
 * The end of a line and the head of the next one share an iovec (a "join"),
 * so that a line of one frame costs two iovecs and not three.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_FORMAT_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_FORMAT_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "ngx_http_llm_capture_zone.h"


/*
 * "}\n" + {"timestamp": + 20 digits + ,"id":"" + 16 digits
 * + ,"session_id":"" + 16 digits + ,"payload":
 */
#define NGX_HTTP_LLM_CAPTURE_JOIN  104


typedef struct {
    uint64_t                     wall;    /* arrival, ms since 1970 */
    uint64_t                     mono;    /* arrival, CLOCK_MONOTONIC, ms */
    uint64_t                     ts;      /* of the line, ms of its file */
    uint64_t                     uid;     /* 0: no id */
    uint64_t                     session; /* 0: no session_id */

    /* without outer white space; the caller's, until its call returns */
    const struct iovec          *body;
    uint32_t                     nbody;
    uint64_t                     len;     /* of body; set by lines_set() */
} ngx_http_llm_capture_line_t;


typedef struct {
    const ngx_http_llm_capture_line_t  *line;
    unsigned                     n;
    uint64_t                     total;   /* bytes */

    /* bytes of the lines up to and with this one */
    uint64_t                     end[NGX_HTTP_LLM_CAPTURE_BATCH];

    /* join[i] stands before the body of line i, join[n] ends the batch */
    uint8_t                      size[NGX_HTTP_LLM_CAPTURE_BATCH + 1];
    char                         join[NGX_HTTP_LLM_CAPTURE_BATCH + 1]
                                     [NGX_HTTP_LLM_CAPTURE_JOIN];
} ngx_http_llm_capture_lines_t;


/* a place in a batch: part 0 is a join, part i is iovec i - 1 of the body */

typedef struct {
    unsigned                     line;
    uint32_t                     part;
    size_t                       skip;    /* bytes of the part */
} ngx_http_llm_capture_cursor_t;


/* has a line a timestamp, in ms since its file's epoch? */

static inline unsigned
ngx_http_llm_capture_is_timed(unsigned format)
{
    return format == NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD
           || format == NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE;
}


/* n: 1 to NGX_HTTP_LLM_CAPTURE_BATCH; the lines must outlive l */

void ngx_http_llm_capture_lines_set(ngx_http_llm_capture_lines_t *l,
    unsigned format, ngx_http_llm_capture_line_t *line, unsigned n);

/* bytes of one line, whose len and ts are set */

uint64_t ngx_http_llm_capture_line_bytes(unsigned format,
    const ngx_http_llm_capture_line_t *line);

/*
 * Fills at most max iovecs with what stands at the cursor, which stays.
 * Returns their number; 0 only at the end of the batch.
 */

int ngx_http_llm_capture_lines_iov(const ngx_http_llm_capture_lines_t *l,
    const ngx_http_llm_capture_cursor_t *c, struct iovec *iov, int max);

void ngx_http_llm_capture_lines_advance(const ngx_http_llm_capture_lines_t *l,
    ngx_http_llm_capture_cursor_t *c, uint64_t bytes);

/* the lines that are whole in the first so many bytes, and their bytes */

unsigned ngx_http_llm_capture_lines_whole(
    const ngx_http_llm_capture_lines_t *l, uint64_t bytes, uint64_t *whole);


#endif /* _NGX_HTTP_LLM_CAPTURE_FORMAT_H_INCLUDED_ */
