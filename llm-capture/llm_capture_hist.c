
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <math.h>
#include <string.h>

#include "llm_capture_shape.h"


/* seconds that are counted one by one: 48 days */
#define LLM_CAPTURE_SECONDS  (1 << 22)


/* 128 buckets to each power of two, and to 0 .. 127 */

static unsigned
llm_capture_bucket(double value)
{
    unsigned  k, at;
    uint64_t  n;

    n = value < 0 ? 0 : value > 9e18 ? (uint64_t) 9e18 : (uint64_t) value;

    if (n < 128) {
        return (unsigned) n;
    }

    k = 56 - (unsigned) __builtin_clzll(n);
    at = (k + 1) * 128 + (unsigned) ((n >> k) & 127);

    return at < LLM_CAPTURE_BUCKETS ? at : LLM_CAPTURE_BUCKETS - 1;
}


static double
llm_capture_bucket_value(unsigned i)
{
    unsigned  k;
    double    from;

    if (i < 128) {
        return i;
    }

    k = i / 128 - 1;
    from = ldexp(128 + i % 128, (int) k);

    return from + (ldexp(1, (int) k) - 1) / 2;
}


void
llm_capture_hist(llm_capture_hist_t *h, double value)
{
    h->bucket[llm_capture_bucket(value)]++;
    h->n++;
    h->sum += value;

    if (value > h->max) {
        h->max = value;
    }
}


double
llm_capture_quantile(const llm_capture_hist_t *h, double q)
{
    double    value;
    unsigned  i;
    uint64_t  n, rank;

    rank = (uint64_t) ceil(q * (double) h->n);

    for (n = 0, i = 0; i < LLM_CAPTURE_BUCKETS; i++) {
        n += h->bucket[i];

        if (n >= rank && n) {
            value = llm_capture_bucket_value(i);
            return value > h->max ? h->max : value;
        }
    }

    return 0;
}


double
llm_capture_mean(const llm_capture_hist_t *h)
{
    return h->n ? h->sum / (double) h->n : 0;
}


void
llm_capture_bins(const llm_capture_hist_t *h, double low, double high,
    uint64_t *bin, unsigned bins)
{
    double    at;
    unsigned  i;

    memset(bin, 0, bins * sizeof(uint64_t));

    for (i = 0; i < LLM_CAPTURE_BUCKETS; i++) {

        if (h->bucket[i] == 0) {
            continue;
        }

        at = llm_capture_bucket_value(i);
        at = at <= low ? 0 : log(at / low) / log(high / low) * bins;
        bin[at >= bins ? bins - 1 : (unsigned) at] += h->bucket[i];
    }
}


void
llm_capture_time(llm_capture_times_t *t, double ms)
{
    int64_t  s;
    size_t   add, size;

    if (t->rows++ == 0) {
        t->first = t->last = ms;
    }

    t->first = ms < t->first ? ms : t->first;
    t->last = ms > t->last ? ms : t->last;

    s = ms > -1e15 && ms < 1e15 ? (int64_t) floor(ms / 1000) : INT64_MAX / 2;

    if (t->size == 0) {
        t->base = s;
    }

    if (s < t->base && t->base - s < LLM_CAPTURE_SECONDS - (int64_t) t->size) {

        /* in front, which is rare, with room for more */

        add = (size_t) (t->base - s) + 64;
        t->n = llm_capture_grow(t->n, (t->size + add) * sizeof(uint32_t));
        memmove(t->n + add, t->n, t->size * sizeof(uint32_t));
        memset(t->n, 0, add * sizeof(uint32_t));
        t->size += add;
        t->base -= (int64_t) add;
    }

    if (s < t->base || s - t->base >= LLM_CAPTURE_SECONDS) {
        t->beyond++;
        return;
    }

    if ((size_t) (s - t->base) >= t->size) {
        size = (size_t) (s - t->base) + 1 + t->size / 2 + 64;
        t->n = llm_capture_grow(t->n, size * sizeof(uint32_t));
        memset(t->n + t->size, 0, (size - t->size) * sizeof(uint32_t));
        t->size = size;
    }

    t->n[s - t->base]++;
}


uint64_t
llm_capture_peak(const llm_capture_times_t *t, size_t seconds, double *at)
{
    size_t    i;
    uint64_t  sum, most;

    *at = 0;

    for (sum = most = 0, i = 0; i < t->size; i++) {
        sum += t->n[i];
        sum -= i >= seconds ? t->n[i - seconds] : 0;

        if (sum > most) {
            most = sum;
            *at = (double) t->base + (double) i - (double) seconds + 1
                  - floor(t->first / 1000);
        }
    }

    *at = *at < 0 ? 0 : *at;

    return most;
}


double
llm_capture_dispersion(const llm_capture_times_t *t)
{
    size_t  i, from, to;
    double  mean, sum, seconds;

    if (t->rows < 2 || t->beyond) {
        return 0;
    }

    from = (size_t) ((int64_t) floor(t->first / 1000) - t->base);
    to = (size_t) ((int64_t) floor(t->last / 1000) - t->base);
    seconds = (double) (to - from + 1);
    mean = (double) t->rows / seconds;

    for (sum = 0, i = from; i <= to; i++) {
        sum += ((double) t->n[i] - mean) * ((double) t->n[i] - mean);
    }

    return sum / seconds / mean;
}
