
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Records put into a ring and taken apart again: every cut of a body at every
 * place of the ring, long paths, empty buffers, a ring that fills up in the
 * middle, and frames that an enemy wrote.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ring_util.h"


#define BEGIN  NGX_HTTP_LLM_CAPTURE_BEGIN
#define END    NGX_HTTP_LLM_CAPTURE_END
#define ABORT  NGX_HTTP_LLM_CAPTURE_ABORT


static char  path[NGX_HTTP_LLM_CAPTURE_PATH];


static void
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


static int
put(ring_t *t, ngx_http_llm_capture_record_t *rec, size_t len, unsigned flags)
{
    struct iovec  iov;

    iov.iov_base = (void *) body_bytes(rec->id, rec->off, len);
    iov.iov_len = len;

    return ngx_http_llm_capture_record_put(&t->p, rec, &iov, 1, flags);
}


/* reads one record that ends; returns the number of its frames */

static unsigned
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


/* a body cut at every byte, its first frame at every unit of the ring */

static void
test_two_calls(void **state)
{
    ring_t                         t;
    uint32_t                       off;
    size_t                         cut;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

    ring_make(&t, 4096);

    for (off = 0; off <= 128; off++) {
        for (cut = 0; cut <= 200; cut++) {
            ring_at(&t, 0xffffffff, off);
            make(&rec, off * 1000 + cut, 3);

            assert_int_equal(put(&t, &rec, cut, 0), 0);
            assert_int_equal(t.p.inflight, 1);
            assert_int_equal(put(&t, &rec, 200 - cut, END), 0);
            ngx_http_llm_capture_ring_publish(&t.p);

            assert_in_range(get(&t, rec.id, 200, 3), 2, 3);
        }
    }

    ring_free(&t);
}


/* in pieces of 1, 2, 3... bytes, END with the last of them or alone */

static void
test_many_calls(void **state)
{
    ring_t                         t;
    uint32_t                       off;
    size_t                         piece, left, n;
    unsigned                       alone;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

    ring_make(&t, 16384);

    for (off = 512 - 200; off <= 512; off++) {
        for (piece = 1; piece <= 140; piece++) {
            alone = (off + piece) % 2;

            ring_at(&t, 1, off);
            make(&rec, off * 1000 + piece, 60);

            for (left = 140; left; left -= n) {
                n = left < piece ? left : piece;
                assert_int_equal(put(&t, &rec, n,
                                     n == left && !alone ? END : 0), 0);
            }

            if (alone) {
                assert_int_equal(put(&t, &rec, 0, END), 0);
            }

            ngx_http_llm_capture_ring_publish(&t.p);
            get(&t, rec.id, 140, 60);
        }
    }

    ring_free(&t);
}


/* a large body in one call: one frame, two where the memory ends */

static void
test_one_call(void **state)
{
    ring_t                         t;
    uint32_t                       off, n;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

    ring_make(&t, 65536);

    for (off = 0; off <= 2048; off++) {
        ring_at(&t, 1, off);
        make(&rec, off, 40);

        assert_int_equal(put(&t, &rec, 30000, END), 0);
        ngx_http_llm_capture_ring_publish(&t.p);

        n = get(&t, rec.id, 30000, 40);

        /* the part before the end must hold 64 bytes of the body */

        if (U(65536) - off >= U(32 + 32 + 40 + 30000) + 1
            || off > 2048 - 6)
        {
            assert_int_equal(n, 1);

        } else {
            assert_int_equal(n, 2);
        }
    }

    ring_free(&t);
}


/* BEGIN and the longest path stay in one frame, wherever the memory ends */

static void
test_longest_path(void **state)
{
    ring_t                         t;
    uint32_t                       off;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

    ring_make(&t, 16384);

    for (off = 0; off <= 512; off++) {
        ring_at(&t, 1, off);
        make(&rec, off, sizeof(path) - 1);

        assert_int_equal(put(&t, &rec, 1000, off % 2 ? END : 0), 0);

        if (off % 2 == 0) {
            assert_int_equal(put(&t, &rec, 0, END), 0);
        }

        ngx_http_llm_capture_ring_publish(&t.p);
        get(&t, rec.id, 1000, sizeof(path) - 1);
    }

    ring_free(&t);
}


