
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Every worker can write every byte of the zone.  Whatever stands there, a
 * helper neither crashes nor runs on without end nor opens what it may not:
 * noise, a valid image with flipped bytes, and lies that look like the truth,
 * before it attaches and while it works.  To be built with
 * -fsanitize=address,undefined.
 */

#include "truth.h"


#define ROUNDS  400

static uint64_t     seed;
static struct stat  truth_st;

static ngx_http_llm_capture_policy_t  policy;


static uint32_t
rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) (seed >> 20) % n;
}


/* a number of a kind that is asked for, and sometimes one at an edge */

static uint64_t
number(uint32_t n)
{
    static const uint64_t  edge[] = {
        0, 1, 31, 32, 33, 4095, 4096, 16383, 16384, 65535, 65536,
        INT32_MAX, UINT32_MAX - 1, UINT32_MAX, 1ULL << 32, INT64_MAX,
        UINT64_MAX - 1, UINT64_MAX
    };

    return rnd(16) ? rnd(n) : edge[rnd(sizeof(edge) / sizeof(edge[0]))];
}


static void
noise(uint8_t *p, size_t n)
{
    while (n--) {
        *p++ = (uint8_t) rnd(256);
    }
}


/* where flipped bytes do most: all but the bodies */

static uint8_t *
place(void)
{
    const struct {
        size_t  at;
        size_t  len;
    } some[] = {
        { zone.intent, sizeof(ngx_http_llm_capture_intent_t) },
        { zone.intent, 64 },
        { zone.rings, zone.nrings * sizeof(ngx_http_llm_capture_ring_hdr_t) },
        { zone.chains, 64 * sizeof(ngx_http_llm_capture_chain_t) },
        { zone.next, zone.nblocks * sizeof(uint32_t) },
        { zone.accounts, 2 * sizeof(ngx_http_llm_capture_account_t) },
        { zone.accounts, 64 },
        { zone.gaps, 2 * sizeof(ngx_http_llm_capture_gaps_t) },
        { zone.data + rnd(zone.nrings) * zone.ring_size, 4096 },
        { zone.blocks + rnd(zone.nblocks) * NGX_HTTP_LLM_CAPTURE_BLOCK, 64 },
        { 0, zone.size }
    };

    unsigned  i = rnd(sizeof(some) / sizeof(some[0]));

    return zone.base + some[i].at + rnd((uint32_t) some[i].len);
}


static void
flip(unsigned n)
{
    while (n--) {
        *place() ^= (uint8_t) (1 + rnd(255));
    }
}


/* a name, not always one that may be opened */

static size_t
name(char *to)
{
    static const char *const  names[] = {
        "/etc/passwd", "relative", "/", "/tmp/\n\x1b[2J", "", "/proc/self/mem"
    };
    const char  *from;

    from = rnd(4) == 0 ? names[rnd(6)] : rnd(2) ? path : second;
    memcpy(to, from, strlen(from));

    return strlen(from);
}


static void
lie_begin(ngx_http_llm_capture_begin_t *b)
{
    memset(b, 0, sizeof(*b));
    b->wall = number(100000);
    b->mono = number(100000);
    b->hash = rnd(2) ? ngx_http_llm_capture_zone_hash("moon", 4, MOON) : rnd(9);
    b->path_len = (uint16_t) name((char *) (b + 1));
    b->format = (uint8_t) (rnd(32) ? rnd(2) : rnd(256));

    if (rnd(16) == 0) {
        b->path_len = (uint16_t) number(5000);
    }
}


