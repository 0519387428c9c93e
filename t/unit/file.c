
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the files themselves: how they are opened, what is refused, what
 * is closed again, and what is made of a tail that somebody left torn.
 */

#include "files.h"


#define ROW(ts, body)  "{\"timestamp\":" #ts ",\"payload\":" body "}\n"
#define LINE           ROW(0, "{\"a\":1}")


static ssize_t
put_raw(writer_t *w, const char *name, const char *body)
{
    line_t        line;
    struct iovec  iov;

    set_line(&line, &iov, body, 1, 1);

    return ngx_http_llm_capture_writer_write(w, file_of(w, name), RAW, &line,
                                             1, 1, 1, &intent, 1000);
}


static void
test_modes(void **state)
{
    mode_t       old;
    writer_t    *w;
    unsigned     i;
    struct stat  st;

    static const mode_t  masks[] = { 0, 027, 0777 };

    (void) state;

    for (i = 0; i < 3; i++) {
        unlink(path);
        unlink(sidecar);

        old = umask(masks[i]);
        w = new_writer();
        assert_int_equal(put(w, "{\"a\":1}", 1, 1), 1);
        ngx_http_llm_capture_writer_destroy(w);
        umask(old);

        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_mode, S_IFREG|0600);
        assert_int_equal(lstat(sidecar, &st), 0);
        assert_int_equal(st.st_mode, S_IFREG|0600);
    }

    /* made by logrotate's "create 0640": it is the administrator's */

    assert_int_equal(chmod(path, 0640), 0);
    w = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 1, 1), 1);
    ngx_http_llm_capture_writer_destroy(w);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG|0640);
}


static void
test_flags(void **state)
{
    int        fd, flags;
    char       name[64], link[200];
    ssize_t    n;
    writer_t  *w;

    (void) state;

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 1, 1), 1);
    fd = file_of(w, path)->fd;

    flags = fcntl(fd, F_GETFL);
    assert_int_equal(flags & O_ACCMODE, O_RDWR);
    assert_true(flags & O_APPEND);
    assert_true(flags & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    n = readlink(name, link, sizeof(link) - 1);
    assert_true(n > 0);
    link[n] = '\0';
    assert_string_equal(link, path);

    /* the lock is given back */
    assert_int_equal((fd = open(path, O_RDONLY)) == -1, 0);
    assert_int_equal(flock(fd, LOCK_EX|LOCK_NB), 0);
    close(fd);

    ngx_http_llm_capture_writer_destroy(w);
}


/* each is refused at once, and works once mended */

static void
test_refused(void **state)
{
    char       victim[200];
    file_t    *f;
    writer_t  *w;
    unsigned   i;

    static const int  errors[] = { ELOOP, ELOOP, EINVAL, EISDIR, ENXIO };

    (void) state;

    w = new_writer();
    f = file_of(w, path);
    snprintf(victim, sizeof(victim), "%s/victim", dir);
    spew(victim, "keep", 4);

    for (i = 0; i < 5; i++) {
        switch (i) {
        case 0:
            assert_int_equal(symlink(victim, path), 0);
            break;
        case 1:
            assert_int_equal(symlink("/nonexistent/file", path), 0);
            break;
        case 2:
            assert_int_equal(mkfifo(path, 0600), 0);
            break;
        case 3:
            assert_int_equal(mkdir(path, 0700), 0);
            break;
        case 4:
            assert_int_equal(mknod(path, S_IFSOCK|0600, 0), 0);
        }

        assert_int_equal(put(w, "{\"a\":1}", 1, 1), NEVER);
        assert_int_equal(f->error, errors[i]);
        assert_int_equal(f->retry_at, 0);
        assert_int_equal(atomic_load(&intent.state),
                         NGX_HTTP_LLM_CAPTURE_INTENT_NONE);
        assert_int_equal(said.n, 1);

        assert_int_equal(remove(path), 0);
    }

    assert_file(victim, "keep");

    assert_int_equal(put(w, "{\"a\":1}", 1, 1), 1);
    assert_int_equal(f->error, 0);
    assert_file(path, LINE);

    ngx_http_llm_capture_writer_destroy(w);
    assert_int_equal(fault.open_now, 0);
}


/* another user's file, where others can write: it would be his to read */

