
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "ngx_http_llm_capture_key.h"
#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_recover.h"
#include "ngx_http_llm_capture_sidecar.h"
#include "ngx_http_llm_capture_tail.h"
#include "ngx_http_llm_capture_writer.h"


#ifndef IOV_MAX
#define IOV_MAX  1024
#endif

struct ngx_http_llm_capture_writer_s {
    ngx_http_llm_capture_files_t   files;
    ngx_http_llm_capture_lines_t   lines;
    struct iovec                   iov[IOV_MAX];
    ngx_http_llm_capture_place_t   place;
    char                           boot[NGX_HTTP_LLM_CAPTURE_BOOT];
    const uint8_t                 *key;
};


ngx_http_llm_capture_writer_t *
ngx_http_llm_capture_writer_create(
    const ngx_http_llm_capture_writer_conf_t *conf)
{
    ngx_http_llm_capture_files_t   *fs;
    ngx_http_llm_capture_writer_t  *w;

    w = calloc(1, sizeof(ngx_http_llm_capture_writer_t));

    if (w == NULL) {
        return NULL;
    }

    fs = &w->files;
    fs->sys = conf->sys ? conf->sys : &ngx_http_llm_capture_sys;
    fs->log = conf->log;
    fs->log_ctx = conf->ctx;
    fs->max_open = conf->max_open ? conf->max_open
                                  : NGX_HTTP_LLM_CAPTURE_MAX_OPEN;

    w->key = conf->key;

    if (conf->boot) {
        (void) snprintf(w->boot, sizeof(w->boot), "%s", conf->boot);

    } else {
        ngx_http_llm_capture_sidecar_boot(fs->sys, w->boot);
    }

    return w;
}


void
ngx_http_llm_capture_writer_destroy(ngx_http_llm_capture_writer_t *w)
{
    ngx_http_llm_capture_files_free(&w->files);
    free(w);
}


ngx_http_llm_capture_files_t *
ngx_http_llm_capture_writer_files(ngx_http_llm_capture_writer_t *w)
{
    return &w->files;
}


void
ngx_http_llm_capture_writer_reopen(ngx_http_llm_capture_writer_t *w)
{
    ngx_http_llm_capture_files_reopen(&w->files);
}


ngx_http_llm_capture_file_t *
ngx_http_llm_capture_writer_file(ngx_http_llm_capture_writer_t *w,
    const char *path, size_t len)
{
    return ngx_http_llm_capture_files_get(&w->files, path, len);
}


void
ngx_http_llm_capture_writer_forget(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f)
{
    ngx_http_llm_capture_file_ready(&w->files, f);
}


uint64_t
ngx_http_llm_capture_writer_due(ngx_http_llm_capture_writer_t *w)
{
    uint64_t                      due;
    unsigned                      i;
    ngx_http_llm_capture_file_t  *f;

    if (w->files.nwaiting == 0) {
        return 0;
    }

    due = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_BUCKETS; i++) {
        for (f = w->files.bucket[i]; f; f = f->next) {
            if (f->retry_at && (due == 0 || f->retry_at < due)) {
                due = f->retry_at;
            }
        }
    }

    return due;
}


static void
ngx_http_llm_capture_writer_intend(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, unsigned format, const struct stat *st,
    ngx_http_llm_capture_intent_t *intent)
{
    unsigned  i;

    NGX_HTTP_LLM_CAPTURE_POINT("before intent");

    intent->format = format;
    intent->dev = (uint64_t) st->st_dev;
    intent->ino = (uint64_t) st->st_ino;
    intent->offset = (uint64_t) st->st_size;
    intent->length = w->lines.total;
    memcpy(intent->key, w->key ? w->key : f->key, sizeof(intent->key));
    intent->path_len = (uint32_t) f->len;
    memcpy(intent->path, f->path, f->len + 1);

    for (i = 0; i < w->lines.n; i++) {
        intent->refs[i].ts = w->lines.line[i].ts;
    }

    if (!NGX_HTTP_LLM_CAPTURE_BROKEN("intent")) {
        atomic_store_explicit(&intent->state,
                              NGX_HTTP_LLM_CAPTURE_INTENT_WRITING,
                              memory_order_release);
    }

    NGX_HTTP_LLM_CAPTURE_POINT("after intent");
}


/*
 * A short write left a torn line.  Returns the lines that stand whole; what
 * cannot be cut now is mended before anything else is appended, and a row that
 * lacks nothing but its LF is then kept: so it counts.
 */

