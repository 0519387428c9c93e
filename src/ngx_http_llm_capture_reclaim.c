
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What a ring gets back: space pinned by bodies that cannot go on, pages that
 * a stall left behind, and the ring itself when its worker is gone.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_upload.h"
#include "ngx_http_llm_capture_point.h"


/* ms over which the use of a ring is watched before pages are given back */
#define NGX_HTTP_LLM_CAPTURE_PERIOD  10000
/* bytes given back at a time */
#define NGX_HTTP_LLM_CAPTURE_STEP    (256 * 1024)


/*
 * From the oldest frame to the newest, without what the producer left free to
 * go to the front: it comes back to that.  Behind an old lap, where a JUMP
 * leads when the front is full up to it, all of the ring up to the head is in
 * use.  A head that runs over what is not finished, round and round, leaves
 * nothing: what a spoiled ring makes us remember stays below two laps.
 */

static size_t
ngx_http_llm_capture_pinned(ngx_http_llm_capture_drain_t *d, uint32_t ring)
{
    size_t                              head, tail;
    uint32_t                            laps;
    ngx_http_llm_capture_drain_ring_t  *r;

    r = &d->rings[ring];

    if (r->first == NULL) {
        return 0;
    }

    tail = r->first->at;
    head = (size_t) r->reader.off * NGX_HTTP_LLM_CAPTURE_UNIT;

    laps = r->reader.lap - (uint32_t) (r->first->end >> 32);

    if (laps == 0) {
        return head - tail;
    }

    if (laps == 1 && head < tail) {
        return r->left - tail + head;
    }

    return laps == 1 && head >= r->left ? head : d->zone.ring_size;
}


/*
 * More than half of a ring stands behind one body that cannot go on: a slow
 * one is moved, one that waits for a failing disk is given up.
 */

void
ngx_http_llm_capture_unpin(ngx_http_llm_capture_drain_t *d, uint32_t ring)
{
    ngx_http_llm_capture_upload_t      *u;
    ngx_http_llm_capture_drain_ring_t  *r;

    r = &d->rings[ring];

    for ( ;; ) {

        /* what is done pins nothing, and leaves an upload in front */

        ngx_http_llm_capture_advance(d, ring);

        if (ngx_http_llm_capture_pinned(d, ring) <= d->zone.ring_size / 2) {
            return;
        }

        u = r->first->upload;

        if (u->state == NGX_HTTP_LLM_CAPTURE_U_PAIRED) {
            /* it goes with its request */
            u = ngx_http_llm_capture_upload_pair(d, u->uid, 0);
        }

        if (u->state == NGX_HTTP_LLM_CAPTURE_U_OPEN) {
            if (ngx_http_llm_capture_spill(d, u) == -1) {
                ngx_http_llm_capture_upload_refuse(d, u,
                                        NGX_HTTP_LLM_CAPTURE_C_queue_full);
                ngx_http_llm_capture_settle(d);
            }

            continue;
        }

        if (u->state != NGX_HTTP_LLM_CAPTURE_U_PARKED
            && (u->dest->file == NULL
                || !ngx_http_llm_capture_file_failing(u->dest->file, d->now)))
        {
            /* it is about to be written */
            return;
        }

        ngx_http_llm_capture_upload_give_up(d, u);
        ngx_http_llm_capture_settle(d);
    }
}


/* pages above what was used for a while go back to the system */

void
ngx_http_llm_capture_shrink(ngx_http_llm_capture_drain_t *d, uint32_t ring)
{
    size_t                              keep, from;
    ngx_http_llm_capture_piece_t       *piece;
    ngx_http_llm_capture_drain_ring_t  *r;

    r = &d->rings[ring];

    if (r->high > r->touched) {
        r->touched = r->high;
    }

    keep = NGX_HTTP_LLM_CAPTURE_FLOOR;

    if (r->high > keep) {
        keep = (r->high + NGX_HTTP_LLM_CAPTURE_STEP - 1)
               / NGX_HTTP_LLM_CAPTURE_STEP * NGX_HTTP_LLM_CAPTURE_STEP;
    }

    if (r->touched <= keep) {

        /* all of it was used just now: the next period tells, if none comes */

        r->due = r->touched > NGX_HTTP_LLM_CAPTURE_FLOOR
                   ? d->now + NGX_HTTP_LLM_CAPTURE_PERIOD : 0;
        r->high = 0;
        return;
    }

    if (r->due == 0) {
        r->due = d->now + NGX_HTTP_LLM_CAPTURE_PERIOD;
        return;
    }

    if (d->now < r->due) {
        return;
    }

    for (piece = r->first; piece; piece = piece->behind) {
        if (piece->at >= keep || piece->at + piece->body + piece->len > keep) {
            keep = r->touched;
        }
    }

    while (r->touched > keep) {
        from = (r->touched - 1) / NGX_HTTP_LLM_CAPTURE_STEP
               * NGX_HTTP_LLM_CAPTURE_STEP;

        if (from < keep) {
            from = keep;
        }

        if (ngx_http_llm_capture_ring_punch(
                ngx_http_llm_capture_zone_ring(&d->zone, ring),
                ngx_http_llm_capture_zone_data(&d->zone, ring),
                from, r->touched,
                ngx_http_llm_capture_pos(r->reader.lap, r->reader.off))
            != 1)
        {
            break;
        }

        r->touched = from;
    }

    /* the next period */

    r->due = r->touched > NGX_HTTP_LLM_CAPTURE_FLOOR
               ? d->now + NGX_HTTP_LLM_CAPTURE_PERIOD : 0;
    r->high = 0;
}


