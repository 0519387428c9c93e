
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Whether a request is to be taken now: what llm_capture_control said, as a
 * worker goes by it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture_drainer.h"


static ngx_http_llm_capture_zone_t *ngx_http_llm_capture_pause_zone(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_llm_capture_paused_by(
    ngx_http_llm_capture_ctx_t *ctx) __attribute__((noinline));
static ngx_uint_t ngx_http_llm_capture_matched(ngx_http_request_t *r,
    ngx_http_llm_capture_said_t *said);


static ngx_http_llm_capture_view_t  ngx_http_llm_capture_view;


void
ngx_http_llm_capture_pause_init(void)
{
    /* of another zone, where one process outlives it */

    ngx_memzero(&ngx_http_llm_capture_view,
                sizeof(ngx_http_llm_capture_view_t));
}


static ngx_http_llm_capture_zone_t *
ngx_http_llm_capture_pause_zone(ngx_http_request_t *r)
{
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_http_get_module_main_conf(r, ngx_http_llm_capture_module);

    return &mcf->zone;
}


/* nothing was said: most of all times, so it has to be cheap */

ngx_uint_t
ngx_http_llm_capture_paused(ngx_http_llm_capture_ctx_t *ctx)
{
    ctx->sample = ctx->conf->sample;
    ctx->taken.at = NGX_HTTP_LLM_CAPTURE_NONE;

    if (ngx_http_llm_capture_control_any(&ngx_http_llm_capture_view,
                             ngx_http_llm_capture_pause_zone(ctx->request)))
    {
        return ngx_http_llm_capture_paused_by(ctx);
    }

    return ctx->conf->enable == NGX_HTTP_LLM_CAPTURE_PAUSED;
}


static ngx_uint_t
ngx_http_llm_capture_paused_by(ngx_http_llm_capture_ctx_t *ctx)
{
    uint32_t                      at;
    uint64_t                      now;
    ngx_http_llm_capture_said_t  *said;
    ngx_http_llm_capture_zone_t  *zone;
    ngx_http_llm_capture_view_t  *view;

    zone = ngx_http_llm_capture_pause_zone(ctx->request);
    view = &ngx_http_llm_capture_view;

    now = view->timed ? ngx_http_llm_capture_now() : 0;
    at = ngx_http_llm_capture_control_at(view, (uint32_t) ctx->conf->row, now);

    if (at == NGX_HTTP_LLM_CAPTURE_NONE) {
        return ctx->conf->enable == NGX_HTTP_LLM_CAPTURE_PAUSED;
    }

    said = &view->said[at];

    if (said->mode == NGX_HTTP_LLM_CAPTURE_MODE_OFF
        || ngx_http_llm_capture_control_ended(view, zone, at, now)
           != NGX_HTTP_LLM_CAPTURE_ENDED_NOT
        || (said->name_len
            && !ngx_http_llm_capture_matched(ctx->request, said)))
    {
        return 1;
    }

    if (said->rate != NGX_HTTP_LLM_CAPTURE_RATE_NONE) {
        ctx->sample = said->rate;
    }

    ctx->taken.at = at;

    return 0;
}


/* what is not there is empty, as elsewhere */

static ngx_uint_t
ngx_http_llm_capture_matched(ngx_http_request_t *r,
    ngx_http_llm_capture_said_t *said)
{
    size_t                      len;
    ngx_str_t                   name;
    ngx_http_variable_value_t  *vv;

    name.data = (u_char *) said->match;
    name.len = said->name_len;

    vv = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));

    len = vv == NULL || vv->not_found ? 0 : vv->len;

    return len == said->value_len
           && (len == 0
               || ngx_memcmp(vv->data, said->match + said->name_len, len)
                  == 0);
}


ngx_uint_t
ngx_http_llm_capture_exhausted(ngx_http_llm_capture_ctx_t *ctx, off_t len)
{
    if (ctx->taken.at == NGX_HTTP_LLM_CAPTURE_NONE) {
        return 0;
    }

    /* chunked: the length is that of the chunks begun so far */

    if (len < 0 || ctx->request->headers_in.chunked) {
        len = 0;
    }

    return ngx_http_llm_capture_control_take(&ngx_http_llm_capture_view,
                         ngx_http_llm_capture_pause_zone(ctx->request),
                         ctx->taken.at, (uint64_t) len, &ctx->taken)
           != 0;
}


ngx_uint_t
ngx_http_llm_capture_exceeded(ngx_http_llm_capture_ctx_t *ctx, size_t len)
{
    return ctx->taken.limited
           && ngx_http_llm_capture_control_more(
                         ngx_http_llm_capture_pause_zone(ctx->request),
                         &ctx->taken, len)
              != 0;
}


void
ngx_http_llm_capture_untaken(ngx_http_llm_capture_ctx_t *ctx)
{
    ngx_http_llm_capture_control_return(
                         ngx_http_llm_capture_pause_zone(ctx->request),
                         &ctx->taken);
}
