
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * How an outcome is made to count once, though the helper may be killed at
 * any instruction.  The intent in the zone says what is being done, with the
 * counters as they must stand after it: they are set, not added to, so that
 * doing it again does no harm.  Only then the intent is cleared, and only then
 * the tails move over what was marked.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>
#include <syslog.h>

#include "ngx_http_llm_capture_book.h"
#include "ngx_http_llm_capture_point.h"


/* as a row, and an account, must stand after a commit */

typedef struct {
    uint64_t                        n[NGX_HTTP_LLM_CAPTURE_C_max];
    uint64_t                        file[NGX_HTTP_LLM_CAPTURE_C_max];
} ngx_http_llm_capture_after_t;


void
ngx_http_llm_capture_commit_refs(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t **u, unsigned n)
{
    unsigned                        i;
    ngx_http_llm_capture_ref_t     *ref;
    ngx_http_llm_capture_intent_t  *it;

    it = ngx_http_llm_capture_zone_intent(&d->zone);

    for (i = 0; i < n; i++) {
        ref = &it->refs[i];

        ref->ring = u[i]->ring;
        ref->chain = u[i]->chain;
        ref->pos = u[i]->pos;
        ref->id = u[i]->id;
        ref->ts = 0;
    }

    it->nrefs = n;
}


/* its frames are marked, or its blocks freed; nothing knows it any more */

static void
ngx_http_llm_capture_commit_upload(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, unsigned recorded)
{
    /* the answer first: what is held knows of it, and not the other way */

    if (u->partner) {
        ngx_http_llm_capture_commit_upload(d, u->partner, 0);
    }

    if (ngx_http_llm_capture_is_answer(u)) {
        ngx_http_llm_capture_waits_remove(d->waits, u->uid);

    } else if (u->uid && recorded && !u->unanswered
               && !ngx_http_llm_capture_is_trace(u->dest->format))
    {
        (void) ngx_http_llm_capture_waits_add(d->waits, u->uid, u->pid,
                                              u->dest->row, u->ts,
                                              u->session);
    }

    ngx_http_llm_capture_piece_mark(d, u,
                                    NGX_HTTP_LLM_CAPTURE_BROKEN("mark")
                                        ? 0 : NGX_HTTP_LLM_CAPTURE_DONE);

    if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
        ngx_http_llm_capture_spill_free(d, u->chain);
    }

    if (u->dest->account != NGX_HTTP_LLM_CAPTURE_NONE
        && !ngx_http_llm_capture_is_answer(u))
    {
        d->books[u->dest->account].npending--;
    }

    d->nuploads--;
    d->nanswers -= ngx_http_llm_capture_is_answer(u);
    d->rings[u->ring].nuploads -= !u->held;
    d->finished++;

    ngx_http_llm_capture_upload_free(d, u);
}


/* the counters as they must stand; file: NULL without an account */

static void
ngx_http_llm_capture_commit_row(ngx_http_llm_capture_drain_t *d, uint32_t row,
    uint32_t account, const uint64_t n[NGX_HTTP_LLM_CAPTURE_C_max],
    const uint64_t file[NGX_HTTP_LLM_CAPTURE_C_max])
{
    unsigned                        c;
    ngx_http_llm_capture_row_t     *r;
    ngx_http_llm_capture_intent_t  *it;

    it = ngx_http_llm_capture_zone_intent(&d->zone);
    r = ngx_http_llm_capture_zone_helper(&d->zone) + row;

    NGX_HTTP_LLM_CAPTURE_POINT("marked");

    for (c = 0; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
        atomic_store_explicit(&r->n[c], n[c], memory_order_release);
    }

    if (account != NGX_HTTP_LLM_CAPTURE_NONE) {
        memcpy(ngx_http_llm_capture_zone_account(&d->zone, account)->n, file,
               NGX_HTTP_LLM_CAPTURE_C_max * sizeof(uint64_t));
    }

    NGX_HTTP_LLM_CAPTURE_POINT("counted");

    atomic_store_explicit(&it->state, NGX_HTTP_LLM_CAPTURE_INTENT_NONE,
                          memory_order_release);

    NGX_HTTP_LLM_CAPTURE_POINT("committed");
}