static void
ngx_http_llm_capture_free_ring(ngx_http_llm_capture_drain_t *d, uint32_t ring)
{
    uint64_t                            head;
    unsigned                            broken;
    ngx_http_llm_capture_ring_hdr_t    *hdr;
    ngx_http_llm_capture_drain_ring_t  *r;

    r = &d->rings[ring];
    hdr = ngx_http_llm_capture_zone_ring(&d->zone, ring);

    broken = r->broken;
    head = atomic_load_explicit(&hdr->head, memory_order_acquire);

    if (!broken
        && head != ngx_http_llm_capture_pos(r->reader.lap, r->reader.off))
    {
        return;
    }

    ngx_http_llm_capture_commit_repair(d, ring, broken);

    NGX_HTTP_LLM_CAPTURE_POINT("ring repaired");

    if (broken) {

        /*
         * What stands behind the place where it broke is not known.  It has
         * been counted: a successor would not find it broken any more.
         */

        r->reader.lap = (uint32_t) (head >> 32) + 1;
        r->reader.off = 0;
        head = ngx_http_llm_capture_pos(r->reader.lap, 0);

        atomic_store_explicit(&hdr->head, head, memory_order_relaxed);
        NGX_HTTP_LLM_CAPTURE_POINT("ring reset");
        atomic_store_explicit(&hdr->tail, head, memory_order_release);
        r->broken = 0;
    }

    r->gone = 0;

    /* or pages above the last frame would stay for the next owner */

    atomic_store_explicit(&hdr->want, 0, memory_order_relaxed);
    atomic_store_explicit(&hdr->deciding, 0, memory_order_relaxed);
    atomic_store_explicit(&hdr->closed, 0, memory_order_relaxed);
    atomic_store_explicit(&hdr->owner, 0, memory_order_release);

    NGX_HTTP_LLM_CAPTURE_POINT("ring freed");
}


/*
 * A disk that fails for long, and reload after reload: each leaves rings that
 * wait for it.  With more than half of all rings gone so, what waits in them
 * is given up, or soon no worker would find one, for any destination.
 */

static void
ngx_http_llm_capture_relieve(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                        i, gone;
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_upload_t  *u, *next;

    for (gone = 0, i = 0; i < d->zone.nrings; i++) {
        gone += d->rings[i].gone;
    }

    if (gone <= d->zone.nrings / 2) {
        return;
    }

    for (dest = d->busy; dest; dest = dest->busy) {

        if (!ngx_http_llm_capture_file_failing(dest->file, d->now)) {
            continue;
        }

        for (u = dest->ready.n ? dest->ready.first : NULL; u; u = next) {
            next = u->next;

            if (d->rings[(u->partner ? u->partner : u)->ring].gone) {
                ngx_http_llm_capture_upload_give_up(d, u);
            }
        }
    }
}


/* the rings of workers that left: what is unfinished there stays so */

void
ngx_http_llm_capture_leave(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                            i;
    ngx_http_llm_capture_drain_ring_t  *r;

    for (i = 0; i < d->zone.nrings; i++) {
        r = &d->rings[i];

        if (!r->gone) {
            continue;
        }

        ngx_http_llm_capture_upload_refuse_open(d, i,
                                              NGX_HTTP_LLM_CAPTURE_C_aborted);
    }

    ngx_http_llm_capture_relieve(d);
    ngx_http_llm_capture_settle(d);

    for (i = 0; i < d->zone.nrings; i++) {
        r = &d->rings[i];

        if (!r->gone) {
            continue;
        }

        ngx_http_llm_capture_advance(d, i);

        /* owned: something is still to be written, for whoever asks at exit */

        if (r->first == NULL && r->nuploads == 0
            && !NGX_HTTP_LLM_CAPTURE_BROKEN("reclaim"))
        {
            ngx_http_llm_capture_free_ring(d, i);
        }
    }
}


/* closed is the last word of an owner: what it published is read after it */

void
ngx_http_llm_capture_look(ngx_http_llm_capture_drain_t *d, uint32_t ring,
    unsigned dead)
{
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    if (d->rings[ring].gone) {
        return;
    }

    hdr = ngx_http_llm_capture_zone_ring(&d->zone, ring);

    if (atomic_load_explicit(&hdr->owner, memory_order_acquire) == 0) {
        return;
    }

    if (atomic_load_explicit(&hdr->closed, memory_order_acquire)
        || (dead && d->conf.dead(d->conf.ctx, ring)))
    {
        d->rings[ring].gone = 1;
    }
}
