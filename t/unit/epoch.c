
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the time of a file's rows: one epoch over restarts, reboots,
 * rotations and clock steps, and what becomes of it when the disk is unkind.
 */

#include "files.h"
#include "ngx_http_llm_capture_sidecar.h"


#define ROW(ts, body)  "{\"timestamp\":" #ts ",\"payload\":" body "}\n"


static epoch_t
made(void)
{
    epoch_t  e;

    memset(&e, 0, sizeof(e));
    e.wall = 1764437527123;
    e.mono = -42;
    e.dev = 64768;
    e.ino = UINT64_MAX;
    strcpy(e.boot, BOOT);

    return e;
}


static void
test_text(void **state)
{
    char     text[NGX_HTTP_LLM_CAPTURE_EPOCH], bad[sizeof(text)];
    size_t   len, i;
    epoch_t  e, got;

    (void) state;

    e = made();
    len = ngx_http_llm_capture_epoch_print(&e, text);

    assert_string_equal(text, "llm_capture_epoch=1\n"
                              "wall=1764437527123\n"
                              "mono=-42\n"
                              "boot=" BOOT "\n"
                              "dev=64768\n"
                              "ino=18446744073709551615\n");

    memset(&got, 0, sizeof(got));
    assert_int_equal(ngx_http_llm_capture_epoch_parse(&got, text, len), 1);
    assert_memory_equal(&got, &e, sizeof(e));

    /* cut at any place, or with a byte that is not a digit in a number */

    for (i = 0; i < len; i++) {
        assert_int_equal(ngx_http_llm_capture_epoch_parse(&got, text, i), 0);
    }

    for (i = 25; i < 37; i++) {
        memcpy(bad, text, len);
        bad[i] = 'x';
        assert_int_equal(ngx_http_llm_capture_epoch_parse(&got, bad, len), 0);
    }

    e.wall = (int64_t) 1 << 60;
    len = ngx_http_llm_capture_epoch_print(&e, text);
    assert_int_equal(ngx_http_llm_capture_epoch_parse(&got, text, len), 0);
}


static void
test_never_negative(void **state)
{
    epoch_t  e;

    (void) state;

    ngx_http_llm_capture_epoch_set(&e, 1000, 500, 0);
    assert_int_equal(ngx_http_llm_capture_epoch_ts(&e, 500), 0);
    assert_int_equal(ngx_http_llm_capture_epoch_ts(&e, 499), 0);
    assert_int_equal(ngx_http_llm_capture_epoch_ts(&e, 0), 0);
    assert_int_equal(ngx_http_llm_capture_epoch_ts(&e, 507), 7);
    assert_int_equal(ngx_http_llm_capture_epoch_wall(&e, 1009), 9);
    assert_int_equal(ngx_http_llm_capture_epoch_wall(&e, 1), 0);

    /* arrivals that an enemy wrote: no overflow, whatever comes out */

    ngx_http_llm_capture_epoch_set(&e, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_true(ngx_http_llm_capture_epoch_ts(&e, UINT64_MAX) < INT64_MAX);
    ngx_http_llm_capture_epoch_set(&e, 0, 0, UINT64_MAX);
    assert_true(ngx_http_llm_capture_epoch_ts(&e, UINT64_MAX) < INT64_MAX);
}


static void
test_store(void **state)
{
    char         tmp[200], victim[200];
    mode_t       old;
    epoch_t      e, got;
    unsigned     i;
    struct stat  st;

    static const mode_t  masks[] = { 0, 077, 0777 };

    (void) state;

    e = made();
    snprintf(tmp, sizeof(tmp), "%s.tmp", sidecar);
    snprintf(victim, sizeof(victim), "%s/victim", dir);
    spew(victim, "keep", 4);

    for (i = 0; i < 3; i++) {

        /* left by a killed process; and links that must not be followed */

        unlink(sidecar);
        unlink(tmp);
        assert_int_equal(symlink(victim, tmp), 0);
        assert_int_equal(symlink(victim, sidecar), 0);

        assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &got,
                                                         sidecar), 0);

        old = umask(masks[i]);
        assert_int_equal(ngx_http_llm_capture_sidecar_store(fault_sys(), &e,
                                                          sidecar), 0);
        umask(old);

        assert_int_equal(lstat(sidecar, &st), 0);
        assert_int_equal(st.st_mode, S_IFREG|0600);
        assert_int_equal(lstat(tmp, &st), -1);
        assert_file(victim, "keep");

        memset(&got, 0, sizeof(got));
        assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &got,
                                                         sidecar), 1);
        assert_memory_equal(&got, &e, sizeof(e));
    }
}


