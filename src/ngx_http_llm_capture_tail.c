
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_scan.h"
#include "ngx_http_llm_capture_tail.h"


#define NGX_HTTP_LLM_CAPTURE_TAIL_BLOCK  65536

/* what a double still counts by ones; AIPerf reads timestamps as doubles */
#define NGX_HTTP_LLM_CAPTURE_TAIL_MAX    9007199254740992.0


/*
 * Finds one key of the top level.  The row may be anything: the result is only
 * as good as the row, but it never fails.
 */

typedef struct {
    uint64_t            depth;
    unsigned            string:1;
    unsigned            escape:1;
    unsigned            value:1;        /* behind the colon */
    unsigned            wanted:1;       /* of the key that is looked for */
    size_t              len;
    char                text[40];       /* a key or value of the top level */

    int                 found;
    uint64_t            ts;
} ngx_http_llm_capture_key_t;


/* a full block, but for the end: a file cut meanwhile reads as an error */

static int
ngx_http_llm_capture_tail_read(const ngx_http_llm_capture_sys_t *sys, int fd,
    void *buf, size_t n, off_t offset)
{
    ssize_t  rc;

    rc = ngx_http_llm_capture_sys_read(sys, fd, buf, n, offset);

    if (rc == (ssize_t) n) {
        return 0;
    }

    if (rc != -1) {
        errno = EAGAIN;
    }

    return -1;
}


/* how many bytes a block has that reaches up to end */

static size_t
ngx_http_llm_capture_tail_block(off_t end)
{
    if (end > NGX_HTTP_LLM_CAPTURE_TAIL_BLOCK) {
        return NGX_HTTP_LLM_CAPTURE_TAIL_BLOCK;
    }

    return (size_t) end;
}


off_t
ngx_http_llm_capture_tail_start(const ngx_http_llm_capture_sys_t *sys, int fd,
    off_t end)
{
    char    buf[NGX_HTTP_LLM_CAPTURE_TAIL_BLOCK], *lf;
    size_t  n;

    while (end > 0) {
        n = ngx_http_llm_capture_tail_block(end);
        end -= (off_t) n;

        if (ngx_http_llm_capture_tail_read(sys, fd, buf, n, end) == -1) {
            return -1;
        }

        lf = memrchr(buf, '\n', n);

        if (lf != NULL) {
            return end + (lf - buf) + 1;
        }
    }

    return 0;
}


int
ngx_http_llm_capture_tail_whole(const ngx_http_llm_capture_sys_t *sys, int fd,
    off_t start, off_t end)
{
    size_t                       n;
    uint8_t                      buf[NGX_HTTP_LLM_CAPTURE_TAIL_BLOCK];
    ngx_http_llm_capture_scan_t  scan;

    ngx_http_llm_capture_scan_init(&scan, NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT, 0);

    for ( /* void */ ; start < end; start += (off_t) n) {

        n = ngx_http_llm_capture_tail_block(end - start);

        if (ngx_http_llm_capture_tail_read(sys, fd, buf, n, start) == -1) {
            return -1;
        }

        if (ngx_http_llm_capture_scan_feed(&scan, buf, n)
            != NGX_HTTP_LLM_CAPTURE_SCAN_OK)
        {
            return 0;
        }
    }

    return ngx_http_llm_capture_scan_end(&scan) == NGX_HTTP_LLM_CAPTURE_SCAN_OK;
}


static void
ngx_http_llm_capture_key_number(ngx_http_llm_capture_key_t *k)
{
    char    *end;
    double   v;

    k->text[k->len] = '\0';

    v = strtod(k->text, &end);

    if (end == k->text || *end != '\0' || v != v) {
        k->found = 0;
        return;
    }

    if (v < 0) {
        v = 0;
    }

    if (v > NGX_HTTP_LLM_CAPTURE_TAIL_MAX) {
        v = NGX_HTTP_LLM_CAPTURE_TAIL_MAX;
    }

    k->found = 1;
    k->ts = (uint64_t) v;
}


