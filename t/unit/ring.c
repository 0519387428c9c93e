
/*
 * Copyright (C) the llm-capture authors
 */

/* the ring with one hand on both ends: exact bounds, both jumps, capacity */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ring_util.h"


#define WINDOW  U(NGX_HTTP_LLM_CAPTURE_WINDOW)


static void
test_empty(void **state)
{
    size_t                         at;
    ring_t                         t;
    uint32_t                       off;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    (void) state;

    ring_make(&t, 4096);

    for (off = 0; off <= 128; off++) {
        ring_at(&t, 7, off);

        r = ring_reader(&t);
        assert_int_equal(ngx_http_llm_capture_ring_read(&r, ring_head(&t), &f,
                                                        &at), 0);
        assert_int_equal(ngx_http_llm_capture_ring_room(&t.p),
                         (off ? 127 : 128) * UNIT);
        assert_true(ngx_http_llm_capture_ring_used(&t.p) <= UNIT);

        /* not there before it is published */

        assert_non_null(ring_frame(&t, 1, 1));
        assert_int_equal(ngx_http_llm_capture_ring_read(&r, ring_head(&t), &f,
                                                        &at), 0);
        ngx_http_llm_capture_ring_publish(&t.p);
        assert_int_equal(ring_drain(&t, 1), 2);
    }

    ring_free(&t);
}


static void
test_full(void **state)
{
    ring_t    t;
    uint32_t  off, inflight, all, n;

    (void) state;

    ring_make(&t, 4096);

    for (off = 0; off <= 128; off++) {

        /* one unit is lost to the border of the laps, none at offset 0 */

        all = off ? 127 : 128;

        for (inflight = 0; inflight <= all; inflight++) {
            ring_at(&t, 7, off);
            t.p.inflight = inflight;

            for (n = 0; ring_frame(&t, 1, n) != NULL; n++) { /* void */ }

            assert_int_equal(n, all - inflight);
            assert_int_equal(ngx_http_llm_capture_ring_room(&t.p), 0);

            /* each of those in flight gets its unit, and no one else */

            while (t.p.inflight) {
                t.p.inflight--;
                assert_non_null(ring_frame(&t, 1, n++));
                assert_null(ring_frame(&t, 1, n));
            }

            ngx_http_llm_capture_ring_publish(&t.p);
            assert_int_equal(ring_drain(&t, 0), all);
        }
    }

    ring_free(&t);
}


/* of an empty ring, one frame can have all up to the end or all before */

static void
test_largest(void **state)
{
    ring_t    t;
    uint32_t  off, n, max;

    (void) state;

    ring_make(&t, 4096);

    for (off = 0; off <= 128; off++) {
        max = 128 - off;
        max = off && off - 1 > max ? off - 1 : max;

        for (n = 1; n <= 129; n++) {
            ring_at(&t, 0xffffffff, off);
            assert_int_equal(ring_frame(&t, n, 0) != NULL, n <= max);

            if (n > max) {
                /* refused, and nothing has changed */
                assert_int_equal(t.p.off, off);
                assert_int_equal(t.p.lap, 0xffffffff);
                continue;
            }

            ngx_http_llm_capture_ring_publish(&t.p);
            assert_int_equal(ring_drain(&t, 0), 1);
        }
    }

    ring_free(&t);
}


static void
test_split(void **state)
{
    size_t                         got, at;
    ring_t                         t;
    uint32_t                       off;
    ngx_http_llm_capture_frame_t  *f, c;
    ngx_http_llm_capture_reader_t  r;

    (void) state;

    ring_make(&t, 4096);

    /* 40 units wanted, 10 at least, where 39 to 1 are left before the end */

    for (off = 89; off < 128; off++) {
        ring_at(&t, 3, off);

        f = ngx_http_llm_capture_ring_alloc(&t.p, 10 * UNIT, 40 * UNIT - 5,
                                            &got);
        assert_non_null(f);

        if (128 - off >= 10) {
            assert_ptr_equal(f, t.data + off * UNIT);
            assert_int_equal(got, (128 - off) * UNIT);
            assert_int_equal(t.p.off, 128);

        } else {
            assert_ptr_equal(f, t.data);
            assert_int_equal(got, 40 * UNIT);
        }

        memset(f, 0, got);
        f->size = (uint32_t) got;
        f->id = 1;

        assert_non_null(ring_frame(&t, 30, 2));
        ngx_http_llm_capture_ring_publish(&t.p);

        r = ring_reader(&t);
        assert_int_equal(ring_next(&t, &r, &c, &at), 1);
        assert_int_equal(c.size, got);
        assert_ptr_equal(t.data + at, f);
        assert_int_equal(ring_next(&t, &r, &c, &at), 1);
        assert_int_equal(c.id, 2);
        assert_int_equal(at, 128 - off >= 10 ? 0 : 40 * UNIT);
        assert_int_equal(ring_next(&t, &r, &c, &at), 0);
    }

    ring_free(&t);
}


/* laps go on over 2^32, frame by frame and with the reader behind by 3 */