static void
ngx_http_llm_capture_commit_begin(ngx_http_llm_capture_drain_t *d,
    uint32_t row, uint32_t account, unsigned n,
    const uint64_t add[NGX_HTTP_LLM_CAPTURE_C_max],
    ngx_http_llm_capture_after_t *after)
{
    unsigned                         c;
    ngx_http_llm_capture_row_t      *r;
    ngx_http_llm_capture_intent_t   *it;
    ngx_http_llm_capture_account_t  *a;

    it = ngx_http_llm_capture_zone_intent(&d->zone);
    r = ngx_http_llm_capture_zone_helper(&d->zone) + row;

    it->row = row;
    it->account = account;
    it->nrefs = n;
    it->recorded = add[NGX_HTTP_LLM_CAPTURE_C_recorded] != 0;

    for (c = 0; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
        after->n[c] = atomic_load_explicit(&r->n[c], memory_order_relaxed)
                      + add[c];
        it->n[c] = after->n[c];
    }

    if (account != NGX_HTTP_LLM_CAPTURE_NONE) {
        a = ngx_http_llm_capture_zone_account(&d->zone, account);

        for (c = 0; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
            after->file[c] = a->n[c] + add[c];
            it->file[c] = after->file[c];
        }
    }

    NGX_HTTP_LLM_CAPTURE_POINT("before commit");

    atomic_store_explicit(&it->state, NGX_HTTP_LLM_CAPTURE_INTENT_COMMIT,
                          memory_order_release);

    NGX_HTTP_LLM_CAPTURE_POINT("commit");
}


void
ngx_http_llm_capture_commit(ngx_http_llm_capture_drain_t *d, uint32_t row,
    uint32_t account, ngx_http_llm_capture_upload_t **u, unsigned n,
    const uint64_t add[NGX_HTTP_LLM_CAPTURE_C_max])
{
    unsigned                      i;
    ngx_http_llm_capture_after_t  after;

    ngx_http_llm_capture_commit_begin(d, row, account, n, add, &after);

    for (i = 0; i < n; i++) {
        if (u[i]) {
            ngx_http_llm_capture_commit_upload(d, u[i],
                                  add[NGX_HTTP_LLM_CAPTURE_C_recorded] != 0);
        }

        NGX_HTTP_LLM_CAPTURE_POINT("marking");
    }

    ngx_http_llm_capture_commit_row(d, row, account, after.n, after.file);
    ngx_http_llm_capture_book_dirty(d, account);
}


void
ngx_http_llm_capture_commit_written(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, unsigned n,
    uint64_t add[NGX_HTTP_LLM_CAPTURE_C_max])
{
    unsigned                        i, asked, room;
    ngx_http_llm_capture_upload_t  *u;

    if (dest->format == NGX_HTTP_LLM_CAPTURE_OUTCOMES) {
        add[NGX_HTTP_LLM_CAPTURE_C_outcomes] = n;
        return;
    }

    asked = 0;
    room = NGX_HTTP_LLM_CAPTURE_WAITS - ngx_http_llm_capture_waits_n(d->waits);

    for (i = 0; i < n; i++) {
        u = d->batch[i];
        u->ts = d->lines[i].ts;
        u->session = d->lines[i].session;

        add[NGX_HTTP_LLM_CAPTURE_C_recorded]++;
        add[NGX_HTTP_LLM_CAPTURE_C_bytes] +=
            ngx_http_llm_capture_line_bytes(dest->format, &d->lines[i]);

        if (u->uid == 0 || ngx_http_llm_capture_is_trace(dest->format)) {
            continue;
        }

        add[NGX_HTTP_LLM_CAPTURE_C_answers]++;

        if (u->unanswered) {
            add[u->unanswered]++;

        } else if (++asked > room) {
            add[NGX_HTTP_LLM_CAPTURE_C_outcome_queue_full]++;
        }
    }
}


void
ngx_http_llm_capture_commit_expired(ngx_http_llm_capture_drain_t *d,
    uint32_t row, const uint64_t *uid, unsigned n)
{
    unsigned                     i;
    uint64_t                      add[NGX_HTTP_LLM_CAPTURE_C_max];
    ngx_http_llm_capture_ref_t   *ref;
    ngx_http_llm_capture_after_t  after;

    memset(add, 0, sizeof(add));
    add[NGX_HTTP_LLM_CAPTURE_C_outcome_aborted] = n;

    for (i = 0; i < n; i++) {
        ref = &ngx_http_llm_capture_zone_intent(&d->zone)->refs[i];

        memset(ref, 0, sizeof(ngx_http_llm_capture_ref_t));
        ref->ring = NGX_HTTP_LLM_CAPTURE_NONE;
        ref->chain = NGX_HTTP_LLM_CAPTURE_EXPIRED;
        ref->id = uid[i];
    }

    ngx_http_llm_capture_commit_begin(d, row, NGX_HTTP_LLM_CAPTURE_NONE, n,
                                      add, &after);

    for (i = 0; i < n; i++) {
        ngx_http_llm_capture_waits_remove(d->waits, uid[i]);
    }

    ngx_http_llm_capture_commit_row(d, row, NGX_HTTP_LLM_CAPTURE_NONE, after.n,
                                    NULL);
}


