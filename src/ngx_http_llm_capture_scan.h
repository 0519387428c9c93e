
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Says whether a body may stand in a capture file: one strict pass, in pieces
 * of any size, without allocation.  The verdict is that of orjson.loads()
 * (3.11, the parser AIPerf loads a file with) on the line that is written,
 * and that of AIPerf's row model: one line refused refuses the whole file.
 * Pure: no nginx header.
 *
 * Bytes of the body are left as they are; only a raw CR or LF, which in valid
 * JSON stands between tokens, is turned into a space, in place, so that the
 * body is one line.  Scanning a body again gives the same line.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SCAN_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SCAN_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_number.h"


/* nested containers that orjson takes in a line, the outermost included */
#define NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT     1024

/* {"timestamp":N,"payload":BODY} spends one of them on the wrapper */
#define NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED   1023

/*
 * raw_payload: the last "messages" of the top level, its key compared after
 * unescaping, must be a list
 */
#define NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES  0x01

/* looks where the last "model" of the top level is; no verdict hangs on it */
#define NGX_HTTP_LLM_CAPTURE_SCAN_MODEL     0x02


typedef enum {
    NGX_HTTP_LLM_CAPTURE_SCAN_OK = 0,
    NGX_HTTP_LLM_CAPTURE_SCAN_JSON,         /* no JSON, or more than one */
    NGX_HTTP_LLM_CAPTURE_SCAN_UTF8,         /* or a lone surrogate escape */
    NGX_HTTP_LLM_CAPTURE_SCAN_NUMBER,       /* its double overflows */
    NGX_HTTP_LLM_CAPTURE_SCAN_DEPTH,
    NGX_HTTP_LLM_CAPTURE_SCAN_NOT_OBJECT,
    NGX_HTTP_LLM_CAPTURE_SCAN_EMPTY,        /* {} */
    NGX_HTTP_LLM_CAPTURE_SCAN_NO_MESSAGES
} ngx_http_llm_capture_verdict_t;


/* private, save that it may be copied to any place between two calls */

typedef struct {
    ngx_http_llm_capture_verdict_t  verdict;

    uint8_t                         state;
    uint8_t                         flags;
    uint8_t                         object;     /* the innermost is one */
    uint8_t                         top;        /* the outermost is one */
    uint8_t                         members;    /* the outermost has some */
    uint8_t                         messages;   /* it has such a list */
    uint8_t                         key;        /* the string is a key */
    uint8_t                         track;      /* key to be compared */
    uint8_t                         match;      /* its bytes that matched */
    uint8_t                         other;      /* those of "model" */
    uint8_t                         hit;        /* which one it was */
    uint8_t                         left;       /* of a literal or of \uXXXX */
    uint8_t                         utf8;       /* the portable kernel's */
    uint8_t                         last[3];    /* the body's last bytes */
    uint16_t                        unit;       /* of \uXXXX */
    uint16_t                        surrogate;  /* 1: a low one must follow */
    uint16_t                        depth;
    uint16_t                        max_depth;

    const char                     *literal;    /* what must still come */

    uint64_t                        total;      /* offsets in the body */
    uint64_t                        lead;
    uint64_t                        head;
    uint64_t                        tail;
    uint64_t                        model;

    ngx_http_llm_capture_number_t   number;

    /* a bit per open container, 1: object */
    uint64_t                        stack[NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT / 64];
} ngx_http_llm_capture_scan_t;


/* max_depth: 1 .. NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT, for the body alone */

void ngx_http_llm_capture_scan_init(ngx_http_llm_capture_scan_t *s,
    unsigned max_depth, unsigned flags);

/*
 * Takes the next n bytes; any split gives the same verdict and the same bytes.
 * Nothing outside [p, p + n) is read.  Returns the verdict so far; one that is
 * not OK stays, and more bytes are then neither read nor changed.  Of several
 * faults the first in the body is the one told.
 */

ngx_http_llm_capture_verdict_t ngx_http_llm_capture_scan_feed(
    ngx_http_llm_capture_scan_t *s, uint8_t *p, size_t n);

/* the body is complete */

ngx_http_llm_capture_verdict_t ngx_http_llm_capture_scan_end(
    ngx_http_llm_capture_scan_t *s);


/*
 * After scan_end() was OK, in bytes of the body:
 *
 *     lead    insignificant whitespace before the opening brace
 *     head    all that stands before the first key: lead, brace, whitespace
 *     trail   insignificant whitespace after the closing brace
 *     total   all
 *     model   where the name of the model begins, behind its quote; 0: there is
 *             none, or none was looked for
 *
 * A line is to begin its body with one '{' and then [head, total - trail).
 * With [lead, total - trail) a body of raw_payload that is opened by a brace
 * and two spaces or more, and is dense with numbers of one digit, refuses the
 * file: orjson then sets aside too little memory ("memory allocation failed").
 */

static inline uint64_t
ngx_http_llm_capture_scan_lead(const ngx_http_llm_capture_scan_t *s)
{
    return s->lead;
}


static inline uint64_t
ngx_http_llm_capture_scan_head(const ngx_http_llm_capture_scan_t *s)
{
    return s->head;
}


static inline uint64_t
ngx_http_llm_capture_scan_trail(const ngx_http_llm_capture_scan_t *s)
{
    return s->total - s->tail;
}


static inline uint64_t
ngx_http_llm_capture_scan_total(const ngx_http_llm_capture_scan_t *s)
{
    return s->total;
}


static inline uint64_t
ngx_http_llm_capture_scan_model(const ngx_http_llm_capture_scan_t *s)
{
    return s->model;
}


#endif /* _NGX_HTTP_LLM_CAPTURE_SCAN_H_INCLUDED_ */
