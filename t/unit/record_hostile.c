
/*
 * Copyright (C) the llm-capture authors
 */

/* the sizes of records, and frames that an enemy wrote */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "record_util.h"


/* record_size() is never too little, seldom much too much */

static void
test_size(void **state)
{
    int                             i;
    ring_t                          t;
    size_t                          len, calls, k, n, used, size;
    uint64_t                        seed;
    ngx_http_llm_capture_record_t   rec;

    (void) state;

    ring_make(&t, 65536);
    seed = 31337;

    for (i = 0; i < 20000; i++) {
        ring_at(&t, 1, rnd(&seed) % 2049);
        make(&rec, i, 1 + rnd(&seed) % 100);
        len = rnd(&seed) % 20000;
        calls = 1 + rnd(&seed) % 20;

        used = ngx_http_llm_capture_ring_room(&t.p);

        for (k = 1; k <= calls; k++) {
            n = k == calls ? len - rec.off : rnd(&seed) % (len - rec.off + 1);
            assert_int_equal(put(&t, &rec, n, k == calls ? END : 0), 0);
        }

        used -= ngx_http_llm_capture_ring_room(&t.p);
        size = ngx_http_llm_capture_record_size(len, rec.begin.path_len, calls);

        assert_in_range(used, 1, size);
        assert_true(size - used <= (calls + 2) * 2 * UNIT + UNIT);
    }

    ring_free(&t);
}


/*
 * A ring that holds the largest record and 64 KiB more takes it when empty,
 * wherever its head stands, with the longest path, in nginx's buffers of 16k.
 */

static void
test_largest(void **state)
{
    ring_t                          t;
    size_t                          max, n;
    uint32_t                        off;
    ngx_http_llm_capture_record_t   rec;

    (void) state;

    max = 200000;
    ring_make(&t, (max + 65536 + 4095) / 4096 * 4096);

    for (off = 0; off <= U(t.size); off += off < 300 || off > U(t.size) - 300
                                           ? 1 : 37)
    {
        ring_at(&t, 1, off);
        make(&rec, off, sizeof(path) - 1);

        for (n = 16384; n != 0; ) {
            n = max - rec.off < n ? max - rec.off : n;
            assert_int_equal(put(&t, &rec, n, n ? 0 : END), 0);
        }

        ngx_http_llm_capture_ring_publish(&t.p);
        get(&t, rec.id, max, sizeof(path) - 1);
    }

    ring_free(&t);
}


/* whatever the frame says, what parse lets through lies within it */

static void
test_hostile(void **state)
{
    int                            i, rc, good;
    ring_t                         t;
    uint8_t                       *at;
    uint32_t                       size, body, k;
    uint64_t                       seed;
    const char                    *p;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_begin_t   b;

    (void) state;

    ring_make(&t, 8192);
    seed = 777;
    good = 0;

    for (i = 0; i < 400000; i++) {

        /* the frame ends where memory ends */

        size = (1 + rnd(&seed) % (i % 8 ? 10 : 256)) * UNIT;
        at = t.data + t.size - size;

        for (k = 0; k < size && k < 160; k++) {
            at[k] = (uint8_t) rnd(&seed);
        }

        memcpy(&f, at, sizeof(f));
        f.size = size;
        f.len %= rnd(&seed) % 4 ? size - UNIT + 1 : 0xffffffff;
        f.off = rnd(&seed) % 8 ? 0 : f.off;

        memcpy(&b, at + UNIT, size > 2 * UNIT ? sizeof(b) : 0);
        b.path_len %= rnd(&seed) % 8 ? size : 0xffff;
        b.format %= rnd(&seed) % 8 ? NGX_HTTP_LLM_CAPTURE_FORMATS : 255;

        if (size > 2 * UNIT) {
            memcpy(at + UNIT, &b, sizeof(b));
        }

        memset(&b, 0, sizeof(b));
        p = NULL;

        rc = ngx_http_llm_capture_record_parse(at, &f, &b, &p, &body);
        assert_true(rc == 0 || rc == -1);

        if (rc == -1) {
            continue;
        }

        good++;
        assert_true(body <= size && f.len <= size - body);

        if (f.flags & BEGIN) {
            assert_true(f.off == 0 && b.path_len > 0
                        && b.path_len < NGX_HTTP_LLM_CAPTURE_PATH
                        && b.format <= NGX_HTTP_LLM_CAPTURE_OUTCOMES
                        && (const uint8_t *) p + b.path_len + b.session_len
                            == at + body);
        }
    }

    assert_in_range(good, 10000, 390000);

    ring_free(&t);
}


/* each thing that parse refuses, alone */

static void
test_refused(void **state)
{
    ring_t                         t;
    uint32_t                       body;
    const char                    *p;
    ngx_http_llm_capture_frame_t   f, c;
    ngx_http_llm_capture_begin_t   b, *in;
    ngx_http_llm_capture_record_t  rec;

    (void) state;

#define parse(f)  ngx_http_llm_capture_record_parse(t.data, f, &b, &p, &body)

    ring_make(&t, 4096);
    ring_at(&t, 1, 0);
    make(&rec, 1, 33);
    assert_int_equal(put(&t, &rec, 47, END), 0);

    memcpy(&f, t.data, sizeof(f));
    in = (ngx_http_llm_capture_begin_t *) (t.data + UNIT);
    assert_int_equal(parse(&f), 0);
    assert_int_equal(body, 32 + 48 + 33);
    assert_int_equal(f.size, 160);

    c = f, c.size = 32;
    assert_int_equal(parse(&c), -1);
    c = f, c.size = 96;
    assert_int_equal(parse(&c), -1);
    c = f, c.len++;
    assert_int_equal(parse(&c), -1);
    c = f, c.len = 0xffffffff;
    assert_int_equal(parse(&c), -1);
    c = f, c.off = 1;
    assert_int_equal(parse(&c), -1);
    c = f, c.flags = END;
    assert_int_equal(parse(&c), 0);
    assert_int_equal(body, 32);

    in->path_len = 0;
    assert_int_equal(parse(&f), -1);
    in->path_len = 33 + 1;
    assert_int_equal(parse(&f), -1);
    in->path_len = 0xffff;
    assert_int_equal(parse(&f), -1);
    in->path_len = NGX_HTTP_LLM_CAPTURE_PATH;
    c = f, c.size = 65536;
    assert_int_equal(parse(&c), -1);
    in->path_len = NGX_HTTP_LLM_CAPTURE_PATH - 1;
    assert_int_equal(parse(&c), 0);
    in->path_len = 33;
    in->session_len = 1;
    assert_int_equal(parse(&f), -1);
    in->session_len = NGX_HTTP_LLM_CAPTURE_SPEC + 1;
    assert_int_equal(parse(&c), -1);
    in->session_len = NGX_HTTP_LLM_CAPTURE_SPEC;
    assert_int_equal(parse(&c), 0);
    in->session_len = 0;
    in->format = NGX_HTTP_LLM_CAPTURE_FORMATS;
    assert_int_equal(parse(&f), -1);

    ring_free(&t);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("record hostile", tests, NULL, NULL);
}
