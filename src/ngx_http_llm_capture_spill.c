
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Uploads that were moved out of the rings.  A body that trickles in would pin
 * all that came behind it; its bytes go to blocks of the arena in the zone,
 * where a successor finds them (a heap would die with the helper at every
 * reload).
 *
 * A chain holds what its BEGIN added (struct and path, in the first block),
 * then the body.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_arena.h"
#include "ngx_http_llm_capture_point.h"


/* can a chain of so many bytes become one of so many? */

static int
ngx_http_llm_capture_spill_room(ngx_http_llm_capture_drain_t *d,
    uint32_t have, uint64_t bytes)
{
    uint32_t  need;

    need = ngx_http_llm_capture_arena_blocks(bytes);

    return need <= have || need - have <= d->spill->nwarm + d->spill->ncold;
}


static uint32_t
ngx_http_llm_capture_spill_chain(ngx_http_llm_capture_drain_t *d)
{
    uint32_t                       i, n;
    ngx_http_llm_capture_spill_t  *s = d->spill;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CHAINS; i++) {
        n = (s->look + i) % NGX_HTTP_LLM_CAPTURE_CHAINS;

        if (s->chains[n].n == 0) {
            s->look = n + 1;
            return n;
        }
    }

    return NGX_HTTP_LLM_CAPTURE_NONE;
}


/*
 * The oldest one in the arena that waits for a failing destination is given
 * up: one full disk must not cost the slow uploads of the others.  No file has
 * failed yet while a predecessor's intent is still to be recovered.
 */

static int
ngx_http_llm_capture_spill_relieve(ngx_http_llm_capture_drain_t *d)
{
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_upload_t  *u;

    for (dest = d->busy; dest; dest = dest->busy) {

        if (dest->ready.n == 0
            || !ngx_http_llm_capture_file_failing(dest->file, d->now))
        {
            continue;
        }

        for (u = dest->ready.first; u; u = u->next) {
            if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
                ngx_http_llm_capture_upload_give_up(d, u);
                ngx_http_llm_capture_settle(d);
                return 1;
            }
        }
    }

    return 0;
}


/* makes room for a chain of so many bytes that has so many blocks; -1: none */

static int
ngx_http_llm_capture_spill_reserve(ngx_http_llm_capture_drain_t *d,
    uint32_t have, uint64_t bytes)
{
    if (ngx_http_llm_capture_arena_blocks(bytes) > d->zone.nblocks) {
        return -1;
    }

    while (!ngx_http_llm_capture_spill_room(d, have, bytes)) {
        if (!ngx_http_llm_capture_spill_relieve(d)) {
            return -1;
        }
    }

    return 0;
}


/* a chain with what its BEGIN added, and room for so many bytes; NONE: none */

static uint32_t
ngx_http_llm_capture_spill_begin(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint64_t bytes)
{
    uint32_t                      chain;
    uint64_t                      used;
    ngx_http_llm_capture_begin_t  begin;

    memset(&begin, 0, sizeof(begin));

    begin.wall = u->wall;
    begin.mono = u->mono;
    begin.hash = u->dest->hash;
    begin.uid = u->uid;
    begin.pid = u->pid;
    begin.path_len = (uint16_t) u->dest->path_len;
    begin.session_len = u->spec_len;
    begin.format = (uint8_t) u->dest->format;
    begin.flags = u->flags;

    used = sizeof(begin) + begin.path_len + begin.session_len;

    if (ngx_http_llm_capture_spill_reserve(d, 0, used + bytes) == -1) {
        return NGX_HTTP_LLM_CAPTURE_NONE;
    }

    chain = ngx_http_llm_capture_spill_chain(d);

    if (chain == NGX_HTTP_LLM_CAPTURE_NONE) {
        return NGX_HTTP_LLM_CAPTURE_NONE;
    }

    ngx_http_llm_capture_arena_append(d, chain, 0, (uint8_t *) &begin,
                                      sizeof(begin));
    ngx_http_llm_capture_arena_append(d, chain, sizeof(begin),
                                      (uint8_t *) u->dest->path,
                                      begin.path_len);

    if (begin.session_len) {
        ngx_http_llm_capture_arena_append(d, chain,
                           sizeof(begin) + begin.path_len,
                           (const uint8_t *)
                               ngx_http_llm_capture_upload_spec(d, u),
                           begin.session_len);
    }

    d->spill->chains[chain].extra = (uint32_t) used;

    return chain;
}


