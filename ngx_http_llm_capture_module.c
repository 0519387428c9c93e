
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The module as nginx sees it: directives, variables, callbacks.  A value that
 * is wrong is refused where it stands (set.c); sums are checked by init_conf of
 * the core module below, where worker_processes is final.  Later nothing may be
 * refused: on reload an error of init_module ends the master.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"


#define NGX_HTTP_LLM_CAPTURE_DRAIN_TIMEOUT  4000


static ngx_int_t ngx_http_llm_capture_endpoint_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_llm_capture_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

static ngx_int_t ngx_http_llm_capture_add_variables(ngx_conf_t *cf);
static ngx_int_t ngx_http_llm_capture_init(ngx_conf_t *cf);
static void *ngx_http_llm_capture_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_llm_capture_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_llm_capture_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_llm_capture_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_llm_capture_enable(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *conf);
static void ngx_http_llm_capture_merge_flag(ngx_http_llm_capture_flag_t *conf,
    ngx_http_llm_capture_flag_t *prev);
static ngx_int_t ngx_http_llm_capture_one_format(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *conf);
static char *ngx_http_llm_capture_init_conf(ngx_cycle_t *cycle, void *conf);


static ngx_command_t  ngx_http_llm_capture_commands[] = {

    { ngx_string("llm_capture"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_path"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_path,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_format"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_format,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_max_request_bytes"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_request,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_sample_rate"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_rate,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_endpoint_pattern"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_pattern,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_skip"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_set_predicate_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_llm_capture_loc_conf_t, skip),
      NULL },

    { ngx_string("llm_capture_skip_replay"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_llm_capture_loc_conf_t, skip_replay),
      NULL },

    { ngx_string("llm_capture_outcome"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_http_llm_capture_set_flag,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_llm_capture_loc_conf_t, outcome),
      NULL },

    { ngx_string("llm_capture_session_id"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_llm_capture_set_session,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_sample_key"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_sample_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_key_file"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_key_file,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_hash_ids"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_http_llm_capture_set_flag,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_llm_capture_loc_conf_t, hash_ids),
      NULL },

    { ngx_string("llm_capture_output_text"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_http_llm_capture_set_flag,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_llm_capture_loc_conf_t, output_text),
      NULL },

    { ngx_string("llm_capture_rotate"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_llm_capture_set_rotate,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_label"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_label,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_max_disk"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_llm_capture_set_max_disk,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_min_free"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_min_free,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_status"),
      NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_llm_capture_set_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_control"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_llm_capture_set_control,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_max_queue_bytes"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_queue,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_args"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_args,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_args_file"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_args_file,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("llm_capture_drain_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_llm_capture_set_timeout,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_llm_capture_module_ctx = {
    ngx_http_llm_capture_add_variables,    /* preconfiguration */
    ngx_http_llm_capture_init,             /* postconfiguration */

    ngx_http_llm_capture_create_main_conf, /* create main configuration */
    ngx_http_llm_capture_init_main_conf,   /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_llm_capture_create_loc_conf,  /* create location configuration */
    ngx_http_llm_capture_merge_loc_conf    /* merge location configuration */
};


ngx_module_t  ngx_http_llm_capture_module = {
    NGX_MODULE_V1,
    &ngx_http_llm_capture_module_ctx,      /* module context */
    ngx_http_llm_capture_commands,         /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_llm_capture_init_module,      /* init module */
    ngx_http_llm_capture_worker_init,      /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_llm_capture_worker_exit,      /* exit process */
    ngx_http_llm_capture_exit_master,      /* exit master */
    NGX_MODULE_V1_PADDING
};


/* only for an init_conf that runs after that of nginx's core */

static ngx_core_module_t  ngx_http_llm_capture_core_module_ctx = {
    ngx_string("llm_capture"),
    NULL,
    ngx_http_llm_capture_init_conf
};


ngx_module_t  ngx_http_llm_capture_core_module = {
    NGX_MODULE_V1,
    &ngx_http_llm_capture_core_module_ctx, /* module context */
    NULL,                                  /* module directives */
    NGX_CORE_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_http_variable_t  ngx_http_llm_capture_vars[] = {

    { ngx_string("llm_capture_endpoint"), NULL,
      ngx_http_llm_capture_endpoint_variable, 0, 0, 0 },

    /* another one as the body goes on */

    { ngx_string("llm_capture_status"), NULL,
      ngx_http_llm_capture_status_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


static const ngx_str_t  ngx_http_llm_capture_endpoints[] = {
    ngx_string("chat"),
    ngx_string("completions"),
    ngx_string("responses"),
    ngx_string("messages"),
    ngx_string("embeddings"),
    ngx_string("other")
};


ngx_http_llm_capture_main_conf_t *
ngx_http_llm_capture_main_conf(ngx_cycle_t *cycle)
{
    ngx_http_llm_capture_main_conf_t  *mcf;

    if (cycle->conf_ctx == NULL
        || ngx_get_conf(cycle->conf_ctx, ngx_http_module) == NULL)
    {
        return NULL;
    }

    mcf = ngx_http_cycle_get_module_main_conf(cycle,
                                              ngx_http_llm_capture_module);

    return mcf && mcf->shm_zone ? mcf : NULL;
}


static ngx_int_t
ngx_http_llm_capture_endpoint_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t         uri;
    const ngx_str_t  *name;

    /* by what the client asked for, in subrequests too */

    uri = ngx_http_llm_capture_uri(r->main);
    name = &ngx_http_llm_capture_endpoints[ngx_http_llm_capture_endpoint(&uri)];

    v->len = (unsigned) name->len;
    v->data = name->data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_llm_capture_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    const char                  *name;
    ngx_http_llm_capture_ctx_t  *ctx;

    ctx = ngx_http_llm_capture_get_ctx(r->main);

    switch (ctx ? ctx->state : NGX_HTTP_LLM_CAPTURE_S_OFF) {

    case NGX_HTTP_LLM_CAPTURE_S_OPEN:
        /* if it ends here; the log has nothing later to go by */
        name = "aborted";
        break;

    case NGX_HTTP_LLM_CAPTURE_S_QUEUED:
        name = "queued";
        break;

    case NGX_HTTP_LLM_CAPTURE_S_REFUSED:
        name = ngx_http_llm_capture_counter_names[ctx->reason];
        break;

    default: /* NGX_HTTP_LLM_CAPTURE_S_OFF */
        name = "off";
        break;
    }

    v->len = (unsigned) ngx_strlen(name);
    v->data = (u_char *) name;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_llm_capture_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_llm_capture_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);

        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_llm_capture_init(ngx_conf_t *cf)
{
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_llm_capture_module);

    if (mcf->destinations.nelts
        && (ngx_http_llm_capture_keep_init(cf, mcf) != NGX_OK
            || ngx_http_llm_capture_shm_add(cf, mcf) != NGX_OK))
    {
        return NGX_ERROR;
    }

    /*
     * Even if nothing captures: the chain of filters belongs to the process,
     * and a configuration that fails later leaves it to the one before
     */

    if (ngx_http_llm_capture_filter_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_llm_capture_response_init(cf);
}


static void *
ngx_http_llm_capture_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_llm_capture_main_conf_t));

    if (mcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     mcf->args = { 0, NULL };
     *     mcf->args_file = { 0, NULL };
     *     mcf->defaults = NULL;
     *     mcf->key = { 0 };
     *     mcf->keeping = { 0 };
     *     mcf->keyed = 0;
     *     mcf->max_disk_set = 0;
     *     mcf->min_free_set = 0;
     *     mcf->session = NULL;
     *     mcf->shm_zone = NULL;
     */

    mcf->max_queue = NGX_HTTP_LLM_CAPTURE_QUEUE_UNSET;
    mcf->drain_timeout = NGX_CONF_UNSET_MSEC;

    if (ngx_array_init(&mcf->destinations, cf->pool, 8,
                       sizeof(ngx_http_llm_capture_loc_conf_t *))
        != NGX_OK)
    {
        return NULL;
    }

    return mcf;
}


static char *
ngx_http_llm_capture_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_llm_capture_main_conf_t *mcf = conf;

    ngx_conf_init_msec_value(mcf->drain_timeout,
                             NGX_HTTP_LLM_CAPTURE_DRAIN_TIMEOUT);

    /* max_queue may stay unset: then args have a say */

    return NGX_CONF_OK;
}


static void *
ngx_http_llm_capture_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_llm_capture_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_llm_capture_loc_conf_t));

    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->enable = NGX_HTTP_LLM_CAPTURE_OFF;
     *     conf->enable_value = NULL;
     *     conf->path = { 0, NULL };
     *     conf->parts = NULL;
     *     conf->base_len = 0;
     *     conf->format_file = NULL;
     *     conf->format_line = 0;
     *     conf->outcome.file = NULL;
     *     conf->outcome.line = 0;
     *     conf->hash_ids.file = NULL;
     *     conf->hash_ids.line = 0;
     *     conf->output_text.file = NULL;
     *     conf->output_text.line = 0;
     *     conf->session = NULL;
     *     conf->session_file = NULL;
     *     conf->session_line = 0;
     *     conf->policy = { 0 };
     *     conf->rotate_file = NULL;
     *     conf->rotate_line = 0;
     *     conf->label_file = NULL;
     *     conf->label_line = 0;
     *     conf->pattern = { 0, NULL };
     *     conf->regex = NULL;
     *     conf->jit = 0;
     *     conf->hash = 0;
     *     conf->row = 0;
     */

    conf->enable_wanted = NGX_CONF_UNSET_UINT;
    conf->format = NGX_CONF_UNSET_UINT;
    conf->max_request_bytes = NGX_CONF_UNSET_SIZE;
    conf->sample = NGX_HTTP_LLM_CAPTURE_SAMPLE_UNSET;
    conf->skip = NGX_CONF_UNSET_PTR;
    conf->skip_replay = NGX_CONF_UNSET;
    conf->outcome.value = NGX_CONF_UNSET;
    conf->hash_ids.value = NGX_CONF_UNSET;
    conf->output_text.value = NGX_CONF_UNSET;
    conf->sample_key = NGX_CONF_UNSET_PTR;

    return conf;
}


