
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The endpoint pattern.  PCRE2 is called directly: the nginx that loads the
 * module may have been built with PCRE1 or with none, and ngx_regex_exec() sets
 * no limit to what a pattern may cost a request.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_llm_capture.h"


/*
 * Steps of a match, and KiB of its heap: the worst patterns on a path of 8k end
 * within 0.3 ms, 2 ms without JIT.  A plain pattern takes some ten steps, ".*"
 * in the middle of it one for each byte of the path.
 */
#define NGX_HTTP_LLM_CAPTURE_MATCH_LIMIT  50000
#define NGX_HTTP_LLM_CAPTURE_DEPTH_LIMIT  5000
#define NGX_HTTP_LLM_CAPTURE_HEAP_LIMIT   1024

#define NGX_HTTP_LLM_CAPTURE_PERIOD       60      /* seconds */


/* of a process; made by the master, so that workers inherit them */

typedef struct {
    pcre2_match_data     *data;
    pcre2_match_context  *limits;
    time_t                told;
    ngx_uint_t            missed;
} ngx_http_llm_capture_match_t;


static ngx_int_t ngx_http_llm_capture_match_init(void);
static void ngx_http_llm_capture_match_cleanup(void *data);
static ngx_int_t ngx_http_llm_capture_match_run(
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_str_t *uri);
static ngx_int_t ngx_http_llm_capture_match_failed(
    ngx_http_llm_capture_loc_conf_t *lcf, int rc);


static ngx_http_llm_capture_match_t  match;


ngx_int_t
ngx_http_llm_capture_compile(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_str_t *pattern, ngx_str_t *why)
{
    int                  n;
    u_char               buf[256];
    size_t               size;
    PCRE2_SIZE           offset;
    pcre2_code          *regex;
    ngx_pool_cleanup_t  *cln;

    if (pattern->len == 0) {
        ngx_str_set(why, "be a regular expression that is not empty");
        return NGX_DECLINED;
    }

    if (ngx_http_llm_capture_match_init() != NGX_OK) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (cln == NULL) {
        return NGX_ERROR;
    }

    /*
     * A path is bytes: not all of them are UTF-8.  "$" is the end and not what
     * stands before a final line feed, which "%0A" would be.
     */

    regex = pcre2_compile((PCRE2_SPTR) pattern->data, pattern->len,
                          PCRE2_NEVER_UTF|PCRE2_DOLLAR_ENDONLY, &n, &offset,
                          NULL);

    if (regex == NULL) {

        if (pcre2_get_error_message(n, (PCRE2_UCHAR *) buf, sizeof(buf)) < 0) {
            buf[0] = '\0';
        }

        why->data = ngx_pnalloc(cf->pool, sizeof(buf) + NGX_SIZE_T_LEN + 64);

        if (why->data == NULL) {
            return NGX_ERROR;
        }

        why->len = ngx_sprintf(why->data, "be a regular expression, this one "
                               "fails at offset %uz: %s%Z",
                               (size_t) offset, buf)
                   - why->data - 1;

        return NGX_DECLINED;
    }

    cln->handler = ngx_http_llm_capture_match_cleanup;
    cln->data = regex;

    /* a hardened system may refuse executable memory: it is slower then */

    size = 0;

    if (pcre2_jit_compile(regex, PCRE2_JIT_COMPLETE) == 0) {
        (void) pcre2_pattern_info(regex, PCRE2_INFO_JITSIZE, &size);
    }

    lcf->pattern = *pattern;
    lcf->regex = regex;
    lcf->jit = (size != 0);

    return NGX_OK;
}


static ngx_int_t
ngx_http_llm_capture_match_init(void)
{
    if (match.data == NULL) {
        /* where it matched is not asked */
        match.data = pcre2_match_data_create(1, NULL);
    }

    if (match.limits == NULL) {
        match.limits = pcre2_match_context_create(NULL);
    }

    if (match.data == NULL || match.limits == NULL) {
        return NGX_ERROR;
    }

    (void) pcre2_set_match_limit(match.limits,
                                 NGX_HTTP_LLM_CAPTURE_MATCH_LIMIT);
    (void) pcre2_set_depth_limit(match.limits,
                                 NGX_HTTP_LLM_CAPTURE_DEPTH_LIMIT);
    (void) pcre2_set_heap_limit(match.limits,
                                NGX_HTTP_LLM_CAPTURE_HEAP_LIMIT);

    return NGX_OK;
}


static void
ngx_http_llm_capture_match_cleanup(void *data)
{
    pcre2_code_free(data);
}


/* the paths of a location are few: mostly it is the one of the last request */

ngx_int_t
ngx_http_llm_capture_match(ngx_http_llm_capture_loc_conf_t *lcf,
    ngx_str_t *uri)
{
    ngx_int_t  rc;

    if (uri->len != 0 && uri->len == lcf->last_len
        && ngx_memcmp(uri->data, lcf->last, uri->len) == 0)
    {
        return lcf->last_rc;
    }

    rc = ngx_http_llm_capture_match_run(lcf, uri);

    if (rc == NGX_ERROR) {
        return NGX_DECLINED;
    }

    if (uri->len <= NGX_HTTP_LLM_CAPTURE_LAST) {
        ngx_memcpy(lcf->last, uri->data, uri->len);
        lcf->last_len = uri->len;
        lcf->last_rc = rc;
    }

    return rc;
}


/* NGX_ERROR: it gave up, which is counted each time */

static ngx_int_t
ngx_http_llm_capture_match_run(ngx_http_llm_capture_loc_conf_t *lcf,
    ngx_str_t *uri)
{
    int         rc;
    PCRE2_SPTR  subject;

    /* older versions refuse a null pointer even for no bytes */

    subject = uri->data ? (PCRE2_SPTR) uri->data : (PCRE2_SPTR) "";

    if (lcf->jit) {
        rc = pcre2_jit_match(lcf->regex, subject, uri->len, 0, 0, match.data,
                             match.limits);

    } else {
        rc = pcre2_match(lcf->regex, subject, uri->len, 0, 0, match.data,
                         match.limits);
    }

    if (rc >= 0) {
        return NGX_OK;
    }

    if (rc == PCRE2_ERROR_NOMATCH) {
        return NGX_DECLINED;
    }

    return ngx_http_llm_capture_match_failed(lcf, rc);
}


/* the pattern is the configuration's, the path is a client's: not shown */

static ngx_int_t
ngx_http_llm_capture_match_failed(ngx_http_llm_capture_loc_conf_t *lcf, int rc)
{
    time_t  now;
    u_char  buf[128];

    now = ngx_time();
    match.missed++;

    if (match.told && now - match.told < NGX_HTTP_LLM_CAPTURE_PERIOD) {
        return NGX_ERROR;
    }

    if (pcre2_get_error_message(rc, (PCRE2_UCHAR *) buf, sizeof(buf)) < 0) {
        buf[0] = '\0';
    }

    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                  "llm capture: the endpoint pattern \"%V\" gave up on %ui "
                  "requests, which are not captured: %s",
                  &lcf->pattern, match.missed, buf);

    match.told = now;
    match.missed = 0;

    return NGX_ERROR;
}
