
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_control.h"
#include "ngx_http_llm_capture_point.h"


#define NGX_HTTP_LLM_CAPTURE_WORDS                                            \
    (sizeof(ngx_http_llm_capture_said_t) / sizeof(uint64_t))

/* tries to read what is being changed: two changes must fall into each */
#define NGX_HTTP_LLM_CAPTURE_TRIES  16

#define tag(change)   ((change) << 48)
#define left(word)    ((word) & NGX_HTTP_LLM_CAPTURE_BUDGET)


static void
ngx_http_llm_capture_control_put(ngx_http_llm_capture_control_t *c,
    uint64_t version, uint32_t at, const ngx_http_llm_capture_said_t *said)
{
    size_t             i;
    uint64_t           words[NGX_HTTP_LLM_CAPTURE_WORDS];
    _Atomic uint64_t  *to;

    memcpy(words, said, sizeof(words));

    to = &c->said[version % 2][at * NGX_HTTP_LLM_CAPTURE_WORDS];

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_WORDS; i++) {
        atomic_store_explicit(&to[i], words[i], memory_order_relaxed);
    }
}


/* 0; -1: it was being changed */

static int
ngx_http_llm_capture_control_get(ngx_http_llm_capture_control_t *c,
    ngx_http_llm_capture_view_t *v)
{
    size_t             i, k;
    uint64_t           version, words[NGX_HTTP_LLM_CAPTURE_WORDS];
    _Atomic uint64_t  *from;

    version = atomic_load_explicit(&c->version, memory_order_acquire);
    from = c->said[version % 2];

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CONTROLS; i++) {
        for (k = 0; k < NGX_HTTP_LLM_CAPTURE_WORDS; k++) {
            words[k] = atomic_load_explicit(from++, memory_order_relaxed);
        }

        memcpy(&v->said[i], words, sizeof(words));

        NGX_HTTP_LLM_CAPTURE_POINT("control: read");
    }

    atomic_thread_fence(memory_order_acquire);

    v->version = version;

    return atomic_load_explicit(&c->version, memory_order_relaxed) == version
           ? 0 : -1;
}


void
ngx_http_llm_capture_control_read(ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z)
{
    unsigned                      try;
    uint32_t                      i;
    ngx_http_llm_capture_said_t  *s;

    for (try = 0; try < NGX_HTTP_LLM_CAPTURE_TRIES; try++) {
        if (ngx_http_llm_capture_control_get(
                                     ngx_http_llm_capture_zone_control(z), v)
            == 0)
        {
            break;
        }
    }

    if (try == NGX_HTTP_LLM_CAPTURE_TRIES) {
        /* as if nothing was said, and again at the next request */
        memset(v, 0, sizeof(ngx_http_llm_capture_view_t));
        v->version = (uint64_t) -1;
    }

    v->any = 0;
    v->timed = 0;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CONTROLS; i++) {
        s = &v->said[i];

        /* it may be anything */

        if (s->mode > NGX_HTTP_LLM_CAPTURE_MODE_RESET
            || s->cell > 1
            || s->name_len > NGX_HTTP_LLM_CAPTURE_MATCH
            || s->value_len > NGX_HTTP_LLM_CAPTURE_MATCH - s->name_len)
        {
            memset(s, 0, sizeof(ngx_http_llm_capture_said_t));
        }

        v->any |= s->mode != NGX_HTTP_LLM_CAPTURE_MODE_NONE;
        v->timed |= s->until != 0;
    }
}


static void
ngx_http_llm_capture_control_fill(ngx_http_llm_capture_control_t *c,
    uint32_t at, const ngx_http_llm_capture_said_t *s, uint64_t records,
    uint64_t bytes)
{
    ngx_http_llm_capture_budget_t  *b;

    b = &c->budgets[at][s->cell];

    atomic_store_explicit(&b->records, tag(s->change) | records,
                          memory_order_relaxed);
    atomic_store_explicit(&b->bytes, tag(s->change) | bytes,
                          memory_order_relaxed);
}


