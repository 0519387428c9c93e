
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What values of the configuration mean: sizes and rates as directives spell
 * them, and NIM's JSON object of six keys.  Pure: no nginx header.
 *
 * The rules for the object are those of NVIDIA NIM's NIM_CAPTURE_ARGS, so that
 * it can be taken over as it stands: nothing in it is an error.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_ARGS_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_ARGS_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_zone.h"


/* most bytes of a request (1g) and of the queue (1024g) */
#define NGX_HTTP_LLM_CAPTURE_REQUEST_MOST  ((uint64_t) 1 << 30)
#define NGX_HTTP_LLM_CAPTURE_QUEUE_MOST    ((uint64_t) 1 << 40)

#define NGX_HTTP_LLM_CAPTURE_PATTERN                                          \
    "^/v1/(chat/completions|completions)$"


typedef struct {
    unsigned                       off:1;       /* not to be used at all */
    unsigned                       bad_path:1;  /* path is not to be used */

    const char                    *path;
    size_t                         path_len;
    ngx_http_llm_capture_format_e  format;
    uint64_t                       max_request_bytes;
    uint64_t                       sample_rate;    /* of 2^32 */
    const char                    *pattern;
    size_t                         pattern_len;
    uint64_t                       max_queue_bytes;

    void                          *json;        /* owns the strings above */
} ngx_http_llm_capture_args_t;


/* text: one line of printable ASCII, valid during the call */

typedef void (*ngx_http_llm_capture_args_warn_pt)(void *data,
    const char *text);


/*
 * Fills all of *args from the len bytes of text; free it in any case.  Each
 * thing ignored or replaced is told to warn:
 *
 *     not JSON, not an object, no memory   off
 *     a bad path                           bad_path
 *     another bad value                    NIM's default
 *     an unknown key                       ignored
 *
 * A key given twice: the last one counts, bad or not.  Whether the pattern
 * compiles is up to the caller.
 */

void ngx_http_llm_capture_args_parse(ngx_http_llm_capture_args_t *args,
    const char *text, size_t len, ngx_http_llm_capture_args_warn_pt warn,
    void *data);

void ngx_http_llm_capture_args_free(ngx_http_llm_capture_args_t *args);


/*
 * "1048576", "64k", "1m", "2g": 1 to most bytes.  Returns 0, or -1, with
 * *size untouched, if it is not that.
 */

int ngx_http_llm_capture_args_size(const char *s, size_t n, uint64_t most,
    uint64_t *size);

/*
 * "0", "0.25", "1.0": 0 to 1 as a decimal fraction, in 2^32ths, rounded down,
 * but never to 0 when it is not 0.  Returns 0, or -1, with *rate untouched, if
 * it is not that.
 */

int ngx_http_llm_capture_args_rate(const char *s, size_t n, uint64_t *rate);

extern const char *const
    ngx_http_llm_capture_format_names[NGX_HTTP_LLM_CAPTURE_FORMATS];

/* the name of a format: 0, or -1 with *format untouched */

int ngx_http_llm_capture_args_format(const char *s, size_t n,
    ngx_http_llm_capture_format_e *format);


#endif /* _NGX_HTTP_LLM_CAPTURE_ARGS_H_INCLUDED_ */
