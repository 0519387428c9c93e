
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * When the manifest of a file is written: a second after what it tells of, at
 * most; less often if there are many.  It is found by its inode, so that a file
 * that was renamed by others has its manifest beside it all the same.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_sidecar.h"


/* ms until a manifest tells of a change; and more for each that waits too */
#define NGX_HTTP_LLM_CAPTURE_TELL       1000
#define NGX_HTTP_LLM_CAPTURE_TELL_EACH  10
/* after one that failed */
#define NGX_HTTP_LLM_CAPTURE_TELL_AGAIN 5000
/* for digests, at the end, of all together */
#define NGX_HTTP_LLM_CAPTURE_TELL_END   1000


static const ngx_http_llm_capture_policy_t  ngx_http_llm_capture_no_policy;


uint64_t
ngx_http_llm_capture_book_wall(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}


const char *
ngx_http_llm_capture_book_name(const char *path)
{
    return strrchr(path, '/') + 1;
}


static const ngx_http_llm_capture_policy_t *
ngx_http_llm_capture_book_policy(ngx_http_llm_capture_drain_t *d,
    uint32_t row)
{
    unsigned                               i;
    uint64_t                               hash;
    const ngx_http_llm_capture_keeping_t  *k;

    k = &d->conf.keeping;

    if (row < NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
        hash = ngx_http_llm_capture_zone_hdr(&d->zone)->templates[row].hash;

        for (i = 0; i < k->npolicies; i++) {
            if (k->policies[i].hash == hash) {
                return &k->policies[i];
            }
        }
    }

    return &ngx_http_llm_capture_no_policy;
}


/* due for something: looked at by each pass */

static void
ngx_http_llm_capture_book_list(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    if (!book->listed) {
        book->listed = 1;
        book->next = d->listed;
        d->listed = book;
        d->nlisted++;
    }
}


void
ngx_http_llm_capture_book_dirty(ngx_http_llm_capture_drain_t *d,
    uint32_t account)
{
    ngx_http_llm_capture_book_t  *book;

    if (account == NGX_HTTP_LLM_CAPTURE_NONE) {
        return;
    }

    book = &d->books[account];

    if (!book->dirty) {
        book->dirty = 1;
        book->due = d->now + NGX_HTTP_LLM_CAPTURE_TELL
                    + d->nlisted * NGX_HTTP_LLM_CAPTURE_TELL_EACH;
        ngx_http_llm_capture_book_list(d, book);
    }
}


void
ngx_http_llm_capture_books_dirty(ngx_http_llm_capture_drain_t *d)
{
    uint32_t  i;

    for (i = 0; i < d->nbooks; i++) {
        if (d->books[i].file) {
            ngx_http_llm_capture_book_dirty(d, i);
            d->books[i].due = d->now;
        }
    }
}


/* by the time that a file has been written to */

static void
ngx_http_llm_capture_book_clock(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    uint64_t                         wall;
    ngx_http_llm_capture_account_t  *a;

    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    book->rotate_at = 0;

    if (book->policy->time && a->ino) {
        wall = ngx_http_llm_capture_book_wall();

        book->rotate_at = d->now + book->policy->time;

        if (wall > a->begun) {
            wall -= a->begun;
            book->rotate_at -= wall < book->policy->time ? wall
                                                         : book->policy->time;
        }

        ngx_http_llm_capture_book_list(d, book);
    }

    book->full = book->policy->size && a->size >= book->policy->size;

    if (book->full) {
        ngx_http_llm_capture_book_list(d, book);
    }
}