static void
ngx_http_llm_capture_merge_flag(ngx_http_llm_capture_flag_t *conf,
    ngx_http_llm_capture_flag_t *prev)
{
    if (conf->value == NGX_CONF_UNSET) {
        *conf = *prev;
    }
}


static char *
ngx_http_llm_capture_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_llm_capture_loc_conf_t *prev = parent;
    ngx_http_llm_capture_loc_conf_t *conf = child;

    ngx_http_llm_capture_main_conf_t  *mcf;

    if (conf->enable_wanted == NGX_CONF_UNSET_UINT) {
        conf->enable_wanted = prev->enable_wanted;
        conf->enable_value = prev->enable_value;
    }

    /* what nobody set stays unset, until something captures by it */

    if (conf->path.data == NULL) {
        conf->path = prev->path;
        conf->parts = prev->parts;
        conf->base_len = prev->base_len;
    }

    if (conf->regex == NULL) {
        conf->pattern = prev->pattern;
        conf->regex = prev->regex;
        conf->jit = prev->jit;
    }

    if (conf->format == NGX_CONF_UNSET_UINT) {
        conf->format = prev->format;
        conf->format_file = prev->format_file;
        conf->format_line = prev->format_line;
    }

    ngx_conf_merge_size_value(conf->max_request_bytes, prev->max_request_bytes,
                              NGX_CONF_UNSET_SIZE);

    if (conf->sample == NGX_HTTP_LLM_CAPTURE_SAMPLE_UNSET) {
        conf->sample = prev->sample;
    }

    ngx_conf_merge_ptr_value(conf->skip, prev->skip, NULL);
    ngx_conf_merge_value(conf->skip_replay, prev->skip_replay, 1);

    ngx_http_llm_capture_merge_flag(&conf->outcome, &prev->outcome);
    ngx_http_llm_capture_merge_flag(&conf->hash_ids, &prev->hash_ids);
    ngx_http_llm_capture_merge_flag(&conf->output_text, &prev->output_text);

    if (conf->session_file == NULL) {
        conf->session = prev->session;
        conf->session_file = prev->session_file;
        conf->session_line = prev->session_line;
    }

    if (conf->sample_key == NGX_CONF_UNSET_PTR) {
        conf->sample_key = prev->sample_key;
    }

    ngx_http_llm_capture_merge_policy(conf, prev);

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_llm_capture_module);

    if (conf->enable_wanted == NGX_CONF_UNSET_UINT
        || conf->enable_wanted == NGX_HTTP_LLM_CAPTURE_OFF
        || mcf->args_off)
    {
        return NGX_CONF_OK;
    }

    return ngx_http_llm_capture_enable(cf, mcf, conf);
}


