
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper and files that cannot be written: kept, dropped, told of, and
 * nobody else's trouble.
 */

#include "drain_util.h"


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

    now += 1000;
    drain_pass(drain);
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


/* another process at work on the file is no failing disk, for a while */

static void
locked(void **state)
{
    int       fd;
    char      body[10001];
    unsigned  i, n;

    (void) state;

    restart(2, 8 * MIB);

    snprintf(body, sizeof(body), "{\"b\":\"%09990u\"}", 0);
    assert_int_equal(worker_text(&a, path, 1, body), 0);
    drain_all(drain);

    fd = open(path, O_WRONLY);
    assert_int_equal(flock(fd, LOCK_EX|LOCK_NB), 0);

    for (n = 0; n < 500; n++) {
        assert_int_equal(worker_text(&a, path, 2 + n, body), 0);
        drain_pass(drain);
    }

    assert_counted(failed, 0);
    assert_int_equal(pending(), 500);

    /* 2, 4, 8, 16, 32 ms; the next is 64 */

    for (i = 0; i < 5; i++) {
        assert_counted(failed, 0);
        now = ngx_http_llm_capture_drain_due(drain);
        drain_pass(drain);
    }

    assert_true(counted(C(failed)) > 0);

    assert_int_equal(close(fd), 0);
    now += 64;
    drain_all(drain);
    assert_int_equal(pending(), 0);
    assert_counted(recorded, 1 + 500 - counted(C(failed)));
}


/*
 * The disk fails when the producer has just gone to the front, which it does
 * early: nearly all of the ring is free, before the old lap and behind it.
 */

static void
kept_over_the_front(void **state)
{
    char      body[10001];
    unsigned  i, n;

    (void) state;

    restart(2, 8 * MIB);

    snprintf(body, sizeof(body), "{\"b\":\"%09990u\"}", 0);

    for (n = 0; n < 100; n++) {
        assert_int_equal(worker_text(&a, path, n, body), 0);
        drain_all(drain);
    }

    broken.name = "b.jsonl";
    broken.open_errno = EACCES;

    for (i = 0; i < 350; i++) {
        assert_int_equal(worker_text(&a, second, n + i, body), 0);
        drain_pass(drain);
    }

    assert_counted(failed, 0);
    assert_int_equal(pending(), 350);

    /* one half of it is the limit still */

    for ( /* void */ ; i < 450; i++) {
        assert_int_equal(worker_text(&a, second, n + i, body), 0);
        drain_pass(drain);
    }

    assert_true(counted(C(failed)) > 0);
    assert_counted(queue_full, 0);

    broken.open_errno = 0;
    now += 2000;
    drain_all(drain);
    assert_int_equal(pending(), 0);
    assert_counted(recorded, 100 + 450 - counted(C(failed)));
}


/* a failing disk over many reloads leaves rings for those who come */

static void
reloads(void **state)
{
    uint32_t  i;

    (void) state;

    restart(8, 65536);

    broken.name = "b.jsonl";
    broken.open_errno = EACCES;

    worker_close(&b);

    for (i = 0; i < 4; i++) {
        if (i) {
            worker_claim(&a, i);
        }

        worker_text(&a, second, 1 + i, "{\"b\":1}");
        worker_close(&a);
        drain_all(drain);
    }

    /* half of them wait; one more, and all who left are given up */

    assert_counted(failed, 0);
    assert_int_equal(ngx_http_llm_capture_drain_owned(drain), 4);

    worker_claim(&a, 4);
    worker_text(&a, second, 5, "{\"b\":1}");
    worker_close(&a);
    drain_all(drain);

    assert_counted(failed, 5);
    assert_int_equal(ngx_http_llm_capture_drain_owned(drain), 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(unwritable),
        DRAIN(kept_over_the_front),
        DRAIN(full_disk),
        DRAIN(short_disk),
        DRAIN(hopeless),
        DRAIN(bad_path),
        DRAIN(locked),
        DRAIN(reloads),
        DRAIN(warnings)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