static void
test_store_fails(void **state)
{
    char         tmp[200];
    epoch_t      e, other, got;
    unsigned     i;
    struct stat  st;

    (void) state;

    e = made();
    other = made();
    other.wall++;
    snprintf(tmp, sizeof(tmp), "%s.tmp", sidecar);

    assert_int_equal(ngx_http_llm_capture_sidecar_store(fault_sys(), &e,
                                                      sidecar), 0);

    for (i = 0; i < 4; i++) {
        reset_faults();

        switch (i) {
        case 0:
            fault.write_bytes = 0;
            fault.write_errno = ENOSPC;
            break;
        case 1:
            fault.write_bytes = 17;
            fault.write_errno = ENOSPC;
            break;
        case 2:
            fault.rename_errno = ENOSPC;
            break;
        case 3:
            fault.open_times = 1;
            fault.open_errno = ENOSPC;
        }

        assert_int_equal(ngx_http_llm_capture_sidecar_store(fault_sys(), &other,
                                                          sidecar), -1);
        assert_int_equal(errno, ENOSPC);
        assert_int_equal(lstat(tmp, &st), -1);

        reset_faults();
        memset(&got, 0, sizeof(got));
        assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &got,
                                                         sidecar), 1);
        assert_memory_equal(&got, &e, sizeof(e));
    }

    /* byte by byte, and interrupted */

    fault.write_chunk = 1;
    fault.write_eintr = 3;
    assert_int_equal(ngx_http_llm_capture_sidecar_store(fault_sys(), &other,
                                                      sidecar), 0);
    assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &got,
                                                     sidecar), 1);
    assert_int_equal(got.wall, other.wall);
}


static void
test_load_odd(void **state)
{
    epoch_t  e;

    (void) state;

    assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &e,
                                                     sidecar), 0);

    /* must not block */
    assert_int_equal(mkfifo(sidecar, 0600), 0);
    assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &e,
                                                     sidecar), 0);
    unlink(sidecar);

    assert_int_equal(mkdir(sidecar, 0700), 0);
    assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &e,
                                                     sidecar), 0);
    rmdir(sidecar);

    /* a good one, but somewhere else */
    e = made();
    assert_int_equal(ngx_http_llm_capture_sidecar_store(fault_sys(), &e, path),
                     0);
    assert_int_equal(symlink(path, sidecar), 0);
    assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &e,
                                                     sidecar), 0);

    fault.open_times = 1;
    fault.open_errno = EIO;
    assert_int_equal(ngx_http_llm_capture_sidecar_load(fault_sys(), &e,
                                                     sidecar), -1);
    assert_int_equal(errno, EIO);
}


static void
test_boot(void **state)
{
    char  boot[NGX_HTTP_LLM_CAPTURE_BOOT];

    (void) state;

    ngx_http_llm_capture_sidecar_boot(fault_sys(), boot);
    assert_int_equal(strlen(boot), 36);

    fault.open_times = 1;
    fault.open_errno = ENOENT;
    ngx_http_llm_capture_sidecar_boot(fault_sys(), boot);
    assert_string_equal(boot, "");
}


static void
test_restart(void **state)
{
    writer_t  *w;

    (void) state;

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 100000, 5000), 1);
    assert_int_equal(put(w, "{\"a\":2}", 100250, 5250), 1);
    ngx_http_llm_capture_writer_destroy(w);

    /* the wall clock stepped back an hour: the same boot does not care */

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":3}", 100700 - 3600000, 5700), 1);

    /* arrived before the first one */

    assert_int_equal(put(w, "{\"a\":4}", 99999, 4999), 1);
    ngx_http_llm_capture_writer_destroy(w);

    assert_file(path, ROW(0, "{\"a\":1}") ROW(250, "{\"a\":2}")
                      ROW(700, "{\"a\":3}") ROW(0, "{\"a\":4}"));
}