static void
test_planted(void **state)
{
    file_t    *f;
    writer_t  *w;
    unsigned   i;

    static const struct {
        mode_t    mode;
        uid_t     owner;        /* of the directory */
        uid_t     file;
        ssize_t   want;
    }  cases[] = {
        { 01777, 0, 65534, LATER },
        { 0777, 0, 65534, LATER },
        { 0775, 0, 65534, LATER },
        { 01777, 65533, 65534, LATER },
        { 01777, 0, 0, 1 },
        { 01777, 65534, 65534, 1 },
        { 01777, 65534, 0, 1 },
        { 0755, 0, 65534, 1 },
        { 0700, 0, 65534, 1 }
    };

    (void) state;

    if (geteuid() != 0) {
        skip();
    }

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(&said, 0, sizeof(said));
        unlink(sidecar);
        spew(path, "", 0);
        assert_int_equal(chmod(path, 0666), 0);
        assert_int_equal(chown(path, cases[i].file, 0), 0);
        assert_int_equal(chown(dir, cases[i].owner, 0), 0);
        assert_int_equal(chmod(dir, cases[i].mode), 0);

        w = new_writer();
        f = file_of(w, path);

        assert_int_equal(put(w, "{\"a\":1}", 1, 1), cases[i].want);

        if (cases[i].want == 1) {
            assert_file(path, LINE);

        } else {
            assert_int_equal(f->error, EPERM);
            assert_int_equal(said.n, 1);
            assert_file(path, "");

            /* once that is gone it goes on */

            assert_int_equal(unlink(path), 0);
            assert_int_equal(put_at(w, path, "{\"a\":1}", 1, 1, 5000), 1);
            assert_file(path, LINE);
        }

        ngx_http_llm_capture_writer_destroy(w);
        assert_int_equal(fault.open_now, 0);
    }
}


/* a client that chooses the names must not write the log */

static void
test_many_fail(void **state)
{
    char       name[200];
    writer_t  *w;
    unsigned   i;

    (void) state;

    w = new_writer();

    for (i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "%s/sub/%u.jsonl", dir, i);
        assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 5000), LATER);
    }

    assert_int_equal(said.n, 10);
    assert_null(strstr(said.text, "times"));

    assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 64999), LATER);
    assert_int_equal(said.n, 10);
    assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 65000), LATER);
    assert_int_equal(said.n, 11);
    assert_non_null(strstr(said.text, "999.jsonl"));
    assert_non_null(strstr(said.text, ", 991 times for files not named here"));

    for (i = 0; i < 9; i++) {
        snprintf(name, sizeof(name), "%s/sub/%u.jsonl", dir, i);
        assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 65000), LATER);
    }

    assert_int_equal(said.n, 20);
    assert_null(strstr(said.text, "not named"));

    ngx_http_llm_capture_writer_destroy(w);
}


/* no directory yet: put off, longer each time, and said once a minute */

static void
test_back_off(void **state)
{
    char       name[200];
    file_t    *f;
    uint64_t   now, want;
    writer_t  *w;
    unsigned   i;

    (void) state;

    w = new_writer();
    snprintf(name, sizeof(name), "%s/sub/a.jsonl", dir);
    f = file_of(w, name);

    assert_int_equal(ngx_http_llm_capture_writer_due(w), 0);

    now = 5000;
    want = 10;

    for (i = 0; i < 10; i++) {
        assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, now), LATER);
        assert_int_equal(f->error, ENOENT);
        assert_int_equal(f->retry_at, now + want);
        assert_int_equal(ngx_http_llm_capture_writer_due(w), now + want);

        now += want;
        want = want * 2 > 1000 ? 1000 : want * 2;
    }

    assert_int_equal(said.n, 1);
    assert_int_equal(said.err, ENOENT);
    assert_non_null(strstr(said.text, name));

    assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 5000 + 59999), LATER);
    assert_int_equal(said.n, 1);
    assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 5000 + 60000), LATER);
    assert_int_equal(said.n, 2);
    assert_non_null(strstr(said.text, "10 times more"));

    /* dropped, told to reopen, or mended: nothing is due any more */

    ngx_http_llm_capture_writer_forget(w, f);
    assert_int_equal(ngx_http_llm_capture_writer_due(w), 0);

    assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 70000), LATER);
    assert_int_equal(f->retry_at, 70010);
    ngx_http_llm_capture_writer_reopen(w);
    assert_int_equal(ngx_http_llm_capture_writer_due(w), 0);
    assert_int_equal(f->retry_at, 0);

    assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 70000), LATER);
    *strrchr(name, '/') = '\0';
    assert_int_equal(mkdir(name, 0700), 0);
    name[strlen(name)] = '/';
    assert_int_equal(put_at(w, name, "{\"a\":1}", 1, 1, 70010), 1);
    assert_int_equal(f->retry_at, 0);
    assert_int_equal(f->error, 0);
    assert_int_equal(ngx_http_llm_capture_writer_due(w), 0);
    assert_file(name, LINE);

    ngx_http_llm_capture_writer_destroy(w);
}


