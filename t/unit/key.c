
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the key of a file: as text, beside the file, and in trouble.
 */

#include "files.h"

#include <dirent.h>

#include "ngx_http_llm_capture_key.h"


#define KEY  "00112233445566778899aAbBcCdDeEfF"

static const uint8_t  want[16] = {
    0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
    0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff
};

static char  keyfile[200];


static int
parse(uint8_t key[16], const char *text)
{
    return ngx_http_llm_capture_key_parse(key, text, strlen(text));
}


static void
test_parse(void **state)
{
    size_t   i;
    uint8_t  key[16];

    static const char *const  bad[] = {
        "", "\n", "0", "00112233445566778899aabbccddeef",
        "00112233445566778899aabbccddeeff0", KEY "\n\n", KEY "\r\n", KEY " ",
        " 00112233445566778899aabbccddeeff", "0x112233445566778899aabbccddeeff",
        "00112233445566778899aabbccddeefg",
        "0011223344556677\n8899aabbccddeeff",
        "00112233445566778899aabbccddee\xc3\xbf",
        "@@112233445566778899aabbccddeeff"
    };

    (void) state;

    assert_int_equal(parse(key, KEY), 1);
    assert_memory_equal(key, want, sizeof(want));
    memset(key, 0, sizeof(key));
    assert_int_equal(parse(key, KEY "\n"), 1);
    assert_memory_equal(key, want, sizeof(want));

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(parse(key, bad[i]), 0);
        assert_memory_equal(key, want, sizeof(want));
    }

    assert_int_equal(ngx_http_llm_capture_key_parse(key, KEY "\0", 33), 0);
}


static const uint8_t *
key_of(writer_t *w, uint64_t now)
{
    snprintf(keyfile, sizeof(keyfile), "%s.key", path);

    return ngx_http_llm_capture_writer_key(w, file_of(w, path), now);
}


/* names in the directory besides the key: none is to be left */

static unsigned
others(void)
{
    DIR            *d;
    unsigned        n;
    struct dirent  *de;

    n = 0;
    d = opendir(dir);
    assert_non_null(d);

    while ((de = readdir(d)) != NULL) {
        n += de->d_name[0] != '.' && strcmp(de->d_name, "a.jsonl.key") != 0;
    }

    closedir(d);

    return n;
}


