
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the digest and the compression of a sealed segment: what comes out
 * at any length of the steps, and what stands in the directory when a call
 * fails or the file changes meanwhile.
 */

#include "files.h"
#include "ngx_http_llm_capture_digest.h"

#include <zstd.h>


#define NONE  NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE
#define GZIP  NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP
#define ZSTD  NGX_HTTP_LLM_CAPTURE_COMPRESSION_ZSTD

#define create   ngx_http_llm_capture_digest_create
#define step     ngx_http_llm_capture_digest_step
#define result   ngx_http_llm_capture_digest_result
#define destroy  ngx_http_llm_capture_digest_destroy

typedef ngx_http_llm_capture_digest_t         digest_t;
typedef ngx_http_llm_capture_digest_result_t  result_t;

static char    out[160];
static char    temp[160];
static size_t  got;             /* bytes that pread() gave */
static int     sync_errno;
static int     sync_eintr;

static const struct {
    int          compression;
    const char  *end;
} kinds[] = { { NONE, "" }, { GZIP, ".gz" }, { ZSTD, ".zst" } };


static ssize_t
counting_pread(int fd, void *buf, size_t n, off_t offset)
{
    ssize_t  rc;

    rc = fault_pread(fd, buf, n, offset);

    if (rc > 0) {
        got += (size_t) rc;
    }

    return rc;
}


static int
fault_fsync(int fd)
{
    if (sync_eintr > 0) {
        sync_eintr--;
        errno = EINTR;
        return -1;
    }

    if (sync_errno) {
        errno = sync_errno;
        return -1;
    }

    return fsync(fd);
}


static const ngx_http_llm_capture_sys_t *
sys_calls(void)
{
    static ngx_http_llm_capture_sys_t  sys;

    sys = *fault_sys();
    sys.pread = counting_pread;
    sys.fsync = fault_fsync;

    return &sys;
}


static digest_t *
begin(int compression)
{
    const char  *end;

    end = kinds[compression].end;
    snprintf(out, sizeof(out), "%s%s", path, end);
    snprintf(temp, sizeof(temp), "%s%s.tmp", path, end);
    sync_errno = 0;

    return create(sys_calls(), path, compression == NONE ? NULL : out,
                  compression);
}


/* to the end, and how many steps it took */

static unsigned
finish(digest_t *d, size_t bytes)
{
    int       rc;
    unsigned  n;

    for (n = 1; ; n++) {
        got = 0;
        rc = step(d, bytes);
        assert_in_range(got, 0, bytes);

        if (rc == 0) {
            return n;
        }

        assert_int_equal(rc, 1);
        assert_true(n < 1000000);
    }
}


static int
exists(const char *name)
{
    struct stat  st;

    return lstat(name, &st) == 0;
}


/* what a command prints */

static char *
said_by(const char *command, const char *name, size_t *len)
{
    char    line[512], *text;
    FILE   *f;
    size_t  n;

    snprintf(line, sizeof(line), "%s < %s", command, name);
    f = popen(line, "r");
    assert_non_null(f);
    text = malloc(4 * 1024 * 1024);
    assert_non_null(text);
    n = fread(text, 1, 4 * 1024 * 1024 - 1, f);
    assert_int_equal(pclose(f), 0);
    text[n] = '\0';

    if (len) {
        *len = n;
    }

    return text;
}


/* like rows: compresses about as they do */

static char *
rows(size_t len)
{
    char      *text;
    size_t     i;
    uint64_t   seed;

    text = malloc(len + 1);
    assert_non_null(text);
    seed = 42;

    for (i = 0; i < len; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        text[i] = (seed >> 60) == 0 && i % 7 == 0
                  ? '\n' : "etaoin {}\":,xyz0"[(seed >> 40) & 15];
    }

    text[len] = '\0';

    return text;
}


static size_t
count(const char *text, size_t len)
{
    size_t  i, n;

    for (i = 0, n = 0; i < len; i++) {
        n += text[i] == '\n';
    }

    return n;
}


static void
test_vectors(void **state)
{
    char      *million;
    unsigned   i;
    digest_t  *d;

    struct {
        const char  *text;
        size_t       len;
        const char  *sha256;
    } t[] = {
        { "", 0, "e3b0c44298fc1c149afbf4c8996fb924"
                 "27ae41e4649b934ca495991b7852b855" },
        { "abc", 3, "ba7816bf8f01cfea414140de5dae2223"
                    "b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { NULL, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67"
                         "f1809a48a497200e046d39ccc7112cd0" }
    };

    (void) state;

    million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    t[3].text = million;

    for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        spew(path, t[i].text, t[i].len);
        d = begin(NONE);
        assert_non_null(d);
        (void) finish(d, 10000);
        assert_string_equal(result(d)->sha256, t[i].sha256);
        assert_int_equal(result(d)->bytes, t[i].len);
        assert_int_equal(result(d)->plain_bytes, t[i].len);
        assert_int_equal(result(d)->rows, 0);
        assert_int_equal(step(d, 1), 0);
        destroy(d);
    }

    assert_int_equal(fault.open_now, 0);
    free(million);
}


