
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper's loop from the rings to the files: what is written, in which
 * order, what is counted, and what goes back to the rings.
 */

#include "zone_util.h"


#define HEAD  "{\"timestamp\":0,\"payload\":"

static char      second[160];
static writer_t *writer;
static drain_t  *drain;
static worker_t  a, b;


static int
start(void **state)
{
    if (setup(state) != 0) {
        return -1;
    }

    snprintf(second, sizeof(second), "%s/b.jsonl", dir);

    zone_make(4, 256 * KIB);

    writer = drain_writer();
    drain = drain_over(writer);

    worker_claim(&a, 0);
    worker_claim(&b, 1);

    return drain ? 0 : -1;
}


static int
stop(void **state)
{
    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);
    zone_free();

    return teardown(state);
}


/* another size of rings */

static void
restart(uint32_t nrings, uint64_t ring_size)
{
    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);
    zone_free();

    zone_make(nrings, ring_size);

    writer = drain_writer();
    drain = drain_over(writer);
    assert_non_null(drain);

    worker_claim(&a, 0);

    if (nrings > 1) {
        worker_claim(&b, 1);
    }
}


/* the helper goes without a word, and another one comes */

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

    assert_counted(recorded, 2);
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

    fault.writes = 0;
    assert_int_equal(drain_pass(drain), n);
    assert_int_equal(drain_pass(drain), 0);

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


/* a directory that cannot be written holds nobody else, and then is one */

static void
unwritable(void **state)
{
    unsigned  i, n;
    char      body[600];

    (void) state;

    broken.name = "b.jsonl";
    broken.open_errno = EACCES;

    worker_text(&a, second, 1, "{\"b\":1}");
    worker_text(&a, path, 2, "{\"a\":1}");
    drain_all(drain);

    assert_counted(recorded, 1);
    assert_true(counted(C(write_errors)) >= 1);
    assert_int_equal(pending(), 1);
    assert_int_equal(ngx_http_llm_capture_drain_due(drain), now + 10);

    /* before its time nothing is tried; at it, it is */

    fault.opens = 0;
    now += 9;
    drain_all(drain);
    assert_counted(write_errors, 1);
    now += 1;
    drain_all(drain);
    assert_counted(write_errors, 2);

    /* kept while it pins less than half of the ring, then dropped */

    for (n = 0; counted(C(failed)) == 0 && n < 5000; n++) {
        snprintf(body, sizeof(body), "{\"b\":\"%0*u\"}", 500, n);
        assert_int_equal(worker_text(&a, second, 10 + n, body), 0);
        assert_int_equal(worker_text(&a, path, 10 + n, body), 0);

        if (n % 10 == 0) {
            drain_pass(drain);
        }
    }

    assert_true(n > 100 && n < 130);
    assert_true(counted(C(recorded)) >= n - 10);

    for (i = 0; i < 1000; i++) {
        worker_text(&b, path, 10 + n + i, "{\"a\":2}");
        assert_int_equal(worker_text(&a, second, 10 + n + i, body), 0);
        drain_pass(drain);
    }

    assert_true(counted(C(failed)) > 800);
    assert_counted(queue_full, 0);
    assert_int_equal(lines_with("cannot open"), 1);

    /* a successor keeps what was kept */

    successor();
    n = (unsigned) pending();
    assert_true(n > 50);
    drain_all(drain);
    assert_int_equal(pending(), n);

    /* mended: what is left is written, in order */

    broken.name = NULL;
    now += 1000;
    drain_all(drain);
    assert_int_equal(pending(), 0);

    {
        char        *got, *p;
        uint64_t     t, last;

        got = slurp(second, NULL);
        last = 0;
        i = 0;

        for (p = got; *p; p = strchr(p, '\n') + 1) {
            t = strtoull(p + strlen("{\"timestamp\":"), NULL, 10);
            assert_true(t >= last);
            last = t;
            i++;
        }

        free(got);
        assert_int_equal(i, n);
    }
}


/* a full disk under one file; the other one goes on */

static void
full_disk(void **state)
{
    unsigned  i;

    (void) state;

    worker_text(&a, second, 1, "{\"b\":0}");
    drain_all(drain);

    broken.name = "b.jsonl";
    broken.write_errno = ENOSPC;

    for (i = 0; i < 50; i++) {
        worker_text(&a, second, 2 + i, "{\"b\":1}");
        worker_text(&a, path, 2 + i, "{\"a\":1}");
        now += 100;
        drain_pass(drain);
    }

    assert_counted(recorded, 51);
    assert_counted(failed, 0);
    assert_int_equal(pending(), 50);
    assert_int_equal(lines_with("cannot write"), 1);
    assert_true(ngx_http_llm_capture_drain_due(drain) <= now + 1000);

    now += 60000;
    drain_pass(drain);
    assert_int_equal(lines_with("cannot write"), 2);

    broken.name = NULL;
    now += 1000;
    drain_all(drain);
    assert_counted(recorded, 101);
    assert_int_equal(pending(), 0);
}


