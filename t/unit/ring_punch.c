
/*
 * Copyright (C) the llm-capture authors
 */

/* pages given back under a producer, at its worst moments */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ring_util.h"


#define FLOOR  U(NGX_HTTP_LLM_CAPTURE_FLOOR)


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
                         NGX_HTTP_LLM_CAPTURE_FLOOR - 4096, t.size), 0);
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                         3 * MIB, 3 * MIB), 0);

    /* nor where the producer may be */

    t.hdr->want = U(3 * MIB) + 1;
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data, 3 * MIB,
                                                     t.size), 0);
    t.hdr->want = U(3 * MIB);
    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data, 3 * MIB,
                                                     t.size), 1);
    assert_true(zeroed(t.data + 3 * MIB, MIB));
    assert_int_equal(t.data[3 * MIB - 1], 1);
    assert_int_equal(t.data[0], 1);

    /* what is no page is the system's error; nothing stays locked */

    assert_int_equal(ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                                                     3 * MIB + 1, t.size), -1);
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


/* a new owner finds head above pages that are just given back */

static void
test_punch_at_open(void **state)
{
    ring_t  t;

    (void) state;

    ring_make(&t, 4 * MIB);
    ring_at(&t, 1, U(3 * MIB));
    t.hdr->punch = FLOOR;

    /* it would write its JUMP there */

    assert_null(ring_frame(&t, 1, 0));
    assert_true(zeroed(t.data + NGX_HTTP_LLM_CAPTURE_FLOOR, 2 * MIB));
    assert_int_equal(t.p.lap, 1);

    t.hdr->punch = 0;
    assert_non_null(ring_frame(&t, 1, 0));
    ngx_http_llm_capture_ring_publish(&t.p);
    assert_int_equal(ring_drain(&t, 0), 1);

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
    assert_int_equal(rec.begun, granted > others);

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
        cmocka_unit_test(test_punch_at_open),
        cmocka_unit_test(test_punch_between_parts),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring punch", tests, NULL, NULL);
}
