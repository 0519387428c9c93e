
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * llm_capture_status: how it goes, read from the zone by the worker that is
 * asked.  It opens nothing, waits for nobody and changes nothing.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture_drainer.h"
#include "ngx_http_llm_capture_page.h"
#include "ngx_http_llm_capture_stat.h"
#include "ngx_http_llm_capture_version.h"


typedef enum {
    NGX_HTTP_LLM_CAPTURE_AS_JSON = 0,
    NGX_HTTP_LLM_CAPTURE_AS_PROMETHEUS,
    NGX_HTTP_LLM_CAPTURE_AS_HTML,
    NGX_HTTP_LLM_CAPTURE_AS_NOTHING
} ngx_http_llm_capture_as_e;


static ngx_int_t ngx_http_llm_capture_status_handler(ngx_http_request_t *r);
static ngx_http_llm_capture_as_e ngx_http_llm_capture_status_as(
    ngx_http_request_t *r);
static ngx_http_llm_capture_as_e ngx_http_llm_capture_status_accept(
    u_char *p, size_t len);
static ngx_uint_t ngx_http_llm_capture_status_quality(u_char *p, u_char *last);
static ngx_int_t ngx_http_llm_capture_status_text(ngx_http_request_t *r,
    ngx_http_llm_capture_as_e as, ngx_str_t *text);
static size_t ngx_http_llm_capture_status_name(void *ctx, uint32_t row,
    char *text);
static ngx_int_t ngx_http_llm_capture_status_no_store(ngx_http_request_t *r);


static ngx_str_t  ngx_http_llm_capture_as_names[] = {
    ngx_string("json"),
    ngx_string("prometheus"),
    ngx_string("html")
};


static ngx_str_t  ngx_http_llm_capture_as_types[] = {
    ngx_string("application/json"),
    ngx_string("text/plain; version=0.0.4; charset=utf-8"),
    ngx_string("text/html; charset=utf-8")
};


char *
ngx_http_llm_capture_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler == ngx_http_llm_capture_status_handler) {
        return "is duplicate";
    }

    clcf->handler = ngx_http_llm_capture_status_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_llm_capture_status_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_str_t                  text;
    ngx_http_llm_capture_as_e  as;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    as = ngx_http_llm_capture_status_as(r);

    if (as == NGX_HTTP_LLM_CAPTURE_AS_NOTHING) {
        return NGX_HTTP_BAD_REQUEST;
    }

    if (as == NGX_HTTP_LLM_CAPTURE_AS_HTML) {
        text.data = (u_char *) ngx_http_llm_capture_page;
        text.len = sizeof(ngx_http_llm_capture_page) - 1;

    } else if (ngx_http_llm_capture_status_text(r, as, &text) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_llm_capture_status_send(r, NGX_HTTP_OK,
                                            &ngx_http_llm_capture_as_types[as],
                                            &text);
}


static ngx_http_llm_capture_as_e
ngx_http_llm_capture_status_as(ngx_http_request_t *r)
{
    ngx_str_t                   value;
    ngx_http_llm_capture_as_e   as;
    ngx_http_variable_value_t  *accept;

    /* headers_in has a field for it in some builds only */

    static ngx_str_t  name = ngx_string("http_accept");

    if (ngx_http_arg(r, (u_char *) "format", sizeof("format") - 1, &value)
        == NGX_OK)
    {
        for (as = 0; as < NGX_HTTP_LLM_CAPTURE_AS_NOTHING; as++) {
            if (value.len == ngx_http_llm_capture_as_names[as].len
                && ngx_strncmp(value.data,
                               ngx_http_llm_capture_as_names[as].data,
                               value.len)
                   == 0)
            {
                break;
            }
        }

        return as;
    }

    accept = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));

    if (accept == NULL || accept->not_found) {
        return NGX_HTTP_LLM_CAPTURE_AS_JSON;
    }

    return ngx_http_llm_capture_status_accept(accept->data, accept->len);
}


/*
 * A scraper names its text before "*" and a browser HTML, which it gets when it
 * asks for it by the argument: a page must not surprise a script.
 */

static ngx_http_llm_capture_as_e
ngx_http_llm_capture_status_accept(u_char *p, size_t len)
{
    u_char                    *type, *end, *last;
    ngx_uint_t                 i, q, best;
    ngx_http_llm_capture_as_e  as;

    static const struct {
        ngx_str_t                  type;
        ngx_http_llm_capture_as_e  as;
    } types[] = {
        { ngx_string("text/plain"), NGX_HTTP_LLM_CAPTURE_AS_PROMETHEUS },
        { ngx_string("application/openmetrics-text"),
          NGX_HTTP_LLM_CAPTURE_AS_PROMETHEUS },
        { ngx_string("application/json"), NGX_HTTP_LLM_CAPTURE_AS_JSON },
        { ngx_string("application/*"), NGX_HTTP_LLM_CAPTURE_AS_JSON },
        { ngx_string("text/html"), NGX_HTTP_LLM_CAPTURE_AS_JSON },
        { ngx_string("*/*"), NGX_HTTP_LLM_CAPTURE_AS_JSON },
    };

    as = NGX_HTTP_LLM_CAPTURE_AS_JSON;
    best = 0;
    last = p + len;

    for ( /* void */ ; p < last; p++) {

        while (p < last && (*p == ' ' || *p == '\t')) {
            p++;
        }

        type = p;

        while (p < last && *p != ',' && *p != ';' && *p != ' ') {
            p++;
        }

        end = p;

        while (p < last && *p != ',') {
            p++;
        }

        q = ngx_http_llm_capture_status_quality(end, p);

        for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
            if (q > best
                && types[i].type.len == (size_t) (end - type)
                && ngx_strncasecmp(types[i].type.data, type, end - type) == 0)
            {
                best = q;
                as = types[i].as;
            }
        }
    }

    return as;
}


