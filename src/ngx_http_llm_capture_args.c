
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "ngx_http_llm_capture_args.h"
#include "ngx_http_llm_capture_path.h"


/* decimal digits of the finest step, 2^-32: later ones cannot reach another */
#define DIGITS   32
/* bytes of a value shown in a warning */
#define SHOWN    64


typedef struct {
    ngx_http_llm_capture_args_warn_pt   warn;
    void                               *data;
} ngx_http_llm_capture_args_log_t;


typedef struct {
    const char  *name;
    /* 0, or what the value must be, if it is not */
    const char *(*set)(ngx_http_llm_capture_args_t *args, json_t *value);
    const char  *instead;       /* what is used then */
} ngx_http_llm_capture_args_key_t;


static const char *ngx_http_llm_capture_args_set_path(
    ngx_http_llm_capture_args_t *args, json_t *value);
static const char *ngx_http_llm_capture_args_set_format(
    ngx_http_llm_capture_args_t *args, json_t *value);
static const char *ngx_http_llm_capture_args_set_request(
    ngx_http_llm_capture_args_t *args, json_t *value);
static const char *ngx_http_llm_capture_args_set_rate(
    ngx_http_llm_capture_args_t *args, json_t *value);
static const char *ngx_http_llm_capture_args_set_pattern(
    ngx_http_llm_capture_args_t *args, json_t *value);
static const char *ngx_http_llm_capture_args_set_queue(
    ngx_http_llm_capture_args_t *args, json_t *value);


static const ngx_http_llm_capture_args_key_t  ngx_http_llm_capture_args_keys[] =
{
    { "path", ngx_http_llm_capture_args_set_path,
      "requests are not captured to it or elsewhere" },

    { "format", ngx_http_llm_capture_args_set_format,
      "\"mooncake_payload\" is used" },

    { "max_request_bytes", ngx_http_llm_capture_args_set_request,
      "1048576 is used" },

    { "sample_rate", ngx_http_llm_capture_args_set_rate,
      "1.0 is used" },

    { "endpoint_pattern", ngx_http_llm_capture_args_set_pattern,
      "\"" NGX_HTTP_LLM_CAPTURE_PATTERN "\" is used" },

    { "max_queue_bytes", ngx_http_llm_capture_args_set_queue,
      "1073741824 is used" },

    { NULL, NULL, NULL }
};


static void
ngx_http_llm_capture_args_defaults(ngx_http_llm_capture_args_t *args)
{
    memset(args, 0, sizeof(ngx_http_llm_capture_args_t));

    args->path = "/opt/nim/captures/requests.jsonl";
    args->path_len = strlen(args->path);
    args->format = NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD;
    args->max_request_bytes = 1048576;
    args->sample_rate = (uint64_t) 1 << 32;
    args->pattern = NGX_HTTP_LLM_CAPTURE_PATTERN;
    args->pattern_len = strlen(args->pattern);
    args->max_queue_bytes = 1073741824;
}


static void
ngx_http_llm_capture_args_warn(ngx_http_llm_capture_args_log_t *log,
    const char *fmt, ...)
{
    char     text[512], *p;
    va_list  ap;

    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);

    for (p = text; *p; p++) {
        if (*p < 0x20 || *p > 0x7e) {
            *p = '?';
        }
    }

    log->warn(log->data, text);
}


static void
ngx_http_llm_capture_args_bad(ngx_http_llm_capture_args_log_t *log,
    const ngx_http_llm_capture_args_key_t *key, json_t *value,
    const char *allowed)
{
    char  *text;

    /* escaped: a value cannot break the line of the log */

    text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII
                             | JSON_COMPACT);

    ngx_http_llm_capture_args_warn(log,
        "invalid value %.*s%s of \"%s\", it must be %s; %s", SHOWN,
        text ? text : "", text && strlen(text) > SHOWN ? "..." : "",
        key->name, allowed, key->instead);

    free(text);
}


