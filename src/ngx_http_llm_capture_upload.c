
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The bodies under way, as the helper knows them, and where they go.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_book.h"


/* bytes taken from the system at a time, for pieces and uploads */
#define NGX_HTTP_LLM_CAPTURE_SLAB  65536


typedef struct ngx_http_llm_capture_slab_s {
    struct ngx_http_llm_capture_slab_s  *next;
} ngx_http_llm_capture_slab_t;


/* more pieces and uploads; they are used again, and freed with the drain */

static int
ngx_http_llm_capture_refill(ngx_http_llm_capture_drain_t *d)
{
    char                           *p, *end;
    ngx_http_llm_capture_slab_t    *slab;
    ngx_http_llm_capture_piece_t   *piece;
    ngx_http_llm_capture_upload_t  *u;

    while (d->free_pieces == NULL || d->free_uploads == NULL) {

        slab = malloc(NGX_HTTP_LLM_CAPTURE_SLAB);

        if (slab == NULL) {
            return -1;
        }

        slab->next = d->slabs;
        d->slabs = slab;

        p = (char *) (slab + 1);
        end = (char *) slab + NGX_HTTP_LLM_CAPTURE_SLAB;

        if (d->free_pieces == NULL) {
            for ( /* void */ ; p + sizeof(*piece) <= end; p += sizeof(*piece)) {
                piece = (void *) p;
                piece->behind = d->free_pieces;
                d->free_pieces = piece;
            }

        } else {
            for ( /* void */ ; p + sizeof(*u) <= end; p += sizeof(*u)) {
                u = (void *) p;
                u->next = d->free_uploads;
                d->free_uploads = u;
            }
        }
    }

    return 0;
}


static ngx_http_llm_capture_upload_t **
ngx_http_llm_capture_bucket(ngx_http_llm_capture_drain_t *d, uint32_t ring,
    uint64_t id)
{
    return &d->open[(id * 31 + ring) % NGX_HTTP_LLM_CAPTURE_HASH];
}


ngx_http_llm_capture_upload_t *
ngx_http_llm_capture_upload_find(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, uint64_t id)
{
    ngx_http_llm_capture_upload_t  *u;

    for (u = *ngx_http_llm_capture_bucket(d, ring, id); u; u = u->bucket) {
        if (u->id == id && u->ring == ring) {
            return u;
        }
    }

    return NULL;
}


static ngx_http_llm_capture_dest_t *
ngx_http_llm_capture_dest(ngx_http_llm_capture_drain_t *d, const char *path,
    const ngx_http_llm_capture_begin_t *begin)
{
    uint32_t                      row;
    uint64_t                      hash;
    ngx_http_llm_capture_dest_t  *dest, **bucket;

    hash = ngx_http_llm_capture_zone_hash(path, begin->path_len,
                                          begin->format);
    bucket = &d->dests[hash % NGX_HTTP_LLM_CAPTURE_HASH];

    /* by row: as many as rows times paths, whatever hashes a frame may hold */

    row = ngx_http_llm_capture_zone_row(&d->zone, begin->hash);

    for (dest = *bucket; dest; dest = dest->bucket) {
        if (dest->row == row && dest->format == begin->format
            && dest->path_len == begin->path_len
            && memcmp(dest->path, path, begin->path_len) == 0)
        {
            return dest;
        }
    }

    dest = calloc(1, sizeof(ngx_http_llm_capture_dest_t) + begin->path_len + 1);

    if (dest == NULL) {
        return NULL;
    }

    dest->hash = begin->hash;
    dest->format = begin->format;
    dest->row = row;
    dest->path_len = begin->path_len;
    dest->path = (char *) (dest + 1);
    memcpy(dest->path, path, begin->path_len);

    /* too many paths, or no path, or no manifest for it: bad_path */

    dest->file = ngx_http_llm_capture_writer_file(d->conf.writer, dest->path,
                                                  dest->path_len);

    if (dest->file == NULL
        || (begin->format != NGX_HTTP_LLM_CAPTURE_OUTCOMES
            && ngx_http_llm_capture_book_taken(d, dest->file)))
    {
        free(dest);

        dest = &d->bad[row];
        dest->row = row;
        dest->account = NGX_HTTP_LLM_CAPTURE_NONE;

        return dest;
    }

    dest->account = ngx_http_llm_capture_book(d, dest->file, row,
                                              begin->format);

    dest->bucket = *bucket;
    *bucket = dest;

    return dest;
}


