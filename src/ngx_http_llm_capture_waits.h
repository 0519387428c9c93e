
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Requests that are recorded and whose answer is still to come.  An answer may
 * take hours and go into a ring that its request never saw, after several
 * helpers: so each waits in the zone, under a number of its own, until its
 * outcome has come or its worker is gone.  Pure; helper only.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_WAITS_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_WAITS_H_INCLUDED_


#include "ngx_http_llm_capture_zone.h"


typedef struct ngx_http_llm_capture_waits_s  ngx_http_llm_capture_waits_t;


/* finds those that a predecessor left; NULL: no memory */

ngx_http_llm_capture_waits_t *ngx_http_llm_capture_waits_open(
    const ngx_http_llm_capture_zone_t *zone);
void ngx_http_llm_capture_waits_close(ngx_http_llm_capture_waits_t *w);

/*
 * One that waits already is left as it is: a commit that is done again finds
 * it.  uid: not 0.  Returns 0, or -1 if NGX_HTTP_LLM_CAPTURE_WAITS do.
 */

int ngx_http_llm_capture_waits_add(ngx_http_llm_capture_waits_t *w,
    uint64_t uid, uint32_t pid, uint32_t row, uint64_t ts, uint64_t session);

/* a private copy; the row is checked.  1: found, 0: it does not wait */

int ngx_http_llm_capture_waits_get(ngx_http_llm_capture_waits_t *w,
    uint64_t uid, ngx_http_llm_capture_wait_t *wait);

/* nothing happens if it does not wait */

void ngx_http_llm_capture_waits_remove(ngx_http_llm_capture_waits_t *w,
    uint64_t uid);

/* how many wait */

uint32_t ngx_http_llm_capture_waits_n(const ngx_http_llm_capture_waits_t *w);

/*
 * Walks over all, in no order: *at is 0 at first.  1: *wait is a copy of the
 * next one, which may be removed; 0: there are no more.
 */

int ngx_http_llm_capture_waits_next(ngx_http_llm_capture_waits_t *w,
    uint32_t *at, ngx_http_llm_capture_wait_t *wait);


#endif /* _NGX_HTTP_LLM_CAPTURE_WAITS_H_INCLUDED_ */
