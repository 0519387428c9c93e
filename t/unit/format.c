
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the lines of a batch as iovecs.
 */

#include "files.h"


static ngx_http_llm_capture_lines_t  lines;
static uint64_t                      id, session;


/* what the iovecs say, taken in steps of so many iovecs and bytes */

static size_t
collect(char *to, int max, size_t step)
{
    int                            i, n;
    size_t                         len, part, left;
    struct iovec                   iov[IOV_MAX];
    ngx_http_llm_capture_cursor_t  c;

    memset(&c, 0, sizeof(c));
    len = 0;

    while ((n = ngx_http_llm_capture_lines_iov(&lines, &c, iov, max)) > 0) {
        assert_true(n <= max);
        left = step;

        for (i = 0; i < n && left; i++) {
            assert_int_not_equal(iov[i].iov_len, 0);
            part = iov[i].iov_len < left ? iov[i].iov_len : left;
            memcpy(to + len, iov[i].iov_base, part);
            len += part;
            left -= part;
        }

        ngx_http_llm_capture_lines_advance(&lines, &c, step - left);
    }

    return len;
}


static void
one(unsigned format, uint64_t ts, const char *body, const char *want)
{
    char          got[256];
    size_t        len;
    line_t        line;
    struct iovec  iov;

    set_line(&line, &iov, body, 0, 0);
    line.ts = ts;
    line.uid = id;
    line.session = session;
    ngx_http_llm_capture_lines_set(&lines, format, &line, 1);

    len = collect(got, IOV_MAX, sizeof(got));
    got[len] = '\0';

    assert_string_equal(got, want);
    assert_int_equal(lines.total, strlen(want));
    assert_int_equal(line.len, strlen(body));
}


static void
test_exact(void **state)
{
    (void) state;

    one(MOON, 0, "{\"a\":1}", "{\"timestamp\":0,\"payload\":{\"a\":1}}\n");
    one(MOON, 1234567890, "{\"a\":[]}",
        "{\"timestamp\":1234567890,\"payload\":{\"a\":[]}}\n");
    one(MOON, UINT64_MAX, "{}",
        "{\"timestamp\":18446744073709551615,\"payload\":{}}\n");
    id = 0x0123456789abcdef;
    one(MOON, 3, "{}",
        "{\"timestamp\":3,\"id\":\"0123456789abcdef\",\"payload\":{}}\n");
    session = 1;
    one(MOON, UINT64_MAX, "{}",
        "{\"timestamp\":18446744073709551615,\"id\":\"0123456789abcdef\","
        "\"session_id\":\"0000000000000001\",\"payload\":{}}\n");
    one(RAW, 7, "{}", "{}\n");
    id = 0;
    one(MOON, 4, "{}",
        "{\"timestamp\":4,\"session_id\":\"0000000000000001\","
        "\"payload\":{}}\n");
    session = 0;
    one(RAW, 7, "{\"messages\":[]}", "{\"messages\":[]}\n");
}


/* three lines: in two iovecs, in one, in three of which one is empty */

static char  three[] =
    "{\"timestamp\":5,\"payload\":{\"a\":1}}\n"
    "{\"timestamp\":60,\"payload\":{}}\n"
    "{\"timestamp\":700,\"payload\":{\"bc\":23}}\n";

static char  three_raw[] = "{\"a\":1}\n{}\n{\"bc\":23}\n";

static line_t        line3[3];
static struct iovec  iov3[6];


static void
set_three(unsigned format)
{
    static char  *text[] = { "{\"a\"", ":1}", "{}", "{\"bc\":", "", "23}" };
    unsigned      i;

    memset(line3, 0, sizeof(line3));

    for (i = 0; i < 6; i++) {
        iov3[i].iov_base = text[i];
        iov3[i].iov_len = strlen(text[i]);
    }

    line3[0].body = iov3;
    line3[0].nbody = 2;
    line3[0].ts = 5;
    line3[1].body = iov3 + 2;
    line3[1].nbody = 1;
    line3[1].ts = 60;
    line3[2].body = iov3 + 3;
    line3[2].nbody = 3;
    line3[2].ts = 700;

    ngx_http_llm_capture_lines_set(&lines, format, line3, 3);
}


static void
every_step(unsigned format, const char *want)
{
    int     max;
    char    got[256];
    size_t  step, len;

    set_three(format);
    assert_int_equal(lines.total, strlen(want));

    for (max = 1; max < 12; max++) {
        for (step = 1; step <= strlen(want) + 1; step++) {
            len = collect(got, max, step);
            assert_int_equal(len, strlen(want));
            assert_memory_equal(got, want, len);
        }
    }
}


static void
test_steps(void **state)
{
    (void) state;

    every_step(MOON, three);
    every_step(RAW, three_raw);
}


static void
test_whole(void **state)
{
    size_t    n, ends;
    uint64_t  whole;
    unsigned  k, lf;

    (void) state;

    set_three(MOON);

    for (n = 0; n < sizeof(three); n++) {

        for (lf = 0, ends = 0, k = 0; k < n; k++) {
            if (three[k] == '\n') {
                lf++;
                ends = k + 1;
            }
        }

        assert_int_equal(ngx_http_llm_capture_lines_whole(&lines, n, &whole),
                         lf);
        assert_int_equal(whole, ends);
    }
}


/* one record of thousands of frames, and a full batch */

static void
test_many(void **state)
{
    static struct iovec  iov[5000];
    static line_t        line[NGX_HTTP_LLM_CAPTURE_BATCH];
    static char          got[65536];
    unsigned             i;
    size_t               len;

    (void) state;

    for (i = 0; i < 5000; i++) {
        iov[i].iov_base = "x";
        iov[i].iov_len = 1;
    }

    memset(line, 0, sizeof(line));
    line[0].body = iov;
    line[0].nbody = 5000;
    ngx_http_llm_capture_lines_set(&lines, RAW, line, 1);

    assert_int_equal(collect(got, IOV_MAX, SIZE_MAX), 5001);
    assert_int_equal(got[5000], '\n');

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_BATCH; i++) {
        line[i].body = iov;
        line[i].nbody = 1;
        line[i].ts = i;
    }

    ngx_http_llm_capture_lines_set(&lines, MOON, line,
                                   NGX_HTTP_LLM_CAPTURE_BATCH);
    len = collect(got, 7, 13);
    assert_int_equal(len, lines.total);
    got[len] = '\0';
    assert_non_null(strstr(got, "x}\n{\"timestamp\":511,\"payload\":x}\n"));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_many),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
