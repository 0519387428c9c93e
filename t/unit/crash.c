
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Exactly once, though the helper dies: at every place that is marked in its
 * source and inside every write, with a successor that dies as well, and at
 * any instruction, by SIGKILL.  The workers live in memory that outlives it.
 */

#include "zone_util.h"

#include <sched.h>
#include <sys/prctl.h>

#include "ngx_http_llm_capture_point.h"


#define STEPS    12
#define RECORDS  4096


typedef enum {
    WHOLE = 0,
    INVALID,
    ABORTED,
    SPOILED                     /* whole, but its ring is */
} kind_e;

/* what the test knows; shared, as the workers are */

static struct shared_s {
    worker_t  w[3];
    record_t  slow[4];
    char      path[2][160];
    unsigned  step;
    uint64_t  now;
    int       dead[RINGS];
    uint64_t  mono;

    unsigned  k;                /* of the next record */
    uint8_t   kind[RECORDS];
    uint32_t  len[RECORDS];
    unsigned  extra_aborted;    /* seen, and no frame */

    unsigned  points;           /* of the present helper */
    unsigned  attached;         /* of those, until it was created */
    int       serving;
} *sh;

static unsigned  die_at;        /* 0: never */
static int       mode;          /* 0; 1: writes in pieces; 2: a full disk */


void
ngx_http_llm_capture_point(const char *name)
{
    (void) name;

    if (++sh->points == die_at) {
        _exit(9);
    }
}


/* a write is torn at any byte by a death; here at a third of it */

static ssize_t
torn_writev(int fd, const struct iovec *iov, int n)
{
    int           i;
    size_t        all;
    struct iovec  part;

    if (++sh->points != die_at) {
        return zone_writev(fd, iov, n);
    }

    for (i = 0, all = 0; i < n; i++) {
        all += iov[i].iov_len;
    }

    for (i = 0, all = (all + 2) / 3; i < n && all; i++) {
        part = iov[i];
        part.iov_len = part.iov_len < all ? part.iov_len : all;
        all -= part.iov_len;
        (void) !writev(fd, &part, 1);
    }

    _exit(9);
}


static int
shared_dead(void *ctx, uint32_t ring)
{
    (void) ctx;

    return sh->dead[ring];
}


static drain_t *
helper(void)
{
    static ngx_http_llm_capture_sys_t    sys;
    ngx_http_llm_capture_drain_conf_t    conf;
    ngx_http_llm_capture_writer_conf_t   wconf;

    sys = *zone_sys();
    sys.writev = torn_writev;

    memset(&wconf, 0, sizeof(wconf));
    wconf.log = line_log;
    wconf.sys = &sys;
    wconf.boot = BOOT;

    memset(&conf, 0, sizeof(conf));
    conf.zone = &zone;
    conf.writer = ngx_http_llm_capture_writer_create(&wconf);
    conf.dead = shared_dead;
    conf.log = line_log;

    return ngx_http_llm_capture_drain_create(&conf, sh->now);
}


static char *
next_body(kind_e kind, size_t len)
{
    char  *body;

    body = body_of(sh->k, len);
    sh->kind[sh->k] = (uint8_t) kind;
    sh->len[sh->k] = (uint32_t) len;
    sh->k++;

    return body;
}


static void
send_one(unsigned w, unsigned file, kind_e kind, size_t len)
{
    char  *body;

    body = next_body(kind, len);

    if (worker_send(&sh->w[w], sh->path[file], file ? RAW : MOON, ++sh->mono,
                    body, kind == INVALID ? len - 1 : len)
        != 0)
    {
        _exit(3);
    }

    free(body);
}


static void
send_many(unsigned w, unsigned file, unsigned n, size_t len)
{
    while (n--) {
        send_one(w, file, WHOLE, len);
    }
}


/* the parts of a slow one: from, to, of len bytes */

static void
send_part(unsigned w, unsigned i, size_t from, size_t to, size_t len)
{
    char      *body;
    unsigned   k;
    record_t  *rec;

    rec = &sh->slow[i];

    if (from == 0) {
        k = sh->k;
        body = next_body(WHOLE, len);
        worker_begin(&sh->w[w], rec, sh->path[0], MOON, ++sh->mono);
        rec->begin.reserved = k;

    } else {
        body = body_of(rec->begin.reserved, len);
    }

    if (worker_put(&sh->w[w], rec, body + from, to - from,
                   to == len ? END : 0)
        != 0)
    {
        _exit(3);
    }

    free(body);
}


static void
abort_slow(unsigned w, unsigned i)
{
    sh->kind[sh->slow[i].begin.reserved] = ABORTED;
    worker_abort(&sh->w[w], &sh->slow[i], C(aborted));
}


