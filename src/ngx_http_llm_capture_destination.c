
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Where a request came from and where its record goes: the path the client
 * asked for, the endpoint, the time of arrival, the file.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_path.h"


/* ms by which two readings of two clocks may differ */
#define NGX_HTTP_LLM_CAPTURE_SLACK  3


static void ngx_http_llm_capture_arrival(ngx_http_request_t *r,
    ngx_http_llm_capture_begin_t *begin);


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
    ngx_http_conf_ctx_t       *ctx;
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

    /* the URI comes before the Host: the address's server told how to read */

    ctx = r->http_connection->conf_ctx;
    cscf = ctx->srv_conf[ngx_http_core_module.ctx_index];

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


/* what its rows are to hold */

static ngx_uint_t
ngx_http_llm_capture_flags(ngx_http_llm_capture_loc_conf_t *lcf)
{
    ngx_uint_t  flags;

    flags = 0;

    /* a column of each row of baseten_trace */

    if (lcf->hash_ids.value == 1
        || lcf->format == NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE)
    {
        flags |= NGX_HTTP_LLM_CAPTURE_HASH_IDS;
    }

    if (lcf->output_text.value == 1) {
        flags |= NGX_HTTP_LLM_CAPTURE_OUTPUT;
    }

    return flags;
}


/* where to, once per request */

ngx_int_t
ngx_http_llm_capture_destination(ngx_http_llm_capture_ctx_t *ctx,
    ngx_str_t *uri)
{
    u_char                           *p, *last;
    char                              name[NGX_HTTP_LLM_CAPTURE_PATH_VALUE];
    size_t                            n;
    ngx_str_t                         value;
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

    begin->hash = lcf->hash;
    begin->format = (uint8_t) lcf->format;
    begin->flags = (uint16_t) ngx_http_llm_capture_flags(lcf);
    begin->endpoint = (uint8_t) ngx_http_llm_capture_endpoint(uri);

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

    /* one value is kept from it, but not several side by side */

    if (ngx_http_llm_capture_path_taken(path, n)) {
        return NGX_ERROR;
    }

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
    int64_t      mono, shift;
    ngx_time_t  *tp;

    /* CLOCK_MONOTONIC minus wall clock, of this process, in ms */
    static int64_t  offset;

    begin->wall = (uint64_t) r->start_sec * 1000 + r->start_msec;

    /*
     * A request knows its arrival by the wall clock alone.  One offset serves
     * until that clock is set: their milliseconds do not begin together, and
     * computed anew each time two requests of a connection change places.
     */

    tp = ngx_timeofday();
    shift = (int64_t) ngx_current_msec
            - (int64_t) ((uint64_t) tp->sec * 1000 + tp->msec);

    if (shift > offset + NGX_HTTP_LLM_CAPTURE_SLACK
        || shift < offset - NGX_HTTP_LLM_CAPTURE_SLACK)
    {
        offset = shift;
    }

    mono = (int64_t) begin->wall + offset;

    /* it came after its connection, and not after now */

    if (mono > (int64_t) ngx_current_msec) {
        mono = (int64_t) ngx_current_msec;
    }

    if (mono < (int64_t) r->connection->start_time) {
        mono = (int64_t) r->connection->start_time;
    }

    begin->mono = (uint64_t) mono;
}
