
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for the writing of a batch: a disk that takes any number of bytes,
 * calls that are interrupted, a torn line that cannot be cut away, and other
 * writers at the same file.
 */

#include "files.h"

#include <sched.h>
#include <sys/resource.h>


#define FIRST  "{\"timestamp\":0,\"payload\":{\"z\":0}}\n"
#define L0     "{\"timestamp\":100,\"payload\":{\"a\":1}}\n"
#define L1     "{\"timestamp\":200,\"payload\":{\"bb\":22}}\n"
#define L2     "{\"timestamp\":3000,\"payload\":{\"c\":[]}}\n"

static const char  *three[] = { L0, L1, L2 };

static line_t        line[3];
static struct iovec  iov[3];


/* FIRST stands there, made by the writer, and so does the sidecar */

static writer_t *
begin(void)
{
    writer_t  *w;

    unlink(path);
    unlink(sidecar);

    w = new_writer();
    assert_int_equal(put(w, "{\"z\":0}", 1, 5000), 1);
    assert_file(path, FIRST);

    set_line(&line[0], &iov[0], "{\"a\":1}", 1, 5100);
    set_line(&line[1], &iov[1], "{\"bb\":22}", 1, 5200);
    set_line(&line[2], &iov[2], "{\"c\":[]}", 1, 8000);

    memset(&intent, 0, sizeof(intent));
    intent.nrefs = 3;

    return w;
}


static ssize_t
batch(writer_t *w, unsigned from, uint64_t now)
{
    return ngx_http_llm_capture_writer_write(w, file_of(w, path), MOON,
                                             line + from, 3 - from, 1, 1,
                                             &intent, now);
}


/* FIRST and so many lines, then more */

static const char *
stands(unsigned n, const char *more)
{
    static char  text[1024];
    unsigned     i;

    strcpy(text, FIRST);

    for (i = 0; i < n; i++) {
        strcat(text, three[i]);
    }

    strcat(text, more);

    return text;
}


static unsigned
whole(size_t bytes, size_t *torn)
{
    unsigned  n;

    for (n = 0; n < 3 && bytes >= strlen(three[n]); n++) {
        bytes -= strlen(three[n]);
    }

    *torn = bytes;

    return n;
}


static void
test_intent(void **state)
{
    writer_t     *w;
    struct stat   st;

    (void) state;

    w = begin();
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(batch(w, 0, 1000), 3);
    assert_file(path, stands(3, ""));

    assert_int_equal(atomic_load(&intent.state),
                     NGX_HTTP_LLM_CAPTURE_INTENT_WRITING);
    assert_int_equal(intent.dev, st.st_dev);
    assert_int_equal(intent.ino, st.st_ino);
    assert_int_equal(intent.offset, strlen(FIRST));
    assert_int_equal(intent.length, strlen(L0 L1 L2));
    assert_int_equal(intent.format, MOON);
    assert_int_equal(intent.path_len, strlen(path));
    assert_string_equal(intent.path, path);
    assert_int_equal(intent.refs[0].ts, 100);
    assert_int_equal(intent.refs[1].ts, 200);
    assert_int_equal(intent.refs[2].ts, 3000);
    assert_int_equal(line[2].ts, 3000);

    /* one call for three lines */
    assert_int_equal(fault.max_iov, 7);

    ngx_http_llm_capture_writer_destroy(w);
}


/* the intent stands before the first byte does */

static uint32_t  seen_state;
static off_t     seen_size;

static ssize_t
look_writev(int fd, const struct iovec *v, int n)
{
    struct stat  st;

    if (fcntl(fd, F_GETFL) & O_APPEND) {
        seen_state = atomic_load(&intent.state);
        assert_int_equal(fstat(fd, &st), 0);
        seen_size = st.st_size;
        assert_int_equal(intent.offset, st.st_size);
    }

    return writev(fd, v, n);
}