static void
ngx_http_llm_capture_book_open(ngx_http_llm_capture_drain_t *d,
    uint32_t account, ngx_http_llm_capture_file_t *file, uint32_t row)
{
    uint32_t                      i;
    ngx_http_llm_capture_book_t  *book;

    book = &d->books[account];

    book->account = account;
    book->row = row < NGX_HTTP_LLM_CAPTURE_ROWS
                ? row : NGX_HTTP_LLM_CAPTURE_TEMPLATES;
    book->file = file;
    book->policy = ngx_http_llm_capture_book_policy(d, book->row);
    book->dir = ngx_http_llm_capture_zone_hash(file->path,
                    (size_t) (ngx_http_llm_capture_book_name(file->path)
                              - file->path), 0);
    book->alone = 1;

    for (i = 0; i < d->nbooks; i++) {
        if (d->books[i].file && i != account
            && d->books[i].dir == book->dir)
        {
            book->alone = 0;
            break;
        }
    }

    ngx_http_llm_capture_disk_size(d, book,
            ngx_http_llm_capture_zone_account(&d->zone, account)->size, 0);
    ngx_http_llm_capture_disk_changed(d);

    if (account >= d->nbooks) {
        d->nbooks = account + 1;
    }

    file->follow = ngx_http_llm_capture_rotates(book->policy);

    ngx_http_llm_capture_book_clock(d, book);

    if (ngx_http_llm_capture_rotates(book->policy)) {
        ngx_http_llm_capture_finish_later(d, book);
    }
}


int
ngx_http_llm_capture_books_open(ngx_http_llm_capture_drain_t *d)
{
    char                             path[NGX_HTTP_LLM_CAPTURE_PATH];
    uint32_t                         i, n, len;
    ngx_http_llm_capture_file_t     *file;
    ngx_http_llm_capture_account_t  *a;

    d->books = calloc(NGX_HTTP_LLM_CAPTURE_ACCOUNTS,
                      sizeof(ngx_http_llm_capture_book_t));

    if (d->books == NULL) {
        return -1;
    }

    n = ngx_http_llm_capture_accounts(&d->zone);

    for (i = 0; i < n; i++) {
        a = ngx_http_llm_capture_zone_account(&d->zone, i);

        if (atomic_load(&a->state) == NGX_HTTP_LLM_CAPTURE_ACCOUNT_RESET) {
            ngx_http_llm_capture_account_reset(a);
        }

        len = *(volatile uint32_t *) &a->path_len;

        if (len >= sizeof(path)) {
            continue;
        }

        memcpy(path, a->path, len);

        file = ngx_http_llm_capture_writer_file(d->conf.writer, path, len);

        if (file) {
            ngx_http_llm_capture_book_open(d, i, file,
                                           *(volatile uint32_t *) &a->row);
            ngx_http_llm_capture_book_dirty(d, i);
        }
    }

    return 0;
}


void
ngx_http_llm_capture_books_close(ngx_http_llm_capture_drain_t *d)
{
    ngx_http_llm_capture_finish_close(d);
    free(d->books);
}


int
ngx_http_llm_capture_book_taken(ngx_http_llm_capture_drain_t *d,
    const ngx_http_llm_capture_file_t *file)
{
    size_t                              len;
    uint32_t                            i;
    const ngx_http_llm_capture_file_t  *other;

    len = ngx_http_llm_capture_segment_stem(file->path);

    for (i = 0; i < d->nbooks; i++) {
        other = d->books[i].file;

        if (other && other->len != file->len
            && strncmp(other->path, file->path, len) == 0
            && ngx_http_llm_capture_segment_stem(other->path) == len)
        {
            return 1;
        }
    }

    return 0;
}


uint32_t
ngx_http_llm_capture_book(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_file_t *file, uint32_t row, uint32_t format)
{
    uint32_t  i;

    if (format == NGX_HTTP_LLM_CAPTURE_OUTCOMES) {
        file->follow = ngx_http_llm_capture_rotates(
                                    ngx_http_llm_capture_book_policy(d, row));
        return NGX_HTTP_LLM_CAPTURE_NONE;
    }

    i = ngx_http_llm_capture_account_find(&d->zone, file->path, file->len, row,
                                          format);

    if (i == NGX_HTTP_LLM_CAPTURE_NONE) {

        if (!d->books_full) {
            d->books_full = 1;
            ngx_http_llm_capture_drain_say(d, LOG_WARNING, 0,
                "more than %d files: \"%s\" and later ones have no manifest "
                "and are not rotated", NGX_HTTP_LLM_CAPTURE_ACCOUNTS,
                file->path);
        }

        return i;
    }

    if (d->books[i].file == NULL) {
        ngx_http_llm_capture_book_open(d, i, file, row);
    }

    return i;
}


