
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Slow uploads: moved out of a ring before they stop it, whole at the end
 * whatever happens to the helper, and no more of them than the arena holds.
 */

#include "zone_util.h"


#define BLOCK  NGX_HTTP_LLM_CAPTURE_BLOCK
#define HEAD   "{\"timestamp\":0,\"payload\":"

static char      second[160];
static writer_t *writer;
static drain_t  *drain;
static worker_t  a, b;


static void
open_all(uint32_t nrings, uint64_t ring_size)
{
    zone_make(nrings, ring_size);

    writer = drain_writer();
    drain = drain_over(writer);
    assert_non_null(drain);

    worker_claim(&a, 0);
    worker_claim(&b, 1);
}


static void
close_all(void)
{
    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);
    zone_free();
}


static int
start(void **state)
{
    if (setup(state) != 0) {
        return -1;
    }

    snprintf(second, sizeof(second), "%s/b.jsonl", dir);
    open_all(4, 256 * KIB);

    return 0;
}


static int
stop(void **state)
{
    close_all();

    return teardown(state);
}


static void
restart(uint32_t nrings, uint64_t ring_size)
{
    close_all();
    open_all(nrings, ring_size);
}


static void
successor(void)
{
    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);

    writer = drain_writer();
    drain = drain_over(writer);
    assert_non_null(drain);
}


#define assert_counted(name, n)  assert_int_equal(counted(C(name)), n)


/* moved uploads, as the zone tells a successor */

static unsigned
moved(void)
{
    uint32_t  i;
    unsigned  n;

    for (n = 0, i = 0; i < NGX_HTTP_LLM_CAPTURE_CHAINS; i++) {
        n += atomic_load(&ngx_http_llm_capture_zone_chain(&zone, i)->state)
             != NGX_HTTP_LLM_CAPTURE_CHAIN_FREE;
    }

    return n;
}


/* others, as many bytes; none may be dropped */

static unsigned
traffic_of(worker_t *w, size_t bytes)
{
    size_t    n;
    unsigned  sent;
    char      body[2100];

    memset(body, ' ', sizeof(body));
    memcpy(body, "{\"f\":1}", 7);

    for (n = 0, sent = 0; n < bytes; n += 2000, sent++) {
        assert_int_equal(worker_send(w, second, MOON, 5000, body, 2000), 0);

        if (sent % 8 == 7) {
            drain_pass(drain);
        }
    }

    drain_all(drain);

    return sent;
}


/* the file holds these bodies, in any order, each once, and nothing else */

static void
assert_bodies(const char *name, char **body, unsigned n)
{
    char      *got, *p, *end;
    unsigned   i, seen;
    uint8_t   *found;

    got = slurp(name, NULL);
    assert_non_null(got);
    found = calloc(n, 1);

    for (p = got, seen = 0; *p; p = end + 1, seen++) {
        end = strchr(p, '\n');
        assert_non_null(end);
        p = strstr(p, "\"payload\":");
        assert_true(p && p < end);
        p += strlen("\"payload\":");

        assert_int_equal(strncmp(p, "{\"n\":", 5), 0);
        i = (unsigned) atoi(p + 5);
        assert_true(i < n && !found[i]);
        found[i] = 1;

        assert_int_equal(end - p, strlen(body[i]) + 1);
        assert_memory_equal(p, body[i], strlen(body[i]));
    }

    assert_int_equal(seen, n);
    free(found);
    free(got);
}


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


/* the place where a body ends in its blocks, and space across their edges */

static void
edges(void **state)
{
    char      *body;
    size_t     extra, n, lead, trail, cut;
    int        d;
    unsigned   k;
    record_t   rec;

    (void) state;

    extra = sizeof(ngx_http_llm_capture_begin_t) + strlen(path);

    for (k = 1; k <= 3; k++) {
        for (d = -2; d <= 2; d++) {
            for (lead = 0; lead <= 1; lead++) {
                n = k * BLOCK - extra + (size_t) (long) d;
                body = malloc(n);
                memset(body, ' ', n);

                /* white space over a whole block and more, or next to none */
                cut = lead ? n - 20 : 1;
                trail = lead ? 0 : 20000 < n ? 20000 : n - 20;
                memcpy(body + cut, "{\"a\":1}", 7);

                if (trail == 0) {
                    memcpy(body + n - 7, ",\"b\":2}", 7);
                    body[cut + 6] = ' ';
                } else if (trail < n - 20) {
                    body[n - trail] = '\0';
                    memset(body + 8, ' ', n - 8 - trail);
                    body[7] = ' ';
                    body[n - trail] = '}';
                }

                worker_begin(&a, &rec, path, MOON, 500);
                assert_int_equal(worker_put(&a, &rec, body, n / 2, 0), 0);
                (void) traffic_of(&a, 160 * KIB);
                assert_int_equal(moved(), 1);
                assert_int_equal(worker_put(&a, &rec, body + n / 2,
                                            n - n / 2, 0), 0);
                drain_all(drain);
                assert_int_equal(worker_put(&a, &rec, NULL, 0, END), 0);
                drain_all(drain);
                assert_int_equal(moved(), 0);

                {
                    char    *got, *want;
                    size_t   from, to;

                    from = strspn(body, " ");

                    for (to = n; body[to - 1] == ' '; to--) { /* void */ }

                    want = malloc(n + 100);
                    sprintf(want, HEAD "%.*s}\n", (int) (to - from),
                            body + from);
                    got = slurp(path, NULL);
                    assert_non_null(got);
                    assert_string_equal(got, want);
                    free(got);
                    free(want);
                }

                assert_int_equal(unlink(path), 0);
                free(body);
            }
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


#define DRAIN(name)  cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(one_slow),
        DRAIN(slow_behind_front),
        DRAIN(edges),
        DRAIN(five_hundred),
        DRAIN(arena_full),
        DRAIN(one_too_many),
        DRAIN(handed_over),
        DRAIN(waiting),
        DRAIN(waiting_many),
        DRAIN(ended_otherwise),
        DRAIN(spoiled_chains)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
