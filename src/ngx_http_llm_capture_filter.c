
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Where a body is met: the request body filter.  It decides once per client
 * request, before a byte is copied, then copies each buffer into the worker's
 * ring as it passes, and never touches what passes.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_point.h"


/* buffers handed over at a time */
#define NGX_HTTP_LLM_CAPTURE_IOVS  64
/* bytes of a body that come in one call at least, when guessing the room */
#define NGX_HTTP_LLM_CAPTURE_CALL  4096


static ngx_int_t ngx_http_llm_capture_request_body_filter(
    ngx_http_request_t *r, ngx_chain_t *in);
static void ngx_http_llm_capture_body(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_chain_t *in);
static ngx_http_llm_capture_ctx_t *ngx_http_llm_capture_add_ctx(
    ngx_http_request_t *r, ngx_http_llm_capture_loc_conf_t *lcf);
static ngx_uint_t ngx_http_llm_capture_skip(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf);
static ngx_int_t ngx_http_llm_capture_enabled(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf);
static void ngx_http_llm_capture_decide(ngx_http_llm_capture_ctx_t *ctx);
static ngx_int_t ngx_http_llm_capture_encoded(ngx_http_request_t *r);
static ngx_uint_t ngx_http_llm_capture_whole(ngx_http_llm_capture_ctx_t *ctx,
    size_t size);
static ngx_uint_t ngx_http_llm_capture_fits(ngx_http_llm_capture_ctx_t *ctx,
    size_t len);
static void ngx_http_llm_capture_refuse_ctx(ngx_http_llm_capture_ctx_t *ctx,
    ngx_http_llm_capture_counter_e why);
static void ngx_http_llm_capture_copy(ngx_http_llm_capture_ctx_t *ctx,
    ngx_chain_t *in);
static void ngx_http_llm_capture_cleanup(void *data);


static ngx_http_request_body_filter_pt  ngx_http_next_request_body_filter;


ngx_int_t
ngx_http_llm_capture_filter_init(ngx_conf_t *cf)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter =
                                     ngx_http_llm_capture_request_body_filter;

    return NGX_OK;
}


static ngx_int_t
ngx_http_llm_capture_request_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in)
{
    ngx_http_llm_capture_loc_conf_t  *lcf;

    lcf = ngx_http_get_module_loc_conf(r, ngx_http_llm_capture_module);

    if (lcf->enable != NGX_HTTP_LLM_CAPTURE_OFF && in && r == r->main) {
        ngx_http_llm_capture_body(r, lcf, in);
    }

    return ngx_http_next_request_body_filter(r, in);
}


static void
ngx_http_llm_capture_body(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_chain_t *in)
{
    ngx_chain_t                 *cl;
    ngx_http_llm_capture_ctx_t  *ctx;

    ctx = ngx_http_llm_capture_get_ctx(r);

    if (ctx == NULL) {

        for (cl = in; cl; cl = cl->next) {
            if (ngx_buf_size(cl->buf) != 0) {
                break;
            }
        }

        if (cl == NULL) {
            /* nothing has come so far; an empty body is not seen */
            return;
        }

        ctx = ngx_http_llm_capture_add_ctx(r, lcf);

        if (ctx == NULL) {
            return;
        }

        ngx_http_llm_capture_decide(ctx);
    }

    if (ctx->state == NGX_HTTP_LLM_CAPTURE_S_OPEN) {
        ngx_http_llm_capture_copy(ctx, in);
    }
}


ngx_http_llm_capture_ctx_t *
ngx_http_llm_capture_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_llm_capture_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_llm_capture_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {

        /* a redirect wipes the ctx, but not the pool's cleanups */

        for (cln = r->pool->cleanup; cln; cln = cln->next) {
            if (cln->handler == ngx_http_llm_capture_cleanup) {
                ctx = cln->data;

                if (ctx->request != r->main) {
                    return NULL;
                }

                ngx_http_set_ctx(r, ctx, ngx_http_llm_capture_module);
                break;
            }
        }
    }

    return ctx;
}


static ngx_http_llm_capture_ctx_t *
ngx_http_llm_capture_add_ctx(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_llm_capture_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_llm_capture_ctx_t));

    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_llm_capture_ctx_t));

    ctx->request = r;
    ctx->conf = lcf;

    cln->handler = ngx_http_llm_capture_cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_llm_capture_module);

    return ctx;
}