static void
die(unsigned w)
{
    sh->dead[w] = 1;
}


/* 0: not yet */

static int
do_step(unsigned step)
{
    size_t  off;

    switch (step) {

    case 0:
        send_many(0, 0, 3, 100);
        send_one(1, 1, WHOLE, 200);
        send_one(0, 0, INVALID, 100);
        send_part(0, 0, 0, 1000, 40000);
        send_one(1, 0, WHOLE, 100);
        return 1;

    case 1:
        /* the slow one pins half of its ring, and is moved */
        send_many(0, 0, 4, 9000);
        return 1;

    case 2:
        send_part(0, 0, 1000, 18000, 40000);
        send_part(0, 1, 0, 500, 1000);
        return 1;

    case 3:
        abort_slow(0, 1);
        send_part(0, 0, 18000, 40000, 40000);
        send_many(1, 1, 3, 300);
        return 1;

    case 4:
        send_part(1, 2, 0, 500, 3000);
        send_part(1, 3, 0, 500, 3000);
        send_many(1, 1, 5, 8000);
        return 1;

    case 5:
        abort_slow(1, 2);
        send_many(0, 0, 3, 100);
        return 1;

    case 6:
        /* dies with one moved, one in its ring, and one seen */
        sh->kind[sh->slow[3].begin.reserved] = ABORTED;
        send_part(1, 2, 0, 500, 3000);
        sh->kind[sh->slow[2].begin.reserved] = ABORTED;
        send_one(1, 0, WHOLE, 100);
        worker_seen(&sh->w[1], RAW);
        sh->extra_aborted++;
        die(1);
        return 1;

    case 7:
        if (atomic_load(&hdr_of(1)->owner) != 0) {
            return 0;
        }

        sh->dead[1] = 0;
        worker_claim(&sh->w[1], 1);
        send_many(1, 0, 2, 100);
        return 1;

    case 8:
        /* the second file has failed since then: some of it is given up */
        send_many(1, 1, 5, 9000);
        send_many(0, 0, 2, 100);
        return 1;

    case 9:
        send_many(1, 1, 4, 2000);
        return 1;

    case 10:
        /* a ring is spoiled behind its first record */
        send_one(2, 0, WHOLE, 100);
        off = sh->w[2].ring.off;
        send_many(2, 0, 1, 100);
        sh->kind[sh->k - 1] = SPOILED;
        memset(ngx_http_llm_capture_zone_data(&zone, 2) + off * 32, 0xee, 32);
        send_one(2, 0, SPOILED, 100);
        die(2);
        return 1;

    case 11:
        if (atomic_load(&hdr_of(2)->owner) != 0) {
            return 0;
        }

        sh->dead[2] = 0;
        worker_claim(&sh->w[2], 2);
        send_many(2, 0, 2, 100);
        return 1;
    }

    return 0;
}


/* a life of the helper: to the end of the script, or to its own */

static void
live(void)
{
    unsigned   idle;
    uint64_t   due;
    drain_t   *d;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);

    fault.lines_only = 1;

    if (mode == 1) {
        fault.write_chunk = 3000;
    }

    if (mode == 2) {
        fault.write_errno = ENOSPC;
        fault.write_bytes = 5000;
    }

    sh->points = 0;
    d = helper();

    if (d == NULL) {
        _exit(4);
    }

    sh->attached = sh->points;

    for (idle = 0; idle < 20; /* void */) {

        broken.name = sh->step >= 8 && sh->step < 10 ? "b.jsonl" : NULL;
        broken.write_errno = ENOSPC;

        ngx_http_llm_capture_drain_owners(d);

        if (ngx_http_llm_capture_drain_pass(d, sh->now)) {
            idle = 0;
            continue;
        }

        if (sh->step < STEPS && do_step(sh->step)) {
            sh->step++;
            idle = 0;
            continue;
        }

        due = ngx_http_llm_capture_drain_due(d);

        if (due == 0 && sh->step == STEPS) {
            break;
        }

        if (mode == 2) {
            fault.write_bytes = -1;
        }

        sh->now = due > sh->now && due < sh->now + 5000 ? due : sh->now + 50;
        idle++;
    }

    _exit(sh->step == STEPS && pending() == 0 ? 0 : 5);
}


static int
run(unsigned at)
{
    int    status;
    pid_t  pid;

    die_at = at;
    fflush(NULL);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        live();
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);

    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}