static void
lie_ring(uint32_t ring)
{
    size_t                            at, size, body;
    uint8_t                          *data;
    uint32_t                          lap, off, k;
    uint64_t                          sofar[16];
    ngx_http_llm_capture_frame_t     *f;
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    static const uint16_t     flags[] = { 1, 3, 3, 3, 0, 0, 2, 2, 4, 5, 6, 7 };
    static const char *const  bodies[] = { "{\"a\":1}", "{\"messages\":[]}",
                                           "{", "}", " ", "[1,2]" };

    hdr = hdr_of(ring);
    data = ngx_http_llm_capture_zone_data(&zone, ring);
    lap = rnd(3);
    off = rnd(2) ? 0 : rnd((uint32_t) zone.ring_size / 32);

    atomic_store(&hdr->tail, ngx_http_llm_capture_pos(lap, off));
    atomic_store(&hdr->owner, rnd(2));
    atomic_store(&hdr->closed, rnd(8) == 0);
    atomic_store(&hdr->last_id, number(20));
    atomic_store(&hdr->deciding, number(80));

    at = (size_t) off * 32;
    memset(sofar, 0, sizeof(sofar));

    for (k = rnd(300); k && at + 400 < zone.ring_size; k--) {
        f = (ngx_http_llm_capture_frame_t *) (data + at);
        memset(f, 0, 400);

        f->flags = rnd(60) ? flags[rnd(12)] : (uint16_t) rnd(16);
        f->why = (uint16_t) number(40);
        f->mark = rnd(20) ? 0 : rnd(4);
        f->id = rnd(40) ? rnd(16) : number(16);

        if (f->flags & NGX_HTTP_LLM_CAPTURE_BEGIN) {
            sofar[f->id % 16] = 0;
        }

        f->off = rnd(60) ? sofar[f->id % 16] : number(600);

        body = sizeof(*f);

        if (f->flags & NGX_HTTP_LLM_CAPTURE_BEGIN) {
            lie_begin((void *) (f + 1));
            body += sizeof(ngx_http_llm_capture_begin_t)
                    + ((ngx_http_llm_capture_begin_t *) (f + 1))->path_len;
        }

        if (body > 300) {
            body = 300;
        }

        f->len = (uint32_t) strlen(strcpy((char *) f + body,
                                          bodies[rnd(6)]));
        size = (body + f->len + 31) / 32 * 32;
        f->size = (uint32_t) (rnd(60) ? size : number(500));

        if (rnd(60) == 0) {
            f->len = (uint32_t) number(500);
        }

        sofar[f->id % 16] += f->len;
        at += size;
    }

    atomic_store(&hdr->head,
                 ngx_http_llm_capture_pos(rnd(8) ? lap : number(5),
                                          rnd(8) ? at / 32 : number(5000)));
}


static void
lie_chains(void)
{
    uint32_t                       i, n;
    uint8_t                       *block;
    ngx_http_llm_capture_chain_t  *c;

    for (i = 0; i < zone.nblocks; i++) {
        *ngx_http_llm_capture_zone_next(&zone, i) = rnd(4) ? (uint32_t) number(
                                                       zone.nblocks) : i + 1;
    }

    for (n = rnd(40); n; n--) {
        c = ngx_http_llm_capture_zone_chain(&zone, rnd(4) ? rnd(50)
                                            : rnd(NGX_HTTP_LLM_CAPTURE_CHAINS));
        c->state = rnd(4);
        c->ring = rnd(8) ? rnd(zone.nrings) : (uint32_t) number(9);
        c->id = number(12);
        c->first = rnd(8) ? rnd(zone.nblocks) : (uint32_t) number(99);
        c->bytes = rnd(3) ? rnd(40000) : number(100);

        if (c->first >= zone.nblocks) {
            continue;
        }

        block = ngx_http_llm_capture_zone_block(&zone, c->first);
        lie_begin((void *) block);
        c->extra = (uint32_t) (sizeof(ngx_http_llm_capture_begin_t)
                   + ((ngx_http_llm_capture_begin_t *) block)->path_len);

        if (rnd(16) == 0) {
            c->extra = (uint32_t) number(5000);
        }

        if (c->extra < 8000) {
            strcpy((char *) block + c->extra, "{\"a\":1}");

            if (rnd(2)) {
                c->bytes = 7;
            }
        }
    }
}


static void
lie_intent(void)
{
    uint32_t                        i;
    ngx_http_llm_capture_intent_t  *it;

    it = ngx_http_llm_capture_zone_intent(&zone);

    it->state = rnd(4);
    it->row = (uint32_t) number(80);
    it->nrefs = rnd(4) ? 1 + rnd(4) : (uint32_t) number(600);
    it->format = rnd(3);
    it->offset = number(100);
    it->length = number(1000);
    it->path_len = (uint32_t) name(it->path);

    if (rnd(8) == 0) {
        it->path_len = (uint32_t) number(5000);
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_BATCH; i++) {
        it->refs[i].ring = rnd(8) ? rnd(zone.nrings) : (uint32_t) number(9);
        it->refs[i].chain = (uint32_t) number(9);
        it->refs[i].id = number(12);
        it->refs[i].ts = number(9);
    }
}


