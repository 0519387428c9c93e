
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper and the workers that come and go: sums that come out, rings that
 * are freed, mended and claimed again, and what they give back.
 */

#include "drain_util.h"
#include "ngx_http_llm_capture_upload.h"


#define FLOOR  NGX_HTTP_LLM_CAPTURE_FLOOR


/* seen = recorded + reasons + pending, whatever happens, ring by ring */

static void
sums(void **state)
{
    char        body[64];
    uint64_t    seed, seen, full;
    unsigned    i, k, n, nopen;
    record_t    rec[32];
    unsigned    used[32];

    (void) state;

    memset(used, 0, sizeof(used));
    seed = 42;
    seen = 0;
    full = 0;
    nopen = 0;

    for (i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        k = (seed >> 40) % 32;
        n = (seed >> 50) % 8;

        if (!used[k]) {
            worker_t *w = k % 2 ? &b : &a;

            if (n == 0) {
                worker_seen(w, MOON);
                worker_refuse(w, MOON, C(unmatched));
                seen++;
                continue;
            }

            worker_begin(w, &rec[k], k % 3 ? path : second, MOON, 1000 + i);
            seen++;

            if (worker_put(w, &rec[k], "{\"a\":[", 6, 0) == 0) {
                used[k] = 1;
                nopen++;
            } else {
                full++;
            }

        } else if (n < 5) {
            snprintf(body, sizeof(body), "%u,", i);

            if (worker_put(k % 2 ? &b : &a, &rec[k], body, strlen(body), 0)
                != 0)
            {
                used[k] = 0;
                nopen--;
                full++;
            }

        } else if (n == 5) {
            worker_abort(k % 2 ? &b : &a, &rec[k], C(aborted));
            used[k] = 0;
            nopen--;

        } else {
            if (worker_put(k % 2 ? &b : &a, &rec[k], "0]}", n == 6 ? 3 : 2,
                           END)
                != 0)
            {
                full++;
            }

            used[k] = 0;
            nopen--;
        }

        if ((seed >> 60) == 0) {
            drain_pass(drain);
            assert_counted(seen, seen);
        }
    }

    drain_all(drain);
    assert_int_equal(pending(), nopen);
    assert_int_equal(counted(C(queue_full)), full);
    assert_true(counted(C(recorded)) > 100);
    assert_true(counted(C(aborted)) > 100);
    assert_true(counted(C(invalid_json)) > 100);
    assert_true(counted(C(unmatched)) > 100);
}


static void
closed(void **state)
{
    uint64_t  id;

    (void) state;

    worker_text(&a, path, 1, "{\"a\":1}");
    worker_close(&a);

    assert_int_equal(ngx_http_llm_capture_drain_live(drain), 2);
    assert_int_equal(drain_pass(drain), 1);
    assert_int_equal(ngx_http_llm_capture_drain_owned(drain), 1);
    assert_int_equal(ngx_http_llm_capture_drain_live(drain), 1);
    assert_int_equal(atomic_load(&hdr_of(0)->owner), 0);
    assert_int_equal(atomic_load(&hdr_of(0)->closed), 0);

    /* the next owner goes on with the ids and the places */

    id = a.id;
    worker_claim(&a, 0);
    assert_int_equal(a.id, id);

    worker_text(&a, path, 2, "{\"a\":2}");
    assert_int_equal(drain_pass(drain), 1);
    assert_counted(recorded, 2);
}


