
/*
 * Copyright (C) the llm-capture authors
 */

/* pages given back under a producer, at its worst moments */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ring_util.h"


#define FLOOR  U(NGX_HTTP_LLM_CAPTURE_FLOOR)
#define START  ngx_http_llm_capture_pos(1, 0)


static int
zeroed(const uint8_t *p, size_t len)
{
    return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}


static void
test_punch(void **state)
{
    ring_t  t;

    (void) state;

    ring_make(&t, 4 * MIB);
    memset(t.data, 1, t.size);
    ring_at(&t, 1, 0);

    /* never below the floor, nor nothing */

    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                         NGX_HTTP_LLM_CAPTURE_FLOOR - 4096, t.size, START), 0);
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                         3 * MIB, 3 * MIB, START), 0);

    /* nor where the producer may be */

    t.hdr->want = U(3 * MIB) + 1;
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data, 3 * MIB,
                                                     t.size, START), 0);
    t.hdr->want = U(3 * MIB);
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data, 3 * MIB,
                                                     t.size, START), 1);
    assert_true(zeroed(t.data + 3 * MIB, MIB));
    assert_int_equal(t.data[3 * MIB - 1], 1);
    assert_int_equal(t.data[0], 1);

    /* what is no page is the system's error; nothing stays locked */

    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                         3 * MIB + 1, t.size, START), -1);
    assert_int_equal(t.hdr->punch, 0);

    ring_free(&t);
}


/* a ring of 4 MiB with one upload in flight whose last frame ends at 3 MiB */

static void
high(ring_t *t)
{
    ring_make(t, 4 * MIB);
    ring_at(t, 1, 0);

    t->p.inflight = 1;
    assert_non_null(ring_frame(t, U(3 * MIB), 0));
    ngx_http_llm_capture_ring_publish(&t->p);

    assert_true(t->hdr->want > U(3 * MIB));
}


static void
test_punch_refuses(void **state)
{
    ring_t    t;
    uint64_t  want;

    (void) state;

    high(&t);
    want = t.hdr->want;

    /* a helper is about to give back from 3.5 MiB: no frame up there */

    t.hdr->punch = U(3 * MIB + MIB / 2);
    assert_non_null(ring_frame(&t, U(MIB / 4), 1));
    want = t.p.off;
    assert_null(ring_frame(&t, U(MIB / 2), 2));
    assert_int_equal(t.p.off, want);

    t.hdr->punch = 0;
    assert_non_null(ring_frame(&t, U(MIB / 2), 2));

    ring_free(&t);
}


/*
 * A helper sets punch, finds want above it and lets go: the word stood there
 * for a moment.  An END in this moment has its unit and must not be lost.
 */

static void
test_punch_spares_ends(void **state)
{
    ring_t  t;

    (void) state;

    high(&t);

    t.hdr->punch = FLOOR;
    assert_null(ring_frame(&t, U(MIB / 2), 1));
    t.p.inflight--;
    assert_non_null(ring_frame(&t, 1, 1));
    t.hdr->punch = 0;

    ngx_http_llm_capture_ring_publish(&t.p);
    assert_int_equal(ring_drain(&t, 0), 2);

    ring_free(&t);
}


/*
 * A ring at rest whose head stands high, while pages are given back: of a new
 * owner too.  The JUMP goes to the page that is spared, the body to the front,
 * and above the floor goes nothing.
 */

static void
at_rest(uint32_t off)
{
    ring_t    t;
    uint64_t  head;

    ring_make(&t, 4 * MIB);
    ring_at(&t, 1, off);
    t.hdr->punch = FLOOR;

    assert_null(ring_frame(&t, FLOOR, 0));
    assert_int_equal(t.hdr->want, 0);
    assert_int_equal(t.p.off, off);

    t.p.inflight = 1;
    assert_non_null(ring_frame(&t, U(MIB), 0));
    assert_int_equal(t.p.lap, 2);
    assert_null(ring_frame(&t, U(MIB / 2), 1));

    /* what comes after the JUMP is not asked for as if it stood there */

    assert_non_null(ring_frame(&t, U(65536), 1));
    t.p.inflight = 0;
    assert_non_null(ring_frame(&t, 1, 2));

    /* no other page was touched */

    head = (uint64_t) off * UNIT / 4096 * 4096;
    assert_true(zeroed(t.data + NGX_HTTP_LLM_CAPTURE_FLOOR,
                       head - NGX_HTTP_LLM_CAPTURE_FLOOR));

    if (head < t.size) {
        assert_true(zeroed(t.data + head + 4096, t.size - head - 4096));
    }

    /* the JUMP stands where nothing is given back before it is read */

    assert_true(t.hdr->want > off || off == U(t.size));
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data, head,
                         t.size, ngx_http_llm_capture_pos(1, off)), 0);
    ngx_http_llm_capture_ring_publish(&t.p);
    assert_int_equal(t.hdr->want, 0);
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                         NGX_HTTP_LLM_CAPTURE_FLOOR, t.size,
                         ngx_http_llm_capture_pos(1, off)), 0);
    assert_int_equal(ring_drain(&t, 0), 3);
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                         NGX_HTTP_LLM_CAPTURE_FLOOR, t.size, ring_head(&t)),
                     1);

    ring_free(&t);
}


