
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
#include <sys/stat.h>

#include "ngx_http_llm_capture_epoch.h"
#include "ngx_http_llm_capture_zone.h"


/* no clock of ours comes near; keeps every sum below within 64 bits */
#define NGX_HTTP_LLM_CAPTURE_EPOCH_MAX  ((int64_t) 1 << 53)


/* arrivals come out of memory that a worker can write */

static int64_t
ngx_http_llm_capture_epoch_clamp(uint64_t ms)
{
    if (ms > (uint64_t) NGX_HTTP_LLM_CAPTURE_EPOCH_MAX) {
        return NGX_HTTP_LLM_CAPTURE_EPOCH_MAX;
    }

    return (int64_t) ms;
}


void
ngx_http_llm_capture_epoch_set(ngx_http_llm_capture_epoch_t *e, uint64_t wall,
    uint64_t mono, uint64_t ts)
{
    e->wall = ngx_http_llm_capture_epoch_clamp(wall)
              - ngx_http_llm_capture_epoch_clamp(ts);
    e->mono = ngx_http_llm_capture_epoch_clamp(mono)
              - ngx_http_llm_capture_epoch_clamp(ts);
}


static uint64_t
ngx_http_llm_capture_epoch_since(int64_t t0, uint64_t ms)
{
    int64_t  t;

    t = ngx_http_llm_capture_epoch_clamp(ms);

    return t > t0 ? (uint64_t) (t - t0) : 0;
}


uint64_t
ngx_http_llm_capture_epoch_ts(const ngx_http_llm_capture_epoch_t *e,
    uint64_t mono)
{
    return ngx_http_llm_capture_epoch_since(e->mono, mono);
}


uint64_t
ngx_http_llm_capture_epoch_wall(const ngx_http_llm_capture_epoch_t *e,
    uint64_t wall)
{
    return ngx_http_llm_capture_epoch_since(e->wall, wall);
}


size_t
ngx_http_llm_capture_epoch_print(const ngx_http_llm_capture_epoch_t *e,
    char text[NGX_HTTP_LLM_CAPTURE_EPOCH])
{
    return (size_t) snprintf(text, NGX_HTTP_LLM_CAPTURE_EPOCH,
                             "llm_capture_epoch=1\n"
                             "wall=%" PRId64 "\n"
                             "mono=%" PRId64 "\n"
                             "boot=%s\n"
                             "dev=%" PRIu64 "\n"
                             "ino=%" PRIu64 "\n",
                             e->wall, e->mono, e->boot, e->dev, e->ino);
}


/* takes "key=" off the front and returns what follows, up to an LF */

static char *
ngx_http_llm_capture_epoch_field(char **text, const char *key)
{
    char    *value, *lf;
    size_t   len;

    len = strlen(key);

    if (strncmp(*text, key, len) != 0) {
        return NULL;
    }

    value = *text + len;
    lf = strchr(value, '\n');

    if (lf == NULL) {
        return NULL;
    }

    *lf = '\0';
    *text = lf + 1;

    return value;
}


static int
ngx_http_llm_capture_epoch_number(char **text, const char *key, int64_t *n)
{
    char  *value, *end;

    value = ngx_http_llm_capture_epoch_field(text, key);

    if (value == NULL) {
        return 0;
    }

    errno = 0;
    *n = strtoll(value, &end, 10);

    return errno == 0 && end != value && *end == '\0'
           && *n <= NGX_HTTP_LLM_CAPTURE_EPOCH_MAX
           && *n >= -NGX_HTTP_LLM_CAPTURE_EPOCH_MAX;
}


static int
ngx_http_llm_capture_epoch_id(char **text, const char *key, uint64_t *n)
{
    char  *value, *end;

    value = ngx_http_llm_capture_epoch_field(text, key);

    if (value == NULL) {
        return 0;
    }

    errno = 0;
    *n = strtoull(value, &end, 10);

    return errno == 0 && end != value && *end == '\0';
}


