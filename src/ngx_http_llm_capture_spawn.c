
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The master's side of the helper process: how it comes to life.
 *
 * nginx has no hook in the master after it went into the background, and what
 * init_module forks is a child of the process that then leaves.  So the helper
 * is made by the master's own hand: a pthread_atfork() handler runs in the
 * master whenever it forks a worker, in every path that starts workers (start,
 * reload, roll back of an upgrade, respawn).  If no helper of the present
 * generation stands in the process table, it enters one that looks dead and
 * respawnable, and makes the master look for dead children.  From there on
 * nginx does it all: ngx_reap_children() "respawns" the helper as a true child,
 * tells it to quit and to reopen over its channel, starts it again when it
 * dies, and waits for it at exit.
 *
 * The alternatives were tried: a fork in init_module or out of a worker, and
 * the cache manager's callback, each lost records at exit or in an upgrade, or
 * kept the master from leaving.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "ngx_http_llm_capture_drainer.h"


/* above any pid_max: a kill() of it does no harm */
#define NGX_HTTP_LLM_CAPTURE_GHOST  0x7ffffffe

/* children besides workers that the master may fork next: see plant() */
#define NGX_HTTP_LLM_CAPTURE_SPARE  3


/* the master's own; other processes inherit it and never look */

typedef struct {
    ngx_cycle_t          *cycle;        /* the newest with this module */
    uintptr_t             gen;          /* to keep alive; 0: none */
    ngx_uint_t            captures;     /* 0: there are only old zones */
    uintptr_t             last;         /* generation handed out last */
    ngx_int_t             workers;
    char                 *name;
    unsigned              registered:1;
} ngx_http_llm_capture_master_t;


typedef struct {
    const char           *name;
    size_t                offset;
} ngx_http_llm_capture_offset_t;


static void ngx_http_llm_capture_replace(ngx_cycle_t *old, ngx_cycle_t *cycle);
static ngx_int_t ngx_http_llm_capture_init_master(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_llm_capture_open_shared(ngx_log_t *log);
static uintptr_t ngx_http_llm_capture_generation(void);
static void ngx_http_llm_capture_cleanup_cycle(void *data);
static void ngx_http_llm_capture_atfork_parent(void);
static ngx_uint_t ngx_http_llm_capture_planted(void);
static void ngx_http_llm_capture_plant(void);


int  ngx_http_llm_capture_lock_fd = -1;
int  ngx_http_llm_capture_wake_fd = -1;

static ngx_http_llm_capture_master_t  ngx_http_llm_capture_master;


/*
 * Patched nginx's (OpenResty's patches, which ingress-nginx carries) have more
 * fields in front of those we need, with an unchanged module signature.  The
 * command table holds the offsets as compiled into the nginx that runs: if
 * fields on both sides moved by one distance, so did all between.
 */

ngx_core_conf_t *
ngx_http_llm_capture_core_conf(ngx_cycle_t *cycle)
{
    ptrdiff_t       distance, shift;
    ngx_uint_t      i, found;
    ngx_command_t  *cmd;

    static ngx_http_llm_capture_offset_t  offsets[] = {
        { "worker_shutdown_timeout",
          offsetof(ngx_core_conf_t, shutdown_timeout) },
        { "debug_points", offsetof(ngx_core_conf_t, debug_points) },
        { "worker_rlimit_core", offsetof(ngx_core_conf_t, rlimit_core) },
        { "working_directory", offsetof(ngx_core_conf_t, working_directory) },
        { NULL, 0 }
    };

    found = 0;
    shift = 0;

    for (cmd = ngx_core_module.commands; cmd->name.len; cmd++) {
        for (i = 0; offsets[i].name; i++) {

            if (ngx_strcmp(cmd->name.data, offsets[i].name) != 0) {
                continue;
            }

            distance = (ptrdiff_t) cmd->offset - (ptrdiff_t) offsets[i].offset;

            if (found++ && distance != shift) {
                return NULL;
            }

            shift = distance;
        }
    }

    if (found != 4) {
        return NULL;
    }

    return (ngx_core_conf_t *)
               ((u_char *) ngx_get_conf(cycle->conf_ctx, ngx_core_module)
                + shift);
}


/*
 * NGX_ERROR from here would end the master on a reload, and serving comes
 * first: what fails is an alert, and capture goes without.
 */

ngx_int_t
ngx_http_llm_capture_init_module(ngx_cycle_t *cycle)
{
    ngx_cycle_t                    *old;
    ngx_pool_cleanup_t             *cln;
    ngx_http_llm_capture_master_t  *m;

    if (ngx_test_config) {
        return NGX_OK;
    }

    m = &ngx_http_llm_capture_master;

    m->gen = 0;

    if (m->cycle) {
        ngx_http_llm_capture_key_changed(
            ngx_http_llm_capture_main_conf(m->cycle),
            ngx_http_llm_capture_main_conf(cycle), cycle->log);
        ngx_http_llm_capture_replace(m->cycle, cycle);
    }

    /*
     * For a cycle that does not capture too: the descriptors and the handler
     * must be put down when load_module goes, in whatever order things went
     */

    cln = ngx_pool_cleanup_add(cycle->pool, 0);
    if (cln == NULL) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "llm capture: no memory, nothing will be captured");
        return NGX_OK;
    }

    cln->handler = ngx_http_llm_capture_cleanup_cycle;
    cln->data = cycle;

    old = m->cycle;
    m->cycle = cycle;

    if (ngx_http_llm_capture_init_master(cycle) != NGX_OK) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "llm capture: no helper process can be started, "
                      "nothing will be written");
    }

    if (old) {
        ngx_http_llm_capture_control_keep(ngx_http_llm_capture_main_conf(old),
                                        ngx_http_llm_capture_main_conf(cycle));
    }

    return NGX_OK;
}


