
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
#include "ngx_http_llm_capture_manifest.h"
#include "ngx_http_llm_capture_sidecar.h"


/* entries of those that have ended become one beyond so many */
#define NGX_HTTP_LLM_CAPTURE_WRITERS  16

/* ms after which one that has not ended is taken for dead */
#define NGX_HTTP_LLM_CAPTURE_SILENT   5000

#define NGX_HTTP_LLM_CAPTURE_FOLDED   "0000000000000000"


#define MOST  ((json_int_t) 1 << 56)

/* gaps of all writers together; near ones become one beyond */
#define GAPS  64


/* by the bits of an account */

static const char *const  endpoints[] = {
    "chat", "completions", "responses", "messages", "embeddings", "other"
};

/* terms of the sum of outcomes */
#define FIRST_OUTCOME  NGX_HTTP_LLM_CAPTURE_C_answers


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


/* what is no UTF-8, as a path may be, is told as far as it is ASCII */

static json_t *
manifest_textn(const char *text, size_t len)
{
    char     ascii[NGX_HTTP_LLM_CAPTURE_PATH];
    size_t   i;
    json_t  *string;

    string = json_stringn(text, len);

    if (string) {
        return string;
    }

    len = len < sizeof(ascii) ? len : sizeof(ascii);

    for (i = 0; i < len; i++) {
        ascii[i] = (text[i] & 0x80) ? '?' : text[i];
    }

    return json_stringn(ascii, len);
}


static json_t *
manifest_text(const char *text)
{
    return text ? manifest_textn(text, strlen(text)) : json_null();
}


static uint64_t
manifest_number(json_t *object, const char *name)
{
    json_int_t  n;

    n = json_integer_value(json_object_get(object, name));

    /* sums of those that are ours stay far below */

    return n > 0 && n < MOST ? (uint64_t) n : 0;
}


static int
manifest_set(json_t *object, const char *name, uint64_t n)
{
    return json_object_set_new(object, name, json_integer((json_int_t) n));
}


/* a timestamp plus 1; 0: there is none */

static int
manifest_set_ts(json_t *object, const char *name, uint64_t ts)
{
    return json_object_set_new(object, name,
                               ts ? json_integer((json_int_t) (ts - 1))
                                  : json_null());
}


static uint64_t
manifest_ts(json_t *object, const char *name)
{
    return json_is_integer(json_object_get(object, name))
           ? manifest_number(object, name) + 1 : 0;
}


/* terms of a sum into an object: seen, recorded, pending, and why not */

static json_t *
manifest_sum(const uint64_t n[NGX_HTTP_LLM_CAPTURE_C_max], uint64_t pending)
{
    int       rc;
    json_t   *object, *reasons;
    unsigned  c;

    object = json_object();
    reasons = json_object();
    rc = 0;

    for (c = NGX_HTTP_LLM_CAPTURE_C_seen + 1;
         c < NGX_HTTP_LLM_CAPTURE_C_recorded;
         c++)
    {
        if (n[c]) {
            rc |= manifest_set(reasons, ngx_http_llm_capture_counter_names[c],
                               n[c]);
        }
    }

    rc |= manifest_set(object, "seen", n[NGX_HTTP_LLM_CAPTURE_C_seen]);
    rc |= manifest_set(object, "recorded", n[NGX_HTTP_LLM_CAPTURE_C_recorded]);
    rc |= manifest_set(object, "pending", pending);
    rc |= json_object_set_new(object, "reasons", reasons);

    if (rc) {
        json_decref(object);
        return NULL;
    }

    return object;
}


/*
 * Adds what stands in such an object; returns what it has pending.  What it
 * says was seen is not asked: the terms may be spoiled, their sum has to hold.
 */

static uint64_t
manifest_add(json_t *object, uint64_t n[NGX_HTTP_LLM_CAPTURE_C_max])
{
    json_t   *reasons;
    uint64_t  pending, more;
    unsigned  c;

    reasons = json_object_get(object, "reasons");

    pending = manifest_number(object, "pending");
    more = manifest_number(object, "recorded");

    n[NGX_HTTP_LLM_CAPTURE_C_recorded] += more;
    n[NGX_HTTP_LLM_CAPTURE_C_seen] += pending + more;

    for (c = NGX_HTTP_LLM_CAPTURE_C_seen + 1;
         c < NGX_HTTP_LLM_CAPTURE_C_recorded;
         c++)
    {
        more = manifest_number(reasons,
                               ngx_http_llm_capture_counter_names[c]);
        n[c] += more;
        n[NGX_HTTP_LLM_CAPTURE_C_seen] += more;
    }

    return pending;
}


/* the sum of a template has that of its outcomes in it */

static json_t *
manifest_destination(const uint64_t n[NGX_HTTP_LLM_CAPTURE_C_max],
    uint64_t pending)
{
    json_t   *object, *outcomes;
    unsigned  c;

    object = manifest_sum(n, pending);
    outcomes = json_object();

    for (c = FIRST_OUTCOME; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
        if (n[c]) {
            (void) manifest_set(outcomes,
                                ngx_http_llm_capture_counter_names[c], n[c]);
        }
    }

    if (json_object_set_new(object, "outcomes", outcomes) == -1) {
        json_decref(object);
        return NULL;
    }

    return object;
}