static ngx_int_t
ngx_http_llm_capture_enabled(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    ngx_str_t  value;

    if (lcf->enable != NGX_HTTP_LLM_CAPTURE_VAR) {
        return 1;
    }

    if (ngx_http_complex_value(r, lcf->enable_value, &value) != NGX_OK) {
        return 0;
    }

    return !(value.len == 0
             || (value.len == 1 && value.data[0] == '0')
             || (value.len == 3 && ngx_strncmp(value.data, "off", 3) == 0));
}


/* an opt-out, or AIPerf at work, whose requests have been recorded before */

static ngx_uint_t
ngx_http_llm_capture_skip(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    ngx_table_elt_t  *agent;

    static const char  replay[] = "aiperf/";

    agent = r->headers_in.user_agent;

    if (lcf->skip_replay && agent && agent->value.len >= sizeof(replay) - 1
        && ngx_memcmp(agent->value.data, replay, sizeof(replay) - 1) == 0)
    {
        return 1;
    }

    return lcf->skip && ngx_http_test_predicates(r, lcf->skip) != NGX_OK;
}


/* the first reason wins; what costs least is asked first */

static void
ngx_http_llm_capture_decide(ngx_http_llm_capture_ctx_t *ctx)
{
    off_t                             len;
    ngx_str_t                         uri;
    ngx_http_request_t               *r;
    ngx_http_llm_capture_counter_e    why;
    ngx_http_llm_capture_loc_conf_t  *lcf;

    r = ctx->request;
    lcf = ctx->conf;

    if (!ngx_http_llm_capture_enabled(r, lcf)) {
        return;
    }

    ngx_http_llm_capture_seen(lcf->row);

    uri = ngx_http_llm_capture_uri(r);
    len = r->headers_in.content_length_n;

    if (ngx_http_llm_capture_match(lcf, &uri) != NGX_OK) {
        why = NGX_HTTP_LLM_CAPTURE_C_unmatched;

    } else if (ngx_http_llm_capture_skip(r, lcf)) {
        why = NGX_HTTP_LLM_CAPTURE_C_skipped;

    } else if (ngx_http_llm_capture_paused(ctx)) {
        why = NGX_HTTP_LLM_CAPTURE_C_paused;

    } else if (!ngx_http_llm_capture_sampled_request(ctx)) {
        why = NGX_HTTP_LLM_CAPTURE_C_sampled_out;

    } else if (ngx_http_llm_capture_encoded(r)) {
        why = NGX_HTTP_LLM_CAPTURE_C_encoded;

    } else if (len > (off_t) lcf->max_request_bytes) {
        why = NGX_HTTP_LLM_CAPTURE_C_too_large;

    } else if (ngx_http_llm_capture_destination(ctx, &uri) != NGX_OK) {
        why = NGX_HTTP_LLM_CAPTURE_C_bad_path;

    } else if (!ngx_http_llm_capture_fits(ctx, len > 0 ? (size_t) len : 0)) {
        why = NGX_HTTP_LLM_CAPTURE_C_queue_full;

    } else if (ngx_http_llm_capture_exhausted(ctx, len)) {
        why = NGX_HTTP_LLM_CAPTURE_C_paused;

    } else {
        ctx->state = NGX_HTTP_LLM_CAPTURE_S_OPEN;

        if (lcf->outcome.value == 1
            || ngx_http_llm_capture_is_trace((uint32_t) lcf->format))
        {
            ctx->record.begin.uid = ngx_http_llm_capture_uid();
            ctx->record.begin.pid = (uint32_t) ngx_pid;
        }

        return;
    }

    ngx_http_llm_capture_refuse_ctx(ctx, why);
}


/* with what names its session, which goes along */

static ngx_uint_t
ngx_http_llm_capture_fits(ngx_http_llm_capture_ctx_t *ctx, size_t len)
{
    ngx_http_llm_capture_session(ctx);

    return ngx_http_llm_capture_room(
               ngx_http_llm_capture_record_size(len,
                   ctx->record.begin.path_len + ctx->record.begin.session_len,
                   len / NGX_HTTP_LLM_CAPTURE_CALL));
}


static void
ngx_http_llm_capture_refuse_ctx(ngx_http_llm_capture_ctx_t *ctx,
    ngx_http_llm_capture_counter_e why)
{
    ctx->state = NGX_HTTP_LLM_CAPTURE_S_REFUSED;
    ctx->reason = why;

    if (ctx->taken.records || ctx->taken.limited) {
        ngx_http_llm_capture_untaken(ctx);
    }

    ngx_http_llm_capture_refuse(ctx->conf->row, why);
}


