
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Manifests and segments while others rename, cut, lock and write the files.
 */

#include "drain_util.h"

#include <dirent.h>
#include <jansson.h>
#include <sys/file.h>

#include "ngx_http_llm_capture_book.h"


static ngx_http_llm_capture_policy_t  policy;


static void
rotate_by(uint64_t size, uint64_t time,
    ngx_http_llm_capture_compression_e compression)
{
    memset(&policy, 0, sizeof(policy));
    policy.hash = ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    policy.size = size;
    policy.time = time;
    policy.compression = compression;

    memset(&keeping, 0, sizeof(keeping));
    keeping.policies = &policy;
    keeping.npolicies = 1;
    keeping.nginx = "1";
    keeping.module = "1";

    /* who attached before knew nothing of it */
    successor();
}


static void
send(unsigned n)
{
    while (n--) {
        assert_int_equal(worker_text(&a, path, 1000, "{\"model\":\"m\"}"), 0);
    }

    (void) drain_pass(drain);
}


/* until nothing is due for a minute, but not for ever */

static void
let(uint64_t ms)
{
    unsigned  i;
    uint64_t  due, end;

    end = now + ms;

    for (i = 0; i < 2000; i++) {
        (void) drain_pass(drain);
        due = ngx_http_llm_capture_drain_due(drain);

        if (due == 0 || due > end) {
            now = end;
            return;
        }

        assert_true(due >= now);
        now = due > now ? due : now + 1;
    }

    fail_msg("always something is due");
}


static json_t *
manifest_at(const char *name)
{
    char  whole[400];

    snprintf(whole, sizeof(whole), "%s/%s", dir, name);

    return json_load_file(whole, 0, NULL);
}


static json_int_t
number(json_t *m, const char *name)
{
    return json_integer_value(json_object_get(m, name));
}


/* how many segments, and the oldest one; what: behind its time */

static int
segment(const char *what, char whole[400])
{
    int             n;
    DIR            *d;
    char            one[400];
    struct dirent  *de;

    d = opendir(dir);
    assert_non_null(d);

    for (n = 0; (de = readdir(d)) != NULL; /* void */) {
        if (strlen(de->d_name) == 2 + 20 + strlen(what)
            && strcmp(de->d_name + 22, what) == 0)
        {
            snprintf(one, sizeof(one), "%s/%s", dir, de->d_name);

            if (n++ == 0 || strcmp(one, whole) < 0) {
                strcpy(whole, one);
            }
        }
    }

    closedir(d);

    return n;
}


static void
away(void)
{
    char  to[400];

    snprintf(to, sizeof(to), "%s.away", path);
    assert_int_equal(rename(path, to), 0);
}


static void
cut(void)
{
    assert_int_equal(truncate(path, 0), 0);
}


static void
gone(void)
{
    assert_int_equal(unlink(path), 0);
}


static void
replaced(void)
{
    away();
    assert_int_equal(mkdir(path, 0700), 0);
}


/* nothing to be sealed: no work until there is another file */

static void
nothing_to_seal(void **state)
{
    char      whole[400];
    unsigned  i;

    static void (*const  did[])(void) = { away, cut, gone };

    (void) state;

    for (i = 0; i < sizeof(did) / sizeof(did[0]); i++) {
        rotate_by(0, 10000, 0);
        send(3);
        did[i]();
        let(60000);
        assert_int_equal(ngx_http_llm_capture_drain_due(drain), 0);

        send(2);
        let(20000);
        assert_int_equal(segment(".jsonl", whole), i + 1);
    }

    /* what is no file is tried again, at a rate */

    rotate_by(0, 10000, 0);
    send(3);
    replaced();
    let(60000);
    assert_int_equal(rmdir(path), 0);
    send(2);
    let(30000);
    assert_int_equal(segment(".jsonl", whole), 4);
}


static void
keeps_others(void **state)
{
    char     whole[400];
    json_t  *m, *w;

    (void) state;

    rotate_by(0, 0, 0);
    send(3);
    let(2000);

    /* an earlier nginx */

    m = manifest_at("a.manifest.json");
    assert_non_null(m);
    w = json_deep_copy(json_array_get(json_object_get(m, "writers"), 0));
    json_object_set_new(w, "id", json_string("abc"));
    json_array_append_new(json_object_get(m, "writers"), w);
    snprintf(whole, sizeof(whole), "%s/a.manifest.json", dir);
    assert_int_equal(json_dump_file(m, whole, 0), 0);
    json_decref(m);
}


/* the file stays as it is, and so does what others told of it */

