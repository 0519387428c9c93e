
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What is to be done with the files of a destination besides writing them, as
 * the configuration of the helper says.  Pure.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_POLICY_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_POLICY_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_digest.h"


/* of a template; all 0: nothing but writing */

typedef struct {
    uint64_t                            hash;       /* path and format */
    const char                         *label;      /* NULL: none */
    size_t                              label_len;
    uint64_t                            size;       /* bytes to rotate at */
    uint64_t                            time;       /* ms, likewise */
    uint32_t                            keep;       /* segments; 0: all */
    ngx_http_llm_capture_compression_e  compression;
} ngx_http_llm_capture_policy_t;


/* of all of them together */

typedef struct {
    const ngx_http_llm_capture_policy_t  *policies;
    unsigned                              npolicies;

    uint64_t                              max_disk;     /* bytes; 0: no limit */
    /* to be left free: the larger of both */
    uint64_t                              min_free;     /* bytes */
    uint64_t                              free_most;    /* bytes, of this: */
    uint32_t                              free_percent; /* of the disk */
    unsigned                              drop_oldest:1; /* at max_disk */

    const char                           *nginx;        /* versions, "1.22.1" */
    const char                           *module;
} ngx_http_llm_capture_keeping_t;


static inline unsigned
ngx_http_llm_capture_rotates(const ngx_http_llm_capture_policy_t *p)
{
    return p->size || p->time;
}


#endif /* _NGX_HTTP_LLM_CAPTURE_POLICY_H_INCLUDED_ */
