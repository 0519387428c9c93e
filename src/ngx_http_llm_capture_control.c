
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * llm_capture_control: capture switched by a POST, for all workers and across
 * reloads.  Whoever may ask is an administrator: a page of another origin, in
 * the browser of one, is not.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture_drainer.h"


/* ms until another process has made its change */
#define NGX_HTTP_LLM_CAPTURE_PATIENCE  100


static ngx_int_t ngx_http_llm_capture_control_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_llm_capture_control_allow(ngx_http_request_t *r);
static ngx_uint_t ngx_http_llm_capture_control_foreign(ngx_http_request_t *r);
static ngx_uint_t ngx_http_llm_capture_control_origin(ngx_str_t *origin,
    ngx_str_t *host);
static ngx_uint_t ngx_http_llm_capture_control_named(ngx_table_elt_t *h,
    const char *name);
static const char *ngx_http_llm_capture_control_order(ngx_http_request_t *r,
    ngx_http_llm_capture_order_t *order, uint32_t *at);
static ngx_uint_t ngx_http_llm_capture_control_variable(ngx_http_request_t *r,
    ngx_http_llm_capture_order_t *order);
static ngx_int_t ngx_http_llm_capture_control_change(
    ngx_http_llm_capture_main_conf_t *mcf, uint32_t at,
    ngx_http_llm_capture_order_t *order);
static ngx_int_t ngx_http_llm_capture_control_lock(
    ngx_http_llm_capture_main_conf_t *mcf);
static ngx_int_t ngx_http_llm_capture_control_answer(ngx_http_request_t *r);
static ngx_int_t ngx_http_llm_capture_control_refuse(ngx_http_request_t *r,
    const char *why);


char *
ngx_http_llm_capture_set_control(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler == ngx_http_llm_capture_control_handler) {
        return "is duplicate";
    }

    clcf->handler = ngx_http_llm_capture_control_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_llm_capture_control_handler(ngx_http_request_t *r)
{
    uint32_t                       at;
    ngx_int_t                      rc;
    const char                    *why;
    ngx_http_llm_capture_order_t  *order;

    if (!(r->method & NGX_HTTP_POST)) {
        return ngx_http_llm_capture_control_allow(r);
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_llm_capture_control_foreign(r)) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "llm capture: control by a page of another origin was "
                      "refused");
        return NGX_HTTP_FORBIDDEN;
    }

    order = ngx_palloc(r->pool, sizeof(ngx_http_llm_capture_order_t));

    if (order == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    why = ngx_http_llm_capture_control_order(r, order, &at);

    if (why) {
        return ngx_http_llm_capture_control_refuse(r, why);
    }

    rc = ngx_http_llm_capture_control_change(
             ngx_http_get_module_main_conf(r, ngx_http_llm_capture_module),
             at, order);

    if (rc != NGX_OK) {
        /* another change that does not end, or a reload: to be tried again */
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                  "llm capture: control said \"%V\"", &r->args);

    return ngx_http_llm_capture_control_answer(r);
}


static ngx_int_t
ngx_http_llm_capture_control_allow(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);

    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    ngx_str_set(&h->key, "Allow");
    ngx_str_set(&h->value, "POST");

    return NGX_HTTP_NOT_ALLOWED;
}


/* a browser says whose page it is that sends something; nothing else does */

static ngx_uint_t
ngx_http_llm_capture_control_foreign(ngx_http_request_t *r)
{
    ngx_str_t        *host, *origin;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    host = NULL;
    origin = NULL;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (ngx_http_llm_capture_control_named(&h[i], "host")) {
                host = &h[i].value;

            } else if (ngx_http_llm_capture_control_named(&h[i], "origin")) {
                if (origin) {
                    return 1;
                }

                origin = &h[i].value;

            } else if (ngx_http_llm_capture_control_named(&h[i],
                                                          "sec-fetch-site")
                       && ngx_strcasecmp(h[i].value.data,
                                         (u_char *) "same-origin")
                          != 0
                       && ngx_strcasecmp(h[i].value.data, (u_char *) "none")
                          != 0)
            {
                return 1;
            }
        }
    }

    return origin && ngx_http_llm_capture_control_origin(origin, host);
}


static ngx_uint_t
ngx_http_llm_capture_control_named(ngx_table_elt_t *h, const char *name)
{
    return h->key.len == ngx_strlen(name)
           && ngx_strncasecmp(h->key.data, (u_char *) name, h->key.len) == 0;
}


/* 1: another host or port; browsers leave a default port out of both */

static ngx_uint_t
ngx_http_llm_capture_control_origin(ngx_str_t *origin, ngx_str_t *host)
{
    u_char  *p, *last;

    last = origin->data + origin->len;
    p = ngx_strlchr(origin->data, last, ':');

    return p == NULL || host == NULL || host->len == 0
           || (size_t) (last - p) != sizeof("://") - 1 + host->len
           || ngx_strncmp(p, "://", sizeof("://") - 1) != 0
           || ngx_strncasecmp(p + sizeof("://") - 1, host->data, host->len)
              != 0;
}


/* NULL, or what is wrong */

