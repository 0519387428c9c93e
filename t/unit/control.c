
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What llm_capture_control takes as arguments, and what holds then: whoever is
 * killed in the middle of a change, and in another zone too.
 */

#define _GNU_SOURCE

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_control.h"
#include "ngx_http_llm_capture_point.h"


#define ALL    NGX_HTTP_LLM_CAPTURE_CONTROL_ALL
#define NONE   NGX_HTTP_LLM_CAPTURE_NONE
#define ENDED  ngx_http_llm_capture_control_ended
#define D(x)   NGX_HTTP_LLM_CAPTURE_ENDED_##x

typedef ngx_http_llm_capture_zone_t   zone_t;
typedef ngx_http_llm_capture_view_t   view_t;
typedef ngx_http_llm_capture_order_t  order_t;
typedef ngx_http_llm_capture_taken_t  taken_t;


static order_t   order;
static view_t    view;
static unsigned  fuse;              /* points still to be passed; 0: no kill */
static unsigned  twice;             /* entries until it is changed twice */
static zone_t    shared;


void
ngx_http_llm_capture_point(const char *name)
{
    order_t  o;

    if (twice && strcmp(name, "control: read") == 0 && --twice == 0) {
        memset(&o, 0, sizeof(o));
        o.mode = NGX_HTTP_LLM_CAPTURE_MODE_OFF;
        ngx_http_llm_capture_control_say(&shared, ALL, &o, 1, 1);
        o.mode = NGX_HTTP_LLM_CAPTURE_MODE_ON;
        ngx_http_llm_capture_control_say(&shared, ALL, &o, 2, 2);
    }

    if (fuse && --fuse == 0) {
        (void) raise(SIGKILL);
    }
}


static int
parse(const char *args)
{
    int     rc;
    char   *copy;
    size_t  len;

    /* what is read behind the end is seen by a sanitizer */

    len = strlen(args);
    copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, args, len);

    rc = ngx_http_llm_capture_control_parse(&order, copy, len);
    free(copy);

    return rc;
}


static zone_t
make(void)
{
    zone_t  z;

    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 2, 65536, 4096), 0);

    z.base = mmap(NULL, z.size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
                  -1, 0);
    assert_ptr_not_equal(z.base, MAP_FAILED);

    ngx_http_llm_capture_zone_format(&z, 1);

    return z;
}


static view_t *
say(zone_t *z, uint32_t at, const char *args, uint64_t now)
{
    assert_int_equal(parse(args), 0);
    ngx_http_llm_capture_control_say(z, at, &order, now, 1000000 + now);
    ngx_http_llm_capture_control_read(&view, z);

    return &view;
}


static void
test_args(void **state)
{
    char      text[8192];
    unsigned  i;

    static const struct {
        const char  *args;
        const char  *why;
    } bad[] = {
        { "", "capture: " },
        { "&&", "capture: " },
        { "capture=On", "capture: " },
        { "capture=on&capture=on", "capture: given twice" },
        { "capture=on&records", "records: " },
        { "capture=on&records=", "records: " },
        { "capture=on&records=0", "records: " },
        { "capture=on&records=-1", "records: " },
        { "capture=on&records=1.5", "records: " },
        { "capture=on&records=281474976710656", "records: " },
        { "capture=on&bytes=1x", "bytes: " },
        { "capture=on&bytes=99999999999999999999g", "bytes: " },
        { "capture=on&sample_rate=2", "sample_rate: " },
        { "capture=on&sample_rate=%", "sample_rate: " },
        { "capture=on&sample_rate=%0", "sample_rate: " },
        { "capture=on&sample_rate=0%00", "sample_rate: " },
        { "capture=on&duration=0", "duration: " },
        { "capture=on&duration=m", "duration: " },
        { "capture=on&duration=367d", "duration: " },
        { "capture=on&duration=99999999999999999999s", "duration: " },
        { "capture=on&duration=1 s", "duration: " },
        { "capture=on&match=x:y", "match: " },
        { "capture=on&match=$x", "match: " },
        { "capture=on&match=$:y", "match: " },
        { "capture=on&match=$a-b:y", "match: " },
        { "capture=on&path=", "path: " },
        { "capture=off&match=$x:y", "match: only with capture=on" },
        { "bytes=1&capture=off", "bytes: only with capture=on" },
        { "capture=reset&duration=1s", "duration: only with" },
        { "capture=on&\r\n<x>=1", "??" "?x?: no such argument" },
    };

    (void) state;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(parse(bad[i].args), -1);
        if (strncmp(order.why, bad[i].why, strlen(bad[i].why)) != 0) {
            fail_msg("\"%s\": \"%s\"", bad[i].args, order.why);
        }
    }

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(parse(text), -1);
    assert_in_range(strlen(order.why), 20, 80);

    memcpy(text, "capture=on&path=", 16);
    assert_int_equal(parse(text), -1);
    assert_memory_equal(order.why, "path: ", 6);

    memcpy(text, "capture=on&match=$abc:", 22);
    text[17 + 1 + 3 + 1 + 253] = '\0';
    assert_int_equal(parse(text), 0);
    assert_int_equal(order.value_len, 253);
    text[17 + 1 + 3 + 1 + 253] = 'x';
    text[17 + 1 + 3 + 1 + 254] = '\0';
    assert_int_equal(parse(text), -1);
}


