
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What the tests of the writer share: a directory of their own, lines, and
 * system calls that fail when told to.
 */

#ifndef _FILES_H_INCLUDED_
#define _FILES_H_INCLUDED_


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS  64

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_writer.h"


#define MOON   NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD
#define RAW    NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD
#define LATER  NGX_HTTP_LLM_CAPTURE_LATER
#define NEVER  NGX_HTTP_LLM_CAPTURE_NEVER

#define BOOT   "11111111-2222-3333-4444-555555555555"
#define OTHER  "99999999-2222-3333-4444-555555555555"

typedef ngx_http_llm_capture_writer_t  writer_t;
typedef ngx_http_llm_capture_file_t    file_t;
typedef ngx_http_llm_capture_line_t    line_t;
typedef ngx_http_llm_capture_intent_t  intent_t;
typedef ngx_http_llm_capture_epoch_t   epoch_t;


/* when calls fail; -1: as they are */

static struct {
    int       write_errno;      /* what writev() says after so many bytes; */
                                /* 0: it says that it wrote nothing */
    long      write_bytes;
    long      write_chunk;      /* bytes of a call, at most */
    int       write_eintr;      /* so many calls first */
    int       write_die;        /* 1: the process dies instead of an error */
    int       lines_only;       /* 1: sidecars are written as they are */
    int       cut_errno;        /* 0: as it is */
    int       open_errno;
    int       open_skip;        /* so many opens do not fail first */
    int       open_times;       /* so many opens fail; -1: all */
    int       rename_errno;
    int       link_errno;
    int       random_errno;
    void    (*before_link)(void);
    int       pread_errno;
    void    (*before_cut)(void);

    unsigned  writes;
    unsigned  opens;
    unsigned  open_now;
    unsigned  open_peak;
    int       max_iov;
} fault;

static struct {
    unsigned  n;
    char      text[8192];
    int       level;
    int       err;
} said;

static char      dir[64];
static char      path[128];
static char      sidecar[160];
static intent_t  intent;


static inline void
reset_faults(void)
{
    memset(&fault, 0, sizeof(fault));
    fault.write_bytes = -1;
    fault.write_chunk = -1;
}


static inline ssize_t
fault_writev(int fd, const struct iovec *iov, int n)
{
    int           i, k;
    long          left;
    ssize_t       rc;
    struct iovec  part[IOV_MAX];

    fault.writes++;

    if (n > fault.max_iov) {
        fault.max_iov = n;
    }

    if (n < 1 || n > IOV_MAX) {
        errno = EINVAL;
        return -1;
    }

    if (fault.lines_only && !(fcntl(fd, F_GETFL) & O_APPEND)) {
        return writev(fd, iov, n);
    }

    if (fault.write_eintr > 0) {
        fault.write_eintr--;
        errno = EINTR;
        return -1;
    }

    if (fault.write_bytes == 0) {
        if (fault.write_die) {
            _exit(9);
        }

        errno = fault.write_errno;
        return errno ? -1 : 0;
    }

    left = fault.write_bytes < 0 ? LONG_MAX : fault.write_bytes;

    if (fault.write_chunk > 0 && fault.write_chunk < left) {
        left = fault.write_chunk;
    }

    for (i = 0, k = 0; i < n && left > 0; i++) {
        part[k] = iov[i];

        if ((long) part[k].iov_len > left) {
            part[k].iov_len = (size_t) left;
        }

        left -= (long) part[k++].iov_len;
    }

    rc = writev(fd, part, k);

    if (rc > 0 && fault.write_bytes > 0) {
        fault.write_bytes -= rc;
    }

    return rc;
}


static inline int
fault_ftruncate(int fd, off_t length)
{
    if (fault.before_cut) {
        fault.before_cut();
    }

    if (fault.cut_errno) {
        errno = fault.cut_errno;
        return -1;
    }

    return ftruncate(fd, length);
}


static inline int
fault_open(const char *name, int flags, mode_t mode)
{
    int  fd;

    fault.opens++;

    if (fault.open_skip > 0) {
        fault.open_skip--;

    } else if (fault.open_times) {
        if (fault.open_times > 0) {
            fault.open_times--;
        }

        errno = fault.open_errno;
        return -1;
    }

    fd = open(name, flags, mode);

    if (fd != -1 && ++fault.open_now > fault.open_peak) {
        fault.open_peak = fault.open_now;
    }

    return fd;
}


static inline int
fault_close(int fd)
{
    fault.open_now--;

    return close(fd);
}


static inline int
fault_rename(const char *from, const char *to)
{
    if (fault.rename_errno) {
        errno = fault.rename_errno;
        return -1;
    }

    return rename(from, to);
}


static inline int
fault_link(const char *from, const char *to)
{
    if (fault.before_link) {
        fault.before_link();
    }

    if (fault.link_errno) {
        errno = fault.link_errno;
        return -1;
    }

    return link(from, to);
}


static inline ssize_t
fault_getrandom(void *buf, size_t n, unsigned flags)
{
    if (fault.random_errno) {
        errno = fault.random_errno;
        return -1;
    }

    return getrandom(buf, n, flags);
}


