
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Slow uploads: no more of them than the arena holds, none that waits in it
 * for a failing disk, and what a worker may write over it.
 */

#include "spill_util.h"


#define BLOCK  NGX_HTTP_LLM_CAPTURE_BLOCK


/* the arena holds 22 blocks: that many slow ones go on, the next does not */

static void
arena_full(void **state)
{
    char      *body[40];
    unsigned   i, full, sent, turn;
    record_t   rec[40];

    (void) state;

    for (i = 0; i < 40; i++) {
        body[i] = body_of(i, 300);
    }

    /* twice: the blocks have come back */

    sent = 0;

    for (turn = 1; turn <= 2; turn++) {
        full = 0;

        for (i = 0; i < 40; i++) {
            worker_begin(&a, &rec[i], path, MOON, 500 + i);
            assert_int_equal(worker_put(&a, &rec[i], body[i], 100, 0), 0);
        }

        sent += traffic_of(&a, 300 * KIB);
        assert_int_equal(moved(), zone.nblocks);
        assert_counted(queue_full, turn * (40 - zone.nblocks));

        for (i = 0; i < 40; i++) {
            assert_int_equal(worker_put(&a, &rec[i], body[i] + 100, 200, END),
                             0);
            full++;
        }

        drain_all(drain);
        assert_int_equal(moved(), 0);
        assert_counted(recorded, sent + turn * zone.nblocks);
        assert_int_equal(pending(), 0);
        assert_bodies(path, body, zone.nblocks);
        assert_int_equal(unlink(path), 0);
    }

    for (i = 0; i < 40; i++) {
        free(body[i]);
    }
}


/* one that grows beyond the arena: it alone; its rest is passed over */

static void
one_too_many(void **state)
{
    char      *body, *small;
    size_t     at;
    record_t   rec, other;
    unsigned   sent;

    (void) state;

    body = body_of(0, 600000);
    small = body_of(0, 300);
    sent = 0;

    worker_begin(&b, &other, path, MOON, 400);
    worker_put(&b, &other, small, 100, 0);
    sent += traffic_of(&b, 200 * KIB);
    assert_int_equal(moved(), 1);

    worker_begin(&a, &rec, path, MOON, 500);

    for (at = 0; at < 600000; at += 20000) {
        assert_int_equal(worker_put(&a, &rec, body + at, 20000,
                                    at + 20000 == 600000 ? END : 0), 0);
        sent += traffic_of(&a, 160 * KIB);
    }

    assert_counted(queue_full, 1);
    assert_int_equal(moved(), 1);

    worker_put(&b, &other, small + 100, 200, END);
    drain_all(drain);

    assert_counted(recorded, sent + 1);
    assert_bodies(path, &small, 1);
    free(body);
    free(small);
}


/* a whole one that waits for its disk in the arena, over helpers */

static void
waiting(void **state)
{
    char      *body;
    record_t   rec;
    unsigned   sent;

    (void) state;

    body = body_of(0, 50000);
    sent = 0;

    broken.name = "a.jsonl";
    broken.open_errno = EROFS;

    worker_begin(&a, &rec, path, MOON, 500);
    worker_put(&a, &rec, body, 30000, 0);
    sent += traffic_of(&a, 160 * KIB);
    worker_put(&a, &rec, body + 30000, 20000, END);
    drain_all(drain);
    assert_int_equal(moved(), 1);

    /* it pins nothing: it is not dropped, and the ring is not freed */

    sent += traffic_of(&a, 300 * KIB);
    worker_close(&a);
    drain_all(drain);
    assert_int_equal(ngx_http_llm_capture_drain_owned(drain), 2);
    successor();
    drain_all(drain);
    assert_int_equal(pending(), 1);
    assert_int_equal(ngx_http_llm_capture_drain_owned(drain), 2);

    broken.name = NULL;
    now += 1000;
    drain_all(drain);
    assert_counted(recorded, sent + 1);
    assert_bodies(path, &body, 1);
    assert_int_equal(ngx_http_llm_capture_drain_owned(drain), 1);
    free(body);
}


/* those that wait for one failing disk leave the arena to those that do not */

static void
waiting_many(void **state)
{
    char      *body, *small;
    record_t   rec[40], good;
    unsigned   i;

    (void) state;

    body = body_of(0, 300);
    small = body_of(0, 30000);

    broken.name = "a.jsonl";
    broken.open_errno = EROFS;

    for (i = 0; i < zone.nblocks; i++) {
        worker_begin(&a, &rec[i], path, MOON, 500 + i);
        worker_put(&a, &rec[i], body, 100, 0);
    }

    (void) traffic_of(&a, 300 * KIB);
    assert_int_equal(moved(), zone.nblocks);

    for (i = 0; i < zone.nblocks; i++) {
        worker_put(&a, &rec[i], body + 100, 200, END);
    }

    drain_all(drain);
    assert_int_equal(pending(), zone.nblocks);

    worker_begin(&b, &good, second, MOON, 900);
    worker_put(&b, &good, small, 10000, 0);
    (void) traffic_of(&b, 300 * KIB);
    assert_counted(queue_full, 0);
    assert_counted(failed, 1);
    worker_put(&b, &good, small + 10000, 20000, END);
    drain_all(drain);
    assert_counted(queue_full, 0);
    assert_counted(failed, 2);

    broken.name = NULL;
    now += 1000;
    drain_all(drain);
    assert_int_equal(pending(), 0);
    assert_counted(failed, 2);
    free(body);
    free(small);
}


