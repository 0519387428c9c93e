
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

/* bits of a place in a file; above them the number of the file */
#define LLM_CAPTURE_OFFSET  48


static void
llm_capture_outcomes_add(llm_capture_outcomes_t *o, const char *path)
{
    llm_capture_outcomes_file_t  *file;

    o->file = llm_capture_grow(o->file, (o->n + 1)
                                  * sizeof(llm_capture_outcomes_file_t));
    file = &o->file[o->n++];
    file->f = llm_capture_open(path, 0);
    file->fd = open(path, O_RDONLY|O_CLOEXEC);

    if (file->fd == -1) {
        llm_capture_die("%s: %s", path, strerror(errno));
    }
}


static void
llm_capture_outcomes_beside(llm_capture_outcomes_t *o, const char *path)
{
    char      *own, *next;
    unsigned   segments;

    own = llm_capture_beside(path, ".outcomes");
    next = llm_capture_beside_next(path, ".outcomes", &segments);

    o->others = segments ? 1 : 0;

    if (access(own, F_OK) == 0) {
        llm_capture_outcomes_add(o, own);

    } else {
        free(own);
    }

    if (next) {
        llm_capture_outcomes_add(o, next);
    }
}


llm_capture_outcomes_t *
llm_capture_outcomes(const char *path, const llm_capture_list_t *named)
{
    unsigned                 i;
    llm_capture_outcomes_t  *o;

    o = llm_capture_alloc(sizeof(llm_capture_outcomes_t));

    if (named && named->n) {
        for (i = 0; i < named->n; i++) {
            llm_capture_outcomes_add(o, llm_capture_format("%s",
                                                           named->p[i]));
        }

        o->others = named->n > 1;

    } else if (strcmp(path, "-") != 0) {
        llm_capture_outcomes_beside(o, path);
    }

    if (o->n) {
        return o;
    }

    free(o);

    return NULL;
}


void
llm_capture_outcomes_free(llm_capture_outcomes_t *o)
{
    unsigned  i;

    if (o == NULL) {
        return;
    }

    for (i = 0; i < o->n; i++) {
        close(o->file[i].fd);
        free((char *) o->file[i].f->path);
        llm_capture_close(o->file[i].f);
    }

    llm_capture_table_free(&o->at);
    free(o->file);
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
    int                  rc;
    size_t               whole;
    llm_capture_str_t    text;
    llm_capture_file_t  *f;

    for ( /* void */ ; o->walked < o->n; o->walked++) {
        f = o->file[o->walked].f;

        while ((rc = llm_capture_line(f, &text, &whole)) == 1) {

            if (text.n && llm_capture_outcome_read(outcome, text)) {
                o->rows++;
                return 1;
            }

            o->bad += text.n != 0;
        }

        if (rc == -1) {
            llm_capture_die("%s: %s", f->path, f->error);
        }
    }

    return 0;
}


uint64_t
llm_capture_row_id(const llm_capture_row_t *row)
{
    return llm_capture_id(row->is[LLM_CAPTURE_ID]);
}


static void
llm_capture_outcomes_all(llm_capture_outcomes_t *o)
{
    unsigned               i;
    llm_capture_outcome_t  r;

    for (i = 0; i < o->n; i++) {
        if (o->file[i].f->packed) {
            llm_capture_die("%s: unpack it first: it is not read in order",
                            o->file[i].f->path);
        }
    }

    while (llm_capture_outcomes_next(o, &r)) {
        if (r.id) {
            *llm_capture_at(&o->at, r.id, NULL) =
                (uint64_t) o->walked << LLM_CAPTURE_OFFSET
                | (o->file[o->walked].f->offset + 1);
        }
    }

    o->all = 1;
}


unsigned
llm_capture_outcomes_find(llm_capture_outcomes_t *o,
    const llm_capture_row_t *row, llm_capture_outcome_t *outcome)
{
    int       fd;
    off_t     offset;
    ssize_t   n;
    uint64_t  id, *at;
    uint8_t  *end;
    unsigned  found;

    if (o == NULL) {
        return 0;
    }

    if (!o->all) {
        llm_capture_outcomes_all(o);
    }

    id = llm_capture_row_id(row);
    at = llm_capture_at(&o->at, id, &found);

    if (id == 0 || !found || *at == 0) {
        return 0;
    }

    fd = o->file[*at >> LLM_CAPTURE_OFFSET].fd;
    offset = (off_t) (*at & ((UINT64_C(1) << LLM_CAPTURE_OFFSET) - 1)) - 1;

    for (o->size = o->size ? o->size : 4096;; o->size *= 2) {
        o->buf = llm_capture_grow(o->buf, o->size);
        n = pread(fd, o->buf, o->size, offset);

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
