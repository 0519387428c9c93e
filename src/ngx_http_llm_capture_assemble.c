
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Frames -> uploads.  A frame's header is copied, checked, and never read
 * again; its body bytes stay where they are until their line is written.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <syslog.h>

#include "ngx_http_llm_capture_upload.h"


static void
ngx_http_llm_capture_piece_add(ngx_http_llm_capture_upload_t *u,
    ngx_http_llm_capture_piece_t *piece)
{
    piece->upload = u;
    piece->next = NULL;

    if (u->last) {
        u->last->next = piece;

    } else {
        u->first = piece;
    }

    u->last = piece;
    u->npieces++;
    u->len += piece->len;
}


/* the bytes of an upload that was moved follow it */

static void
ngx_http_llm_capture_take_moved(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_frame_t *f,
    ngx_http_llm_capture_piece_t *piece)
{
    int       rc;
    uint64_t  skip;

    rc = 0;

    /* a predecessor may have died after the copy and before the mark */

    skip = u->len > f->off ? u->len - f->off : 0;

    if (f->off > u->len) {
        rc = -1;

    } else if (skip < f->len) {
        rc = ngx_http_llm_capture_spill_more(d, u,
                 ngx_http_llm_capture_zone_data(&d->zone, u->ring)
                     + piece->at + piece->body + skip,
                 f->len - (size_t) skip);
    }

    piece->len = 0;
    ngx_http_llm_capture_piece_add(u, piece);

    if (rc == -1) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                        NGX_HTTP_LLM_CAPTURE_C_queue_full);
        return;
    }

    if (f->flags & NGX_HTTP_LLM_CAPTURE_ABORT) {
        return;
    }

    if (f->flags & NGX_HTTP_LLM_CAPTURE_END) {
        ngx_http_llm_capture_spill_ended(d, u);
    }

    ngx_http_llm_capture_piece_mark(d, u, NGX_HTTP_LLM_CAPTURE_MOVED);
}


/* a predecessor held it, and died before it marked the frames */

static int
ngx_http_llm_capture_take_held(ngx_http_llm_capture_drain_t *d, uint32_t ring,
    ngx_http_llm_capture_frame_t *f, ngx_http_llm_capture_begin_t *begin,
    ngx_http_llm_capture_piece_t *piece)
{
    ngx_http_llm_capture_frame_t   *frame;
    ngx_http_llm_capture_upload_t  *u;

    if (!ngx_http_llm_capture_is_trace(begin->format) || begin->uid == 0) {
        return 0;
    }

    u = ngx_http_llm_capture_upload_pair(d, begin->uid, 0);

    if (u == NULL || !u->held || u->ring != ring || u->id != f->id) {
        return 0;
    }

    frame = (ngx_http_llm_capture_frame_t *)
                (ngx_http_llm_capture_zone_data(&d->zone, ring) + piece->at);

    *(volatile uint32_t *) &frame->mark = NGX_HTTP_LLM_CAPTURE_MOVED;

    return 1;
}


static ngx_http_llm_capture_counter_e
ngx_http_llm_capture_abort_why(uint16_t why)
{
    switch (why) {
    case NGX_HTTP_LLM_CAPTURE_C_paused:
    case NGX_HTTP_LLM_CAPTURE_C_too_large:
    case NGX_HTTP_LLM_CAPTURE_C_queue_full:
    case NGX_HTTP_LLM_CAPTURE_C_unreadable:
        return why;
    default:
        return NGX_HTTP_LLM_CAPTURE_C_aborted;
    }
}


/* 0; -1: no frame of a sane producer; 1: no memory, to be read again */

