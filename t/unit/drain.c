
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper's loop from the rings to the files: what is written, byte by
 * byte, in which order, and what is refused.
 */

#include "drain_util.h"


static void
one_record(void **state)
{
    (void) state;

    assert_int_equal(drain_pass(drain), 0);

    worker_text(&a, path, 500, "{\"a\":1}");
    assert_int_equal(pending(), 1);

    assert_int_equal(drain_pass(drain), 1);
    assert_int_equal(drain_pass(drain), 0);

    assert_file(path, HEAD "{\"a\":1}}\n");
    assert_counted(recorded, 1);
    assert_counted(seen, 1);
    assert_counted(bytes, strlen(HEAD "{\"a\":1}}\n"));

    /* but for the manifest */

    assert_int_equal(ngx_http_llm_capture_drain_due(drain), now + 1000);
    now += 1000;
    assert_int_equal(drain_pass(drain), 0);
    assert_int_equal(ngx_http_llm_capture_drain_due(drain), 0);

    /* the ring is empty again */
    assert_int_equal(atomic_load(&hdr_of(0)->head),
                     atomic_load(&hdr_of(0)->tail));
}


static void
destinations(void **state)
{
    char  want[8192], raw[8192], *p, *r;

    (void) state;

    p = want;
    r = raw;

    for (unsigned i = 0; i < 100; i++) {
        worker_t *w = i % 2 ? &b : &a;
        char      body[64];

        snprintf(body, sizeof(body), "{\"i\": %u, \"messages\":[] }", i);

        if (i % 3) {
            worker_send(w, path, MOON, 1000 + i, body, strlen(body));
            p += sprintf(p, "{\"timestamp\":%u,\"payload\":%s}\n", i - 1,
                         body);
        } else {
            worker_send(w, second, RAW, 1000 + i, body, strlen(body));
            r += sprintf(r, "%s\n", body);
        }
    }

    drain_all(drain);

    assert_file(path, want);
    assert_file(second, raw);
    assert_counted(recorded, 100);
    assert_counted(bytes, strlen(want) + strlen(raw));

    /* each under the row of its template */
    assert_int_equal(ngx_http_llm_capture_zone_helper(&zone)[RAW]
                     .n[C(recorded)], 34);
    assert_int_equal(ngx_http_llm_capture_zone_helper(&zone)[MOON]
                     .n[C(recorded)], 66);
}


/* two formats at one path, and a hash that is in no table */

static void
shared_path(void **state)
{
    record_t  rec;

    (void) state;

    worker_text(&a, path, 10, "{\"a\":1}");
    worker_begin(&a, &rec, path, RAW, 11);
    rec.begin.hash = 12345;
    worker_put(&a, &rec, "{\"messages\":[]}", 15, END);

    drain_all(drain);

    /* a file takes rows of one format */

    assert_counted(recorded, 1);
    assert_counted(failed, 1);
    assert_int_equal(ngx_http_llm_capture_zone_helper(&zone)
                     [NGX_HTTP_LLM_CAPTURE_TEMPLATES].n[C(recorded)], 1);
}


static const char  spaced[] =
    " \r\n\t{ \"a\" :\r\n[1, 2],\n\"b\":\"\xc3\xa4\\n\" } \r\n ";

/* lead goes, the space inside the opening brace goes, CR and LF are spaces */
static const char  line[] =
    HEAD "{\"a\" :  [1, 2], \"b\":\"\xc3\xa4\\n\" }}\n";


static void
split_at(record_t *rec, const char *body, size_t from, size_t to, int pass)
{
    if (to > from) {
        assert_int_equal(worker_put(&a, rec, body + from, to - from, 0), 0);
    }

    if (pass && rec->begun) {
        drain_pass(drain);
    }
}


static void
splits(void **state)
{
    size_t    i, j, n;
    record_t  rec;
    uint64_t  total;

    (void) state;

    n = sizeof(spaced) - 1;
    total = 0;

    /* in three, at every two places, with the helper in between and not */

    for (i = 0; i <= n; i++) {
        for (j = i; j <= n; j++) {
            worker_begin(&a, &rec, path, MOON, 500);
            split_at(&rec, spaced, 0, i, (i + j) & 1);
            split_at(&rec, spaced, i, j, i & 1);

            assert_int_equal(worker_put(&a, &rec, spaced + j, n - j, END), 0);
            assert_int_equal(drain_pass(drain), 1);

            assert_file(path, line);
            assert_int_equal(truncate(path, 0), 0);
            total++;
        }
    }

    /* byte by byte, END alone */

    worker_begin(&a, &rec, path, MOON, 500);

    for (i = 0; i < n; i++) {
        split_at(&rec, spaced, i, i + 1, i % 3 == 0);
    }

    assert_int_equal(worker_put(&a, &rec, NULL, 0, END), 0);
    assert_int_equal(drain_pass(drain), 1);
    assert_file(path, line);

    assert_counted(recorded, total + 1);
}


