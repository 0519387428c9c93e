
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Members of a manifest, the entries of its writers, and their sum.  Part of
 * ngx_http_llm_capture_manifest.h.  What is returned is the caller's; NULL, or
 * -1: no memory.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_MANIFEST_SUM_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_MANIFEST_SUM_H_INCLUDED_


#include "ngx_http_llm_capture_manifest.h"


/* names of these two files alone */

#define manifest_text    ngx_http_llm_capture_manifest_text
#define manifest_textn   ngx_http_llm_capture_manifest_textn
#define manifest_number  ngx_http_llm_capture_manifest_number
#define manifest_set     ngx_http_llm_capture_manifest_set
#define manifest_writer  ngx_http_llm_capture_manifest_writer
#define manifest_total   ngx_http_llm_capture_manifest_total
#define manifest_fold    ngx_http_llm_capture_manifest_fold


/* a string; NULL gives null, and what is no UTF-8 is told as ASCII */

json_t *manifest_text(const char *text);
json_t *manifest_textn(const char *text, size_t len);

/* a member that is a number of 0 or more; 0 if it is none */

uint64_t manifest_number(json_t *object,
    const char *name);
int manifest_set(json_t *object, const char *name,
    uint64_t n);

/* what this zone has to tell */

json_t *manifest_writer(
    const ngx_http_llm_capture_facts_t *f);

/* the sums of all entries of a list, as one more */

json_t *manifest_total(json_t *writers);

/* those that have ended become one, if there are many */

int manifest_fold(json_t *writers);


#endif /* _NGX_HTTP_LLM_CAPTURE_MANIFEST_SUM_H_INCLUDED_ */
