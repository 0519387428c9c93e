
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A file as somebody else left it: what is found at its end, how it is mended,
 * and how much of a batch stands in it.  The input is the file, which lies in
 * memory; for the batch, where in it the batch begins and what of it is there.
 * It is a sidecar, too.
 */

#include "epoch.h"
#include "oracle.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "ngx_http_llm_capture_recover.h"
#include "ngx_http_llm_capture_scan.h"
#include "ngx_http_llm_capture_tail.h"


#define DEV    11
#define INO    22
#define MOON   NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD
#define RAW    NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD
#define LIMIT  NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT

/* digits that are kept of a timestamp */
#define DIGITS  39

static struct {
    uint8_t  *bytes;
    size_t    size;
} disk;


static int
disk_open(const char *path, int flags, mode_t mode)
{
    (void) path;
    (void) flags;
    (void) mode;

    return 3;
}


static int
disk_close(int fd)
{
    must(fd == 3);

    return 0;
}


static int
disk_fstat(int fd, struct stat *st)
{
    must(fd == 3);
    memset(st, 0, sizeof(*st));
    st->st_mode = S_IFREG | 0600;
    st->st_nlink = 1;
    st->st_dev = DEV;
    st->st_ino = INO;
    st->st_size = (off_t) disk.size;

    return 0;
}


static int
disk_flock(int fd, int operation)
{
    (void) operation;
    must(fd == 3);

    return 0;
}


static ssize_t
disk_pread(int fd, void *buf, size_t n, off_t offset)
{
    must(fd == 3 && offset >= 0);

    if ((size_t) offset >= disk.size) {
        return 0;
    }

    if (n > disk.size - (size_t) offset) {
        n = disk.size - (size_t) offset;
    }

    memcpy(buf, disk.bytes + offset, n);

    return (ssize_t) n;
}


/* one LF, behind the last byte */

static ssize_t
disk_writev(int fd, const struct iovec *iov, int n)
{
    must(fd == 3 && n == 1 && iov->iov_len == 1);

    disk.bytes = realloc(disk.bytes, disk.size + 1);
    must(disk.bytes != NULL);
    disk.bytes[disk.size++] = *(uint8_t *) iov->iov_base;

    return 1;
}


static int
disk_ftruncate(int fd, off_t length)
{
    must(fd == 3 && length >= 0 && (size_t) length <= disk.size);
    disk.size = (size_t) length;

    return 0;
}


static const ngx_http_llm_capture_sys_t  disk_sys = {
    .open = disk_open,
    .close = disk_close,
    .fstat = disk_fstat,
    .flock = disk_flock,
    .pread = disk_pread,
    .writev = disk_writev,
    .ftruncate = disk_ftruncate
};


static void
disk_set(const uint8_t *data, size_t size)
{
    free(disk.bytes);
    disk.bytes = copy(data, size);
    disk.size = size;
}


static void
quiet(void *ctx, int level, int err, const char *text)
{
    (void) ctx;
    (void) level;
    (void) err;
    must(*text != '\0');
}


static ngx_http_llm_capture_files_t *
files(void)
{
    static ngx_http_llm_capture_files_t  fs;

    fs.sys = &disk_sys;
    fs.log = quiet;
    memset(fs.turns, 0, sizeof(fs.turns));

    return &fs;
}


static void
file(ngx_http_llm_capture_file_t *f, struct stat *st)
{
    memset(f, 0, sizeof(*f));
    f->path = "/captures/a.jsonl";
    f->len = strlen(f->path);
    f->fd = 3;
    (void) disk_fstat(3, st);
}


/* where the last line begins, of `end` bytes */

static size_t
line_start(const uint8_t *data, size_t end)
{
    while (end && data[end - 1] != '\n') {
        end--;
    }

    return end;
}


/* a last row without LF gets it if it is whole, else it is cut away */

static void
mended(const uint8_t *data, size_t size)
{
    json_t                       *root;
    size_t                        start, want;
    struct stat                   st;
    json_error_t                  err;
    ngx_http_llm_capture_file_t   f;

    disk_set(data, size);
    file(&f, &st);
    must(ngx_http_llm_capture_file_mend(files(), &f, &st) == 0);
    must((size_t) st.st_size == disk.size);

    start = line_start(data, size);
    want = size;

    if (start < size) {
        root = oracle_load(data + start, size - start, &err);

        want = json_is_object(root) && json_object_size(root)
               && oracle_depth(root) <= LIMIT ? size + 1 : start;
        json_decref(root);
    }

    must(disk.size == want);
    must(want == 0 || disk.bytes[want - 1] == '\n');
    must(want == 0 || memcmp(disk.bytes, data, want < size ? want : size)
                      == 0);
}


static int
long_number(const uint8_t *p, size_t n)
{
    size_t  i, run;

    for (i = 0, run = 0; i < n; i++) {
        run = p[i] && strchr("0123456789+-.eE", p[i]) ? run + 1 : 0;

        if (run > DIGITS) {
            return 1;
        }
    }

    return 0;
}


/* of the last row that is no white space */

