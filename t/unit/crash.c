
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Exactly once, though the helper dies at any place that is marked in its
 * source (ngx_http_llm_capture_point.h) or inside any write, and its successor
 * does as well.
 */

#include "crash_points.h"
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


static void
all_once(void)
{
    check_all(1, 0);
}


static void
points(void **state)
{
    (void) state;
    every_point(0, do_step, STEPS, all_once);
}


static void
points_in_pieces(void **state)
{
    (void) state;
    every_point(1, do_step, STEPS, all_once);
}


static void
points_full_disk(void **state)
{
    (void) state;
    every_point(2, do_step, STEPS, all_once);
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
