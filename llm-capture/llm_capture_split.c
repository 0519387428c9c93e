
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_path.h"
#include "llm_capture.h"


#define LLM_CAPTURE_VALUES  10000
#define LLM_CAPTURE_OPEN    200     /* files at a time */


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *by;
    const char            *out;
    unsigned               force;
} llm_capture_asked = { .by = "endpoint" };


static const llm_capture_option_t  llm_capture_split_options[] = {
    { "by", 's', &llm_capture_asked.by, "WHAT",
      "endpoint, model, session, or a path such as user" },
    { "out", 's', &llm_capture_asked.out, "BASE",
      "BASE.VALUE.jsonl; default: FILE less .jsonl" },
    LLM_CAPTURE_OUTCOMES_OPTION,
    LLM_CAPTURE_FORMAT_OPTION,
    { "force", 'b', &llm_capture_asked.force, NULL, "overwrite files" },
    { NULL, 0, NULL, NULL, NULL }
};


/* what the row is split by; to be freed */

static char *
llm_capture_split_value(const llm_capture_row_t *row)
{
    llm_capture_str_t      s;
    llm_capture_payload_t  p;

    if (strcmp(llm_capture_asked.by, "endpoint") == 0) {
        llm_capture_payload(&p, row->payload);
        return llm_capture_format("%s", llm_capture_endpoint_name(p.endpoint));
    }

    if (strcmp(llm_capture_asked.by, "session") == 0) {
        s = row->is[LLM_CAPTURE_SESSION];

    } else {
        s = llm_capture_path(row->payload, llm_capture_asked.by);
    }

    return s.p ? llm_capture_text(s) : llm_capture_format("%s", "");
}


static llm_capture_pair_t *
llm_capture_split_to(llm_capture_table_t *t, llm_capture_pair_t **pair,
    unsigned *n, const char *value, unsigned outcomes, const char *base)
{
    char       name[NGX_HTTP_LLM_CAPTURE_PATH_VALUE], *path;
    size_t     len;
    uint64_t  *at;

    len = ngx_http_llm_capture_path_value(name, (const uint8_t *) value,
                                          strlen(value));
    at = llm_capture_at(t, llm_capture_mix(5, name, len), NULL);

    if (*at) {
        return pair[*at - 1];
    }

    if (*n == LLM_CAPTURE_VALUES) {
        llm_capture_die("--by %s has more than %d values",
                        llm_capture_asked.by, LLM_CAPTURE_VALUES);
    }

    path = llm_capture_format("%s.%.*s.jsonl", base, (int) len, name);
    pair[*n] = llm_capture_pair(path, outcomes, llm_capture_asked.force);
    free(path);
    *at = ++*n;

    return pair[*n - 1];
}


static int
llm_capture_split_run(int argc, char **argv)
{
    char                      *base, *value;
    size_t                     len;
    uint64_t                   bad;
    unsigned                   i, n, open;
    llm_capture_row_t          row;
    llm_capture_file_t        *f;
    llm_capture_pair_t        *to;
    llm_capture_table_t        t;
    llm_capture_outcomes_t    *o;

    static llm_capture_pair_t  *pair[LLM_CAPTURE_VALUES];

    (void) argc;

    memset(&t, 0, sizeof(t));
    len = strlen(argv[0]);

    base = llm_capture_asked.out
           ? llm_capture_format("%s", llm_capture_asked.out)
           : llm_capture_format("%.*s", (int) (len > 6
                 && strcmp(argv[0] + len - 6, ".jsonl") == 0 ? len - 6 : len),
                 argv[0]);

    f = llm_capture_rows(argv[0], &row, llm_capture_asked.format);
    o = llm_capture_outcomes(argv[0], &llm_capture_asked.outcomes);

    n = open = 0;
    bad = 0;

    while (llm_capture_row_next(f, &row, &bad)) {
        value = llm_capture_split_value(&row);
        to = llm_capture_split_to(&t, pair, &n, value, o != NULL, base);
        free(value);

        /* more than the process may have open */

        if (n > LLM_CAPTURE_OPEN && ++open == LLM_CAPTURE_OPEN) {
            for (i = 0, open = 0; i < n; i++) {
                llm_capture_pair_park(pair[i]);
            }
        }

        llm_capture_pair_row(to, &row, o, NULL, NULL);

        if (n == LLM_CAPTURE_OPEN && to->n == 1) {
            for (i = 0; i < n; i++) {
                llm_capture_pair_park(pair[i]);
            }
        }
    }

    for (i = 0; i < n; i++) {
        llm_capture_pair_commit(pair[i]);
    }

    if (bad) {
        llm_capture_say("%" PRIu64 " bad lines were left out", bad);
    }

    llm_capture_table_free(&t);
    llm_capture_outcomes_free(o);
    llm_capture_close(f);
    free(base);

    return bad ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_split = {
    "split", "FILE",
    "makes a file of each endpoint type, model, session or value",
    llm_capture_split_options, llm_capture_split_run, 1, 1
};