/* buffers of any size, none among them, before, between and behind */

static void
test_iovecs(void **state)
{
    int                            i;
    ring_t                         t;
    size_t                         len, n;
    unsigned                       niov;
    uint64_t                       seed, at;
    struct iovec                   iov[16];
    ngx_http_llm_capture_record_t  rec;

    (void) state;

    ring_make(&t, 8192);
    seed = 4242;

    for (i = 0; i < 20000; i++) {
        ring_at(&t, 1, rnd(&seed) % 257);
        make(&rec, i, 1 + rnd(&seed) % 100);
        len = rnd(&seed) % 2000;
        at = 0;

        for (niov = 0; niov < 15; niov++) {
            n = rnd(&seed) % 3 ? rnd(&seed) % 300 : 0;
            n = n > len - at ? len - at : n;

            iov[niov].iov_base = n ? (void *) body_bytes(i, at, n) : NULL;
            iov[niov].iov_len = n;
            at += n;
        }

        assert_int_equal(ngx_http_llm_capture_record_put(&t.p, &rec, iov,
                                                         niov, END), 0);
        ngx_http_llm_capture_ring_publish(&t.p);
        get(&t, i, at, rec.begin.path_len);
    }

    ring_free(&t);
}


static void
test_nothing(void **state)
{
    ring_t                         t;
    uint64_t                       head;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

    ring_make(&t, 4096);
    ring_at(&t, 1, 100);

    /* no byte, then END */

    make(&rec, 1, 10);
    assert_int_equal(ngx_http_llm_capture_record_put(&t.p, &rec, NULL, 0, 0),
                     0);
    assert_int_equal(rec.begun, 1);
    assert_int_equal(t.p.inflight, 1);
    head = t.p.off;

    /* an empty piece of a begun record takes no space */

    assert_int_equal(put(&t, &rec, 0, 0), 0);
    assert_int_equal(t.p.off, head);

    assert_int_equal(ngx_http_llm_capture_record_put(&t.p, &rec, NULL, 0, END),
                     0);
    ngx_http_llm_capture_ring_publish(&t.p);
    assert_int_equal(get(&t, 1, 0, 10), 2);

    /* all at once */

    make(&rec, 2, 10);
    assert_int_equal(ngx_http_llm_capture_record_put(&t.p, &rec, NULL, 0, END),
                     0);
    ngx_http_llm_capture_ring_publish(&t.p);
    assert_int_equal(get(&t, 2, 0, 10), 1);

    ring_free(&t);
}


/* the ring is full at the first call: nothing of the record is there */

static void
test_full_at_first(void **state)
{
    ring_t                          t;
    uint32_t                        off, left, full;
    ngx_http_llm_capture_ring_t     was;
    ngx_http_llm_capture_record_t   other, rec;

    (void) state;

    ring_make(&t, 4096);
    full = 0;

    for (off = 0; off <= 128; off++) {
        for (left = 0; left < 20; left++) {
            ring_at(&t, 1, off);

            make(&other, 1, 1);
            assert_int_equal(put(&t, &other, 10, 0), 0);

            while (ngx_http_llm_capture_ring_room(&t.p) > left * UNIT) {
                assert_non_null(ring_frame(&t, 1, 0));
            }

            make(&rec, 2, 20);
            was = t.p;

            if (put(&t, &rec, 500, off % 2 ? END : 0) == 0) {
                assert_true(left >= U(84 + 500));
                continue;
            }

            full++;

            assert_int_equal(rec.begun, 0);
            assert_int_equal(rec.off, 0);
            assert_memory_equal(&t.p, &was, sizeof(was));

            /* the other one still ends */

            assert_int_equal(put(&t, &other, 0, END), 0);
            assert_int_equal(t.p.inflight, 0);
        }
    }

    assert_true(full > 1000);

    ring_free(&t);
}


/* full at a later call: the ABORT fits, says why and where */

