
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <sys/stat.h>

#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_sidecar.h"
#include "ngx_http_llm_capture_tail.h"


/* how often a sidecar that cannot be written is tried again, ms */
#define NGX_HTTP_LLM_CAPTURE_EPOCH_EVERY  60000


ssize_t
ngx_http_llm_capture_sidecar_text(const ngx_http_llm_capture_sys_t *sys,
    const char *path, char *text, size_t size, struct stat *st)
{
    int      fd, err;
    ssize_t  n;

    fd = sys->open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK|O_NOCTTY, 0);

    if (fd == -1) {
        return -1;
    }

    if (sys->fstat(fd, st) == -1) {
        n = -1;

    } else if (!S_ISREG(st->st_mode)) {
        n = 0;

    } else {
        n = ngx_http_llm_capture_sys_read(sys, fd, text, size, 0);
    }

    err = errno;
    (void) sys->close(fd);
    errno = err;

    return n;
}


int
ngx_http_llm_capture_sidecar_load(const ngx_http_llm_capture_sys_t *sys,
    ngx_http_llm_capture_epoch_t *e, const char *path)
{
    char         text[NGX_HTTP_LLM_CAPTURE_EPOCH];
    ssize_t      n;
    struct stat  st;

    n = ngx_http_llm_capture_sidecar_text(sys, path, text, sizeof(text), &st);

    if (n != -1) {
        return ngx_http_llm_capture_epoch_parse(e, text, (size_t) n);
    }

    return ngx_http_llm_capture_sidecar_passes(errno) ? -1 : 0;
}


int
ngx_http_llm_capture_sidecar_passes(int err)
{
    switch (err) {

    /* to take them for "none" would throw a good epoch, or key, away */

    case EINTR:
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return 1;
    }

    return 0;
}


int
ngx_http_llm_capture_sidecar_make(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const char *text, size_t len)
{
    int  fd, rc, err;

    fd = sys->open(path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1) {
        return -1;
    }

    /* a umask may have taken even the owner's bits */

    rc = sys->fchmod(fd, 0600);

    if (rc == 0) {
        rc = ngx_http_llm_capture_sys_write(sys, fd, text, len);
    }

    err = errno;

    if (sys->close(fd) == -1 && rc == 0) {
        rc = -1;
        err = errno;
    }

    if (rc == -1) {
        (void) sys->unlink(path);
        errno = err;
    }

    return rc;
}


int
ngx_http_llm_capture_sidecar_replace(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const char *text, size_t len)
{
    int   err;
    char  temp[NGX_HTTP_LLM_CAPTURE_PATH + 512];

    if (snprintf(temp, sizeof(temp), "%s" NGX_HTTP_LLM_CAPTURE_PATH_TEMP, path)
        >= (int) sizeof(temp))
    {
        errno = ENAMETOOLONG;
        return -1;
    }

    /* left by a process that was killed just here; the lock makes it ours */

    (void) sys->unlink(temp);

    if (ngx_http_llm_capture_sidecar_make(sys, temp, text, len) == -1) {
        return -1;
    }

    if (sys->rename(temp, path) == 0) {
        return 0;
    }

    err = errno;
    (void) sys->unlink(temp);
    errno = err;

    return -1;
}


int
ngx_http_llm_capture_sidecar_store(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_epoch_t *e, const char *path)
{
    char    text[NGX_HTTP_LLM_CAPTURE_EPOCH];
    size_t  len;

    len = ngx_http_llm_capture_epoch_print(e, text);

    return ngx_http_llm_capture_sidecar_replace(sys, path, text, len);
}


void
ngx_http_llm_capture_sidecar_boot(const ngx_http_llm_capture_sys_t *sys,
    char boot[NGX_HTTP_LLM_CAPTURE_BOOT])
{
    ssize_t      n;
    struct stat  st;

    n = ngx_http_llm_capture_sidecar_text(sys,
                                          "/proc/sys/kernel/random/boot_id",
                                          boot, NGX_HTTP_LLM_CAPTURE_BOOT - 1,
                                          &st);

    boot[n == -1 ? 0 : n] = '\0';
    boot[strcspn(boot, " \t\r\n")] = '\0';
}


/*
 * Only while the path still names the file: a helper that goes on in a rotated
 * file must not replace the sidecar of the new one.  Without a sidecar lines
 * are written all the same: the epoch lives on in memory, and a successor goes
 * on 1 ms behind the last row.
 */

static void
ngx_http_llm_capture_sidecar_keep(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, const char *sidecar)
{
    struct stat                        st;
    const ngx_http_llm_capture_sys_t  *sys;

    sys = fs->sys;

    if (sys->lstat(f->path, &st) == -1
        || (uint64_t) st.st_dev != f->epoch.dev
        || (uint64_t) st.st_ino != f->epoch.ino)
    {
        return;
    }

    f->epoch_retry = fs->now + NGX_HTTP_LLM_CAPTURE_EPOCH_EVERY;

    if (ngx_http_llm_capture_sidecar_store(sys, &f->epoch, sidecar) == 0) {
        f->epoch_stored = 1;
        return;
    }

    ngx_http_llm_capture_file_say(fs, f,
                                  NGX_HTTP_LLM_CAPTURE_SAY_EPOCH, LOG_WARNING,
                                  errno, "cannot write the .epoch file,"
                                         " a restart goes on 1 ms behind the"
                                         " last row");
}


