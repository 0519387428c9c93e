
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>

#include "ngx_http_llm_capture_file.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_segment.h"


#define JSONL  NGX_HTTP_LLM_CAPTURE_PATH_JSONL
#define UTC    NGX_HTTP_LLM_CAPTURE_PATH_UTC
#define MOST   NGX_HTTP_LLM_CAPTURE_SEGMENTS


static const char *const  ngx_http_llm_capture_segment_tails[] = {
    JSONL,
    NGX_HTTP_LLM_CAPTURE_PATH_PLAIN,
    NGX_HTTP_LLM_CAPTURE_PATH_GZIP,
    NGX_HTTP_LLM_CAPTURE_PATH_ZSTD,
    NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES,
    NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST
};


const char *
ngx_http_llm_capture_segment_tail(ngx_http_llm_capture_segment_form_e form)
{
    return ngx_http_llm_capture_segment_tails[form];
}


size_t
ngx_http_llm_capture_segment_stem(const char *live)
{
    size_t  len, end;

    len = strlen(live);
    end = sizeof(JSONL) - 1;

    /* "/d/.jsonl" is a name without an end */

    if (len > end + 1 && strcmp(live + len - end, JSONL) == 0
        && live[len - end - 1] != '/')
    {
        return len - end;
    }

    return len;
}


static int
ngx_http_llm_capture_segment_fits(const char *out, int len, size_t size)
{
    const char  *name;

    if (len >= 0 && (size_t) len < size) {
        name = strrchr(out, '/');

        if (strlen(name ? name + 1 : out) <= NAME_MAX) {
            return 0;
        }
    }

    errno = ENAMETOOLONG;

    return -1;
}


/* text: of UTC + 1 bytes */

static int
ngx_http_llm_capture_segment_print(uint64_t utc, char *text)
{
    time_t     s;
    struct tm  tm;

    s = (time_t) (utc / 1000);

    if (gmtime_r(&s, &tm) == NULL || tm.tm_year > 9999 - 1900) {
        errno = EINVAL;
        return -1;
    }

    /* the remainders tell the compiler how wide they are */

    (void) snprintf(text, UTC + 1, "%04u%02u%02uT%02u%02u%02u.%03uZ",
                    (unsigned) (tm.tm_year + 1900) % 10000,
                    (unsigned) (tm.tm_mon + 1) % 100,
                    (unsigned) tm.tm_mday % 100, (unsigned) tm.tm_hour % 100,
                    (unsigned) tm.tm_min % 100, (unsigned) tm.tm_sec % 100,
                    (unsigned) (utc % 1000));

    return 0;
}


int
ngx_http_llm_capture_segment_name(const char *live, uint64_t utc,
    const char *tail, char *out, size_t size)
{
    int   len;
    char  text[UTC + 1];

    if (ngx_http_llm_capture_segment_print(utc, text) == -1) {
        return -1;
    }

    len = snprintf(out, size, "%.*s.%s%s",
                   (int) ngx_http_llm_capture_segment_stem(live), live, text,
                   tail);

    return ngx_http_llm_capture_segment_fits(out, len, size);
}


int
ngx_http_llm_capture_segment_manifest(const char *live, char *out, size_t size)
{
    int  len;

    len = snprintf(out, size, "%.*s" NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST,
                   (int) ngx_http_llm_capture_segment_stem(live), live);

    return ngx_http_llm_capture_segment_fits(out, len, size);
}


int
ngx_http_llm_capture_segment_utc(const char *text, uint64_t *utc)
{
    int        n[7];
    char       again[UTC + 1];
    time_t     s;
    struct tm  tm;

    if (strnlen(text, UTC) < UTC
        || !ngx_http_llm_capture_path_utc((const uint8_t *) text))
    {
        return 0;
    }

    (void) sscanf(text, "%4d%2d%2dT%2d%2d%2d.%3d", &n[0], &n[1], &n[2], &n[3],
                  &n[4], &n[5], &n[6]);

    memset(&tm, 0, sizeof(struct tm));
    tm.tm_year = n[0] - 1900;
    tm.tm_mon = n[1] - 1;
    tm.tm_mday = n[2];
    tm.tm_hour = n[3];
    tm.tm_min = n[4];
    tm.tm_sec = n[5];

    s = timegm(&tm);

    if (s < 0) {
        return 0;
    }

    *utc = (uint64_t) s * 1000 + (uint64_t) n[6];

    /* no 31st of February */

    return ngx_http_llm_capture_segment_print(*utc, again) == 0
           && memcmp(again, text, UTC) == 0;
}


/* a name in the directory: is it one of the stem's, and of what form? */