ngx_http_llm_capture_upload_t *
ngx_http_llm_capture_upload_new(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, uint64_t id, const ngx_http_llm_capture_begin_t *begin,
    const char *path)
{
    char                            copy[NGX_HTTP_LLM_CAPTURE_PATH];
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_upload_t  *u, **bucket;

    if (ngx_http_llm_capture_refill(d) == -1) {
        return NULL;
    }

    memcpy(copy, path, begin->path_len);

    dest = ngx_http_llm_capture_dest(d, copy, begin);

    if (dest == NULL) {
        return NULL;
    }

    u = d->free_uploads;
    d->free_uploads = u->next;

    memset(u, 0, sizeof(ngx_http_llm_capture_upload_t));

    u->dest = dest;
    u->ring = ring;
    u->chain = NGX_HTTP_LLM_CAPTURE_NONE;
    u->id = id;
    u->wall = begin->wall;
    u->mono = begin->mono;
    u->state = NGX_HTTP_LLM_CAPTURE_U_OPEN;

    bucket = ngx_http_llm_capture_bucket(d, ring, id);
    u->bucket = *bucket;
    *bucket = u;

    u->pid = begin->pid;
    u->flags = begin->flags;
    u->endpoint = begin->endpoint;
    u->spec_len = begin->session_len;

    if (begin->uid) {
        u->uid = begin->uid;

        bucket = &d->pairs[u->uid % NGX_HTTP_LLM_CAPTURE_HASH];
        u->pair = *bucket;
        *bucket = u;
    }

    if (dest->account != NGX_HTTP_LLM_CAPTURE_NONE
        && !ngx_http_llm_capture_is_answer(u))
    {
        d->books[dest->account].npending++;
    }

    d->nuploads++;
    d->nanswers += ngx_http_llm_capture_is_answer(u);
    d->rings[ring].nuploads++;

    return u;
}


void
ngx_http_llm_capture_upload_close(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    ngx_http_llm_capture_upload_t  **p;

    for (p = ngx_http_llm_capture_bucket(d, u->ring, u->id);
         *p;
         p = &(*p)->bucket)
    {
        if (*p == u) {
            *p = u->bucket;
            return;
        }
    }
}


const char *
ngx_http_llm_capture_upload_spec(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    const uint8_t                 *p;
    ngx_http_llm_capture_piece_t  *piece;

    if (u->spec_len == 0) {
        return NULL;
    }

    if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
        return (const char *) ngx_http_llm_capture_spill_extra(d, u)
               + u->dest->path_len;
    }

    piece = u->first;
    p = ngx_http_llm_capture_zone_data(&d->zone, u->ring) + piece->at
        + piece->body - u->spec_len;

    return (const char *) p;
}


ngx_http_llm_capture_upload_t *
ngx_http_llm_capture_upload_pair(ngx_http_llm_capture_drain_t *d, uint64_t uid,
    unsigned answer)
{
    ngx_http_llm_capture_upload_t  *u;

    for (u = d->pairs[uid % NGX_HTTP_LLM_CAPTURE_HASH]; u; u = u->pair) {
        if (u->uid == uid && ngx_http_llm_capture_is_answer(u) == answer) {
            return u;
        }
    }

    return NULL;
}


void
ngx_http_llm_capture_upload_free(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    ngx_http_llm_capture_upload_t  **p;

    if (u->uid) {
        p = &d->pairs[u->uid % NGX_HTTP_LLM_CAPTURE_HASH];

        while (*p != u) {
            p = &(*p)->pair;
        }

        *p = u->pair;
    }

    free(u->text);
    free(u->told);
    ngx_http_llm_capture_upload_untree(u);

    u->next = d->free_uploads;
    d->free_uploads = u;
}


ngx_http_llm_capture_piece_t *
ngx_http_llm_capture_piece_new(ngx_http_llm_capture_drain_t *d)
{
    ngx_http_llm_capture_piece_t  *piece;

    if (ngx_http_llm_capture_refill(d) == -1) {
        return NULL;
    }

    piece = d->free_pieces;
    d->free_pieces = piece->behind;

    memset(piece, 0, sizeof(ngx_http_llm_capture_piece_t));

    return piece;
}


void
ngx_http_llm_capture_piece_free(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_piece_t *piece)
{
    piece->behind = d->free_pieces;
    d->free_pieces = piece;
}


void
ngx_http_llm_capture_piece_mark(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint32_t mark)
{
    ngx_http_llm_capture_frame_t           *f;
    ngx_http_llm_capture_piece_t           *piece;

    for (piece = u->first; piece; piece = piece->next) {
        f = (ngx_http_llm_capture_frame_t *)
                (ngx_http_llm_capture_zone_data(&d->zone, u->ring)
                 + piece->at);

        *(volatile uint32_t *) &f->mark = mark;
        piece->upload = NULL;
    }

    u->first = NULL;
    u->last = NULL;
    u->npieces = 0;
}


