
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What names the session of a request, as a worker puts it behind the path in
 * a BEGIN: alternatives, the first that is there counts, each ended by a NUL.
 *
 *     body:PATH    a string in the body, or the "id" of an object there
 *     prefix       the beginning of the conversation
 *     =VALUE       known already, not empty; the last one, and it may have a
 *                  NUL in it
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SESSION_ID_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SESSION_ID_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "ngx_http_llm_capture_siphash.h"


#define NGX_HTTP_LLM_CAPTURE_SESSION_BODY    "body:"
#define NGX_HTTP_LLM_CAPTURE_SESSION_PREFIX  "prefix"

/* bytes of a value; a longer one names no session */
#define NGX_HTTP_LLM_CAPTURE_SESSION_VALUE   1024


/*
 * The session, to be sealed; 0: none.  tree: the body, asked for when an
 * alternative needs it, and once; NULL: it has none.
 */

uint64_t ngx_http_llm_capture_session_id(const char *spec, size_t len,
    json_t *(*tree)(void *ctx), void *ctx);


#endif /* _NGX_HTTP_LLM_CAPTURE_SESSION_ID_H_INCLUDED_ */
