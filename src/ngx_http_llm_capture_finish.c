
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What is done with a segment afterwards, in slices between other work: it is
 * read for its digest and its rows, compressed if that is wanted, and removed
 * when there are more than are to be kept.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_manifest.h"
#include "ngx_http_llm_capture_point.h"


/* bytes of a slice, and ms between two: 50 MB/s, a fifth of a processor */
#define NGX_HTTP_LLM_CAPTURE_SLICE        (512 * 1024)
#define NGX_HTTP_LLM_CAPTURE_SLICE_EVERY  10
/* ms between two directories that are read for segments left */
#define NGX_HTTP_LLM_CAPTURE_LOOK_EVERY   20
/* ms until the next try, after a full disk */
#define NGX_HTTP_LLM_CAPTURE_SLICE_AGAIN  60000


/* by ngx_http_llm_capture_compression_e */

static const struct {
    const char  *name;          /* in the manifest */
    unsigned     form;
} ngx_http_llm_capture_finish_made[] = {
    [NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE] =
        { NULL, NGX_HTTP_LLM_CAPTURE_SEGMENT_JSONL },
    [NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP] =
        { "gzip", NGX_HTTP_LLM_CAPTURE_SEGMENT_GZIP },
    [NGX_HTTP_LLM_CAPTURE_COMPRESSION_ZSTD] =
        { "zstd", NGX_HTTP_LLM_CAPTURE_SEGMENT_ZSTD }
};


/* what it is read from, and what it is afterwards */

typedef struct {
    char  in[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    char  out[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
} ngx_http_llm_capture_paths_t;


/* a plain one is compressed, in whatever way is configured by now */

static unsigned
ngx_http_llm_capture_finish_how(const ngx_http_llm_capture_task_t *task)
{
    if (task->form != NGX_HTTP_LLM_CAPTURE_SEGMENT_PLAIN) {
        return NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE;
    }

    return task->book->policy->compression
               ? task->book->policy->compression
               : NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP;
}


static int
ngx_http_llm_capture_finish_name(const ngx_http_llm_capture_task_t *task,
    unsigned form, char path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH])
{
    return ngx_http_llm_capture_segment_name(task->book->file->path, task->utc,
                                     ngx_http_llm_capture_segment_tail(form),
                                     path, NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH);
}


void
ngx_http_llm_capture_finish_add(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t utc, unsigned form,
    uint64_t due)
{
    ngx_http_llm_capture_task_t  *task, **p;

    for (p = &d->tasks; *p; p = &(*p)->next) {
        if ((*p)->book == book && (*p)->utc == utc) {
            return;
        }
    }

    task = calloc(1, sizeof(ngx_http_llm_capture_task_t));

    if (task == NULL) {
        /* a successor finds it */
        return;
    }

    task->book = book;
    task->utc = utc;
    task->form = form;
    task->due = due;

    *p = task;
}


static void
ngx_http_llm_capture_finish_look(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    char                               path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    size_t                             i;
    json_t                            *m;
    ngx_http_llm_capture_task_t        task;
    ngx_http_llm_capture_segments_t    list;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);

    if (ngx_http_llm_capture_segments_list(sys, book->file->path, &list)
        == -1)
    {
        return;
    }

    for (i = 0; i < list.n; i++) {
        memset(&task, 0, sizeof(task));
        task.book = book;
        task.utc = list.all[i].utc;

        if (ngx_http_llm_capture_finish_name(&task,
                                    NGX_HTTP_LLM_CAPTURE_SEGMENT_MANIFEST,
                                    path)
            == -1)
        {
            continue;
        }

        m = ngx_http_llm_capture_manifest_load(sys, path, NULL);

        if (m && (list.all[i].form == NGX_HTTP_LLM_CAPTURE_SEGMENT_PLAIN
                  || (list.all[i].form == NGX_HTTP_LLM_CAPTURE_SEGMENT_JSONL
                      && !ngx_http_llm_capture_manifest_read(m))))
        {
            ngx_http_llm_capture_finish_add(d, book, task.utc,
                                            list.all[i].form, d->now);
        }

        json_decref(m);
    }

    ngx_http_llm_capture_segments_free(&list);
}


void
ngx_http_llm_capture_finish_later(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    book->unlooked = 1;
    d->nunlooked++;
}


/* a directory of thousands takes a while, and there may be as many books */

static void
ngx_http_llm_capture_finish_next(ngx_http_llm_capture_drain_t *d)
{
    if (d->nunlooked == 0 || d->look_due > d->now) {
        return;
    }

    do {
        d->look = d->look + 1 < d->nbooks ? d->look + 1 : 0;
    } while (!d->books[d->look].unlooked);

    d->books[d->look].unlooked = 0;
    d->nunlooked--;
    d->look_due = d->now + NGX_HTTP_LLM_CAPTURE_LOOK_EVERY;

    ngx_http_llm_capture_finish_look(d, &d->books[d->look]);
}


