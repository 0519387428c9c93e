
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
#include "ngx_http_llm_capture_path.h"


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
static ngx_int_t ngx_http_llm_capture_enabled(ngx_http_request_t *r,
    ngx_http_llm_capture_loc_conf_t *lcf);
static void ngx_http_llm_capture_decide(ngx_http_llm_capture_ctx_t *ctx);
static ngx_int_t ngx_http_llm_capture_encoded(ngx_http_request_t *r);
static ngx_int_t ngx_http_llm_capture_destination(
    ngx_http_llm_capture_ctx_t *ctx);
static void ngx_http_llm_capture_arrival(ngx_http_request_t *r,
    ngx_http_llm_capture_begin_t *begin);
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

    if (lcf->enable == NGX_HTTP_LLM_CAPTURE_ON) {
        return 1;
    }

    if (ngx_http_complex_value(r, lcf->enable_value, &value) != NGX_OK) {
        return 0;
    }

    return !(value.len == 0
             || (value.len == 1 && value.data[0] == '0')
             || (value.len == 3 && ngx_strncmp(value.data, "off", 3) == 0));
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

    } else if (!ngx_http_llm_capture_sampled(lcf->sample)) {
        why = NGX_HTTP_LLM_CAPTURE_C_sampled_out;

    } else if (ngx_http_llm_capture_encoded(r)) {
        why = NGX_HTTP_LLM_CAPTURE_C_encoded;

    } else if (len > (off_t) lcf->max_request_bytes) {
        why = NGX_HTTP_LLM_CAPTURE_C_too_large;

    } else if (ngx_http_llm_capture_destination(ctx) != NGX_OK) {
        why = NGX_HTTP_LLM_CAPTURE_C_bad_path;

    } else if (!ngx_http_llm_capture_room(
                   ngx_http_llm_capture_record_size(len > 0 ? len : 0,
                       ctx->record.begin.path_len,
                       len > 0 ? len / NGX_HTTP_LLM_CAPTURE_CALL : 0)))
    {
        why = NGX_HTTP_LLM_CAPTURE_C_queue_full;

    } else {
        ctx->state = NGX_HTTP_LLM_CAPTURE_S_OPEN;
        return;
    }

    ngx_http_llm_capture_refuse_ctx(ctx, why);
}


static void
ngx_http_llm_capture_refuse_ctx(ngx_http_llm_capture_ctx_t *ctx,
    ngx_http_llm_capture_counter_e why)
{
    ctx->state = NGX_HTTP_LLM_CAPTURE_S_REFUSED;
    ctx->reason = why;

    ngx_http_llm_capture_refuse(ctx->conf->row, why);
}


/*
 * The path the client asked for.  Once the URI was changed inside nginx, it is
 * decoded again from what came, by nginx's own parser, so that it is what $uri
 * was at first.
 */

ngx_str_t
ngx_http_llm_capture_uri(ngx_http_request_t *r)
{
    ngx_str_t                  uri;
    ngx_http_request_t        *copy;
    ngx_http_core_srv_conf_t  *cscf;

    if (r->valid_unparsed_uri) {
        return r->uri;
    }

    ngx_str_null(&uri);

    if (r->unparsed_uri.len == 0) {
        return uri;
    }

    copy = ngx_pcalloc(r->pool, sizeof(ngx_http_request_t));

    if (copy == NULL) {
        return uri;
    }

    copy->uri.data = ngx_pnalloc(r->pool, r->unparsed_uri.len + 1);

    if (copy->uri.data == NULL) {
        return uri;
    }

    /* the parser looks one byte behind the end, for the space there */

    copy->uri_start = ngx_pnalloc(r->pool, r->unparsed_uri.len + 1);

    if (copy->uri_start == NULL) {
        return uri;
    }

    copy->uri_end = ngx_cpymem(copy->uri_start, r->unparsed_uri.data,
                               r->unparsed_uri.len);
    *copy->uri_end = ' ';

    if (*copy->uri_start != '/') {
        /* absolute form without a path: "?args" */
        ngx_str_set(&uri, "/");
        return uri;
    }

    copy->connection = r->connection;

    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

    if (ngx_http_parse_complex_uri(copy, cscf->merge_slashes) == NGX_OK) {
        uri = copy->uri;
    }

    return uri;
}


