
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_args.h"
#include "ngx_http_llm_capture_format.h"
#include "ngx_http_llm_capture_manifest_sum.h"
#include "ngx_http_llm_capture_sidecar.h"


/* ms after which one that has not ended is taken for dead */
#define NGX_HTTP_LLM_CAPTURE_SILENT   5000


json_t *
ngx_http_llm_capture_manifest_load(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const struct stat *st)
{
    char         *text;
    json_t       *root;
    ssize_t       n;
    struct stat   ms;

    text = malloc(NGX_HTTP_LLM_CAPTURE_MANIFEST);

    if (text == NULL) {
        return NULL;
    }

    n = ngx_http_llm_capture_sidecar_text(sys, path, text,
                                          NGX_HTTP_LLM_CAPTURE_MANIFEST, &ms);

    root = n > 0 ? json_loadb(text, (size_t) n, JSON_REJECT_DUPLICATES, NULL)
                 : NULL;
    free(text);

    if (json_integer_value(json_object_get(root, "manifest"))
        == NGX_HTTP_LLM_CAPTURE_MANIFEST_VERSION
        && (st == NULL
            || ((uint64_t) json_integer_value(json_object_get(root, "inode"))
                == (uint64_t) st->st_ino
                && (uint64_t) json_integer_value(json_object_get(root,
                                                                 "device"))
                   == (uint64_t) st->st_dev)))
    {
        return root;
    }

    json_decref(root);

    return NULL;
}


int
ngx_http_llm_capture_manifest_store(const ngx_http_llm_capture_sys_t *sys,
    const char *path, json_t *manifest)
{
    int     rc;
    char   *text;
    size_t  len;

    text = json_dumps(manifest, JSON_INDENT(2));

    if (text == NULL) {
        errno = ENOMEM;
        return -1;
    }

    len = strlen(text);
    text[len++] = '\n';         /* in place of the NUL */

    rc = ngx_http_llm_capture_sidecar_replace(sys, path, text, len);

    free(text);

    return rc;
}


/*
 * Is anybody still going to write to it?  One that died says nothing more; one
 * that is alive says so a second after it wrote.
 */

static int
manifest_sealed(json_t *writers, const ngx_http_llm_capture_facts_t *f)
{
    size_t   i;
    json_t  *w;

    if (f->renamed) {
        return 1;
    }

    json_array_foreach(writers, i, w) {
        if (!json_is_true(json_object_get(w, "ended"))
            && manifest_number(w, "updated") + NGX_HTTP_LLM_CAPTURE_SILENT
               > f->now)
        {
            return 0;
        }
    }

    return f->ended;
}


/* those of others, and ours as it is now */

static json_t *
manifest_writers(json_t *old, const ngx_http_llm_capture_facts_t *f)
{
    size_t       i;
    json_t      *own, *writers, *w;
    const char  *id, *other;

    own = manifest_writer(f);
    writers = json_array();
    id = json_string_value(json_object_get(own, "id"));

    if (id == NULL || writers == NULL) {
        goto failed;
    }

    json_array_foreach(json_object_get(old, "writers"), i, w) {
        other = json_string_value(json_object_get(w, "id"));

        if (other && strcmp(other, id) != 0
            && json_array_append(writers, w) == -1)
        {
            goto failed;
        }
    }

    if (manifest_fold(writers) == -1
        || json_array_append(writers, own) == -1)
    {
        goto failed;
    }

    json_decref(own);

    return writers;

failed:

    json_decref(own);
    json_decref(writers);

    return NULL;
}


/* what nobody told of stands there as well; how many rows, nobody knows yet */

static int
manifest_found(json_t *m, const ngx_http_llm_capture_facts_t *f,
    uint64_t bytes)
{
    int       rc;
    json_t   *found;
    uint64_t  n;

    found = json_object();
    n = f->bytes > bytes ? f->bytes - bytes : 0;

    rc = manifest_set(found, "bytes", n);
    rc |= json_object_set_new(found, "rows", n ? json_null()
                                               : json_integer(0));
    rc |= json_object_set_new(m, "found", found);
    rc |= json_object_set_new(m, "rows",
                              n ? json_null()
                                : json_incref(json_object_get(m,
                                                              "recorded")));
    rc |= manifest_set(m, "bytes", f->bytes);
    rc |= manifest_set(m, "plain_bytes", f->bytes);

    return rc;
}


/* it was read before: one who tells late does not undo that */

