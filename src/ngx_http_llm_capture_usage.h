
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Reasons and token counts out of one JSON object, an answer or an event, added
 * to those of the objects before: the places and rules of
 * ngx_http_llm_capture_outcome.h.  Pure: no nginx header.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_USAGE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_USAGE_H_INCLUDED_


#include "ngx_http_llm_capture_outcome.h"


typedef struct {
    ngx_http_llm_capture_outcome_t  *o;

    /* as they were given; -1: never */
    int64_t                          prompt;
    int64_t                          input;
    int64_t                          cache_read;
    int64_t                          cache_made;
    int64_t                          cached;

    char                            *text;      /* NULL: no more of it */
    size_t                           text_size;

    unsigned                         loose:1;   /* integers came as doubles */
    unsigned                         counted:1; /* a completion was read */
} ngx_http_llm_capture_usage_t;


/* nothing is known */

void ngx_http_llm_capture_usage_init(ngx_http_llm_capture_usage_t *u,
    ngx_http_llm_capture_outcome_t *o);

/* 0, or -1 if the text is no JSON object */

int ngx_http_llm_capture_usage_read(ngx_http_llm_capture_usage_t *u,
    const char *p, size_t n);

/* what comes of parts: prompt, cached */

void ngx_http_llm_capture_usage_sum(ngx_http_llm_capture_usage_t *u);


#endif /* _NGX_HTTP_LLM_CAPTURE_USAGE_H_INCLUDED_ */
