
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A helper that dies at each place that is marked in its source
 * (ngx_http_llm_capture_point.h) or inside each write, and its successor too,
 * along a script of what workers do meanwhile.
 */

#ifndef _CRASH_POINTS_H_INCLUDED_
#define _CRASH_POINTS_H_INCLUDED_


#include "crash_util.h"


/* a step of it; 0: not yet */
static int     (*script)(unsigned step);
static unsigned  steps;
static void    (*check)(void);
static int       new_key;       /* each life finds another key */


/* a life of the helper: to the end of the script, or to its own */

static inline void
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

        if (sh->step < steps && script(sh->step)) {
            sh->step++;
            idle = 0;
            continue;
        }

        due = ngx_http_llm_capture_drain_due(d);

        if (due == 0 && sh->step == steps) {
            break;
        }

        if (mode == 2) {
            fault.write_bytes = -1;
        }

        sh->now = due > sh->now && due < sh->now + 5000 ? due : sh->now + 50;
        idle++;
    }

    if (keeping.npolicies) {
        ngx_http_llm_capture_drain_end(d);
    }

    _exit(sh->step == steps && pending() == 0 ? 0 : 5);
}


static inline int
run(unsigned at)
{
    int    status;
    char   name[200];
    pid_t  pid;

    die_at = at;
    fflush(NULL);

    if (new_key) {
        snprintf(name, sizeof(name), "%s.key", sh->path[0]);
        (void) unlink(name);
    }

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        live();
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);

    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}


/*
 * Dies at the k-th point, of all there are; in mode 0 a successor dies as well,
 * at every point until it is attached.
 */

static inline void
every_point(int m, int (*step)(unsigned), unsigned n, void (*after)(void))
{
    int       rc;
    unsigned  k, j, attached;

    mode = m;
    script = step;
    steps = n;
    check = after;

    for (k = 1; ; k++) {

        attached = 0;

        for (j = 0; j <= attached; j++) {
            fresh();

            rc = run(k);

            if (rc == 0) {
                check();
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

            check();
        }
    }
}


#endif /* _CRASH_POINTS_H_INCLUDED_ */
