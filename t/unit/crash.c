
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Exactly once, though the helper dies at any place that is marked in its
 * source (ngx_http_llm_capture_point.h) or inside any write, and its successor
 * does as well.
 */

#include "crash_util.h"
#include "ngx_http_llm_capture_point.h"


#define STEPS  12


/* the parts of a slow one: from, to, of len bytes */

static void
send_part(unsigned w, unsigned i, size_t from, size_t to, size_t len)
{
    char      *body;
    unsigned   k;
    record_t  *rec;

    rec = &sh->slow[i];

    if (from == 0) {
        k = sh->k;
        body = next_body(WHOLE, len);
        worker_begin(&sh->w[w], rec, sh->path[0], MOON, ++sh->mono);
        rec->begin.pid = k;

    } else {
        body = body_of(rec->begin.pid, len);
    }

    if (worker_put(&sh->w[w], rec, body + from, to - from,
                   to == len ? END : 0)
        != 0)
    {
        _exit(3);
    }

    free(body);
}


static void
die(unsigned w)
{
    sh->dead[w] = 1;
}


/* 0: not yet */

static int
do_step(unsigned step)
{
    size_t  off;

    switch (step) {

    case 0:
        send_many(0, 0, 3, 100);
        send_one(1, 1, WHOLE, 200);
        send_one(0, 0, INVALID, 100);
        send_part(0, 0, 0, 1000, 40000);
        send_one(1, 0, WHOLE, 100);
        return 1;

    case 1:
        /* the slow one pins half of its ring, and is moved */
        send_many(0, 0, 4, 9000);
        return 1;

    case 2:
        send_part(0, 0, 1000, 18000, 40000);
        send_part(0, 1, 0, 500, 1000);
        return 1;

    case 3:
        abort_slow(0, 1);
        send_part(0, 0, 18000, 40000, 40000);
        send_many(1, 1, 3, 300);
        return 1;

    case 4:
        send_part(1, 2, 0, 500, 3000);
        send_part(1, 3, 0, 500, 3000);
        send_many(1, 1, 5, 8000);
        return 1;

    case 5:
        abort_slow(1, 2);
        send_many(0, 0, 3, 100);
        return 1;

    case 6:
        /* dies with one moved, one in its ring, and one seen */
        sh->kind[sh->slow[3].begin.pid] = ABORTED;
        send_part(1, 2, 0, 500, 3000);
        sh->kind[sh->slow[2].begin.pid] = ABORTED;
        send_one(1, 0, WHOLE, 100);
        worker_seen(&sh->w[1], RAW);
        sh->extra_aborted++;
        die(1);
        return 1;

    case 7:
        if (atomic_load(&hdr_of(1)->owner) != 0) {
            return 0;
        }

        sh->dead[1] = 0;
        worker_claim(&sh->w[1], 1);
        send_many(1, 0, 2, 100);
        return 1;

    case 8:
        /* the second file has failed since then: some of it is given up */
        send_many(1, 1, 5, 9000);
        send_many(0, 0, 2, 100);
        return 1;

    case 9:
        send_many(1, 1, 4, 2000);
        return 1;

    case 10:
        /* a ring is spoiled behind its first record */
        send_one(2, 0, WHOLE, 100);
        off = sh->w[2].ring.off;
        send_many(2, 0, 1, 100);
        sh->kind[sh->k - 1] = SPOILED;
        memset(ngx_http_llm_capture_zone_data(&zone, 2) + off * 32, 0xee, 32);
        send_one(2, 0, SPOILED, 100);
        die(2);
        return 1;

    case 11:
        if (atomic_load(&hdr_of(2)->owner) != 0) {
            return 0;
        }

        sh->dead[2] = 0;
        worker_claim(&sh->w[2], 2);
        send_many(2, 0, 2, 100);
        return 1;
    }

    return 0;
}


/* a life of the helper: to the end of the script, or to its own */

static void
live(void)
{
    unsigned   idle;
    uint64_t   due;
    drain_t   *d;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);

    fault.lines_only = 1;

    if (mode == 1) {
        fault.write_chunk = 3000;
    }

    if (mode == 2) {
        fault.write_errno = ENOSPC;
        fault.write_bytes = 5000;
    }

    sh->points = 0;
    d = helper();

    if (d == NULL) {
        _exit(4);
    }

    sh->attached = sh->points;

    for (idle = 0; idle < 20; /* void */) {

        broken.name = sh->step >= 8 && sh->step < 10 ? "b.jsonl" : NULL;
        broken.write_errno = ENOSPC;

        ngx_http_llm_capture_drain_owners(d);

        if (ngx_http_llm_capture_drain_pass(d, sh->now)) {
            idle = 0;
            continue;
        }

        if (sh->step < STEPS && do_step(sh->step)) {
            sh->step++;
            idle = 0;
            continue;
        }

        due = ngx_http_llm_capture_drain_due(d);

        if (due == 0 && sh->step == STEPS) {
            break;
        }

        if (mode == 2) {
            fault.write_bytes = -1;
        }

        sh->now = due > sh->now && due < sh->now + 5000 ? due : sh->now + 50;
        idle++;
    }

    _exit(sh->step == STEPS && pending() == 0 ? 0 : 5);
}


static int
run(unsigned at)
{
    int    status;
    pid_t  pid;

    die_at = at;
    fflush(NULL);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        live();
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);

    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}


/*
 * Dies at the k-th point, of all there are; in mode 0 a successor dies as well,
 * at every point until it is attached.
 */

static void
every_point(int m)
{
    int       rc;
    unsigned  k, j, attached;

    mode = m;

    for (k = 1; ; k++) {

        attached = 0;

        for (j = 0; j <= attached; j++) {
            fresh();

            rc = run(k);

            if (rc == 0) {
                check_all(1, 0);
                assert_true(k > 100);
                print_message("# died at %u points\n", k - 1);
                return;
            }

            assert_int_equal(rc, 9);

            if (j) {
                rc = run(j);
                assert_true(rc == 9 || rc == 0);
            }

            if (j == 0 || rc == 9) {
                rc = run(0);
                attached = j || m ? attached : sh->attached;
            }

            if (rc != 0) {
                fail_msg("died at %u, at %u: then %d", k, j, rc);
            }

            check_all(1, 0);
        }
    }
}


static void
points(void **state)
{
    (void) state;
    every_point(0);
}


static void
points_in_pieces(void **state)
{
    (void) state;
    every_point(1);
}


static void
points_full_disk(void **state)
{
    (void) state;
    every_point(2);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        CRASH(points),
        CRASH(points_in_pieces),
        CRASH(points_full_disk)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
