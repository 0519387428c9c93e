
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The pure drain tied to nginx: locks of the memfd, clock, log.
 *
 * The locks are those of fcntl(2), held by a process: inherited descriptors
 * show them to everybody, and the kernel drops them at any kind of death.  It
 * also drops them when the process closes any descriptor of the memfd.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <syslog.h>

#include "ngx_http_llm_capture_drainer.h"
#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_version.h"


/* descriptors for what is open for a moment: sidecars, logs, channels */
#define NGX_HTTP_LLM_CAPTURE_SPARE  16


static unsigned ngx_http_llm_capture_drainer_files(ngx_uint_t zones);
static int ngx_http_llm_capture_drainer_dead(void *ctx, uint32_t ring);
static int ngx_http_llm_capture_drainer_alive(void *ctx, uint32_t pid);
static int ngx_http_llm_capture_byte_look(off_t byte, struct flock *fl);
static void ngx_http_llm_capture_drainer_log(void *ctx, int level, int err,
    const char *text);


ngx_int_t
ngx_http_llm_capture_drainer_open(ngx_http_llm_capture_drainer_t *d,
    ngx_cycle_t *cycle, ngx_http_llm_capture_main_conf_t *mcf,
    ngx_uint_t zones)
{
    ngx_int_t                           rc;
    ngx_http_llm_capture_drain_conf_t   conf;
    ngx_http_llm_capture_main_conf_t   *newest;
    ngx_http_llm_capture_writer_conf_t  wconf;

    ngx_memzero(d, sizeof(ngx_http_llm_capture_drainer_t));

    d->log = cycle->log;
    d->mcf = mcf;

    rc = NGX_HTTP_LLM_CAPTURE_BROKEN("lock")
             ? NGX_OK : ngx_http_llm_capture_lock_byte(mcf->lock, F_WRLCK);

    if (rc != NGX_OK) {
        return rc;
    }

    atomic_store(&ngx_http_llm_capture_zone_hdr(&mcf->zone)->open, 1);

    ngx_memzero(&wconf, sizeof(ngx_http_llm_capture_writer_conf_t));

    wconf.log = ngx_http_llm_capture_drainer_log;
    wconf.ctx = d;
    wconf.key = mcf->keyed ? mcf->key : NULL;
    wconf.max_open = ngx_http_llm_capture_drainer_files(zones);

    d->writer = ngx_http_llm_capture_writer_create(&wconf);
    if (d->writer == NULL) {
        goto failed;
    }

    ngx_memzero(&conf, sizeof(ngx_http_llm_capture_drain_conf_t));

    conf.zone = &mcf->zone;
    conf.writer = d->writer;
    conf.dead = ngx_http_llm_capture_drainer_dead;
    conf.alive = ngx_http_llm_capture_drainer_alive;
    conf.log = ngx_http_llm_capture_drainer_log;
    conf.clock = ngx_http_llm_capture_now;
    conf.ctx = d;

    /* of a zone that was replaced, too: its files are those of the new one */

    newest = ngx_http_llm_capture_main_conf(cycle);

    if (newest) {
        conf.keeping = newest->keeping;
    }

    if (conf.keeping.nginx == NULL) {
        conf.keeping.nginx = NGINX_VERSION;
        conf.keeping.module = NGX_HTTP_LLM_CAPTURE_VERSION;
    }

    d->drain = ngx_http_llm_capture_drain_create(&conf,
                                                 ngx_http_llm_capture_now());
    if (d->drain == NULL) {
        goto failed;
    }

    /* of those who died while nobody listened */

    ngx_http_llm_capture_drain_owners(d->drain);

    return NGX_OK;

failed:

    ngx_log_error(NGX_LOG_ALERT, d->log, ngx_errno,
                  "llm capture: no memory to write records");

    ngx_http_llm_capture_drainer_close(d);

    return NGX_ERROR;
}


/*
 * How many files each of the zones may keep open: one that took all would leave
 * none for the others, nor for a channel that the master passes on.
 */

static unsigned
ngx_http_llm_capture_drainer_files(ngx_uint_t zones)
{
    int            fd;
    rlim_t         n;
    struct rlimit  rl;

    /* the lowest that is free; never of the memfd, see above */

    fd = dup(ngx_http_llm_capture_wake_fd);

    if (fd == -1) {
        return 1;
    }

    (void) close(fd);

    if (getrlimit(RLIMIT_NOFILE, &rl) == -1) {
        return NGX_HTTP_LLM_CAPTURE_MAX_OPEN;
    }

    n = (rlim_t) fd + NGX_HTTP_LLM_CAPTURE_SPARE;
    n = rl.rlim_cur > n ? (rl.rlim_cur - n) / zones : 0;

    return (unsigned) ngx_max(1, ngx_min(n, NGX_HTTP_LLM_CAPTURE_MAX_OPEN));
}


void
ngx_http_llm_capture_drainer_end(ngx_http_llm_capture_drainer_t *d)
{
    if (d->drain) {

        if (ngx_http_llm_capture_drain_left(d->drain) == 0
            && !ngx_http_llm_capture_drainer_live(d))
        {
            ngx_http_llm_capture_drain_end(d->drain);
        }

        ngx_http_llm_capture_shm_report(d->log, d->mcf);
        atomic_store(&ngx_http_llm_capture_zone_hdr(&d->mcf->zone)->open, 0);

        ngx_http_llm_capture_drain_destroy(d->drain);
        d->drain = NULL;
    }

    if (d->writer) {
        ngx_http_llm_capture_writer_destroy(d->writer);
        d->writer = NULL;
    }
}


