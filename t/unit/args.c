
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for values of the configuration: sizes, rates, NIM's object.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_args.h"


#define ALL   ((uint64_t) 1 << 32)
#define NIM   NGX_HTTP_LLM_CAPTURE_PATTERN


static ngx_http_llm_capture_args_t  args;
static char                         warnings[4096];
static unsigned                     nwarnings;


static void
warn(void *data, const char *text)
{
    const char  *p;

    assert_ptr_equal(data, &args);
    assert_in_range(strlen(text), 1, 511);

    for (p = text; *p; p++) {
        assert_in_range(*p, 0x20, 0x7e);
    }

    strcat(strcat(warnings, text), "\n");
    nwarnings++;
}


/* NULL: not a warning; else one that has the text in it */

static void
parse_n(const char *text, size_t len, const char *warning)
{
    char  *copy;

    /* what is read behind the end is seen by a sanitizer */

    copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);

    memset(&args, 0xff, sizeof(args));
    warnings[0] = '\0';
    nwarnings = 0;

    ngx_http_llm_capture_args_parse(&args, copy, len, warn, &args);
    free(copy);

    assert_int_equal(nwarnings, warning != NULL);

    if (warning && strstr(warnings, warning) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", warning, warnings);
    }
}


static void
parse(const char *text, const char *warning)
{
    parse_n(text, strlen(text), warning);
}


/* all as by default, but for those that a test names */

static void
assert_args(const char *path, int format, uint64_t request, uint64_t rate,
    const char *pattern, uint64_t queue)
{
    assert_int_equal(args.off, 0);
    assert_int_equal(args.bad_path, 0);

    assert_string_equal(args.path,
                        path ? path : "/opt/nim/captures/requests.jsonl");
    assert_int_equal(args.path_len, strlen(args.path));
    assert_int_equal(args.format, format);
    assert_true(args.max_request_bytes == (request ? request : 1048576));
    assert_true(args.sample_rate == rate);
    assert_string_equal(args.pattern, pattern ? pattern : NIM);
    assert_int_equal(args.pattern_len, strlen(args.pattern));
    assert_true(args.max_queue_bytes == (queue ? queue : 1073741824));

    ngx_http_llm_capture_args_free(&args);
}


static void
test_defaults(void **unused)
{
    (void) unused;

    parse("{}", NULL);
    assert_args(NULL, 0, 0, ALL, NULL, 0);

    parse(" \n{ }\n", NULL);
    assert_args(NULL, 0, 0, ALL, NULL, 0);
}


static void
test_keys(void **unused)
{
    (void) unused;

    parse("{\"path\": \"/captures/r.jsonl\", \"format\": \"raw_payload\","
          " \"max_request_bytes\": 65536, \"sample_rate\": 0.25,"
          " \"endpoint_pattern\": \"^/x\\\\d$\", \"max_queue_bytes\": 2e9}",
          NULL);
    assert_args("/captures/r.jsonl", 1, 65536, ALL / 4, "^/x\\d$", 2000000000);

    parse("{\"format\": \"mooncake_payload\", \"sample_rate\": 1}", NULL);
    assert_args(NULL, 0, 0, ALL, NULL, 0);

    parse("{\"sample_rate\": 0}", NULL);
    assert_args(NULL, 0, 0, 0, NULL, 0);

    parse("{\"sample_rate\": 1e-12}", NULL);
    assert_args(NULL, 0, 0, 1, NULL, 0);

    parse("{\"sample_rate\": 0.9999999999999999}", NULL);
    assert_args(NULL, 0, 0, ALL - 1, NULL, 0);

    /* no variables in NIM */
    parse("{\"path\": \"/a/$b.jsonl\"}", NULL);
    assert_args("/a/$b.jsonl", 0, 0, ALL, NULL, 0);
}


