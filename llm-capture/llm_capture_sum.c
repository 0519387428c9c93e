
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "llm_capture_manifest.h"


static void llm_capture_wrong(llm_capture_sum_t *sum, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));


static void
llm_capture_wrong(llm_capture_sum_t *sum, const char *fmt, ...)
{
    va_list  args;

    if (sum->n == llm_capture_nelem(sum->wrong)) {
        return;
    }

    va_start(args, fmt);
    sum->wrong[sum->n++] = llm_capture_vformat(fmt, args);
    va_end(args);
}


static void
llm_capture_remark(llm_capture_sum_t *sum, char *remark)
{
    sum->remark[sum->remarks++] = remark;
}


/* the manifest was written of the file packed like that */

static llm_capture_packed_e
llm_capture_sum_packed(const llm_capture_manifest_t *m)
{
    const char  *name;

    name = json_string_value(json_object_get(m->json, "compression"));

    return name == NULL ? LLM_CAPTURE_PLAIN
           : strcmp(name, "gzip") == 0 ? LLM_CAPTURE_GZIP : LLM_CAPTURE_ZSTD;
}


unsigned
llm_capture_sum_digest(const llm_capture_manifest_t *m,
    llm_capture_packed_e packed)
{
    return m && m->json && m->sealed
           && json_is_string(json_object_get(m->json, "sha256"))
           && llm_capture_sum_packed(m) == packed;
}


/* seen = recorded + reasons + pending, of one who counts */

static void
llm_capture_sum_counts(llm_capture_sum_t *sum, const json_t *object,
    const char *who)
{
    json_t      *value;
    int64_t      seen, recorded, pending;
    uint64_t     reasons;
    const char  *name;

    seen = llm_capture_manifest_int(object, "seen");
    recorded = llm_capture_manifest_int(object, "recorded");
    pending = llm_capture_manifest_int(object, "pending");
    reasons = 0;

    json_object_foreach(json_object_get(object, "reasons"), name, value) {
        reasons += (uint64_t) json_integer_value(value);
    }

    if (seen < 0 || recorded < 0 || pending < 0) {
        llm_capture_wrong(sum, "the manifest%s has no seen, recorded or"
                          " pending", who);

    } else if ((uint64_t) seen
               != (uint64_t) recorded + reasons + (uint64_t) pending)
    {
        llm_capture_wrong(sum, "the manifest%s does not add up: %" PRId64
                          " seen, but %" PRId64 " recorded, %" PRIu64
                          " left out, %" PRId64 " pending", who, seen,
                          recorded, reasons, pending);
    }
}


static void
llm_capture_sum_writers(llm_capture_sum_t *sum,
    const llm_capture_manifest_t *m)
{
    json_t    *writers, *writer;
    size_t     i;
    uint64_t   seen, recorded;

    writers = json_object_get(m->json, "writers");
    seen = recorded = 0;

    json_array_foreach(writers, i, writer) {
        llm_capture_sum_counts(sum, writer, ", of one that wrote,");
        seen += (uint64_t) llm_capture_manifest_int(writer, "seen");
        recorded += (uint64_t) llm_capture_manifest_int(writer, "recorded");
    }

    if (json_array_size(writers)
        && (seen != m->seen || recorded != m->recorded))
    {
        llm_capture_wrong(sum, "the manifest is not the sum of those that"
                          " wrote: %" PRIu64 " seen, %" PRIu64 " recorded",
                          seen, recorded);
    }
}


/* what stood there when counting began is not in the counts */

static unsigned
llm_capture_sum_found(const llm_capture_manifest_t *m)
{
    return llm_capture_manifest_int(json_object_get(m->json, "found"), "bytes")
           > 0;
}


/*
 * A live file may have more than its manifest says, and never less.  null: it
 * is not known until the file is sealed and read.
 */

static void
llm_capture_sum_number(llm_capture_sum_t *sum, const llm_capture_manifest_t *m,
    const char *name, const char *what, uint64_t is)
{
    int64_t  said;

    said = llm_capture_manifest_int(m->json, name);

    if (json_is_null(json_object_get(m->json, name))) {
        return;
    }

    if (said < 0) {
        llm_capture_wrong(sum, "the manifest has no %s", name);

    } else if (m->sealed ? (uint64_t) said != is : (uint64_t) said > is) {
        llm_capture_wrong(sum, "%s %" PRIu64 ", the manifest says %" PRId64,
                          what, is, said);
    }
}


