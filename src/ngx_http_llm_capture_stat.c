
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "ngx_http_llm_capture_stat.h"


/* tries for a path that is being changed */
#define NGX_HTTP_LLM_CAPTURE_TRIES    4


size_t
ngx_http_llm_capture_stat_size(const ngx_http_llm_capture_zone_t *z)
{
    return sizeof(ngx_http_llm_capture_stat_t)
           + (z ? z->nrings * sizeof(ngx_http_llm_capture_stat_ring_t) : 0);
}


static inline uint64_t
ngx_http_llm_capture_stat_get(_Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}


void
ngx_http_llm_capture_stat_text(char *s, size_t len)
{
    size_t   i;
    json_t  *valid;

    for (i = 0; i < len; i++) {
        if ((unsigned char) s[i] < 0x20 || s[i] == 0x7f) {
            s[i] = '?';
        }
    }

    s[len] = '\0';

    /* jansson takes UTF-8 alone */

    valid = json_stringn(s, len);

    if (valid) {
        json_decref(valid);
        return;
    }

    for (i = 0; i < len; i++) {
        if ((unsigned char) s[i] >= 0x80) {
            s[i] = '?';
        }
    }
}


static void
ngx_http_llm_capture_stat_name(
    const ngx_http_llm_capture_stat_conf_t *conf, uint32_t row,
    char name[NGX_HTTP_LLM_CAPTURE_STAT_NAME])
{
    size_t  len;

    len = conf->name(conf->ctx, row, name);

    if (len > NGX_HTTP_LLM_CAPTURE_TEXT) {
        len = NGX_HTTP_LLM_CAPTURE_TEXT;
    }

    ngx_http_llm_capture_stat_text(name, len);

    /* two that begin alike are still told apart */

    if (len == NGX_HTTP_LLM_CAPTURE_TEXT) {
        (void) snprintf(name + len, NGX_HTTP_LLM_CAPTURE_CUT, "... (%u)", row);
    }
}


/* of a time of the zone, in ms since 1970; one to come is none */

static uint64_t
ngx_http_llm_capture_stat_time(
    const ngx_http_llm_capture_stat_conf_t *conf, uint64_t mono)
{
    if (mono == 0 || mono > conf->now || conf->now - mono >= conf->wall) {
        return 0;
    }

    return conf->wall - (conf->now - mono);
}


static void
ngx_http_llm_capture_stat_rate(ngx_http_llm_capture_live_row_t *live,
    uint64_t now, ngx_http_llm_capture_stat_row_t *r)
{
    uint64_t                        i, second, records, bytes;
    ngx_http_llm_capture_second_t  *s;

    /* whole ones: the present one would pull it down */

    for (i = 1; i <= NGX_HTTP_LLM_CAPTURE_RATE; i++) {
        second = now / 1000 - i;
        s = &live->seconds[second % NGX_HTTP_LLM_CAPTURE_SECONDS];

        if (atomic_load_explicit(&s->second, memory_order_acquire) != second) {
            continue;
        }

        records = ngx_http_llm_capture_stat_get(&s->records);
        bytes = ngx_http_llm_capture_stat_get(&s->bytes);

        r->records += records;
        r->bytes += bytes;
    }
}


static void
ngx_http_llm_capture_stat_path(ngx_http_llm_capture_live_row_t *live,
    ngx_http_llm_capture_stat_row_t *r)
{
    size_t    i;
    uint32_t  n, len, try;
    uint64_t  word;

    for (try = 0; try < NGX_HTTP_LLM_CAPTURE_TRIES; try++) {

        n = atomic_load_explicit(&live->changes, memory_order_acquire);
        len = atomic_load_explicit(&live->path_len, memory_order_acquire);

        if (len > NGX_HTTP_LLM_CAPTURE_SHOW) {
            len = NGX_HTTP_LLM_CAPTURE_SHOW;
        }

        for (i = 0; i < len; i += sizeof(word)) {
            word = atomic_load_explicit(&live->path[i / sizeof(word)],
                                        memory_order_acquire);
            memcpy(r->path + i, &word, len - i < sizeof(word) ? len - i
                                                              : sizeof(word));
        }

        if (n % 2 == 0
            && n == atomic_load_explicit(&live->changes, memory_order_relaxed))
        {
            ngx_http_llm_capture_stat_text(r->path, len);
            return;
        }
    }

    /* never shown in parts */

    r->path[0] = '\0';
}