static unsigned
check_file(unsigned file, uint8_t *found, uint64_t *bytes)
{
    char      *got, *p, *end, *body;
    size_t     len;
    unsigned   n, k;

    got = slurp(sh->path[file], &len);

    if (got == NULL) {
        return 0;
    }

    assert_int_equal(strlen(got), len);
    *bytes += len;

    for (n = 0, p = got; *p; p = end + 1, n++) {
        end = strchr(p, '\n');
        assert_non_null(end);
        *end = '\0';

        if (file == 0) {
            assert_int_equal(strncmp(p, "{\"timestamp\":", 13), 0);
            p = strchr(p, ',') + 1;
            assert_int_equal(strncmp(p, "\"payload\":", 10), 0);
            p += 10;
            assert_int_equal(end[-1], '}');
            end[-1] = '\0';
        }

        assert_int_equal(strncmp(p, "{\"n\":", 5), 0);
        k = (unsigned) atoi(p + 5);
        assert_true(k < sh->k);

        if (found[k]++) {
            fail_msg("record %u is there twice", k);
        }

        if (sh->kind[k] != WHOLE && sh->kind[k] != SPOILED) {
            fail_msg("record %u is of kind %u", k, sh->kind[k]);
        }

        body = body_of(k, sh->len[k]);
        assert_string_equal(p, body);
        free(body);
    }

    free(got);

    return n;
}


static void
check_all(int may_fail, int may_fill)
{
    uint8_t   found[RECORDS];
    uint64_t  bytes;
    unsigned  k, n, kinds[4];

    memset(found, 0, sizeof(found));
    memset(kinds, 0, sizeof(kinds));
    bytes = 0;

    for (k = 0; k < sh->k; k++) {
        kinds[sh->kind[k]]++;
    }

    n = check_file(0, found, &bytes) + check_file(1, found, &bytes);

    assert_int_equal(pending(), 0);
    assert_int_equal(counted(C(recorded)), n);
    assert_int_equal(counted(C(bytes)), bytes);
    assert_int_equal(counted(C(seen)), sh->k + sh->extra_aborted);
    assert_int_equal(counted(C(uncertain)), 0);

    if (!may_fill) {
        assert_int_equal(counted(C(queue_full)), 0);
        assert_int_equal(counted(C(invalid_json)), kinds[INVALID]);
        assert_int_equal(counted(C(aborted)),
                         kinds[ABORTED] + sh->extra_aborted);
    }

    if (!may_fail) {
        assert_int_equal(counted(C(failed)), 0);
        assert_int_equal(counted(C(lost)), 0);
        return;
    }

    assert_int_equal(counted(C(lost)), kinds[SPOILED]);
    assert_int_equal(n + counted(C(failed)), kinds[WHOLE]);
    assert_true(counted(C(failed)) > 0);
    assert_true(mode == 2 || counted(C(failed)) < 9);
}


static void
fresh(void)
{
    unsigned  i;
    char      name[200];

    for (i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s/%c.jsonl", dir, 'a' + i);
        (void) unlink(name);
        strcat(name, ".epoch");
        (void) unlink(name);
    }

    if (zone.base) {
        zone_free();
    }

    zone_make(4, 64 * KIB);

    memset(sh, 0, sizeof(*sh));
    sh->now = now;
    sh->mono = 1000;

    for (i = 0; i < 3; i++) {
        worker_claim(&sh->w[i], i);
    }

    for (i = 0; i < 2; i++) {
        snprintf(sh->path[i], sizeof(sh->path[i]), "%s/%c.jsonl", dir,
                 'a' + i);
    }
}


/*
 * Dies at the k-th point, of all there are; in mode 0 a successor dies as well,
 * at every point until it is attached.
 */

static void
every_point(int m)
{
    int       rc;
    unsigned  k, j, attached;

    mode = m;

    for (k = 1; ; k++) {

        attached = 0;

        for (j = 0; j <= attached; j++) {
            fresh();

            rc = run(k);

            if (rc == 0) {
                check_all(1, 0);
                assert_true(k > 100);
                print_message("# died at %u points\n", k - 1);
                return;
            }

            assert_int_equal(rc, 9);

            if (j) {
                rc = run(j);
                assert_true(rc == 9 || rc == 0);
            }

            if (j == 0 || rc == 9) {
                rc = run(0);
                attached = j || m ? attached : sh->attached;
            }

            if (rc != 0) {
                fail_msg("died at %u, at %u: then %d", k, j, rc);
            }

            check_all(1, 0);
        }
    }
}


static void
points(void **state)
{
    (void) state;
    every_point(0);
}


static void
points_in_pieces(void **state)
{
    (void) state;
    every_point(1);
}


static void
points_full_disk(void **state)
{
    (void) state;
    every_point(2);
}


/* a helper that drains as fast as it can until it is killed or told to end */

