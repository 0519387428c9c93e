
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>
#include <sys/file.h>

#include "ngx_http_llm_capture_file.h"
#include "ngx_http_llm_capture_point.h"


#define NGX_HTTP_LLM_CAPTURE_RETRY_MIN  10
#define NGX_HTTP_LLM_CAPTURE_RETRY_MAX  1000
#define NGX_HTTP_LLM_CAPTURE_LOCK_MIN   2
#define NGX_HTTP_LLM_CAPTURE_LOCK_MAX   64
#define NGX_HTTP_LLM_CAPTURE_SAY_EVERY  60000
#define NGX_HTTP_LLM_CAPTURE_SAY_FILES  10

/* how often a name may vanish between two calls before we wait */
#define NGX_HTTP_LLM_CAPTURE_RACES      8


ngx_http_llm_capture_file_t *
ngx_http_llm_capture_files_get(ngx_http_llm_capture_files_t *fs,
    const char *path, size_t len)
{
    uint64_t                      hash;
    ngx_http_llm_capture_file_t  *f, **bucket;

    hash = ngx_http_llm_capture_zone_hash(path, len, 0);
    bucket = &fs->bucket[hash % NGX_HTTP_LLM_CAPTURE_BUCKETS];

    for (f = *bucket; f; f = f->next) {
        if (f->hash == hash && f->len == len
            && memcmp(f->path, path, len) == 0)
        {
            return f;
        }
    }

    if (fs->npaths >= NGX_HTTP_LLM_CAPTURE_FILES
        || len == 0 || len >= NGX_HTTP_LLM_CAPTURE_PATH || path[0] != '/'
        || memchr(path, '\0', len) != NULL)
    {
        return NULL;
    }

    f = calloc(1, sizeof(ngx_http_llm_capture_file_t) + len + 1);

    if (f == NULL) {
        return NULL;
    }

    f->path = (char *) (f + 1);
    memcpy(f->path, path, len);
    f->len = len;
    f->hash = hash;
    f->fd = -1;
    f->size = -1;

    f->next = *bucket;
    *bucket = f;
    fs->npaths++;

    return f;
}


static void
ngx_http_llm_capture_file_unlink(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    *(f->newer ? &f->newer->older : &fs->newest) = f->older;
    *(f->older ? &f->older->newer : &fs->oldest) = f->newer;

    f->newer = NULL;
    f->older = NULL;
}


static void
ngx_http_llm_capture_file_link(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    f->older = fs->newest;
    *(fs->newest ? &fs->newest->newer : &fs->oldest) = f;
    fs->newest = f;
}


static void
ngx_http_llm_capture_file_close(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    ngx_http_llm_capture_file_unlink(fs, f);

    (void) fs->sys->close(f->fd);

    f->fd = -1;
    f->size = -1;
    f->epoch_known = 0;
    f->epoch_stored = 0;

    fs->nopen--;
}


int
ngx_http_llm_capture_files_evict(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *keep)
{
    ngx_http_llm_capture_file_t  *f;

    f = fs->oldest;

    if (f == keep && f != NULL) {
        f = f->newer;
    }

    if (f == NULL) {
        return 0;
    }

    ngx_http_llm_capture_file_close(fs, f);

    return 1;
}


void
ngx_http_llm_capture_files_reopen(ngx_http_llm_capture_files_t *fs)
{
    unsigned                      i;
    ngx_http_llm_capture_file_t  *f;

    while (fs->newest) {
        ngx_http_llm_capture_file_close(fs, fs->newest);
    }

    for (i = 0; fs->nwaiting && i < NGX_HTTP_LLM_CAPTURE_BUCKETS; i++) {
        for (f = fs->bucket[i]; f; f = f->next) {
            ngx_http_llm_capture_file_ready(fs, f);
        }
    }
}


void
ngx_http_llm_capture_files_free(ngx_http_llm_capture_files_t *fs)
{
    unsigned                      i;
    ngx_http_llm_capture_file_t  *f;

    while (fs->newest) {
        ngx_http_llm_capture_file_close(fs, fs->newest);
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_BUCKETS; i++) {
        while ((f = fs->bucket[i]) != NULL) {
            fs->bucket[i] = f->next;
            free(f);
        }
    }
}


