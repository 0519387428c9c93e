
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_blocks.h"
#include "llm_capture_shape.h"


/* bytes of text, as spelled in JSON, that are taken for a token */
#define LLM_CAPTURE_TOKEN  4


static void
llm_capture_shape_model(llm_capture_shape_t *s, llm_capture_str_t model)
{
    char      *name;
    unsigned   i;

    if (model.p == NULL) {
        model = llm_capture_string("\"\"");
    }

    for (i = 0; i < s->models; i++) {
        if (strlen(s->model[i]) == model.n - 2
            && memcmp(s->model[i], model.p + 1, model.n - 2) == 0)
        {
            s->model_n[i]++;
            return;
        }
    }

    name = s->models < LLM_CAPTURE_MODELS - 1 ? llm_capture_text(model)
                                              : llm_capture_format("(others)");

    for (i = 0; i < s->models && strcmp(s->model[i], name) != 0; i++) {
        /* void */
    }

    if (i < s->models) {
        free(name);

    } else {
        s->model[s->models++] = name;
    }

    s->model_n[i]++;
}


/*
 * The text in blocks of 2048 bytes, each with all before it.  As it is spelled:
 * what hash_ids are made of has no escapes, and is slower to come by.
 */

static void
llm_capture_shape_blocks(llm_capture_shape_t *s, const llm_capture_payload_t *p)
{
    size_t          n, some, fill;
    uint64_t        chain;
    unsigned        i;
    const uint8_t  *from;

    static uint8_t  block[NGX_HTTP_LLM_CAPTURE_HASH_BYTES];

    chain = 0;
    fill = 0;

    for (i = LLM_CAPTURE_P_TOOLS; i <= LLM_CAPTURE_P_PROMPT; i++) {
        from = p->is[i].p;

        for (n = p->is[i].n; n; n -= some, from += some) {

            if (fill == 0 && n >= sizeof(block)) {
                some = sizeof(block);
                chain = llm_capture_mix(chain, from, some);
                llm_capture_count(&s->block, chain);
                continue;
            }

            some = sizeof(block) - fill;
            some = n < some ? n : some;
            memcpy(block + fill, from, some);
            fill += some;

            if (fill == sizeof(block)) {
                chain = llm_capture_mix(chain, block, fill);
                llm_capture_count(&s->block, chain);
                fill = 0;
            }
        }
    }
}


static void
llm_capture_shape_payload(llm_capture_shape_t *s, llm_capture_row_t *row)
{
    double                 max;
    llm_capture_payload_t  p;

    llm_capture_payload(&p, row->payload);

    s->payloads++;
    s->endpoint[p.endpoint]++;
    s->stream += p.stream;

    llm_capture_shape_model(s, p.is[LLM_CAPTURE_P_MODEL].n >= 2
                               && p.is[LLM_CAPTURE_P_MODEL].p[0] == '"'
                               ? p.is[LLM_CAPTURE_P_MODEL]
                               : (llm_capture_str_t) { NULL, 0 });
    llm_capture_shape_blocks(s, &p);
    llm_capture_hist(&s->input, (double) (p.text / LLM_CAPTURE_TOKEN));

    max = llm_capture_number(row->is[LLM_CAPTURE_OUTPUT_LENGTH]);
    s->recorded += max >= 0;

    if (max < 0) {
        max = llm_capture_max_tokens(&p);
    }

    if (max >= 0) {
        llm_capture_hist(&s->output, max);
    }
}


static void
llm_capture_shape_trace(llm_capture_shape_t *s, llm_capture_row_t *row)
{
    double                n;
    uint64_t              key;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    n = llm_capture_number(row->is[LLM_CAPTURE_INPUT_LENGTH]);

    if (n >= 0) {
        llm_capture_hist(&s->input, n);
    }

    n = llm_capture_number(row->is[LLM_CAPTURE_OUTPUT_LENGTH]);

    if (n >= 0) {
        llm_capture_hist(&s->output, n);
    }

    llm_capture_walk(&w, row->is[LLM_CAPTURE_HASH_IDS]);

    while (llm_capture_next(&w, &m)) {
        key = llm_capture_mix(2, m.value.p, m.value.n);
        llm_capture_count(&s->block, key);
    }
}