static void
is_kept(const uint8_t *key)
{
    char         *text;
    uint8_t       got[16];
    struct stat   st;

    text = slurp(keyfile, NULL);
    assert_non_null(text);
    assert_int_equal(strlen(text), 33);
    assert_int_equal(parse(got, text), 1);
    assert_memory_equal(got, key, sizeof(got));
    free(text);

    assert_int_equal(lstat(keyfile, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG|0600);
    assert_int_equal(st.st_nlink, 1);
    assert_int_equal(others(), 0);
}


static void
test_made(void **state)
{
    uint8_t         first[16];
    writer_t       *w;
    const uint8_t  *key;

    (void) state;

    w = new_writer();
    key = key_of(w, 1000);
    assert_non_null(key);
    memcpy(first, key, sizeof(first));
    is_kept(first);

    /* it stays, though somebody takes the file away */

    assert_int_equal(unlink(keyfile), 0);
    assert_memory_equal(key_of(w, 1000000), first, sizeof(first));
    assert_int_equal(access(keyfile, F_OK), -1);
    ngx_http_llm_capture_writer_destroy(w);

    w = new_writer();
    key = key_of(w, 1000);
    assert_memory_not_equal(key, first, sizeof(first));
    memcpy(first, key, sizeof(first));
    ngx_http_llm_capture_writer_destroy(w);

    w = new_writer();
    assert_memory_equal(key_of(w, 1000), first, sizeof(first));
    ngx_http_llm_capture_writer_destroy(w);

    assert_int_equal(said.n, 0);
}


static void
put_key(void)
{
    spew(keyfile, KEY "\n", 33);
}


/* another helper makes one meanwhile: both have that one */

static void
test_race(void **state)
{
    writer_t  *w;

    (void) state;

    w = new_writer();
    fault.before_link = put_key;
    assert_memory_equal(key_of(w, 1000), want, sizeof(want));
    is_kept(want);
    assert_int_equal(said.n, 0);
    ngx_http_llm_capture_writer_destroy(w);
}


/* at each call that fails it lives in memory, until it can be kept */

static void
test_not_kept(void **state)
{
    uint8_t    first[16];
    writer_t  *w;
    unsigned   i;

    (void) state;

    for (i = 0; i < 4; i++) {
        memset(&said, 0, sizeof(said));
        w = new_writer();

        switch (i) {
        case 0:
            fault.link_errno = EPERM;
            break;
        case 1:
            fault.write_bytes = 7;
            fault.write_errno = ENOSPC;
            break;
        case 2:
            fault.write_bytes = 0;
            fault.write_errno = EIO;
            break;
        case 3:
            fault.open_skip = 1;
            fault.open_times = 1;
            fault.open_errno = EACCES;
        }

        memcpy(first, key_of(w, 1000), sizeof(first));
        assert_int_equal(access(keyfile, F_OK), -1);
        assert_int_equal(others(), 0);
        assert_int_equal(said.n, 1);
        assert_non_null(strstr(said.text, "cannot keep the .key file"));

        reset_faults();
        assert_memory_equal(key_of(w, 60999), first, sizeof(first));
        assert_int_equal(access(keyfile, F_OK), -1);
        assert_memory_equal(key_of(w, 61000), first, sizeof(first));
        is_kept(first);

        ngx_http_llm_capture_writer_destroy(w);
        assert_int_equal(unlink(keyfile), 0);
    }

    /* interrupted, and byte by byte */

    w = new_writer();
    fault.write_chunk = 1;
    fault.write_eintr = 3;
    is_kept(key_of(w, 1000));
    ngx_http_llm_capture_writer_destroy(w);
}


/* nobody can tell what is there: not now */

static void
test_not_now(void **state)
{
    size_t     i;
    file_t    *f;
    writer_t  *w;

    static const int  passing[] = { EIO, ENOMEM, EMFILE, ENFILE, EINTR };

    (void) state;

    w = new_writer();
    f = file_of(w, path);
    snprintf(keyfile, sizeof(keyfile), "%s.key", path);
    put_key();

    for (i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        fault.open_times = 1;
        fault.open_errno = passing[i];
        assert_null(key_of(w, 1000));
        assert_int_equal(f->error, passing[i]);
    }

    fault.pread_errno = EIO;
    assert_null(key_of(w, 1000));
    assert_int_equal(f->error, EIO);
    reset_faults();
    assert_memory_equal(key_of(w, 1000), want, sizeof(want));

    /* nor is a row written without an id */

    ngx_http_llm_capture_writer_destroy(w);
    assert_int_equal(unlink(keyfile), 0);
    w = new_writer();
    f = file_of(w, path);
    fault.random_errno = EAGAIN;
    assert_null(key_of(w, 1000));
    assert_int_equal(f->error, EAGAIN);
    ngx_http_llm_capture_writer_destroy(w);
}


/* lines wait for the key, and get an id each; others do not ask for it */

static void
test_lines(void **state)
{
    char           row[128], id[NGX_HTTP_LLM_CAPTURE_SESSION];
    line_t         line;
    writer_t      *w;
    struct iovec   iov;

    (void) state;

    w = new_writer();
    snprintf(keyfile, sizeof(keyfile), "%s.key", path);

    fault.random_errno = EAGAIN;
    assert_int_equal(put(w, "{}", 5, 5), 1);
    memset(&intent, 0, sizeof(intent));
    set_line(&line, &iov, "{}", 5, 5);
    line.session = 7;
    assert_int_equal(ngx_http_llm_capture_writer_write(w, file_of(w, path),
                         MOON, &line, 1, 5, 5, &intent, 1000), LATER);
    assert_int_equal(atomic_load(&intent.state),
                     NGX_HTTP_LLM_CAPTURE_INTENT_NONE);
    assert_int_equal(line.session, 7);

    reset_faults();
    put_key();
    assert_int_equal(ngx_http_llm_capture_writer_write(w, file_of(w, path),
                         MOON, &line, 1, 5, 5, &intent, 2000), 1);
    assert_true(line.session
                == ngx_http_llm_capture_siphash_seal(want, 7));
    assert_memory_equal(intent.key, want, sizeof(want));

    ngx_http_llm_capture_siphash_hex(line.session, id);
    snprintf(row, sizeof(row), "{\"timestamp\":0,\"payload\":{}}\n"
             "{\"timestamp\":0,\"session_id\":\"%s\",\"payload\":{}}\n", id);
    assert_file(path, row);
    ngx_http_llm_capture_writer_destroy(w);
}


/* what stands there is no key: it is left alone */

static void
test_odd(void **state)
{
    int         fd;
    writer_t   *w;
    unsigned    i;

    (void) state;

    snprintf(keyfile, sizeof(keyfile), "%s.key", path);

    for (i = 0; i < 5; i++) {
        memset(&said, 0, sizeof(said));

        switch (i) {
        case 0:
            spew(keyfile, "", 0);
            break;
        case 1:
            spew(keyfile, KEY "\n\n", 34);
            break;
        case 2:
            put_key();
            assert_int_equal(chmod(keyfile, 0604), 0);
            break;
        case 3:
            assert_int_equal(symlink("b", keyfile), 0);
            fd = open(keyfile, O_WRONLY|O_CREAT, 0600);
            assert_int_equal(write(fd, KEY, 32), 32);
            close(fd);
            break;
        case 4:
            assert_int_equal(mkdir(keyfile, 0700), 0);
        }

        w = new_writer();
        assert_memory_not_equal(key_of(w, 1000), want, sizeof(want));
        assert_int_equal(said.n, 1);
        assert_non_null(strstr(said.text, "is no key that only its owner"));
        ngx_http_llm_capture_writer_destroy(w);
        assert_int_equal(remove(keyfile), 0);
    }
}


/* where others can write, one of somebody else is not taken */

static void
test_planted(void **state)
{
    writer_t  *w;

    (void) state;

    if (geteuid() != 0) {
        skip();
    }

    snprintf(keyfile, sizeof(keyfile), "%s.key", path);
    put_key();
    assert_int_equal(chown(keyfile, 65534, 65534), 0);

    w = new_writer();
    assert_memory_equal(key_of(w, 1000), want, sizeof(want));
    ngx_http_llm_capture_writer_destroy(w);

    assert_int_equal(chmod(dir, 01777), 0);
    w = new_writer();
    assert_memory_not_equal(key_of(w, 1000), want, sizeof(want));
    assert_int_equal(said.n, 1);
    ngx_http_llm_capture_writer_destroy(w);
}


/* one from the configuration: no file of its own is looked at, or made */

static void
test_given(void **state)
{
    writer_t                            *w;
    ngx_http_llm_capture_writer_conf_t   conf;

    (void) state;

    memset(&conf, 0, sizeof(conf));
    conf.log = say;
    conf.sys = fault_sys();
    conf.key = want;

    w = ngx_http_llm_capture_writer_create(&conf);
    assert_non_null(w);
    fault.random_errno = EIO;
    fault.opens = 0;
    assert_ptr_equal(key_of(w, 1000), want);
    assert_int_equal(fault.opens, 0);
    assert_int_equal(others(), 0);
    ngx_http_llm_capture_writer_destroy(w);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_parse),
        TEST(test_made),
        TEST(test_race),
        TEST(test_not_kept),
        TEST(test_not_now),
        TEST(test_lines),
        TEST(test_odd),
        TEST(test_planted),
        TEST(test_given)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("key", tests, NULL, NULL);
}
