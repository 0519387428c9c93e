
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The rows that are made when an answer has ended, each a JSON object and a
 * line feed.  The same struct gives the same bytes, so that a row can be
 * compared with what a dead process left of it.  Pure: no nginx header.
 *
 * outcome: what is not known, or not so, is left out.  The id is that of the
 * payload's row, hex digits: many readers have no integers of 64 bits.
 *
 *     {"id":"0123456789abcdef","timestamp":N,"status":N,"upstream_status":N,
 *      "bytes":N,"first_byte_ms":N,"first_content_ms":N,
 *      "first_reasoning_ms":N,"last_byte_ms":N,"stream":true,"events":N,
 *      "aborted":true,"upstream_failed":true,"error":true,
 *      "finish_reason":"stop","finish_reasons":["stop","length",null],
 *      "prompt_tokens":N,"completion_tokens":N,"cached_tokens":N,
 *      "reasoning_tokens":N,"estimated":true,"session_id":"0123456789abcdef"}
 *
 * finish_reason is that of the first choice, finish_reasons those of all when
 * there is more than one.
 *
 * mooncake_trace: only of an answer whose two lengths are known, and 1 at
 * least: AIPerf refuses a file for less.
 *
 *     {"timestamp":N,"input_length":I,"output_length":O,"hash_ids":[N,N],
 *      "session_id":"0123456789abcdef"}
 *
 * hash_ids is there when ids are asked for, empty or not.
 *
 * baseten_trace: only of an answer whose two lengths are known.  Each row has
 * the same columns but output_text, which has to be asked for.
 *
 *     {"timestamp_start_unix_ms":N,"prompt":"...","input_tokens":I,
 *      "output_tokens":O,"provided_session_id":"0123456789abcdef",
 *      "total_hashes":[N,N],"block_size":512,"request_canceled":false,
 *      "duration_e2e_ms":N,"duration_ttft_ms":N,"output_text":"..."}
 *
 * A session or a duration that is not known is null.  The time to the first
 * token is that to the first content or reasoning, or in an answer that is no
 * stream to the last byte.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_ROW_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_ROW_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_blocks.h"
#include "ngx_http_llm_capture_outcome.h"


/* bytes of rows at most; of a baseten_trace: ask */
#define NGX_HTTP_LLM_CAPTURE_ROW_OUTCOME  2048
#define NGX_HTTP_LLM_CAPTURE_ROW_TRACE                                        \
    (256 + 16 * NGX_HTTP_LLM_CAPTURE_HASHES)

/* bytes of an output_text at most; what is behind them is cut off */
#define NGX_HTTP_LLM_CAPTURE_ROW_TEXT     65536


typedef struct {
    uint64_t                                id;
    uint64_t                                timestamp;  /* ms of its file */
    uint64_t                                wall;       /* ms since 1970 */
    unsigned                                status;     /* 0: none */
    unsigned                                upstream_status;
    uint64_t                                bytes;

    /* ms since the request's arrival; -1: it never came */
    int64_t                                 first_byte;
    int64_t                                 first_content;
    int64_t                                 first_reasoning;
    int64_t                                 last_byte;

    uint64_t                                events;
    unsigned                                stream:1;
    unsigned                                aborted:1;  /* by the client */
    unsigned                                upstream_failed:1;

    const ngx_http_llm_capture_outcome_t   *outcome;
    const ngx_http_llm_capture_blocks_t    *blocks;     /* NULL: no ids */
    const char                             *session;    /* NULL: none */

    /* UTF-8, of a baseten_trace */
    const char                             *prompt;
    size_t                                  prompt_len;
    const char                             *text;       /* NULL: not asked */
    size_t                                  text_len;
} ngx_http_llm_capture_fields_t;


/*
 * Each returns the bytes of the row, which is whole in p if they are no more
 * than size; 0: this answer has no such row.
 */

size_t ngx_http_llm_capture_row_outcome(char *p, size_t size,
    const ngx_http_llm_capture_fields_t *row);

size_t ngx_http_llm_capture_row_mooncake(char *p, size_t size,
    const ngx_http_llm_capture_fields_t *row);

size_t ngx_http_llm_capture_row_baseten(char *p, size_t size,
    const ngx_http_llm_capture_fields_t *row);


#endif /* _NGX_HTTP_LLM_CAPTURE_ROW_H_INCLUDED_ */