static void
test_values(void **state)
{
    (void) state;

    assert_int_equal(parse("capture=off"), 0);
    assert_int_equal(order.mode, NGX_HTTP_LLM_CAPTURE_MODE_OFF);
    assert_true(order.rate == NGX_HTTP_LLM_CAPTURE_RATE_NONE);

    assert_int_equal(parse("&bytes=2k&records=281474976710655&duration=90&"
                           "sample_rate=0.5&match=$A_1:b%3a:%C3%BC&"
                           "path=%2fx+y&&capture=%6fn"), 0);
    assert_int_equal(order.mode, NGX_HTTP_LLM_CAPTURE_MODE_ON);
    assert_int_equal(order.bytes, 2048);
    assert_int_equal(order.records, NGX_HTTP_LLM_CAPTURE_BUDGET);
    assert_int_equal(order.duration, 90000);
    assert_int_equal(order.rate, (uint64_t) 1 << 31);
    assert_int_equal(order.name_len, 3);
    assert_int_equal(order.value_len, 5);
    assert_memory_equal(order.match, "a_1b::\xc3\xbc", 8);
    assert_int_equal(order.path_len, 4);
    assert_memory_equal(order.path, "/x+y", 4);

    assert_int_equal(parse("capture=off&duration=5ms"), 0);
    assert_int_equal(order.duration, 5);
    assert_int_equal(parse("capture=off&duration=366d"), 0);
    assert_int_equal(parse("capture=on&match=$a:"), 0);
    assert_int_equal(order.value_len, 0);
}


static void
test_holds(void **state)
{
    zone_t   z;
    view_t  *v;

    (void) state;

    z = make();
    memset(&view, 0, sizeof(view));
    assert_false(ngx_http_llm_capture_control_any(&view, &z));
    assert_int_equal(ngx_http_llm_capture_control_at(&view, 3, 0), NONE);

    v = say(&z, 3, "capture=off&duration=10ms", 100);
    assert_true(ngx_http_llm_capture_control_any(v, &z) && v->timed);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 3, 109), 3);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 3, 110), NONE);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 4, 100), NONE);

    /* of all: nothing else is left; then of one on top of it */

    v = say(&z, ALL, "capture=on&duration=10ms", 200);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 3, 200), ALL);
    assert_int_equal(ENDED(v, &z, ALL, 209), D(NOT));
    assert_int_equal(ngx_http_llm_capture_control_at(v, 3, 210), ALL);
    assert_int_equal(ENDED(v, &z, ALL, 210), D(DURATION));

    v = say(&z, 3, "capture=off&duration=10ms", 300);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 3, 309), 3);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 3, 310), ALL);

    v = say(&z, 3, "capture=reset", 400);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 3, 400), NONE);
    assert_int_equal(ngx_http_llm_capture_control_at(v, 4, 400), ALL);

    v = say(&z, ALL, "capture=reset", 500);
    assert_false(v->any || v->timed);

    v = say(&z, 3, "capture=off", 600);
    v = say(&z, 3, "capture=reset", 700);
    assert_false(v->any);

    munmap(z.base, z.size);
}