static inline ssize_t
fault_pread(int fd, void *buf, size_t n, off_t offset)
{
    if (fault.pread_errno) {
        errno = fault.pread_errno;
        return -1;
    }

    return pread(fd, buf, n, offset);
}


static inline const ngx_http_llm_capture_sys_t *
fault_sys(void)
{
    static ngx_http_llm_capture_sys_t  sys;

    sys = ngx_http_llm_capture_sys;
    sys.writev = fault_writev;
    sys.ftruncate = fault_ftruncate;
    sys.open = fault_open;
    sys.close = fault_close;
    sys.rename = fault_rename;
    sys.link = fault_link;
    sys.getrandom = fault_getrandom;
    sys.pread = fault_pread;

    return &sys;
}


static inline void
say(void *ctx, int level, int err, const char *text)
{
    (void) ctx;

    said.n++;
    said.level = level;
    said.err = err;
    snprintf(said.text, sizeof(said.text), "%s", text);
}


static inline writer_t *
new_writer_boot(unsigned max_open, const char *boot)
{
    writer_t                            *w;
    ngx_http_llm_capture_writer_conf_t   conf;

    memset(&conf, 0, sizeof(conf));
    conf.max_open = max_open;
    conf.log = say;
    conf.sys = fault_sys();
    conf.boot = boot;

    w = ngx_http_llm_capture_writer_create(&conf);
    assert_non_null(w);

    return w;
}


static inline writer_t *
new_writer(void)
{
    return new_writer_boot(0, BOOT);
}


static inline file_t *
file_of(writer_t *w, const char *name)
{
    file_t  *f;

    f = ngx_http_llm_capture_writer_file(w, name, strlen(name));
    assert_non_null(f);

    return f;
}


/* one line of one iovec; the text must live on */

static inline void
set_line(line_t *line, struct iovec *iov, const char *body, uint64_t wall,
    uint64_t mono)
{
    memset(line, 0, sizeof(line_t));
    iov->iov_base = (void *) body;
    iov->iov_len = strlen(body);
    line->body = iov;
    line->nbody = 1;
    line->wall = wall;
    line->mono = mono;
}


static inline ssize_t
put_at(writer_t *w, const char *name, const char *body, uint64_t wall,
    uint64_t mono, uint64_t now)
{
    line_t        line;
    struct iovec  iov;

    set_line(&line, &iov, body, wall, mono);

    return ngx_http_llm_capture_writer_write(w, file_of(w, name), MOON, &line,
                                             1, wall, mono, &intent, now);
}


static inline ssize_t
put(writer_t *w, const char *body, uint64_t wall, uint64_t mono)
{
    return put_at(w, path, body, wall, mono, 1000);
}


/* malloc()ed, NUL-ended; NULL: there is none */

static inline char *
slurp(const char *name, size_t *len)
{
    int          fd;
    char        *text;
    struct stat  st;

    fd = open(name, O_RDONLY);

    if (fd == -1) {
        return NULL;
    }

    assert_int_equal(fstat(fd, &st), 0);
    text = malloc((size_t) st.st_size + 1);
    assert_non_null(text);
    assert_int_equal(read(fd, text, (size_t) st.st_size), st.st_size);
    text[st.st_size] = '\0';
    close(fd);

    if (len) {
        *len = (size_t) st.st_size;
    }

    return text;
}


static inline void
spew(const char *name, const char *text, size_t len)
{
    int  fd;

    fd = open(name, O_WRONLY|O_CREAT|O_TRUNC, 0600);
    assert_true(fd != -1);
    assert_int_equal(write(fd, text, len), (ssize_t) len);
    close(fd);
}


static inline void
append(const char *name, const char *text)
{
    int  fd;

    fd = open(name, O_WRONLY|O_APPEND);
    assert_true(fd != -1);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    close(fd);
}


#define assert_file(name, text)  assert_file_at(name, text, __FILE__, __LINE__)

static inline void
assert_file_at(const char *name, const char *text, const char *file, int line)
{
    char  *got;

    got = slurp(name, NULL);

    if (got == NULL || strcmp(got, text) != 0) {
        print_error("%s:%d: have %s\nwant %s\n", file, line,
                    got ? got : "(no file)", text);
        fail();
    }

    free(got);
}


static inline int
remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    (void) st;
    (void) type;
    (void) ftw;

    return remove(name);
}


static inline int
setup(void **state)
{
    (void) state;

    reset_faults();
    memset(&said, 0, sizeof(said));
    memset(&intent, 0, sizeof(intent));

    snprintf(dir, sizeof(dir), "/tmp/llm-capture-unit.XXXXXX");

    if (mkdtemp(dir) == NULL) {
        return -1;
    }

    snprintf(path, sizeof(path), "%s/a.jsonl", dir);
    snprintf(sidecar, sizeof(sidecar), "%s.epoch", path);

    return 0;
}


static inline int
teardown(void **state)
{
    (void) state;

    return nftw(dir, remove_one, 16, FTW_DEPTH|FTW_PHYS);
}


#define TEST(name)  cmocka_unit_test_setup_teardown(name, setup, teardown)


#endif /* _FILES_H_INCLUDED_ */
