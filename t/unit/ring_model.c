
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The ring against a model in plain memory: a list of all that was put.  Many
 * uploads in flight, random sizes, a consumer that stalls, a helper that gives
 * pages back between any two steps.  Each frame is compared byte for byte when
 * it is read and again when the tail passes it, then overwritten; no END or
 * ABORT may ever be refused.
 *
 * RING_SEED and RING_STEPS (a factor) repeat a run or make it longer.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "ring_util.h"


#define UPLOADS  40
#define PUTS     (1 << 20)

#define BEGIN    NGX_HTTP_LLM_CAPTURE_BEGIN
#define END      NGX_HTTP_LLM_CAPTURE_END
#define ABORT    NGX_HTTP_LLM_CAPTURE_ABORT


typedef struct {
    uint64_t                       id;
    uint64_t                       off;
    uint32_t                       len;
    uint16_t                       flags;
    uint16_t                       why;
} put_t;


/* a reader with its place in the list of puts */

typedef struct {
    ngx_http_llm_capture_reader_t  r;
    uint64_t                       put;
    uint32_t                       done;    /* bytes of it */
} cursor_t;


typedef struct {
    ring_t                         t;
    uint64_t                       seed;

    put_t                         *puts;
    uint64_t                       nputs;

    ngx_http_llm_capture_record_t  up[UPLOADS];
    unsigned                       busy[UPLOADS];
    uint64_t                       id;

    cursor_t                       read;
    cursor_t                       tail;

    /* the helper in the middle of giving back, 0: it is not */
    uint32_t                       from;
    int                            go;
    size_t                         spare;

    uint64_t                       frames, refused, aborts, punched;
    uint64_t                       at_rest, met;   /* of the punches; by puts */
    char                           path[NGX_HTTP_LLM_CAPTURE_PATH];
} model_t;


static void
model_log(model_t *m, uint64_t id, uint64_t off, uint64_t len, unsigned flags,
    unsigned why)
{
    put_t  *put;

    assert_true(m->nputs - m->tail.put < PUTS);

    put = &m->puts[m->nputs++ % PUTS];
    put->id = id;
    put->off = off;
    put->len = (uint32_t) len;
    put->flags = (uint16_t) flags;
    put->why = (uint16_t) why;
}


static uint16_t
path_len(model_t *m, uint64_t id)
{
    return (uint16_t) (id % 50 == 0 && m->t.size > 32768
                       ? NGX_HTTP_LLM_CAPTURE_PATH - 1 : 1 + id % 60);
}


static void
model_abort(model_t *m, unsigned i)
{
    uint32_t                        inflight;
    ngx_http_llm_capture_frame_t   *f;
    ngx_http_llm_capture_record_t  *rec;

    rec = &m->up[i];
    inflight = m->t.p.inflight;

    ngx_http_llm_capture_record_abort(&m->t.p, rec,
                                      NGX_HTTP_LLM_CAPTURE_C_aborted);

    assert_int_equal(m->t.p.inflight, inflight - 1);

    f = (ngx_http_llm_capture_frame_t *)
            (m->t.data + ((size_t) m->t.p.off - 1) * UNIT);

    assert_true(m->t.p.off > 0 && f->flags == ABORT && f->id == rec->id);

    model_log(m, rec->id, rec->off, 0, ABORT, NGX_HTTP_LLM_CAPTURE_C_aborted);

    m->busy[i] = 0;
    m->aborts++;
}


/* an empty ring takes a body that fits below the floor, whatever goes on */

static int
model_must(model_t *m, size_t len)
{
    if (!ring_rests(&m->t)) {
        return 0;
    }

    m->met += m->from != 0 && m->t.p.off >= m->from;

    return m->t.size > NGX_HTTP_LLM_CAPTURE_FLOOR && len <= MIB / 8;
}


static void
model_put(model_t *m, unsigned i, size_t len, unsigned flags)
{
    int                             rc, must;
    uint64_t                        off;
    unsigned                        begun;
    struct iovec                    iov;
    ngx_http_llm_capture_ring_t     was;
    ngx_http_llm_capture_record_t  *rec;

    rec = &m->up[i];

    if (!m->busy[i]) {
        memset(rec, 0, sizeof(ngx_http_llm_capture_record_t));
        rec->id = ++m->id;
        rec->path = m->path;
        rec->begin.mono = rec->id * 3;
        rec->begin.path_len = path_len(m, rec->id);
        m->busy[i] = 1;
    }

    iov.iov_base = (void *) body_bytes(rec->id, rec->off, len);
    iov.iov_len = len;

    begun = rec->begun;
    off = rec->off;
    was = m->t.p;
    must = model_must(m, len);

    rc = ngx_http_llm_capture_record_put(&m->t.p, rec, &iov, 1, flags);

    if (rc == 0) {
        assert_int_equal(rec->off, off + len);

        if (len || flags || !begun) {
            model_log(m, rec->id, off, len, flags | (begun ? 0 : BEGIN), 0);
        }

        m->busy[i] = !flags;
        return;
    }

    /* an END alone is never refused */

    assert_true((!begun || len) && !must);

    m->refused++;

    if (rec->off == off) {
        assert_int_equal(rec->begun, begun);
        assert_int_equal(m->t.p.off, was.off);
        assert_int_equal(m->t.p.lap, was.lap);
        assert_int_equal(m->t.p.inflight, was.inflight);

    } else {
        /* a part was given: only a helper can be in the way of the rest */

        assert_true(m->from != 0);
        model_log(m, rec->id, off, rec->off - off, begun ? 0 : BEGIN, 0);
    }

    if (rec->begun) {
        model_abort(m, i);

    } else {
        m->busy[i] = 0;
    }
}