static void
timestamp(const uint8_t *data, size_t size)
{
    int           found;
    double        want;
    json_t       *root, *value;
    size_t        start;
    uint64_t      ts;
    json_error_t  err;

    disk_set(data, size);
    ts = 0;
    found = ngx_http_llm_capture_tail_timestamp(&disk_sys, 3, (off_t) size,
                                                &ts);

    must(found == 0 || (found == 1 && ts <= (uint64_t) 1 << 53));

    while (size && data[size - 1] && strchr(" \t\r\n", data[size - 1])) {
        size--;
    }

    start = line_start(data, size);
    data += start;
    size -= start;

    /* a key may be spelled with escapes, which are not looked for */

    if (size == 0 || memchr(data, '\\', size) || long_number(data, size)) {
        return;
    }

    root = oracle_load(data, size, &err);

    if (root == NULL) {
        return;
    }

    value = json_object_get(root, "timestamp");

    if (json_is_real(value)) {
        want = json_real_value(value);
        want = want < 0 ? 0 : want > 9007199254740992.0 ? 9007199254740992.0
               : want;
        must(found && ts == (uint64_t) want);

    } else if (!json_is_string(value)) {
        must(!found);
    }

    json_decref(root);
}


/* whatever it holds, rows of one format at least may follow */

static void
format(const uint8_t *data, size_t size)
{
    int                          rc;
    unsigned                     i, taken;
    struct stat                  st;
    ngx_http_llm_capture_file_t  f;

    disk_set(data, size);
    taken = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_FORMATS; i++) {
        file(&f, &st);
        rc = ngx_http_llm_capture_file_format(files(), &f, i, &st);
        must(rc == 0 ? f.format == i : f.error == EINVAL);
        taken += rc == 0;
    }

    must(taken);
    must(disk.size == size);
}


/* so many bytes of the batch, whole ones of its lines */

static ssize_t
whole(const ngx_http_llm_capture_lines_t *l, size_t equal, size_t *bytes)
{
    unsigned  n;

    for (n = 0; n < l->n && l->end[n] <= equal; n++) { /* void */ }

    *bytes = n ? l->end[n - 1] : 0;

    return n;
}


static void
batch(ngx_http_llm_capture_lines_t *l, ngx_http_llm_capture_line_t *line,
    struct iovec *iov, input_t *in)
{
    unsigned  i;

    static const char *const  bodies[] = { "{\"a\":1}", "{\"bb\":22}",
                                           "{\"messages\":[]}" };

    memset(line, 0, 3 * sizeof(*line));

    for (i = 0; i < 3; i++) {
        iov[i].iov_base = (void *) bodies[i];
        iov[i].iov_len = strlen(bodies[i]);
        line[i].body = &iov[i];
        line[i].nbody = 1;
        line[i].ts = word(in, 1 + i);
    }

    ngx_http_llm_capture_lines_set(l, byte(in) & 1, line, 1 + byte(in) % 3);
}


/* offset, length, what is there of the batch, what stands around it */

static void
recovered(const uint8_t *data, size_t size)
{
    char                          text[512];
    size_t                        at, n, equal, bytes, before;
    input_t                       in;
    ssize_t                       rc, want;
    uint8_t                      *was;
    struct iovec                  iov[3], part[8];
    const uint8_t                *p;
    ngx_http_llm_capture_line_t   line[3];
    ngx_http_llm_capture_lines_t  l;
    ngx_http_llm_capture_place_t  place;
    ngx_http_llm_capture_cursor_t c;

    in.p = data;
    in.n = size;

    batch(&l, line, iov, &in);
    must(l.total < sizeof(text));

    memset(&c, 0, sizeof(c));
    n = (size_t) ngx_http_llm_capture_lines_iov(&l, &c, part, 8);

    for (at = 0, bytes = 0; at < n; at++) {
        memcpy(text + bytes, part[at].iov_base, part[at].iov_len);
        bytes += part[at].iov_len;
    }

    must(bytes == l.total);

    memset(&place, 0, sizeof(place));
    strcpy(place.path, "/captures/a.jsonl");
    place.dev = DEV;
    place.ino = INO;
    before = byte(&in);
    place.offset = byte(&in) < 240 ? before : word(&in, 8);
    place.length = byte(&in) < 200 ? l.total : word(&in, 8);
    equal = word(&in, 2) % (l.total + 1);

    p = take(&in, &before);
    disk_set(p, before);
    disk.bytes = realloc(disk.bytes, before + equal + in.n + 1);
    must(disk.bytes != NULL);
    memcpy(disk.bytes + before, text, equal);
    memcpy(disk.bytes + before + equal, in.p, in.n);
    disk.size = before + equal + in.n;
    size = disk.size;
    was = copy(disk.bytes, size);

    rc = ngx_http_llm_capture_recover(&disk_sys, &place, &l);

    if (place.offset > size) {
        want = -1;
        n = size;

    } else {
        at = (size_t) place.offset;

        for (equal = 0; equal < l.total && at + equal < size
                        && was[at + equal] == (uint8_t) text[equal]; equal++)
        {
            /* void */
        }

        want = whole(&l, equal, &bytes);
        n = at + equal == size && equal <= place.length ? at + bytes : size;
    }

    must(rc == want);
    must(disk.size == n && memcmp(disk.bytes, was, n) == 0);

    free(was);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mended(data, size);
    timestamp(data, size);
    format(data, size);
    recovered(data, size);
    epoch_text(data, size);

    return 0;
}
