
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A worker's hold on the zone: it claims a ring at the first request it sees,
 * counts in that ring's rows, puts bodies in, wakes the helper, and gives the
 * ring back when it shuts down and no upload is in flight.  Nothing here
 * blocks, waits or allocates.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "ngx_http_llm_capture_drainer.h"
#include "ngx_http_llm_capture_sample.h"


/* ms between two wake-ups for the sake of a warning about one reason */
#define NGX_HTTP_LLM_CAPTURE_TELL    60000
/* outcomes remembered that found no room: as many as there can be chains */
#define NGX_HTTP_LLM_CAPTURE_MISSES  NGX_HTTP_LLM_CAPTURE_CHAINS
/* and told of at a time */
#define NGX_HTTP_LLM_CAPTURE_MISSES_TOLD  128


typedef struct {
    uint64_t                           uid;
    uint64_t                           hash;        /* of the template */
} ngx_http_llm_capture_missed_t;


typedef struct {
    ngx_http_llm_capture_main_conf_t  *mcf;         /* NULL: no capture */

    ngx_uint_t                         n;           /* the ring claimed */
    ngx_http_llm_capture_ring_t        ring;
    ngx_http_llm_capture_row_t        *rows;
    uint64_t                           id;          /* of the next BEGIN */

    ngx_http_llm_capture_sample_t      sample;
    ngx_connection_t                  *idle;        /* told of the shutdown */
    ngx_msec_t                         told[NGX_HTTP_LLM_CAPTURE_C_max];

    ngx_uint_t                         nmissed;

    unsigned                           claimed:1;
    unsigned                           closing:1;
} ngx_http_llm_capture_worker_t;


static ngx_int_t ngx_http_llm_capture_claim(void);
static void ngx_http_llm_capture_tell_missed(void);
static void ngx_http_llm_capture_release(void);
static void ngx_http_llm_capture_wake(void);
static void ngx_http_llm_capture_watch_shutdown(ngx_cycle_t *cycle);
static void ngx_http_llm_capture_shutdown(ngx_event_t *ev);


static ngx_http_llm_capture_worker_t  worker;
static ngx_http_llm_capture_missed_t  missed[NGX_HTTP_LLM_CAPTURE_MISSES];


ngx_int_t
ngx_http_llm_capture_worker_init(ngx_cycle_t *cycle)
{
    uint64_t                           seed[4];
    ngx_http_llm_capture_main_conf_t  *mcf;

    ngx_memzero(&worker, sizeof(ngx_http_llm_capture_worker_t));

    ngx_http_llm_capture_kept_drop();
    ngx_http_llm_capture_pause_init();

    /* cache manager, cache loader and foreign helpers come here as well */

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    mcf = ngx_http_llm_capture_main_conf(cycle);

    if (mcf == NULL) {
        return NGX_OK;
    }

    /* seeds differ between workers, pods and respawns */

    if (getrandom(seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed)) {
        seed[0] = (uint64_t) ngx_pid;
        seed[1] = (uint64_t) ngx_current_msec;
        seed[2] = (uint64_t) ngx_random();
        seed[3] = (uint64_t) (uintptr_t) &seed;
    }

    ngx_http_llm_capture_sample_init(&worker.sample, seed);

    worker.mcf = mcf;

    if (ngx_process == NGX_PROCESS_SINGLE) {
        return ngx_http_llm_capture_single_init(cycle);
    }

    /* the helper stays for as long as anybody holds this one */

    (void) ngx_http_llm_capture_lock_worker(mcf);
    (void) ngx_http_llm_capture_lock_byte(
                             ngx_http_llm_capture_pid_byte(ngx_pid), F_WRLCK);

    ngx_http_llm_capture_watch_shutdown(cycle);

    return NGX_OK;
}