static void
check_unpacked(int compression, const char *text, size_t len)
{
    char    *plain, *packed;
    size_t   n = 0;

    if (compression == GZIP) {
        plain = said_by("gzip -dc", out, &n);

    } else {
        packed = slurp(out, &n);
        assert_non_null(packed);
        plain = malloc(len + 1);
        assert_non_null(plain);
        n = ZSTD_decompress(plain, len + 1, packed, n);
        assert_false(ZSTD_isError(n));
        free(packed);
    }

    assert_int_equal(n, len);
    assert_memory_equal(plain, text, len);
    free(plain);
}


/* sizes about those of blocks, steps of any length */

static void
test_sizes(void **state)
{
    char         *text, *want;
    size_t        i, k;
    unsigned      n;
    digest_t     *d;
    struct stat   st;

    static const size_t  sizes[] = { 0, 1, 65535, 65536, 65537, 300001 };
    static const size_t  steps[] = { 1000, 65536, 70000, 10000000 };

    (void) state;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        text = rows(sizes[i]);
        spew(path, text, sizes[i]);

        for (k = 0; k < 3 * 4; k++) {
            d = begin(kinds[k / 4].compression);
            assert_non_null(d);
            n = finish(d, steps[k % 4]);
            assert_in_range(n, sizes[i] / steps[k % 4] + 2,
                            sizes[i] / steps[k % 4] + 3);

            assert_int_equal(result(d)->plain_bytes, sizes[i]);
            assert_int_equal(result(d)->rows, count(text, sizes[i]));

            want = said_by("sha256sum", out, NULL);
            want[64] = '\0';
            assert_string_equal(result(d)->sha256, want);
            free(want);

            assert_int_equal(stat(out, &st), 0);
            assert_int_equal(result(d)->bytes, st.st_size);
            assert_int_equal(st.st_mode & 07777, 0600);
            assert_true(exists(path));
            destroy(d);
            assert_false(exists(temp));
            assert_int_equal(fault.open_now, 0);

            if (k / 4 != NONE) {
                check_unpacked(kinds[k / 4].compression, text, sizes[i]);
                unlink(out);
            }
        }

        free(text);
    }
}


/* replaced: a temporary, and a finished one, of a process that was killed */

static void
test_again(void **state)
{
    char      *text;
    int        k;
    digest_t  *d;

    (void) state;

    text = rows(200000);
    spew(path, text, 200000);

    for (k = GZIP; k <= ZSTD; k++) {
        d = begin(k);
        assert_non_null(d);
        assert_int_equal(step(d, 70000), 1);
        assert_true(exists(temp));
        destroy(d);
        assert_false(exists(temp));
        assert_false(exists(out));

        spew(temp, "left", 4);
        spew(out, "left", 4);
        assert_int_equal(chmod(temp, 0644), 0);
        d = begin(k);
        assert_non_null(d);
        (void) finish(d, 70000);
        destroy(d);
        check_unpacked(k, text, 200000);

        /* a link in the way of the temporary is not followed */

        spew(sidecar, "victim", 6);
        assert_int_equal(symlink(sidecar, temp), 0);
        d = begin(k);
        assert_non_null(d);
        (void) finish(d, 70000);
        destroy(d);
        check_unpacked(k, text, 200000);
        assert_file(sidecar, "victim");
    }

    assert_int_equal(fault.open_now, 0);
    free(text);
}


/* the error stays, no temporary does, and the plain file is as it was */

static void
assert_fails(digest_t *d, int err)
{
    int  rc, n;

    assert_non_null(d);

    for (n = 0; (rc = step(d, 70000)) == 1; n++) {
        assert_true(n < 100);
    }

    assert_int_equal(rc, -1);
    assert_int_equal(errno, err);
    assert_false(exists(temp));
    assert_false(exists(out) && strcmp(out, path) != 0);

    errno = 0;
    assert_int_equal(step(d, 70000), -1);
    assert_int_equal(errno, err);

    destroy(d);
    assert_int_equal(fault.open_now, 0);
    assert_true(exists(path));
    reset_faults();
}


