
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The files of many pods as one.  The rows of a file stay in their order, which
 * is that of the turns of a session, and what was rotated away comes in front
 * of the live file; of the next rows of all pods the earliest one comes first.
 * Nothing is held but these.
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm_capture.h"


typedef struct {
    llm_capture_segment_t    is;
    unsigned                 pod;
    int64_t                  t0;
    double                   shift;     /* ms to the common clock */
    double                   first;
    double                   last;
    uint64_t                 rows;
} llm_capture_part_t;

typedef struct {
    llm_capture_part_t      *part;      /* the one that is read */
    unsigned                 left;      /* parts, with that one */
    llm_capture_file_t      *f;
    llm_capture_row_t        row;
    llm_capture_outcomes_t  *o;
    double                   at;        /* of the row, by the common clock */
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


/* by pod, in the order of their first files; and of a pod by time */

static int
llm_capture_part_cmp(const void *one, const void *two)
{
    const llm_capture_part_t  *a = one, *b = two;

    if (a->pod != b->pod) {
        return a->pod < b->pod ? -1 : 1;
    }

    return llm_capture_segment_cmp(&a->is, &b->is);
}


static unsigned
llm_capture_parts(llm_capture_part_t *part, int n, char **path)
{
    int       i, k;
    unsigned  pods;

    for (pods = 0, i = 0; i < n; i++) {
        llm_capture_segment(&part[i].is, path[i]);
        part[i].pod = pods;
        part[i].t0 = llm_capture_t0(path[i]);

        for (k = 0; k < i; k++) {
            if (llm_capture_segment_same(&part[k].is, &part[i].is)) {
                part[i].pod = part[k].pod;
                break;
            }
        }

        pods += part[i].pod == pods;
    }

    qsort(part, (size_t) n, sizeof(llm_capture_part_t), llm_capture_part_cmp);

    for (i = 1; i < n; i++) {
        if (llm_capture_part_cmp(&part[i - 1], &part[i]) == 0) {
            llm_capture_die("%s, %s: the same rows twice", part[i - 1].is.path,
                            part[i].is.path);
        }
    }

    return pods;
}


static void
llm_capture_merge_clock(llm_capture_part_t *part, int n)
{
    int      i;
    int64_t  least;

    for (i = 0, least = INT64_MAX; i < n; i++) {

        if (part[i].t0 == 0) {
            llm_capture_die("%s: nothing says what its timestamps count from:"
                            " it has no manifest, and there is no %s.epoch;"
                            " see --one-clock", part[i].is.path,
                            part[i].is.path);
        }

        least = part[i].t0 < least ? part[i].t0 : least;
    }

    for (i = 0; i < n; i++) {
        part[i].shift = (double) (part[i].t0 - least);
    }
}


static void
llm_capture_pod_open(llm_capture_pod_t *p)
{
    llm_capture_format_e  format;

    format = p->row.format;
    p->f = llm_capture_rows(p->part->is.path, &p->row,
                            llm_capture_asked.format);
    p->o = llm_capture_outcomes(p->part->is.path, NULL);

    if (format != LLM_CAPTURE_AUTO && format != p->row.format) {
        llm_capture_die("%s: %s, the others are %s", p->part->is.path,
                        llm_capture_format_name(p->row.format),
                        llm_capture_format_name(format));
    }
}


static void
llm_capture_pod_next(llm_capture_pod_t *p, uint64_t *bad)
{
    double               at;
    llm_capture_part_t  *part;

    while (!llm_capture_row_next(p->f, &p->row, bad)) {
        llm_capture_outcomes_free(p->o);
        llm_capture_close(p->f);

        if (--p->left == 0) {
            return;
        }

        p->part++;
        llm_capture_pod_open(p);
    }

    part = p->part;
    at = llm_capture_arrival(&p->row) + part->shift;

    if (part->rows++ == 0) {
        part->first = part->last = at;
    }

    part->first = at < part->first ? at : part->first;
    part->last = at > part->last ? at : part->last;
    p->at = at;
}


/* opens the first file of each; do any have outcomes? */

static unsigned
llm_capture_pods(llm_capture_pod_t *pod, unsigned pods,
    llm_capture_part_t *part, int parts)
{
    int       i;
    char     *next;
    unsigned  k, any, segments;

    for (any = 0, i = 0; i < parts; i++) {
        k = part[i].pod;

        if (pod[k].left++ == 0) {
            pod[k].part = &part[i];
        }

        next = llm_capture_beside(part[i].is.path, ".outcomes");
        any |= access(next, F_OK) == 0;
        free(next);
        next = llm_capture_beside_next(part[i].is.path, ".outcomes",
                                       &segments);
        any |= next != NULL;
        free(next);
    }

    for (k = 0; k < pods; k++) {
        pod[k].row.format = k ? pod[0].row.format : LLM_CAPTURE_AUTO;
        llm_capture_pod_open(&pod[k]);
    }

    return any;
}


/* those that more than one pod served */

static void
llm_capture_merge_session(llm_capture_table_t *t, const llm_capture_row_t *row,
    unsigned pod, uint64_t *shared)
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


static void
llm_capture_merge_rows(llm_capture_pod_t *pod, unsigned pods,
    llm_capture_pair_t *pair, uint64_t *bad, uint64_t *shared)
{
    char                  ms[32];
    double                shift;
    unsigned              i, next;
    llm_capture_row_t    *row;
    llm_capture_table_t   sessions;

    memset(&sessions, 0, sizeof(sessions));

    for (i = 0; i < pods; i++) {
        llm_capture_pod_next(&pod[i], bad);
    }

    for ( ;; ) {

        for (next = pods, i = 0; i < pods; i++) {
            if (pod[i].left && (next == pods || pod[i].at < pod[next].at)) {
                next = i;
            }
        }

        if (next == pods) {
            break;
        }

        row = &pod[next].row;
        shift = pod[next].part->shift;

        llm_capture_merge_session(&sessions, row, next, shared);
        llm_capture_pair_row(pair, row, pod[next].o,
            shift != 0 && row->is[LLM_CAPTURE_TIMESTAMP].p
            ? llm_capture_ms(llm_capture_arrival(row) + shift, ms) : NULL,
            NULL);
        llm_capture_pod_next(&pod[next], bad);
    }

    llm_capture_table_free(&sessions);
}


static int
llm_capture_merge_run(int argc, char **argv)
{
    int                  i;
    uint64_t             bad, shared;
    unsigned             pods, outcomes;
    llm_capture_pod_t   *pod;
    llm_capture_part_t  *part;
    llm_capture_pair_t  *pair;

    part = llm_capture_alloc((size_t) argc * sizeof(llm_capture_part_t));
    pods = llm_capture_parts(part, argc, argv);
    pod = llm_capture_alloc(pods * sizeof(llm_capture_pod_t));
    outcomes = llm_capture_pods(pod, pods, part, argc);
    bad = shared = 0;

    if (pod[0].row.format == LLM_CAPTURE_MOONCAKE
        && !llm_capture_asked.one_clock)
    {
        llm_capture_merge_clock(part, argc);
    }

    pair = llm_capture_pair(llm_capture_asked.out, outcomes,
                            llm_capture_asked.force);
    llm_capture_merge_rows(pod, pods, pair, &bad, &shared);
    llm_capture_pair_commit(pair);

    for (i = 0; i < argc; i++) {
        llm_capture_say("%s: %" PRIu64 " rows, %+.0f ms, from %.0f s to %.0f"
                        " s", part[i].is.path, part[i].rows, part[i].shift,
                        part[i].first / 1000, part[i].last / 1000);
    }

    if (shared) {
        llm_capture_say("%" PRIu64 " sessions are in files of more than one"
                        " pod: their turns are in order as far as the clocks"
                        " agree", shared);
    }

    free(part);
    free(pod);

    return bad ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_merge = {
    "merge", "FILE...", "makes one file of many pods', by one clock",
    llm_capture_merge_options, llm_capture_merge_run, 1, 0
};