static void
space(void **state)
{
    (void) state;

    worker_text(&a, path, 1, "\n\n{\"a\":1}");
    worker_text(&a, path, 1, "{\"a\":1}\r\n");
    worker_text(&a, path, 1, "{  \"a\":1}");
    worker_text(&a, path, 1, " { \"a\":1 } ");
    drain_all(drain);

    assert_file(path,
                HEAD "{\"a\":1}}\n" HEAD "{\"a\":1}}\n" HEAD "{\"a\":1}}\n"
                HEAD "{\"a\":1 }}\n");
}


static void
invalid(void **state)
{
    char      deep[4096];
    size_t    i;
    unsigned  n;

    static const struct {
        unsigned     why;
        unsigned     format;
        const char  *body;
    } bad[] = {
        { C(invalid_json), MOON, "{\"a\":1" },
        { C(invalid_json), MOON, "" },
        { C(invalid_json), MOON, "{\"a\":NaN}" },
        { C(invalid_json), MOON, "{\"a\":1}{}" },
        { C(invalid_utf8), MOON, "{\"a\":\"\xff\"}" },
        { C(invalid_utf8), MOON, "{\"a\":\"\\ud800\"}" },
        { C(invalid_number), MOON, "{\"a\":1e400}" },
        { C(invalid_not_object), MOON, "[1]" },
        { C(invalid_empty), MOON, " { } " },
        { C(invalid_no_messages), RAW, "{\"a\":1}" },
        { C(invalid_no_messages), RAW, "{\"messages\":{}}" },
    };

    (void) state;

    for (i = 0, n = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t  before = counted(bad[i].why);

        worker_send(&a, path, bad[i].format, 1, bad[i].body,
                    strlen(bad[i].body));
        assert_int_equal(drain_pass(drain), 1);
        assert_int_equal(counted(bad[i].why), before + 1);
        n++;
    }

    /* 1023 with the wrapper is all there may be; raw_payload has one more */

    memset(deep, '[', sizeof(deep));
    memcpy(deep, "{\"messages\":", 12);
    memset(deep + 12 + 1023, ']', 1023);
    deep[12 + 2046] = '}';

    worker_send(&a, path, MOON, 1, deep, 12 + 2046 + 1);
    drain_all(drain);
    assert_counted(invalid_depth, 1);
    assert_null(slurp(path, NULL));

    worker_send(&a, path, RAW, 1, deep, 12 + 2046 + 1);
    drain_all(drain);
    assert_counted(invalid_depth, 1);
    assert_counted(recorded, 1);

    assert_int_equal(counted(C(seen)), n + 2);
    assert_int_equal(pending(), 0);
}


static void
aborts(void **state)
{
    size_t    i;
    record_t  rec;

    static const unsigned  why[][2] = {
        { C(aborted), C(aborted) },
        { C(too_large), C(too_large) },
        { C(queue_full), C(queue_full) },
        { C(unreadable), C(unreadable) },
        /* nothing that a worker may say of a body that has begun */
        { C(recorded), C(aborted) },
        { C(bytes), C(aborted) },
        { 60000, C(aborted) }
    };

    (void) state;

    for (i = 0; i < sizeof(why) / sizeof(why[0]); i++) {
        uint64_t  before = counted(why[i][1]);

        worker_begin(&a, &rec, path, MOON, 1);
        worker_put(&a, &rec, "{\"a\":", 5, 0);

        if (i % 2) {
            drain_pass(drain);
        }

        worker_abort(&a, &rec, why[i][0]);
        assert_int_equal(drain_pass(drain), 1);
        assert_int_equal(counted(why[i][1]), before + 1);
    }

    assert_null(slurp(path, NULL));
    assert_int_equal(atomic_load(&hdr_of(0)->head),
                     atomic_load(&hdr_of(0)->tail));
}


/* by arrival, over rings; those of one ms by ring, then by id */

static void
order(void **state)
{
    char       want[65536], body[32], *p;
    unsigned   i, r;
    worker_t   w[4];

    (void) state;

    w[0] = a;
    w[1] = b;
    worker_claim(&w[2], 2);
    worker_claim(&w[3], 3);

    /* each ring holds its own out of order: uploads end as they like */

    for (r = 4; r-- > 0; /* void */) {
        for (i = 0; i < 100; i++) {
            snprintf(body, sizeof(body), "{\"r\":%u,\"i\":%u}", r, i ^ 3);
            worker_text(&w[r], path, 1000 + 2 * (i ^ 3) + r / 2, body);
        }
    }

    drain_all(drain);

    p = want;

    for (i = 0; i < 200; i++) {
        for (r = i % 2 * 2; r < i % 2 * 2 + 2; r++) {
            p += sprintf(p, "{\"timestamp\":%u,\"payload\":{\"r\":%u,"
                         "\"i\":%u}}\n", i, r, i / 2);
        }
    }

    assert_file(path, want);

    a = w[0];
    b = w[1];
}


