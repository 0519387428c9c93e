
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Outcomes -> rows.  An outcome is written when its request is recorded, and
 * dropped when that was refused; one that comes before either is parked.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_upload.h"


/* bytes of an outcome's body at most */
#define NGX_HTTP_LLM_CAPTURE_REPLY_SIZE                                       \
    (sizeof(ngx_http_llm_capture_reply_t) + NGX_HTTP_LLM_CAPTURE_REPLY_HEAD   \
     + NGX_HTTP_LLM_CAPTURE_REPLY_TAIL)

/* pids asked for at a time */
#define NGX_HTTP_LLM_CAPTURE_PIDS  64


typedef struct {
    uint32_t  pid[NGX_HTTP_LLM_CAPTURE_PIDS];
    int       alive[NGX_HTTP_LLM_CAPTURE_PIDS];
    unsigned  n;
} ngx_http_llm_capture_pids_t;


/* a private copy: 0, or -1 if it is not what it says */

static int
ngx_http_llm_capture_answer_read(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_reply_t *reply,
    uint8_t *buf)
{
    size_t         n, len;
    unsigned       i;
    struct iovec  *iov;

    if (u->len < sizeof(*reply) || u->len > NGX_HTTP_LLM_CAPTURE_REPLY_SIZE) {
        return -1;
    }

    n = ngx_http_llm_capture_upload_niov(d, u);
    iov = malloc(n * sizeof(struct iovec));

    if (iov == NULL) {
        return -1;
    }

    ngx_http_llm_capture_upload_iov(d, u, iov);

    for (len = 0, i = 0; i < n; i++) {
        memcpy(buf + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }

    free(iov);

    memcpy(reply, buf, sizeof(*reply));

    if (reply->head > NGX_HTTP_LLM_CAPTURE_REPLY_HEAD
        || reply->tail > NGX_HTTP_LLM_CAPTURE_REPLY_TAIL
        || len != sizeof(*reply) + reply->head + reply->tail)
    {
        return -1;
    }

    return 0;
}


void
ngx_http_llm_capture_reply_answer(const ngx_http_llm_capture_reply_t *reply,
    const uint8_t *body, ngx_http_llm_capture_answer_t *answer)
{
    memset(answer, 0, sizeof(*answer));

    if (reply->flags & (NGX_HTTP_LLM_CAPTURE_REPLY_STREAM
                        |NGX_HTTP_LLM_CAPTURE_REPLY_JSON))
    {
        answer->head = body;
        answer->head_len = reply->head;
        answer->tail = body + reply->head;
        answer->tail_len = reply->tail;
        answer->total = reply->bytes;
        answer->deltas = reply->deltas;
    }

    answer->stream = (reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_STREAM) != 0;
    answer->complete = (reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_COMPLETE)
                       != 0;
}


void
ngx_http_llm_capture_reply_row(const ngx_http_llm_capture_reply_t *reply,
    const ngx_http_llm_capture_outcome_t *outcome,
    ngx_http_llm_capture_fields_t *row)
{
    memset(row, 0, sizeof(*row));

    row->status = reply->status;
    row->upstream_status = reply->upstream_status;
    row->bytes = reply->bytes;
    row->first_byte = reply->first_byte;
    row->first_content = reply->first_content;
    row->first_reasoning = reply->first_reasoning;
    row->last_byte = reply->last_byte;
    row->events = reply->events;
    row->stream = (reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_STREAM) != 0;
    row->aborted = (reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_ABORTED) != 0;
    row->upstream_failed = (reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_FAILED)
                           != 0;
    row->outcome = outcome;
}


static size_t
ngx_http_llm_capture_answer_row(ngx_http_llm_capture_upload_t *u,
    const ngx_http_llm_capture_wait_t *wait,
    const ngx_http_llm_capture_reply_t *reply, const uint8_t *body, char *text)
{
    char                            session[NGX_HTTP_LLM_CAPTURE_SESSION];
    ngx_http_llm_capture_fields_t   row;
    ngx_http_llm_capture_answer_t   answer;
    ngx_http_llm_capture_outcome_t  outcome;

    ngx_http_llm_capture_reply_answer(reply, body, &answer);

    (void) ngx_http_llm_capture_outcome(&outcome, &answer);

    ngx_http_llm_capture_reply_row(reply, &outcome, &row);

    row.id = u->uid;
    row.timestamp = wait->ts;

    if (wait->session) {
        ngx_http_llm_capture_siphash_hex(wait->session, session);
        row.session = session;
    }

    return ngx_http_llm_capture_row_outcome(text,
                                            NGX_HTTP_LLM_CAPTURE_ROW_OUTCOME,
                                            &row);
}


static void
ngx_http_llm_capture_answer_make(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, const ngx_http_llm_capture_wait_t *wait)
{
    size_t                        n;
    uint8_t                       buf[NGX_HTTP_LLM_CAPTURE_REPLY_SIZE];
    ngx_http_llm_capture_reply_t  reply;

    if (ngx_http_llm_capture_answer_read(d, u, &reply, buf) == -1) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_aborted);
        return;
    }

    if (reply.flags & NGX_HTTP_LLM_CAPTURE_REPLY_ENCODED) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_encoded);
        return;
    }

    u->text = malloc(NGX_HTTP_LLM_CAPTURE_ROW_OUTCOME);
    n = 0;

    if (u->text) {
        n = ngx_http_llm_capture_answer_row(u, wait, &reply,
                                            buf + sizeof(reply), u->text);
    }

    if (n == 0 || n > NGX_HTTP_LLM_CAPTURE_ROW_OUTCOME) {
        free(u->text);
        u->text = NULL;
        ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_failed);
        return;
    }

    u->text_len = n - 1;                /* the writer ends the line */

    if (u->state == NGX_HTTP_LLM_CAPTURE_U_OPEN) {
        ngx_http_llm_capture_upload_close(d, u);
    }

    ngx_http_llm_capture_upload_ready(d, u);
}