static void
test_due_is_earliest(void **state)
{
    char       name[200];
    writer_t  *w;
    unsigned   i;

    (void) state;

    w = new_writer();

    for (i = 0; i < 5; i++) {
        snprintf(name, sizeof(name), "%s/none/%u", dir, i);
        assert_int_equal(put_at(w, name, "{}", 1, 1, 900 - 100 * i), LATER);
    }

    assert_int_equal(ngx_http_llm_capture_writer_due(w), 510);
    ngx_http_llm_capture_writer_forget(w, file_of(w, name));
    assert_int_equal(ngx_http_llm_capture_writer_due(w), 610);

    ngx_http_llm_capture_writer_destroy(w);
}


/* a control byte of a path does not reach the log */

static void
test_log_is_clean(void **state)
{
    char       name[200];
    writer_t  *w;

    (void) state;

    w = new_writer();
    snprintf(name, sizeof(name), "%s/no\n\033[1m/x", dir);
    assert_int_equal(put_at(w, name, "{\"secret\":1}", 1, 1, 1), LATER);
    assert_null(strpbrk(said.text, "\n\033"));
    assert_null(strstr(said.text, "secret"));

    ngx_http_llm_capture_writer_destroy(w);
}


static void
test_lru(void **state)
{
    char       name[200];
    writer_t  *w;
    unsigned   i, round;

    (void) state;

    w = new_writer_boot(4, BOOT);

    for (round = 0; round < 3; round++) {
        for (i = 0; i < 20; i++) {
            snprintf(name, sizeof(name), "%s/%u.jsonl", dir, i);
            assert_int_equal(put_raw(w, name, "{}"), 1);
        }
    }

    assert_int_equal(fault.open_now, 4);
    assert_int_equal(fault.open_peak, 4);

    for (i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "%s/%u.jsonl", dir, i);
        assert_file(name, "{}\n{}\n{}\n");
    }

    /* 16 to 19 are open; 16 is used again, so 17 is the next to go */

    snprintf(name, sizeof(name), "%s/16.jsonl", dir);
    assert_int_equal(put_raw(w, name, "{}"), 1);
    snprintf(name, sizeof(name), "%s/0.jsonl", dir);
    assert_int_equal(put_raw(w, name, "{}"), 1);

    for (i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "%s/%u.jsonl", dir, i);
        assert_int_equal(file_of(w, name)->fd != -1,
                         i == 0 || i == 16 || i == 18 || i == 19);
    }

    /* out of descriptors: what is open is given up one by one */

    fault.open_errno = EMFILE;
    fault.open_times = 2;
    snprintf(name, sizeof(name), "%s/5.jsonl", dir);
    assert_int_equal(put_raw(w, name, "{}"), 1);
    assert_int_equal(fault.open_now, 2);

    fault.open_times = -1;
    snprintf(name, sizeof(name), "%s/6.jsonl", dir);
    assert_int_equal(put_raw(w, name, "{}"), LATER);
    assert_int_equal(file_of(w, name)->error, EMFILE);
    assert_int_equal(fault.open_now, 0);

    ngx_http_llm_capture_writer_destroy(w);
}


