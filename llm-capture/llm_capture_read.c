
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Reads in large pieces rather than from a map: a piece stays in the cache
 * while it is looked at, a file that shrinks is no signal, and a pipe is a
 * file like another.  A line must fit in memory.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <openssl/evp.h>

#include "llm_capture_read.h"


#define LLM_CAPTURE_PIECE  (512 * 1024)

#define LLM_CAPTURE_LFS    "version https://git-lfs.github.com/spec/"


static struct {
    uint64_t            total;
    uint64_t            done;
    double              start;
    double              said;
    unsigned            shown:1;
    signed              tty:2;      /* 0: not asked */
} llm_capture_shown;


static double
llm_capture_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}


void
llm_capture_progress_total(uint64_t bytes)
{
    llm_capture_shown.total += bytes;
}


void
llm_capture_progress(uint64_t bytes)
{
    double  now, rate, left;

    llm_capture_shown.done += bytes;

    if (llm_capture_shown.tty == 0) {
        llm_capture_shown.tty = isatty(STDERR_FILENO) ? 1 : -1;
        llm_capture_shown.start = llm_capture_now();
    }

    if (llm_capture_shown.tty < 0) {
        return;
    }

    now = llm_capture_now();

    if (now - llm_capture_shown.start < 1 || now - llm_capture_shown.said < .2)
    {
        return;
    }

    llm_capture_shown.said = now;
    llm_capture_shown.shown = 1;
    rate = (double) llm_capture_shown.done / (now - llm_capture_shown.start);

    fprintf(stderr, "\r\033[K%.1f GB, %.2f GB/s",
            (double) llm_capture_shown.done / 1e9, rate / 1e9);

    if (llm_capture_shown.total > llm_capture_shown.done) {
        left = (double) (llm_capture_shown.total - llm_capture_shown.done)
               / rate;
        fprintf(stderr, ", %.0f%%, %.0f:%02.0f left",
                100.0 * (double) llm_capture_shown.done
                / (double) llm_capture_shown.total,
                (double) ((uint64_t) left / 60),
                (double) ((uint64_t) left % 60));
    }

    fflush(stderr);
}


void
llm_capture_progress_end(void)
{
    if (llm_capture_shown.shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        llm_capture_shown.shown = 0;
    }
}


static void
llm_capture_digest_some(llm_capture_file_t *f, const void *p, size_t n)
{
    if (f->digest && !EVP_DigestUpdate(f->digest, p, n)) {
        llm_capture_die("%s: no sha256", f->path);
    }
}


size_t
llm_capture_read_some(llm_capture_file_t *f, void *p, size_t n)
{
    ssize_t  got;

    do {
        got = read(f->fd, p, n);
    } while (got == -1 && errno == EINTR);

    if (got == -1) {
        llm_capture_die("%s: %s", f->path, strerror(errno));
    }

    llm_capture_digest_some(f, p, (size_t) got);

    f->taken += (uint64_t) got;
    llm_capture_progress((uint64_t) got);

    return (size_t) got;
}


static void
llm_capture_fill(llm_capture_file_t *f)
{
    size_t  n;

    if (f->pos) {
        memmove(f->buf, f->buf + f->pos, f->end - f->pos);
        f->base += f->pos;
        f->end -= f->pos;
        f->cr = f->cr > f->pos ? f->cr - f->pos : 0;
        f->pos = 0;
    }

    if (f->cap - f->end < LLM_CAPTURE_PIECE / 2) {
        f->cap *= 2;
        f->buf = llm_capture_grow(f->buf, f->cap);
    }

    if (f->z) {
        n = llm_capture_unpack(f, f->buf + f->end, f->cap - f->end);

    } else {
        n = llm_capture_read_some(f, f->buf + f->end, f->cap - f->end);
        f->eof = (n == 0);
    }

    f->end += n;
}


static void
llm_capture_begin(llm_capture_file_t *f)
{
    size_t  n;

    while (f->end < sizeof(LLM_CAPTURE_LFS) && !f->eof) {
        llm_capture_fill(f);
    }

    f->lfs = f->end >= sizeof(LLM_CAPTURE_LFS)
             && memcmp(f->buf, LLM_CAPTURE_LFS, sizeof(LLM_CAPTURE_LFS) - 1)
                == 0;
    f->packed = llm_capture_packed(f->buf, f->end);
    f->cr = 0;

    if (f->packed == LLM_CAPTURE_PLAIN) {
        return;
    }

    /* what was read is packed */

    n = f->end;

    if (lseek(f->fd, 0, SEEK_SET) == 0) {
        f->taken = n = 0;
    }

    f->z = llm_capture_unpacker(f, n);
    f->end = 0;
    f->eof = 0;
}


