
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Each outcome exactly once, though the helper dies at any place: rows in their
 * file and what is counted make up the requests that asked for one.
 */

#include "crash_points.h"
#include "ngx_http_llm_capture_point.h"


#define STEPS  8
#define MOST   64

#define ALIVE  1000
#define GONE   1001


static void
ask(unsigned w, uint64_t uid, uint32_t pid, size_t len)
{
    char      *body;
    record_t   rec;

    body = next_body(WHOLE, len);

    worker_begin(&sh->w[w], &rec, sh->path[0], MOON, ++sh->mono);
    rec.begin.uid = uid;
    rec.begin.pid = pid;

    if (worker_put(&sh->w[w], &rec, body, len, END) != 0) {
        _exit(3);
    }

    free(body);
}


static void
answer(unsigned w, uint64_t uid, unsigned flags)
{
    char  name[200];

    snprintf(name, sizeof(name), "%s/a.outcomes", dir);

    if (worker_answer(&sh->w[w], name, uid, flags) != 0) {
        _exit(3);
    }
}


static int
do_step(unsigned step)
{
    uint64_t  uid;

    switch (step) {

    case 0:
        for (uid = 1; uid <= 6; uid++) {
            ask(uid % 2, uid, ALIVE, 100);
        }

        return 1;

    case 1:
        /* before its request is read, in a ring that is read first */
        answer(0, 7, 0);
        ask(1, 7, ALIVE, 100);
        answer(1, 1, 0);
        answer(0, 2, 0);
        return 1;

    case 2:
        answer(1, 3, NGX_HTTP_LLM_CAPTURE_REPLY_ENCODED);
        send_one(0, 0, WHOLE, 100);
        return 1;

    case 3:
        /* their worker is gone: one has answered before */
        ask(1, 8, GONE, 100);
        ask(1, 9, GONE, 100);
        answer(1, 8, 0);
        return 1;

    case 4:
        for (uid = 10; uid < 20; uid++) {
            ask(0, uid, ALIVE, 50);
            answer(uid % 2, uid, 0);
        }

        return 1;

    case 5:
        answer(0, 4, 0);
        answer(0, 5, 0);
        return 1;

    case 6:
        /* nobody waits for these */
        answer(1, 5, 0);
        answer(1, 50, 0);
        return 1;

    case 7:
        answer(0, 6, 0);
        return 1;
    }

    return 0;
}


static void
each_once(void)
{
    char      name[200], *got, *p;
    size_t    len;
    unsigned  n, uid;
    uint8_t   found[MOST];

    snprintf(name, sizeof(name), "%s/a.outcomes", dir);
    got = slurp(name, &len);
    assert_non_null(got);

    memset(found, 0, sizeof(found));

    for (n = 0, p = got; *p; p = strchr(p, '\n') + 1, n++) {
        assert_int_equal(strncmp(p, "{\"id\":\"", 7), 0);
        uid = (unsigned) strtoul(p + 7, NULL, 16);
        assert_true(uid < MOST);

        if (found[uid]++) {
            fail_msg("outcome %u is there twice", uid);
        }

        assert_int_equal(atoi(strstr(p, "\"bytes\":") + 8), uid);
    }

    free(got);
    (void) unlink(name);

    assert_int_equal(pending(), 0);
    assert_int_equal(counted(C(recorded)), sh->k);
    assert_int_equal(counted(C(answers)), 19);
    assert_int_equal(counted(C(outcomes)), n);
    assert_int_equal(counted(C(outcome_uncertain)), 0);
    assert_int_equal(counted(C(outcome_encoded)), 1);
    assert_int_equal(counted(C(outcome_aborted)), 1);
    assert_int_equal(n, 17);
}


static void
points(void **state)
{
    (void) state;
    every_point(0, do_step, STEPS, each_once);
}


static void
points_in_pieces(void **state)
{
    (void) state;
    every_point(1, do_step, STEPS, each_once);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        CRASH(points),
        CRASH(points_in_pieces),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("answer crash", tests, NULL, NULL);
}
