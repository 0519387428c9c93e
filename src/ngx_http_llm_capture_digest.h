
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The SHA-256 and the rows of a sealed segment, and its compression, in steps
 * as short as the caller wants them.  Pure: no nginx header.
 *
 * The compressed file is made as "<out>.tmp", 0600, and gets its name when all
 * of it is on the disk.  The caller unlinks the plain one after that, and after
 * the digest is written down: who dies before does it all again.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_DIGEST_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_DIGEST_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_sys.h"


/* bytes of a digest in hexadecimal, with NUL */
#define NGX_HTTP_LLM_CAPTURE_SHA256  65


typedef enum {
    NGX_HTTP_LLM_CAPTURE_COMPRESSION_NONE = 0,
    NGX_HTTP_LLM_CAPTURE_COMPRESSION_GZIP,
    NGX_HTTP_LLM_CAPTURE_COMPRESSION_ZSTD
} ngx_http_llm_capture_compression_e;


typedef struct {
    uint64_t    rows;           /* LFs */
    uint64_t    plain_bytes;
    uint64_t    bytes;          /* of the file that is digested: the */
                                /* compressed one if one is made */
    char        sha256[NGX_HTTP_LLM_CAPTURE_SHA256];    /* of that file */
} ngx_http_llm_capture_digest_result_t;


typedef struct ngx_http_llm_capture_digest_s  ngx_http_llm_capture_digest_t;


/*
 * in: a regular file, no link is followed.  out: NULL with COMPRESSION_NONE,
 * else the name of the compressed file, which is replaced if it exists, and so
 * is its temporary.  Both are copied.  NULL with errno: EINVAL: not regular,
 * or out does not go with the compression.  Takes about 150 KB, 400 KB with
 * gzip, 2 MB with zstd.
 */

ngx_http_llm_capture_digest_t *ngx_http_llm_capture_digest_create(
    const ngx_http_llm_capture_sys_t *sys, const char *in, const char *out,
    ngx_http_llm_capture_compression_e compression);

/*
 * Reads at most so many bytes; the last steps read none.  1: goes on; 0: done,
 * and the result is there; -1 with errno, the same one when called again, and
 * the temporary is gone: ENOSPC, EIO, ...; ESTALE: the file was written to or
 * replaced since create.
 */

int ngx_http_llm_capture_digest_step(ngx_http_llm_capture_digest_t *d,
    size_t bytes);

/* so far; belongs to the job */

const ngx_http_llm_capture_digest_result_t *
    ngx_http_llm_capture_digest_result(const ngx_http_llm_capture_digest_t *d);

/* may be NULL; unlinks a temporary that is not finished */

void ngx_http_llm_capture_digest_destroy(ngx_http_llm_capture_digest_t *d);


#endif /* _NGX_HTTP_LLM_CAPTURE_DIGEST_H_INCLUDED_ */
