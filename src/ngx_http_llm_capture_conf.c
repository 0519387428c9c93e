
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The larger values of the configuration: a path with variables, NIM's object,
 * and what holds where nothing is set.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_args.h"
#include "ngx_http_llm_capture_path.h"


/* behind the directory of the access log */
#define NGX_HTTP_LLM_CAPTURE_DEFAULT_PATH                                     \
    "llm_capture/requests.$llm_capture_endpoint.jsonl"

#define NGX_HTTP_LLM_CAPTURE_DEFAULT_REQUEST  (1024 * 1024)

/* bytes of the longest $llm_capture_endpoint, "completions" */
#define NGX_HTTP_LLM_CAPTURE_ENDPOINT_MOST    (sizeof("completions") - 1)


typedef struct {
    size_t  names;          /* bytes of "$name" in the path */
    size_t  values;         /* most bytes in their place */
} ngx_http_llm_capture_lengths_t;


static ngx_int_t ngx_http_llm_capture_parts(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf,
    ngx_http_llm_capture_lengths_t *lengths);
static size_t ngx_http_llm_capture_variable(u_char *p, u_char *last);
static ngx_int_t ngx_http_llm_capture_add_literal(
    ngx_http_llm_capture_loc_conf_t *lcf, u_char *p, size_t len);
static ngx_int_t ngx_http_llm_capture_add_value(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf, u_char *p, size_t len,
    ngx_http_llm_capture_lengths_t *lengths);
static ngx_http_llm_capture_loc_conf_t *ngx_http_llm_capture_new_defaults(
    ngx_conf_t *cf);
static void ngx_http_llm_capture_args_warning(void *data, const char *text);
static ngx_int_t ngx_http_llm_capture_args_pattern(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_http_llm_capture_args_t *args);
static ngx_int_t ngx_http_llm_capture_copy_str(ngx_conf_t *cf, ngx_str_t *dst,
    const char *src, size_t len);


