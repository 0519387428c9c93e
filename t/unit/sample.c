
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the draw that keeps some requests.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_sample.h"


static void
start(ngx_http_llm_capture_sample_t *state, uint64_t a, uint64_t b, uint64_t c,
    uint64_t d)
{
    uint64_t  seed[4] = { a, b, c, d };

    ngx_http_llm_capture_sample_init(state, seed);
}


/* what the published xoshiro256** gives for this state */

static void
test_generator(void **unused)
{
    unsigned                       i;
    ngx_http_llm_capture_sample_t  state = { { 1, 2, 3, 4 } };

    static const uint64_t  want[] = {
        11520ULL, 0ULL, 1509978240ULL, 1215971899390074240ULL,
        1216172134540287360ULL, 607988272756665600ULL
    };

    (void) unused;

    for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        assert_true(ngx_http_llm_capture_sample_next(&state) == want[i]);
    }
}


static void
test_bounds(void **unused)
{
    unsigned                       i;
    ngx_http_llm_capture_sample_t  state, before;

    (void) unused;

    start(&state, 1, 2, 3, 4);
    before = state;

    for (i = 0; i < 1000000; i++) {
        assert_int_equal(ngx_http_llm_capture_sample(&state, 0), 0);
        assert_int_equal(ngx_http_llm_capture_sample(&state,
                                     NGX_HTTP_LLM_CAPTURE_SAMPLE_ALL), 1);
    }

    /* neither needs a draw */
    assert_memory_equal(&state, &before, sizeof(state));
}


/* a draw is kept by the thresholds above it, and by no other */

static void
test_exact(void **unused)
{
    uint64_t                       draw;
    unsigned                       i;
    ngx_http_llm_capture_sample_t  state, copy;

    (void) unused;

    start(&state, 3, 1, 4, 1);

    for (i = 0; i < 1000; i++) {
        copy = state;
        draw = ngx_http_llm_capture_sample_next(&copy) >> 32;

        copy = state;
        assert_int_equal(ngx_http_llm_capture_sample(&copy, draw), 0);
        copy = state;
        assert_int_equal(ngx_http_llm_capture_sample(&copy, draw + 1), 1);

        state = copy;
    }
}


/* five standard deviations: a right one fails here once in a million seeds */

static void
share(uint64_t threshold)
{
    double                         p, n, d;
    unsigned                       i, kept;
    ngx_http_llm_capture_sample_t  state;

    start(&state, threshold, 17, 0, 5);

    n = 1000000;
    kept = 0;

    for (i = 0; i < n; i++) {
        kept += ngx_http_llm_capture_sample(&state, threshold);
    }

    p = (double) threshold / 4294967296.0;
    d = kept - n * p;

    assert_true(d * d <= 25 * n * p * (1 - p));
}


static void
test_share(void **unused)
{
    (void) unused;

    share((uint64_t) 1 << 31);
    share((uint64_t) 1 << 30);
    share(42949672);
    share(4252017623ULL);
}


/* the finest step: some draw is below 2^-16, hardly one below 2^-32 */

static void
test_finest(void **unused)
{
    unsigned                       i, kept;
    ngx_http_llm_capture_sample_t  state;

    (void) unused;

    start(&state, 9, 9, 9, 9);

    for (i = 0, kept = 0; i < 1000000; i++) {
        kept += ngx_http_llm_capture_sample(&state, 65536);
    }

    assert_in_range(kept, 1, 60);

    for (i = 0, kept = 0; i < 1000000; i++) {
        kept += ngx_http_llm_capture_sample(&state, 1);
    }

    assert_in_range(kept, 0, 1);
}


/* seeds that differ in one bit of one word make different runs; zeroes run */

static void
test_seeds(void **unused)
{
    unsigned                       i, k;
    ngx_http_llm_capture_sample_t  state[5];

    (void) unused;

    start(&state[0], 0, 0, 0, 0);
    start(&state[1], 1, 0, 0, 0);
    start(&state[2], 0, 1, 0, 0);
    start(&state[3], 0, 0, 1, 0);
    start(&state[4], 0, 0, 0, 1);

    for (i = 0; i < 5; i++) {
        assert_true(state[i].s[0] | state[i].s[1] | state[i].s[2]
                    | state[i].s[3]);

        for (k = 0; k < i; k++) {
            assert_true(ngx_http_llm_capture_sample_next(&state[i])
                        != ngx_http_llm_capture_sample_next(&state[k]));
        }
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_generator),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_finest),
        cmocka_unit_test(test_seeds),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
