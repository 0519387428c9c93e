
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A request as the text of its conversation: the same for two requests as far
 * as a model sees the same, whatever else their bodies differ in, so that a
 * conversation that grows keeps its beginning.  Pure: no nginx header.
 *
 * The text is a row of pieces, each a byte 0xff, a letter and what it stands
 * for.  A JSON string has no byte 0xff, so pieces cannot be taken for others:
 * no two conversations have one text by shifting what belongs where.
 *
 *     t VALUE   each of tools, functions
 *     s         system (Anthropic) or instructions (Responses); its content
 *     m ROLE    each of messages, or of input if it has a role; an input that
 *               is a string is a user's.  Its content, then those of name,
 *               tool_calls, tool_call_id, function_call, reasoning_content,
 *               reasoning that it has, as k NAME and v VALUE
 *     i VALUE   each other of input
 *     p TEXT    prompt, or each string of it; v VALUE: what is no string
 *
 *     content:
 *     c TEXT    a string, or a part of type text, input_text or output_text
 *     v VALUE   any other part
 *
 *     VALUE: numbers as they are (7.0 is 7), t, f, n for true, false, null, a
 *     string between two bytes 0xfe; [ and ] around elements, { and } around
 *     keys and values in their order, each of these followed by a comma.  A
 *     member "cache_control" is left out: clients move it from turn to turn.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_CONVERSATION_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_CONVERSATION_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <jansson.h>

#include "ngx_http_llm_capture_blocks.h"


/*
 * The tree of a request's body, in pieces that are not copied; json_decref() it
 * in the end.  NULL: no JSON, or no memory, or a key with a NUL, which jansson
 * has no place for.  What a hostile body makes of it is bounded: 256 MiB, or
 * 32 MiB and 8 times the body.
 */

json_t *ngx_http_llm_capture_conversation_load(const struct iovec *iov,
    unsigned n);

/* feeds the text to the blocks */

void ngx_http_llm_capture_conversation_hash(json_t *request,
    ngx_http_llm_capture_blocks_t *blocks);

/*
 * The session that the conversation's beginning names, as siphash_session: of
 * "prefix", a NUL and the text, without tools, up to the first message of a
 * user.  All turns of a conversation have it in common.  0: there is none.
 */

uint64_t ngx_http_llm_capture_conversation_session(json_t *request);

/*
 * The string that the path names, such as "user" or "metadata.session_id", or
 * the "id" of an object there; NULL if there is none, or it is empty.
 */

const char *ngx_http_llm_capture_conversation_value(json_t *request,
    const char *path, size_t *len);


#endif /* _NGX_HTTP_LLM_CAPTURE_CONVERSATION_H_INCLUDED_ */
