
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <sha256.h>
#include <zlib.h>
#include <zstd.h>

#include "ngx_http_llm_capture_digest.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_zone.h"


#define BLOCK      65536
#define WRITEBACK  (1024 * 1024)

/* 4: of text little larger than by 6, in a third of the time */
#define GZIP_LEVEL   4
#define GZIP_WINDOW  (15 + 16)      /* 16: with the header of gzip */
#define ZSTD_LEVEL   3


typedef enum {
    NGX_HTTP_LLM_CAPTURE_DIGEST_READ = 0,
    NGX_HTTP_LLM_CAPTURE_DIGEST_SYNC,
    NGX_HTTP_LLM_CAPTURE_DIGEST_DONE,
    NGX_HTTP_LLM_CAPTURE_DIGEST_FAILED
} ngx_http_llm_capture_digest_state_e;


struct ngx_http_llm_capture_digest_s {
    const ngx_http_llm_capture_sys_t       *sys;
    ngx_http_llm_capture_compression_e      compression;
    ngx_http_llm_capture_digest_state_e     state;
    int                                     error;      /* of FAILED */

    int                                     fd;
    int                                     out_fd;     /* -1: none */
    off_t                                   flushed;    /* of the output */
    struct stat                             st;         /* of the input */

    SHA256_CTX                              sha;
    z_stream                                z;
    unsigned                                deflating:1;
    ZSTD_CCtx                              *zstd;

    ngx_http_llm_capture_digest_result_t    result;

    char            in[NGX_HTTP_LLM_CAPTURE_PATH];
    char            out[NGX_HTTP_LLM_CAPTURE_PATH];
    char            temp[NGX_HTTP_LLM_CAPTURE_PATH + 8];
    unsigned char   block[BLOCK];
    unsigned char   packed[BLOCK];
};


static int
ngx_http_llm_capture_digest_open(const ngx_http_llm_capture_sys_t *sys,
    const char *path, int flags)
{
    int  fd;

    do {
        fd = sys->open(path, flags|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK|O_NOCTTY,
                       0600);
    } while (fd == -1 && errno == EINTR);

    return fd;
}


static int
ngx_http_llm_capture_digest_input(ngx_http_llm_capture_digest_t *d)
{
    d->fd = ngx_http_llm_capture_digest_open(d->sys, d->in, O_RDONLY);

    if (d->fd == -1 || d->sys->fstat(d->fd, &d->st) == -1) {
        return -1;
    }

    if (!S_ISREG(d->st.st_mode)) {
        errno = EINVAL;
        return -1;
    }

    return 0;
}


static int
ngx_http_llm_capture_digest_output(ngx_http_llm_capture_digest_t *d)
{
    /* left by a process that was killed */

    (void) d->sys->unlink(d->temp);

    d->out_fd = ngx_http_llm_capture_digest_open(d->sys, d->temp,
                                                 O_WRONLY|O_CREAT|O_EXCL);

    if (d->out_fd == -1) {
        return -1;
    }

    /* a umask may have taken even the owner's bits */

    if (d->sys->fchmod(d->out_fd, 0600) == -1) {
        return -1;
    }

    if (d->compression == NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP) {

        if (deflateInit2(&d->z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, 8,
                         Z_DEFAULT_STRATEGY)
            != Z_OK)
        {
            errno = ENOMEM;
            return -1;
        }

        d->deflating = 1;

        return 0;
    }

    d->zstd = ZSTD_createCCtx();

    if (d->zstd == NULL) {
        errno = ENOMEM;
        return -1;
    }

    (void) ZSTD_CCtx_setParameter(d->zstd, ZSTD_c_compressionLevel,
                                  ZSTD_LEVEL);
    (void) ZSTD_CCtx_setParameter(d->zstd, ZSTD_c_checksumFlag, 1);

    return 0;
}


/* closes and frees all but the job; a temporary of ours goes */

static void
ngx_http_llm_capture_digest_drop(ngx_http_llm_capture_digest_t *d)
{
    if (d->fd != -1) {
        (void) d->sys->close(d->fd);
        d->fd = -1;
    }

    if (d->out_fd != -1) {
        (void) d->sys->close(d->out_fd);
        (void) d->sys->unlink(d->temp);
        d->out_fd = -1;
    }

    if (d->deflating) {
        (void) deflateEnd(&d->z);
        d->deflating = 0;
    }

    (void) ZSTD_freeCCtx(d->zstd);
    d->zstd = NULL;
}


static int
ngx_http_llm_capture_digest_fail(ngx_http_llm_capture_digest_t *d)
{
    d->error = errno ? errno : EIO;
    d->state = NGX_HTTP_LLM_CAPTURE_DIGEST_FAILED;

    ngx_http_llm_capture_digest_drop(d);

    errno = d->error;

    return -1;
}