void
ngx_http_llm_capture_args_parse(ngx_http_llm_capture_args_t *args,
    const char *text, size_t len, ngx_http_llm_capture_args_warn_pt warn,
    void *data)
{
    json_t                                 *root, *value;
    const char                             *name, *allowed;
    json_error_t                            err;
    ngx_http_llm_capture_args_log_t         log;
    const ngx_http_llm_capture_args_key_t  *key;

    log.warn = warn;
    log.data = data;

    ngx_http_llm_capture_args_defaults(args);

    /*
     * Integers as doubles: jansson refuses the text for one beyond 2^63, where
     * NIM sees a bad value of one key, and 2^53 bytes are enough
     */

    root = json_loadb(text, len, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
                      &err);

    if (root == NULL) {
        args->off = 1;
        ngx_http_llm_capture_args_warn(&log,
            "invalid JSON at line %d, column %d; nothing is captured",
            err.line, err.column);
        return;
    }

    args->json = root;

    if (!json_is_object(root)) {
        args->off = 1;
        ngx_http_llm_capture_args_warn(&log,
            "not a JSON object; nothing is captured");
        return;
    }

    json_object_foreach(root, name, value) {

        for (key = ngx_http_llm_capture_args_keys; key->name; key++) {
            if (strcmp(key->name, name) == 0) {
                break;
            }
        }

        if (key->name == NULL) {
            ngx_http_llm_capture_args_warn(&log,
                "unknown key \"%.*s\" is ignored", SHOWN, name);
            continue;
        }

        allowed = key->set(args, value);

        if (allowed) {
            ngx_http_llm_capture_args_bad(&log, key, value, allowed);
        }
    }
}


void
ngx_http_llm_capture_args_free(ngx_http_llm_capture_args_t *args)
{
    json_decref(args->json);
    args->json = NULL;
}


/* a string without NUL; NULL if it is not that */

static const char *
ngx_http_llm_capture_args_string(json_t *value, size_t *len)
{
    const char  *s;

    if (!json_is_string(value)) {
        return NULL;
    }

    s = json_string_value(value);
    *len = json_string_length(value);

    return strlen(s) == *len ? s : NULL;
}


static const char *
ngx_http_llm_capture_args_set_path(ngx_http_llm_capture_args_t *args,
    json_t *value)
{
    size_t       len;
    const char  *s;

    s = ngx_http_llm_capture_args_string(value, &len);

    if (s && ngx_http_llm_capture_path_check(s, len, 0, 0) == NULL) {
        args->path = s;
        args->path_len = len;
        return NULL;
    }

    args->bad_path = 1;

    return "the absolute path of a file, of at most 4000 bytes";
}


static const char *
ngx_http_llm_capture_args_set_format(ngx_http_llm_capture_args_t *args,
    json_t *value)
{
    size_t                          len;
    const char                     *s;
    ngx_http_llm_capture_format_e   format;

    s = ngx_http_llm_capture_args_string(value, &len);

    /* NIM has two */

    if (s && ngx_http_llm_capture_args_format(s, len, &format) == 0
        && !ngx_http_llm_capture_is_trace(format))
    {
        args->format = format;
        return NULL;
    }

    return "\"mooncake_payload\" or \"raw_payload\"";
}


static const char *
ngx_http_llm_capture_args_set_size(json_t *value, uint64_t most,
    uint64_t *size)
{
    double  d;

    if (!json_is_real(value)) {
        return "a number";
    }

    d = json_real_value(value);

    /* written so that the cast is defined for what passes */

    if (!(d >= 1 && d <= (double) most) || d != (double) (uint64_t) d) {
        return "a number";
    }

    *size = (uint64_t) d;

    return NULL;
}


static const char *
ngx_http_llm_capture_args_set_request(ngx_http_llm_capture_args_t *args,
    json_t *value)
{
    if (ngx_http_llm_capture_args_set_size(value,
                                           NGX_HTTP_LLM_CAPTURE_REQUEST_MOST,
                                           &args->max_request_bytes))
    {
        return "a whole number from 1 to 1073741824";
    }

    return NULL;
}


static const char *
ngx_http_llm_capture_args_set_queue(ngx_http_llm_capture_args_t *args,
    json_t *value)
{
    if (ngx_http_llm_capture_args_set_size(value,
                                           NGX_HTTP_LLM_CAPTURE_QUEUE_MOST,
                                           &args->max_queue_bytes))
    {
        return "a whole number from 1 to 1099511627776";
    }

    return NULL;
}