static unsigned
ngx_http_llm_capture_writer_cut(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, uint64_t written)
{
    int                                err;
    off_t                              end;
    uint64_t                           whole, torn;
    unsigned                           k;
    struct stat                        st;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = w->files.sys;

    k = ngx_http_llm_capture_lines_whole(&w->lines, written, &whole);
    torn = written - whole;

    /* with O_APPEND the position is the end of what we wrote last */

    end = sys->lseek(f->fd, 0, SEEK_CUR);

    if (end == -1 || sys->fstat(f->fd, &st) == -1) {
        err = errno;

    } else if (torn == 0) {
        f->size = end;
        return k;

    } else if (st.st_size < end) {
        /* cut by a rotation, our torn line with it */
        return k;

    } else if (st.st_size > end) {
        err = 0;

    } else {
        NGX_HTTP_LLM_CAPTURE_POINT("before cut");

        if (ngx_http_llm_capture_sys_cut(sys, f->fd, end - (off_t) torn)
            == 0)
        {
            NGX_HTTP_LLM_CAPTURE_POINT("after cut");
            f->size = end - (off_t) torn;
            return k;
        }

        err = errno;
    }

    if (torn == 0) {
        return k;
    }

    ngx_http_llm_capture_file_say(&w->files, f, NGX_HTTP_LLM_CAPTURE_SAY_CUT,
                                  LOG_ERR, err,
                                  err ? "cannot cut a torn row away yet"
                                      : "a torn row was left in the middle,"
                                        " as others appended behind it");

    return err && whole + torn + 1 == w->lines.end[k] ? k + 1 : k;
}


/*
 * After a write that was not the whole batch: was the file truncated between
 * two of them, as "copytruncate" does, which knows of no lock?  Then the rest
 * of a line stands at its head, and has to go.
 */

static int
ngx_http_llm_capture_writer_truncated(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, off_t *end, off_t n)
{
    off_t                              before;
    struct stat                        st;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = w->files.sys;
    before = *end;

    *end = sys->lseek(f->fd, 0, SEEK_CUR);

    if (before == -1 || *end == -1 || *end >= before + n) {
        return 0;
    }

    if (sys->fstat(f->fd, &st) == 0 && st.st_size == *end) {
        (void) ngx_http_llm_capture_sys_cut(sys, f->fd, *end - n);
    }

    f->error = EAGAIN;

    return 1;
}


/* returns the number of whole lines that stand in the file */

static unsigned
ngx_http_llm_capture_writer_append(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, off_t offset)
{
    int                            n;
    off_t                          end;
    ssize_t                        rc;
    uint64_t                       written;
    ngx_http_llm_capture_cursor_t  c;

    end = -1;

    memset(&c, 0, sizeof(ngx_http_llm_capture_cursor_t));

    f->size = -1;
    f->error = 0;

    for (written = 0; written < w->lines.total; written += (uint64_t) rc) {

        n = ngx_http_llm_capture_lines_iov(&w->lines, &c, w->iov, IOV_MAX);

        NGX_HTTP_LLM_CAPTURE_POINT("before writev");

        rc = w->files.sys->writev(f->fd, w->iov, n);

        NGX_HTTP_LLM_CAPTURE_POINT("after writev");

        if (rc == -1 && errno == EINTR) {
            rc = 0;
            continue;
        }

        if (rc <= 0) {
            f->error = rc ? errno : EIO;
            ngx_http_llm_capture_file_say(&w->files, f,
                                          NGX_HTTP_LLM_CAPTURE_SAY_WRITE,
                                          LOG_ERR, f->error, "cannot write");
            break;
        }

        if ((uint64_t) rc < w->lines.total
            && ngx_http_llm_capture_writer_truncated(w, f, &end, rc))
        {
            break;
        }

        ngx_http_llm_capture_lines_advance(&w->lines, &c, (uint64_t) rc);
    }

    if (written == w->lines.total) {
        f->size = offset + (off_t) written;
        return w->lines.n;
    }

    if (written == 0) {
        f->size = offset;
        return 0;
    }

    return ngx_http_llm_capture_writer_cut(w, f, written);
}


static ssize_t
ngx_http_llm_capture_writer_refuse(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f)
{
    if (ngx_http_llm_capture_file_hopeless(f->error)) {
        ngx_http_llm_capture_file_ready(&w->files, f);
        return NGX_HTTP_LLM_CAPTURE_NEVER;
    }

    ngx_http_llm_capture_file_later(&w->files, f);

    return NGX_HTTP_LLM_CAPTURE_LATER;
}


const uint8_t *
ngx_http_llm_capture_writer_key(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, uint64_t now)
{
    if (w->key) {
        return w->key;
    }

    w->files.now = now;

    return ngx_http_llm_capture_file_key(&w->files, f) == 0 ? f->key : NULL;
}


void
ngx_http_llm_capture_writer_later(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, uint64_t now)
{
    w->files.now = now;
    ngx_http_llm_capture_file_later(&w->files, f);
}


/* the ids of sessions in place of the sessions */