ngx_http_llm_capture_digest_t *
ngx_http_llm_capture_digest_create(const ngx_http_llm_capture_sys_t *sys,
    const char *in, const char *out,
    ngx_http_llm_capture_compression_e compression)
{
    int                             err;
    ngx_http_llm_capture_digest_t  *d;

    if ((out != NULL) != (compression != NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE))
    {
        errno = EINVAL;
        return NULL;
    }

    if (strlen(in) >= sizeof(d->in) || (out && strlen(out) >= sizeof(d->out))) {
        errno = ENAMETOOLONG;
        return NULL;
    }

    d = calloc(1, sizeof(ngx_http_llm_capture_digest_t));

    if (d == NULL) {
        return NULL;
    }

    d->sys = sys;
    d->compression = compression;
    d->fd = -1;
    d->out_fd = -1;
    strcpy(d->in, in);
    SHA256_Init(&d->sha);

    if (out) {
        strcpy(d->out, out);
        (void) snprintf(d->temp, sizeof(d->temp),
                        "%s" NGX_HTTP_LLM_CAPTURE_PATH_TEMP, out);
    }

    if (ngx_http_llm_capture_digest_input(d) == 0
        && (out == NULL || ngx_http_llm_capture_digest_output(d) == 0))
    {
        return d;
    }

    err = errno;
    ngx_http_llm_capture_digest_drop(d);
    free(d);
    errno = err;

    return NULL;
}


/* what is in the file: the plain bytes, or the compressed ones */

static void
ngx_http_llm_capture_digest_add(ngx_http_llm_capture_digest_t *d,
    const unsigned char *p, size_t n)
{
    SHA256_Update(&d->sha, p, n);
    d->result.bytes += n;
}


static int
ngx_http_llm_capture_digest_write(ngx_http_llm_capture_digest_t *d, size_t n)
{
    off_t  size;

    if (ngx_http_llm_capture_sys_write(d->sys, d->out_fd,
                                       (const char *) d->packed, n)
        == -1)
    {
        return -1;
    }

    ngx_http_llm_capture_digest_add(d, d->packed, n);

    /* begins to write back, so that little is left for fsync() to wait for */

    size = (off_t) d->result.bytes;

    if (size - d->flushed >= WRITEBACK) {
        (void) sync_file_range(d->out_fd, d->flushed, size - d->flushed,
                               SYNC_FILE_RANGE_WRITE);
        d->flushed = size;
    }

    return 0;
}


static int
ngx_http_llm_capture_digest_gzip(ngx_http_llm_capture_digest_t *d, size_t n,
    int last)
{
    int  rc;

    d->z.next_in = d->block;
    d->z.avail_in = (uInt) n;

    do {
        d->z.next_out = d->packed;
        d->z.avail_out = BLOCK;

        rc = deflate(&d->z, last ? Z_FINISH : Z_NO_FLUSH);

        if (rc == Z_STREAM_ERROR) {
            errno = EIO;
            return -1;
        }

        if (ngx_http_llm_capture_digest_write(d, BLOCK - d->z.avail_out)
            == -1)
        {
            return -1;
        }

    } while (last ? rc != Z_STREAM_END : d->z.avail_out == 0);

    return 0;
}


static int
ngx_http_llm_capture_digest_zstd(ngx_http_llm_capture_digest_t *d, size_t n,
    int last)
{
    size_t          rc;
    ZSTD_inBuffer   in;
    ZSTD_outBuffer  out;

    in.src = d->block;
    in.size = n;
    in.pos = 0;

    do {
        out.dst = d->packed;
        out.size = BLOCK;
        out.pos = 0;

        rc = ZSTD_compressStream2(d->zstd, &out, &in,
                                  last ? ZSTD_e_end : ZSTD_e_continue);

        if (ZSTD_isError(rc)) {
            errno = EIO;
            return -1;
        }

        if (ngx_http_llm_capture_digest_write(d, out.pos) == -1) {
            return -1;
        }

    } while (last ? rc != 0 : in.pos != in.size);

    return 0;
}


/* n bytes of the block; last: 0 bytes, the end */

static int
ngx_http_llm_capture_digest_take(ngx_http_llm_capture_digest_t *d, size_t n,
    int last)
{
    const unsigned char  *p, *end;

    end = d->block + n;

    for (p = d->block; p < end; p++) {
        p = memchr(p, '\n', (size_t) (end - p));

        if (p == NULL) {
            break;
        }

        d->result.rows++;
    }

    d->result.plain_bytes += n;

    switch (d->compression) {

    case NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP:
        return ngx_http_llm_capture_digest_gzip(d, n, last);

    case NGX_HTTP_LLM_CAPTURE_COMPRESSION_ZSTD:
        return ngx_http_llm_capture_digest_zstd(d, n, last);

    default:
        ngx_http_llm_capture_digest_add(d, d->block, n);
        return 0;
    }
}


/* a sealed file is nobody's to write to any more */

