
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ngx_http_llm_capture_epoch.h"
#include "ngx_http_llm_capture_scan.h"
#include "llm_capture_manifest.h"


#define LLM_CAPTURE_TELL  10        /* rows that are told one by one */


static const struct {
    const char            *name;
    size_t                 n;
} llm_capture_names[LLM_CAPTURE_MEMBERS] = {
    { "timestamp", 9 }, { "id", 2 }, { "session_id", 10 }, { "payload", 7 },
    { "input_length", 12 }, { "output_length", 13 }, { "hash_ids", 8 },
    { "messages", 8 }, { "text_input", 10 }, { "tools", 5 }, { "extra", 5 },
    { "delay", 5 }, { "type", 4 }
};


const char *
llm_capture_format_name(llm_capture_format_e format)
{
    return format == LLM_CAPTURE_RAW ? "raw_payload" : "mooncake_trace";
}


const char *
llm_capture_why(unsigned verdict)
{
    static const char *const  why[] = {
        "it is fine", "it is no JSON",
        "it is not UTF-8, or has half a surrogate pair",
        "a number is beyond a double", "it is nested more than 1024 deep",
        "it is no JSON object", "it has no input", "it has no list of messages"
    };

    return why[verdict];
}


/*
 * bytes of white space that Python's str.strip() takes at p; of bytes.strip()
 * those of ASCII below 0x10
 */

static size_t
llm_capture_space(const uint8_t *p, const uint8_t *end, unsigned unicode)
{
    uint8_t  c;

    c = *p;

    if (c == ' ' || (c >= 9 && c <= 13) || (unicode && c >= 28 && c <= 31)) {
        return 1;
    }

    if (c < 0xc2 || !unicode) {
        return 0;
    }

    if (c == 0xc2) {
        return end - p >= 2 && (p[1] == 0x85 || p[1] == 0xa0) ? 2 : 0;
    }

    if (end - p < 3) {
        return 0;
    }

    switch (c << 16 | p[1] << 8 | p[2]) {

    case 0xe19a80: case 0xe280a8: case 0xe280a9: case 0xe280af: case 0xe2819f:
    case 0xe38080:
        return 3;
    }

    return c == 0xe2 && p[1] == 0x80 && p[2] >= 0x80 && p[2] <= 0x8a ? 3 : 0;
}


static llm_capture_str_t
llm_capture_strip(llm_capture_str_t s, unsigned unicode)
{
    size_t          n, k;
    const uint8_t  *p, *end;

    p = s.p;
    end = p + s.n;

    while (p < end && (n = llm_capture_space(p, end, unicode)) != 0) {
        p += n;
    }

    while (p < end) {

        for (k = 1; k <= 3 && end - p >= (ptrdiff_t) k; k++) {
            if (llm_capture_space(end - k, end, unicode) == k) {
                break;
            }
        }

        if (k > 3 || end - p < (ptrdiff_t) k) {
            break;
        }

        end -= k;
    }

    return (llm_capture_str_t) { p, (size_t) (end - p) };
}


static unsigned
llm_capture_scan(llm_capture_str_t text, unsigned depth, unsigned flags)
{
    ngx_http_llm_capture_scan_t  s;

    static uint8_t  *copy;
    static size_t    size;

    /* the scan would turn a CR into a space; only raw_payload can have one */

    if (flags && memchr(text.p, '\r', text.n)) {

        if (size < text.n) {
            size = text.n;
            copy = llm_capture_grow(copy, size);
        }

        text.p = memcpy(copy, text.p, text.n);
    }

    ngx_http_llm_capture_scan_init(&s, depth, flags);
    (void) ngx_http_llm_capture_scan_feed(&s, (uint8_t *) text.p, text.n);

    return ngx_http_llm_capture_scan_end(&s);
}


/*
 * {"timestamp":N,"id":"HEX","session_id":"TEXT","payload":BODY} as the module
 * writes it, with or without the two in the middle: then the scan of the body
 * alone says all.
 */

