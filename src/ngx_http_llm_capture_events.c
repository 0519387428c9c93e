
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_events.h"


/* the next line; 1 if it has an end */

static int
ngx_http_llm_capture_events_line(ngx_http_llm_capture_events_t *e,
    char **line, size_t *len)
{
    char  *p;

    *line = e->p;

    for (p = e->p; p < e->end && *p != '\n' && *p != '\r'; p++) { /* void */ }

    *len = (size_t) (p - e->p);

    if (p == e->end) {
        e->p = p;
        return 0;
    }

    e->p = (*p == '\r' && p + 1 < e->end && p[1] == '\n') ? p + 2 : p + 1;

    return 1;
}


void
ngx_http_llm_capture_events_init(ngx_http_llm_capture_events_t *e, char *p,
    size_t n)
{
    e->p = p;
    e->end = p + n;
    e->ended = 0;

    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        e->p += 3;
    }
}


void
ngx_http_llm_capture_events_cut(ngx_http_llm_capture_events_t *e, char *p,
    size_t n, char **data, size_t *len)
{
    int      ended;
    char    *line;
    size_t   more;

    e->p = p;
    e->end = p + n;
    e->ended = 0;

    if (!ngx_http_llm_capture_events_line(e, data, len)) {
        return;
    }

    do {
        ended = ngx_http_llm_capture_events_line(e, &line, &more);

        if (more) {
            *len = 0;
        }

    } while (ended && more);

    e->ended = (unsigned) ended;
}


static int
ngx_http_llm_capture_events_value(const char *line, size_t len, size_t *skip)
{
    if (len < 4 || memcmp(line, "data", 4) != 0
        || (len > 4 && line[4] != ':'))
    {
        return 0;
    }

    *skip = len == 4 ? 4 : len > 5 && line[5] == ' ' ? 6 : 5;

    return 1;
}


int
ngx_http_llm_capture_events_next(ngx_http_llm_capture_events_t *e,
    char **data, size_t *len)
{
    int      ended;
    char    *line;
    size_t   n, skip;

    *data = NULL;
    *len = 0;

    while (e->p < e->end) {
        ended = ngx_http_llm_capture_events_line(e, &line, &n);

        if (n == 0 && ended) {

            if (*len) {
                e->ended = 1;
                return 1;
            }

            *data = NULL;
            continue;
        }

        if (!ngx_http_llm_capture_events_value(line, n, &skip)) {
            continue;
        }

        if (*data == NULL) {
            *data = line + skip;
            *len = n - skip;
            continue;
        }

        /* "data" and the end of the line before it leave the room */

        (*data)[(*len)++] = '\n';
        memmove(*data + *len, line + skip, n - skip);
        *len += n - skip;
    }

    e->ended = 0;

    return *len != 0;
}