static ngx_int_t
ngx_http_llm_capture_encoded(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    /* headers_in has no field for it */

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return 0;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == sizeof("Content-Encoding") - 1
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Content-Encoding",
                               sizeof("Content-Encoding") - 1)
               == 0
            && ngx_http_llm_capture_coded(&h[i].value))
        {
            return 1;
        }
    }
}


ngx_uint_t
ngx_http_llm_capture_coded(ngx_str_t *value)
{
    return value->len != 0
           && (value->len != sizeof("identity") - 1
               || ngx_strncasecmp(value->data, (u_char *) "identity",
                                  sizeof("identity") - 1)
                  != 0);
}


/*
 * Is that the whole body, though its end is still to come?  Over HTTP/2 and 3
 * it comes by itself; with proxy_request_buffering off the upstream has all it
 * waits for by then, and the request may be over before the end is read.
 */

static ngx_uint_t
ngx_http_llm_capture_whole(ngx_http_llm_capture_ctx_t *ctx, size_t size)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    /* chunked: the length is that of the chunks begun so far */

    return r->request_body_no_buffering
           && !r->headers_in.chunked
           && r->headers_in.content_length_n
              == (off_t) (ctx->record.off + size);
}


static void
ngx_http_llm_capture_copy(ngx_http_llm_capture_ctx_t *ctx, ngx_chain_t *in)
{
    size_t                          size;
    ngx_buf_t                      *b;
    ngx_uint_t                      n, last, whole;
    struct iovec                    iov[NGX_HTTP_LLM_CAPTURE_IOVS];
    ngx_chain_t                    *cl;
    ngx_http_llm_capture_counter_e  why;

    size = 0;
    why = NGX_HTTP_LLM_CAPTURE_C_max;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_size(b) == 0) {
            continue;
        }

        if (!ngx_buf_in_memory(b)) {
            why = NGX_HTTP_LLM_CAPTURE_C_unreadable;
            goto failed;
        }

        size += b->last - b->pos;
    }

    if (size > ctx->conf->max_request_bytes - ctx->record.off) {
        why = NGX_HTTP_LLM_CAPTURE_C_too_large;
        goto failed;
    }

    if (ngx_http_llm_capture_exceeded(ctx, ctx->record.off + size)) {
        why = NGX_HTTP_LLM_CAPTURE_C_paused;
        goto failed;
    }

    n = 0;
    last = 0;
    whole = ngx_http_llm_capture_whole(ctx, size);

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;
        last = b->last_buf || (whole && cl->next == NULL);

        if (ngx_buf_size(b) != 0) {
            iov[n].iov_base = b->pos;
            iov[n].iov_len = b->last - b->pos;
            n++;
        }

        if (n < NGX_HTTP_LLM_CAPTURE_IOVS && !last && cl->next) {
            continue;
        }

        if (n == 0 && !last) {
            continue;
        }

        if (ngx_http_llm_capture_put(&ctx->record, iov, n,
                                     last ? NGX_HTTP_LLM_CAPTURE_END : 0)
            != NGX_OK)
        {
            why = NGX_HTTP_LLM_CAPTURE_C_queue_full;
            goto full;
        }

        n = 0;

        if (last) {
            ctx->state = NGX_HTTP_LLM_CAPTURE_S_QUEUED;
            return;
        }
    }

    return;

failed:

    if (ctx->record.begun) {
        ngx_http_llm_capture_abort(&ctx->record, why);
    }

full:

    if (!ctx->record.begun) {
        ngx_http_llm_capture_refuse_ctx(ctx, why);
        return;
    }

    ctx->state = NGX_HTTP_LLM_CAPTURE_S_REFUSED;
    ctx->reason = why;
}


static void
ngx_http_llm_capture_cleanup(void *data)
{
    ngx_http_llm_capture_ctx_t  *ctx = data;

    if (NGX_HTTP_LLM_CAPTURE_BROKEN("abort")) {
        return;
    }

    if (ctx->state == NGX_HTTP_LLM_CAPTURE_S_OPEN && ctx->record.begun) {
        ctx->state = NGX_HTTP_LLM_CAPTURE_S_REFUSED;
        ctx->reason = NGX_HTTP_LLM_CAPTURE_C_aborted;

        ngx_http_llm_capture_abort(&ctx->record, ctx->reason);
    }
}