static uint64_t
manifest_add_destination(json_t *object,
    uint64_t n[NGX_HTTP_LLM_CAPTURE_C_max])
{
    json_t   *outcomes;
    unsigned  c;

    outcomes = json_object_get(object, "outcomes");

    for (c = FIRST_OUTCOME; c < NGX_HTTP_LLM_CAPTURE_C_max; c++) {
        n[c] += manifest_number(outcomes,
                                ngx_http_llm_capture_counter_names[c]);
    }

    return manifest_add(object, n);
}


static json_t *
manifest_endpoints(const ngx_http_llm_capture_account_t *a)
{
    json_t   *list;
    unsigned  i;

    list = json_array();

    for (i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        if (a->endpoints & 1u << i) {
            (void) json_array_append_new(list, json_string(endpoints[i]));
        }
    }

    return list;
}


/* names as they stand in bodies, which is as JSON: read, they are strings */

static json_t *
manifest_models(const ngx_http_llm_capture_account_t *a)
{
    char      text[NGX_HTTP_LLM_CAPTURE_MODEL + 2];
    size_t    len;
    json_t   *list, *name;
    uint32_t  i, n;

    list = json_array();
    n = a->nmodels & ~NGX_HTTP_LLM_CAPTURE_MORE;

    for (i = 0; i < n && i < NGX_HTTP_LLM_CAPTURE_MODELS; i++) {
        len = (size_t) snprintf(text, sizeof(text), "\"%.*s\"",
                                NGX_HTTP_LLM_CAPTURE_MODEL - 1, a->models[i]);
        name = json_loadb(text, len, JSON_DECODE_ANY|JSON_ALLOW_NUL, NULL);

        if (name) {
            (void) json_array_append_new(list, name);
        }
    }

    return list;
}


/* those that reach into the time of the file */

static json_t *
manifest_gaps(const ngx_http_llm_capture_facts_t *f)
{
    json_t                            *list, *item;
    uint32_t                           i;
    const ngx_http_llm_capture_gap_t  *gap;

    list = json_array();

    for (i = 0; i < f->gaps->n && i < NGX_HTTP_LLM_CAPTURE_GAPS; i++) {
        gap = &f->gaps->gap[i];

        if (gap->to < f->account->begun) {
            continue;
        }

        item = json_object();

        if (manifest_set(item, "from", gap->from) == -1
            || manifest_set(item, "to", gap->to) == -1
            || manifest_set(item, "requests", gap->after - gap->before) == -1
            || json_array_append_new(list, item) == -1)
        {
            break;
        }
    }

    return list;
}


static json_t *
manifest_writer(const ngx_http_llm_capture_facts_t *f)
{
    int                                    rc;
    char                                   id[17];
    json_t                                *w;
    uint64_t                               n[NGX_HTTP_LLM_CAPTURE_C_max];
    unsigned                               c;
    const ngx_http_llm_capture_account_t  *a;

    a = f->account;

    (void) snprintf(id, sizeof(id), "%016" PRIx64, f->id);

    memcpy(n, a->n, sizeof(n));

    /* of a file, seen are those that were read for it */

    n[NGX_HTTP_LLM_CAPTURE_C_seen] = f->pending;

    for (c = NGX_HTTP_LLM_CAPTURE_C_seen + 1;
         c <= NGX_HTTP_LLM_CAPTURE_C_last;
         c++)
    {
        n[NGX_HTTP_LLM_CAPTURE_C_seen] += n[c];
    }

    w = manifest_sum(n, f->pending);

    rc = json_object_set_new(w, "id", json_string(id));
    rc |= json_object_set_new(w, "ended", json_boolean(f->ended));
    rc |= manifest_set(w, "updated", f->now);
    rc |= manifest_set(w, "carried", a->carried);
    rc |= manifest_set(w, "bytes", n[NGX_HTTP_LLM_CAPTURE_C_bytes]);
    rc |= manifest_set_ts(w, "first_timestamp", a->first);
    rc |= manifest_set_ts(w, "last_timestamp", a->last);
    rc |= json_object_set_new(w, "endpoints", manifest_endpoints(a));
    rc |= json_object_set_new(w, "models", manifest_models(a));
    rc |= json_object_set_new(w, "gaps", manifest_gaps(f));
    rc |= json_object_set_new(w, "destination",
                              manifest_destination(f->sum,
                                  ngx_http_llm_capture_zone_pending(f->sum)));

    if (a->nmodels & NGX_HTTP_LLM_CAPTURE_MORE) {
        rc |= json_object_set_new(w, "more_models", json_true());
    }

    if (rc) {
        json_decref(w);
        return NULL;
    }

    return w;
}


/* items of `from` that are not in `to` yet */