/* after a recovery nobody has asked for it yet */

static void
ngx_http_llm_capture_book_epoch(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_file_t *file, uint32_t format,
    ngx_http_llm_capture_account_t *a)
{
    char                               path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    ngx_http_llm_capture_epoch_t       e;
    const ngx_http_llm_capture_sys_t  *sys;

    if (file->epoch_known) {
        e = file->epoch;

    } else {

        if (a->t0 || !ngx_http_llm_capture_is_timed(format)) {
            return;
        }

        sys = ngx_http_llm_capture_book_sys(d);

        (void) snprintf(path, sizeof(path),
                        "%s" NGX_HTTP_LLM_CAPTURE_PATH_SIDECAR, file->path);

        if (ngx_http_llm_capture_sidecar_load(sys, &e, path) != 1
            || e.ino != a->ino)
        {
            return;
        }
    }

    if (e.wall > 0) {
        a->t0 = (uint64_t) e.wall;
    }
}


void
ngx_http_llm_capture_book_written(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest,
    const ngx_http_llm_capture_intent_t *it, unsigned n)
{
    unsigned                         i;
    ngx_http_llm_capture_book_t     *book;
    ngx_http_llm_capture_account_t  *a;

    if (dest->account == NGX_HTTP_LLM_CAPTURE_NONE) {
        return;
    }

    book = &d->books[dest->account];
    a = ngx_http_llm_capture_zone_account(&d->zone, dest->account);

    if (a->ino != it->ino
        && atomic_load(&a->state) == NGX_HTTP_LLM_CAPTURE_ACCOUNT_SEALING)
    {
        /* a predecessor had renamed the file, and no more */
        (void) ngx_http_llm_capture_seal_resume(d, book);
    }

    if (a->ino
        && (a->ino != it->ino || a->dev != it->dev || it->offset < a->size))
    {
        /* the path names another file, or the same one was cut to nothing */

        if (a->ino != it->ino || a->dev != it->dev) {
            ngx_http_llm_capture_book_last(d, book);

        } else {
            ngx_http_llm_capture_book_cut(d, book, it->offset);
        }

        NGX_HTTP_LLM_CAPTURE_POINT("before reset");

        ngx_http_llm_capture_account_reset(a);
    }

    if (a->ino == 0) {
        a->dev = it->dev;
        a->begun = ngx_http_llm_capture_book_wall();
        a->format = dest->format;
        a->ino = it->ino;

        ngx_http_llm_capture_book_clock(d, book);
    }

    ngx_http_llm_capture_book_epoch(d, dest->file, dest->format, a);

    for (i = 0; ngx_http_llm_capture_is_timed(dest->format) && i < n; i++) {
        ngx_http_llm_capture_account_row(a, d->lines[i].ts);
    }

    for (i = 0; i < n; i++) {
        a->endpoints |= 1u << (d->batch[i]->endpoint & 31);
    }

    ngx_http_llm_capture_book_dirty(d, dest->account);
}


/* not before: a successor would take what it finds for a file that was cut */

