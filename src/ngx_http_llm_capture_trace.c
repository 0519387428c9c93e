
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Rows that need the answer: mooncake_trace, baseten_trace.  A request is
 * complete long before its answer is.  What its row takes of it (numbers of
 * its blocks, its session, a prompt if the row has it) goes into a chain of the
 * arena, where a successor finds it, and its frames go back to the ring.  The
 * row is made when the outcome comes, which is marked in the same commit.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_conversation.h"
#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_upload.h"


/* what a chain holds of a request, followed by ids and prompt */

typedef struct {
    uint64_t  session;
    uint32_t  nids;
    uint32_t  prompt_len;
} ngx_http_llm_capture_held_t;


/* of an answer, until the row is made */

struct ngx_http_llm_capture_told_s {
    ngx_http_llm_capture_reply_t    reply;
    ngx_http_llm_capture_outcome_t  outcome;
    char                            text[];     /* outcome.text_len bytes */
};


/* 0; -1: refused */

static int
ngx_http_llm_capture_trace_read(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, json_t *tree,
    ngx_http_llm_capture_held_t *held, const char **prompt)
{
    json_t  *value;

    memset(held, 0, sizeof(*held));
    held->session = u->session;
    *prompt = NULL;

    if (u->dest->format == NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE) {
        value = json_object_get(tree, "prompt");

        if (!json_is_string(value)) {
            ngx_http_llm_capture_upload_refuse(d, u,
                                    NGX_HTTP_LLM_CAPTURE_C_invalid_no_prompt);
            return -1;
        }

        *prompt = json_string_value(value);
        held->prompt_len = (uint32_t) json_string_length(value);
    }

    if (u->flags & NGX_HTTP_LLM_CAPTURE_HASH_IDS) {
        ngx_http_llm_capture_blocks_init(&d->blocks);
        ngx_http_llm_capture_conversation_hash(tree, &d->blocks);
        held->nids = d->blocks.n;
    }

    return 0;
}


/* from where it stands into a chain of its own; -1: there is no room */

static int
ngx_http_llm_capture_trace_move(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, const ngx_http_llm_capture_held_t *held,
    const char *prompt)
{
    uint32_t      chain;
    struct iovec  iov[3];

    iov[0].iov_base = (void *) held;
    iov[0].iov_len = sizeof(*held);
    iov[1].iov_base = d->blocks.id;
    iov[1].iov_len = held->nids * sizeof(uint64_t);
    iov[2].iov_base = (void *) prompt;
    iov[2].iov_len = held->prompt_len;

    chain = ngx_http_llm_capture_spill_hold(d, u, iov, 3);

    if (chain == NGX_HTTP_LLM_CAPTURE_NONE) {
        return -1;
    }

    NGX_HTTP_LLM_CAPTURE_POINT("held");

    /* both stand there if this process dies here: the successor takes one */

    ngx_http_llm_capture_piece_mark(d, u, NGX_HTTP_LLM_CAPTURE_MOVED);

    if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
        ngx_http_llm_capture_spill_free(d, u->chain);
    }

    u->chain = chain;
    u->len = iov[0].iov_len + iov[1].iov_len + iov[2].iov_len;
    u->head = 0;
    u->trail = 0;
    u->brace = 0;

    return 0;
}


void
ngx_http_llm_capture_trace_held(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    ngx_http_llm_capture_upload_close(d, u);

    u->state = NGX_HTTP_LLM_CAPTURE_U_HELD;

    /* its ring may go back while the answer goes on */

    u->held = 1;
    d->rings[u->ring].nuploads--;
    d->nheld++;
}


void
ngx_http_llm_capture_trace_hold(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    json_t                       *tree;
    const char                   *prompt;
    ngx_http_llm_capture_held_t   held;

    tree = NULL;

    if (u->uid == 0 || u->unanswered) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_no_outcome);
        return;
    }

    if (u->dest->format == NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE
        || (u->flags & NGX_HTTP_LLM_CAPTURE_HASH_IDS))
    {
        tree = ngx_http_llm_capture_upload_tree(d, u);

        if (tree == NULL) {
            ngx_http_llm_capture_upload_refuse(d, u,
                                               NGX_HTTP_LLM_CAPTURE_C_failed);
            return;
        }
    }

    if (ngx_http_llm_capture_trace_read(d, u, tree, &held, &prompt) == 0) {

        if (ngx_http_llm_capture_trace_move(d, u, &held, prompt) == 0) {
            ngx_http_llm_capture_trace_held(d, u);

        } else {
            ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_queue_full);
        }
    }

    /* or its outcome waits already */

    d->parked_new = 1;
}


/* do its lengths make a row of it?  AIPerf refuses a file for less */

static int
ngx_http_llm_capture_trace_lengths(ngx_http_llm_capture_upload_t *u,
    const ngx_http_llm_capture_outcome_t *outcome)
{
    int64_t  least;

    least = u->dest->format == NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE;

    return outcome->prompt >= least && outcome->completion >= least;
}


/* NULL: no memory, or the answer gives no row */