void
ngx_http_llm_capture_finish_keep(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book)
{
    size_t                             i, n, gone;
    ngx_http_llm_capture_segments_t    list;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);

    if (book->policy->keep == 0
        || ngx_http_llm_capture_segments_list(sys, book->file->path, &list)
           == -1)
    {
        return;
    }

    /* one that is being compressed may have two files */

    for (n = 0, i = 0; i < list.n; i++) {
        n += i == 0 || list.all[i].utc != list.all[i - 1].utc;
    }

    n += (size_t) (list.files - list.n);

    gone = n > book->policy->keep ? n - book->policy->keep : 0;

    for (n = 0, i = 0; i < list.n && n < gone; i++) {

        if (i && list.all[i].utc == list.all[i - 1].utc) {
            continue;
        }

        n++;

        if (ngx_http_llm_capture_segment_remove(sys, book->file->path,
                                                list.all[i].utc)
            == -1)
        {
            ngx_http_llm_capture_book_say(d, book,
                                          NGX_HTTP_LLM_CAPTURE_SAY_SEAL,
                                          LOG_WARNING, errno,
                                          "cannot remove a segment");
            break;
        }

        ngx_http_llm_capture_disk_changed(d);
    }

    ngx_http_llm_capture_segments_free(&list);
}


/*
 * What was read of `in` goes into the manifest, which others may be writing,
 * under its lock.  out: what it is now.  A manifest that was removed is not
 * made again.
 */

static int
ngx_http_llm_capture_finish_tell(ngx_http_llm_capture_drain_t *d,
    const char *in, const char *out, const char *manifest,
    const char *compression, const ngx_http_llm_capture_digest_result_t *r)
{
    int                                fd, rc, err;
    json_t                            *m;
    struct stat                        st;
    ngx_http_llm_capture_content_t     c;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);

    fd = ngx_http_llm_capture_file_open(sys, in, 0, &st);

    if (fd == -1 && errno == ENOENT) {
        /* another one has compressed it too, and ours took the place of his */
        fd = ngx_http_llm_capture_file_open(sys, out, 0, &st);
    }

    if (fd == -1) {
        return -1;
    }

    rc = -1;

    if (sys->flock(fd, LOCK_EX|LOCK_NB) == 0 && sys->lstat(out, &st) == 0) {
        m = ngx_http_llm_capture_manifest_load(sys, manifest, NULL);

        c.name = ngx_http_llm_capture_book_name(out);
        c.compression = compression;
        c.rows = r->rows;
        c.plain_bytes = r->plain_bytes;
        c.bytes = r->bytes;
        c.sha256 = r->sha256;
        c.dev = (uint64_t) st.st_dev;
        c.ino = (uint64_t) st.st_ino;

        if (m == NULL) {
            rc = 0;

        } else if (c.bytes != (uint64_t) st.st_size) {
            errno = ESTALE;

        } else if (ngx_http_llm_capture_manifest_content(m, &c) == 0) {
            rc = ngx_http_llm_capture_manifest_store(sys, manifest, m);
        }

        json_decref(m);
    }

    err = errno;
    (void) sys->close(fd);
    errno = err;

    return rc;
}


static int
ngx_http_llm_capture_finish_paths(const ngx_http_llm_capture_task_t *task,
    ngx_http_llm_capture_paths_t *paths)
{
    unsigned  how, form;

    how = ngx_http_llm_capture_finish_how(task);
    form = how ? ngx_http_llm_capture_finish_made[how].form : task->form;

    if (ngx_http_llm_capture_finish_name(task, task->form, paths->in) == -1) {
        return -1;
    }

    return ngx_http_llm_capture_finish_name(task, form, paths->out);
}


static int
ngx_http_llm_capture_finish_begin(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_task_t *task)
{
    unsigned                      how;
    ngx_http_llm_capture_paths_t  paths;

    how = ngx_http_llm_capture_finish_how(task);

    if (ngx_http_llm_capture_finish_paths(task, &paths) == -1) {
        return -1;
    }

    task->digest = ngx_http_llm_capture_digest_create(
                                           ngx_http_llm_capture_book_sys(d),
                                           paths.in, how ? paths.out : NULL,
                                           how);

    return task->digest ? 0 : -1;
}


/* 0, or -1 with errno */

