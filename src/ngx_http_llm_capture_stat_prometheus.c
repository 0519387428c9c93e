
/*
 * Copyright (C) the llm-capture authors
 */

/* how it goes, in the text format 0.0.4 of Prometheus */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_stat.h"


typedef struct {
    char      *p;
    size_t     len;
    size_t     size;
    unsigned   failed:1;      /* no memory */
} ngx_http_llm_capture_out_t;


static void __attribute__((format(printf, 2, 3)))
ngx_http_llm_capture_out(ngx_http_llm_capture_out_t *o, const char *fmt, ...)
{
    int      n;
    char    *p;
    size_t   size;
    va_list  args;

    if (o->failed) {
        return;
    }

    va_start(args, fmt);
    n = vsnprintf(o->p ? o->p + o->len : NULL, o->size - o->len, fmt, args);
    va_end(args);

    if (n < 0) {
        o->failed = 1;
        return;
    }

    if ((size_t) n < o->size - o->len) {
        o->len += (size_t) n;
        return;
    }

    size = 2 * (o->size + (size_t) n + 1);
    p = realloc(o->p, size);

    if (p == NULL) {
        o->failed = 1;
        return;
    }

    o->p = p;
    o->size = size;

    va_start(args, fmt);
    o->len += (size_t) vsnprintf(p + o->len, size - o->len, fmt, args);
    va_end(args);
}


static void
ngx_http_llm_capture_out_family(ngx_http_llm_capture_out_t *o,
    const char *name, const char *type, const char *help)
{
    ngx_http_llm_capture_out(o, "# HELP llm_capture_%s %s\n"
                                "# TYPE llm_capture_%s %s\n",
                             name, help, name, type);
}


/* without control characters already */

static void
ngx_http_llm_capture_out_value(ngx_http_llm_capture_out_t *o, const char *s)
{
    for ( /* void */ ; *s; s++) {
        ngx_http_llm_capture_out(o, *s == '"' || *s == '\\' ? "\\%c" : "%c",
                                 *s);
    }
}


/* the sample of a destination; result: NULL, or a label more */

static void
ngx_http_llm_capture_out_row(ngx_http_llm_capture_out_t *o, const char *name,
    const ngx_http_llm_capture_stat_row_t *r, const char *result, uint64_t n)
{
    ngx_http_llm_capture_out(o, "llm_capture_%s{path=\"", name);
    ngx_http_llm_capture_out_value(o, r->name);
    ngx_http_llm_capture_out(o, "\",format=\"%s\"",
                             ngx_http_llm_capture_stat_format(r));

    if (result) {
        ngx_http_llm_capture_out(o, ",result=\"%s\"", result);
    }

    ngx_http_llm_capture_out(o, "} %llu\n", (unsigned long long) n);
}


static void
ngx_http_llm_capture_out_one(ngx_http_llm_capture_out_t *o, const char *name,
    const char *type, const char *help, uint64_t n)
{
    ngx_http_llm_capture_out_family(o, name, type, help);
    ngx_http_llm_capture_out(o, "llm_capture_%s %llu\n", name,
                             (unsigned long long) n);
}


static void
ngx_http_llm_capture_out_ms(ngx_http_llm_capture_out_t *o, const char *name,
    const char *help, uint64_t ms)
{
    ngx_http_llm_capture_out_family(o, name, "gauge", help);
    ngx_http_llm_capture_out(o, "llm_capture_%s %llu.%03u\n", name,
                             (unsigned long long) ms / 1000,
                             (unsigned) (ms % 1000));
}


/* one number of each destination, which stands at `at` in it */

static void
ngx_http_llm_capture_out_each(ngx_http_llm_capture_out_t *o,
    const ngx_http_llm_capture_stat_t *s, const char *name, const char *type,
    const char *help, size_t at)
{
    uint32_t  i;
    uint64_t  n;

    ngx_http_llm_capture_out_family(o, name, type, help);

    for (i = 0; i < s->nrows; i++) {
        memcpy(&n, (const char *) &s->rows[i] + at, sizeof(n));
        ngx_http_llm_capture_out_row(o, name, &s->rows[i], NULL, n);
    }
}