static void
rename_fails(void **state)
{
    char     whole[400];
    json_t  *m;

    keeps_others(state);

    policy.size = 10;
    broken.rename = ".jsonl";
    send(1);
    let(9000);
    assert_int_equal(segment(".jsonl", whole), 0);
    assert_int_equal(segment(".manifest.json", whole), 0);
    assert_true(lines_with("cannot rename to a segment") == 1);

    m = manifest_at("a.manifest.json");
    assert_int_equal(number(m, "recorded"), 3 + 4);
    assert_true(json_is_false(json_object_get(m, "sealed")));
    json_decref(m);

    broken.rename = NULL;
    let(9000);
    assert_int_equal(segment(".manifest.json", whole), 1);
    m = json_load_file(whole, 0, NULL);
    assert_int_equal(number(m, "recorded"), 3 + 4);
    assert_int_equal(number(m, "rows"), 4);
    json_decref(m);
}


/* as "copytruncate" does: what stood there is of no file */

static void
cut_to_nothing(void **state)
{
    json_t  *m;

    keeps_others(state);
    cut();
    send(2);
    let(2000);

    m = manifest_at("a.manifest.json");
    assert_int_equal(number(m, "recorded"), 2);
    assert_int_equal(number(m, "rows"), 2);
    json_decref(m);

    /* and if no row follows */

    cut();
    assert_int_equal(worker_text(&a, path, 1000, "{"), 0);
    let(5000);
    m = manifest_at("a.manifest.json");
    assert_true(m == NULL || number(m, "rows") == 0);
    json_decref(m);
}


/* another one holds it just as its digest is done: later, then */

