
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Names of what stands beside a live capture file, and its sealed segments in
 * the directory.  Pure: no nginx header.
 *
 *     /d/chat.jsonl                                  live
 *     /d/chat.manifest.json
 *     /d/chat.20261130T061500.123Z.jsonl[.gz|.zst]   a segment
 *     /d/chat.20261130T061500.123Z.jsonl.plain       while it is compressed
 *     /d/chat.20261130T061500.123Z.outcomes
 *     /d/chat.20261130T061500.123Z.manifest.json
 *
 * A live name that does not end with ".jsonl" keeps all of it in front.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SEGMENT_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SEGMENT_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_sys.h"
#include "ngx_http_llm_capture_zone.h"


/* bytes of a buffer for any name here, and for one found in a directory */
#define NGX_HTTP_LLM_CAPTURE_SEGMENT_PATH  (NGX_HTTP_LLM_CAPTURE_PATH + 256)

/* segments in a list, at most: the oldest */
#define NGX_HTTP_LLM_CAPTURE_SEGMENTS      4096


/* the order in which two files of one segment are listed */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_SEGMENT_JSONL = 0,     /* .jsonl */
    NGX_HTTP_LLM_CAPTURE_SEGMENT_PLAIN,         /* .jsonl.plain */
    NGX_HTTP_LLM_CAPTURE_SEGMENT_GZIP,          /* .jsonl.gz */
    NGX_HTTP_LLM_CAPTURE_SEGMENT_ZSTD,          /* .jsonl.zst */
    NGX_HTTP_LLM_CAPTURE_SEGMENT_OUTCOMES,      /* .outcomes, never listed */
    NGX_HTTP_LLM_CAPTURE_SEGMENT_MANIFEST,      /* .manifest.json, nor that */
    NGX_HTTP_LLM_CAPTURE_SEGMENT_FORMS
} ngx_http_llm_capture_segment_form_e;


typedef struct {
    uint64_t    utc;        /* Unix ms, of the name */
    uint64_t    size;       /* bytes */
    uint64_t    dev;
    uint64_t    ino;
    unsigned    form;
} ngx_http_llm_capture_segment_t;


typedef struct {
    ngx_http_llm_capture_segment_t  *all;       /* n, oldest first */
    size_t                           n;

    /* of all there are, also those beyond SEGMENTS */
    uint64_t                         files;
    uint64_t                         bytes;
    uint64_t                         beside;    /* of outcomes, manifests */
} ngx_http_llm_capture_segments_t;


/* what follows the stem and the time: ".jsonl.gz" */

const char *ngx_http_llm_capture_segment_tail(
    ngx_http_llm_capture_segment_form_e form);

/* bytes of a live path that stand in front of all names here */

size_t ngx_http_llm_capture_segment_stem(const char *live);

/*
 * A name of a directory: 1: of a segment, or of what is beside one, behind so
 * many bytes of its stem.
 */

int ngx_http_llm_capture_segment_split(const char *name, size_t *stem,
    uint64_t *utc, unsigned *form);

/*
 * The name of a segment, or of what is beside it: stem, time, tail.  live: an
 * absolute path; out: of size bytes, at most SEGMENT_PATH are needed.  Returns
 * 0, or -1 with errno: ENAMETOOLONG for the buffer or a directory; EINVAL: a
 * time beyond the year 9999.
 */

int ngx_http_llm_capture_segment_name(const char *live, uint64_t utc,
    const char *tail, char *out, size_t size);

/* likewise, of the live file: stem and ".manifest.json" */

int ngx_http_llm_capture_segment_manifest(const char *live, char *out,
    size_t size);

/* text begins with a time: 1, and utc is set; 0: none, or no such day */

int ngx_http_llm_capture_segment_utc(const char *text, uint64_t *utc);

/*
 * The segments of a live file: regular files alone, with exactly such names.
 * A segment that was being compressed when the helper died may have two.
 * Returns 0, and the list is to be freed, or -1 with errno and there is none.
 * Reads the whole directory; of no more than SEGMENTS it keeps anything.
 */

int ngx_http_llm_capture_segments_list(const ngx_http_llm_capture_sys_t *sys,
    const char *live, ngx_http_llm_capture_segments_t *list);
void ngx_http_llm_capture_segments_free(ngx_http_llm_capture_segments_t *list);

/*
 * Unlinks all files of a segment, in every form, its manifest last; what is no
 * regular file stays.  Returns their bytes, 0 if there was none, or -1 with
 * errno: something could not be unlinked, and the manifest is still there.
 */

int64_t ngx_http_llm_capture_segment_remove(
    const ngx_http_llm_capture_sys_t *sys, const char *live, uint64_t utc);

/*
 * Opens the regular file (dev, ino), for appending and reading: by its path or,
 * since a rotation renames within the directory, by another name there.  found:
 * NULL, or SEGMENT_PATH bytes for the name it has.  Returns the fd; -1: there
 * is none; -2 with errno: not now.
 */

int ngx_http_llm_capture_segment_find(const ngx_http_llm_capture_sys_t *sys,
    const char *path, uint64_t dev, uint64_t ino, char *found);


#endif /* _NGX_HTTP_LLM_CAPTURE_SEGMENT_H_INCLUDED_ */
