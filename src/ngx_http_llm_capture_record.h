
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A record is a request body on its way: BEGIN (who, when, where to), DATA,
 * END or ABORT, as frames of a ring.  A body that comes in one call is one
 * frame.  Here they are made and taken apart; see the ring for the frames.
 *
 *     | frame header | begin, path (BEGIN only) | bytes of the body | fill |
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_RECORD_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_RECORD_H_INCLUDED_


#include <sys/uio.h>

#include "ngx_http_llm_capture_ring.h"


/*
 * What a BEGIN adds, followed by path_len bytes of the path and session_len
 * bytes of what names the session, both without NUL
 */

typedef struct {
    uint64_t                      wall;       /* arrival, ms since 1970 */
    uint64_t                      mono;       /* arrival, CLOCK_MONOTONIC ms */
    uint64_t                      hash;       /* of the template */
    uint64_t                      uid;        /* of its answer; 0: not asked */
    uint32_t                      pid;        /* of the worker */
    uint16_t                      path_len;
    uint16_t                      session_len;
    uint8_t                       format;
    uint8_t                       endpoint;
    uint16_t                      flags;
    uint32_t                      unused;
} ngx_http_llm_capture_begin_t;

/* a text-free row with the numbers of the blocks of its prompt */
#define NGX_HTTP_LLM_CAPTURE_HASH_IDS    0x01
/* a row with the text of the answer */
#define NGX_HTTP_LLM_CAPTURE_OUTPUT      0x02

/* an outcome that found its ring full: nothing but its number, nor a path */
#define NGX_HTTP_LLM_CAPTURE_MISSED      0x04

/* bytes of session_len at most */
#define NGX_HTTP_LLM_CAPTURE_SPEC        4096

/*
 * Set in the id of a record that is an outcome: it is no request, and none of
 * the ids 1, 2, 3... of the ring
 */
#define NGX_HTTP_LLM_CAPTURE_ID_OUTCOME  ((uint64_t) 1 << 63)


/* a record being put into a ring */

typedef struct {
    uint64_t                      id;
    uint64_t                      off;        /* bytes put so far */
    ngx_http_llm_capture_begin_t  begin;
    const char                   *path;
    const char                   *session;    /* NULL if session_len is 0 */
    unsigned                      begun:1;    /* its BEGIN stands in the ring */
} ngx_http_llm_capture_record_t;


/*
 * Copies n buffers behind what was put before; flags: END or 0.  The first put
 * makes the BEGIN, and counts the upload as in flight until END or abort.
 * Returns 0.  Returns -1 if the ring is full: if the record has begun, it must
 * be aborted, else nothing of it is there.  Call publish afterwards.
 */

int ngx_http_llm_capture_record_put(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_record_t *rec, const struct iovec *iov, unsigned n,
    unsigned flags);

/* why: the counter it ends under; always fits.  The record has begun. */

void ngx_http_llm_capture_record_abort(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_record_t *rec, ngx_http_llm_capture_counter_e why);

/*
 * Bytes a body of len bytes takes in a ring if it comes in `calls` calls;
 * names: of path and session together
 */

size_t ngx_http_llm_capture_record_size(size_t len, size_t names,
    size_t calls);

/*
 * Takes a checked frame apart: `at` is where it stands, f the private copy of
 * its header.  Sets *body to where its bytes begin, from `at`; for a BEGIN
 * fills *begin (a copy) and *path (still in the ring: copy it, and the session
 * behind it).  Returns 0, or -1 if it is not what it says.
 */

int ngx_http_llm_capture_record_parse(const uint8_t *at,
    const ngx_http_llm_capture_frame_t *f, ngx_http_llm_capture_begin_t *begin,
    const char **path, uint32_t *body);


#endif /* _NGX_HTTP_LLM_CAPTURE_RECORD_H_INCLUDED_ */