static int
ngx_http_llm_capture_writer_seal(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, ngx_http_llm_capture_line_t *line,
    unsigned n)
{
    unsigned        i;
    const uint8_t  *key;

    key = NULL;

    for (i = 0; i < n; i++) {

        if (line[i].session == 0) {
            continue;
        }

        if (key == NULL) {
            key = ngx_http_llm_capture_writer_key(w, f, w->files.now);

            if (key == NULL) {
                return -1;
            }
        }

        line[i].session = ngx_http_llm_capture_siphash_seal(key,
                                                            line[i].session);
    }

    return 0;
}


/* all that comes before the intent; the file is locked if it returns 0 */

static int
ngx_http_llm_capture_writer_prepare(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, unsigned format, struct stat *st,
    ngx_http_llm_capture_line_t *line, unsigned n, uint64_t t0_wall,
    uint64_t t0_mono)
{
    ngx_http_llm_capture_files_t  *fs;

    fs = &w->files;

    if (ngx_http_llm_capture_file_lock(fs, f, st) == -1) {
        return -1;
    }

    /* rows without a time need no epoch */

    if (ngx_http_llm_capture_file_mend(fs, f, st) == 0
        && ngx_http_llm_capture_file_format(fs, f, format, st) == 0
        && (!ngx_http_llm_capture_is_timed(format)
            || ngx_http_llm_capture_file_epoch(fs, f, st, w->boot, t0_wall,
                                               t0_mono) == 0)
        && ngx_http_llm_capture_writer_seal(w, f, line, n) == 0)
    {
        return 0;
    }

    f->size = -1;
    ngx_http_llm_capture_file_unlock(fs, f);

    return -1;
}


ssize_t
ngx_http_llm_capture_writer_write(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, unsigned format,
    ngx_http_llm_capture_line_t *line, unsigned n, uint64_t t0_wall,
    uint64_t t0_mono, ngx_http_llm_capture_intent_t *intent, uint64_t now)
{
    unsigned     i, k;
    struct stat  st;

    w->files.now = now;

    if (n > NGX_HTTP_LLM_CAPTURE_BATCH) {
        n = NGX_HTTP_LLM_CAPTURE_BATCH;
    }

    if (ngx_http_llm_capture_writer_prepare(w, f, format, &st, line, n, t0_wall,
                                            t0_mono)
        == -1)
    {
        return ngx_http_llm_capture_writer_refuse(w, f);
    }

    for (i = 0; i < n; i++) {
        line[i].ts = 0;

        if (ngx_http_llm_capture_is_timed(format)) {
            line[i].ts = ngx_http_llm_capture_epoch_ts(&f->epoch,
                                                       line[i].mono);
        }
    }

    ngx_http_llm_capture_lines_set(&w->lines, format, line, n);
    ngx_http_llm_capture_writer_intend(w, f, format, &st, intent);

    k = ngx_http_llm_capture_writer_append(w, f, st.st_size);

    if (k == 0) {
        atomic_store_explicit(&intent->state,
                              NGX_HTTP_LLM_CAPTURE_INTENT_NONE,
                              memory_order_release);
    }

    ngx_http_llm_capture_file_unlock(&w->files, f);

    if (k == 0) {
        return ngx_http_llm_capture_writer_refuse(w, f);
    }

    /* some went in: the back-off begins anew */

    ngx_http_llm_capture_file_ready(&w->files, f);

    if (k < n) {
        ngx_http_llm_capture_file_later(&w->files, f);
    }

    return k;
}


ssize_t
ngx_http_llm_capture_writer_recover(ngx_http_llm_capture_writer_t *w,
    const ngx_http_llm_capture_intent_t *intent,
    ngx_http_llm_capture_line_t *line, unsigned n)
{
    uint32_t                       len, format;
    ngx_http_llm_capture_place_t  *place;

    place = &w->place;

    /* each once: the zone may change under our eyes */

    place->dev = intent->dev;
    place->ino = intent->ino;
    place->offset = intent->offset;
    place->length = intent->length;
    format = intent->format;
    len = *(volatile const uint32_t *) &intent->path_len;

    if (n == 0 || n > NGX_HTTP_LLM_CAPTURE_BATCH
        || len == 0 || len >= sizeof(place->path)
        || place->offset > INT64_MAX)
    {
        return NGX_HTTP_LLM_CAPTURE_UNCERTAIN;
    }

    memcpy(place->path, intent->path, len);
    place->path[len] = '\0';

    if (place->path[0] != '/' || strlen(place->path) != len) {
        return NGX_HTTP_LLM_CAPTURE_UNCERTAIN;
    }

    ngx_http_llm_capture_lines_set(&w->lines, format, line, n);

    return ngx_http_llm_capture_recover(w->files.sys, place, &w->lines);
}
