
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>

#include "ngx_http_llm_capture_record.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif


/* a length in a frame has 32 bits */
#define NGX_HTTP_LLM_CAPTURE_MAX_FRAME  (1024 * 1024 * 1024)
/* bytes of the body that make a part of a split frame worth its header */
#define NGX_HTTP_LLM_CAPTURE_MIN_PART   64
/* bytes from which on going past the caches pays */
#define NGX_HTTP_LLM_CAPTURE_STREAM     8192


typedef struct {
    const struct iovec  *iov;
    unsigned             n;
    size_t               done;      /* bytes of iov[0] already copied */
} ngx_http_llm_capture_source_t;


#ifdef __SSE2__

/*
 * Past the caches: a line of the ring was last read by the helper, and would
 * be fetched from its processor only to be overwritten; nor does this one read
 * it again.  In whole lines, and done when it returns: a release store would
 * not wait for such stores.
 */

static void
ngx_http_llm_capture_record_stream(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t   head;
    __m128i  a, b, c, d;

    head = -(uintptr_t) dst % 64;
    memcpy(dst, src, head);

    for (dst += head, src += head, n -= head;
         n >= 64;
         dst += 64, src += 64, n -= 64)
    {
        a = _mm_loadu_si128((const __m128i *) src);
        b = _mm_loadu_si128((const __m128i *) (src + 16));
        c = _mm_loadu_si128((const __m128i *) (src + 32));
        d = _mm_loadu_si128((const __m128i *) (src + 48));

        _mm_stream_si128((__m128i *) dst, a);
        _mm_stream_si128((__m128i *) (dst + 16), b);
        _mm_stream_si128((__m128i *) (dst + 32), c);
        _mm_stream_si128((__m128i *) (dst + 48), d);
    }

    memcpy(dst, src, n);
    _mm_sfence();
}

#endif


static void
ngx_http_llm_capture_record_move(uint8_t *dst, const uint8_t *src, size_t n)
{
#ifdef __SSE2__
    if (n >= NGX_HTTP_LLM_CAPTURE_STREAM) {
        ngx_http_llm_capture_record_stream(dst, src, n);
        return;
    }
#endif

    memcpy(dst, src, n);
}


static void
ngx_http_llm_capture_record_copy(ngx_http_llm_capture_source_t *src,
    uint8_t *dst, size_t len)
{
    size_t  n;

    while (len) {
        n = src->iov->iov_len - src->done;

        if (n > len) {
            n = len;
        }

        if (n) {
            ngx_http_llm_capture_record_move(dst,
                                   (uint8_t *) src->iov->iov_base + src->done,
                                   n);
        }

        dst += n;
        len -= n;
        src->done += n;

        if (src->done == src->iov->iov_len && src->n > 1) {
            src->iov++;
            src->n--;
            src->done = 0;
        }
    }
}


static size_t
ngx_http_llm_capture_record_extra(ngx_http_llm_capture_record_t *rec)
{
    return rec->begun ? 0 : sizeof(ngx_http_llm_capture_begin_t)
                            + rec->begin.path_len + rec->begin.session_len;
}


