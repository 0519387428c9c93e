
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The zone as a hostile worker leaves it: the input is written over a zone in
 * the middle of work, before a helper attaches and between its passes.  It
 * ends, crashes nowhere, and follows no link to a file.
 *
 *     a byte     of the faults of the file, of the owners that are gone
 *     patches    region, offset (2 bytes), length, bytes;
 *                region 255: a pass, and how much later it is
 */

#include "drain.h"


static ngx_http_llm_capture_policy_t  policy;


/* what the patches can reach; bodies matter least, so they are short */

static uint8_t *
region(uint8_t which, size_t at)
{
    const struct {
        size_t  at;
        size_t  len;
    } some[] = {
        { zone.intent, 64 },
        { zone.intent, sizeof(ngx_http_llm_capture_intent_t) },
        { zone.rings, zone.nrings * sizeof(ngx_http_llm_capture_ring_hdr_t) },
        { zone.chains, 16 * sizeof(ngx_http_llm_capture_chain_t) },
        { zone.chains, NGX_HTTP_LLM_CAPTURE_CHAINS
                       * sizeof(ngx_http_llm_capture_chain_t) },
        { zone.next, zone.nblocks * sizeof(uint32_t) },
        { zone.helper, NGX_HTTP_LLM_CAPTURE_ROWS
                       * sizeof(ngx_http_llm_capture_row_t) },
        { zone.rows, 4096 },
        { 0, zone.live },
        { zone.data, 4096 },
        { zone.data, zone.ring_size },
        { zone.data + zone.ring_size, 4096 },
        { zone.data + 2 * zone.ring_size, 4096 },
        { zone.blocks, 256 },
        { zone.blocks + NGX_HTTP_LLM_CAPTURE_BLOCK, 256 },
        { zone.blocks, zone.nblocks * (size_t) NGX_HTTP_LLM_CAPTURE_BLOCK },
        { zone.accounts, 128 },
        { zone.accounts, 3 * sizeof(ngx_http_llm_capture_account_t) },
        { zone.gaps, 2 * sizeof(ngx_http_llm_capture_gaps_t) },
        { zone.gaps, 64 }
    };

    which %= sizeof(some) / sizeof(some[0]);

    return zone.base + some[which].at + at % some[which].len;
}


static void
patch(uint8_t which, input_t *in)
{
    size_t          n, left;
    uint8_t        *to;
    const uint8_t  *from;

    to = region(which, word(in, 2));
    n = byte(in) % 64;
    from = take(in, &n);

    left = (size_t) (zone.base + zone.size - to);
    memcpy(to, from, n < left ? n : left);
}


static void
live(input_t *in)
{
    uint8_t    which;
    drain_t   *d;
    unsigned   passes;
    writer_t  *w;

    while (in->n && *in->p != 255) {
        patch(byte(in), in);
    }

    w = fuzz_writer();
    must(w != NULL);
    d = drain_over(w);
    must(d != NULL);

    /* at least four, so that what is found in one is finished in a next */

    for (passes = 0; passes < 4 || in->n; passes += passes < 64) {
        which = byte(in);

        if (which != 255 && in->n) {
            patch(which, in);

            if (passes >= 64) {
                continue;
            }
        }

        now += word(in, 2);

        ngx_http_llm_capture_drain_owners(d);
        (void) ngx_http_llm_capture_drain_pass(d, now);
        (void) ngx_http_llm_capture_drain_due(d);
        (void) ngx_http_llm_capture_drain_live(d);
        (void) ngx_http_llm_capture_drain_pending(d);
    }

    (void) ngx_http_llm_capture_drain_lose(d);
    ngx_http_llm_capture_drain_end(d);

    ngx_http_llm_capture_drain_destroy(d);
    ngx_http_llm_capture_writer_destroy(w);
}


int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void) argc;
    (void) argv;

    fuzz_dir();
    truth_make();

    policy.hash = ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    policy.size = 2000;
    policy.time = 10000;
    policy.keep = 2;

    keeping.policies = &policy;
    keeping.npolicies = 1;
    keeping.max_disk = 100000;
    keeping.drop_oldest = 1;
    keeping.nginx = "1";
    keeping.module = "1";

    return 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t   first;
    input_t   in;
    unsigned  i;

    in.p = data;
    in.n = size;

    truth_again();
    fuzz_dir_empty();

    first = byte(&in);
    broken.only = dir;
    broken.name = "b.jsonl";
    broken.write_errno = first & 1 ? ENOSPC : 0;
    broken.open_errno = first & 2 ? EACCES : 0;

    for (i = 0; i < zone.nrings; i++) {
        dead[i] = first >> (4 + i) & 1;
    }

    live(&in);

    return 0;
}