/*
 * An epoch for a file that has rows: its first new row must not lie before the
 * last one, whatever happened to the sidecar or, over a reboot, to the clock.
 */

static int
ngx_http_llm_capture_sidecar_resume(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, off_t size, uint64_t t0_wall,
    uint64_t t0_mono, uint64_t ts)
{
    int       rc;
    uint64_t  last;

    rc = ngx_http_llm_capture_tail_timestamp(fs->sys, f->fd, size, &last);

    if (rc == -1) {
        f->error = errno;
        ngx_http_llm_capture_file_say(fs, f,
                                      NGX_HTTP_LLM_CAPTURE_SAY_EPOCH, LOG_ERR,
                                      f->error, "cannot read the last row");
        return -1;
    }

    if (rc == 1 && ts <= last) {
        ts = last + 1;
    }

    ngx_http_llm_capture_epoch_set(&f->epoch, t0_wall, t0_mono, ts);

    return 0;
}


static int
ngx_http_llm_capture_sidecar_ask(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, ngx_http_llm_capture_epoch_t *e,
    const char *sidecar)
{
    int  rc;

    do {
        rc = ngx_http_llm_capture_sidecar_load(fs->sys, e, sidecar);

    } while (rc == -1 && (errno == EMFILE || errno == ENFILE)
             && ngx_http_llm_capture_files_evict(fs, f));

    if (rc == -1) {
        f->error = errno;
        ngx_http_llm_capture_file_say(fs, f,
                                      NGX_HTTP_LLM_CAPTURE_SAY_EPOCH, LOG_ERR,
                                      f->error, "cannot read the .epoch file");
    }

    return rc;
}


/*
 * Finds or makes the epoch of a locked file.  What is in memory holds as long
 * as nobody else has touched the file; else the sidecar is asked again, since
 * another helper, or a truncation, may have replaced it.
 */

int
ngx_http_llm_capture_file_epoch(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, const struct stat *st, const char *boot,
    uint64_t t0_wall, uint64_t t0_mono)
{
    int                           rc;
    char                          sidecar[NGX_HTTP_LLM_CAPTURE_PATH + 8];
    uint64_t                      dev, ino, ts;
    ngx_http_llm_capture_epoch_t  e;

    if (f->epoch_known && f->same && st->st_size != 0
        && (f->epoch_stored || fs->now < f->epoch_retry))
    {
        return 0;
    }

    (void) snprintf(sidecar, sizeof(sidecar),
                    "%s" NGX_HTTP_LLM_CAPTURE_PATH_SIDECAR, f->path);

    if (f->epoch_known && f->same && st->st_size != 0) {
        ngx_http_llm_capture_sidecar_keep(fs, f, sidecar);
        return 0;
    }

    dev = (uint64_t) st->st_dev;
    ino = (uint64_t) st->st_ino;
    rc = 0;

    /*
     * An empty file begins anew, unless we left it empty ourselves: then the
     * epoch made for the lines that could not be written still holds.
     */

    if (st->st_size != 0 || (f->epoch_known && f->same)) {
        rc = ngx_http_llm_capture_sidecar_ask(fs, f, &e, sidecar);

        if (rc == -1) {
            return -1;
        }

        rc = (rc == 1 && e.ino == ino);
    }

    if (rc == 1 && e.dev == dev && boot[0]
        && strcmp(e.boot, boot) == 0)
    {
        f->epoch = e;
        f->epoch_known = 1;
        f->epoch_stored = 1;
        return 0;
    }

    /* rotated, and the sidecar is of the new file; or it was deleted */

    if (rc == 0 && f->epoch_known && st->st_size != 0
        && f->epoch.dev == dev && f->epoch.ino == ino)
    {
        ngx_http_llm_capture_sidecar_keep(fs, f, sidecar);
        return 0;
    }

    /*
     * Over a reboot, or when the file system was mounted again under another
     * device number, the wall clocks tell the distance, once; from there on
     * the epoch counts in this boot's monotonic clock.
     */

    ts = rc ? ngx_http_llm_capture_epoch_wall(&e, t0_wall) : 0;

    f->epoch_known = 0;
    f->epoch_stored = 0;

    if (ngx_http_llm_capture_sidecar_resume(fs, f, st->st_size, t0_wall,
                                            t0_mono, ts)
        == -1)
    {
        return -1;
    }

    f->epoch.dev = dev;
    f->epoch.ino = ino;
    strcpy(f->epoch.boot, boot);
    f->epoch_known = 1;

    ngx_http_llm_capture_sidecar_keep(fs, f, sidecar);

    return 0;
}
