
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Walks in JSON that the strict scan has found valid: so a string ends at a
 * quote, a container at its bracket, and bounds need no check.  Nothing is
 * built: a member is where it stands.
 */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "llm_capture.h"


static inline const uint8_t *
llm_capture_spaces(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) {
        p++;
    }

    return p;
}


/* p is at the quote; returns what is behind the one that ends it */

static const uint8_t *
llm_capture_string_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t  *q, *b;

    for (q = p + 1; /* void */ ; q++) {
        q = memchr(q, '"', (size_t) (end - q));

        if (q == NULL) {
            return end;
        }

        for (b = q; b[-1] == '\\'; b--) { /* void */ }

        if ((q - b) % 2 == 0) {
            return q + 1;
        }
    }
}


static const uint8_t *
llm_capture_value_end(const uint8_t *p, const uint8_t *end)
{
    unsigned  depth;

    for (depth = 0; p < end; /* void */ ) {

        switch (*p) {

        case '"':
            p = llm_capture_string_end(p, end);
            break;

        case '{':
        case '[':
            depth++;
            p++;
            continue;

        case '}':
        case ']':
            if (depth == 0) {
                return p;
            }

            depth--;
            p++;
            break;

        case ',':
        case ' ':
        case '\t':
        case '\n':
        case '\r':
            if (depth == 0) {
                return p;
            }

            /* fall through */

        default:
            p++;
            continue;
        }

        if (depth == 0) {
            return p;
        }
    }

    return end;
}


unsigned
llm_capture_walk(llm_capture_walk_t *w, llm_capture_str_t value)
{
    w->object = 0;
    w->p = w->end = value.p;

    if (value.n < 2 || (value.p[0] != '{' && value.p[0] != '[')) {
        return 0;
    }

    w->object = value.p[0] == '{';
    w->p = value.p + 1;
    w->end = value.p + value.n - 1;

    return 1;
}


unsigned
llm_capture_next(llm_capture_walk_t *w, llm_capture_member_t *m)
{
    const uint8_t  *p, *end;

    end = w->end;
    p = llm_capture_spaces(w->p, end);

    if (p < end && *p == ',') {
        p = llm_capture_spaces(p + 1, end);
    }

    if (p >= end) {
        return 0;
    }

    m->from = p;
    m->key = (llm_capture_str_t) { NULL, 0 };

    if (w->object) {
        p = llm_capture_string_end(p, end);
        m->key.p = m->from + 1;
        m->key.n = (size_t) (p - m->from) - 2;
        p = llm_capture_spaces(p, end);
        p = llm_capture_spaces(p + 1, end);
    }

    m->value.p = p;
    p = llm_capture_value_end(p, end);
    m->value.n = (size_t) (p - m->value.p);
    w->p = p;

    return 1;
}


static uint8_t *
llm_capture_utf8(uint8_t *dst, uint32_t c)
{
    if (c < 0x80) {
        *dst++ = (uint8_t) c;

    } else if (c < 0x800) {
        *dst++ = (uint8_t) (0xc0 | c >> 6);
        *dst++ = (uint8_t) (0x80 | (c & 63));

    } else if (c < 0x10000) {
        *dst++ = (uint8_t) (0xe0 | c >> 12);
        *dst++ = (uint8_t) (0x80 | (c >> 6 & 63));
        *dst++ = (uint8_t) (0x80 | (c & 63));

    } else {
        *dst++ = (uint8_t) (0xf0 | c >> 18);
        *dst++ = (uint8_t) (0x80 | (c >> 12 & 63));
        *dst++ = (uint8_t) (0x80 | (c >> 6 & 63));
        *dst++ = (uint8_t) (0x80 | (c & 63));
    }

    return dst;
}


static uint32_t
llm_capture_hex4(const uint8_t *p)
{
    unsigned  i;
    uint32_t  c;

    for (c = 0, i = 0; i < 4; i++) {
        c = c << 4 | (uint32_t) (p[i] <= '9' ? p[i] - '0'
                                           : (p[i] | 32) - 'a' + 10);
    }

    return c;
}


