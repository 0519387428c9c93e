
/*
 * Copyright (C) the llm-capture authors
 */

/* the ring between two real processes, over memory shared as in the product */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "ring_pipe.h"


static int  child_status;


static int
alive(void *ctx)
{
    pid_t  *pid;

    pid = ctx;

    if (*pid && waitpid(*pid, &child_status, WNOHANG) == *pid) {
        *pid = 0;
    }

    return *pid != 0;
}


static void
run(size_t size, uint64_t records, uint32_t most, uint64_t seed)
{
    int     rc;
    pid_t   pid;
    duct_t  c;

    pipe_make(&c, size, records, most, seed);
    fflush(NULL);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pipe_produce(&c);
        _exit(0);
    }

    c.alive = alive;
    c.ctx = &pid;
    child_status = -1;

    rc = pipe_consume(&c);

    if (pid) {
        if (rc != 0) {
            kill(pid, SIGKILL);
        }

        waitpid(pid, &child_status, 0);
    }

    pipe_report(&c);

    assert_int_equal(rc, 0);
    assert_int_equal(child_status, 0);
    assert_int_equal(c.ended, c.end->ended);
    assert_int_equal(c.aborted, c.end->aborted);
    assert_int_equal(c.ended + c.aborted, records);
    assert_int_equal(c.end->wrongly, 0);
    assert_true(size <= NGX_HTTP_LLM_CAPTURE_FLOOR || c.punched > 0);
    assert_true(c.ended > records / 2);

    ring_free(&c.t);
    free(c.up);
}


static void
test_page(void **state)
{
    (void) state;

    run(4096, 100000, 1200, 11);
}


static void
test_middle(void **state)
{
    (void) state;

    run(256 * 1024, 20000, 60000, 12);
}


/* up and down over the floor, while pages above it are given back */

static void
test_punched(void **state)
{
    (void) state;

    run(3 * MIB, 4000, 700000, 13);
}


/*
 * The pair of words alone, as fast as both can: the producer must never be in
 * a frame that was granted while the helper gives its page back.  Were one of
 * the four accesses weaker, a store would wait in its processor while both
 * look and see nothing.  The call of the system is replaced by a look.
 */

typedef struct {
    _Atomic uint64_t  inside;
    _Atomic uint64_t  granted;
    _Atomic uint64_t  both;
} dekker_t;


static dekker_t  *dekker;


static void
spin(unsigned n)
{
    volatile unsigned  i;

    for (i = 0; i < n; i++) { /* void */ }
}


/* stores that the other's cache holds: the next one has to queue for long */

static void
crowd(ring_t *t, uint64_t *seed)
{
    unsigned  i, n;

    n = rnd(seed) % 40;

    for (i = 0; i < n; i++) {
        ((volatile uint8_t *) t->data)[rnd(seed) % 512 * 64] = 1;
    }
}


int
madvise(void *p, size_t len, int advice)
{
    unsigned  i;

    if (dekker == NULL) {
        return (int) syscall(SYS_madvise, p, len, advice);
    }

    for (i = 0; i < 100; i++) {
        if (atomic_load(&dekker->inside)) {
            atomic_fetch_add(&dekker->both, 1);
            break;
        }
    }

    return 0;
}


static void
dekker_produce(ring_t *t)
{
    size_t    got;
    unsigned  i;
    uint64_t  seed;

    seed = 1;

    for (i = 0; i < 1000000 || atomic_load(&dekker->granted) < 1000; i++) {

        /* let go of all above the floor, where head stands again */

        atomic_store(&t->hdr->want, U(NGX_HTTP_LLM_CAPTURE_FLOOR));
        ngx_http_llm_capture_ring_open(&t->p, t->hdr, t->data, t->size);
        spin(i % 64);
        crowd(t, &seed);

        if (ngx_http_llm_capture_ring_alloc(&t->p, UNIT, UNIT, &got) != NULL) {
            atomic_store(&dekker->inside, 1);
            spin(50);
            atomic_store(&dekker->inside, 0);
            atomic_fetch_add(&dekker->granted, 1);
        }
    }
}


static void
test_dekker(void **state)
{
    pid_t     pid;
    ring_t    t;
    uint64_t  i, punched, seed;

    (void) state;

    seed = 2;

    ring_make(&t, 4 * MIB);

    /* no way to the front: the tail has not left it */

    ring_at(&t, 1, U(NGX_HTTP_LLM_CAPTURE_FLOOR));
    t.hdr->tail = ngx_http_llm_capture_pos(1, 0);
    dekker = (dekker_t *) (t.map + 1024);
    fflush(NULL);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dekker_produce(&t);
        _exit(0);
    }

    child_status = -1;
    punched = 0;

    for (i = 0; i % 1024 || alive(&pid); i++) {
        punched += ngx_http_llm_capture_ring_punch(t.hdr, t.data,
                                  NGX_HTTP_LLM_CAPTURE_FLOOR,
                                  NGX_HTTP_LLM_CAPTURE_FLOOR + 4096,
                                  ngx_http_llm_capture_pos(0, 0)) == 1;
        spin(i % 128);
        crowd(&t, &seed);
    }

    printf("# %llu granted, %llu punches, %llu both\n",
           (unsigned long long) dekker->granted, (unsigned long long) punched,
           (unsigned long long) dekker->both);

    assert_int_equal(child_status, 0);
    assert_true(punched > 0);
    assert_int_equal(dekker->both, 0);

    dekker = NULL;
    ring_free(&t);
}