void
ngx_http_llm_capture_worker_exit(ngx_cycle_t *cycle)
{
    ngx_uint_t                        n;
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    if (worker.mcf == NULL) {
        return;
    }

    if (worker.nmissed
        && (worker.claimed || ngx_http_llm_capture_claim() == NGX_OK))
    {
        /* those it has room for by now; of others the helper sees our death */

        do {
            n = worker.nmissed;
            ngx_http_llm_capture_tell_missed();
        } while (worker.nmissed && worker.nmissed < n);

        ngx_http_llm_capture_ring_publish(&worker.ring);
    }

    /*
     * What is still in flight here will not go on: the helper aborts it.  The
     * lock goes with the process.
     */

    if (worker.claimed) {
        hdr = worker.ring.hdr;
        atomic_store_explicit(&hdr->closed, 1, memory_order_release);
        ngx_http_llm_capture_wake();
    }

    if (ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_llm_capture_single_exit(cycle);
    }

    worker.mcf = NULL;
}


void
ngx_http_llm_capture_seen(ngx_uint_t row)
{
    ngx_http_llm_capture_row_t  *rows;

    if (worker.claimed || ngx_http_llm_capture_claim() == NGX_OK) {

        /* should the worker die from here on, the helper mends the sum */

        atomic_store_explicit(&worker.ring.hdr->deciding, row + 1,
                              memory_order_release);
        ngx_http_llm_capture_count(worker.rows + row,
                                   NGX_HTTP_LLM_CAPTURE_C_seen, 1);
        return;
    }

    rows = ngx_http_llm_capture_zone_rows(&worker.mcf->zone,
                                          worker.mcf->zone.nrings);

    ngx_http_llm_capture_count_shared(rows + row, NGX_HTTP_LLM_CAPTURE_C_seen,
                                      1);
}


void
ngx_http_llm_capture_refuse(ngx_uint_t row, ngx_http_llm_capture_counter_e why)
{
    ngx_http_llm_capture_row_t  *rows;

    if (worker.claimed) {
        ngx_http_llm_capture_count(worker.rows + row, why, 1);
        atomic_store_explicit(&worker.ring.hdr->deciding, 0,
                              memory_order_release);

        if (worker.closing) {
            /* a late body has claimed it, maybe for no more than this */
            ngx_http_llm_capture_release();
        }

    } else {
        rows = ngx_http_llm_capture_zone_rows(&worker.mcf->zone,
                                              worker.mcf->zone.nrings);
        ngx_http_llm_capture_count_shared(rows + row, why, 1);
    }

    if (why == NGX_HTTP_LLM_CAPTURE_C_unmatched
        || why == NGX_HTTP_LLM_CAPTURE_C_paused
        || why == NGX_HTTP_LLM_CAPTURE_C_sampled_out)
    {
        return;
    }

    /* the helper writes the warnings, but it may be asleep */

    if (worker.told[why] == 0
        || ngx_current_msec - worker.told[why] > NGX_HTTP_LLM_CAPTURE_TELL)
    {
        worker.told[why] = ngx_current_msec;
        ngx_http_llm_capture_wake();
    }
}


ngx_uint_t
ngx_http_llm_capture_sampled(uint64_t sample)
{
    return ngx_http_llm_capture_sample(&worker.sample, sample);
}


uint64_t
ngx_http_llm_capture_uid(void)
{
    uint64_t  uid;

    do {
        uid = ngx_http_llm_capture_sample_next(&worker.sample);
    } while (uid == 0);

    return uid;
}


ngx_uint_t
ngx_http_llm_capture_room(size_t len)
{
    return worker.claimed
           && ngx_http_llm_capture_ring_room(&worker.ring) >= len;
}


ngx_int_t
ngx_http_llm_capture_put(ngx_http_llm_capture_record_t *rec,
    struct iovec *iov, ngx_uint_t n, ngx_uint_t flags)
{
    ngx_uint_t  first;

    if (!worker.claimed) {
        /* no free ring: tried again at the next body */
        return NGX_DECLINED;
    }

    first = !rec->begun;

    if (first) {
        rec->id = worker.id;
    }

    if (ngx_http_llm_capture_record_put(&worker.ring, rec, iov, n, flags)
        != 0)
    {
        if (rec->begun) {
            worker.id += first;
            ngx_http_llm_capture_abort(rec, NGX_HTTP_LLM_CAPTURE_C_queue_full);
        }

        ngx_http_llm_capture_wake();

        return NGX_DECLINED;
    }

    worker.id += first;

    ngx_http_llm_capture_ring_publish(&worker.ring);

