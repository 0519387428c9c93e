
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the names of sealed segments, the list of them among other files,
 * their removal, and the search for a file that was renamed.
 */

#include "files.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_segment.h"


#define STAMP   "20261130T061500.123Z"
#define STAMPED 1796019300123ULL

#define name_of    ngx_http_llm_capture_segment_name
#define manifest   ngx_http_llm_capture_segment_manifest
#define list_of    ngx_http_llm_capture_segments_list
#define free_list  ngx_http_llm_capture_segments_free
#define drop       ngx_http_llm_capture_segment_remove

typedef ngx_http_llm_capture_segments_t  list_t;

static char  at_buf[512];


static const char *
at(const char *name)
{
    snprintf(at_buf, sizeof(at_buf), "%s/%s", dir, name);

    return at_buf;
}


static int
there(const char *name)
{
    struct stat  st;

    return lstat(at(name), &st) == 0;
}


static void
put_files(const char *const *names, size_t n)
{
    while (n--) {
        spew(at(names[n]), "12345\n", 6);
    }
}


#define PUT(names)  put_files(names, sizeof(names) / sizeof(names[0]))


static void
test_names(void **state)
{
    char      out[512];
    unsigned  i;

    static const struct {
        const char  *live;
        uint64_t     utc;
        const char  *tail;
        const char  *want;
        const char  *manifest;
    } t[] = {
        { "/d/requests.chat.jsonl", STAMPED, ".jsonl",
          "/d/requests.chat." STAMP ".jsonl",
          "/d/requests.chat.manifest.json" },
        { "/d/x.jsonl", STAMPED, ".jsonl.plain", "/d/x." STAMP ".jsonl.plain",
          "/d/x.manifest.json" },
        { "/d/x.jsonl", 0, ".manifest.json",
          "/d/x.19700101T000000.000Z.manifest.json", "/d/x.manifest.json" },
        { "/d/x.jsonl", 253402300799999ULL, ".outcomes",
          "/d/x.99991231T235959.999Z.outcomes", "/d/x.manifest.json" },
        { "/d/x.jsonl", 1709164800007ULL, "", "/d/x.20240229T000000.007Z",
          "/d/x.manifest.json" },
        { "/d.jsonl/x", STAMPED, ".jsonl", "/d.jsonl/x." STAMP ".jsonl",
          "/d.jsonl/x.manifest.json" },
        { "/d/x.json", STAMPED, ".jsonl", "/d/x.json." STAMP ".jsonl",
          "/d/x.json.manifest.json" },
        { "/d/jsonl", STAMPED, ".jsonl", "/d/jsonl." STAMP ".jsonl",
          "/d/jsonl.manifest.json" },
        { "/d/.jsonl", STAMPED, ".jsonl", "/d/.jsonl." STAMP ".jsonl",
          "/d/.jsonl.manifest.json" },
        { "/d/x.jsonl.jsonl", STAMPED, ".jsonl", "/d/x.jsonl." STAMP ".jsonl",
          "/d/x.jsonl.manifest.json" },
        { "/a", STAMPED, ".jsonl.zst", "/a." STAMP ".jsonl.zst",
          "/a.manifest.json" }
    };

    (void) state;

    for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        assert_int_equal(name_of(t[i].live, t[i].utc, t[i].tail, out,
                                 sizeof(out)), 0);
        assert_string_equal(out, t[i].want);

        /* into what just has room, and into a byte less */

        assert_int_equal(name_of(t[i].live, t[i].utc, t[i].tail, out,
                                 strlen(t[i].want) + 1), 0);
        errno = 0;
        assert_int_equal(name_of(t[i].live, t[i].utc, t[i].tail, out,
                                 strlen(t[i].want)), -1);
        assert_int_equal(errno, ENAMETOOLONG);

        assert_int_equal(manifest(t[i].live, out, sizeof(out)), 0);
        assert_string_equal(out, t[i].manifest);
        assert_int_equal(manifest(t[i].live, out, strlen(t[i].manifest)), -1);
    }

    assert_int_equal(name_of("/d/x", 253402300800000ULL, "", out, sizeof(out)),
                     -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(name_of("/d/x", UINT64_MAX, "", out, sizeof(out)), -1);
    assert_int_equal(errno, EINVAL);
}


