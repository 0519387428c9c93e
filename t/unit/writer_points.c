
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A helper killed with SIGKILL at every fault point of writing, cutting and
 * recovering in turn; its successor too.  Each line stands in the file once.
 */

#include "files.h"

#include "ngx_http_llm_capture_point.h"


#define FIRST  "{\"timestamp\":0,\"payload\":{\"z\":0}}\n"
#define L0     "{\"timestamp\":100,\"payload\":{\"a\":1}}\n"
#define L1     "{\"timestamp\":200,\"payload\":{\"bb\":22}}\n"
#define L2     "{\"timestamp\":3000,\"payload\":{\"c\":[]}}\n"


/* in memory that outlives the processes, as the zone does */

static struct {
    intent_t     intent;
    unsigned     done;          /* lines that were committed */
    int          finished;
} *zone;

static unsigned      fuse;      /* points still to be passed; 0: no kill */
static line_t        line[3];
static struct iovec  iov[3];


void
ngx_http_llm_capture_point(const char *name)
{
    (void) name;

    if (fuse && --fuse == 0) {
        (void) raise(SIGKILL);
    }
}


static void
set_lines(void)
{
    set_line(&line[0], &iov[0], "{\"a\":1}", 1, 5100);
    set_line(&line[1], &iov[1], "{\"bb\":22}", 1, 5200);
    set_line(&line[2], &iov[2], "{\"c\":[]}", 1, 8000);
}


static void
commit(ssize_t n)
{
    if (n < 0) {
        return;
    }

    zone->done += (unsigned) n;
    atomic_store(&zone->intent.state, NGX_HTTP_LLM_CAPTURE_INTENT_NONE);
}


/* what a helper does from its start: finish what was under way, then write */

static void
helper(long disk)
{
    ssize_t    k;
    writer_t  *w;
    unsigned   i;

    set_lines();
    w = new_writer();

    if (atomic_load(&zone->intent.state)
        == NGX_HTTP_LLM_CAPTURE_INTENT_WRITING)
    {
        for (i = zone->done; i < 3; i++) {
            line[i].ts = zone->intent.refs[i - zone->done].ts;
        }

        k = ngx_http_llm_capture_writer_recover(w, &zone->intent,
                                                line + zone->done,
                                                3 - zone->done);
        if (k < 0) {
            _exit(1);
        }

        commit(k);
    }

    fault.lines_only = 1;
    fault.write_chunk = 23;
    fault.write_bytes = disk;
    fault.write_errno = ENOSPC;

    while (zone->done < 3) {
        zone->intent.nrefs = 3 - zone->done;

        k = ngx_http_llm_capture_writer_write(w, file_of(w, path), MOON,
                                              line + zone->done,
                                              3 - zone->done, 1, 5000,
                                              &zone->intent, 1000);
        if (k == NEVER) {
            _exit(1);
        }

        commit(k);
        fault.write_bytes = -1;
    }

    ngx_http_llm_capture_writer_destroy(w);
    zone->finished = 1;
    _exit(0);
}


/* 1: it was killed */

static int
run(unsigned at, long disk)
{
    int    status;
    pid_t  pid;

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        fuse = at;
        helper(disk);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);

    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return 1;
    }

    assert_int_equal(status, 0);

    return 0;
}


static void
test_every_point(void **state)
{
    int        more, again;
    unsigned   first, second, i, kills;
    writer_t  *w;

    /* what the disk takes before it is full: all, none, half of a line... */

    static const long  disks[] = {
        -1, 0, 5, sizeof(L0) - 2, sizeof(L0) - 1, sizeof(L0) + 20,
        sizeof(L0 L1) - 1 + 3
    };

    (void) state;

    kills = 0;

    for (i = 0; i < sizeof(disks) / sizeof(disks[0]); i++) {
        for (more = 1, first = 1; more; first++) {
            for (again = 1, second = 1; again; second++) {

                unlink(path);
                unlink(sidecar);
                memset(zone, 0, sizeof(*zone));

                w = new_writer();
                assert_int_equal(put(w, "{\"z\":0}", 1, 5000), 1);
                ngx_http_llm_capture_writer_destroy(w);

                more = run(first, disks[i]);
                again = more ? run(second, -1) : 0;

                if (again) {
                    assert_int_equal(run(0, -1), 0);
                }

                kills += (unsigned) (more + again);

                assert_int_equal(zone->finished, 1);
                assert_int_equal(zone->done, 3);
                assert_file(path, FIRST L0 L1 L2);
            }
        }
    }

    /* the points are compiled in: else all of this proves nothing */
    assert_true(kills > 300);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_every_point),
    };

    zone = mmap(NULL, sizeof(*zone), PROT_READ|PROT_WRITE,
                MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    if (zone == MAP_FAILED) {
        return 1;
    }

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
