
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A helper that died while it wrote, and one that must leave before it is
 * done: what its successor makes of the file, and what is counted.
 */

#include "drain_util.h"

#include <sys/prctl.h>


#define BODIES  20


/* puts some bodies, and lets a helper die after so many bytes; 0: it did not */

static int
die_writing(long bytes)
{
    int        status;
    pid_t      pid;
    unsigned   i;
    char       body[64];
    drain_t   *d;

    for (i = 0; i < BODIES; i++) {
        snprintf(body, sizeof(body), "{\"i\":%u,\"" CANARY "\":0}", i);
        assert_int_equal(worker_text(i % 2 ? &a : &b, path, 100 + i, body), 0);
    }

    fflush(NULL);
    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fault.lines_only = 1;
        fault.write_die = 1;
        fault.write_bytes = bytes;

        d = drain_over(drain_writer());
        (void) ngx_http_llm_capture_drain_pass(d, now);
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));

    return WEXITSTATUS(status) == 9;
}


/* the bodies in the file, each once, in order */

static unsigned
bodies_in(const char *name)
{
    char      *got, *p, text[32];
    unsigned   i, n;

    got = slurp(name, NULL);

    if (got == NULL) {
        return 0;
    }

    for (i = 0, n = 0, p = got; i < BODIES; i++) {
        snprintf(text, sizeof(text), "{\"i\":%u,", i);

        if (strstr(p, text)) {
            p = strstr(p, text) + 1;
            assert_null(strstr(p, text));
            n++;
        }
    }

    free(got);

    return n;
}


static int
lock_file(void)
{
    int  fd;

    fd = open(path, O_RDWR);
    assert_true(fd != -1);
    assert_int_equal(flock(fd, LOCK_EX|LOCK_NB), 0);

    return fd;
}


/* at every seventh byte of a batch */

static void
every_byte(void **state)
{
    int       died;
    long      bytes;
    uint64_t  done;

    (void) state;

    done = 0;
    died = 1;

    for (bytes = 0; died; bytes += 7) {
        died = die_writing(bytes);
        successor();
        drain_all(drain);

        done += BODIES;
        assert_counted(recorded, done);
        assert_int_equal(pending(), 0);
        assert_int_equal(bodies_in(path), BODIES);
        assert_int_equal(unlink(path), 0);
        (void) unlink(sidecar);
    }

    assert_true(bytes > 1000);
    assert_counted(uncertain, 0);
}


/*
 * The key is another one when the successor comes, as after a reload: it still
 * finds the rows that were written.
 */

static void
another_key(void **state)
{
    int   died;
    char  key[160];
    long  bytes;

    (void) state;

    spec = "=alice";
    died = 1;
    snprintf(key, sizeof(key), "%s.key", path);

    for (bytes = 0; died; bytes += 97) {
        died = die_writing(bytes);
        assert_int_equal(unlink(key), 0);
        successor();
        drain_all(drain);

        assert_int_equal(pending(), 0);
        assert_int_equal(bodies_in(path), BODIES);
        assert_int_equal(unlink(path), 0);
        (void) unlink(sidecar);
        (void) unlink(key);
    }

    spec = NULL;
    assert_true(bytes > 1000);
    assert_counted(uncertain, 0);
}


/* another process holds the lock: nothing is written before it is known */

static void
locked(void **state)
{
    int  fd;

    (void) state;

    assert_true(die_writing(333));
    fd = lock_file();
    successor();

    worker_text(&a, second, 500, "{\"b\":1}");
    assert_int_equal(ngx_http_llm_capture_drain_pass(drain, now), 0);
    assert_int_equal(ngx_http_llm_capture_drain_due(drain), now + 20);
    assert_int_equal(pending(), BODIES + 1);

    /* nor does a helper that dies while it waits change a thing */

    successor();
    now += 1999;
    assert_int_equal(ngx_http_llm_capture_drain_pass(drain, now), 0);

    close(fd);
    now += 20;
    drain_all(drain);
    assert_counted(recorded, BODIES + 1);
    assert_counted(uncertain, 0);
    assert_int_equal(bodies_in(path), BODIES);
}


