
/*
 * Copyright (C) the llm-capture authors
 */

/* X.manifest.json beside X.jsonl: docs/manifest.schema.json */

#ifndef _LLM_CAPTURE_MANIFEST_H_INCLUDED_
#define _LLM_CAPTURE_MANIFEST_H_INCLUDED_


#include <jansson.h>

#include "llm_capture.h"


typedef struct {
    char                 *path;
    json_t               *json;         /* NULL: it cannot be used */
    char                 *why;          /* then */
    unsigned              sealed:1;
    uint64_t              seen;
    uint64_t              recorded;
    uint64_t              pending;
    uint64_t              reasons;      /* their sum */
    const json_t         *dropper;      /* the sum that has all drops */
    uint64_t              kept;         /* its rows */
    uint64_t              dropped;      /* requests that are none, and that a
                                           server would have served */
} llm_capture_manifest_t;

/* the one beside the file, or that is named; NULL: it is not there */
llm_capture_manifest_t *llm_capture_manifest(const char *path,
    const char *named);
void llm_capture_manifest_free(llm_capture_manifest_t *m);

/* a number of it; -1: it is none */
int64_t llm_capture_manifest_int(const json_t *object, const char *name);

/* of the requests that a server would serve, those that are no rows */
double llm_capture_missing(const llm_capture_manifest_t *m);


/* llm_capture_sum.c: what it says, and what the file is */

typedef struct {
    const char           *path;
    llm_capture_format_e  format;
    llm_capture_packed_e  packed;
    uint64_t              rows;         /* lines that are not blank */
    uint64_t              bytes;        /* on disk */
    uint64_t              plain;        /* unpacked */
    uint64_t              timed;        /* rows with a timestamp */
    double                first;        /* least and largest timestamp */
    double                last;
    const char           *sha256;       /* NULL: not asked for */
} llm_capture_facts_t;

typedef struct {
    char                 *wrong[16];    /* where the two do not agree */
    unsigned              n;
    char                 *remark[4];
    unsigned              remarks;
} llm_capture_sum_t;

/* is the sha256 of the file as it is to be compared? */
unsigned llm_capture_sum_digest(const llm_capture_manifest_t *m,
    llm_capture_packed_e packed);

void llm_capture_sum(llm_capture_sum_t *sum, const llm_capture_manifest_t *m,
    const llm_capture_facts_t *facts);
void llm_capture_sum_free(llm_capture_sum_t *sum);


#endif /* _LLM_CAPTURE_MANIFEST_H_INCLUDED_ */