/*
 * What is off for want of a path keeps none, so that a location below it still
 * can have one of its own
 */

static char *
ngx_http_llm_capture_enable(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *conf)
{
    ngx_http_llm_capture_loc_conf_t  **lcfp, *defaults;

    if (conf->path.data == NULL && mcf->args_bad_path) {
        return NGX_CONF_OK;
    }

    if (ngx_http_llm_capture_defaults(cf, mcf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    defaults = mcf->defaults;

    if (conf->path.data == NULL) {
        conf->path = defaults->path;
        conf->parts = defaults->parts;
        conf->base_len = defaults->base_len;
    }

    if (conf->regex == NULL) {
        conf->pattern = defaults->pattern;
        conf->regex = defaults->regex;
        conf->jit = defaults->jit;
    }

    ngx_conf_init_uint_value(conf->format, defaults->format);
    ngx_conf_init_size_value(conf->max_request_bytes,
                             defaults->max_request_bytes);

    if (conf->sample == NGX_HTTP_LLM_CAPTURE_SAMPLE_UNSET) {
        conf->sample = defaults->sample;
    }

    conf->hash = ngx_http_llm_capture_zone_hash((char *) conf->path.data,
                                                conf->path.len,
                                                (uint32_t) conf->format);

    if (ngx_http_llm_capture_one_format(cf, mcf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_llm_capture_policies(cf, mcf, conf) != NGX_OK
        || ngx_http_llm_capture_check_rows(cf, conf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_conf_init_ptr_value(conf->sample_key, NULL);

    if (ngx_http_llm_capture_sessions(cf, mcf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    lcfp = ngx_array_push(&mcf->destinations);

    if (lcfp == NULL) {
        return NGX_CONF_ERROR;
    }

    *lcfp = conf;

    mcf->largest = ngx_max(mcf->largest, conf->max_request_bytes);

    conf->enable = conf->enable_wanted;

    return NGX_CONF_OK;
}


/* AIPerf refuses all of a file that holds rows of two formats */

static ngx_int_t
ngx_http_llm_capture_one_format(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *conf)
{
    ngx_uint_t                         i;
    ngx_http_llm_capture_loc_conf_t  **lcfp, *set;

    lcfp = mcf->destinations.elts;

    for (i = 0; i < mcf->destinations.nelts; i++) {

        if (lcfp[i]->format == conf->format
            || lcfp[i]->path.len != conf->path.len
            || ngx_memcmp(lcfp[i]->path.data, conf->path.data, conf->path.len)
               != 0)
        {
            continue;
        }

        /* one of them at least is no default */

        set = conf->format_file ? conf : lcfp[i];

        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"llm_capture_format\" differs between places that "
                      "write to \"%V\": a file must be of one format, set "
                      "another \"llm_capture_path\" beside it in %s:%ui",
                      &conf->path, set->format_file, set->format_line);

        return NGX_ERROR;
    }

    return NGX_OK;
}


static char *
ngx_http_llm_capture_init_conf(ngx_cycle_t *cycle, void *conf)
{
    ngx_http_llm_capture_main_conf_t  *mcf;

    mcf = ngx_http_llm_capture_main_conf(cycle);

    return mcf ? ngx_http_llm_capture_shm_size(cycle, mcf) : NGX_CONF_OK;
}