static void
test_bad_values(void **unused)
{
    char      text[256], warning[64];
    unsigned  i;

    static const struct {
        const char  *key;
        const char  *value;
    }  bad[] = {
        { "format", "\"jsonl\"" }, { "format", "\"\"" }, { "format", "1" },
        { "format", "null" }, { "format", "\"raw_payload\\u0000\"" },
        { "max_request_bytes", "0" }, { "max_request_bytes", "-1" },
        { "max_request_bytes", "1.5" }, { "max_request_bytes", "\"1m\"" },
        { "max_request_bytes", "true" }, { "max_request_bytes", "1073741825" },
        { "max_request_bytes", "123456789012345678901234567890" },
        { "max_request_bytes", "[1]" }, { "max_request_bytes", "null" },
        { "sample_rate", "-0.1" }, { "sample_rate", "1.0000001" },
        { "sample_rate", "2" }, { "sample_rate", "\"0.5\"" },
        { "sample_rate", "true" }, { "sample_rate", "{}" },
        { "endpoint_pattern", "\"\"" }, { "endpoint_pattern", "7" },
        { "endpoint_pattern", "[\"a\"]" },
        { "endpoint_pattern", "\"a\\u0000b\"" },
        { "max_queue_bytes", "0" }, { "max_queue_bytes", "-5" },
        { "max_queue_bytes", "1e300" }, { "max_queue_bytes", "\"1g\"" },
        { "max_queue_bytes", "1099511627777" },
        { "max_queue_bytes", "false" }
    };

    (void) unused;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "{\"%s\": %s}", bad[i].key, bad[i].value);
        snprintf(warning, sizeof(warning), " of \"%s\", it must be ",
                 bad[i].key);

        parse(text, warning);
        assert_args(NULL, 0, 0, ALL, NULL, 0);
    }

    /* the others hold */

    parse("{\"sample_rate\": 7, \"format\": \"raw_payload\"}",
          "invalid value 7.0 of \"sample_rate\", it must be a number from 0 to "
          "1; 1.0 is used");
    assert_args(NULL, 1, 0, ALL, NULL, 0);
}


static void
test_bad_path(void **unused)
{
    char      text[256];
    unsigned  i;

    static const char *const  bad[] = {
        "\"\"", "\"captures/r.jsonl\"", "\"/captures/\"", "\"/captures/..\"",
        "\"/a\\u0000b\"", "\"/a\\nb\"", "\"/a.epoch\"", "null", "1", "[]",
        "{\"a\": 1}"
    };

    (void) unused;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "{\"path\": %s}", bad[i]);
        parse(text, " of \"path\", it must be the absolute path");

        assert_int_equal(args.off, 0);
        assert_int_equal(args.bad_path, 1);
        ngx_http_llm_capture_args_free(&args);
    }
}


static void
test_off(void **unused)
{
    unsigned  i;

    static const char *const  bad[] = {
        "", " ", "{", "{\"path\": \"/a\"", "{'path': '/a'}", "{\"a\": 1,}",
        "{} x", "{\"sample_rate\": NaN}", "\xef\xbb\xbf{}",
        "{\"path\": \"/\xff\"}", "[]", "[{}]", "1", "\"{}\"", "null",
        "{\"sample_rate\": 1e999}", "{\"a\\u0000\": 1, }"
    };

    (void) unused;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        parse(bad[i], "; nothing is captured");
        assert_int_equal(args.off, 1);
        ngx_http_llm_capture_args_free(&args);
    }

    parse_n("{}\0", 3, "; nothing is captured");
    assert_int_equal(args.off, 1);
    ngx_http_llm_capture_args_free(&args);

    parse("[]", "not a JSON object");
    ngx_http_llm_capture_args_free(&args);

    parse("{\n\"path\" 1}", "invalid JSON at line 2, column ");
    ngx_http_llm_capture_args_free(&args);
}


static void
test_unknown(void **unused)
{
    (void) unused;

    parse("{\"pth\": \"/a\"}", "unknown key \"pth\" is ignored");
    assert_args(NULL, 0, 0, ALL, NULL, 0);

    /* keys know case, and cannot break a line */

    parse("{\"Path\": \"/a\"}", "unknown key \"Path\" is ignored");
    assert_args(NULL, 0, 0, ALL, NULL, 0);

    parse("{\"a\\nb\xc3\xa4\": 1}", "unknown key \"a?b??\" is ignored");
    assert_args(NULL, 0, 0, ALL, NULL, 0);
}


static void
test_duplicate(void **unused)
{
    (void) unused;

    /* as Python's json: the last one, for better or worse */

    parse("{\"path\": 1, \"path\": \"/b\"}", NULL);
    assert_args("/b", 0, 0, ALL, NULL, 0);

    parse("{\"sample_rate\": 0.5, \"sample_rate\": 9}",
          "invalid value 9.0 of \"sample_rate\"");
    assert_args(NULL, 0, 0, ALL, NULL, 0);
}


static void
test_several(void **unused)
{
    (void) unused;

    memset(&args, 0, sizeof(args));
    warnings[0] = '\0';
    nwarnings = 0;

    ngx_http_llm_capture_args_parse(&args, "{\"x\":1,\"y\":2,\"format\":3}",
                                    24, warn, &args);
    assert_int_equal(nwarnings, 3);
    assert_non_null(strstr(warnings, "\"x\""));
    assert_non_null(strstr(warnings, "\"y\""));
    assert_non_null(strstr(warnings, "\"format\""));
    assert_args(NULL, 0, 0, ALL, NULL, 0);
}


