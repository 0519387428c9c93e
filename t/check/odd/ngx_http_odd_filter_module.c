
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A request body filter that hands bodies on as nginx rarely does:
 *
 *     odd last;    the end in a buffer of its own, without memory
 *     odd null;    and such buffers before and after each piece
 *     odd split;   or a byte in a buffer
 *     odd file;    or all in a file only
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


#define ODD_OFF    0
#define ODD_NULL   1
#define ODD_LAST   2
#define ODD_SPLIT  3
#define ODD_FILE   4


static void *ngx_http_odd_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_odd_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_odd_init(ngx_conf_t *cf);


static ngx_conf_enum_t  ngx_http_odd_kinds[] = {
    { ngx_string("off"), ODD_OFF },
    { ngx_string("null"), ODD_NULL },
    { ngx_string("last"), ODD_LAST },
    { ngx_string("split"), ODD_SPLIT },
    { ngx_string("file"), ODD_FILE },
    { ngx_null_string, 0 }
};


static ngx_command_t  ngx_http_odd_commands[] = {

    { ngx_string("odd"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_odd_kinds },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_odd_filter_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_odd_init,                     /* postconfiguration */
    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */
    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */
    ngx_http_odd_create_loc_conf,          /* create location configuration */
    ngx_http_odd_merge_loc_conf            /* merge location configuration */
};


ngx_module_t  ngx_http_odd_filter_module = {
    NGX_MODULE_V1,
    &ngx_http_odd_filter_module_ctx,       /* module context */
    ngx_http_odd_commands,                 /* module directives */
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


/* an empty buffer at the end of the chain, the place behind it */

static ngx_chain_t **
ngx_http_odd_add(ngx_http_request_t *r, ngx_chain_t **last, ngx_buf_t **b)
{
    ngx_chain_t  *cl;

    cl = ngx_alloc_chain_link(r->pool);
    *b = ngx_calloc_buf(r->pool);

    if (cl == NULL || *b == NULL) {
        return NULL;
    }

    cl->buf = *b;
    cl->next = NULL;
    *last = cl;

    return &cl->next;
}


static ngx_int_t
ngx_http_odd_to_file(ngx_http_request_t *r, ngx_buf_t *b, u_char *data,
    size_t size)
{
    ngx_temp_file_t           *tf;
    ngx_http_core_loc_conf_t  *clcf;

    tf = ngx_pcalloc(r->pool, sizeof(ngx_temp_file_t));
    if (tf == NULL) {
        return NGX_ERROR;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    tf->file.fd = NGX_INVALID_FILE;
    tf->file.log = r->connection->log;
    tf->path = clcf->client_body_temp_path;
    tf->pool = r->pool;
    tf->clean = 1;

    if (ngx_create_temp_file(&tf->file, tf->path, tf->pool, 0, 1, 0)
        != NGX_OK
        || ngx_write_file(&tf->file, data, size, 0) != (ssize_t) size)
    {
        return NGX_ERROR;
    }

    b->in_file = 1;
    b->file = &tf->file;
    b->file_last = size;

    return NGX_OK;
}


/* what one buffer becomes; its bytes are copied, it is used up */

static ngx_chain_t **
ngx_http_odd_piece(ngx_http_request_t *r, ngx_uint_t kind, ngx_buf_t *in,
    ngx_chain_t **last)
{
    size_t      size, n;
    u_char     *data;
    ngx_buf_t  *b;

    size = in->last - in->pos;
    data = ngx_pnalloc(r->pool, size + 1);

    if (data == NULL) {
        return NULL;
    }

    if (size) {
        ngx_memcpy(data, in->pos, size);
        in->pos = in->last;
    }

    if (kind == ODD_NULL) {
        last = ngx_http_odd_add(r, last, &b);
        if (last == NULL) {
            return NULL;
        }

        b->sync = 1;
    }

    while (size) {
        n = kind == ODD_SPLIT ? 1 : size;

        last = ngx_http_odd_add(r, last, &b);
        if (last == NULL) {
            return NULL;
        }

        if (kind == ODD_FILE) {
            if (ngx_http_odd_to_file(r, b, data, n) != NGX_OK) {
                return NULL;
            }

        } else {
            b->temporary = 1;
            b->start = b->pos = data;
            b->end = b->last = data + n;
        }

        data += n;
        size -= n;
    }

    if (kind == ODD_NULL) {
        last = ngx_http_odd_add(r, last, &b);
        if (last == NULL) {
            return NULL;
        }

        b->memory = 1;
        b->flush = 1;
    }

    if (in->last_buf) {
        last = ngx_http_odd_add(r, last, &b);
        if (last == NULL) {
            return NULL;
        }

        b->last_buf = 1;
    }

    return last;
}


static ngx_int_t
ngx_http_odd_request_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_uint_t   *kind;
    ngx_chain_t  *cl, *out, **last;

    kind = ngx_http_get_module_loc_conf(r, ngx_http_odd_filter_module);

    if (*kind == ODD_OFF || in == NULL) {
        return ngx_http_next_request_body_filter(r, in);
    }

    out = NULL;
    last = &out;

    for (cl = in; cl; cl = cl->next) {
        last = ngx_http_odd_piece(r, *kind, cl->buf, last);

        if (last == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return ngx_http_next_request_body_filter(r, out);
}


static void *
ngx_http_odd_create_loc_conf(ngx_conf_t *cf)
{
    ngx_uint_t  *kind;

    kind = ngx_palloc(cf->pool, sizeof(ngx_uint_t));

    if (kind) {
        *kind = NGX_CONF_UNSET_UINT;
    }

    return kind;
}


static char *
ngx_http_odd_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_uint_t  *prev = parent;
    ngx_uint_t  *kind = child;

    ngx_conf_merge_uint_value(*kind, *prev, ODD_OFF);

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_odd_init(ngx_conf_t *cf)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_odd_request_body_filter;

    return NGX_OK;
}
