
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A request's body as JSON, for what needs more than its bytes.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_conversation.h"
#include "ngx_http_llm_capture_session_id.h"
#include "ngx_http_llm_capture_upload.h"


typedef struct {
    ngx_http_llm_capture_drain_t   *d;
    ngx_http_llm_capture_upload_t  *u;
} ngx_http_llm_capture_tree_t;


json_t *
ngx_http_llm_capture_upload_tree(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    size_t         n;
    struct iovec  *iov;

    if (u->tree) {
        return u->tree;
    }

    n = ngx_http_llm_capture_upload_niov(d, u);
    iov = malloc(n * sizeof(struct iovec));

    if (iov == NULL) {
        return NULL;
    }

    ngx_http_llm_capture_upload_iov(d, u, iov);
    u->tree = ngx_http_llm_capture_conversation_load(iov, (unsigned) n);

    free(iov);

    return u->tree;
}


void
ngx_http_llm_capture_upload_untree(ngx_http_llm_capture_upload_t *u)
{
    json_decref(u->tree);
    u->tree = NULL;
}


static json_t *
ngx_http_llm_capture_tree_of(void *ctx)
{
    ngx_http_llm_capture_tree_t *t = ctx;

    return ngx_http_llm_capture_upload_tree(t->d, t->u);
}


void
ngx_http_llm_capture_upload_session(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    char                         copy[NGX_HTTP_LLM_CAPTURE_SPEC];
    ngx_http_llm_capture_tree_t  t = { d, u };

    if (u->spec_len == 0 || u->dest->format == NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD)
    {
        return;
    }

    /* a worker can write there while we read */

    memcpy(copy, ngx_http_llm_capture_upload_spec(d, u), u->spec_len);

    u->session = ngx_http_llm_capture_session_id(copy, u->spec_len,
                                                 ngx_http_llm_capture_tree_of,
                                                 &t);
}
