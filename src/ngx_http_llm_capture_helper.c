
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper process: it becomes the worker's user, takes the zone's lock,
 * sleeps until a worker wakes it, and drains the rings into the files.  How it
 * is started is told in ngx_http_llm_capture_spawn.c.
 *
 * It runs no event loop of nginx and no other module's init_process: nothing
 * but its own work can block or break it.
 *
 * QUIT, TERM and INT all mean the same: go on until nobody can put anything
 * into the zone and all is written, within a limit.  A successor, which a
 * reload brings, takes over earlier: it finds everything in the zone.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <ngx_channel.h>
#include <sys/syscall.h>

#include "ngx_http_llm_capture_drainer.h"


#define NGX_HTTP_LLM_CAPTURE_WAIT     20     /* ms between tries for the lock */
#define NGX_HTTP_LLM_CAPTURE_TICK     1000   /* ms between looks at the end */


typedef struct {
    ngx_http_llm_capture_drainer_t     work;
    ngx_cycle_t                       *cycle;
    ngx_http_llm_capture_main_conf_t  *mcf;
    ngx_http_llm_capture_zone_hdr_t   *zone;

    uint64_t                           since;  /* the limit runs; 0: not yet */
    sigset_t                           mask;   /* while it sleeps */
    int                                epoll;
    int                                master; /* pidfd; -1: not to be had */

    unsigned                           more:1; /* to write, at the end */
    unsigned                           quit:1;
    unsigned                           orphan:1;
    unsigned                           eof:1;  /* nobody can talk to us */
} ngx_http_llm_capture_helper_t;


static void ngx_http_llm_capture_helper_epoll(
    ngx_http_llm_capture_helper_t *h);
static void ngx_http_llm_capture_helper_watch(
    ngx_http_llm_capture_helper_t *h, int fd, uint32_t events);
static void ngx_http_llm_capture_helper_announce(
    ngx_http_llm_capture_helper_t *h);
static int ngx_http_llm_capture_helper_work(ngx_http_llm_capture_helper_t *h);
static ngx_uint_t ngx_http_llm_capture_helper_done(
    ngx_http_llm_capture_helper_t *h);
static int ngx_http_llm_capture_helper_timeout(
    ngx_http_llm_capture_helper_t *h, int timeout);
static void ngx_http_llm_capture_helper_sleep(
    ngx_http_llm_capture_helper_t *h, int timeout);
static void ngx_http_llm_capture_helper_channel(
    ngx_http_llm_capture_helper_t *h);
static void ngx_http_llm_capture_helper_signals(
    ngx_http_llm_capture_helper_t *h);


void
ngx_http_llm_capture_helper_cycle(ngx_cycle_t *cycle, void *data)
{
    int                            timeout;
    ngx_http_llm_capture_helper_t  h;

    /* first: a master that closes a unix socket unlinks it as well */

    ngx_process = NGX_PROCESS_HELPER;
    ngx_cycle = cycle;

    ngx_http_llm_capture_child_close_fds(cycle);
    ngx_setproctitle("llm capture helper process");

    ngx_memzero(&h, sizeof(ngx_http_llm_capture_helper_t));

    h.cycle = cycle;
    h.mcf = ngx_http_llm_capture_main_conf(cycle);

    if (h.mcf == NULL || (uintptr_t) h.mcf->gen != (uintptr_t) data) {
        /* of an older generation: not to be started again */
        exit(2);
    }

    h.zone = ngx_http_llm_capture_zone_hdr(&h.mcf->zone);
    sigemptyset(&h.mask);

    ngx_http_llm_capture_child_back_off(h.mcf);
    ngx_http_llm_capture_child_become(cycle);
    ngx_http_llm_capture_helper_epoll(&h);
    ngx_http_llm_capture_helper_announce(&h);

    for ( ;; ) {
        ngx_http_llm_capture_helper_signals(&h);

        timeout = ngx_http_llm_capture_helper_work(&h);

        if (ngx_http_llm_capture_helper_done(&h)) {
            break;
        }

        timeout = ngx_http_llm_capture_helper_timeout(&h, timeout);

        ngx_http_llm_capture_helper_sleep(&h, timeout);
    }

    ngx_http_llm_capture_drainer_close(&h.work);

    exit(0);
}


