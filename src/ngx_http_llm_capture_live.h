
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper tells in the zone how it goes: see ngx_http_llm_capture_live_t.
 * It is read by ngx_http_llm_capture_stat.c.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_LIVE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_LIVE_H_INCLUDED_


#include "ngx_http_llm_capture_upload.h"


/* a helper begins with the zone; now: CLOCK_MONOTONIC, ms */

void ngx_http_llm_capture_live_start(const ngx_http_llm_capture_zone_t *z,
    uint64_t now);

/* it has n more zones, which reloads replaced */

void ngx_http_llm_capture_live_draining(const ngx_http_llm_capture_zone_t *z,
    uint64_t n);

/*
 * The first n of the batch are lines of the file, not committed yet; bytes: of
 * these lines
 */

void ngx_http_llm_capture_live_written(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, unsigned n, uint64_t bytes);

/* the file could not be written, dest->file->error says why */

void ngx_http_llm_capture_live_failed(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest);

/* a pass is over */

void ngx_http_llm_capture_live_pass(ngx_http_llm_capture_drain_t *d);


#endif /* _NGX_HTTP_LLM_CAPTURE_LIVE_H_INCLUDED_ */
