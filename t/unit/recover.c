
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Tests for what a successor makes of a batch that a dead helper had under
 * way.  The helper is a real process that dies after so many bytes.
 */

#include "files.h"


#define UNCERTAIN  NGX_HTTP_LLM_CAPTURE_UNCERTAIN
#define NOT_NOW    NGX_HTTP_LLM_CAPTURE_NOT_NOW

#define FIRST  "{\"timestamp\":0,\"payload\":{\"z\":0}}\n"
#define L0     "{\"timestamp\":100,\"payload\":{\"a\":1}}\n"
#define L1     "{\"timestamp\":200,\"payload\":{\"bb\":22}}\n"
#define L2     "{\"timestamp\":3000,\"payload\":{\"c\":[]}}\n"
#define TOTAL  ((long) strlen(L0 L1 L2))

static const char  *three[] = { L0, L1, L2 };

static line_t        line[3];
static struct iovec  iov[3];
static intent_t     *shared;


static void
set_lines(void)
{
    unsigned  i;

    set_line(&line[0], &iov[0], "{\"a\":1}", 1, 5100);
    set_line(&line[1], &iov[1], "{\"bb\":22}", 1, 5200);
    set_line(&line[2], &iov[2], "{\"c\":[]}", 1, 8000);

    for (i = 0; i < 3; i++) {
        line[i].ts = shared->refs[i].ts;
    }
}


static ssize_t
batch(writer_t *w, unsigned from)
{
    return ngx_http_llm_capture_writer_write(w, file_of(w, path), MOON,
                                             line + from, 3 - from, 1, 5000,
                                             shared, 1000);
}


static ssize_t
recover(writer_t *w)
{
    set_lines();

    return ngx_http_llm_capture_writer_recover(w, shared, line, 3);
}


/* a helper dies after n bytes of the batch; chunk: of its calls */

static void
die_after(long n, long chunk, int with_first)
{
    int        status;
    pid_t      pid;
    writer_t  *w;

    unlink(path);
    unlink(sidecar);
    memset(shared, 0, sizeof(*shared));
    reset_faults();

    if (with_first) {
        w = new_writer();
        assert_int_equal(put(w, "{\"z\":0}", 1, 5000), 1);
        ngx_http_llm_capture_writer_destroy(w);
    }

    shared->nrefs = 3;

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        set_lines();
        fault.lines_only = 1;
        fault.write_bytes = n;
        fault.write_chunk = chunk;
        fault.write_die = 1;
        (void) batch(new_writer(), 0);
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), n < TOTAL ? 9 : 0);
    assert_int_equal(atomic_load(&shared->state),
                     NGX_HTTP_LLM_CAPTURE_INTENT_WRITING);
}


static unsigned
whole(long bytes, size_t *torn)
{
    unsigned  n;

    for (n = 0; n < 3 && bytes >= (long) strlen(three[n]); n++) {
        bytes -= (long) strlen(three[n]);
    }

    *torn = (size_t) bytes;

    return n;
}


static const char *
stands(unsigned n, const char *more)
{
    static char  text[2048];
    unsigned     i;

    strcpy(text, FIRST);

    for (i = 0; i < n; i++) {
        strcat(text, three[i]);
    }

    strcat(text, more);

    return text;
}


/* every length of what arrived: the whole lines count, the rest follows once */

static void
test_every_byte(void **state)
{
    long       n;
    size_t     torn;
    writer_t  *w;
    unsigned   k, i;

    static const long  chunks[] = { -1, 3 };

    (void) state;

    for (i = 0; i < 2; i++) {
        for (n = 0; n <= TOTAL; n++) {
            die_after(n, chunks[i], 1);
            k = whole(n, &torn);

            w = new_writer();
            assert_int_equal(recover(w), k);
            assert_file(path, stands(k, ""));

            /* the successor dies too, before it said so: the same again */

            assert_int_equal(recover(w), k);

            if (k < 3) {
                assert_int_equal(batch(w, k), 3 - k);
            }

            assert_file(path, stands(3, ""));
            ngx_http_llm_capture_writer_destroy(w);
        }
    }
}


/* at the very beginning of a file: the times are those of the intent */

static void
test_from_empty(void **state)
{
    long       n;
    size_t     torn;
    writer_t  *w;
    unsigned   k;

    (void) state;

    for (n = 0; n <= TOTAL; n++) {
        die_after(n, -1, 0);
        k = whole(n, &torn);

        w = new_writer();
        assert_int_equal(shared->offset, 0);
        assert_int_equal(recover(w), k);

        if (k < 3) {
            assert_int_equal(batch(w, k), 3 - k);
        }

        assert_file(path, L0 L1 L2);
        ngx_http_llm_capture_writer_destroy(w);
    }
}


/*
 * A second helper came to the file first: it mended the tail, which may have
 * made a line of ours whole, and wrote behind it.
 */