/* short writes: what went in counts, the rest follows, no line is torn */

static void
short_disk(void **state)
{
    char      want[4096], *p;
    unsigned  i;

    (void) state;

    for (p = want, i = 0; i < 20; i++) {
        worker_text(&a, path, 100 + i, "{\"a\":\"0123456789\"}");
        p += sprintf(p, "{\"timestamp\":%u,\"payload\":"
                     "{\"a\":\"0123456789\"}}\n", i);
    }

    fault.lines_only = 1;
    fault.write_errno = ENOSPC;
    fault.write_bytes = 333;
    drain_all(drain);

    assert_true(counted(C(recorded)) > 3 && counted(C(recorded)) < 10);
    assert_int_equal(pending(), 20 - counted(C(recorded)));
    assert_counted(write_errors, 1);

    fault.write_bytes = -1;
    fault.write_chunk = 7;
    now += 10;
    drain_all(drain);

    assert_counted(recorded, 20);
    assert_file(path, want);
}


/* what can never be written is counted at once, and others go on */

static void
hopeless(void **state)
{
    (void) state;

    assert_int_equal(mkdir(second, 0700), 0);

    worker_text(&a, second, 1, "{\"b\":1}");
    worker_text(&a, second, 1, "{\"b\":1}");
    worker_text(&a, path, 2, "{\"a\":1}");
    drain_all(drain);

    assert_counted(failed, 2);
    assert_counted(recorded, 1);
    assert_counted(write_errors, 1);
    assert_int_equal(pending(), 0);

    assert_int_equal(rmdir(second), 0);
    worker_text(&a, second, 3, "{\"b\":1}");
    drain_all(drain);
    assert_counted(recorded, 2);
}


static void
bad_path(void **state)
{
    unsigned  i;
    char      name[200];

    (void) state;

    worker_text(&a, "relative", 1, "{\"a\":1}");
    drain_all(drain);
    assert_counted(bad_path, 1);

    /* nobody opens what is full of refused bodies */

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_FILES; i++) {
        snprintf(name, sizeof(name), "%s/%u", dir, i);
        worker_text(&a, name, 1, "[]");

        if (i % 100 == 0) {
            drain_pass(drain);
        }
    }

    drain_all(drain);
    assert_counted(invalid_not_object, NGX_HTTP_LLM_CAPTURE_FILES);
    assert_counted(bad_path, 1);

    worker_text(&a, path, 1, "{\"a\":1}");
    drain_all(drain);
    assert_counted(bad_path, 2);

    snprintf(name, sizeof(name), "%s/7", dir);
    worker_text(&a, name, 1, "{\"a\":1}");
    drain_all(drain);
    assert_counted(recorded, 1);
    assert_counted(bad_path, 2);
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
    assert_true(ngx_http_llm_capture_drain_due(drain) != 0);
    assert_true(ngx_http_llm_capture_drain_due(drain) <= now + 10000);

    now += 9999;
    worker_text(&a, path, 2, "{\"a\":1}");
    drain_all(drain);
    assert_true(is_resident(2 * MIB, 9 * MIB) > 1700);

    now = ngx_http_llm_capture_drain_due(drain);
    drain_pass(drain);
    now = ngx_http_llm_capture_drain_due(drain) ?: now;
    drain_pass(drain);
    assert_int_equal(is_resident(2 * MIB, 16 * MIB), 0);
    assert_true(is_resident(0, 2 * MIB) > 400);
    assert_int_equal(ngx_http_llm_capture_drain_due(drain), 0);

    /* and the ring is as good as before */

    for (i = 0; i < 14; i++) {
        assert_int_equal(worker_text(&a, path, 3, body), 0);
    }

    drain_all(drain);
    assert_counted(recorded, 26);
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

    assert_int_equal(is_resident(2 * MIB, 16 * MIB), 0);
    assert_int_equal(ngx_http_llm_capture_drain_due(drain), 0);
    free(body);
}


