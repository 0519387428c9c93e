
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Slow uploads: moved out of a ring before they stop it, and whole at the end
 * whatever happens to the helper.
 */

#include "spill_util.h"


#define BLOCK  NGX_HTTP_LLM_CAPTURE_BLOCK


static void
one_slow(void **state)
{
    char      *body;
    size_t     n, at;
    record_t   rec;
    unsigned   sent;

    (void) state;

    n = 100000;
    body = body_of(0, n);
    sent = 0;

    worker_begin(&a, &rec, path, MOON, 500);

    for (at = 0; at < n; at += 5000) {
        assert_int_equal(worker_put(&a, &rec, body + at, 5000,
                                    at + 5000 == n ? END : 0), 0);
        assert_true(at == 0 ? moved() == 0 : moved() == 1);
        sent += traffic_of(&a, 160 * KIB);
    }

    assert_counted(queue_full, 0);
    assert_counted(recorded, sent + 1);
    assert_int_equal(moved(), 0);
    assert_bodies(path, &body, 1);
    assert_int_equal(pending(), 0);
    free(body);
}


/*
 * The ring was filled while nobody looked: at the front before the slow one,
 * and behind it.  What it pins is all of it, though it stands far behind.
 */

static void
slow_behind_front(void **state)
{
    char     *body;
    unsigned  i, k;
    record_t  rec;

    (void) state;

    restart(2, 8 * MIB);

    body = body_of(0, 100000);

    for (i = 0; i < 48; i++) {
        assert_int_equal(worker_text(&a, second, 1, body), 0);
    }

    worker_begin(&a, &rec, path, MOON, 500);
    assert_int_equal(worker_put(&a, &rec, body, 10, 0), 0);
    drain_all(drain);

    for (k = 0; worker_text(&a, second, 1, body) == 0; k++) { /* void */ }

    assert_true(k > 70);
    assert_counted(queue_full, 1);
    drain_all(drain);
    assert_int_equal(moved(), 1);
    assert_counted(recorded, 48 + k);

    assert_int_equal(worker_text(&a, second, 1, body), 0);
    assert_int_equal(worker_put(&a, &rec, body + 10, 99990, END), 0);
    drain_all(drain);
    assert_bodies(path, &body, 1);
    free(body);
}


/*
 * {"a":1 and } with space before, between and behind, so that the body ends at
 * the edge of a block, or the space goes over one.
 */

static void
edge(size_t n, size_t lead, size_t trail)
{
    char      *body, *want, *got;
    record_t   rec;

    body = malloc(n);
    want = malloc(n + 100);
    assert_true(body && want);

    memset(body, ' ', n);
    memcpy(body + lead, "{\"a\":1", 6);
    body[n - trail - 1] = '}';

    worker_begin(&a, &rec, path, MOON, 500);
    assert_int_equal(worker_put(&a, &rec, body, n / 2, 0), 0);
    (void) traffic_of(&a, 160 * KIB);
    assert_int_equal(moved(), 1);

    assert_int_equal(worker_put(&a, &rec, body + n / 2, n - n / 2, 0), 0);
    drain_all(drain);
    assert_int_equal(worker_put(&a, &rec, NULL, 0, END), 0);
    drain_all(drain);
    assert_int_equal(moved(), 0);

    sprintf(want, HEAD "%.*s}\n", (int) (n - lead - trail), body + lead);
    got = slurp(path, NULL);
    assert_non_null(got);
    assert_string_equal(got, want);
    assert_int_equal(unlink(path), 0);

    free(got);
    free(want);
    free(body);
}


static void
edges(void **state)
{
    size_t    n, extra;
    unsigned  k, d;

    (void) state;

    extra = sizeof(ngx_http_llm_capture_begin_t) + strlen(path);

    for (k = 1; k <= 3; k++) {
        for (d = 0; d <= 4; d++) {
            n = k * BLOCK - extra + d - 2;

            edge(n, 0, 0);
            edge(n, 1, n - 20);
            edge(n, n - 20, 1);
            edge(n, n / 2 - 10, n / 2 - 10);
            edge(n, BLOCK - extra - 10, 0);
        }
    }
}


static void
five_hundred(void **state)
{
    char      *body[500];
    size_t     n, at;
    unsigned   i, sent;
    record_t   rec[500];

    (void) state;

    /* 12 rings would be 24 MiB: an arena of 512 blocks */

    restart(8, 3 * MIB);

    n = 15000;
    sent = 0;

    for (i = 0; i < 500; i++) {
        body[i] = body_of(i, n);
        worker_begin(&a, &rec[i], path, MOON, 500 + i);
    }

    for (at = 0; at < n; at += 1500) {
        for (i = 0; i < 500; i++) {
            assert_int_equal(worker_put(&a, &rec[i], body[i] + at, 1500,
                                        at + 1500 == n ? END : 0), 0);
        }

        sent += traffic_of(&a, MIB);

        if (at == 6000) {
            assert_int_equal(moved(), 500);
            successor();
            drain_all(drain);
            assert_int_equal(moved(), 500);
        }
    }

    assert_counted(queue_full, 0);
    assert_counted(recorded, sent + 500);
    assert_bodies(path, body, 500);

    for (i = 0; i < 500; i++) {
        free(body[i]);
    }
}


/* a new helper after every step */

static void
handed_over(void **state)
{
    char      *body;
    size_t     at;
    record_t   rec;
    unsigned   sent;

    (void) state;

    body = body_of(0, 90000);
    sent = 0;

    worker_begin(&a, &rec, path, MOON, 500);

    for (at = 0; at < 90000; at += 9000) {
        assert_int_equal(worker_put(&a, &rec, body + at, 9000,
                                    at + 9000 == 90000 ? END : 0), 0);
        successor();
        sent += traffic_of(&a, 160 * KIB);
        successor();
    }

    drain_all(drain);
    assert_counted(recorded, sent + 1);
    assert_counted(aborted, 0);
    assert_bodies(path, &body, 1);
    assert_int_equal(moved(), 0);
    free(body);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(one_slow),
        DRAIN(slow_behind_front),
        DRAIN(edges),
        DRAIN(five_hundred),
        DRAIN(handed_over)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
