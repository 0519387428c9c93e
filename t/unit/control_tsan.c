
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What llm_capture_control said, read while it is changed: one order or the
 * other, whole; and a budget that many take from.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_control.h"


#define ALL      NGX_HTTP_LLM_CAPTURE_CONTROL_ALL
#define TAKERS   4
#define CHANGES  2000


static ngx_http_llm_capture_zone_t  z;
static atomic_uint                  done;


static void
say(unsigned n)
{
    ngx_http_llm_capture_order_t  order;

    memset(&order, 0, sizeof(order));
    order.mode = NGX_HTTP_LLM_CAPTURE_MODE_ON;
    order.records = n;
    order.bytes = 3ULL * n;
    order.name_len = 1;
    order.value_len = NGX_HTTP_LLM_CAPTURE_MATCH - 1;
    memset(order.match, (int) ('a' + n % 26), sizeof(order.match));

    ngx_http_llm_capture_control_say(&z, ALL, &order, n, n);
}


/* records, of as many bytes as there are of them */

static void *
take(void *data)
{
    uint64_t                      *taken = data;
    unsigned                       i, n;
    ngx_http_llm_capture_said_t   *s;
    ngx_http_llm_capture_view_t   *v;
    ngx_http_llm_capture_taken_t   t;

    v = calloc(1, sizeof(*v));

    while (v && !atomic_load_explicit(&done, memory_order_acquire)) {

        if (!ngx_http_llm_capture_control_any(v, &z)) {
            continue;
        }

        s = &v->said[ALL];
        n = (unsigned) s->records;

        if (s->bytes != 3ULL * n || s->since != n) {
            abort();
        }

        for (i = 0; i < sizeof(s->match); i++) {
            if (s->match[i] != (char) ('a' + n % 26)) {
                abort();
            }
        }

        memset(&t, 0, sizeof(t));

        if (ngx_http_llm_capture_control_take(v, &z, ALL, 1, &t) == 0) {
            if (taken[n] % 3 == 2) {
                ngx_http_llm_capture_control_return(&z, &t);
                memset(&t, 0, sizeof(t));
                if (ngx_http_llm_capture_control_take(v, &z, ALL, 1, &t) != 0) {
                    continue;
                }
            }

            taken[n]++;
        }
    }

    free(v);

    return NULL;
}


static void
test_race(void **state)
{
    unsigned          i, k;
    uint64_t          sum;
    pthread_t         thread[TAKERS];
    static uint64_t   taken[TAKERS][CHANGES + 1];

    ngx_http_llm_capture_view_t  *v;

    (void) state;

    assert_int_equal(ngx_http_llm_capture_zone_layout(&z, 2, 65536, 4096), 0);
    z.base = aligned_alloc(4096, (z.size + 4095) / 4096 * 4096);
    assert_non_null(z.base);
    memset(z.base, 0, z.size);

    for (i = 0; i < TAKERS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, take, taken[i]), 0);
    }

    for (k = 1; k <= CHANGES; k++) {
        say(k);
    }

    /* the last one is taken to its end */

    v = calloc(1, sizeof(*v));
    assert_non_null(v);
    ngx_http_llm_capture_control_read(v, &z);

    while (ngx_http_llm_capture_control_ended(v, &z, ALL, 0)
           == NGX_HTTP_LLM_CAPTURE_ENDED_NOT)
    {
        /* void */
    }

    atomic_store_explicit(&done, 1, memory_order_release);

    for (i = 0; i < TAKERS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }

    for (k = 1; k <= CHANGES; k++) {
        for (sum = 0, i = 0; i < TAKERS; i++) {
            sum += taken[i][k];
        }

        assert_true(sum <= k);
    }

    free(v);
    free(z.base);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_race),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
