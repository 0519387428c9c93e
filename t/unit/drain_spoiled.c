
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Rings that a worker spoiled: what is lost is counted, and nobody else's.
 * Noise and lies at random are in hostile_asan.c.
 */

#include "drain_util.h"


/* a ring that a worker spoiled: lost and counted; the others go on */

static void
spoiled(void **state)
{
    uint64_t  sum[NGX_HTTP_LLM_CAPTURE_C_max];
    record_t  rec;

    (void) state;

    worker_text(&a, path, 1, "{\"a\":1}");
    worker_begin(&a, &rec, path, MOON, 2);
    worker_put(&a, &rec, "{\"a\":2", 6, 0);
    drain_all(drain);

    worker_text(&a, path, 3, "{\"a\":3}");
    /* the header of that one */
    memset(ngx_http_llm_capture_zone_data(&zone, 0)
           + (atomic_load(&hdr_of(0)->head) - 4) % (1ULL << 32) * 32, 0xee,
           4 * 32);
    worker_text(&a, path, 4, "{\"a\":4}");
    worker_text(&b, path, 5, "{\"a\":5}");

    (void) ngx_http_llm_capture_drain_pass(drain, now);
    (void) ngx_http_llm_capture_drain_pass(drain, now);
    assert_counted(recorded, 2);
    assert_counted(lost, 1);
    assert_int_equal(pending(), 2);
    assert_int_equal(lines_with("ring 0 holds"), 1);

    dead[0] = 1;
    ngx_http_llm_capture_drain_owners(drain);
    drain_pass(drain);
    assert_counted(lost, 3);
    assert_int_equal(pending(), 0);

    /* under the path they were for */
    ngx_http_llm_capture_zone_sum(&zone, NGX_HTTP_LLM_CAPTURE_TEMPLATES, sum);
    assert_int_equal(sum[C(lost)], 0);

    worker_claim(&a, 0);
    worker_text(&a, path, 6, "{\"a\":6}");
    drain_all(drain);
    assert_counted(recorded, 3);
}


/* a part of a body that does not follow what came before */

static void
disjoint(void **state)
{
    size_t    at;
    record_t  rec;

    (void) state;

    worker_begin(&a, &rec, path, MOON, 1);
    worker_put(&a, &rec, "{\"a\":", 5, 0);
    at = (size_t) a.ring.off * NGX_HTTP_LLM_CAPTURE_UNIT;
    worker_put(&a, &rec, "1}", 2, END);

    ((ngx_http_llm_capture_frame_t *)
        (ngx_http_llm_capture_zone_data(&zone, 0) + at))->off = 6;

    drain_pass(drain);
    assert_counted(lost, 1);
    assert_counted(recorded, 0);
    assert_int_equal(lines_with("ring 0 holds"), 1);
}


/* a frame of nobody, over bytes [from, to) of the first ring */

static void
fill(size_t from, size_t to)
{
    ngx_http_llm_capture_frame_t  *f;

    f = (ngx_http_llm_capture_frame_t *)
            (ngx_http_llm_capture_zone_data(&zone, 0) + from);

    memset(f, 0, sizeof(ngx_http_llm_capture_frame_t));
    f->size = (uint32_t) (to - from);
    f->id = 99;
}


/*
 * A head that runs round and round over what is not finished: each lap reads
 * well, and to remember them all would take memory without bound.
 */

static void
overrun(void **state)
{
    size_t    at;
    record_t  rec;
    uint32_t  lap;

    (void) state;

    worker_begin(&a, &rec, path, MOON, 1);
    worker_put(&a, &rec, "{\"a\":1", 6, 0);
    fill((size_t) a.ring.off * NGX_HTTP_LLM_CAPTURE_UNIT, 4096);

    for (at = 4096; at < zone.ring_size; at += 4096) {
        fill(at, at + 4096);
    }

    for (lap = 0; lap < 6; lap++) {
        atomic_store(&hdr_of(0)->head,
                     ngx_http_llm_capture_pos(lap, 4096 / 32));
        drain_pass(drain);

        if (lap == 0) {
            fill(0, 4096);
            continue;
        }

        assert_int_equal(atomic_load(&hdr_of(0)->tail),
                         atomic_load(&hdr_of(0)->head));
    }

    worker_text(&b, path, 2, "{\"b\":1}");
    drain_pass(drain);
    assert_counted(recorded, 1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(spoiled),
        DRAIN(disjoint),
        DRAIN(overrun)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
