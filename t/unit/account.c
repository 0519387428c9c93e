
/*
 * Copyright (C) the llm-capture authors
 */

/* The accounts of files in the zone, and the gaps of templates. */

#include "zone_util.h"

#include "ngx_http_llm_capture_account.h"


typedef ngx_http_llm_capture_account_t  account_t;
typedef ngx_http_llm_capture_gaps_t     gaps_t;


static account_t *
of(const char *name, uint32_t row)
{
    uint32_t  i;

    i = ngx_http_llm_capture_account_find(&zone, name, strlen(name), row, 0);
    assert_int_not_equal(i, NGX_HTTP_LLM_CAPTURE_NONE);

    return ngx_http_llm_capture_zone_account(&zone, i);
}


static void
found(void **state)
{
    char       name[NGX_HTTP_LLM_CAPTURE_PATH + 1];
    unsigned   i;
    worker_t   w;
    account_t *a;

    (void) state;

    worker_claim(&w, 0);
    worker_seen(&w, 0);
    worker_refuse(&w, 0, C(too_large));

    /* the first of a template has all that was before, others have not */

    a = of("/d/0", 0);
    assert_int_equal(a->base[C(seen)], 0);
    assert_ptr_equal(of("/d/0", 5), a);
    assert_int_equal(a->row, 0);
    assert_int_equal(of("/d/other", 1)->base[C(seen)], 0);
    assert_int_equal(of("/d/1", 0)->base[C(seen)], 1);
    assert_int_equal(of("/d/1", 0)->base[C(too_large)], 1);

    memset(name, 'x', sizeof(name));
    assert_int_equal(ngx_http_llm_capture_account_find(&zone, name,
                         NGX_HTTP_LLM_CAPTURE_PATH, 0, 0),
                     NGX_HTTP_LLM_CAPTURE_NONE);
    assert_int_equal(ngx_http_llm_capture_account_find(&zone, name, 0, 0, 0),
                     NGX_HTTP_LLM_CAPTURE_NONE);

    for (i = 3; i < NGX_HTTP_LLM_CAPTURE_ACCOUNTS; i++) {
        snprintf(name, sizeof(name), "/d/more%u", i);
        (void) of(name, 1);
    }

    assert_int_equal(ngx_http_llm_capture_account_find(&zone, "/d/x", 4, 0, 0),
                     NGX_HTTP_LLM_CAPTURE_NONE);
    assert_ptr_equal(of("/d/0", 0), a);
    assert_int_equal(ngx_http_llm_capture_accounts(&zone),
                     NGX_HTTP_LLM_CAPTURE_ACCOUNTS);
}


static void
spoiled(void **state)
{
    account_t  *a;

    (void) state;

    a = of("/d/a", 0);
    a->row = a->path_len = a->format = UINT32_MAX;

    assert_int_equal(ngx_http_llm_capture_accounts(&zone), 1);
    assert_true(a->row < NGX_HTTP_LLM_CAPTURE_ROWS);
    assert_true(a->path_len < NGX_HTTP_LLM_CAPTURE_PATH);
    assert_true(a->format <= NGX_HTTP_LLM_CAPTURE_OUTCOMES);
}


static void
anew(void **state)
{
    account_t  *a;

    (void) state;

    a = of("/d/a", 0);
    a->ino = 5;
    a->pending = 3;
    a->n[C(recorded)] = 9;
    a->told[C(seen)] = 12;
    ngx_http_llm_capture_account_row(a, 0);
    ngx_http_llm_capture_account_row(a, 7);
    assert_int_equal(a->first, 1);
    assert_int_equal(a->last, 8);

    ngx_http_llm_capture_account_reset(a);
    ngx_http_llm_capture_account_reset(a);

    assert_int_equal(a->state, NGX_HTTP_LLM_CAPTURE_ACCOUNT_OPEN);
    assert_int_equal(a->ino + a->first + a->last + a->n[C(recorded)], 0);
    assert_int_equal(a->carried, 3);
    assert_int_equal(a->base[C(seen)], 12);
}