static void
warnings(void **state)
{
    unsigned  i;

    (void) state;

    for (i = 0; i < 100; i++) {
        worker_text(&a, path, 1, "{\"" CANARY "\":}");
        worker_text(&a, path, 1, "[\"" CANARY "\"]");
        worker_seen(&b, MOON);
        worker_refuse(&b, MOON, C(sampled_out));
        worker_seen(&b, MOON);
        worker_refuse(&b, MOON, C(unmatched));
        drain_pass(drain);
        now += 10;
    }

    assert_int_equal(lines_with("invalid_json"), 1);
    assert_int_equal(lines_with("invalid_not_object"), 1);
    assert_int_equal(lines.n, 2);
    assert_int_equal(lines_with("1 requests not recorded: invalid_json"), 1);
    assert_int_equal(lines.level[0], LOG_WARNING);

    /* the rest is told of when a minute is over */

    now = ngx_http_llm_capture_drain_due(drain);
    assert_int_equal(now, 1060000);
    drain_pass(drain);
    assert_int_equal(lines.n, 4);
    assert_int_equal(lines_with("99 requests not recorded: invalid_json "
                                "(100 in all)"), 1);
    assert_int_equal(ngx_http_llm_capture_drain_due(drain), 0);

    /* what a predecessor told is not told again */

    successor();
    now += 120000;
    drain_pass(drain);
    assert_int_equal(lines.n, 4);

    worker_seen(&b, MOON);
    worker_refuse(&b, MOON, C(queue_full));
    drain_pass(drain);
    assert_int_equal(lines_with("queue_full"), 1);
    assert_int_equal(lines.content, 0);
}


/* the limit at exit */

static void
lose(void **state)
{
    record_t  rec;

    (void) state;

    broken.name = "b.jsonl";
    broken.open_errno = EACCES;

    worker_begin(&a, &rec, path, MOON, 1);
    worker_put(&a, &rec, "{\"a\":1", 6, 0);
    worker_text(&a, second, 1, "{\"b\":1}");
    worker_text(&b, second, 1, "{\"b\":1}");
    worker_text(&b, path, 1, "{\"a\":1}");
    drain_all(drain);
    assert_int_equal(ngx_http_llm_capture_drain_pending(drain), 3);

    /* one that no pass has met */

    worker_text(&b, path, 1, "{\"a\":2}");

    assert_int_equal(ngx_http_llm_capture_drain_lose(drain), 4);
    assert_int_equal(pending(), 0);
    assert_counted(lost, 4);
    assert_counted(recorded, 1);
    assert_int_equal(ngx_http_llm_capture_drain_pending(drain), 0);

    /* nobody finds them again */

    broken.name = NULL;
    successor();
    now += 5000;
    drain_all(drain);
    assert_counted(lost, 4);
    assert_counted(recorded, 1);
    assert_null(slurp(second, NULL));

    /* the rest of the one that was under way */

    worker_put(&a, &rec, "}", 1, END);
    drain_all(drain);
    assert_counted(recorded, 1);
    assert_int_equal(pending(), 0);
}


/* a ring that a worker spoiled: lost and counted; the others go on */

static void
spoiled(void **state)
{
    record_t  rec;

    (void) state;

    worker_text(&a, path, 1, "{\"a\":1}");
    worker_begin(&a, &rec, path, MOON, 2);
    worker_put(&a, &rec, "{\"a\":2", 6, 0);
    drain_all(drain);

    worker_text(&a, path, 3, "{\"a\":3}");
    /* the header of that one */
    memset(ngx_http_llm_capture_zone_data(&zone, 0)
           + (atomic_load(&hdr_of(0)->head) - 4) % (1ULL << 32) * 32, 0xee,
           4 * 32);
    worker_text(&a, path, 4, "{\"a\":4}");
    worker_text(&b, path, 5, "{\"a\":5}");

    (void) ngx_http_llm_capture_drain_pass(drain, now);
    (void) ngx_http_llm_capture_drain_pass(drain, now);
    assert_counted(recorded, 2);
    assert_counted(lost, 1);
    assert_int_equal(pending(), 2);
    assert_int_equal(lines_with("ring 0 holds"), 1);

    dead[0] = 1;
    ngx_http_llm_capture_drain_owners(drain);
    drain_pass(drain);
    assert_counted(lost, 3);
    assert_int_equal(pending(), 0);

    worker_claim(&a, 0);
    worker_text(&a, path, 6, "{\"a\":6}");
    drain_all(drain);
    assert_counted(recorded, 3);
}


#define DRAIN(name)  cmocka_unit_test_setup_teardown(name, start, stop)

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
        DRAIN(many_frames),
        DRAIN(sums),
        DRAIN(closed),
        DRAIN(died),
        DRAIN(died_deciding),
        DRAIN(laps),
        DRAIN(unwritable),
        DRAIN(full_disk),
        DRAIN(short_disk),
        DRAIN(hopeless),
        DRAIN(bad_path),
        DRAIN(give_back),
        DRAIN(give_back_freed),
        DRAIN(warnings),
        DRAIN(lose),
        DRAIN(spoiled)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
