
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The entries of writers in a manifest, and the sum of them all.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ngx_http_llm_capture_manifest_sum.h"


/* entries of those that have ended become one beyond so many */
#define NGX_HTTP_LLM_CAPTURE_WRITERS  16

#define NGX_HTTP_LLM_CAPTURE_FOLDED   "0000000000000000"

#define MOST  ((json_int_t) 1 << 56)

/* gaps of all writers together; near ones become one beyond */
#define GAPS  64

/* terms of the sum of outcomes */
#define FIRST_OUTCOME  NGX_HTTP_LLM_CAPTURE_C_answers


/* by the bits of an account */

static const char *const  endpoints[] = {
    "chat", "completions", "responses", "messages", "embeddings", "other"
};


/* what is no UTF-8, as a path may be, is told as far as it is ASCII */

json_t *
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


json_t *
manifest_text(const char *text)
{
    return text ? manifest_textn(text, strlen(text)) : json_null();
}


uint64_t
manifest_number(json_t *object, const char *name)
{
    json_int_t  n;

    n = json_integer_value(json_object_get(object, name));

    /* sums of those that are ours stay far below */

    return n > 0 && n < MOST ? (uint64_t) n : 0;
}


int
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


json_t *
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

json_t *
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

int
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