static int
manifest_union(json_t *to, json_t *from)
{
    size_t   i, k;
    json_t  *item, *have;

    json_array_foreach(from, i, item) {

        json_array_foreach(to, k, have) {
            if (json_equal(item, have)) {
                break;
            }
        }

        if (k == json_array_size(to) && json_array_append(to, item) == -1) {
            return -1;
        }
    }

    return 0;
}


/* the two nearest ones become one, until there are not too many */

static int
manifest_few_gaps(json_t *gaps)
{
    int       rc;
    size_t    i, best;
    json_t   *a, *b, *one;
    uint64_t  from, to, n, far, least;

    for (rc = 0; rc == 0 && json_array_size(gaps) > GAPS; /* void */) {
        best = 1;
        least = UINT64_MAX;

        for (i = 1; i < json_array_size(gaps); i++) {
            to = manifest_number(json_array_get(gaps, i - 1), "to");
            from = manifest_number(json_array_get(gaps, i), "from");
            far = from > to ? from - to : to - from;

            if (far < least) {
                least = far;
                best = i;
            }
        }

        a = json_array_get(gaps, best - 1);
        b = json_array_get(gaps, best);

        from = manifest_number(a, "from");
        to = manifest_number(b, "from");
        from = from < to ? from : to;
        to = manifest_number(a, "to");
        n = manifest_number(b, "to");
        to = to > n ? to : n;
        n = manifest_number(a, "requests") + manifest_number(b, "requests");

        one = json_object();
        rc = manifest_set(one, "from", from);
        rc |= manifest_set(one, "to", to);
        rc |= manifest_set(one, "requests", n);
        rc |= json_array_set_new(gaps, best - 1, one);
        rc |= json_array_remove(gaps, best);
    }

    return rc;
}


/* the sums of all entries of a list, as one more entry */

static json_t *
manifest_total(json_t *writers)
{
    int        rc;
    size_t     i;
    json_t    *w, *total, *lists[3];
    uint64_t   n[NGX_HTTP_LLM_CAPTURE_C_max], d[NGX_HTTP_LLM_CAPTURE_C_max];
    uint64_t   pending, dest_pending, carried, bytes, first, last, ts;
    unsigned   k, more;

    static const char *const  names[] = { "endpoints", "models", "gaps" };

    memset(n, 0, sizeof(n));
    memset(d, 0, sizeof(d));
    pending = dest_pending = carried = bytes = first = last = 0;
    more = 0;
    rc = 0;

    for (k = 0; k < 3; k++) {
        lists[k] = json_array();
    }

    json_array_foreach(writers, i, w) {
        pending += manifest_add(w, n);
        carried += manifest_number(w, "carried");
        bytes += manifest_number(w, "bytes");
        dest_pending += manifest_add_destination(
                                        json_object_get(w, "destination"), d);

        ts = manifest_ts(w, "first_timestamp");
        first = ts && (first == 0 || ts < first) ? ts : first;
        ts = manifest_ts(w, "last_timestamp");
        last = ts > last ? ts : last;

        more |= json_is_true(json_object_get(w, "more_models"));

        for (k = 0; k < 3; k++) {
            rc |= manifest_union(lists[k], json_object_get(w, names[k]));
        }
    }

    while (json_array_size(lists[1]) > NGX_HTTP_LLM_CAPTURE_MODELS) {
        rc |= json_array_remove(lists[1], NGX_HTTP_LLM_CAPTURE_MODELS);
        more = 1;
    }

    rc |= manifest_few_gaps(lists[2]);

    total = manifest_sum(n, pending);

    rc |= manifest_set(total, "carried", carried);
    rc |= manifest_set(total, "bytes", bytes);
    rc |= manifest_set_ts(total, "first_timestamp", first);
    rc |= manifest_set_ts(total, "last_timestamp", last);
    rc |= json_object_set_new(total, "destination",
                              manifest_destination(d, dest_pending));

    for (k = 0; k < 3; k++) {
        rc |= json_object_set_new(total, names[k], lists[k]);
    }

    if (more) {
        rc |= json_object_set_new(total, "more_models", json_true());
    }

    if (rc) {
        json_decref(total);
        return NULL;
    }

    return total;
}


/* so that a file that is never rotated does not grow one for each restart */

static int
manifest_fold(json_t *writers)
{
    int      rc;
    size_t   i;
    json_t  *w, *ended, *one;

    if (json_array_size(writers) < NGX_HTTP_LLM_CAPTURE_WRITERS) {
        return 0;
    }

    ended = json_array();
    rc = 0;

    for (i = 0; i < json_array_size(writers); /* void */) {
        w = json_array_get(writers, i);

        if (!json_is_true(json_object_get(w, "ended"))) {
            i++;
            continue;
        }

        rc |= json_array_append(ended, w);
        rc |= json_array_remove(writers, i);
    }

    if (json_array_size(ended)) {
        one = manifest_total(ended);
        rc |= json_object_set_new(one, "id",
                                  json_string(NGX_HTTP_LLM_CAPTURE_FOLDED));
        rc |= json_object_set_new(one, "ended", json_true());
        rc |= json_array_insert_new(writers, 0, one);
    }

    json_decref(ended);

    return rc ? -1 : 0;
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