static void
test_other_helper(void **state)
{
    char       more[256];
    long       n;
    size_t     torn;
    writer_t  *w, *v;
    unsigned   k, i;

    (void) state;

    for (n = 0; n <= TOTAL; n++) {
        die_after(n, -1, 1);
        k = whole(n, &torn);

        if (k < 3 && torn + 1 == strlen(three[k])) {
            k++;
        }

        v = new_writer();
        assert_int_equal(put(v, "{\"foreign\":1}", 1, 9000), 1);
        ngx_http_llm_capture_writer_destroy(v);

        snprintf(more, sizeof(more),
                 "{\"timestamp\":4000,\"payload\":{\"foreign\":1}}\n");
        assert_file(path, stands(k, more));

        w = new_writer();
        assert_int_equal(recover(w), k);
        assert_file(path, stands(k, more));

        if (k < 3) {
            assert_int_equal(batch(w, k), 3 - k);
        }

        for (i = k; i < 3; i++) {
            strcat(more, three[i]);
        }

        assert_file(path, stands(k, more));
        ngx_http_llm_capture_writer_destroy(w);
    }
}


/* somebody without a lock wrote straight behind the torn line: compare only */

static void
test_foreign_tail(void **state)
{
    char      *before;
    long       n;
    size_t     torn;
    writer_t  *w;
    unsigned   k;

    (void) state;

    for (n = 0; n <= TOTAL; n++) {
        die_after(n, -1, 1);
        k = whole(n, &torn);
        append(path, "###\n{\"half");
        before = slurp(path, NULL);
        assert_non_null(before);

        w = new_writer();
        assert_int_equal(recover(w), k);
        assert_file(path, before);

        ngx_http_llm_capture_writer_destroy(w);
        free(before);
    }
}


/* rotated: found by its inode; what follows goes to the new file */

static void
test_renamed(void **state)
{
    char       old[200], fifo[200];
    long       n;
    size_t     torn;
    writer_t  *w;
    unsigned   k;

    (void) state;

    snprintf(old, sizeof(old), "%s.1", path);
    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);

    for (n = 0; n <= TOTAL; n += 5) {
        die_after(n, -1, 1);
        k = whole(n, &torn);
        assert_int_equal(rename(path, old), 0);

        if (n % 2) {
            spew(path, L2, strlen(L2));
        }

        w = new_writer();
        assert_int_equal(recover(w), k);
        assert_file(old, stands(k, ""));

        if (n % 2) {
            assert_file(path, L2);

        } else {
            assert_int_equal(access(path, F_OK), -1);
        }

        ngx_http_llm_capture_writer_destroy(w);
        assert_int_equal(fault.open_now, 0);
    }
}


static void
test_gone(void **state)
{
    char       other[200];
    writer_t  *w;

    (void) state;

    w = new_writer();

    die_after(50, -1, 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(recover(w), UNCERTAIN);

    /* another file at that path, even an equal one, is another file */

    die_after(50, -1, 1);
    snprintf(other, sizeof(other), "%s/other", dir);
    spew(other, stands(2, ""), strlen(stands(2, "")));
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(recover(w), UNCERTAIN);
    assert_file(path, stands(2, ""));

    /* copied and truncated, or cut below our place */

    die_after(50, -1, 1);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(recover(w), UNCERTAIN);

    die_after(50, -1, 1);
    assert_int_equal(truncate(path, (off_t) strlen(FIRST) - 1), 0);
    assert_int_equal(recover(w), UNCERTAIN);

    die_after(50, -1, 1);
    assert_int_equal(truncate(path, (off_t) strlen(FIRST)), 0);
    assert_int_equal(recover(w), 0);

    /* the directory is gone */

    die_after(50, -1, 1);
    snprintf(shared->path, sizeof(shared->path), "%s/none/a.jsonl", dir);
    shared->path_len = (uint32_t) strlen(shared->path);
    assert_int_equal(recover(w), UNCERTAIN);

    ngx_http_llm_capture_writer_destroy(w);
    assert_int_equal(fault.open_now, 0);
}


/* a hole where the disk lost our bytes: not ours to cut, not ours to count */

static void
test_zeros(void **state)
{
    writer_t  *w;

    (void) state;

    w = new_writer();
    die_after((long) strlen(L0) + 5, -1, 1);
    assert_int_equal(truncate(path, (off_t) strlen(FIRST L0)), 0);
    assert_int_equal(truncate(path, (off_t) strlen(FIRST L0) + 5), 0);
    assert_int_equal(recover(w), 1);
    assert_int_equal(batch(w, 1), 2);
    assert_file(path, stands(3, ""));

    ngx_http_llm_capture_writer_destroy(w);
}


/* not now: nothing is decided, nothing is changed */

static void
test_not_now(void **state)
{
    int        fd;
    char      *before;
    writer_t  *w;

    (void) state;

    w = new_writer();
    die_after(50, -1, 1);
    before = slurp(path, NULL);
    assert_non_null(before);

    fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX|LOCK_NB), 0);
    assert_int_equal(recover(w), NOT_NOW);
    assert_int_equal(errno, EAGAIN);
    close(fd);

    fault.open_errno = EACCES;
    fault.open_times = 1;
    assert_int_equal(recover(w), NOT_NOW);
    assert_int_equal(errno, EACCES);

    fault.pread_errno = EIO;
    assert_int_equal(recover(w), NOT_NOW);
    assert_int_equal(errno, EIO);
    fault.pread_errno = 0;

    assert_file(path, before);
    assert_int_equal(recover(w), 1);
    assert_file(path, stands(1, ""));

    free(before);
    ngx_http_llm_capture_writer_destroy(w);
    assert_int_equal(fault.open_now, 0);
}


