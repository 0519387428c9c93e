
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

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


static int
ngx_http_llm_capture_file_mend_tail(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, struct stat *st)
{
    int    whole;
    off_t  start;

    start = ngx_http_llm_capture_tail_start(fs->sys, f->fd, st->st_size);

    if (start == -1) {
        return -1;
    }

    whole = ngx_http_llm_capture_tail_whole(fs->sys, f->fd, start,
                                            st->st_size);

    if (whole == -1) {
        return -1;
    }

    if (whole) {
        if (ngx_http_llm_capture_sys_write(fs->sys, f->fd, "\n", 1) == -1) {
            return -1;
        }

        st->st_size++;
        return 0;
    }

    if (ngx_http_llm_capture_sys_cut(fs->sys, f->fd, start) == -1) {
        return -1;
    }

    ngx_http_llm_capture_file_say(fs, f, NGX_HTTP_LLM_CAPTURE_SAY_TAIL,
                                  LOG_WARNING, 0,
                                  "a torn last row was cut away");
    st->st_size = start;

    return 0;
}


int
ngx_http_llm_capture_file_mend(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, struct stat *st)
{
    char     last;
    ssize_t  n;

    if (f->same || st->st_size == 0) {
        return 0;
    }

    n = ngx_http_llm_capture_sys_read(fs->sys, f->fd, &last, 1,
                                      st->st_size - 1);

    if (n == 1 && last == '\n') {
        return 0;
    }

    if (n == 1 && ngx_http_llm_capture_file_mend_tail(fs, f, st) == 0) {
        return 0;
    }

    /* n == 0: cut by somebody since fstat(), who does not know of the lock */

    f->error = (n == 0) ? EAGAIN : errno;

    ngx_http_llm_capture_file_say(fs, f, NGX_HTTP_LLM_CAPTURE_SAY_TAIL,
                                  LOG_ERR, f->error,
                                  "cannot mend the last row");

    return -1;
}


/* the format of the first row; RAW_PAYLOAD: of any other; -1: there is none */

static int
ngx_http_llm_capture_tail_kind(const ngx_http_llm_capture_sys_t *sys, int fd)
{
    char      buf[64];
    size_t    i, k, len;
    ssize_t   n;

    static const char  head[] = "{\"timestamp\":";
    static const char  baseten[] = "{\"timestamp_start_unix_ms\":";

    static const struct {
        const char                     *name;
        ngx_http_llm_capture_format_e   format;
    } next[] = {
        { ",\"payload\":", NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD },
        { ",\"id\":\"", NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD },
        { ",\"session_id\":\"", NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD },
        { ",\"input_length\":", NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE }
    };

    n = ngx_http_llm_capture_sys_read(sys, fd, buf, sizeof(buf), 0);

    if (n < 1 || buf[0] != '{') {
        return -1;
    }

    if ((size_t) n >= sizeof(baseten) - 1
        && memcmp(buf, baseten, sizeof(baseten) - 1) == 0)
    {
        return NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE;
    }

    if ((size_t) n < sizeof(head) - 1
        || memcmp(buf, head, sizeof(head) - 1) != 0)
    {
        return NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD;
    }

    for (i = sizeof(head) - 1; i < (size_t) n; i++) {
        if (buf[i] < '0' || buf[i] > '9') {
            break;
        }
    }

    for (k = 0; k < sizeof(next) / sizeof(next[0]); k++) {
        len = strlen(next[k].name);

        if ((size_t) n - i >= len && memcmp(buf + i, next[k].name, len) == 0) {
            return next[k].format;
        }
    }

    return NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD;
}


/* rows that others wrote, in an order of their own, of such a file? */

static int
ngx_http_llm_capture_tail_foreign(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, unsigned format, const struct stat *st)
{
    uint64_t  ts;

    switch (format) {

    case NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD:
    case NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE:
        return ngx_http_llm_capture_tail_timestamp(fs->sys, f->fd,
                                                   st->st_size, &ts)
               != 0;

    case NGX_HTTP_LLM_CAPTURE_OUTCOMES:
        /* its name says so: nothing else goes to such a file */
        return 1;

    default:
        return 0;
    }
}


int
ngx_http_llm_capture_file_format(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, unsigned format, const struct stat *st)
{
    int  kind;

    if (st->st_size == 0) {
        f->format = format;
        return 0;
    }

    if (!f->same) {
        kind = ngx_http_llm_capture_tail_kind(fs->sys, f->fd);

        if (kind == -1
            || (kind == NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD
                && ngx_http_llm_capture_tail_foreign(fs, f, format, st)))
        {
            f->format = format;

        } else {
            f->format = (unsigned) kind;
        }
    }

    if (f->format == format) {
        return 0;
    }

    f->error = EINVAL;

    ngx_http_llm_capture_file_say(fs, f, NGX_HTTP_LLM_CAPTURE_SAY_TAIL,
                                  LOG_ERR, 0,
                                  "holds rows of another format: one file "
                                  "with both loads nowhere, move it away");

    return -1;
}
