
/*
 * Copyright (C) the llm-capture authors
 */

/* what llm_capture_control said, and what became of it */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "ngx_http_llm_capture_stat.h"


static const char *const  ngx_http_llm_capture_mode_names[] = {
    "", "on", "off", "reset"
};

static const char *const  ngx_http_llm_capture_ended_names[] = {
    "", "duration", "records", "bytes"
};


void
ngx_http_llm_capture_stat_said(ngx_http_llm_capture_stat_said_t *said,
    const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_stat_conf_t *conf, uint32_t at)
{
    const ngx_http_llm_capture_said_t  *s;

    s = &v->said[at];

    memset(said, 0, sizeof(ngx_http_llm_capture_stat_said_t));

    if (s->mode == NGX_HTTP_LLM_CAPTURE_MODE_NONE
        || (s->mode == NGX_HTTP_LLM_CAPTURE_MODE_OFF
            && s->until && conf->now >= s->until))
    {
        return;
    }

    said->mode = s->mode;
    said->since = s->since;
    said->rate = s->rate;
    said->records = s->records;
    said->bytes = s->bytes;

    said->until = s->until ? s->since + s->duration : 0;

    if (s->mode == NGX_HTTP_LLM_CAPTURE_MODE_ON) {
        said->ended = ngx_http_llm_capture_control_ended(v, z, at, conf->now);
    }

    ngx_http_llm_capture_control_left(v, z, at, &said->records_left,
                                      &said->bytes_left);

    if (s->name_len) {
        said->match[0] = '$';
        memcpy(said->match + 1, s->match, s->name_len);
        said->match[1 + s->name_len] = ':';
        memcpy(said->match + 2 + s->name_len, s->match + s->name_len,
               s->value_len);
        ngx_http_llm_capture_stat_text(said->match,
                                       2 + s->name_len + s->value_len);
    }
}


static json_t *
ngx_http_llm_capture_said_n(uint64_t n)
{
    return n ? json_integer((json_int_t) (n & INT64_MAX)) : json_null();
}


static json_t *
ngx_http_llm_capture_said_text(const char *s)
{
    return s[0] ? json_string(s) : json_null();
}


static json_t *
ngx_http_llm_capture_said_budget(uint64_t limit, uint64_t left)
{
    return limit ? json_pack("{s:I, s:I}",
                             "limit", (json_int_t) (limit & INT64_MAX),
                             "left", (json_int_t) (left & INT64_MAX))
                 : json_null();
}


/* null: nothing was said */

static json_t *
ngx_http_llm_capture_said(const ngx_http_llm_capture_stat_said_t *s)
{
    if (s->mode == NGX_HTTP_LLM_CAPTURE_MODE_NONE) {
        return json_null();
    }

    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "capture", ngx_http_llm_capture_mode_names[s->mode],
        "ended", ngx_http_llm_capture_said_text(
                              ngx_http_llm_capture_ended_names[s->ended]),
        "since", ngx_http_llm_capture_said_n(s->since),
        "until", ngx_http_llm_capture_said_n(s->until),
        "sample_rate", s->rate > (uint64_t) 1 << 32 ? json_null()
                            : json_real((double) s->rate / 4294967296.0),
        "records", ngx_http_llm_capture_said_budget(s->records,
                                                    s->records_left),
        "bytes", ngx_http_llm_capture_said_budget(s->bytes, s->bytes_left),
        "match", ngx_http_llm_capture_said_text(s->match));
}


void *
ngx_http_llm_capture_stat_control(const ngx_http_llm_capture_stat_t *s)
{
    int       bad;
    json_t   *list, *o;
    uint32_t  i;

    list = json_array();
    bad = 0;

    for (i = 0; i < s->nrows; i++) {

        if (s->rows[i].said.mode == NGX_HTTP_LLM_CAPTURE_MODE_NONE) {
            continue;
        }

        o = ngx_http_llm_capture_said(&s->rows[i].said);

        bad |= json_object_set_new(o, "path", json_string(s->rows[i].name));
        bad |= json_array_append_new(list, o);
    }

    if (bad) {
        json_decref(list);
        return NULL;
    }

    return json_pack("{s:o, s:o}",
                     "all", ngx_http_llm_capture_said(&s->total.said),
                     "destinations", list);
}


char *
ngx_http_llm_capture_stat_control_json(const ngx_http_llm_capture_stat_t *s,
    size_t *len)
{
    char    *text;
    json_t  *o;

    o = ngx_http_llm_capture_stat_control(s);
    text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);

    *len = text ? strlen(text) : 0;

    return text;
}
