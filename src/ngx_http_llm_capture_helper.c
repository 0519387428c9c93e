
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The helper process: it becomes the worker's user, sleeps until a worker wakes
 * it, and drains the rings into the files.  How it is started is told in
 * ngx_http_llm_capture_spawn.c, what it drains in ngx_http_llm_capture_care.c.
 *
 * It runs no event loop of nginx and no other module's init_process: nothing
 * but its own work can block or break it.
 *
 * QUIT, TERM and INT all mean the same: go on until nobody can put anything
 * into a zone and all is written, within a limit.  A successor, which a reload
 * brings, takes over earlier: it finds everything in the zones.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <ngx_channel.h>
#include <sys/syscall.h>

#include "ngx_http_llm_capture_drainer.h"


/* ms between looks at the end, when something tells of it, and when nothing */
#define NGX_HTTP_LLM_CAPTURE_TICK     1000
#define NGX_HTTP_LLM_CAPTURE_EOF      20


typedef struct {
    ngx_http_llm_capture_care_t   care;
    ngx_cycle_t                  *cycle;

    sigset_t                      mask;     /* while it sleeps */
    int                           epoll;
    int                           master;   /* pidfd; -1: not to be had */

    unsigned                      eof:1;    /* nobody can talk to us */
} ngx_http_llm_capture_helper_t;


static void ngx_http_llm_capture_helper_epoll(
    ngx_http_llm_capture_helper_t *h);
static void ngx_http_llm_capture_helper_watch(
    ngx_http_llm_capture_helper_t *h, int fd, uint32_t events);
static int ngx_http_llm_capture_helper_timeout(
    ngx_http_llm_capture_helper_t *h, int timeout);
static void ngx_http_llm_capture_helper_sleep(
    ngx_http_llm_capture_helper_t *h, int timeout);
static void ngx_http_llm_capture_helper_channel(
    ngx_http_llm_capture_helper_t *h);
static ngx_uint_t ngx_http_llm_capture_helper_closed(void);
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

    if (!ngx_http_llm_capture_present(data)) {
        /* of an older generation: not to be started again */
        exit(2);
    }

    h.cycle = cycle;
    sigemptyset(&h.mask);

    ngx_http_llm_capture_care_init(&h.care, cycle);

    if (h.care.n == 0) {
        /* nothing captures any more, and what did is done */
        exit(0);
    }

    ngx_http_llm_capture_child_back_off(h.care.zones[0].zone,
                                        (uint64_t) (uintptr_t) data);
    ngx_http_llm_capture_child_become(cycle);
    ngx_http_llm_capture_helper_epoll(&h);
    ngx_http_llm_capture_care_announce(&h.care);

    for ( ;; ) {
        ngx_http_llm_capture_helper_signals(&h);

        timeout = ngx_http_llm_capture_care_work(&h.care);

        if (ngx_http_llm_capture_care_over(&h.care)) {
            break;
        }

        timeout = ngx_http_llm_capture_helper_timeout(&h, timeout);

        ngx_http_llm_capture_helper_sleep(&h, timeout);
    }

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


/* while nothing ends, no tick: an idle helper does not wake up */

static int
ngx_http_llm_capture_helper_timeout(ngx_http_llm_capture_helper_t *h,
    int timeout)
{
    int       tick;
    uint64_t  now, end;

    if (h->care.more) {
        return 0;
    }

    if (h->care.quit || h->care.orphan || h->master == -1) {

        /* the last worker's descriptors close one by one, its lock last */

        tick = h->eof ? NGX_HTTP_LLM_CAPTURE_EOF : NGX_HTTP_LLM_CAPTURE_TICK;

        if (timeout == -1 || timeout > tick) {
            timeout = tick;
        }
    }

    end = ngx_http_llm_capture_care_end(&h->care);

    if (end && timeout > 0) {
        now = ngx_http_llm_capture_now();

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

    ngx_http_llm_capture_care_awake(&h->care);

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

    if (!h->care.orphan && (h->eof || getppid() != ngx_parent)) {
        h->care.orphan = 1;
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

            if (!ngx_http_llm_capture_helper_closed()) {
                /* no descriptor was free for one that it passed on */
                continue;
            }

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
            ngx_http_llm_capture_care_owners(&h->care);
            break;
        }
    }
}


/* an error takes its message with it: behind it is more, nothing, or the end */

static ngx_uint_t
ngx_http_llm_capture_helper_closed(void)
{
    char     c;
    ssize_t  n;

    n = recv(ngx_channel, &c, 1, MSG_PEEK|MSG_DONTWAIT);

    return n == 0 || (n == -1 && ngx_errno != NGX_EAGAIN
                      && ngx_errno != NGX_EINTR);
}


static void
ngx_http_llm_capture_helper_signals(ngx_http_llm_capture_helper_t *h)
{
    if (ngx_quit || ngx_terminate) {

        if (!h->care.quit) {
            h->care.quit = 1;
            ngx_setproctitle("llm capture helper process is shutting down");
        }

        /*
         * A terminated worker leaves at once, so the limit runs from here; a
         * graceful one may take hours, and it runs from its end
         */

        if (ngx_terminate) {
            ngx_http_llm_capture_care_limit(&h->care);
        }

        ngx_quit = 0;
        ngx_terminate = 0;
    }

    if (ngx_reopen) {
        ngx_reopen = 0;

        ngx_log_error(NGX_LOG_NOTICE, h->cycle->log, 0, "reopening logs");

        ngx_http_llm_capture_child_reopen_logs(h->cycle);

        ngx_http_llm_capture_care_reopen(&h->care);
    }
}