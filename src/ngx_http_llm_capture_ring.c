
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include "ngx_http_llm_capture_ring.h"


#define lap_of(pos)  ((uint32_t) ((pos) >> 32))
#define off_of(pos)  ((uint32_t) (pos))

#define NGX_HTTP_LLM_CAPTURE_U_FLOOR                                          \
    (NGX_HTTP_LLM_CAPTURE_FLOOR / NGX_HTTP_LLM_CAPTURE_UNIT)
#define NGX_HTTP_LLM_CAPTURE_U_WINDOW                                         \
    (NGX_HTTP_LLM_CAPTURE_WINDOW / NGX_HTTP_LLM_CAPTURE_UNIT)

/*
 * Space that a JUMP led over is lost until the tail has passed the JUMP.  It
 * is as large as the backlog at the early jump to the front: hence none with
 * more than this part of the ring waiting.
 */
#define NGX_HTTP_LLM_CAPTURE_HOLE  8


/* the free units: where head stands, and where a jump would lead */

typedef struct {
    uint32_t                          here;
    uint32_t                          there;
    uint32_t                          target;
    uint32_t                          tail;    /* its offset */
    unsigned                          front:1; /* the jump goes to the front */
} ngx_http_llm_capture_space_t;


void
ngx_http_llm_capture_ring_open(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_ring_hdr_t *hdr, uint8_t *data, size_t size)
{
    uint64_t  head;

    memset(p, 0, sizeof(ngx_http_llm_capture_ring_t));

    head = atomic_load_explicit(&hdr->head, memory_order_relaxed);

    p->hdr = hdr;
    p->data = data;
    p->size = (uint32_t) (size / NGX_HTTP_LLM_CAPTURE_UNIT);
    p->lap = lap_of(head);
    p->off = off_of(head);
    p->want = 0;
    p->granted = NGX_HTTP_LLM_CAPTURE_U_FLOOR;

    if (p->off > p->size) {
        p->off = p->size;
    }
}


static void
ngx_http_llm_capture_ring_space(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_space_t *s)
{
    uint64_t  tail;

    tail = atomic_load_explicit(&p->hdr->tail, memory_order_acquire);

    s->tail = off_of(tail);
    s->target = 0;
    s->front = 0;
    s->here = 0;
    s->there = 0;

    if (s->tail > p->size) {
        /* no helper wrote that: full for good, never a byte beside the ring */
        return;
    }

    if (lap_of(tail) == p->lap) {

        /* the last unit before the tail is kept for a jump from there */

        s->here = p->size - p->off;
        s->there = s->tail ? s->tail - 1 : 0;
        s->front = 1;

    } else if (lap_of(tail) + 1 != p->lap) {
        return;

    } else if (p->behind) {
        s->here = p->size - p->off;

    } else {
        s->here = s->tail > p->off ? s->tail - p->off - 1 : 0;
        s->there = p->size - p->end;
        s->target = p->end;
    }
}


static void
ngx_http_llm_capture_ring_jump(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_space_t *s)
{
    ngx_http_llm_capture_frame_t  *f;

    /* at the very end of the memory a jump to the front needs no frame */

    if (p->off < p->size) {
        f = (ngx_http_llm_capture_frame_t *)
                (p->data + (size_t) p->off * NGX_HTTP_LLM_CAPTURE_UNIT);

        memset(f, 0, sizeof(ngx_http_llm_capture_frame_t));
        f->size = NGX_HTTP_LLM_CAPTURE_UNIT;
        f->flags = NGX_HTTP_LLM_CAPTURE_JUMP;
        f->off = s->target;

        p->off++;
    }

    if (s->front) {
        p->end = p->off;
        p->behind = 0;
        p->lap++;
        p->off = 0;
        return;
    }

    p->behind = 1;
    p->off = s->target;
}


/* all that stands before the published head is all there is */

static void
ngx_http_llm_capture_ring_rest(ngx_http_llm_capture_ring_t *p)
{
    p->want = 0;
    p->granted = NGX_HTTP_LLM_CAPTURE_U_FLOOR;

    atomic_store_explicit(&p->hdr->want, 0, memory_order_release);
}


/*
 * What a frame of n units may write up to, and after it all ENDs: those of
 * inflight, and one more for the upload whose END this frame is, if it is only
 * a part of it.  Not one more than that, or the last END would ask for a unit
 * that nobody has granted.  And a JUMP, which asks nobody: it stands below what
 * was granted, or, at rest, in the page at head that the helper spares.
 *
 * *cover: that, and all that is not consumed.
 */

