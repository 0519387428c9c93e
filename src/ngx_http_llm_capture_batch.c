
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Ready uploads -> batches -> their file: sorted by arrival, written straight
 * out of the rings.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_live.h"


#define NGX_HTTP_LLM_CAPTURE_BATCH_BYTES  (4 * 1024 * 1024)


static char  brace[] = "{";


static int
ngx_http_llm_capture_later(const ngx_http_llm_capture_upload_t *a,
    const ngx_http_llm_capture_upload_t *b)
{
    if (a->mono != b->mono) {
        return a->mono > b->mono;
    }

    if (a->ring != b->ring) {
        return a->ring > b->ring;
    }

    /* the numbers of outcomes have no order */

    return ngx_http_llm_capture_is_answer(a) ? a->pos > b->pos
                                             : a->id > b->id;
}


/* a merge sort of what is nearly sorted: by arrival, ring, order in it */

static ngx_http_llm_capture_upload_t *
ngx_http_llm_capture_sort(ngx_http_llm_capture_upload_t *list, unsigned n)
{
    unsigned                        half;
    ngx_http_llm_capture_upload_t  *a, *b, *u, **last;

    if (n < 2) {
        return list;
    }

    half = n / 2;
    last = &list;

    while (half--) {
        last = &(*last)->next;
    }

    b = *last;
    *last = NULL;

    a = ngx_http_llm_capture_sort(list, n / 2);
    b = ngx_http_llm_capture_sort(b, n - n / 2);

    last = &list;

    while (a && b) {

        if (ngx_http_llm_capture_later(a, b)) {
            u = b;
            b = b->next;

        } else {
            u = a;
            a = a->next;
        }

        *last = u;
        last = &u->next;
    }

    *last = a ? a : b;

    return list;
}


static void
ngx_http_llm_capture_queue_sort(ngx_http_llm_capture_queue_t *q)
{
    ngx_http_llm_capture_upload_t  *u;

    for (u = q->first; u && u->next; u = u->next) {
        if (ngx_http_llm_capture_later(u, u->next)) {
            break;
        }
    }

    if (u == NULL || u->next == NULL) {
        return;
    }

    q->first = ngx_http_llm_capture_sort(q->first, q->n);

    while (u->next) {
        u = u->next;
    }

    q->last = &u->next;
}


size_t
ngx_http_llm_capture_upload_niov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    if (u->text || u->told) {
        return 1;
    }

    return (size_t) u->brace
           + (u->chain == NGX_HTTP_LLM_CAPTURE_NONE
              ? u->npieces : ngx_http_llm_capture_spill_niov(d, u));
}


void
ngx_http_llm_capture_upload_iov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, struct iovec *iov)
{
    size_t                         n, skip;
    uint8_t                       *data;
    struct iovec                  *v;
    ngx_http_llm_capture_piece_t  *piece;

    if (u->text) {
        iov->iov_base = u->text;
        iov->iov_len = u->text_len;
        return;
    }

    if (u->brace) {
        iov->iov_base = brace;
        iov->iov_len = 1;
        iov++;
    }

    v = iov;

    if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
        ngx_http_llm_capture_spill_iov(d, u, v);
        v += ngx_http_llm_capture_spill_niov(d, u);

    } else {
        data = ngx_http_llm_capture_zone_data(&d->zone, u->ring);

        for (piece = u->first; piece; piece = piece->next, v++) {
            v->iov_base = data + piece->at + piece->body;
            v->iov_len = piece->len;
        }
    }

    for (skip = (size_t) u->head; skip; iov++) {
        n = skip < iov->iov_len ? skip : iov->iov_len;
        iov->iov_base = (uint8_t *) iov->iov_base + n;
        iov->iov_len -= n;
        skip -= n;
    }

    for (skip = (size_t) u->trail; skip; /* void */) {
        v--;
        n = skip < v->iov_len ? skip : v->iov_len;
        v->iov_len -= n;
        skip -= n;
    }
}


