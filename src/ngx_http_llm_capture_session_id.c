
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_conversation.h"
#include "ngx_http_llm_capture_session_id.h"


#define BODY  (sizeof(NGX_HTTP_LLM_CAPTURE_SESSION_BODY) - 1)


static uint64_t
ngx_http_llm_capture_session_value(const char *value, size_t n)
{
    return n && n <= NGX_HTTP_LLM_CAPTURE_SESSION_VALUE
           ? ngx_http_llm_capture_siphash_session(value, n) : 0;
}


static uint64_t
ngx_http_llm_capture_session_body(json_t *body, const char *name)
{
    size_t       n;
    const char  *value;

    if (strcmp(name, NGX_HTTP_LLM_CAPTURE_SESSION_PREFIX) == 0) {
        return ngx_http_llm_capture_conversation_session(body);
    }

    if (strncmp(name, NGX_HTTP_LLM_CAPTURE_SESSION_BODY, BODY) != 0) {
        return 0;
    }

    value = ngx_http_llm_capture_conversation_value(body, name + BODY, &n);

    return value ? ngx_http_llm_capture_session_value(value, n) : 0;
}


uint64_t
ngx_http_llm_capture_session_id(const char *spec, size_t len,
    json_t *(*tree)(void *ctx), void *ctx)
{
    json_t      *body;
    uint64_t     session;
    unsigned     asked;
    const char  *end;

    /* all that follows ends before that */

    if (len == 0 || spec[len - 1] != '\0') {
        return 0;
    }

    body = NULL;
    asked = 0;

    for (end = spec + len; spec < end; spec += strlen(spec) + 1) {

        if (*spec == '=') {
            return ngx_http_llm_capture_session_value(spec + 1,
                                                (size_t) (end - spec) - 2);
        }

        if (!asked) {
            body = tree(ctx);
            asked = 1;
        }

        session = body ? ngx_http_llm_capture_session_body(body, spec) : 0;

        if (session) {
            return session;
        }
    }

    return 0;
}