static void
test_punch_at_rest(void **state)
{
    (void) state;

    at_rest(U(3 * MIB));
    at_rest(U(3 * MIB) - 1);
    at_rest(FLOOR);
    at_rest(U(4 * MIB) - 1);
}


/* what was granted before a rest is not granted after it */

static void
test_punch_asks_anew(void **state)
{
    ring_t  t;

    (void) state;

    high(&t);
    t.p.inflight = 0;
    assert_non_null(ring_frame(&t, 1, 1));
    assert_true(t.hdr->want > U(3 * MIB));
    ngx_http_llm_capture_ring_publish(&t.p);
    assert_int_equal(ring_drain(&t, 0), 2);
    assert_int_equal(t.hdr->want, 0);

    t.hdr->punch = FLOOR;
    assert_null(ring_frame(&t, U(2 * MIB), 2));
    assert_int_equal(t.hdr->want, 0);
    assert_non_null(ring_frame(&t, U(MIB), 2));
    assert_true(t.hdr->want > U(3 * MIB));

    ring_free(&t);
}


/* the helper's side: all above the floor but the page at head */

static void
test_punch_spares_head(void **state)
{
    ring_t    t;
    size_t    at;
    uint32_t  off;

    (void) state;

    ring_make(&t, 4 * MIB);

    for (off = FLOOR; off <= U(t.size); off += 64) {
        memset(t.data, 1, t.size);
        ring_at(&t, 1, off);
        at = (size_t) off * UNIT / 4096 * 4096;

        /* not while there is something to read */

        assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                             NGX_HTTP_LLM_CAPTURE_FLOOR, t.size,
                             ring_head(&t) - 1), 0);
        assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                             NGX_HTTP_LLM_CAPTURE_FLOOR, t.size,
                             ring_head(&t)), 1);

        assert_true(zeroed(t.data + NGX_HTTP_LLM_CAPTURE_FLOOR,
                           at - NGX_HTTP_LLM_CAPTURE_FLOOR));

        if (at < t.size) {
            assert_int_equal(t.data[at], 1);
            assert_int_equal(t.data[at + 4095], 1);
            assert_true(zeroed(t.data + at + 4096, t.size - at - 4096));
        }

        off += off == FLOOR ? 0 : U(MIB / 4);
    }

    ring_free(&t);
}


/*
 * The first part of an END was given up to where pages are given back, the
 * second is refused: the ABORT must still fit, and those of all others.
 */

static void
between_parts(uint32_t others, uint32_t granted)
{
    ring_t                          t;
    uint32_t                        i;
    struct iovec                    iov;
    ngx_http_llm_capture_record_t   rec;

    ring_make(&t, 4 * MIB);
    ring_at(&t, 1, 0);
    t.p.inflight = others;

    while (t.p.off < U(3 * MIB)) {
        assert_non_null(ring_frame(&t, 128, 0));
    }

    ngx_http_llm_capture_ring_publish(&t.p);
    atomic_store(&t.hdr->tail,
                 ngx_http_llm_capture_pos(1, U(2 * MIB + MIB / 2)));

    while (t.p.lap == 1 || t.p.off < U(2 * MIB + MIB / 2) - 256) {
        assert_non_null(ring_frame(&t, 128, 0));
    }

    t.hdr->punch = t.p.end + granted;

    memset(&rec, 0, sizeof(rec));
    rec.begin.path_len = 1;
    rec.path = "p";
    iov.iov_base = (void *) body_bytes(1, 0, 65536);
    iov.iov_len = 65000;

    assert_int_equal(ngx_http_llm_capture_record_put(&t.p, &rec, &iov, 1,
                                                NGX_HTTP_LLM_CAPTURE_END), -1);
    assert_int_equal(t.p.inflight, others + rec.begun);
    assert_int_equal(rec.begun, granted > others + 1);

    for (i = others + rec.begun; i; i--) {
        ngx_http_llm_capture_record_abort(&t.p, &rec,
                                          NGX_HTTP_LLM_CAPTURE_C_queue_full);
        assert_int_equal(((ngx_http_llm_capture_frame_t *)
                          (t.data + (size_t) (t.p.off - 1) * UNIT))->flags,
                         NGX_HTTP_LLM_CAPTURE_ABORT);
    }

    assert_int_equal(t.p.inflight, 0);

    ring_free(&t);
}


static void
test_punch_between_parts(void **state)
{
    uint32_t  others, granted;

    (void) state;

    for (others = 0; others < 4; others++) {
        for (granted = 0; granted < others + 4; granted++) {
            between_parts(others, granted);
        }
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_punch),
        cmocka_unit_test(test_punch_refuses),
        cmocka_unit_test(test_punch_spares_ends),
        cmocka_unit_test(test_punch_at_rest),
        cmocka_unit_test(test_punch_asks_anew),
        cmocka_unit_test(test_punch_spares_head),
        cmocka_unit_test(test_punch_between_parts),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring punch", tests, NULL, NULL);
}