static void
test_intent_first(void **state)
{
    writer_t                            *w;
    ngx_http_llm_capture_sys_t           sys;
    ngx_http_llm_capture_writer_conf_t   conf;

    (void) state;

    memset(&conf, 0, sizeof(conf));
    sys = ngx_http_llm_capture_sys;
    sys.writev = look_writev;
    conf.sys = &sys;

    w = ngx_http_llm_capture_writer_create(&conf);
    assert_non_null(w);
    seen_size = -1;
    assert_int_equal(put(w, "{\"a\":1}", 1, 1), 1);
    assert_int_equal(seen_size, 0);
    assert_int_equal(seen_state, NGX_HTTP_LLM_CAPTURE_INTENT_WRITING);

    ngx_http_llm_capture_writer_destroy(w);
}


/*
 * The disk takes n bytes of the batch and no more, for every n, in calls of
 * one byte, of seven, or of all.  What is whole stays, the rest follows once.
 */

static void
every_byte(int err)
{
    long       n;
    size_t     torn;
    file_t    *f;
    writer_t  *w;
    unsigned   i, k;

    static const long  chunks[] = { 1, 7, -1 };

    for (i = 0; i < 3; i++) {
        for (n = 0; n < (long) strlen(L0 L1 L2); n++) {

            w = begin();
            f = file_of(w, path);
            k = whole((size_t) n, &torn);

            fault.write_errno = err;
            fault.write_bytes = n;
            fault.write_chunk = chunks[i];

            assert_int_equal(batch(w, 0, 1000), k ? (int) k : LATER);
            assert_int_equal(f->error, err);
            assert_int_equal(f->retry_at, 1010);
            assert_int_equal(atomic_load(&intent.state),
                             k ? NGX_HTTP_LLM_CAPTURE_INTENT_WRITING
                               : NGX_HTTP_LLM_CAPTURE_INTENT_NONE);
            assert_file(path, stands(k, ""));

            /* still full, then not */

            fault.write_bytes = 0;
            assert_int_equal(batch(w, k, 1010), LATER);
            assert_int_equal(f->retry_at, 1030);
            assert_file(path, stands(k, ""));

            reset_faults();
            assert_int_equal(batch(w, k, 1030), 3 - k);
            assert_int_equal(f->error, 0);
            assert_int_equal(f->retry_at, 0);
            assert_file(path, stands(3, ""));

            ngx_http_llm_capture_writer_destroy(w);
        }
    }
}


static void
test_full_disk(void **state)
{
    (void) state;

    every_byte(ENOSPC);
}


static void
test_bad_disk(void **state)
{
    (void) state;

    every_byte(EIO);
}


/* a call that writes nothing and gives no reason must not be an endless loop */

static void
test_nothing(void **state)
{
    writer_t  *w;

    (void) state;

    w = begin();
    fault.write_bytes = 0;
    assert_int_equal(batch(w, 0, 1000), LATER);
    assert_int_equal(file_of(w, path)->error, EIO);
    assert_file(path, FIRST);

    ngx_http_llm_capture_writer_destroy(w);
}


/* short writes that go on, and interrupted ones */

static void
test_short(void **state)
{
    long       chunk;
    writer_t  *w;

    (void) state;

    for (chunk = 1; chunk <= (long) strlen(L0 L1 L2); chunk++) {
        w = begin();
        fault.write_chunk = chunk;
        fault.write_eintr = 5;
        assert_int_equal(batch(w, 0, 1000), 3);
        assert_int_equal(fault.write_eintr, 0);
        assert_file(path, stands(3, ""));
        ngx_http_llm_capture_writer_destroy(w);
        reset_faults();
    }

    assert_int_equal(said.n, 0);
}