static void
locked_for_long(void **state)
{
    int  fd;

    (void) state;

    assert_true(die_writing(333));
    fd = lock_file();
    successor();

    worker_text(&a, second, 500, "{\"b\":1}");
    now += 1999;
    assert_int_equal(ngx_http_llm_capture_drain_pass(drain, now), 0);
    now += 1;
    drain_all(drain);

    assert_counted(uncertain, BODIES);
    assert_counted(recorded, 1);
    assert_int_equal(pending(), 0);
    assert_int_equal(lines_with("counted uncertain"), 1);
    assert_int_equal(lines.content, 0);

    close(fd);
    worker_text(&a, path, 600, "{\"a\":1}");
    drain_all(drain);
    assert_counted(recorded, 2);
}


/* the limit at exit, while it still waits */

static void
locked_at_exit(void **state)
{
    int  fd;

    (void) state;

    assert_true(die_writing(333));
    fd = lock_file();
    successor();
    worker_text(&a, second, 500, "{\"b\":1}");

    assert_int_equal(ngx_http_llm_capture_drain_lose(drain), 1);
    assert_counted(uncertain, BODIES);
    assert_counted(lost, 1);
    assert_int_equal(pending(), 0);

    close(fd);
    successor();
    drain_all(drain);
    assert_counted(recorded, 0);
}


static void
gone(void **state)
{
    (void) state;

    assert_true(die_writing(333));
    assert_int_equal(unlink(path), 0);
    worker_text(&a, path, 500, "{\"a\":1}");
    successor();
    drain_all(drain);

    assert_counted(uncertain, BODIES);
    assert_counted(recorded, 1);
    assert_int_equal(pending(), 0);
}


static void
cut_short(void **state)
{
    char  had[64];

    (void) state;

    /* a row stands there before */

    worker_text(&a, path, 50, "{\"a\":1}");
    drain_all(drain);

    assert_true(die_writing(333));
    assert_int_equal(truncate(path, 10), 0);
    successor();
    drain_all(drain);
    assert_counted(uncertain, BODIES);

    worker_text(&a, path, 500, "{\"a\":2}");
    drain_all(drain);
    assert_counted(recorded, 2);
    snprintf(had, sizeof(had), "{\"timestamp\":%u,\"payload\":{\"a\":2}}\n",
             0);
    assert_file(path, had);
}


/* a rotation that renames: what went in is found there, the rest is new */

static void
renamed(void **state)
{
    char      other[200];
    unsigned  n;

    (void) state;

    assert_true(die_writing(333));
    snprintf(other, sizeof(other), "%s.1", path);
    assert_int_equal(rename(path, other), 0);
    successor();
    drain_all(drain);

    n = bodies_in(other);
    assert_true(n > 0 && n < BODIES);
    assert_int_equal(bodies_in(path), BODIES - n);
    assert_counted(recorded, BODIES);
    assert_counted(uncertain, 0);
}


/* the outcome is known, and the successor must not act on it twice */

static void
committing(void **state)
{
    uint64_t                        n[NGX_HTTP_LLM_CAPTURE_C_max];
    ngx_http_llm_capture_intent_t  *it;

    (void) state;

    worker_text(&a, path, 50, "{\"a\":1}");
    worker_text(&a, path, 51, "{\"a\":2}");
    drain_all(drain);

    /* as it stood before the intent was cleared */

    it = ngx_http_llm_capture_zone_intent(&zone);
    memcpy(n, it->n, sizeof(n));
    it->state = NGX_HTTP_LLM_CAPTURE_INTENT_COMMIT;

    worker_text(&a, path, 52, "{\"a\":3}");
    successor();
    assert_int_equal(it->state, NGX_HTTP_LLM_CAPTURE_INTENT_NONE);
    drain_all(drain);
    assert_counted(recorded, 3);
    assert_int_equal(n[C(recorded)], 2);
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


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DRAIN(every_byte),
        DRAIN(another_key),
        DRAIN(locked),
        DRAIN(locked_for_long),
        DRAIN(locked_at_exit),
        DRAIN(gone),
        DRAIN(cut_short),
        DRAIN(renamed),
        DRAIN(committing),
        DRAIN(lose)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