static void
ngx_http_llm_capture_out_counters(ngx_http_llm_capture_out_t *o,
    const ngx_http_llm_capture_stat_t *s, const char *name, const char *help,
    unsigned from, unsigned to)
{
    unsigned  c;
    uint32_t  i;

    ngx_http_llm_capture_out_family(o, name, "counter", help);

    for (i = 0; i < s->nrows; i++) {
        for (c = from; c < to; c++) {
            ngx_http_llm_capture_out_row(o, name, &s->rows[i],
                                       ngx_http_llm_capture_counter_names[c],
                                       s->rows[i].n[c]);
        }
    }
}


#define ngx_http_llm_capture_row_at(field)                                    \
    offsetof(ngx_http_llm_capture_stat_row_t, field)

#define ngx_http_llm_capture_n_at(c)                                          \
    (ngx_http_llm_capture_row_at(n)                                           \
     + NGX_HTTP_LLM_CAPTURE_C_##c * sizeof(uint64_t))


static void
ngx_http_llm_capture_out_sums(ngx_http_llm_capture_out_t *o,
    const ngx_http_llm_capture_stat_t *s)
{
    ngx_http_llm_capture_out_each(o, s, "seen_total", "counter",
        "Requests with a body where capture is on.",
        ngx_http_llm_capture_n_at(seen));
    ngx_http_llm_capture_out_counters(o, s, "requests_total",
        "What became of them: recorded, or why not.",
        NGX_HTTP_LLM_CAPTURE_C_seen + 1, NGX_HTTP_LLM_CAPTURE_C_last + 1);
    ngx_http_llm_capture_out_each(o, s, "pending", "gauge",
        "Requests seen of which nothing has become yet.",
        ngx_http_llm_capture_row_at(pending));
    ngx_http_llm_capture_out_each(o, s, "written_bytes_total", "counter",
        "Bytes of the lines of recorded requests.",
        ngx_http_llm_capture_n_at(bytes));
    ngx_http_llm_capture_out_each(o, s, "write_errors_total", "counter",
        "Writes that failed.", ngx_http_llm_capture_n_at(write_errors));
    ngx_http_llm_capture_out_each(o, s, "answers_total", "counter",
        "Recorded requests that asked for their outcome.",
        ngx_http_llm_capture_n_at(answers));
    ngx_http_llm_capture_out_counters(o, s, "outcomes_total",
        "What became of these: written (outcomes), or why not.",
        NGX_HTTP_LLM_CAPTURE_C_answers + 1, NGX_HTTP_LLM_CAPTURE_C_max);
    ngx_http_llm_capture_out_each(o, s, "outcomes_to_come", "gauge",
        "Answers under way.", ngx_http_llm_capture_row_at(coming));
    ngx_http_llm_capture_out_each(o, s, "controlled", "gauge",
        "Whether llm_capture_control, not the configuration, decides.",
        ngx_http_llm_capture_row_at(controlled));
    ngx_http_llm_capture_out_each(o, s, "files", "gauge",
        "Files that this helper has written to.",
        ngx_http_llm_capture_row_at(files));
    ngx_http_llm_capture_out_each(o, s, "file_size_bytes", "gauge",
        "Size of the file written last.", ngx_http_llm_capture_row_at(size));
}


static void
ngx_http_llm_capture_out_lines(ngx_http_llm_capture_out_t *o,
    const ngx_http_llm_capture_stat_t *s)
{
    uint32_t  i;

    ngx_http_llm_capture_out_family(o, "last_line_timestamp_seconds", "gauge",
                                    "When the last line was written; 0: none.");

    for (i = 0; i < s->nrows; i++) {
        ngx_http_llm_capture_out_row(o, "last_line_timestamp_seconds",
                                     &s->rows[i], NULL,
                                     s->rows[i].written / 1000);
    }
}


static void
ngx_http_llm_capture_out_queue(ngx_http_llm_capture_out_t *o,
    const ngx_http_llm_capture_stat_t *s)
{
    uint32_t  i;

    ngx_http_llm_capture_out_family(o, "ring_used_bytes", "gauge",
                                    "Bytes of a queue that are in use.");

    for (i = 0; i < s->nrings; i++) {
        ngx_http_llm_capture_out(o,
                                 "llm_capture_ring_used_bytes{ring=\"%u\"} "
                                 "%llu\n", i,
                                 (unsigned long long) s->rings[i].used);
    }

    ngx_http_llm_capture_out_family(o, "ring_owned", "gauge",
                                    "Whether a worker has the queue.");

    for (i = 0; i < s->nrings; i++) {
        ngx_http_llm_capture_out(o, "llm_capture_ring_owned{ring=\"%u\"} %u\n",
                                 i, s->rings[i].owner != 0);
    }

    ngx_http_llm_capture_out_one(o, "ring_capacity_bytes", "gauge",
        "Bytes of each queue.", s->ring_size);
    ngx_http_llm_capture_out_one(o, "arena_used_bytes", "gauge",
        "Bytes in use for slow uploads and requests that wait for an answer.",
        s->arena_used);
    ngx_http_llm_capture_out_one(o, "arena_capacity_bytes", "gauge",
        "Bytes there for these.", s->arena);

    if (s->lag) {
        ngx_http_llm_capture_out_ms(o, "lag_seconds",
            "From the arrival of a request to its line, as last written.",
            s->lag - 1);
    }

    ngx_http_llm_capture_out_ms(o, "waiting_seconds",
        "Age of the oldest request that waits to be written.", s->waits);
}


static void
ngx_http_llm_capture_out_helper(ngx_http_llm_capture_out_t *o,
    const ngx_http_llm_capture_stat_t *s)
{
    const char  *name;

    ngx_http_llm_capture_out_one(o, "helper_up", "gauge",
        "Whether a helper process is there.", s->helper != 0);
    ngx_http_llm_capture_out_one(o, "helper_starts_total", "counter",
        "Helper processes started, by reloads too.", s->starts);
    ngx_http_llm_capture_out_ms(o, "helper_start_time_seconds",
        "When the last one was.", s->started);
    ngx_http_llm_capture_out_one(o, "draining_zones", "gauge",
        "Queues that reloads replaced and that are not empty yet.",
        s->draining);

    name = "last_error_timestamp_seconds";

    ngx_http_llm_capture_out_family(o, name, "gauge",
                                    "When a write failed last.");

    if (s->failed) {
        ngx_http_llm_capture_out(o, "llm_capture_%s{path=\"", name);
        ngx_http_llm_capture_out_value(o, s->error_name);
        ngx_http_llm_capture_out(o, "\",errno=\"%s\"} %llu\n",
                                 s->error,
                                 (unsigned long long) s->failed / 1000);
    }
}


char *
ngx_http_llm_capture_stat_prometheus(const ngx_http_llm_capture_stat_t *s,
    size_t *len)
{
    ngx_http_llm_capture_out_t  o;

    memset(&o, 0, sizeof(ngx_http_llm_capture_out_t));

    ngx_http_llm_capture_out_one(&o, "capturing", "gauge",
        "Whether anything is configured to be captured.", s->capturing);
    ngx_http_llm_capture_out_family(&o, "build_info", "gauge",
                                    "Versions of the module and of nginx.");
    ngx_http_llm_capture_out(&o, "llm_capture_build_info{version=\"%s\","
                             "nginx=\"%s\"} 1\n", s->version, s->nginx);

    if (s->capturing) {
        ngx_http_llm_capture_out_sums(&o, s);
        ngx_http_llm_capture_out_lines(&o, s);
        ngx_http_llm_capture_out_queue(&o, s);
        ngx_http_llm_capture_out_helper(&o, s);
    }

    if (o.failed) {
        free(o.p);
        o.p = NULL;
        o.len = 0;
    }

    *len = o.len;

    return o.p;
}
