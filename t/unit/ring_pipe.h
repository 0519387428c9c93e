
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A producer and a consumer that know nothing of each other but the shared
 * memory, for two processes and for two threads under ThreadSanitizer.  The
 * producer puts bodies of random sizes in random pieces; the consumer checks
 * every byte and the order, moves the tail when it likes, and gives pages back
 * while the other writes.
 */

#ifndef _RING_PIPE_H_INCLUDED_
#define _RING_PIPE_H_INCLUDED_


#include <sched.h>

#include "ring_util.h"


#define PIPE_UPLOADS  3


typedef struct {
    _Atomic uint32_t               done;
    uint64_t                       ended;
    uint64_t                       aborted;
    uint64_t                       refused;
    uint64_t                       wrongly;   /* by a ring at rest */
} pipe_end_t;


typedef struct {
    uint64_t                       off;
    uint64_t                       len;
    enum { NEW = 0, OPEN, OVER }   state;
} upload_t;


typedef struct {
    ring_t                         t;
    pipe_end_t                    *end;       /* of the producer, shared */
    uint64_t                       seed;
    uint64_t                       records;
    uint32_t                       most;      /* bytes of a body */

    /* the consumer's */
    upload_t                      *up;        /* by id */
    uint64_t                       ended, aborted, bytes, punched;
    int                          (*alive)(void *ctx);
    void                          *ctx;
} duct_t;


static inline void
pipe_make(duct_t *c, size_t size, uint64_t records, uint32_t most,
    uint64_t seed)
{
    memset(c, 0, sizeof(duct_t));

    ring_make(&c->t, size);
    ring_at(&c->t, 0xfffffffe, U(size) / 2);

    /* behind the ring's words, in the page they share */

    c->end = (pipe_end_t *) (c->t.map + 1024);
    c->records = records;
    c->most = most;
    c->seed = seed;
    c->up = calloc(records + 1, sizeof(upload_t));

    printf("# ring of %zu bytes, %llu records, seed %llu\n", size,
           (unsigned long long) records, (unsigned long long) seed);

    /* the table of bytes is made before there are two */
    (void) body_bytes(0, 0, 1);
}


static inline void
pipe_begin(ngx_http_llm_capture_record_t *rec, uint64_t id, uint32_t most,
    uint64_t *seed)
{
    memset(rec, 0, sizeof(ngx_http_llm_capture_record_t));

    rec->id = id;
    rec->path = "requests.jsonl";
    rec->begin.path_len = 14;
    rec->begin.wall = rnd(seed) % (most >> rnd(seed) % 8) + 1;
}


static inline void
pipe_put(duct_t *c, ngx_http_llm_capture_record_t *rec, uint64_t *seed)
{
    size_t                        len;
    unsigned                      end, rests;
    struct iovec                  iov[2];
    ngx_http_llm_capture_ring_t  *p;

    p = &c->t.p;

    len = rec->begin.wall - rec->off;
    len = len > 1 && rnd(seed) % 2 ? rnd(seed) % len : len;
    len = len > PATTERN ? PATTERN : len;
    end = rec->off + len == rec->begin.wall && rnd(seed) % 4;

    /* mostly polite; else the ring is full in the middle of a body */

    while (rnd(seed) % 64
           && ngx_http_llm_capture_ring_room(p)
              < ngx_http_llm_capture_record_size(len, 14, 1))
    {
        sched_yield();
    }

    iov[0].iov_base = (void *) body_bytes(rec->id, rec->off, len);
    iov[0].iov_len = len / 2;
    iov[1].iov_base = (uint8_t *) iov[0].iov_base + len / 2;
    iov[1].iov_len = len - len / 2;

    rests = ring_rests(&c->t) && len <= c->t.size / 16;

    if (ngx_http_llm_capture_record_put(p, rec, iov, 2,
                                        end ? NGX_HTTP_LLM_CAPTURE_END : 0)
        == 0)
    {
        c->end->ended += end;
        rec->id = end ? 0 : rec->id;

    } else {
        c->end->refused++;
        c->end->wrongly += rests;

        if (rec->begun) {
            ngx_http_llm_capture_record_abort(p, rec,
                                          NGX_HTTP_LLM_CAPTURE_C_queue_full);
            c->end->aborted++;
            rec->id = 0;
        }
    }

    ngx_http_llm_capture_ring_publish(p);
}


/* until all is read and done, and a while longer */

static inline void
pipe_pause(duct_t *c, uint64_t *seed)
{
    unsigned  n;

    while (!ring_rests(&c->t)) {
        sched_yield();
    }

    for (n = rnd(seed) % 16; n; n--) {
        sched_yield();
    }
}