static void
ngx_http_llm_capture_helper_epoll(ngx_http_llm_capture_helper_t *h)
{
    h->epoll = epoll_create1(EPOLL_CLOEXEC);

    if (h->epoll == -1) {
        ngx_log_error(NGX_LOG_ALERT, h->cycle->log, ngx_errno,
                      "llm capture: epoll_create1() failed");
        exit(1);
    }

    ngx_http_llm_capture_helper_watch(h, ngx_channel, EPOLLIN);

    /* never read, so that a predecessor's epoll is woken as well */

    ngx_http_llm_capture_helper_watch(h, ngx_http_llm_capture_wake_fd,
                                      EPOLLIN|EPOLLET);

    /*
     * The end of the master would else be seen by the end of file on the
     * channel alone, which a cache manager keeps open for ever.
     */

#ifdef SYS_pidfd_open
    h->master = (int) syscall(SYS_pidfd_open, ngx_parent, 0);
#else
    h->master = -1;
#endif

    if (h->master != -1) {
        ngx_http_llm_capture_helper_watch(h, h->master, EPOLLIN|EPOLLET);
    }
}


static void
ngx_http_llm_capture_helper_watch(ngx_http_llm_capture_helper_t *h, int fd,
    uint32_t events)
{
    struct epoll_event  ee;

    ngx_memzero(&ee, sizeof(struct epoll_event));

    ee.events = events;
    ee.data.fd = fd;

    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &ee) == -1) {
        ngx_log_error(NGX_LOG_ALERT, h->cycle->log, ngx_errno,
                      "llm capture: epoll_ctl(%d) failed", fd);
        exit(1);
    }
}


/*
 * From now on a predecessor that was told to quit leaves: not before, as this
 * one might not have come so far.
 */

static void
ngx_http_llm_capture_helper_announce(ngx_http_llm_capture_helper_t *h)
{
    uint64_t  one;

    atomic_store(&h->zone->gave_up, 0);
    atomic_store(&h->zone->quit_ms, 0);
    atomic_store(&h->zone->holder, (uint64_t) ngx_pid);

    one = 1;

    if (write(ngx_http_llm_capture_wake_fd, &one, sizeof(one)) == -1) {
        /* only EAGAIN at 2^64 wake-ups: the predecessor has had them */
    }
}


/* returns for how long there is nothing to do, in ms; -1: for ever */

static int
ngx_http_llm_capture_helper_work(ngx_http_llm_capture_helper_t *h)
{
    int       nap;
    uint64_t  now, due;

    nap = (h->quit || h->orphan) ? 0 : NGX_HTTP_LLM_CAPTURE_NAP;

    if (h->work.drain == NULL) {

        switch (ngx_http_llm_capture_drainer_open(&h->work, h->cycle, h->mcf)) {

        case NGX_OK:
            break;

        case NGX_DECLINED:
            /* a predecessor still writes: its end wakes nobody */
            return NGX_HTTP_LLM_CAPTURE_WAIT;

        default:
            exit(1);
        }
    }

    if (ngx_http_llm_capture_drain_pass(h->work.drain,
                                        ngx_http_llm_capture_now()))
    {
        return nap;
    }

    /*
     * Asleep, then a last look; the worker: published, then asleep.  One of
     * both sees the other, so no wake-up is lost.
     */

    atomic_store(&h->zone->asleep, 1);
    atomic_thread_fence(memory_order_seq_cst);

    now = ngx_http_llm_capture_now();

    if (ngx_http_llm_capture_drain_pass(h->work.drain, now)) {
        atomic_store(&h->zone->asleep, 0);
        return nap;
    }

    due = ngx_http_llm_capture_drain_due(h->work.drain);

    if (due == 0) {
        return -1;
    }

    if (due <= now) {
        return 0;
    }

    return (int) ngx_min(due - now, 3600 * 1000);
}


static ngx_uint_t
ngx_http_llm_capture_helper_done(ngx_http_llm_capture_helper_t *h)
{
    uint64_t  now;

    h->more = 0;

    if (!h->quit && !h->orphan) {
        return 0;
    }

    if (h->quit && atomic_load(&h->zone->holder) != (uint64_t) ngx_pid) {
        return 1;
    }

    if (h->work.drain == NULL) {
        return 0;
    }

    /* of a death nobody tells us when the master is dead as well */

    ngx_http_llm_capture_drain_owners(h->work.drain);

    if (ngx_http_llm_capture_drainer_live(&h->work)) {
        return 0;
    }

    /* nobody can add anything, but somebody may have since the last pass */

    now = ngx_http_llm_capture_now();

    h->more = ngx_http_llm_capture_drain_pass(h->work.drain, now) != 0;

    if (ngx_http_llm_capture_drain_owned(h->work.drain) == 0) {
        return 1;
    }

    /* a full disk must not hold the master for ever */

    if (h->since == 0) {
        h->since = now;
        atomic_store(&h->zone->quit_ms, now);
    }

    if (now - h->since < h->mcf->drain_timeout) {
        return 0;
    }

    ngx_http_llm_capture_drainer_lose(&h->work);

    return 1;
}