/* the next frame must be what the list of puts says */

static int
model_step(model_t *m, cursor_t *c, int wipe)
{
    int                            rc;
    put_t                         *put;
    size_t                         at;
    uint32_t                       body;
    uint64_t                       head;
    const char                    *path;
    ngx_http_llm_capture_frame_t   f;
    ngx_http_llm_capture_begin_t   b;

    head = wipe ? ngx_http_llm_capture_pos(m->read.r.lap, m->read.r.off)
                : ring_head(&m->t);

    rc = ngx_http_llm_capture_ring_read(&c->r, head, &f, &at);

    if (rc == 0) {
        return 0;
    }

    assert_int_equal(rc, 1);

    if (!(f.flags & NGX_HTTP_LLM_CAPTURE_JUMP)) {
        assert_true(c->put < m->nputs);
        put = &m->puts[c->put % PUTS];

        assert_true(f.id == put->id && f.off == put->off + c->done
                    && f.len <= put->len - c->done);
        assert_int_equal(ngx_http_llm_capture_record_parse(m->t.data + at, &f,
                                                           &b, &path, &body),
                         0);
        assert_int_equal(f.flags,
                         (c->done ? 0 : put->flags & BEGIN)
                         | (c->done + f.len == put->len
                            ? put->flags & (END|ABORT) : 0));
        assert_true(!body_differs(m->t.data + at + body, f.id, f.off, f.len));
        assert_int_equal(f.why, put->why);

        if (f.flags & BEGIN) {
            assert_true(b.mono == f.id * 3
                        && b.path_len == path_len(m, f.id)
                        && memcmp(path, m->path, b.path_len) == 0);
        }

        c->done += f.len;

        if (c->done == put->len) {
            c->put++;
            c->done = 0;
        }

        m->frames++;
    }

    if (wipe) {
        memset(m->t.data + at, 0xdd, f.size);
    }

    return 1;
}


static void
model_free(model_t *m, unsigned n)
{
    while (n-- && model_step(m, &m->tail, 1)) { /* void */ }

    ring_tail(&m->t, &m->tail.r);
}


/*
 * What ring_punch() does, in steps, with anything between them: the word, the
 * look, the pages, the word.
 */

static int
model_look(model_t *m)
{
    uint64_t  want, tail;

    want = atomic_load(&m->t.hdr->want);
    tail = ngx_http_llm_capture_pos(m->tail.r.lap, m->tail.r.off);
    m->spare = (size_t) m->tail.r.off * UNIT / 4096 * 4096;

    if (want != 0) {
        return want <= m->from;
    }

    if (ring_head(&m->t) != tail) {
        return 0;
    }

    m->at_rest++;

    return 1;
}


static void
model_drop(model_t *m)
{
    size_t  at;

    for (at = (size_t) m->from * UNIT; at < m->t.size; at += 4096) {
        if (at != m->spare) {
            memset(m->t.data + at, 0, 4096);
        }
    }
}


static void
model_punch(model_t *m)
{
    size_t  from;

    if (m->t.size <= NGX_HTTP_LLM_CAPTURE_FLOOR) {
        return;
    }

    if (m->from == 0) {
        from = NGX_HTTP_LLM_CAPTURE_FLOOR
               + rnd(&m->seed) % ((m->t.size - NGX_HTTP_LLM_CAPTURE_FLOOR)
                                  / 4096) * 4096;
        m->from = U(from);
        atomic_store(&m->t.hdr->punch, m->from);
        m->go = -1;

    } else if (m->go == -1) {
        m->go = model_look(m);

    } else if (m->go == 1) {
        model_drop(m);
        m->go = rnd(&m->seed) % 2;
        m->punched++;

    } else {
        atomic_store(&m->t.hdr->punch, 0);
        m->from = 0;
    }
}


/* nobody reads: each upload in flight must still end */

static void
model_end_all(model_t *m)
{
    unsigned  i;

    for (i = 0; i < UPLOADS; i++) {
        if (!m->busy[i]) {
            continue;
        }

        if (rnd(&m->seed) % 2) {
            model_abort(m, i);

        } else {
            model_put(m, i, 0, END);
            assert_false(m->busy[i]);
        }
    }

    assert_int_equal(m->t.p.inflight, 0);
}