static inline void
pipe_produce(duct_t *c)
{
    unsigned                        busy;
    uint64_t                        id, seed;
    ngx_http_llm_capture_record_t   up[PIPE_UPLOADS], *rec;

    memset(up, 0, sizeof(up));
    seed = c->seed;
    id = 0;

    do {
        rec = &up[rnd(&seed) % PIPE_UPLOADS];

        if (rec->id == 0 && id < c->records) {
            pipe_begin(rec, ++id, c->most, &seed);
        }

        if (rec->id) {
            pipe_put(c, rec, &seed);
        }

        busy = up[0].id || up[1].id || up[2].id;

        if (!busy && rnd(&seed) % 2) {
            pipe_pause(c, &seed);
        }

    } while (busy || id < c->records);

    atomic_store_explicit(&c->end->done, 1, memory_order_release);
}


#define pipe_bad(text)                                                        \
    do { printf("# %s, frame of id %llu\n", text,                             \
                (unsigned long long) (f->id)); return -1; } while (0)

static inline int
pipe_check(duct_t *c, const ngx_http_llm_capture_frame_t *f, size_t at)
{
    uint32_t                       body;
    upload_t                      *up;
    const char                    *path;
    ngx_http_llm_capture_begin_t   b;

    if (ngx_http_llm_capture_record_parse(c->t.data + at, f, &b, &path, &body)
        != 0
        || f->id == 0 || f->id > c->records)
    {
        pipe_bad("no record");
    }

    up = &c->up[f->id];

    if (f->flags & NGX_HTTP_LLM_CAPTURE_BEGIN) {
        if (up->state != NEW || memcmp(path, "requests.jsonl", 14) != 0) {
            pipe_bad("begins wrong");
        }

        up->state = OPEN;
        up->len = b.wall;
    }

    if (up->state != OPEN || up->off != f->off) {
        pipe_bad("out of order");
    }

    if (body_differs(c->t.data + at + body, f->id, f->off, f->len)) {
        pipe_bad("bytes differ");
    }

    up->off += f->len;
    c->bytes += f->len;

    if (f->flags & NGX_HTTP_LLM_CAPTURE_END) {
        if (up->off != up->len) {
            pipe_bad("ends early");
        }

        c->ended++;
        up->state = OVER;
    }

    if (f->flags & NGX_HTTP_LLM_CAPTURE_ABORT) {
        c->aborted++;
        up->state = OVER;
    }

    return 0;
}


static inline void
pipe_punch(duct_t *c, const ngx_http_llm_capture_reader_t *r,
    uint64_t *seed)
{
    size_t    from;
    uint64_t  read;

    from = c->t.size - NGX_HTTP_LLM_CAPTURE_FLOOR;
    from = NGX_HTTP_LLM_CAPTURE_FLOOR + rnd(seed) % (from / 4096) * 4096;
    read = ngx_http_llm_capture_pos(r->lap, r->off);

    c->punched += ngx_http_llm_capture_ring_punch(c->t.hdr, c->t.data, from,
                                                  c->t.size, read) == 1;
}


/* 0: all came, in order; -1: said why */

static inline int
pipe_consume(duct_t *c)
{
    int                            rc;
    size_t                         at;
    uint64_t                       seed, head;
    uint32_t                       n, done, slow;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    seed = c->seed ^ 0x5555;
    r = ring_reader(&c->t);
    slow = 1;

    for ( ;; ) {
        if (rnd(&seed) % 128 == 0) {
            slow = 1 << rnd(&seed) % 8;
        }

        done = atomic_load_explicit(&c->end->done, memory_order_acquire)
               || !c->alive(c->ctx);
        head = ring_head(&c->t);

        for (n = rnd(&seed) % 64; n; n--) {
            rc = ngx_http_llm_capture_ring_read(&r, head, &f, &at);

            if (rc != 1) {
                break;
            }

            if (!(f.flags & NGX_HTTP_LLM_CAPTURE_JUMP)
                && pipe_check(c, &f, at) != 0)
            {
                return -1;
            }
        }

        if (n && rc == -1) {
            printf("# no frame at unit %u\n", r.off);
            return -1;
        }

        if (n && done) {
            return 0;
        }

        if (c->t.size > NGX_HTTP_LLM_CAPTURE_FLOOR && rnd(&seed) % 8 == 0) {
            pipe_punch(c, &r, &seed);
        }

        if (rnd(&seed) % 4 == 0) {
            for (n = rnd(&seed) % 16; n; n--) {
                sched_yield();
            }
        }

        /* what was read can be overwritten from here on */

        if (rnd(&seed) % slow == 0) {
            ring_tail(&c->t, &r);
        }
    }
}


static inline void
pipe_report(const duct_t *c)
{
    printf("# %llu ended, %llu aborted, %llu puts refused (%llu wrongly), "
           "%llu bytes, %llu punches\n", (unsigned long long) c->ended,
           (unsigned long long) c->aborted,
           (unsigned long long) c->end->refused,
           (unsigned long long) c->end->wrongly,
           (unsigned long long) c->bytes, (unsigned long long) c->punched);
}


#endif /* _RING_PIPE_H_INCLUDED_ */
