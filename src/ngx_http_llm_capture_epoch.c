
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_epoch.h"


/* no clock of ours comes near; keeps every sum below within 64 bits */
#define NGX_HTTP_LLM_CAPTURE_EPOCH_MAX  ((int64_t) 1 << 53)


/* arrivals come out of memory that a worker can write */

static int64_t
ngx_http_llm_capture_epoch_clamp(uint64_t ms)
{
    if (ms > (uint64_t) NGX_HTTP_LLM_CAPTURE_EPOCH_MAX) {
        return NGX_HTTP_LLM_CAPTURE_EPOCH_MAX;
    }

    return (int64_t) ms;
}


void
ngx_http_llm_capture_epoch_set(ngx_http_llm_capture_epoch_t *e, uint64_t wall,
    uint64_t mono, uint64_t ts)
{
    e->wall = ngx_http_llm_capture_epoch_clamp(wall)
              - ngx_http_llm_capture_epoch_clamp(ts);
    e->mono = ngx_http_llm_capture_epoch_clamp(mono)
              - ngx_http_llm_capture_epoch_clamp(ts);
}


static uint64_t
ngx_http_llm_capture_epoch_since(int64_t t0, uint64_t ms)
{
    int64_t  t;

    t = ngx_http_llm_capture_epoch_clamp(ms);

    return t > t0 ? (uint64_t) (t - t0) : 0;
}


uint64_t
ngx_http_llm_capture_epoch_ts(const ngx_http_llm_capture_epoch_t *e,
    uint64_t mono)
{
    return ngx_http_llm_capture_epoch_since(e->mono, mono);
}


uint64_t
ngx_http_llm_capture_epoch_wall(const ngx_http_llm_capture_epoch_t *e,
    uint64_t wall)
{
    return ngx_http_llm_capture_epoch_since(e->wall, wall);
}


size_t
ngx_http_llm_capture_epoch_print(const ngx_http_llm_capture_epoch_t *e,
    char text[NGX_HTTP_LLM_CAPTURE_EPOCH])
{
    return (size_t) snprintf(text, NGX_HTTP_LLM_CAPTURE_EPOCH,
                             "llm_capture_epoch=1\n"
                             "wall=%" PRId64 "\n"
                             "mono=%" PRId64 "\n"
                             "boot=%s\n"
                             "dev=%" PRIu64 "\n"
                             "ino=%" PRIu64 "\n",
                             e->wall, e->mono, e->boot, e->dev, e->ino);
}


/* takes "key=" off the front and returns what follows, up to an LF */

static char *
ngx_http_llm_capture_epoch_field(char **text, const char *key)
{
    char    *value, *lf;
    size_t   len;

    len = strlen(key);

    if (strncmp(*text, key, len) != 0) {
        return NULL;
    }

    value = *text + len;
    lf = strchr(value, '\n');

    if (lf == NULL) {
        return NULL;
    }

    *lf = '\0';
    *text = lf + 1;

    return value;
}


static int
ngx_http_llm_capture_epoch_number(char **text, const char *key, int64_t *n)
{
    char  *value, *end;

    value = ngx_http_llm_capture_epoch_field(text, key);

    if (value == NULL) {
        return 0;
    }

    errno = 0;
    *n = strtoll(value, &end, 10);

    return errno == 0 && end != value && *end == '\0'
           && *n <= NGX_HTTP_LLM_CAPTURE_EPOCH_MAX
           && *n >= -NGX_HTTP_LLM_CAPTURE_EPOCH_MAX;
}


static int
ngx_http_llm_capture_epoch_id(char **text, const char *key, uint64_t *n)
{
    char  *value, *end;

    value = ngx_http_llm_capture_epoch_field(text, key);

    if (value == NULL) {
        return 0;
    }

    errno = 0;
    *n = strtoull(value, &end, 10);

    return errno == 0 && end != value && *end == '\0';
}


int
ngx_http_llm_capture_epoch_parse(ngx_http_llm_capture_epoch_t *e,
    const char *text, size_t len)
{
    char                          copy[NGX_HTTP_LLM_CAPTURE_EPOCH], *p, *boot;
    ngx_http_llm_capture_epoch_t  got;

    if (len >= sizeof(copy)) {
        return 0;
    }

    memcpy(copy, text, len);
    copy[len] = '\0';
    p = copy;

    memset(&got, 0, sizeof(ngx_http_llm_capture_epoch_t));

    boot = ngx_http_llm_capture_epoch_field(&p, "llm_capture_epoch=");

    if (boot == NULL || strcmp(boot, "1") != 0
        || !ngx_http_llm_capture_epoch_number(&p, "wall=", &got.wall)
        || !ngx_http_llm_capture_epoch_number(&p, "mono=", &got.mono))
    {
        return 0;
    }

    boot = ngx_http_llm_capture_epoch_field(&p, "boot=");

    if (boot == NULL || strlen(boot) >= sizeof(got.boot)) {
        return 0;
    }

    strcpy(got.boot, boot);

    if (!ngx_http_llm_capture_epoch_id(&p, "dev=", &got.dev)
        || !ngx_http_llm_capture_epoch_id(&p, "ino=", &got.ino))
    {
        return 0;
    }

    *e = got;

    return 1;
}
