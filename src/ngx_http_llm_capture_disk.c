
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * How much of the disk a capture may take.  What it uses is the live files that
 * have an account, and their segments with all that lies beside them.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <string.h>
#include <syslog.h>
#include <sys/statvfs.h>

#include "ngx_http_llm_capture_book.h"


/* ms until what is left is asked for again: over a network it takes a while */
#define NGX_HTTP_LLM_CAPTURE_FREE_EVERY  100
/* ms until what is used is looked up again, for what others did */
#define NGX_HTTP_LLM_CAPTURE_DISK_EVERY  10000


void
ngx_http_llm_capture_disk_changed(ngx_http_llm_capture_drain_t *d)
{
    d->disk_due = 0;
}


static uint64_t
ngx_http_llm_capture_disk_live(ngx_http_llm_capture_drain_t *d)
{
    uint32_t  i;
    uint64_t  n;

    for (n = 0, i = 0; i < d->nbooks; i++) {
        if (d->books[i].file) {
            n += ngx_http_llm_capture_zone_account(&d->zone, i)->size;
        }
    }

    return n;
}


/* of all segments, and the oldest of them */

static void
ngx_http_llm_capture_disk_look(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                           i;
    ngx_http_llm_capture_book_t       *book;
    ngx_http_llm_capture_segments_t    list;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_writer_files(d->conf.writer)->sys;

    d->disk_sealed = 0;
    d->disk_oldest = NULL;
    d->disk_utc = 0;
    d->disk_due = d->now + NGX_HTTP_LLM_CAPTURE_DISK_EVERY;

    for (i = 0; i < d->nbooks; i++) {
        book = &d->books[i];

        if (book->file == NULL
            || ngx_http_llm_capture_segments_list(sys, book->file->path, &list)
               == -1)
        {
            continue;
        }

        d->disk_sealed += list.bytes + list.beside;

        if (list.n && (d->disk_oldest == NULL
                       || list.all[0].utc < d->disk_utc))
        {
            d->disk_oldest = book;
            d->disk_utc = list.all[0].utc;
        }

        ngx_http_llm_capture_segments_free(&list);
    }
}


/* 0: there is none that could go */

static int
ngx_http_llm_capture_disk_drop(ngx_http_llm_capture_drain_t *d)
{
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_writer_files(d->conf.writer)->sys;

    if (!d->conf.keeping.drop_oldest || d->disk_oldest == NULL) {
        return 0;
    }

    if (ngx_http_llm_capture_segment_remove(sys, d->disk_oldest->file->path,
                                            d->disk_utc)
        == -1)
    {
        return 0;
    }

    ngx_http_llm_capture_drain_say(d, LOG_NOTICE, 0,
        "\"%s\": the oldest segment was removed, llm_capture_max_disk is "
        "reached", d->disk_oldest->file->path);

    return 1;
}


static int
ngx_http_llm_capture_disk_free(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, uint64_t bytes)
{
    char            dir[NGX_HTTP_LLM_CAPTURE_PATH + 1];
    size_t          len;
    uint64_t        share, want;
    struct statvfs  vfs;

    const ngx_http_llm_capture_keeping_t  *k;

    k = &d->conf.keeping;

    if (d->now < dest->free_due && dest->free >= bytes) {
        dest->free -= bytes;
        return 1;
    }

    len = (size_t) (ngx_http_llm_capture_book_name(dest->path) - dest->path);

    memcpy(dir, dest->path, len);
    dir[len] = '\0';

    /* what cannot be asked is not full: the write will tell */

    if (statvfs(dir, &vfs) == -1) {
        return 1;
    }

    share = (uint64_t) vfs.f_blocks * vfs.f_frsize / 100 * k->free_percent;
    share = share < k->free_most ? share : k->free_most;
    want = share > k->min_free ? share : k->min_free;

    share = (uint64_t) vfs.f_bavail * vfs.f_frsize;

    if (share < want + bytes) {
        dest->free_due = 0;
        return 0;
    }

    dest->free = share - want - bytes;
    dest->free_due = d->now + NGX_HTTP_LLM_CAPTURE_FREE_EVERY;

    return 1;
}


int
ngx_http_llm_capture_disk_room(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, uint64_t bytes)
{
    int                                    tries;
    const ngx_http_llm_capture_keeping_t  *k;

    k = &d->conf.keeping;

    if ((k->min_free || k->free_percent)
        && !ngx_http_llm_capture_disk_free(d, dest, bytes))
    {
        return 0;
    }

    if (k->max_disk == 0) {
        return 1;
    }

    for (tries = 0; tries < 1000; tries++) {

        if (d->now >= d->disk_due) {
            ngx_http_llm_capture_disk_look(d);
        }

        if (d->disk_sealed + ngx_http_llm_capture_disk_live(d) + bytes
            <= k->max_disk)
        {
            return 1;
        }

        if (!ngx_http_llm_capture_disk_drop(d)) {
            break;
        }

        d->disk_due = 0;
    }

    return 0;
}
