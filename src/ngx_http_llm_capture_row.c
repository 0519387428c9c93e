
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_row.h"


typedef struct {
    char    *p;
    size_t   size;
    size_t   n;
} ngx_http_llm_capture_row_out_t;


/* text that is constant */
#define put(out, text)                                                        \
    ngx_http_llm_capture_row_put(out, text, sizeof(text) - 1)


static void
ngx_http_llm_capture_row_put(ngx_http_llm_capture_row_out_t *out,
    const char *text, size_t n)
{
    if (n && out->size >= n && out->n <= out->size - n) {
        memcpy(out->p + out->n, text, n);
    }

    out->n += n;
}


static void
ngx_http_llm_capture_row_number(ngx_http_llm_capture_row_out_t *out,
    uint64_t number)
{
    char    digits[20];
    size_t  len;

    len = 0;

    do {
        digits[sizeof(digits) - ++len] = (char) ('0' + number % 10);
        number /= 10;
    } while (number);

    ngx_http_llm_capture_row_put(out, digits + sizeof(digits) - len, len);
}


static void
ngx_http_llm_capture_row_string(ngx_http_llm_capture_row_out_t *out,
    const char *s, size_t n)
{
    char         escape[6] = { '\\', 'u', '0', '0' };
    const char  *from, *end;

    put(out, "\"");

    for (from = s, end = s + n; s < end; s++) {

        if ((unsigned char) *s >= 0x20 && *s != '"' && *s != '\\') {
            continue;
        }

        ngx_http_llm_capture_row_put(out, from, (size_t) (s - from));
        from = s + 1;

        if ((unsigned char) *s >= 0x20) {
            put(out, "\\");
            ngx_http_llm_capture_row_put(out, s, 1);
            continue;
        }

        escape[4] = "01"[*s >> 4];
        escape[5] = "0123456789abcdef"[*s & 15];
        ngx_http_llm_capture_row_put(out, escape, sizeof(escape));
    }

    ngx_http_llm_capture_row_put(out, from, (size_t) (end - from));
    put(out, "\"");
}


/* ,"name":N if there is one */

static void
ngx_http_llm_capture_row_member(ngx_http_llm_capture_row_out_t *out,
    const char *name, int64_t number)
{
    if (number < 0) {
        return;
    }

    put(out, ",\"");
    ngx_http_llm_capture_row_put(out, name, strlen(name));
    put(out, "\":");
    ngx_http_llm_capture_row_number(out, (uint64_t) number);
}


static void
ngx_http_llm_capture_row_flag(ngx_http_llm_capture_row_out_t *out,
    const char *name, unsigned flag)
{
    if (flag) {
        put(out, ",\"");
        ngx_http_llm_capture_row_put(out, name, strlen(name));
        put(out, "\":true");
    }
}


static void
ngx_http_llm_capture_row_word(ngx_http_llm_capture_row_out_t *out,
    const char *word)
{
    if (*word) {
        ngx_http_llm_capture_row_string(out, word, strlen(word));

    } else {
        put(out, "null");
    }
}


static void
ngx_http_llm_capture_row_reasons(ngx_http_llm_capture_row_out_t *out,
    const ngx_http_llm_capture_outcome_t *o)
{
    uint32_t  i;

    if (o->choices && o->reason[0][0]) {
        put(out, ",\"finish_reason\":");
        ngx_http_llm_capture_row_word(out, o->reason[0]);
    }

    if (o->choices < 2) {
        return;
    }

    put(out, ",\"finish_reasons\":[");

    for (i = 0; i < o->choices; i++) {

        if (i) {
            put(out, ",");
        }

        ngx_http_llm_capture_row_word(out, o->reason[i]);
    }

    put(out, "]");
}


/* the session, if there is one, and the end */

static size_t
ngx_http_llm_capture_row_end(ngx_http_llm_capture_row_out_t *out,
    const ngx_http_llm_capture_fields_t *row)
{
    if (row->session) {
        put(out, ",\"session_id\":");
        ngx_http_llm_capture_row_string(out, row->session,
                                        strlen(row->session));
    }

    put(out, "}\n");

    return out->n;
}


size_t
ngx_http_llm_capture_row_outcome(char *p, size_t size,
    const ngx_http_llm_capture_fields_t *row)
{
    char                                   id[NGX_HTTP_LLM_CAPTURE_SESSION];
    ngx_http_llm_capture_row_out_t         out = { p, size, 0 };
    const ngx_http_llm_capture_outcome_t  *o;

    o = row->outcome;
    ngx_http_llm_capture_siphash_hex(row->id, id);

    put(&out, "{\"id\":");
    ngx_http_llm_capture_row_string(&out, id, sizeof(id) - 1);
    put(&out, ",\"timestamp\":");
    ngx_http_llm_capture_row_number(&out, row->timestamp);

#define number(name, n)  ngx_http_llm_capture_row_member(&out, name, n)
#define flag(name, f)    ngx_http_llm_capture_row_flag(&out, name, f)

    number("status", row->status ? (int64_t) row->status : -1);
    number("upstream_status",
           row->upstream_status ? (int64_t) row->upstream_status : -1);

    put(&out, ",\"bytes\":");
    ngx_http_llm_capture_row_number(&out, row->bytes);

    number("first_byte_ms", row->first_byte);
    number("first_content_ms", row->first_content);
    number("first_reasoning_ms", row->first_reasoning);
    number("last_byte_ms", row->last_byte);

    if (row->stream) {
        flag("stream", 1);
        put(&out, ",\"events\":");
        ngx_http_llm_capture_row_number(&out, row->events);
    }

    flag("aborted", row->aborted);
    flag("upstream_failed", row->upstream_failed);
    flag("error", o->error);

    ngx_http_llm_capture_row_reasons(&out, o);

    number("prompt_tokens", o->prompt);
    number("completion_tokens", o->completion);
    number("cached_tokens", o->cached);
    number("reasoning_tokens", o->reasoning);
    flag("estimated", o->estimated);

#undef number
#undef flag

    return ngx_http_llm_capture_row_end(&out, row);
}


