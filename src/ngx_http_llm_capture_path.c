
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_path.h"


/* hexadecimal digits of the hash, and bytes kept before it and a '-' */
#define DIGITS  16
#define KEPT    (NGX_HTTP_LLM_CAPTURE_PATH_LONGEST - DIGITS - 1)

#define rotr(x, k)  (((x) >> (k)) | ((x) << (32 - (k))))


/*
 * SHA-256 (FIPS 180-4), its first 64 bits.  A weaker hash would let a client
 * choose a value whose name is that of another one's file.
 */

static const uint32_t  ngx_http_llm_capture_path_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5,
    0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
    0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};


static void
ngx_http_llm_capture_path_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t  w[64], s[8], t1, t2;
    unsigned  i;

    for (i = 0; i < 16; i++) {
        w[i] = (uint32_t) p[4 * i] << 24 | (uint32_t) p[4 * i + 1] << 16
               | (uint32_t) p[4 * i + 2] << 8 | p[4 * i + 3];
    }

    for (i = 16; i < 64; i++) {
        t1 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
        t2 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + t1 + w[i - 7] + t2;
    }

    memcpy(s, h, sizeof(s));

    for (i = 0; i < 64; i++) {
        t1 = s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25))
             + ((s[4] & s[5]) ^ (~s[4] & s[6]))
             + ngx_http_llm_capture_path_k[i] + w[i];
        t2 = (rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22))
             + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(uint32_t));
        s[4] += t1;
        s[0] = t1 + t2;
    }

    for (i = 0; i < 8; i++) {
        h[i] += s[i];
    }
}


static uint64_t
ngx_http_llm_capture_path_hash(const uint8_t *v, size_t n)
{
    size_t    left;
    uint8_t   tail[128];
    unsigned  i, size;
    uint32_t  h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

    for (left = n; left >= 64; left -= 64, v += 64) {
        ngx_http_llm_capture_path_block(h, v);
    }

    /* the rest, a one bit, zeroes, and the length in bits */

    memset(tail, 0, sizeof(tail));
    memcpy(tail, v, left);
    tail[left] = 0x80;

    size = left < 56 ? 64 : 128;

    for (i = 0; i < 8; i++) {
        tail[size - 1 - i] = (uint8_t) ((uint64_t) n * 8 >> (8 * i));
    }

    ngx_http_llm_capture_path_block(h, tail);

    if (size == 128) {
        ngx_http_llm_capture_path_block(h, tail + 64);
    }

    return (uint64_t) h[0] << 32 | h[1];
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