static void
ngx_http_llm_capture_spill_publish(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint32_t chain, uint64_t bytes,
    ngx_http_llm_capture_chain_e state)
{
    ngx_http_llm_capture_chain_t  *c;

    c = ngx_http_llm_capture_zone_chain(&d->zone, chain);

    c->ring = u->ring;
    c->id = u->id;
    c->extra = d->spill->chains[chain].extra;
    c->first = d->spill->chains[chain].first;
    atomic_store_explicit(&c->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&c->state, state, memory_order_release);
}


int
ngx_http_llm_capture_spill(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    uint32_t                       chain;
    uint64_t                       used;
    ngx_http_llm_capture_piece_t  *piece;

    chain = ngx_http_llm_capture_spill_begin(d, u, u->len);

    if (chain == NGX_HTTP_LLM_CAPTURE_NONE) {
        return -1;
    }

    used = d->spill->chains[chain].extra;

    for (piece = u->first; piece; piece = piece->next) {
        ngx_http_llm_capture_arena_append(d, chain, used,
            ngx_http_llm_capture_zone_data(&d->zone, u->ring)
                + piece->at + piece->body,
            piece->len);
        used += piece->len;
    }

    ngx_http_llm_capture_spill_publish(d, u, chain, u->len,
                                       NGX_HTTP_LLM_CAPTURE_CHAIN_OPEN);

    NGX_HTTP_LLM_CAPTURE_POINT("spill");

    u->chain = chain;
    ngx_http_llm_capture_piece_mark(d, u, NGX_HTTP_LLM_CAPTURE_MOVED);

    return 0;
}


uint32_t
ngx_http_llm_capture_spill_hold(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, const struct iovec *iov, unsigned n)
{
    uint32_t  chain;
    uint64_t  bytes, used;
    unsigned  i;

    for (bytes = 0, i = 0; i < n; i++) {
        bytes += iov[i].iov_len;
    }

    chain = ngx_http_llm_capture_spill_begin(d, u, bytes);

    if (chain == NGX_HTTP_LLM_CAPTURE_NONE) {
        return chain;
    }

    used = d->spill->chains[chain].extra;

    for (i = 0; i < n; i++) {
        if (iov[i].iov_len) {
            ngx_http_llm_capture_arena_append(d, chain, used, iov[i].iov_base,
                                              iov[i].iov_len);
            used += iov[i].iov_len;
        }
    }

    ngx_http_llm_capture_spill_publish(d, u, chain, bytes,
                                       NGX_HTTP_LLM_CAPTURE_CHAIN_HELD);

    return chain;
}


int
ngx_http_llm_capture_spill_more(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, const uint8_t *p, size_t n)
{
    uint64_t                        used;
    ngx_http_llm_capture_extent_t  *c;

    c = &d->spill->chains[u->chain];
    used = c->extra + u->len;

    if (ngx_http_llm_capture_spill_reserve(d, c->n, used + n) == -1) {
        return -1;
    }

    ngx_http_llm_capture_arena_append(d, u->chain, used, p, n);

    u->len += n;

    atomic_store_explicit(
        &ngx_http_llm_capture_zone_chain(&d->zone, u->chain)->bytes, u->len,
        memory_order_release);

    NGX_HTTP_LLM_CAPTURE_POINT("spill more");

    return 0;
}


void
ngx_http_llm_capture_spill_ended(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    atomic_store_explicit(
        &ngx_http_llm_capture_zone_chain(&d->zone, u->chain)->state,
        NGX_HTTP_LLM_CAPTURE_CHAIN_ENDED, memory_order_release);

    NGX_HTTP_LLM_CAPTURE_POINT("spill ended");
}


void
ngx_http_llm_capture_spill_free(ngx_http_llm_capture_drain_t *d,
    uint32_t chain)
{
    uint32_t                        block, next, i;
    ngx_http_llm_capture_extent_t  *c;

    atomic_store_explicit(
        &ngx_http_llm_capture_zone_chain(&d->zone, chain)->state,
        NGX_HTTP_LLM_CAPTURE_CHAIN_FREE, memory_order_release);

    c = &d->spill->chains[chain];
    block = c->first;

    for (i = 0; i < c->n; i++) {
        next = d->spill->next[block];
        ngx_http_llm_capture_arena_free(d, block);
        block = next;
    }

    c->n = 0;
}


