
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture.h"


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *out;
    const char            *model;
    const char            *min_tokens;
    const char            *max_tokens;
    const char            *cache_salt;
    const char            *stream;
    unsigned               ignore_eos;
    unsigned               include_usage;
    unsigned               force;
} llm_capture_asked = { .out = "-" };


static const llm_capture_option_t  llm_capture_rewrite_options[] = {
    { "model", 's', &llm_capture_asked.model, "NAME", "the model to ask for" },
    { "min-tokens", 's', &llm_capture_asked.min_tokens, "N|recorded",
      "least tokens of the answer; or its outcome's" },
    { "max-tokens", 's', &llm_capture_asked.max_tokens, "N|recorded",
      "most tokens of the answer" },
    { "ignore-eos", 'b', &llm_capture_asked.ignore_eos, NULL,
      "\"ignore_eos\":true, as vLLM and SGLang know it" },
    { "cache-salt", 's', &llm_capture_asked.cache_salt, "HEX",
      "\"cache_salt\", as vLLM knows it: a cold cache" },
    { "stream", 's', &llm_capture_asked.stream, "on|off",
      "ask for a stream, or for none" },
    { "include-usage", 'b', &llm_capture_asked.include_usage, NULL,
      "have streams of chat, completions tell tokens" },
    LLM_CAPTURE_OUTCOMES_OPTION,
    LLM_CAPTURE_FORMAT_OPTION,
    LLM_CAPTURE_OUT_OPTIONS,
    { NULL, 0, NULL, NULL, NULL }
};


static void
llm_capture_rewrite_check(void)
{
    unsigned     i;
    const char  *s;

    const char  *const tokens[] = { llm_capture_asked.min_tokens,
                                    llm_capture_asked.max_tokens };

    for (i = 0; i < 2; i++) {
        s = tokens[i];

        if (s && strcmp(s, "recorded") != 0
            && (*s < '1' || *s > '9' || strspn(s, "0123456789") != strlen(s)))
        {
            llm_capture_die("\"%s\": a number of tokens, or recorded", s);
        }
    }

    s = llm_capture_asked.cache_salt;

    if (s && (*s == '\0'
              || strspn(s, "0123456789abcdefABCDEF") != strlen(s)))
    {
        llm_capture_die("--cache-salt: hexadecimal digits");
    }

    s = llm_capture_asked.stream;

    if (s && strcmp(s, "on") != 0 && strcmp(s, "off") != 0) {
        llm_capture_die("--stream: on or off");
    }
}


/* N, or what the outcome says; NULL: it says nothing */

static const char *
llm_capture_tokens(const char *asked, double recorded)
{
    static char  buf[32];

    if (strcmp(asked, "recorded") != 0) {
        return asked;
    }

    if (recorded < 1) {
        return NULL;
    }

    snprintf(buf, sizeof(buf), "%.0f", recorded);

    return buf;
}


static void
llm_capture_rewrite_max(llm_capture_edits_t *e, const llm_capture_payload_t *p,
    llm_capture_str_t body, const char *n)
{
    unsigned  i, k;

    static const struct {
        const char           *name;
        llm_capture_field_e   field;
    } fields[] = {
        { "max_completion_tokens", LLM_CAPTURE_P_MAX_COMPLETION },
        { "max_output_tokens", LLM_CAPTURE_P_MAX_OUTPUT },
        { "max_tokens", LLM_CAPTURE_P_MAX_TOKENS }
    };

    for (k = 0, i = 0; i < llm_capture_nelem(fields); i++) {
        if (p->is[fields[i].field].p) {
            llm_capture_edit_member(e, body, fields[i].name, n);
            k++;
        }
    }

    if (k == 0) {
        llm_capture_edit_member(e, body,
                                p->endpoint == LLM_CAPTURE_RESPONSES
                                ? "max_output_tokens" : "max_tokens", n);
    }
}