/* to a request whose row needs it */

static void
ngx_http_llm_capture_answer_trace(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_upload_t *request)
{
    uint8_t                       buf[NGX_HTTP_LLM_CAPTURE_REPLY_SIZE];
    ngx_http_llm_capture_reply_t  reply;

    ngx_http_llm_capture_trace_answered(d, request, u,
        ngx_http_llm_capture_answer_read(d, u, &reply, buf) == 0
            ? &reply : NULL,
        buf + sizeof(reply));
}


/* 0: it has to wait, its request is under way; -1: it has none */

static int
ngx_http_llm_capture_answer_try(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    ngx_http_llm_capture_wait_t     wait;
    ngx_http_llm_capture_upload_t  *request;

    if (ngx_http_llm_capture_waits_get(d->waits, u->uid, &wait)) {
        ngx_http_llm_capture_answer_make(d, u, &wait);
        return 1;
    }

    request = ngx_http_llm_capture_upload_pair(d, u->uid, 0);

    if (request == NULL) {
        return -1;
    }

    if (request->state == NGX_HTTP_LLM_CAPTURE_U_HELD) {
        ngx_http_llm_capture_answer_trace(d, u, request);
        return 1;
    }

    return 0;
}


void
ngx_http_llm_capture_answer_ended(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    if (ngx_http_llm_capture_answer_try(d, u) == 1) {
        return;
    }

    /* its request may stand in a ring that is still to be read */

    ngx_http_llm_capture_upload_close(d, u);

    u->state = NGX_HTTP_LLM_CAPTURE_U_PARKED;
    ngx_http_llm_capture_queue_add(&d->parked, u);
    d->parked_new = 1;
}


void
ngx_http_llm_capture_answer_retry(ngx_http_llm_capture_drain_t *d)
{
    int                             rc;
    uint32_t                        i;
    ngx_http_llm_capture_queue_t    q;
    ngx_http_llm_capture_upload_t  *u, *next;

    if (d->parked.n == 0 || !(d->parked_new || d->finished)) {
        return;
    }

    q = d->parked;
    memset(&d->parked, 0, sizeof(d->parked));
    d->parked_new = 0;

    /* a request is put in before its outcome: by now it can be read */

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_assemble(d, i);
    }

    for (u = q.n ? q.first : NULL; u; u = next) {
        next = u->next;

        rc = ngx_http_llm_capture_answer_try(d, u);

        if (rc == 0) {
            ngx_http_llm_capture_queue_add(&d->parked, u);

        } else if (rc == -1) {
            ngx_http_llm_capture_upload_refuse(d, u,
                                               NGX_HTTP_LLM_CAPTURE_C_aborted);
        }
    }

    ngx_http_llm_capture_settle(d);
}


