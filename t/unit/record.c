
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Records put into a ring and read back: every cut of a body at every place of
 * the ring, long paths, empty buffers, a ring that fills up in the middle.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "record_util.h"


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

        if (U(65536) - off >= U(32 + sizeof(ngx_http_llm_capture_begin_t)
                                + 40 + 30000) + 1
            || off > 2048 - 6)
        {
            assert_int_equal(n, 1);

        } else {
            assert_int_equal(n, 2);
        }
    }

    ring_free(&t);
}


/* long copies take another way: each place in a line, each rest behind lines */

static void
test_streamed(void **state)
{
    ring_t                         t;
    size_t                         len, plen;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

    ring_make(&t, 65536);

    for (plen = 1; plen <= 65; plen++) {
        for (len = 8190; len <= 8192 + 130; len++) {
            ring_at(&t, 1, 0);
            make(&rec, len, plen);

            assert_int_equal(put(&t, &rec, len, END), 0);
            ngx_http_llm_capture_ring_publish(&t.p);

            assert_int_equal(get(&t, rec.id, len, plen), 1);
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


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_two_calls),
        cmocka_unit_test(test_many_calls),
        cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_longest_path),
        cmocka_unit_test(test_iovecs),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_full_at_first),
        cmocka_unit_test(test_full_later),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