static int
ngx_http_llm_capture_segment_parse(const char *name, const char *stem,
    size_t len, uint64_t *utc, unsigned *form)
{
    unsigned  i;

    if (strncmp(name, stem, len) != 0 || name[len] != '.'
        || !ngx_http_llm_capture_segment_utc(name + len + 1, utc))
    {
        return 0;
    }

    name += len + 1 + UTC;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SEGMENT_FORMS; i++) {
        if (strcmp(name, ngx_http_llm_capture_segment_tails[i]) == 0) {
            *form = i;
            return 1;
        }
    }

    return 0;
}


int
ngx_http_llm_capture_segment_split(const char *name, size_t *stem,
    uint64_t *utc, unsigned *form)
{
    size_t       len, at, tail;
    unsigned     i;
    const char  *t;

    len = strlen(name);

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_SEGMENT_FORMS; i++) {
        t = ngx_http_llm_capture_segment_tails[i];
        tail = strlen(t);

        if (len <= tail + UTC + 1 || strcmp(name + len - tail, t) != 0) {
            continue;
        }

        at = len - tail - UTC;

        if (name[at - 1] == '.'
            && ngx_http_llm_capture_segment_utc(name + at, utc))
        {
            *stem = at - 1;
            *form = i;
            return 1;
        }
    }

    return 0;
}


static int
ngx_http_llm_capture_segment_cmp(const void *a, const void *b)
{
    const ngx_http_llm_capture_segment_t  *x = a, *y = b;

    if (x->utc != y->utc) {
        return x->utc < y->utc ? -1 : 1;
    }

    return (int) x->form - (int) y->form;
}


/* room for twice as many: sorted and cut when full, so that the oldest stay */

static int
ngx_http_llm_capture_segments_add(ngx_http_llm_capture_segments_t *list,
    size_t *room, const ngx_http_llm_capture_segment_t *s)
{
    size_t                           n;
    ngx_http_llm_capture_segment_t  *all;

    if (list->n == 2 * MOST) {
        qsort(list->all, list->n, sizeof(ngx_http_llm_capture_segment_t),
              ngx_http_llm_capture_segment_cmp);
        list->n = MOST;
    }

    if (list->n == *room) {
        n = *room ? 2 * *room : 64;
        all = realloc(list->all, n * sizeof(ngx_http_llm_capture_segment_t));

        if (all == NULL) {
            return -1;
        }

        list->all = all;
        *room = n;
    }

    list->all[list->n++] = *s;

    return 0;
}


/* name: the end of path, where there is room for a name of the directory */

static int
ngx_http_llm_capture_segments_read(const ngx_http_llm_capture_sys_t *sys,
    DIR *dir, const char *path, char *name, const char *stem, size_t len,
    ngx_http_llm_capture_segments_t *list)
{
    size_t                           room;
    struct stat                      st;
    struct dirent                   *de;
    ngx_http_llm_capture_segment_t   s;

    room = 0;

    for ( ;; ) {
        errno = 0;
        de = readdir(dir);

        if (de == NULL) {
            return errno ? -1 : 0;
        }

        if (!ngx_http_llm_capture_segment_parse(de->d_name, stem, len,
                                                &s.utc, &s.form))
        {
            continue;
        }

        strcpy(name, de->d_name);

        if (sys->lstat(path, &st) == -1) {
            if (errno == ENOENT) {
                continue;
            }

            return -1;
        }

        if (!S_ISREG(st.st_mode)) {
            continue;
        }

        if (s.form >= NGX_HTTP_LLM_CAPTURE_SEGMENT_OUTCOMES) {
            list->beside += (uint64_t) st.st_size;
            continue;
        }

        s.size = (uint64_t) st.st_size;
        s.dev = (uint64_t) st.st_dev;
        s.ino = (uint64_t) st.st_ino;

        list->files++;
        list->bytes += s.size;

        if (ngx_http_llm_capture_segments_add(list, &room, &s) == -1) {
            return -1;
        }
    }
}


int
ngx_http_llm_capture_segments_list(const ngx_http_llm_capture_sys_t *sys,
    const char *live, ngx_http_llm_capture_segments_t *list)
{
    int          rc, err;
    DIR         *dir;
    char         path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH], *name;
    size_t       len;
    const char  *stem;

    memset(list, 0, sizeof(ngx_http_llm_capture_segments_t));

    if (strlen(live) >= NGX_HTTP_LLM_CAPTURE_PATH
        || strrchr(live, '/') == NULL)
    {
        errno = ENAMETOOLONG;
        return -1;
    }

    strcpy(path, live);
    name = strrchr(path, '/') + 1;
    stem = live + (name - path);
    len = ngx_http_llm_capture_segment_stem(live) - (size_t) (name - path);
    *name = '\0';

    dir = opendir(path);

    if (dir == NULL) {
        return -1;
    }

    rc = ngx_http_llm_capture_segments_read(sys, dir, path, name, stem, len,
                                            list);
    err = errno;
    (void) closedir(dir);

    if (rc == -1) {
        ngx_http_llm_capture_segments_free(list);
        errno = err;
        return -1;
    }

    if (list->n != 0) {
        qsort(list->all, list->n, sizeof(ngx_http_llm_capture_segment_t),
              ngx_http_llm_capture_segment_cmp);
    }

    if (list->n > MOST) {
        list->n = MOST;
    }

    return 0;
}


