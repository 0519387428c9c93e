
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The manifest of a capture file, as JSON: what the file holds and what it
 * lacks.  docs/manifest.schema.json says what each member means.  Pure.
 *
 * Each zone that writes to a file keeps an entry of its own among "writers",
 * and the sums at the top are those of all entries: so a restart, a second
 * helper and another nginx go on where one left, and whoever writes the same
 * entry again changes nothing.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_MANIFEST_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_MANIFEST_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <jansson.h>

#include "ngx_http_llm_capture_sys.h"
#include "ngx_http_llm_capture_zone.h"


#define NGX_HTTP_LLM_CAPTURE_MANIFEST_VERSION  1

/* the replayer that the formats were verified with */
#define NGX_HTTP_LLM_CAPTURE_AIPERF  "0.13.0"

/* bytes of one, at most: a larger one is none of ours */
#define NGX_HTTP_LLM_CAPTURE_MANIFEST  (256 * 1024)


/* what one zone has to tell */

typedef struct {
    const char                           *name;     /* of the file, no path */
    unsigned                              ended:1;  /* this zone has */
    unsigned                              renamed:1; /* it is live no more */

    uint64_t                              now;      /* ms since 1970 */
    uint64_t                              bytes;    /* of the file */
    uint64_t                              dev;
    uint64_t                              ino;

    uint64_t                              id;       /* of the zone */
    const ngx_http_llm_capture_account_t *account;
    uint64_t                              pending;

    /* of the template: its text, and what came to it since the file began */
    const char                           *path;
    size_t                                path_len;
    const uint64_t                       *sum;
    const ngx_http_llm_capture_gaps_t    *gaps;

    const char                           *label;    /* NULL: none */
    size_t                                label_len;
    const char                           *nginx;    /* versions */
    const char                           *module;
} ngx_http_llm_capture_facts_t;


/* what stands in a file, told by who read all of it */

typedef struct {
    const char                           *name;     /* of the file, no path */
    const char                           *compression;  /* NULL: none */
    uint64_t                              rows;
    uint64_t                              plain_bytes;
    uint64_t                              bytes;
    uint64_t                              dev;
    uint64_t                              ino;
    const char                           *sha256;   /* of the bytes */
} ngx_http_llm_capture_content_t;


/*
 * Reads one.  NULL: there is none, or none of ours, or it is of another file
 * than st, if that is given.  The caller owns it.
 */

json_t *ngx_http_llm_capture_manifest_load(
    const ngx_http_llm_capture_sys_t *sys, const char *path,
    const struct stat *st);

/* replaces one as a whole; 0, or -1 with errno */

int ngx_http_llm_capture_manifest_store(const ngx_http_llm_capture_sys_t *sys,
    const char *path, json_t *manifest);

/*
 * A new one out of the one before, if there is one, and what is to be told now.
 * NULL: no memory.  The caller owns it; old stays his.
 */

json_t *ngx_http_llm_capture_manifest_make(json_t *old,
    const ngx_http_llm_capture_facts_t *facts);

/* the file was read, or compressed as well; 0, or -1: no memory */

int ngx_http_llm_capture_manifest_content(json_t *manifest,
    const ngx_http_llm_capture_content_t *content);

/* has it been read? */

int ngx_http_llm_capture_manifest_read(json_t *manifest);

int ngx_http_llm_capture_manifest_is_sealed(json_t *manifest);

/* it tells of more than the file st has: that was cut since */

int ngx_http_llm_capture_manifest_cut(json_t *manifest, const struct stat *st);


#endif /* _NGX_HTTP_LLM_CAPTURE_MANIFEST_H_INCLUDED_ */
