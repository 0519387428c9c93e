
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Trace rows of conversations that grow, from the product's own code, for
 * t/trace_rows.t to load with AIPerf:
 *
 *     trace_rows mooncake|hashes|sessions|baseten
 *
 * Two conversations that begin alike, four turns each, in turn with more and
 * with fewer tokens than their blocks would have at four bytes each.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_conversation.h"
#include "ngx_http_llm_capture_row.h"


#define TURNS   4
#define SYSTEM  5000            /* bytes */
#define TURN    3000


static const uint8_t  key[NGX_HTTP_LLM_CAPTURE_KEY] = { 1, 2, 3 };


static json_t *
text(char letter, size_t n)
{
    char    *p;
    json_t  *s;

    p = malloc(n);

    if (p == NULL) {
        exit(1);
    }

    memset(p, letter, n);
    s = json_stringn(p, n);
    free(p);

    return s;
}


static json_t *
request(unsigned conversation, unsigned turn)
{
    json_t    *messages;
    unsigned   i;

    messages = json_array();

    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "system",
                                              "content", text('s', SYSTEM)));

    for (i = 0; i <= turn; i++) {
        json_array_append_new(messages, json_pack("{s:s, s:o}", "role",
            i % 2 ? "assistant" : "user", "content",
            text((char) ('a' + conversation * TURNS + i), TURN)));
    }

    return json_pack("{s:o}", "messages", messages);
}


int
main(int argc, char **argv)
{
    size_t                                 n;
    json_t                                *root;
    unsigned                               i;
    const char                            *kind;
    ngx_http_llm_capture_fields_t             row;
    static char                            p[NGX_HTTP_LLM_CAPTURE_ROW_TRACE];
    static ngx_http_llm_capture_blocks_t   blocks;
    ngx_http_llm_capture_outcome_t         outcome;
    char                           session[NGX_HTTP_LLM_CAPTURE_SESSION];

    kind = argc > 1 ? argv[1] : "";

    for (i = 0; i < 2 * TURNS; i++) {
        memset(&row, 0, sizeof(row));
        memset(&outcome, 0, sizeof(outcome));

        root = request(i % 2, i / 2);
        ngx_http_llm_capture_blocks_init(&blocks);
        ngx_http_llm_capture_conversation_hash(root, &blocks);
        ngx_http_llm_capture_blocks_seal(&blocks, key);
        ngx_http_llm_capture_siphash_hex(ngx_http_llm_capture_siphash_seal(key,
            ngx_http_llm_capture_conversation_session(root)), session);
        json_decref(root);

        outcome.prompt = (SYSTEM + TURN * (int) (i / 2 + 1))
                         / (i / 2 % 2 ? 3 : 5);
        outcome.completion = (int) i + 1;
        row.outcome = &outcome;
        row.timestamp = i * 20;
        row.wall = 1754000000000 + row.timestamp;
        row.last_byte = 15;
        row.first_content = i % 3 ? 5 : -1;
        row.stream = i % 3 != 0;
        row.aborted = i == 5;
        row.prompt = "a \"prompt\" \\ \n\t 為什麼 \xf0\x9f\x98\x80";
        row.prompt_len = strlen(row.prompt);

        if (strcmp(kind, "mooncake") != 0) {
            row.blocks = &blocks;
        }

        if (strcmp(kind, "sessions") == 0 || strcmp(kind, "baseten") == 0) {
            row.session = session;
        }

        n = strcmp(kind, "baseten") == 0
            ? ngx_http_llm_capture_row_baseten(p, sizeof(p), &row)
            : ngx_http_llm_capture_row_mooncake(p, sizeof(p), &row);

        if (n == 0 || n > sizeof(p) || fwrite(p, 1, n, stdout) != n) {
            return 1;
        }
    }

    return 0;
}
