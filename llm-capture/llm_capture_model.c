
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What AIPerf 0.13.0 takes as a row of a mooncake_trace (its MooncakeTrace, a
 * model of pydantic in its lax mode, and the Turn that is made of it), and what
 * rows of a file may not be together.  Every rule here is one of theirs.
 */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "llm_capture.h"
#include "llm_capture_lax.h"


/* tokens that AIPerf makes of a hash id */
#define LLM_CAPTURE_BLOCK   512

/* whole numbers that a double holds exactly */
#define LLM_CAPTURE_EXACT   9007199254740992.0


typedef enum {
    LLM_CAPTURE_MODE_LENGTH = 1,    /* or text_input */
    LLM_CAPTURE_MODE_MESSAGES,
    LLM_CAPTURE_MODE_PAYLOAD
} llm_capture_mode_e;


struct llm_capture_judge_s {
    llm_capture_table_t  session;   /* its mode */
    llm_capture_table_t  block;     /* hash id -> its tokens */
};


static unsigned
llm_capture_null(llm_capture_str_t v)
{
    return v.p == NULL || v.p[0] == 'n';
}


/* a list of objects, n of them; roles: each has one */

static unsigned
llm_capture_objects(llm_capture_str_t v, size_t *n, unsigned *roles)
{
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    *n = 0;
    *roles = 1;

    if (!llm_capture_walk(&w, v) || w.object) {
        return 0;
    }

    while (llm_capture_next(&w, &m)) {

        if (m.value.p[0] != '{') {
            return 0;
        }

        ++*n;
        *roles &= llm_capture_member(m.value, "role").p != NULL;
    }

    return 1;
}


static const char *
llm_capture_types(const llm_capture_row_t *row, size_t *messages,
    unsigned *roles, size_t *tools)
{
    double                    n;
    unsigned                  none;
    llm_capture_walk_t        w;
    llm_capture_member_t      m;
    const llm_capture_str_t  *is;

    is = row->is;

    if (is[LLM_CAPTURE_TYPE].p
        && (is[LLM_CAPTURE_TYPE].p[0] != '"'
            || !llm_capture_is(llm_capture_unquote(is[LLM_CAPTURE_TYPE]),
                               llm_capture_string("mooncake_trace"))))
    {
        return "type is not \"mooncake_trace\"";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_INPUT_LENGTH])
        && !llm_capture_lax_int(is[LLM_CAPTURE_INPUT_LENGTH], &n))
    {
        return "input_length is no whole number";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_TEXT_INPUT])
        && is[LLM_CAPTURE_TEXT_INPUT].p[0] != '"')
    {
        return "text_input is no string";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_MESSAGES])
        && !llm_capture_objects(is[LLM_CAPTURE_MESSAGES], messages, roles))
    {
        return "messages is no list of objects";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_TOOLS])
        && !llm_capture_objects(is[LLM_CAPTURE_TOOLS], tools, &none))
    {
        return "tools is no list of objects";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_PAYLOAD])
        && is[LLM_CAPTURE_PAYLOAD].p[0] != '{')
    {
        return "payload is no object";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_OUTPUT_LENGTH])) {

        if (!llm_capture_lax_int(is[LLM_CAPTURE_OUTPUT_LENGTH], &n)) {
            return "output_length is no whole number";
        }

        if (n < 1) {
            return "output_length is less than 1";
        }
    }

    if (!llm_capture_null(is[LLM_CAPTURE_HASH_IDS])) {

        if (!llm_capture_walk(&w, is[LLM_CAPTURE_HASH_IDS]) || w.object) {
            return "hash_ids is no list";
        }

        while (llm_capture_next(&w, &m)) {
            if (m.value.p[0] == 'n' || !llm_capture_lax_int(m.value, &n)) {
                return "hash_ids has what is no whole number";
            }
        }
    }

    if (!llm_capture_null(is[LLM_CAPTURE_TIMESTAMP])
        && !llm_capture_lax_number(is[LLM_CAPTURE_TIMESTAMP]))
    {
        return "timestamp is no number";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_DELAY])
        && !llm_capture_lax_number(is[LLM_CAPTURE_DELAY]))
    {
        return "delay is no number";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_DELAY])
        && llm_capture_lax_negative(is[LLM_CAPTURE_DELAY]))
    {
        return "delay is negative";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_SESSION])
        && is[LLM_CAPTURE_SESSION].p[0] != '"')
    {
        return "session_id is no string";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_EXTRA])
        && is[LLM_CAPTURE_EXTRA].p[0] != '{')
    {
        return "extra is no object";
    }

    return NULL;
}


/* a hash id is one piece of text, of one size in a file */