static void
ended_otherwise(void **state)
{
    char      *body;
    record_t   rec[4];
    unsigned   i, sent;

    (void) state;

    body = body_of(0, 30000);
    sent = 0;

    for (i = 0; i < 4; i++) {
        worker_begin(i < 2 ? &a : &b, &rec[i], path, MOON, 500);
        worker_put(i < 2 ? &a : &b, &rec[i], body, 20000, 0);
    }

    sent += traffic_of(&a, 200 * KIB);
    sent += traffic_of(&b, 200 * KIB);
    assert_int_equal(moved(), 4);

    worker_abort(&a, &rec[0], C(too_large));
    worker_put(&a, &rec[1], "]}", 2, END);
    drain_all(drain);
    assert_counted(too_large, 1);
    assert_counted(invalid_json, 1);
    assert_int_equal(moved(), 2);

    /* a worker dies, and so does the helper, before it knows */

    dead[1] = 1;
    successor();
    assert_int_equal(moved(), 2);
    ngx_http_llm_capture_drain_owners(drain);
    drain_all(drain);
    assert_counted(aborted, 2);
    assert_int_equal(moved(), 0);
    assert_int_equal(pending(), 0);
    assert_counted(recorded, sent);
    free(body);
}


/* what a worker may have written over the chains */

static void
spoiled_chains(void **state)
{
    uint32_t                       i, k;
    uint8_t                       *block;
    record_t                       rec;
    ngx_http_llm_capture_chain_t  *c, good;
    ngx_http_llm_capture_begin_t   begin;

    (void) state;

    worker_begin(&a, &rec, path, MOON, 500);
    worker_put(&a, &rec, "{\"a\":1}", 7, 0);
    (void) traffic_of(&a, 200 * KIB);
    assert_int_equal(moved(), 1);

    for (i = 0; ; i++) {
        c = ngx_http_llm_capture_zone_chain(&zone, i);

        if (atomic_load(&c->state)) {
            break;
        }
    }

    memcpy(&good, c, sizeof(good));
    block = ngx_http_llm_capture_zone_block(&zone, good.first);
    memcpy(&begin, block, sizeof(begin));

    for (k = 0; k < 14; k++) {
        memcpy(c, &good, sizeof(good));
        memcpy(block, &begin, sizeof(begin));
        memcpy(block + sizeof(begin), path, strlen(path));
        *ngx_http_llm_capture_zone_next(&zone, good.first) = 0;
        c->state = NGX_HTTP_LLM_CAPTURE_CHAIN_ENDED;

        switch (k) {
        case 0: c->ring = zone.nrings; break;
        case 1: c->first = zone.nblocks; break;
        case 2: c->bytes = UINT64_MAX; break;
        case 3: c->bytes = UINT64_MAX - c->extra + 1; break;
        case 4: c->extra = 0; break;
        case 5: c->extra = UINT32_MAX; break;
        case 6: c->bytes = 2 * BLOCK;
            *ngx_http_llm_capture_zone_next(&zone, good.first) = good.first;
            break;
        case 7: c->bytes = 2 * BLOCK;
            *ngx_http_llm_capture_zone_next(&zone, good.first) = UINT32_MAX;
            break;
        case 8: ((ngx_http_llm_capture_begin_t *) block)->path_len++; break;
        case 9: ((ngx_http_llm_capture_begin_t *) block)->format = 77; break;
        /* no path that is written to: counted as bad, not followed */
        case 10: block[sizeof(begin)] = 'x'; break;
        case 11: block[sizeof(begin) + 3] = '\0'; break;
        case 12: c->state = 99; break;
        case 13: c->id = 0; break;
        }

        successor();
        (void) ngx_http_llm_capture_drain_pass(drain, now);
        (void) ngx_http_llm_capture_drain_pass(drain, now);
    }

    assert_counted(bad_path, 2);

    /* all blocks are there again */

    successor();
    assert_int_equal(worker_text(&b, path, 1, "{\"a\":1}"), 0);
    (void) ngx_http_llm_capture_drain_pass(drain, now);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(arena_full),
        DRAIN(one_too_many),
        DRAIN(waiting),
        DRAIN(waiting_many),
        DRAIN(ended_otherwise),
        DRAIN(spoiled_chains)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