static ngx_http_llm_capture_counter_e
ngx_http_llm_capture_answer_called(ngx_http_llm_capture_counter_e why)
{
    switch (why) {
    case NGX_HTTP_LLM_CAPTURE_C_encoded:
        return NGX_HTTP_LLM_CAPTURE_C_outcome_encoded;
    case NGX_HTTP_LLM_CAPTURE_C_failed:
    case NGX_HTTP_LLM_CAPTURE_C_bad_path:
    case NGX_HTTP_LLM_CAPTURE_C_disk_limit:
        return NGX_HTTP_LLM_CAPTURE_C_outcome_failed;
    case NGX_HTTP_LLM_CAPTURE_C_queue_full:
        return NGX_HTTP_LLM_CAPTURE_C_outcome_queue_full;
    case NGX_HTTP_LLM_CAPTURE_C_lost:
        return NGX_HTTP_LLM_CAPTURE_C_outcome_lost;
    default:
        return NGX_HTTP_LLM_CAPTURE_C_outcome_aborted;
    }
}


ngx_http_llm_capture_counter_e
ngx_http_llm_capture_answer_why(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_counter_e why)
{
    ngx_http_llm_capture_wait_t     wait;
    ngx_http_llm_capture_upload_t  *request;

    if (ngx_http_llm_capture_waits_get(d->waits, u->uid, &wait)) {
        return ngx_http_llm_capture_answer_called(why);
    }

    request = ngx_http_llm_capture_upload_pair(d, u->uid, 0);

    if (request) {
        request->unanswered = ngx_http_llm_capture_answer_called(why);
        ngx_http_llm_capture_trace_unanswered(d, request, why);
    }

    return NGX_HTTP_LLM_CAPTURE_C_max;
}


static int
ngx_http_llm_capture_answer_alive(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_pids_t *pids, uint32_t pid)
{
    unsigned  i;

    for (i = 0; i < pids->n; i++) {
        if (pids->pid[i] == pid) {
            return pids->alive[i];
        }
    }

    if (i == NGX_HTTP_LLM_CAPTURE_PIDS) {
        /* the next look is for it */
        return 1;
    }

    pids->pid[i] = pid;
    pids->alive[i] = d->conf.alive(d->conf.ctx, pid);
    pids->n++;

    return pids->alive[i];
}


static void
ngx_http_llm_capture_answer_expire_held(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_pids_t *pids)
{
    unsigned                        i;
    ngx_http_llm_capture_upload_t  *u;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->pairs[i]; u; u = u->pair) {
            if (u->state == NGX_HTTP_LLM_CAPTURE_U_HELD
                && !ngx_http_llm_capture_answer_alive(d, pids, u->pid)
                && ngx_http_llm_capture_upload_pair(d, u->uid, 1) == NULL)
            {
                ngx_http_llm_capture_trace_unanswered(d, u,
                                              NGX_HTTP_LLM_CAPTURE_C_aborted);
            }
        }
    }

    ngx_http_llm_capture_settle(d);
}


/* what a dead worker put in before its end is read first */

void
ngx_http_llm_capture_answer_expire(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                        i, at, row;
    uint64_t                        uid[NGX_HTTP_LLM_CAPTURE_BATCH];
    unsigned                        n;
    ngx_http_llm_capture_wait_t     wait;
    ngx_http_llm_capture_pids_t     pids;
    ngx_http_llm_capture_upload_t  *u;

    if (d->recovering
        || (ngx_http_llm_capture_waits_n(d->waits) == 0 && d->nheld == 0))
    {
        return;
    }

    pids.n = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->pairs[i]; u; u = u->pair) {
            if (u->state == NGX_HTTP_LLM_CAPTURE_U_HELD) {
                (void) ngx_http_llm_capture_answer_alive(d, &pids, u->pid);
            }
        }
    }

    for (at = 0; ngx_http_llm_capture_waits_next(d->waits, &at, &wait); ) {
        (void) ngx_http_llm_capture_answer_alive(d, &pids, wait.pid);
    }

    for (i = 0; i < d->zone.nrings; i++) {
        ngx_http_llm_capture_assemble(d, i);
    }

    ngx_http_llm_capture_answer_expire_held(d, &pids);

    n = 0;
    row = 0;
    at = 0;

    while (ngx_http_llm_capture_waits_next(d->waits, &at, &wait)) {

        if (ngx_http_llm_capture_answer_alive(d, &pids, wait.pid)
            || ngx_http_llm_capture_upload_pair(d, wait.uid, 1))
        {
            continue;
        }

        if (n && (wait.row != row || n == NGX_HTTP_LLM_CAPTURE_BATCH)) {
            ngx_http_llm_capture_commit_expired(d, row, uid, n);
            n = 0;
        }

        row = wait.row;
        uid[n++] = wait.uid;
    }

    if (n) {
        ngx_http_llm_capture_commit_expired(d, row, uid, n);
    }
}