static unsigned
llm_capture_row_short(llm_capture_row_t *row)
{
    const uint8_t      *p, *q, *end;
    llm_capture_str_t   t;

    static const uint8_t  head[] = "{\"timestamp\":";
    static const uint8_t  id[] = ",\"id\":\"";
    static const uint8_t  session[] = ",\"session_id\":\"";
    static const uint8_t  payload[] = ",\"payload\":";

    t = row->text;
    end = t.p + t.n;

    if (t.n < 64 || memcmp(t.p, head, sizeof(head) - 1) != 0
        || end[-1] != '}')
    {
        return 0;
    }

    p = q = t.p + sizeof(head) - 1;

    while (*p >= '0' && *p <= '9') {
        p++;
    }

    if (p == q || (*q == '0' && p - q > 1) || p - q > 18) {
        return 0;
    }

    row->is[LLM_CAPTURE_TIMESTAMP] = (llm_capture_str_t) { q,
                                                           (size_t) (p - q) };

    if (memcmp(p, id, sizeof(id) - 1) == 0) {
        q = p + sizeof(id) - 2;

        for (p = q + 1; (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f');
             p++)
        { /* void */ }

        if (*p++ != '"' || end - p < 40) {
            return 0;
        }

        row->is[LLM_CAPTURE_ID] = (llm_capture_str_t) { q, (size_t) (p - q) };
    }

    if (memcmp(p, session, sizeof(session) - 1) == 0) {
        q = p + sizeof(session) - 2;

        for (p = q + 1; (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f');
             p++)
        { /* void */ }

        if (*p++ != '"' || end - p < 20) {
            return 0;
        }

        row->is[LLM_CAPTURE_SESSION] = (llm_capture_str_t) { q,
                                                          (size_t) (p - q) };
    }

    if (end - p < (ptrdiff_t) sizeof(payload) + 1
        || memcmp(p, payload, sizeof(payload) - 1) != 0)
    {
        return 0;
    }

    p += sizeof(payload) - 1;
    row->payload = (llm_capture_str_t) { p, (size_t) (end - 1 - p) };

    if (*p != '{' || end[-2] != '}'
        || llm_capture_scan(row->payload,
                            NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED, 0)
           != NGX_HTTP_LLM_CAPTURE_SCAN_OK)
    {
        return 0;
    }

    row->is[LLM_CAPTURE_PAYLOAD] = row->payload;

    return 1;
}


static void
llm_capture_row_members(llm_capture_row_t *row)
{
    unsigned              i;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    llm_capture_walk(&w, row->text);

    while (llm_capture_next(&w, &m)) {

        for (i = 0; i < LLM_CAPTURE_MEMBERS; i++) {
            if (llm_capture_is(m.key, (llm_capture_str_t) {
                    (const uint8_t *) llm_capture_names[i].name,
                    llm_capture_names[i].n }))
            {
                row->is[i] = m.value;
                break;
            }
        }
    }
}


unsigned
llm_capture_row(llm_capture_row_t *row, llm_capture_format_e format,
    llm_capture_str_t text)
{
    llm_capture_str_t  p;

    memset(row, 0, sizeof(llm_capture_row_t));

    row->format = format;
    row->text = llm_capture_strip(text, format == LLM_CAPTURE_MOONCAKE);

    if (row->text.n == 0) {
        return 0;
    }

    if (format == LLM_CAPTURE_RAW) {
        row->verdict = (uint8_t) llm_capture_scan(row->text,
                                    NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT,
                                    NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES);
        row->payload = row->text;
        return 1;
    }

    if (llm_capture_row_short(row)) {
        return 1;
    }

    memset(row->is, 0, sizeof(row->is));
    row->payload = (llm_capture_str_t) { NULL, 0 };
    row->verdict = (uint8_t) llm_capture_scan(row->text,
                                          NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT, 0);

    if (row->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        llm_capture_row_members(row);
        p = row->is[LLM_CAPTURE_PAYLOAD];

        if (p.p && p.p[0] == '{') {
            row->payload = p;
        }
    }

    return 1;
}


/* a body, or a row of a trace: told by the first one */

llm_capture_format_e
llm_capture_detect(const char *path)
{
    size_t                whole;
    unsigned              i;
    llm_capture_str_t     text;
    llm_capture_row_t     row;
    llm_capture_file_t   *f;
    llm_capture_format_e  format;

    if (strcmp(path, "-") == 0) {
        return LLM_CAPTURE_MOONCAKE;
    }

    format = LLM_CAPTURE_MOONCAKE;
    f = llm_capture_open(path, 1);

    /* a line that is no JSON says nothing */

    for (i = 0; i < 100 && llm_capture_line(f, &text, &whole) == 1; i++) {

        if (!llm_capture_row(&row, LLM_CAPTURE_MOONCAKE, text)
            || row.verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK)
        {
            continue;
        }

        if (row.is[LLM_CAPTURE_PAYLOAD].p == NULL
            && row.is[LLM_CAPTURE_INPUT_LENGTH].p == NULL
            && row.is[LLM_CAPTURE_TEXT_INPUT].p == NULL
            && row.is[LLM_CAPTURE_TIMESTAMP].p == NULL
            && row.is[LLM_CAPTURE_DELAY].p == NULL
            && row.is[LLM_CAPTURE_SESSION].p == NULL
            && row.is[LLM_CAPTURE_TYPE].p == NULL)
        {
            format = LLM_CAPTURE_RAW;
        }

        break;
    }

    llm_capture_close(f);

    return format;
}


llm_capture_format_e
llm_capture_format_of(const char *name, const char *path)
{
    if (name == NULL || strcmp(name, "auto") == 0) {
        return llm_capture_detect(path);
    }

    if (strcmp(name, "raw_payload") == 0) {
        return LLM_CAPTURE_RAW;
    }

    if (strcmp(name, "mooncake_trace") == 0
        || strcmp(name, "mooncake_payload") == 0)
    {
        return LLM_CAPTURE_MOONCAKE;
    }

    llm_capture_die("--format: mooncake_trace, raw_payload or auto");
}


llm_capture_file_t *
llm_capture_rows(const char *path, llm_capture_row_t *row, const char *format)
{
    llm_capture_file_t  *f;

    row->format = llm_capture_format_of(format, path);
    f = llm_capture_open(path, row->format == LLM_CAPTURE_MOONCAKE);
    llm_capture_progress_total(f->size);

    if (f->lfs) {
        llm_capture_die("%s: a Git-LFS pointer, not the file: git lfs pull",
                        path);
    }

    return f;
}


unsigned
llm_capture_row_next(llm_capture_file_t *f, llm_capture_row_t *row,
    uint64_t *bad)
{
    int                   rc;
    size_t                whole;
    llm_capture_str_t     text;
    llm_capture_format_e  format;

    for (format = row->format;; /* void */ ) {
        rc = llm_capture_line(f, &text, &whole);

        if (rc == -1) {
            llm_capture_die("%s: %s", f->path, f->error);
        }

        if (rc == 0) {
            row->format = format;
            return 0;
        }

        if (!llm_capture_row(row, format, text)) {
            continue;
        }

        if (row->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
            return 1;
        }

        if (++*bad <= LLM_CAPTURE_TELL) {
            llm_capture_say("%s:%" PRIu64 ": left out: %s", f->path, f->line,
                            llm_capture_why(row->verdict));
        }
    }
}


double
llm_capture_arrival(const llm_capture_row_t *row)
{
    llm_capture_str_t  ts;

    ts = row->is[LLM_CAPTURE_TIMESTAMP];

    return ts.p ? llm_capture_number(ts) : 0;
}


uint64_t
llm_capture_session(const llm_capture_row_t *row)
{
    llm_capture_str_t  s;

    s = row->is[LLM_CAPTURE_SESSION];

    if (s.p == NULL || s.n < 3 || s.p[0] != '"') {
        return 0;
    }

    return llm_capture_mix(1, s.p, s.n) | 1;
}


/* the manifest says it; without one the sidecar of a file that grows */

int64_t
llm_capture_t0(const char *path)
{
    int                           fd;
    char                          text[NGX_HTTP_LLM_CAPTURE_EPOCH], *name;
    int64_t                       t0;
    ssize_t                       n;
    llm_capture_manifest_t       *m;
    ngx_http_llm_capture_epoch_t  e;

    m = llm_capture_manifest(path, NULL);

    if (m) {
        t0 = llm_capture_manifest_int(m->json, "t0");
        llm_capture_manifest_free(m);

        if (t0 > 0) {
            return t0;
        }
    }

    name = llm_capture_format("%s.epoch", path);
    fd = open(name, O_RDONLY|O_CLOEXEC);
    free(name);

    if (fd == -1) {
        return 0;
    }

    n = read(fd, text, sizeof(text));
    close(fd);

    if (n <= 0 || !ngx_http_llm_capture_epoch_parse(&e, text, (size_t) n)) {
        return 0;
    }

    return e.wall;
}
