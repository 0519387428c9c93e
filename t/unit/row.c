
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The rows that are made when an answer has ended: their bytes, what is left
 * out, which answers have none, and how long they get.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "ngx_http_llm_capture_row.h"


typedef ngx_http_llm_capture_fields_t      row_t;
typedef ngx_http_llm_capture_blocks_t   blocks_t;
typedef ngx_http_llm_capture_outcome_t  outcome_t;

typedef size_t (*write_pt)(char *p, size_t size, const row_t *row);

#define outcome_row   ngx_http_llm_capture_row_outcome
#define mooncake_row  ngx_http_llm_capture_row_mooncake
#define baseten_row   ngx_http_llm_capture_row_baseten


static outcome_t  outcome;
static blocks_t   blocks;
static row_t      row;


static int
start(void **state)
{
    (void) state;

    memset(&outcome, 0, sizeof(outcome));
    outcome.prompt = outcome.completion = -1;
    outcome.cached = outcome.reasoning = -1;

    memset(&blocks, 0, sizeof(blocks));
    memset(&row, 0, sizeof(row));
    row.first_byte = row.first_content = -1;
    row.first_reasoning = row.last_byte = -1;
    row.outcome = &outcome;

    return 0;
}


/* the row, whole in no less than the bytes that it has */

static char *
make(write_pt write, size_t *n)
{
    size_t   size;
    char    *p;
    json_t  *root;

    *n = write(NULL, 0, &row);

    if (*n == 0) {
        return NULL;
    }

    for (size = *n > 3000 ? *n : 1; size <= *n; size++) {
        p = malloc(size);
        assert_non_null(p);
        assert_int_equal(write(p, size, &row), *n);

        if (size < *n) {
            free(p);
        }
    }

    assert_int_equal(p[*n - 1], '\n');
    assert_null(memchr(p, '\n', *n - 1));

    root = json_loadb(p, *n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    json_decref(root);

    return p;
}


static void
expect(write_pt write, const char *text)
{
    char    *p;
    size_t   n;

    p = make(write, &n);
    assert_non_null(p);

    if (n != strlen(text) || memcmp(p, text, n) != 0) {
        fail_msg("%.*s", (int) n, p);
    }

    free(p);
}


static void
test_outcome(void **state)
{
    (void) state;

    expect(outcome_row, "{\"id\":\"0000000000000000\",\"timestamp\":0,"
                        "\"bytes\":0}\n");

    row.id = 0xfedcba9876543210ULL;
    row.timestamp = 17;
    row.status = 499;
    row.upstream_status = 200;
    row.bytes = 5000000000;
    row.first_byte = 0;
    row.first_content = 12;
    row.first_reasoning = 7;
    row.last_byte = 3000;
    row.events = 500;
    row.stream = row.aborted = row.upstream_failed = 1;
    row.session = "00112233445566ff";
    outcome.error = outcome.estimated = 1;
    outcome.prompt = 0;
    outcome.completion = 2147483647;
    outcome.cached = 3;
    outcome.reasoning = 4;
    outcome.choices = 3;
    strcpy(outcome.reason[0], "stop");
    strcpy(outcome.reason[2], "length");

    expect(outcome_row,
           "{\"id\":\"fedcba9876543210\",\"timestamp\":17,\"status\":499,"
           "\"upstream_status\":200,\"bytes\":5000000000,"
           "\"first_byte_ms\":0,\"first_content_ms\":12,"
           "\"first_reasoning_ms\":7,\"last_byte_ms\":3000,\"stream\":true,"
           "\"events\":500,\"aborted\":true,\"upstream_failed\":true,"
           "\"error\":true,\"finish_reason\":\"stop\","
           "\"finish_reasons\":[\"stop\",null,\"length\"],"
           "\"prompt_tokens\":0,\"completion_tokens\":2147483647,"
           "\"cached_tokens\":3,\"reasoning_tokens\":4,\"estimated\":true,"
           "\"session_id\":\"00112233445566ff\"}\n");

    outcome.choices = 1;
    outcome.reason[0][0] = '\0';
    row = (row_t) { .outcome = &outcome, .first_byte = -1,
                    .first_content = -1, .first_reasoning = -1,
                    .last_byte = -1 };
    outcome.error = outcome.estimated = 0;
    outcome.prompt = outcome.cached = outcome.reasoning = -1;
    expect(outcome_row, "{\"id\":\"0000000000000000\",\"timestamp\":0,"
                        "\"bytes\":0,\"completion_tokens\":2147483647}\n");
}


static void
test_mooncake(void **state)
{
    size_t  n;

    (void) state;

    assert_null(make(mooncake_row, &n));
    outcome.prompt = 1024;
    assert_null(make(mooncake_row, &n));
    outcome.completion = 0;
    assert_null(make(mooncake_row, &n));
    outcome.completion = 1;
    row.timestamp = 12345678901;

    expect(mooncake_row, "{\"timestamp\":12345678901,\"input_length\":1024,"
                         "\"output_length\":1}\n");

    row.blocks = &blocks;
    expect(mooncake_row, "{\"timestamp\":12345678901,\"input_length\":1024,"
                         "\"output_length\":1,\"hash_ids\":[]}\n");

    blocks.n = 3;
    blocks.id[0] = 0xffffffffffff;
    blocks.id[2] = 7;
    row.session = "0123456789abcdef";
    expect(mooncake_row, "{\"timestamp\":12345678901,\"input_length\":1024,"
                         "\"output_length\":1,\"hash_ids\":[281474976710655,"
                         "0],\"session_id\":\"0123456789abcdef\"}\n");

    outcome.prompt = 0;
    assert_null(make(mooncake_row, &n));
}


static void
test_baseten(void **state)
{
    size_t  n;

    static const char  prompt[] =
        "a \"b\" \\ \n\t\x01\x1f\x7f/\xe2\x80\xa8 \xf0\x9f\x98\x80";

    (void) state;

    row.prompt = prompt;
    row.prompt_len = sizeof(prompt);        /* with its NUL */
    assert_null(make(baseten_row, &n));

    outcome.prompt = 600;
    outcome.completion = 0;
    row.wall = 1754000000123;

    expect(baseten_row,
           "{\"timestamp_start_unix_ms\":1754000000123,\"prompt\":\"a "
           "\\\"b\\\" \\\\ \\u000a\\u0009\\u0001\\u001f\x7f/\xe2\x80\xa8 "
           "\xf0\x9f\x98\x80\\u0000\",\"input_tokens\":600,"
           "\"output_tokens\":0,\"provided_session_id\":null,"
           "\"total_hashes\":[],\"block_size\":512,"
           "\"request_canceled\":false,\"duration_e2e_ms\":null,"
           "\"duration_ttft_ms\":null}\n");

    row.prompt_len = 1;
    row.session = "0123456789abcdef";
    row.aborted = row.stream = 1;
    row.first_content = 9;
    row.first_reasoning = 8;
    row.last_byte = 20;
    row.blocks = &blocks;
    blocks.n = 1;
    blocks.id[0] = 5;
    row.text = "x\xc3\xa9";
    row.text_len = 3;

    expect(baseten_row,
           "{\"timestamp_start_unix_ms\":1754000000123,\"prompt\":\"a\","
           "\"input_tokens\":600,\"output_tokens\":0,"
           "\"provided_session_id\":\"0123456789abcdef\","
           "\"total_hashes\":[5],\"block_size\":512,"
           "\"request_canceled\":true,\"duration_e2e_ms\":20,"
           "\"duration_ttft_ms\":8,\"output_text\":\"x\xc3\xa9\"}\n");

    row.prompt = NULL;
    assert_null(make(baseten_row, &n));
}


/* to the first token, where there is one, and to the end of plain answers */

static void
test_ttft(void **state)
{
    char    *p;
    size_t   i, n;
    json_t  *root;

    static const struct {
        unsigned  stream;
        int       content;
        int       reasoning;
        int       ttft;
    } list[] = {
        { 0, -1, -1, 90 }, { 1, -1, -1, -1 }, { 1, 5, -1, 5 },
        { 1, -1, 6, 6 }, { 1, 5, 4, 4 }, { 1, 4, 5, 4 }
    };

    (void) state;

    outcome.prompt = outcome.completion = 1;
    row.prompt = "";
    row.last_byte = 90;

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        row.stream = list[i].stream & 1;
        row.first_content = list[i].content;
        row.first_reasoning = list[i].reasoning;

        p = make(baseten_row, &n);
        root = json_loadb(p, n, 0, NULL);

        if (list[i].ttft < 0) {
            assert_true(json_is_null(json_object_get(root,
                                                     "duration_ttft_ms")));
        } else {
            assert_int_equal(json_integer_value(json_object_get(root,
                             "duration_ttft_ms")), list[i].ttft);
        }

        json_decref(root);
        free(p);
    }
}