static uint32_t
ngx_http_llm_capture_ring_reach(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_space_t *s, uint32_t n, int jump, int part,
    uint32_t *cover)
{
    uint32_t  reach, end, ends;

    end = 0;
    ends = p->inflight + part + 1;

    if (!jump && (s->front || p->behind)) {
        reach = p->off + n + ends;

    } else if (!s->front && jump) {
        reach = s->target + n + ends;

    } else {
        /* before an old lap; the ENDs may need a jump over it */

        end = jump ? p->off + 1 : p->end;

        reach = (jump ? s->there : s->here) - n < ends ? end + ends
                : (jump ? 0 : p->off) + n + ends;
    }

    if (reach > p->size) {
        reach = p->size;
    }

    *cover = reach > end ? reach : end;

    return reach;
}


/*
 * May units up to `reach` be written?  Not while the helper gives back pages
 * below that.  Below the floor nothing is ever given back.
 *
 * What was granted stays so until a lower want is published: a helper that
 * sets punch later finds want above it and lets go.  To ask again would make
 * an END fail that meets the word in between.
 */

static int
ngx_http_llm_capture_ring_touch(ngx_http_llm_capture_ring_t *p, uint32_t want,
    uint32_t reach)
{
    uint32_t  was;
    uint64_t  punch;

    was = p->want;

    if (want < NGX_HTTP_LLM_CAPTURE_U_FLOOR) {
        want = NGX_HTTP_LLM_CAPTURE_U_FLOOR;
    }

    if (reach < NGX_HTTP_LLM_CAPTURE_U_FLOOR) {
        reach = NGX_HTTP_LLM_CAPTURE_U_FLOOR;
    }

    if (want != was) {
        p->want = want;
        atomic_store_explicit(&p->hdr->want, want, memory_order_seq_cst);
    }

    if (reach > p->granted) {
        punch = atomic_load_explicit(&p->hdr->punch, memory_order_seq_cst);

        if (punch != 0 && reach > punch) {

            if (was == 0) {
                ngx_http_llm_capture_ring_rest(p);
            }

            return 0;
        }
    }

    p->granted = reach;

    return 1;
}


static uint32_t
ngx_http_llm_capture_ring_fit(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_space_t *s, uint32_t min, uint32_t n)
{
    uint64_t  all;

    all = (uint64_t) s->here + s->there;

    if (s->here >= n) {
        return all >= (uint64_t) n + p->inflight ? n : 0;
    }

    if (s->here >= min && all >= (uint64_t) n + 1 + p->inflight) {
        return s->here;
    }

    return 0;
}


ngx_http_llm_capture_frame_t *
ngx_http_llm_capture_ring_alloc(ngx_http_llm_capture_ring_t *p, size_t min,
    size_t want, size_t *got)
{
    int                            jump;
    uint32_t                       n, least, fit, reach, cover;
    ngx_http_llm_capture_space_t   s;
    ngx_http_llm_capture_frame_t  *f;

    n = ngx_http_llm_capture_units(want);
    least = ngx_http_llm_capture_units(min);

    ngx_http_llm_capture_ring_space(p, &s);

    /* the front is warm: go there once the window is passed */

    fit = 0;

    if (!s.front || p->off < NGX_HTTP_LLM_CAPTURE_U_WINDOW
        || p->off - s.tail > p->size / NGX_HTTP_LLM_CAPTURE_HOLE
        || s.tail < p->off / 2
        || s.there < (uint64_t) n + p->inflight)
    {
        fit = ngx_http_llm_capture_ring_fit(p, &s, least, n);
    }

    jump = (fit == 0);

    if (jump) {
        if (s.there < (uint64_t) n + p->inflight) {
            return NULL;
        }

        fit = n;
    }

    reach = ngx_http_llm_capture_ring_reach(p, &s, fit, jump, fit < n,
                                            &cover);

    if (!ngx_http_llm_capture_ring_touch(p, cover, reach)) {
        return NULL;
    }

    if (jump) {
        ngx_http_llm_capture_ring_jump(p, &s);
    }

    f = (ngx_http_llm_capture_frame_t *)
            (p->data + (size_t) p->off * NGX_HTTP_LLM_CAPTURE_UNIT);

    p->off += fit;
    *got = (size_t) fit * NGX_HTTP_LLM_CAPTURE_UNIT;

    return f;
}


size_t
ngx_http_llm_capture_ring_room(ngx_http_llm_capture_ring_t *p)
{
    uint64_t                      all;
    ngx_http_llm_capture_space_t  s;

    ngx_http_llm_capture_ring_space(p, &s);

    all = (uint64_t) s.here + s.there;

    return all > p->inflight
           ? (size_t) (all - p->inflight) * NGX_HTTP_LLM_CAPTURE_UNIT : 0;
}