static int
ngx_http_llm_capture_take(ngx_http_llm_capture_drain_t *d, uint32_t ring,
    ngx_http_llm_capture_frame_t *f, ngx_http_llm_capture_piece_t *piece,
    uint64_t pos)
{
    const char                       *path;
    const uint8_t                    *at;
    ngx_http_llm_capture_begin_t      begin;
    ngx_http_llm_capture_upload_t    *u;
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    if (f->flags & NGX_HTTP_LLM_CAPTURE_JUMP) {
        return 0;
    }

    at = ngx_http_llm_capture_zone_data(&d->zone, ring) + piece->at;

    if (ngx_http_llm_capture_record_parse(at, f, &begin, &path, &piece->body)
        != 0)
    {
        return -1;
    }

    hdr = ngx_http_llm_capture_zone_ring(&d->zone, ring);

    if ((f->flags & NGX_HTTP_LLM_CAPTURE_BEGIN)
        && f->id < NGX_HTTP_LLM_CAPTURE_ID_OUTCOME
        && f->id > atomic_load_explicit(&hdr->last_id, memory_order_relaxed))
    {
        atomic_store_explicit(&hdr->last_id, f->id, memory_order_release);
    }

    if (f->mark != 0) {
        return 0;
    }

    u = ngx_http_llm_capture_upload_find(d, ring, f->id);

    if ((f->flags & NGX_HTTP_LLM_CAPTURE_BEGIN) && u == NULL) {

        if (ngx_http_llm_capture_take_held(d, ring, f, &begin, piece)) {
            return 0;
        }

        u = ngx_http_llm_capture_upload_new(d, ring, f->id, &begin, path);

        if (u == NULL) {
            return 1;
        }

        u->pos = pos;
    }

    if (u == NULL) {
        /* the rest of what was counted before its end */
        return 0;
    }

    piece->len = f->len;

    if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
        ngx_http_llm_capture_take_moved(d, u, f, piece);

    } else {
        if (f->off != u->len) {
            return -1;
        }

        ngx_http_llm_capture_piece_add(u, piece);
    }

    if (u->state != NGX_HTTP_LLM_CAPTURE_U_OPEN) {
        return 0;
    }

    if (u->flags & NGX_HTTP_LLM_CAPTURE_MISSED) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                        NGX_HTTP_LLM_CAPTURE_C_queue_full);

    } else if (u->dest->file == NULL) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_bad_path);

    } else if (f->flags & NGX_HTTP_LLM_CAPTURE_ABORT) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                      ngx_http_llm_capture_abort_why(f->why));

    } else if (f->flags & NGX_HTTP_LLM_CAPTURE_END) {
        ngx_http_llm_capture_upload_ended(d, u);
    }

    return 0;
}


/* only memory that another process spoiled gets here */

static void
ngx_http_llm_capture_broken(ngx_http_llm_capture_drain_t *d, uint32_t ring)
{
    d->rings[ring].broken = 1;

    ngx_http_llm_capture_upload_refuse_open(d, ring,
                                            NGX_HTTP_LLM_CAPTURE_C_lost);
    ngx_http_llm_capture_drain_say(d, LOG_ALERT, 0,
                                   "ring %u holds what no worker writes; it is "
                                   "left alone until its worker is gone",
                                   (unsigned) ring);
}


void
ngx_http_llm_capture_assemble(ngx_http_llm_capture_drain_t *d, uint32_t ring)
{
    int                                 rc;
    uint64_t                            head, pos;
    ngx_http_llm_capture_frame_t        f;
    ngx_http_llm_capture_piece_t       *piece;
    ngx_http_llm_capture_reader_t       before;
    ngx_http_llm_capture_drain_ring_t  *r;

    r = &d->rings[ring];

    if (r->broken) {
        return;
    }

    head = atomic_load_explicit(
               &ngx_http_llm_capture_zone_ring(&d->zone, ring)->head,
               memory_order_acquire);

    for ( ;; ) {

        if (head == ngx_http_llm_capture_pos(r->reader.lap, r->reader.off)) {
            return;
        }

        piece = ngx_http_llm_capture_piece_new(d);

        if (piece == NULL) {
            return;
        }

        before = r->reader;
        pos = ngx_http_llm_capture_pos(before.lap, before.off);

        rc = ngx_http_llm_capture_ring_read(&r->reader, head, &f, &piece->at);

        if (r->reader.lap != before.lap) {

            /* at the end of the ring no frame leads to the front */

            r->left = (before.off == before.size)
                      ? d->zone.ring_size : piece->at + f.size;
        }

        if (rc == 0) {
            ngx_http_llm_capture_piece_free(d, piece);
            return;
        }

        piece->end = ngx_http_llm_capture_pos(r->reader.lap, r->reader.off);

        if (rc == 1) {
            rc = ngx_http_llm_capture_take(d, ring, &f, piece, pos);
        }

        if (rc != 0) {
            ngx_http_llm_capture_piece_free(d, piece);
            r->reader = before;

            if (rc == -1) {
                ngx_http_llm_capture_broken(d, ring);
            }

            return;
        }

        if (r->last) {
            r->last->behind = piece;

        } else {
            r->first = piece;
        }

        r->last = piece;

        if (piece->at + f.size > r->high) {
            r->high = piece->at + f.size;
        }
    }
}


void
ngx_http_llm_capture_advance(ngx_http_llm_capture_drain_t *d, uint32_t ring)
{
    uint64_t                            tail;
    unsigned                            moved;
    ngx_http_llm_capture_piece_t       *piece;
    ngx_http_llm_capture_drain_ring_t  *r;

    r = &d->rings[ring];
    moved = 0;
    tail = 0;

    while (r->first && r->first->upload == NULL) {
        piece = r->first;
        r->first = piece->behind;

        tail = piece->end;
        moved = 1;

        ngx_http_llm_capture_piece_free(d, piece);
    }

    if (r->first == NULL) {
        r->last = NULL;
    }

    if (moved) {
        atomic_store_explicit(
            &ngx_http_llm_capture_zone_ring(&d->zone, ring)->tail, tail,
            memory_order_release);
    }
}