static void
test_reboot(void **state)
{
    writer_t  *w;

    (void) state;

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 100000, 90000), 1);
    ngx_http_llm_capture_writer_destroy(w);

    /* the wall clocks tell the distance, then the new monotonic clock does */

    w = new_writer_boot(0, OTHER);
    assert_int_equal(put(w, "{\"a\":2}", 160000, 300), 1);
    assert_int_equal(put(w, "{\"a\":3}", 999999999, 400), 1);
    ngx_http_llm_capture_writer_destroy(w);

    w = new_writer_boot(0, OTHER);
    assert_int_equal(put(w, "{\"a\":4}", 1, 500), 1);
    ngx_http_llm_capture_writer_destroy(w);

    /* a machine that does not know the date yet */

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":5}", 7, 10), 1);
    assert_int_equal(put(w, "{\"a\":6}", 170000, 15), 1);
    ngx_http_llm_capture_writer_destroy(w);

    assert_file(path, ROW(0, "{\"a\":1}") ROW(60000, "{\"a\":2}")
                      ROW(60100, "{\"a\":3}") ROW(60200, "{\"a\":4}")
                      ROW(60201, "{\"a\":5}") ROW(60206, "{\"a\":6}"));
}


static void
test_no_sidecar(void **state)
{
    unsigned   i;
    writer_t  *w;

    static const struct {
        const char  *rows;
        const char  *ts;
    } cases[] = {
        { ROW(1500, "{\"a\":1}"), "1501" },
        { "{\"timestamp\": 12.9, \"payload\": {\"a\":1}}\n", "13" },
        { "{\"payload\":{\"timestamp\":99},\"timestamp\":41}\n", "42" },
        { "{\"timestamp\":7,\"payload\":{\"timestamp\":99}}\n", "8" },
        { "{\"x\":\"\\\"timestamp\\\":5\",\"timestamp\":\"6\"}\r\n\n", "7" },
        { "{\"x\":\"a\\\"\",\"timestamp\":6}\n", "7" },
        { ROW(9, "{\"a\":1}") "{\"payload\":{\"a\":1}}\n", "0" },
        { "{\"timestamp\":-5,\"payload\":{\"a\":1}}\n", "1" },
        { "{\"timestamp\":1e300,\"payload\":{\"a\":1}}\n",
          "9007199254740992" },
        { "\n \n", "0" },
        { "not json\n", "0" },
    };

    (void) state;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char  want[512];

        spew(path, cases[i].rows, strlen(cases[i].rows));
        unlink(sidecar);

        w = new_writer();
        assert_int_equal(put(w, "{\"z\":1}", 100000, 5000), 1);
        ngx_http_llm_capture_writer_destroy(w);

        snprintf(want, sizeof(want),
                 "%s{\"timestamp\":%s,\"payload\":{\"z\":1}}\n",
                 cases[i].rows, cases[i].ts);
        assert_file(path, want);
    }
}


/* the timestamp stands before, across or behind the border of two blocks */

static void
test_long_row(void **state)
{
    char      *row;
    size_t     n, pad;
    writer_t  *w;

    (void) state;

    row = malloc(300000);
    assert_non_null(row);

    for (pad = 65480; pad < 65560; pad += 3) {
        n = (size_t) sprintf(row, "{\"timestamp\":3}\n{\"payload\":{\"t\":\"");
        memset(row + n, 'x', pad);
        n += pad;
        n += (size_t) sprintf(row + n, "\"},\"timestamp\":77777,\"z\":\"");
        memset(row + n, 'y', 140000);
        n += 140000;
        n += (size_t) sprintf(row + n, "\"}\n");

        spew(path, row, n);
        unlink(sidecar);

        w = new_writer();
        assert_int_equal(put(w, "{\"z\":1}", 100000, 5000), 1);
        assert_int_equal(intent.refs[0].ts, 77778);
        ngx_http_llm_capture_writer_destroy(w);
    }

    free(row);
}


/* copied over, edited in place: rows, but the sidecar is of another file */

