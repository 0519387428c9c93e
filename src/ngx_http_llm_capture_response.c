
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What came back: a filter of answers that sees them pass, before gzip, and
 * keeps of each its first and last bytes, how many there were, and when.  It
 * never holds anything up nor changes a byte.  When the request ends, that goes
 * into the ring, and the helper makes a row of it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_reply.h"
#include "ngx_http_llm_capture_sse.h"


/* bytes read of a file at a time */
#define NGX_HTTP_LLM_CAPTURE_READ  16384


struct ngx_http_llm_capture_seen_s {
    ngx_http_llm_capture_reply_t  reply;
    ngx_http_llm_capture_sse_t    sse;
    size_t                        at;       /* in the tail, where next */
    u_char                        head[NGX_HTTP_LLM_CAPTURE_REPLY_HEAD];
    u_char                        tail[NGX_HTTP_LLM_CAPTURE_REPLY_TAIL];
};


static ngx_int_t ngx_http_llm_capture_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_llm_capture_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static void ngx_http_llm_capture_see_header(ngx_http_request_t *r,
    ngx_http_llm_capture_ctx_t *ctx);
static ngx_uint_t ngx_http_llm_capture_type(ngx_http_request_t *r,
    const char *type, size_t len);
static int64_t ngx_http_llm_capture_since(ngx_http_llm_capture_ctx_t *ctx);
static void ngx_http_llm_capture_see(ngx_http_llm_capture_ctx_t *ctx,
    ngx_chain_t *in);
static void ngx_http_llm_capture_see_file(ngx_http_llm_capture_ctx_t *ctx,
    ngx_buf_t *b);
static void ngx_http_llm_capture_see_bytes(ngx_http_llm_capture_ctx_t *ctx,
    u_char *p, size_t n);
static void ngx_http_llm_capture_keep_bytes(ngx_http_llm_capture_seen_t *s,
    u_char *p, size_t n);
static ngx_int_t ngx_http_llm_capture_log_handler(ngx_http_request_t *r);
static void ngx_http_llm_capture_send_outcome(ngx_http_request_t *r,
    ngx_http_llm_capture_ctx_t *ctx);
static ngx_uint_t ngx_http_llm_capture_upstream_status(ngx_http_request_t *r);
static size_t ngx_http_llm_capture_outcome_path(
    ngx_http_llm_capture_record_t *rec, char *path);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


ngx_int_t
ngx_http_llm_capture_response_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);

    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_llm_capture_log_handler;

    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_llm_capture_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_llm_capture_body_filter;

    return NGX_OK;
}


static ngx_int_t
ngx_http_llm_capture_header_filter(ngx_http_request_t *r)
{
    ngx_http_llm_capture_ctx_t  *ctx;

    if (r == r->main) {
        ctx = ngx_http_llm_capture_get_ctx(r);

        if (ctx && ctx->record.begin.uid && ctx->seen == NULL) {
            ngx_http_llm_capture_see_header(r, ctx);
        }
    }

    return ngx_http_next_header_filter(r);
}


static void
ngx_http_llm_capture_see_header(ngx_http_request_t *r,
    ngx_http_llm_capture_ctx_t *ctx)
{
    ngx_table_elt_t               *encoding;
    ngx_http_llm_capture_seen_t   *s;
    ngx_http_llm_capture_reply_t  *reply;

    /* a failed allocation leaves times and tokens unknown */

    s = ngx_palloc(r->pool, sizeof(ngx_http_llm_capture_seen_t));

    if (s == NULL) {
        return;
    }

    ctx->seen = s;
    s->at = 0;
    reply = &s->reply;

    ngx_memzero(reply, sizeof(ngx_http_llm_capture_reply_t));

    reply->first_byte = ngx_http_llm_capture_since(ctx);
    reply->first_content = -1;
    reply->first_reasoning = -1;
    reply->last_byte = -1;

    encoding = r->headers_out.content_encoding;

    if (encoding && ngx_http_llm_capture_coded(&encoding->value)) {
        reply->flags = NGX_HTTP_LLM_CAPTURE_REPLY_ENCODED;

    } else if (ngx_http_llm_capture_type(r, "text/event-stream",
                                         sizeof("text/event-stream") - 1))
    {
        reply->flags = NGX_HTTP_LLM_CAPTURE_REPLY_STREAM;
        ngx_http_llm_capture_sse_init(&s->sse);

    } else if (ngx_http_llm_capture_type(r, "application/json",
                                         sizeof("application/json") - 1))
    {
        reply->flags = NGX_HTTP_LLM_CAPTURE_REPLY_JSON;
    }
}