/* the longest name of a live file, and what a directory takes */

static void
test_long(void **state)
{
    char  live[512], out[512];

    (void) state;

    memset(live, 'n', sizeof(live));
    memcpy(live, "/d/", 3);
    live[3 + NGX_HTTP_LLM_CAPTURE_PATH_NAME] = '\0';

    assert_int_equal(name_of(live, STAMPED, ".manifest.json.tmp", out,
                             sizeof(out)), 0);
    assert_int_equal(strlen(out), 3 + NAME_MAX);

    assert_int_equal(name_of(live, STAMPED, ".manifest.json.tmp1", out,
                             sizeof(out)), -1);
    assert_int_equal(errno, ENAMETOOLONG);
}


static void
test_times(void **state)
{
    unsigned  i;
    uint64_t  utc;

    static const char *const  bad[] = {
        "", "20261130T061500.123", "20261130T061500.12Z",
        "20261131T061500.123Z",
        "20260229T061500.123Z", "20261330T061500.123Z", "20260030T061500.123Z",
        "20261100T061500.123Z", "20261130T241500.123Z", "20261130T066000.123Z",
        "20261130T061560.123Z", "20261130 061500.123Z", "20261130T061500,123Z",
        "20261130T061500.123z", "+0261130T061500.123Z", "19691231T235959.999Z",
        "2026113 T061500.123Z"
    };

    (void) state;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(ngx_http_llm_capture_segment_utc(bad[i], &utc));
    }

    assert_true(ngx_http_llm_capture_segment_utc(STAMP, &utc));
    assert_int_equal(utc, STAMPED);
    assert_true(ngx_http_llm_capture_segment_utc(STAMP ".jsonl", &utc));
    assert_true(ngx_http_llm_capture_segment_utc("20240229T000000.007Z", &utc));
    assert_int_equal(utc, 1709164800007ULL);
}


static void
test_list(void **state)
{
    list_t    list;
    unsigned  i;

    static const char *const  ours[] = {
        "a.20261130T061500.124Z.jsonl.zst",
        "a.20261130T061500.123Z.jsonl",
        "a.19991231T235959.999Z.jsonl.gz",
        "a.20261130T061500.124Z.jsonl.plain",
        "a.20261130T061500.124Z.outcomes",
        "a.20261130T061500.124Z.manifest.json",
    };

    static const char *const  decoys[] = {
        "a.jsonl", "a.manifest.json", "a", "a." STAMP, "a." STAMP ".jsonl.bz2",
        "a." STAMP ".jsonl.gz.tmp", "a." STAMP ".jsonl~", "a." STAMP ".json",
        "a." STAMP "jsonl", "a." STAMP ".JSONL", "a" STAMP ".jsonl",
        "a-" STAMP ".jsonl", "aa." STAMP ".jsonl", "b." STAMP ".jsonl",
        ".a." STAMP ".jsonl", "a.b." STAMP ".jsonl", "a." STAMP "." STAMP
        ".jsonl", "a.20261131T061500.123Z.jsonl", "a.20261130T061500.123.jsonl",
        "a.20261130T061500Z.jsonl", "a.1.jsonl", "a.jsonl.1", "a.jsonl." STAMP,
        "a.jsonl." STAMP ".jsonl", "a." STAMP ".jsonl.plain.gz",
        "a." STAMP ".jsonl.epoch", "a." STAMP ".jsonl.outcomes"
    };

    static const struct {
        uint64_t  utc;
        unsigned  form;
    } want[] = {
        { 946684799999ULL, NGX_HTTP_LLM_CAPTURE_SEGMENT_GZIP },
        { STAMPED, NGX_HTTP_LLM_CAPTURE_SEGMENT_JSONL },
        { STAMPED + 1, NGX_HTTP_LLM_CAPTURE_SEGMENT_PLAIN },
        { STAMPED + 1, NGX_HTTP_LLM_CAPTURE_SEGMENT_ZSTD }
    };

    (void) state;

    PUT(ours);
    PUT(decoys);
    assert_int_equal(symlink("a.jsonl", at("a.20250101T000000.000Z.jsonl")), 0);
    assert_int_equal(mkdir(at("a.20250102T000000.000Z.jsonl"), 0700), 0);
    assert_int_equal(mkfifo(at("a.20250103T000000.000Z.jsonl"), 0600), 0);
    append(at("a." STAMP ".jsonl"), "6");

    assert_int_equal(list_of(fault_sys(), path, &list), 0);
    assert_int_equal(list.n, 4);
    assert_int_equal(list.files, 4);
    assert_int_equal(list.bytes, 4 * 6 + 1);
    assert_int_equal(list.beside, 2 * 6);

    for (i = 0; i < 4; i++) {
        char         name[256];
        struct stat  st;

        assert_int_equal(list.all[i].utc, want[i].utc);
        assert_int_equal(list.all[i].form, want[i].form);
        assert_int_equal(list.all[i].size, i == 1 ? 7 : 6);

        assert_int_equal(name_of(path, want[i].utc,
                                 ngx_http_llm_capture_segment_tail(
                                     want[i].form),
                                 name, sizeof(name)), 0);
        assert_int_equal(stat(name, &st), 0);
        assert_int_equal(list.all[i].ino, st.st_ino);
        assert_int_equal(list.all[i].dev, st.st_dev);
    }

    free_list(&list);
    assert_null(list.all);

    /* a live name without the end */

    assert_int_equal(list_of(fault_sys(), at("a.b"), &list), 0);
    assert_int_equal(list.n, 1);
    free_list(&list);

    assert_int_equal(list_of(fault_sys(), at("z.jsonl"), &list), 0);
    assert_int_equal(list.n, 0);
    free_list(&list);

    assert_int_equal(list_of(fault_sys(), at("none/a.jsonl"), &list), -1);
    assert_int_equal(errno, ENOENT);
    assert_null(list.all);
}