static int
ngx_http_llm_capture_finish_end(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_task_t *task)
{
    char                          man[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    unsigned                      how;
    ngx_http_llm_capture_paths_t  paths;

    how = ngx_http_llm_capture_finish_how(task);

    if (ngx_http_llm_capture_finish_paths(task, &paths) == -1
        || ngx_http_llm_capture_finish_name(task,
                               NGX_HTTP_LLM_CAPTURE_SEGMENT_MANIFEST, man)
           == -1
        || ngx_http_llm_capture_finish_tell(d, paths.in, paths.out, man,
                                 ngx_http_llm_capture_finish_made[how].name,
                                 ngx_http_llm_capture_digest_result(
                                                               task->digest))
           == -1)
    {
        return -1;
    }

    if (how) {
        NGX_HTTP_LLM_CAPTURE_POINT("compressed");
        (void) ngx_http_llm_capture_book_sys(d)->unlink(paths.in);
        ngx_http_llm_capture_disk_changed(d);
    }

    return 0;
}


/* 1: it is done with */

static int
ngx_http_llm_capture_finish_step(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_task_t *task)
{
    int  rc;

    rc = task->digest ? 0 : ngx_http_llm_capture_finish_begin(d, task);

    if (rc == 0) {
        rc = ngx_http_llm_capture_digest_step(task->digest,
                                              NGX_HTTP_LLM_CAPTURE_SLICE);
    }

    task->due = d->now + NGX_HTTP_LLM_CAPTURE_SLICE_EVERY;

    if (rc == 1) {
        return 0;
    }

    if (rc == 0) {

        if (ngx_http_llm_capture_finish_end(d, task) == 0) {
            return 1;
        }

        if (errno == EWOULDBLOCK) {
            return 0;
        }
    }

    /* shipped and removed by others, or removed by us */

    if (errno == ENOENT) {
        return 1;
    }

    ngx_http_llm_capture_book_say(d, task->book, NGX_HTTP_LLM_CAPTURE_SAY_SEAL,
                          LOG_WARNING, errno,
                          task->form == NGX_HTTP_LLM_CAPTURE_SEGMENT_PLAIN
                              ? "cannot compress a segment yet"
                              : "cannot read a segment yet");

    ngx_http_llm_capture_digest_destroy(task->digest);
    task->digest = NULL;
    task->due = d->now + NGX_HTTP_LLM_CAPTURE_SLICE_AGAIN;

    return 0;
}


/* out of the list it stands in */

static void
ngx_http_llm_capture_finish_free(ngx_http_llm_capture_task_t **p)
{
    ngx_http_llm_capture_task_t  *task;

    task = *p;
    *p = task->next;

    ngx_http_llm_capture_digest_destroy(task->digest);
    free(task);
}


void
ngx_http_llm_capture_finish_pass(ngx_http_llm_capture_drain_t *d)
{
    ngx_http_llm_capture_task_t  *task, **p;

    ngx_http_llm_capture_finish_next(d);

    for (p = &d->tasks; (task = *p) != NULL; p = &task->next) {

        if (task->due > d->now) {
            if (task->digest) {
                return;
            }

            continue;
        }

        if (ngx_http_llm_capture_finish_step(d, task)) {
            ngx_http_llm_capture_finish_free(p);
        }

        /* one slice a pass */

        return;
    }
}


uint64_t
ngx_http_llm_capture_finish_due(ngx_http_llm_capture_drain_t *d)
{
    uint64_t                      due;
    ngx_http_llm_capture_task_t  *task;

    due = d->nunlooked ? d->look_due : 0;

    for (task = d->tasks; task; task = task->next) {

        if (task->digest) {
            return due && due < task->due ? due : task->due;
        }

        if (due == 0 || task->due < due) {
            due = task->due;
        }
    }

    return due;
}


void
ngx_http_llm_capture_finish_all(ngx_http_llm_capture_drain_t *d, uint64_t end)
{
    ngx_http_llm_capture_task_t  *task, **p;

    for (p = &d->tasks; (task = *p) != NULL; /* void */) {

        if (ngx_http_llm_capture_drain_clock(d) >= end) {
            return;
        }

        /* others that wrote to it find it by its inode to tell of it */

        if (task->digest == NULL && task->due > d->now
            && task->form == NGX_HTTP_LLM_CAPTURE_SEGMENT_PLAIN)
        {
            p = &task->next;
            continue;
        }

        if (ngx_http_llm_capture_finish_step(d, task)) {
            ngx_http_llm_capture_finish_free(p);

        } else if (task->digest == NULL) {
            /* it failed */
            p = &task->next;
        }
    }
}


void
ngx_http_llm_capture_finish_close(ngx_http_llm_capture_drain_t *d)
{
    while (d->tasks) {
        ngx_http_llm_capture_finish_free(&d->tasks);
    }
}


void
ngx_http_llm_capture_finish_live(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t end)
{
    int                                rc;
    char                               man[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    json_t                            *m;
    ngx_http_llm_capture_digest_t     *digest;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = ngx_http_llm_capture_book_sys(d);

    if (ngx_http_llm_capture_segment_manifest(book->file->path, man,
                                              sizeof(man))
        == -1)
    {
        return;
    }

    /* others may be writing to it still */

    m = ngx_http_llm_capture_manifest_load(sys, man, NULL);
    rc = ngx_http_llm_capture_manifest_is_sealed(m);
    json_decref(m);

    if (!rc) {
        return;
    }

    digest = ngx_http_llm_capture_digest_create(sys, book->file->path, NULL,
                                      NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE);

    if (digest == NULL) {
        return;
    }

    do {
        rc = ngx_http_llm_capture_digest_step(digest,
                                              NGX_HTTP_LLM_CAPTURE_SLICE);
    } while (rc == 1 && ngx_http_llm_capture_drain_clock(d) < end);

    if (rc == 0) {
        (void) ngx_http_llm_capture_finish_tell(d, book->file->path,
                                 book->file->path, man, NULL,
                                 ngx_http_llm_capture_digest_result(digest));
    }

    ngx_http_llm_capture_digest_destroy(digest);
}