/*
 * Pages given back all the time while the producer rests and goes on.  Where
 * it rests is high in the ring more often than not.  A page that went with
 * something in it has lost the stamp that each page gets.
 */

#define ROUNDS  5000

typedef struct {
    _Atomic uint32_t  done;
    uint64_t          refused;
    uint64_t          met;
    const char       *wrong;
} rest_t;


static void
stamp(ngx_http_llm_capture_frame_t *f, int check)
{
    size_t    i;
    uint64_t  is;

    for (i = UNIT; i + sizeof(is) <= f->size; i += 4096) {
        if (!check) {
            memcpy((uint8_t *) f + i, &f->id, sizeof(f->id));
            continue;
        }

        memcpy(&is, (uint8_t *) f + i, sizeof(is));
        assert_int_equal(is, f->id);
    }
}


static ngx_http_llm_capture_frame_t *
rest_frame(ring_t *t, uint32_t n, uint64_t id)
{
    size_t                         got;
    ngx_http_llm_capture_frame_t  *f;

    f = ngx_http_llm_capture_ring_alloc(&t->p, (size_t) n * UNIT,
                                        (size_t) n * UNIT, &got);
    if (f) {
        memset(f, 0, UNIT);
        f->size = (uint32_t) got;
        f->id = id;
        stamp(f, 0);
    }

    return f;
}


static void
rest_produce(ring_t *t, rest_t *end)
{
    uint32_t  n, left;
    uint64_t  seed, round;

    seed = 3;

    for (round = 0; round < ROUNDS || end->met < 100; round++) {

        while (!ring_rests(t)) {
            sched_yield();
        }

        spin(rnd(&seed) % (rnd(&seed) % 8 ? 2000 : 100000));

        end->met += atomic_load(&t->hdr->punch) != 0;
        left = U(t->size) / 8 * 7 >> rnd(&seed) % 4;
        t->p.inflight = 1;

        if (rest_frame(t, 1 + rnd(&seed) % 2048, round) == NULL) {
            end->wrong = "a ring at rest refused a frame";
            break;
        }

        while (left) {
            n = 1 + rnd(&seed) % 2048;
            n = n < left ? n : left;
            left -= n;

            if (rest_frame(t, n, round) == NULL) {
                end->refused++;
                break;
            }

            if (rnd(&seed) % 16 == 0) {
                ngx_http_llm_capture_ring_publish(&t->p);
            }
        }

        t->p.inflight = 0;

        if (rest_frame(t, 1, round) == NULL) {
            end->wrong = "an END was refused";
            break;
        }

        ngx_http_llm_capture_ring_publish(&t->p);
    }

    atomic_store(&end->done, 1);
}


static uint64_t
rest_consume(ring_t *t, rest_t *end, pid_t *pid)
{
    int                             rc, over;
    size_t                          at, from;
    uint64_t                        punched, seed;
    ngx_http_llm_capture_frame_t    f;
    ngx_http_llm_capture_reader_t   r;

    r = ring_reader(t);
    punched = 0;
    seed = 4;

    for ( ;; ) {
        over = atomic_load(&end->done) || !alive(pid);

        while ((rc = ring_next(t, &r, &f, &at)) == 1) {
            stamp((ngx_http_llm_capture_frame_t *) (t->data + at), 1);
        }

        assert_int_equal(rc, 0);

        if (over) {
            return punched;
        }

        ring_tail(t, &r);

        from = NGX_HTTP_LLM_CAPTURE_FLOOR + rnd(&seed) % 64 * 4096;
        punched += ngx_http_llm_capture_ring_punch(t->hdr, t->data, from,
                       t->size, ngx_http_llm_capture_pos(r.lap, r.off)) == 1;
    }
}


static void
test_rest(void **state)
{
    pid_t     pid;
    ring_t    t;
    rest_t   *end;
    uint64_t  punched;

    (void) state;

    ring_make(&t, 4 * MIB);
    ring_at(&t, 1, U(3 * MIB));
    end = (rest_t *) (t.map + 1024);
    fflush(NULL);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rest_produce(&t, end);
        _exit(0);
    }

    child_status = -1;
    punched = rest_consume(&t, end, &pid);

    if (pid) {
        waitpid(pid, &child_status, 0);
    }

    printf("# %u laps, %llu punches, %llu met one, %llu frames refused%s%s\n",
           (unsigned) (ring_head(&t) >> 32), (unsigned long long) punched,
           (unsigned long long) end->met, (unsigned long long) end->refused,
           end->wrong ? ": " : "", end->wrong ? end->wrong : "");

    assert_int_equal(child_status, 0);
    assert_null(end->wrong);
    assert_true(punched > 100);

    ring_free(&t);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_middle),
        cmocka_unit_test(test_punched),
        cmocka_unit_test(test_dekker),
        cmocka_unit_test(test_rest),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("ring fork", tests, NULL, NULL);
}