int
ngx_http_llm_capture_file_open(const ngx_http_llm_capture_sys_t *sys,
    const char *path, int flags, struct stat *st)
{
    int  fd, err;

    do {
        fd = sys->open(path, O_RDWR|O_APPEND|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK
                             |O_NOCTTY|flags, 0600);
    } while (fd == -1 && errno == EINTR);

    if (fd == -1) {
        return -1;
    }

    /* a umask may have taken even the owner's bits */

    if (flags & O_CREAT) {
        (void) sys->fchmod(fd, 0600);
    }

    if (sys->fstat(fd, st) == 0) {

        if (S_ISREG(st->st_mode)) {
            return fd;
        }

        errno = EINVAL;
    }

    err = errno;
    (void) sys->close(fd);
    errno = err;

    return -1;
}


int
ngx_http_llm_capture_file_planted(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const struct stat *st)
{
    char         dir[NGX_HTTP_LLM_CAPTURE_PATH + 2];
    size_t       len;
    struct stat  ds;

    if (st->st_uid == geteuid()) {
        return 0;
    }

    len = (size_t) (strrchr(path, '/') - path) + 1;

    memcpy(dir, path, len);
    memcpy(dir + len, ".", 2);

    return sys->lstat(dir, &ds) == -1
           || ((ds.st_mode & (S_IWGRP|S_IWOTH)) && st->st_uid != ds.st_uid);
}


/*
 * Only a file that this very call made gets its mode set: O_EXCL tells.  What
 * an administrator made with another mode stays as it is.
 */

static int
ngx_http_llm_capture_file_open_path(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    int          fd;
    unsigned     races;
    struct stat  st;

    races = 0;

    for ( ;; ) {
        fd = ngx_http_llm_capture_file_open(fs->sys, f->path, 0, &st);

        if (fd != -1
            && ngx_http_llm_capture_file_planted(fs->sys, f->path, &st))
        {
            (void) fs->sys->close(fd);
            errno = EPERM;
            return -1;
        }

        if (fd == -1 && errno == ENOENT) {
            fd = ngx_http_llm_capture_file_open(fs->sys, f->path,
                                                O_CREAT|O_EXCL, &st);
        }

        if (fd != -1) {
            return fd;
        }

        if (errno == EEXIST && ++races < NGX_HTTP_LLM_CAPTURE_RACES) {
            continue;
        }

        if ((errno == EMFILE || errno == ENFILE)
            && ngx_http_llm_capture_files_evict(fs, f))
        {
            continue;
        }

        return -1;
    }
}


static int
ngx_http_llm_capture_file_reach(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    const char  *text;

    if (f->fd != -1) {
        ngx_http_llm_capture_file_unlink(fs, f);
        ngx_http_llm_capture_file_link(fs, f);
        return 0;
    }

    while (fs->nopen >= fs->max_open
           && ngx_http_llm_capture_files_evict(fs, f))
    {
        /* void */
    }

    f->fd = ngx_http_llm_capture_file_open_path(fs, f);

    if (f->fd == -1) {
        f->error = errno;

        switch (f->error) {

        case EINVAL:
            text = "cannot open (not a regular file)";
            break;

        case EPERM:
            text = "cannot open (immutable, or of another user in a directory"
                   " where others can write)";
            break;

        default:
            text = "cannot open";
        }

        ngx_http_llm_capture_file_say(fs, f, NGX_HTTP_LLM_CAPTURE_SAY_OPEN,
                                      LOG_ERR, f->error, text);
        return -1;
    }

    ngx_http_llm_capture_file_link(fs, f);
    fs->nopen++;

    return 0;
}


int
ngx_http_llm_capture_file_named(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const struct stat *st)
{
    struct stat  now;

    return sys->lstat(path, &now) == 0
           && now.st_ino == st->st_ino && now.st_dev == st->st_dev;
}