int
ngx_http_llm_capture_lines(ngx_http_llm_capture_drain_t *d, unsigned n,
    size_t niov)
{
    unsigned                        i;
    struct iovec                   *iov;
    ngx_http_llm_capture_line_t    *line;
    ngx_http_llm_capture_upload_t  *u;

    if (niov > d->niov) {
        iov = realloc(d->iov, niov * sizeof(struct iovec));

        if (iov == NULL) {
            return -1;
        }

        d->iov = iov;
        d->niov = niov;
    }

    iov = d->iov;

    for (i = 0; i < n; i++) {
        u = d->batch[i];
        line = &d->lines[i];

        line->wall = u->wall;
        line->mono = u->mono;
        line->ts = 0;
        line->uid = u->uid;
        line->session = u->session;
        line->body = iov;
        line->nbody = (uint32_t) ngx_http_llm_capture_upload_niov(d, u);

        ngx_http_llm_capture_upload_iov(d, u, iov);

        iov += line->nbody;
    }

    return 0;
}


/* the earliest arrival that is still to go to this file */

static void
ngx_http_llm_capture_earliest(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, uint64_t *wall, uint64_t *mono)
{
    unsigned                        i;
    ngx_http_llm_capture_upload_t  *u;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->open[i]; u; u = u->bucket) {
            if (u->dest->file == dest->file && u->mono < *mono) {
                *mono = u->mono;
                *wall = u->wall;
            }
        }

        for (u = d->nheld ? d->pairs[i] : NULL; u; u = u->pair) {
            if (u->held && u->dest->file == dest->file && u->mono < *mono) {
                *mono = u->mono;
                *wall = u->wall;
            }
        }
    }
}


/* rows of a trace are made only now: their numbers hang on the file's key */

static int
ngx_http_llm_capture_texts(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest)
{
    unsigned                        left, good, bad;
    const uint8_t                  *key;
    ngx_http_llm_capture_upload_t  *u, *next;

    key = ngx_http_llm_capture_writer_key(d->conf.writer, dest->file, d->now);

    if (key == NULL) {
        ngx_http_llm_capture_writer_later(d->conf.writer, dest->file, d->now);
        ngx_http_llm_capture_live_failed(d, dest);
        return -1;
    }

    good = 0;
    bad = 0;
    u = dest->ready.first;

    /* all of the next batch: it takes what comes behind one that is bad */

    for (left = dest->ready.n;
         left && good < NGX_HTTP_LLM_CAPTURE_BATCH;
         left--, u = next)
    {
        next = u->next;

        if (ngx_http_llm_capture_trace_text(d, u, key) == 0) {
            good++;

        } else {
            ngx_http_llm_capture_upload_give_up(d, u);
            bad = 1;
        }
    }

    if (bad) {
        ngx_http_llm_capture_settle(d);
    }

    return 0;
}


/* takes the next batch off the queue, which is sorted */

static unsigned
ngx_http_llm_capture_batch(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, size_t *niov)
{
    unsigned                        n;
    uint64_t                        bytes;
    ngx_http_llm_capture_queue_t   *q;
    ngx_http_llm_capture_upload_t  *u;

    q = &dest->ready;
    bytes = 0;
    *niov = 0;

    for (n = 0; q->n && n < NGX_HTTP_LLM_CAPTURE_BATCH; n++) {
        u = q->first;

        if (n && bytes + u->len > NGX_HTTP_LLM_CAPTURE_BATCH_BYTES) {
            break;
        }

        bytes += u->len;
        *niov += ngx_http_llm_capture_upload_niov(d, u);

        q->first = u->next;
        q->n--;
        d->batch[n] = u;
    }

    return n;
}


/* if the disk is not to take it, it is counted at once: nothing waits */

static int
ngx_http_llm_capture_batch_fits(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, unsigned n)
{
    uint64_t                        bytes;
    unsigned                        i;
    ngx_http_llm_capture_upload_t  *u;

    for (bytes = 0, i = 0; i < n; i++) {
        u = d->batch[i];
        bytes += (u->text ? u->text_len : u->len)
                 + NGX_HTTP_LLM_CAPTURE_JOIN;
    }

    if (ngx_http_llm_capture_disk_room(d, dest, bytes)) {
        return 1;
    }

    for (i = 0; i < n; i++) {
        ngx_http_llm_capture_upload_refuse(d, d->batch[i],
                                           NGX_HTTP_LLM_CAPTURE_C_disk_limit);
    }

    return 0;
}


