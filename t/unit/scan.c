
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The scan: its verdict on each file of t/data, whole and in pieces, by every
 * kernel; what it cuts and changes; raw_payload's messages.  That the verdict
 * is orjson's is the matter of t/scan_orjson.t.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "scan_util.h"

#include <dirent.h>


#define SHORT      1024
#define FILES      167            /* a file that is lost is noticed */


typedef struct {
    const char                      *prefix;
    ngx_http_llm_capture_verdict_t   wrapped;
    ngx_http_llm_capture_verdict_t   raw;
} rule_t;


/* the first that fits; no file without one */

static const rule_t  rules[] = {
    { "valid/depth-", V(OK), V(NO_MESSAGES) },
    { "valid/key-messages-escaped", V(OK), V(OK) },
    { "valid/key-messages-last-list", V(OK), V(OK) },
    { "valid/key-", V(OK), V(NO_MESSAGES) },
    { "valid/number", V(OK), V(NO_MESSAGES) },
    { "valid/escapes", V(OK), V(NO_MESSAGES) },
    { "valid/outer-space", V(OK), V(NO_MESSAGES) },
    { "valid/token-ids", V(OK), V(NO_MESSAGES) },
    { "valid/utf8-", V(OK), V(NO_MESSAGES) },
    { "valid/values", V(OK), V(NO_MESSAGES) },
    { "valid/", V(OK), V(OK) },

    { "invalid/depth-1025", V(DEPTH), V(DEPTH) },
    { "invalid/depth-", V(DEPTH), V(NO_MESSAGES) },
    { "invalid/empty-", V(EMPTY), V(EMPTY) },
    { "invalid/hand-22", V(UTF8), V(UTF8) },
    { "invalid/hand-", V(JSON), V(JSON) },
    { "invalid/number-", V(NUMBER), V(NUMBER) },
    { "invalid/surrogate-", V(UTF8), V(UTF8) },
    { "invalid/top-", V(NOT_OBJECT), V(NOT_OBJECT) },
    { "invalid/utf8-", V(UTF8), V(UTF8) },
    { "invalid/utf16", V(JSON), V(JSON) },
    { "invalid/bom-", V(JSON), V(JSON) },
    { "invalid/space-", V(JSON), V(JSON) },
    { "invalid/syntax-", V(JSON), V(JSON) }
};


static size_t
read_file(const char *name, uint8_t *p)
{
    char    path[600];
    FILE   *f;
    size_t  n;

    (void) snprintf(path, sizeof(path), "t/data/%s", name);

    f = fopen(path, "rb");
    assert_non_null(f);
    n = fread(p, 1, ROOM, f);
    assert_int_equal(ferror(f), 0);
    fclose(f);

    return n;
}


static void
check_file(const char *name)
{
    size_t                           n;
    unsigned                         i, wrapped, raw;
    static uint8_t                   p[ROOM];

    for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strncmp(name, rules[i].prefix, strlen(rules[i].prefix)) != 0) {
            continue;
        }

        n = read_file(name, p);
        wrapped = every(name, p, n, WRAPPED, 0);
        raw = (n <= SHORT) ? every(name, p, n, LIMIT, MESSAGES)
                           : pieces(name, p, n, 61, LIMIT, MESSAGES);

        if (wrapped != rules[i].wrapped || raw != rules[i].raw) {
            fail_msg("%s: verdict %u, raw %u", name, wrapped, raw);
        }

        return;
    }

    fail_msg("%s: no rule for this file", name);
}


static void
test_files(void **state)
{
    DIR                *dir;
    char                name[512];
    unsigned            i, files;
    struct dirent      *e;
    static const char  *dirs[] = { "valid", "invalid" };

    (void) state;
    files = 0;

    for (i = 0; i < 2; i++) {
        (void) snprintf(name, sizeof(name), "t/data/%s", dirs[i]);
        dir = opendir(name);
        assert_non_null(dir);

        while ((e = readdir(dir)) != NULL) {
            if (e->d_name[0] != '.') {
                (void) snprintf(name, sizeof(name), "%s/%s", dirs[i],
                                e->d_name);
                check_file(name);
                files++;
            }
        }

        closedir(dir);
    }

    assert_true(files >= FILES);
}


static void
test_messages(void **state)
{
    (void) state;

    assert_int_equal(text("{\"messages\":[]}", MESSAGES), V(OK));
    assert_int_equal(text("{\"messages\":{}}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\":null}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"message\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"messagess\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"a\":[\"messages\",[]]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"a\":\"messages\",\"b\":[]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"mess\\u0061ges\" : [] , \"a\":1}", MESSAGES),
                     V(OK));
    assert_int_equal(text("{\"\\u006D\\u0065\\u0073\\u0073\\u0061\\u0067"
                          "\\u0065\\u0073\":[]}", MESSAGES), V(OK));
    assert_int_equal(text("{\"mess\\u0161ges\":[]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\\ud83d\\ude00\":[]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\\n\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\":[],\"messages\":1}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\":1,\"messages\":[1]}", MESSAGES),
                     V(OK));
    assert_int_equal(text("{\"messages\":1}", 0), V(OK));
}


/* what is cut, and which bytes change */

static void
test_space(void **state)
{
    static result_t    r;
    static const char  in[] = "\r\n {\n\r \"a\\n\":\t[\r1,\n\n2\n]\r\n} \n\t";
    static const char  out[] = "   {   \"a\\n\":\t[ 1,  2 ]  }  \t";

    (void) state;

    assert_int_equal(text(in, 0), V(OK));

    two(in, strlen(in), 9, WRAPPED, 0, &r);
    assert_memory_equal(r.bytes, out, strlen(out));
    assert_int_equal(strlen(in), strlen(out));
    assert_int_equal(r.lead, 3);
    assert_int_equal(r.head, 7);
    assert_int_equal(r.trail, 3);
    assert_int_equal(r.total, strlen(in));

    /* what was scanned once scans to the same */
    two(out, strlen(out), 0, WRAPPED, 0, &r);
    assert_int_equal(r.verdict, V(OK));
    assert_memory_equal(r.bytes, out, strlen(out));
    assert_int_equal(r.head, 7);
}


static void
test_refusal_stays(void **state)
{
    uint8_t                      bad[] = "{,", good[] = "\n{\"a\":1}\r\n";
    ngx_http_llm_capture_scan_t  s;

    (void) state;

    ngx_http_llm_capture_scan_init(&s, WRAPPED, 0);

    assert_int_equal(ngx_http_llm_capture_scan_feed(&s, bad, 2), V(JSON));
    assert_int_equal(ngx_http_llm_capture_scan_feed(&s, good, 10), V(JSON));
    assert_int_equal(ngx_http_llm_capture_scan_end(&s), V(JSON));
    assert_string_equal(good, "\n{\"a\":1}\r\n");
}


static void
test_kernels(void **state)
{
    (void) state;

    assert_int_equal(ngx_http_llm_capture_scan_kernel_use(V(PORTABLE)),
                     V(PORTABLE));
#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_NEON)
    assert_int_equal(ngx_http_llm_capture_scan_kernel_use(V(NEON)), V(NEON));
#endif
    assert_true(ngx_http_llm_capture_scan_kernel_use(V(AVX2)) <= V(AVX2));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_refusal_stays)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    room[0] = guarded();
    room[1] = guarded();

    return cmocka_run_group_tests(tests, NULL, NULL);
}