static void
ngx_http_llm_capture_stat_row(ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_stat_conf_t *conf, uint32_t row,
    ngx_http_llm_capture_stat_row_t *r)
{
    unsigned                          c;
    ngx_http_llm_capture_live_row_t  *live;

    memset(r, 0, sizeof(ngx_http_llm_capture_stat_row_t));

    ngx_http_llm_capture_stat_name(conf, row, r->name);

    r->format = NGX_HTTP_LLM_CAPTURE_FORMATS;

    if (row < NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
        r->format = *(volatile uint32_t *)
                        &ngx_http_llm_capture_zone_hdr(z)->templates[row]
                             .format;
    }

    ngx_http_llm_capture_zone_sum(z, row, r->n);

    r->pending = ngx_http_llm_capture_zone_pending(r->n);
    r->coming = r->n[NGX_HTTP_LLM_CAPTURE_C_answers];

    for (c = NGX_HTTP_LLM_CAPTURE_C_answers + 1;
         c < NGX_HTTP_LLM_CAPTURE_C_max;
         c++)
    {
        r->coming -= r->n[c] < r->coming ? r->n[c] : r->coming;
    }

    ngx_http_llm_capture_stat_said(&r->said, v, z, conf, row);
    r->controlled = ngx_http_llm_capture_control_at(v, row, conf->now)
                    != NGX_HTTP_LLM_CAPTURE_NONE;

    live = &ngx_http_llm_capture_zone_live(z)->rows[row];

    r->files = ngx_http_llm_capture_stat_get(&live->files);
    r->size = ngx_http_llm_capture_stat_get(&live->size);
    r->written = ngx_http_llm_capture_stat_time(conf,
                            ngx_http_llm_capture_stat_get(&live->written));

    ngx_http_llm_capture_stat_rate(live, conf->now, r);
    ngx_http_llm_capture_stat_path(live, r);
}


static void
ngx_http_llm_capture_stat_total(ngx_http_llm_capture_stat_row_t *total,
    const ngx_http_llm_capture_stat_row_t *r)
{
    unsigned  c;

    for (c = 0; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
        total->n[c] += r->n[c];
    }

    total->pending += r->pending;
    total->coming += r->coming;
    total->records += r->records;
    total->bytes += r->bytes;
    total->files += r->files;

    if (r->written > total->written) {
        total->written = r->written;
    }
}


void
ngx_http_llm_capture_stat_waits(ngx_http_llm_capture_stat_t *s, uint64_t now,
    uint64_t mono)
{
    if (mono && mono < now && now - mono > s->waits) {
        s->waits = now - mono;
    }
}


/* what a write, or what comes before it, ends with */

static const struct {
    int          error;
    const char  *name;
} ngx_http_llm_capture_errors[] = {

#define NGX_HTTP_LLM_CAPTURE_ERROR(name)  { name, #name }

    NGX_HTTP_LLM_CAPTURE_ERROR(EACCES),
    NGX_HTTP_LLM_CAPTURE_ERROR(EDQUOT),
    NGX_HTTP_LLM_CAPTURE_ERROR(EEXIST),
    NGX_HTTP_LLM_CAPTURE_ERROR(EFBIG),
    NGX_HTTP_LLM_CAPTURE_ERROR(EINVAL),
    NGX_HTTP_LLM_CAPTURE_ERROR(EIO),
    NGX_HTTP_LLM_CAPTURE_ERROR(EISDIR),
    NGX_HTTP_LLM_CAPTURE_ERROR(ELOOP),
    NGX_HTTP_LLM_CAPTURE_ERROR(EMFILE),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENAMETOOLONG),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENFILE),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENOENT),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENOLCK),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENOMEM),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENOSPC),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENOTDIR),
    NGX_HTTP_LLM_CAPTURE_ERROR(ENXIO),
    NGX_HTTP_LLM_CAPTURE_ERROR(EPERM),
    NGX_HTTP_LLM_CAPTURE_ERROR(EROFS),
    NGX_HTTP_LLM_CAPTURE_ERROR(ESTALE)
};