static void
llm_capture_sum_size(llm_capture_sum_t *sum, const llm_capture_manifest_t *m,
    const llm_capture_facts_t *f)
{
    llm_capture_packed_e  said;

    said = llm_capture_sum_packed(m);

    llm_capture_sum_number(sum, m, "rows", "rows:", f->rows);

    if (said == f->packed) {
        llm_capture_sum_number(sum, m, "bytes", "bytes:", f->bytes);

        if (f->packed) {
            llm_capture_sum_number(sum, m, "plain_bytes", "bytes unpacked:",
                                   f->plain);
        }

        return;
    }

    llm_capture_sum_number(sum, m, said ? "plain_bytes" : "bytes",
                           "bytes unpacked:", f->plain);
    llm_capture_remark(sum, llm_capture_format(
        "its manifest was written when it was %s: sha256 is not compared",
        said ? llm_capture_packed_name(said) : "not packed"));
}


static void
llm_capture_sum_time(llm_capture_sum_t *sum, const llm_capture_manifest_t *m,
    const char *name, unsigned there, double is)
{
    double   said;
    json_t  *v;

    v = json_object_get(m->json, name);

    if (!json_is_number(v)) {
        if (there && m->sealed) {
            llm_capture_wrong(sum, "the manifest has no %s", name);
        }

        return;
    }

    said = json_number_value(v);

    if (!there) {
        llm_capture_wrong(sum, "no row has a timestamp, the manifest says"
                          " %s %.15g", name, said);

    } else if (m->sealed && !llm_capture_sum_found(m)
               ? said != is : *name == 'f' ? is > said : is < said)
    {
        llm_capture_wrong(sum, "%s %.15g, the manifest says %.15g", name, is,
                          said);
    }
}


static void
llm_capture_sum_rows(llm_capture_sum_t *sum, const llm_capture_manifest_t *m,
    const llm_capture_facts_t *f)
{
    int64_t      rows, behind;
    const char  *format;

    if (m->sealed && m->recorded > f->rows) {
        llm_capture_wrong(sum, "rows are missing: %" PRIu64 " are there, %"
                          PRIu64 " were recorded", f->rows, m->recorded);
    }

    rows = llm_capture_manifest_int(m->json, "rows");
    behind = (int64_t) f->rows - rows;

    if (rows < 0) {
        llm_capture_remark(sum, llm_capture_format(
            "rows stood there before: its manifest does not know how many"));

    } else if (!m->sealed) {
        llm_capture_remark(sum, llm_capture_format(
            "it is live: its manifest is %" PRId64 " rows behind",
            behind > 0 ? behind : 0));
    }

    format = json_string_value(json_object_get(m->json, "format"));

    if (format && (strcmp(format, "raw_payload") == 0)
                  != (f->format == LLM_CAPTURE_RAW))
    {
        llm_capture_wrong(sum, "it is %s, the manifest says %s",
                          llm_capture_format_name(f->format), format);
    }
}


void
llm_capture_sum(llm_capture_sum_t *sum, const llm_capture_manifest_t *m,
    const llm_capture_facts_t *f)
{
    const char  *sha256;

    memset(sum, 0, sizeof(llm_capture_sum_t));

    if (m->json == NULL) {
        llm_capture_wrong(sum, "%s", m->why);
        return;
    }

    llm_capture_sum_counts(sum, m->json, "");
    llm_capture_sum_writers(sum, m);
    llm_capture_sum_counts(sum, json_object_get(m->json, "destination"),
                           "'s destination");
    llm_capture_sum_size(sum, m, f);
    llm_capture_sum_rows(sum, m, f);
    llm_capture_sum_time(sum, m, "first_timestamp", f->timed != 0, f->first);
    llm_capture_sum_time(sum, m, "last_timestamp", f->timed != 0, f->last);

    sha256 = json_string_value(json_object_get(m->json, "sha256"));

    if (f->sha256 && strcmp(sha256, f->sha256) != 0) {
        llm_capture_wrong(sum, "sha256 %s, the manifest says %s", f->sha256,
                          sha256);

    } else if (m->sealed && sha256 == NULL) {
        llm_capture_remark(sum, llm_capture_format("its manifest has no"
                                                   " sha256 yet"));
    }
}


void
llm_capture_sum_free(llm_capture_sum_t *sum)
{
    while (sum->n) {
        free(sum->wrong[--sum->n]);
    }

    while (sum->remarks) {
        free(sum->remark[--sum->remarks]);
    }
}