/* in thousandths; of parameters such as ";version=0.0.4;q=0.3" */

static ngx_uint_t
ngx_http_llm_capture_status_quality(u_char *p, u_char *last)
{
    ngx_int_t  n;

    for ( /* void */ ; p + 3 < last; p++) {

        if ((p[0] != ';' && p[0] != ' ') || (p[1] != 'q' && p[1] != 'Q')
            || p[2] != '=')
        {
            continue;
        }

        p += 3;

        while (last > p && (last[-1] == ' ' || last[-1] == '\t')) {
            last--;
        }

        n = ngx_atofp(p, last - p, 3);

        return n < 0 || n > 1000 ? 1000 : (ngx_uint_t) n;
    }

    return 1000;
}


static ngx_int_t
ngx_http_llm_capture_status_text(ngx_http_request_t *r,
    ngx_http_llm_capture_as_e as, ngx_str_t *text)
{
    ngx_http_llm_capture_stat_t  *s;

    s = ngx_http_llm_capture_status_read(r);

    if (s == NULL) {
        return NGX_ERROR;
    }

    text->data = (u_char *) (as == NGX_HTTP_LLM_CAPTURE_AS_JSON
                     ? ngx_http_llm_capture_stat_json(s, &text->len)
                     : ngx_http_llm_capture_stat_prometheus(s, &text->len));

    return ngx_http_llm_capture_status_own(r, (char *) text->data);
}


ngx_int_t
ngx_http_llm_capture_status_own(ngx_http_request_t *r, char *text)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (cln == NULL || text == NULL) {
        free(text);
        return NGX_ERROR;
    }

    cln->handler = free;
    cln->data = text;

    return NGX_OK;
}


ngx_http_llm_capture_stat_t *
ngx_http_llm_capture_status_read(ngx_http_request_t *r)
{
    struct timespec                    ts;
    ngx_http_llm_capture_stat_t       *s;
    ngx_http_llm_capture_zone_t       *zone;
    ngx_http_llm_capture_main_conf_t  *mcf;
    ngx_http_llm_capture_stat_conf_t   conf;

    mcf = ngx_http_get_module_main_conf(r, ngx_http_llm_capture_module);
    zone = mcf->shm_zone ? &mcf->zone : NULL;

    ngx_memzero(&conf, sizeof(ngx_http_llm_capture_stat_conf_t));

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    conf.now = ngx_http_llm_capture_now();
    conf.wall = (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
    conf.zone = mcf->born;
    conf.version = NGX_HTTP_LLM_CAPTURE_VERSION;
    conf.nginx = NGINX_VERSION;
    conf.name = ngx_http_llm_capture_status_name;
    conf.ctx = mcf;

    if (zone) {
        /* the kernel knows better than the zone, but not of our own lock */
        conf.helper = (uint64_t) (ngx_process == NGX_PROCESS_SINGLE
                                  ? ngx_pid
                                  : ngx_http_llm_capture_byte_holder(
                                                                  mcf->lock));
    }

    s = ngx_palloc(r->pool, ngx_http_llm_capture_stat_size(zone));

    if (s) {
        ngx_http_llm_capture_stat_read(s, zone, &conf);
    }

    return s;
}


static size_t
ngx_http_llm_capture_status_name(void *ctx, uint32_t row, char *text)
{
    ngx_str_t  name;
    u_char     buf[NGX_HTTP_LLM_CAPTURE_TEXT];

    ngx_http_llm_capture_row_name(ctx, row, &name, buf);
    ngx_memcpy(text, name.data, name.len);

    return name.len;
}


static ngx_int_t
ngx_http_llm_capture_status_no_store(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);

    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    ngx_str_set(&h->key, "Cache-Control");
    ngx_str_set(&h->value, "no-store");

    return NGX_OK;
}


ngx_int_t
ngx_http_llm_capture_status_send(ngx_http_request_t *r, ngx_uint_t status,
    const ngx_str_t *type, ngx_str_t *text)
{
    u_char       *p;
    ngx_buf_t    *b;
    ngx_int_t     rc;
    ngx_chain_t   out;

    r->headers_out.status = status;
    r->headers_out.content_length_n = text->len;
    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.content_type_lowcase = NULL;

    /* it has its charset: nothing is to be added */

    p = ngx_strlchr(type->data, type->data + type->len, ';');

    if (p) {
        r->headers_out.content_type_len = p - type->data;
    }

    if (ngx_http_llm_capture_status_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b = ngx_calloc_buf(r->pool);

    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = text->data;
    b->last = text->data + text->len;
    b->memory = 1;
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, &out);
}
