
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * An output is written under a name of its own and gets its name when it is
 * whole: there is never half of one, and a file is overwritten by no race.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm_capture.h"


#define LLM_CAPTURE_BUFFER  (64 * 1024)


struct llm_capture_out_s {
    int                 fd;
    unsigned            force:1;
    char               *path;
    char               *temp;       /* NULL: stdout */
    size_t              n;
    llm_capture_out_t  *next;
    uint8_t            *buf;        /* NULL, and fd -1: parked */
};


static llm_capture_out_t  *llm_capture_outs;


/* of those that were not committed */

static void
llm_capture_drop(void)
{
    llm_capture_out_t  *out;

    for (out = llm_capture_outs; out; out = out->next) {
        unlink(out->temp);
    }
}


static void
llm_capture_killed(int sig)
{
    llm_capture_drop();
    signal(sig, SIG_DFL);
    raise(sig);
}


static void
llm_capture_push(llm_capture_out_t *out, const uint8_t *p, size_t n)
{
    ssize_t  some;

    while (n) {
        some = write(out->fd, p, n);

        if (some == -1 && errno == EINTR) {
            continue;
        }

        if (some == -1) {
            llm_capture_die("%s: %s", out->path, strerror(errno));
        }

        p += some;
        n -= (size_t) some;
    }
}


llm_capture_out_t *
llm_capture_create(const char *path, unsigned force)
{
    llm_capture_out_t  *out;

    out = llm_capture_alloc(sizeof(llm_capture_out_t));
    out->force = force ? 1 : 0;
    out->buf = llm_capture_grow(NULL, LLM_CAPTURE_BUFFER);

    if (strcmp(path, "-") == 0) {
        out->path = llm_capture_format("stdout");
        out->fd = STDOUT_FILENO;
        return out;
    }

    if (!force && access(path, F_OK) == 0) {
        llm_capture_die("%s: exists; --force overwrites it", path);
    }

    out->path = llm_capture_format("%s", path);
    out->temp = llm_capture_format("%s.%ld.tmp", path, (long) getpid());
    out->fd = open(out->temp, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600);

    if (out->fd == -1) {
        llm_capture_die("%s: %s", out->temp, strerror(errno));
    }

    if (llm_capture_outs == NULL) {
        atexit(llm_capture_drop);
        signal(SIGINT, llm_capture_killed);
        signal(SIGTERM, llm_capture_killed);
        signal(SIGHUP, llm_capture_killed);
    }

    out->next = llm_capture_outs;
    llm_capture_outs = out;

    return out;
}


void
llm_capture_park(llm_capture_out_t *out)
{
    if (out->temp == NULL || out->buf == NULL) {
        return;
    }

    llm_capture_push(out, out->buf, out->n);

    if (close(out->fd) == -1) {
        llm_capture_die("%s: %s", out->temp, strerror(errno));
    }

    free(out->buf);
    out->buf = NULL;
    out->fd = -1;
    out->n = 0;
}


static void
llm_capture_unpark(llm_capture_out_t *out)
{
    out->fd = open(out->temp, O_WRONLY|O_APPEND|O_CLOEXEC);

    if (out->fd == -1) {
        llm_capture_die("%s: %s", out->temp, strerror(errno));
    }

    out->buf = llm_capture_grow(NULL, LLM_CAPTURE_BUFFER);
}


void
llm_capture_write(llm_capture_out_t *out, const void *p, size_t n)
{
    if (out->buf == NULL) {
        llm_capture_unpark(out);
    }

    if (n > LLM_CAPTURE_BUFFER - out->n) {
        llm_capture_push(out, out->buf, out->n);
        out->n = 0;

        if (n >= LLM_CAPTURE_BUFFER) {
            llm_capture_push(out, p, n);
            return;
        }
    }

    memcpy(out->buf + out->n, p, n);
    out->n += n;
}


void
llm_capture_puts(llm_capture_out_t *out, const char *s)
{
    llm_capture_write(out, s, strlen(s));
}


void
llm_capture_printf(llm_capture_out_t *out, const char *fmt, ...)
{
    char    *s;
    va_list  args;

    va_start(args, fmt);
    s = llm_capture_vformat(fmt, args);
    va_end(args);

    llm_capture_puts(out, s);
    free(s);
}


void
llm_capture_commit(llm_capture_out_t *out)
{
    llm_capture_out_t  **p;

    if (out->temp == NULL) {
        llm_capture_push(out, out->buf, out->n);
        free(out->buf);
        free(out->path);
        free(out);
        return;
    }

    llm_capture_park(out);

    if (out->force) {
        if (rename(out->temp, out->path) == -1) {
            llm_capture_die("%s: %s", out->path, strerror(errno));
        }

    } else {
        if (link(out->temp, out->path) == -1) {
            llm_capture_die("%s: %s", out->path, strerror(errno));
        }

        unlink(out->temp);
    }

    for (p = &llm_capture_outs; *p != out; p = &(*p)->next) { /* void */ }

    *p = out->next;

    free(out->temp);
    free(out->path);
    free(out);
}