static void
test_too_big(void **state)
{
    file_t    *f;
    writer_t  *w;

    (void) state;

    w = begin();
    f = file_of(w, path);

    fault.write_errno = EFBIG;
    fault.write_bytes = (long) strlen(L0) + 3;
    assert_int_equal(batch(w, 0, 1000), 1);
    assert_int_equal(f->error, EFBIG);
    fault.write_bytes = 5;
    assert_int_equal(batch(w, 1, 1010), NEVER);
    assert_int_equal(f->retry_at, 0);
    assert_file(path, stands(1, ""));

    ngx_http_llm_capture_writer_destroy(w);
}


/* the real thing: a limit on the size of files */

static void
test_file_size_limit(void **state)
{
    int            status;
    pid_t          pid;
    writer_t      *w;
    struct rlimit  limit;

    (void) state;

    w = begin();
    ngx_http_llm_capture_writer_reopen(w);

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        limit.rlim_cur = strlen(FIRST L0) + 9;
        limit.rlim_max = limit.rlim_cur;

        if (setrlimit(RLIMIT_FSIZE, &limit) == -1
            || batch(w, 0, 1000) != 1
            || file_of(w, path)->error != EFBIG
            || batch(w, 1, 1010) != NEVER)
        {
            _exit(1);
        }

        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_file(path, stands(1, ""));

    ngx_http_llm_capture_writer_destroy(w);
}


/*
 * Torn, and the tail cannot be cut away.  It is mended before anything else is
 * appended, by this writer or by another one; no line is lost, none is twice.
 */

static void
no_cut(int other)
{
    long       n;
    size_t     torn;
    writer_t  *w, *v;
    unsigned   k, lf;

    for (n = 1; n < (long) strlen(L0 L1 L2); n++) {

        w = begin();
        v = new_writer();

        k = whole((size_t) n, &torn);
        lf = (torn + 1 == strlen(three[k]));

        fault.write_errno = ENOSPC;
        fault.write_bytes = n;
        fault.cut_errno = EIO;

        /* a row that lacks nothing but its LF counts as written */

        assert_int_equal(batch(w, 0, 1000), k + lf ? (int) (k + lf) : LATER);

        if (torn && !lf) {
            fault.write_bytes = -1;
            assert_int_equal(batch(w, k, 1010), LATER);
        }

        reset_faults();

        if (k + lf < 3) {
            assert_int_equal(batch(other ? v : w, k + lf, 1030), 3 - k - lf);

        } else {
            assert_int_equal(put(other ? v : w, "{\"z\":0}", 1, 5000), 1);
        }

        assert_file(path, stands(3, k + lf == 3 ? FIRST : ""));

        ngx_http_llm_capture_writer_destroy(w);
        ngx_http_llm_capture_writer_destroy(v);
    }
}


static void
test_no_cut(void **state)
{
    (void) state;

    no_cut(0);
}


static void
test_no_cut_other(void **state)
{
    (void) state;

    no_cut(1);
}


/*
 * Somebody who knows of no lock: what he appended behind a torn line of ours
 * is not cut away, nor is anything when he truncated the file meanwhile.
 */

static unsigned  truncate_after;    /* calls */


static ssize_t
foreign_writev(int fd, const struct iovec *v, int n)
{
    ssize_t  rc;

    if (fault.write_bytes == 0 && fault.write_errno == ENOSPC) {
        fault.write_errno = EIO;
        append(path, "{\"foreign\":1}\n");
    }

    if (fault.write_bytes == 0 && fault.write_errno == EDQUOT) {
        fault.write_errno = EIO;
        assert_int_equal(truncate(path, 0), 0);
    }

    if (truncate_after && --truncate_after == 0) {
        assert_int_equal(truncate(path, 0), 0);
    }

    rc = fault_writev(fd, v, n);

    return rc;
}


