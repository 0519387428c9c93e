
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The verdict of the scan against that of jansson, which shares nothing with
 * it; every kernel, in pieces that the input chooses.  The input is a body.
 *
 * What the scan adds to the grammar is decided on the tree that jansson makes:
 * its depth, an object, with members, with a list of messages.  Of a body that
 * jansson refuses too only the kind of the fault is left open.
 */

#include "oracle.h"

#include "ngx_http_llm_capture_scan.h"
#include "ngx_http_llm_capture_scan_kernel.h"


#define V(name)  NGX_HTTP_LLM_CAPTURE_SCAN_##name

typedef ngx_http_llm_capture_verdict_t  verdict_t;

typedef struct {
    verdict_t   verdict;
    uint64_t    lead;
    uint64_t    head;
    uint64_t    trail;
    uint64_t    total;
    uint8_t    *bytes;
} result_t;

/* a depth and flags that the product uses */
typedef struct {
    unsigned    depth;
    unsigned    flags;
} scan_mode_t;

static const scan_mode_t  modes[] = {
    { V(WRAPPED), 0 },
    { V(LIMIT), V(MESSAGES) }
};


/* step: bytes of a piece; 0: by seed, of any length and of none */

static void
run(unsigned kernel, const scan_mode_t *mode, const uint8_t *data, size_t size,
    size_t step, uint64_t seed, result_t *r)
{
    size_t                       at, n;
    uint8_t                     *piece;
    ngx_http_llm_capture_scan_t  s;

    (void) ngx_http_llm_capture_scan_kernel_use(kernel);
    ngx_http_llm_capture_scan_init(&s, mode->depth, mode->flags);

    memset(r, 0, sizeof(*r));
    r->bytes = copy(data, size);

    for (at = 0; at < size; at += n) {

        if (step) {
            n = step;

        } else {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            n = (seed >> 33) % ((seed >> 60) < 8 ? 5 : 200);
        }

        if (n > size - at) {
            n = size - at;
        }

        piece = copy(data + at, n);
        r->verdict = ngx_http_llm_capture_scan_feed(&s, piece, n);
        memcpy(r->bytes + at, piece, n);
        free(piece);
    }

    r->verdict = ngx_http_llm_capture_scan_end(&s);
    must(r->verdict == ngx_http_llm_capture_scan_end(&s));

    if (r->verdict == V(OK)) {
        r->lead = ngx_http_llm_capture_scan_lead(&s);
        r->head = ngx_http_llm_capture_scan_head(&s);
        r->trail = ngx_http_llm_capture_scan_trail(&s);
        r->total = ngx_http_llm_capture_scan_total(&s);
    }
}


static void
same(const result_t *a, result_t *b, size_t size)
{
    must(a->verdict == b->verdict);
    must(a->lead == b->lead && a->head == b->head && a->trail == b->trail
         && a->total == b->total);
    must(size == 0 || memcmp(a->bytes, b->bytes, size) == 0);
    free(b->bytes);
}


static verdict_t
verdict_of(json_t *root, unsigned d, const scan_mode_t *mode)
{
    if (d > mode->depth) {
        return V(DEPTH);
    }

    if (!json_is_object(root)) {
        return V(NOT_OBJECT);
    }

    if (json_object_size(root) == 0) {
        return V(EMPTY);
    }

    if ((mode->flags & V(MESSAGES))
        && !json_is_array(json_object_get(root, "messages")))
    {
        return V(NO_MESSAGES);
    }

    return V(OK);
}


static void
refused(verdict_t verdict, const json_error_t *err)
{
    switch (json_error_code(err)) {

    case json_error_out_of_memory:
        return;

    case json_error_stack_overflow:
        must(verdict == V(DEPTH));
        return;

    case json_error_numeric_overflow:
        must(verdict == V(NUMBER) || verdict == V(JSON)
             || verdict == V(DEPTH));
        return;

    default:
        must(verdict == V(JSON) || verdict == V(UTF8) || verdict == V(NUMBER)
             || verdict == V(DEPTH));
    }
}


/* what the writer puts into a line is the body, and one line */

static void
line(const result_t *r, const uint8_t *data, size_t size, json_t *root)
{
    size_t        i, n;
    json_t       *again;
    uint8_t      *text;
    json_error_t  err;

    must(r->total == size && r->lead < r->head && r->head < size
         && r->trail < size - r->head);

    for (i = 0; i < size; i++) {
        must(r->bytes[i] == data[i]
             || (r->bytes[i] == ' ' && (data[i] == '\n' || data[i] == '\r')));
        must(r->bytes[i] != '\n' && r->bytes[i] != '\r');
    }

    must(r->bytes[size - r->trail - 1] == '}');

    n = size - r->trail - r->head + 1;
    text = copy(r->bytes + r->head - 1, n);
    text[0] = '{';

    again = oracle_load(text, n, &err);
    must(again != NULL && json_equal(root, again));

    json_decref(again);
    free(text);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t         i;
    json_t        *root;
    uint64_t       seed;
    unsigned       kernel, m, d;
    result_t       first, other;
    json_error_t   err;

    seed = size;

    for (i = 0; i < size; i++) {
        seed = (seed ^ data[i]) * 1099511628211u;
    }

    root = oracle_load(data, size, &err);
    d = root ? oracle_depth(root) : 0;

    for (m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {

        run(V(PORTABLE), &modes[m], data, size, size ? size : 1, 0, &first);

        for (kernel = V(PORTABLE); kernel <= V(AVX2); kernel++) {

            if (ngx_http_llm_capture_scan_kernel_use(kernel) != kernel) {
                continue;
            }

            run(kernel, &modes[m], data, size, size ? size : 1, 0, &other);
            same(&first, &other, size);
            run(kernel, &modes[m], data, size, 0, seed + kernel, &other);
            same(&first, &other, size);
        }

        if (size < 200) {
            run(seed % (V(AVX2) + 1), &modes[m], data, size, 1, 0, &other);
            same(&first, &other, size);
        }

        if (root) {
            must(first.verdict == verdict_of(root, d, &modes[m]));

        } else {
            refused(first.verdict, &err);
        }

        if (first.verdict == V(OK)) {
            line(&first, data, size, root);
        }

        free(first.bytes);
    }

    json_decref(root);

    return 0;
}
