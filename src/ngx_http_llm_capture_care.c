
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * All zones that one helper has in its care: that of its own configuration,
 * and those that reloads replaced while somebody still used them.
 *
 * A zone has one drainer at a time.  A successor says in the zone that it is
 * there; the one before, told to quit, then leaves its lock and all the rest
 * is found in the zone.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <sys/mman.h>

#include "ngx_http_llm_capture_drainer.h"
#include "ngx_http_llm_capture_live.h"


#define NGX_HTTP_LLM_CAPTURE_WAIT  20        /* ms between tries for a lock */


static void ngx_http_llm_capture_care_add(ngx_http_llm_capture_care_t *care,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_http_llm_capture_kept_t *kept);
static void ngx_http_llm_capture_care_tell(ngx_http_llm_capture_care_t *care);
static int ngx_http_llm_capture_care_open(ngx_http_llm_capture_care_t *care);
static unsigned ngx_http_llm_capture_care_pass(
    ngx_http_llm_capture_care_t *care);
static int ngx_http_llm_capture_care_due(ngx_http_llm_capture_care_t *care);
static ngx_uint_t ngx_http_llm_capture_care_done(
    ngx_http_llm_capture_care_t *care, ngx_http_llm_capture_care_zone_t *z);
static ngx_uint_t ngx_http_llm_capture_care_live(
    ngx_http_llm_capture_care_zone_t *z);
static ngx_uint_t ngx_http_llm_capture_care_late(
    ngx_http_llm_capture_care_zone_t *z);
static void ngx_http_llm_capture_care_leave(
    ngx_http_llm_capture_care_zone_t *z);


void
ngx_http_llm_capture_care_init(ngx_http_llm_capture_care_t *care,
    ngx_cycle_t *cycle)
{
    ngx_uint_t                         n;
    ngx_http_llm_capture_kept_t       *k;
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_http_llm_capture_main_conf(cycle);

    n = 1;

    for (k = ngx_http_llm_capture_kept; k; k = k->next) {
        n++;
    }

    ngx_memzero(care, sizeof(ngx_http_llm_capture_care_t));

    care->cycle = cycle;
    care->zones = ngx_calloc(n * sizeof(ngx_http_llm_capture_care_zone_t),
                             cycle->log);
    if (care->zones == NULL) {
        exit(1);
    }

    if (mcf) {
        ngx_http_llm_capture_care_add(care, mcf, NULL);
    }

    for (k = ngx_http_llm_capture_kept; k; k = k->next) {

        if (ngx_http_llm_capture_kept_live(k)
            || ngx_http_llm_capture_drainer_due(&k->mcf))
        {
            ngx_http_llm_capture_care_add(care, &k->mcf, k);

        } else {
            (void) munmap(k->addr, k->size);
        }
    }
}


static void
ngx_http_llm_capture_care_add(ngx_http_llm_capture_care_t *care,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_http_llm_capture_kept_t *kept)
{
    ngx_http_llm_capture_care_zone_t  *z;

    z = &care->zones[care->n++];

    z->mcf = mcf;
    z->kept = kept;
    z->zone = ngx_http_llm_capture_zone_hdr(&mcf->zone);
}


void
ngx_http_llm_capture_care_announce(ngx_http_llm_capture_care_t *care)
{
    uint64_t                           one;
    ngx_uint_t                         i;
    ngx_http_llm_capture_zone_hdr_t   *zone;

    for (i = 0; i < care->n; i++) {
        zone = care->zones[i].zone;

        atomic_store(&zone->gave_up, 0);
        atomic_store(&zone->quit_ms, 0);
        atomic_store(&zone->holder, (uint64_t) ngx_pid);

        ngx_http_llm_capture_live_start(&care->zones[i].mcf->zone,
                                        ngx_http_llm_capture_now());
    }

    ngx_http_llm_capture_care_tell(care);

    one = 1;

    if (write(ngx_http_llm_capture_wake_fd, &one, sizeof(one)) == -1) {
        /* only EAGAIN at 2^64 wake-ups: the predecessor has had them */
    }
}


/* those who ask see the zone of their configuration, and not the others */

static void
ngx_http_llm_capture_care_tell(ngx_http_llm_capture_care_t *care)
{
    ngx_uint_t                         i, n;
    ngx_http_llm_capture_care_zone_t  *z;

    z = &care->zones[0];

    if (z->kept || atomic_load(&z->zone->holder) != (uint64_t) ngx_pid) {
        return;
    }

    for (n = 0, i = 1; i < care->n; i++) {
        n += !care->zones[i].over;
    }

    ngx_http_llm_capture_live_draining(&z->mcf->zone, n);
}


