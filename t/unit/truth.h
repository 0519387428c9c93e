
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A zone as it stands in the middle of work, kept as an image: what tests of a
 * hostile one start from.
 */

#ifndef _TRUTH_H_INCLUDED_
#define _TRUTH_H_INCLUDED_


#include "zone_util.h"


static char      second[160];
static uint8_t  *image;


/* with bodies under way, moved ones, and an intent as a death leaves it */

static inline void
truth(void)
{
    char      *body;
    drain_t   *d;
    writer_t  *w;
    record_t   rec[6];
    worker_t   a, b;
    unsigned   i;

    w = drain_writer();
    d = drain_over(w);
    worker_claim(&a, 0);
    worker_claim(&b, 1);
    body = body_of(1, 20000);

    for (i = 0; i < 6; i++) {
        worker_begin(&a, &rec[i], i % 2 ? path : second, i % 2, 500);
        worker_put(&a, &rec[i], body, 500 * i, 0);
    }

    for (i = 0; i < 5; i++) {
        worker_send(&a, path, MOON, 1000, body, 9000);
        worker_send(&b, second, RAW, 1000, body, 300);
    }

    (void) ngx_http_llm_capture_drain_pass(d, now);
    worker_put(&a, &rec[1], body + 500, 19500, END);

    for (i = 0; i < 9; i++) {
        worker_send(&b, path, MOON, 2000, "{\"a\":1}", 7);
    }

    ngx_http_llm_capture_drain_destroy(d);
    ngx_http_llm_capture_writer_destroy(w);
    free(body);

    memcpy(image, zone.base, zone.size);
}


static inline void
truth_make(void)
{
    snprintf(second, sizeof(second), "%s/b.jsonl", dir);
    zone_make(4, 64 * KIB);

    image = malloc(zone.size);
    assert_non_null(image);

    truth();
}


static inline void
truth_again(void)
{
    memcpy(zone.base, image, zone.size);
    memset(&lines, 0, sizeof(lines));
    now = 1000000;
}


#endif /* _TRUTH_H_INCLUDED_ */