static void
died(void **state)
{
    record_t  one, two;

    (void) state;

    worker_begin(&a, &one, path, MOON, 1);
    worker_put(&a, &one, "{\"a\":", 5, 0);
    worker_text(&a, path, 2, "{\"a\":2}");
    worker_begin(&a, &two, path, MOON, 3);
    worker_put(&a, &two, "{\"a\":", 5, 0);
    drain_all(drain);
    assert_int_equal(pending(), 2);

    /* what the system says is asked for when told to, not by each pass */

    dead[0] = 1;
    drain_all(drain);
    assert_int_equal(pending(), 2);

    ngx_http_llm_capture_drain_owners(drain);
    assert_int_equal(ngx_http_llm_capture_drain_live(drain), 1);
    assert_int_equal(ngx_http_llm_capture_drain_owned(drain), 2);

    /* what it published last is not lost */

    worker_text(&a, path, 4, "{\"a\":4}");
    drain_pass(drain);

    assert_int_equal(pending(), 0);
    assert_counted(aborted, 2);
    assert_counted(recorded, 2);
    assert_int_equal(atomic_load(&hdr_of(0)->owner), 0);

    /* nobody's ring is not asked for */

    dead[2] = 1;
    ngx_http_llm_capture_drain_owners(drain);
    drain_all(drain);

    worker_claim(&a, 0);
    worker_text(&a, path, 5, "{\"a\":5}");
    drain_all(drain);
    assert_counted(recorded, 3);
}


/* seen was counted, and then nothing more */

static void
died_deciding(void **state)
{
    uint64_t  id;

    (void) state;

    worker_text(&a, path, 1, "{\"a\":1}");
    worker_seen(&a, RAW);

    /* as long as it lives it may still say what became of it */

    assert_int_equal(ngx_http_llm_capture_drain_pass(drain, now), 1);
    assert_int_equal(ngx_http_llm_capture_drain_pass(drain, now), 0);
    assert_int_equal(pending(), 1);

    id = a.id;
    dead[0] = 1;
    ngx_http_llm_capture_drain_owners(drain);
    drain_pass(drain);

    assert_int_equal(pending(), 0);
    assert_counted(aborted, 1);
    assert_int_equal(ngx_http_llm_capture_zone_helper(&zone)[RAW]
                     .n[C(aborted)], 1);

    worker_claim(&a, 0);
    assert_int_equal(a.id, id + 1);
    assert_int_equal(atomic_load(&hdr_of(0)->deciding), 0);

    /* again, and with a body that began and one that was refused before */

    worker_text(&a, path, 2, "{\"a\":2}");
    worker_seen(&a, MOON);
    worker_refuse(&a, MOON, C(sampled_out));
    worker_seen(&a, MOON);
    dead[0] = 1;
    ngx_http_llm_capture_drain_owners(drain);
    drain_pass(drain);

    assert_int_equal(pending(), 0);
    assert_counted(aborted, 2);

    /* and with nothing to mend */

    worker_claim(&a, 0);
    worker_text(&a, path, 3, "{\"a\":3}");
    dead[0] = 1;
    ngx_http_llm_capture_drain_owners(drain);
    drain_pass(drain);

    assert_int_equal(pending(), 0);
    assert_counted(aborted, 2);
    assert_counted(recorded, 3);
}


static void
laps(void **state)
{
    char      body[600];
    unsigned  i;

    (void) state;

    /* a ring of 256 KiB some forty times over, by owners that come and go */

    for (i = 0; i < 20000; i++) {
        snprintf(body, sizeof(body), "{\"i\":%u,\"p\":\"%0*u\"}", i,
                 (int) (1 + i * 7919 % 500), 0);
        assert_int_equal(worker_text(&a, path, 1000 + i, body), 0);

        if (i % 61 == 0) {
            drain_pass(drain);
        }

        if (i % 997 == 0) {
            worker_close(&a);
            drain_pass(drain);
            worker_claim(&a, 0);
        }

        if (i % 2999 == 0) {
            successor();
        }
    }

    drain_all(drain);

    assert_counted(recorded, 20000);
    assert_int_equal(atomic_load(&hdr_of(0)->head),
                     atomic_load(&hdr_of(0)->tail));
    assert_true(atomic_load(&hdr_of(0)->head) >> 32 > 10);
}


static int
is_resident(size_t from, size_t to)
{
    size_t          i, n;
    unsigned char   vec[4096];
    uint8_t        *data;

    data = ngx_http_llm_capture_zone_data(&zone, 0);
    n = 0;

    assert_true((to - from) / 4096 <= sizeof(vec));
    assert_int_equal(mincore(data + from, to - from, vec), 0);

    for (i = 0; i < (to - from) / 4096; i++) {
        n += vec[i] & 1;
    }

    return (int) n;
}


