
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <string.h>

#include "llm_capture.h"


static const struct {
    const char  *name;
    size_t       n;
} llm_capture_fields[LLM_CAPTURE_P_FIELDS] = {
    { "model", 5 }, { "stream", 6 }, { "tools", 5 }, { "functions", 9 },
    { "system", 6 }, { "instructions", 12 }, { "messages", 8 },
    { "input", 5 }, { "prompt", 6 }, { "max_tokens", 10 },
    { "max_completion_tokens", 21 }, { "max_output_tokens", 17 },
    { "min_tokens", 10 }, { "ignore_eos", 10 }, { "cache_salt", 10 },
    { "stream_options", 14 }, { "encoding_format", 15 }, { "dimensions", 10 },
    { "anthropic_version", 17 }
};


/* AIPerf's names of endpoint types */

static const char *const  llm_capture_endpoints[] = {
    "chat", "completions", "responses", "messages", "embeddings", "other"
};


const char *
llm_capture_endpoint_name(llm_capture_endpoint_e endpoint)
{
    return llm_capture_endpoints[endpoint];
}


/* of Responses and of embeddings alike */

static llm_capture_endpoint_e
llm_capture_of_input(llm_capture_payload_t *p)
{
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    if (p->is[LLM_CAPTURE_P_ENCODING].p || p->is[LLM_CAPTURE_P_DIMENSIONS].p) {
        return LLM_CAPTURE_EMBEDDINGS;
    }

    if (p->is[LLM_CAPTURE_P_STREAM].p || p->is[LLM_CAPTURE_P_INSTRUCTIONS].p
        || p->is[LLM_CAPTURE_P_MAX_OUTPUT].p || p->is[LLM_CAPTURE_P_TOOLS].p)
    {
        return LLM_CAPTURE_RESPONSES;
    }

    if (llm_capture_walk(&w, p->is[LLM_CAPTURE_P_INPUT])
        && llm_capture_next(&w, &m) && m.value.p[0] == '{')
    {
        return LLM_CAPTURE_RESPONSES;
    }

    return LLM_CAPTURE_EMBEDDINGS;
}


static llm_capture_endpoint_e
llm_capture_endpoint_of(llm_capture_payload_t *p)
{
    if (p->is[LLM_CAPTURE_P_MESSAGES].p) {
        return p->is[LLM_CAPTURE_P_SYSTEM].p
               || p->is[LLM_CAPTURE_P_ANTHROPIC].p
               ? LLM_CAPTURE_MESSAGES_API : LLM_CAPTURE_CHAT;
    }

    if (p->is[LLM_CAPTURE_P_PROMPT].p) {
        return LLM_CAPTURE_COMPLETIONS;
    }

    return p->is[LLM_CAPTURE_P_INPUT].p ? llm_capture_of_input(p)
                                        : LLM_CAPTURE_OTHER;
}


void
llm_capture_payload(llm_capture_payload_t *p, llm_capture_str_t body)
{
    unsigned              i;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    memset(p, 0, sizeof(llm_capture_payload_t));

    llm_capture_walk(&w, body);

    while (llm_capture_next(&w, &m)) {

        for (i = 0; i < LLM_CAPTURE_P_FIELDS; i++) {
            if (m.key.n == llm_capture_fields[i].n
                && memcmp(m.key.p, llm_capture_fields[i].name, m.key.n) == 0)
            {
                p->is[i] = m.value;
                break;
            }
        }
    }

    for (i = LLM_CAPTURE_P_TOOLS; i <= LLM_CAPTURE_P_PROMPT; i++) {
        p->text += p->is[i].n;
    }

    p->stream = p->is[LLM_CAPTURE_P_STREAM].n == 4
                && p->is[LLM_CAPTURE_P_STREAM].p[0] == 't';
    p->endpoint = llm_capture_endpoint_of(p);
}


double
llm_capture_max_tokens(const llm_capture_payload_t *p)
{
    double    n;
    unsigned  i;

    static const llm_capture_field_e  fields[] = {
        LLM_CAPTURE_P_MAX_COMPLETION, LLM_CAPTURE_P_MAX_OUTPUT,
        LLM_CAPTURE_P_MAX_TOKENS
    };

    for (i = 0; i < llm_capture_nelem(fields); i++) {
        n = llm_capture_number(p->is[fields[i]]);

        if (n >= 0) {
            return n;
        }
    }

    return -1;
}
