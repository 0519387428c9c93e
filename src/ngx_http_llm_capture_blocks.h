
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * hash_ids: a text in blocks of 2048 bytes, each by a number that hangs on all
 * blocks before it and on a key, so that two texts have as many numbers in
 * common as whole blocks of their beginning.  Pure: no nginx header.
 *
 *     chain[0] = 0
 *     chain[i] = SipHash(0, "block" NUL, chain[i - 1] as 8 bytes little
 *                        endian, block i)
 *     id[i]    = the upper 48 bits of SipHash(key, "hash" NUL, the upper 48
 *                bits of chain[i] as 8 bytes little endian)
 *
 * in two steps: the key is that of a file, and comes late.  Without it nobody
 * can tell the text from the numbers, nor test a guess.
 *
 * A last block that is not full has no number.  The row's input length, in
 * tokens, says how many of them it may have: AIPerf takes each for a full block
 * of 512 tokens, and refuses the file where a number stands for less.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_BLOCKS_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_BLOCKS_H_INCLUDED_


#include "ngx_http_llm_capture_siphash.h"


#define NGX_HTTP_LLM_CAPTURE_HASH_BYTES   2048
#define NGX_HTTP_LLM_CAPTURE_HASH_TOKENS  512

/* blocks of a text that get a number: 8 MiB, 2 million tokens at least */
#define NGX_HTTP_LLM_CAPTURE_HASHES        4096


typedef struct {
    ngx_http_llm_capture_siphash_t   hash;      /* of the block that fills */
    uint64_t                         chain;
    uint32_t                         fill;      /* its bytes */
    uint32_t                         n;
    uint64_t                         id[NGX_HTTP_LLM_CAPTURE_HASHES];
} ngx_http_llm_capture_blocks_t;


void ngx_http_llm_capture_blocks_init(ngx_http_llm_capture_blocks_t *b);

/* the next bytes of the text; any split gives the same numbers */

void ngx_http_llm_capture_blocks_update(ngx_http_llm_capture_blocks_t *b,
    const void *text, size_t n);

/* the last step, once: only then may a number leave the process */

void ngx_http_llm_capture_blocks_seal(ngx_http_llm_capture_blocks_t *b,
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY]);

/* numbers that a row of so many tokens may have: the first ones */

uint32_t ngx_http_llm_capture_blocks_of(const ngx_http_llm_capture_blocks_t *b,
    int64_t tokens);


#endif /* _NGX_HTTP_LLM_CAPTURE_BLOCKS_H_INCLUDED_ */
