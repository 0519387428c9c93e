
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "ngx_http_llm_capture_key.h"
#include "ngx_http_llm_capture_path.h"
#include "ngx_http_llm_capture_point.h"
#include "ngx_http_llm_capture_sidecar.h"


/* how often a key that cannot be kept is tried again, ms */
#define NGX_HTTP_LLM_CAPTURE_KEY_EVERY  60000


typedef enum {
    NGX_HTTP_LLM_CAPTURE_KEY_THERE = 0,
    NGX_HTTP_LLM_CAPTURE_KEY_NONE,
    NGX_HTTP_LLM_CAPTURE_KEY_OTHER,         /* something that is no key */
    NGX_HTTP_LLM_CAPTURE_KEY_UNKNOWN        /* errno */
} ngx_http_llm_capture_key_e;


static int
ngx_http_llm_capture_key_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }

    c |= 0x20;

    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}


int
ngx_http_llm_capture_key_parse(uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY],
    const char *text, size_t n)
{
    int      high, low;
    size_t   i;
    uint8_t  got[NGX_HTTP_LLM_CAPTURE_KEY];

    if (n == 2 * NGX_HTTP_LLM_CAPTURE_KEY + 1 && text[n - 1] == '\n') {
        n--;
    }

    if (n != 2 * NGX_HTTP_LLM_CAPTURE_KEY) {
        return 0;
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_KEY; i++) {
        high = ngx_http_llm_capture_key_digit(text[2 * i]);
        low = ngx_http_llm_capture_key_digit(text[2 * i + 1]);

        if (high == -1 || low == -1) {
            return 0;
        }

        got[i] = (uint8_t) (high << 4 | low);
    }

    memcpy(key, got, sizeof(got));

    return 1;
}


static ngx_http_llm_capture_key_e
ngx_http_llm_capture_key_load(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, const char *path)
{
    char         text[NGX_HTTP_LLM_CAPTURE_KEY_TEXT];
    ssize_t      n;
    struct stat  st;

    do {
        n = ngx_http_llm_capture_sidecar_text(fs->sys, path, text,
                                              sizeof(text), &st);

    } while (n == -1 && (errno == EMFILE || errno == ENFILE)
             && ngx_http_llm_capture_files_evict(fs, f));

    if (n == -1) {

        if (errno == ENOENT) {
            return NGX_HTTP_LLM_CAPTURE_KEY_NONE;
        }

        return ngx_http_llm_capture_sidecar_passes(errno)
                   ? NGX_HTTP_LLM_CAPTURE_KEY_UNKNOWN
                   : NGX_HTTP_LLM_CAPTURE_KEY_OTHER;
    }

    /* one that others know, or can set, protects nobody */

    errno = 0;

    if ((st.st_mode & 0007)
        || ngx_http_llm_capture_file_planted(fs->sys, path, &st)
        || !ngx_http_llm_capture_key_parse(f->key, text, (size_t) n))
    {
        return NGX_HTTP_LLM_CAPTURE_KEY_OTHER;
    }

    return NGX_HTTP_LLM_CAPTURE_KEY_THERE;
}


/*
 * link(2) replaces nothing, and the file is whole by then.  The name before is
 * nobody else's: there is no lock.
 */

static int
ngx_http_llm_capture_key_store(const ngx_http_llm_capture_sys_t *sys,
    const uint8_t *key, const char *path)
{
    int       rc, err;
    char      text[NGX_HTTP_LLM_CAPTURE_KEY_TEXT];
    char      temp[NGX_HTTP_LLM_CAPTURE_PATH + 32];
    unsigned  i, name;

    if (sys->getrandom(&name, sizeof(name), GRND_NONBLOCK)
        != (ssize_t) sizeof(name))
    {
        return -1;
    }

    if (snprintf(temp, sizeof(temp), "%s.%08x" NGX_HTTP_LLM_CAPTURE_PATH_KEY
                 NGX_HTTP_LLM_CAPTURE_PATH_TEMP, path, name)
        >= (int) sizeof(temp))
    {
        errno = ENAMETOOLONG;
        return -1;
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_KEY; i++) {
        (void) snprintf(text + 2 * i, 3, "%02x", key[i]);
    }

    text[2 * i] = '\n';

    if (ngx_http_llm_capture_sidecar_make(sys, temp, text, 2 * i + 1) == -1) {
        return -1;
    }

    NGX_HTTP_LLM_CAPTURE_POINT("key made");

    rc = sys->link(temp, path);
    err = errno;

    (void) sys->unlink(temp);
    errno = err;

    return rc;
}


static int
ngx_http_llm_capture_key_failed(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, const char *text)
{
    f->error = errno;

    ngx_http_llm_capture_file_say(fs, f, NGX_HTTP_LLM_CAPTURE_SAY_KEY, LOG_ERR,
                                  f->error, text);

    return -1;
}


int
ngx_http_llm_capture_file_key(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f)
{
    char                        path[NGX_HTTP_LLM_CAPTURE_PATH + 8];
    ngx_http_llm_capture_key_e  found;

    if (f->key_known && (f->key_stored || fs->now < f->key_retry)) {
        return 0;
    }

    (void) snprintf(path, sizeof(path), "%s" NGX_HTTP_LLM_CAPTURE_PATH_KEY,
                    f->path);

    f->key_retry = fs->now + NGX_HTTP_LLM_CAPTURE_KEY_EVERY;

    found = ngx_http_llm_capture_key_load(fs, f, path);

    if (found == NGX_HTTP_LLM_CAPTURE_KEY_UNKNOWN && !f->key_known) {
        return ngx_http_llm_capture_key_failed(fs, f,
                                               "cannot read the .key file");
    }

    if (found != NGX_HTTP_LLM_CAPTURE_KEY_THERE && !f->key_known
        && fs->sys->getrandom(f->key, sizeof(f->key), GRND_NONBLOCK)
           != (ssize_t) sizeof(f->key))
    {
        return ngx_http_llm_capture_key_failed(fs, f, "cannot make a key");
    }

    f->key_known = 1;

    if (found == NGX_HTTP_LLM_CAPTURE_KEY_NONE) {

        if (ngx_http_llm_capture_key_store(fs->sys, f->key, path) == 0) {
            found = NGX_HTTP_LLM_CAPTURE_KEY_THERE;

        } else if (errno == EEXIST) {
            /* another helper was faster */
            found = ngx_http_llm_capture_key_load(fs, f, path);
        }
    }

    if (found == NGX_HTTP_LLM_CAPTURE_KEY_THERE) {
        f->key_stored = 1;
        return 0;
    }

    ngx_http_llm_capture_file_say(fs, f, NGX_HTTP_LLM_CAPTURE_SAY_KEY,
                                  LOG_WARNING, errno,
                                  found == NGX_HTTP_LLM_CAPTURE_KEY_OTHER
                                      ? "the .key file is no key that only its"
                                        " owner and group can read, a restart"
                                        " gives sessions other ids"
                                      : "cannot keep the .key file, a restart"
                                        " gives sessions other ids");

    return 0;
}
