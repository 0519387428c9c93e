
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * For the tests of the scan: pieces that lie against unreadable pages, and
 * every kernel with every cut, which must agree.
 */

#ifndef _SCAN_UTIL_H_INCLUDED_
#define _SCAN_UTIL_H_INCLUDED_


#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include "../../src/ngx_http_llm_capture_scan.h"
#include "../../src/ngx_http_llm_capture_scan_kernel.h"


#define V(name)    NGX_HTTP_LLM_CAPTURE_SCAN_##name
#define WRAPPED    NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED
#define LIMIT      NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT
#define MESSAGES   NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES

#define ROOM       65536

/* where the pieces lie: against the page behind, against the page before */
#define AT_END     0
#define AT_START   1


typedef struct {
    ngx_http_llm_capture_verdict_t   verdict;
    uint64_t                         lead;
    uint64_t                         head;
    uint64_t                         trail;
    uint64_t                         total;
    uint8_t                          bytes[ROOM];
} result_t;


static uint8_t  *room[2];


static inline uint8_t *
guarded(void)
{
    long      page;
    uint8_t  *p;

    page = sysconf(_SC_PAGESIZE);

    p = mmap(NULL, ROOM + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
             0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + page, ROOM, PROT_READ | PROT_WRITE), 0);

    return p + page;
}


static inline void
feed(ngx_http_llm_capture_scan_t *s, unsigned r, unsigned where,
    const uint8_t *from, size_t n, uint8_t *to)
{
    uint8_t  *p;

    p = room[r] + (where == AT_END ? ROOM - n : 0);

    memcpy(p, from, n);
    (void) ngx_http_llm_capture_scan_feed(s, p, n);
    memcpy(to, p, n);
}


static inline void
finish(ngx_http_llm_capture_scan_t *s, result_t *result)
{
    result->verdict = ngx_http_llm_capture_scan_end(s);
    assert_int_equal(ngx_http_llm_capture_scan_end(s), result->verdict);

    if (result->verdict == V(OK)) {
        result->lead = ngx_http_llm_capture_scan_lead(s);
        result->head = ngx_http_llm_capture_scan_head(s);
        result->trail = ngx_http_llm_capture_scan_trail(s);
        result->total = ngx_http_llm_capture_scan_total(s);
    }
}


/* in two pieces, each against an unreadable page */

static inline void
two(const void *body, size_t n, size_t cut, unsigned depth, unsigned flags,
    result_t *result)
{
    unsigned                     where;
    const uint8_t               *p;
    ngx_http_llm_capture_scan_t  s;

    p = body;
    where = cut % 2 ? AT_START : AT_END;

    memset(result, 0, offsetof(result_t, bytes));
    ngx_http_llm_capture_scan_init(&s, depth, flags);

    feed(&s, 0, where, p, cut, result->bytes);
    feed(&s, 1, !where, p + cut, n - cut, result->bytes + cut);

    finish(&s, result);
}


static inline void
bytes(const void *body, size_t n, unsigned depth, unsigned flags,
    result_t *result)
{
    size_t                       i;
    const uint8_t               *p;
    ngx_http_llm_capture_scan_t  s;

    p = body;

    memset(result, 0, offsetof(result_t, bytes));
    ngx_http_llm_capture_scan_init(&s, depth, flags);

    for (i = 0; i < n; i++) {
        feed(&s, i % 2, AT_END, p + i, 1, result->bytes + i);
    }

    finish(&s, result);
}


static inline void
compare(const char *name, size_t n, const result_t *a, const result_t *b)
{
    if (memcmp(a, b, offsetof(result_t, bytes)) != 0
        || memcmp(a->bytes, b->bytes, n) != 0)
    {
        fail_msg("%s: verdict %d and %d, lead %d and %d, head %d and %d, "
                 "trail %d and %d, bytes %s", name, a->verdict, b->verdict,
                 (int) a->lead, (int) b->lead, (int) a->head, (int) b->head,
                 (int) a->trail, (int) b->trail,
                 memcmp(a->bytes, b->bytes, n) ? "differ" : "same");
    }
}


/* every kernel, whole, in two at every step, byte by byte */

static inline ngx_http_llm_capture_verdict_t
pieces(const char *name, const void *body, size_t n, size_t step,
    unsigned depth, unsigned flags)
{
    size_t           cut;
    unsigned         kernel;
    static result_t  first, other;

    assert_true(n < ROOM);

    (void) ngx_http_llm_capture_scan_kernel_use(V(PORTABLE));
    two(body, n, 0, depth, flags, &first);

    for (kernel = V(PORTABLE); kernel <= V(AVX2); kernel++) {

        if (ngx_http_llm_capture_scan_kernel_use(kernel) != kernel) {
            continue;
        }

        for (cut = 0; cut <= n; cut += step) {
            two(body, n, cut, depth, flags, &other);
            compare(name, n, &first, &other);
        }

        bytes(body, n, depth, flags, &other);
        compare(name, n, &first, &other);
    }

    return first.verdict;
}


static inline ngx_http_llm_capture_verdict_t
every(const char *name, const void *body, size_t n, unsigned depth,
    unsigned flags)
{
    return pieces(name, body, n, 1, depth, flags);
}


static inline ngx_http_llm_capture_verdict_t
text(const char *body, unsigned flags)
{
    return every(body, body, strlen(body), WRAPPED, flags);
}


#endif /* _SCAN_UTIL_H_INCLUDED_ */
