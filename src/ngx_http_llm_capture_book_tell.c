
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The manifest of a file is written: wherever the file is by now, under its
 * lock, out of what stood there before and the account.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <sys/file.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_manifest.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_point.h"


/* tries for one that is the last of its file, 1 ms each */
#define NGX_HTTP_LLM_CAPTURE_LAST_TRIES  50


/* it was cut to nothing by others: what was told of it is of no file */

void
ngx_http_llm_capture_book_cut(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t size)
{
    char                               live[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    json_t                            *m;
    struct stat                        st;
    ngx_http_llm_capture_account_t    *a;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    memset(&st, 0, sizeof(st));
    st.st_ino = (ino_t) a->ino;
    st.st_dev = (dev_t) a->dev;
    st.st_size = (off_t) size;

    if (ngx_http_llm_capture_segment_manifest(book->file->path, live,
                                              sizeof(live))
        == -1)
    {
        return;
    }

    m = ngx_http_llm_capture_manifest_load(sys, live, &st);

    if (m && ngx_http_llm_capture_manifest_cut(m, &st)) {
        (void) sys->unlink(live);
    }

    json_decref(m);
}


/* a file that others renamed is written to until it is opened anew */

static int
ngx_http_llm_capture_book_left(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_book_t *book, const struct stat *st)
{
    struct stat  now;

    return book->file->follow
           || book->file->fd == -1
           || sys->fstat(book->file->fd, &now) == -1
           || now.st_ino != st->st_ino || now.st_dev != st->st_dev;
}


/* of a live file, or a segment that may be waiting to be compressed */

static int
ngx_http_llm_capture_book_manifest(const char *found,
    char path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH])
{
    char    plain[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    size_t  len;

    static const char  end[] = NGX_HTTP_LLM_CAPTURE_PATH_PLAIN;

    strcpy(plain, found);
    len = strlen(plain);

    if (len >= sizeof(end)
        && strcmp(plain + len - (sizeof(end) - 1), end) == 0)
    {
        plain[len - (sizeof(end) - 1)] = '\0';
        strcat(plain, NGX_HTTP_LLM_CAPTURE_PATH_JSONL);
    }

    return ngx_http_llm_capture_segment_manifest(plain, path,
                                          NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH);
}


/* the file is found and locked: it has that name still */

static int
ngx_http_llm_capture_book_found(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, const char *found,
    const struct stat *st, unsigned ended)
{
    int                                elsewhere;
    char                               path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    char                               live[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    ngx_http_llm_capture_account_t    *a;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    if (ngx_http_llm_capture_book_manifest(found, path) == -1
        || ngx_http_llm_capture_segment_manifest(book->file->path, live,
                                                 sizeof(live))
           == -1)
    {
        return -1;
    }

    elsewhere = strcmp(found, book->file->path) != 0;

    if (!elsewhere && (uint64_t) st->st_size < a->size) {
        ngx_http_llm_capture_book_cut(d, book, (uint64_t) st->st_size);
        ngx_http_llm_capture_account_reset(a);
        ngx_http_llm_capture_disk_size(d, book, 0, 0);
        return 0;
    }

    if (elsewhere && ngx_http_llm_capture_book_left(sys, book, st)) {
        ended = 1;
    }

    return ngx_http_llm_capture_book_tell(d, book, path, live,
                                     ngx_http_llm_capture_book_name(found),
                                     st, ended,
                                     elsewhere && book->file->follow);
}


/* in which the file is, wherever it is; 0: it is nowhere */

int
ngx_http_llm_capture_book_update(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, unsigned ended)
{
    int                                fd, rc, err;
    char                               found[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    struct stat                        st;
    ngx_http_llm_capture_account_t    *a;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    if (a->ino == 0) {
        return 0;
    }

    fd = ngx_http_llm_capture_segment_find(sys, book->file->path, a->dev,
                                           a->ino, found);

    if (fd == -1) {
        /* it was deleted: there is nothing to tell of */
        return 0;
    }

    if (fd < 0) {
        return -1;
    }

    rc = -1;

    if (sys->flock(fd, LOCK_EX|LOCK_NB) == 0 && sys->fstat(fd, &st) == 0) {

        if (ngx_http_llm_capture_file_named(sys, found, &st)) {
            rc = ngx_http_llm_capture_book_found(d, book, found, &st, ended);

        } else {
            errno = EWOULDBLOCK;
        }
    }

    err = errno;
    (void) sys->close(fd);
    errno = err;

    return rc;
}


/* the last time, for this account: another one may hold the file just now */

void
ngx_http_llm_capture_book_last(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    unsigned  tries;

    static const struct timespec  nap = { 0, 1000000 };

    for (tries = 0; tries < NGX_HTTP_LLM_CAPTURE_LAST_TRIES; tries++) {

        if (ngx_http_llm_capture_book_update(d, book, 1) == 0
            || errno != EWOULDBLOCK)
        {
            return;
        }

        (void) nanosleep(&nap, NULL);
    }
}


int
ngx_http_llm_capture_book_tell(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, const char *path, const char *live,
    const char *name, const struct stat *st, unsigned ended, unsigned renamed)
{
    int                                rc, moved;
    json_t                            *old, *new;
    uint32_t                           len;
    uint64_t                           sum[NGX_HTTP_LLM_CAPTURE_C_max];
    uint64_t                           since[NGX_HTTP_LLM_CAPTURE_C_max];
    ngx_http_llm_capture_facts_t       facts;
    ngx_http_llm_capture_account_t    *a, own;
    ngx_http_llm_capture_template_t   *t;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);
    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);
    t = ngx_http_llm_capture_zone_hdr(&d->zone)->templates;

    memcpy(&own, a, sizeof(own));

    memset(&facts, 0, sizeof(facts));

    ngx_http_llm_capture_zone_sum(&d->zone, book->row, sum);
    ngx_http_llm_capture_account_since(&own, sum, since);

    facts.name = name;
    facts.ended = ended;
    facts.renamed = renamed;
    facts.now = ngx_http_llm_capture_book_wall();
    facts.bytes = (uint64_t) st->st_size;
    facts.dev = (uint64_t) st->st_dev;
    facts.ino = (uint64_t) st->st_ino;
    /* two paths may be one, by a link to a directory */
    facts.id = ngx_http_llm_capture_zone_hdr(&d->zone)->id ^ book->file->hash;
    facts.account = &own;
    facts.pending = book->npending;
    facts.sum = since;
    facts.gaps = ngx_http_llm_capture_zone_gaps(&d->zone, book->row);
    facts.label = book->policy->label;
    facts.label_len = book->policy->label_len;
    facts.nginx = d->conf.keeping.nginx;
    facts.module = d->conf.keeping.module;
    facts.path = book->file->path;
    facts.path_len = book->file->len;

    if (book->row < NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
        len = *(volatile uint32_t *) &t[book->row].len;

        if (len <= NGX_HTTP_LLM_CAPTURE_TEXT) {
            facts.path = t[book->row].text;
            facts.path_len = len;
        }
    }

    /* the name of a segment is its own, though it be compressed by now */

    old = ngx_http_llm_capture_manifest_load(sys, path, renamed ? NULL : st);
    moved = old == NULL && strcmp(path, live) != 0;

    if (moved) {
        old = ngx_http_llm_capture_manifest_load(sys, live, st);
        moved = old != NULL;
    }

    if (old && ngx_http_llm_capture_manifest_cut(old, st)) {
        json_decref(old);
        old = NULL;
    }

    new = ngx_http_llm_capture_manifest_make(old, &facts);
    rc = -1;

    if (new) {
        rc = ngx_http_llm_capture_manifest_store(sys, path, new);

    } else {
        errno = ENOMEM;
    }

    json_decref(old);
    json_decref(new);

    if (rc == -1) {
        ngx_http_llm_capture_book_say(d, book,
                                      NGX_HTTP_LLM_CAPTURE_SAY_MANIFEST,
                                      LOG_WARNING, errno,
                                      "cannot write the manifest");
        return -1;
    }

    NGX_HTTP_LLM_CAPTURE_POINT("manifest");

    if (moved) {
        (void) sys->unlink(live);
    }

    /* what the next file begins with, if this one is sealed */

    a->pending = book->npending;
    memcpy(a->told, sum, sizeof(sum));
    a->told[NGX_HTTP_LLM_CAPTURE_C_seen] -=
                                       ngx_http_llm_capture_zone_pending(sum);

    return 0;
}