/* the longest ones, and a text that is cut between two characters */

static void
test_bounds(void **state)
{
    char      *p, *text;
    size_t     n, i;
    json_t    *root;
    const char *cut;

    (void) state;

    row.id = UINT64_MAX;
    row.timestamp = row.bytes = row.events = INT64_MAX;
    row.status = row.upstream_status = UINT32_MAX;
    row.first_byte = row.first_content = INT64_MAX;
    row.first_reasoning = row.last_byte = INT64_MAX;
    row.stream = row.aborted = row.upstream_failed = 1;
    row.session = "0123456789abcdef";
    outcome.error = outcome.estimated = 1;
    outcome.prompt = outcome.completion = NGX_HTTP_LLM_CAPTURE_TOKENS;
    outcome.cached = outcome.reasoning = NGX_HTTP_LLM_CAPTURE_TOKENS;
    outcome.choices = NGX_HTTP_LLM_CAPTURE_CHOICES;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CHOICES; i++) {
        memset(outcome.reason[i], 'a', NGX_HTTP_LLM_CAPTURE_REASON - 1);
    }

    row.blocks = &blocks;
    blocks.n = NGX_HTTP_LLM_CAPTURE_HASHES;

    for (i = 0; i < blocks.n; i++) {
        blocks.id[i] = 0xffffffffffff;
    }

    p = make(outcome_row, &n);
    assert_in_range(n, 1000, NGX_HTTP_LLM_CAPTURE_ROW_OUTCOME);
    free(p);

    p = make(mooncake_row, &n);
    assert_in_range(n, 16 * NGX_HTTP_LLM_CAPTURE_HASHES,
                    NGX_HTTP_LLM_CAPTURE_ROW_TRACE);
    free(p);

    /* four bytes each, from the second byte on */

    text = malloc(NGX_HTTP_LLM_CAPTURE_ROW_TEXT + 5);
    assert_non_null(text);
    text[0] = 'x';

    for (i = 1; i + 4 <= NGX_HTTP_LLM_CAPTURE_ROW_TEXT + 5; i += 4) {
        memcpy(text + i, "\xf0\x9f\x98\x80", 4);
    }

    row.prompt = "p";
    row.prompt_len = 1;
    row.text = text;
    row.text_len = NGX_HTTP_LLM_CAPTURE_ROW_TEXT + 5;

    p = make(baseten_row, &n);
    root = json_loadb(p, n, 0, NULL);
    cut = json_string_value(json_object_get(root, "output_text"));
    assert_int_equal(strlen(cut), NGX_HTTP_LLM_CAPTURE_ROW_TEXT - 3);
    json_decref(root);
    free(p);
    free(text);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup(test_outcome, start),
        cmocka_unit_test_setup(test_mooncake, start),
        cmocka_unit_test_setup(test_baseten, start),
        cmocka_unit_test_setup(test_ttft, start),
        cmocka_unit_test_setup(test_bounds, start)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
