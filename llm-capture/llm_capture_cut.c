
/*
 * Copyright (C) the llm-capture authors
 */

/* window, sample and scale: some of the rows, or all at another speed */

#define _GNU_SOURCE

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture_shape.h"


static struct {
    const char            *format;
    llm_capture_list_t     outcomes;
    const char            *out;
    double                 from;
    double                 to;
    double                 busiest;
    double                 sessions;
    double                 requests;
    double                 speed;
    uint64_t               seed;
    unsigned               rebase;
    unsigned               force;
} llm_capture_asked = { .out = "-", .from = -1, .to = -1, .busiest = -1,
                        .sessions = -1, .requests = -1, .speed = -1 };


#define llm_capture_common                                                    \
    LLM_CAPTURE_OUTCOMES_OPTION,                                              \
    LLM_CAPTURE_FORMAT_OPTION,                                                \
    LLM_CAPTURE_OUT_OPTIONS,                                                  \
    { NULL, 0, NULL, NULL, NULL }


static const llm_capture_option_t  llm_capture_window_options[] = {
    { "from", 't', &llm_capture_asked.from, "TIME",
      "since the first arrival, such as 90s, 10m, 1.5h" },
    { "to", 't', &llm_capture_asked.to, "TIME", "and no more from there on" },
    { "busiest", 't', &llm_capture_asked.busiest, "TIME",
      "the so many seconds with most requests" },
    { "rebase", 'b', &llm_capture_asked.rebase, NULL,
      "timestamps from the beginning of the window" },
    llm_capture_common
};

static const llm_capture_option_t  llm_capture_sample_options[] = {
    { "sessions", 'f', &llm_capture_asked.sessions, "SHARE",
      "whole sessions; a row without one is its own" },
    { "requests", 'f', &llm_capture_asked.requests, "SHARE",
      "rows, whatever their session" },
    { "seed", 'n', &llm_capture_asked.seed, "N", "of another choice (0)" },
    llm_capture_common
};

static const llm_capture_option_t  llm_capture_scale_options[] = {
    { "speed", 'f', &llm_capture_asked.speed, "FACTOR",
      "2: twice as fast; 0.5: half as fast" },
    llm_capture_common
};


typedef struct {
    const char             *path;
    llm_capture_row_t       row;
    llm_capture_file_t     *f;
    llm_capture_outcomes_t *o;
    llm_capture_pair_t     *pair;
    uint64_t                rows;
    uint64_t                bad;
} llm_capture_cut_t;


static void
llm_capture_cut_begin(llm_capture_cut_t *c, const char *path)
{
    memset(c, 0, sizeof(llm_capture_cut_t));
    c->path = path;
    c->f = llm_capture_rows(path, &c->row, llm_capture_asked.format);
    c->o = llm_capture_outcomes(path, &llm_capture_asked.outcomes);
}


static unsigned
llm_capture_cut_next(llm_capture_cut_t *c)
{
    if (c->pair == NULL) {
        c->pair = llm_capture_pair(llm_capture_asked.out, c->o != NULL,
                                   llm_capture_asked.force);
    }

    if (!llm_capture_row_next(c->f, &c->row, &c->bad)) {
        return 0;
    }

    c->rows++;

    return 1;
}


static int
llm_capture_cut_end(llm_capture_cut_t *c)
{
    uint64_t  n;

    n = c->pair->n;

    llm_capture_pair_commit(c->pair);
    llm_capture_outcomes_free(c->o);
    llm_capture_close(c->f);

    llm_capture_say("%s: %" PRIu64 " of %" PRIu64 " rows, %" PRIu64
                    " bad lines left out", c->path, n, c->rows, c->bad);

    return c->bad || n == 0 ? LLM_CAPTURE_WARNED : LLM_CAPTURE_OK;
}