static void
test_other_inode(void **state)
{
    char       copy[200];
    writer_t  *w;

    (void) state;

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 100000, 5000), 1);
    assert_int_equal(put(w, "{\"a\":2}", 100000, 5040), 1);
    ngx_http_llm_capture_writer_destroy(w);

    snprintf(copy, sizeof(copy), "%s/copy", dir);
    spew(copy, ROW(3, "{}"), strlen(ROW(3, "{}")));
    assert_int_equal(rename(copy, path), 0);

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":3}", 109000, 14000), 1);
    assert_int_equal(put(w, "{\"a\":4}", 109000, 14010), 1);
    ngx_http_llm_capture_writer_destroy(w);

    assert_file(path, ROW(3, "{}") ROW(4, "{\"a\":3}") ROW(14, "{\"a\":4}"));
}


/* copytruncate, seen by the writer itself and by a second one */

static void
test_truncated(void **state)
{
    writer_t  *w, *v;

    (void) state;

    w = new_writer();
    v = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 100000, 5000), 1);
    assert_int_equal(put(v, "{\"a\":2}", 100000, 5100), 1);
    assert_int_equal(put(w, "{\"a\":3}", 100000, 5200), 1);

    assert_file(path, ROW(0, "{\"a\":1}") ROW(100, "{\"a\":2}")
                      ROW(200, "{\"a\":3}"));
    assert_int_equal(truncate(path, 0), 0);

    assert_int_equal(put(v, "{\"a\":4}", 100000, 6000), 1);
    assert_int_equal(put(w, "{\"a\":5}", 100000, 6050), 1);
    assert_int_equal(put(v, "{\"a\":6}", 100000, 6060), 1);

    assert_file(path, ROW(0, "{\"a\":4}") ROW(50, "{\"a\":5}")
                      ROW(60, "{\"a\":6}"));

    ngx_http_llm_capture_writer_destroy(w);
    ngx_http_llm_capture_writer_destroy(v);
}


/* rotated: one helper is told, the other one goes on in the old file */

static void
test_rotated(void **state)
{
    char       old[200];
    writer_t  *w, *v;

    (void) state;

    w = new_writer();
    v = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 100000, 5000), 1);
    assert_int_equal(put(v, "{\"a\":2}", 100000, 5100), 1);

    snprintf(old, sizeof(old), "%s.1", path);
    assert_int_equal(rename(path, old), 0);
    ngx_http_llm_capture_writer_reopen(w);

    assert_int_equal(put(w, "{\"a\":3}", 100000, 7000), 1);
    append(old, ROW(9, "{}"));
    assert_int_equal(put(v, "{\"a\":4}", 100000, 7010), 1);
    assert_int_equal(put(w, "{\"a\":5}", 100000, 7020), 1);
    ngx_http_llm_capture_writer_reopen(v);
    assert_int_equal(put(v, "{\"a\":6}", 100000, 7030), 1);
    ngx_http_llm_capture_writer_reopen(w);
    assert_int_equal(put(w, "{\"a\":7}", 100000, 7040), 1);

    assert_file(old, ROW(0, "{\"a\":1}") ROW(100, "{\"a\":2}") ROW(9, "{}")
                     ROW(2010, "{\"a\":4}"));
    assert_file(path, ROW(0, "{\"a\":3}") ROW(20, "{\"a\":5}")
                      ROW(30, "{\"a\":6}") ROW(40, "{\"a\":7}"));

    ngx_http_llm_capture_writer_destroy(w);
    ngx_http_llm_capture_writer_destroy(v);
}


/* no sidecar can be written: rows are, and a restart does not overlay them */

static void
test_unwritable(void **state)
{
    writer_t  *w;

    (void) state;

    assert_int_equal(mkdir(sidecar, 0700), 0);

    w = new_writer();
    assert_int_equal(put_at(w, path, "{\"a\":1}", 1, 5000, 1000), 1);
    assert_int_equal(put_at(w, path, "{\"a\":2}", 1, 5030, 1100), 1);
    assert_int_equal(said.n, 1);
    assert_non_null(strstr(said.text, ".epoch"));
    ngx_http_llm_capture_writer_destroy(w);

    w = new_writer();
    assert_int_equal(put_at(w, path, "{\"a\":3}", 1, 9000, 2000), 1);
    assert_int_equal(said.n, 2);

    /* mended: written at the latest after a minute */

    assert_int_equal(rmdir(sidecar), 0);
    assert_int_equal(put_at(w, path, "{\"a\":4}", 1, 9001, 62000), 1);
    ngx_http_llm_capture_writer_destroy(w);
    assert_int_equal(access(sidecar, F_OK), 0);

    w = new_writer();
    assert_int_equal(put_at(w, path, "{\"a\":5}", 1, 9500, 62000), 1);
    ngx_http_llm_capture_writer_destroy(w);

    assert_file(path, ROW(0, "{\"a\":1}") ROW(30, "{\"a\":2}")
                      ROW(31, "{\"a\":3}") ROW(32, "{\"a\":4}")
                      ROW(531, "{\"a\":5}"));
}


