
/*
 * Copyright (C) the llm-capture authors
 */

/* What a manifest is made of: earlier ones, spoiled ones, those of others. */

#include "files.h"

#include "ngx_http_llm_capture_manifest.h"


#define C(name)  NGX_HTTP_LLM_CAPTURE_C_##name

static struct {
    ngx_http_llm_capture_account_t  account;
    ngx_http_llm_capture_gaps_t     gaps;
    ngx_http_llm_capture_facts_t    facts;
    uint64_t                        sum[NGX_HTTP_LLM_CAPTURE_C_max];
    char                            path[200];
} own;


static int
begin(void **state)
{
    if (setup(state) != 0) {
        return -1;
    }

    memset(&own, 0, sizeof(own));
    snprintf(own.path, sizeof(own.path), "%s/a.manifest.json", dir);

    own.facts.name = "a.jsonl";
    own.facts.now = 1000000;
    own.facts.id = 7;
    own.facts.account = &own.account;
    own.facts.sum = own.sum;
    own.facts.gaps = &own.gaps;
    own.facts.path = "/d/$x";
    own.facts.path_len = 5;
    own.facts.nginx = own.facts.module = "1";
    own.facts.dev = 1;
    own.facts.ino = 2;

    return 0;
}


static json_int_t
number(json_t *m, const char *name)
{
    assert_true(json_is_integer(json_object_get(m, name)));

    return json_integer_value(json_object_get(m, name));
}


static void
adds_up(json_t *m)
{
    json_t      *v;
    const char  *key;
    json_int_t   n;

    n = number(m, "recorded") + number(m, "pending");

    json_object_foreach(json_object_get(m, "reasons"), key, v) {
        assert_true(json_integer_value(v) > 0);
        n += json_integer_value(v);
    }

    assert_int_equal(number(m, "seen"), n);
}


/* the next one, in place of m; of a nginx of that id with n rows in all */

static json_t *
next(json_t *m, uint64_t id, unsigned n, unsigned ended)
{
    json_t  *made;

    own.facts.id = id;
    own.facts.ended = ended;
    own.account.n[C(recorded)] = n;
    own.account.n[C(bytes)] = 10 * n;
    own.account.n[C(lost)] = 1;

    made = ngx_http_llm_capture_manifest_make(m, &own.facts);
    assert_non_null(made);
    json_decref(m);
    adds_up(made);
    adds_up(json_object_get(made, "destination"));

    return made;
}


static json_t *
load(const char *text, ino_t ino)
{
    FILE         *f;
    struct stat   st;

    f = fopen(own.path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);

    memset(&st, 0, sizeof(st));
    st.st_dev = 1;
    st.st_ino = ino;

    return ngx_http_llm_capture_manifest_load(fault_sys(), own.path,
                                              ino ? &st : NULL);
}


static void
loaded(void **state)
{
    char    *huge;
    json_t  *m;
    size_t   i;

    static const char *const  bad[] = {
        "", "{", "[]", "1", "null", "\xff\xfe", "{\"manifest\":2}",
        "{\"manifest\":\"1\"}", "{\"manifest\":1,\"manifest\":1}",
        "{\"manifest\":1}x",
        "{\"manifest\":1,\"a\":99999999999999999999}"
    };

    (void) state;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_null(load(bad[i], 0));
    }

    /* deeper than anybody would, and larger */

    huge = malloc(2 * NGX_HTTP_LLM_CAPTURE_MANIFEST);
    assert_non_null(huge);

    for (i = 0; i < 2; i++) {
        memset(huge, i ? ' ' : '[', 2 * NGX_HTTP_LLM_CAPTURE_MANIFEST - 1);
        huge[2 * NGX_HTTP_LLM_CAPTURE_MANIFEST - 1] = '\0';
        memcpy(huge, "{\"manifest\":1,\"w\":", 18);
        assert_null(load(huge, 0));
    }

    free(huge);

    assert_null(load("{\"manifest\":1,\"inode\":3,\"device\":1}", 2));
    assert_null(load("{\"manifest\":1,\"inode\":2,\"device\":2}", 2));
    m = load("{\"manifest\":1,\"inode\":2,\"device\":1}", 2);
    assert_non_null(m);
    json_decref(m);
}


static void
writers(void **state)
{
    json_t    *m;
    unsigned   i;

    (void) state;

    own.facts.bytes = 50;
    m = next(NULL, 1, 5, 0);
    m = next(m, 1, 5, 0);
    assert_int_equal(number(m, "recorded"), 5);
    assert_int_equal(number(m, "rows"), 5);

    /* restarts do not make it grow, nor lose a row */

    m = next(m, 1, 5, 1);

    for (i = 2; i <= 100; i++) {
        own.facts.bytes = 50 * i;
        m = next(m, i, 5, i % 10 != 0);
    }

    assert_int_equal(number(m, "recorded"), 500);
    assert_int_equal(number(m, "rows"), 500);
    assert_int_equal(number(m, "seen"), 600);
    assert_true(json_array_size(json_object_get(m, "writers")) < 32);

    /* not sealed while another one is alive, but when it is not */

    m = next(m, 101, 5, 1);
    assert_true(json_is_false(json_object_get(m, "sealed")));
    own.facts.now += 60000;
    m = next(m, 101, 5, 1);
    assert_true(json_is_true(json_object_get(m, "sealed")));

    json_decref(m);
}


