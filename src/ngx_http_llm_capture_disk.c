
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * How much of the disk a capture may take.  What it uses is the live files that
 * have an account, and their segments with all that lies beside them.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <syslog.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_path.h"


/* ms until what is left is asked for again: over a network it takes a while */
#define NGX_HTTP_LLM_CAPTURE_FREE_EVERY  100
/* ms until what is used is looked up again, for what others did */
#define NGX_HTTP_LLM_CAPTURE_DISK_EVERY  10000


void
ngx_http_llm_capture_disk_size(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t size, unsigned sealed)
{
    if (sealed) {
        d->disk_sealed += book->size;
        d->disk_stale |= d->nold == 0;
    }

    d->disk_live += size - book->size;
    book->size = size;
}


void
ngx_http_llm_capture_disk_changed(ngx_http_llm_capture_drain_t *d)
{
    d->disk_stale = 1;
}


/* whose segment it is, if one of ours; path: of a live file or its stem */

static ngx_http_llm_capture_book_t *
ngx_http_llm_capture_disk_book(ngx_http_llm_capture_drain_t *d, char *path)
{
    size_t                              len;
    uint32_t                            i;
    uint64_t                            hash[2];
    const ngx_http_llm_capture_file_t  *file;

    len = strlen(path);
    hash[0] = ngx_http_llm_capture_zone_hash(path, len, 0);
    strcpy(path + len, NGX_HTTP_LLM_CAPTURE_PATH_JSONL);
    hash[1] = ngx_http_llm_capture_zone_hash(path, strlen(path), 0);

    for (i = 0; i < d->nbooks; i++) {
        file = d->books[i].file;

        if (file && (file->hash == hash[0] || file->hash == hash[1])
            && ngx_http_llm_capture_segment_stem(file->path) == len
            && strncmp(file->path, path, len) == 0)
        {
            return &d->books[i];
        }
    }

    return NULL;
}


static void
ngx_http_llm_capture_disk_old(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t utc)
{
    unsigned  i;

    for (i = 0; i < d->nold && d->old[i].utc <= utc; i++) {
        if (d->old[i].utc == utc && d->old[i].book == book) {
            /* of two forms */
            return;
        }
    }

    if (i == NGX_HTTP_LLM_CAPTURE_OLD) {
        return;
    }

    if (d->nold < NGX_HTTP_LLM_CAPTURE_OLD) {
        d->nold++;
    }

    memmove(&d->old[i + 1], &d->old[i],
            (d->nold - i - 1) * sizeof(ngx_http_llm_capture_old_t));

    d->old[i].book = book;
    d->old[i].utc = utc;
}


/* a directory once, however many files are in it */

static void
ngx_http_llm_capture_disk_dir(ngx_http_llm_capture_drain_t *d,
    const ngx_http_llm_capture_book_t *first)
{
    DIR                               *dir;
    char                               path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    char                              *name;
    size_t                             stem;
    uint64_t                           utc;
    unsigned                           form;
    struct stat                        st;
    struct dirent                     *de;
    ngx_http_llm_capture_book_t       *book;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);

    strcpy(path, first->file->path);
    name = strrchr(path, '/') + 1;
    *name = '\0';

    dir = opendir(path);

    if (dir == NULL) {
        return;
    }

    while ((de = readdir(dir)) != NULL) {

        if (!ngx_http_llm_capture_segment_split(de->d_name, &stem, &utc,
                                                &form))
        {
            continue;
        }

        strcpy(name, de->d_name);

        if (sys->lstat(path, &st) == -1 || !S_ISREG(st.st_mode)) {
            continue;
        }

        name[stem] = '\0';
        book = ngx_http_llm_capture_disk_book(d, path);

        if (book == NULL) {
            continue;
        }

        d->disk_sealed += (uint64_t) st.st_size;

        if (form < NGX_HTTP_LLM_CAPTURE_SEGMENT_OUTCOMES) {
            ngx_http_llm_capture_disk_old(d, book, utc);
        }
    }

    (void) closedir(dir);
}


/* of all segments, and the oldest of them */

static void
ngx_http_llm_capture_disk_look(ngx_http_llm_capture_drain_t *d)
{
    uint32_t  i;

    d->disk_sealed = 0;
    d->disk_stale = 0;
    d->nold = 0;
    d->disk_due = d->now + NGX_HTTP_LLM_CAPTURE_DISK_EVERY;

    for (i = 0; i < d->nbooks; i++) {
        if (d->books[i].file && d->books[i].alone) {
            ngx_http_llm_capture_disk_dir(d, &d->books[i]);
        }
    }
}


/* 0: there is none that could go */

static int
ngx_http_llm_capture_disk_drop(ngx_http_llm_capture_drain_t *d)
{
    int64_t                            bytes;
    ngx_http_llm_capture_old_t         old;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);

    if (!d->conf.keeping.drop_oldest || d->nold == 0) {
        return 0;
    }

    old = d->old[0];
    bytes = ngx_http_llm_capture_segment_remove(sys, old.book->file->path,
                                                old.utc);
    if (bytes == -1) {
        return 0;
    }

    memmove(&d->old[0], &d->old[1],
            --d->nold * sizeof(ngx_http_llm_capture_old_t));

    /* there may be more of them */

    d->disk_stale = d->nold == 0;
    d->disk_sealed -= (uint64_t) bytes < d->disk_sealed ? (uint64_t) bytes
                                                        : d->disk_sealed;

    ngx_http_llm_capture_drain_say(d, LOG_NOTICE, 0,
        "\"%s\": the oldest segment was removed, llm_capture_max_disk is "
        "reached", old.book->file->path);

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

        if (d->disk_sealed + d->disk_live + bytes <= k->max_disk) {
            return 1;
        }

        /* what is known may be too much */

        if (d->disk_stale) {
            ngx_http_llm_capture_disk_look(d);
            continue;
        }

        if (!ngx_http_llm_capture_disk_drop(d)) {
            break;
        }
    }

    return 0;
}