static ngx_http_llm_capture_counter_e
ngx_http_llm_capture_why(ngx_http_llm_capture_verdict_t verdict)
{
    switch (verdict) {
    case NGX_HTTP_LLM_CAPTURE_SCAN_UTF8:
        return NGX_HTTP_LLM_CAPTURE_C_invalid_utf8;
    case NGX_HTTP_LLM_CAPTURE_SCAN_NUMBER:
        return NGX_HTTP_LLM_CAPTURE_C_invalid_number;
    case NGX_HTTP_LLM_CAPTURE_SCAN_DEPTH:
        return NGX_HTTP_LLM_CAPTURE_C_invalid_depth;
    case NGX_HTTP_LLM_CAPTURE_SCAN_NOT_OBJECT:
        return NGX_HTTP_LLM_CAPTURE_C_invalid_not_object;
    case NGX_HTTP_LLM_CAPTURE_SCAN_EMPTY:
        return NGX_HTTP_LLM_CAPTURE_C_invalid_empty;
    case NGX_HTTP_LLM_CAPTURE_SCAN_NO_MESSAGES:
        return NGX_HTTP_LLM_CAPTURE_C_invalid_no_messages;
    default:
        return NGX_HTTP_LLM_CAPTURE_C_invalid_json;
    }
}


/* in place, where the bytes stand */

static ngx_http_llm_capture_verdict_t
ngx_http_llm_capture_upload_scan(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_scan_t *s)
{
    uint8_t                       *data;
    ngx_http_llm_capture_piece_t  *piece;

    if (u->dest->format == NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD) {
        ngx_http_llm_capture_scan_init(s, NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT,
                                       NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES
                                       |NGX_HTTP_LLM_CAPTURE_SCAN_MODEL);
    } else {
        ngx_http_llm_capture_scan_init(s, NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED,
                                       NGX_HTTP_LLM_CAPTURE_SCAN_MODEL);
    }

    if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
        ngx_http_llm_capture_spill_scan(d, u, s);
        return ngx_http_llm_capture_scan_end(s);
    }

    data = ngx_http_llm_capture_zone_data(&d->zone, u->ring);

    for (piece = u->first; piece; piece = piece->next) {
        (void) ngx_http_llm_capture_scan_feed(s,
                                          data + piece->at + piece->body,
                                          piece->len);
    }

    return ngx_http_llm_capture_scan_end(s);
}


/* a piece of the body, wherever it stands; fewer bytes at its end */

static size_t
ngx_http_llm_capture_upload_copy(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint64_t off, char *buf, size_t size)
{
    size_t                         n, part;
    uint8_t                       *data;
    ngx_http_llm_capture_piece_t  *piece;

    if (u->chain != NGX_HTTP_LLM_CAPTURE_NONE) {
        return ngx_http_llm_capture_spill_part(d, u, off, (uint8_t *) buf,
                                               size);
    }

    data = ngx_http_llm_capture_zone_data(&d->zone, u->ring);

    for (n = 0, piece = u->first; piece && n < size; piece = piece->next) {

        if (off >= piece->len) {
            off -= piece->len;
            continue;
        }

        part = piece->len - (size_t) off;
        part = part < size - n ? part : size - n;

        memcpy(buf + n, data + piece->at + piece->body + off, part);

        n += part;
        off = 0;
    }

    return n;
}


/* for the manifest: the name as it stands in the body, whatever it is */

static void
ngx_http_llm_capture_upload_model(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint64_t at)
{
    char    name[NGX_HTTP_LLM_CAPTURE_MODEL];
    size_t  i, n;

    if (at == 0 || u->dest->account == NGX_HTTP_LLM_CAPTURE_NONE) {
        return;
    }

    n = ngx_http_llm_capture_upload_copy(d, u, at, name, sizeof(name));

    for (i = 0; i < n && name[i] != '"'; i++) {
        i += name[i] == '\\';
    }

    ngx_http_llm_capture_account_model(
                   ngx_http_llm_capture_zone_account(&d->zone,
                                                     u->dest->account),
                   name, i < n ? i : sizeof(name));
}


void
ngx_http_llm_capture_upload_ended(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    ngx_http_llm_capture_scan_t     s;
    ngx_http_llm_capture_verdict_t  verdict;

    if (ngx_http_llm_capture_is_answer(u)) {
        ngx_http_llm_capture_answer_ended(d, u);
        return;
    }

    verdict = ngx_http_llm_capture_upload_scan(d, u, &s);

    if (verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        ngx_http_llm_capture_upload_refuse(d, u,
                                           ngx_http_llm_capture_why(verdict));
        return;
    }

    /* white space inside the opening brace goes too: see scan_head() */

    u->head = ngx_http_llm_capture_scan_lead(&s);
    u->trail = ngx_http_llm_capture_scan_trail(&s);

    if (ngx_http_llm_capture_scan_head(&s) != u->head + 1) {
        u->head = ngx_http_llm_capture_scan_head(&s);
        u->brace = 1;
    }

    ngx_http_llm_capture_upload_model(d, u,
                                      ngx_http_llm_capture_scan_model(&s));
    ngx_http_llm_capture_upload_session(d, u);

    if (ngx_http_llm_capture_is_trace(u->dest->format)) {
        ngx_http_llm_capture_trace_hold(d, u);
        ngx_http_llm_capture_upload_untree(u);
        return;
    }

    ngx_http_llm_capture_upload_untree(u);

    ngx_http_llm_capture_upload_close(d, u);
    ngx_http_llm_capture_upload_ready(d, u);
}


