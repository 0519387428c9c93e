
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The answers of t/data/answers, in the shapes that servers give them, and
 * what is to be read out of each.
 */

#ifndef _ANSWERS_H_INCLUDED_
#define _ANSWERS_H_INCLUDED_


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_outcome.h"
#include "ngx_http_llm_capture_sse.h"


#define C  NGX_HTTP_LLM_CAPTURE_SSE_CONTENT
#define R  NGX_HTTP_LLM_CAPTURE_SSE_REASONING
#define E  NGX_HTTP_LLM_CAPTURE_SSE_ERROR
#define D  NGX_HTTP_LLM_CAPTURE_SSE_DONE

typedef ngx_http_llm_capture_sse_t      sse_t;
typedef ngx_http_llm_capture_answer_t   answer_t;
typedef ngx_http_llm_capture_outcome_t  outcome_t;


typedef struct {
    const char  *name;

    /* of a stream */
    unsigned     events;
    unsigned     deltas;
    unsigned     seen;
    int          content;       /* which event is the first with it; -1 */
    int          reasoning;

    int          prompt;
    int          completion;
    int          cached;
    int          thought;       /* reasoning tokens */
    unsigned     estimated;
    unsigned     error;
    unsigned     refused;
    const char  *reasons;
    unsigned     broken;        /* off before its end */
} expected_t;


static const expected_t  streams[] = {
    { "vllm-chat", 6, 3, C|D, 1, -1, 17, 4, 16, -1, 0, 0, 0, "stop", 0 },
    { "vllm-chat-no-usage", 5, 3, C|D, 1, -1, -1, 3, -1, -1, 1, 0, 0,
      "length", 0 },
    { "vllm-chat-reasoning", 7, 4, C|R|D, 3, 1, 20, 9, -1, -1, 0, 0, 0,
      "stop", 0 },
    { "vllm-chat-usage-each", 5, 3, C|D, 1, -1, 11, 3, -1, -1, 0, 0, 0,
      "stop", 0 },
    { "vllm-chat-usage-each-broken", 3, 2, C, 1, -1, 11, 3, -1, -1, 0, 0, 0,
      "", 1 },
    { "vllm-chat-n2", 7, 4, C|D, 2, -1, 5, 4, -1, -1, 0, 0, 0,
      "stop,length", 0 },
    { "vllm-chat-error", 4, 2, C|E|D, 1, -1, -1, 2, -1, -1, 1, 1, 0, "", 0 },
    { "vllm-chat-tools", 6, 3, C|D, 1, -1, 120, 18, -1, -1, 0, 0, 0,
      "tool_calls", 0 },
    { "vllm-completions", 4, 2, C|D, 0, -1, 3, 2, -1, -1, 0, 0, 0,
      "length", 0 },
    { "sglang-chat", 7, 4, C|R|D, 3, 1, 33, 6, 32, 2, 0, 0, 0, "stop", 0 },
    { "nim-chat", 5, 3, C|D, 1, -1, 21, 3, -1, -1, 0, 0, 0, "stop", 0 },
    { "openai-chat", 5, 2, C|D, 1, -1, 1200, 2, 1024, 0, 0, 0, 0, "stop", 0 },
    { "openai-chat-tools", 3, 2, C|D, 0, -1, -1, 2, -1, -1, 1, 0, 0,
      "tool_calls", 0 },
    { "openai-chat-refusal", 4, 2, C|D, 1, -1, -1, 2, -1, -1, 1, 0, 0,
      "stop", 0 },
    { "responses", 11, 3, C|R, 6, 3, 37, 11, 5, 7, 0, 0, 0, "completed", 0 },
    { "responses-vllm", 5, 3, C|R, 3, 1, 37, 11, 5, 7, 0, 0, 0,
      "max_output_tokens", 0 },
    { "responses-failed", 3, 1, C, 1, -1, -1, 1, -1, -1, 1, 1, 0,
      "failed", 0 },
    { "responses-call", 4, 2, C, 1, -1, 37, 11, 5, 7, 0, 0, 0,
      "completed", 0 },
    { "anthropic", 8, 2, C, 3, -1, 2125, 15, 2000, -1, 0, 0, 0,
      "end_turn", 0 },
    { "anthropic-thinking-tool", 12, 4, C|R, 5, 2, 472, 89, -1, -1, 0, 0, 0,
      "tool_use", 0 },
    { "anthropic-error", 5, 2, C|E, 2, -1, 9, 2, -1, -1, 1, 1, 0, "", 0 },
    { "anthropic-broken", 6, 4, C, 2, -1, 2125, 4, 2000, -1, 1, 0, 0, "", 1 },
    { "crlf", 4, 2, C|D, 1, -1, 2, 2, -1, -1, 0, 0, 0, "", 0 },
    { "cr", 3, 1, C|D, 1, -1, 2, 1, -1, -1, 0, 0, 0, "stop", 0 },
    { "spaces", 4, 1, C|D, 1, -1, 7, 1, -1, -1, 0, 0, 0, "stop", 0 },
    { "malformed", 8, 2, C, 0, -1, -1, 2, -1, -1, 1, 0, 0, "", 0 },
    { "no-last-line", 2, 1, C, 1, -1, 8, 1, -1, -1, 0, 0, 0, "stop", 0 },
    { "usage-refused", 3, 2, C|D, 0, -1, -1, 2, -1, -1, 1, 0, 3, "stop", 0 }
};


static const expected_t  answers[] = {
    { "chat", 0, 0, 0, 0, 0, 14, 10, -1, -1, 0, 0, 0, "stop", 0 },
    { "completions-n3", 0, 0, 0, 0, 0, 6, 6, -1, -1, 0, 0, 0,
      "stop,length,stop", 0 },
    { "anthropic", 0, 0, 0, 0, 0, 40, 5, 30, -1, 0, 0, 0, "max_tokens", 0 },
    { "responses", 0, 0, 0, 0, 0, 37, 11, 5, 7, 0, 0, 0, "completed", 0 },
    { "error", 0, 0, 0, 0, 0, -1, -1, -1, -1, 0, 1, 0, "", 0 }
};

#define N(list)  (sizeof(list) / sizeof(list[0]))


static inline uint8_t *
answer_load(const char *name, const char *kind, size_t *n)
{
    char      path[128];
    long      len;
    FILE     *f;
    uint8_t  *p;

    (void) snprintf(path, sizeof(path), "t/data/answers/%s.%s", name, kind);

    f = fopen(path, "rb");

    if (f == NULL) {
        fail_msg("%s cannot be opened", path);
    }

    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    len = ftell(f);
    rewind(f);

    p = malloc((size_t) len + 1);
    assert_non_null(p);
    *n = fread(p, 1, (size_t) len, f);
    assert_int_equal(*n, len);
    fclose(f);

    return p;
}


/* with nothing behind it, so that a sanitizer sees a byte read too far */

static inline uint8_t *
piece(const uint8_t *p, size_t n)
{
    uint8_t  *copy;

    copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, p, n);

    return copy;
}


#endif /* _ANSWERS_H_INCLUDED_ */