void
ngx_http_llm_capture_drainer_close(ngx_http_llm_capture_drainer_t *d)
{
    ngx_http_llm_capture_drainer_end(d);

    (void) ngx_http_llm_capture_lock_byte(d->mcf->lock, F_UNLCK);
}


ngx_uint_t
ngx_http_llm_capture_drainer_due(ngx_http_llm_capture_main_conf_t *mcf)
{
    return ngx_http_llm_capture_zone_left(&mcf->zone)
           || atomic_load(&ngx_http_llm_capture_zone_hdr(&mcf->zone)->open);
}


ngx_uint_t
ngx_http_llm_capture_drainer_live(ngx_http_llm_capture_drainer_t *d)
{
    /* a worker that has no ring may claim one with its last request */

    return ngx_http_llm_capture_byte_locked(
                          ngx_http_llm_capture_workers_byte(d->mcf))
           || ngx_http_llm_capture_drain_live(d->drain);
}


void
ngx_http_llm_capture_drainer_lose(ngx_http_llm_capture_drainer_t *d)
{
    uint64_t  n;

    n = ngx_http_llm_capture_drain_lose(d->drain);

    /* or the last child would try the same again */

    atomic_store(&ngx_http_llm_capture_zone_hdr(&d->mcf->zone)->gave_up, 1);

    if (n) {
        ngx_log_error(NGX_LOG_ALERT, d->log, 0,
                      "llm capture: %uL requests lost: not written within "
                      "llm_capture_drain_timeout %M ms", n,
                      d->mcf->drain_timeout);
    }
}


ngx_int_t
ngx_http_llm_capture_drainer_finish(ngx_http_llm_capture_drainer_t *d,
    uint64_t end)
{
    uint64_t  now;

    now = ngx_http_llm_capture_now();

    ngx_http_llm_capture_drain_owners(d->drain);

    if (ngx_http_llm_capture_drain_pass(d->drain, now) && now < end) {
        return NGX_AGAIN;
    }

    if (ngx_http_llm_capture_drain_left(d->drain) == 0) {
        return NGX_OK;
    }

    if (now >= end) {
        ngx_http_llm_capture_drainer_lose(d);
        return NGX_OK;
    }

    return NGX_BUSY;
}


uint64_t
ngx_http_llm_capture_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


ngx_int_t
ngx_http_llm_capture_lock_byte(off_t byte, int type)
{
    struct flock  fl;

    ngx_memzero(&fl, sizeof(struct flock));

    fl.l_type = (short) type;
    fl.l_whence = SEEK_SET;
    fl.l_start = (off_t) byte;
    fl.l_len = 1;

    if (fcntl(ngx_http_llm_capture_lock_fd, F_SETLK, &fl) == 0) {
        return NGX_OK;
    }

    if (ngx_errno == NGX_EAGAIN || ngx_errno == NGX_EACCES) {
        return NGX_DECLINED;
    }

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                  "llm capture: fcntl(%d, F_SETLK) failed",
                  ngx_http_llm_capture_lock_fd);

    return NGX_ERROR;
}


static int
ngx_http_llm_capture_byte_look(off_t byte, struct flock *fl)
{
    ngx_memzero(fl, sizeof(struct flock));

    fl->l_type = F_WRLCK;
    fl->l_whence = SEEK_SET;
    fl->l_start = byte;
    fl->l_len = 1;

    return fcntl(ngx_http_llm_capture_lock_fd, F_GETLK, fl);
}


ngx_uint_t
ngx_http_llm_capture_byte_locked(off_t byte)
{
    struct flock  fl;

    /* an error frees nothing: a live worker's ring given away is two writers */

    return ngx_http_llm_capture_byte_look(byte, &fl) == -1
           || fl.l_type != F_UNLCK;
}


ngx_pid_t
ngx_http_llm_capture_byte_holder(off_t byte)
{
    struct flock  fl;

    if (ngx_http_llm_capture_byte_look(byte, &fl) == -1
        || fl.l_type == F_UNLCK)
    {
        return 0;
    }

    return fl.l_pid;
}


ngx_int_t
ngx_http_llm_capture_lock_worker(ngx_http_llm_capture_main_conf_t *mcf)
{
    return ngx_http_llm_capture_lock_byte(
                          ngx_http_llm_capture_workers_byte(mcf), F_RDLCK);
}


static int
ngx_http_llm_capture_drainer_dead(void *ctx, uint32_t ring)
{
    ngx_http_llm_capture_drainer_t *d = ctx;

    /* a process does not see its own locks */

    if (ngx_process == NGX_PROCESS_SINGLE) {
        return 0;
    }

    if (NGX_HTTP_LLM_CAPTURE_BROKEN("owner")) {
        return 1;
    }

    return !ngx_http_llm_capture_byte_locked(d->mcf->lock + 1 + ring);
}


static int
ngx_http_llm_capture_drainer_alive(void *ctx, uint32_t pid)
{
    if (ngx_process == NGX_PROCESS_SINGLE) {
        return pid == (uint32_t) ngx_pid;
    }

    return ngx_http_llm_capture_byte_locked(
                             ngx_http_llm_capture_pid_byte((ngx_pid_t) pid));
}


static void
ngx_http_llm_capture_drainer_log(void *ctx, int level, int err,
    const char *text)
{
    ngx_http_llm_capture_drainer_t *d = ctx;

    ngx_uint_t  n;

    switch (level) {

    case LOG_ALERT:
        n = NGX_LOG_ALERT;
        break;

    case LOG_ERR:
        n = NGX_LOG_ERR;
        break;

    case LOG_WARNING:
        n = NGX_LOG_WARN;
        break;

    default:
        n = NGX_LOG_NOTICE;
        break;
    }

    ngx_log_error(n, d->log, err, "llm capture: %s", text);
}