static void
test_laps(void **state)
{
    int       i;
    ring_t    t;
    uint64_t  in, out;

    (void) state;

    ring_make(&t, 4096);
    ring_at(&t, 0xfffffff0, 0);

    in = out = 0;

    for (i = 0; i < 4000; i++) {
        while (in - out < 3) {
            assert_non_null(ring_frame(&t, 1 + in % 20, in));
            in++;
        }

        ngx_http_llm_capture_ring_publish(&t.p);
        out = ring_drain(&t, out);
        assert_int_equal(in, out);
    }

    assert_in_range(t.p.lap, 1, 0x10000);

    ring_free(&t);
}


/* a ring that is emptied in time stays within its window */

static void
test_window(void **state)
{
    int       i;
    ring_t    t;
    size_t    at;
    uint32_t  top, lag;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    (void) state;

    ring_make(&t, 8 * MIB);

    for (lag = 0; lag < 8; lag++) {

        /* frames of 64 KiB, `lag` of them always waiting */

        ring_at(&t, 5, 0);
        r = ring_reader(&t);
        top = 0;

        for (i = 0; i < 500; i++) {
            assert_non_null(ring_frame(&t, U(65536), i));
            ngx_http_llm_capture_ring_publish(&t.p);
            top = t.p.off > top ? t.p.off : top;

            if (i >= (int) lag) {
                assert_int_equal(ring_next(&t, &r, &f, &at), 1);
                assert_int_equal(f.id, i - lag);
                ring_tail(&t, &r);
            }
        }

        assert_in_range(top, WINDOW, WINDOW + U(65536));
        assert_true(t.p.lap > 20);
    }

    ring_free(&t);
}


/* an early return to the front, then nobody reads: all of it still fills */

static void
test_jump_over(void **state)
{
    ring_t    t;
    uint64_t  in, out, tail;

    (void) state;

    ring_make(&t, 4 * MIB);
    ring_at(&t, 0xffffffff, 0);

    in = out = 0;

    while (t.p.off < WINDOW) {
        assert_non_null(ring_frame(&t, 128, in++));
    }

    ngx_http_llm_capture_ring_publish(&t.p);
    tail = ngx_http_llm_capture_pos(0xffffffff, 128 * 208);
    atomic_store(&t.hdr->tail, tail);
    out = 208;

    assert_non_null(ring_frame(&t, 128, in++));
    assert_int_equal(t.p.lap, 0);
    assert_int_equal(t.p.off, 128);

    while (ring_frame(&t, 128, in) != NULL) {
        in++;
        assert_true(ngx_http_llm_capture_ring_used(&t.p) <= t.size);
    }

    /* 2 jumps, and what is left of a frame at the two borders */

    assert_in_range((in - out) * 128, U(t.size) - 3 * 128, U(t.size));
    assert_true(t.p.behind);

    ngx_http_llm_capture_ring_publish(&t.p);
    assert_int_equal(ring_drain(&t, out), in);

    ring_free(&t);
}


/*
 * Capacity at every state: load with a backlog that drifts, then a consumer
 * that stops.  Whatever came before, 7/8 of the ring must fill: the space over
 * which a JUMP led is lost until the tail has passed it, so it must be small.
 */

static uint32_t
capacity(ring_t *t, uint64_t *seed, uint32_t frame, uint32_t steps)
{
    size_t                         at;
    uint32_t                       live, backlog;
    uint64_t                       id;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    ring_at(t, 9, rnd(seed) % U(t->size));

    r = ring_reader(t);
    id = 0;
    live = 0;
    backlog = 0;

    while (steps--) {
        if (steps % 64 == 0) {
            backlog = rnd(seed) % U(t->size);
        }

        if (live < backlog && ring_frame(t, frame, id) != NULL) {
            id++;
            live += frame;
            ngx_http_llm_capture_ring_publish(&t->p);

        } else if (live) {
            assert_int_equal(ring_next(t, &r, &f, &at), 1);
            live -= frame;
            ring_tail(t, &r);
        }
    }

    while (ring_frame(t, frame, id) != NULL) {
        id++;
        live += frame;
    }

    ngx_http_llm_capture_ring_publish(&t->p);
    assert_int_equal(ring_drain(t, id - live / frame), id);

    return live;
}


static void
test_capacity(void **state)
{
    int       i;
    ring_t    t;
    uint32_t  live, least;
    uint64_t  seed;
    size_t    size;

    (void) state;

    for (size = MIB; size <= 8 * MIB; size *= 2) {
        ring_make(&t, size);
        seed = 0x9e3779b97f4a7c15ULL + size;
        least = U(size);

        for (i = 0; i < 400; i++) {
            live = capacity(&t, &seed, 1 + rnd(&seed) % U(size / 128),
                            rnd(&seed) % 2048);
            least = live < least ? live : least;
        }

        printf("# ring of %zu KiB, least filled by a stalled consumer: "
               "%.1f%%\n", size / 1024, 100.0 * least / U(size));
        assert_true(least >= U(size) / 8 * 7 - 4 * U(size / 128));

        ring_free(&t);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_laps),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_jump_over),
        cmocka_unit_test(test_capacity),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
