
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_outcome.h"
#include "ngx_http_llm_capture_delta.h"
#include "ngx_http_llm_capture_events.h"
#include "ngx_http_llm_capture_rest.h"
#include "ngx_http_llm_capture_usage.h"


#define NONE   NGX_HTTP_LLM_CAPTURE_REST_NONE
/* room for what a cut object is completed with */
#define SPARE  32

#define DELTAS  (NGX_HTTP_LLM_CAPTURE_DELTA_CONTENT                           \
                 | NGX_HTTP_LLM_CAPTURE_DELTA_REASONING)


typedef struct {
    ngx_http_llm_capture_usage_t     usage;
    uint64_t                         deltas;    /* in the windows */
    uint64_t                         after;     /* the last completion */
    unsigned                         latest:1;  /* one, behind a gap */
} ngx_http_llm_capture_outcome_ctx_t;


/* from `at` on, with what the cut off part must have been; p has SPARE bytes */

static int
ngx_http_llm_capture_outcome_resume(ngx_http_llm_capture_outcome_ctx_t *ctx,
    char *p, size_t n, size_t at, const char *before)
{
    char    *from;
    size_t   len;

    if (at == NONE) {
        return -1;
    }

    len = strlen(before);
    from = p + at - len;
    memcpy(from, before, len);

    return ngx_http_llm_capture_usage_read(&ctx->usage, from, n - at + len);
}


/* p: the end of an object, to be overwritten, and the SPARE bytes before */

static void
ngx_http_llm_capture_outcome_rest(ngx_http_llm_capture_outcome_ctx_t *ctx,
    char *p, size_t n, unsigned event)
{
    ngx_http_llm_capture_rest_t  rest;

    if (ngx_http_llm_capture_rest(&rest, p, n) != 0) {
        return;
    }

    /*
     * Each begins behind the one before, so what is overwritten is not read.
     * An event has one choice, and which one is lost if it is not said here.
     */

    if (ngx_http_llm_capture_outcome_resume(ctx, p, n, rest.element,
                                            event
                                            ? "{\"choices\":[{\"index\":-1,"
                                            : "{\"choices\":[{") == 0)
    {
        return;
    }

    /* an event of the Responses API wraps the whole response */

    if (event
        && ngx_http_llm_capture_outcome_resume(ctx, p, n, rest.inner,
                                               "{\"response\":{") == 0)
    {
        return;
    }

    if (ngx_http_llm_capture_outcome_resume(ctx, p, n, rest.member, "{")
        == 0)
    {
        return;
    }

    (void) ngx_http_llm_capture_outcome_resume(ctx, p, n, rest.usage, "{");
}


/* JSON, or the beginning of it, to be overwritten behind its end */

static void
ngx_http_llm_capture_outcome_head(ngx_http_llm_capture_outcome_ctx_t *ctx,
    char *p, size_t n)
{
    n = ngx_http_llm_capture_rest_head(p, n);

    if (n) {
        p[n] = '}';
        (void) ngx_http_llm_capture_usage_read(&ctx->usage, p, n + 1);
    }
}


/* most events have none of them, and need no tree */

static unsigned
ngx_http_llm_capture_outcome_asks(const char *p, size_t n)
{
    unsigned     i;
    const char  *at, *end;

    static const char *const  keys[] = {
        "usage\"", "finish_reason\"", "stop_reason\"", "response\"", "error\""
    };

    end = p + n;

    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {

        for (at = p;
             (at = memmem(at, (size_t) (end - at), keys[i], strlen(keys[i])));
             /* void */ )
        {
            at += strlen(keys[i]);

            while (at < end && memchr(" \t\n:", *at, 4)) {
                at++;
            }

            if (at == end || *at != 'n') {      /* null */
                return 1;
            }
        }
    }

    return 0;
}


static void
ngx_http_llm_capture_outcome_event(ngx_http_llm_capture_outcome_ctx_t *ctx,
    const char *p, size_t n)
{
    unsigned                      flags;
    ngx_http_llm_capture_delta_t  delta;

    ngx_http_llm_capture_delta_init(&delta, 0);
    ngx_http_llm_capture_delta_feed(&delta, (const uint8_t *) p, n);
    flags = ngx_http_llm_capture_delta_end(&delta);

    ctx->usage.counted = 0;

    if (ctx->usage.text || ngx_http_llm_capture_outcome_asks(p, n)) {
        (void) ngx_http_llm_capture_usage_read(&ctx->usage, p, n);
    }

    ctx->deltas += (flags & DELTAS) != 0;
    ctx->after += (flags & DELTAS) != 0;

    if (ctx->usage.counted) {
        ctx->after = 0;
        ctx->latest = 1;
    }
}


