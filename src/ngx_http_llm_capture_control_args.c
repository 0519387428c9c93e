
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ngx_http_llm_capture_args.h"
#include "ngx_http_llm_capture_control.h"


/* ms; a year is nearly for ever */
#define NGX_HTTP_LLM_CAPTURE_LONGEST  (366ULL * 24 * 3600 * 1000)

/* bytes of an unknown name that are told */
#define NGX_HTTP_LLM_CAPTURE_TOLD     32


typedef struct {
    const char   *name;
    unsigned      on_only:1;
    /* 0; -1: it is not what it must be */
    int         (*set)(ngx_http_llm_capture_order_t *order, const char *s,
                      size_t n);
    const char   *must;
} ngx_http_llm_capture_control_arg_t;


static int ngx_http_llm_capture_control_set_capture(
    ngx_http_llm_capture_order_t *order, const char *s, size_t n);
static int ngx_http_llm_capture_control_set_path(
    ngx_http_llm_capture_order_t *order, const char *s, size_t n);
static int ngx_http_llm_capture_control_set_rate(
    ngx_http_llm_capture_order_t *order, const char *s, size_t n);
static int ngx_http_llm_capture_control_set_records(
    ngx_http_llm_capture_order_t *order, const char *s, size_t n);
static int ngx_http_llm_capture_control_set_bytes(
    ngx_http_llm_capture_order_t *order, const char *s, size_t n);
static int ngx_http_llm_capture_control_set_match(
    ngx_http_llm_capture_order_t *order, const char *s, size_t n);
static int ngx_http_llm_capture_control_set_duration(
    ngx_http_llm_capture_order_t *order, const char *s, size_t n);


static const ngx_http_llm_capture_control_arg_t
    ngx_http_llm_capture_control_args[] =
{
    { "capture", 0, ngx_http_llm_capture_control_set_capture,
      "be on, off or reset" },
    { "path", 0, ngx_http_llm_capture_control_set_path,
      "be a path as configured" },
    { "duration", 0, ngx_http_llm_capture_control_set_duration,
      "be a time up to a year, such as 30s, 10m or 2h" },
    { "sample_rate", 1, ngx_http_llm_capture_control_set_rate,
      "be a number from 0 to 1, such as 0.25" },
    { "records", 1, ngx_http_llm_capture_control_set_records,
      "be a whole number from 1, such as 1000" },
    { "bytes", 1, ngx_http_llm_capture_control_set_bytes,
      "be a size from 1, such as 64k, 100m or 1g" },
    { "match", 1, ngx_http_llm_capture_control_set_match,
      "be $variable:value, of 256 bytes at most" }
};

#define NGX_HTTP_LLM_CAPTURE_ARGS                                             \
    (sizeof(ngx_http_llm_capture_control_args)                                \
     / sizeof(ngx_http_llm_capture_control_args[0]))


static int __attribute__((format(printf, 2, 3)))
ngx_http_llm_capture_control_why(ngx_http_llm_capture_order_t *order,
    const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    (void) vsnprintf(order->why, sizeof(order->why), fmt, args);
    va_end(args);

    return -1;
}


static int
ngx_http_llm_capture_control_is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}


static int
ngx_http_llm_capture_control_set_capture(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    if (ngx_http_llm_capture_control_is(s, n, "on")) {
        order->mode = NGX_HTTP_LLM_CAPTURE_MODE_ON;

    } else if (ngx_http_llm_capture_control_is(s, n, "off")) {
        order->mode = NGX_HTTP_LLM_CAPTURE_MODE_OFF;

    } else if (ngx_http_llm_capture_control_is(s, n, "reset")) {
        order->mode = NGX_HTTP_LLM_CAPTURE_MODE_RESET;

    } else {
        return -1;
    }

    return 0;
}


/* whether there is one is up to the caller */

static int
ngx_http_llm_capture_control_set_path(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    if (n == 0) {
        return -1;
    }

    memcpy(order->path, s, n);
    order->path_len = n;

    return 0;
}


static int
ngx_http_llm_capture_control_set_rate(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    return ngx_http_llm_capture_args_rate(s, n, &order->rate);
}


static int
ngx_http_llm_capture_control_set_records(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    /* a size without its k, m and g */

    if (n && (s[n - 1] < '0' || s[n - 1] > '9')) {
        return -1;
    }

    return ngx_http_llm_capture_args_size(s, n, NGX_HTTP_LLM_CAPTURE_BUDGET,
                                          &order->records);
}


static int
ngx_http_llm_capture_control_set_bytes(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    return ngx_http_llm_capture_args_size(s, n, NGX_HTTP_LLM_CAPTURE_BUDGET,
                                          &order->bytes);
}


static int
ngx_http_llm_capture_control_set_duration(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    size_t    i;
    uint64_t  ms;

    static const struct {
        const char  *name;
        uint64_t     ms;
    } units[] = {
        { "ms", 1 }, { "s", 1000 }, { "m", 60 * 1000 }, { "h", 3600 * 1000 },
        { "d", 24 * 3600 * 1000 }, { "", 1000 }
    };

    ms = 0;

    for (i = 0; i < n && s[i] >= '0' && s[i] <= '9'; i++) {
        ms = ms * 10 + (uint64_t) (s[i] - '0');

        if (ms > NGX_HTTP_LLM_CAPTURE_LONGEST) {
            return -1;
        }
    }

    s += i;
    n -= i;

    for (i = 0; !ngx_http_llm_capture_control_is(s, n, units[i].name); i++) {
        if (units[i].name[0] == '\0') {
            return -1;
        }
    }

    /* both factors are far from where this could wrap */

    ms *= units[i].ms;

    if (ms == 0 || ms > NGX_HTTP_LLM_CAPTURE_LONGEST) {
        return -1;
    }

    order->duration = ms;

    return 0;
}