uint32_t
ngx_http_llm_capture_spill_niov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    return d->spill->chains[u->chain].n;
}


void
ngx_http_llm_capture_spill_iov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, struct iovec *iov)
{
    ngx_http_llm_capture_walk_t  w;

    w = ngx_http_llm_capture_arena_walk(d, u);

    while (ngx_http_llm_capture_arena_next(d, &w, iov)) {
        iov++;
    }
}


size_t
ngx_http_llm_capture_spill_part(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint64_t off, uint8_t *p, size_t size)
{
    size_t                       n, part;
    struct iovec                 v;
    ngx_http_llm_capture_walk_t  w;

    w = ngx_http_llm_capture_arena_walk(d, u);

    for (n = 0; n < size && ngx_http_llm_capture_arena_next(d, &w, &v); ) {

        if (off >= v.iov_len) {
            off -= v.iov_len;
            continue;
        }

        part = v.iov_len - (size_t) off;
        part = part < size - n ? part : size - n;

        memcpy(p + n, (uint8_t *) v.iov_base + off, part);

        n += part;
        off = 0;
    }

    return n;
}


const uint8_t *
ngx_http_llm_capture_spill_extra(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    return ngx_http_llm_capture_zone_block(&d->zone,
                                        d->spill->chains[u->chain].first)
           + sizeof(ngx_http_llm_capture_begin_t);
}


void
ngx_http_llm_capture_spill_scan(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_scan_t *s)
{
    struct iovec                 v;
    ngx_http_llm_capture_walk_t  w;

    w = ngx_http_llm_capture_arena_walk(d, u);

    while (ngx_http_llm_capture_arena_next(d, &w, &v)) {
        (void) ngx_http_llm_capture_scan_feed(s, v.iov_base, v.iov_len);
    }
}


/*
 * A chain as a predecessor, or a spoiled zone, left it.  used: a byte per
 * block.  Returns 0 if it is taken, with its blocks; -1 if it makes no sense.
 */

static int
ngx_http_llm_capture_spill_check(ngx_http_llm_capture_drain_t *d,
    uint32_t chain, ngx_http_llm_capture_chain_t *copy, uint8_t *used)
{
    uint32_t                        block, need, i;
    ngx_http_llm_capture_extent_t  *c;

    c = &d->spill->chains[chain];

    need = copy->bytes < d->zone.size
           ? ngx_http_llm_capture_arena_blocks(copy->extra + copy->bytes)
           : NGX_HTTP_LLM_CAPTURE_NONE;

    if (copy->ring >= d->zone.nrings || need > d->zone.nblocks
        || copy->extra <= sizeof(ngx_http_llm_capture_begin_t)
        || copy->extra >= sizeof(ngx_http_llm_capture_begin_t)
                          + NGX_HTTP_LLM_CAPTURE_PATH
                          + NGX_HTTP_LLM_CAPTURE_SPEC
        || ngx_http_llm_capture_upload_find(d, copy->ring, copy->id))
    {
        return -1;
    }

    block = copy->first;

    for (i = 0; i < need; i++) {

        if (block >= d->zone.nblocks || used[block]) {
            break;
        }

        used[block] = 1;

        if (i) {
            d->spill->next[c->last] = block;

        } else {
            c->first = block;
        }

        c->last = block;
        d->spill->next[block] = NGX_HTTP_LLM_CAPTURE_NONE;

        block = atomic_load_explicit(
                    ngx_http_llm_capture_zone_next(&d->zone, block),
                    memory_order_relaxed);
    }

    if (i < need) {

        for (block = c->first; i; i--) {
            used[block] = 0;
            block = d->spill->next[block];
        }

        return -1;
    }

    c->n = need;
    c->extra = copy->extra;

    return 0;
}


