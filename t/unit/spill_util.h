
/*
 * Copyright (C) the llm-capture authors
 */

/* what the tests of slow uploads share */

#ifndef _SPILL_UTIL_H_INCLUDED_
#define _SPILL_UTIL_H_INCLUDED_


#include "drain_util.h"


/* moved uploads, as the zone tells a successor */

static inline unsigned
moved(void)
{
    uint32_t  i;
    unsigned  n;

    for (n = 0, i = 0; i < NGX_HTTP_LLM_CAPTURE_CHAINS; i++) {
        n += atomic_load(&ngx_http_llm_capture_zone_chain(&zone, i)->state)
             != NGX_HTTP_LLM_CAPTURE_CHAIN_FREE;
    }

    return n;
}


/* others, as many bytes; none may be dropped */

static inline unsigned
traffic_of(worker_t *w, size_t bytes)
{
    size_t    n;
    unsigned  sent;
    char      body[2100];

    memset(body, ' ', sizeof(body));
    memcpy(body, "{\"f\":1}", 7);

    for (n = 0, sent = 0; n < bytes; n += 2000, sent++) {
        assert_int_equal(worker_send(w, second, MOON, 5000, body, 2000), 0);

        if (sent % 8 == 7) {
            drain_pass(drain);
        }
    }

    drain_all(drain);

    return sent;
}


/* the file holds these bodies, in any order, each once, and nothing else */

static inline void
assert_bodies(const char *name, char **body, unsigned n)
{
    char      *got, *p, *end;
    unsigned   i, seen;
    uint8_t   *found;

    got = slurp(name, NULL);
    assert_non_null(got);
    found = calloc(n, 1);

    for (p = got, seen = 0; *p; p = end + 1, seen++) {
        end = strchr(p, '\n');
        assert_non_null(end);
        p = strstr(p, "\"payload\":");
        assert_true(p && p < end);
        p += strlen("\"payload\":");

        assert_int_equal(strncmp(p, "{\"n\":", 5), 0);
        i = (unsigned) atoi(p + 5);
        assert_true(i < n && !found[i]);
        found[i] = 1;

        assert_int_equal(end - p, strlen(body[i]) + 1);
        assert_memory_equal(p, body[i], strlen(body[i]));
    }

    assert_int_equal(seen, n);
    free(found);
    free(got);
}


#endif /* _SPILL_UTIL_H_INCLUDED_ */