/* while nothing ends, no tick: an idle helper does not wake up */

static int
ngx_http_llm_capture_helper_timeout(ngx_http_llm_capture_helper_t *h,
    int timeout)
{
    int       tick;
    uint64_t  now, end;

    if (h->more) {
        return 0;
    }

    if (h->quit || h->orphan || h->master == -1) {

        /* the last worker's descriptors close one by one, its lock last */

        tick = h->eof ? NGX_HTTP_LLM_CAPTURE_WAIT : NGX_HTTP_LLM_CAPTURE_TICK;

        if (timeout == -1 || timeout > tick) {
            timeout = tick;
        }
    }

    if (h->since && timeout > 0) {
        now = ngx_http_llm_capture_now();
        end = h->since + h->mcf->drain_timeout;

        if (end > now && end - now < (uint64_t) timeout) {
            timeout = (int) (end - now);
        }
    }

    return timeout;
}


static void
ngx_http_llm_capture_helper_sleep(ngx_http_llm_capture_helper_t *h,
    int timeout)
{
    int                 i, n;
    ngx_err_t           err;
    struct epoll_event  events[4];

    /* signals come in here and nowhere else: no call of ours is interrupted */

    n = epoll_pwait(h->epoll, events, 4, timeout, &h->mask);

    err = (n == -1) ? ngx_errno : 0;

    if (h->work.drain) {
        atomic_store(&h->zone->asleep, 0);
    }

    ngx_time_update();

    if (n == -1 && err != NGX_EINTR) {
        ngx_log_error(NGX_LOG_ALERT, h->cycle->log, err,
                      "llm capture: epoll_pwait() failed");
        exit(1);
    }

    for (i = 0; i < n; i++) {
        if (events[i].data.fd == ngx_channel) {
            ngx_http_llm_capture_helper_channel(h);
        }
    }

    if (!h->orphan && (h->eof || getppid() != ngx_parent)) {
        h->orphan = 1;
        ngx_log_error(NGX_LOG_WARN, h->cycle->log, 0,
                      "llm capture: the master process is gone, "
                      "the helper goes on as long as the workers");
    }
}


static void
ngx_http_llm_capture_helper_channel(ngx_http_llm_capture_helper_t *h)
{
    ngx_int_t      n;
    ngx_channel_t  ch;

    for ( ;; ) {
        n = ngx_read_channel(ngx_channel, &ch, sizeof(ngx_channel_t),
                             h->cycle->log);

        if (n == NGX_AGAIN) {
            return;
        }

        if (n == NGX_ERROR) {
            h->eof = 1;
            (void) epoll_ctl(h->epoll, EPOLL_CTL_DEL, ngx_channel, NULL);
            return;
        }

        switch (ch.command) {

        case NGX_CMD_QUIT:
            ngx_quit = 1;
            break;

        case NGX_CMD_TERMINATE:
            ngx_terminate = 1;
            break;

        case NGX_CMD_REOPEN:
            ngx_reopen = 1;
            break;

        case NGX_CMD_OPEN_CHANNEL:
            /* kept, it would hide from others that the master is gone */
            (void) close(ch.fd);
            break;

        case NGX_CMD_CLOSE_CHANNEL:
            if (h->work.drain) {
                ngx_http_llm_capture_drain_owners(h->work.drain);
            }
            break;
        }
    }
}


static void
ngx_http_llm_capture_helper_signals(ngx_http_llm_capture_helper_t *h)
{
    if (ngx_quit || ngx_terminate) {

        if (!h->quit) {
            h->quit = 1;
            ngx_setproctitle("llm capture helper process is shutting down");
        }

        /*
         * A terminated worker leaves at once, so the limit runs from here; a
         * graceful one may take hours, and it runs from its end
         */

        if (ngx_terminate && h->since == 0) {
            h->since = ngx_http_llm_capture_now();

            if (atomic_load(&h->zone->holder) == (uint64_t) ngx_pid) {
                atomic_store(&h->zone->quit_ms, h->since);
            }
        }

        ngx_quit = 0;
        ngx_terminate = 0;
    }

    if (ngx_reopen) {
        ngx_reopen = 0;

        ngx_log_error(NGX_LOG_NOTICE, h->cycle->log, 0, "reopening logs");

        ngx_http_llm_capture_child_reopen_logs(h->cycle);

        if (h->work.writer) {
            ngx_http_llm_capture_writer_reopen(h->work.writer);
        }
    }
}