int
ngx_http_llm_capture_file_lock(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, struct stat *st)
{
    int       rc;
    unsigned  races;

    for (races = 0; races < NGX_HTTP_LLM_CAPTURE_RACES; races++) {

        if (ngx_http_llm_capture_file_reach(fs, f) == -1) {
            return -1;
        }

        do {
            rc = NGX_HTTP_LLM_CAPTURE_BROKEN("flock")
                     ? 0 : fs->sys->flock(f->fd, LOCK_EX|LOCK_NB);
        } while (rc == -1 && errno == EINTR);

        if (rc == -1) {
            f->error = errno;

            if (f->error != EAGAIN
                || f->delay >= NGX_HTTP_LLM_CAPTURE_LOCK_MAX)
            {
                ngx_http_llm_capture_file_say(fs, f,
                                              NGX_HTTP_LLM_CAPTURE_SAY_LOCK,
                                              LOG_WARNING, f->error,
                                              "cannot lock");
            }

            return -1;
        }

        if (fs->sys->fstat(f->fd, st) == -1) {
            f->error = errno;
            ngx_http_llm_capture_file_unlock(fs, f);
            ngx_http_llm_capture_file_say(fs, f,
                                          NGX_HTTP_LLM_CAPTURE_SAY_OPEN,
                                          LOG_ERR, f->error, "cannot fstat()");
            return -1;
        }

        if (st->st_nlink != 0
            && (!f->follow
                || ngx_http_llm_capture_file_named(fs->sys, f->path, st)))
        {
            f->same = (f->size == st->st_size);
            return 0;
        }

        /*
         * Deleted: what is appended would be gone.  A renamed file is another
         * matter: one goes on in it until told to reopen, as all logs do; but
         * where segments are made, it has become one.
         */

        ngx_http_llm_capture_file_close(fs, f);
    }

    f->error = EAGAIN;

    return -1;
}


void
ngx_http_llm_capture_file_unlock(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    int  rc;

    do {
        rc = fs->sys->flock(f->fd, LOCK_UN);
    } while (rc == -1 && errno == EINTR);
}


void
ngx_http_llm_capture_file_later(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    uint32_t  min, max;

    min = NGX_HTTP_LLM_CAPTURE_RETRY_MIN;
    max = NGX_HTTP_LLM_CAPTURE_RETRY_MAX;

    if (f->error == EAGAIN) {
        min = NGX_HTTP_LLM_CAPTURE_LOCK_MIN;
        max = NGX_HTTP_LLM_CAPTURE_LOCK_MAX;
    }

    f->delay *= 2;

    if (f->delay < min) {
        f->delay = min;
    }

    if (f->delay > max) {
        f->delay = max;
    }

    if (f->retry_at == 0) {
        fs->nwaiting++;
    }

    f->retry_at = fs->now + f->delay;
}


void
ngx_http_llm_capture_file_ready(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    if (f->retry_at) {
        fs->nwaiting--;
    }

    f->retry_at = 0;
    f->delay = 0;
}


int
ngx_http_llm_capture_file_failing(const ngx_http_llm_capture_file_t *f,
    uint64_t now)
{
    if (f->error == EAGAIN && f->delay < NGX_HTTP_LLM_CAPTURE_LOCK_MAX) {
        return 0;
    }

    return f->retry_at > now;
}


int
ngx_http_llm_capture_file_hopeless(int err)
{
    switch (err) {

    case EFBIG:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENODEV:
    case ENOTDIR:
    case ENXIO:
        return 1;
    }

    return 0;
}


void
ngx_http_llm_capture_file_say(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, ngx_http_llm_capture_saying_e what,
    int level, int err, const char *text)
{
    char                           line[NGX_HTTP_LLM_CAPTURE_PATH + 256], *p;
    size_t                         len;
    ngx_http_llm_capture_turns_t  *turns;

    if (f->said[what]
        && fs->now - f->said[what] < NGX_HTTP_LLM_CAPTURE_SAY_EVERY)
    {
        f->unsaid[what]++;
        return;
    }

    turns = &fs->turns[what];

    if (turns->n == 0
        || fs->now - turns->since >= NGX_HTTP_LLM_CAPTURE_SAY_EVERY)
    {
        turns->since = fs->now;
        turns->n = 0;
    }

    if (turns->n == NGX_HTTP_LLM_CAPTURE_SAY_FILES) {
        turns->unsaid++;
        return;
    }

    turns->n++;

    len = (size_t) snprintf(line, sizeof(line), "\"%s\": %s", f->path, text);

    if (f->unsaid[what] && len < sizeof(line)) {
        len += (size_t) snprintf(line + len, sizeof(line) - len,
                                 ", %" PRIu32 " times more since the last"
                                 " message", f->unsaid[what]);
    }

    if (turns->unsaid && len < sizeof(line)) {
        (void) snprintf(line + len, sizeof(line) - len,
                        ", %" PRIu32 " times for files not named here",
                        turns->unsaid);
    }

    turns->unsaid = 0;

    /* the path comes out of memory that a worker can write */

    for (p = line; *p; p++) {
        if ((unsigned char) *p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }

    f->said[what] = fs->now ? fs->now : 1;
    f->unsaid[what] = 0;

    if (fs->log) {
        fs->log(fs->log_ctx, level, err, line);
    }
}