static void
test_full_later(void **state)
{
    int                             rc;
    size_t                          at;
    ring_t                          t;
    uint32_t                        off;
    uint64_t                        bytes;
    ngx_http_llm_capture_frame_t    f;
    ngx_http_llm_capture_reader_t   r;
    ngx_http_llm_capture_record_t   rec;

    (void) state;

    ring_make(&t, 4096);

    for (off = 0; off <= 128; off++) {
        ring_at(&t, 1, off);
        make(&rec, off, 20);

        while (put(&t, &rec, 100 + off, 0) == 0) { /* void */ }

        assert_int_equal(rec.begun, 1);
        assert_int_equal(t.p.inflight, 1);
        assert_true(rec.off >= 1500);

        ngx_http_llm_capture_record_abort(&t.p, &rec,
                                          NGX_HTTP_LLM_CAPTURE_C_queue_full);
        assert_int_equal(t.p.inflight, 0);
        ngx_http_llm_capture_ring_publish(&t.p);

        r = ring_reader(&t);
        bytes = 0;

        while ((rc = ring_next(&t, &r, &f, &at)) == 1
               && !(f.flags & ABORT))
        {
            assert_int_equal(f.off, bytes);
            bytes += f.len;
        }

        assert_int_equal(rc, 1);
        assert_int_equal(f.flags, ABORT);
        assert_int_equal(f.why, NGX_HTTP_LLM_CAPTURE_C_queue_full);
        assert_int_equal(f.id, off);
        assert_int_equal(f.off, bytes);
        assert_int_equal(f.off, rec.off);
        assert_int_equal(f.len, 0);
        assert_int_equal(ring_next(&t, &r, &f, &at), 0);
    }

    ring_free(&t);
}


/* record_size() is never too little, seldom much too much */

static void
test_size(void **state)
{
    int                             i;
    ring_t                          t;
    size_t                          len, calls, k, n, used, size;
    uint64_t                        seed;
    ngx_http_llm_capture_record_t   rec;

    (void) state;

    ring_make(&t, 65536);
    seed = 31337;

    for (i = 0; i < 20000; i++) {
        ring_at(&t, 1, rnd(&seed) % 2049);
        make(&rec, i, 1 + rnd(&seed) % 100);
        len = rnd(&seed) % 20000;
        calls = 1 + rnd(&seed) % 20;

        used = ngx_http_llm_capture_ring_room(&t.p);

        for (k = 1; k <= calls; k++) {
            n = k == calls ? len - rec.off : rnd(&seed) % (len - rec.off + 1);
            assert_int_equal(put(&t, &rec, n, k == calls ? END : 0), 0);
        }

        used -= ngx_http_llm_capture_ring_room(&t.p);
        size = ngx_http_llm_capture_record_size(len, rec.begin.path_len, calls);

        assert_in_range(used, 1, size);
        assert_true(size - used <= (calls + 2) * 2 * UNIT + UNIT);
    }

    ring_free(&t);
}


/*
 * A ring that holds the largest record and 64 KiB more takes it when empty,
 * wherever its head stands, with the longest path, in nginx's buffers of 16k.
 */

static void
test_largest(void **state)
{
    ring_t                          t;
    size_t                          max, n;
    uint32_t                        off;
    ngx_http_llm_capture_record_t   rec;

    (void) state;

    max = 200000;
    ring_make(&t, (max + 65536 + 4095) / 4096 * 4096);

    for (off = 0; off <= U(t.size); off += off < 300 || off > U(t.size) - 300
                                           ? 1 : 37)
    {
        ring_at(&t, 1, off);
        make(&rec, off, sizeof(path) - 1);

        for (n = 16384; n != 0; ) {
            n = max - rec.off < n ? max - rec.off : n;
            assert_int_equal(put(&t, &rec, n, n ? 0 : END), 0);
        }

        ngx_http_llm_capture_ring_publish(&t.p);
        get(&t, rec.id, max, sizeof(path) - 1);
    }

    ring_free(&t);
}


/* whatever the frame says, what parse lets through lies within it */