static void
test_budgets(void **state)
{
    zone_t    z;
    view_t   *v, before;
    taken_t   t[4];
    uint64_t  records, bytes;

    (void) state;

    z = make();
    memset(t, 0, sizeof(t));

    v = say(&z, 5, "capture=on&records=2&bytes=100", 0);
    assert_int_equal(ngx_http_llm_capture_control_take(v, &z, 5, 60, &t[0]), 0);

    /* what does not fit ends it, and takes nothing */

    assert_int_equal(ngx_http_llm_capture_control_take(v, &z, 5, 41, &t[1]),
                     -1);
    assert_int_equal(ENDED(v, &z, 5, 0), D(BYTES));
    ngx_http_llm_capture_control_left(v, &z, 5, &records, &bytes);
    assert_int_equal(records, 1);
    assert_int_equal(bytes, 0);

    ngx_http_llm_capture_control_return(&z, &t[0]);
    ngx_http_llm_capture_control_return(&z, &t[0]);
    ngx_http_llm_capture_control_left(v, &z, 5, &records, &bytes);
    assert_int_equal(records, 2);
    assert_int_equal(bytes, 60);

    /* as it comes */

    assert_int_equal(ngx_http_llm_capture_control_take(v, &z, 5, 0, &t[2]), 0);
    assert_int_equal(ngx_http_llm_capture_control_more(&z, &t[2], 20), 0);
    assert_int_equal(ngx_http_llm_capture_control_more(&z, &t[2], 20), 0);
    assert_int_equal(ngx_http_llm_capture_control_more(&z, &t[2], 60), 0);
    assert_int_equal(ngx_http_llm_capture_control_more(&z, &t[2], 61), -1);
    assert_int_equal(ENDED(v, &z, 5, 0), D(BYTES));

    /* who still goes by an older order takes nothing of a newer one */

    v = say(&z, 5, "capture=on&records=1&bytes=9", 0);
    before = *v;
    v = say(&z, 5, "capture=on&records=7&bytes=7", 0);
    assert_int_equal(ngx_http_llm_capture_control_take(&before, &z, 5, 9,
                                                       &t[3]), 0);
    v = say(&z, 5, "capture=on&records=8&bytes=8", 0);
    assert_int_equal(ngx_http_llm_capture_control_take(&before, &z, 5, 1,
                                                       &t[1]), -1);
    assert_int_equal(ngx_http_llm_capture_control_more(&z, &t[3], 99), 0);
    ngx_http_llm_capture_control_return(&z, &t[3]);
    ngx_http_llm_capture_control_left(v, &z, 5, &records, &bytes);
    assert_int_equal(records, 8);
    assert_int_equal(bytes, 8);

    v = say(&z, 5, "capture=on&records=1", 0);
    memset(t, 0, sizeof(t));
    assert_int_equal(ngx_http_llm_capture_control_take(v, &z, 5, 9, &t[0]), 0);
    assert_int_equal(ENDED(v, &z, 5, 0), D(RECORDS));
    assert_int_equal(ngx_http_llm_capture_control_take(v, &z, 5, 9, &t[1]),
                     -1);

    munmap(z.base, z.size);
}


static void
test_moved(void **state)
{
    zone_t    a, b;
    view_t   *v;
    taken_t   t;
    uint32_t  one, two, at;
    uint64_t  records, bytes;

    (void) state;

    a = make();
    b = make();
    one = ngx_http_llm_capture_zone_template(&a, "/one", 4, 0);
    two = ngx_http_llm_capture_zone_template(&a, "/two", 4, 0);
    at = ngx_http_llm_capture_zone_template(&b, "/two", 4, 0);
    assert_true(at == 0 && two == 1);

    ngx_http_llm_capture_control_move(&a, &b);
    memset(&view, 0, sizeof(view));
    assert_false(ngx_http_llm_capture_control_any(&view, &b));

    v = say(&a, ALL, "capture=off", 10);
    v = say(&a, one, "capture=off", 10);
    v = say(&a, two, "capture=on&records=5&bytes=1k", 10);
    memset(&t, 0, sizeof(t));
    assert_int_equal(ngx_http_llm_capture_control_take(v, &a, two, 24, &t), 0);

    assert_false(ngx_http_llm_capture_control_moved(&a));
    ngx_http_llm_capture_control_leave(&a);
    assert_true(ngx_http_llm_capture_control_moved(&a));
    ngx_http_llm_capture_control_move(&a, &b);

    assert_int_equal(ENDED(v, &a, two, 0), D(RECORDS));

    ngx_http_llm_capture_control_read(&view, &b);
    assert_int_equal(ngx_http_llm_capture_control_at(&view, at, 0), at);
    assert_int_equal(ngx_http_llm_capture_control_at(&view, one + 1, 0), ALL);
    assert_int_equal(view.said[ALL].mode, NGX_HTTP_LLM_CAPTURE_MODE_OFF);
    ngx_http_llm_capture_control_left(&view, &b, at, &records, &bytes);
    assert_int_equal(records, 4);
    assert_int_equal(bytes, 1000);
    assert_int_equal(view.said[at].records, 5);
    assert_int_equal(ngx_http_llm_capture_control_take(&view, &b, at, 1000, &t),
                     0);

    munmap(a.base, a.size);
    munmap(b.base, b.size);
}