static ngx_uint_t
ngx_http_llm_capture_type(ngx_http_request_t *r, const char *type, size_t len)
{
    ngx_str_t  *value;

    value = &r->headers_out.content_type;

    return value->len >= len
           && ngx_strncasecmp(value->data, (u_char *) type, len) == 0
           && (value->len == len || value->data[len] == ';'
               || value->data[len] == ' ');
}


/* ms since the request arrived */

static int64_t
ngx_http_llm_capture_since(ngx_http_llm_capture_ctx_t *ctx)
{
    int64_t  ms;

    ms = (int64_t) ngx_current_msec - (int64_t) ctx->record.begin.mono;

    return ngx_max(ms, 0);
}


static ngx_int_t
ngx_http_llm_capture_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_llm_capture_ctx_t  *ctx;

    if (in && r == r->main) {
        ctx = ngx_http_llm_capture_get_ctx(r);

        if (ctx && ctx->seen) {
            ngx_http_llm_capture_see(ctx, in);
        }
    }

    return ngx_http_next_body_filter(r, in);
}


static void
ngx_http_llm_capture_see(ngx_http_llm_capture_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_buf_t                     *b;
    ngx_chain_t                   *cl;
    ngx_http_llm_capture_reply_t  *reply;

    reply = &ctx->seen->reply;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            ngx_http_llm_capture_see_bytes(ctx, b->pos, b->last - b->pos);

        } else if (b->in_file) {
            ngx_http_llm_capture_see_file(ctx, b);
        }

        if (b->last_buf) {
            reply->flags |= NGX_HTTP_LLM_CAPTURE_REPLY_COMPLETE;
            reply->last_byte = ngx_http_llm_capture_since(ctx);
        }
    }
}


/*
 * What a slow client left of an answer in nginx's temporary file, which was
 * written a moment ago: of a stream all is read, else what would be kept
 */

static void
ngx_http_llm_capture_see_file(ngx_http_llm_capture_ctx_t *ctx, ngx_buf_t *b)
{
    off_t                         at;
    size_t                        n;
    ssize_t                       got;
    u_char                        buf[NGX_HTTP_LLM_CAPTURE_READ];
    ngx_http_llm_capture_reply_t  *reply;

    reply = &ctx->seen->reply;

    if (!(reply->flags & (NGX_HTTP_LLM_CAPTURE_REPLY_STREAM
                          |NGX_HTTP_LLM_CAPTURE_REPLY_JSON)))
    {
        reply->bytes += b->file_last - b->file_pos;
        return;
    }

    for (at = b->file_pos; at < b->file_last; at += n) {
        n = (size_t) ngx_min(b->file_last - at,
                             (off_t) NGX_HTTP_LLM_CAPTURE_READ);

        if (!(reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_STREAM)
            && reply->head == NGX_HTTP_LLM_CAPTURE_REPLY_HEAD
            && b->file_last - at > NGX_HTTP_LLM_CAPTURE_READ)
        {
            /* none of it would be kept */
            n = (size_t) ngx_min(b->file_last - at - NGX_HTTP_LLM_CAPTURE_READ,
                                 NGX_MAX_INT32_VALUE);
            reply->bytes += n;
            continue;
        }

        got = pread(b->file->fd, buf, n, at);

        if (got != (ssize_t) n) {
            /* what is kept would have a hole: nothing is read in it */
            reply->flags &= ~(NGX_HTTP_LLM_CAPTURE_REPLY_STREAM
                              |NGX_HTTP_LLM_CAPTURE_REPLY_JSON);
            reply->bytes += b->file_last - at;
            return;
        }

        ngx_http_llm_capture_see_bytes(ctx, buf, n);
    }
}


