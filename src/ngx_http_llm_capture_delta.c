
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Only the containers on the way to a known place are followed; the others are
 * counted in and out.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_delta.h"


#define CONTENT    NGX_HTTP_LLM_CAPTURE_DELTA_CONTENT
#define REASONING  NGX_HTTP_LLM_CAPTURE_DELTA_REASONING
#define ERROR      NGX_HTTP_LLM_CAPTURE_DELTA_ERROR
/* the type of the event says which of them it is */
#define EITHER     0x80

/* a key that is too long, or has escapes, is none of ours */
#define UNKNOWN    (NGX_HTTP_LLM_CAPTURE_DELTA_KEY + 1)


typedef enum {
    js_value = 0,
    js_first_key,
    js_key_or_value,            /* behind a comma, or in an empty list */
    js_key,
    js_key_escape,
    js_colon,
    js_string,
    js_escape,
    js_type,
    js_atom,
    js_next,                    /* a comma or an end */
    js_skip,
    js_skip_string,
    js_skip_escape,
    js_over                     /* nothing more is asked of the event */
} ngx_http_llm_capture_delta_state_e;


typedef enum {
    nd_none = 0,
    nd_top,
    nd_choices,
    nd_choice,
    nd_chat,                    /* choices[].delta */
    nd_parts,
    nd_part,
    nd_thoughts,
    nd_thought,
    nd_calls,
    nd_call,
    nd_audio,
    nd_details,
    nd_delta,
    nd_block
} ngx_http_llm_capture_delta_node_e;


/* what a value means: by the container it stands in, and its key there */

typedef struct {
    uint8_t      node;
    uint8_t      string;        /* flags of one that is not empty */
    uint8_t      any;           /* flags of an object */
    uint8_t      object;        /* the node that it is */
    uint8_t      list;
    uint8_t      type;          /* read as the type of the event */
    uint8_t      len;
    const char  *key;           /* of an element: none */
} ngx_http_llm_capture_delta_rule_t;


#define rule(node, key, string, any, object, list, type)                      \
    { nd_##node, string, any, nd_##object, nd_##list, type,                   \
      sizeof(key) - 1, key }

static const ngx_http_llm_capture_delta_rule_t  ngx_http_llm_capture_rules[] =
{
    /* in the order of the nodes */

    { 0, 0, 0, 0, 0, 0, 0, "" },        /* the rule of all else */

    rule(none, "", 0, 0, top, none, 0),     /* the event itself */

    rule(top, "choices", 0, 0, none, choices, 0),
    rule(top, "delta", EITHER, 0, delta, none, 0),
    rule(top, "type", 0, 0, none, none, 1),
    rule(top, "content_block", 0, 0, block, none, 0),
    rule(top, "error", ERROR, ERROR, none, none, 0),

    rule(choices, "", 0, 0, choice, none, 0),
    rule(choice, "delta", 0, 0, chat, none, 0),
    rule(choice, "text", CONTENT, 0, none, none, 0),

    rule(chat, "content", CONTENT, 0, none, parts, 0),
    rule(chat, "refusal", CONTENT, 0, none, none, 0),
    rule(chat, "tool_calls", 0, 0, none, calls, 0),
    rule(chat, "function_call", 0, 0, call, none, 0),
    rule(chat, "audio", 0, 0, audio, none, 0),
    rule(chat, "reasoning_content", REASONING, 0, none, none, 0),
    rule(chat, "reasoning", REASONING, 0, none, none, 0),
    rule(chat, "thinking", REASONING, 0, none, none, 0),
    rule(chat, "reasoning_details", 0, 0, none, details, 0),

    rule(parts, "", 0, 0, part, none, 0),
    rule(part, "text", CONTENT, 0, none, none, 0),
    rule(part, "thinking", REASONING, 0, none, thoughts, 0),
    rule(thoughts, "", 0, 0, thought, none, 0),
    rule(thought, "text", REASONING, 0, none, none, 0),

    rule(calls, "", 0, CONTENT, none, none, 0),
    rule(call, "name", CONTENT, 0, none, none, 0),
    rule(call, "arguments", CONTENT, 0, none, none, 0),
    rule(audio, "data", CONTENT, 0, none, none, 0),
    rule(audio, "transcript", CONTENT, 0, none, none, 0),
    rule(details, "", 0, REASONING, none, none, 0),

    rule(delta, "text", CONTENT, 0, none, none, 0),
    rule(delta, "partial_json", CONTENT, 0, none, none, 0),
    rule(delta, "thinking", REASONING, 0, none, none, 0),

    rule(block, "text", CONTENT, 0, none, none, 0),
    rule(block, "name", CONTENT, 0, none, none, 0),
    rule(block, "thinking", REASONING, 0, none, none, 0),
    rule(block, "data", REASONING, 0, none, none, 0)
};