    if (first) {
        atomic_store_explicit(&worker.ring.hdr->deciding, 0,
                              memory_order_release);
    }

    /*
     * Nothing to do for the helper before the end of a body, but for moving
     * slow ones out when they pin the ring
     */

    if (flags || ngx_http_llm_capture_ring_used(&worker.ring)
                 > worker.mcf->zone.ring_size / 2)
    {
        ngx_http_llm_capture_wake();
    }

    if (flags && worker.closing) {
        ngx_http_llm_capture_release();
    }

    return NGX_OK;
}


/* NGX_DECLINED: the ring is full */

static ngx_int_t
ngx_http_llm_capture_push_outcome(const ngx_http_llm_capture_begin_t *begin,
    const char *path, struct iovec *iov, ngx_uint_t n)
{
    ngx_http_llm_capture_record_t  rec;

    ngx_memzero(&rec, sizeof(ngx_http_llm_capture_record_t));

    rec.id = begin->uid | NGX_HTTP_LLM_CAPTURE_ID_OUTCOME;
    rec.begin = *begin;
    rec.path = path;

    if (ngx_http_llm_capture_record_put(&worker.ring, &rec, iov, n,
                                        NGX_HTTP_LLM_CAPTURE_END)
        == 0)
    {
        return NGX_OK;
    }

    if (rec.begun) {
        ngx_http_llm_capture_record_abort(&worker.ring, &rec,
                                          NGX_HTTP_LLM_CAPTURE_C_queue_full);
        return NGX_OK;
    }

    return NGX_DECLINED;
}


/*
 * Somebody waits for each outcome, with a place in the arena if its row needs
 * it: of one that finds no room at least the number is told, as soon as there
 * is some.  Those beyond the table are counted when this worker is gone.
 */

static void
ngx_http_llm_capture_miss(const ngx_http_llm_capture_begin_t *begin)
{
    if (worker.nmissed < NGX_HTTP_LLM_CAPTURE_MISSES) {
        missed[worker.nmissed].uid = begin->uid;
        missed[worker.nmissed++].hash = begin->hash;
    }
}


static void
ngx_http_llm_capture_tell_missed(void)
{
    ngx_uint_t                    n;
    ngx_http_llm_capture_begin_t  begin;

    ngx_memzero(&begin, sizeof(ngx_http_llm_capture_begin_t));

    begin.format = NGX_HTTP_LLM_CAPTURE_OUTCOMES;
    begin.flags = NGX_HTTP_LLM_CAPTURE_MISSED;
    begin.pid = (uint32_t) ngx_pid;

    for (n = NGX_HTTP_LLM_CAPTURE_MISSES_TOLD; n && worker.nmissed; n--) {

        begin.uid = missed[worker.nmissed - 1].uid;
        begin.hash = missed[worker.nmissed - 1].hash;

        if (ngx_http_llm_capture_push_outcome(&begin, "", NULL, 0) != NGX_OK) {
            return;
        }

        worker.nmissed--;
    }
}


void
ngx_http_llm_capture_put_outcome(const ngx_http_llm_capture_begin_t *begin,
    const char *path, struct iovec *iov, ngx_uint_t n)
{
    /* an old worker has given its ring back long before the last answers */

    if (!worker.claimed && ngx_http_llm_capture_claim() != NGX_OK) {
        ngx_http_llm_capture_miss(begin);
        return;
    }

    ngx_http_llm_capture_tell_missed();

    if (ngx_http_llm_capture_push_outcome(begin, path, iov, n) != NGX_OK) {
        ngx_http_llm_capture_miss(begin);
    }

    ngx_http_llm_capture_ring_publish(&worker.ring);
    ngx_http_llm_capture_wake();

    if (worker.closing) {
        ngx_http_llm_capture_release();
    }
}


void
ngx_http_llm_capture_abort(ngx_http_llm_capture_record_t *rec,
    ngx_http_llm_capture_counter_e why)
{
    ngx_http_llm_capture_record_abort(&worker.ring, rec, why);
    ngx_http_llm_capture_ring_publish(&worker.ring);

    atomic_store_explicit(&worker.ring.hdr->deciding, 0, memory_order_release);

    ngx_http_llm_capture_wake();

    if (worker.closing) {
        ngx_http_llm_capture_release();
    }
}