static void
locked_then(void **state)
{
    int      fd;
    char     whole[400];
    json_t  *m;

    (void) state;

    rotate_by(10, 0, NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP);
    send(2);
    let(0);
    assert_int_equal(segment(".jsonl.plain", whole), 1);

    fd = open(whole, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    let(4000);
    assert_int_equal(segment(".jsonl.plain", whole), 1);

    close(fd);
    let(1000);
    assert_int_equal(segment(".jsonl.plain", whole), 0);
    assert_int_equal(segment(".jsonl.gz", whole), 1);
    assert_int_equal(segment(".manifest.json", whole), 1);
    m = json_load_file(whole, 0, NULL);
    assert_true(json_is_string(json_object_get(m, "sha256")));
    json_decref(m);
}


/* a manifest cannot be written as the segment is done, for a while */

static void
full_then(void **state)
{
    char  whole[400];

    (void) state;

    rotate_by(10, 0, NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP);
    send(2);
    let(0);
    assert_int_equal(segment(".jsonl.plain", whole), 1);

    broken.rename = ".manifest.json";
    let(4000);
    assert_int_equal(segment(".jsonl.plain", whole), 1);

    broken.rename = NULL;
    let(70000);
    assert_int_equal(segment(".jsonl.plain", whole), 0);
    assert_int_equal(segment(".jsonl.gz", whole), 1);
}


/* two zones write to one file, and the first seals it */

static struct {
    zone_t     first;
    zone_t     zone;
    worker_t   worker;
    writer_t  *writer;
    drain_t   *drain;
} other;


static void
two_open(ngx_http_llm_capture_compression_e compression)
{
    uint64_t  clock;

    rotate_by(MIB, 0, compression);
    send(2);

    other.first = zone;
    clock = now;
    zone_make(1, MIB);
    now = clock;
    ngx_http_llm_capture_zone_hdr(&zone)->id = 2;
    other.zone = zone;
    worker_claim(&other.worker, 0);
    other.writer = drain_writer();
    other.drain = drain_over(other.writer);
    (void) worker_text(&other.worker, path, 1000, "{\"a\":1}");
    (void) drain_pass(other.drain);
    assert_counted(recorded, 1);

    zone = other.first;
    policy.size = 10;
    successor();
    send(1);
}


static void
two_close(void)
{
    ngx_http_llm_capture_drain_destroy(other.drain);
    ngx_http_llm_capture_writer_destroy(other.writer);
    zone = other.zone;
    zone_free();
    zone = other.first;
}


static void
told_late(void **state)
{
    char     whole[400];
    json_t  *m;

    (void) state;

    two_open(NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE);
    let(10000);
    assert_int_equal(segment(".manifest.json", whole), 1);
    m = json_load_file(whole, 0, NULL);
    assert_int_equal(number(m, "rows"), 4);
    assert_int_equal(number(m, "recorded"), 3);
    assert_true(json_is_string(json_object_get(m, "sha256")));
    json_decref(m);

    /* with one more that is no row */

    zone = other.zone;
    (void) worker_text(&other.worker, path, 1000, "{");
    (void) drain_pass(other.drain);
    now += 2000;
    (void) drain_pass(other.drain);

    m = json_load_file(whole, 0, NULL);
    assert_int_equal(number(m, "rows"), 4);
    assert_int_equal(number(m, "recorded"), 4);
    assert_int_equal(number(m, "seen"), 5);
    assert_int_equal(number(json_object_get(m, "found"), "rows"), 0);
    assert_true(json_is_true(json_object_get(m, "sealed")));
    assert_true(json_is_string(json_object_get(m, "sha256")));
    json_decref(m);

    two_close();
}


/* in time, of one that waits to be compressed */

static void
told_of_plain(void **state)
{
    char     whole[400];
    json_t  *m;

    (void) state;

    two_open(NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP);

    policy.size = MIB;
    zone = other.zone;
    (void) worker_text(&other.worker, path, 1000, "{\"a\":1}");
    (void) drain_pass(other.drain);
    zone = other.first;

    let(10000);
    assert_int_equal(segment(".jsonl.gz", whole), 1);
    assert_int_equal(segment(".jsonl.plain.manifest.json", whole), 0);
    assert_int_equal(segment(".manifest.json", whole), 1);

    m = json_load_file(whole, 0, NULL);
    assert_int_equal(number(m, "rows"), 4);
    assert_int_equal(number(m, "recorded"), 4);
    json_decref(m);

    two_close();
}


/* between the look at the name and the lock another one seals the file */

static int  (*flock_then)(int fd, int op);
static unsigned  swaps;

static int
swap_flock(int fd, int op)
{
    int          next;
    char         to[400];

    static const char  row[] = "{\"timestamp\":0,\"payload\":{}}\n";

    if (swaps && (op & LOCK_EX)) {
        swaps--;
        snprintf(to, sizeof(to), "%s/a.20200101T000000.000Z.jsonl", dir);
        assert_int_equal(rename(path, to), 0);

        next = open(path, O_WRONLY|O_CREAT, 0600);
        assert_int_equal(write(next, row, sizeof(row) - 1), sizeof(row) - 1);
        close(next);
    }

    return flock_then(fd, op);
}


static void
sealed_by_another(void **state)
{
    char                         whole[400];
    json_t                      *m;
    ngx_http_llm_capture_sys_t  *sys;

    (void) state;

    rotate_by(0, 5000, 0);
    send(2);
    let(3000);

    sys = (ngx_http_llm_capture_sys_t *) zone_sys();
    flock_then = sys->flock;
    sys->flock = swap_flock;
    swaps = 1;
    let(4000);
    sys->flock = flock_then;
    assert_int_equal(swaps, 0);

    /* the next file is not renamed in its place */

    assert_int_equal(segment(".jsonl", whole), 1);
    assert_int_equal(access(path, F_OK), 0);
    m = manifest_at("a.manifest.json");
    assert_true(m == NULL || number(m, "inode") != 0);
    json_decref(m);
}


/* by variables; of one path nginx says so at its start */

static void
one_stem(void **state)
{
    char  other[200];

    (void) state;

    rotate_by(0, 0, 0);
    send(1);
    snprintf(other, sizeof(other), "%.*s", (int) strlen(path) - 6, path);
    assert_int_equal(worker_text(&a, other, 1000, "{\"a\":1}"), 0);
    (void) drain_pass(drain);

    assert_counted(recorded, 1);
    assert_counted(bad_path, 1);
    assert_int_equal(access(other, F_OK), -1);

    /* not the stem of a stem */

    strcat(other, ".jsonl.jsonl");
    assert_int_equal(worker_text(&a, other, 1000, "{\"a\":1}"), 0);
    (void) drain_pass(drain);
    assert_counted(bad_path, 1);
    assert_counted(recorded, 2);
}


static int
unset(void **state)
{
    memset(&keeping, 0, sizeof(keeping));

    return stop(state);
}


#define SEAL(name)  cmocka_unit_test_setup_teardown(name, start, unset)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        SEAL(nothing_to_seal),
        SEAL(rename_fails),
        SEAL(cut_to_nothing),
        SEAL(locked_then),
        SEAL(full_then),
        SEAL(told_late),
        SEAL(told_of_plain),
        SEAL(sealed_by_another),
        SEAL(one_stem),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("seal", tests, NULL, NULL);
}
