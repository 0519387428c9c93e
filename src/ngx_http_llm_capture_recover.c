
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_recover.h"
#include "ngx_http_llm_capture_segment.h"


#define NGX_HTTP_LLM_CAPTURE_RECOVER_BLOCK  65536
#define NGX_HTTP_LLM_CAPTURE_RECOVER_IOV    64


/*
 * How many bytes of the batch stand in the file, counted up to the first one
 * that differs.  -1 with errno: the file cannot be read.
 */

static int64_t
ngx_http_llm_capture_recover_compare(const ngx_http_llm_capture_sys_t *sys,
    int fd, off_t offset, const ngx_http_llm_capture_lines_t *lines)
{
    int                            i, n;
    char                           buf[NGX_HTTP_LLM_CAPTURE_RECOVER_BLOCK];
    size_t                         got, part, k, have;
    uint64_t                       equal;
    ssize_t                        rc;
    struct iovec                   iov[NGX_HTTP_LLM_CAPTURE_RECOVER_IOV];
    ngx_http_llm_capture_cursor_t  c;

    memset(&c, 0, sizeof(ngx_http_llm_capture_cursor_t));
    equal = 0;

    for ( ;; ) {
        rc = ngx_http_llm_capture_sys_read(sys, fd, buf, sizeof(buf),
                                           offset + (off_t) equal);

        if (rc == -1) {
            return -1;
        }

        got = 0;
        have = (size_t) rc;

        n = ngx_http_llm_capture_lines_iov(lines, &c, iov,
                                           NGX_HTTP_LLM_CAPTURE_RECOVER_IOV);

        for (i = 0; i < n && got < have; i++, got += part) {

            part = iov[i].iov_len;

            if (part > have - got) {
                part = have - got;
            }

            if (memcmp(buf + got, iov[i].iov_base, part) == 0) {
                continue;
            }

            /* bounded: what is shared may have changed since memcmp() */

            for (k = 0; k < part; k++) {
                if (buf[got + k] != ((char *) iov[i].iov_base)[k]) {
                    break;
                }
            }

            return (int64_t) (equal + got + k);
        }

        /* nothing left in the file, or nothing left of the batch */

        if (got == 0) {
            return (int64_t) equal;
        }

        equal += got;
        ngx_http_llm_capture_lines_advance(lines, &c, got);
    }
}


static ssize_t
ngx_http_llm_capture_recover_file(const ngx_http_llm_capture_sys_t *sys,
    int fd, const ngx_http_llm_capture_place_t *place,
    const ngx_http_llm_capture_lines_t *lines)
{
    off_t        offset;
    int64_t      equal;
    uint64_t     whole, torn;
    unsigned     k;
    struct stat  st;

    if (sys->fstat(fd, &st) == -1) {
        return -2;
    }

    /* copied and truncated by a rotation: the copy may have it, or not */

    if (st.st_nlink == 0 || place->offset > (uint64_t) st.st_size) {
        return -1;
    }

    offset = (off_t) place->offset;
    equal = ngx_http_llm_capture_recover_compare(sys, fd, offset, lines);

    if (equal == -1) {
        return -2;
    }

    k = ngx_http_llm_capture_lines_whole(lines, (uint64_t) equal, &whole);
    torn = (uint64_t) equal - whole;

    /* what others appended behind it must stay */

    if (torn == 0 || offset + equal != st.st_size
        || (uint64_t) equal > place->length)
    {
        return k;
    }

    NGX_HTTP_LLM_CAPTURE_POINT("recover before cut");

    if (ngx_http_llm_capture_sys_cut(sys, fd, offset + (off_t) whole) == 0) {
        return k;
    }

    /*
     * It stays, and is mended when the file is next written: a row that lacks
     * nothing but its LF is then kept, so it counts as written.
     */

    return whole + torn + 1 == lines->end[k] ? k + 1 : k;
}


ssize_t
ngx_http_llm_capture_recover(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_place_t *place,
    const ngx_http_llm_capture_lines_t *lines)
{
    int      fd, rc, err;
    ssize_t  n;

    fd = ngx_http_llm_capture_segment_find(sys, place->path, place->dev,
                                           place->ino, NULL);

    if (fd < 0) {
        return fd;
    }

    do {
        rc = sys->flock(fd, LOCK_EX|LOCK_NB);
    } while (rc == -1 && errno == EINTR);

    n = -2;

    if (rc == 0) {
        n = ngx_http_llm_capture_recover_file(sys, fd, place, lines);
    }

    err = errno;
    (void) sys->close(fd);
    errno = err;

    return n;
}