/* the name in lower case, as nginx looks it up, and the value behind it */

static int
ngx_http_llm_capture_control_set_match(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    char      c;
    uint32_t  i;

    if (n < 3 || s[0] != '$' || n - 2 > NGX_HTTP_LLM_CAPTURE_MATCH) {
        return -1;
    }

    s++;
    n--;

    for (i = 0; i < n && s[i] != ':'; i++) {
        c = s[i];

        if (c >= 'A' && c <= 'Z') {
            c = (char) (c | 0x20);
        }

        if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_') {
            return -1;
        }

        order->match[i] = c;
    }

    if (i == 0 || i == n) {
        return -1;
    }

    order->name_len = i;
    order->value_len = (uint32_t) n - i - 1;
    memcpy(order->match + i, s + i + 1, order->value_len);

    return 0;
}


static int
ngx_http_llm_capture_control_hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
           : -1;
}


/* bytes of s without its "%xx"; -1: wrong ones, NUL, or more than size */

static int
ngx_http_llm_capture_control_unescape(char *to, size_t size, const char *s,
    size_t n)
{
    int     high, low;
    char    c;
    size_t  i, len;

    for (i = 0, len = 0; i < n; i++) {
        c = s[i];

        if (c == '%') {
            if (n - i < 3) {
                return -1;
            }

            high = ngx_http_llm_capture_control_hex(s[i + 1]);
            low = ngx_http_llm_capture_control_hex(s[i + 2]);

            if (high < 0 || low < 0) {
                return -1;
            }

            c = (char) (high << 4 | low);
            i += 2;
        }

        if (c == '\0' || len == size) {
            return -1;
        }

        to[len++] = c;
    }

    return (int) len;
}


static int
ngx_http_llm_capture_control_unknown(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n)
{
    char    name[NGX_HTTP_LLM_CAPTURE_TOLD];
    size_t  i;

    if (n > sizeof(name)) {
        n = sizeof(name);
    }

    for (i = 0; i < n; i++) {
        name[i] = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z')
                  || (s[i] >= '0' && s[i] <= '9') || s[i] == '_'
                  ? s[i] : '?';
    }

    return ngx_http_llm_capture_control_why(order, "%.*s: no such argument",
                                            (int) n, name);
}


static int
ngx_http_llm_capture_control_argument(ngx_http_llm_capture_order_t *order,
    const char *s, size_t n, unsigned *given)
{
    int                                        len;
    char                                       value[NGX_HTTP_LLM_CAPTURE_PATH];
    size_t                                     name;
    unsigned                                   i;
    const ngx_http_llm_capture_control_arg_t  *a;

    for (name = 0; name < n && s[name] != '='; name++) { /* void */ }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_ARGS; i++) {
        a = &ngx_http_llm_capture_control_args[i];

        if (!ngx_http_llm_capture_control_is(s, name, a->name)) {
            continue;
        }

        if (*given & 1U << i) {
            return ngx_http_llm_capture_control_why(order, "%s: given twice",
                                                    a->name);
        }

        *given |= 1U << i;

        len = name == n ? -1
              : ngx_http_llm_capture_control_unescape(value, sizeof(value),
                                                      s + name + 1,
                                                      n - name - 1);

        if (len < 0 || a->set(order, value, (size_t) len) != 0) {
            return ngx_http_llm_capture_control_why(order, "%s: it must %s",
                                                    a->name, a->must);
        }

        return 0;
    }

    return ngx_http_llm_capture_control_unknown(order, s, name);
}


int
ngx_http_llm_capture_control_parse(ngx_http_llm_capture_order_t *order,
    const char *args, size_t len)
{
    size_t                                     n;
    unsigned                                   i, given;
    const ngx_http_llm_capture_control_arg_t  *a;

    memset(order, 0, sizeof(ngx_http_llm_capture_order_t));

    order->rate = NGX_HTTP_LLM_CAPTURE_RATE_NONE;
    given = 0;

    while (len) {
        for (n = 0; n < len && args[n] != '&'; n++) { /* void */ }

        if (n && ngx_http_llm_capture_control_argument(order, args, n, &given)
                 != 0)
        {
            return -1;
        }

        n += n < len;
        args += n;
        len -= n;
    }

    if (!(given & 1)) {
        a = &ngx_http_llm_capture_control_args[0];
        return ngx_http_llm_capture_control_why(order, "%s: it must %s",
                                                a->name, a->must);
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_ARGS; i++) {
        a = &ngx_http_llm_capture_control_args[i];

        if ((given & 1U << i) && a->on_only
            && order->mode != NGX_HTTP_LLM_CAPTURE_MODE_ON)
        {
            return ngx_http_llm_capture_control_why(order,
                                            "%s: only with capture=on",
                                            a->name);
        }
    }

    if (order->duration && order->mode == NGX_HTTP_LLM_CAPTURE_MODE_RESET) {
        return ngx_http_llm_capture_control_why(order,
                               "duration: only with capture=on or capture=off");
    }

    return 0;
}
