
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What the tests of the drain share: a zone in shared memory, workers that put
 * bodies into its rings as those of nginx do, and a helper over it whose clock,
 * owners and files are the test's.
 */

#ifndef _ZONE_UTIL_H_INCLUDED_
#define _ZONE_UTIL_H_INCLUDED_


#include "files.h"

#include <syslog.h>

#include "ngx_http_llm_capture_drain.h"
#include "ngx_http_llm_capture_record.h"
#include "ngx_http_llm_capture_reply.h"


#define C(name)  NGX_HTTP_LLM_CAPTURE_C_##name

#define KIB      1024
#define MIB      (1024 * 1024)

#define END      NGX_HTTP_LLM_CAPTURE_END
#define RINGS    8           /* of a test, at most */
#define WALL     1700000000000ULL

typedef ngx_http_llm_capture_zone_t    zone_t;
typedef ngx_http_llm_capture_drain_t   drain_t;
typedef ngx_http_llm_capture_record_t  record_t;


/* a worker, as ngx_http_llm_capture_worker.c does it; may stand in the zone */

typedef struct {
    ngx_http_llm_capture_ring_t   ring;
    ngx_http_llm_capture_row_t   *rows;
    uint32_t                      n;
    uint64_t                      id;
} worker_t;


static struct {
    unsigned  n;
    unsigned  content;          /* lines that hold a piece of a body */
    char      text[256][512];
    int       level[256];
} lines;

/* files whose path has this in it: errno of open() and of writev() */
static struct {
    const char  *name;
    int          open_errno;
    int          write_errno;
    const char  *rename;        /* what is not renamed: ENOSPC */
    const char  *only;          /* no open() outside; counted */
    unsigned     outside;
} broken;

/* of those who drain; segments, if there are policies */
static ngx_http_llm_capture_keeping_t  keeping;

static zone_t   zone;            /* between unreadable pages */
static int      dead[RINGS];
static uint64_t now;


/* a canary that bodies of the tests carry, and no message may */
#define CANARY  "canary-in-a-body"


static inline void
line_log(void *ctx, int level, int err, const char *text)
{
    (void) ctx;
    (void) err;

    if (strstr(text, CANARY)) {
        lines.content++;
    }

    if (lines.n < 256) {
        lines.level[lines.n] = level;
        snprintf(lines.text[lines.n], sizeof(lines.text[0]), "%s", text);
    }

    lines.n++;
}


static inline unsigned
lines_with(const char *text)
{
    unsigned  i, n;

    for (n = 0, i = 0; i < lines.n && i < 256; i++) {
        n += strstr(lines.text[i], text) != NULL;
    }

    return n;
}


static inline int
zone_outside(const char *name)
{
    if (broken.only == NULL
        || strncmp(name, broken.only, strlen(broken.only)) == 0)
    {
        return 0;
    }

    broken.outside++;
    errno = EACCES;

    return 1;
}


static inline int
zone_open(const char *name, int flags, mode_t mode)
{
    if (strncmp(name, "/proc/", 6) != 0 && zone_outside(name)) {
        return -1;
    }

    if (broken.name && broken.open_errno && strstr(name, broken.name)) {
        errno = broken.open_errno;
        return -1;
    }

    return fault_open(name, flags, mode);
}


static inline ssize_t
zone_writev(int fd, const struct iovec *iov, int n)
{
    char     link[64], name[256];
    ssize_t  len;

    if (broken.name && broken.write_errno) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        len = readlink(link, name, sizeof(name) - 1);

        if (len > 0) {
            name[len] = '\0';

            if (strstr(name, broken.name)) {
                errno = broken.write_errno;
                return -1;
            }
        }
    }

    return fault_writev(fd, iov, n);
}


static inline int
zone_rename(const char *from, const char *to)
{
    if (broken.rename && strstr(from, broken.rename)) {
        errno = ENOSPC;
        return -1;
    }

    return zone_outside(from) || zone_outside(to) ? -1
                                                  : fault_rename(from, to);
}


static inline int
zone_unlink(const char *name)
{
    return zone_outside(name) ? -1 : unlink(name);
}


static inline const ngx_http_llm_capture_sys_t *
zone_sys(void)
{
    static ngx_http_llm_capture_sys_t  sys;

    sys = *fault_sys();
    sys.open = zone_open;
    sys.rename = zone_rename;
    sys.unlink = zone_unlink;
    sys.writev = zone_writev;

    return &sys;
}


