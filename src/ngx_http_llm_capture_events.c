
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


/* adds a line's value to the data, if it has one */

static void
ngx_http_llm_capture_events_value(char *line, size_t n, char **data,
    size_t *len)
{
    size_t  skip;

    if (n < 4 || memcmp(line, "data", 4) != 0 || (n > 4 && line[4] != ':')) {
        return;
    }

    skip = n == 4 ? 4 : n > 5 && line[5] == ' ' ? 6 : 5;
    line += skip;
    n -= skip;

    if (*data == NULL) {
        *data = line;
        *len = n;
        return;
    }

    /* "data" and the end of the line before it leave the room */

    (*data)[(*len)++] = '\n';
    memmove(*data + *len, line, n);
    *len += n;
}


void
ngx_http_llm_capture_events_cut(ngx_http_llm_capture_events_t *e, char *p,
    size_t n, char **data, size_t *len)
{
    int      ended;
    char    *line, *more;
    size_t   size, more_len;

    e->p = p;
    e->end = p + n;
    e->ended = 0;

    if (!ngx_http_llm_capture_events_line(e, data, len)) {
        return;
    }

    more = NULL;
    more_len = 0;

    do {
        ended = ngx_http_llm_capture_events_line(e, &line, &size);
        ngx_http_llm_capture_events_value(line, size, &more, &more_len);
    } while (ended && size);

    e->ended = (unsigned) ended;

    if (more) {
        *data = more;
        *len = more_len;
    }
}


/* line feeds alone: each of its lines is empty */

static int
ngx_http_llm_capture_events_blank(const char *data, size_t len)
{
    while (len && *data == '\n') {
        data++;
        len--;
    }

    return len == 0;
}


int
ngx_http_llm_capture_events_next(ngx_http_llm_capture_events_t *e,
    char **data, size_t *len)
{
    int      ended;
    char    *line;
    size_t   n;

    *data = NULL;
    *len = 0;

    while (e->p < e->end) {
        ended = ngx_http_llm_capture_events_line(e, &line, &n);

        if (n == 0 && ended) {

            if (!ngx_http_llm_capture_events_blank(*data, *len)) {
                e->ended = 1;
                return 1;
            }

            *data = NULL;
            *len = 0;
            continue;
        }

        ngx_http_llm_capture_events_value(line, n, data, len);
    }

    e->ended = 0;

    return !ngx_http_llm_capture_events_blank(*data, *len);
}
