
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The events of a stream that is at hand as a whole, or in part, one by one:
 * the rules of ngx_http_llm_capture_sse.h.  Pure: no nginx header.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_EVENTS_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_EVENTS_H_INCLUDED_


#include <stddef.h>


typedef struct {
    char      *p;
    char      *end;
    unsigned   ended:1;         /* the last event has its empty line */
} ngx_http_llm_capture_events_t;


/* at the beginning of a stream, or of an event in it */

void ngx_http_llm_capture_events_init(ngx_http_llm_capture_events_t *e,
    char *p, size_t n);

/*
 * At some place of a stream: the events begin behind the next empty line.
 * *data is the end of the data before it, and *len its length: of the lines of
 * data behind the one that is cut, or else what is there of that one, though it
 * may be no data.
 */

void ngx_http_llm_capture_events_cut(ngx_http_llm_capture_events_t *e,
    char *p, size_t n, char **data, size_t *len);

/*
 * 1: *data is the data of the next event that has some, its lines joined in
 * place; 0: there is no more
 */

int ngx_http_llm_capture_events_next(ngx_http_llm_capture_events_t *e,
    char **data, size_t *len);


#endif /* _NGX_HTTP_LLM_CAPTURE_EVENTS_H_INCLUDED_ */
