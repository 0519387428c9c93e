
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture.h"


const char *
llm_capture_ms(double ms, char buf[32])
{
    size_t  n;

    if (ms == floor(ms) && fabs(ms) < 1e15) {
        snprintf(buf, 32, "%.0f", ms == 0 ? 0 : ms);
        return buf;
    }

    snprintf(buf, 32, "%.3f", ms);

    for (n = strlen(buf); buf[n - 1] == '0'; n--) { /* void */ }

    buf[buf[n - 1] == '.' ? n - 1 : n] = '\0';

    return buf;
}


llm_capture_pair_t *
llm_capture_pair(const char *path, unsigned outcomes, unsigned force)
{
    char                *name;
    size_t               n;
    llm_capture_pair_t  *p;

    p = llm_capture_alloc(sizeof(llm_capture_pair_t));
    p->rows = llm_capture_create(path, force);

    n = strlen(path);

    if (outcomes && n > 6 && strcmp(path + n - 6, ".jsonl") == 0) {
        name = llm_capture_format("%.*s.outcomes", (int) n - 6, path);
        p->outcomes = llm_capture_create(name, force);
        free(name);
    }

    return p;
}


void
llm_capture_pair_row(llm_capture_pair_t *p, const llm_capture_row_t *row,
    llm_capture_outcomes_t *o, const char *timestamp, const char *delay)
{
    llm_capture_str_t      is;
    llm_capture_outcome_t  r;

    p->n++;

    if (timestamp) {
        is = row->is[LLM_CAPTURE_TIMESTAMP];
        llm_capture_edit(&p->edits, is.p, is.n, timestamp, strlen(timestamp));
    }

    if (delay) {
        is = row->is[LLM_CAPTURE_DELAY];
        llm_capture_edit(&p->edits, is.p, is.n, delay, strlen(delay));
    }

    llm_capture_edited(p->rows, row->text, &p->edits);

    if (p->outcomes == NULL || !llm_capture_outcomes_find(o, row, &r)) {
        return;
    }

    is = llm_capture_member(r.text, "timestamp");

    if (timestamp && is.p) {
        llm_capture_edit(&p->edits, is.p, is.n, timestamp, strlen(timestamp));
    }

    llm_capture_edited(p->outcomes, r.text, &p->edits);
}


void
llm_capture_pair_park(llm_capture_pair_t *p)
{
    llm_capture_park(p->rows);

    if (p->outcomes) {
        llm_capture_park(p->outcomes);
    }
}


void
llm_capture_pair_commit(llm_capture_pair_t *p)
{
    llm_capture_commit(p->rows);

    if (p->outcomes) {
        llm_capture_commit(p->outcomes);
    }

    free(p->edits.edit);
    free(p->edits.text);
    free(p);
}