static ngx_http_llm_capture_told_t *
ngx_http_llm_capture_trace_told(ngx_http_llm_capture_upload_t *u,
    const ngx_http_llm_capture_reply_t *reply, const uint8_t *body)
{
    size_t                           room;
    unsigned                         text;
    ngx_http_llm_capture_told_t     *told;
    ngx_http_llm_capture_answer_t    answer;

    text = (u->flags & NGX_HTTP_LLM_CAPTURE_OUTPUT) != 0;
    room = text ? (size_t) reply->head + reply->tail : 0;

    told = malloc(sizeof(ngx_http_llm_capture_told_t) + room);

    if (told == NULL) {
        return NULL;
    }

    told->reply = *reply;

    ngx_http_llm_capture_reply_answer(reply, body, &answer);

    if (text) {
        answer.text = told->text;
        answer.text_size = room;
    }

    if (ngx_http_llm_capture_outcome(&told->outcome, &answer) == -1
        || !ngx_http_llm_capture_trace_lengths(u, &told->outcome))
    {
        free(told);
        return NULL;
    }

    return told;
}


void
ngx_http_llm_capture_trace_answered(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_upload_t *answer,
    const ngx_http_llm_capture_reply_t *reply, const uint8_t *body)
{
    if (answer->state == NGX_HTTP_LLM_CAPTURE_U_OPEN) {
        ngx_http_llm_capture_upload_close(d, answer);
    }

    answer->state = NGX_HTTP_LLM_CAPTURE_U_PAIRED;
    u->partner = answer;
    d->nheld--;

    if (reply && !(reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_ENCODED)) {
        u->told = ngx_http_llm_capture_trace_told(u, reply, body);
    }

    if (u->told == NULL) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_no_outcome);
        return;
    }

    ngx_http_llm_capture_upload_ready(d, u);
}


void
ngx_http_llm_capture_trace_unanswered(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_counter_e why)
{
    if (u->state != NGX_HTTP_LLM_CAPTURE_U_HELD) {
        /* it is looked at when it has ended */
        return;
    }

    d->nheld--;

    ngx_http_llm_capture_upload_refuse(d, u,
        why == NGX_HTTP_LLM_CAPTURE_C_aborted
        || why == NGX_HTTP_LLM_CAPTURE_C_lost
            ? why : NGX_HTTP_LLM_CAPTURE_C_no_outcome);
}


/* a private copy of what the chain holds: to be freed; NULL: no memory */

static uint8_t *
ngx_http_llm_capture_trace_copy(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_held_t *held)
{
    uint8_t       *p;
    uint64_t       n;

    if (u->len < sizeof(*held)) {
        return NULL;
    }

    p = malloc((size_t) u->len);

    if (p == NULL) {
        return NULL;
    }

    (void) ngx_http_llm_capture_spill_part(d, u, 0, p, (size_t) u->len);

    memcpy(held, p, sizeof(*held));

    n = u->len - sizeof(*held);

    if (held->nids > NGX_HTTP_LLM_CAPTURE_HASHES
        || n != held->nids * sizeof(uint64_t) + held->prompt_len)
    {
        free(p);
        return NULL;
    }

    d->blocks.n = held->nids;
    memcpy(d->blocks.id, p + sizeof(*held), held->nids * sizeof(uint64_t));

    return p;
}


/* the line takes the beginning of a row of mooncake_trace, with the time */

static size_t
ngx_http_llm_capture_trace_row(ngx_http_llm_capture_upload_t *u,
    const ngx_http_llm_capture_fields_t *row, char *p, size_t size)
{
    size_t  n;

    static const char  head[] = "{\"timestamp\":0";

    if (u->dest->format == NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE) {
        return ngx_http_llm_capture_row_baseten(p, size, row);
    }

    n = ngx_http_llm_capture_row_mooncake(p, size, row);

    if (n >= sizeof(head) - 1 && n <= size) {
        n -= sizeof(head) - 1;
        memmove(p, p + sizeof(head) - 1, n);
    }

    return n;
}


int
ngx_http_llm_capture_trace_text(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u,
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY])
{
    size_t                         n, size;
    uint8_t                       *copy;
    ngx_http_llm_capture_held_t    held;
    ngx_http_llm_capture_fields_t  row;
    char                           session[NGX_HTTP_LLM_CAPTURE_SESSION];

    if (u->text) {
        return 0;
    }

    copy = ngx_http_llm_capture_trace_copy(d, u, &held);

    if (copy == NULL) {
        return -1;
    }

    ngx_http_llm_capture_reply_row(&u->told->reply, &u->told->outcome, &row);
    row.wall = u->wall;

    if (u->flags & NGX_HTTP_LLM_CAPTURE_HASH_IDS) {
        ngx_http_llm_capture_blocks_seal(&d->blocks, key);
        row.blocks = &d->blocks;
    }

    if (held.session) {
        ngx_http_llm_capture_siphash_hex(
                     ngx_http_llm_capture_siphash_seal(key, held.session),
                     session);
        row.session = session;
    }

    if (u->dest->format == NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE) {
        row.prompt = (char *) copy + sizeof(held)
                     + held.nids * sizeof(uint64_t);
        row.prompt_len = held.prompt_len;
    }

    if (u->flags & NGX_HTTP_LLM_CAPTURE_OUTPUT) {
        row.text = u->told->text;
        row.text_len = u->told->outcome.text_len;
    }

    /* six bytes for one, as \u0000, at most */

    size = NGX_HTTP_LLM_CAPTURE_ROW_TRACE
           + 6 * (row.prompt_len + row.text_len);

    u->text = malloc(size);

    n = u->text ? ngx_http_llm_capture_trace_row(u, &row, u->text, size) : 0;

    free(copy);

    if (n == 0 || n > size) {
        free(u->text);
        u->text = NULL;
        return -1;
    }

    u->text_len = n - 1;                /* the writer ends the line */

    return 0;
}