static void
test_paths(void **state)
{
    char       name[NGX_HTTP_LLM_CAPTURE_PATH + 1];
    file_t    *f;
    writer_t  *w;
    unsigned   i;

    (void) state;

    w = new_writer();

    assert_null(ngx_http_llm_capture_writer_file(w, "", 0));
    assert_null(ngx_http_llm_capture_writer_file(w, "a", 1));
    assert_null(ngx_http_llm_capture_writer_file(w, "/a\0b", 4));

    memset(name, 'a', sizeof(name));
    name[0] = '/';
    assert_null(ngx_http_llm_capture_writer_file(w, name,
                                                 NGX_HTTP_LLM_CAPTURE_PATH));
    assert_non_null(ngx_http_llm_capture_writer_file(w, name,
                        NGX_HTTP_LLM_CAPTURE_PATH - 1));

    f = file_of(w, "/first");

    for (i = 2; i < NGX_HTTP_LLM_CAPTURE_FILES; i++) {
        snprintf(name, sizeof(name), "/%u", i);
        assert_non_null(ngx_http_llm_capture_writer_file(w, name,
                                                         strlen(name)));
    }

    assert_null(ngx_http_llm_capture_writer_file(w, "/more", 5));
    assert_ptr_equal(file_of(w, "/first"), f);
    assert_ptr_equal(ngx_http_llm_capture_writer_file(w, "/firsts", 6), f);

    ngx_http_llm_capture_writer_destroy(w);
}


static void
test_deleted_and_renamed(void **state)
{
    char       old[200];
    writer_t  *w;

    (void) state;

    w = new_writer();
    assert_int_equal(put_raw(w, path, "{\"a\":1}"), 1);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(put_raw(w, path, "{\"a\":2}"), 1);
    assert_file(path, "{\"a\":2}\n");

    snprintf(old, sizeof(old), "%s.1", path);
    assert_int_equal(rename(path, old), 0);
    assert_int_equal(put_raw(w, path, "{\"a\":3}"), 1);
    assert_int_equal(access(path, F_OK), -1);
    assert_file(old, "{\"a\":2}\n{\"a\":3}\n");

    ngx_http_llm_capture_writer_reopen(w);
    assert_int_equal(put_raw(w, path, "{\"a\":4}"), 1);
    assert_file(path, "{\"a\":4}\n");
    assert_file(old, "{\"a\":2}\n{\"a\":3}\n");

    /* replaced under our hands: the old one has no name left */

    assert_int_equal(rename(old, path), 0);
    assert_int_equal(put_raw(w, path, "{\"a\":5}"), 1);
    assert_file(path, "{\"a\":2}\n{\"a\":3}\n{\"a\":5}\n");

    ngx_http_llm_capture_writer_destroy(w);
    assert_int_equal(fault.open_now, 0);
}


/* truncated by others: no hole */

static void
test_no_hole(void **state)
{
    writer_t  *w;

    (void) state;

    w = new_writer();
    assert_int_equal(put_raw(w, path, "{\"a\":1}"), 1);
    assert_int_equal(put_raw(w, path, "{\"a\":2}"), 1);
    assert_int_equal(truncate(path, 8), 0);
    assert_int_equal(put_raw(w, path, "{\"a\":3}"), 1);
    assert_file(path, "{\"a\":1}\n{\"a\":3}\n");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(put_raw(w, path, "{\"a\":4}"), 1);
    assert_file(path, "{\"a\":4}\n");
    assert_int_equal(said.n, 0);

    ngx_http_llm_capture_writer_destroy(w);
}


static void
test_tails(void **state)
{
    char       want[512];
    unsigned   i;
    writer_t  *w;

    static const struct {
        const char  *have;
        const char  *kept;
    } cases[] = {
        { "", "" },
        { "{\"a\":1}\n", "{\"a\":1}\n" },
        { "{\"a\":1}", "{\"a\":1}\n" },
        { "{\"a\":1}\n{\"b\":2}", "{\"a\":1}\n{\"b\":2}\n" },
        { "{\"a\":1}\n{\"b\":2", "{\"a\":1}\n" },
        { "{\"a\":1}\n{", "{\"a\":1}\n" },
        { "{\"a\":1", "" },
        { "{\"a\":1}\n\n{\"b", "{\"a\":1}\n\n" },
        { "torn", "" },
    };

    (void) state;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        spew(path, cases[i].have, strlen(cases[i].have));
        memset(&said, 0, sizeof(said));

        w = new_writer();
        assert_int_equal(put_raw(w, path, "{\"z\":1}"), 1);
        ngx_http_llm_capture_writer_destroy(w);

        snprintf(want, sizeof(want), "%s{\"z\":1}\n", cases[i].kept);
        assert_file(path, want);

        assert_int_equal(said.n,
                         strlen(cases[i].kept) < strlen(cases[i].have));
        assert_int_equal(intent.offset, strlen(cases[i].kept));
    }
}


/* longer than a block, with the last LF around the border of two */