static void
bounded(void **state)
{
    json_t    *m, *gaps;
    size_t     i;
    uint64_t   k, id, n;

    (void) state;

    for (m = NULL, id = 1; id <= 60; id++) {
        own.account.nmodels = NGX_HTTP_LLM_CAPTURE_MODELS;
        own.gaps.n = NGX_HTTP_LLM_CAPTURE_GAPS;

        for (k = 0; k < NGX_HTTP_LLM_CAPTURE_GAPS; k++) {
            snprintf(own.account.models[k % NGX_HTTP_LLM_CAPTURE_MODELS],
                     NGX_HTTP_LLM_CAPTURE_MODEL, "m%llu",
                     (unsigned long long) (id * 100 + k));
            own.gaps.gap[k].from = id * 1000 + k * 10;
            own.gaps.gap[k].to = id * 1000 + k * 10 + 1;
            own.gaps.gap[k].before = k;
            own.gaps.gap[k].after = k + 1;
        }

        m = next(m, id, 1, 1);
    }

    assert_int_equal(json_array_size(json_object_get(m, "models")),
                     NGX_HTTP_LLM_CAPTURE_MODELS);
    assert_true(json_is_true(json_object_get(m, "more_models")));

    gaps = json_object_get(m, "gaps");
    assert_true(json_array_size(gaps) <= 64);

    for (n = 0, i = 0; i < json_array_size(gaps); i++) {
        n += (uint64_t) number(json_array_get(gaps, i), "requests");
    }

    assert_int_equal(n, 60 * NGX_HTTP_LLM_CAPTURE_GAPS);

    /* so that it can be loaded again */

    assert_int_equal(ngx_http_llm_capture_manifest_store(fault_sys(),
                                                         own.path, m), 0);
    json_decref(m);
    m = ngx_http_llm_capture_manifest_load(fault_sys(), own.path, NULL);
    assert_non_null(m);
    json_decref(m);
}


static void
spoiled(void **state)
{
    json_t  *m;
    size_t   i;

    static const char *const  bad[] = {
        "5", "{}", "[5,null,[],{}]", "[{\"id\":7}]", "[{\"id\":\"x\"}]",
        "[{\"id\":\"x\",\"seen\":9,\"recorded\":-3,\"pending\":-1,"
            "\"reasons\":{\"lost\":-5,\"no such\":4}}]",
        "[{\"id\":\"x\",\"seen\":1,\"recorded\":9223372036854775807,"
            "\"pending\":9223372036854775807,\"reasons\":"
            "{\"lost\":9223372036854775807}}]",
        "[{\"id\":\"x\",\"reasons\":[],\"destination\":3,\"models\":\"a\","
            "\"endpoints\":{},\"gaps\":7,\"updated\":\"now\"}]",
        "[{\"id\":\"x\",\"gaps\":[1,null,{},{\"from\":-1}],"
            "\"models\":[1,{},\"a\",\"a\"],\"first_timestamp\":-7}]"
    };

    (void) state;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char  text[1000];

        snprintf(text, sizeof(text), "{\"manifest\":1,\"begun\":-1,"
                 "\"t0\":\"x\",\"sha256\":7,\"plain_bytes\":-8,"
                 "\"writers\":%s}", bad[i]);

        m = load(text, 0);
        assert_non_null(m);
        m = next(m, 1, 5, 0);
        assert_int_equal(number(m, "recorded"), 5);
        assert_true(number(m, "seen") >= 6);
        json_decref(m);
    }
}


static void
read_once(void **state)
{
    json_t                          *m;
    ngx_http_llm_capture_content_t   c;

    (void) state;

    own.facts.bytes = 70;
    own.facts.renamed = 1;
    m = next(NULL, 1, 5, 1);
    assert_false(ngx_http_llm_capture_manifest_read(m));
    assert_true(json_is_null(json_object_get(m, "rows")));

    memset(&c, 0, sizeof(c));
    c.name = "a.gz";
    c.compression = "gzip";
    c.rows = 7;
    c.plain_bytes = 70;
    c.bytes = 30;
    c.ino = 9;
    c.sha256 = "abc";
    assert_int_equal(ngx_http_llm_capture_manifest_content(m, &c), 0);
    assert_int_equal(number(json_object_get(m, "found"), "rows"), 2);

    /* another one has a row and a reason to tell */

    m = next(m, 2, 1, 1);
    assert_true(ngx_http_llm_capture_manifest_read(m));
    assert_string_equal(json_string_value(json_object_get(m, "file")), "a.gz");
    assert_int_equal(number(m, "rows"), 7);
    assert_int_equal(number(m, "bytes"), 30);
    assert_int_equal(number(m, "inode"), 9);
    assert_int_equal(number(json_object_get(m, "found"), "rows"), 1);

    /* but it is not read any more once it has grown */

    own.facts.bytes = 80;
    m = next(m, 2, 1, 1);
    assert_false(ngx_http_llm_capture_manifest_read(m));
    json_decref(m);
}


#define MANIFEST(name)                                                        \
    cmocka_unit_test_setup_teardown(name, begin, teardown)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        MANIFEST(loaded),
        MANIFEST(writers),
        MANIFEST(bounded),
        MANIFEST(spoiled),
        MANIFEST(read_once),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