void
ngx_http_llm_capture_book_committed(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest)
{
    ngx_http_llm_capture_book_t     *book;
    ngx_http_llm_capture_account_t  *a;

    if (dest->account == NGX_HTTP_LLM_CAPTURE_NONE || dest->file->size < 0) {
        return;
    }

    book = &d->books[dest->account];
    a = ngx_http_llm_capture_zone_account(&d->zone, dest->account);

    a->size = (uint64_t) dest->file->size;
    ngx_http_llm_capture_disk_size(d, book, a->size, 0);

    if (!book->full && ngx_http_llm_capture_rotates(book->policy)) {
        ngx_http_llm_capture_book_clock(d, book);
    }
}


void
ngx_http_llm_capture_books_gap(ngx_http_llm_capture_drain_t *d, uint32_t row,
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max])
{
    uint32_t  i;
    uint64_t  dropped;

    dropped = ngx_http_llm_capture_account_dropped(sum);

    if (dropped == d->dropped[row]) {
        return;
    }

    d->dropped[row] = dropped;

    ngx_http_llm_capture_account_gap(
                        ngx_http_llm_capture_zone_gaps(&d->zone, row), dropped,
                        d->looked ? d->looked : d->wall, d->wall);

    for (i = 0; i < d->nbooks; i++) {
        if (d->books[i].row == row && d->books[i].file) {
            ngx_http_llm_capture_book_dirty(d, i);
        }
    }
}


/* 1: nothing is due for it any more */

static int
ngx_http_llm_capture_book_pass(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    ngx_http_llm_capture_account_t  *a;

    a = ngx_http_llm_capture_zone_account(&d->zone, book->account);

    if (book->again <= d->now) {
        book->again = 0;

        if ((atomic_load(&a->state) == NGX_HTTP_LLM_CAPTURE_ACCOUNT_SEALING
             && ngx_http_llm_capture_seal_resume(d, book) == -1)
            || ((book->full
                 || (book->rotate_at && book->rotate_at <= d->now))
                && ngx_http_llm_capture_seal(d, book) == -1))
        {
            book->again = d->now + NGX_HTTP_LLM_CAPTURE_TELL_AGAIN;
        }
    }

    if (book->dirty && book->due <= d->now) {

        if (ngx_http_llm_capture_book_update(d, book, 0) == 0) {
            book->dirty = 0;

        } else {
            book->due = d->now + NGX_HTTP_LLM_CAPTURE_TELL_AGAIN;
        }
    }

    return !book->dirty && !book->full && book->rotate_at == 0
           && book->again == 0;
}


void
ngx_http_llm_capture_books_pass(ngx_http_llm_capture_drain_t *d)
{
    ngx_http_llm_capture_book_t  *book, **p;

    for (p = &d->listed; (book = *p) != NULL; /* void */) {

        if (ngx_http_llm_capture_book_pass(d, book)) {
            *p = book->next;
            book->listed = 0;
            d->nlisted--;
            continue;
        }

        p = &book->next;
    }

    ngx_http_llm_capture_finish_pass(d);
}


uint64_t
ngx_http_llm_capture_books_due(ngx_http_llm_capture_drain_t *d)
{
    uint64_t                      due, at;
    ngx_http_llm_capture_book_t  *book;

    due = ngx_http_llm_capture_finish_due(d);

    for (book = d->listed; book; book = book->next) {

        if (book->dirty && (due == 0 || book->due < due)) {
            due = book->due;
        }

        at = book->again ? book->again : book->rotate_at;

        if (at && (due == 0 || at < due)) {
            due = at;
        }
    }

    return due;
}


void
ngx_http_llm_capture_books_end(ngx_http_llm_capture_drain_t *d)
{
    uint32_t  i;
    uint64_t  end;

    end = ngx_http_llm_capture_drain_clock(d) + NGX_HTTP_LLM_CAPTURE_TELL_END;

    for (i = 0; i < d->nbooks; i++) {
        if (d->books[i].file
            && ngx_http_llm_capture_book_update(d, &d->books[i], 1) == 0)
        {
            ngx_http_llm_capture_finish_live(d, &d->books[i], end);
        }
    }

    ngx_http_llm_capture_finish_all(d, end);
}