void
ngx_http_llm_capture_control_say(const ngx_http_llm_capture_zone_t *z,
    uint32_t at, const ngx_http_llm_capture_order_t *order, uint64_t now,
    uint64_t wall)
{
    uint32_t                         i, cell;
    uint64_t                         version;
    ngx_http_llm_capture_said_t     *s;
    ngx_http_llm_capture_view_t      v;
    ngx_http_llm_capture_control_t  *c;

    c = ngx_http_llm_capture_zone_control(z);

    /* nobody else changes it */

    ngx_http_llm_capture_control_read(&v, z);
    version = atomic_load_explicit(&c->version, memory_order_acquire) + 1;

    if (at == NGX_HTTP_LLM_CAPTURE_CONTROL_ALL) {
        for (i = 0; i < NGX_HTTP_LLM_CAPTURE_ROWS; i++) {
            cell = v.said[i].cell;
            memset(&v.said[i], 0, sizeof(ngx_http_llm_capture_said_t));
            v.said[i].cell = cell;
        }
    }

    s = &v.said[at];
    cell = !s->cell;
    memset(s, 0, sizeof(ngx_http_llm_capture_said_t));

    s->mode = order->mode;
    s->cell = cell;
    s->change = version;
    s->since = wall;
    s->duration = order->duration;
    s->until = order->duration ? now + order->duration : 0;
    s->records = order->records;
    s->bytes = order->bytes;
    s->rate = order->rate;
    s->name_len = order->name_len;
    s->value_len = order->value_len;
    memcpy(s->match, order->match, sizeof(s->match));

    if (order->mode == NGX_HTTP_LLM_CAPTURE_MODE_RESET
        && (at == NGX_HTTP_LLM_CAPTURE_CONTROL_ALL
            || v.said[NGX_HTTP_LLM_CAPTURE_CONTROL_ALL].mode
               == NGX_HTTP_LLM_CAPTURE_MODE_NONE))
    {
        s->mode = NGX_HTTP_LLM_CAPTURE_MODE_NONE;
        s->until = 0;
    }

    /* from here on who reads the copy before the present one reads anew */

    atomic_thread_fence(memory_order_release);

    ngx_http_llm_capture_control_fill(c, at, s, s->records, s->bytes);

    NGX_HTTP_LLM_CAPTURE_POINT("control: budget");

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CONTROLS; i++) {
        ngx_http_llm_capture_control_put(c, version, i, &v.said[i]);
        NGX_HTTP_LLM_CAPTURE_POINT("control: said");
    }

    atomic_store_explicit(&c->version, version, memory_order_release);

    NGX_HTTP_LLM_CAPTURE_POINT("control: changed");
}


unsigned
ngx_http_llm_capture_control_moved(const ngx_http_llm_capture_zone_t *z)
{
    return atomic_load_explicit(&ngx_http_llm_capture_zone_control(z)->moved,
                                memory_order_acquire)
           != 0;
}


void
ngx_http_llm_capture_control_leave(const ngx_http_llm_capture_zone_t *old)
{
    atomic_store_explicit(&ngx_http_llm_capture_zone_control(old)->moved, 1,
                          memory_order_release);
}


/* the rest of a budget, of which nobody takes any more then */

static uint64_t
ngx_http_llm_capture_control_rest(_Atomic uint64_t *word, uint64_t change)
{
    uint64_t  n;

    n = atomic_exchange_explicit(word, tag(change), memory_order_acq_rel);

    return n >> 48 == (change & 0xffff) ? left(n) : 0;
}


void
ngx_http_llm_capture_control_move(const ngx_http_llm_capture_zone_t *old,
    ngx_http_llm_capture_zone_t *z)
{
    uint32_t                         i, at;
    ngx_http_llm_capture_view_t      v;
    ngx_http_llm_capture_said_t     *s;
    ngx_http_llm_capture_budget_t   *b;
    ngx_http_llm_capture_control_t  *c, *from;

    from = ngx_http_llm_capture_zone_control(old);
    c = ngx_http_llm_capture_zone_control(z);

    ngx_http_llm_capture_control_read(&v, old);

    if (!v.any) {
        return;
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CONTROLS; i++) {
        s = &v.said[i];
        at = i;

        if (s->mode == NGX_HTTP_LLM_CAPTURE_MODE_NONE) {
            continue;
        }

        if (i < NGX_HTTP_LLM_CAPTURE_ROWS) {
            at = i < NGX_HTTP_LLM_CAPTURE_TEMPLATES
                 ? ngx_http_llm_capture_zone_row(z,
                       ngx_http_llm_capture_zone_hdr(old)->templates[i].hash)
                 : NGX_HTTP_LLM_CAPTURE_TEMPLATES;

            if (at == NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
                /* a path that is gone */
                continue;
            }
        }

        b = &from->budgets[i][s->cell];

        ngx_http_llm_capture_control_fill(c, at, s,
            ngx_http_llm_capture_control_rest(&b->records, s->change),
            ngx_http_llm_capture_control_rest(&b->bytes, s->change));
        ngx_http_llm_capture_control_put(c, v.version, at, s);
    }

    atomic_store_explicit(&c->version, v.version, memory_order_release);
}


uint32_t
ngx_http_llm_capture_control_at(const ngx_http_llm_capture_view_t *v,
    uint32_t row, uint64_t now)
{
    uint32_t                            at;
    const ngx_http_llm_capture_said_t  *s;

    for (at = row; /* void */; at = NGX_HTTP_LLM_CAPTURE_CONTROL_ALL) {
        s = &v->said[at];

        /* off for a while, which is over: as if it was not said */

        if (s->mode != NGX_HTTP_LLM_CAPTURE_MODE_NONE
            && (s->mode != NGX_HTTP_LLM_CAPTURE_MODE_OFF
                || s->until == 0 || now < s->until))
        {
            return s->mode == NGX_HTTP_LLM_CAPTURE_MODE_RESET
                   ? NGX_HTTP_LLM_CAPTURE_NONE : at;
        }

        if (at == NGX_HTTP_LLM_CAPTURE_CONTROL_ALL) {
            return NGX_HTTP_LLM_CAPTURE_NONE;
        }
    }
}


