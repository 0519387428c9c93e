
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ngx_http_llm_capture_conversation.h"
#include "ngx_http_llm_capture_row.h"
#include "llm_capture.h"


/* bytes of a session_id that is taken over */
#define LLM_CAPTURE_SESSION_MOST  64


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *out;
    const char            *key_file;
    unsigned               prefix;
    unsigned               estimate;
    unsigned               force;
} llm_capture_asked = { .out = "-" };


static const llm_capture_option_t  llm_capture_hash_options[] = {
    { "key-file", 's', &llm_capture_asked.key_file, "KEY",
      "32 hexadecimal digits; default: FILE.key" },
    LLM_CAPTURE_OUTCOMES_OPTION,
    { "sessions", 'b', &llm_capture_asked.prefix, NULL,
      "sessions by the beginning of a conversation" },
    { "estimate", 'b', &llm_capture_asked.estimate, NULL,
      "guess what is unknown: bytes / 4, max_tokens" },
    LLM_CAPTURE_FORMAT_OPTION,
    LLM_CAPTURE_OUT_OPTIONS,
    { NULL, 0, NULL, NULL, NULL }
};


static void
llm_capture_hash_key(const char *path, uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY])
{
    char  *beside;

    if (llm_capture_asked.key_file) {
        llm_capture_key(llm_capture_asked.key_file, key);
        return;
    }

    beside = llm_capture_format("%s.key", path);

    if (access(beside, F_OK) != 0) {
        llm_capture_die("--key-file is needed: there is no %s", beside);
    }

    llm_capture_key(beside, key);
    free(beside);
}


/* the session's id as it is to be printed; 0: none */

static unsigned
llm_capture_hash_session(const llm_capture_row_t *row, json_t *root,
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY], char *id)
{
    uint64_t           session;
    llm_capture_str_t  s;

    s = row->is[LLM_CAPTURE_SESSION];
    session = 0;

    if (s.n > 2 && s.p[0] == '"') {
        s = llm_capture_unquote(s);

        if (s.n < LLM_CAPTURE_SESSION_MOST) {
            memcpy(id, s.p, s.n);
            id[s.n] = '\0';
            return 1;
        }

        session = ngx_http_llm_capture_siphash_session(s.p, s.n);

    } else if (llm_capture_asked.prefix) {
        session = ngx_http_llm_capture_conversation_session(root);
    }

    if (session == 0) {
        return 0;
    }

    ngx_http_llm_capture_siphash_hex(
        ngx_http_llm_capture_siphash_seal(key, session), id);

    return 1;
}


/* 0: this row has none */

static unsigned
llm_capture_hash_row(llm_capture_out_t *out, const llm_capture_row_t *row,
    llm_capture_outcomes_t *o, const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY])
{
    char                            session[LLM_CAPTURE_SESSION_MOST];
    size_t                          n;
    double                          prompt, completion;
    json_t                         *root;
    struct iovec                    iov;
    ngx_http_llm_capture_fields_t   fields;
    ngx_http_llm_capture_outcome_t  lengths;

    static char                           p[NGX_HTTP_LLM_CAPTURE_ROW_TRACE
                                            + LLM_CAPTURE_SESSION_MOST];
    static ngx_http_llm_capture_blocks_t  blocks;

    llm_capture_lengths(row, o, llm_capture_asked.estimate, &prompt,
                        &completion);

    if (prompt < 1 || completion < 1 || prompt > NGX_HTTP_LLM_CAPTURE_TOKENS
        || completion > NGX_HTTP_LLM_CAPTURE_TOKENS)
    {
        return 0;
    }

    memset(&lengths, 0, sizeof(ngx_http_llm_capture_outcome_t));
    lengths.prompt = (int64_t) prompt;
    lengths.completion = (int64_t) completion;

    iov.iov_base = (void *) row->payload.p;
    iov.iov_len = row->payload.n;
    root = ngx_http_llm_capture_conversation_load(&iov, 1);

    if (root == NULL) {
        return 0;
    }

    memset(&fields, 0, sizeof(ngx_http_llm_capture_fields_t));

    ngx_http_llm_capture_blocks_init(&blocks);
    ngx_http_llm_capture_conversation_hash(root, &blocks);
    ngx_http_llm_capture_blocks_seal(&blocks, key);

    fields.timestamp = llm_capture_arrival(row) > 0
                       ? (uint64_t) llm_capture_arrival(row) : 0;
    fields.outcome = &lengths;
    fields.blocks = &blocks;
    fields.session = llm_capture_hash_session(row, root, key, session)
                     ? session : NULL;
    json_decref(root);

    n = ngx_http_llm_capture_row_mooncake(p, sizeof(p), &fields);

    if (n == 0 || n > sizeof(p)) {
        return 0;
    }

    llm_capture_write(out, p, n);

    return 1;
}


static int
llm_capture_hash_run(int argc, char **argv)
{
    uint8_t                  key[NGX_HTTP_LLM_CAPTURE_KEY];
    uint64_t                 rows, bad, none;
    llm_capture_row_t        row;
    llm_capture_out_t       *out;
    llm_capture_file_t      *f;
    llm_capture_outcomes_t  *o;

    (void) argc;

    llm_capture_hash_key(argv[0], key);
    f = llm_capture_rows(argv[0], &row, llm_capture_asked.format);
    o = llm_capture_outcomes(argv[0], &llm_capture_asked.outcomes);
    out = llm_capture_create(llm_capture_asked.out, llm_capture_asked.force);

    rows = bad = none = 0;

    while (llm_capture_row_next(f, &row, &bad)) {
        rows++;
        none += row.payload.p == NULL
                || !llm_capture_hash_row(out, &row, o, key);
    }

    llm_capture_commit(out);
    memset(key, 0, sizeof(key));

    if (none) {
        llm_capture_say("%" PRIu64 " of %" PRIu64 " rows have no lengths by an"
                        " outcome, and were left out; see --estimate", none,
                        rows);
    }

    llm_capture_outcomes_free(o);
    llm_capture_close(f);

    return bad || none ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_hash = {
    "hash", "FILE",
    "makes a mooncake_trace without text of a capture",
    llm_capture_hash_options, llm_capture_hash_run, 1, 1
};