static const char *
ngx_http_llm_capture_args_set_rate(ngx_http_llm_capture_args_t *args,
    json_t *value)
{
    double  d;

    d = json_is_real(value) ? json_real_value(value) : -1;

    if (!(d >= 0 && d <= 1)) {
        return "a number from 0 to 1";
    }

    /* exact: a scaling by a power of two */

    args->sample_rate = (uint64_t) (d * 4294967296.0);

    if (args->sample_rate == 0 && d > 0) {
        args->sample_rate = 1;
    }

    return NULL;
}


static const char *
ngx_http_llm_capture_args_set_pattern(ngx_http_llm_capture_args_t *args,
    json_t *value)
{
    size_t       len;
    const char  *s;

    s = ngx_http_llm_capture_args_string(value, &len);

    if (s == NULL || len == 0) {
        return "a regular expression";
    }

    args->pattern = s;
    args->pattern_len = len;

    return NULL;
}


int
ngx_http_llm_capture_args_size(const char *s, size_t n, uint64_t most,
    uint64_t *size)
{
    size_t    i;
    uint64_t  value, scale;

    scale = 1;

    switch (n ? s[n - 1] : '\0') {

    case 'g': case 'G':
        scale *= 1024;
        /* fall through */

    case 'm': case 'M':
        scale *= 1024;
        /* fall through */

    case 'k': case 'K':
        scale *= 1024;
        n--;
        break;
    }

    if (n == 0) {
        return -1;
    }

    value = 0;

    for (i = 0; i < n; i++) {

        if (s[i] < '0' || s[i] > '9') {
            return -1;
        }

        value = value * 10 + (uint64_t) (s[i] - '0');

        /* most is far from where this could wrap */

        if (value > most / scale) {
            return -1;
        }
    }

    if (value == 0) {
        return -1;
    }

    *size = value * scale;

    return 0;
}


int
ngx_http_llm_capture_args_rate(const char *s, size_t n, uint64_t *rate)
{
    int       whole, more;
    size_t    i, k;
    uint8_t   d[DIGITS];
    uint64_t  value;
    unsigned  bit;

    if (n == 0 || (s[0] != '0' && s[0] != '1')
        || (n > 1 && (s[1] != '.' || n == 2)))
    {
        return -1;
    }

    whole = s[0] - '0';
    more = 0;
    memset(d, 0, sizeof(d));

    for (i = 2, k = 0; i < n; i++, k++) {

        if (s[i] < '0' || s[i] > '9') {
            return -1;
        }

        more |= (s[i] != '0');

        if (k < DIGITS) {
            d[k] = (uint8_t) (s[i] - '0');
        }
    }

    if (whole) {
        if (more) {
            return -1;
        }

        *rate = (uint64_t) 1 << 32;

        return 0;
    }

    /* doubled in decimal, the carry out of the fraction is its next bit */

    value = 0;

    for (bit = 0; bit < 32; bit++) {
        int  carry = 0;

        for (k = DIGITS; k-- > 0; ) {
            carry += d[k] * 2;
            d[k] = (uint8_t) (carry % 10);
            carry /= 10;
        }

        value = value << 1 | (uint64_t) carry;
    }

    *rate = value == 0 && more ? 1 : value;

    return 0;
}


const char *const
    ngx_http_llm_capture_format_names[NGX_HTTP_LLM_CAPTURE_FORMATS] =
{
    "mooncake_payload", "raw_payload", "mooncake_trace", "baseten_trace"
};


int
ngx_http_llm_capture_args_format(const char *s, size_t n,
    ngx_http_llm_capture_format_e *format)
{
    unsigned     i;
    const char  *name;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_FORMATS; i++) {
        name = ngx_http_llm_capture_format_names[i];

        if (strlen(name) == n && memcmp(name, s, n) == 0) {
            *format = (ngx_http_llm_capture_format_e) i;
            return 0;
        }
    }

    return -1;
}
