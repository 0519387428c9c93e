
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "llm_capture.h"
#include "llm_capture_lax.h"


/* characters of a string that pydantic reads as an int */
#define LLM_CAPTURE_DIGITS  4300


/* a string's trimmed text, as Rust trims; n: 0 if it is longer than buf */

static size_t
llm_capture_trimmed(llm_capture_str_t v, char *buf, size_t size)
{
    char    *s, *p, *end;
    size_t   n, k;

    static const char *const  spaces[] = {
        " ", "\t", "\n", "\v", "\f", "\r", "\xc2\x85", "\xc2\xa0",
        "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
        "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a",
        "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
        "\xe3\x80\x80"
    };

    s = p = llm_capture_text(v);
    n = strlen(s);

    /* a NUL in it is no number */

    if (llm_capture_unescape((uint8_t *) s, llm_capture_unquote(v)) != n) {
        free(s);
        return 0;
    }

    end = s + n;

    for (k = 0; k < llm_capture_nelem(spaces); k++) {
        n = strlen(spaces[k]);

        if ((size_t) (end - p) >= n && memcmp(p, spaces[k], n) == 0) {
            p += n;
            k = (size_t) -1;
        }
    }

    for (k = 0; k < llm_capture_nelem(spaces); k++) {
        n = strlen(spaces[k]);

        if ((size_t) (end - p) >= n && memcmp(end - n, spaces[k], n) == 0) {
            end -= n;
            k = (size_t) -1;
        }
    }

    n = (size_t) (end - p);

    if (n >= size) {
        n = 0;
    }

    memcpy(buf, p, n);
    buf[n] = '\0';
    free(s);

    return n;
}


/* 5, +5, 1_000, 5.00 */

static unsigned
llm_capture_int_text(llm_capture_str_t v)
{
    char         buf[LLM_CAPTURE_DIGITS + 2];
    size_t       n;
    const char  *p;

    n = llm_capture_trimmed(v, buf, sizeof(buf));

    if (n == 0 || n > LLM_CAPTURE_DIGITS) {
        return 0;
    }

    p = buf + (buf[0] == '+' || buf[0] == '-');

    if (*p < '0' || *p > '9') {
        return 0;
    }

    while ((*p >= '0' && *p <= '9')
           || (*p == '_' && p[1] >= '0' && p[1] <= '9'))
    {
        p++;
    }

    if (*p == '.' && p[1] == '0') {
        p += 1 + strspn(p + 1, "0");
    }

    return *p == '\0';
}


static const char *
llm_capture_digits(const char *p)
{
    while (*p >= '0' && *p <= '9') {
        p++;
    }

    return p;
}


/* what Rust reads as a double, with single underscores anywhere within */

static unsigned
llm_capture_float_text(llm_capture_str_t v)
{
    char         buf[4096], *to;
    size_t       n;
    const char  *p, *q;

    n = llm_capture_trimmed(v, buf, sizeof(buf));

    if (n == 0 || buf[0] == '_' || buf[n - 1] == '_' || strstr(buf, "__")) {
        return 0;
    }

    for (p = to = buf; *p; p++) {
        if (*p != '_') {
            *to++ = *p;
        }
    }

    *to = '\0';
    p = buf + (buf[0] == '+' || buf[0] == '-');

    if (strcasecmp(p, "nan") == 0 || strcasecmp(p, "inf") == 0
        || strcasecmp(p, "infinity") == 0)
    {
        return 1;
    }

    q = llm_capture_digits(p);
    n = (size_t) (q - p);

    if (*q == '.') {
        p = q + 1;
        q = llm_capture_digits(p);
        n += (size_t) (q - p);
    }

    if (n && (*q == 'e' || *q == 'E')) {
        p = q + 1 + (q[1] == '+' || q[1] == '-');
        q = llm_capture_digits(p);
        n = (size_t) (q - p);
    }

    return n && *q == '\0';
}


unsigned
llm_capture_lax_int(llm_capture_str_t v, double *value)
{
    char     buf[1100], *s;
    double   d;
    size_t   i;

    *value = 0;

    switch (v.p[0]) {

    case 't':
        *value = 1;
        return 1;

    case 'f':
        return 1;

    case '"':
        if (!llm_capture_int_text(v)) {
            return 0;
        }

        (void) llm_capture_trimmed(v, buf, sizeof(buf));
        *value = strtod(buf, NULL);

        if (strchr(buf, '_')) {
            for (s = buf, i = 0; buf[i]; i++) {
                if (buf[i] != '_') {
                    *s++ = buf[i];
                }
            }

            *s = '\0';
            *value = strtod(buf, NULL);
        }

        return 1;

    case '{':
    case '[':
        return 0;
    }

    s = llm_capture_text(v);
    d = *value = strtod(s, NULL);

    /* orjson: whole numbers beyond 64 bits are doubles */

    i = strcspn(s, ".eE");

    if (s[i] == '\0' && (s[0] == '-' ? d > -9223372036854775808.0
                                     : d < 18446744073709551615.0))
    {
        free(s);
        return 1;
    }

    if (s[i] == '\0') {
        i = s[0] == '-' ? strcmp(s, "-9223372036854775808") == 0
            : v.n < 20 || (v.n == 20
                           && strcmp(s, "18446744073709551615") <= 0);

        if (i) {
            free(s);
            return 1;
        }
    }

    free(s);

    return d > -9223372036854775808.0 && d < 9223372036854775808.0
           && d == (double) (int64_t) d;
}


unsigned
llm_capture_lax_number(llm_capture_str_t v)
{
    switch (v.p[0]) {

    case '"':
        return llm_capture_int_text(v) || llm_capture_float_text(v);

    case '{':
    case '[':
        return 0;
    }

    return 1;
}


/* a delay that is not finite counts as none */

unsigned
llm_capture_lax_negative(llm_capture_str_t v)
{
    char    *s, *to;
    double   d;
    size_t   i, n;

    s = llm_capture_alloc(v.n + 1);

    if (v.p[0] == '"') {
        (void) llm_capture_trimmed(v, s, v.n + 1);

    } else {
        memcpy(s, v.p, v.n);
    }

    n = strlen(s);

    for (to = s, i = 0; i <= n; i++) {
        if (s[i] != '_') {
            *to++ = s[i];
        }
    }

    d = strtod(s, NULL);
    free(s);

    return d < 0 && d >= -DBL_MAX;
}