void
ngx_http_llm_capture_settle(ngx_http_llm_capture_drain_t *d)
{
    uint64_t                        add[NGX_HTTP_LLM_CAPTURE_C_max];
    unsigned                        n;
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_queue_t   *q;
    ngx_http_llm_capture_upload_t  *u;

    while ((dest = d->refusing) != NULL) {
        d->refusing = dest->refusing;
        dest->is_refusing = 0;

        q = &dest->refused;

        while (q->n) {
            memset(add, 0, sizeof(add));

            for (n = 0; q->n && n < NGX_HTTP_LLM_CAPTURE_BATCH; n++) {
                u = q->first;
                q->first = u->next;
                q->n--;

                d->batch[n] = u;

                if (u->why < NGX_HTTP_LLM_CAPTURE_C_max) {
                    add[u->why]++;
                }
            }

            ngx_http_llm_capture_commit_refs(d, d->batch, n);
            ngx_http_llm_capture_commit(d, dest->row, dest->account, d->batch,
                                        n, add);
        }
    }
}


/* n of a ring, of which no BEGIN was read, came to `why` */

static void
ngx_http_llm_capture_commit_unread(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, uint32_t row, ngx_http_llm_capture_counter_e why,
    uint64_t n)
{
    uint64_t                          last;
    uint64_t                          add[NGX_HTTP_LLM_CAPTURE_C_max];
    ngx_http_llm_capture_ref_t       *ref;
    ngx_http_llm_capture_after_t      after;
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    hdr = ngx_http_llm_capture_zone_ring(&d->zone, ring);
    last = atomic_load_explicit(&hdr->last_id, memory_order_relaxed);

    memset(add, 0, sizeof(add));
    add[why] = n;

    ref = &ngx_http_llm_capture_zone_intent(&d->zone)->refs[0];

    memset(ref, 0, sizeof(ngx_http_llm_capture_ref_t));
    ref->ring = ring;
    ref->chain = NGX_HTTP_LLM_CAPTURE_REPAIR;
    ref->id = last + n;

    ngx_http_llm_capture_commit_begin(d, row, NGX_HTTP_LLM_CAPTURE_NONE, 1,
                                      add, &after);
    atomic_store_explicit(&hdr->last_id, last + n, memory_order_release);
    ngx_http_llm_capture_commit_row(d, row, NGX_HTTP_LLM_CAPTURE_NONE, after.n,
                                    NULL);
}


/*
 * Whose they are stands in frames that cannot be read: of rows that this ring
 * counted in, as far as something is pending there.  Returns what is left of n.
 */

static uint64_t
ngx_http_llm_capture_commit_spoiled(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, uint64_t n)
{
    uint64_t                     part;
    uint64_t                     sum[NGX_HTTP_LLM_CAPTURE_C_max];
    uint32_t                     row;
    ngx_http_llm_capture_row_t  *rows;

    rows = ngx_http_llm_capture_zone_rows(&d->zone, ring);

    for (row = 0; n && row < NGX_HTTP_LLM_CAPTURE_ROWS; row++) {

        if (atomic_load_explicit(&rows[row].n[NGX_HTTP_LLM_CAPTURE_C_seen],
                                 memory_order_relaxed)
            == 0)
        {
            continue;
        }

        ngx_http_llm_capture_zone_sum(&d->zone, row, sum);
        part = ngx_http_llm_capture_zone_pending(sum);
        part = part < n ? part : n;

        if (part) {
            ngx_http_llm_capture_commit_unread(d, ring, row,
                                               NGX_HTTP_LLM_CAPTURE_C_lost,
                                               part);
            n -= part;
        }
    }

    return n;
}


/*
 * ids count the BEGINs of a ring, so a worker that died after it had counted
 * seen, and before a reason or a BEGIN, left a sum that is off by one.  In a
 * ring that broke, all that was not read is missing.
 */

