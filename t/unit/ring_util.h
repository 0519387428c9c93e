
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What the tests of the ring share: a ring between unreadable pages (a byte
 * read or written beside it kills the test), numbers that a seed repeats, and
 * bodies whose every byte follows from (id, offset).
 */

#ifndef _RING_UTIL_H_INCLUDED_
#define _RING_UTIL_H_INCLUDED_


#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "../../src/ngx_http_llm_capture_record.h"


#define UNIT     NGX_HTTP_LLM_CAPTURE_UNIT
#define U(size)  ((uint32_t) ((size) / UNIT))
#define MIB      (1024 * 1024)

#define PATTERN  65521      /* prime: equal bytes never stand a page apart */


typedef struct {
    ngx_http_llm_capture_ring_hdr_t  *hdr;
    uint8_t                          *data;
    size_t                            size;
    uint8_t                          *map;
    size_t                            length;
    ngx_http_llm_capture_ring_t       p;
} ring_t;


static inline uint32_t
rnd(uint64_t *seed)
{
    uint64_t  x;

    x = *seed;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *seed = x;

    return (uint32_t) (x >> 16);
}


/* shared memory, as in the product: only that can give pages back */

static inline void
ring_make(ring_t *t, size_t size)
{
    size_t   page;
    uint8_t *m;

    page = (size_t) sysconf(_SC_PAGESIZE);

    memset(t, 0, sizeof(ring_t));

    t->length = size + 3 * page;
    m = mmap(NULL, t->length, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
             -1, 0);
    if (m == MAP_FAILED
        || mprotect(m + page, page, PROT_NONE) != 0
        || mprotect(m + 2 * page + size, page, PROT_NONE) != 0)
    {
        perror("mmap");
        exit(1);
    }

    t->map = m;
    t->hdr = (ngx_http_llm_capture_ring_hdr_t *) m;
    t->data = m + 2 * page;
    t->size = size;
}


static inline void
ring_free(ring_t *t)
{
    munmap(t->map, t->length);
}


/* an empty ring whose next frame stands at unit off */

static inline void
ring_at(ring_t *t, uint32_t lap, uint32_t off)
{
    memset(t->hdr, 0, sizeof(ngx_http_llm_capture_ring_hdr_t));

    t->hdr->head = ngx_http_llm_capture_pos(lap, off);
    t->hdr->tail = ngx_http_llm_capture_pos(lap, off);

    ngx_http_llm_capture_ring_open(&t->p, t->hdr, t->data, t->size);
}


static inline ngx_http_llm_capture_reader_t
ring_reader(ring_t *t)
{
    uint64_t                       tail;
    ngx_http_llm_capture_reader_t  r;

    tail = atomic_load_explicit(&t->hdr->tail, memory_order_relaxed);

    r.data = t->data;
    r.size = U(t->size);
    r.lap = (uint32_t) (tail >> 32);
    r.off = (uint32_t) tail;

    return r;
}


static inline uint64_t
ring_head(ring_t *t)
{
    return atomic_load_explicit(&t->hdr->head, memory_order_acquire);
}


static inline void
ring_tail(ring_t *t, const ngx_http_llm_capture_reader_t *r)
{
    atomic_store_explicit(&t->hdr->tail,
                          ngx_http_llm_capture_pos(r->lap, r->off),
                          memory_order_release);
}


/* nothing in it and nothing to come: no helper may refuse a small body here */

static inline int
ring_rests(ring_t *t)
{
    return t->p.inflight == 0
           && atomic_load_explicit(&t->hdr->tail, memory_order_acquire)
              == ngx_http_llm_capture_pos(t->p.lap, t->p.off);
}


/* the next frame that is no JUMP */

static inline int
ring_next(ring_t *t, ngx_http_llm_capture_reader_t *r,
    ngx_http_llm_capture_frame_t *f, size_t *at)
{
    int       rc;
    uint64_t  head;

    head = ring_head(t);

    do {
        rc = ngx_http_llm_capture_ring_read(r, head, f, at);
    } while (rc == 1 && (f->flags & NGX_HTTP_LLM_CAPTURE_JUMP));

    return rc;
}


/* a frame of exactly n units, with its id in it; NULL if it does not fit */

static inline ngx_http_llm_capture_frame_t *
ring_frame(ring_t *t, uint32_t n, uint64_t id)
{
    size_t                         got;
    ngx_http_llm_capture_frame_t  *f;

    f = ngx_http_llm_capture_ring_alloc(&t->p, (size_t) n * UNIT,
                                        (size_t) n * UNIT, &got);
    if (f == NULL) {
        return NULL;
    }

    memset(f, 0xa5, got);
    memset(f, 0, UNIT);

    f->size = (uint32_t) got;
    f->len = (uint32_t) got - UNIT;
    f->id = id;

    return f;
}


/* reads all there is; ids must follow one another from `id` on */

static inline uint64_t
ring_drain(ring_t *t, uint64_t id)
{
    int                            rc;
    size_t                         at;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    r = ring_reader(t);

    while ((rc = ring_next(t, &r, &f, &at)) == 1) {
        assert_int_equal(f.id, id);
        assert_true(at + f.size <= t->size);
        id++;
    }

    assert_int_equal(rc, 0);
    ring_tail(t, &r);

    return id;
}


/* len bytes of the body `id` from off on; good until the next call */

static inline const uint8_t *
body_bytes(uint64_t id, uint64_t off, size_t len)
{
    size_t          i, from;
    uint64_t        seed;
    static uint8_t  pattern[PATTERN * 2];
    static size_t   ready;
    static uint8_t *big;
    static size_t   size;

    if (!ready) {
        seed = 88172645463325252ULL;

        for (i = 0; i < PATTERN; i++) {
            pattern[i] = pattern[i + PATTERN] = (uint8_t) rnd(&seed);
        }

        ready = 1;
    }

    from = (size_t) ((id * 7919 + off) % PATTERN);

    if (len <= PATTERN) {
        return pattern + from;
    }

    if (len > size) {
        size = len;
        big = realloc(big, size);
    }

    for (i = 0; i < len; i += PATTERN) {
        memcpy(big + i, pattern + from,
               len - i < PATTERN ? len - i : PATTERN);
    }

    return big;
}


static inline int
body_differs(const uint8_t *p, uint64_t id, uint64_t off, size_t len)
{
    return memcmp(p, body_bytes(id, off, len), len);
}


#endif /* _RING_UTIL_H_INCLUDED_ */