llm_capture_file_t *
llm_capture_open(const char *path, unsigned universal)
{
    struct stat          st;
    llm_capture_file_t  *f;

    f = llm_capture_alloc(sizeof(llm_capture_file_t));
    f->path = path;
    f->universal = universal ? 1 : 0;
    f->fd = STDIN_FILENO;

    if (strcmp(path, "-") != 0) {
        f->fd = open(path, O_RDONLY|O_CLOEXEC);

        if (f->fd == -1) {
            llm_capture_die("%s: %s", path, strerror(errno));
        }
    }

    if (fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        f->size = (uint64_t) st.st_size;
        (void) posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }

    f->cap = LLM_CAPTURE_PIECE;
    f->buf = llm_capture_grow(NULL, f->cap);

    llm_capture_begin(f);

    return f;
}


void
llm_capture_rewind(llm_capture_file_t *f)
{
    if (lseek(f->fd, 0, SEEK_SET) == -1) {
        llm_capture_die("%s: it is to be read twice: give a file", f->path);
    }

    llm_capture_progress_total(f->size);

    llm_capture_unpacked(f);

    f->line = f->offset = f->base = f->taken = 0;
    f->pos = f->end = f->cr = 0;
    f->eof = f->cut = 0;

    llm_capture_begin(f);
}


void
llm_capture_close(llm_capture_file_t *f)
{
    llm_capture_unpacked(f);

    if (f->fd != STDIN_FILENO) {
        close(f->fd);
    }

    EVP_MD_CTX_free(f->digest);
    free(f->buf);
    free(f);
}


/* of OpenSSL, for its speed: with that of libmd validate is six times slower */

void
llm_capture_digest(llm_capture_file_t *f)
{
    f->digest = EVP_MD_CTX_new();

    if (f->digest == NULL
        || !EVP_DigestInit_ex(f->digest, EVP_sha256(), NULL))
    {
        llm_capture_die("%s: no sha256", f->path);
    }

    /* a packed one begins anew, of another some was read */

    if (f->z == NULL) {
        llm_capture_digest_some(f, f->buf, f->end);
    }
}


void
llm_capture_digest_end(llm_capture_file_t *f, char hex[LLM_CAPTURE_SHA256])
{
    unsigned  i, n;
    uint8_t   md[EVP_MAX_MD_SIZE];

    while (llm_capture_read_some(f, f->buf, f->cap)) { /* void */ }

    if (!EVP_DigestFinal_ex(f->digest, md, &n)) {
        llm_capture_die("%s: no sha256", f->path);
    }

    for (i = 0; i < n; i++) {
        snprintf(hex + 2 * i, 3, "%02x", md[i]);
    }
}


/* the end of the line that begins at pos; end: not here yet */

static size_t
llm_capture_line_end(llm_capture_file_t *f, size_t from)
{
    size_t    lf;
    uint8_t  *p;

    p = memchr(f->buf + from, '\n', f->end - from);
    lf = p ? (size_t) (p - f->buf) : f->end;

    if (!f->universal) {
        return lf;
    }

    if (f->cr < from) {
        f->cr = from;
    }

    if (f->cr < f->end && f->buf[f->cr] != '\r') {
        p = memchr(f->buf + f->cr, '\r', f->end - f->cr);
        f->cr = p ? (size_t) (p - f->buf) : f->end;
    }

    return f->cr < lf ? f->cr : lf;
}


int
llm_capture_line(llm_capture_file_t *f, llm_capture_str_t *text, size_t *whole)
{
    size_t  at, from;

    for (from = f->pos;; /* void */ ) {
        at = llm_capture_line_end(f, from);

        /* behind a CR an LF may follow */

        if (at + (at < f->end && f->buf[at] == '\r') < f->end || f->eof) {
            break;
        }

        from = at - f->pos;
        llm_capture_fill(f);
    }

    if (f->error) {
        return -1;
    }

    if (f->pos == f->end) {
        return 0;
    }

    f->line++;
    f->offset = f->base + f->pos;
    f->cut = (at == f->end);

    text->p = f->buf + f->pos;
    text->n = at - f->pos;

    if (at < f->end) {
        at += 1 + (f->buf[at] == '\r' && at + 1 < f->end
                   && f->buf[at + 1] == '\n');
    }

    *whole = at - f->pos;
    f->pos = at;

    return 1;
}
