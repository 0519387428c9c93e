
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_format.h"
#include "ngx_http_llm_capture_siphash.h"


#define ngx_http_llm_capture_put(p, text)                                     \
    (memcpy(p, text, sizeof(text) - 1), sizeof(text) - 1)


static size_t
ngx_http_llm_capture_format_number(char *p, uint64_t n)
{
    char    digits[20];
    size_t  len;

    len = 0;

    do {
        digits[sizeof(digits) - ++len] = (char) ('0' + n % 10);
        n /= 10;
    } while (n);

    memcpy(p, digits + sizeof(digits) - len, len);

    return len;
}


static size_t
ngx_http_llm_capture_format_id(char *p, uint64_t id)
{
    char  hex[NGX_HTTP_LLM_CAPTURE_SESSION];

    ngx_http_llm_capture_siphash_hex(id, hex);
    memcpy(p, hex, sizeof(hex) - 1);
    p[sizeof(hex) - 1] = '"';

    return sizeof(hex);
}


static size_t
ngx_http_llm_capture_format_head(char *p, unsigned format,
    const ngx_http_llm_capture_line_t *line)
{
    size_t  len;

    if (!ngx_http_llm_capture_is_timed(format)) {
        return 0;
    }

    len = ngx_http_llm_capture_put(p, "{\"timestamp\":");
    len += ngx_http_llm_capture_format_number(p + len, line->ts);

    if (format == NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE) {
        return len;
    }

    if (line->uid) {
        len += ngx_http_llm_capture_put(p + len, ",\"id\":\"");
        len += ngx_http_llm_capture_format_id(p + len, line->uid);
    }

    if (line->session) {
        len += ngx_http_llm_capture_put(p + len, ",\"session_id\":\"");
        len += ngx_http_llm_capture_format_id(p + len, line->session);
    }

    len += ngx_http_llm_capture_put(p + len, ",\"payload\":");

    return len;
}


static size_t
ngx_http_llm_capture_format_tail(char *p, unsigned format)
{
    if (format != NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD) {
        return ngx_http_llm_capture_put(p, "\n");
    }

    return ngx_http_llm_capture_put(p, "}\n");
}


void
ngx_http_llm_capture_lines_set(ngx_http_llm_capture_lines_t *l,
    unsigned format, ngx_http_llm_capture_line_t *line, unsigned n)
{
    size_t    head, tail;
    uint32_t  k;
    unsigned  i;

    l->line = line;
    l->n = n;
    l->total = 0;

    tail = 0;

    for (i = 0; i < n; i++) {
        line[i].len = 0;

        for (k = 0; k < line[i].nbody; k++) {
            line[i].len += line[i].body[k].iov_len;
        }

        head = ngx_http_llm_capture_format_head(l->join[i] + tail, format,
                                                &line[i]);
        l->size[i] = (uint8_t) (tail + head);

        tail = ngx_http_llm_capture_format_tail(l->join[i + 1], format);

        l->total += head + line[i].len + tail;
        l->end[i] = l->total;
    }

    l->size[n] = (uint8_t) tail;
}


uint64_t
ngx_http_llm_capture_line_bytes(unsigned format,
    const ngx_http_llm_capture_line_t *line)
{
    char  join[NGX_HTTP_LLM_CAPTURE_JOIN];

    return ngx_http_llm_capture_format_head(join, format, line)
           + line->len + ngx_http_llm_capture_format_tail(join, format);
}


static struct iovec
ngx_http_llm_capture_lines_part(const ngx_http_llm_capture_lines_t *l,
    const ngx_http_llm_capture_cursor_t *c)
{
    struct iovec  v;

    if (c->part == 0) {
        v.iov_base = (void *) l->join[c->line];
        v.iov_len = l->size[c->line];

    } else {
        v = l->line[c->line].body[c->part - 1];
    }

    v.iov_base = (char *) v.iov_base + c->skip;
    v.iov_len -= c->skip;

    return v;
}


static void
ngx_http_llm_capture_lines_next(const ngx_http_llm_capture_lines_t *l,
    ngx_http_llm_capture_cursor_t *c)
{
    c->skip = 0;

    if (c->line < l->n && c->part < l->line[c->line].nbody) {
        c->part++;
        return;
    }

    c->line++;
    c->part = 0;
}


int
ngx_http_llm_capture_lines_iov(const ngx_http_llm_capture_lines_t *l,
    const ngx_http_llm_capture_cursor_t *c, struct iovec *iov, int max)
{
    int                            n;
    ngx_http_llm_capture_cursor_t  at;

    n = 0;

    for (at = *c;
         n < max && at.line <= l->n;
         ngx_http_llm_capture_lines_next(l, &at))
    {
        iov[n] = ngx_http_llm_capture_lines_part(l, &at);

        if (iov[n].iov_len) {
            n++;
        }
    }

    return n;
}


void
ngx_http_llm_capture_lines_advance(const ngx_http_llm_capture_lines_t *l,
    ngx_http_llm_capture_cursor_t *c, uint64_t bytes)
{
    struct iovec  v;

    while (c->line <= l->n) {
        v = ngx_http_llm_capture_lines_part(l, c);

        if (bytes < v.iov_len) {
            c->skip += (size_t) bytes;
            return;
        }

        bytes -= v.iov_len;
        ngx_http_llm_capture_lines_next(l, c);
    }
}


unsigned
ngx_http_llm_capture_lines_whole(const ngx_http_llm_capture_lines_t *l,
    uint64_t bytes, uint64_t *whole)
{
    unsigned  k;

    for (k = 0; k < l->n && l->end[k] <= bytes; k++) { /* void */ }

    *whole = k ? l->end[k - 1] : 0;

    return k;
}