/* besides a manifest that may be due as well */

static uint64_t
ring_due(void)
{
    return drain->rings[0].due;
}


/* pages above the window go back after ten seconds of not being used */

static void
give_back(void **state)
{
    char     *body;
    unsigned  i;

    (void) state;

    restart(2, 16 * MIB);
    drain_pass(drain);

    body = body_of(1, MIB - 200);

    for (i = 0; i < 10; i++) {
        assert_int_equal(worker_text(&a, path, 1, body), 0);
    }

    drain_all(drain);
    assert_true(is_resident(2 * MIB, 9 * MIB) > 1700);

    /* the producer goes to the front at its next body, as all is free */

    assert_int_equal(worker_text(&a, path, 1, "{\"a\":1}"), 0);
    drain_all(drain);
    assert_int_equal(ring_due(), now + 10000);

    /* in this period they were used: not yet */

    now += 10000;
    drain_pass(drain);
    assert_true(is_resident(2 * MIB, 9 * MIB) > 1700);
    assert_int_equal(ring_due(), now + 10000);

    now += 9999;
    worker_text(&a, path, 2, "{\"a\":1}");
    drain_all(drain);
    assert_true(is_resident(2 * MIB, 9 * MIB) > 1700);

    now += 1;
    drain_pass(drain);
    assert_int_equal(is_resident(2 * MIB, 16 * MIB), 0);
    assert_true(is_resident(0, MIB) > 200);
    assert_int_equal(ring_due(), 0);

    /* and the ring is as good as before */

    for (i = 0; i < 14; i++) {
        assert_int_equal(worker_text(&a, path, 3, body), 0);
    }

    drain_all(drain);
    assert_counted(recorded, 26);
    free(body);
}


/* and if no request comes any more: all but the page that head stands in */

static void
give_back_silent(void **state)
{
    char     *body;
    record_t  rec;
    unsigned  i, n, round;

    (void) state;

    restart(2, 16 * MIB);
    body = body_of(1, MIB - 200);

    for (n = 0, round = 0; round < 3; round++) {

        for (i = 0; worker_text(&a, path, 1, body) == 0; i++) { /* void */ }

        assert_true(i >= 14);
        n += i;

        if (round == 1) {
            /* not while one is in flight: a JUMP may stand up there */

            drain_all(drain);
            worker_begin(&a, &rec, path, MOON, 1);
            assert_int_equal(worker_put(&a, &rec, "{\"a\":[", 6, 0), 0);
            n++;
        }

        drain_all(drain);
        assert_true(is_resident(2 * MIB, 14 * MIB) > 3000);

        assert_int_equal(ring_due(), now + 10000);

        now += 10000;
        drain_all(drain);

        if (round == 1) {
            assert_true(is_resident(2 * MIB, 14 * MIB) > 3000);
            assert_int_equal(worker_put(&a, &rec, "0]}", 3, END), 0);
            drain_all(drain);
            now += 10000;
            drain_all(drain);
        }

        assert_in_range(is_resident(FLOOR, 16 * MIB), 0, 1);

        /* the helper has nothing to come for but its next warning */

        assert_false(ring_due() - now <= 10000);
        assert_counted(recorded, n);
    }

    free(body);
}


/* a ring that nobody owns any more keeps its floor alone */

static void
give_back_freed(void **state)
{
    char     *body;
    unsigned  i;

    (void) state;

    restart(2, 16 * MIB);
    body = body_of(1, MIB - 200);

    for (i = 0; i < 10; i++) {
        assert_int_equal(worker_text(&a, path, 1, body), 0);
    }

    worker_close(&a);
    drain_all(drain);

    for (i = 0; i < 3; i++) {
        now += 10000;
        drain_pass(drain);
    }

    assert_in_range(is_resident(FLOOR, 16 * MIB), 0, 1);
    assert_int_equal(ring_due(), 0);
    free(body);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(sums),
        DRAIN(closed),
        DRAIN(died),
        DRAIN(died_deciding),
        DRAIN(laps),
        DRAIN(give_back),
        DRAIN(give_back_silent),
        DRAIN(give_back_freed)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