static int
ngx_http_llm_capture_spill_take(ngx_http_llm_capture_drain_t *d,
    uint32_t chain, uint8_t *used)
{
    const uint8_t                  *block;
    ngx_http_llm_capture_begin_t    begin;
    ngx_http_llm_capture_chain_t    copy, *c;
    ngx_http_llm_capture_upload_t  *u;

    c = ngx_http_llm_capture_zone_chain(&d->zone, chain);

    copy.state = atomic_load_explicit(&c->state, memory_order_acquire);

    if (copy.state == NGX_HTTP_LLM_CAPTURE_CHAIN_FREE) {
        return 0;
    }

    copy.ring = c->ring;
    copy.id = c->id;
    copy.bytes = atomic_load_explicit(&c->bytes, memory_order_acquire);
    copy.extra = c->extra;
    copy.first = c->first;

    if (ngx_http_llm_capture_spill_check(d, chain, &copy, used) == -1) {
        goto spoiled;
    }

    block = ngx_http_llm_capture_zone_block(&d->zone,
                                            d->spill->chains[chain].first);
    memcpy(&begin, block, sizeof(begin));

    /* its new chain stands beside the old one: the helper died in between */

    if (sizeof(begin) + begin.path_len + begin.session_len != copy.extra
        || (begin.uid && begin.format < NGX_HTTP_LLM_CAPTURE_FORMATS
            && ngx_http_llm_capture_upload_pair(d, begin.uid, 0))
        || begin.path_len == 0 || begin.path_len >= NGX_HTTP_LLM_CAPTURE_PATH
        || begin.session_len > NGX_HTTP_LLM_CAPTURE_SPEC
        || begin.format > NGX_HTTP_LLM_CAPTURE_OUTCOMES
        || (copy.state == NGX_HTTP_LLM_CAPTURE_CHAIN_HELD
            && (begin.uid == 0
                || !ngx_http_llm_capture_is_trace(begin.format))))
    {
        ngx_http_llm_capture_spill_free(d, chain);
        return 0;
    }

    u = ngx_http_llm_capture_upload_new(d, copy.ring, copy.id, &begin,
                                        (char *) block + sizeof(begin));
    if (u == NULL) {
        return -1;
    }

    u->chain = chain;
    u->len = copy.bytes;

    if (u->dest->file == NULL) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                           NGX_HTTP_LLM_CAPTURE_C_bad_path);

    } else if (copy.state == NGX_HTTP_LLM_CAPTURE_CHAIN_HELD) {
        ngx_http_llm_capture_trace_held(d, u);
    }

    return 0;

spoiled:

    atomic_store_explicit(&c->state, NGX_HTTP_LLM_CAPTURE_CHAIN_FREE,
                          memory_order_release);
    return 0;
}


/* what had ended goes on, once it is known which blocks are free */

static void
ngx_http_llm_capture_spill_go_on(ngx_http_llm_capture_drain_t *d)
{
    unsigned                        i;
    ngx_http_llm_capture_upload_t  *u, *next;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->open[i]; u; u = next) {
            next = u->bucket;

            if (atomic_load_explicit(
                    &ngx_http_llm_capture_zone_chain(&d->zone, u->chain)->state,
                    memory_order_relaxed)
                == NGX_HTTP_LLM_CAPTURE_CHAIN_ENDED)
            {
                ngx_http_llm_capture_upload_ended(d, u);
            }
        }
    }
}


int
ngx_http_llm_capture_spill_open(ngx_http_llm_capture_drain_t *d)
{
    uint8_t                       *used;
    uint32_t                       i, n;
    ngx_http_llm_capture_spill_t  *s;

    n = d->zone.nblocks;

    s = calloc(1, sizeof(ngx_http_llm_capture_spill_t));

    if (s == NULL) {
        return -1;
    }

    d->spill = s;

    s->cold = malloc((size_t) n * sizeof(uint32_t));
    s->next = malloc((size_t) n * sizeof(uint32_t));
    used = calloc(1, n);

    if (s->cold == NULL || s->next == NULL || used == NULL) {
        free(used);
        return -1;
    }

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CHAINS; i++) {
        if (ngx_http_llm_capture_spill_take(d, i, used) == -1) {
            free(used);
            return -1;
        }
    }

    /* the lowest blocks are taken first */

    for (i = n; i-- > 0; /* void */) {
        if (!used[i]) {
            s->cold[s->ncold++] = i;
        }
    }

    free(used);

    ngx_http_llm_capture_spill_go_on(d);

    return 0;
}


void
ngx_http_llm_capture_spill_close(ngx_http_llm_capture_drain_t *d)
{
    if (d->spill) {
        free(d->spill->cold);
        free(d->spill->next);
        free(d->spill);
    }
}
