
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_sys.h"


/* variadic, or not a function at all in older C libraries */

static int
ngx_http_llm_capture_sys_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}


static int
ngx_http_llm_capture_sys_fstat(int fd, struct stat *st)
{
    return fstat(fd, st);
}


static int
ngx_http_llm_capture_sys_lstat(const char *path, struct stat *st)
{
    return lstat(path, st);
}


const ngx_http_llm_capture_sys_t  ngx_http_llm_capture_sys = {
    .open = ngx_http_llm_capture_sys_open,
    .close = close,
    .fstat = ngx_http_llm_capture_sys_fstat,
    .lstat = ngx_http_llm_capture_sys_lstat,
    .fchmod = fchmod,
    .flock = flock,
    .lseek = lseek,
    .pread = pread,
    .writev = writev,
    .ftruncate = ftruncate,
    .fsync = fsync,
    .rename = rename,
    .link = link,
    .unlink = unlink,
    .getrandom = getrandom
};


ssize_t
ngx_http_llm_capture_sys_read(const ngx_http_llm_capture_sys_t *sys, int fd,
    void *buf, size_t n, off_t offset)
{
    size_t   got;
    ssize_t  rc;

    for (got = 0; got < n; got += (size_t) rc) {

        rc = sys->pread(fd, (char *) buf + got, n - got,
                        offset + (off_t) got);

        if (rc == -1) {
            if (errno != EINTR) {
                return -1;
            }

            rc = 0;
            continue;
        }

        if (rc == 0) {
            break;
        }
    }

    return (ssize_t) got;
}


int
ngx_http_llm_capture_sys_write(const ngx_http_llm_capture_sys_t *sys, int fd,
    const char *buf, size_t n)
{
    size_t        done;
    ssize_t       rc;
    struct iovec  iov;

    for (done = 0; done < n; done += (size_t) rc) {

        iov.iov_base = (void *) (buf + done);
        iov.iov_len = n - done;

        rc = sys->writev(fd, &iov, 1);

        if (rc == -1) {
            if (errno != EINTR) {
                return -1;
            }

            rc = 0;
            continue;
        }

        if (rc == 0) {
            errno = EIO;
            return -1;
        }
    }

    return 0;
}


int
ngx_http_llm_capture_sys_cut(const ngx_http_llm_capture_sys_t *sys, int fd,
    off_t length)
{
    int  rc;

    if (NGX_HTTP_LLM_CAPTURE_BROKEN("cut")) {
        return 0;
    }

    do {
        rc = sys->ftruncate(fd, length);
    } while (rc == -1 && errno == EINTR);

    return rc;
}