static void
test_hostile(void **state)
{
    int                            i, rc, good;
    ring_t                         t;
    uint8_t                       *at;
    uint32_t                       size, body, k;
    uint64_t                       seed;
    const char                    *p;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_begin_t   b;

    (void) state;

    ring_make(&t, 8192);
    seed = 777;
    good = 0;

    for (i = 0; i < 400000; i++) {

        /* the frame ends where memory ends */

        size = (1 + rnd(&seed) % (i % 8 ? 10 : 256)) * UNIT;
        at = t.data + t.size - size;

        for (k = 0; k < size && k < 160; k++) {
            at[k] = (uint8_t) rnd(&seed);
        }

        memcpy(&f, at, sizeof(f));
        f.size = size;
        f.len %= rnd(&seed) % 4 ? size - UNIT + 1 : 0xffffffff;
        f.off = rnd(&seed) % 8 ? 0 : f.off;

        memcpy(&b, at + UNIT, size > 2 * UNIT ? sizeof(b) : 0);
        b.path_len %= rnd(&seed) % 8 ? size : 0xffff;
        b.format %= rnd(&seed) % 8 ? NGX_HTTP_LLM_CAPTURE_FORMATS : 255;

        if (size > 2 * UNIT) {
            memcpy(at + UNIT, &b, sizeof(b));
        }

        memset(&b, 0, sizeof(b));
        p = NULL;

        rc = ngx_http_llm_capture_record_parse(at, &f, &b, &p, &body);
        assert_true(rc == 0 || rc == -1);

        if (rc == -1) {
            continue;
        }

        good++;
        assert_true(body <= size && f.len <= size - body);

        if (f.flags & BEGIN) {
            assert_true(f.off == 0 && b.path_len > 0
                        && b.path_len < NGX_HTTP_LLM_CAPTURE_PATH
                        && b.format < NGX_HTTP_LLM_CAPTURE_FORMATS
                        && (const uint8_t *) p + b.path_len == at + body);
        }
    }

    assert_in_range(good, 10000, 390000);

    ring_free(&t);
}


/* each thing that parse refuses, alone */

static void
test_refused(void **state)
{
    ring_t                         t;
    uint32_t                       body;
    const char                    *p;
    ngx_http_llm_capture_frame_t   f, c;
    ngx_http_llm_capture_begin_t   b, *in;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

#define parse(f)  ngx_http_llm_capture_record_parse(t.data, f, &b, &p, &body)

    ring_make(&t, 4096);
    ring_at(&t, 1, 0);
    make(&rec, 1, 33);
    assert_int_equal(put(&t, &rec, 31, END), 0);

    memcpy(&f, t.data, sizeof(f));
    in = (ngx_http_llm_capture_begin_t *) (t.data + UNIT);
    assert_int_equal(parse(&f), 0);
    assert_int_equal(body, 32 + 32 + 33);
    assert_int_equal(f.size, 128);

    c = f, c.size = 32;
    assert_int_equal(parse(&c), -1);
    c = f, c.size = 96;
    assert_int_equal(parse(&c), -1);
    c = f, c.len++;
    assert_int_equal(parse(&c), -1);
    c = f, c.len = 0xffffffff;
    assert_int_equal(parse(&c), -1);
    c = f, c.off = 1;
    assert_int_equal(parse(&c), -1);
    c = f, c.flags = END;
    assert_int_equal(parse(&c), 0);
    assert_int_equal(body, 32);

    in->path_len = 0;
    assert_int_equal(parse(&f), -1);
    in->path_len = 33 + 1;
    assert_int_equal(parse(&f), -1);
    in->path_len = 0xffff;
    assert_int_equal(parse(&f), -1);
    in->path_len = NGX_HTTP_LLM_CAPTURE_PATH;
    c = f, c.size = 65536;
    assert_int_equal(parse(&c), -1);
    in->path_len = NGX_HTTP_LLM_CAPTURE_PATH - 1;
    assert_int_equal(parse(&c), 0);
    in->path_len = 33;
    in->format = NGX_HTTP_LLM_CAPTURE_FORMATS;
    assert_int_equal(parse(&f), -1);

    ring_free(&t);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_two_calls),
        cmocka_unit_test(test_many_calls),
        cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_longest_path),
        cmocka_unit_test(test_iovecs),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_full_at_first),
        cmocka_unit_test(test_full_later),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
