
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Exactly once over SIGKILL at any instruction, some hundreds of times, while
 * workers go on putting.
 */

#include "crash_util.h"
#include "ngx_http_llm_capture_point.h"


/* a helper that drains as fast as it can until it is killed or told to end */

static void
serve(volatile int *quit)
{
    unsigned  idle;
    drain_t  *d;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    die_at = 0;
    sh->points = 0;

    d = helper();

    if (d == NULL) {
        _exit(4);
    }

    *(volatile int *) &sh->serving = 1;

    for (idle = 0; idle < 3; /* void */) {
        ngx_http_llm_capture_drain_owners(d);
        idle = ngx_http_llm_capture_drain_pass(d, ++sh->now) || !*quit
               ? 0 : idle + 1;
    }

    _exit(0);
}


static void
produce(uint64_t *seed)
{
    char      *body;
    size_t     len;
    unsigned   w, i, n;
    uint64_t   s;
    worker_t  *x;

    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    s = *seed >> 33;

    w = s % 3;
    i = w;
    n = (s >> 4) % 16;
    x = &sh->w[w];

    if (n >= 5 && ngx_http_llm_capture_ring_room(&x->ring) < 8 * KIB) {
        return;
    }

    if (n == 0 && !sh->slow[i].begun) {
        sh->slow[i].begin.pid = 0;
        body = next_body(WHOLE, 2000);
        worker_begin(x, &sh->slow[i], sh->path[0], MOON, ++sh->mono);
        sh->slow[i].begin.pid = sh->k - 1;

        if (worker_put(x, &sh->slow[i], body, 100, 0) != 0) {
            sh->kind[sh->k - 1] = ABORTED;
            sh->slow[i].begun = 0;
        }

        free(body);

    } else if (n < 4 && sh->slow[i].begun && (s >> 9) % 16 == 0) {

        if (n == 1) {
            abort_slow(w, i);

        } else {
            body = body_of(sh->slow[i].begin.pid, 2000);

            if (worker_put(x, &sh->slow[i], body + 100, 1900, END) != 0) {
                sh->kind[sh->slow[i].begin.pid] = ABORTED;
            }

            free(body);
        }

        sh->slow[i].begun = 0;

    } else if (n >= 5) {
        len = 60 + (s >> 12) % 3000;
        body = next_body(n == 5 ? INVALID : WHOLE, len);

        if (worker_send(x, sh->path[n % 2], n % 2 ? RAW : MOON, ++sh->mono,
                        body, n == 5 ? len - 1 : len)
            != 0)
        {
            sh->kind[sh->k - 1] = ABORTED;
        }

        free(body);
    }
}


static void
storm(void **state)
{
    int            status, killed;
    pid_t          pid;
    uint64_t       seed, spin;
    unsigned       i, k, target;
    volatile int  *quit;

    (void) state;

    mode = 0;
    fresh();
    seed = 7;
    killed = 0;

    quit = mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
                -1, 0);
    assert_true(quit != MAP_FAILED);

    for (i = 0; i < 400; i++) {
        fflush(NULL);
        sh->serving = 0;
        pid = fork();
        assert_true(pid != -1);

        if (pid == 0) {
            alarm(60);
            serve(quit);
        }

        /* while it attaches, or later; some records more; at any moment */

        while (i % 4 && !*(volatile int *) &sh->serving
               && waitpid(pid, &status, WNOHANG) == 0)
        {
            sched_yield();
        }

        target = sh->k + 1 + i % 9;

        for (k = 0; k < 100000 && sh->k < target && sh->k < RECORDS - 9; k++)
        {
            produce(&seed);

            if (k % 64 == 63) {
                sched_yield();
            }
        }

        for (spin = (seed >> 20) % 300000; spin; spin--) {
            __asm__ volatile ("" ::: "memory");
        }

        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        killed++;
    }

    /* what is still open ends, and a last helper writes what is left */

    for (k = 0; k < 3; k++) {
        if (sh->slow[k].begun) {
            abort_slow(k, k);
        }
    }

    *quit = 1;
    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        alarm(60);
        serve(quit);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    print_message("# %d killed, %u records, %u recorded\n", killed, sh->k,
                  (unsigned) counted(C(recorded)));

    check_all(0, 1);

    /* how many depends on the scheduler: under load a helper may get nowhere */

    assert_true(counted(C(recorded)) > 0);
    munmap((void *) quit, 4096);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        CRASH(storm)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