static void
test_long_tails(void **state)
{
    char      *text, *got;
    int        torn;
    size_t     n, len, kept = 0;
    writer_t  *w;

    (void) state;

    text = malloc(300000);
    assert_non_null(text);

    for (n = 65530; n < 65542; n++) {
        for (torn = 0; torn < 2; torn++) {
            memcpy(text, "{\"a\":1}\n{\"b\":\"", 14);
            memset(text + 14, 'x', 2 * n);
            len = 14 + 2 * n;
            memcpy(text + len, "\"}", 2);
            len += torn ? 1 : 2;
            spew(path, text, len);

            w = new_writer();
            assert_int_equal(put_raw(w, path, "{\"z\":1}"), 1);
            ngx_http_llm_capture_writer_destroy(w);

            got = slurp(path, &kept);
            assert_non_null(got);

            if (torn) {
                assert_string_equal(got, "{\"a\":1}\n{\"z\":1}\n");

            } else {
                assert_int_equal(kept, len + 1 + 8);
                assert_memory_equal(got, text, len);
                assert_string_equal(got + len, "\n{\"z\":1}\n");
            }

            free(got);
        }
    }

    free(text);
}


/* a tail that cannot be mended: nothing is appended to it */

static void
test_tail_stays(void **state)
{
    writer_t  *w;

    (void) state;

    spew(path, "{\"a\":1}\n{\"b", 11);
    w = new_writer();

    fault.cut_errno = EIO;
    assert_int_equal(put_raw(w, path, "{\"z\":1}"), LATER);
    assert_int_equal(file_of(w, path)->error, EIO);
    assert_file(path, "{\"a\":1}\n{\"b");

    fault.cut_errno = 0;
    fault.pread_errno = EIO;
    assert_int_equal(put_raw(w, path, "{\"z\":1}"), LATER);
    assert_file(path, "{\"a\":1}\n{\"b");

    fault.pread_errno = 0;
    assert_int_equal(put_raw(w, path, "{\"z\":1}"), 1);
    assert_file(path, "{\"a\":1}\n{\"z\":1}\n");

    /* torn behind our back, while the file is open */

    append(path, "{\"torn\":");
    assert_int_equal(put_raw(w, path, "{\"z\":2}"), 1);
    append(path, "{\"whole\":1}");
    fault.write_bytes = 0;
    fault.write_errno = ENOSPC;
    assert_int_equal(put_raw(w, path, "{\"z\":3}"), LATER);
    fault.write_bytes = -1;
    assert_int_equal(put_raw(w, path, "{\"z\":3}"), 1);
    assert_file(path, "{\"a\":1}\n{\"z\":1}\n{\"z\":2}\n{\"whole\":1}\n"
                      "{\"z\":3}\n");

    ngx_http_llm_capture_writer_destroy(w);
}


static void
test_locked(void **state)
{
    int        fd;
    file_t    *f;
    writer_t  *w;
    unsigned   i;

    (void) state;

    w = new_writer();
    assert_int_equal(put_raw(w, path, "{\"a\":1}"), 1);
    f = file_of(w, path);

    fd = open(path, O_RDONLY);
    assert_true(fd != -1);
    assert_int_equal(flock(fd, LOCK_EX|LOCK_NB), 0);

    for (i = 0; i < 12; i++) {
        assert_int_equal(put_raw(w, path, "{\"a\":2}"), LATER);
        assert_int_equal(f->error, EAGAIN);
        assert_true(f->retry_at > 1000 && f->retry_at <= 1064);

        /* a moment is nothing to talk about */
        assert_int_equal(said.n, i > 5);
    }

    close(fd);
    assert_int_equal(put_raw(w, path, "{\"a\":2}"), 1);
    assert_int_equal(f->retry_at, 0);
    assert_file(path, "{\"a\":1}\n{\"a\":2}\n");

    ngx_http_llm_capture_writer_destroy(w);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_modes),
        TEST(test_flags),
        TEST(test_refused),
        TEST(test_planted),
        TEST(test_many_fail),
        TEST(test_back_off),
        TEST(test_due_is_earliest),
        TEST(test_log_is_clean),
        TEST(test_lru),
        TEST(test_paths),
        TEST(test_deleted_and_renamed),
        TEST(test_no_hole),
        TEST(test_tails),
        TEST(test_long_tails),
        TEST(test_tail_stays),
        TEST(test_locked),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