void
ngx_http_llm_capture_control_left(const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z, uint32_t at, uint64_t *records,
    uint64_t *bytes)
{
    const ngx_http_llm_capture_said_t  *s;
    ngx_http_llm_capture_budget_t      *b;

    s = &v->said[at];
    b = &ngx_http_llm_capture_zone_control(z)->budgets[at][s->cell];

    *records = left(atomic_load_explicit(&b->records, memory_order_relaxed));
    *bytes = left(atomic_load_explicit(&b->bytes, memory_order_relaxed));
}


ngx_http_llm_capture_ended_e
ngx_http_llm_capture_control_ended(const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z, uint32_t at, uint64_t now)
{
    uint64_t                            records, bytes;
    const ngx_http_llm_capture_said_t  *s;

    s = &v->said[at];

    if (s->until && now >= s->until) {
        return NGX_HTTP_LLM_CAPTURE_ENDED_DURATION;
    }

    if (s->records == 0 && s->bytes == 0) {
        return NGX_HTTP_LLM_CAPTURE_ENDED_NOT;
    }

    ngx_http_llm_capture_control_left(v, z, at, &records, &bytes);

    if (s->records && records == 0) {
        return NGX_HTTP_LLM_CAPTURE_ENDED_RECORDS;
    }

    return s->bytes && bytes == 0 ? NGX_HTTP_LLM_CAPTURE_ENDED_BYTES
                                  : NGX_HTTP_LLM_CAPTURE_ENDED_NOT;
}


/*
 * 0; -1: there is less, and so nothing is left, or later ones that are smaller
 * would go on for ever; 1: it is the budget of another order by now
 */

static int
ngx_http_llm_capture_control_sub(_Atomic uint64_t *word, uint64_t change,
    uint64_t n)
{
    uint64_t  was, now;

    was = atomic_load_explicit(word, memory_order_relaxed);

    do {
        if (was >> 48 != (change & 0xffff)) {
            return 1;
        }

        now = left(was) < n ? tag(change) : was - n;

    } while (!atomic_compare_exchange_weak_explicit(word, &was, now,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed));

    return left(was) < n ? -1 : 0;
}


static void
ngx_http_llm_capture_control_add(_Atomic uint64_t *word, uint64_t change,
    uint64_t n)
{
    uint64_t  was;

    was = atomic_load_explicit(word, memory_order_relaxed);

    do {
        if (was >> 48 != (change & 0xffff)) {
            return;
        }

    } while (!atomic_compare_exchange_weak_explicit(word, &was, was + n,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed));
}


int
ngx_http_llm_capture_control_take(const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z, uint32_t at, uint64_t bytes,
    ngx_http_llm_capture_taken_t *taken)
{
    ngx_http_llm_capture_budget_t      *b;
    const ngx_http_llm_capture_said_t  *s;

    s = &v->said[at];
    b = &ngx_http_llm_capture_zone_control(z)->budgets[at][s->cell];

    taken->at = at;
    taken->cell = s->cell & 1;
    taken->change = s->change;

    if (s->records) {
        if (ngx_http_llm_capture_control_sub(&b->records, s->change, 1) != 0) {
            return -1;
        }

        taken->records = 1;
    }

    if (s->bytes) {
        if (ngx_http_llm_capture_control_sub(&b->bytes, s->change, bytes)
            != 0)
        {
            ngx_http_llm_capture_control_return(z, taken);
            return -1;
        }

        taken->limited = 1;
        taken->bytes = bytes;
    }

    return 0;
}


int
ngx_http_llm_capture_control_more(const ngx_http_llm_capture_zone_t *z,
    ngx_http_llm_capture_taken_t *taken, uint64_t bytes)
{
    ngx_http_llm_capture_budget_t  *b;

    if (!taken->limited || bytes <= taken->bytes) {
        return 0;
    }

    b = &ngx_http_llm_capture_zone_control(z)->budgets[taken->at][taken->cell];

    /* begun under an order that is replaced by now: it is let through */

    if (ngx_http_llm_capture_control_sub(&b->bytes, taken->change,
                                         bytes - taken->bytes)
        < 0)
    {
        return -1;
    }

    taken->bytes = bytes;

    return 0;
}


void
ngx_http_llm_capture_control_return(const ngx_http_llm_capture_zone_t *z,
    ngx_http_llm_capture_taken_t *taken)
{
    ngx_http_llm_capture_budget_t  *b;

    b = &ngx_http_llm_capture_zone_control(z)->budgets[taken->at][taken->cell];

    if (taken->records) {
        ngx_http_llm_capture_control_add(&b->records, taken->change, 1);
    }

    if (taken->limited) {
        ngx_http_llm_capture_control_add(&b->bytes, taken->change,
                                         taken->bytes);
    }

    taken->records = 0;
    taken->limited = 0;
}
