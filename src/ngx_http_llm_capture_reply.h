
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What a worker tells of an answer: the body of a record of its own, in front
 * of the answer's first and last bytes.  Pure: no nginx header.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_REPLY_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_REPLY_H_INCLUDED_


#include <stdint.h>


/* bytes kept of an answer: the first ones, and the last of those behind */
#define NGX_HTTP_LLM_CAPTURE_REPLY_HEAD  4096
#define NGX_HTTP_LLM_CAPTURE_REPLY_TAIL  8192

#define NGX_HTTP_LLM_CAPTURE_REPLY_STREAM    0x01   /* text/event-stream */
#define NGX_HTTP_LLM_CAPTURE_REPLY_COMPLETE  0x02   /* to its last byte */
#define NGX_HTTP_LLM_CAPTURE_REPLY_ABORTED   0x04   /* by the client */
#define NGX_HTTP_LLM_CAPTURE_REPLY_FAILED    0x08   /* by the upstream */
#define NGX_HTTP_LLM_CAPTURE_REPLY_ENCODED   0x10   /* Content-Encoding */
#define NGX_HTTP_LLM_CAPTURE_REPLY_JSON      0x20   /* to be read as such */


typedef struct {
    uint64_t  bytes;            /* of the body */
    uint64_t  events;           /* of a stream */
    uint64_t  deltas;

    /* ms since the request's arrival; -1: it never came */
    int64_t   first_byte;
    int64_t   first_content;
    int64_t   first_reasoning;
    int64_t   last_byte;

    uint32_t  head;             /* bytes that follow this */
    uint32_t  tail;             /* bytes that follow those */
    uint16_t  status;           /* 0: none */
    uint16_t  upstream_status;
    uint32_t  flags;
} ngx_http_llm_capture_reply_t;


#endif /* _NGX_HTTP_LLM_CAPTURE_REPLY_H_INCLUDED_ */
