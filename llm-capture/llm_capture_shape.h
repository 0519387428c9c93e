
/*
 * Copyright (C) the llm-capture authors
 */

/* what inspect finds in a file, in memory that does not grow with it */

#ifndef _LLM_CAPTURE_SHAPE_H_INCLUDED_
#define _LLM_CAPTURE_SHAPE_H_INCLUDED_


#include "llm_capture_manifest.h"


/*
 * How often keys come, in memory that does not grow: when there is no room only
 * every 2nd, 4th, ... key is looked at, always the same ones.
 */

typedef struct {
    llm_capture_table_t at;
    unsigned            shift;      /* one of 2^shift keys */
} llm_capture_sketch_t;

void llm_capture_count(llm_capture_sketch_t *s, uint64_t key);

/* different ones, and how often they came */
void llm_capture_counted(const llm_capture_sketch_t *s, double *keys,
    double *times);


/* llm_capture_hist.c: numbers from 0 on; quantiles within 1 % */

#define LLM_CAPTURE_BUCKETS  (57 * 128)

typedef struct {
    uint64_t            n;
    double              sum;
    double              max;
    uint64_t            bucket[LLM_CAPTURE_BUCKETS];
} llm_capture_hist_t;

void llm_capture_hist(llm_capture_hist_t *h, double value);
double llm_capture_quantile(const llm_capture_hist_t *h, double q);
double llm_capture_mean(const llm_capture_hist_t *h);

/* shares of the bins between equal steps of the logarithm */
void llm_capture_bins(const llm_capture_hist_t *h, double low, double high,
    uint64_t *bin, unsigned bins);

/* requests in a second */

typedef struct {
    int64_t             base;
    size_t              size;
    uint32_t           *n;
    double              first;      /* ms */
    double              last;
    uint64_t            rows;
    uint64_t            beyond;     /* too far away to be counted */
} llm_capture_times_t;

void llm_capture_time(llm_capture_times_t *t, double ms);

/* most in so many seconds; *at: where they begin, s from the first arrival */
uint64_t llm_capture_peak(const llm_capture_times_t *t, size_t seconds,
    double *at);

/* variance by mean of the requests in a second: 1 for Poisson arrivals */
double llm_capture_dispersion(const llm_capture_times_t *t);


/* llm_capture_shape.c: the shape of a workload */

#define LLM_CAPTURE_MODELS  64

typedef struct {
    const char             *path;
    llm_capture_format_e    format;
    llm_capture_packed_e    packed;
    uint64_t                bytes;          /* unpacked */
    uint64_t                rows;
    uint64_t                bad;
    uint64_t                payloads;
    uint64_t                stream;
    uint64_t                recorded;       /* with an output_length */
    uint64_t                endpoint[LLM_CAPTURE_ENDPOINTS];
    char                   *model[LLM_CAPTURE_MODELS];
    uint64_t                model_n[LLM_CAPTURE_MODELS];
    unsigned                models;
    llm_capture_times_t     times;
    llm_capture_sketch_t    session;
    llm_capture_sketch_t    block;
    llm_capture_hist_t      input;
    llm_capture_hist_t      output;
    const char             *input_from;     /* outcomes, rows, estimate */
    const char             *output_from;    /* outcomes, rows, asked */
    uint64_t                outcomes;
    uint64_t                failed;
    uint64_t                status[6];      /* by its first digit */
    llm_capture_hist_t      cached;
    llm_capture_hist_t      ttft;
    llm_capture_hist_t      e2e;
    llm_capture_table_t     ids;            /* where outcomes of others are */
    llm_capture_manifest_t *manifest;       /* NULL: there is none */
} llm_capture_shape_t;

/* outcomes, manifest: NULL or those that are named */
llm_capture_shape_t *llm_capture_shape(const char *path, const char *format,
    const llm_capture_list_t *outcomes, const char *manifest);
void llm_capture_shape_free(llm_capture_shape_t *s);

/* llm_capture_plot.c */
void llm_capture_bars(const llm_capture_shape_t *s, FILE *to);
void llm_capture_plot(const llm_capture_shape_t *s, const char *path,
    unsigned force);


#endif /* _LLM_CAPTURE_SHAPE_H_INCLUDED_ */
