
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A live file becomes a segment, whole, under its lock:
 *
 *     SEALING -> manifest of the segment -> rename -> RESET -> a new account
 *
 * Whoever finds SEALING looks whether the live name still is that of the file:
 * if so all is done again, if not the rename was the last step and only the
 * account is left.  Another process that writes to the file sees, under the
 * lock, that the name has gone, and opens the new file (file->follow).
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_manifest.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_point.h"


/* ms until a segment is read: others that wrote to it tell of it before */
#define NGX_HTTP_LLM_CAPTURE_SETTLE  2500


typedef struct {
    char  segment[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    char  manifest[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    char  live[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];      /* its manifest */
} ngx_http_llm_capture_names_t;


static unsigned
ngx_http_llm_capture_seal_form(const ngx_http_llm_capture_book_t *book)
{
    return book->policy->compression == NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE
           ? NGX_HTTP_LLM_CAPTURE_SEGMENT_JSONL
           : NGX_HTTP_LLM_CAPTURE_SEGMENT_PLAIN;
}


static int
ngx_http_llm_capture_seal_names(const ngx_http_llm_capture_book_t *book,
    uint64_t utc, ngx_http_llm_capture_names_t *names)
{
    const char  *path, *tail;

    path = book->file->path;
    tail = ngx_http_llm_capture_segment_tail(
                                         ngx_http_llm_capture_seal_form(book));

    if (ngx_http_llm_capture_segment_name(path, utc, tail, names->segment,
                                          sizeof(names->segment))
        == -1
        || ngx_http_llm_capture_segment_name(path, utc,
                          ngx_http_llm_capture_segment_tail(
                                       NGX_HTTP_LLM_CAPTURE_SEGMENT_MANIFEST),
                          names->manifest, sizeof(names->manifest))
           == -1)
    {
        return -1;
    }

    return ngx_http_llm_capture_segment_manifest(path, names->live,
                                                 sizeof(names->live));
}


/* a segment of that name, in whatever form */

static int
ngx_http_llm_capture_seal_stands(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_book_t *book, uint64_t utc)
{
    char         path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    unsigned     form;
    struct stat  st;

    for (form = 0; form < NGX_HTTP_LLM_CAPTURE_SEGMENT_OUTCOMES; form++) {

        if (ngx_http_llm_capture_segment_name(book->file->path, utc,
                                     ngx_http_llm_capture_segment_tail(form),
                                     path, sizeof(path))
            == 0
            && sys->lstat(path, &st) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* a name that no segment has: two in one millisecond, or the clock went back */

static int
ngx_http_llm_capture_seal_choose(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_book_t *book, uint64_t *utc)
{
    unsigned                      tries, form;
    char                          path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    struct stat                   st;

    for (tries = 0; tries < 10000; tries++, (*utc)++) {

        for (form = 0; form < NGX_HTTP_LLM_CAPTURE_SEGMENT_FORMS; form++) {

            if (ngx_http_llm_capture_segment_name(book->file->path, *utc,
                                     ngx_http_llm_capture_segment_tail(form),
                                     path, sizeof(path))
                == -1)
            {
                return -1;
            }

            if (sys->lstat(path, &st) == 0 || errno != ENOENT) {
                break;
            }
        }

        if (form == NGX_HTTP_LLM_CAPTURE_SEGMENT_FORMS) {
            return 0;
        }
    }

    errno = EEXIST;

    return -1;
}


/* opened and locked, if the live name is that of the account's file */

static int
ngx_http_llm_capture_seal_lock(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_book_t *book,
    const ngx_http_llm_capture_account_t *a, struct stat *st, int *busy)
{
    int  fd;

    *busy = 0;

    if (a->ino == 0) {
        return -1;
    }

    fd = ngx_http_llm_capture_file_open(sys, book->file->path, 0, st);

    if (fd == -1) {
        *busy = errno != ENOENT;
        return -1;
    }

    if ((uint64_t) st->st_ino == a->ino && (uint64_t) st->st_dev == a->dev) {

        /* another one may have sealed it, and begun the next */

        if (sys->flock(fd, LOCK_EX|LOCK_NB) == 0 && sys->fstat(fd, st) == 0
            && ngx_http_llm_capture_file_named(sys, book->file->path, st))
        {
            return fd;
        }

        *busy = 1;
    }

    (void) sys->close(fd);

    return -1;
}


/* answers that are still to come go to the next ones: see `join` */

static void
ngx_http_llm_capture_seal_outcomes(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_book_t *book, uint64_t utc)
{
    char         from[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    char         to[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    size_t       len;
    struct stat  st;

    len = ngx_http_llm_capture_segment_stem(book->file->path);

    (void) snprintf(from, sizeof(from),
                    "%.*s" NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES, (int) len,
                    book->file->path);

    if (ngx_http_llm_capture_segment_name(book->file->path, utc,
                          ngx_http_llm_capture_segment_tail(
                                       NGX_HTTP_LLM_CAPTURE_SEGMENT_OUTCOMES),
                          to, sizeof(to))
        == 0
        && sys->lstat(from, &st) == 0 && S_ISREG(st.st_mode) && st.st_size)
    {
        (void) sys->rename(from, to);
    }
}


static void
ngx_http_llm_capture_seal_done(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book,
    const ngx_http_llm_capture_names_t *names)
{
    json_t                            *old;
    uint64_t                           utc;
    struct stat                        st;
    ngx_http_llm_capture_account_t    *a;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);
    utc = a->seal;

    /* of the segment, unless somebody has begun the next file */

    memset(&st, 0, sizeof(st));
    st.st_ino = (ino_t) a->ino;
    st.st_dev = (dev_t) a->dev;

    old = ngx_http_llm_capture_manifest_load(sys, names->live, &st);

    if (old) {
        (void) sys->unlink(names->live);
        json_decref(old);
    }

    ngx_http_llm_capture_seal_outcomes(sys, book, utc);

    ngx_http_llm_capture_disk_size(d, book, 0, 1);
    ngx_http_llm_capture_account_reset(a);

    NGX_HTTP_LLM_CAPTURE_POINT("after seal");

    book->dirty = 0;
    book->full = 0;
    book->rotate_at = 0;

    ngx_http_llm_capture_finish_add(d, book, utc,
                                    ngx_http_llm_capture_seal_form(book),
                                    d->now + NGX_HTTP_LLM_CAPTURE_SETTLE);
    ngx_http_llm_capture_finish_keep(d, book);
}


/* under the lock, from the state SEALING on */

static int
ngx_http_llm_capture_seal_locked(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book,
    const ngx_http_llm_capture_names_t *names, const struct stat *st)
{
    int                                err;
    ngx_http_llm_capture_account_t    *a;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    if (ngx_http_llm_capture_book_tell(d, book, names->manifest, names->live,
                            ngx_http_llm_capture_book_name(names->segment),
                            st, 1, 1)
        == 0)
    {
        NGX_HTTP_LLM_CAPTURE_POINT("before rename");

        if (sys->rename(book->file->path, names->segment) == 0) {
            NGX_HTTP_LLM_CAPTURE_POINT("after rename");
            return 0;
        }

        /* what others told of it is in there by now */

        err = errno;
        (void) sys->rename(names->manifest, names->live);

        ngx_http_llm_capture_book_say(d, book, NGX_HTTP_LLM_CAPTURE_SAY_SEAL,
                                      LOG_ERR, err,
                                      "cannot rename to a segment");
    }

    /* as it was; the manifest of the live file is written again */

    atomic_store_explicit(&a->state, NGX_HTTP_LLM_CAPTURE_ACCOUNT_OPEN,
                          memory_order_release);
    ngx_http_llm_capture_book_dirty(d, book->account);
    book->due = d->now;

    return -1;
}


int
ngx_http_llm_capture_seal(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    int                                fd, rc, busy;
    uint64_t                           utc;
    struct stat                        st;
    ngx_http_llm_capture_names_t       names;
    ngx_http_llm_capture_account_t    *a;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    fd = ngx_http_llm_capture_seal_lock(sys, book, a, &st, &busy);

    if (fd == -1) {

        if (busy) {
            return -1;
        }

        /* until there is another one */

        book->full = 0;
        book->rotate_at = 0;

        return 0;
    }

    utc = ngx_http_llm_capture_book_wall();
    rc = 0;

    if (st.st_size) {
        rc = ngx_http_llm_capture_seal_choose(sys, book, &utc);

        if (rc == 0) {
            rc = ngx_http_llm_capture_seal_names(book, utc, &names);
        }

        if (rc == 0) {
            a->seal = utc;
            atomic_store_explicit(&a->state,
                                  NGX_HTTP_LLM_CAPTURE_ACCOUNT_SEALING,
                                  memory_order_release);

            NGX_HTTP_LLM_CAPTURE_POINT("sealing");

            rc = ngx_http_llm_capture_seal_locked(d, book, &names, &st);
        }

        if (rc == 0) {
            ngx_http_llm_capture_seal_done(d, book, &names);
        }

    } else {
        book->full = 0;
        book->rotate_at = 0;
    }

    (void) sys->close(fd);

    return rc;
}


int
ngx_http_llm_capture_seal_resume(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    int                                fd, rc, busy;
    struct stat                        st;
    ngx_http_llm_capture_names_t       names;
    ngx_http_llm_capture_account_t    *a;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    if (ngx_http_llm_capture_seal_names(book, a->seal, &names) == -1) {
        /* spoiled by a worker: the file stays as it is */
        atomic_store_explicit(&a->state, NGX_HTTP_LLM_CAPTURE_ACCOUNT_OPEN,
                              memory_order_release);
        return 0;
    }

    fd = ngx_http_llm_capture_seal_lock(sys, book, a, &st, &busy);

    if (fd == -1 && busy) {
        return -1;
    }

    if (fd == -1 && !ngx_http_llm_capture_seal_stands(sys, book, a->seal)) {

        /* renamed by others: they wrote the manifest, or there is no file */

        (void) sys->unlink(names.manifest);
        atomic_store_explicit(&a->state, NGX_HTTP_LLM_CAPTURE_ACCOUNT_OPEN,
                              memory_order_release);
        ngx_http_llm_capture_book_dirty(d, book->account);

        return 0;
    }

    rc = 0;

    if (fd >= 0) {
        rc = ngx_http_llm_capture_seal_locked(d, book, &names, &st);
        (void) sys->close(fd);
    }

    if (rc == 0) {
        ngx_http_llm_capture_seal_done(d, book, &names);
    }

    return rc;
}