static void
lie_accounts(void)
{
    uint32_t                         i, n;
    ngx_http_llm_capture_gaps_t     *gaps;
    ngx_http_llm_capture_account_t  *a;

    n = 1 + rnd(3);

    for (i = 0; i < n; i++) {
        a = ngx_http_llm_capture_zone_account(&zone, i);

        noise((uint8_t *) a, sizeof(*a) - sizeof(a->path));

        a->state = rnd(5);
        a->row = (uint32_t) number(80);
        a->format = (uint32_t) number(5);
        a->path_len = (uint32_t) name(a->path);
        a->hash = ngx_http_llm_capture_zone_hash(a->path, a->path_len, 0);
        a->size = number(1000);
        a->seal = rnd(2) ? WALL + rnd(9) : number(9);
        a->nmodels = (uint32_t) number(20);

        if (rnd(2) && stat(rnd(2) ? path : second, &truth_st) == 0) {
            a->ino = (uint64_t) truth_st.st_ino;
            a->dev = (uint64_t) truth_st.st_dev;
        }

        if (rnd(8) == 0) {
            a->path_len = (uint32_t) number(5000);
        }
    }

    gaps = ngx_http_llm_capture_zone_gaps(&zone, rnd(3));
    noise((uint8_t *) gaps, sizeof(*gaps));
    gaps->n = (uint32_t) number(40);
}


static void
lie(void)
{
    uint32_t  i;

    for (i = 0; i < zone.nrings; i++) {
        if (rnd(6)) {
            lie_ring(i);
        }
    }

    if (rnd(2)) {
        lie_chains();
    }

    if (rnd(2)) {
        lie_intent();
    }

    if (rnd(2)) {
        lie_accounts();
    }
}


/* a life over what stands there; meddle: it changes in between */

static void
live(int meddle)
{
    unsigned   i;
    drain_t   *d;
    writer_t  *w;

    alarm(60);

    broken.only = dir;
    broken.write_errno = rnd(4) ? 0 : ENOSPC;
    broken.name = "b.jsonl";

    w = drain_writer();
    d = drain_over(w);
    assert_non_null(d);

    for (i = 0; i < RINGS; i++) {
        dead[i] = rnd(3) == 0;
    }

    for (i = 0; i < 8; i++) {

        if (rnd(2)) {
            ngx_http_llm_capture_drain_owners(d);
        }

        if (rnd(8) == 0) {
            ngx_http_llm_capture_drain_renamed(d);
        }

        (void) ngx_http_llm_capture_drain_pass(d, now);
        (void) ngx_http_llm_capture_drain_due(d);
        (void) ngx_http_llm_capture_drain_live(d);
        now += number(3000) % 20000;

        if (meddle == 1) {
            flip(rnd(20));
        }

        if (meddle == 2 && rnd(2)) {
            lie();
        }
    }

    if (rnd(2)) {
        (void) ngx_http_llm_capture_drain_lose(d);
    }

    if (rnd(2)) {
        ngx_http_llm_capture_drain_end(d);
    }

    ngx_http_llm_capture_drain_destroy(d);
    ngx_http_llm_capture_writer_destroy(w);
    alarm(0);
}


static void
all_noise(void **state)
{
    unsigned  i;

    (void) state;

    for (i = 0; i < ROUNDS / 8; i++) {
        seed = 1000 + i;
        noise(zone.base, zone.size);
        live(0);
    }
}


static void
flipped(void **state)
{
    unsigned                        i;
    ngx_http_llm_capture_intent_t  *it;

    (void) state;

    for (i = 0; i < ROUNDS; i++) {
        seed = 2000 + i;
        truth_again();
        it = ngx_http_llm_capture_zone_intent(&zone);
        it->state = i % 3;
        flip(1 + rnd(1 << rnd(9)));
        live((int) i & 1);
    }
}


static void
lies(void **state)
{
    unsigned  i;

    (void) state;

    for (i = 0; i < 2 * ROUNDS; i++) {
        seed = 3000 + i;
        truth_again();
        lie();
        live(i % 3 == 0 ? 2 : 0);
    }

    /* they were tempting: some were written, some would have been elsewhere */

    assert_true(broken.outside > 100);
    assert_int_equal(access(path, F_OK), 0);
}


static int
start(void **state)
{
    if (setup(state) != 0) {
        return -1;
    }

    truth_make();

    policy.hash = ngx_http_llm_capture_zone_hash("moon", 4, MOON);
    policy.size = 2000;
    policy.time = 30000;
    policy.keep = 2;
    policy.compression = NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP;

    keeping.policies = &policy;
    keeping.npolicies = 1;
    keeping.max_disk = 1000000;
    keeping.drop_oldest = 1;
    keeping.nginx = "1";
    keeping.module = "1";

    return 0;
}


static int
stop(void **state)
{
    free(image);
    zone_free();

    return teardown(state);
}


#define HOSTILE(name)  cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        HOSTILE(all_noise),
        HOSTILE(flipped),
        HOSTILE(lies)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
