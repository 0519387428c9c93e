
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A ring of frames in shared memory: one producer (a worker), one consumer
 * (the helper), nobody waits for anybody.
 *
 * Memory is counted in units of 32 bytes.  A position is a lap and an offset
 * in units, in one 64-bit word: positions only grow, and head == tail means
 * empty whatever the offset.
 *
 *   one lap     0         tail======head                           size
 *               | front    | frames  | free                          |
 *
 *   two laps    0======head     tail==========end                  size
 *               | frames | free  | frames of the | free               |
 *               | (new lap)      | old lap       | (reached by a JUMP)|
 *
 * The producer goes to the front as soon as that is worth it, so that a ring
 * which is emptied in time lives in its first megabyte, whose pages are warm.
 * If the front fills up before the old lap is consumed, a JUMP leads over the
 * old lap to the space behind it: going to the front early costs no capacity.
 *
 * A frame never crosses an end: it is split.  Each upload in flight keeps one
 * unit in reserve, so its END or ABORT always fits.
 *
 * Pages above the floor are given back by the helper, from unit `punch` up, if
 * the producer wants none of them:
 *
 *     producer   sets want, looks at punch, writes
 *     helper     sets punch, looks at want, gives back, clears punch
 *
 * One of both sees the other.  want covers what is not consumed and what may
 * be written with all ENDs.  Above the floor it is zeroed when nothing is in
 * flight: then all that counts stands before head, and the pages may go once
 * that is read, though no request comes any more.  The page at head is spared:
 * from there a JUMP leads to the front, which is below punch, so a ring at
 * rest takes a body in this moment too.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_RING_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_RING_H_INCLUDED_


#include "ngx_http_llm_capture_zone.h"


#define NGX_HTTP_LLM_CAPTURE_UNIT    32

/* bytes of a ring that its helper never gives back: the window and a frame */
#define NGX_HTTP_LLM_CAPTURE_FLOOR   (1280 * 1024)
/* bytes of a ring after which the producer looks for a way to the front */
#define NGX_HTTP_LLM_CAPTURE_WINDOW  (1024 * 1024)

#define NGX_HTTP_LLM_CAPTURE_BEGIN   0x01
#define NGX_HTTP_LLM_CAPTURE_END     0x02
#define NGX_HTTP_LLM_CAPTURE_ABORT   0x04
#define NGX_HTTP_LLM_CAPTURE_JUMP    0x08      /* off: target, in units */

/* what the helper notes in a frame, for a successor */
#define NGX_HTTP_LLM_CAPTURE_DONE    1
#define NGX_HTTP_LLM_CAPTURE_MOVED   2


typedef struct {
    uint32_t                          size;    /* bytes, of units */
    uint16_t                          flags;
    uint16_t                          why;     /* ABORT: the counter */
    uint32_t                          len;     /* bytes of the body in it */
    uint32_t                          mark;
    uint64_t                          id;
    uint64_t                          off;     /* of these bytes in the body */
} ngx_http_llm_capture_frame_t;

_Static_assert(sizeof(ngx_http_llm_capture_frame_t)
               == NGX_HTTP_LLM_CAPTURE_UNIT, "a header is a unit");


/* the producer's side, in its own memory */

typedef struct {
    ngx_http_llm_capture_ring_hdr_t  *hdr;
    uint8_t                          *data;
    uint32_t                          size;    /* units */
    uint32_t                          lap;     /* head, ahead of hdr->head */
    uint32_t                          off;
    uint32_t                          end;     /* of the old lap */
    uint32_t                          want;    /* as published; 0: at rest */
    uint32_t                          granted; /* units the helper leaves */
    uint32_t                          inflight;
    unsigned                          behind:1; /* jumped over the old lap */
} ngx_http_llm_capture_ring_t;


/* the consumer's side: a place to read from */

typedef struct {
    const uint8_t                    *data;
    uint32_t                          size;    /* units */
    uint32_t                          lap;
    uint32_t                          off;
} ngx_http_llm_capture_reader_t;


#define ngx_http_llm_capture_pos(lap, off)                                    \
    (((uint64_t) (lap) << 32) | (uint32_t) (off))

static inline uint32_t
ngx_http_llm_capture_units(size_t n)
{
    return (uint32_t) ((n + NGX_HTTP_LLM_CAPTURE_UNIT - 1)
                       / NGX_HTTP_LLM_CAPTURE_UNIT);
}


/*
 * The caller owns the ring, which is empty.  size: bytes.
 */

void ngx_http_llm_capture_ring_open(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_ring_hdr_t *hdr, uint8_t *data, size_t size);

/*
 * Space for a frame of `want` bytes with its header, or for a first part of
 * it, of at least `min` bytes (*got says how many, a multiple of units).  If
 * a part was given, the rest with one more header will be given too.  NULL:
 * the ring is full; nothing has changed.  Nothing is visible before publish.
 */

ngx_http_llm_capture_frame_t *ngx_http_llm_capture_ring_alloc(
    ngx_http_llm_capture_ring_t *p, size_t min, size_t want, size_t *got);

/* bytes that could be given now, headers included */

size_t ngx_http_llm_capture_ring_room(ngx_http_llm_capture_ring_t *p);

/* bytes between tail and head, as the producer sees them; an upper bound */

size_t ngx_http_llm_capture_ring_used(ngx_http_llm_capture_ring_t *p);

void ngx_http_llm_capture_ring_publish(ngx_http_llm_capture_ring_t *p);


/*
 * Copies the header of the next frame before `head` to *f, sets *at to the
 * offset of the frame in bytes, and steps over it.  Returns 1; 0: no frame
 * left; -1: what stands there is no frame (the ring cannot be read further).
 * A JUMP is returned like any frame.
 */

int ngx_http_llm_capture_ring_read(ngx_http_llm_capture_reader_t *r,
    uint64_t head, ngx_http_llm_capture_frame_t *f, size_t *at);

/*
 * Gives back the pages from `from` (bytes, not below the floor, of pages) to
 * `to` but the one at `read`, unless the producer may be writing there, or has
 * written there behind `read`, the position up to which the caller has read
 * all and needs nothing of these pages.  Returns 1 if it did, 0 if not, -1 on
 * an error of the system (errno).
 */

int ngx_http_llm_capture_ring_punch(ngx_http_llm_capture_ring_hdr_t *hdr,
    uint8_t *data, size_t from, size_t to, uint64_t read);


#endif /* _NGX_HTTP_LLM_CAPTURE_RING_H_INCLUDED_ */