int
ngx_http_llm_capture_epoch_parse(ngx_http_llm_capture_epoch_t *e,
    const char *text, size_t len)
{
    char                          copy[NGX_HTTP_LLM_CAPTURE_EPOCH], *p, *boot;
    ngx_http_llm_capture_epoch_t  got;

    if (len >= sizeof(copy)) {
        return 0;
    }

    memcpy(copy, text, len);
    copy[len] = '\0';
    p = copy;

    memset(&got, 0, sizeof(ngx_http_llm_capture_epoch_t));

    boot = ngx_http_llm_capture_epoch_field(&p, "llm_capture_epoch=");

    if (boot == NULL || strcmp(boot, "1") != 0
        || !ngx_http_llm_capture_epoch_number(&p, "wall=", &got.wall)
        || !ngx_http_llm_capture_epoch_number(&p, "mono=", &got.mono))
    {
        return 0;
    }

    boot = ngx_http_llm_capture_epoch_field(&p, "boot=");

    if (boot == NULL || strlen(boot) >= sizeof(got.boot)) {
        return 0;
    }

    strcpy(got.boot, boot);

    if (!ngx_http_llm_capture_epoch_id(&p, "dev=", &got.dev)
        || !ngx_http_llm_capture_epoch_id(&p, "ino=", &got.ino))
    {
        return 0;
    }

    *e = got;

    return 1;
}


/* the text of a small file; -1 with errno; 0 bytes also if it is not regular */

static ssize_t
ngx_http_llm_capture_epoch_text(const ngx_http_llm_capture_sys_t *sys,
    const char *path, char *text, size_t size)
{
    int          fd, err;
    ssize_t      n;
    struct stat  st;

    fd = sys->open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK|O_NOCTTY, 0);

    if (fd == -1) {
        return -1;
    }

    if (sys->fstat(fd, &st) == -1) {
        n = -1;

    } else if (!S_ISREG(st.st_mode)) {
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
ngx_http_llm_capture_epoch_load(const ngx_http_llm_capture_sys_t *sys,
    ngx_http_llm_capture_epoch_t *e, const char *path)
{
    char     text[NGX_HTTP_LLM_CAPTURE_EPOCH];
    ssize_t  n;

    n = ngx_http_llm_capture_epoch_text(sys, path, text, sizeof(text));

    if (n != -1) {
        return ngx_http_llm_capture_epoch_parse(e, text, (size_t) n);
    }

    switch (errno) {

    /* these pass: to take them for "none" would throw a good epoch away */

    case EINTR:
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return -1;
    }

    return 0;
}


int
ngx_http_llm_capture_epoch_store(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_epoch_t *e, const char *path)
{
    int     fd, rc, err;
    char    text[NGX_HTTP_LLM_CAPTURE_EPOCH];
    char    temp[NGX_HTTP_LLM_CAPTURE_PATH + 16];
    size_t  len;

    if (snprintf(temp, sizeof(temp), "%s.tmp", path) >= (int) sizeof(temp)) {
        errno = ENAMETOOLONG;
        return -1;
    }

    /* left by a process that was killed just here; the lock makes it ours */

    (void) sys->unlink(temp);

    fd = sys->open(temp, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1) {
        return -1;
    }

    len = ngx_http_llm_capture_epoch_print(e, text);

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

    if (rc == 0 && sys->rename(temp, path) == 0) {
        return 0;
    }

    if (rc == 0) {
        err = errno;
    }

    (void) sys->unlink(temp);
    errno = err;

    return -1;
}


void
ngx_http_llm_capture_epoch_boot(const ngx_http_llm_capture_sys_t *sys,
    char boot[NGX_HTTP_LLM_CAPTURE_BOOT])
{
    ssize_t  n;

    n = ngx_http_llm_capture_epoch_text(sys,
                                        "/proc/sys/kernel/random/boot_id",
                                        boot, NGX_HTTP_LLM_CAPTURE_BOOT - 1);

    boot[n == -1 ? 0 : n] = '\0';
    boot[strcspn(boot, " \t\r\n")] = '\0';
}
