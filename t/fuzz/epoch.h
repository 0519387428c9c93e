
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The text of a sidecar, which others may have written: what is taken for an
 * epoch has times in bounds and says the same when it is written again; what
 * is not leaves the epoch as it was.
 */

#ifndef _FUZZ_EPOCH_H_INCLUDED_
#define _FUZZ_EPOCH_H_INCLUDED_


#include "fuzz.h"

#include "ngx_http_llm_capture_epoch.h"


#define EPOCH_MOST  ((int64_t) 1 << 53)

typedef ngx_http_llm_capture_epoch_t  epoch_t;


/* arrivals come out of shared memory and may be anything */

static inline void
epoch_times(const epoch_t *e, const uint8_t *data, size_t size)
{
    input_t   in;
    epoch_t   other;
    uint64_t  ms;

    in.p = data;
    in.n = size;

    while (in.n) {
        ms = word(&in, 8);

        must(ngx_http_llm_capture_epoch_ts(e, ms) <= (uint64_t) 2 * EPOCH_MOST);
        must(ngx_http_llm_capture_epoch_wall(e, ms)
             <= (uint64_t) 2 * EPOCH_MOST);

        memset(&other, 0, sizeof(other));
        ngx_http_llm_capture_epoch_set(&other, ms, word(&in, 8), word(&in, 8));
        must(other.wall <= EPOCH_MOST && other.wall >= -EPOCH_MOST);
        must(other.mono <= EPOCH_MOST && other.mono >= -EPOCH_MOST);
    }
}


static inline void
epoch_text(const uint8_t *data, size_t size)
{
    int       rc;
    char     *text, again[NGX_HTTP_LLM_CAPTURE_EPOCH];
    size_t    n;
    epoch_t   e, other;

    memset(&e, 0x55, sizeof(e));
    other = e;

    text = copy(data, size);
    rc = ngx_http_llm_capture_epoch_parse(&e, text, size);
    free(text);

    if (!rc) {
        must(memcmp(&e, &other, sizeof(e)) == 0);
        return;
    }

    must(e.wall <= EPOCH_MOST && e.wall >= -EPOCH_MOST);
    must(e.mono <= EPOCH_MOST && e.mono >= -EPOCH_MOST);
    must(memchr(e.boot, '\0', sizeof(e.boot)) && !strchr(e.boot, '\n'));

    n = ngx_http_llm_capture_epoch_print(&e, again);
    must(n < sizeof(again) && strlen(again) == n);

    memset(&other, 0, sizeof(other));
    must(ngx_http_llm_capture_epoch_parse(&other, again, n) == 1);
    must(other.wall == e.wall && other.mono == e.mono && other.dev == e.dev
         && other.ino == e.ino && strcmp(other.boot, e.boot) == 0);

    epoch_times(&e, data, size);
}


#endif /* _FUZZ_EPOCH_H_INCLUDED_ */
