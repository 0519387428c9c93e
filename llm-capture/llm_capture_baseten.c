
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * baseten_trace: rows as the module writes them, and for AIPerf, which reads
 * columns, a file that pyarrow makes of them.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ngx_http_llm_capture_conversation.h"
#include "ngx_http_llm_capture_row.h"
#include "llm_capture.h"


static const char  llm_capture_columns_py[] =
#include "llm_capture_columns.inc"
;


static void
llm_capture_baseten_blocks(llm_capture_convert_t *c,
    ngx_http_llm_capture_blocks_t *blocks)
{
    json_t        *root;
    struct iovec   iov;

    iov.iov_base = (void *) c->row.payload.p;
    iov.iov_len = c->row.payload.n;

    ngx_http_llm_capture_blocks_init(blocks);
    root = ngx_http_llm_capture_conversation_load(&iov, 1);

    if (root) {
        ngx_http_llm_capture_conversation_hash(root, blocks);
        json_decref(root);
    }

    ngx_http_llm_capture_blocks_seal(blocks, c->key);
}


/* 0: this row has none */

static unsigned
llm_capture_baseten_row(llm_capture_convert_t *c)
{
    char                            *session;
    size_t                           n, size;
    double                           prompt, completion;
    llm_capture_str_t                text;
    llm_capture_outcome_t            r;
    ngx_http_llm_capture_fields_t    fields;
    ngx_http_llm_capture_outcome_t   lengths;

    static char                           *p;
    static size_t                          room;
    static ngx_http_llm_capture_blocks_t   blocks;

    text = llm_capture_path(c->row.payload, "prompt");
    llm_capture_lengths(&c->row, c->o, c->estimate, &prompt, &completion);

    if (text.p == NULL || text.p[0] != '"' || prompt < 0 || completion < 0
        || prompt > NGX_HTTP_LLM_CAPTURE_TOKENS
        || completion > NGX_HTTP_LLM_CAPTURE_TOKENS)
    {
        return 0;
    }

    memset(&fields, 0, sizeof(fields));
    memset(&lengths, 0, sizeof(lengths));

    lengths.prompt = (int64_t) prompt;
    lengths.completion = (int64_t) completion;

    fields.outcome = &lengths;
    fields.wall = (uint64_t) ((double) c->t0 + llm_capture_arrival(&c->row));
    fields.first_byte = fields.first_content = fields.first_reasoning = -1;
    fields.last_byte = -1;

    if (llm_capture_outcomes_find(c->o, &c->row, &r)) {
        fields.stream = r.stream;
        fields.first_content = (int64_t) r.ttft;
        fields.last_byte = (int64_t) r.e2e;
        fields.aborted = r.failed;
    }

    if (c->keyed) {
        llm_capture_baseten_blocks(c, &blocks);
        fields.blocks = &blocks;
    }

    session = c->row.is[LLM_CAPTURE_SESSION].n > 2
              && c->row.is[LLM_CAPTURE_SESSION].p[0] == '"'
              ? llm_capture_text(c->row.is[LLM_CAPTURE_SESSION]) : NULL;
    fields.session = session;

    /* in the row it is escaped anew */

    fields.prompt = llm_capture_text(text);
    fields.prompt_len = llm_capture_unescape((uint8_t *) fields.prompt,
                                             llm_capture_unquote(text));

    size = ngx_http_llm_capture_row_baseten(p, room, &fields);

    if (size > room) {
        room = 2 * size;
        p = llm_capture_grow(p, room);
        size = ngx_http_llm_capture_row_baseten(p, room, &fields);
    }

    n = size;
    llm_capture_write(c->out, p, n);

    free((char *) fields.prompt);
    free(session);

    return n != 0;
}


static void
llm_capture_columns(llm_capture_convert_t *c, const char *rows)
{
    int     status;
    char   *temp;
    pid_t   pid;

    temp = llm_capture_format("%s.%ld.tmp2", c->to, (long) getpid());
    pid = fork();

    if (pid == 0) {
        umask(077);
        execlp("python3", "python3", "-c", llm_capture_columns_py, rows, temp,
               strrchr(c->to, '.'), NULL);
        _exit(127);
    }

    if (pid == -1) {
        llm_capture_die("fork(): %s", strerror(errno));
    }

    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) { /* void */ }

    unlink(rows);

    if (status != 0) {
        unlink(temp);
        llm_capture_die("%s: it needs python3 with pyarrow; a name in .jsonl"
                        " does not", c->to);
    }

    if (c->force ? rename(temp, c->to) : link(temp, c->to)) {
        status = errno;
        unlink(temp);
        llm_capture_die("%s: %s", c->to, strerror(status));
    }

    unlink(temp);
    free(temp);
}


void
llm_capture_baseten(llm_capture_convert_t *c)
{
    char        *rows;
    unsigned     columns;
    const char  *end;

    end = strrchr(c->to, '.');
    columns = end && (strcmp(end, ".parquet") == 0 || strcmp(end, ".arrow") == 0
                      || strcmp(end, ".ipc") == 0);

    if (columns && !c->force && access(c->to, F_OK) == 0) {
        llm_capture_die("%s: exists; --force overwrites it", c->to);
    }

    rows = columns ? llm_capture_format("%s.%ld.rows", c->to, (long) getpid())
                   : llm_capture_format("%s", c->to);
    c->out = llm_capture_create(rows, c->force);

    while (llm_capture_row_next(c->f, &c->row, &c->bad)) {
        c->rows++;
        c->none += c->row.payload.p == NULL || !llm_capture_baseten_row(c);
    }

    if (c->rows == c->none) {
        llm_capture_die("%s: no row has a prompt of text and lengths by an"
                        " outcome; see --estimate", c->path);
    }

    llm_capture_commit(c->out);
    c->out = NULL;

    if (columns) {
        llm_capture_columns(c, rows);
    }

    free(rows);
}