static void
ngx_http_llm_capture_row_hashes(ngx_http_llm_capture_row_out_t *out,
    const ngx_http_llm_capture_fields_t *row)
{
    uint32_t  i, n;

    n = row->blocks ? ngx_http_llm_capture_blocks_of(row->blocks,
                                                     row->outcome->prompt)
                    : 0;

    put(out, "[");

    for (i = 0; i < n; i++) {

        if (i) {
            put(out, ",");
        }

        ngx_http_llm_capture_row_number(out, row->blocks->id[i]);
    }

    put(out, "]");
}


size_t
ngx_http_llm_capture_row_mooncake(char *p, size_t size,
    const ngx_http_llm_capture_fields_t *row)
{
    ngx_http_llm_capture_row_out_t  out = { p, size, 0 };

    if (row->outcome->prompt < 1 || row->outcome->completion < 1) {
        return 0;
    }

    put(&out, "{\"timestamp\":");
    ngx_http_llm_capture_row_number(&out, row->timestamp);
    ngx_http_llm_capture_row_member(&out, "input_length",
                                    row->outcome->prompt);
    ngx_http_llm_capture_row_member(&out, "output_length",
                                    row->outcome->completion);

    if (row->blocks) {
        put(&out, ",\"hash_ids\":");
        ngx_http_llm_capture_row_hashes(&out, row);
    }

    return ngx_http_llm_capture_row_end(&out, row);
}


static void
ngx_http_llm_capture_row_duration(ngx_http_llm_capture_row_out_t *out,
    int64_t ms)
{
    if (ms < 0) {
        put(out, "null");

    } else {
        ngx_http_llm_capture_row_number(out, (uint64_t) ms);
    }
}


static int64_t
ngx_http_llm_capture_row_ttft(const ngx_http_llm_capture_fields_t *row)
{
    if (!row->stream) {
        return row->last_byte;
    }

    if (row->first_content < 0 || row->first_reasoning < 0) {
        return row->first_content < 0 ? row->first_reasoning
                                      : row->first_content;
    }

    return row->first_content < row->first_reasoning ? row->first_content
                                                     : row->first_reasoning;
}


/* no more than so many bytes, and no part of a character */

static size_t
ngx_http_llm_capture_row_cut(const char *s, size_t n, size_t most)
{
    if (n <= most) {
        return n;
    }

    while (most && ((unsigned char) s[most] & 0xc0) == 0x80) {
        most--;
    }

    return most;
}


size_t
ngx_http_llm_capture_row_baseten(char *p, size_t size,
    const ngx_http_llm_capture_fields_t *row)
{
    ngx_http_llm_capture_row_out_t  out = { p, size, 0 };

    if (row->prompt == NULL || row->outcome->prompt < 0
        || row->outcome->completion < 0)
    {
        return 0;
    }

    put(&out, "{\"timestamp_start_unix_ms\":");
    ngx_http_llm_capture_row_number(&out, row->wall);
    put(&out, ",\"prompt\":");
    ngx_http_llm_capture_row_string(&out, row->prompt, row->prompt_len);
    ngx_http_llm_capture_row_member(&out, "input_tokens",
                                    row->outcome->prompt);
    ngx_http_llm_capture_row_member(&out, "output_tokens",
                                    row->outcome->completion);

    put(&out, ",\"provided_session_id\":");
    ngx_http_llm_capture_row_word(&out, row->session ? row->session : "");

    put(&out, ",\"total_hashes\":");
    ngx_http_llm_capture_row_hashes(&out, row);
    ngx_http_llm_capture_row_member(&out, "block_size",
                                    NGX_HTTP_LLM_CAPTURE_HASH_TOKENS);

    if (row->aborted) {
        put(&out, ",\"request_canceled\":true,\"duration_e2e_ms\":");

    } else {
        put(&out, ",\"request_canceled\":false,\"duration_e2e_ms\":");
    }

    ngx_http_llm_capture_row_duration(&out, row->last_byte);
    put(&out, ",\"duration_ttft_ms\":");
    ngx_http_llm_capture_row_duration(&out, ngx_http_llm_capture_row_ttft(row));

    if (row->text) {
        put(&out, ",\"output_text\":");
        ngx_http_llm_capture_row_string(&out, row->text,
            ngx_http_llm_capture_row_cut(row->text, row->text_len,
                                         NGX_HTTP_LLM_CAPTURE_ROW_TEXT));
    }

    put(&out, "}\n");

    return out.n;
}
