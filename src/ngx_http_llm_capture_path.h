
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What may stand in the path of a capture file.  Pure: no nginx header.
 *
 * A value of a variable comes from a client, as a rule, and becomes a piece of
 * a file name: it must not leave its directory, grow without bound or meet the
 * file of another value.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_PATH_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_PATH_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


/* bytes of the buffer for a value, and of the longest one */
#define NGX_HTTP_LLM_CAPTURE_PATH_VALUE     96
#define NGX_HTTP_LLM_CAPTURE_PATH_LONGEST   64

/*
 * Bytes of the longest path and of the longest name in it.  The rest up to
 * PATH_MAX and NAME_MAX is for what stands beside it, and what that is called
 * while it is being made: "<path>.<utc>.manifest.json.tmp" is the longest.
 */
#define NGX_HTTP_LLM_CAPTURE_PATH_MOST      4000
#define NGX_HTTP_LLM_CAPTURE_PATH_NAME      216

#define NGX_HTTP_LLM_CAPTURE_PATH_SIDECAR   ".epoch"
#define NGX_HTTP_LLM_CAPTURE_PATH_KEY       ".key"
#define NGX_HTTP_LLM_CAPTURE_PATH_OUTCOMES  ".outcomes"
#define NGX_HTTP_LLM_CAPTURE_PATH_MANIFEST  ".manifest.json"
#define NGX_HTTP_LLM_CAPTURE_PATH_JSONL     ".jsonl"
#define NGX_HTTP_LLM_CAPTURE_PATH_PLAIN     ".jsonl.plain"
#define NGX_HTTP_LLM_CAPTURE_PATH_GZIP      ".jsonl.gz"
#define NGX_HTTP_LLM_CAPTURE_PATH_ZSTD      ".jsonl.zst"
#define NGX_HTTP_LLM_CAPTURE_PATH_TEMP      ".tmp"

/* bytes of "20261130T061500.123Z", as in the name of a sealed segment */
#define NGX_HTTP_LLM_CAPTURE_PATH_UTC       20


/*
 * Writes what stands for the n bytes of v in a file name, 1 to 64 bytes of
 * [A-Za-z0-9._-] without NUL, into dst of PATH_VALUE bytes; returns how many.
 *
 * A value that is such a name already stays as it is.  Another one is reduced:
 * other bytes and a leading dot become '_', the first 47 bytes are kept, and 16
 * hexadecimal digits of its SHA-256 follow a '-'.  So do those that could be
 * taken for the name of another value: with such an end, with the end of a
 * sidecar, with the time of a sealed segment in it, with the ".jsonl" that the
 * names of segments and manifests lack, and "none", the name of the empty
 * value.
 */

size_t ngx_http_llm_capture_path_value(char *dst, const uint8_t *v, size_t n);

/*
 * Is that the name of a sidecar or a sealed segment, or what one is called
 * while it is being made?  A record that went there would be lost.
 */

int ngx_http_llm_capture_path_taken(const uint8_t *v, size_t n);

/* do the first PATH_UTC bytes have the form of the time of a segment? */

int ngx_http_llm_capture_path_utc(const uint8_t *v);

/*
 * A full path as configured: NULL if it can be used, else what it is not, to
 * follow "it must".  names: how many of its bytes are names of variables,
 * all of them behind the last slash; values: most bytes that take their place.
 */

const char *ngx_http_llm_capture_path_check(const char *path, size_t len,
    size_t names, size_t values);


#endif /* _NGX_HTTP_LLM_CAPTURE_PATH_H_INCLUDED_ */
