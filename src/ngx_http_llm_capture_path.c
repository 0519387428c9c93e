
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include <sha256.h>

#include "ngx_http_llm_capture_path.h"


/* hexadecimal digits of the hash, and bytes kept before it and a '-' */
#define DIGITS  16
#define KEPT    (NGX_HTTP_LLM_CAPTURE_PATH_LONGEST - DIGITS - 1)


/*
 * The first 64 bits of SHA-256.  A weaker hash would let a client choose a
 * value whose name is that of another one's file.
 */

static uint64_t
ngx_http_llm_capture_path_hash(const uint8_t *v, size_t n)
{
    uint8_t     sum[SHA256_DIGEST_LENGTH];
    unsigned    i;
    uint64_t    hash;
    SHA256_CTX  ctx;

    SHA256_Init(&ctx);
    SHA256_Update(&ctx, v, n);
    SHA256_Final(sum, &ctx);

    for (i = 0, hash = 0; i < sizeof(hash); i++) {
        hash = hash << 8 | sum[i];
    }

    return hash;
}


static int
ngx_http_llm_capture_path_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
           || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}


static int
ngx_http_llm_capture_path_ends(const uint8_t *v, size_t n, const char *end)
{
    size_t  len;

    len = strlen(end);

    return n >= len && memcmp(v + n - len, end, len) == 0;
}


int
ngx_http_llm_capture_path_utc(const uint8_t *v)
{
    size_t  i;

    static const char  form[] = "ddddddddTdddddd.dddZ";

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_PATH_UTC; i++) {
        if (form[i] == 'd' ? v[i] < '0' || v[i] > '9' : v[i] != form[i]) {
            return 0;
        }
    }

    return 1;
}


/* does it end with the time of a segment? */

static int
ngx_http_llm_capture_path_timed(const uint8_t *v, size_t n)
{
    return n >= NGX_HTTP_LLM_CAPTURE_PATH_UTC
           && ngx_http_llm_capture_path_utc(v + n
                                            - NGX_HTTP_LLM_CAPTURE_PATH_UTC);
}


int
ngx_http_llm_capture_path_taken(const uint8_t *v, size_t n)
{
    unsigned  i;

    static const char *const  ends[] = {
        NGX_HTTP_LLM_CAPTURE_PATH_SIDECAR,
        NGX_HTTP_LLM_CAPTURE_PATH_SIDECAR NGX_HTTP_LLM_CAPTURE_PATH_TEMP,
        NGX_HTTP_LLM_CAPTURE_PATH_KEY,
        NGX_HTTP_LLM_CAPTURE_PATH_KEY NGX_HTTP_LLM_CAPTURE_PATH_TEMP,
        NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES,
        NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST,
        NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST NGX_HTTP_LLM_CAPTURE_PATH_TEMP
    };

    /* of a segment, behind the time */

    static const char *const  forms[] = {
        NGX_HTTP_LLM_CAPTURE_PATH_JSONL,
        NGX_HTTP_LLM_CAPTURE_PATH_PLAIN,
        NGX_HTTP_LLM_CAPTURE_PATH_GZIP,
        NGX_HTTP_LLM_CAPTURE_PATH_GZIP NGX_HTTP_LLM_CAPTURE_PATH_TEMP,
        NGX_HTTP_LLM_CAPTURE_PATH_ZSTD,
        NGX_HTTP_LLM_CAPTURE_PATH_ZSTD NGX_HTTP_LLM_CAPTURE_PATH_TEMP
    };

    for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (ngx_http_llm_capture_path_ends(v, n, ends[i])) {
            return 1;
        }
    }

    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (ngx_http_llm_capture_path_ends(v, n, forms[i])
            && ngx_http_llm_capture_path_timed(v, n - strlen(forms[i])))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * A value that would go well alone: with what the path has around it, it would
 * name a segment of another value, or share its manifest.
 */