#define RULES  (sizeof(ngx_http_llm_capture_rules)                            \
                / sizeof(ngx_http_llm_capture_rules[0]))

#define EVENT  1                /* the rule of the event itself */


static const char  ngx_http_llm_capture_delta_thought[] = "response.reasoning";

#define THOUGHT  (sizeof(ngx_http_llm_capture_delta_thought) - 1)


void
ngx_http_llm_capture_delta_init(ngx_http_llm_capture_delta_t *d,
    unsigned quick)
{
    memset(d, 0, sizeof(ngx_http_llm_capture_delta_t));

    d->quick = (uint8_t) quick;
    d->state = js_value;
    d->rule = EVENT;
}


/* the rule of a key, or of the elements of a list, in the innermost node */

static uint8_t
ngx_http_llm_capture_delta_find(const ngx_http_llm_capture_delta_t *d,
    const char *key, size_t len)
{
    uint8_t                                 i, node;
    const ngx_http_llm_capture_delta_rule_t  *r;

    node = d->node[d->depth - 1];

    for (i = EVENT + 1; i < RULES; i++) {
        r = &ngx_http_llm_capture_rules[i];

        if (r->node > node) {
            break;
        }

        if (r->node == node && r->len == len
            && memcmp(r->key, key, len) == 0)
        {
            return i;
        }
    }

    return 0;
}


static unsigned
ngx_http_llm_capture_delta_list(uint8_t node)
{
    return node == nd_choices || node == nd_parts || node == nd_thoughts
           || node == nd_calls || node == nd_details;
}


static void
ngx_http_llm_capture_delta_found(ngx_http_llm_capture_delta_t *d,
    unsigned flags)
{
    d->found |= (uint8_t) flags;

    if (d->quick && (d->found & CONTENT)) {
        d->state = js_over;
    }
}


static void
ngx_http_llm_capture_delta_open(ngx_http_llm_capture_delta_t *d, uint8_t c)
{
    uint8_t                                 node;
    const ngx_http_llm_capture_delta_rule_t  *r;

    r = &ngx_http_llm_capture_rules[d->rule];
    node = (c == '{') ? r->object : r->list;

    if (node == nd_none) {
        d->skip = 1;
        d->state = js_skip;

    } else {
        d->node[d->depth++] = node;
        d->state = (c == '{') ? js_first_key : js_key_or_value;
    }

    if (c == '{' && r->any) {
        ngx_http_llm_capture_delta_found(d, r->any);
    }
}


static void
ngx_http_llm_capture_delta_close(ngx_http_llm_capture_delta_t *d)
{
    d->depth--;
    d->state = d->depth ? js_next : js_over;
}


/* of a number, true, false, null */

static unsigned
ngx_http_llm_capture_delta_atom(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')
           || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.';
}


/* a value begins, or the end of an empty container */

static void
ngx_http_llm_capture_delta_value(ngx_http_llm_capture_delta_t *d, uint8_t c)
{
    switch (c) {

    case '{':
    case '[':
        ngx_http_llm_capture_delta_open(d, c);
        break;

    case '"':
        if (d->depth == 0) {
            d->state = js_over;
            break;
        }

        d->state = js_string;

        if (ngx_http_llm_capture_rules[d->rule].type) {
            d->type = 0;
            d->state = js_type;
        }

        break;

    case '}':
    case ']':
    case ',':
    case ':':
        d->state = js_over;
        break;

    default:
        d->state = (d->depth && ngx_http_llm_capture_delta_atom(c))
                   ? js_atom : js_over;
    }
}


static void
ngx_http_llm_capture_delta_member(ngx_http_llm_capture_delta_t *d, uint8_t c)
{
    if (ngx_http_llm_capture_delta_list(d->node[d->depth - 1])) {

        if (c == ']') {
            ngx_http_llm_capture_delta_close(d);
            return;
        }

        d->rule = ngx_http_llm_capture_delta_find(d, "", 0);
        ngx_http_llm_capture_delta_value(d, c);
        return;
    }

    if (c != '"') {
        d->state = js_over;
        return;
    }

    d->key_len = 0;
    d->state = js_key;
}


static void
ngx_http_llm_capture_delta_next(ngx_http_llm_capture_delta_t *d, uint8_t c)
{
    if (c == ',') {
        d->state = js_key_or_value;

    } else if (c == (ngx_http_llm_capture_delta_list(d->node[d->depth - 1])
                     ? ']' : '}'))
    {
        ngx_http_llm_capture_delta_close(d);

    } else {
        d->state = js_over;
    }
}


/* from a byte of a string on: where its end, or an escape, stands */

