
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Whose request it is: what names its session goes into its BEGIN, and which
 * sessions are kept when only some are.  No name leaves the processes of nginx:
 * the helper hashes it under a key.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_sample.h"
#include "ngx_http_llm_capture_session_id.h"


#define NGX_HTTP_LLM_CAPTURE_BODY_LEN                                         \
    (sizeof(NGX_HTTP_LLM_CAPTURE_SESSION_BODY) - 1)

/* bytes of a name between the dots */
#define NGX_HTTP_LLM_CAPTURE_BODY_NAME  127


static ngx_array_t *ngx_http_llm_capture_session_default(ngx_conf_t *cf);
static char *ngx_http_llm_capture_add_name(ngx_conf_t *cf, ngx_array_t *names,
    ngx_str_t *value);
static ngx_uint_t ngx_http_llm_capture_body_name(ngx_str_t *value);
static char *ngx_http_llm_capture_add_word(ngx_conf_t *cf, ngx_array_t *names,
    ngx_str_t *value);
static char *ngx_http_llm_capture_value(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_complex_value_t *cv, const char *must);
static ngx_uint_t ngx_http_llm_capture_default_there(ngx_http_request_t *r);


char *
ngx_http_llm_capture_set_session(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (lcf->session_file) {
        return "is duplicate";
    }

    value = cf->args->elts;

    lcf->session_file = cf->conf_file->file.name.data;
    lcf->session_line = cf->conf_file->line;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    lcf->session = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                    sizeof(ngx_http_llm_capture_part_t));

    if (lcf->session == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        rv = ngx_http_llm_capture_add_name(cf, lcf->session, &value[i]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_llm_capture_sessions(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    ngx_uint_t  raw;

    if (mcf->session == NULL) {
        mcf->session = ngx_http_llm_capture_session_default(cf);

        if (mcf->session == NULL) {
            return NGX_ERROR;
        }
    }

    raw = (lcf->format == NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD);

    if (lcf->session_file == NULL) {
        /* what an outer level has by default may be of another format */
        lcf->session = raw ? NULL : mcf->session;
        return NGX_OK;
    }

    if (raw && lcf->session) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"llm_capture_session_id\" cannot be set with "
                      "\"raw_payload\": the \"session_id\" in its rows would "
                      "go to the server with each replay in %s:%ui",
                      lcf->session_file, lcf->session_line);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_array_t *
ngx_http_llm_capture_session_default(ngx_conf_t *cf)
{
    ngx_str_t     text;
    ngx_uint_t    i;
    ngx_array_t  *names;

    static const ngx_str_t  values[] = {
        ngx_string("$http_x_session_affinity"),
        ngx_string("$http_x_session_id"),
        ngx_string("$http_x_dynamo_session_id"),
        ngx_string("$http_x_smg_routing_key"),
        ngx_string("$http_x_correlation_id")
    };

    names = ngx_array_create(cf->pool, sizeof(values) / sizeof(values[0]),
                             sizeof(ngx_http_llm_capture_part_t));

    if (names == NULL) {
        return NULL;
    }

    for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {

        /* the compiler of scripts may write into its text */

        text.len = values[i].len;
        text.data = ngx_pnalloc(cf->pool, text.len + 1);

        if (text.data == NULL) {
            return NULL;
        }

        ngx_memcpy(text.data, values[i].data, text.len + 1);

        if (ngx_http_llm_capture_add_name(cf, names, &text) != NGX_CONF_OK) {
            return NULL;
        }
    }

    return names;
}


static char *
ngx_http_llm_capture_add_name(ngx_conf_t *cf, ngx_array_t *names,
    ngx_str_t *value)
{
    ngx_http_llm_capture_part_t  *part;

    if (ngx_http_llm_capture_body_name(value)
        || ngx_strcmp(value->data, NGX_HTTP_LLM_CAPTURE_SESSION_PREFIX) == 0)
    {
        return ngx_http_llm_capture_add_word(cf, names, value);
    }

    part = ngx_array_push(names);

    if (part == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(part, sizeof(ngx_http_llm_capture_part_t));

    /* what has none would put all requests into one session */

    return ngx_http_llm_capture_value(cf, value, &part->value,
                   "contain variables, be \"prefix\" or \"body:\" and names "
                   "between dots, or be \"off\" alone");
}


/* "body:" and names of 1 to 127 bytes between dots */

static ngx_uint_t
ngx_http_llm_capture_body_name(ngx_str_t *value)
{
    u_char  *p, *last, *start;

    if (value->len <= NGX_HTTP_LLM_CAPTURE_BODY_LEN
        || ngx_strncmp(value->data, NGX_HTTP_LLM_CAPTURE_SESSION_BODY,
                       NGX_HTTP_LLM_CAPTURE_BODY_LEN)
           != 0)
    {
        return 0;
    }

    last = value->data + value->len;
    start = value->data + NGX_HTTP_LLM_CAPTURE_BODY_LEN;

    for (p = start; p <= last; p++) {

        if (p < last && *p != '.') {
            if (*p == '$' || *p < 0x20) {
                return 0;
            }

            continue;
        }

        if (p == start || p - start > NGX_HTTP_LLM_CAPTURE_BODY_NAME) {
            return 0;
        }

        start = p + 1;
    }

    return 1;
}


/* with its NUL, as it is put into a BEGIN */

static char *
ngx_http_llm_capture_add_word(ngx_conf_t *cf, ngx_array_t *names,
    ngx_str_t *value)
{
    size_t                        len;
    ngx_uint_t                    i;
    ngx_http_llm_capture_part_t  *part;

    part = ngx_array_push(names);

    if (part == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(part, sizeof(ngx_http_llm_capture_part_t));

    part->literal.data = value->data;
    part->literal.len = value->len + 1;

    /* beside "=", the longest value and its NUL */

    len = NGX_HTTP_LLM_CAPTURE_SESSION_VALUE + 2;
    part = names->elts;

    for (i = 0; i < names->nelts; i++) {
        len += part[i].literal.len;
    }

    if (len > NGX_HTTP_LLM_CAPTURE_SPEC) {
        return "has too many names of members of the body";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_llm_capture_value(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_complex_value_t *cv, const char *must)
{
    ngx_http_compile_complex_value_t  ccv;

    if (ngx_strncmp(text->data, NGX_HTTP_LLM_CAPTURE_SESSION_BODY,
                    NGX_HTTP_LLM_CAPTURE_BODY_LEN)
        == 0)
    {
        return ngx_http_llm_capture_invalid_value(cf, text, must);
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = cv;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (cv->lengths == NULL) {
        return ngx_http_llm_capture_invalid_value(cf, text, must);
    }

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_sample_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    ngx_str_t  *value;

    if (lcf->sample_key != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    lcf->sample_key = NULL;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    lcf->sample_key = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));

    if (lcf->sample_key == NULL) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_llm_capture_value(cf, &value[1], lcf->sample_key,
                   "contain variables of the request, not of its body, which "
                   "is still to come, or be \"off\"");
}


/*
 * May one of the default's headers be there?  Each is looked up among all: for
 * requests without any, a look at three letters of each header saves that.
 */

static ngx_uint_t
ngx_http_llm_capture_default_there(ngx_http_request_t *r)
{
    u_char           *p;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            p = h[i].key.data;

            if (h[i].key.len < sizeof("x-session-id") - 1
                || (p[0] | 0x20) != 'x')
            {
                continue;
            }

            /* x-session-..., x-smg-..., x-dynamo-..., x-correlation-id */

            switch ((p[2] | 0x20) << 8 | (p[3] | 0x20)) {
            case 's' << 8 | 'e':
            case 's' << 8 | 'm':
            case 'd' << 8 | 'y':
            case 'c' << 8 | 'o':
                return 1;
            }
        }
    }

    return 0;
}


void
ngx_http_llm_capture_session(ngx_http_llm_capture_ctx_t *ctx)
{
    u_char                         *p;
    size_t                          len;
    ngx_str_t                       value;
    ngx_uint_t                      i, k;
    ngx_http_llm_capture_part_t    *part;
    ngx_http_llm_capture_record_t  *rec;

    if (ctx->conf->session == NULL
        || (ctx->conf->session_file == NULL
            && !ngx_http_llm_capture_default_there(ctx->request)))
    {
        return;
    }

    rec = &ctx->record;
    part = ctx->conf->session->elts;
    len = 0;
    ngx_str_null(&value);

    for (i = 0; i < ctx->conf->session->nelts; i++) {

        if (part[i].literal.data) {
            len += part[i].literal.len;
            continue;
        }

        if (ngx_http_complex_value(ctx->request, &part[i].value, &value)
            != NGX_OK)
        {
            return;
        }

        if (value.len && value.len <= NGX_HTTP_LLM_CAPTURE_SESSION_VALUE) {
            len += 1 + value.len + 1;
            break;
        }

        value.len = 0;
    }

    if (len == 0) {
        return;
    }

    p = ngx_pnalloc(ctx->request->pool, len);

    if (p == NULL) {
        return;
    }

    rec->session = (char *) p;
    rec->begin.session_len = (uint16_t) len;

    for (k = 0; k < i; k++) {
        if (part[k].literal.len) {
            p = ngx_cpymem(p, part[k].literal.data, part[k].literal.len);
        }
    }

    if (value.len) {
        *p++ = '=';
        p = ngx_cpymem(p, value.data, value.len);
        *p = '\0';
    }
}


ngx_uint_t
ngx_http_llm_capture_sampled_request(ngx_http_llm_capture_ctx_t *ctx)
{
    ngx_str_t                          value;
    ngx_http_request_t                *r;
    ngx_http_llm_capture_siphash_t     s;
    ngx_http_llm_capture_loc_conf_t   *lcf;
    ngx_http_llm_capture_main_conf_t  *mcf;

    r = ctx->request;
    lcf = ctx->conf;

    if (lcf->sample_key == NULL
        || ctx->sample >= NGX_HTTP_LLM_CAPTURE_SAMPLE_ALL
        || ngx_http_complex_value(r, lcf->sample_key, &value) != NGX_OK
        || value.len == 0)
    {
        return ngx_http_llm_capture_sampled(ctx->sample);
    }

    mcf = ngx_http_get_module_main_conf(r, ngx_http_llm_capture_module);

    /* without a key file that of zeroes: the same decision everywhere */

    ngx_http_llm_capture_siphash_init(&s, mcf->key);
    ngx_http_llm_capture_siphash_update(&s, "sample", sizeof("sample"));
    ngx_http_llm_capture_siphash_update(&s, value.data, value.len);

    return ngx_http_llm_capture_siphash_end(&s) >> 32 < ctx->sample;
}
