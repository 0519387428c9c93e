
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for names of files made of what clients send, and for paths as
 * configured.
 */

#define _GNU_SOURCE

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_path.h"


#define LONGEST  NGX_HTTP_LLM_CAPTURE_PATH_LONGEST
#define UTC      "20261130T061500.123Z"

static char  name[NGX_HTTP_LLM_CAPTURE_PATH_VALUE + 1];


static const char *
value_n(const void *v, size_t n)
{
    size_t  len;

    memset(name, '!', sizeof(name));

    len = ngx_http_llm_capture_path_value(name, v, n);

    assert_in_range(len, 1, LONGEST);
    assert_int_equal(name[len], '!');
    name[len] = '\0';

    assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), len);
    assert_int_not_equal(name[0], '.');

    return name;
}


static const char *
value(const char *v)
{
    return value_n(v, strlen(v));
}


static void
test_kept(void **unused)
{
    char  longest[LONGEST + 1];

    (void) unused;

    memset(longest, 'x', LONGEST);
    longest[LONGEST] = '\0';

    assert_string_equal(value("a"), "a");
    assert_string_equal(value("tenant-1.eu_WEST"), "tenant-1.eu_WEST");
    assert_string_equal(value("-"), "-");
    assert_string_equal(value("a..b"), "a..b");
    assert_string_equal(value("a."), "a.");
    assert_string_equal(value(longest), longest);
}


static void
test_empty(void **unused)
{
    (void) unused;

    assert_string_equal(value(""), "none");
    assert_string_equal(value_n(NULL, 0), "none");

    /* one that calls itself so is another one */
    assert_string_equal(value("none"), "none-140bedbf9c3f6d56");
}


/* the digits are those of sha256sum */

static void
test_reduced(void **unused)
{
    (void) unused;

    assert_string_equal(value("abc/"), "abc_-ee08f01097d67f87");
    assert_string_equal(value("."), "_-cdb4ee2aea69cc6a");
    assert_string_equal(value(".."), "_.-5ec1f7e700f37c3d");
    assert_string_equal(value("../../etc/passwd"),
                        "_._.._etc_passwd-3754d6cb3a38e118");
    assert_string_equal(value_n("a\0b", 3), "a_b-59b271ae1bbcb1d3");
    assert_string_equal(value_n("\xc3\xa4", 2), "__-33e6d73fee82904c");
}


/* values around the blocks of SHA-256: 55, 56, 63, 64, 119, 120 bytes */

static void
test_long(void **unused)
{
    char      text[1024];
    size_t    i;
    unsigned  k;

    static const struct {
        size_t       len;
        const char  *digits;
    }  want[] = {
        { 55, "9e06b773359e0995" },
        { 56, "79562acf47b99346" },
        { 63, "d460cd3fbf2e9ec2" },
        { 64, "fee09fb67a4e191d" },
        { 119, "2fe472b6811d7fee" },
        { 120, "43e4b3d96eb7ab5b" },
        { 1000, "2dcc0198dd35c56a" }
    };

    (void) unused;

    for (k = 0; k < sizeof(want) / sizeof(want[0]); k++) {
        memset(text, 'y', sizeof(text));
        text[0] = '%';

        (void) value_n(text, want[k].len);

        assert_int_equal(strlen(name), LONGEST);
        assert_string_equal(name + LONGEST - 16, want[k].digits);
        assert_int_equal(name[LONGEST - 17], '-');
        assert_int_equal(name[0], '_');

        for (i = 1; i < LONGEST - 17; i++) {
            assert_int_equal(name[i], 'y');
        }
    }
}


static const char *
check(const char *path)
{
    return ngx_http_llm_capture_path_check(path, strlen(path), 0, 0);
}


/* no value has the name of another one: not even one made to have it */

static void
test_apart(void **unused)
{
    char         first[LONGEST + 1], second[LONGEST + 1];
    unsigned     i;

    static const char *const  values[] = {
        "a/b", "a:b", "a_b", ".a", "_a", "", "none", "a.epoch",
        "0123456789012345678901234567890123456789012345678901234567890123",
        "01234567890123456789012345678901234567890123456789012345678901234",
        "01234567890123456789012345678901234567890123456789012345678901235",
    };

    (void) unused;

    for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        unsigned  k;

        strcpy(first, value(values[i]));

        for (k = 0; k < i; k++) {
            assert_string_not_equal(first, value(values[k]));
        }

        if (strcmp(first, values[i]) == 0 || values[i][0] == '\0') {
            continue;
        }

        /* the name as a value gets a name of its own */

        strcpy(second, value(first));
        assert_string_not_equal(first, second);
        assert_string_not_equal(second, value(second));
    }

    /* and no value becomes a sidecar */

    assert_string_equal(value("a.epoch"), "a.epoch-3d94ec46d5b199ae");
    assert_string_equal(value("a.epoch.tmp"), "a.epoch.tmp-0038a6eb14a46c4c");
    assert_int_equal(strncmp(value("a.key"), "a.key-", 6), 0);
    assert_int_equal(strncmp(value("a.0.key.tmp"), "a.0.key.tmp-", 12), 0);
    assert_string_equal(value("a.key.x"), "a.key.x");
    assert_string_equal(value("a.epochs"), "a.epochs");
    assert_string_equal(value("a.epoch.tmp.x"), "a.epoch.tmp.x");
    assert_int_equal(strncmp(value("a.manifest.json"), "a.manifest.json-", 16),
                     0);
}


