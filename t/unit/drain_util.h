
/*
 * Copyright (C) the llm-capture authors
 */

/* what the tests of the drain share: a helper, two workers and two files */

#ifndef _DRAIN_UTIL_H_INCLUDED_
#define _DRAIN_UTIL_H_INCLUDED_


#include "zone_util.h"


#define HEAD  "{\"timestamp\":0,\"payload\":"

static char      second[160];
static writer_t *writer;
static drain_t  *drain;
static worker_t  a, b;


static inline void
open_all(uint32_t nrings, uint64_t ring_size)
{
    zone_make(nrings, ring_size);

    writer = drain_writer();
    drain = drain_over(writer);
    assert_non_null(drain);

    worker_claim(&a, 0);

    if (nrings > 1) {
        worker_claim(&b, 1);
    }
}


static inline void
close_all(void)
{
    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);
    zone_free();
}


static inline int
start(void **state)
{
    if (setup(state) != 0) {
        return -1;
    }

    snprintf(second, sizeof(second), "%s/b.jsonl", dir);
    open_all(4, 256 * KIB);

    return 0;
}


static inline int
stop(void **state)
{
    close_all();

    return teardown(state);
}


/* another size of rings */

static inline void
restart(uint32_t nrings, uint64_t ring_size)
{
    close_all();
    open_all(nrings, ring_size);
}


/* the helper goes without a word, and another one comes */

static inline void
successor(void)
{
    ngx_http_llm_capture_drain_destroy(drain);
    ngx_http_llm_capture_writer_destroy(writer);

    writer = drain_writer();
    drain = drain_over(writer);
    assert_non_null(drain);
}


#define assert_counted(name, n)  assert_int_equal(counted(C(name)), n)

#define DRAIN(name)  cmocka_unit_test_setup_teardown(name, start, stop)


#endif /* _DRAIN_UTIL_H_INCLUDED_ */