static const char *
ngx_http_llm_capture_control_order(ngx_http_request_t *r,
    ngx_http_llm_capture_order_t *order, uint32_t *at)
{
    ngx_uint_t                         i;
    ngx_http_llm_capture_loc_conf_t  **lcfp;
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_http_get_module_main_conf(r, ngx_http_llm_capture_module);

    if (mcf->shm_zone == NULL) {
        return "capture: nothing is configured to be captured";
    }

    if (ngx_http_llm_capture_control_parse(order, (char *) r->args.data,
                                           r->args.len)
        != 0)
    {
        return order->why;
    }

    if (order->name_len && !ngx_http_llm_capture_control_variable(r, order)) {
        return "match: there is no such variable";
    }

    *at = NGX_HTTP_LLM_CAPTURE_CONTROL_ALL;

    if (order->path_len == 0) {
        return NULL;
    }

    lcfp = mcf->destinations.elts;

    for (i = 0; i < mcf->destinations.nelts; i++) {

        if (lcfp[i]->path.len != order->path_len
            || ngx_memcmp(lcfp[i]->path.data, order->path, order->path_len)
               != 0)
        {
            continue;
        }

        *at = (uint32_t) lcfp[i]->row;

        return *at < NGX_HTTP_LLM_CAPTURE_TEMPLATES
               ? NULL : "path: only the first 64 have a state of their own";
    }

    return "path: nothing is captured to it as configured";
}


/* can nginx look it up while it serves? */

static ngx_uint_t
ngx_http_llm_capture_control_variable(ngx_http_request_t *r,
    ngx_http_llm_capture_order_t *order)
{
    u_char                     *name;
    ngx_uint_t                  i;
    ngx_http_variable_t        *v;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    name = (u_char *) order->match;

    if (ngx_hash_find(&cmcf->variables_hash,
                      ngx_hash_key(name, order->name_len), name,
                      order->name_len))
    {
        return 1;
    }

    v = cmcf->prefix_variables.elts;

    for (i = 0; i < cmcf->prefix_variables.nelts; i++) {
        if (order->name_len > v[i].name.len
            && ngx_strncmp(name, v[i].name.data, v[i].name.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_llm_capture_control_change(ngx_http_llm_capture_main_conf_t *mcf,
    uint32_t at, ngx_http_llm_capture_order_t *order)
{
    ngx_int_t        rc;
    struct timespec  ts;

    if (ngx_http_llm_capture_control_lock(mcf) != NGX_OK) {
        return NGX_DECLINED;
    }

    rc = NGX_DECLINED;

    if (!ngx_http_llm_capture_control_moved(&mcf->zone)) {
        (void) clock_gettime(CLOCK_REALTIME, &ts);

        ngx_http_llm_capture_control_say(&mcf->zone, at, order,
            ngx_http_llm_capture_now(),
            (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000);
        rc = NGX_OK;
    }

    (void) ngx_http_llm_capture_lock_byte(
                             ngx_http_llm_capture_control_byte(mcf), F_UNLCK);

    return rc;
}


/*
 * Of the kernel: it goes with a process that is killed while it holds it.  A
 * change takes microseconds, but who makes it may be stopped.
 */

static ngx_int_t
ngx_http_llm_capture_control_lock(ngx_http_llm_capture_main_conf_t *mcf)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_PATIENCE; i++) {

        if (ngx_http_llm_capture_lock_byte(
                             ngx_http_llm_capture_control_byte(mcf), F_WRLCK)
            == NGX_OK)
        {
            return NGX_OK;
        }

        ngx_msleep(1);
    }

    return NGX_DECLINED;
}


void
ngx_http_llm_capture_control_keep(ngx_http_llm_capture_main_conf_t *old,
    ngx_http_llm_capture_main_conf_t *new)
{
    ngx_int_t  rc;

    if (old == NULL || new == NULL || old->zone.base == new->zone.base) {
        return;
    }

    /* who has the lock by now is waited for, later ones see that it moved */

    ngx_http_llm_capture_control_leave(&old->zone);

    rc = ngx_http_llm_capture_control_lock(old);

    ngx_http_llm_capture_control_move(&old->zone, &new->zone);

    if (rc == NGX_OK) {
        (void) ngx_http_llm_capture_lock_byte(
                             ngx_http_llm_capture_control_byte(old), F_UNLCK);
    }
}


static ngx_int_t
ngx_http_llm_capture_control_answer(ngx_http_request_t *r)
{
    char                         *p;
    ngx_str_t                     text;
    ngx_http_llm_capture_stat_t  *s;

    static const ngx_str_t  type = ngx_string("application/json");

    s = ngx_http_llm_capture_status_read(r);

    if (s == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_http_llm_capture_stat_control_json(s, &text.len);
    text.data = (u_char *) p;

    if (ngx_http_llm_capture_status_own(r, p) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_llm_capture_status_send(r, NGX_HTTP_OK, &type, &text);
}


static ngx_int_t
ngx_http_llm_capture_control_refuse(ngx_http_request_t *r, const char *why)
{
    ngx_str_t  text;

    static const ngx_str_t  type = ngx_string("text/plain; charset=utf-8");

    text.data = ngx_pnalloc(r->pool, ngx_strlen(why) + 1);

    if (text.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    text.len = ngx_sprintf(text.data, "%s\n", why) - text.data;

    return ngx_http_llm_capture_status_send(r, NGX_HTTP_BAD_REQUEST, &type,
                                            &text);
}
