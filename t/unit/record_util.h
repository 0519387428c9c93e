
/*
 * Copyright (C) the llm-capture authors
 */

/* a record put into a ring, and read back whole */

#ifndef _RECORD_UTIL_H_INCLUDED_
#define _RECORD_UTIL_H_INCLUDED_


#include "ring_util.h"


#define BEGIN  NGX_HTTP_LLM_CAPTURE_BEGIN
#define END    NGX_HTTP_LLM_CAPTURE_END
#define ABORT  NGX_HTTP_LLM_CAPTURE_ABORT


static char  path[NGX_HTTP_LLM_CAPTURE_PATH];


static inline void
make(ngx_http_llm_capture_record_t *rec, uint64_t id, size_t len)
{
    memset(rec, 0, sizeof(ngx_http_llm_capture_record_t));
    memset(path, 'a' + (int) (id % 26), sizeof(path));

    rec->id = id;
    rec->path = path;
    rec->begin.wall = 1700000000000ULL + id;
    rec->begin.mono = 5000 + id;
    rec->begin.hash = id * 77;
    rec->begin.path_len = (uint16_t) len;
    rec->begin.format = NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD;
    rec->begin.endpoint = 5;
}


static inline int
put(ring_t *t, ngx_http_llm_capture_record_t *rec, size_t len, unsigned flags)
{
    struct iovec  iov;

    iov.iov_base = (void *) body_bytes(rec->id, rec->off, len);
    iov.iov_len = len;

    return ngx_http_llm_capture_record_put(&t->p, rec, &iov, 1, flags);
}


/* reads one record that ends; returns the number of its frames */

static inline unsigned
get(ring_t *t, uint64_t id, size_t len, size_t plen)
{
    size_t                         at;
    unsigned                       n;
    uint32_t                       body;
    uint64_t                       off;
    const char                    *p;
    ngx_http_llm_capture_begin_t   b;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    r = ring_reader(t);
    off = 0;
    n = 0;

    do {
        assert_int_equal(ring_next(t, &r, &f, &at), 1);
        assert_int_equal(ngx_http_llm_capture_record_parse(t->data + at, &f,
                                                           &b, &p, &body), 0);
        assert_int_equal(f.id, id);
        assert_int_equal(f.off, off);
        assert_int_equal(f.mark, 0);
        assert_int_equal(f.why, 0);
        assert_int_equal(f.flags & BEGIN, n == 0 ? BEGIN : 0);

        if (n++ == 0) {
            assert_int_equal(b.wall, 1700000000000ULL + id);
            assert_int_equal(b.mono, 5000 + id);
            assert_int_equal(b.hash, id * 77);
            assert_int_equal(b.format, NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD);
            assert_int_equal(b.endpoint, 5);
            assert_int_equal(b.path_len, plen);
            assert_memory_equal(p, path, plen);
        }

        assert_false(body_differs(t->data + at + body, id, off, f.len));
        off += f.len;

    } while (!(f.flags & END));

    assert_int_equal(off, len);
    assert_int_equal(f.flags & ~(BEGIN|END), 0);
    assert_int_equal(ring_next(t, &r, &f, &at), 0);
    assert_int_equal(t->p.inflight, 0);

    ring_tail(t, &r);

    return n;
}


#endif /* _RECORD_UTIL_H_INCLUDED_ */
