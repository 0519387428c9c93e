
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The key that nginx instances share, so that a session has the same id in all
 * of their files.  Read by the master, who may be the only one that can.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_key.h"


static char *ngx_http_llm_capture_read_key(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_fd_t fd);


char *
ngx_http_llm_capture_set_key_file(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    char       *rv;
    ngx_fd_t    fd;
    ngx_str_t  *value, name;

    if (mcf->keyed) {
        return "is duplicate";
    }

    value = cf->args->elts;
    name = value[1];

    if (name.len == 0) {
        return ngx_http_llm_capture_invalid(cf, "be the name of a file");
    }

    if (ngx_conf_full_name(cf->cycle, &name, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /* a link is followed, as secrets are mounted; a fifo not waited for */

    fd = ngx_open_file(name.data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" of \"llm_capture_key_file\""
                           " failed", &name);
        return NGX_CONF_ERROR;
    }

    rv = ngx_http_llm_capture_read_key(cf, mcf, fd);

    (void) ngx_close_file(fd);

    return rv;
}


static char *
ngx_http_llm_capture_read_key(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_fd_t fd)
{
    char             text[NGX_HTTP_LLM_CAPTURE_KEY_TEXT];
    ssize_t          n;
    ngx_file_info_t  fi;

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR || !ngx_is_file(&fi)) {
        return ngx_http_llm_capture_invalid(cf, "be a regular file");
    }

    if (fi.st_mode & 0007) {
        return ngx_http_llm_capture_invalid(cf, "be a file that others than "
                                            "its owner and group cannot read "
                                            "or write: chmod 600");
    }

    n = ngx_read_fd(fd, text, sizeof(text));

    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_read_fd_n " of \"llm_capture_key_file\" failed");
        return NGX_CONF_ERROR;
    }

    if (!ngx_http_llm_capture_key_parse(mcf->key, text, (size_t) n)) {
        return ngx_http_llm_capture_invalid(cf, "be a file of 32 hexadecimal "
                                                "digits, and no more than a "
                                                "line feed behind them");
    }

    mcf->keyed = 1;

    return NGX_CONF_OK;
}


void
ngx_http_llm_capture_key_changed(ngx_http_llm_capture_main_conf_t *old,
    ngx_http_llm_capture_main_conf_t *new, ngx_log_t *log)
{
    if (old && new
        && (old->keyed != new->keyed
            || ngx_memcmp(old->key, new->key, NGX_HTTP_LLM_CAPTURE_KEY) != 0))
    {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "llm capture: the key of llm_capture_key_file is another "
                      "one: from now on sessions have other ids");
    }
}
