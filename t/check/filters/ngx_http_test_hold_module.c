
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * test_hold on: a request body filter that keeps all of a body, and passes it
 * on in one piece when it is complete, as one does that must judge it first.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef struct {
    ngx_flag_t    enable;
} ngx_http_test_hold_conf_t;

typedef struct {
    u_char       *data;
    size_t        len;
    size_t        size;
} ngx_http_test_hold_ctx_t;


static void *ngx_http_test_hold_create_conf(ngx_conf_t *cf);
static char *ngx_http_test_hold_merge_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_test_hold_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_test_hold_filter(ngx_http_request_t *r,
    ngx_chain_t *in);


static ngx_command_t  ngx_http_test_hold_commands[] = {

    { ngx_string("test_hold"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_test_hold_conf_t, enable),
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_test_hold_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_test_hold_init,               /* postconfiguration */
    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */
    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */
    ngx_http_test_hold_create_conf,        /* create location configuration */
    ngx_http_test_hold_merge_conf          /* merge location configuration */
};


ngx_module_t  ngx_http_test_hold_module = {
    NGX_MODULE_V1,
    &ngx_http_test_hold_module_ctx,        /* module context */
    ngx_http_test_hold_commands,           /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_http_request_body_filter_pt  ngx_http_next_request_body_filter;


static ngx_int_t
ngx_http_test_hold_keep(ngx_http_request_t *r, ngx_http_test_hold_ctx_t *ctx,
    ngx_buf_t *b)
{
    size_t   n, size;
    u_char  *data;

    n = b->last - b->pos;

    if (ctx->len + n > ctx->size) {
        size = 2 * (ctx->len + n);

        data = ngx_palloc(r->pool, size);
        if (data == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(data, ctx->data, ctx->len);
        ctx->data = data;
        ctx->size = size;
    }

    ngx_memcpy(ctx->data + ctx->len, b->pos, n);
    ctx->len += n;

    /* taken: nginx may use the buffer again */

    b->pos = b->last;

    return NGX_OK;
}


static ngx_int_t
ngx_http_test_hold_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t                  *b;
    ngx_uint_t                  last;
    ngx_chain_t                *cl, *out;
    ngx_http_test_hold_ctx_t   *ctx;
    ngx_http_test_hold_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_test_hold_module);

    if (!conf->enable || in == NULL) {
        return ngx_http_next_request_body_filter(r, in);
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_test_hold_module);

    if (ctx == NULL) {
        ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_test_hold_ctx_t));
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        ctx->data = (u_char *) "";
        ngx_http_set_ctx(r, ctx, ngx_http_test_hold_module);
    }

    last = 0;

    for (cl = in; cl; cl = cl->next) {
        last |= cl->buf->last_buf;

        if (ngx_http_test_hold_keep(r, ctx, cl->buf) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    if (!last) {
        return ngx_http_next_request_body_filter(r, NULL);
    }

    b = ngx_calloc_buf(r->pool);
    out = ngx_alloc_chain_link(r->pool);

    if (b == NULL || out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = ctx->data;
    b->last = ctx->data + ctx->len;
    b->start = b->pos;
    b->end = b->last;
    b->memory = (ctx->len != 0);
    b->last_buf = 1;

    out->buf = b;
    out->next = NULL;

    return ngx_http_next_request_body_filter(r, out);
}


static void *
ngx_http_test_hold_create_conf(ngx_conf_t *cf)
{
    ngx_http_test_hold_conf_t  *conf;

    conf = ngx_palloc(cf->pool, sizeof(ngx_http_test_hold_conf_t));

    if (conf) {
        conf->enable = NGX_CONF_UNSET;
    }

    return conf;
}


static char *
ngx_http_test_hold_merge_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_test_hold_conf_t *prev = parent;
    ngx_http_test_hold_conf_t *conf = child;

    ngx_conf_merge_value(conf->enable, prev->enable, 0);

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_test_hold_init(ngx_conf_t *cf)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_test_hold_filter;

    return NGX_OK;
}
