
/*
 * Copyright (C) the llm-capture authors
 */

/* memory that an enemy wrote, between unreadable pages */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ring_util.h"


/* random bytes, random laps, and good frames spoiled in one place */

static void
spoil(ring_t *t, uint64_t *seed)
{
    uint32_t                       i, n;
    ngx_http_llm_capture_frame_t  *f;

    for (i = 0; i < t->size; i++) {
        t->data[i] = (uint8_t) rnd(seed);
    }

    for (i = 0; i < U(t->size); i += n) {
        f = (ngx_http_llm_capture_frame_t *) (t->data + (size_t) i * UNIT);
        n = 1 + rnd(seed) % 6;

        f->size = n * UNIT;
        f->len = rnd(seed) % (n * UNIT - UNIT + 1);
        f->flags = (uint16_t) (rnd(seed) % 8);

        if (rnd(seed) % 8 == 0) {
            f->flags = NGX_HTTP_LLM_CAPTURE_JUMP;
            f->off = rnd(seed) % 3 ? rnd(seed) % (U(t->size) + 2) : 0;
        }

        if (rnd(seed) % 64 == 0) {
            ((uint8_t *) f)[rnd(seed) % UNIT] = (uint8_t) rnd(seed);
        }
    }
}


static void
test_hostile_reader(void **state)
{
    int                            i, k, rc, ends[3] = { 0, 0, 0 };
    size_t                         at;
    ring_t                         t;
    uint64_t                       seed, head;
    uint32_t                       steps, lap;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_reader_t  r;

    (void) state;

    ring_make(&t, 4096);
    seed = 20240229;

    for (i = 0; i < 20000; i++) {
        spoil(&t, &seed);

        for (k = 0; k < 20; k++) {
            lap = rnd(&seed);

            r = ring_reader(&t);
            r.lap = lap;
            r.off = rnd(&seed) % (k == 0 ? 0xffffffff : 129);

            head = rnd(&seed) % (k == 1 ? 0xffffffff : 130);
            head = ngx_http_llm_capture_pos(lap + rnd(&seed) % 3, head);
            steps = 0;

            while ((rc = ngx_http_llm_capture_ring_read(&r, head, &f, &at))
                   == 1)
            {
                assert_true(at % UNIT == 0 && f.size >= UNIT
                            && at + f.size <= t.size
                            && f.len <= f.size - UNIT);
                assert_true(++steps <= 2 * U(t.size));
            }

            assert_true(rc == 0 || rc == -1);
            ends[rc + 1]++;
        }
    }

    /* both ends were met */

    assert_true(ends[0] > 1000 && ends[1] > 1000);

    ring_free(&t);
}


/* the tail is another process's word: the producer stays in its ring */

static void
test_hostile_tail(void **state)
{
    int       i, k;
    ring_t    t;
    uint64_t  seed;

    (void) state;

    ring_make(&t, 4096);
    seed = 19991231;

    for (i = 0; i < 20000; i++) {
        ring_at(&t, 5, rnd(&seed) % (i % 10 ? 129 : 0xffffffff));

        for (k = 0; k < 40; k++) {
            atomic_store(&t.hdr->tail,
                         ngx_http_llm_capture_pos(t.p.lap - rnd(&seed) % 2,
                                   rnd(&seed) % (k % 3 ? 129 : 0xffffffff)));
            atomic_store(&t.hdr->punch, rnd(&seed));

            /* the frame is filled: a byte beside the ring is a fault */

            ring_frame(&t, 1 + rnd(&seed) % (k % 5 ? 20 : 200), 1);
        }
    }

    ring_free(&t);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_hostile_reader),
        cmocka_unit_test(test_hostile_tail),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring hostile", tests, NULL, NULL);
}