static int
ngx_http_llm_capture_digest_same(ngx_http_llm_capture_digest_t *d)
{
    struct stat  now, named;

    if (d->sys->fstat(d->fd, &now) == -1) {
        return -1;
    }

    if (d->sys->lstat(d->in, &named) == -1) {
        if (errno != ENOENT) {
            return -1;
        }

        named.st_ino = 0;
    }

    if (named.st_ino != now.st_ino || named.st_dev != now.st_dev
        || now.st_size != d->st.st_size
        || (uint64_t) now.st_size != d->result.plain_bytes
        || now.st_mtim.tv_sec != d->st.st_mtim.tv_sec
        || now.st_mtim.tv_nsec != d->st.st_mtim.tv_nsec)
    {
        errno = ESTALE;
        return -1;
    }

    return 0;
}


static void
ngx_http_llm_capture_digest_end(ngx_http_llm_capture_digest_t *d)
{
    unsigned  i;
    uint8_t   sum[SHA256_DIGEST_LENGTH];

    SHA256_Final(sum, &d->sha);

    for (i = 0; i < sizeof(sum); i++) {
        (void) snprintf(d->result.sha256 + 2 * i, 3, "%02x", sum[i]);
    }
}


static int
ngx_http_llm_capture_digest_read(ngx_http_llm_capture_digest_t *d,
    size_t bytes)
{
    size_t   n;
    ssize_t  rc;

    while (bytes != 0) {

        n = bytes < BLOCK ? bytes : BLOCK;

        rc = ngx_http_llm_capture_sys_read(d->sys, d->fd, d->block, n,
                                           (off_t) d->result.plain_bytes);

        if (rc == -1
            || ngx_http_llm_capture_digest_take(d, (size_t) rc, 0) == -1)
        {
            return -1;
        }

        /* one that grows without end is not read to its end */

        if (d->result.plain_bytes > (uint64_t) d->st.st_size) {
            errno = ESTALE;
            return -1;
        }

        if ((size_t) rc < n) {

            if (ngx_http_llm_capture_digest_take(d, 0, 1) == -1
                || ngx_http_llm_capture_digest_same(d) == -1)
            {
                return -1;
            }

            ngx_http_llm_capture_digest_end(d);
            d->state = NGX_HTTP_LLM_CAPTURE_DIGEST_SYNC;

            return 0;
        }

        bytes -= n;
    }

    return 0;
}


/* the directory too: the caller unlinks the plain file next */

static void
ngx_http_llm_capture_digest_sync_dir(ngx_http_llm_capture_digest_t *d)
{
    int   fd;
    char  dir[sizeof(d->out)];

    strcpy(dir, d->out);
    *(strrchr(dir, '/') + 1) = '\0';

    fd = ngx_http_llm_capture_digest_open(d->sys, dir, O_RDONLY|O_DIRECTORY);

    if (fd != -1) {
        (void) d->sys->fsync(fd);
        (void) d->sys->close(fd);
    }
}


static int
ngx_http_llm_capture_digest_finish(ngx_http_llm_capture_digest_t *d)
{
    int  rc;

    if (d->out_fd == -1) {
        return 0;
    }

    do {
        rc = d->sys->fsync(d->out_fd);
    } while (rc == -1 && errno == EINTR);

    if (rc == -1 || d->sys->rename(d->temp, d->out) == -1) {
        return -1;
    }

    (void) d->sys->close(d->out_fd);
    d->out_fd = -1;

    ngx_http_llm_capture_digest_sync_dir(d);

    return 0;
}


int
ngx_http_llm_capture_digest_step(ngx_http_llm_capture_digest_t *d,
    size_t bytes)
{
    int  rc;

    switch (d->state) {

    case NGX_HTTP_LLM_CAPTURE_DIGEST_READ:
        rc = ngx_http_llm_capture_digest_read(d, bytes);
        break;

    case NGX_HTTP_LLM_CAPTURE_DIGEST_SYNC:
        rc = ngx_http_llm_capture_digest_finish(d);

        if (rc == 0) {
            d->state = NGX_HTTP_LLM_CAPTURE_DIGEST_DONE;
            ngx_http_llm_capture_digest_drop(d);
            return 0;
        }

        break;

    case NGX_HTTP_LLM_CAPTURE_DIGEST_DONE:
        return 0;

    default:
        errno = d->error;
        return -1;
    }

    return rc == -1 ? ngx_http_llm_capture_digest_fail(d) : 1;
}


const ngx_http_llm_capture_digest_result_t *
ngx_http_llm_capture_digest_result(const ngx_http_llm_capture_digest_t *d)
{
    return &d->result;
}


void
ngx_http_llm_capture_digest_destroy(ngx_http_llm_capture_digest_t *d)
{
    if (d == NULL) {
        return;
    }

    ngx_http_llm_capture_digest_drop(d);
    free(d);
}