/* of more than there is room for the oldest are listed, and all counted */

static void
test_many(void **state)
{
    char      name[256];
    list_t    list;
    size_t    i, n;
    uint64_t  k;

    (void) state;

    n = 2 * NGX_HTTP_LLM_CAPTURE_SEGMENTS + 100;

    for (i = 0; i < n; i++) {
        k = i * 7919 % n;
        assert_int_equal(name_of(path, STAMPED + k, ".jsonl", name,
                                 sizeof(name)), 0);
        spew(name, "1", 1);
    }

    assert_int_equal(list_of(fault_sys(), path, &list), 0);
    assert_int_equal(list.n, NGX_HTTP_LLM_CAPTURE_SEGMENTS);
    assert_int_equal(list.files, n);
    assert_int_equal(list.bytes, n);

    for (i = 0; i < list.n; i++) {
        assert_int_equal(list.all[i].utc, STAMPED + i);
    }

    free_list(&list);
}


static int
fault_lstat(const char *name, struct stat *st)
{
    (void) name;
    (void) st;

    errno = EIO;

    return -1;
}


static void
test_list_fails(void **state)
{
    list_t                      list;
    ngx_http_llm_capture_sys_t  sys;

    (void) state;

    spew(at("a." STAMP ".jsonl"), "1", 1);
    sys = *fault_sys();
    sys.lstat = fault_lstat;

    assert_int_equal(list_of(&sys, path, &list), -1);
    assert_int_equal(errno, EIO);
    assert_null(list.all);
}