int
ngx_http_llm_capture_record_put(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_record_t *rec, const struct iovec *iov, unsigned n,
    unsigned flags)
{
    size_t                         left, extra, want, min, got, len;
    uint8_t                       *dst;
    unsigned                       i, ended;
    ngx_http_llm_capture_frame_t  *f;
    ngx_http_llm_capture_source_t  src;

    left = 0;

    for (i = 0; i < n; i++) {
        left += iov[i].iov_len;
    }

    if (left == 0 && flags == 0 && rec->begun) {
        return 0;
    }

    src.iov = iov;
    src.n = n;
    src.done = 0;

    ended = 0;

    do {
        extra = ngx_http_llm_capture_record_extra(rec);
        len = left < NGX_HTTP_LLM_CAPTURE_MAX_FRAME
              ? left : NGX_HTTP_LLM_CAPTURE_MAX_FRAME;

        want = sizeof(ngx_http_llm_capture_frame_t) + extra + len;
        min = want - len + (len < NGX_HTTP_LLM_CAPTURE_MIN_PART
                            ? len : NGX_HTTP_LLM_CAPTURE_MIN_PART);

        /* the unit kept for the END of this upload is now spent or begun */

        p->inflight += !rec->begun;

        if (flags && len == left) {
            p->inflight--;
            ended = 1;
        }

        f = ngx_http_llm_capture_ring_alloc(p, min, want, &got);

        if (f == NULL) {
            p->inflight += ended;
            p->inflight -= !rec->begun;
            return -1;
        }

        if (len > got - sizeof(ngx_http_llm_capture_frame_t) - extra) {
            len = got - sizeof(ngx_http_llm_capture_frame_t) - extra;
            p->inflight += ended;
            ended = 0;
        }

        f->size = (uint32_t) got;
        f->flags = (uint16_t) ((rec->begun ? 0 : NGX_HTTP_LLM_CAPTURE_BEGIN)
                               | (ended ? NGX_HTTP_LLM_CAPTURE_END : 0));
        f->why = 0;
        f->len = (uint32_t) len;
        f->mark = 0;
        f->id = rec->id;
        f->off = rec->off;

        dst = (uint8_t *) (f + 1);

        if (extra) {
            memcpy(dst, &rec->begin, sizeof(ngx_http_llm_capture_begin_t));
            dst += sizeof(ngx_http_llm_capture_begin_t);

            memcpy(dst, rec->path, rec->begin.path_len);
            dst += rec->begin.path_len;

            if (rec->begin.session_len) {
                memcpy(dst, rec->session, rec->begin.session_len);
                dst += rec->begin.session_len;
            }
        }

        ngx_http_llm_capture_record_copy(&src, dst, len);

        rec->begun = 1;
        rec->off += len;
        left -= len;

    } while (left || (flags && !ended));

    return 0;
}


void
ngx_http_llm_capture_record_abort(ngx_http_llm_capture_ring_t *p,
    ngx_http_llm_capture_record_t *rec, ngx_http_llm_capture_counter_e why)
{
    size_t                         got;
    ngx_http_llm_capture_frame_t  *f;

    p->inflight--;

    f = ngx_http_llm_capture_ring_alloc(p, sizeof(ngx_http_llm_capture_frame_t),
                                        sizeof(ngx_http_llm_capture_frame_t),
                                        &got);
    if (f == NULL) {
        /* only memory that another process spoiled gets here */
        return;
    }

    memset(f, 0, sizeof(ngx_http_llm_capture_frame_t));

    f->size = (uint32_t) got;
    f->flags = NGX_HTTP_LLM_CAPTURE_ABORT;
    f->why = (uint16_t) why;
    f->id = rec->id;
    f->off = rec->off;
}


size_t
ngx_http_llm_capture_record_size(size_t len, size_t names, size_t calls)
{
    return len + names + sizeof(ngx_http_llm_capture_begin_t)
           + (calls + 2) * 2 * NGX_HTTP_LLM_CAPTURE_UNIT;
}


int
ngx_http_llm_capture_record_parse(const uint8_t *at,
    const ngx_http_llm_capture_frame_t *f, ngx_http_llm_capture_begin_t *begin,
    const char **path, uint32_t *body)
{
    size_t  extra;

    extra = 0;

    if (f->flags & NGX_HTTP_LLM_CAPTURE_BEGIN) {
        extra = sizeof(ngx_http_llm_capture_begin_t);

        if (f->size < sizeof(ngx_http_llm_capture_frame_t) + extra) {
            return -1;
        }

        memcpy(begin, at + sizeof(ngx_http_llm_capture_frame_t), extra);

        if ((begin->path_len == 0
             && !(begin->flags & NGX_HTTP_LLM_CAPTURE_MISSED))
            || begin->path_len >= NGX_HTTP_LLM_CAPTURE_PATH
            || begin->session_len > NGX_HTTP_LLM_CAPTURE_SPEC
            || begin->format > NGX_HTTP_LLM_CAPTURE_OUTCOMES
            || (begin->format == NGX_HTTP_LLM_CAPTURE_OUTCOMES)
               != (f->id >= NGX_HTTP_LLM_CAPTURE_ID_OUTCOME)
            || f->off != 0)
        {
            return -1;
        }

        *path = (const char *) at + sizeof(ngx_http_llm_capture_frame_t)
                + extra;
        extra += begin->path_len + begin->session_len;
    }

    *body = (uint32_t) (sizeof(ngx_http_llm_capture_frame_t) + extra);

    if (*body > f->size || f->len > f->size - *body) {
        return -1;
    }

    return 0;
}
