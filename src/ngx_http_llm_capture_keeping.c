
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Directives about files that have been written: when they become segments,
 * how much of the disk they may take, what their manifests say.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_version.h"


#define NGX_HTTP_LLM_CAPTURE_LABEL_MOST    128
#define NGX_HTTP_LLM_CAPTURE_KEEP_MOST     4096

/* of the file system, unless another one is set */
#define NGX_HTTP_LLM_CAPTURE_FREE_PERCENT  5
#define NGX_HTTP_LLM_CAPTURE_FREE_MOST     ((off_t) 1024 * 1024 * 1024)


static char *ngx_http_llm_capture_rotate_arg(ngx_conf_t *cf,
    ngx_http_llm_capture_policy_t *p, ngx_str_t *arg);
static ngx_int_t ngx_http_llm_capture_same_policy(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *conf,
    ngx_http_llm_capture_loc_conf_t *other);


char *
ngx_http_llm_capture_set_rotate(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (lcf->rotate_file) {
        return "is duplicate";
    }

    value = cf->args->elts;

    lcf->rotate_file = cf->conf_file->file.name.data;
    lcf->rotate_line = cf->conf_file->line;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        rv = ngx_http_llm_capture_rotate_arg(cf, &lcf->policy, &value[i]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    if (!ngx_http_llm_capture_rotates(&lcf->policy)) {
        return "must have \"size=\" or \"time=\", or be \"off\"";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_llm_capture_rotate_arg(ngx_conf_t *cf,
    ngx_http_llm_capture_policy_t *p, ngx_str_t *arg)
{
    off_t      size;
    ngx_int_t  n;
    ngx_str_t  s;

    if (ngx_strncmp(arg->data, "size=", 5) == 0 && p->size == 0) {
        s.data = arg->data + 5;
        s.len = arg->len - 5;
        size = ngx_parse_offset(&s);

        if (size <= 0) {
            return ngx_http_llm_capture_invalid_value(cf, arg,
                                               "have a size, such as \"1g\"");
        }

        p->size = (uint64_t) size;

        return NGX_CONF_OK;
    }

    if (ngx_strncmp(arg->data, "time=", 5) == 0 && p->time == 0) {
        s.data = arg->data + 5;
        s.len = arg->len - 5;
        n = ngx_parse_time(&s, 0);

        if (n <= 0) {
            return ngx_http_llm_capture_invalid_value(cf, arg,
                                               "have a time, such as \"1h\"");
        }

        p->time = (uint64_t) n;

        return NGX_CONF_OK;
    }

    if (ngx_strncmp(arg->data, "keep=", 5) == 0 && p->keep == 0) {
        n = ngx_atoi(arg->data + 5, arg->len - 5);

        if (n < 1 || n > NGX_HTTP_LLM_CAPTURE_KEEP_MOST) {
            return ngx_http_llm_capture_invalid_value(cf, arg,
                                             "have a number from 1 to 4096");
        }

        p->keep = (uint32_t) n;

        return NGX_CONF_OK;
    }

    if (ngx_strcmp(arg->data, "compress=gzip") == 0 && p->compression == 0) {
        p->compression = NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(arg->data, "compress=zstd") == 0 && p->compression == 0) {
        p->compression = NGX_HTTP_LLM_CAPTURE_COMPRESSION_ZSTD;
        return NGX_CONF_OK;
    }

    return ngx_http_llm_capture_invalid_value(cf, arg,
                                "be \"size=\", \"time=\", \"keep=\", "
                                "\"compress=gzip\" or \"compress=zstd\", "
                                "each once");
}


char *
ngx_http_llm_capture_set_label(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    size_t      i;
    ngx_str_t  *value;

    if (lcf->policy.label) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 0; i < value[1].len; i++) {
        if (value[1].data[i] < 0x20 || value[1].data[i] > 0x7e) {
            break;
        }
    }

    if (i == 0 || i < value[1].len
        || value[1].len > NGX_HTTP_LLM_CAPTURE_LABEL_MOST)
    {
        return ngx_http_llm_capture_invalid(cf,
                                            "be 1 to 128 characters of ASCII");
    }

    lcf->policy.label = (char *) value[1].data;
    lcf->policy.label_len = value[1].len;

    lcf->label_file = cf->conf_file->file.name.data;
    lcf->label_line = cf->conf_file->line;

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_max_disk(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    off_t       size;
    ngx_str_t  *value;

    if (mcf->max_disk_set) {
        return "is duplicate";
    }

    mcf->max_disk_set = 1;

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    size = ngx_parse_offset(&value[1]);

    if (size <= 0) {
        return ngx_http_llm_capture_invalid_value(cf, &value[1],
                                     "be a size, such as \"100g\", or \"off\"");
    }

    mcf->keeping.max_disk = (uint64_t) size;

    if (cf->args->nelts == 3) {

        if (ngx_strcmp(value[2].data, "drop_oldest") == 0) {
            mcf->keeping.drop_oldest = 1;

        } else if (ngx_strcmp(value[2].data, "stop") != 0) {
            return ngx_http_llm_capture_invalid_value(cf, &value[2],
                                            "be \"stop\" or \"drop_oldest\"");
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_min_free(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    off_t       size;
    ngx_int_t   n;
    ngx_str_t  *value;

    if (mcf->min_free_set) {
        return "is duplicate";
    }

    mcf->min_free_set = 1;

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    if (value[1].len > 1 && value[1].data[value[1].len - 1] == '%') {
        n = ngx_atoi(value[1].data, value[1].len - 1);

        if (n >= 0 && n < 100) {
            mcf->keeping.free_percent = (uint32_t) n;
            mcf->keeping.free_most = (uint64_t) -1;
            return NGX_CONF_OK;
        }
    }

    size = ngx_parse_offset(&value[1]);

    if (size == NGX_ERROR) {
        return ngx_http_llm_capture_invalid(cf,
                              "be a size, a share, such as \"5%\", or \"off\"");
    }

    mcf->keeping.min_free = (uint64_t) size;

    return NGX_CONF_OK;
}


void
ngx_http_llm_capture_merge_policy(ngx_http_llm_capture_loc_conf_t *conf,
    ngx_http_llm_capture_loc_conf_t *prev)
{
    const char                     *label;
    size_t                          len;
    ngx_http_llm_capture_policy_t  *p;

    p = &conf->policy;

    if (conf->rotate_file == NULL) {
        label = p->label;
        len = p->label_len;

        *p = prev->policy;
        p->label = label;
        p->label_len = len;

        conf->rotate_file = prev->rotate_file;
        conf->rotate_line = prev->rotate_line;
    }

    if (p->label == NULL) {
        p->label = prev->policy.label;
        p->label_len = prev->policy.label_len;

        conf->label_file = prev->label_file;
        conf->label_line = prev->label_line;
    }
}


/* what is done with a file cannot hang on which request came last */

static ngx_int_t
ngx_http_llm_capture_same_policy(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *conf,
    ngx_http_llm_capture_loc_conf_t *other)
{
    const char                       *name;
    ngx_uint_t                        line;
    u_char                           *file;
    ngx_http_llm_capture_loc_conf_t  *set;
    ngx_http_llm_capture_policy_t    *a, *b;

    a = &conf->policy;
    b = &other->policy;

    if (a->size != b->size || a->time != b->time || a->keep != b->keep
        || a->compression != b->compression)
    {
        name = "llm_capture_rotate";
        set = conf->rotate_file ? conf : other;
        file = set->rotate_file;
        line = set->rotate_line;

    } else if (a->label_len != b->label_len
               || (a->label_len
                   && ngx_memcmp(a->label, b->label, a->label_len) != 0))
    {
        name = "llm_capture_label";
        set = conf->label_file ? conf : other;
        file = set->label_file;
        line = set->label_line;

    } else {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"%s\" differs between places that write to \"%V\": set "
                  "another \"llm_capture_path\" beside it in %s:%ui",
                  name, &conf->path, file, line);

    return NGX_ERROR;
}


/* bytes of a path that its segments and its manifest have in common */

static size_t
ngx_http_llm_capture_stem(const ngx_str_t *path)
{
    size_t  len;

    len = sizeof(NGX_HTTP_LLM_CAPTURE_PATH_JSONL) - 1;

    return path->len > len
           && ngx_strncmp(path->data + path->len - len,
                          NGX_HTTP_LLM_CAPTURE_PATH_JSONL, len) == 0
           ? path->len - len : path->len;
}


static ngx_int_t
ngx_http_llm_capture_same_stem(ngx_conf_t *cf, const ngx_str_t *a,
    const ngx_str_t *b)
{
    size_t  len;

    len = ngx_http_llm_capture_stem(a);

    if (a->len == b->len || ngx_http_llm_capture_stem(b) != len
        || ngx_memcmp(a->data, b->data, len) != 0)
    {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"llm_capture_path\" \"%V\" and \"%V\" would have one "
                  "manifest", a, b);

    return NGX_ERROR;
}


ngx_int_t
ngx_http_llm_capture_policies(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *conf)
{
    ngx_uint_t                         i;
    ngx_http_llm_capture_loc_conf_t  **lcfp;

    lcfp = mcf->destinations.elts;

    for (i = 0; i < mcf->destinations.nelts; i++) {
        if (ngx_http_llm_capture_same_stem(cf, &conf->path, &lcfp[i]->path)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (lcfp[i]->hash == conf->hash
            && ngx_http_llm_capture_same_policy(cf, conf, lcfp[i]) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    conf->policy.hash = conf->hash;

    return NGX_OK;
}


ngx_int_t
ngx_http_llm_capture_keep_init(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf)
{
    ngx_uint_t                         i;
    ngx_http_llm_capture_policy_t     *p;
    ngx_http_llm_capture_loc_conf_t  **lcfp;

    p = ngx_palloc(cf->pool, (mcf->destinations.nelts + 1)
                             * sizeof(ngx_http_llm_capture_policy_t));
    if (p == NULL) {
        return NGX_ERROR;
    }

    lcfp = mcf->destinations.elts;

    for (i = 0; i < mcf->destinations.nelts; i++) {
        p[i] = lcfp[i]->policy;
    }

    mcf->keeping.policies = p;
    mcf->keeping.npolicies = (unsigned) mcf->destinations.nelts;
    mcf->keeping.nginx = NGINX_VERSION;
    mcf->keeping.module = NGX_HTTP_LLM_CAPTURE_VERSION;

    if (!mcf->min_free_set) {
        mcf->keeping.free_percent = NGX_HTTP_LLM_CAPTURE_FREE_PERCENT;
        mcf->keeping.free_most = (uint64_t) NGX_HTTP_LLM_CAPTURE_FREE_MOST;
    }

    return NGX_OK;
}
