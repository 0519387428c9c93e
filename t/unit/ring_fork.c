
/*
 * Copyright (C) the llm-capture authors
 */

/* the ring between two real processes, over memory shared as in the product */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ring_pipe.h"


static int  child_status;


static int
alive(void *ctx)
{
    pid_t  *pid;

    pid = ctx;

    if (*pid && waitpid(*pid, &child_status, WNOHANG) == *pid) {
        *pid = 0;
    }

    return *pid != 0;
}


static void
run(size_t size, uint64_t records, uint32_t most, uint64_t seed)
{
    int     rc;
    pid_t   pid;
    duct_t  c;

    pipe_make(&c, size, records, most, seed);
    fflush(NULL);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pipe_produce(&c);
        _exit(0);
    }

    c.alive = alive;
    c.ctx = &pid;
    child_status = -1;

    rc = pipe_consume(&c);

    if (pid) {
        if (rc != 0) {
            kill(pid, SIGKILL);
        }

        waitpid(pid, &child_status, 0);
    }

    pipe_report(&c);

    assert_int_equal(rc, 0);
    assert_int_equal(child_status, 0);
    assert_int_equal(c.ended, c.end->ended);
    assert_int_equal(c.aborted, c.end->aborted);
    assert_int_equal(c.ended + c.aborted, records);
    assert_true(c.ended > records / 2);

    ring_free(&c.t);
    free(c.up);
}


static void
test_page(void **state)
{
    (void) state;

    run(4096, 100000, 1200, 11);
}


static void
test_middle(void **state)
{
    (void) state;

    run(256 * 1024, 20000, 60000, 12);
}


/* up and down over the floor, while pages above it are given back */

static void
test_punched(void **state)
{
    (void) state;

    run(3 * MIB, 4000, 700000, 13);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_middle),
        cmocka_unit_test(test_punched),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring fork", tests, NULL, NULL);
}
