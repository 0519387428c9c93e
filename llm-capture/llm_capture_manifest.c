
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm_capture_manifest.h"


/* left out on purpose, or nothing that a server would have answered */

static const char *const  llm_capture_no_loss[] = {
    "unmatched", "skipped", "paused", "sampled_out", "aborted"
};


int64_t
llm_capture_manifest_int(const json_t *object, const char *name)
{
    json_t  *v;

    v = json_object_get(object, name);

    return json_is_integer(v) ? json_integer_value(v) : -1;
}


static uint64_t
llm_capture_manifest_count(const json_t *object, const char *name)
{
    int64_t  n;

    n = llm_capture_manifest_int(object, name);

    return n < 0 ? 0 : (uint64_t) n;
}


static unsigned
llm_capture_loss(const char *reason)
{
    unsigned  i;

    for (i = 0; i < llm_capture_nelem(llm_capture_no_loss); i++) {
        if (strcmp(reason, llm_capture_no_loss[i]) == 0) {
            return 0;
        }
    }

    return strncmp(reason, "invalid_", 8) != 0;
}


/* the sum of the reasons; *loss: of those that make a hole */

static uint64_t
llm_capture_manifest_reasons(const json_t *object, uint64_t *loss)
{
    json_t      *value;
    uint64_t     n, sum;
    const char  *name;

    sum = 0;

    json_object_foreach(json_object_get(object, "reasons"), name, value) {
        n = json_integer_value(value) > 0
            ? (uint64_t) json_integer_value(value) : 0;
        sum += n;
        *loss += llm_capture_loss(name) ? n : 0;
    }

    return sum;
}


/*
 * What found no room in the queue belongs to no file: the sum of all files of
 * the path has it, and what is in the sum of this one.
 */

static void
llm_capture_manifest_drops(llm_capture_manifest_t *m)
{
    m->dropper = json_object_get(m->json, "destination");

    if (llm_capture_manifest_int(m->dropper, "seen") < 0) {
        m->dropper = m->json;
    }

    m->kept = llm_capture_manifest_count(m->dropper, "recorded");
    (void) llm_capture_manifest_reasons(m->dropper, &m->dropped);
}


static void
llm_capture_manifest_read(llm_capture_manifest_t *m)
{
    uint64_t      loss;
    json_error_t  err;

    m->json = json_load_file(m->path, JSON_REJECT_DUPLICATES, &err);

    if (m->json == NULL) {
        m->why = llm_capture_format("the manifest is broken: %s", err.text);
        return;
    }

    if (llm_capture_manifest_int(m->json, "manifest") != 1) {
        m->why = llm_capture_format("the manifest is of a version that is not"
                                    " known");
        json_decref(m->json);
        m->json = NULL;
        return;
    }

    loss = 0;
    m->sealed = json_is_true(json_object_get(m->json, "sealed"));
    m->seen = llm_capture_manifest_count(m->json, "seen");
    m->recorded = llm_capture_manifest_count(m->json, "recorded");
    m->pending = llm_capture_manifest_count(m->json, "pending");
    m->reasons = llm_capture_manifest_reasons(m->json, &loss);

    llm_capture_manifest_drops(m);
}


llm_capture_manifest_t *
llm_capture_manifest(const char *path, const char *named)
{
    llm_capture_manifest_t  *m;

    if (named == NULL && strcmp(path, "-") == 0) {
        return NULL;
    }

    m = llm_capture_alloc(sizeof(llm_capture_manifest_t));
    m->path = named ? llm_capture_format("%s", named)
                    : llm_capture_beside(path, ".manifest.json");

    if (access(m->path, R_OK) != 0) {

        if (named) {
            llm_capture_die("%s: %s", named, strerror(errno));
        }

        if (errno == ENOENT) {
            free(m->path);
            free(m);
            return NULL;
        }

        m->why = llm_capture_format("the manifest cannot be read: %s",
                                    strerror(errno));
        return m;
    }

    llm_capture_manifest_read(m);

    return m;
}


void
llm_capture_manifest_free(llm_capture_manifest_t *m)
{
    if (m == NULL) {
        return;
    }

    json_decref(m->json);
    free(m->path);
    free(m->why);
    free(m);
}


double
llm_capture_missing(const llm_capture_manifest_t *m)
{
    uint64_t  n;

    n = m->kept + m->dropped;

    return n ? (double) m->dropped / (double) n : 0;
}