static void
models(void **state)
{
    char        name[NGX_HTTP_LLM_CAPTURE_MODEL + 2];
    unsigned    i;
    account_t  *a;

    (void) state;

    a = of("/d/a", 0);

    ngx_http_llm_capture_account_model(a, "abc", 3);
    ngx_http_llm_capture_account_model(a, "ab", 2);
    ngx_http_llm_capture_account_model(a, "abc", 3);
    ngx_http_llm_capture_account_model(a, "", 0);
    assert_int_equal(a->nmodels, 3);

    memset(name, 'm', sizeof(name));
    ngx_http_llm_capture_account_model(a, name,
                                       NGX_HTTP_LLM_CAPTURE_MODEL - 1);
    assert_int_equal(a->nmodels, 4);
    ngx_http_llm_capture_account_model(a, name, NGX_HTTP_LLM_CAPTURE_MODEL);
    assert_int_equal(a->nmodels, 4 | NGX_HTTP_LLM_CAPTURE_MORE);

    a->nmodels = 4;

    for (i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        ngx_http_llm_capture_account_model(a, name, strlen(name));
    }

    assert_int_equal(a->nmodels, NGX_HTTP_LLM_CAPTURE_MODELS
                                 | NGX_HTTP_LLM_CAPTURE_MORE);

    a->nmodels = UINT32_MAX;
    ngx_http_llm_capture_account_model(a, "z", 1);
}


static void
gap(gaps_t *gaps, uint64_t dropped, uint64_t before, uint64_t at)
{
    unsigned  i;

    ngx_http_llm_capture_account_gap(gaps, dropped, before, at);

    /* in order, and of all that was dropped */

    assert_true(gaps->n <= NGX_HTTP_LLM_CAPTURE_GAPS);

    for (i = 0; i < gaps->n; i++) {
        assert_true(gaps->gap[i].from <= gaps->gap[i].to);
        assert_int_equal(gaps->gap[i].before,
                         i ? gaps->gap[i - 1].after : 0);
        assert_true(gaps->gap[i].after > gaps->gap[i].before);
    }

    assert_int_equal(gaps->gap[gaps->n - 1].after, dropped);
}


static void
gaps(void **state)
{
    gaps_t    g[2];
    unsigned  i;

    (void) state;

    memset(g, 0, sizeof(g));
    memset(&g[1], 0x55, sizeof(g[1]));

    gap(g, 1, 1000, 1100);
    gap(g, 1, 1100, 1200);
    gap(g, 3, 1200, 1300);
    assert_int_equal(g->n, 1);
    assert_int_equal(g->gap[0].from, 1000);
    assert_int_equal(g->gap[0].to, 1300);

    gap(g, 4, 5000, 5001);
    assert_int_equal(g->n, 2);

    /* the clock is set back */

    gap(g, 5, 4000, 3000);
    gap(g, 6, 9000, 100);

    for (i = 0; i < 100; i++) {
        gap(g, 7 + i, 100000 + i * 10000 - i * i, 100001 + i * 10000 - i * i);
    }

    assert_int_equal(g->n, NGX_HTTP_LLM_CAPTURE_GAPS);
    assert_int_equal(g->gap[0].from, 1000);

    /* whatever stands there, nothing behind it is touched */

    g->n = UINT32_MAX;
    ngx_http_llm_capture_account_gap(g, 1, 1, 2);
    assert_int_equal(g->n, 1);

    for (i = 0; i < sizeof(g[1]); i++) {
        assert_int_equal(((uint8_t *) &g[1])[i], 0x55);
    }
}


static int
open_zone(void **state)
{
    (void) state;
    zone_make(2, 64 * KIB);

    return 0;
}


static int
close_zone(void **state)
{
    (void) state;
    zone_free();

    return 0;
}


#define ACCOUNT(name)                                                         \
    cmocka_unit_test_setup_teardown(name, open_zone, close_zone)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        ACCOUNT(found),
        ACCOUNT(spoiled),
        ACCOUNT(anew),
        ACCOUNT(models),
        ACCOUNT(gaps),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("account", tests, NULL, NULL);
}