size_t
ngx_http_llm_capture_ring_used(ngx_http_llm_capture_ring_t *p)
{
    ngx_http_llm_capture_space_t  s;

    ngx_http_llm_capture_ring_space(p, &s);

    return ((size_t) p->size - s.here - s.there) * NGX_HTTP_LLM_CAPTURE_UNIT;
}


void
ngx_http_llm_capture_ring_publish(ngx_http_llm_capture_ring_t *p)
{
    atomic_store_explicit(&p->hdr->head,
                          ngx_http_llm_capture_pos(p->lap, p->off),
                          memory_order_release);

    if (p->inflight == 0 && p->want > NGX_HTTP_LLM_CAPTURE_U_FLOOR) {
        ngx_http_llm_capture_ring_rest(p);
    }
}


int
ngx_http_llm_capture_ring_read(ngx_http_llm_capture_reader_t *r,
    uint64_t head, ngx_http_llm_capture_frame_t *f, size_t *at)
{
    uint32_t  units, last;

    if (head == ngx_http_llm_capture_pos(r->lap, r->off)) {
        return 0;
    }

    if (off_of(head) > r->size) {
        return -1;
    }

    if (r->off == r->size) {
        r->lap++;
        r->off = 0;

        if (head == ngx_http_llm_capture_pos(r->lap, 0)) {
            return 0;
        }
    }

    if (lap_of(head) == r->lap) {
        last = off_of(head);

    } else if (lap_of(head) == r->lap + 1) {
        last = r->size;

    } else {
        return -1;
    }

    if (r->off >= last) {
        return -1;
    }

    *at = (size_t) r->off * NGX_HTTP_LLM_CAPTURE_UNIT;
    memcpy(f, r->data + *at, sizeof(ngx_http_llm_capture_frame_t));

    units = f->size / NGX_HTTP_LLM_CAPTURE_UNIT;

    if (units == 0 || f->size % NGX_HTTP_LLM_CAPTURE_UNIT
        || units > last - r->off
        || f->len > f->size - sizeof(ngx_http_llm_capture_frame_t))
    {
        return -1;
    }

    if (!(f->flags & NGX_HTTP_LLM_CAPTURE_JUMP)) {
        r->off += units;
        return 1;
    }

    if (f->off == 0 && lap_of(head) == r->lap + 1) {
        r->lap++;
        r->off = 0;
        return 1;
    }

    if (f->off > r->off && f->off <= last) {
        r->off = (uint32_t) f->off;
        return 1;
    }

    return -1;
}


/* punch stands already: whatever the producer begins from now on minds it */

static int
ngx_http_llm_capture_ring_unwanted(ngx_http_llm_capture_ring_hdr_t *hdr,
    size_t from, uint64_t read)
{
    uint64_t  want;

    want = atomic_load_explicit(&hdr->want, memory_order_seq_cst);

    if (want == 0) {
        return atomic_load_explicit(&hdr->head, memory_order_acquire) == read;
    }

    return want <= from / NGX_HTTP_LLM_CAPTURE_UNIT;
}


static int
ngx_http_llm_capture_ring_drop(uint8_t *data, size_t from, size_t to)
{
    if (from >= to || madvise(data + from, to - from, MADV_REMOVE) == 0) {
        return 1;
    }

    return -1;
}


int
ngx_http_llm_capture_ring_punch(ngx_http_llm_capture_ring_hdr_t *hdr,
    uint8_t *data, size_t from, size_t to, uint64_t read)
{
    int     rc;
    size_t  page, spare;

    if (from < NGX_HTTP_LLM_CAPTURE_FLOOR || from >= to) {
        return 0;
    }

    atomic_store_explicit(&hdr->punch, from / NGX_HTTP_LLM_CAPTURE_UNIT,
                          memory_order_seq_cst);

    rc = 0;

    if (ngx_http_llm_capture_ring_unwanted(hdr, from, read)) {
        page = (size_t) sysconf(_SC_PAGESIZE);
        spare = (size_t) off_of(read) * NGX_HTTP_LLM_CAPTURE_UNIT / page
                * page;

        if (spare < from || spare >= to) {
            spare = to;
        }

        rc = ngx_http_llm_capture_ring_drop(data, from, spare);

        if (rc == 1) {
            rc = ngx_http_llm_capture_ring_drop(data, spare + page, to);
        }
    }

    atomic_store_explicit(&hdr->punch, 0, memory_order_release);

    return rc;
}