static void
serve(volatile int *quit)
{
    unsigned  idle;
    drain_t  *d;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    die_at = 0;
    sh->points = 0;

    d = helper();

    if (d == NULL) {
        _exit(4);
    }

    *(volatile int *) &sh->serving = 1;

    for (idle = 0; idle < 3; /* void */) {
        ngx_http_llm_capture_drain_owners(d);
        idle = ngx_http_llm_capture_drain_pass(d, ++sh->now) || !*quit
               ? 0 : idle + 1;
    }

    _exit(0);
}


static void
produce(uint64_t *seed)
{
    char      *body;
    size_t     len;
    unsigned   w, i, n;
    uint64_t   s;
    worker_t  *x;

    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    s = *seed >> 33;

    w = s % 3;
    i = w;
    n = (s >> 4) % 16;
    x = &sh->w[w];

    if (n >= 5 && ngx_http_llm_capture_ring_room(&x->ring) < 8 * KIB) {
        return;
    }

    if (n == 0 && !sh->slow[i].begun) {
        sh->slow[i].begin.reserved = 0;
        body = next_body(WHOLE, 2000);
        worker_begin(x, &sh->slow[i], sh->path[0], MOON, ++sh->mono);
        sh->slow[i].begin.reserved = sh->k - 1;

        if (worker_put(x, &sh->slow[i], body, 100, 0) != 0) {
            sh->kind[sh->k - 1] = ABORTED;
            sh->slow[i].begun = 0;
        }

        free(body);

    } else if (n < 4 && sh->slow[i].begun && (s >> 9) % 16 == 0) {

        if (n == 1) {
            abort_slow(w, i);

        } else {
            body = body_of(sh->slow[i].begin.reserved, 2000);

            if (worker_put(x, &sh->slow[i], body + 100, 1900, END) != 0) {
                sh->kind[sh->slow[i].begin.reserved] = ABORTED;
            }

            free(body);
        }

        sh->slow[i].begun = 0;

    } else if (n >= 5) {
        len = 60 + (s >> 12) % 3000;
        body = next_body(n == 5 ? INVALID : WHOLE, len);

        if (worker_send(x, sh->path[n % 2], n % 2 ? RAW : MOON, ++sh->mono,
                        body, n == 5 ? len - 1 : len)
            != 0)
        {
            sh->kind[sh->k - 1] = ABORTED;
        }

        free(body);
    }
}


static void
storm(void **state)
{
    int            status, killed;
    pid_t          pid;
    uint64_t       seed, spin;
    unsigned       i, k, target;
    volatile int  *quit;

    (void) state;

    mode = 0;
    fresh();
    seed = 7;
    killed = 0;

    quit = mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
                -1, 0);
    assert_true(quit != MAP_FAILED);

    for (i = 0; i < 400; i++) {
        fflush(NULL);
        sh->serving = 0;
        pid = fork();
        assert_true(pid != -1);

        if (pid == 0) {
            alarm(60);
            serve(quit);
        }

        /* while it attaches, or later; some records more; at any moment */

        while (i % 4 && !*(volatile int *) &sh->serving
               && waitpid(pid, &status, WNOHANG) == 0)
        {
            sched_yield();
        }

        target = sh->k + 1 + i % 9;

        for (k = 0; k < 100000 && sh->k < target && sh->k < RECORDS - 9; k++)
        {
            produce(&seed);

            if (k % 64 == 63) {
                sched_yield();
            }
        }

        for (spin = (seed >> 20) % 300000; spin; spin--) {
            __asm__ volatile ("" ::: "memory");
        }

        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        killed++;
    }

    /* what is still open ends, and a last helper writes what is left */

    for (k = 0; k < 3; k++) {
        if (sh->slow[k].begun) {
            abort_slow(k, k);
        }
    }

    *quit = 1;
    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        alarm(60);
        serve(quit);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    print_message("# %d killed, %u records, %u recorded\n", killed, sh->k,
                  (unsigned) counted(C(recorded)));

    check_all(0, 1);
    assert_true(counted(C(recorded)) > 500);
    munmap((void *) quit, 4096);
}


static int
start(void **state)
{
    sh = mmap(NULL, sizeof(*sh), PROT_READ|PROT_WRITE,
              MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    return sh == MAP_FAILED ? -1 : setup(state);
}


static int
stop(void **state)
{
    zone_free();
    memset(&zone, 0, sizeof(zone));
    munmap(sh, sizeof(*sh));

    return teardown(state);
}


#define CRASH(name)  cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        CRASH(points),
        CRASH(points_in_pieces),
        CRASH(points_full_disk),
        CRASH(storm)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
