
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What the tests of exactly once share: workers in memory that outlives the
 * helper, a helper that dies when told to, and the count of what became of all.
 */

#ifndef _CRASH_UTIL_H_INCLUDED_
#define _CRASH_UTIL_H_INCLUDED_


#include "zone_util.h"

#include <dirent.h>
#include <sched.h>
#include <sys/prctl.h>

#include "ngx_http_llm_capture_key.h"
#include "ngx_http_llm_capture_point.h"


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

/* of record k: k % 3 */
static const char *const  specs[3] = { NULL, "=alice", "=bob" };

static unsigned  die_at;        /* 0: never */
static unsigned  nrings = 4;    /* the arena is a third of them */
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

static inline ssize_t
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


static inline int
shared_dead(void *ctx, uint32_t ring)
{
    (void) ctx;

    return sh->dead[ring];
}


static inline drain_t *
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
    conf.alive = is_alive;
    conf.log = line_log;
    conf.keeping = keeping;

    return ngx_http_llm_capture_drain_create(&conf, sh->now);
}


static inline char *
next_body(kind_e kind, size_t len)
{
    char  *body;

    body = body_of(sh->k, len);
    spec = specs[sh->k % 3];
    sh->kind[sh->k] = (uint8_t) kind;
    sh->len[sh->k] = (uint32_t) len;
    sh->k++;

    return body;
}


static inline void
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


static inline void
send_many(unsigned w, unsigned file, unsigned n, size_t len)
{
    while (n--) {
        send_one(w, file, WHOLE, len);
    }
}


static inline void
abort_slow(unsigned w, unsigned i)
{
    sh->kind[sh->slow[i].begin.pid] = ABORTED;
    worker_abort(&sh->w[w], &sh->slow[i], C(aborted));
}


/* the session of a record, at p, is what the key of the file makes of it */

static inline char *
check_session(char *p, unsigned k)
{
    char     *text, name[200], id[NGX_HTTP_LLM_CAPTURE_SESSION];
    uint8_t   key[NGX_HTTP_LLM_CAPTURE_KEY];

    if (k % 3 == 0) {
        assert_int_not_equal(strncmp(p, "\"session_id\"", 12), 0);
        return p;
    }

    snprintf(name, sizeof(name), "%s.key", sh->path[0]);
    text = slurp(name, NULL);
    assert_non_null(text);
    assert_true(ngx_http_llm_capture_key_parse(key, text, strlen(text)));
    free(text);

    ngx_http_llm_capture_siphash_hex(
        ngx_http_llm_capture_siphash_seal(key,
            ngx_http_llm_capture_siphash_session(specs[k % 3] + 1,
                                                 strlen(specs[k % 3]) - 1)),
        id);

    assert_int_equal(strncmp(p, "\"session_id\":\"", 14), 0);
    assert_int_equal(strncmp(p + 14, id, 16), 0);

    return p + 14 + 16 + 2;
}


static inline unsigned
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
            assert_non_null(strstr(p, "{\"n\":"));
            p = check_session(p, (unsigned) atoi(strstr(p, "{\"n\":") + 5));
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


static inline void
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


/* of the directory of the test */

static inline void
every_name(void (*found)(const char *name))
{
    DIR            *d;
    struct dirent  *de;

    d = opendir(dir);
    assert_non_null(d);

    while ((de = readdir(d)) != NULL) {
        if (de->d_name[0] != '.') {
            found(de->d_name);
        }
    }

    closedir(d);
}


static inline void
remove_name(const char *name)
{
    char  whole[400];

    snprintf(whole, sizeof(whole), "%s/%s", dir, name);
    assert_int_equal(unlink(whole), 0);
}


static inline void
fresh(void)
{
    unsigned  i;

    every_name(remove_name);

    if (zone.base) {
        zone_free();
    }

    zone_make(nrings, 64 * KIB);

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


static inline int
start(void **state)
{
    sh = mmap(NULL, sizeof(*sh), PROT_READ|PROT_WRITE,
              MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    return sh == MAP_FAILED ? -1 : setup(state);
}


static inline int
stop(void **state)
{
    zone_free();
    memset(&zone, 0, sizeof(zone));
    munmap(sh, sizeof(*sh));

    return teardown(state);
}


#define CRASH(name)  cmocka_unit_test_setup_teardown(name, start, stop)


#endif /* _CRASH_UTIL_H_INCLUDED_ */
