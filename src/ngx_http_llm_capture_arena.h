
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The spill arena: blocks of 16 KiB in the zone, and chains of them.  Links
 * and lengths in the zone are for a successor; this process goes by its own
 * copies.  Part of the drain: see ngx_http_llm_capture_upload.h.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_ARENA_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_ARENA_H_INCLUDED_


#include "ngx_http_llm_capture_upload.h"


/* free blocks whose pages are kept */
#define NGX_HTTP_LLM_CAPTURE_WARM  64


typedef struct {
    uint32_t                           first;
    uint32_t                           last;
    uint32_t                           n;         /* blocks; 0: a free chain */
    uint32_t                           extra;
} ngx_http_llm_capture_extent_t;


/* a way along the body in a chain */

typedef struct {
    uint32_t                           block;
    uint32_t                           n;         /* blocks to come */
    size_t                             skip;      /* bytes of the next one */
    uint64_t                           left;      /* bytes of the body */
} ngx_http_llm_capture_walk_t;


struct ngx_http_llm_capture_spill_s {
    ngx_http_llm_capture_extent_t      chains[NGX_HTTP_LLM_CAPTURE_CHAINS];
    uint32_t                           look;      /* for a free chain */

    uint32_t                           warm[NGX_HTTP_LLM_CAPTURE_WARM];
    uint32_t                           nwarm;
    uint32_t                           ncold;

    uint32_t                          *cold;      /* stacks of free blocks */
    uint32_t                          *next;      /* links of those in use */
};


/* blocks that so many bytes take */
uint32_t ngx_http_llm_capture_arena_blocks(uint64_t bytes);

void ngx_http_llm_capture_arena_free(ngx_http_llm_capture_drain_t *d,
    uint32_t block);

/*
 * Puts n bytes behind the first `used` of a chain; the caller has made sure
 * that there are blocks for them.
 */

void ngx_http_llm_capture_arena_append(ngx_http_llm_capture_drain_t *d,
    uint32_t chain, uint64_t used, const uint8_t *p, size_t n);

/* along the body of an upload that was moved; next: 0 at its end */

ngx_http_llm_capture_walk_t ngx_http_llm_capture_arena_walk(
    ngx_http_llm_capture_drain_t *d, ngx_http_llm_capture_upload_t *u);
int ngx_http_llm_capture_arena_next(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_walk_t *w, struct iovec *v);


#endif /* _NGX_HTTP_LLM_CAPTURE_ARENA_H_INCLUDED_ */
