
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What a fork of the master must do to be one of ours: put down what belongs
 * to the master and to other children, and become the worker's user.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>
#include <poll.h>

#include "ngx_http_llm_capture_drainer.h"


/* ms between two starts of a generation */
#define NGX_HTTP_LLM_CAPTURE_BACKOFF  1000

/* descriptors: open files, and sidecars, logs, channels that pass through */
#define NGX_HTTP_LLM_CAPTURE_NOFILE   (NGX_HTTP_LLM_CAPTURE_MAX_OPEN + 128)


void
ngx_http_llm_capture_child_close_fds(ngx_cycle_t *cycle)
{
    u_char           *p;
    ngx_int_t         n;
    ngx_uint_t        i, nelts;
    ngx_listening_t  *ls;

    /* it sets the number to 0, and leaves the sockets of QUIC open */

    nelts = cycle->listening.nelts;

    ngx_close_listening_sockets(cycle);

    /*
     * A port that we held would take a share of the packets.  The array's own
     * size of an element, as patches may add to it.
     */

    p = cycle->listening.elts;

    for (i = 0; i < nelts; i++) {
        ls = (ngx_listening_t *) (p + i * cycle->listening.size);

        if (ls->fd != (ngx_socket_t) -1) {
            (void) close(ls->fd);
            ls->fd = (ngx_socket_t) -1;
        }
    }

    /*
     * The other ends of channels: other children must see an end of file when
     * the master dies, and so must we, hence our own as well
     */

    for (n = 0; n < ngx_last_process; n++) {

        if (n != ngx_process_slot && ngx_processes[n].pid == -1) {
            continue;
        }

        if (ngx_processes[n].channel[0] > 0) {
            (void) close(ngx_processes[n].channel[0]);
            ngx_processes[n].channel[0] = -1;
        }

        if (n != ngx_process_slot && ngx_processes[n].channel[1] > 0) {
            (void) close(ngx_processes[n].channel[1]);
            ngx_processes[n].channel[1] = -1;
        }
    }
}


/*
 * Before anything that may fail: the master starts us again at once, some
 * thousand times a second.
 */

void
ngx_http_llm_capture_child_back_off(ngx_http_llm_capture_zone_hdr_t *zone,
    uint64_t gen)
{
    uint64_t         now, start, rest;
    sigset_t         set;
    struct pollfd    pfd;
    struct timespec  ts;

    now = ngx_http_llm_capture_now();
    start = atomic_load(&zone->start_ms);

    if (atomic_load(&zone->start_gen) == gen
        && start <= now
        && now - start < NGX_HTTP_LLM_CAPTURE_BACKOFF)
    {
        rest = NGX_HTTP_LLM_CAPTURE_BACKOFF - (now - start);

        ts.tv_sec = (time_t) (rest / 1000);
        ts.tv_nsec = (long) (rest % 1000) * 1000000;

        /* the master's word ends the wait, or it would wait for us at exit */

        pfd.fd = ngx_channel;
        pfd.events = POLLIN;

        sigemptyset(&set);

        (void) ppoll(&pfd, 1, &ts, &set);
    }

    atomic_store(&zone->start_gen, gen);
    atomic_store(&zone->start_ms, ngx_http_llm_capture_now());
}


/*
 * As a worker does it; code 2 tells the master not to try again.  The ids come
 * from the configuration as the master has parsed it, never out of memory that
 * a worker can write.
 */

void
ngx_http_llm_capture_child_become(ngx_cycle_t *cycle)
{
    struct rlimit     rl;
    ngx_core_conf_t  *ccf;

    if (getrlimit(RLIMIT_NOFILE, &rl) == 0
        && rl.rlim_cur < NGX_HTTP_LLM_CAPTURE_NOFILE)
    {
        rl.rlim_cur = NGX_HTTP_LLM_CAPTURE_NOFILE;

        if (rl.rlim_max < rl.rlim_cur) {
            rl.rlim_max = rl.rlim_cur;
        }

        if (setrlimit(RLIMIT_NOFILE, &rl) == -1) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, ngx_errno,
                          "llm capture: setrlimit(RLIMIT_NOFILE, %d) failed",
                          NGX_HTTP_LLM_CAPTURE_NOFILE);
        }
    }

    if (geteuid() == 0) {

        ccf = ngx_http_llm_capture_core_conf(cycle);

        if (ccf == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                          "llm capture: the user to become is not known");
            exit(2);
        }

        if (setgid(ccf->group) == -1) {
            ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                          "llm capture: setgid(%d) failed", ccf->group);
            exit(2);
        }

        if (initgroups(ccf->username, ccf->group) == -1) {
            ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                          "llm capture: initgroups(%s, %d) failed",
                          ccf->username, ccf->group);
            exit(2);
        }

        if (setuid(ccf->user) == -1) {
            ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                          "llm capture: setuid(%d) failed", ccf->user);
            exit(2);
        }
    }

    /* the writer wants EFBIG as an error, not as the end of the process */

    (void) signal(SIGXFSZ, SIG_IGN);

    /* its memory is full of prompts: no core file, no other reader */

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_errno,
                      "llm capture: prctl(PR_SET_DUMPABLE) failed");
    }
}


/*
 * Not ngx_reopen_files(): that opens the logs of all modules, which this
 * process never writes, with a complaint for each that its user may not.
 */

void
ngx_http_llm_capture_child_reopen_logs(ngx_cycle_t *cycle)
{
    ngx_fd_t          fd;
    ngx_log_t        *log, *prev;
    ngx_open_file_t  *file;

    for (log = cycle->log; log; log = log->next) {
        file = log->file;

        if (file == NULL || file->name.len == 0) {
            continue;
        }

        for (prev = cycle->log; prev->file != file; prev = prev->next) {
            /* void */
        }

        if (prev != log) {
            continue;
        }

        fd = ngx_open_file(file->name.data, NGX_FILE_APPEND|O_CLOEXEC,
                           NGX_FILE_CREATE_OR_OPEN, NGX_FILE_DEFAULT_ACCESS);

        if (fd == NGX_INVALID_FILE) {
            ngx_log_error(NGX_LOG_NOTICE, cycle->log, ngx_errno,
                          "llm capture: " ngx_open_file_n " \"%s\" failed, "
                          "the helper goes on in the old file",
                          file->name.data);
            continue;
        }

        (void) ngx_close_file(file->fd);
        file->fd = fd;
    }

    (void) ngx_log_redirect_stderr(cycle);
}
