
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The ring between two threads: built with -fsanitize=thread, which sees a
 * missing acquire or release that the hardware at hand would forgive.  A race
 * it finds makes the process exit with 66.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <pthread.h>

#include "ring_pipe.h"


static int
alive(void *ctx)
{
    (void) ctx;

    return 1;
}


static void *
producer(void *data)
{
    pipe_produce(data);

    return NULL;
}


static void
run(size_t size, uint64_t records, uint32_t most, uint64_t seed)
{
    duct_t     c, other;
    pthread_t  tid;

    pipe_make(&c, size, records, most, seed);

    /* each side has a view of its own, as two processes have */

    other = c;
    c.alive = alive;

    assert_int_equal(pthread_create(&tid, NULL, producer, &other), 0);

    if (pipe_consume(&c) != 0) {
        /* the producer would wait for room forever */
        printf("Bail out! a wrong frame\n");
        exit(1);
    }

    assert_int_equal(pthread_join(tid, NULL), 0);
    pipe_report(&c);

    assert_int_equal(c.ended, c.end->ended);
    assert_int_equal(c.aborted, c.end->aborted);
    assert_int_equal(c.ended + c.aborted, records);
    assert_int_equal(c.end->wrongly, 0);
    assert_true(size <= NGX_HTTP_LLM_CAPTURE_FLOOR || c.punched > 0);

    ring_free(&c.t);
    free(c.up);
}


static void
test_page(void **state)
{
    (void) state;

    run(4096, 20000, 1200, 21);
}


static void
test_punched(void **state)
{
    (void) state;

    run(3 * MIB, 1500, 400000, 22);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_punched),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring threads", tests, NULL, NULL);
}