static const uint8_t *
ngx_http_llm_capture_delta_text(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p != '"' && *p != '\\') {
        p++;
    }

    return p;
}


static const uint8_t *
ngx_http_llm_capture_delta_key(ngx_http_llm_capture_delta_t *d,
    const uint8_t *p, const uint8_t *end)
{
    for ( /* void */ ; p < end; p++) {

        if (*p == '"') {
            d->rule = ngx_http_llm_capture_delta_find(d, d->key,
                                                      d->key_len);
            d->state = js_colon;
            return p + 1;
        }

        if (*p == '\\') {
            d->key_len = UNKNOWN;
            d->state = js_key_escape;
            return p + 1;
        }

        if (d->key_len < sizeof(d->key)) {
            d->key[d->key_len++] = (char) *p;

        } else {
            d->key_len = UNKNOWN;
        }
    }

    return p;
}


/* in an unknown container */

static const uint8_t *
ngx_http_llm_capture_delta_skip(ngx_http_llm_capture_delta_t *d,
    const uint8_t *p, const uint8_t *end)
{
    for ( /* void */ ; p < end; p++) {

        switch (*p) {

        case '"':
            d->state = js_skip_string;
            return p + 1;

        case '{':
        case '[':
            d->skip++;
            break;

        case '}':
        case ']':
            if (--d->skip == 0) {
                d->state = d->depth ? js_next : js_over;
                return p + 1;
            }
        }
    }

    return p;
}


static const uint8_t *
ngx_http_llm_capture_delta_string(ngx_http_llm_capture_delta_t *d,
    const uint8_t *p, const uint8_t *end)
{
    unsigned  flags;

    flags = ngx_http_llm_capture_rules[d->rule].string;
    d->rule = 0;                      /* once is enough */

    if (flags && *p != '"') {
        ngx_http_llm_capture_delta_found(d, flags);

        if (d->state == js_over) {
            return p;
        }
    }

    p = ngx_http_llm_capture_delta_text(p, end);

    if (p == end) {
        return p;
    }

    d->state = (*p == '"') ? js_next : js_escape;

    return p + 1;
}


static void
ngx_http_llm_capture_delta_type(ngx_http_llm_capture_delta_t *d, uint8_t c)
{
    if (c == '"') {
        d->state = js_next;
        return;
    }

    if (d->type < THOUGHT
        && c == (uint8_t) ngx_http_llm_capture_delta_thought[d->type])
    {
        d->type++;
        return;
    }

    /* matched before, or never will */

    d->rule = 0;
    d->state = (c == '\\') ? js_escape : js_string;
}


void
ngx_http_llm_capture_delta_feed(ngx_http_llm_capture_delta_t *d,
    const uint8_t *p, size_t n)
{
    const uint8_t  *end;

    end = p + n;

    while (p < end) {

        switch (d->state) {

        case js_over:
            return;

        case js_string:
            p = ngx_http_llm_capture_delta_string(d, p, end);
            continue;

        case js_key:
            p = ngx_http_llm_capture_delta_key(d, p, end);
            continue;

        case js_skip:
            p = ngx_http_llm_capture_delta_skip(d, p, end);
            continue;

        case js_skip_string:
            p = ngx_http_llm_capture_delta_text(p, end);

            if (p < end) {
                d->state = (*p++ == '"') ? js_skip : js_skip_escape;
            }

            continue;

        case js_escape:
            d->state = js_string;
            p++;
            continue;

        case js_key_escape:
            d->state = js_key;
            p++;
            continue;

        case js_skip_escape:
            d->state = js_skip_string;
            p++;
            continue;

        case js_type:
            ngx_http_llm_capture_delta_type(d, *p++);
            continue;

        case js_atom:
            if (ngx_http_llm_capture_delta_atom(*p)) {
                p++;
                continue;
            }

            d->state = js_next;
            break;
        }

        if (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r') {
            p++;
            continue;
        }

        switch (d->state) {

        case js_value:
            ngx_http_llm_capture_delta_value(d, *p);
            break;

        case js_first_key:
            if (*p == '}') {
                ngx_http_llm_capture_delta_close(d);
                break;
            }

            /* fall through */

        case js_key_or_value:
            ngx_http_llm_capture_delta_member(d, *p);
            break;

        case js_colon:
            d->state = (*p == ':') ? js_value : js_over;
            break;

        case js_next:
            ngx_http_llm_capture_delta_next(d, *p);
            break;
        }

        p++;
    }
}


unsigned
ngx_http_llm_capture_delta_end(const ngx_http_llm_capture_delta_t *d)
{
    unsigned  flags;

    flags = d->found;

    if (flags & EITHER) {
        flags |= (d->type == THOUGHT) ? REASONING : CONTENT;
    }

    return flags & (CONTENT|REASONING|ERROR);
}