static void
ngx_http_llm_capture_see_bytes(ngx_http_llm_capture_ctx_t *ctx, u_char *p,
    size_t n)
{
    unsigned                       first;
    ngx_http_llm_capture_seen_t   *s;
    ngx_http_llm_capture_reply_t  *reply;

    s = ctx->seen;
    reply = &s->reply;

    reply->bytes += n;

    if (n == 0 || !(reply->flags & (NGX_HTTP_LLM_CAPTURE_REPLY_STREAM
                                    |NGX_HTTP_LLM_CAPTURE_REPLY_JSON)))
    {
        return;
    }

    if (reply->flags & NGX_HTTP_LLM_CAPTURE_REPLY_STREAM) {
        first = ngx_http_llm_capture_sse_feed(&s->sse, p, n);

        if (first & NGX_HTTP_LLM_CAPTURE_SSE_CONTENT) {
            reply->first_content = ngx_http_llm_capture_since(ctx);
        }

        if (first & NGX_HTTP_LLM_CAPTURE_SSE_REASONING) {
            reply->first_reasoning = ngx_http_llm_capture_since(ctx);
        }
    }

    ngx_http_llm_capture_keep_bytes(s, p, n);
}


/* the tail is a ring: `at` is where its oldest byte stands once it is full */

static void
ngx_http_llm_capture_keep_bytes(ngx_http_llm_capture_seen_t *s, u_char *p,
    size_t n)
{
    size_t                         k;
    ngx_http_llm_capture_reply_t  *reply;

    reply = &s->reply;

    k = ngx_min(n, NGX_HTTP_LLM_CAPTURE_REPLY_HEAD - reply->head);
    ngx_memcpy(s->head + reply->head, p, k);
    reply->head += k;
    p += k;
    n -= k;

    if (n > NGX_HTTP_LLM_CAPTURE_REPLY_TAIL) {
        p += n - NGX_HTTP_LLM_CAPTURE_REPLY_TAIL;
        n = NGX_HTTP_LLM_CAPTURE_REPLY_TAIL;
    }

    while (n) {
        k = ngx_min(n, NGX_HTTP_LLM_CAPTURE_REPLY_TAIL - s->at);
        ngx_memcpy(s->tail + s->at, p, k);
        p += k;
        n -= k;

        reply->tail = ngx_min(reply->tail + k, NGX_HTTP_LLM_CAPTURE_REPLY_TAIL);
        s->at = (s->at + k) % NGX_HTTP_LLM_CAPTURE_REPLY_TAIL;
    }
}


static ngx_int_t
ngx_http_llm_capture_log_handler(ngx_http_request_t *r)
{
    ngx_http_llm_capture_ctx_t  *ctx;

    if (r != r->main) {
        /* "log_subrequest": the answer of its request goes on */
        return NGX_OK;
    }

    ctx = ngx_http_llm_capture_get_ctx(r);

    if (ctx && ctx->record.begin.uid
        && ctx->state == NGX_HTTP_LLM_CAPTURE_S_QUEUED)
    {
        ngx_http_llm_capture_send_outcome(r, ctx);
        ctx->record.begin.uid = 0;
    }

    return NGX_OK;
}