void
ngx_http_llm_capture_upload_ready(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    u->state = NGX_HTTP_LLM_CAPTURE_U_READY;
    ngx_http_llm_capture_queue_add(&u->dest->ready, u);

    if (!u->dest->is_busy) {
        u->dest->is_busy = 1;
        u->dest->busy = d->busy;
        d->busy = u->dest;
    }
}


/*
 * Frames of it that are still to come are then those of an unknown id, and
 * done.  A ready one has been taken off its queue by the caller.
 */

void
ngx_http_llm_capture_upload_refuse(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_counter_e why)
{
    if (u->state == NGX_HTTP_LLM_CAPTURE_U_OPEN) {
        ngx_http_llm_capture_upload_close(d, u);
    }

    u->state = NGX_HTTP_LLM_CAPTURE_U_REFUSED;
    u->why = ngx_http_llm_capture_is_answer(u)
                 ? ngx_http_llm_capture_answer_why(d, u, why) : why;

    ngx_http_llm_capture_queue_add(&u->dest->refused, u);

    if (!u->dest->is_refusing) {
        u->dest->is_refusing = 1;
        u->dest->refusing = d->refusing;
        d->refusing = u->dest;
    }
}


static ngx_http_llm_capture_upload_t *
ngx_http_llm_capture_queue_take(ngx_http_llm_capture_queue_t *q, uint32_t ring,
    uint64_t id)
{
    ngx_http_llm_capture_upload_t  *u, **p;

    for (p = &q->first; q->n && *p; p = &(*p)->next) {
        u = *p;

        if (u->id != id || u->ring != ring) {
            continue;
        }

        *p = u->next;
        q->n--;

        if (*p == NULL) {
            q->last = p;
        }

        return u;
    }

    return NULL;
}


void
ngx_http_llm_capture_upload_give_up(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u)
{
    (void) ngx_http_llm_capture_queue_take(
                              u->state == NGX_HTTP_LLM_CAPTURE_U_PARKED
                                  ? &d->parked : &u->dest->ready,
                              u->ring, u->id);

    ngx_http_llm_capture_upload_refuse(d, u, NGX_HTTP_LLM_CAPTURE_C_failed);
}


void
ngx_http_llm_capture_upload_refuse_open(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, ngx_http_llm_capture_counter_e why)
{
    unsigned                        i;
    ngx_http_llm_capture_upload_t  *u, *next;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->open[i]; u; u = next) {
            next = u->bucket;

            if (u->ring == ring) {
                ngx_http_llm_capture_upload_refuse(d, u, why);
            }
        }
    }
}


/* those that wait for an answer are found by its number alone */

static ngx_http_llm_capture_upload_t *
ngx_http_llm_capture_held_take(ngx_http_llm_capture_drain_t *d, uint32_t ring,
    uint64_t id)
{
    unsigned                        i;
    ngx_http_llm_capture_upload_t  *u;

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_HASH; i++) {
        for (u = d->pairs[i]; u; u = u->pair) {
            if (u->id == id && u->ring == ring
                && u->state == NGX_HTTP_LLM_CAPTURE_U_HELD)
            {
                d->nheld--;
                return u;
            }
        }
    }

    return NULL;
}


ngx_http_llm_capture_upload_t *
ngx_http_llm_capture_upload_take(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, uint64_t id)
{
    ngx_http_llm_capture_dest_t    *dest;
    ngx_http_llm_capture_upload_t  *u;

    u = ngx_http_llm_capture_upload_find(d, ring, id);

    if (u) {
        ngx_http_llm_capture_upload_close(d, u);
        return u;
    }

    for (dest = d->busy; dest; dest = dest->busy) {
        u = ngx_http_llm_capture_queue_take(&dest->ready, ring, id);

        if (u) {
            return u;
        }
    }

    u = ngx_http_llm_capture_queue_take(&d->parked, ring, id);

    if (u) {
        return u;
    }

    u = ngx_http_llm_capture_held_take(d, ring, id);

    if (u) {
        return u;
    }

    for (dest = d->refusing; dest; dest = dest->refusing) {
        u = ngx_http_llm_capture_queue_take(&dest->refused, ring, id);

        if (u) {
            return u;
        }
    }

    return NULL;
}