static void
test_faults(void **state)
{
    int        k;
    char      *text;
    long       n;
    digest_t  *d;

    (void) state;

    text = rows(300000);
    spew(path, text, 300000);

    for (k = GZIP; k <= ZSTD; k++) {

        for (n = 0; n < 100000; n += 33333) {
            d = begin(k);
            fault.write_errno = ENOSPC;
            fault.write_bytes = n;
            assert_fails(d, ENOSPC);
        }

        d = begin(k);
        fault.write_bytes = 20;         /* then writev() says 0 */
        assert_fails(d, EIO);

        d = begin(k);
        sync_errno = EIO;
        assert_fails(d, EIO);

        d = begin(k);
        fault.rename_errno = EDQUOT;
        assert_fails(d, EDQUOT);

        /* a few bytes a call, and calls that are interrupted */

        d = begin(k);
        fault.write_chunk = 3;
        fault.write_eintr = 5;
        sync_eintr = 2;
        assert_non_null(d);
        (void) finish(d, 70000);
        destroy(d);
        check_unpacked(k, text, 300000);
        unlink(out);
        reset_faults();
    }

    for (k = NONE; k <= ZSTD; k++) {
        d = begin(k);
        fault.pread_errno = EIO;
        assert_fails(d, EIO);
    }

    free(text);
}


static void
grow(void)
{
    append(path, "more\n");
}


static void
cut(void)
{
    assert_int_equal(truncate(path, 100000), 0);
}


/* to the same size, by the clock of another second */

static void
rewrite(void)
{
    struct timespec  times[2] = { { 0, UTIME_OMIT }, { 1, 0 } };

    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}


static void
replace(void)
{
    char  *text;

    text = slurp(path, NULL);
    assert_non_null(text);
    spew(sidecar, text, strlen(text));
    assert_int_equal(rename(sidecar, path), 0);
    free(text);
}


static void
test_changed(void **state)
{
    int        k;
    char      *text;
    unsigned   i, when;
    digest_t  *d;

    static void (*const  change[])(void) = { grow, cut, rewrite, replace };

    (void) state;

    text = rows(300000);

    for (k = NONE; k <= ZSTD; k++) {
        for (i = 0; i < sizeof(change) / sizeof(change[0]); i++) {
            for (when = 0; when < 5; when++) {
                unsigned  n;

                spew(path, text, 300000);
                d = begin(k);
                assert_non_null(d);

                for (n = 0; n < when; n++) {
                    assert_int_equal(step(d, 70000), 1);
                }

                change[i]();
                assert_fails(d, ESTALE);
            }
        }
    }

    /* gone */

    spew(path, text, 300000);
    d = begin(GZIP);
    assert_non_null(d);
    assert_int_equal(unlink(path), 0);
    (void) step(d, 300000);
    assert_int_equal(step(d, 1), -1);
    assert_int_equal(errno, ESTALE);
    assert_false(exists(temp));
    destroy(d);

    free(text);
}


/* one that another process appends to faster than it is read */

static void
test_growing(void **state)
{
    int        n;
    char      *text;
    digest_t  *d;

    (void) state;

    text = rows(100000);
    spew(path, text, 100000);
    d = begin(NONE);
    assert_non_null(d);

    for (n = 0; step(d, 70000) == 1; n++) {
        append(path, text);
        assert_true(n < 10);
    }

    assert_int_equal(errno, ESTALE);
    destroy(d);
    free(text);
}


static void
test_refused(void **state)
{
    (void) state;

    assert_null(begin(NONE));
    assert_int_equal(errno, ENOENT);

    spew(path, "x\n", 2);
    assert_null(create(sys_calls(), path, NULL, GZIP));
    assert_int_equal(errno, EINVAL);
    assert_null(create(sys_calls(), path, out, NONE));
    assert_int_equal(errno, EINVAL);
    assert_null(create(sys_calls(), dir, NULL, NONE));
    assert_int_equal(errno, EINVAL);

    assert_int_equal(symlink(path, sidecar), 0);
    assert_null(create(sys_calls(), sidecar, NULL, NONE));
    assert_int_equal(errno, ELOOP);
    unlink(sidecar);

    assert_int_equal(mkfifo(sidecar, 0600), 0);
    assert_null(create(sys_calls(), sidecar, NULL, NONE));
    assert_int_equal(errno, EINVAL);

    snprintf(out, sizeof(out), "%s/none/x.gz", dir);
    assert_null(create(sys_calls(), path, out, GZIP));
    assert_int_equal(errno, ENOENT);

    destroy(NULL);
    assert_int_equal(fault.open_now, 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_vectors),
        TEST(test_sizes),
        TEST(test_again),
        TEST(test_faults),
        TEST(test_changed),
        TEST(test_growing),
        TEST(test_refused)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
