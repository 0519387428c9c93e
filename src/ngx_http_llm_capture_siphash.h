
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * SipHash-2-4 by J.-P. Aumasson and D. J. Bernstein: a hash of 64 bits under a
 * key of 128, in pieces of any size.  Who has no key can neither compute nor
 * test a value.  Pure: no nginx header.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SIPHASH_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SIPHASH_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


#define NGX_HTTP_LLM_CAPTURE_KEY      16
/* hex digits of an id, and a NUL */
#define NGX_HTTP_LLM_CAPTURE_SESSION  17


typedef struct {
    uint64_t  v[4];
    uint64_t  word;             /* bytes that are no whole word yet */
    uint64_t  len;
} ngx_http_llm_capture_siphash_t;


void ngx_http_llm_capture_siphash_init(ngx_http_llm_capture_siphash_t *s,
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY]);

void ngx_http_llm_capture_siphash_update(ngx_http_llm_capture_siphash_t *s,
    const void *data, size_t n);

/* a number, as 8 bytes little endian */

void ngx_http_llm_capture_siphash_number(ngx_http_llm_capture_siphash_t *s,
    uint64_t n);

/* of all bytes so far; s stays as it is */

uint64_t ngx_http_llm_capture_siphash_end(
    const ngx_http_llm_capture_siphash_t *s);


/*
 * A session by the value that names it, such as a header or a user: of
 * "session", a NUL and the value, under a key of zeroes; never 0.  Anybody can
 * compute it, so it must not leave the helper: an id is made of it by _seal.
 */

uint64_t ngx_http_llm_capture_siphash_session(const void *value, size_t n);

/*
 * The id of a session: of "id", a NUL and the number as 8 bytes little endian.
 * A word stands before all that is hashed, so that it is no hash of anything
 * else under the same key.
 */

uint64_t ngx_http_llm_capture_siphash_seal(
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY], uint64_t session);

extern const uint8_t
    ngx_http_llm_capture_siphash_zero[NGX_HTTP_LLM_CAPTURE_KEY];

/* 16 hex digits and a NUL */

void ngx_http_llm_capture_siphash_hex(uint64_t hash,
    char hex[NGX_HTTP_LLM_CAPTURE_SESSION]);


#endif /* _NGX_HTTP_LLM_CAPTURE_SIPHASH_H_INCLUDED_ */