static int
llm_capture_window_run(int argc, char **argv)
{
    char                  ms[32];
    double                at, from, to;
    uint64_t              bad;
    llm_capture_cut_t     c;
    llm_capture_times_t   times;

    (void) argc;

    if (llm_capture_asked.busiest < 0 && llm_capture_asked.from < 0
        && llm_capture_asked.to < 0)
    {
        llm_capture_die("window: --from and --to, or --busiest");
    }

    llm_capture_cut_begin(&c, argv[0]);
    memset(&times, 0, sizeof(times));
    bad = 0;

    while (llm_capture_row_next(c.f, &c.row, &bad)) {
        if (c.row.is[LLM_CAPTURE_TIMESTAMP].p) {
            llm_capture_time(&times, llm_capture_arrival(&c.row));
        }
    }

    if (times.rows == 0) {
        llm_capture_die("%s: no timestamps", argv[0]);
    }

    llm_capture_rewind(c.f);

    if (llm_capture_asked.busiest >= 0) {
        at = ceil(llm_capture_asked.busiest / 1000);
        (void) llm_capture_peak(&times, at < 1 ? 1 : (size_t) at, &from);
        from = 1000 * (floor(times.first / 1000) + from);
        to = from + 1000 * (at < 1 ? 1 : at);

    } else {
        from = llm_capture_asked.from < 0 ? times.first
               : times.first + llm_capture_asked.from;
        to = llm_capture_asked.to < 0 ? INFINITY
             : times.first + llm_capture_asked.to;
    }

    free(times.n);

    while (llm_capture_cut_next(&c)) {
        at = llm_capture_arrival(&c.row);

        if (c.row.is[LLM_CAPTURE_TIMESTAMP].p && at >= from && at < to) {
            llm_capture_pair_row(c.pair, &c.row, c.o,
                                 llm_capture_asked.rebase
                                 ? llm_capture_ms(at - from, ms) : NULL, NULL);
        }
    }

    /* those of the first pass */
    c.bad = bad;

    return llm_capture_cut_end(&c);
}


static int
llm_capture_sample_run(int argc, char **argv)
{
    double             share;
    uint64_t           key;
    llm_capture_cut_t  c;

    (void) argc;

    share = llm_capture_asked.sessions >= 0 ? llm_capture_asked.sessions
                                            : llm_capture_asked.requests;

    if (share < 0 || share > 1) {
        llm_capture_die("sample: --sessions or --requests, from 0 to 1");
    }

    llm_capture_cut_begin(&c, argv[0]);

    while (llm_capture_cut_next(&c)) {
        key = llm_capture_asked.sessions >= 0 ? llm_capture_session(&c.row)
                                              : 0;
        key = key ? key : c.f->line;
        key = llm_capture_mix(llm_capture_asked.seed + 6, &key, sizeof(key));

        if ((double) (key >> 11) < share * 9007199254740992.0) {
            llm_capture_pair_row(c.pair, &c.row, c.o, NULL, NULL);
        }
    }

    return llm_capture_cut_end(&c);
}


static int
llm_capture_scale_run(int argc, char **argv)
{
    char               ts[32], delay[32];
    llm_capture_str_t  is;
    llm_capture_cut_t  c;

    (void) argc;

    if (!(llm_capture_asked.speed > 0)) {
        llm_capture_die("scale: --speed, above 0");
    }

    llm_capture_cut_begin(&c, argv[0]);

    while (llm_capture_cut_next(&c)) {
        is = c.row.is[LLM_CAPTURE_DELAY];

        llm_capture_pair_row(c.pair, &c.row, c.o,
            c.row.is[LLM_CAPTURE_TIMESTAMP].p
            ? llm_capture_ms(llm_capture_arrival(&c.row)
                             / llm_capture_asked.speed, ts) : NULL,
            is.p && is.p[0] != 'n'
            ? llm_capture_ms(llm_capture_number(is)
                             / llm_capture_asked.speed, delay) : NULL);
    }

    return llm_capture_cut_end(&c);
}


const llm_capture_command_t  llm_capture_window = {
    "window", "FILE", "takes the rows of some time, or of the busiest",
    llm_capture_window_options, llm_capture_window_run, 1, 1
};

const llm_capture_command_t  llm_capture_sample = {
    "sample", "FILE", "takes some of the sessions, or of the rows",
    llm_capture_sample_options, llm_capture_sample_run, 1, 1
};

const llm_capture_command_t  llm_capture_scale = {
    "scale", "FILE", "makes the recorded time run faster or slower",
    llm_capture_scale_options, llm_capture_scale_run, 1, 1
};
