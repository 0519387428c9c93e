
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The setters of the directives.  A message names the directive, the value and
 * what is allowed; nginx adds the line.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_args.h"


/* a file of args larger than this is not one */
#define NGX_HTTP_LLM_CAPTURE_ARGS_MOST  (1024 * 1024)

/* bytes of a value in a message */
#define NGX_HTTP_LLM_CAPTURE_SHOWN      ((size_t) 256)


static ngx_int_t ngx_http_llm_capture_read(ngx_conf_t *cf, ngx_str_t *name,
    ngx_str_t *text);


char *
ngx_http_llm_capture_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    ngx_str_t                         *value;
    ngx_http_complex_value_t           cv;
    ngx_http_compile_complex_value_t   ccv;

    if (lcf->enable_wanted != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        lcf->enable_wanted = NGX_HTTP_LLM_CAPTURE_OFF;
        return NGX_CONF_OK;
    }

    if (ngx_http_llm_capture_core_conf(cf->cycle) == NULL) {
        /* whom the helper is to become would be read from a wrong place */
        return "cannot be used: this nginx has patches that the module was "
               "not built for, build it with the sources of this nginx";
    }

    if (ngx_strcmp(value[1].data, "on") == 0) {
        lcf->enable_wanted = NGX_HTTP_LLM_CAPTURE_ON;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[1].data, "paused") == 0) {
        lcf->enable_wanted = NGX_HTTP_LLM_CAPTURE_PAUSED;
        return NGX_CONF_OK;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &value[1];
    ccv.complex_value = &cv;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (cv.lengths == NULL) {
        return ngx_http_llm_capture_invalid(cf, "be \"on\", \"off\", "
                                                "\"paused\" or contain "
                                                "variables");
    }

    lcf->enable_value = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));

    if (lcf->enable_value == NULL) {
        return NGX_CONF_ERROR;
    }

    *lcf->enable_value = cv;
    lcf->enable_wanted = NGX_HTTP_LLM_CAPTURE_VAR;

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_path(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    ngx_str_t  *value;

    if (lcf->path.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_llm_capture_path(cf, lcf, &value[1]) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_format(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    ngx_str_t                      *value;
    ngx_http_llm_capture_format_e   format;

    if (lcf->format != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_llm_capture_args_format((char *) value[1].data, value[1].len,
                                         &format)
        != 0)
    {
        return ngx_http_llm_capture_invalid(cf,
                                "be \"mooncake_payload\", \"raw_payload\", "
                                "\"mooncake_trace\" or \"baseten_trace\"");
    }

    lcf->format = format;
    lcf->format_file = cf->conf_file->file.name.data;
    lcf->format_line = cf->conf_file->line;

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_request(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    uint64_t    size;
    ngx_str_t  *value;

    if (lcf->max_request_bytes != NGX_CONF_UNSET_SIZE) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_llm_capture_args_size((char *) value[1].data, value[1].len,
                                       NGX_HTTP_LLM_CAPTURE_REQUEST_MOST,
                                       &size)
        != 0)
    {
        return ngx_http_llm_capture_invalid(cf, "be a size from 1 to 1g, such "
                                                "as 1048576, 64k or 1m");
    }

    lcf->max_request_bytes = (size_t) size;

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_rate(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    ngx_str_t  *value;

    if (lcf->sample != NGX_HTTP_LLM_CAPTURE_SAMPLE_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_llm_capture_args_rate((char *) value[1].data, value[1].len,
                                       &lcf->sample)
        != 0)
    {
        return ngx_http_llm_capture_invalid(cf, "be a number from 0 to 1, such "
                                                "as 0.25");
    }

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_pattern(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_loc_conf_t *lcf = conf;

    ngx_str_t  *value, why;

    if (lcf->regex) {
        return "is duplicate";
    }

    value = cf->args->elts;

    switch (ngx_http_llm_capture_compile(cf, lcf, &value[1], &why)) {

    case NGX_OK:
        return NGX_CONF_OK;

    case NGX_DECLINED:
        return ngx_http_llm_capture_invalid(cf, (char *) why.data);

    default: /* NGX_ERROR */
        return NGX_CONF_ERROR;
    }
}


char *
ngx_http_llm_capture_set_flag(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_http_llm_capture_flag_t  *flag;

    flag = (ngx_http_llm_capture_flag_t *) (p + cmd->offset);

    flag->file = cf->conf_file->file.name.data;
    flag->line = cf->conf_file->line;

    /* its value comes first */

    return ngx_conf_set_flag_slot(cf, cmd, conf);
}


char *
ngx_http_llm_capture_set_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    uint64_t    size;
    ngx_str_t  *value;

    if (mcf->max_queue != NGX_HTTP_LLM_CAPTURE_QUEUE_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "auto") == 0) {
        mcf->max_queue = 0;
        return NGX_CONF_OK;
    }

    if (ngx_http_llm_capture_args_size((char *) value[1].data, value[1].len,
                                       NGX_HTTP_LLM_CAPTURE_QUEUE_MOST, &size)
        != 0)
    {
        return ngx_http_llm_capture_invalid(cf, "be \"auto\" or a size from 1 "
                                                "to 1024g, such as 256m or 1g");
    }

    /* whether that is enough is known when all is read */

    mcf->max_queue = size;
    mcf->file = cf->conf_file->file.name.data;
    mcf->line = cf->conf_file->line;

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_args(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    ngx_str_t  *value;

    if (mcf->args.data) {
        return "is duplicate";
    }

    if (mcf->args_file.data) {
        return "cannot be used together with \"llm_capture_args_file\"";
    }

    value = cf->args->elts;

    mcf->args = value[1];

    if (ngx_http_llm_capture_args(cf, mcf, &value[1]) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_set_args_file(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    ngx_str_t  *value, text;

    if (mcf->args_file.data) {
        return "is duplicate";
    }

    if (mcf->args.data) {
        return "cannot be used together with \"llm_capture_args\"";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return ngx_http_llm_capture_invalid(cf, "be the name of a file");
    }

    mcf->args_file = value[1];

    if (ngx_conf_full_name(cf->cycle, &mcf->args_file, 1) != NGX_OK
        || ngx_http_llm_capture_read(cf, &mcf->args_file, &text) != NGX_OK
        || ngx_http_llm_capture_args(cf, mcf, &text) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_llm_capture_read(ngx_conf_t *cf, ngx_str_t *name, ngx_str_t *text)
{
    ssize_t          n;
    ngx_fd_t         fd;
    ngx_file_info_t  fi;

    /* not to wait for the writer of a fifo */

    fd = ngx_open_file(name->data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%s\" failed", name->data);
        return NGX_ERROR;
    }

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_fd_info_n " \"%s\" failed", name->data);
        goto failed;
    }

    if (!ngx_is_file(&fi)
        || ngx_file_size(&fi) > NGX_HTTP_LLM_CAPTURE_ARGS_MOST)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%s\" in \"llm_capture_args_file\" "
                           "directive, it must be a regular file of at most 1m",
                           name->data);
        goto failed;
    }

    text->data = ngx_pnalloc(cf->pool, NGX_HTTP_LLM_CAPTURE_ARGS_MOST);

    if (text->data == NULL) {
        goto failed;
    }

    for (text->len = 0;
         text->len < NGX_HTTP_LLM_CAPTURE_ARGS_MOST;
         text->len += n)
    {
        n = ngx_read_fd(fd, text->data + text->len,
                        NGX_HTTP_LLM_CAPTURE_ARGS_MOST - text->len);

        if (n == -1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               ngx_read_fd_n " \"%s\" failed", name->data);
            goto failed;
        }

        if (n == 0) {
            break;
        }
    }

    (void) ngx_close_file(fd);

    return NGX_OK;

failed:

    (void) ngx_close_file(fd);

    return NGX_ERROR;
}


char *
ngx_http_llm_capture_set_timeout(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    ngx_int_t   ms;
    ngx_str_t  *value;

    if (mcf->drain_timeout != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    ms = ngx_parse_time(&value[1], 0);

    if (ms == NGX_ERROR || ms == 0) {
        return ngx_http_llm_capture_invalid(cf, "be a time above 0, such as 4s "
                                                "or 500ms");
    }

    mcf->drain_timeout = (ngx_msec_t) ms;

    return NGX_CONF_OK;
}


char *
ngx_http_llm_capture_invalid(ngx_conf_t *cf, const char *must)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    return ngx_http_llm_capture_invalid_value(cf, &value[1], must);
}


char *
ngx_http_llm_capture_invalid_value(ngx_conf_t *cf, ngx_str_t *value,
    const char *must)
{
    /* nginx cuts a line at 2048 bytes: the end of it is what helps */

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%*s%s\" in \"%V\" directive, it must "
                       "%s",
                       ngx_min(value->len, NGX_HTTP_LLM_CAPTURE_SHOWN),
                       value->data,
                       value->len > NGX_HTTP_LLM_CAPTURE_SHOWN ? "..." : "",
                       (ngx_str_t *) cf->args->elts, must);

    return NGX_CONF_ERROR;
}