void
ngx_http_llm_capture_commit_repair(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, unsigned broken)
{
    uint64_t                          off, row;
    unsigned                          i, c;
    ngx_http_llm_capture_row_t       *rows;
    ngx_http_llm_capture_ring_hdr_t  *hdr;

    hdr = ngx_http_llm_capture_zone_ring(&d->zone, ring);
    rows = ngx_http_llm_capture_zone_rows(&d->zone, ring);

    off = 0 - atomic_load_explicit(&hdr->last_id, memory_order_relaxed);

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_ROWS; i++) {
        off += atomic_load_explicit(&rows[i].n[NGX_HTTP_LLM_CAPTURE_C_seen],
                                    memory_order_acquire);

        for (c = NGX_HTTP_LLM_CAPTURE_C_seen + 1;
             c <= NGX_HTTP_LLM_CAPTURE_C_last;
             c++)
        {
            off -= atomic_load_explicit(&rows[i].n[c], memory_order_acquire);
        }
    }

    if (off == 0 || off > (broken ? UINT32_MAX : 1)) {
        return;
    }

    if (broken) {
        off = ngx_http_llm_capture_commit_spoiled(d, ring, off);
    }

    if (off == 0) {
        return;
    }

    row = atomic_load_explicit(&hdr->deciding, memory_order_relaxed);
    row = row == 0 || row > NGX_HTTP_LLM_CAPTURE_ROWS
          ? NGX_HTTP_LLM_CAPTURE_TEMPLATES : row - 1;

    ngx_http_llm_capture_commit_unread(d, ring, (uint32_t) row,
                                       broken ? NGX_HTTP_LLM_CAPTURE_C_lost
                                              : NGX_HTTP_LLM_CAPTURE_C_aborted,
                                       off);
}


/* the uploads of an intent, taken off their lists; NULL for one not there */

static unsigned
ngx_http_llm_capture_commit_take(ngx_http_llm_capture_drain_t *d,
    const ngx_http_llm_capture_intent_t *it,
    ngx_http_llm_capture_upload_t **u)
{
    unsigned                          i, n;
    const ngx_http_llm_capture_ref_t *ref;

    n = 0;

    for (i = 0; i < it->nrefs; i++) {
        ref = &it->refs[i];
        u[i] = NULL;

        if (ref->ring < d->zone.nrings
            && ref->chain != NGX_HTTP_LLM_CAPTURE_REPAIR)
        {
            u[i] = ngx_http_llm_capture_upload_take(d, ref->ring, ref->id);
        }

        n += u[i] != NULL;
    }

    return n;
}


/* the id of its session, as it stands in the line */

static uint64_t
ngx_http_llm_capture_recover_session(const ngx_http_llm_capture_upload_t *u,
    const ngx_http_llm_capture_intent_t *it)
{
    return u->session
           ? ngx_http_llm_capture_siphash_seal(it->key, u->session) : 0;
}


static void
ngx_http_llm_capture_recover_commit(ngx_http_llm_capture_drain_t *d,
    const ngx_http_llm_capture_intent_t *it)
{
    unsigned                           i;
    const ngx_http_llm_capture_ref_t  *ref;

    (void) ngx_http_llm_capture_commit_take(d, it, d->batch);

    for (i = 0; i < it->nrefs; i++) {
        ref = &it->refs[i];

        if (d->batch[i]) {
            d->batch[i]->ts = ref->ts;
            d->batch[i]->session =
                          ngx_http_llm_capture_recover_session(d->batch[i], it);
            ngx_http_llm_capture_commit_upload(d, d->batch[i], it->recorded);

        } else if (ref->chain == NGX_HTTP_LLM_CAPTURE_EXPIRED) {
            ngx_http_llm_capture_waits_remove(d->waits, ref->id);

        } else if (ref->chain == NGX_HTTP_LLM_CAPTURE_REPAIR
                   && ref->ring < d->zone.nrings)
        {
            atomic_store_explicit(
                &ngx_http_llm_capture_zone_ring(&d->zone, ref->ring)->last_id,
                ref->id, memory_order_release);
        }
    }

    ngx_http_llm_capture_commit_row(d, it->row, it->account, it->n, it->file);
    ngx_http_llm_capture_book_dirty(d, it->account);
}


/* a row of a trace as it was: by the same key, or it is not the same */

static int
ngx_http_llm_capture_recover_text(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, const ngx_http_llm_capture_intent_t *it)
{
    return ngx_http_llm_capture_is_trace(u->dest->format)
           ? ngx_http_llm_capture_trace_text(d, u, it->key) : 0;
}


/*
 * The refs stand as they are until the end: should this process die here too,
 * the next one compares the file with the lines of the same timestamps.
 * Returns 0: done; -1: to be tried again.
 */