int
ngx_http_llm_capture_care_work(ngx_http_llm_capture_care_t *care)
{
    int         due, wait, nap;
    ngx_uint_t  i;

    nap = (care->quit || care->orphan) ? 0 : NGX_HTTP_LLM_CAPTURE_NAP;

    wait = ngx_http_llm_capture_care_open(care);

    if (ngx_http_llm_capture_care_pass(care)) {
        return nap;
    }

    /*
     * Asleep, then a last look; the worker: published, then asleep.  One of
     * both sees the other, so no wake-up is lost.
     */

    for (i = 0; i < care->n; i++) {
        if (care->zones[i].work.drain) {
            atomic_store(&care->zones[i].zone->asleep, 1);
        }
    }

    atomic_thread_fence(memory_order_seq_cst);

    if (ngx_http_llm_capture_care_pass(care)) {
        ngx_http_llm_capture_care_awake(care);
        return nap;
    }

    due = ngx_http_llm_capture_care_due(care);

    if (wait != -1 && (due == -1 || due > wait)) {
        due = wait;
    }

    return due;
}


/* -1: all are open; else when to try again */

static int
ngx_http_llm_capture_care_open(ngx_http_llm_capture_care_t *care)
{
    int                                wait;
    ngx_uint_t                         i;
    ngx_http_llm_capture_care_zone_t  *z;

    wait = -1;

    for (i = 0; i < care->n; i++) {
        z = &care->zones[i];

        if (z->over || z->work.drain) {
            continue;
        }

        switch (ngx_http_llm_capture_drainer_open(&z->work, care->cycle,
                                                  z->mcf, care->n))
        {
        case NGX_OK:
            break;

        case NGX_DECLINED:
            /* a predecessor still writes: its end wakes nobody */
            wait = NGX_HTTP_LLM_CAPTURE_WAIT;
            break;

        default:
            exit(1);
        }
    }

    return wait;
}


static unsigned
ngx_http_llm_capture_care_pass(ngx_http_llm_capture_care_t *care)
{
    unsigned                         n;
    ngx_uint_t                       i;
    ngx_http_llm_capture_drainer_t  *d;

    n = 0;

    for (i = 0; i < care->n; i++) {
        d = &care->zones[i].work;

        if (d->drain) {
            n += ngx_http_llm_capture_drain_pass(d->drain,
                                                 ngx_http_llm_capture_now());
        }
    }

    return n;
}


static int
ngx_http_llm_capture_care_due(ngx_http_llm_capture_care_t *care)
{
    uint64_t                         now, due, d;
    ngx_uint_t                       i;
    ngx_http_llm_capture_drainer_t  *work;

    due = 0;

    for (i = 0; i < care->n; i++) {
        work = &care->zones[i].work;

        if (work->drain == NULL) {
            continue;
        }

        d = ngx_http_llm_capture_drain_due(work->drain);

        if (d && (due == 0 || d < due)) {
            due = d;
        }
    }

    if (due == 0) {
        return -1;
    }

    now = ngx_http_llm_capture_now();

    return due > now ? (int) ngx_min(due - now, 3600 * 1000) : 0;
}


void
ngx_http_llm_capture_care_awake(ngx_http_llm_capture_care_t *care)
{
    ngx_uint_t  i;

    for (i = 0; i < care->n; i++) {
        if (care->zones[i].work.drain) {
            atomic_store(&care->zones[i].zone->asleep, 0);
        }
    }
}


void
ngx_http_llm_capture_care_owners(ngx_http_llm_capture_care_t *care)
{
    ngx_uint_t  i;

    for (i = 0; i < care->n; i++) {
        if (care->zones[i].work.drain) {
            ngx_http_llm_capture_drain_owners(care->zones[i].work.drain);
        }
    }
}


void
ngx_http_llm_capture_care_reopen(ngx_http_llm_capture_care_t *care)
{
    ngx_uint_t  i;

    for (i = 0; i < care->n; i++) {
        if (care->zones[i].work.writer) {
            ngx_http_llm_capture_writer_reopen(care->zones[i].work.writer);
            ngx_http_llm_capture_drain_renamed(care->zones[i].work.drain);
        }
    }
}


