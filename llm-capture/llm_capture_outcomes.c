
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ngx_http_llm_capture_scan.h"
#include "llm_capture.h"


/* bytes of text that an estimate takes for a token */
#define LLM_CAPTURE_TOKEN  4


/* X.jsonl -> X.outcomes, as the module names it */

static char *
llm_capture_outcomes_path(const char *path)
{
    size_t  n;

    n = strlen(path);

    if (n > 6 && strcmp(path + n - 6, ".jsonl") == 0) {
        n -= 6;
    }

    return llm_capture_format("%.*s.outcomes", (int) n, path);
}


llm_capture_outcomes_t *
llm_capture_outcomes(const char *path, const char *named)
{
    char                    *name;
    llm_capture_outcomes_t  *o;

    name = named ? llm_capture_format("%s", named)
                 : llm_capture_outcomes_path(path);

    if (named == NULL && (strcmp(path, "-") == 0 || access(name, F_OK) != 0)) {
        free(name);
        return NULL;
    }

    o = llm_capture_alloc(sizeof(llm_capture_outcomes_t));
    o->f = llm_capture_open(name, 0, 1);
    o->fd = open(name, O_RDONLY|O_CLOEXEC);

    if (o->fd == -1) {
        llm_capture_die("%s: %s", name, strerror(errno));
    }

    return o;
}


void
llm_capture_outcomes_free(llm_capture_outcomes_t *o)
{
    if (o == NULL) {
        return;
    }

    close(o->fd);
    free((char *) o->f->path);
    llm_capture_close(o->f);
    llm_capture_table_free(&o->at);
    free(o->buf);
    free(o);
}


static uint64_t
llm_capture_id(llm_capture_str_t value)
{
    if (value.p == NULL || value.n < 3 || value.p[0] != '"') {
        return 0;
    }

    return llm_capture_mix(4, value.p, value.n) | 1;
}


static unsigned
llm_capture_true(llm_capture_str_t value)
{
    return value.p && value.p[0] == 't';
}


static unsigned
llm_capture_outcome_read(llm_capture_outcome_t *o, llm_capture_str_t text)
{
    unsigned              i;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    enum { ID, STATUS, PROMPT, COMPLETION, CACHED, CONTENT, REASONING, LAST,
           STREAM, ABORTED, UPSTREAM, ERROR, ESTIMATED, N };

    static const char *const  names[N] = {
        "id", "status", "prompt_tokens", "completion_tokens", "cached_tokens",
        "first_content_ms", "first_reasoning_ms", "last_byte_ms", "stream",
        "aborted", "upstream_failed", "error", "estimated"
    };

    llm_capture_str_t            is[N];
    ngx_http_llm_capture_scan_t  s;

    memset(is, 0, sizeof(is));

    ngx_http_llm_capture_scan_init(&s, NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT, 0);
    (void) ngx_http_llm_capture_scan_feed(&s, (uint8_t *) text.p, text.n);

    if (ngx_http_llm_capture_scan_end(&s) != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        return 0;
    }

    text.p += ngx_http_llm_capture_scan_lead(&s);
    text.n -= ngx_http_llm_capture_scan_lead(&s)
              + ngx_http_llm_capture_scan_trail(&s);

    llm_capture_walk(&w, text);

    while (llm_capture_next(&w, &m)) {
        for (i = 0; i < N; i++) {
            if (strlen(names[i]) == m.key.n
                && memcmp(names[i], m.key.p, m.key.n) == 0)
            {
                is[i] = m.value;
                break;
            }
        }
    }

    o->text = text;
    o->id = llm_capture_id(is[ID]);
    o->status = llm_capture_number(is[STATUS]);
    o->prompt = llm_capture_number(is[PROMPT]);
    o->completion = llm_capture_number(is[COMPLETION]);
    o->cached = llm_capture_number(is[CACHED]);
    o->e2e = llm_capture_number(is[LAST]);
    o->stream = llm_capture_true(is[STREAM]) & 1;
    o->failed = (llm_capture_true(is[ABORTED]) | llm_capture_true(is[UPSTREAM])
                 | llm_capture_true(is[ERROR])) & 1;
    o->estimated = llm_capture_true(is[ESTIMATED]) & 1;
    o->ttft = -1;

    if (o->stream) {
        o->ttft = llm_capture_number(is[CONTENT]);

        if (is[REASONING].p
            && (o->ttft < 0 || llm_capture_number(is[REASONING]) < o->ttft))
        {
            o->ttft = llm_capture_number(is[REASONING]);
        }
    }

    return 1;
}


unsigned
llm_capture_outcomes_next(llm_capture_outcomes_t *o,
    llm_capture_outcome_t *outcome)
{
    int                rc;
    size_t             whole;
    llm_capture_str_t  text;

    while ((rc = llm_capture_line(o->f, &text, &whole)) == 1) {

        if (text.n && llm_capture_outcome_read(outcome, text)) {
            o->rows++;
            return 1;
        }

        o->bad += text.n != 0;
    }

    if (rc == -1) {
        llm_capture_die("%s: %s", o->f->path, o->f->error);
    }

    return 0;
}


unsigned
llm_capture_outcomes_find(llm_capture_outcomes_t *o,
    const llm_capture_row_t *row, llm_capture_outcome_t *outcome)
{
    ssize_t   n;
    uint64_t  id, *at;
    uint8_t  *end;
    unsigned  found;

    if (o == NULL) {
        return 0;
    }

    if (o->f->gzip) {
        llm_capture_die("%s: unpack it first: it is not read in order",
                        o->f->path);
    }

    if (o->rows == 0) {
        while (llm_capture_outcomes_next(o, outcome)) {
            if (outcome->id) {
                *llm_capture_at(&o->at, outcome->id, NULL) = o->f->offset + 1;
            }
        }
    }

    id = llm_capture_id(row->is[LLM_CAPTURE_ID]);
    at = llm_capture_at(&o->at, id, &found);

    if (id == 0 || !found || *at == 0) {
        return 0;
    }

    for (o->size = o->size ? o->size : 4096;; o->size *= 2) {
        o->buf = llm_capture_grow(o->buf, o->size);
        n = pread(o->fd, o->buf, o->size, (off_t) *at - 1);

        if (n <= 0) {
            return 0;
        }

        end = memchr(o->buf, '\n', (size_t) n);

        if (end || n < (ssize_t) o->size) {
            break;
        }
    }

    return llm_capture_outcome_read(outcome, (llm_capture_str_t) {
        o->buf, end ? (size_t) (end - o->buf) : (size_t) n });
}


void
llm_capture_lengths(const llm_capture_row_t *row, llm_capture_outcomes_t *o,
    unsigned estimate, double *prompt, double *completion)
{
    double                 max;
    llm_capture_outcome_t  r;
    llm_capture_payload_t  p;

    *prompt = llm_capture_number(row->is[LLM_CAPTURE_INPUT_LENGTH]);
    *completion = llm_capture_number(row->is[LLM_CAPTURE_OUTPUT_LENGTH]);

    if (llm_capture_outcomes_find(o, row, &r)) {
        *prompt = r.prompt;
        *completion = r.completion;
    }

    if (!estimate) {
        return;
    }

    llm_capture_payload(&p, row->payload);

    if (*prompt < 1) {
        *prompt = 1 + (double) (p.text / LLM_CAPTURE_TOKEN);
    }

    if (*completion < 1) {
        max = llm_capture_max_tokens(&p);
        *completion = max >= 1 ? max : 1;
    }
}