static const char *
llm_capture_blocks(llm_capture_judge_t *j, const llm_capture_row_t *row)
{
    double                length, id;
    uint64_t             *size, tokens, key;
    unsigned              found;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    (void) llm_capture_lax_int(row->is[LLM_CAPTURE_INPUT_LENGTH], &length);

    if (!llm_capture_walk(&w, row->is[LLM_CAPTURE_HASH_IDS])) {
        return NULL;
    }

    while (llm_capture_next(&w, &m)) {

        if (length <= 0) {
            return "hash_ids has more than input_length has blocks of 512";
        }

        tokens = length < LLM_CAPTURE_BLOCK ? (uint64_t) length
                                            : LLM_CAPTURE_BLOCK;
        length -= (double) tokens;

        (void) llm_capture_lax_int(m.value, &id);
        key = (uint64_t) (int64_t) id;

        if (id > -LLM_CAPTURE_EXACT && id < LLM_CAPTURE_EXACT) {
            key = llm_capture_mix(2, &key, sizeof(key));

        } else {
            key = llm_capture_mix(3, m.value.p, m.value.n);
        }

        size = llm_capture_at(&j->block, key, &found);

        if (found && *size != tokens) {
            return "a hash id stands for another number of tokens than before";
        }

        *size = tokens;
    }

    return NULL;
}


llm_capture_judge_t *
llm_capture_judge(void)
{
    return llm_capture_alloc(sizeof(llm_capture_judge_t));
}


void
llm_capture_judge_free(llm_capture_judge_t *j)
{
    llm_capture_table_free(&j->session);
    llm_capture_table_free(&j->block);
    free(j);
}


static const char *
llm_capture_together(llm_capture_judge_t *j, const llm_capture_row_t *row,
    uint64_t mode)
{
    char      *s;
    uint64_t  *was;
    unsigned   found;

    /* an empty one is a session of its own */

    if (llm_capture_null(row->is[LLM_CAPTURE_SESSION])
        || row->is[LLM_CAPTURE_SESSION].n == 2)
    {
        return NULL;
    }

    if (memchr(row->is[LLM_CAPTURE_SESSION].p, '\\',
               row->is[LLM_CAPTURE_SESSION].n))
    {
        s = llm_capture_alloc(row->is[LLM_CAPTURE_SESSION].n);
        found = (unsigned) llm_capture_unescape((uint8_t *) s + 1,
            llm_capture_unquote(row->is[LLM_CAPTURE_SESSION]));
        s[0] = s[found + 1] = '"';
        was = llm_capture_at(&j->session, llm_capture_mix(1, s, found + 2),
                             &found);
        free(s);

    } else {
        was = llm_capture_at(&j->session,
                             llm_capture_mix(1,
                                             row->is[LLM_CAPTURE_SESSION].p,
                                             row->is[LLM_CAPTURE_SESSION].n),
                             &found);
    }

    if (found && *was != mode) {
        return "its session has rows of another kind of input";
    }

    *was = mode;

    return NULL;
}


const char *
llm_capture_judge_row(llm_capture_judge_t *j, const llm_capture_row_t *row)
{
    size_t                    messages, tools;
    unsigned                  roles, inputs;
    const char               *why;
    const llm_capture_str_t  *is;

    is = row->is;
    messages = tools = 0;
    roles = 1;

    if (row->format == LLM_CAPTURE_RAW) {
        return NULL;
    }

    why = llm_capture_types(row, &messages, &roles, &tools);

    if (why) {
        return why;
    }

    inputs = !llm_capture_null(is[LLM_CAPTURE_PAYLOAD])
             + !llm_capture_null(is[LLM_CAPTURE_MESSAGES])
             + !llm_capture_null(is[LLM_CAPTURE_TEXT_INPUT])
             + !llm_capture_null(is[LLM_CAPTURE_INPUT_LENGTH]);

    if (inputs != 1) {
        return inputs ? "it has more than one of payload, messages, text_input"
                        " and input_length"
                      : "it has no payload, messages, text_input or"
                        " input_length";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_HASH_IDS])
        && llm_capture_null(is[LLM_CAPTURE_INPUT_LENGTH]))
    {
        return "hash_ids without input_length";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_TOOLS])
        && (llm_capture_null(is[LLM_CAPTURE_MESSAGES]) || tools == 0))
    {
        return tools ? "tools without messages" : "tools is empty";
    }

    if (!llm_capture_null(is[LLM_CAPTURE_PAYLOAD])) {
        llm_capture_walk_t    w;
        llm_capture_member_t  m;

        (void) llm_capture_walk(&w, is[LLM_CAPTURE_PAYLOAD]);

        if (!llm_capture_next(&w, &m)) {
            return "payload is empty";
        }

        return llm_capture_together(j, row, LLM_CAPTURE_MODE_PAYLOAD);
    }

    if (!llm_capture_null(is[LLM_CAPTURE_MESSAGES])) {

        if (messages == 0 || !roles) {
            return messages ? "a message has no role" : "messages is empty";
        }

        return llm_capture_together(j, row, LLM_CAPTURE_MODE_MESSAGES);
    }

    why = llm_capture_together(j, row, LLM_CAPTURE_MODE_LENGTH);

    if (why || llm_capture_null(is[LLM_CAPTURE_INPUT_LENGTH])) {
        return why;
    }

    return llm_capture_blocks(j, row);
}