static int
ngx_http_llm_capture_recover_write(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_intent_t *it)
{
    size_t                          n;
    ssize_t                         rc;
    uint64_t                        add[NGX_HTTP_LLM_CAPTURE_C_max];
    uint32_t                        row, account;
    unsigned                        i, have;
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_upload_t  *u;

    have = ngx_http_llm_capture_commit_take(d, it, d->batch);

    rc = NGX_HTTP_LLM_CAPTURE_UNCERTAIN;
    dest = NULL;

    if (have == it->nrefs && have) {
        dest = d->batch[0]->dest;
        n = 0;

        for (i = 0; i < have; i++) {
            u = d->batch[i];

            if (u->state != NGX_HTTP_LLM_CAPTURE_U_READY || u->dest != dest
                || ngx_http_llm_capture_recover_text(d, u, it) == -1)
            {
                break;
            }

            n += ngx_http_llm_capture_upload_niov(d, u);
        }

        if (i == have && ngx_http_llm_capture_lines(d, have, n) == 0) {

            for (i = 0; i < have; i++) {
                d->lines[i].ts = it->refs[i].ts;
                d->lines[i].session =
                          ngx_http_llm_capture_recover_session(d->batch[i], it);
            }

            rc = ngx_http_llm_capture_writer_recover(d->conf.writer, it,
                                                     d->lines, have);
        }
    }

    if (rc == NGX_HTTP_LLM_CAPTURE_NOT_NOW && d->now < d->give_up) {

        for (i = 0; i < have; i++) {
            ngx_http_llm_capture_queue_add(&dest->ready, d->batch[i]);
        }

        return -1;
    }

    memset(add, 0, sizeof(add));

    if (rc < 0) {

        /* whether they stand in a file nobody can tell: never again */

        row = it->row;
        account = NGX_HTTP_LLM_CAPTURE_NONE;

        for (i = 0; i < it->nrefs; i++) {
            if (d->batch[i]) {
                row = d->batch[i]->dest->row;
                account = d->batch[i]->dest->account;
                break;
            }
        }

        add[dest && dest->format == NGX_HTTP_LLM_CAPTURE_OUTCOMES
                ? NGX_HTTP_LLM_CAPTURE_C_outcome_uncertain
                : NGX_HTTP_LLM_CAPTURE_C_uncertain] = have;

        ngx_http_llm_capture_drain_say(d, LOG_ERR, 0,
            "%u records were being written to \"%.*s\" as the helper died, "
            "and the file is gone or shorter: they are counted uncertain",
            have, (int) it->path_len, it->path);

        ngx_http_llm_capture_commit(d, row, account, d->batch, it->nrefs, add);

        return 0;
    }

    for (i = (unsigned) rc; i < have; i++) {
        ngx_http_llm_capture_queue_add(&dest->ready, d->batch[i]);
    }

    ngx_http_llm_capture_commit_written(d, dest, (unsigned) rc, add);
    ngx_http_llm_capture_book_written(d, dest, it, (unsigned) rc);
    ngx_http_llm_capture_commit(d, dest->row, dest->account, d->batch,
                                (unsigned) rc, add);

    return 0;
}


int
ngx_http_llm_capture_commit_recover(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                        state;
    ngx_http_llm_capture_intent_t  *it, *copy;

    it = ngx_http_llm_capture_zone_intent(&d->zone);
    state = atomic_load_explicit(&it->state, memory_order_acquire);

    if (state == NGX_HTTP_LLM_CAPTURE_INTENT_NONE) {
        return 0;
    }

    copy = &d->left;

    memcpy(copy, it, sizeof(ngx_http_llm_capture_intent_t));

    if (copy->nrefs > NGX_HTTP_LLM_CAPTURE_BATCH) {
        copy->nrefs = 0;
    }

    if (copy->row >= NGX_HTTP_LLM_CAPTURE_ROWS) {
        copy->row = NGX_HTTP_LLM_CAPTURE_TEMPLATES;
    }

    if (copy->account >= NGX_HTTP_LLM_CAPTURE_ACCOUNTS
        || d->books[copy->account].file == NULL)
    {
        copy->account = NGX_HTTP_LLM_CAPTURE_NONE;
    }

    if (copy->path_len >= NGX_HTTP_LLM_CAPTURE_PATH) {
        copy->path_len = 0;
    }

    if (state == NGX_HTTP_LLM_CAPTURE_INTENT_COMMIT) {
        ngx_http_llm_capture_recover_commit(d, copy);
        return 0;
    }

    return ngx_http_llm_capture_recover_write(d, copy);
}