/* all is read and done: pages go though the producer stands high above them */

static void
model_rest(model_t *m)
{
    unsigned  i;

    ngx_http_llm_capture_ring_publish(&m->t.p);

    while (model_step(m, &m->read, 0)) { /* void */ }

    model_free(m, 0xffffffff);

    for (i = rnd(&m->seed) % 5; i; i--) {
        model_punch(m);
    }
}


static size_t
model_len(model_t *m)
{
    size_t  max;

    /* mostly small, now and then a third of the ring */

    max = m->t.size / 3 >> rnd(&m->seed) % 12;

    return rnd(&m->seed) % (max < 64 ? 64 : max);
}


static void
model_act(model_t *m, uint32_t speed, uint32_t uploads)
{
    unsigned  i;

    i = rnd(&m->seed) % uploads;

    switch (rnd(&m->seed) % 16) {

    case 0:
        if (m->busy[i]) {
            model_abort(m, i);
        }

        break;

    case 1:
        model_punch(m);
        break;

    case 2:
        if (rnd(&m->seed) % 16 == 0) {
            model_end_all(m);

            if (rnd(&m->seed) % 4) {
                model_rest(m);
            }
        }

        break;

    case 3: case 4: case 5: case 6:
        if (rnd(&m->seed) % 8 < speed) {
            for (i = rnd(&m->seed) % (4 << speed); i; i--) {
                model_step(m, &m->read, 0);
            }
        }

        break;

    case 7: case 8:
        if (rnd(&m->seed) % 8 < speed) {
            model_free(m, rnd(&m->seed) % (8 << speed));
        }

        break;

    default:
        model_put(m, i, model_len(m), rnd(&m->seed) % 3 == 0 ? END : 0);
    }

    if (rnd(&m->seed) % 4) {
        ngx_http_llm_capture_ring_publish(&m->t.p);
    }
}


static void
model_run(size_t size, uint32_t steps, uint64_t seed)
{
    char      *env;
    model_t   *m;
    uint32_t   i, speed, uploads;

    env = getenv("RING_SEED");
    seed = env ? strtoull(env, NULL, 10) : seed;
    env = getenv("RING_STEPS");
    steps *= env ? (uint32_t) atoi(env) : 1;

    printf("# ring of %zu bytes, %u steps, seed %llu\n", size, steps,
           (unsigned long long) seed);

    m = calloc(1, sizeof(model_t));
    m->puts = calloc(PUTS, sizeof(put_t));
    m->seed = seed * 0x9e3779b97f4a7c15ULL + 1;
    memset(m->path, 'p', sizeof(m->path));

    ring_make(&m->t, size);
    ring_at(&m->t, 0xfffffff0, rnd(&m->seed) % (U(size) + 1));
    m->read.r = m->tail.r = ring_reader(&m->t);

    speed = uploads = 1;

    for (i = 0; i < steps; i++) {
        if (i % 512 == 0) {
            speed = rnd(&m->seed) % 6;
            uploads = 1 + rnd(&m->seed) % UPLOADS;
        }

        model_act(m, speed, uploads);
    }

    model_end_all(m);
    ngx_http_llm_capture_ring_publish(&m->t.p);

    while (model_step(m, &m->read, 0)) { /* void */ }

    model_free(m, 0xffffffff);

    assert_int_equal(m->read.put, m->nputs);
    assert_int_equal(m->tail.put, m->nputs);

    printf("# %llu records, %llu frames read, %llu puts refused, %llu aborts, "
           "%u laps, %llu punches, %llu at rest, %llu met\n",
           (unsigned long long) m->id,
           (unsigned long long) m->frames, (unsigned long long) m->refused,
           (unsigned long long) m->aborts, m->t.p.lap - 0xfffffff0,
           (unsigned long long) m->punched, (unsigned long long) m->at_rest,
           (unsigned long long) m->met);

    /* it did meet what it is for */

    assert_true(m->refused > 100 && m->t.p.lap - 0xfffffff0 > 20);
    assert_true(size <= NGX_HTTP_LLM_CAPTURE_FLOOR
                || (m->punched > 100 && m->at_rest > 10 && m->met > 10));

    ring_free(&m->t);
    free(m->puts);
    free(m);
}


static void
test_page(void **state)
{
    (void) state;

    model_run(4096, 2000000, 1);
    model_run(8192, 1000000, 2);
}


static void
test_middle(void **state)
{
    (void) state;

    model_run(65536, 600000, 3);
    model_run(MIB, 200000, 4);
}


/* beyond the window, and above the floor where pages are given back */

static void
test_large(void **state)
{
    (void) state;

    model_run(5 * MIB / 2, 200000, 5);
    model_run(4 * MIB, 100000, 6);
    model_run(9 * MIB, 100000, 7);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_middle),
        cmocka_unit_test(test_large),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring model", tests, NULL, NULL);
}