static inline void
zone_make(uint32_t nrings, uint64_t ring_size)
{
    assert_true(nrings <= RINGS);
    assert_int_equal(ngx_http_llm_capture_zone_layout(&zone, nrings,
                                                      nrings * ring_size,
                                                      4096), 0);

    zone.base = mmap(NULL, zone.size + 8192, PROT_READ|PROT_WRITE,
                     MAP_SHARED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    assert_true(zone.base != MAP_FAILED && zone.size % 4096 == 0);

    zone.base += 4096;
    assert_int_equal(mprotect(zone.base - 4096, 4096, PROT_NONE), 0);
    assert_int_equal(mprotect(zone.base + zone.size, 4096, PROT_NONE), 0);

    ngx_http_llm_capture_zone_format(&zone, 1);
    (void) ngx_http_llm_capture_zone_template(&zone, "moon", 4, MOON);
    (void) ngx_http_llm_capture_zone_template(&zone, "raw", 3, RAW);

    memset(dead, 0, sizeof(dead));
    memset(&lines, 0, sizeof(lines));
    memset(&broken, 0, sizeof(broken));
    now = 1000000;
}


static inline void
zone_free(void)
{
    munmap(zone.base - 4096, zone.size + 8192);
}


static inline ngx_http_llm_capture_ring_hdr_t *
hdr_of(uint32_t ring)
{
    return ngx_http_llm_capture_zone_ring(&zone, ring);
}


/* over all rows */

static inline void
zone_sums(uint64_t all[NGX_HTTP_LLM_CAPTURE_C_max])
{
    uint64_t  sum[NGX_HTTP_LLM_CAPTURE_C_max];
    uint32_t  row;
    unsigned  c;

    memset(all, 0, sizeof(sum));

    for (row = 0; row < NGX_HTTP_LLM_CAPTURE_ROWS; row++) {
        ngx_http_llm_capture_zone_sum(&zone, row, sum);

        for (c = 0; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
            all[c] += sum[c];
        }
    }
}


static inline uint64_t
counted(unsigned c)
{
    uint64_t  all[NGX_HTTP_LLM_CAPTURE_C_max];

    zone_sums(all);

    return all[c];
}


/* seen minus all else: not clamped, so that counting twice shows */

static inline int64_t
pending(void)
{
    int64_t   n;
    uint64_t  all[NGX_HTTP_LLM_CAPTURE_C_max];
    unsigned  c;

    zone_sums(all);

    n = (int64_t) all[C(seen)];

    for (c = C(seen) + 1; c <= NGX_HTTP_LLM_CAPTURE_C_last; c++) {
        n -= (int64_t) all[c];
    }

    return n;
}


static inline void
worker_claim(worker_t *w, uint32_t ring)
{
    uint64_t                          owner;
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    hdr = hdr_of(ring);
    owner = 0;

    assert_true(atomic_compare_exchange_strong(&hdr->owner, &owner, 4711));

    memset(w, 0, sizeof(worker_t));
    w->n = ring;
    w->rows = ngx_http_llm_capture_zone_rows(&zone, ring);
    w->id = atomic_load(&hdr->last_id) + 1;

    ngx_http_llm_capture_ring_open(&w->ring, hdr,
                                   ngx_http_llm_capture_zone_data(&zone, ring),
                                   zone.ring_size);
    dead[ring] = 0;
}


static inline void
worker_seen(worker_t *w, unsigned row)
{
    atomic_store(&w->ring.hdr->deciding, row + 1);
    ngx_http_llm_capture_count(w->rows + row, C(seen), 1);
}


static inline void
worker_refuse(worker_t *w, unsigned row, unsigned why)
{
    ngx_http_llm_capture_count(w->rows + row, why, 1);
    atomic_store(&w->ring.hdr->deciding, 0);
}


/* what names the session of requests that begin; NULL: nothing */
static const char  *spec;


/* a request for a path; path must live on; the row is that of the format */

static inline void
worker_begin(worker_t *w, record_t *rec, const char *name, unsigned format,
    uint64_t mono)
{
    worker_seen(w, format);

    memset(rec, 0, sizeof(record_t));

    rec->path = name;
    rec->begin.wall = WALL + mono;
    rec->begin.mono = mono;
    rec->begin.hash = format == RAW
                      ? ngx_http_llm_capture_zone_hash("raw", 3, RAW)
                      : ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    rec->begin.path_len = (uint16_t) strlen(name);
    rec->begin.format = (uint8_t) format;

    if (spec) {
        rec->session = spec;
        rec->begin.session_len = (uint16_t) (strlen(spec) + 1);
    }
}


static inline void
worker_abort(worker_t *w, record_t *rec, unsigned why)
{
    ngx_http_llm_capture_record_abort(&w->ring, rec, why);
    ngx_http_llm_capture_ring_publish(&w->ring);
    atomic_store(&w->ring.hdr->deciding, 0);
}


/* 0; -1: full, and told so */

static inline int
worker_put(worker_t *w, record_t *rec, const void *data, size_t len,
    unsigned flags)
{
    unsigned      first;
    struct iovec  iov;

    iov.iov_base = (void *) data;
    iov.iov_len = len;

    first = !rec->begun;

    if (first) {
        rec->id = w->id;
    }

    if (ngx_http_llm_capture_record_put(&w->ring, rec, &iov, 1, flags) != 0) {

        if (rec->begun) {
            w->id += first;
            worker_abort(w, rec, C(queue_full));

        } else {
            worker_refuse(w, rec->begin.format, C(queue_full));
        }

        return -1;
    }

    w->id += first;
    ngx_http_llm_capture_ring_publish(&w->ring);

    if (first) {
        atomic_store(&w->ring.hdr->deciding, 0);
    }

    return 0;
}


/* a body in one call */

static inline int
worker_send(worker_t *w, const char *name, unsigned format, uint64_t mono,
    const void *body, size_t len)
{
    record_t  rec;

    worker_begin(w, &rec, name, format, mono);

    return worker_put(w, &rec, body, len, END);
}


static inline int
worker_text(worker_t *w, const char *name, uint64_t mono, const char *body)
{
    return worker_send(w, name, MOON, mono, body, strlen(body));
}


/* the outcome of the request that asked under uid; its bytes are uid too */

static inline int
worker_answer(worker_t *w, const char *name, uint64_t uid, unsigned flags)
{
    record_t                      rec;
    struct iovec                  iov;
    ngx_http_llm_capture_reply_t  reply;

    memset(&reply, 0, sizeof(reply));
    reply.status = 200;
    reply.bytes = uid;
    reply.flags = flags;
    reply.first_byte = reply.first_content = -1;
    reply.first_reasoning = reply.last_byte = -1;

    memset(&rec, 0, sizeof(rec));
    rec.id = uid | NGX_HTTP_LLM_CAPTURE_ID_OUTCOME;
    rec.path = name;
    rec.begin.uid = uid;
    rec.begin.hash = ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    rec.begin.path_len = (uint16_t) strlen(name);
    rec.begin.format = NGX_HTTP_LLM_CAPTURE_OUTCOMES;

    iov.iov_base = &reply;
    iov.iov_len = sizeof(reply);

    if (ngx_http_llm_capture_record_put(&w->ring, &rec, &iov, 1, END) != 0) {
        return -1;
    }

    ngx_http_llm_capture_ring_publish(&w->ring);

    return 0;
}


static inline void
worker_close(worker_t *w)
{
    atomic_store(&w->ring.hdr->closed, 1);
}


static inline int
is_dead(void *ctx, uint32_t ring)
{
    (void) ctx;

    return dead[ring];
}


/* workers with an odd pid are gone */

static inline int
is_alive(void *ctx, uint32_t pid)
{
    (void) ctx;

    return pid % 2 == 0;
}


static inline writer_t *
drain_writer(void)
{
    ngx_http_llm_capture_writer_conf_t   conf;

    memset(&conf, 0, sizeof(conf));
    conf.log = line_log;
    conf.sys = zone_sys();
    conf.boot = BOOT;

    return ngx_http_llm_capture_writer_create(&conf);
}


static inline drain_t *
drain_with(writer_t *w, uint64_t (*clock)(void))
{
    ngx_http_llm_capture_drain_conf_t  conf;

    memset(&conf, 0, sizeof(conf));
    conf.zone = &zone;
    conf.writer = w;
    conf.dead = is_dead;
    conf.alive = is_alive;
    conf.log = line_log;
    conf.clock = clock;

    conf.keeping = keeping;

    return ngx_http_llm_capture_drain_create(&conf, now);
}


static inline drain_t *
drain_over(writer_t *w)
{
    return drain_with(w, NULL);
}


/* one pass; the sum must come out, no record unread */

#define drain_pass(d)  drain_pass_at(d, __FILE__, __LINE__)

static inline unsigned
drain_pass_at(drain_t *d, const char *file, int line)
{
    unsigned  n;

    n = ngx_http_llm_capture_drain_pass(d, now);

    _assert_int_equal((LargestIntegralType) pending(),
                      ngx_http_llm_capture_drain_pending(d), file, line);

    return n;
}


/* until there is nothing left to do at this time */

static inline void
drain_all(drain_t *d)
{
    while (drain_pass(d)) { /* void */ }
}


/* {"k":"xxxx...","c":CANARY}, len bytes in all; malloc()ed, with a NUL */

static inline char *
body_of(unsigned k, size_t len)
{
    int    n;
    char  *p;

    p = malloc(len + 1);
    assert_non_null(p);

    n = snprintf(p, len + 1, "{\"n\":%u,\"messages\":[\"" CANARY, k);
    assert_true(n > 0 && (size_t) n + 3 <= len);

    memset(p + n, 'a' + k % 26, len - (size_t) n - 3);
    memcpy(p + len - 3, "\"]}", 4);

    return p;
}


#endif /* _ZONE_UTIL_H_INCLUDED_ */
