
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_rest.h"


#define NONE   NGX_HTTP_LLM_CAPTURE_REST_NONE
/* containers in one another: as many as a parser takes */
#define DEPTH  2048


typedef struct {
    ngx_http_llm_capture_rest_t  *rest;
    const char                   *p;
    size_t                        at;
    unsigned                      depth;
    char                          close[4];     /* of the outermost ones */
    char                          next;         /* the token behind */
} ngx_http_llm_capture_rest_walk_t;


typedef enum {
    rs_ok = 0,
    rs_cut,                     /* the beginning of the text is reached */
    rs_bad
} ngx_http_llm_capture_rest_e;


/* whether the quote at `at` bounds a string, or is a part of it */

static ngx_http_llm_capture_rest_e
ngx_http_llm_capture_rest_quote(const char *p, size_t at)
{
    size_t  i;

    for (i = at; i && p[i - 1] == '\\'; i--) { /* void */ }

    if (i == 0 && at) {
        return rs_cut;                  /* more of them may stand before */
    }

    return ((at - i) % 2) ? rs_bad : rs_ok;
}


static void
ngx_http_llm_capture_rest_name(ngx_http_llm_capture_rest_walk_t *w, size_t len)
{
    ngx_http_llm_capture_rest_t  *rest;

    rest = w->rest;

    switch (w->depth) {

    case 1:
        rest->member = w->at;

        if (rest->usage == NONE && len == sizeof("usage") - 1
            && memcmp(w->p + w->at + 1, "usage", len) == 0)
        {
            rest->usage = w->at;
        }

        break;

    case 2:
        if (w->close[2] == '}') {
            rest->inner = w->at;
        }

        break;

    case 3:
        if (w->close[2] == ']' && w->close[3] == '}') {
            rest->element = w->at;
        }

        break;
    }
}


/* w->at: the quote that ends it */

static ngx_http_llm_capture_rest_e
ngx_http_llm_capture_rest_string(ngx_http_llm_capture_rest_walk_t *w)
{
    size_t                        end;
    const char                   *quote;
    ngx_http_llm_capture_rest_e   rc;

    end = w->at;
    rc = ngx_http_llm_capture_rest_quote(w->p, end);

    if (rc != rs_ok) {
        return rc;
    }

    do {
        quote = memrchr(w->p, '"', w->at);

        if (quote == NULL) {
            return rs_cut;
        }

        w->at = (size_t) (quote - w->p);
        rc = ngx_http_llm_capture_rest_quote(w->p, w->at);

        if (rc == rs_cut) {
            return rc;
        }

    } while (rc != rs_ok);

    if (w->next == ':') {
        ngx_http_llm_capture_rest_name(w, end - w->at - 1);
    }

    return rs_ok;
}


static ngx_http_llm_capture_rest_e
ngx_http_llm_capture_rest_open(ngx_http_llm_capture_rest_walk_t *w)
{
    if (w->depth == 2) {
        w->rest->inner = NONE;

    } else if (w->depth == 3) {
        w->rest->element = NONE;
    }

    return --w->depth ? rs_ok : rs_cut;
}


static ngx_http_llm_capture_rest_e
ngx_http_llm_capture_rest_token(ngx_http_llm_capture_rest_walk_t *w, char c)
{
    ngx_http_llm_capture_rest_e  rc;

    rc = rs_ok;

    switch (c) {

    case ' ':
    case '\t':
    case '\n':
    case '\r':
        return rs_ok;

    case '}':
    case ']':
        if (++w->depth > DEPTH) {
            return rs_bad;
        }

        if (w->depth < sizeof(w->close)) {
            w->close[w->depth] = c;
        }

        break;

    case '{':
    case '[':
        rc = ngx_http_llm_capture_rest_open(w);
        break;

    case '"':
        rc = ngx_http_llm_capture_rest_string(w);
        break;

    case ',':
    case ':':
        break;

    default:
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')
              || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.'))
        {
            return rs_bad;
        }
    }

    w->next = c;

    return rc;
}


int
ngx_http_llm_capture_rest(ngx_http_llm_capture_rest_t *rest, const char *p,
    size_t n)
{
    ngx_http_llm_capture_rest_e       rc;
    ngx_http_llm_capture_rest_walk_t  w;

    memset(rest, 0xff, sizeof(ngx_http_llm_capture_rest_t));
    memset(&w, 0, sizeof(w));

    w.rest = rest;
    w.p = p;

    while (n && memchr(" \t\r\n", p[n - 1], 4)) {
        n--;
    }

    if (n == 0 || p[n - 1] != '}') {
        return -1;
    }

    w.at = n;

    do {
        w.at--;
        rc = ngx_http_llm_capture_rest_token(&w, p[w.at]);
    } while (rc == rs_ok && w.at);

    if (rc == rs_bad) {
        memset(rest, 0xff, sizeof(ngx_http_llm_capture_rest_t));
        return -1;
    }

    return 0;
}


size_t
ngx_http_llm_capture_rest_head(const char *p, size_t n)
{
    size_t    i, whole;
    unsigned  depth;

    whole = 0;
    depth = 0;

    for (i = 0; i < n; i++) {

        switch (p[i]) {

        case '"':
            for (i++; i < n && p[i] != '"'; i++) {
                i += (p[i] == '\\');
            }

            break;

        case '{':
        case '[':
            depth++;
            break;

        case '}':
        case ']':
            if (depth <= 1) {
                return 0;               /* it has its end */
            }

            depth--;
            break;

        case ',':
            if (depth == 1) {
                whole = i;
            }
        }
    }

    return whole;
}