/* what cannot be cut away is mended at the next write: none lost, none twice */

static void
test_no_cut(void **state)
{
    long       n;
    size_t     torn;
    writer_t  *w;
    unsigned   k;

    (void) state;

    for (n = 0; n <= TOTAL; n++) {
        die_after(n, -1, 1);
        k = whole(n, &torn);

        if (k < 3 && torn + 1 == strlen(three[k])) {
            k++;
        }

        w = new_writer();
        fault.cut_errno = EIO;
        assert_int_equal(recover(w), k);
        reset_faults();

        if (k < 3) {
            assert_int_equal(batch(w, k), 3 - k);
            assert_file(path, stands(3, ""));

        } else {
            assert_int_equal(put(w, "{\"z\":0}", 1, 5000), 1);
            assert_file(path, stands(3, FIRST));
        }

        ngx_http_llm_capture_writer_destroy(w);
    }
}


/* more than a block, in odd frames, torn around the border of two */

static void
test_large(void **state)
{
    long                 n;
    char                *body;
    size_t               len;
    writer_t            *w;
    unsigned             i;
    struct stat          st;
    static struct iovec  v[2000];

    (void) state;

    body = malloc(200000);
    assert_non_null(body);
    memset(body, 'x', 200000);
    memcpy(body, "{\"b\":\"", 6);
    memcpy(body + 199998, "\"}", 2);

    for (i = 0; i < 2000; i++) {
        v[i].iov_base = body + 100 * i;
        v[i].iov_len = 100;
    }

    len = strlen("{\"timestamp\":100,\"payload\":}\n") + 200000;

    for (n = 65530; n <= (long) len; n += n < 65542 ? 1 : 33617) {
        w = new_writer();
        unlink(path);
        unlink(sidecar);
        assert_int_equal(put(w, "{\"z\":0}", 1, 5000), 1);

        set_line(&line[0], &iov[0], "", 1, 5100);
        line[0].body = v;
        line[0].nbody = 2000;
        shared->nrefs = 1;
        assert_int_equal(ngx_http_llm_capture_writer_write(w,
                             file_of(w, path), MOON, line, 1, 1, 1, shared,
                             1000), 1);
        assert_int_equal(truncate(path, (off_t) strlen(FIRST) + n), 0);
        ngx_http_llm_capture_writer_destroy(w);

        w = new_writer();
        assert_int_equal(ngx_http_llm_capture_writer_recover(w, shared, line,
                                                             1),
                         n == (long) len);
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_size,
                         (long) strlen(FIRST) + (n == (long) len ? n : 0));
        ngx_http_llm_capture_writer_destroy(w);
    }

    free(body);
}


/* the zone can be written by any worker: nothing in it may break us */

static void
test_hostile(void **state)
{
    char      *before;
    writer_t  *w;
    unsigned   i;

    (void) state;

    w = new_writer();

    for (i = 0; i < 8; i++) {
        die_after(50, -1, 1);
        before = slurp(path, NULL);
        assert_non_null(before);

        switch (i) {
        case 0:
            shared->path_len = 0;
            break;
        case 1:
            shared->path_len = UINT32_MAX;
            break;
        case 2:
            memset(shared->path, 'a', sizeof(shared->path));
            shared->path_len = sizeof(shared->path) - 1;
            break;
        case 3:
            shared->path[3] = '\0';
            break;
        case 4:
            shared->offset = UINT64_MAX;
            break;
        case 5:
            shared->offset = (uint64_t) INT64_MAX;
            break;
        case 6:
            /* no file has it, while the next one may be taken */
            shared->ino = UINT64_MAX;
            break;
        case 7:
            /* never more than the length is cut */
            shared->length = 4;
        }

        assert_int_equal(recover(w), i == 7 ? 1 : UNCERTAIN);
        assert_file(path, before);
        free(before);
    }

    set_lines();
    assert_int_equal(ngx_http_llm_capture_writer_recover(w, shared, line, 0),
                     UNCERTAIN);
    assert_int_equal(ngx_http_llm_capture_writer_recover(w, shared, line,
                         NGX_HTTP_LLM_CAPTURE_BATCH + 1), UNCERTAIN);

    ngx_http_llm_capture_writer_destroy(w);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_every_byte),
        TEST(test_from_empty),
        TEST(test_other_helper),
        TEST(test_foreign_tail),
        TEST(test_renamed),
        TEST(test_gone),
        TEST(test_zeros),
        TEST(test_not_now),
        TEST(test_no_cut),
        TEST(test_large),
        TEST(test_hostile),
    };

    shared = mmap(NULL, sizeof(*shared), PROT_READ|PROT_WRITE,
                  MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 1;
    }

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