size_t
llm_capture_unescape(uint8_t *dst, llm_capture_str_t s)
{
    size_t          n;
    uint8_t        *to;
    uint32_t        c;
    const uint8_t  *p, *q, *end;

    static const char  letters[] = "b\bf\fn\nr\rt\t";

    to = dst;
    end = s.p + s.n;

    for (p = s.p; p < end; /* void */ ) {
        q = memchr(p, '\\', (size_t) (end - p));
        n = (size_t) ((q ? q : end) - p);
        memcpy(to, p, n);
        to += n;
        p += n;

        if (p == end) {
            break;
        }

        p++;

        if (*p == 'u') {
            c = llm_capture_hex4(p + 1);
            p += 5;

            if (c >= 0xd800 && c < 0xdc00) {
                c = 0x10000 + ((c - 0xd800) << 10)
                    + (llm_capture_hex4(p + 2) - 0xdc00);
                p += 6;
            }

            to = llm_capture_utf8(to, c);
            continue;
        }

        for (n = 0; n < sizeof(letters) - 1 && letters[n] != *p; n += 2) {
            /* void */
        }

        *to++ = n < sizeof(letters) - 1 ? (uint8_t) letters[n + 1] : *p;
        p++;
    }

    return (size_t) (to - dst);
}


unsigned
llm_capture_is(llm_capture_str_t s, llm_capture_str_t is)
{
    uint8_t   buf[256];

    if (s.n < is.n || s.n > 6 * is.n || s.n > sizeof(buf)) {
        return 0;
    }

    if (s.n == is.n && memcmp(s.p, is.p, is.n) == 0) {
        return memchr(s.p, '\\', s.n) == NULL;
    }

    if (memchr(s.p, '\\', s.n) == NULL) {
        return 0;
    }

    return llm_capture_unescape(buf, s) == is.n
           && memcmp(buf, is.p, is.n) == 0;
}


llm_capture_str_t
llm_capture_unquote(llm_capture_str_t value)
{
    return (llm_capture_str_t) { value.p + 1, value.n - 2 };
}


llm_capture_str_t
llm_capture_member(llm_capture_str_t object, const char *name)
{
    llm_capture_str_t     is, found;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    found = (llm_capture_str_t) { NULL, 0 };
    is = (llm_capture_str_t) { (const uint8_t *) name, strlen(name) };

    if (!llm_capture_walk(&w, object) || !w.object) {
        return found;
    }

    while (llm_capture_next(&w, &m)) {
        if (llm_capture_is(m.key, is)) {
            found = m.value;
        }
    }

    return found;
}


llm_capture_str_t
llm_capture_path(llm_capture_str_t object, const char *path)
{
    char    name[128];
    size_t  n;

    for ( /* void */ ; object.p && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");

        if (n >= sizeof(name)) {
            return (llm_capture_str_t) { NULL, 0 };
        }

        memcpy(name, path, n);
        name[n] = '\0';
        object = llm_capture_member(object, name);
    }

    return object;
}


char *
llm_capture_text(llm_capture_str_t value)
{
    char    *s;
    size_t   n;

    s = llm_capture_grow(NULL, value.n + 1);

    if (value.n >= 2 && value.p[0] == '"') {
        n = llm_capture_unescape((uint8_t *) s, llm_capture_unquote(value));

    } else {
        memcpy(s, value.p, value.n);
        n = value.n;
    }

    s[n] = '\0';

    return s;
}


double
llm_capture_number(llm_capture_str_t value)
{
    char      buf[64];
    size_t    i;
    uint64_t  n;

    if (value.p == NULL || value.n == 0 || value.n >= sizeof(buf)
        || (value.p[0] != '-' && (value.p[0] < '0' || value.p[0] > '9')))
    {
        return -1;
    }

    for (n = 0, i = 0; i < value.n && i < 15; i++) {
        if (value.p[i] < '0' || value.p[i] > '9') {
            break;
        }

        n = n * 10 + (value.p[i] - '0');
    }

    if (i == value.n) {
        return (double) n;
    }

    memcpy(buf, value.p, value.n);
    buf[value.n] = '\0';

    return strtod(buf, NULL);
}


void
llm_capture_quote(llm_capture_out_t *out, const void *s, size_t n)
{
    const uint8_t  *p, *end, *from;

    llm_capture_write(out, "\"", 1);

    end = (const uint8_t *) s + n;

    for (from = p = s; p < end; p++) {

        if (*p >= 0x20 && *p != '"' && *p != '\\') {
            continue;
        }

        llm_capture_write(out, from, (size_t) (p - from));
        from = p + 1;

        if (*p < 0x20) {
            llm_capture_printf(out, "\\u%04x", *p);

        } else {
            llm_capture_printf(out, "\\%c", *p);
        }
    }

    llm_capture_write(out, from, (size_t) (p - from));
    llm_capture_write(out, "\"", 1);
}