/* the earliest arrival counts as 0, though it ends last */

static void
epoch(void **state)
{
    record_t  rec;

    (void) state;

    worker_begin(&a, &rec, path, MOON, 400);
    worker_put(&a, &rec, "{\"a\":1", 6, 0);
    worker_text(&a, path, 500, "{\"b\":1}");
    drain_all(drain);
    worker_put(&a, &rec, "}", 1, END);
    drain_all(drain);

    assert_file(path, "{\"timestamp\":100,\"payload\":{\"b\":1}}\n"
                      "{\"timestamp\":0,\"payload\":{\"a\":1}}\n");
}


static void
many_lines(void **state)
{
    char      body[32], *got, *p;
    unsigned  i, n;

    (void) state;

    /* more than two batches of 512 */

    n = 1500;

    for (i = 0; i < n; i++) {
        snprintf(body, sizeof(body), "{\"i\":%u}", i);
        assert_int_equal(worker_text(&a, path, 1000 + i, body), 0);
    }

    assert_int_equal(drain_pass(drain), n);
    assert_int_equal(drain_pass(drain), 0);

    /* the last batch is what was left of them */
    assert_int_equal(ngx_http_llm_capture_zone_intent(&zone)->nrefs,
                     n % NGX_HTTP_LLM_CAPTURE_BATCH);

    got = slurp(path, NULL);
    p = got;

    for (i = 0; i < n; i++) {
        char  want[64];
        int   len = sprintf(want, "{\"timestamp\":%u,\"payload\":{\"i\":%u}}\n",
                            i, i);

        assert_memory_equal(p, want, (size_t) len);
        p += len;
    }

    assert_int_equal(*p, '\0');
    free(got);
}


static void
many_bytes(void **state)
{
    char    *body[6], *got, *p;
    size_t   i;

    (void) state;

    /* six of 1.5 MiB: two to a batch of 4 MiB */

    restart(1, 16 * MIB);

    for (i = 0; i < 6; i++) {
        body[i] = body_of((unsigned) i, 3 * MIB / 2);
        assert_int_equal(worker_text(&a, path, 1000 + i, body[i]), 0);
    }

    assert_int_equal(drain_pass(drain), 6);
    assert_int_equal(ngx_http_llm_capture_zone_intent(&zone)->nrefs, 2);

    got = slurp(path, NULL);
    p = got;

    for (i = 0; i < 6; i++) {
        p += strlen(HEAD);
        assert_memory_equal(p, body[i], 3 * MIB / 2);
        p += 3 * MIB / 2 + 2;
        free(body[i]);
    }

    assert_int_equal(*p, '\0');
    free(got);
}


/* larger than a batch, of more frames than a writev() takes */

static void
many_frames(void **state)
{
    char       *body, *got;
    size_t      n, at, part;
    uint64_t    seed;
    record_t    rec;

    (void) state;

    restart(1, 16 * MIB);

    n = 5 * MIB + 17;
    body = body_of(7, n);
    seed = 1;

    worker_begin(&a, &rec, path, MOON, 500);

    for (at = 0; at < n; at += part) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        part = 1 + (seed >> 33) % 2500;

        if (part > n - at) {
            part = n - at;
        }

        assert_int_equal(worker_put(&a, &rec, body + at, part,
                                    at + part == n ? END : 0), 0);
    }

    worker_text(&a, path, 501, "{\"a\":1}");

    assert_int_equal(drain_pass(drain), 2);
    assert_true(fault.max_iov == IOV_MAX);

    got = slurp(path, NULL);
    assert_memory_equal(got, HEAD, strlen(HEAD));
    assert_memory_equal(got + strlen(HEAD), body, n);
    assert_string_equal(got + strlen(HEAD) + n,
                        "}\n{\"timestamp\":1,\"payload\":{\"a\":1}}\n");
    free(got);
    free(body);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(one_record),
        DRAIN(destinations),
        DRAIN(shared_path),
        DRAIN(splits),
        DRAIN(space),
        DRAIN(invalid),
        DRAIN(aborts),
        DRAIN(order),
        DRAIN(epoch),
        DRAIN(many_lines),
        DRAIN(many_bytes),
        DRAIN(many_frames)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