static void
ngx_http_llm_capture_stat_errno(ngx_http_llm_capture_stat_t *s, int error)
{
    size_t  i;

    for (i = 0;
         i < sizeof(ngx_http_llm_capture_errors)
             / sizeof(ngx_http_llm_capture_errors[0]);
         i++)
    {
        if (ngx_http_llm_capture_errors[i].error == error) {
            (void) snprintf(s->error, sizeof(s->error), "%s",
                            ngx_http_llm_capture_errors[i].name);
            return;
        }
    }

    (void) snprintf(s->error, sizeof(s->error), "%d", error);
}


static void
ngx_http_llm_capture_stat_live(ngx_http_llm_capture_stat_t *s,
    ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_stat_conf_t *conf)
{
    uint64_t                      blocks;
    uint32_t                      row;
    ngx_http_llm_capture_live_t  *live;

    live = ngx_http_llm_capture_zone_live(z);

    s->starts = ngx_http_llm_capture_stat_get(&live->starts);
    s->started = ngx_http_llm_capture_stat_time(conf,
                            ngx_http_llm_capture_stat_get(&live->started));
    s->draining = ngx_http_llm_capture_stat_get(&live->draining);
    s->lag = ngx_http_llm_capture_stat_get(&live->lag);

    s->failed = ngx_http_llm_capture_stat_time(conf,
                            ngx_http_llm_capture_stat_get(&live->failed));

    ngx_http_llm_capture_stat_errno(s,
        (int) (atomic_load_explicit(&live->error, memory_order_relaxed)
               % 4096));

    row = atomic_load_explicit(&live->error_row, memory_order_relaxed);
    row = row < NGX_HTTP_LLM_CAPTURE_ROWS ? row
                                          : NGX_HTTP_LLM_CAPTURE_TEMPLATES;

    ngx_http_llm_capture_stat_name(conf, row, s->error_name);

    blocks = ngx_http_llm_capture_stat_get(&live->blocks);
    blocks = blocks < z->nblocks ? blocks : z->nblocks;

    s->arena_used = blocks * NGX_HTTP_LLM_CAPTURE_BLOCK;
    s->arena = (uint64_t) z->nblocks * NGX_HTTP_LLM_CAPTURE_BLOCK;

    ngx_http_llm_capture_stat_waits(s, conf->now,
                               ngx_http_llm_capture_stat_get(&live->oldest));
}


void
ngx_http_llm_capture_stat_read(ngx_http_llm_capture_stat_t *s,
    ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_stat_conf_t *conf)
{
    uint32_t                          i, n;
    ngx_http_llm_capture_view_t       v;
    ngx_http_llm_capture_stat_row_t  *r;

    memset(s, 0, ngx_http_llm_capture_stat_size(z));

    s->version = conf->version;
    s->nginx = conf->nginx;
    s->wall = conf->wall;

    if (z == NULL) {
        return;
    }

    s->capturing = 1;
    s->zone = conf->zone;
    s->helper = conf->helper;

    ngx_http_llm_capture_control_read(&v, z);
    ngx_http_llm_capture_stat_said(&s->total.said, &v, z, conf,
                                   NGX_HTTP_LLM_CAPTURE_CONTROL_ALL);

    n = atomic_load_explicit(&ngx_http_llm_capture_zone_hdr(z)->ntemplates,
                             memory_order_acquire);

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_ROWS; i++) {

        if (i >= n && i < NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
            continue;
        }

        r = &s->rows[s->nrows];
        ngx_http_llm_capture_stat_row(z, &v, conf, i, r);

        if (i < n || r->n[NGX_HTTP_LLM_CAPTURE_C_seen]) {
            s->nrows++;
            ngx_http_llm_capture_stat_total(&s->total, r);
        }
    }

    s->nrings = z->nrings;
    s->ring_size = z->ring_size;
    s->capacity = (uint64_t) z->nrings * z->ring_size;

    for (i = 0; i < z->nrings; i++) {
        ngx_http_llm_capture_stat_ring(s, z, conf, i);
    }

    ngx_http_llm_capture_stat_live(s, z, conf);
}