static void
ngx_http_llm_capture_send_outcome(ngx_http_request_t *r,
    ngx_http_llm_capture_ctx_t *ctx)
{
    char                          path[NGX_HTTP_LLM_CAPTURE_PATH];
    size_t                        len;
    struct iovec                  iov[4];
    ngx_http_llm_capture_seen_t   *s;
    ngx_http_llm_capture_begin_t  begin;
    ngx_http_llm_capture_reply_t  reply;

    s = ctx->seen;

    if (s) {
        reply = s->reply;
        reply.events = s->sse.events;
        reply.deltas = s->sse.deltas;

    } else {
        ngx_memzero(&reply, sizeof(ngx_http_llm_capture_reply_t));
        reply.first_byte = -1;
        reply.first_content = -1;
        reply.first_reasoning = -1;
        reply.last_byte = -1;
    }

    if (!(reply.flags & NGX_HTTP_LLM_CAPTURE_REPLY_STREAM)) {
        reply.events = 0;
        reply.deltas = 0;
    }

    reply.status = (uint16_t) (r->err_status ? r->err_status
                                             : r->headers_out.status);
    reply.upstream_status = (uint16_t) ngx_http_llm_capture_upstream_status(r);

    if (s && r->method == NGX_HTTP_HEAD) {
        /* no body passes, and so no end of it */
        reply.flags |= NGX_HTTP_LLM_CAPTURE_REPLY_COMPLETE;
        reply.last_byte = reply.first_byte;
    }

    if (!(reply.flags & NGX_HTTP_LLM_CAPTURE_REPLY_COMPLETE)) {
        reply.flags |= r->connection->error
                       || reply.status == NGX_HTTP_CLIENT_CLOSED_REQUEST
                           ? NGX_HTTP_LLM_CAPTURE_REPLY_ABORTED
                           : NGX_HTTP_LLM_CAPTURE_REPLY_FAILED;

    } else if (reply.status == NGX_HTTP_BAD_GATEWAY
               || reply.status == NGX_HTTP_GATEWAY_TIME_OUT)
    {
        reply.flags |= NGX_HTTP_LLM_CAPTURE_REPLY_FAILED;
    }

    iov[0].iov_base = &reply;
    iov[0].iov_len = sizeof(reply);

    if (s) {
        iov[1].iov_base = s->head;
        iov[1].iov_len = reply.head;

        /* once full, the older part is behind `at` */

        len = reply.tail == NGX_HTTP_LLM_CAPTURE_REPLY_TAIL ? s->at : 0;

        iov[2].iov_base = s->tail + len;
        iov[2].iov_len = reply.tail - len;
        iov[3].iov_base = s->tail;
        iov[3].iov_len = len;
    }

    len = ngx_http_llm_capture_outcome_path(&ctx->record, path);

    begin = ctx->record.begin;
    begin.format = NGX_HTTP_LLM_CAPTURE_OUTCOMES;
    begin.path_len = (uint16_t) len;
    begin.session_len = 0;
    begin.flags = len ? 0 : NGX_HTTP_LLM_CAPTURE_MISSED;

    ngx_http_llm_capture_put_outcome(&begin, path, iov, s ? 4 : 1);
}


/* the last one, of several tries */

static ngx_uint_t
ngx_http_llm_capture_upstream_status(ngx_http_request_t *r)
{
    ngx_int_t                   n;
    ngx_str_t                   name;
    ngx_uint_t                  key;
    ngx_http_variable_value_t  *v;

    ngx_str_set(&name, "upstream_status");
    key = ngx_hash_key(name.data, name.len);

    v = ngx_http_get_variable(r, &name, key);

    if (v == NULL || v->not_found || !v->valid || v->len < 3) {
        return 0;
    }

    n = ngx_atoi(v->data + v->len - 3, 3);

    return n == NGX_ERROR ? 0 : (ngx_uint_t) n;
}


/* 0: too long */

static size_t
ngx_http_llm_capture_outcome_path(ngx_http_llm_capture_record_t *rec,
    char *path)
{
    size_t  len;

    len = rec->begin.path_len;

    if (ngx_http_llm_capture_is_trace(rec->begin.format)) {

        /* no file of its own */

        ngx_memcpy(path, rec->path, len);
        return len;
    }

    if (len > sizeof(".jsonl") - 1
        && ngx_memcmp(rec->path + len - (sizeof(".jsonl") - 1), ".jsonl",
                      sizeof(".jsonl") - 1)
           == 0)
    {
        len -= sizeof(".jsonl") - 1;
    }

    if (len + sizeof(NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES)
        > NGX_HTTP_LLM_CAPTURE_PATH)
    {
        return 0;
    }

    ngx_memcpy(path, rec->path, len);
    ngx_memcpy(path + len, NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES,
               sizeof(NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES) - 1);

    return len + sizeof(NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES) - 1;
}