static void
llm_capture_shape_outcomes(llm_capture_shape_t *s, llm_capture_outcomes_t *o)
{
    unsigned                in, out, found;
    llm_capture_outcome_t   r;

    in = out = 0;

    while (llm_capture_outcomes_next(o, &r)) {

        if (o->others) {
            llm_capture_at(&s->ids, r.id, &found);

            if (!found) {
                continue;
            }
        }

        s->outcomes++;
        s->failed += r.failed || r.status >= 400;
        s->status[r.status >= 100 && r.status < 600 ? (int) r.status / 100
                                                    : 0]++;
        if (r.prompt >= 0) {

            if (in++ == 0) {
                memset(&s->input, 0, sizeof(llm_capture_hist_t));
                s->input_from = "outcomes";
            }

            llm_capture_hist(&s->input, r.prompt);
        }

        if (r.completion >= 0) {

            if (out++ == 0) {
                memset(&s->output, 0, sizeof(llm_capture_hist_t));
                s->output_from = "outcomes";
            }

            llm_capture_hist(&s->output, r.completion);
        }

        if (r.cached >= 0) {
            llm_capture_hist(&s->cached, r.cached);
        }

        if (r.ttft >= 0) {
            llm_capture_hist(&s->ttft, r.ttft);
        }

        if (r.e2e >= 0 && !r.failed) {
            llm_capture_hist(&s->e2e, r.e2e);
        }
    }
}


llm_capture_shape_t *
llm_capture_shape(const char *path, const char *format,
    const llm_capture_list_t *outcomes, const char *manifest)
{
    llm_capture_row_t        row;
    llm_capture_file_t      *f;
    llm_capture_shape_t     *s;
    llm_capture_outcomes_t  *o;

    s = llm_capture_alloc(sizeof(llm_capture_shape_t));
    s->path = path;
    s->input_from = "rows";
    s->output_from = "rows";

    s->manifest = llm_capture_manifest(path, manifest);

    o = llm_capture_outcomes(path, outcomes);
    f = llm_capture_rows(path, &row, format);
    s->format = row.format;
    s->packed = f->packed;

    while (llm_capture_row_next(f, &row, &s->bad)) {
        s->rows++;

        if (o && o->others) {
            llm_capture_at(&s->ids, llm_capture_row_id(&row), NULL);
        }

        if (row.is[LLM_CAPTURE_TIMESTAMP].p) {
            llm_capture_time(&s->times, llm_capture_arrival(&row));
        }

        if (row.is[LLM_CAPTURE_SESSION].p) {
            llm_capture_count(&s->session, llm_capture_session(&row) >> 1);
        }

        if (row.payload.p) {
            llm_capture_shape_payload(s, &row);

        } else {
            llm_capture_shape_trace(s, &row);
        }
    }

    if (s->payloads) {
        s->input_from = "estimate";
        s->output_from = s->recorded ? "rows" : "asked";
    }

    s->bytes = f->base + f->end;
    llm_capture_close(f);

    if (o) {
        llm_capture_shape_outcomes(s, o);
        llm_capture_outcomes_free(o);
    }

    return s;
}


void
llm_capture_shape_free(llm_capture_shape_t *s)
{
    unsigned  i;

    for (i = 0; i < s->models; i++) {
        free(s->model[i]);
    }

    llm_capture_table_free(&s->session.at);
    llm_capture_table_free(&s->block.at);
    llm_capture_table_free(&s->ids);
    llm_capture_manifest_free(s->manifest);
    free(s->times.n);
    free(s);
}
