
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Whether an event of a streamed answer carries what a model said, or thought:
 * one pass over its JSON, in pieces of any size, without allocation.  Pure: no
 * nginx header.
 *
 * A member counts at exactly the place that is named here, in whatever order,
 * and if it is a string that is not empty:
 *
 *     content     choices[].delta.content              OpenAI chat
 *                 choices[].delta.content[].text         as a list of parts
 *                 choices[].delta.refusal
 *                 choices[].delta.tool_calls[]         any object in it
 *                 choices[].delta.function_call.{name,arguments}
 *                 choices[].delta.audio.{data,transcript}
 *                 choices[].text                       OpenAI completions
 *                 delta                                Responses
 *                 delta.{text,partial_json}            Anthropic messages
 *                 content_block.{text,name}
 *
 *     reasoning   choices[].delta.{reasoning_content,reasoning,thinking}
 *                 choices[].delta.content[].thinking     or thinking[].text
 *                 choices[].delta.reasoning_details[]  any object in it
 *                 delta                                with a "type" that
 *                     begins with response.reasoning, in whatever order
 *                 delta.thinking
 *                 content_block.{thinking,data}
 *
 *     error       error                                or an object
 *
 * So an event with a role, a finish_reason, a usage or an empty content alone
 * carries neither.  A key counts as it is spelled: one written with escapes is
 * not known.  Nothing is asked beyond what finds the places: what comes before
 * a fault of the JSON counts, what comes behind it in the event does not.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_DELTA_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_DELTA_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


#define NGX_HTTP_LLM_CAPTURE_DELTA_CONTENT    0x01
#define NGX_HTTP_LLM_CAPTURE_DELTA_REASONING  0x02
#define NGX_HTTP_LLM_CAPTURE_DELTA_ERROR      0x04

/* known containers, one in another, at most */
#define NGX_HTTP_LLM_CAPTURE_DELTA_NODES      8
/* bytes of the longest known key */
#define NGX_HTTP_LLM_CAPTURE_DELTA_KEY        17


/* private */

typedef struct {
    uint64_t   skip;            /* unknown containers, one in another */
    uint8_t    found;           /* flags so far */
    uint8_t    quick;
    uint8_t    state;
    uint8_t    rule;            /* of the value that comes, or is read */
    uint8_t    type;            /* bytes of a type's beginning that matched */
    uint8_t    key_len;
    uint8_t    depth;           /* of node */
    uint8_t    node[NGX_HTTP_LLM_CAPTURE_DELTA_NODES];
    char       key[NGX_HTTP_LLM_CAPTURE_DELTA_KEY];
} ngx_http_llm_capture_delta_t;


/* quick: an event with content is not read to its end */

void ngx_http_llm_capture_delta_init(ngx_http_llm_capture_delta_t *d,
    unsigned quick);

/* the next n bytes; any split gives the same state */

void ngx_http_llm_capture_delta_feed(ngx_http_llm_capture_delta_t *d,
    const uint8_t *p, size_t n);

/* the flags of the event, when all of it was fed */

unsigned ngx_http_llm_capture_delta_end(const ngx_http_llm_capture_delta_t *d);


#endif /* _NGX_HTTP_LLM_CAPTURE_DELTA_H_INCLUDED_ */
