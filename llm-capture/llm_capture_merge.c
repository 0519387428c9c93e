
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The files of many pods as one.  The rows of a file stay in their order, which
 * is that of the turns of a session; of the next rows of all files the earliest
 * one comes first.  Nothing is held but these.
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture.h"


typedef struct {
    llm_capture_file_t      *f;
    llm_capture_row_t        row;
    llm_capture_outcomes_t  *o;
    int64_t                  t0;
    double                   shift;     /* ms to the common clock */
    double                   at;        /* of the row, by that */
    double                   first;
    double                   last;
    uint64_t                 rows;
    unsigned                 end:1;
} llm_capture_pod_t;


static struct {
    const char            *format;
    const char            *out;
    unsigned               one_clock;
    unsigned               force;
} llm_capture_asked = { .out = "-" };


static const llm_capture_option_t  llm_capture_merge_options[] = {
    { "one-clock", 'b', &llm_capture_asked.one_clock, NULL,
      "timestamps count from the same moment already" },
    LLM_CAPTURE_FORMAT_OPTION,
    LLM_CAPTURE_OUT_OPTIONS,
    { NULL, 0, NULL, NULL, NULL }
};


static void
llm_capture_pod_next(llm_capture_pod_t *p, uint64_t *bad)
{
    double  at;

    if (!llm_capture_row_next(p->f, &p->row, bad)) {
        p->end = 1;
        return;
    }

    at = llm_capture_arrival(&p->row) + p->shift;

    if (p->rows++ == 0) {
        p->first = p->last = at;
    }

    p->first = at < p->first ? at : p->first;
    p->last = at > p->last ? at : p->last;
    p->at = at;
}


static void
llm_capture_merge_clock(llm_capture_pod_t *pod, int n)
{
    int      i;
    int64_t  least;

    for (i = 0, least = INT64_MAX; i < n; i++) {

        if (pod[i].t0 == 0 && !llm_capture_asked.one_clock) {
            llm_capture_die("%s: nothing says what its timestamps count from:"
                            " there is no %s.epoch; see --one-clock",
                            pod[i].f->path, pod[i].f->path);
        }

        least = pod[i].t0 < least ? pod[i].t0 : least;
    }

    for (i = 0; i < n && !llm_capture_asked.one_clock; i++) {
        pod[i].shift = (double) (pod[i].t0 - least);
    }
}


/* a session that is in more than one file was served by more than one pod */

static void
llm_capture_merge_session(llm_capture_table_t *t, const llm_capture_row_t *row,
    int pod, uint64_t *shared)
{
    uint64_t  key, *at;

    key = llm_capture_session(row);

    if (key == 0) {
        return;
    }

    at = llm_capture_at(t, key, NULL);

    if (*at == 0) {
        *at = (uint64_t) pod + 1;

    } else if (*at != UINT64_MAX && *at != (uint64_t) pod + 1) {
        *at = UINT64_MAX;
        ++*shared;
    }
}


static int
llm_capture_merge_run(int argc, char **argv)
{
    int                   i, next;
    char                  ms[32];
    uint64_t              bad, shared;
    unsigned              outcomes;
    llm_capture_pod_t    *pod;
    llm_capture_pair_t   *pair;
    llm_capture_table_t   sessions;

    pod = llm_capture_alloc((size_t) argc * sizeof(llm_capture_pod_t));
    memset(&sessions, 0, sizeof(sessions));
    bad = shared = 0;
    outcomes = 0;

    for (i = 0; i < argc; i++) {
        pod[i].f = llm_capture_rows(argv[i], &pod[i].row,
                                    llm_capture_asked.format);
        pod[i].o = llm_capture_outcomes(argv[i], NULL);
        pod[i].t0 = llm_capture_t0(argv[i]);
        outcomes |= pod[i].o != NULL;

        if (pod[i].row.format != pod[0].row.format) {
            llm_capture_die("%s: %s, and %s is %s", argv[i],
                            llm_capture_format_name(pod[i].row.format),
                            argv[0],
                            llm_capture_format_name(pod[0].row.format));
        }
    }

    if (pod[0].row.format == LLM_CAPTURE_MOONCAKE) {
        llm_capture_merge_clock(pod, argc);
    }

    pair = llm_capture_pair(llm_capture_asked.out, outcomes,
                            llm_capture_asked.force);

    for (i = 0; i < argc; i++) {
        llm_capture_pod_next(&pod[i], &bad);
    }

    for ( ;; ) {

        for (next = -1, i = 0; i < argc; i++) {
            if (!pod[i].end && (next == -1 || pod[i].at < pod[next].at)) {
                next = i;
            }
        }

        if (next == -1) {
            break;
        }

        llm_capture_merge_session(&sessions, &pod[next].row, next, &shared);
        llm_capture_pair_row(pair, &pod[next].row, pod[next].o,
            pod[next].shift != 0 && pod[next].row.is[LLM_CAPTURE_TIMESTAMP].p
            ? llm_capture_ms(llm_capture_arrival(&pod[next].row)
                             + pod[next].shift, ms) : NULL, NULL);
        llm_capture_pod_next(&pod[next], &bad);
    }

    llm_capture_pair_commit(pair);

    for (i = 0; i < argc; i++) {
        llm_capture_say("%s: %" PRIu64 " rows, %+.0f ms, from %.0f s to %.0f"
                        " s", argv[i], pod[i].rows, pod[i].shift,
                        pod[i].first / 1000, pod[i].last / 1000);
        llm_capture_outcomes_free(pod[i].o);
        llm_capture_close(pod[i].f);
    }

    if (shared) {
        llm_capture_say("%" PRIu64 " sessions are in more than one file: their"
                        " turns are in order as far as the clocks agree",
                        shared);
    }

    llm_capture_table_free(&sessions);
    free(pod);

    return bad ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_merge = {
    "merge", "FILE...", "makes one file of many pods', by one clock",
    llm_capture_merge_options, llm_capture_merge_run, 1, 0
};