static void
ngx_http_llm_capture_outcome_events(ngx_http_llm_capture_outcome_ctx_t *ctx,
    ngx_http_llm_capture_events_t *events, unsigned last)
{
    char    *data;
    size_t   n;

    while (ngx_http_llm_capture_events_next(events, &data, &n)) {

        /* a server may forget the last empty line, but not in the middle */

        if (events->ended || last) {
            ngx_http_llm_capture_outcome_event(ctx, data, n);
        }
    }
}


static void
ngx_http_llm_capture_outcome_stream(ngx_http_llm_capture_outcome_ctx_t *ctx,
    const ngx_http_llm_capture_answer_t *a, char *head, char *tail)
{
    char                           *data;
    size_t                          n;
    ngx_http_llm_capture_events_t   events;

    if (tail == NULL) {
        ngx_http_llm_capture_events_init(&events, head,
                                         a->head_len + a->tail_len);
        ngx_http_llm_capture_outcome_events(ctx, &events, a->complete);
        return;
    }

    ngx_http_llm_capture_events_init(&events, head, a->head_len);
    ngx_http_llm_capture_outcome_events(ctx, &events, 0);

    ctx->latest = 0;
    ctx->usage.counted = 0;
    ctx->usage.text = NULL;             /* there is a gap */

    ngx_http_llm_capture_events_cut(&events, tail, a->tail_len, &data, &n);

    if (n && (events.ended || a->complete)) {
        ngx_http_llm_capture_outcome_rest(ctx, data, n, 1);
    }

    if (ctx->usage.counted) {
        ctx->after = 0;
        ctx->latest = 1;
    }

    ngx_http_llm_capture_outcome_events(ctx, &events, a->complete);
}


static void
ngx_http_llm_capture_outcome_plain(ngx_http_llm_capture_outcome_ctx_t *ctx,
    const ngx_http_llm_capture_answer_t *a, char *head, char *tail)
{
    size_t  n;

    if (tail == NULL) {
        n = a->head_len + a->tail_len;

        if (ngx_http_llm_capture_usage_read(&ctx->usage, head, n) == 0) {
            return;
        }

        tail = head;
        ctx->usage.text = NULL;

    } else {
        n = a->tail_len;
        ctx->usage.text = NULL;
        ngx_http_llm_capture_outcome_head(ctx, head, a->head_len);
    }

    if (a->complete) {
        ngx_http_llm_capture_outcome_rest(ctx, tail, n, 0);

    } else if (tail == head) {
        ngx_http_llm_capture_outcome_head(ctx, head, n);
    }
}


static void
ngx_http_llm_capture_outcome_sum(ngx_http_llm_capture_outcome_ctx_t *ctx,
    const ngx_http_llm_capture_answer_t *a)
{
    uint64_t                         deltas;
    ngx_http_llm_capture_outcome_t  *o;

    ngx_http_llm_capture_usage_sum(&ctx->usage);

    o = ctx->usage.o;

    if (!a->stream) {
        return;
    }

    deltas = ctx->deltas;

    if (a->deltas > deltas) {
        ctx->after += ctx->latest ? 0 : a->deltas - deltas;
        deltas = a->deltas;
    }

    if (ctx->after == 0 || deltas > NGX_HTTP_LLM_CAPTURE_TOKENS) {
        return;
    }

    o->estimated = 1;

    if ((int64_t) deltas > o->completion) {
        o->completion = (int64_t) deltas;
    }
}


int
ngx_http_llm_capture_outcome(ngx_http_llm_capture_outcome_t *o,
    const ngx_http_llm_capture_answer_t *a)
{
    char                                *buf, *head, *tail;
    unsigned                             whole;
    ngx_http_llm_capture_outcome_ctx_t   ctx;

    memset(&ctx, 0, sizeof(ctx));
    ngx_http_llm_capture_usage_init(&ctx.usage, o);
    ctx.usage.text = a->text;
    ctx.usage.text_size = a->text_size;

    if (a->head_len > NGX_HTTP_LLM_CAPTURE_ANSWER
        || a->tail_len > NGX_HTTP_LLM_CAPTURE_ANSWER)
    {
        return -1;
    }

    buf = malloc(SPARE + a->head_len + SPARE + a->tail_len);

    if (buf == NULL) {
        return -1;
    }

    whole = (a->head_len + a->tail_len >= a->total);
    head = buf + SPARE;
    tail = head + a->head_len + (whole ? 0 : SPARE);

    if (a->head_len) {
        memcpy(head, a->head, a->head_len);
    }

    if (a->tail_len) {
        memcpy(tail, a->tail, a->tail_len);
    }

    if (a->stream) {
        ngx_http_llm_capture_outcome_stream(&ctx, a, head,
                                            whole ? NULL : tail);

    } else {
        ngx_http_llm_capture_outcome_plain(&ctx, a, head,
                                           whole ? NULL : tail);
    }

    ngx_http_llm_capture_outcome_sum(&ctx, a);
    free(buf);

    return 0;
}