static int
ngx_http_llm_capture_path_shared(const uint8_t *v, size_t n)
{
    size_t  i;

    for (i = NGX_HTTP_LLM_CAPTURE_PATH_UTC; i <= n; i++) {
        if (ngx_http_llm_capture_path_timed(v, i)) {
            return 1;
        }
    }

    return ngx_http_llm_capture_path_ends(v, n,
                                          NGX_HTTP_LLM_CAPTURE_PATH_JSONL);
}


/* '-' and hexadecimal digits, as written below */

static int
ngx_http_llm_capture_path_hashed(const uint8_t *v, size_t n)
{
    size_t  i;

    if (n < DIGITS + 1 || v[n - DIGITS - 1] != '-') {
        return 0;
    }

    for (i = n - DIGITS; i < n; i++) {
        if (!((v[i] >= '0' && v[i] <= '9') || (v[i] >= 'a' && v[i] <= 'f'))) {
            return 0;
        }
    }

    return 1;
}


size_t
ngx_http_llm_capture_path_value(char *dst, const uint8_t *v, size_t n)
{
    int       changed;
    size_t    i, len;
    uint64_t  hash;

    if (n == 0) {
        memcpy(dst, "none", 4);
        return 4;
    }

    changed = n > NGX_HTTP_LLM_CAPTURE_PATH_LONGEST
              || ngx_http_llm_capture_path_hashed(v, n)
              || ngx_http_llm_capture_path_taken(v, n)
              || ngx_http_llm_capture_path_shared(v, n)
              || (n == 4 && memcmp(v, "none", 4) == 0);

    len = n < NGX_HTTP_LLM_CAPTURE_PATH_LONGEST
          ? n : NGX_HTTP_LLM_CAPTURE_PATH_LONGEST;

    for (i = 0; i < len; i++) {

        if (ngx_http_llm_capture_path_plain(v[i]) && (i != 0 || v[0] != '.')) {
            dst[i] = (char) v[i];
            continue;
        }

        dst[i] = '_';
        changed = 1;
    }

    if (!changed) {
        return len;
    }

    if (len > KEPT) {
        len = KEPT;
    }

    dst[len++] = '-';

    hash = ngx_http_llm_capture_path_hash(v, n);

    for (i = 0; i < DIGITS; i++) {
        dst[len++] = "0123456789abcdef"[hash >> 60];
        hash <<= 4;
    }

    return len;
}


const char *
ngx_http_llm_capture_path_check(const char *path, size_t len, size_t names,
    size_t values)
{
    size_t  i, name;

    if (len == 0 || path[0] != '/') {
        return "be absolute";
    }

    for (i = 0; i < len; i++) {
        if ((unsigned char) path[i] < 0x20 || path[i] == 0x7f) {
            return "not contain control characters";
        }
    }

    for (name = 0; path[len - 1 - name] != '/'; name++) { /* void */ }

    if (name == 0) {
        return "end with the name of a file";
    }

    if (names == 0
        && ((name == 1 && path[len - 1] == '.')
            || (name == 2 && path[len - 1] == '.' && path[len - 2] == '.')))
    {
        return "end with the name of a file";
    }

    if (ngx_http_llm_capture_path_taken((const uint8_t *) path, len)) {
        return "not end with \"" NGX_HTTP_LLM_CAPTURE_PATH_SIDECAR "\", \""
               NGX_HTTP_LLM_CAPTURE_PATH_KEY "\", \""
               NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES "\", \""
               NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST "\", these and \""
               NGX_HTTP_LLM_CAPTURE_PATH_TEMP "\", or the time of a segment";
    }

    if (name - names + values > NGX_HTTP_LLM_CAPTURE_PATH_NAME) {
        return "not have a file name that can exceed 216 bytes"
               " (64 for a variable)";
    }

    if (len - names + values > NGX_HTTP_LLM_CAPTURE_PATH_MOST) {
        return "not be able to exceed 4000 bytes (64 for a variable)";
    }

    return NULL;
}