/* a reload: the zone of before may go with its cycle */

static void
ngx_http_llm_capture_replace(ngx_cycle_t *old, ngx_cycle_t *cycle)
{
    ngx_http_llm_capture_main_conf_t  *mcf;

    if (ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_llm_capture_single_exit(old);
        return;
    }

    ngx_http_llm_capture_kept_sweep();

    mcf = ngx_http_llm_capture_main_conf(old);

    if (mcf) {
        ngx_http_llm_capture_keep(mcf, ngx_http_llm_capture_main_conf(cycle),
                                  cycle->log);
    }
}


static ngx_int_t
ngx_http_llm_capture_init_master(ngx_cycle_t *cycle)
{
    ngx_core_conf_t                   *ccf;
    ngx_http_llm_capture_master_t     *m;
    ngx_http_llm_capture_main_conf_t  *mcf;

    static const char  name[] = "llm capture helper process";

    m = &ngx_http_llm_capture_master;

    mcf = ngx_http_llm_capture_main_conf(cycle);

    if (mcf == NULL && ngx_http_llm_capture_kept == NULL) {
        return NGX_OK;
    }

    if (mcf) {
        ngx_http_llm_capture_shm_templates(mcf);
        ngx_http_llm_capture_shm_directories(cycle, mcf);
    }

    if (ngx_http_llm_capture_open_shared(cycle->log) != NGX_OK) {
        return NGX_ERROR;
    }

    /* this field lies before all that patches move */

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    if (!ccf->master) {
        return NGX_OK;
    }

    ccf = ngx_http_llm_capture_core_conf(cycle);

    if (ccf == NULL) {
        return NGX_ERROR;
    }

    /*
     * The master logs the name of a helper that exits, maybe after the module
     * was unloaded with all its strings
     */

    if (m->name == NULL) {
        m->name = ngx_alloc(sizeof(name), cycle->log);
        if (m->name == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(m->name, name, sizeof(name));
    }

    if (!m->registered) {
        if (pthread_atfork(NULL, ngx_http_llm_capture_atfork_parent, NULL)
            != 0)
        {
            return NGX_ERROR;
        }

        m->registered = 1;
    }

    m->workers = ccf->worker_processes;
    m->captures = mcf != NULL;
    m->gen = ngx_http_llm_capture_generation();

    return NGX_OK;
}


/* once in a master's life: children of all generations share them */

static ngx_int_t
ngx_http_llm_capture_open_shared(ngx_log_t *log)
{
    if (ngx_http_llm_capture_lock_fd == -1) {
        ngx_http_llm_capture_lock_fd = memfd_create("llm_capture", MFD_CLOEXEC);

        if (ngx_http_llm_capture_lock_fd == -1) {
            ngx_log_error(NGX_LOG_ALERT, log, ngx_errno,
                          "llm capture: memfd_create() failed");
            return NGX_ERROR;
        }
    }

    if (ngx_http_llm_capture_wake_fd == -1) {
        ngx_http_llm_capture_wake_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);

        if (ngx_http_llm_capture_wake_fd == -1) {
            ngx_log_error(NGX_LOG_ALERT, log, ngx_errno,
                          "llm capture: eventfd() failed");
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * By the clock and not by a counter: both a zone and this file's memory may be
 * replaced in a master's life, and a number must never come again
 */

static uintptr_t
ngx_http_llm_capture_generation(void)
{
    uintptr_t        gen;
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    gen = (uintptr_t) ((uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000);

    if (gen == 0 || gen == ngx_http_llm_capture_master.last) {
        gen++;
    }

    ngx_http_llm_capture_master.last = gen;

    return gen;
}


ngx_uint_t
ngx_http_llm_capture_present(void *data)
{
    return (uintptr_t) data == ngx_http_llm_capture_master.gen;
}


/*
 * Runs before the module of that cycle is unloaded.  A dlclose() that does
 * nothing (musl) leaves the handler in place: gen == 0 makes it idle.
 */

static void
ngx_http_llm_capture_cleanup_cycle(void *data)
{
    if (ngx_http_llm_capture_master.cycle != data) {
        /* a newer cycle has taken over */
        return;
    }

    ngx_http_llm_capture_master.cycle = NULL;
    ngx_http_llm_capture_master.gen = 0;

    if (ngx_process != NGX_PROCESS_MASTER) {
        return;
    }

    ngx_http_llm_capture_kept_drop();

    /* the children keep theirs */

    if (ngx_http_llm_capture_lock_fd != -1) {
        (void) close(ngx_http_llm_capture_lock_fd);
        ngx_http_llm_capture_lock_fd = -1;
    }

    if (ngx_http_llm_capture_wake_fd != -1) {
        (void) close(ngx_http_llm_capture_wake_fd);
        ngx_http_llm_capture_wake_fd = -1;
    }
}


/* after each fork() of the master, whoever called it */

static void
ngx_http_llm_capture_atfork_parent(void)
{
    int             err;
    ngx_process_t  *p;

    if (ngx_process != NGX_PROCESS_MASTER
        || ngx_http_llm_capture_master.gen == 0)
    {
        return;
    }

    p = &ngx_processes[ngx_process_slot];

    /* not ngx_spawn_process() of a child: 0 in ngx_daemon(), -1 for a binary */

    if (p->channel[0] <= 0) {
        return;
    }

    err = ngx_errno;

    ngx_http_llm_capture_kept_sweep();

    if (p->proc == ngx_http_llm_capture_helper_cycle && p->pid != -1) {

        /* it is the helper: from here on it is a child like any other */

        p->detached = 0;

        if (ngx_http_llm_capture_kept == NULL
            && !ngx_http_llm_capture_master.captures)
        {
            /* there is nothing left to do: it leaves, and for good */

            p->respawn = 0;
            ngx_http_llm_capture_master.gen = 0;
        }

    } else if (!ngx_http_llm_capture_planted()) {
        ngx_http_llm_capture_plant();
    }

    ngx_set_errno(err);
}


static ngx_uint_t
ngx_http_llm_capture_planted(void)
{
    ngx_int_t       i;
    ngx_process_t  *p;

    for (i = 0; i < ngx_last_process; i++) {
        p = &ngx_processes[i];

        if (p->pid != -1
            && p->proc == ngx_http_llm_capture_helper_cycle
            && (uintptr_t) p->data == ngx_http_llm_capture_master.gen
            && !p->exiting)
        {
            return 1;
        }
    }

    return 0;
}


/*
 * The workers still to be forked get the slots they would get without us:
 * other modules rely on the order.  Free slots are counted, or each reload
 * would move the helper up until the table is full.
 */

static void
ngx_http_llm_capture_plant(void)
{
    ngx_int_t       i, s, skip;
    ngx_process_t  *p;

    skip = ngx_http_llm_capture_master.workers + NGX_HTTP_LLM_CAPTURE_SPARE;

    for (s = ngx_process_slot + 1; s < NGX_MAX_PROCESSES; s++) {
        if ((s >= ngx_last_process || ngx_processes[s].pid == -1)
            && skip-- == 0)
        {
            break;
        }
    }

    if (s == NGX_MAX_PROCESSES) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "llm capture: no free slot for the helper process");
        return;
    }

    for (i = ngx_max(ngx_last_process, ngx_process_slot + 1); i < s; i++) {
        ngx_processes[i].pid = -1;
    }

    p = &ngx_processes[s];

    ngx_memzero(p, sizeof(ngx_process_t));

    p->pid = NGX_HTTP_LLM_CAPTURE_GHOST;
    p->channel[0] = -1;
    p->channel[1] = -1;
    p->proc = ngx_http_llm_capture_helper_cycle;
    p->data = (void *) ngx_http_llm_capture_master.gen;
    p->name = ngx_http_llm_capture_master.name;
    p->respawn = 1;
    p->exited = 1;

    /* no channel to close, nothing to signal, until it has been forked */
    p->detached = 1;

    if (s >= ngx_last_process) {
        ngx_last_process = s + 1;
    }

    ngx_reap = 1;

    /* blocked now, so it ends the master's next sigsuspend() */
    (void) raise(SIGIO);
}
