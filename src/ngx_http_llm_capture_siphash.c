
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_siphash.h"


#define rotl(x, b)  (((x) << (b)) | ((x) >> (64 - (b))))


const uint8_t  ngx_http_llm_capture_siphash_zero[NGX_HTTP_LLM_CAPTURE_KEY];


static uint64_t
ngx_http_llm_capture_siphash_load(const uint8_t *p)
{
    return (uint64_t) p[0] | (uint64_t) p[1] << 8 | (uint64_t) p[2] << 16
           | (uint64_t) p[3] << 24 | (uint64_t) p[4] << 32
           | (uint64_t) p[5] << 40 | (uint64_t) p[6] << 48
           | (uint64_t) p[7] << 56;
}


static void
ngx_http_llm_capture_siphash_rounds(uint64_t v[4], unsigned n)
{
    for ( /* void */ ; n; n--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotl(v[1], 13) ^ v[0];
        v[3] = rotl(v[3], 16) ^ v[2];
        v[0] = rotl(v[0], 32);

        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotl(v[1], 17) ^ v[2];
        v[3] = rotl(v[3], 21) ^ v[0];
        v[2] = rotl(v[2], 32);
    }
}


static void
ngx_http_llm_capture_siphash_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    ngx_http_llm_capture_siphash_rounds(v, 2);
    v[0] ^= word;
}


void
ngx_http_llm_capture_siphash_init(ngx_http_llm_capture_siphash_t *s,
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY])
{
    uint64_t  k0, k1;

    k0 = ngx_http_llm_capture_siphash_load(key);
    k1 = ngx_http_llm_capture_siphash_load(key + 8);

    s->v[0] = k0 ^ 0x736f6d6570736575ULL;
    s->v[1] = k1 ^ 0x646f72616e646f6dULL;
    s->v[2] = k0 ^ 0x6c7967656e657261ULL;
    s->v[3] = k1 ^ 0x7465646279746573ULL;
    s->word = 0;
    s->len = 0;
}


void
ngx_http_llm_capture_siphash_update(ngx_http_llm_capture_siphash_t *s,
    const void *data, size_t n)
{
    const uint8_t  *p, *end;

    p = data;
    end = p + n;

    for ( /* void */ ; p < end && s->len % 8; p++) {
        s->word |= (uint64_t) *p << (s->len % 8 * 8);

        if (++s->len % 8 == 0) {
            ngx_http_llm_capture_siphash_word(s->v, s->word);
            s->word = 0;
        }
    }

    for ( /* void */ ; end - p >= 8; p += 8) {
        ngx_http_llm_capture_siphash_word(s->v,
            ngx_http_llm_capture_siphash_load(p));
        s->len += 8;
    }

    for ( /* void */ ; p < end; p++) {
        s->word |= (uint64_t) *p << (s->len++ % 8 * 8);
    }
}


uint64_t
ngx_http_llm_capture_siphash_end(const ngx_http_llm_capture_siphash_t *s)
{
    uint64_t  v[4];

    memcpy(v, s->v, sizeof(v));

    ngx_http_llm_capture_siphash_word(v, s->word | s->len << 56);
    v[2] ^= 0xff;
    ngx_http_llm_capture_siphash_rounds(v, 4);

    return v[0] ^ v[1] ^ v[2] ^ v[3];
}


uint64_t
ngx_http_llm_capture_siphash_session(const void *value, size_t n)
{
    uint64_t                        session;
    ngx_http_llm_capture_siphash_t  s;

    ngx_http_llm_capture_siphash_init(&s, ngx_http_llm_capture_siphash_zero);
    ngx_http_llm_capture_siphash_update(&s, "session", sizeof("session"));
    ngx_http_llm_capture_siphash_update(&s, value, n);

    session = ngx_http_llm_capture_siphash_end(&s);

    return session ? session : 1;
}


void
ngx_http_llm_capture_siphash_number(ngx_http_llm_capture_siphash_t *s,
    uint64_t n)
{
    uint8_t   bytes[8];
    unsigned  i;

    for (i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t) (n >> (8 * i));
    }

    ngx_http_llm_capture_siphash_update(s, bytes, sizeof(bytes));
}


uint64_t
ngx_http_llm_capture_siphash_seal(const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY],
    uint64_t session)
{
    uint64_t                        id;
    ngx_http_llm_capture_siphash_t  s;

    ngx_http_llm_capture_siphash_init(&s, key);
    ngx_http_llm_capture_siphash_update(&s, "id", sizeof("id"));
    ngx_http_llm_capture_siphash_number(&s, session);

    id = ngx_http_llm_capture_siphash_end(&s);

    return id ? id : 1;
}


void
ngx_http_llm_capture_siphash_hex(uint64_t hash,
    char hex[NGX_HTTP_LLM_CAPTURE_SESSION])
{
    unsigned  i;

    for (i = 0; i < 16; i++) {
        hex[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
    }

    hex[16] = '\0';
}