/* it cannot be looked at just now: better wait than throw it away */

static void
test_unreadable(void **state)
{
    writer_t  *w;

    (void) state;

    w = new_writer();
    assert_int_equal(put(w, "{\"a\":1}", 1, 5000), 1);
    ngx_http_llm_capture_writer_destroy(w);

    w = new_writer();
    fault.pread_errno = EIO;
    assert_int_equal(put(w, "{\"a\":2}", 1, 5500), LATER);
    assert_int_equal(file_of(w, path)->error, EIO);
    fault.pread_errno = 0;

    /* no descriptor for it: the file itself must not be given up */

    ngx_http_llm_capture_writer_reopen(w);
    fault.open_skip = 1;
    fault.open_times = 1;
    fault.open_errno = EMFILE;
    assert_int_equal(put(w, "{\"a\":2}", 1, 5500), LATER);
    assert_int_equal(file_of(w, path)->error, EMFILE);
    assert_true(file_of(w, path)->fd != -1);
    reset_faults();

    assert_int_equal(put(w, "{\"a\":2}", 1, 5500), 1);
    ngx_http_llm_capture_writer_destroy(w);

    assert_file(path, ROW(0, "{\"a\":1}") ROW(500, "{\"a\":2}"));
}


/* rows without a time need no sidecar */

static void
test_raw(void **state)
{
    line_t         line;
    writer_t      *w;
    struct iovec   iov;

    (void) state;

    w = new_writer();
    set_line(&line, &iov, "{\"messages\":[]}", 100, 100);
    assert_int_equal(ngx_http_llm_capture_writer_write(w, file_of(w, path),
                         RAW, &line, 1, 100, 100, &intent, 1), 1);
    ngx_http_llm_capture_writer_destroy(w);

    assert_file(path, "{\"messages\":[]}\n");
    assert_int_equal(access(sidecar, F_OK), -1);
}


/* the first line failed on a full disk: two helpers still agree */

static void
test_first_fails(void **state)
{
    writer_t  *w, *v;

    (void) state;

    w = new_writer();
    v = new_writer();

    fault.write_errno = ENOSPC;
    fault.write_bytes = 0;
    assert_int_equal(put(w, "{\"a\":1}", 1, 5000), LATER);
    assert_int_equal(put(v, "{\"a\":2}", 1, 5100), LATER);
    reset_faults();

    /* now the sidecar can be written, the line cannot */

    fault.write_errno = ENOSPC;
    fault.write_bytes = 0;
    fault.lines_only = 1;
    assert_int_equal(put(v, "{\"a\":2}", 1, 5100), LATER);
    assert_int_equal(access(sidecar, F_OK), 0);
    reset_faults();

    assert_int_equal(put(w, "{\"a\":1}", 1, 5400), 1);
    assert_int_equal(put(v, "{\"a\":2}", 1, 5500), 1);
    assert_int_equal(put(w, "{\"a\":3}", 1, 5600), 1);

    ngx_http_llm_capture_writer_destroy(w);
    ngx_http_llm_capture_writer_destroy(v);

    assert_file(path, ROW(300, "{\"a\":1}") ROW(400, "{\"a\":2}")
                      ROW(500, "{\"a\":3}"));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_text),
        TEST(test_never_negative),
        TEST(test_store),
        TEST(test_store_fails),
        TEST(test_load_odd),
        TEST(test_boot),
        TEST(test_restart),
        TEST(test_reboot),
        TEST(test_no_sidecar),
        TEST(test_long_row),
        TEST(test_other_inode),
        TEST(test_truncated),
        TEST(test_rotated),
        TEST(test_unwritable),
        TEST(test_unreadable),
        TEST(test_raw),
        TEST(test_first_fails),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