static int
manifest_keep(json_t *m, json_t *old, const ngx_http_llm_capture_facts_t *f)
{
    int           rc;
    json_t       *found;
    size_t        i;
    uint64_t      rows, recorded;

    static const char *const  names[] = {
        "file", "rows", "bytes", "sha256", "compression", "inode", "device"
    };

    if (!ngx_http_llm_capture_manifest_is_sealed(m)
        || !ngx_http_llm_capture_manifest_read(old)
        || manifest_number(old, "plain_bytes") != f->bytes)
    {
        return 0;
    }

    rc = 0;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        rc |= json_object_set(m, names[i], json_object_get(old, names[i]));
    }

    found = json_object_get(m, "found");
    rows = manifest_number(m, "rows");
    recorded = manifest_number(m, "recorded");

    return rc | manifest_set(found, "rows",
                             rows > recorded ? rows - recorded : 0);
}


json_t *
ngx_http_llm_capture_manifest_make(json_t *old,
    const ngx_http_llm_capture_facts_t *f)
{
    int                                    rc;
    json_t                                *m, *total, *writers, *before;
    uint64_t                               t0, begun;
    const ngx_http_llm_capture_account_t  *a;

    a = f->account;

    writers = manifest_writers(old, f);
    total = writers ? manifest_total(writers) : NULL;
    m = json_object();

    t0 = a->t0 ? a->t0 : manifest_number(old, "t0");
    before = json_object_get(old, "begun");
    begun = json_is_integer(before) ? manifest_number(old, "begun") : a->begun;

    rc = manifest_set(m, "manifest", NGX_HTTP_LLM_CAPTURE_MANIFEST_VERSION);
    rc |= json_object_set_new(m, "file", manifest_text(f->name));
    rc |= json_object_set_new(m, "sealed",
                              json_boolean(manifest_sealed(writers, f)));
    rc |= json_object_set_new(m, "format", json_string(
                           a->format < NGX_HTTP_LLM_CAPTURE_FORMATS
                           ? ngx_http_llm_capture_format_names[a->format]
                           : ""));

    if (f->label) {
        rc |= json_object_set_new(m, "label",
                                  manifest_textn(f->label, f->label_len));
    }

    rc |= json_object_set_new(m, "t0",
                              t0 && ngx_http_llm_capture_is_timed(a->format)
                              ? json_integer((json_int_t) t0) : json_null());
    rc |= json_object_set_new(m, "sha256", json_null());
    rc |= json_object_set_new(m, "compression", json_null());
    rc |= json_object_update(m, total);
    rc |= manifest_found(m, f, manifest_number(m, "bytes"));
    rc |= json_object_set_new(json_object_get(m, "destination"), "path",
                              manifest_textn(f->path, f->path_len));
    rc |= json_object_set_new(m, "module", manifest_text(f->module));
    rc |= json_object_set_new(m, "nginx", manifest_text(f->nginx));
    rc |= json_object_set_new(m, "aiperf",
                              json_string(NGX_HTTP_LLM_CAPTURE_AIPERF));
    rc |= manifest_set(m, "begun", begun);
    rc |= manifest_set(m, "updated", f->now);
    rc |= manifest_set(m, "inode", f->ino);
    rc |= manifest_set(m, "device", f->dev);
    rc |= json_object_set(m, "writers", writers);

    json_decref(total);
    json_decref(writers);

    rc |= manifest_keep(m, old, f);

    if (rc) {
        json_decref(m);
        return NULL;
    }

    return m;
}


int
ngx_http_llm_capture_manifest_content(json_t *m,
    const ngx_http_llm_capture_content_t *c)
{
    int       rc;
    json_t   *found;
    uint64_t  recorded;

    found = json_object_get(m, "found");
    recorded = manifest_number(m, "recorded");

    rc = json_object_set_new(m, "file", json_string(c->name));
    rc |= json_object_set_new(m, "compression",
                              c->compression ? json_string(c->compression)
                                             : json_null());
    rc |= json_object_set_new(m, "sha256", json_string(c->sha256));
    rc |= manifest_set(m, "rows", c->rows);
    rc |= manifest_set(m, "bytes", c->bytes);
    rc |= manifest_set(m, "plain_bytes", c->plain_bytes);
    rc |= manifest_set(m, "device", c->dev);
    rc |= manifest_set(m, "inode", c->ino);
    rc |= manifest_set(found, "rows",
                       c->rows > recorded ? c->rows - recorded : 0);

    return rc ? -1 : 0;
}


int
ngx_http_llm_capture_manifest_is_sealed(json_t *m)
{
    return json_is_true(json_object_get(m, "sealed"));
}


int
ngx_http_llm_capture_manifest_cut(json_t *m, const struct stat *st)
{
    return manifest_number(m, "plain_bytes") > (uint64_t) st->st_size;
}


int
ngx_http_llm_capture_manifest_read(json_t *m)
{
    return json_is_string(json_object_get(m, "sha256"));
}
