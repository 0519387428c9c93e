
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The scan for t/scan_orjson.t, which compares it with orjson.  With "-": on
 * stdin bodies, each with its length before it (32 bits, the machine's order);
 * on stdout for each
 *
 *     u8   verdict as payload of a wrapped line, u8 verdict as raw_payload,
 *     u32  lead, head, trail of the first, then the bytes after the scan.
 *
 * Every kernel scans every body; one of at most CUTS bytes also in two pieces,
 * cut at every offset.  Where these disagree the verdict is 255.
 */

#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/ngx_http_llm_capture_scan.h"
#include "../../src/ngx_http_llm_capture_scan_kernel.h"


#define CUTS    160
#define DIFFER  255


typedef struct {
    const uint8_t  *body;
    size_t          len;
    unsigned        depth;
    unsigned        flags;
} job_t;


/* the bytes lie in memory of just their size, for the sanitizers' sake */

static unsigned
scan(const job_t *job, size_t cut, uint8_t **out,
    ngx_http_llm_capture_scan_t *s)
{
    uint8_t   *a, *b;
    unsigned   verdict;

    a = malloc(cut ? cut : 1);
    b = malloc(job->len - cut ? job->len - cut : 1);
    *out = malloc(job->len ? job->len : 1);

    if (a == NULL || b == NULL || *out == NULL) {
        exit(2);
    }

    memcpy(a, job->body, cut);
    memcpy(b, job->body + cut, job->len - cut);

    ngx_http_llm_capture_scan_init(s, job->depth, job->flags);
    (void) ngx_http_llm_capture_scan_feed(s, a, cut);
    (void) ngx_http_llm_capture_scan_feed(s, b, job->len - cut);
    verdict = ngx_http_llm_capture_scan_end(s);

    memcpy(*out, a, cut);
    memcpy(*out + cut, b, job->len - cut);

    free(a);
    free(b);

    return verdict;
}


/* the reason and the bytes, refused or not; counts only of what is accepted */

static int
same(const job_t *job, unsigned verdict, const uint8_t *out,
    const ngx_http_llm_capture_scan_t *s, size_t cut)
{
    int                          rc;
    uint8_t                     *again;
    unsigned                     v;
    ngx_http_llm_capture_scan_t  t;

    v = scan(job, cut, &again, &t);

    rc = v == verdict && memcmp(out, again, job->len) == 0;

    if (v == NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        rc = rc && s->lead == t.lead && s->head == t.head
             && s->tail == t.tail && t.total == job->len;
    }

    free(again);

    return rc;
}


static unsigned
judge(const job_t *job, uint8_t **out, ngx_http_llm_capture_scan_t *s)
{
    size_t    cut, last;
    unsigned  verdict, kernel;

    (void) ngx_http_llm_capture_scan_kernel_use(
               NGX_HTTP_LLM_CAPTURE_SCAN_PORTABLE);

    verdict = scan(job, 0, out, s);

    for (kernel = 0; kernel <= NGX_HTTP_LLM_CAPTURE_SCAN_AVX2; kernel++) {

        if (ngx_http_llm_capture_scan_kernel_use(kernel) != kernel) {
            continue;
        }

        last = job->len <= CUTS ? job->len : 0;

        for (cut = 0; cut <= last; cut++) {
            if (!same(job, verdict, *out, s, cut)) {
                return DIFFER;
            }
        }
    }

    return verdict;
}


static void
answer(const uint8_t *body, uint32_t len)
{
    job_t                        wrapped, raw;
    uint8_t                     *out, *other, verdict[2];
    uint32_t                     counts[3];
    ngx_http_llm_capture_scan_t  s, r;

    wrapped.body = body;
    wrapped.len = len;
    wrapped.depth = NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED;
    wrapped.flags = 0;

    raw = wrapped;
    raw.depth = NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT;
    raw.flags = NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES;

    verdict[0] = (uint8_t) judge(&wrapped, &out, &s);
    verdict[1] = (uint8_t) judge(&raw, &other, &r);

    /* the deeper one decides where the first refuses the depth alone */

    if (verdict[0] && !verdict[1]) {
        s = r;
        memcpy(out, other, len);
    }

    counts[0] = (uint32_t) ngx_http_llm_capture_scan_lead(&s);
    counts[1] = (uint32_t) ngx_http_llm_capture_scan_head(&s);
    counts[2] = (uint32_t) ngx_http_llm_capture_scan_trail(&s);

    fwrite(verdict, 1, sizeof(verdict), stdout);
    fwrite(counts, 1, sizeof(counts), stdout);
    fwrite(out, 1, len, stdout);

    free(out);
    free(other);
}


int
main(int argc, char **argv)
{
    uint8_t   *body;
    uint32_t   len;

    if (argc != 2 || strcmp(argv[1], "-") != 0) {
        printf("1..0 # SKIP a part of t/scan_orjson.t\n");
        return 0;
    }

    while (fread(&len, sizeof(len), 1, stdin) == 1) {
        body = malloc(len ? len : 1);

        if (body == NULL || fread(body, 1, len, stdin) != len) {
            return 2;
        }

        answer(body, len);
        free(body);
    }

    return fflush(stdout) == 0 ? 0 : 2;
}