void
ngx_http_llm_capture_segments_free(ngx_http_llm_capture_segments_t *list)
{
    free(list->all);
    memset(list, 0, sizeof(ngx_http_llm_capture_segments_t));
}


/* what a process that was killed may have left is of the segment, too */

int64_t
ngx_http_llm_capture_segment_remove(const ngx_http_llm_capture_sys_t *sys,
    const char *live, uint64_t utc)
{
    int          err;
    char         path[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    int64_t      bytes;
    unsigned     i, n;
    struct stat  st;

    static const char *const  tails[] = {
        JSONL,
        NGX_HTTP_LLM_CAPTURE_PATH_PLAIN,
        NGX_HTTP_LLM_CAPTURE_PATH_GZIP,
        NGX_HTTP_LLM_CAPTURE_PATH_GZIP NGX_HTTP_LLM_CAPTURE_PATH_TEMP,
        NGX_HTTP_LLM_CAPTURE_PATH_ZSTD,
        NGX_HTTP_LLM_CAPTURE_PATH_ZSTD NGX_HTTP_LLM_CAPTURE_PATH_TEMP,
        NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES,
        NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST NGX_HTTP_LLM_CAPTURE_PATH_TEMP,
        NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST
    };

    n = sizeof(tails) / sizeof(tails[0]);
    err = 0;
    bytes = 0;

    for (i = 0; i < n && (err == 0 || i < n - 1); i++) {

        if (ngx_http_llm_capture_segment_name(live, utc, tails[i], path,
                                              sizeof(path))
            == -1)
        {
            return -1;
        }

        if (sys->lstat(path, &st) == -1) {
            err = errno == ENOENT ? err : errno;
            continue;
        }

        if (!S_ISREG(st.st_mode)) {
            continue;
        }

        if (sys->unlink(path) == -1) {
            err = errno == ENOENT ? err : errno;
            continue;
        }

        bytes += (int64_t) st.st_size;
    }

    if (err) {
        errno = err;
        return -1;
    }

    return bytes;
}


/* these pass; all else means that it is not there (any more) */

static int
ngx_http_llm_capture_segment_passes(int err)
{
    switch (err) {

    case EACCES:
    case EINTR:
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EPERM:
    case EROFS:
        return 1;
    }

    return 0;
}


static int
ngx_http_llm_capture_segment_open(const ngx_http_llm_capture_sys_t *sys,
    const char *path, uint64_t dev, uint64_t ino)
{
    int          fd;
    struct stat  st;

    fd = ngx_http_llm_capture_file_open(sys, path, 0, &st);

    if (fd == -1) {
        return ngx_http_llm_capture_segment_passes(errno) ? -2 : -1;
    }

    if ((uint64_t) st.st_dev == dev && (uint64_t) st.st_ino == ino) {
        return fd;
    }

    (void) sys->close(fd);

    return -1;
}


static int
ngx_http_llm_capture_segment_search(const ngx_http_llm_capture_sys_t *sys,
    char *path, uint64_t dev, uint64_t ino)
{
    int             fd, err;
    DIR            *dir;
    char           *name;
    struct dirent  *de;

    name = strrchr(path, '/');

    if (name == NULL) {
        return -1;
    }

    *++name = '\0';

    dir = opendir(path);

    if (dir == NULL) {
        return ngx_http_llm_capture_segment_passes(errno) ? -2 : -1;
    }

    fd = -1;
    err = 0;

    while (fd == -1 && (de = readdir(dir)) != NULL) {

        if ((uint64_t) de->d_ino != ino) {
            continue;
        }

        strcpy(name, de->d_name);
        fd = ngx_http_llm_capture_segment_open(sys, path, dev, ino);
        err = errno;
    }

    (void) closedir(dir);
    errno = err;

    return fd;
}


int
ngx_http_llm_capture_segment_find(const ngx_http_llm_capture_sys_t *sys,
    const char *path, uint64_t dev, uint64_t ino, char *found)
{
    int   fd;
    char  name[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];

    if (strlen(path) >= NGX_HTTP_LLM_CAPTURE_PATH) {
        return -1;
    }

    strcpy(name, path);

    fd = ngx_http_llm_capture_segment_open(sys, name, dev, ino);

    if (fd == -1) {
        fd = ngx_http_llm_capture_segment_search(sys, name, dev, ino);
    }

    if (fd >= 0 && found) {
        strcpy(found, name);
    }

    return fd;
}