void
ngx_http_llm_capture_care_limit(ngx_http_llm_capture_care_t *care)
{
    ngx_uint_t                         i;
    ngx_http_llm_capture_care_zone_t  *z;

    for (i = 0; i < care->n; i++) {
        z = &care->zones[i];

        if (z->over || z->since) {
            continue;
        }

        z->since = ngx_http_llm_capture_now();

        if (atomic_load(&z->zone->holder) == (uint64_t) ngx_pid) {
            atomic_store(&z->zone->quit_ms, z->since);
        }
    }
}


uint64_t
ngx_http_llm_capture_care_end(ngx_http_llm_capture_care_t *care)
{
    uint64_t                           end, at;
    ngx_uint_t                         i;
    ngx_http_llm_capture_care_zone_t  *z;

    end = 0;

    for (i = 0; i < care->n; i++) {
        z = &care->zones[i];

        if (z->over || z->since == 0) {
            continue;
        }

        at = z->since + z->mcf->drain_timeout;

        if (end == 0 || at < end) {
            end = at;
        }
    }

    return end;
}


ngx_uint_t
ngx_http_llm_capture_care_over(ngx_http_llm_capture_care_t *care)
{
    ngx_uint_t                         i, over;
    ngx_http_llm_capture_care_zone_t  *z;

    care->more = 0;
    over = 1;

    for (i = 0; i < care->n; i++) {
        z = &care->zones[i];

        if (!z->over && ngx_http_llm_capture_care_done(care, z)) {
            ngx_http_llm_capture_care_leave(z);
            ngx_http_llm_capture_care_tell(care);
        }

        over &= z->over;
    }

    return over;
}


static ngx_uint_t
ngx_http_llm_capture_care_done(ngx_http_llm_capture_care_t *care,
    ngx_http_llm_capture_care_zone_t *z)
{
    ngx_uint_t  leaving;

    leaving = care->quit || care->orphan;

    if (!leaving && z->kept == NULL) {
        return 0;
    }

    if (care->quit && atomic_load(&z->zone->holder) != (uint64_t) ngx_pid) {
        return 1;
    }

    if (z->work.drain == NULL) {
        return 0;
    }

    /* of a death nobody tells us when the master is dead as well */

    ngx_http_llm_capture_drain_owners(z->work.drain);

    if (ngx_http_llm_capture_care_live(z)) {
        return 0;
    }

    /* nobody can add anything, but somebody may have since the last pass */

    if (ngx_http_llm_capture_drain_pass(z->work.drain,
                                        ngx_http_llm_capture_now()))
    {
        care->more = 1;
    }

    if (ngx_http_llm_capture_drain_left(z->work.drain) == 0) {
        return 1;
    }

    return leaving && ngx_http_llm_capture_care_late(z);
}


static ngx_uint_t
ngx_http_llm_capture_care_live(ngx_http_llm_capture_care_zone_t *z)
{
    if (z->kept && ngx_http_llm_capture_kept_live(z->kept)) {
        return 1;
    }

    return ngx_http_llm_capture_drainer_live(&z->work);
}


/* a full disk must not hold the master for ever */

static ngx_uint_t
ngx_http_llm_capture_care_late(ngx_http_llm_capture_care_zone_t *z)
{
    uint64_t  now;

    now = ngx_http_llm_capture_now();

    if (z->since == 0) {
        z->since = now;
        atomic_store(&z->zone->quit_ms, now);
    }

    if (now - z->since < z->mcf->drain_timeout) {
        return 0;
    }

    ngx_http_llm_capture_drainer_lose(&z->work);

    return 1;
}


/*
 * What the master maps of a replaced zone would keep its memory; whoever takes
 * the lock after us has nothing to find there either.
 */

static void
ngx_http_llm_capture_care_leave(ngx_http_llm_capture_care_zone_t *z)
{
    ngx_uint_t  drained;

    drained = z->work.drain
              && ngx_http_llm_capture_drain_left(z->work.drain) == 0
              && !ngx_http_llm_capture_care_live(z);

    z->over = 1;

    if (z->work.drain == NULL) {
        return;
    }

    ngx_http_llm_capture_drainer_end(&z->work);

    /* under the lock: a successor must not see one half of it */

    if (z->kept && drained) {
        (void) madvise(z->kept->addr, z->kept->size, MADV_REMOVE);
        (void) munmap(z->kept->addr, z->kept->size);
    }

    ngx_http_llm_capture_drainer_close(&z->work);
}