/* a worker killed at each point of a change: all of it, or nothing */

static void
test_killed(void **state)
{
    int       status;
    pid_t     pid;
    zone_t    z;
    view_t   *v;
    taken_t   t;
    unsigned  i, old, new;
    uint64_t  records, bytes;

    (void) state;

    old = new = 0;

    for (i = 1; /* void */; i++) {
        z = make();
        v = say(&z, 2, "capture=on&records=3&match=$a:old", 10);
        v = say(&z, 2, "capture=on&records=4&match=$a:old", 10);
        memset(&t, 0, sizeof(t));
        assert_int_equal(ngx_http_llm_capture_control_take(v, &z, 2, 1, &t), 0);

        pid = fork();

        if (pid == 0) {
            fuse = i;
            (void) parse("capture=on&records=9&match=$a:new");
            ngx_http_llm_capture_control_say(&z, 2, &order, 20, 20);
            _exit(0);
        }

        assert_int_equal(waitpid(pid, &status, 0), pid);

        ngx_http_llm_capture_control_read(v, &z);
        ngx_http_llm_capture_control_left(v, &z, 2, &records, &bytes);

        if (memcmp(v->said[2].match, "anew", 4) == 0) {
            assert_true(v->said[2].records == 9 && records == 9);
            new++;

        } else {
            assert_memory_equal(v->said[2].match, "aold", 4);
            assert_true(v->said[2].records == 4 && records == 3);
            old++;
        }

        /* whoever is next is not in its way */

        v = say(&z, 2, "capture=on&records=2", 30);
        assert_true(v->said[2].records == 2 && v->said[2].name_len == 0);

        munmap(z.base, z.size);

        if (WIFEXITED(status)) {
            break;
        }
    }

    /* at the last point, and behind it */

    assert_true(old > NGX_HTTP_LLM_CAPTURE_ROWS && new == 2);
}


/* two changes fall into a read: it is of one time */

static void
test_torn(void **state)
{
    (void) state;

    shared = make();
    (void) say(&shared, 1, "capture=off", 0);

    twice = ALL / 2;
    ngx_http_llm_capture_control_read(&view, &shared);
    assert_int_equal(twice, 0);

    assert_int_equal(view.said[1].mode, NGX_HTTP_LLM_CAPTURE_MODE_NONE);
    assert_int_equal(view.said[ALL].mode, NGX_HTTP_LLM_CAPTURE_MODE_ON);

    munmap(shared.base, shared.size);
}


/* whatever stands there */

static void
test_anything(void **state)
{
    zone_t    z;
    view_t   *v;
    taken_t   t;
    uint8_t  *p;
    unsigned  i, n;

    (void) state;

    z = make();
    p = (uint8_t *) ngx_http_llm_capture_zone_control(&z);
    v = &view;
    srand(7);

    for (n = 0; n < 200; n++) {
        for (i = 0; i < sizeof(ngx_http_llm_capture_control_t); i++) {
            p[i] = (uint8_t) (n % 4 ? rand() : (int) n * 85);
        }

        ngx_http_llm_capture_control_read(v, &z);

        for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CONTROLS; i++) {
            assert_true(v->said[i].mode <= NGX_HTTP_LLM_CAPTURE_MODE_RESET);
            assert_true(v->said[i].name_len + v->said[i].value_len
                        <= NGX_HTTP_LLM_CAPTURE_MATCH);
            (void) ngx_http_llm_capture_control_at(v, i, n);
            (void) ENDED(v, &z, i, n);
            (void) ngx_http_llm_capture_control_take(v, &z, i, n, &t);
        }

        (void) say(&z, n % NGX_HTTP_LLM_CAPTURE_CONTROLS, "capture=off", n);
        assert_int_equal(v->said[n % NGX_HTTP_LLM_CAPTURE_CONTROLS].mode,
                         NGX_HTTP_LLM_CAPTURE_MODE_OFF);
    }

    munmap(z.base, z.size);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_holds),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_anything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