ngx_int_t
ngx_http_llm_capture_path(ngx_conf_t *cf, ngx_http_llm_capture_loc_conf_t *lcf,
    ngx_str_t *path)
{
    u_char                          *p;
    ngx_str_t                        full;
    const char                      *wrong;
    ngx_http_llm_capture_lengths_t   lengths;

    ngx_memzero(&lengths, sizeof(ngx_http_llm_capture_lengths_t));

    if (path->len == 0) {
        wrong = "not be empty";
        goto invalid;
    }

    full = *path;

    if (ngx_conf_full_name(cf->cycle, &full, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    lcf->path = full;
    lcf->parts = NULL;

    /* full is absolute and has a slash */

    for (p = full.data + full.len; p[-1] != '/'; p--) { /* void */ }

    lcf->base_len = p - full.data;

    if (ngx_strlchr(full.data, p, '$') != NULL) {
        wrong = "have variables behind its last slash only";
        goto invalid;
    }

    if (ngx_strlchr(p, full.data + full.len, '$') != NULL
        && ngx_http_llm_capture_parts(cf, lcf, &lengths) != NGX_OK)
    {
        return NGX_ERROR;
    }

    wrong = ngx_http_llm_capture_path_check((char *) full.data, full.len,
                                            lengths.names, lengths.values);

    if (wrong == NULL) {
        return NGX_OK;
    }

invalid:

    (void) ngx_http_llm_capture_invalid(cf, wrong);

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_llm_capture_parts(ngx_conf_t *cf, ngx_http_llm_capture_loc_conf_t *lcf,
    ngx_http_llm_capture_lengths_t *lengths)
{
    size_t   n;
    u_char  *p, *start, *last;

    lcf->parts = ngx_array_create(cf->pool, 4,
                                  sizeof(ngx_http_llm_capture_part_t));

    if (lcf->parts == NULL) {
        return NGX_ERROR;
    }

    start = lcf->path.data + lcf->base_len;
    last = lcf->path.data + lcf->path.len;

    for (p = start; p < last; /* void */) {

        if (*p != '$') {
            p++;
            continue;
        }

        n = ngx_http_llm_capture_variable(p, last);

        if (ngx_http_llm_capture_add_literal(lcf, start, p - start) != NGX_OK
            || ngx_http_llm_capture_add_value(cf, lcf, p, n, lengths) != NGX_OK)
        {
            return NGX_ERROR;
        }

        p += n;
        start = p;
    }

    return ngx_http_llm_capture_add_literal(lcf, start, last - start);
}


/* bytes of "$name", "${name}" or "$1"; what is none of it is left to nginx */

static size_t
ngx_http_llm_capture_variable(u_char *p, u_char *last)
{
    u_char  *start, *end;

    start = p++;

    if (p < last && *p == '{') {
        end = ngx_strlchr(p, last, '}');
        return end ? (size_t) (end + 1 - start) : (size_t) (last - start);
    }

    if (p < last && *p >= '1' && *p <= '9') {
        return 2;
    }

    while (p < last
           && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')
               || (*p >= '0' && *p <= '9') || *p == '_'))
    {
        p++;
    }

    return p - start;
}


static ngx_int_t
ngx_http_llm_capture_add_literal(ngx_http_llm_capture_loc_conf_t *lcf,
    u_char *p, size_t len)
{
    ngx_http_llm_capture_part_t  *part;

    if (len == 0) {
        return NGX_OK;
    }

    part = ngx_array_push(lcf->parts);

    if (part == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(part, sizeof(ngx_http_llm_capture_part_t));

    part->literal.data = p;
    part->literal.len = len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_llm_capture_add_value(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf, u_char *p, size_t len,
    ngx_http_llm_capture_lengths_t *lengths)
{
    ngx_str_t                          text;
    ngx_http_llm_capture_part_t       *part;
    ngx_http_compile_complex_value_t   ccv;

    part = ngx_array_push(lcf->parts);

    if (part == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(part, sizeof(ngx_http_llm_capture_part_t));

    /* the compiler of scripts may write into its text */

    text.len = len;
    text.data = ngx_pnalloc(cf->pool, len + 1);

    if (text.data == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(text.data, p, len) = '\0';

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &text;
    ccv.complex_value = &part->value;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_ERROR;
    }

    lengths->names += len;
    lengths->values += ngx_strcmp(text.data, "$llm_capture_endpoint") == 0
                       || ngx_strcmp(text.data, "${llm_capture_endpoint}") == 0
                       ? NGX_HTTP_LLM_CAPTURE_ENDPOINT_MOST
                       : NGX_HTTP_LLM_CAPTURE_PATH_LONGEST;

    return NGX_OK;
}


static ngx_http_llm_capture_loc_conf_t *
ngx_http_llm_capture_new_defaults(ngx_conf_t *cf)
{
    ngx_http_llm_capture_loc_conf_t  *lcf;

    lcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_llm_capture_loc_conf_t));

    if (lcf == NULL) {
        return NULL;
    }

    lcf->format = NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD;
    lcf->max_request_bytes = NGX_HTTP_LLM_CAPTURE_DEFAULT_REQUEST;
    lcf->sample = (uint64_t) 1 << 32;

    return lcf;
}


ngx_int_t
ngx_http_llm_capture_check_rows(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    ngx_uint_t                    i;
    ngx_http_llm_capture_flag_t  *flag;

    static const struct {
        const char                     *directive;
        size_t                          offset;
        ngx_http_llm_capture_format_e   format;
        const char                     *name;
        const char                     *why;
    } no[] = {
        { "llm_capture_outcome",
          offsetof(ngx_http_llm_capture_loc_conf_t, outcome),
          NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD, "raw_payload",
          "the \"id\" in its rows would go to the server with each replay" },

        { "llm_capture_hash_ids",
          offsetof(ngx_http_llm_capture_loc_conf_t, hash_ids),
          NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD, "raw_payload",
          "it is for \"mooncake_trace\"" },

        { "llm_capture_hash_ids",
          offsetof(ngx_http_llm_capture_loc_conf_t, hash_ids),
          NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD, "mooncake_payload",
          "it is for \"mooncake_trace\"" },

        { "llm_capture_output_text",
          offsetof(ngx_http_llm_capture_loc_conf_t, output_text),
          NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD, "raw_payload",
          "it is for \"baseten_trace\"" },

        { "llm_capture_output_text",
          offsetof(ngx_http_llm_capture_loc_conf_t, output_text),
          NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD, "mooncake_payload",
          "it is for \"baseten_trace\"" },

        { "llm_capture_output_text",
          offsetof(ngx_http_llm_capture_loc_conf_t, output_text),
          NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE, "mooncake_trace",
          "its rows hold no text" }
    };

    for (i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        flag = (ngx_http_llm_capture_flag_t *) ((char *) lcf + no[i].offset);

        if (flag->value == 1 && lcf->format == no[i].format) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"%s\" cannot be on with \"%s\": %s in %s:%ui",
                          no[i].directive, no[i].name, no[i].why, flag->file,
                          flag->line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_llm_capture_defaults(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf)
{
    u_char                           *p;
    size_t                            len;
    ngx_str_t                         path, why;
    ngx_http_llm_capture_loc_conf_t  *lcf;

    static u_char     log[] = NGX_HTTP_LOG_PATH;
    static ngx_str_t  pattern = ngx_string(NGX_HTTP_LLM_CAPTURE_PATTERN);

    if (mcf->defaults) {
        return NGX_OK;
    }

    lcf = ngx_http_llm_capture_new_defaults(cf);

    if (lcf == NULL) {
        return NGX_ERROR;
    }

    for (len = sizeof(log) - 1; len && log[len - 1] != '/'; len--) {
        /* void */
    }

    path.len = len + sizeof(NGX_HTTP_LLM_CAPTURE_DEFAULT_PATH) - 1;
    path.data = ngx_pnalloc(cf->pool, path.len + 1);

    if (path.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(path.data, log, len);
    ngx_memcpy(p, NGX_HTTP_LLM_CAPTURE_DEFAULT_PATH,
               sizeof(NGX_HTTP_LLM_CAPTURE_DEFAULT_PATH));

    if (ngx_http_llm_capture_path(cf, lcf, &path) != NGX_OK
        || ngx_http_llm_capture_compile(cf, lcf, &pattern, &why) != NGX_OK)
    {
        return NGX_ERROR;
    }

    mcf->defaults = lcf;

    return NGX_OK;
}


ngx_int_t
ngx_http_llm_capture_args(ngx_conf_t *cf, ngx_http_llm_capture_main_conf_t *mcf,
    ngx_str_t *text)
{
    ngx_int_t                         rc;
    ngx_http_llm_capture_args_t       args;
    ngx_http_llm_capture_loc_conf_t  *lcf;

    lcf = ngx_http_llm_capture_new_defaults(cf);

    if (lcf == NULL) {
        return NGX_ERROR;
    }

    ngx_http_llm_capture_args_parse(&args, (char *) text->data, text->len,
                                    ngx_http_llm_capture_args_warning, cf);

    mcf->args_off = args.off;
    mcf->args_bad_path = args.bad_path;
    mcf->args_queue = args.max_queue_bytes;

    lcf->format = args.format;
    lcf->max_request_bytes = (size_t) args.max_request_bytes;
    lcf->sample = args.sample_rate;

    /* NIM knows no variables: a "$" in its path is one in the name */

    rc = ngx_http_llm_capture_copy_str(cf, &lcf->path, args.path,
                                       args.path_len);

    if (rc == NGX_OK) {
        rc = ngx_http_llm_capture_args_pattern(cf, lcf, &args);
    }

    ngx_http_llm_capture_args_free(&args);

    mcf->defaults = lcf;

    return rc;
}


static void
ngx_http_llm_capture_args_warning(void *data, const char *text)
{
    ngx_conf_t *cf = data;

    ngx_str_t  *name;

    name = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "\"%V\": %s", name, text);
}


static ngx_int_t
ngx_http_llm_capture_args_pattern(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_http_llm_capture_args_t *args)
{
    ngx_int_t   rc;
    ngx_str_t   pattern, why, *name;

    if (ngx_http_llm_capture_copy_str(cf, &pattern, args->pattern,
                                      args->pattern_len)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_llm_capture_compile(cf, lcf, &pattern, &why);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    name = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "\"%V\": invalid value of \"endpoint_pattern\", it must "
                       "%V; \"%s\" is used",
                       name, &why, NGX_HTTP_LLM_CAPTURE_PATTERN);

    ngx_str_set(&pattern, NGX_HTTP_LLM_CAPTURE_PATTERN);

    return ngx_http_llm_capture_compile(cf, lcf, &pattern, &why);
}


/* with a NUL behind it, as strings of the configuration have */

static ngx_int_t
ngx_http_llm_capture_copy_str(ngx_conf_t *cf, ngx_str_t *dst, const char *src,
    size_t len)
{
    dst->data = ngx_pnalloc(cf->pool, len + 1);

    if (dst->data == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(dst->data, src, len) = '\0';
    dst->len = len;

    return NGX_OK;
}