/* nor a segment of another one's, nor the owner of the same manifest */

static void
test_segments(void **unused)
{
    unsigned  i;

    static const char *const  changed[] = {
        UTC, "a." UTC, "a." UTC ".jsonl", "a." UTC ".jsonl.gz", UTC ".b",
        "a" UTC "b", "a.jsonl", "jsonl.jsonl"
    };

    static const char *const  kept[] = {
        "20261130T061500.123", "20261130T061500123Z", "20261130t061500.123Z",
        "2026113OT061500.123Z", "jsonl", "a.jsonl.b", "ajsonl", "a.jsonl.gz"
    };

    static const char *const  taken[] = {
        "/d/a." UTC ".jsonl", "/d/a." UTC ".jsonl.plain",
        "/d/a." UTC ".jsonl.gz", "/d/a." UTC ".jsonl.gz.tmp",
        "/d/a." UTC ".jsonl.zst", "/d/a." UTC ".jsonl.zst.tmp",
        "/d/a." UTC ".outcomes", "/d/a.manifest.json",
        "/d/a.manifest.json.tmp"
    };

    (void) unused;

    for (i = 0; i < sizeof(changed) / sizeof(changed[0]); i++) {
        assert_string_not_equal(value(changed[i]), changed[i]);
        assert_false(ngx_http_llm_capture_path_taken((uint8_t *) name,
                                                     strlen(name)));
    }

    for (i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        assert_string_equal(value(kept[i]), kept[i]);
    }

    for (i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        assert_non_null(check(taken[i]));
    }

    assert_null(check("/d/a." UTC));
    assert_null(check("/d/a." UTC "-1.jsonl"));
    assert_null(check("/d/a.jsonl.gz"));
}


/* reads no byte behind the value */

static void
test_end(void **unused)
{
    char    *p;
    size_t   n, page;

    (void) unused;

    page = (size_t) sysconf(_SC_PAGESIZE);
    p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(mprotect(p + page, page, PROT_NONE), 0);
    memset(p, '-', page);

    for (n = 1; n <= 300; n++) {
        (void) value_n(p + page - n, n);
    }

    /* the same for names that change, of each length */

    memset(p, '/', page);

    for (n = 1; n <= 300; n++) {
        (void) value_n(p + page - n, n);
    }

    assert_int_equal(munmap(p, 2 * page), 0);
}


static void
test_check(void **unused)
{
    (void) unused;

    assert_null(check("/a"));
    assert_null(check("/var/log/nginx/llm_capture/requests.jsonl"));
    assert_null(check("/a/..."));
    assert_null(check("/a/$x"));

    assert_non_null(check(""));
    assert_non_null(check("a"));
    assert_non_null(check("a/b"));
    assert_non_null(check("/"));
    assert_non_null(check("/a/"));
    assert_non_null(check("/a/."));
    assert_non_null(check("/a/.."));
    assert_non_null(check("/a/b\n"));
    assert_non_null(check("/a/b\x7f"));
    assert_non_null(check("/a/b.epoch"));
    assert_non_null(check("/a/b.epoch.tmp"));
    assert_non_null(check("/a/b.key"));
    assert_non_null(check("/a/b.0.key.tmp"));
}


static void
test_check_lengths(void **unused)
{
    char    path[5000];
    size_t  i;

    (void) unused;

    /* a name of 216 bytes */

    memset(path, 'n', sizeof(path));
    path[0] = '/';
    assert_null(ngx_http_llm_capture_path_check(path, 217, 0, 0));
    assert_non_null(ngx_http_llm_capture_path_check(path, 218, 0, 0));

    /* 20 bytes of names, 64 of values */

    assert_null(ngx_http_llm_capture_path_check(path, 173, 20, 64));
    assert_non_null(ngx_http_llm_capture_path_check(path, 174, 20, 64));

    /* 4000 bytes in all */

    for (i = 0; i < sizeof(path); i += 100) {
        path[i] = '/';
    }

    assert_null(ngx_http_llm_capture_path_check(path, 4000, 0, 0));
    assert_non_null(ngx_http_llm_capture_path_check(path, 4001 + 1, 0, 0));
    assert_null(ngx_http_llm_capture_path_check(path, 3956, 20, 64));
    assert_non_null(ngx_http_llm_capture_path_check(path, 3957, 20, 64));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_reduced),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_check_lengths),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