static void
test_shown(void **unused)
{
    char  text[2048];

    (void) unused;

    /* a long value is cut, one out of ASCII is escaped */

    memset(text, 'v', sizeof(text));
    memcpy(text, "{\"format\": \"", 12);
    strcpy(text + 1200, "\"}");
    parse(text, "vvvvv... of \"format\"");
    assert_args(NULL, 0, 0, ALL, NULL, 0);

    parse("{\"format\": \"\xc3\xa4\\n\"}", "invalid value \"\\u00E4\\n\" of");
    assert_args(NULL, 0, 0, ALL, NULL, 0);
}


static void
size_is(const char *s, uint64_t most, uint64_t want)
{
    uint64_t  size;

    size = 77;
    assert_int_equal(ngx_http_llm_capture_args_size(s, strlen(s), most, &size),
                     want ? 0 : -1);
    assert_true(size == (want ? want : 77));
}


static void
test_size(void **unused)
{
    unsigned  i;

    static const char *const  bad[] = {
        "", "0", "0k", "00", "k", "g", "-1", "+1", "1.5m", "1 m", " 1", "1t",
        "1kb", "1mm", "0x10", "1e3", "a", "18446744073709551617",
        "18446744073709551616", "999999999999999999999999999999g"
    };

    (void) unused;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        size_is(bad[i], (uint64_t) 1 << 40, 0);
    }

    size_is("1", 1, 1);
    size_is("2", 1, 0);
    size_is("0001", 1, 1);
    size_is("1048576", 1 << 30, 1048576);
    size_is("64k", 1 << 30, 65536);
    size_is("64K", 1 << 30, 65536);
    size_is("1m", 1 << 30, 1048576);
    size_is("1M", 1 << 30, 1048576);
    size_is("1g", 1 << 30, 1 << 30);
    size_is("1G", 1 << 30, 1 << 30);
    size_is("1025m", 1 << 30, 0);
    size_is("1073741824", 1 << 30, 1 << 30);
    size_is("1073741825", 1 << 30, 0);
    size_is("1k", 1023, 0);
    size_is("1k", 1024, 1024);
    size_is("1024g", (uint64_t) 1 << 40, (uint64_t) 1 << 40);
    size_is("1025g", (uint64_t) 1 << 40, 0);
}


static void
rate_is(const char *s, int64_t want)
{
    uint64_t  rate;

    rate = 77;
    assert_int_equal(ngx_http_llm_capture_args_rate(s, strlen(s), &rate),
                     want < 0 ? -1 : 0);
    assert_true(rate == (want < 0 ? 77 : (uint64_t) want));
}


static void
test_rate(void **unused)
{
    unsigned  i;

    static const char *const  bad[] = {
        "", ".", ".5", "1.", "0.", "00", "01", "2", "1.1", "-0", "-0.1", "+1",
        "0,5", "1e0", "0.5e0", "0.5 ", "50%", "nan", "inf", "0.1.2", "1.0001",
        "1.00000000000000000000000000000000000000001"
    };

    (void) unused;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        rate_is(bad[i], -1);
    }

    rate_is("0", 0);
    rate_is("0.0", 0);
    rate_is("0.000000000000000000000000000000000000000000000", 0);
    rate_is("1", (int64_t) ALL);
    rate_is("1.0", (int64_t) ALL);
    rate_is("1.000000000000000000000000000000000000000000000", (int64_t) ALL);
    rate_is("0.5", (int64_t) ALL / 2);
    rate_is("0.25", (int64_t) ALL / 4);
    rate_is("0.1", 429496729);
    rate_is("0.01", 42949672);
    rate_is("0.999999999999999999999999999999999999999999999",
            (int64_t) ALL - 1);

    /* 2^-32 has 32 digits: it, a little less, a little more */

    rate_is("0.00000000023283064365386962890625", 1);
    rate_is("0.00000000069849193096160888671875", 3);
    rate_is("0.00000000046566128730773925781250", 2);
    rate_is("0.00000000046566128730773925781249", 1);
    rate_is("0.000000000465661287307739257812499999", 1);
    rate_is("0.000000000465661287307739257812500001", 2);

    /* never 0 by rounding */

    rate_is("0.0000000000000000000000000000000000000000000000001", 1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_bad_path),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_duplicate),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_shown),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_rate),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
