
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * test_swap text: a request body filter that swallows a body, and passes this
 * text on in its place, which may be empty.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef struct {
    ngx_str_t    text;                     /* data NULL: off */
} ngx_http_test_swap_conf_t;


static void *ngx_http_test_swap_create_conf(ngx_conf_t *cf);
static ngx_int_t ngx_http_test_swap_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_test_swap_filter(ngx_http_request_t *r,
    ngx_chain_t *in);


static ngx_command_t  ngx_http_test_swap_commands[] = {

    { ngx_string("test_swap"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_str_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_test_swap_conf_t, text),
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_test_swap_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_test_swap_init,               /* postconfiguration */
    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */
    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */
    ngx_http_test_swap_create_conf,        /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_test_swap_module = {
    NGX_MODULE_V1,
    &ngx_http_test_swap_module_ctx,        /* module context */
    ngx_http_test_swap_commands,           /* module directives */
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
ngx_http_test_swap_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t                  *b;
    ngx_uint_t                  last;
    ngx_chain_t                *cl, *out;
    ngx_http_test_swap_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_test_swap_module);

    if (conf->text.data == NULL || in == NULL) {
        return ngx_http_next_request_body_filter(r, in);
    }

    last = 0;

    for (cl = in; cl; cl = cl->next) {
        last |= cl->buf->last_buf;
        cl->buf->pos = cl->buf->last;
    }

    if (!last) {
        return ngx_http_next_request_body_filter(r, NULL);
    }

    b = ngx_calloc_buf(r->pool);
    out = ngx_alloc_chain_link(r->pool);

    if (b == NULL || out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = conf->text.data;
    b->last = conf->text.data + conf->text.len;
    b->start = b->pos;
    b->end = b->last;
    b->memory = (conf->text.len != 0);
    b->last_buf = 1;

    out->buf = b;
    out->next = NULL;

    /* what proxy_pass says to the server */

    r->headers_in.content_length_n = conf->text.len;

    return ngx_http_next_request_body_filter(r, out);
}


static void *
ngx_http_test_swap_create_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_test_swap_conf_t));
}


static ngx_int_t
ngx_http_test_swap_init(ngx_conf_t *cf)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_test_swap_filter;

    return NGX_OK;
}