static void
test_foreigner(void **state)
{
    char                                 want[512];
    writer_t                            *w;
    ngx_http_llm_capture_sys_t           sys;
    ngx_http_llm_capture_writer_conf_t   conf;

    (void) state;

    w = begin();
    ngx_http_llm_capture_writer_destroy(w);

    memset(&conf, 0, sizeof(conf));
    sys = *fault_sys();
    sys.writev = foreign_writev;
    conf.sys = &sys;
    conf.log = say;
    conf.boot = BOOT;
    w = ngx_http_llm_capture_writer_create(&conf);
    assert_non_null(w);

    fault.write_bytes = (long) strlen(L0) + 4;
    fault.write_errno = ENOSPC;
    assert_int_equal(batch(w, 0, 1000), 1);
    snprintf(want, sizeof(want), FIRST L0 "%.4s{\"foreign\":1}\n", L1);
    assert_file(path, want);

    fault.write_bytes = 4;
    fault.write_errno = EDQUOT;
    assert_int_equal(batch(w, 1, 1000), LATER);
    assert_file(path, "");

    reset_faults();
    assert_int_equal(batch(w, 0, 1000), 3);

    /* between two writes: no rest of a line is left at the front */

    fault.write_chunk = (long) strlen(L0) + 4;
    truncate_after = 2;
    assert_int_equal(batch(w, 0, 2000), 1);
    assert_int_equal(file_of(w, path)->error, EAGAIN);
    assert_file(path, "");

    reset_faults();
    assert_int_equal(batch(w, 1, 3000), 2);
    assert_file(path, "{\"timestamp\":5199,\"payload\":{\"bb\":22}}\n"
                      "{\"timestamp\":7999,\"payload\":{\"c\":[]}}\n");

    ngx_http_llm_capture_writer_destroy(w);
}


/* one record of more iovecs than a call takes, torn at some places */

static void
test_thousands(void **state)
{
    long                 n;
    char                *want;
    size_t               len;
    writer_t            *w;
    unsigned             i;
    static struct iovec  frames[3000];
    static char          body[3000 * 5 + 1];

    (void) state;

    for (i = 0; i < 3000; i++) {
        snprintf(body + 5 * i, 6, "%c%03u%c", i ? '"' : '{', i % 1000,
                 i == 2999 ? '}' : ',');
        frames[i].iov_base = body + 5 * i;
        frames[i].iov_len = 5;
    }

    want = malloc(sizeof(body) + 256);
    assert_non_null(want);
    len = (size_t) sprintf(want, "%s{\"timestamp\":100,\"payload\":%s}\n",
                           FIRST, body);
    len -= strlen(FIRST);

    for (n = 0; n < (long) len; n += 997) {
        w = begin();
        line[0].body = frames;
        line[0].nbody = 3000;

        fault.write_errno = ENOSPC;
        fault.write_bytes = n;
        fault.max_iov = 0;
        assert_int_equal(ngx_http_llm_capture_writer_write(w,
                             file_of(w, path), MOON, line, 1, 1, 1, &intent,
                             1000), LATER);
        assert_file(path, FIRST);

        reset_faults();
        assert_int_equal(ngx_http_llm_capture_writer_write(w,
                             file_of(w, path), MOON, line, 1, 1, 1, &intent,
                             1010), 1);
        assert_int_equal(fault.max_iov, IOV_MAX);
        assert_int_equal(fault.writes, 3);
        assert_file(path, want);
        assert_int_equal(intent.length, len);

        ngx_http_llm_capture_writer_destroy(w);
    }

    free(want);
}


/* two processes, a full lock each: every line is there, in order, untorn */

#define BATCHES  1000

static void
hammer(char who)
{
    char          text[3][64];
    line_t        l[3];
    ssize_t       k;
    writer_t     *w;
    unsigned      i, n, done;
    struct iovec  v[3];

    w = new_writer();

    for (n = 0; n < BATCHES; n++) {
        for (i = 0; i < 3; i++) {
            snprintf(text[i], sizeof(text[i]), "{\"%c\":%u}", who,
                     n * 3 + i);
            set_line(&l[i], &v[i], text[i], 1, 5000 + n);
        }

        /* now and then in pieces, so that a lock is held over many calls */

        fault.write_chunk = n % 3 ? -1 : 11;

        for (done = 0; done < 3; done += (unsigned) k) {
            k = ngx_http_llm_capture_writer_write(w, file_of(w, path), MOON,
                                                  l + done, 3 - done, 1, 5000,
                                                  &intent, 1);
            if (k < 0) {
                if (k != LATER || file_of(w, path)->error != EAGAIN) {
                    _exit(1);
                }

                k = 0;
                sched_yield();
            }
        }
    }

    ngx_http_llm_capture_writer_destroy(w);
    _exit(0);
}