/* what was not written goes back to the front of the queue, in its order */

static void
ngx_http_llm_capture_unbatch(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, unsigned from, unsigned n)
{
    ngx_http_llm_capture_queue_t  *q;

    q = &dest->ready;

    if (q->n == 0) {
        q->first = NULL;
        q->last = &q->first;
    }

    while (n-- > from) {
        d->batch[n]->next = q->first;

        if (q->first == NULL) {
            q->last = &d->batch[n]->next;
        }

        q->first = d->batch[n];
        q->n++;
    }
}


/* one batch; 1: more may follow, 0: this file has to wait */

static int
ngx_http_llm_capture_write(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest)
{
    size_t                          niov;
    ssize_t                         rc;
    unsigned                        n, done;
    uint64_t                        wall, mono;
    uint64_t                        add[NGX_HTTP_LLM_CAPTURE_C_max];
    ngx_http_llm_capture_intent_t  *it;

    if (ngx_http_llm_capture_is_trace(dest->format)) {

        if (ngx_http_llm_capture_texts(d, dest) == -1) {
            return 0;
        }

        if (dest->ready.n == 0) {
            return 1;
        }
    }

    n = ngx_http_llm_capture_batch(d, dest, &niov);

    if (!ngx_http_llm_capture_batch_fits(d, dest, n)) {
        ngx_http_llm_capture_settle(d);
        return 1;
    }

    if (ngx_http_llm_capture_lines(d, n, niov) == -1) {
        ngx_http_llm_capture_unbatch(d, dest, 0, n);
        return 0;
    }

    wall = d->batch[0]->wall;
    mono = d->batch[0]->mono;

    if (!dest->file->epoch_known) {
        ngx_http_llm_capture_earliest(d, dest, &wall, &mono);
    }

    it = ngx_http_llm_capture_zone_intent(&d->zone);

    it->row = dest->row;
    ngx_http_llm_capture_commit_refs(d, d->batch, n);

    rc = ngx_http_llm_capture_writer_write(d->conf.writer, dest->file,
                                           dest->format, d->lines, n, wall,
                                           mono, it, d->now);

    memset(add, 0, sizeof(add));

    done = rc > 0 ? (unsigned) rc : 0;

    if (done < n && dest->file->error != EAGAIN) {
        add[NGX_HTTP_LLM_CAPTURE_C_write_errors] = 1;
        ngx_http_llm_capture_live_failed(d, dest);
    }

    if (rc == NGX_HTTP_LLM_CAPTURE_NEVER) {
        add[dest->format == NGX_HTTP_LLM_CAPTURE_OUTCOMES
                ? NGX_HTTP_LLM_CAPTURE_C_outcome_failed
                : NGX_HTTP_LLM_CAPTURE_C_failed] = n;
        ngx_http_llm_capture_commit(d, dest->row, dest->account, d->batch, n,
                                    add);
        return 1;
    }

    ngx_http_llm_capture_commit_written(d, dest, done, add);
    ngx_http_llm_capture_live_written(d, dest, done,
                                      add[NGX_HTTP_LLM_CAPTURE_C_bytes]);
    ngx_http_llm_capture_unbatch(d, dest, done, n);

    if (done) {
        ngx_http_llm_capture_book_written(d, dest, it, done);
    }

    ngx_http_llm_capture_commit(d, dest->row, dest->account, d->batch, done,
                                add);
    ngx_http_llm_capture_book_committed(d, dest);

    return done == n;
}


void
ngx_http_llm_capture_write_all(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                       i;
    ngx_http_llm_capture_dest_t   *dest, **p;

    for (p = &d->busy; *p; /* void */) {
        dest = *p;

        if (dest->ready.n && dest->file->retry_at <= d->now) {
            ngx_http_llm_capture_queue_sort(&dest->ready);

            while (dest->ready.n && ngx_http_llm_capture_write(d, dest)) {

                /* the producers get their space back as early as may be */

                for (i = 0; i < d->zone.nrings; i++) {
                    ngx_http_llm_capture_advance(d, i);
                }
            }
        }

        if (dest->ready.n) {
            p = &dest->busy;
            continue;
        }

        *p = dest->busy;
        dest->is_busy = 0;
    }
}