static void
test_remove(void **state)
{
    static const char *const  ours[] = {
        "a." STAMP ".jsonl", "a." STAMP ".jsonl.plain", "a." STAMP ".jsonl.gz",
        "a." STAMP ".jsonl.zst", "a." STAMP ".jsonl.gz.tmp",
        "a." STAMP ".outcomes", "a." STAMP ".manifest.json"
    };

    static const char *const  others[] = {
        "a.jsonl", "a.manifest.json", "a.20261130T061500.124Z.jsonl",
        "aa." STAMP ".jsonl", "a." STAMP ".jsonl.bz2", "a." STAMP
    };

    unsigned  i;

    (void) state;

    PUT(ours);
    PUT(others);

    assert_int_equal(drop(fault_sys(), path, STAMPED), 7 * 6);

    for (i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        assert_false(there(ours[i]));
    }

    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_true(there(others[i]));
    }

    assert_int_equal(drop(fault_sys(), path, STAMPED), 0);

    /* no link, no directory; what a link names stays as well */

    assert_int_equal(symlink("a.jsonl", at("a." STAMP ".jsonl")), 0);
    assert_int_equal(mkdir(at("a." STAMP ".jsonl.gz"), 0700), 0);
    spew(at("a." STAMP ".manifest.json"), "{}", 2);

    assert_int_equal(drop(fault_sys(), path, STAMPED), 2);
    assert_true(there("a." STAMP ".jsonl"));
    assert_true(there("a." STAMP ".jsonl.gz"));
    assert_true(there("a.jsonl"));
}


static char  *unlinked[16];
static int    nunlinked, refuse;


static int
fault_unlink(const char *name)
{
    if (refuse && strstr(name, ".gz")) {
        errno = EACCES;
        return -1;
    }

    unlinked[nunlinked++] = strdup(name);

    return unlink(name);
}


/* the manifest goes last, and stays when something else did */

static void
test_remove_order(void **state)
{
    ngx_http_llm_capture_sys_t  sys;

    static const char *const  ours[] = {
        "a." STAMP ".manifest.json", "a." STAMP ".jsonl.gz",
        "a." STAMP ".outcomes"
    };

    (void) state;

    PUT(ours);
    sys = *fault_sys();
    sys.unlink = fault_unlink;

    refuse = 1;
    assert_int_equal(drop(&sys, path, STAMPED), -1);
    assert_int_equal(errno, EACCES);
    assert_true(there("a." STAMP ".jsonl.gz"));
    assert_true(there("a." STAMP ".manifest.json"));
    assert_false(there("a." STAMP ".outcomes"));

    refuse = 0;
    assert_int_equal(drop(&sys, path, STAMPED), 2 * 6);
    assert_int_equal(nunlinked, 3);
    assert_string_equal(unlinked[2], at("a." STAMP ".manifest.json"));

    while (nunlinked) {
        free(unlinked[--nunlinked]);
    }
}


static void
test_find(void **state)
{
    int          fd;
    char         found[NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH];
    uint64_t     dev, ino;
    struct stat  st;

    (void) state;

    spew(path, "x", 1);
    assert_int_equal(stat(path, &st), 0);
    dev = st.st_dev;
    ino = st.st_ino;

    fd = ngx_http_llm_capture_segment_find(fault_sys(), path, dev, ino, found);
    assert_true(fd >= 0);
    assert_string_equal(found, path);
    close(fd);

    assert_int_equal(rename(path, at("other name")), 0);
    spew(path, "new", 3);

    fd = ngx_http_llm_capture_segment_find(fault_sys(), path, dev, ino, found);
    assert_true(fd >= 0);
    assert_string_equal(found, at("other name"));
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_ino, ino);
    close(fd);

    fd = ngx_http_llm_capture_segment_find(fault_sys(), path, dev, ino, NULL);
    assert_true(fd >= 0);
    close(fd);

    assert_int_equal(ngx_http_llm_capture_segment_find(fault_sys(), path,
                                                       dev + 1, ino, found),
                     -1);

    fault.open_errno = EMFILE;
    fault.open_times = -1;
    assert_int_equal(ngx_http_llm_capture_segment_find(fault_sys(), path, dev,
                                                       ino, found), -2);
    assert_int_equal(errno, EMFILE);
    reset_faults();

    assert_int_equal(unlink(at("other name")), 0);
    assert_int_equal(ngx_http_llm_capture_segment_find(fault_sys(), path, dev,
                                                       ino, found), -1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_names),
        TEST(test_long),
        TEST(test_times),
        TEST(test_list),
        TEST(test_many),
        TEST(test_list_fails),
        TEST(test_remove),
        TEST(test_remove_order),
        TEST(test_find)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
