
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Files become segments, are read and compressed, and the helper dies at any
 * place, as its successor does: each row stands in one file, and every manifest
 * says what is so.
 */

#include "crash_points.h"
#include "ngx_http_llm_capture_point.h"

#include <jansson.h>
#include <zlib.h>


#define STEPS  9
#define SIZE   2500

static ngx_http_llm_capture_policy_t  policy;

/* over all files, as they are looked at */
static unsigned  rows, recorded, invalid, carried, pendings, nsegments;
static unsigned  ever;          /* pending, in any */
static uint8_t   found_rows[RECORDS];


static int
do_step(unsigned step)
{
    record_t  *slow;

    slow = &sh->slow[0];

    switch (step) {

    case 0:
        send_many(0, 0, 3, 400);
        send_one(1, 0, INVALID, 100);
        return 1;

    case 1:
        /* under way while files change */
        worker_begin(&sh->w[1], slow, sh->path[0], MOON, ++sh->mono);
        slow->begin.pid = sh->k;
        (void) next_body(ABORTED, 100);

        if (worker_put(&sh->w[1], slow, "{", 1, 0) != 0) {
            _exit(3);
        }

        send_many(0, 0, 5, 600);
        return 1;

    case 5:
        abort_slow(1, 0);
        return 1;

    case 6:
        send_one(0, 0, INVALID, 200);
        send_many(0, 0, 4, 900);
        return 1;

    case 8:
        send_many(0, 0, 1, 100);
        return 1;

    default:
        send_many(step % 2, 0, 4, 500);
        return 1;
    }
}


static json_int_t
number(json_t *m, const char *name)
{
    json_t  *n;

    n = json_object_get(m, name);
    assert_true(json_is_integer(n));

    return json_integer_value(n);
}


static unsigned
read_rows(const char *name)
{
    char      line[4000], *p;
    gzFile    gz;
    unsigned  n, k;

    gz = gzopen(name, "r");
    assert_non_null(gz);

    for (n = 0; gzgets(gz, line, sizeof(line)); n++) {
        p = strstr(line, "{\"n\":");
        assert_non_null(p);
        k = (unsigned) atoi(p + 5);
        assert_true(k < sh->k && sh->kind[k] == WHOLE);

        if (found_rows[k]++) {
            fail_msg("record %u is there twice", k);
        }
    }

    gzclose(gz);

    return n;
}


static void
look(const char *name)
{
    char         whole[400], man[400], *end;
    json_t      *m, *reasons, *v;
    unsigned     n;
    const char  *key;
    json_int_t   sum;
    struct stat  st;

    snprintf(whole, sizeof(whole), "%s/%s", dir, name);
    end = strstr(name, ".jsonl");

    if (end == NULL || strstr(name, ".epoch") || strstr(name, ".key")) {

        /* of nothing */

        if (strstr(name, ".tmp") && strstr(name, ".key") == NULL) {
            fail_msg("%s is left", name);
        }

        end = strstr(whole, ".manifest.json");
        assert_non_null(end ? end : strstr(name, ".jsonl."));

        if (end) {
            strcpy(end, ".jsonl");

            if (stat(whole, &st) == -1) {
                strcpy(end, ".jsonl.gz");
                assert_int_equal(stat(whole, &st), 0);
            }
        }

        return;
    }

    n = read_rows(whole);
    rows += n;
    nsegments += strlen(name) > 7;

    snprintf(man, sizeof(man), "%s/%.*s.manifest.json", dir,
             (int) (end - name), name);
    m = json_load_file(man, 0, NULL);

    if (m == NULL) {
        fail_msg("%s has no manifest", name);
    }

    assert_int_equal(stat(whole, &st), 0);
    assert_string_equal(json_string_value(json_object_get(m, "file")), name);
    assert_true(json_is_true(json_object_get(m, "sealed")));
    assert_int_equal(number(m, "bytes"), st.st_size);
    assert_int_equal(number(m, "inode"), st.st_ino);
    assert_int_equal(number(m, "recorded"), n);
    assert_int_equal(number(m, "rows"), n);
    assert_true(number(m, "t0") > 0);
    assert_int_equal(json_array_size(json_object_get(m, "writers")), 1);

    reasons = json_object_get(m, "reasons");
    sum = 0;

    json_object_foreach(reasons, key, v) {
        sum += json_integer_value(v);
    }

    assert_int_equal(number(m, "seen"), n + sum + number(m, "pending"));

    recorded += n;
    invalid += json_integer_value(json_object_get(reasons, "invalid_json"));
    carried += number(m, "carried");
    pendings += number(m, "pending");

    json_decref(m);
}


static void
all_told(void)
{
    unsigned                         k, n, whole, bad;
    ngx_http_llm_capture_account_t  *a;

    rows = recorded = invalid = carried = pendings = nsegments = 0;
    memset(found_rows, 0, sizeof(found_rows));

    every_name(look);

    for (k = 0, whole = 0, bad = 0; k < sh->k; k++) {
        whole += sh->kind[k] == WHOLE;
        bad += sh->kind[k] == INVALID;
    }

    for (n = 0, k = 0; k < sh->k; k++) {
        n += found_rows[k];
    }

    a = ngx_http_llm_capture_zone_account(&zone, 0);

    assert_int_equal(pending(), 0);
    assert_int_equal(counted(C(seen)), sh->k);
    assert_int_equal(counted(C(recorded)), whole);
    assert_int_equal(counted(C(invalid_json)), bad);
    assert_int_equal(n, whole);
    assert_int_equal(rows, whole);
    assert_int_equal(recorded, whole);
    assert_int_equal(invalid + a->n[C(invalid_json)] * (a->ino == 0), bad);
    assert_true(nsegments >= 1);

    /* what was under way between two files is told of in both */

    assert_int_equal(pendings, carried);
    ever += pendings;
}


static void
rotated(ngx_http_llm_capture_compression_e compression)
{
    memset(&policy, 0, sizeof(policy));
    policy.hash = ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    policy.size = SIZE;
    policy.compression = compression;

    memset(&keeping, 0, sizeof(keeping));
    keeping.policies = &policy;
    keeping.npolicies = 1;
    keeping.nginx = "1";
    keeping.module = "1";

    ever = 0;
    every_point(0, do_step, STEPS, all_told);
    assert_true(ever > 0);
}


static void
segments(void **state)
{
    (void) state;
    rotated(NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE);
}


static void
compressed(void **state)
{
    (void) state;
    rotated(NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        CRASH(segments),
        CRASH(compressed),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("seal crash", tests, NULL, NULL);
}
