
/*
 * Copyright (C) the llm-capture authors
 */

/* how it goes, as JSON: docs/status.schema.json */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include <jansson.h>

#include "ngx_http_llm_capture_stat.h"


static json_t *
ngx_http_llm_capture_json_n(uint64_t n)
{
    return json_integer(n < INT64_MAX ? (json_int_t) n : INT64_MAX);
}


/* 0 is none */

static json_t *
ngx_http_llm_capture_json_some(uint64_t n)
{
    return n ? ngx_http_llm_capture_json_n(n) : json_null();
}


static json_t *
ngx_http_llm_capture_json_text(const char *s)
{
    return s[0] ? json_string(s) : json_null();
}


/* so many counters, and what is left of the first one */

static json_t *
ngx_http_llm_capture_json_sum(const ngx_http_llm_capture_stat_row_t *r,
    unsigned from, unsigned to, const char *left, uint64_t n)
{
    int       bad;
    json_t   *o;
    unsigned  c;

    o = json_object();
    bad = 0;

    for (c = from; c < to; c++) {
        bad |= json_object_set_new(o, ngx_http_llm_capture_counter_names[c],
                                   ngx_http_llm_capture_json_n(r->n[c]));
    }

    bad |= json_object_set_new(o, left, ngx_http_llm_capture_json_n(n));

    if (bad) {
        json_decref(o);
        return NULL;
    }

    return o;
}


static json_t *
ngx_http_llm_capture_json_row(const ngx_http_llm_capture_stat_row_t *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:{s:f, s:f}, s:o, s:o}",
        "requests", ngx_http_llm_capture_json_sum(r,
                        NGX_HTTP_LLM_CAPTURE_C_seen,
                        NGX_HTTP_LLM_CAPTURE_C_last + 1, "pending",
                        r->pending),
        "answers", ngx_http_llm_capture_json_sum(r,
                        NGX_HTTP_LLM_CAPTURE_C_answers,
                        NGX_HTTP_LLM_CAPTURE_C_max, "to_come", r->coming),
        "bytes", ngx_http_llm_capture_json_n(
                        r->n[NGX_HTTP_LLM_CAPTURE_C_bytes]),
        "write_errors", ngx_http_llm_capture_json_n(
                        r->n[NGX_HTTP_LLM_CAPTURE_C_write_errors]),
        "rate",
            "records_per_second",
                (double) r->records / NGX_HTTP_LLM_CAPTURE_RATE,
            "bytes_per_second",
                (double) r->bytes / NGX_HTTP_LLM_CAPTURE_RATE,
        "files", ngx_http_llm_capture_json_n(r->files),
        "last_line", ngx_http_llm_capture_json_some(r->written));
}


static json_t *
ngx_http_llm_capture_json_rows(const ngx_http_llm_capture_stat_t *s)
{
    int                                     bad;
    json_t                                 *list, *o;
    uint32_t                                i;
    const ngx_http_llm_capture_stat_row_t  *r;

    list = json_array();
    bad = 0;

    for (i = 0; i < s->nrows; i++) {
        r = &s->rows[i];
        o = ngx_http_llm_capture_json_row(r);

        bad |= json_object_set_new(o, "path", json_string(r->name));
        bad |= json_object_set_new(o, "format",
                 ngx_http_llm_capture_json_text(
                                      ngx_http_llm_capture_stat_format(r)));
        bad |= json_object_set_new(o, "file",
                 r->path[0] ? json_pack("{s:s, s:o}", "path", r->path, "size",
                                        ngx_http_llm_capture_json_n(r->size))
                            : json_null());
        bad |= json_array_append_new(list, o);
    }

    if (bad) {
        json_decref(list);
        return NULL;
    }

    return list;
}


static json_t *
ngx_http_llm_capture_json_rings(const ngx_http_llm_capture_stat_t *s)
{
    int                                      bad;
    json_t                                  *list;
    uint32_t                                 i;
    const ngx_http_llm_capture_stat_ring_t  *r;

    list = json_array();
    bad = 0;

    for (i = 0; i < s->nrings; i++) {
        r = &s->rings[i];

        bad |= json_array_append_new(list, json_pack("{s:o, s:o, s:o}",
                 "owner", ngx_http_llm_capture_json_some(r->owner),
                 "used", ngx_http_llm_capture_json_n(r->used),
                 "capacity", ngx_http_llm_capture_json_n(s->ring_size)));
    }

    if (bad) {
        json_decref(list);
        return NULL;
    }

    return list;
}


static json_t *
ngx_http_llm_capture_json_helper(const ngx_http_llm_capture_stat_t *s)
{
    json_t  *error;

    error = json_null();

    if (s->failed) {
        error = json_pack("{s:s, s:s, s:o}",
                    "errno", s->error,
                    "path", s->error_name,
                    "time", ngx_http_llm_capture_json_n(s->failed));
    }

    return json_pack("{s:o, s:o, s:o, s:o, s:o}",
                     "pid", ngx_http_llm_capture_json_some(s->helper),
                     "starts", ngx_http_llm_capture_json_n(s->starts),
                     "started", ngx_http_llm_capture_json_some(s->started),
                     "draining", ngx_http_llm_capture_json_n(s->draining),
                     "last_error", error);
}


static int
ngx_http_llm_capture_json_all(json_t *o, const ngx_http_llm_capture_stat_t *s)
{
    int  bad;

    bad = json_object_set_new(o, "zone",
             ngx_http_llm_capture_json_n(s->zone));
    bad |= json_object_set_new(o, "helper",
             ngx_http_llm_capture_json_helper(s));
    bad |= json_object_set_new(o, "lag_ms",
             s->lag ? ngx_http_llm_capture_json_n(s->lag - 1) : json_null());
    bad |= json_object_set_new(o, "waiting_ms",
             ngx_http_llm_capture_json_n(s->waits));
    bad |= json_object_set_new(o, "queue",
             json_pack("{s:o, s:o, s:o, s:{s:o, s:o}}",
                       "used", ngx_http_llm_capture_json_n(s->used),
                       "capacity", ngx_http_llm_capture_json_n(s->capacity),
                       "rings", ngx_http_llm_capture_json_rings(s),
                       "arena",
                       "used", ngx_http_llm_capture_json_n(s->arena_used),
                       "capacity", ngx_http_llm_capture_json_n(s->arena)));
    bad |= json_object_set_new(o, "control",
             ngx_http_llm_capture_stat_control(s));
    bad |= json_object_set_new(o, "total",
             ngx_http_llm_capture_json_row(&s->total));
    bad |= json_object_set_new(o, "destinations",
             ngx_http_llm_capture_json_rows(s));

    return bad;
}


char *
ngx_http_llm_capture_stat_json(const ngx_http_llm_capture_stat_t *s,
    size_t *len)
{
    char    *text;
    json_t  *o;

    o = json_pack("{s:b, s:s, s:s, s:o}",
                  "capturing", (int) s->capturing,
                  "version", s->version,
                  "nginx", s->nginx,
                  "time", ngx_http_llm_capture_json_n(s->wall));

    text = NULL;

    if (o && (!s->capturing || ngx_http_llm_capture_json_all(o, s) == 0)) {
        text = json_dumps(o, JSON_COMPACT);
    }

    json_decref(o);

    *len = text ? strlen(text) : 0;

    return text;
}