static void
test_two_processes(void **state)
{
    int       status, i;
    char     *text, *p, *end, who;
    pid_t     pid[2];
    unsigned  ts, id, next[2];

    (void) state;

    for (i = 0; i < 2; i++) {
        pid[i] = fork();
        assert_true(pid[i] != -1);

        if (pid[i] == 0) {
            hammer((char) ('a' + i));
        }
    }

    for (i = 0; i < 2; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }

    text = slurp(path, NULL);
    assert_non_null(text);
    next[0] = next[1] = 0;

    for (p = text; *p; p = end + 1) {
        end = strchr(p, '\n');
        assert_non_null(end);
        *end = '\0';

        assert_int_equal(sscanf(p, "{\"timestamp\":%u,\"payload\":{\"%c\":%u}}",
                                &ts, &who, &id), 3);
        assert_true(who == 'a' || who == 'b');
        assert_int_equal(id, next[who - 'a']);
        assert_int_equal(ts, id / 3);
        next[who - 'a']++;
    }

    assert_int_equal(next[0], 3 * BATCHES);
    assert_int_equal(next[1], 3 * BATCHES);

    free(text);
}


static ssize_t
raw(writer_t *w, uint64_t now)
{
    line_t        l;
    struct iovec  v;

    set_line(&l, &v, "{\"messages\":[]}", 1, 5300);
    intent.nrefs = 1;

    return ngx_http_llm_capture_writer_write(w, file_of(w, path), RAW, &l, 1,
                                             1, 1, &intent, now);
}


/* a file takes rows of one format, however it came to them */

static void
test_formats(void **state)
{
    writer_t  *w;

    (void) state;

    w = begin();

    /* ours, and still open; opened anew; by a successor */

    assert_int_equal(raw(w, 1000), NGX_HTTP_LLM_CAPTURE_NEVER);
    ngx_http_llm_capture_writer_reopen(w);
    assert_int_equal(raw(w, 1000), NGX_HTTP_LLM_CAPTURE_NEVER);
    ngx_http_llm_capture_writer_destroy(w);
    w = new_writer();
    assert_int_equal(raw(w, 1000), NGX_HTTP_LLM_CAPTURE_NEVER);
    assert_int_equal(file_of(w, path)->error, EINVAL);
    assert_file(path, FIRST);

    /* moved away: mended at once */

    unlink(path);
    assert_int_equal(raw(w, 1000), 1);
    assert_file(path, "{\"messages\":[]}\n");
    assert_int_equal(raw(w, 1000), 1);

    /* and the other way round */

    intent.nrefs = 3;
    assert_int_equal(batch(w, 0, 1000), NGX_HTTP_LLM_CAPTURE_NEVER);
    ngx_http_llm_capture_writer_reopen(w);
    assert_int_equal(batch(w, 0, 1000), NGX_HTTP_LLM_CAPTURE_NEVER);
    assert_file(path, "{\"messages\":[]}\n{\"messages\":[]}\n");

    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(batch(w, 0, 1000), 3);

    ngx_http_llm_capture_writer_destroy(w);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_intent),
        TEST(test_intent_first),
        TEST(test_full_disk),
        TEST(test_bad_disk),
        TEST(test_nothing),
        TEST(test_short),
        TEST(test_too_big),
        TEST(test_file_size_limit),
        TEST(test_no_cut),
        TEST(test_no_cut_other),
        TEST(test_foreigner),
        TEST(test_formats),
        TEST(test_thousands),
        TEST(test_two_processes),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