static ngx_int_t
ngx_http_llm_capture_claim(void)
{
    uint64_t                          owner;
    ngx_uint_t                        i;
    ngx_http_llm_capture_zone_t      *z;
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    z = &worker.mcf->zone;

    for (i = 0; i < z->nrings; i++) {
        hdr = ngx_http_llm_capture_zone_ring(z, i);

        if (atomic_load_explicit(&hdr->owner, memory_order_relaxed) != 0
            || ngx_http_llm_capture_lock_byte(worker.mcf->lock + 1 + i, F_WRLCK)
               != NGX_OK)
        {
            continue;
        }

        /* the lock first: an owner without a lock is dead for the helper */

        owner = 0;

        if (atomic_compare_exchange_strong_explicit(&hdr->owner, &owner,
                                                    (uint64_t) ngx_pid,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed))
        {
            worker.n = i;
            worker.rows = ngx_http_llm_capture_zone_rows(z, i);
            worker.id = atomic_load_explicit(&hdr->last_id,
                                             memory_order_acquire) + 1;

            ngx_http_llm_capture_ring_open(&worker.ring, hdr,
                                       ngx_http_llm_capture_zone_data(z, i),
                                       z->ring_size);
            worker.claimed = 1;

            return NGX_OK;
        }

        (void) ngx_http_llm_capture_lock_byte(worker.mcf->lock + 1 + i,
                                              F_UNLCK);
    }

    return NGX_DECLINED;
}


/*
 * Over a reload old and new workers hold rings side by side, and an old one may
 * stay for hours over a long answer: what it does not need must come back.
 */

static void
ngx_http_llm_capture_release(void)
{
    if (!worker.claimed || worker.ring.inflight) {
        return;
    }

    atomic_store_explicit(&worker.ring.hdr->closed, 1, memory_order_release);
    (void) ngx_http_llm_capture_lock_byte(worker.mcf->lock + 1 + worker.n,
                                          F_UNLCK);

    worker.claimed = 0;

    ngx_http_llm_capture_wake();
}


static void
ngx_http_llm_capture_wake(void)
{
    uint64_t                          one;
    ngx_http_llm_capture_zone_hdr_t  *h;

    if (ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_llm_capture_single_wake();
        return;
    }

    /*
     * Published, then asleep; the helper: asleep, then published.  One of both
     * sees the other, so no wake-up is lost.
     */

    atomic_thread_fence(memory_order_seq_cst);

    h = ngx_http_llm_capture_zone_hdr(&worker.mcf->zone);

    if (atomic_load_explicit(&h->asleep, memory_order_relaxed)
        && atomic_exchange_explicit(&h->asleep, 0, memory_order_acq_rel))
    {
        one = 1;

        if (write(ngx_http_llm_capture_wake_fd, &one, sizeof(one)) == -1) {
            /* only EAGAIN at 2^64 wake-ups: the helper has them before it */
        }
    }
}


/*
 * nginx tells idle connections of a graceful shutdown and nobody else: one
 * that is nothing but idle hears it at once.
 */

static void
ngx_http_llm_capture_watch_shutdown(ngx_cycle_t *cycle)
{
    ngx_connection_t  *c;

    c = ngx_get_connection(ngx_http_llm_capture_wake_fd, cycle->log);

    if (c == NULL) {
        /* the ring then comes back at exit */
        return;
    }

    c->idle = 1;
    c->log = cycle->log;
    c->read->log = cycle->log;
    c->write->log = cycle->log;
    c->read->handler = ngx_http_llm_capture_shutdown;

    worker.idle = c;
}


static void
ngx_http_llm_capture_shutdown(ngx_event_t *ev)
{
    ngx_connection_t  *c;

    c = ev->data;

    if (!c->close) {
        return;
    }

    /* not through ngx_close_connection(): the descriptor is not its own */

    c->idle = 0;
    ngx_free_connection(c);
    c->fd = (ngx_socket_t) -1;

    worker.idle = NULL;
    worker.closing = 1;

    ngx_http_llm_capture_release();
}