static void
ngx_http_llm_capture_key_text(ngx_http_llm_capture_key_t *k, char ch)
{
    if (k->depth == 1 && k->len < sizeof(k->text) - 1) {
        k->text[k->len++] = ch;
    }
}


/* a structural character outside strings */

static void
ngx_http_llm_capture_key_mark(ngx_http_llm_capture_key_t *k, char ch)
{
    static const char  name[] = "timestamp";

    switch (ch) {

    case '{':
    case '[':
        k->depth++;
        break;

    case '}':
    case ']':
    case ',':
        if (k->depth == 1) {
            if (k->wanted) {
                ngx_http_llm_capture_key_number(k);
            }

            k->value = 0;
            k->wanted = 0;
            k->len = 0;
        }

        if (ch != ',' && k->depth) {
            k->depth--;
        }

        break;

    default: /* ':' */
        if (k->depth == 1 && !k->value) {
            k->value = 1;
            k->wanted = (k->len == sizeof(name) - 1
                         && memcmp(k->text, name, sizeof(name) - 1) == 0);
            k->len = 0;
        }
    }
}


static void
ngx_http_llm_capture_key_feed(ngx_http_llm_capture_key_t *k, const char *p,
    size_t n)
{
    const char  *last;

    for (last = p + n; p < last; p++) {

        if (k->string) {
            if (k->escape) {
                k->escape = 0;

            } else if (*p == '\\') {
                k->escape = 1;

            } else if (*p == '"') {
                k->string = 0;
                continue;
            }

            ngx_http_llm_capture_key_text(k, *p);
            continue;
        }

        switch (*p) {

        case '"':
            k->string = 1;
            break;

        case '{':
        case '}':
        case '[':
        case ']':
        case ',':
        case ':':
            ngx_http_llm_capture_key_mark(k, *p);
            break;

        case ' ':
        case '\t':
        case '\r':
            break;

        default:
            ngx_http_llm_capture_key_text(k, *p);
        }
    }
}


/* white space and empty lines at the end do not make a row */

static off_t
ngx_http_llm_capture_tail_trim(const ngx_http_llm_capture_sys_t *sys, int fd,
    off_t end)
{
    char    buf[NGX_HTTP_LLM_CAPTURE_TAIL_BLOCK];
    size_t  n;

    while (end > 0) {
        n = ngx_http_llm_capture_tail_block(end);

        if (ngx_http_llm_capture_tail_read(sys, fd, buf, n, end - (off_t) n)
            == -1)
        {
            return -1;
        }

        for ( /* void */ ; n; n--, end--) {
            if (buf[n - 1] == '\0' || strchr(" \t\r\n", buf[n - 1]) == NULL) {
                return end;
            }
        }
    }

    return 0;
}


int
ngx_http_llm_capture_tail_timestamp(const ngx_http_llm_capture_sys_t *sys,
    int fd, off_t end, uint64_t *ts)
{
    char                        buf[NGX_HTTP_LLM_CAPTURE_TAIL_BLOCK];
    off_t                       start;
    size_t                      n;
    ngx_http_llm_capture_key_t  key;

    end = ngx_http_llm_capture_tail_trim(sys, fd, end);

    if (end == -1) {
        return -1;
    }

    start = ngx_http_llm_capture_tail_start(sys, fd, end);

    if (start == -1) {
        return -1;
    }

    memset(&key, 0, sizeof(ngx_http_llm_capture_key_t));

    for ( /* void */ ; start < end; start += (off_t) n) {

        n = ngx_http_llm_capture_tail_block(end - start);

        if (ngx_http_llm_capture_tail_read(sys, fd, buf, n, start) == -1) {
            return -1;
        }

        ngx_http_llm_capture_key_feed(&key, buf, n);
    }

    *ts = key.ts;

    return key.found;
}
