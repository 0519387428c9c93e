
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Outcomes in the drain: each with its request, whichever comes first, whatever
 * becomes of either, and over the helper's end.
 */

#include "drain_util.h"


#define ALIVE  1000
#define GONE   1001

static char  beside[160];


static int
ready(void **state)
{
    if (start(state) != 0) {
        return -1;
    }

    snprintf(beside, sizeof(beside), "%s/a.outcomes", dir);

    return 0;
}


static void
ask(worker_t *w, uint64_t uid, uint32_t pid, const char *body, unsigned flags)
{
    record_t  rec;

    worker_begin(w, &rec, path, MOON, 1000 + uid);
    rec.begin.uid = uid;
    rec.begin.pid = pid;

    assert_int_equal(worker_put(w, &rec, body, strlen(body), flags), 0);
}


static void
answer(worker_t *w, uint64_t uid, unsigned flags)
{
    assert_int_equal(worker_answer(w, beside, uid, flags), 0);
}


static uint64_t
to_come(void)
{
    uint64_t  n;

    n = counted(C(answers));

    n -= counted(C(outcomes)) + counted(C(outcome_encoded))
         + counted(C(outcome_queue_full)) + counted(C(outcome_aborted))
         + counted(C(outcome_failed)) + counted(C(outcome_uncertain))
         + counted(C(outcome_lost));

    return n;
}


static void
in_turn(void **state)
{
    (void) state;

    ask(&a, 0x1a, ALIVE, "{\"a\":1}", END);
    ask(&b, 2, ALIVE, "{\"a\":2}", END);
    drain_all(drain);

    answer(&b, 0x1a, 0);
    drain_all(drain);

    /* sorted by arrival */

    assert_file(path, "{\"timestamp\":0,\"id\":\"0000000000000002\","
                      "\"payload\":{\"a\":2}}\n"
                      "{\"timestamp\":24,\"id\":\"000000000000001a\","
                      "\"payload\":{\"a\":1}}\n");
    assert_file(beside, "{\"id\":\"000000000000001a\",\"timestamp\":24,"
                        "\"status\":200,\"bytes\":26}\n");
    assert_counted(outcomes, 1);
    assert_int_equal(to_come(), 1);
}


/* of one request: the outcome before the end of the body, and after it */

static void
whichever_first(void **state)
{
    record_t  rec;

    (void) state;

    worker_begin(&a, &rec, path, MOON, 1000);
    rec.begin.uid = 7;
    rec.begin.pid = ALIVE;
    assert_int_equal(worker_put(&a, &rec, "{\"a\":", 5, 0), 0);

    /* in another ring: it is read first */

    answer(&b, 7, 0);
    drain_all(drain);
    assert_counted(outcomes, 0);

    assert_int_equal(worker_put(&a, &rec, "1}", 2, END), 0);
    drain_all(drain);

    assert_counted(recorded, 1);
    assert_counted(outcomes, 1);
    assert_int_equal(to_come(), 0);
    assert_int_equal(ngx_http_llm_capture_drain_left(drain), 2);
}


static void
of_none(void **state)
{
    (void) state;

    /* not recorded; not asked for; twice */

    ask(&a, 7, ALIVE, "{\"a\":", END);
    answer(&a, 7, 0);
    answer(&a, 8, 0);
    ask(&a, 9, ALIVE, "{\"a\":1}", END);
    answer(&a, 9, 0);
    drain_all(drain);
    answer(&a, 9, 0);
    drain_all(drain);

    assert_counted(answers, 1);
    assert_counted(outcomes, 1);
    assert_counted(invalid_json, 1);
    assert_int_equal(to_come(), 0);
}


static void
reasons(void **state)
{
    (void) state;

    ask(&a, 1, ALIVE, "{\"a\":1}", END);
    ask(&a, 2, GONE, "{\"a\":1}", END);
    ask(&a, 3, GONE, "{\"a\":1}", END);
    answer(&a, 1, NGX_HTTP_LLM_CAPTURE_REPLY_ENCODED);
    drain_all(drain);

    /* what a dead worker left in a ring is read before it is told dead */

    answer(&b, 3, 0);
    ngx_http_llm_capture_drain_owners(drain);
    drain_all(drain);

    assert_counted(outcome_encoded, 1);
    assert_counted(outcome_aborted, 1);
    assert_counted(outcomes, 1);
    assert_int_equal(to_come(), 0);
    assert_int_equal(ngx_http_llm_capture_drain_left(drain), 2);
}


/* another helper finds what waits, and its timestamps */

static void
over_the_end(void **state)
{
    unsigned  i;

    (void) state;

    for (i = 1; i <= 100; i++) {
        ask(&a, i, ALIVE, "{\"a\":1}", END);
        drain_all(drain);

        if (i % 10 == 0) {
            successor();
        }
    }

    assert_int_equal(to_come(), 100);

    for (i = 1; i <= 100; i++) {
        answer(&b, i, 0);

        if (i % 10 == 0) {
            successor();
            drain_all(drain);
        }
    }

    assert_counted(outcomes, 100);
    assert_int_equal(to_come(), 0);
    assert_int_equal(ngx_http_llm_capture_drain_left(drain), 2);
}


/* at the limit of the last drain nothing is left open */

static void
lost(void **state)
{
    (void) state;

    ask(&a, 2, ALIVE, "{\"a\":", 0);
    answer(&b, 2, 0);
    ask(&a, 4, ALIVE, "{\"a\":1}", END);
    drain_all(drain);

    worker_close(&a);
    worker_close(&b);
    (void) ngx_http_llm_capture_drain_lose(drain);

    assert_counted(recorded, 1);
    assert_int_equal(to_come(), 1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup_teardown(in_turn, ready, stop),
        cmocka_unit_test_setup_teardown(whichever_first, ready, stop),
        cmocka_unit_test_setup_teardown(of_none, ready, stop),
        cmocka_unit_test_setup_teardown(reasons, ready, stop),
        cmocka_unit_test_setup_teardown(over_the_end, ready, stop),
        cmocka_unit_test_setup_teardown(lost, ready, stop),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