ngx_http_llm_capture_endpoint_e
ngx_http_llm_capture_endpoint(ngx_str_t *uri)
{
    ngx_uint_t  i;

    static const struct {
        ngx_str_t                        tail;
        ngx_http_llm_capture_endpoint_e  endpoint;
    }  tails[] = {
        { ngx_string("/chat/completions"), NGX_HTTP_LLM_CAPTURE_CHAT },
        { ngx_string("/completions"), NGX_HTTP_LLM_CAPTURE_COMPLETIONS },
        { ngx_string("/responses"), NGX_HTTP_LLM_CAPTURE_RESPONSES },
        { ngx_string("/messages"), NGX_HTTP_LLM_CAPTURE_MESSAGES },
        { ngx_string("/embeddings"), NGX_HTTP_LLM_CAPTURE_EMBEDDINGS },
    };

    for (i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        if (uri->len >= tails[i].tail.len
            && ngx_memcmp(uri->data + uri->len - tails[i].tail.len,
                          tails[i].tail.data, tails[i].tail.len)
               == 0)
        {
            return tails[i].endpoint;
        }
    }

    return NGX_HTTP_LLM_CAPTURE_OTHER;
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
            && h[i].value.len != 0
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Content-Encoding",
                               sizeof("Content-Encoding") - 1)
               == 0
            && (h[i].value.len != sizeof("identity") - 1
                || ngx_strncasecmp(h[i].value.data, (u_char *) "identity",
                                   sizeof("identity") - 1)
                   != 0))
        {
            return 1;
        }
    }
}


/* where to, once per request */

static ngx_int_t
ngx_http_llm_capture_destination(ngx_http_llm_capture_ctx_t *ctx)
{
    u_char                           *p, *last;
    char                              name[NGX_HTTP_LLM_CAPTURE_PATH_VALUE];
    size_t                            n;
    ngx_str_t                         uri, value;
    ngx_uint_t                        i;
    ngx_http_request_t               *r;
    ngx_http_llm_capture_part_t      *part;
    ngx_http_llm_capture_begin_t     *begin;
    ngx_http_llm_capture_loc_conf_t  *lcf;
    u_char                            path[NGX_HTTP_LLM_CAPTURE_PATH];

    r = ctx->request;
    lcf = ctx->conf;
    begin = &ctx->record.begin;

    ngx_http_llm_capture_arrival(r, begin);

    uri = ngx_http_llm_capture_uri(r);

    begin->hash = lcf->hash;
    begin->format = (uint8_t) lcf->format;
    begin->endpoint = (uint8_t) ngx_http_llm_capture_endpoint(&uri);

    if (lcf->parts == NULL) {
        ctx->record.path = (char *) lcf->path.data;
        begin->path_len = (uint16_t) lcf->path.len;
        return NGX_OK;
    }

    p = ngx_cpymem(path, lcf->path.data, lcf->base_len);
    last = path + sizeof(path) - 1;
    part = lcf->parts->elts;

    for (i = 0; i < lcf->parts->nelts; i++) {
        value = part[i].literal;

        if (value.data == NULL) {

            if (ngx_http_complex_value(r, &part[i].value, &value) != NGX_OK) {
                return NGX_ERROR;
            }

            n = ngx_http_llm_capture_path_value(name, value.data, value.len);

            value.data = (u_char *) name;
            value.len = n;
        }

        if (value.len > (size_t) (last - p)) {
            return NGX_ERROR;
        }

        p = ngx_cpymem(p, value.data, value.len);
    }

    n = p - path;

    ctx->record.path = ngx_pnalloc(r->pool, n);

    if (ctx->record.path == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy((char *) ctx->record.path, path, n);
    begin->path_len = (uint16_t) n;

    return NGX_OK;
}


static void
ngx_http_llm_capture_arrival(ngx_http_request_t *r,
    ngx_http_llm_capture_begin_t *begin)
{
    int64_t      age, most;
    ngx_time_t  *tp;

    begin->wall = (uint64_t) r->start_sec * 1000 + r->start_msec;

    /*
     * A request knows its arrival by the wall clock alone, which may have been
     * set since; it cannot be older than its connection
     */

    tp = ngx_timeofday();
    age = (int64_t) ((uint64_t) tp->sec * 1000 + tp->msec - begin->wall);
    most = (int64_t) (ngx_current_msec - r->connection->start_time);

    if (age > most) {
        age = most;
    }

    if (age < 0) {
        age = 0;
    }

    begin->mono = (uint64_t) ngx_current_msec - age;
}


static void
ngx_http_llm_capture_copy(ngx_http_llm_capture_ctx_t *ctx, ngx_chain_t *in)
{
    size_t                          size;
    ngx_buf_t                      *b;
    ngx_uint_t                      n, last;
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

    n = 0;
    last = 0;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;
        last = b->last_buf;

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

    if (ctx->state == NGX_HTTP_LLM_CAPTURE_S_OPEN && ctx->record.begun) {
        ctx->state = NGX_HTTP_LLM_CAPTURE_S_REFUSED;
        ctx->reason = NGX_HTTP_LLM_CAPTURE_C_aborted;

        ngx_http_llm_capture_abort(&ctx->record, ctx->reason);
    }
}