static void
llm_capture_rewrite_stream(llm_capture_edits_t *e,
    const llm_capture_payload_t *p, llm_capture_str_t body)
{
    unsigned           streams;
    llm_capture_str_t  options;

    streams = p->stream;

    if (llm_capture_asked.stream) {
        streams = strcmp(llm_capture_asked.stream, "on") == 0;

        if (streams || p->is[LLM_CAPTURE_P_STREAM].p) {
            llm_capture_edit_member(e, body, "stream",
                                    streams ? "true" : "false");
        }
    }

    /* a server may refuse options of a stream where there is none */

    if (!llm_capture_asked.include_usage || !streams
        || p->endpoint > LLM_CAPTURE_COMPLETIONS)
    {
        return;
    }

    options = p->is[LLM_CAPTURE_P_STREAM_OPTIONS];

    if (options.p && options.p[0] == '{') {
        llm_capture_edit_member(e, options, "include_usage", "true");

    } else {
        llm_capture_edit_member(e, body, "stream_options",
                                "{\"include_usage\":true}");
    }
}


/* 0: what was recorded is asked for, and not known */

static unsigned
llm_capture_rewrite_row(llm_capture_edits_t *e, llm_capture_row_t *row,
    const char *model, const char *salt, double recorded)
{
    unsigned                known;
    const char             *n;
    llm_capture_payload_t   p;

    known = 1;
    llm_capture_payload(&p, row->payload);

    if (model) {
        llm_capture_edit_member(e, row->payload, "model", model);
    }

    if (p.endpoint != LLM_CAPTURE_EMBEDDINGS) {

        if (llm_capture_asked.max_tokens) {
            n = llm_capture_tokens(llm_capture_asked.max_tokens, recorded);
            known = n != NULL;

            if (n) {
                llm_capture_rewrite_max(e, &p, row->payload, n);
            }
        }

        if (llm_capture_asked.min_tokens) {
            n = llm_capture_tokens(llm_capture_asked.min_tokens, recorded);
            known &= n != NULL;

            if (n) {
                llm_capture_edit_member(e, row->payload, "min_tokens", n);
            }
        }

        if (llm_capture_asked.ignore_eos) {
            llm_capture_edit_member(e, row->payload, "ignore_eos", "true");
        }

        llm_capture_rewrite_stream(e, &p, row->payload);
    }

    if (salt) {
        llm_capture_edit_member(e, row->payload, "cache_salt", salt);
    }

    return known;
}


static int
llm_capture_rewrite_run(int argc, char **argv)
{
    char                    *model, *salt;
    uint64_t                 rows, bad, unknown;
    llm_capture_row_t        row;
    llm_capture_out_t       *out;
    llm_capture_file_t      *f;
    llm_capture_edits_t      e;
    llm_capture_outcome_t    r;
    llm_capture_outcomes_t  *o;

    (void) argc;

    llm_capture_rewrite_check();

    memset(&e, 0, sizeof(e));
    model = llm_capture_asked.model
            ? llm_capture_quoted(llm_capture_asked.model) : NULL;
    salt = llm_capture_asked.cache_salt
           ? llm_capture_quoted(llm_capture_asked.cache_salt) : NULL;

    f = llm_capture_rows(argv[0], &row, llm_capture_asked.format);
    o = llm_capture_outcomes(argv[0], &llm_capture_asked.outcomes);
    out = llm_capture_create(llm_capture_asked.out, llm_capture_asked.force);

    rows = bad = unknown = 0;

    while (llm_capture_row_next(f, &row, &bad)) {
        rows++;

        /* a row of a trace without payload has nothing to change */

        if (row.payload.p) {
            r.completion = -1;
            (void) llm_capture_outcomes_find(o, &row, &r);
            unknown += !llm_capture_rewrite_row(&e, &row, model, salt,
                                                r.completion);
        }

        llm_capture_edited(out, row.text, &e);
    }

    llm_capture_commit(out);

    if (unknown) {
        llm_capture_say("%" PRIu64 " of %" PRIu64 " rows have no recorded"
                        " number of tokens, and theirs stay as they are",
                        unknown, rows);
    }

    if (bad) {
        llm_capture_say("%" PRIu64 " bad lines were left out", bad);
    }

    llm_capture_outcomes_free(o);
    llm_capture_close(f);
    free(e.edit);
    free(e.text);
    free(model);
    free(salt);

    return bad || unknown ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_rewrite = {
    "rewrite", "FILE",
    "changes what a replay needs in the payloads, and nothing else",
    llm_capture_rewrite_options, llm_capture_rewrite_run, 1, 1
};
