
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The moment that a file's timestamps count from, and its text: one key=value
 * a line, in this order, for the sidecar of ngx_http_llm_capture_sidecar.h:
 *
 *     llm_capture_epoch=1
 *     wall=1764437527123        ms since 1970, may be negative
 *     mono=83214                the same moment in CLOCK_MONOTONIC, ms
 *     boot=<boot id>            the boot that mono counts from
 *     dev=64768
 *     ino=1837                  the file that it belongs to
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_EPOCH_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_EPOCH_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


#define NGX_HTTP_LLM_CAPTURE_BOOT   40      /* bytes of a boot id with NUL */
#define NGX_HTTP_LLM_CAPTURE_EPOCH  512     /* bytes of a sidecar, at most */


typedef struct {
    int64_t                  wall;
    int64_t                  mono;
    uint64_t                 dev;
    uint64_t                 ino;
    char                     boot[NGX_HTTP_LLM_CAPTURE_BOOT];
} ngx_http_llm_capture_epoch_t;


/* the first record of a file arrived then; its timestamp is to be ts */

void ngx_http_llm_capture_epoch_set(ngx_http_llm_capture_epoch_t *e,
    uint64_t wall, uint64_t mono, uint64_t ts);

/* ms from the epoch, which must be of this boot, to an arrival; never < 0 */

uint64_t ngx_http_llm_capture_epoch_ts(const ngx_http_llm_capture_epoch_t *e,
    uint64_t mono);

/* the same by the wall clocks, for an epoch of an earlier boot */

uint64_t ngx_http_llm_capture_epoch_wall(
    const ngx_http_llm_capture_epoch_t *e, uint64_t wall);

/* returns bytes without the NUL, or 0: text is no sidecar, e is untouched */

size_t ngx_http_llm_capture_epoch_print(const ngx_http_llm_capture_epoch_t *e,
    char text[NGX_HTTP_LLM_CAPTURE_EPOCH]);
int ngx_http_llm_capture_epoch_parse(ngx_http_llm_capture_epoch_t *e,
    const char *text, size_t len);


#endif /* _NGX_HTTP_LLM_CAPTURE_EPOCH_H_INCLUDED_ */
