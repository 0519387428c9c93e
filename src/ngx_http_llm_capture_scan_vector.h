
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The loop of the kernels that have vectors, UTF-8 included.  Prompts are long
 * strings, so what decides the speed is a block inside a string: some loads
 * and compares, on to the next.
 *
 * No interface but a text: a kernel's file defines VECTOR, VECTOR_TARGET (the
 * attribute of each function) and the operations named vector_*, and includes
 * it.  An operation is for each byte, unless it says so.
 *
 *     vector_load(p), vector_set(c)
 *     vector_table(t)        16 bytes, for lookup
 *     vector_lookup(t, v)    t[v] for v below 16
 *     vector_lookup_low(t, v)  t[v % 16] for v below 128, whatever else
 *     vector_half(v)         v / 16
 *     vector_or, _and, _xor, _eq, _min, _subs (not below 0)
 *     vector_any(v)          is a bit of it set?
 *     vector_mask(v)         of a whole block: the uppermost bit of each byte
 */


#define VECTORS  (NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK / sizeof(VECTOR))

#define ngx_http_llm_capture_vector                                           \
    static inline VECTOR_TARGET __attribute__((always_inline))

/* room for the bytes before a block that is copied */
#define NGX_HTTP_LLM_CAPTURE_SCAN_PAD  32


/*
 * UTF-8 after J. Keiser and D. Lemire, "Validating UTF-8 in less than one
 * instruction per byte": three looked up sets of errors, by the halves of the
 * byte before and the upper half of this one, have a member in common where a
 * pair of bytes is wrong; ERR_CONTS is one only if no lead two or three bytes
 * back asks for it.  The sets:
 */

#define ERR_SHORT       0x01    /* a lead, and no continuation */
#define ERR_LONG        0x02    /* ASCII, and a continuation */
#define ERR_OVER3       0x04
#define ERR_LARGE       0x08    /* above U+10FFFF */
#define ERR_SURROGATE   0x10
#define ERR_OVER2       0x20
#define ERR_OVER4       0x40
#define ERR_LARGE8      0x40    /* F5.. 80..8F, shares a bit: other leads */
#define ERR_CONTS       0x80
#define ERR_ANY         (ERR_SHORT | ERR_LONG | ERR_CONTS)
#define ERR_CONT        (ERR_LONG | ERR_OVER2 | ERR_CONTS)

static const uint8_t  ngx_http_llm_capture_vector_first[16] = {
    ERR_LONG, ERR_LONG, ERR_LONG, ERR_LONG,
    ERR_LONG, ERR_LONG, ERR_LONG, ERR_LONG,
    ERR_CONTS, ERR_CONTS, ERR_CONTS, ERR_CONTS,
    ERR_SHORT | ERR_OVER2,
    ERR_SHORT,
    ERR_SHORT | ERR_OVER3 | ERR_SURROGATE,
    ERR_SHORT | ERR_LARGE | ERR_LARGE8 | ERR_OVER4
};

static const uint8_t  ngx_http_llm_capture_vector_low[16] = {
    ERR_ANY | ERR_OVER2 | ERR_OVER3 | ERR_OVER4,
    ERR_ANY | ERR_OVER2,
    ERR_ANY,
    ERR_ANY,
    ERR_ANY | ERR_LARGE,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8 | ERR_SURROGATE,
    ERR_ANY | ERR_LARGE | ERR_LARGE8,
    ERR_ANY | ERR_LARGE | ERR_LARGE8
};

static const uint8_t  ngx_http_llm_capture_vector_second[16] = {
    ERR_SHORT, ERR_SHORT, ERR_SHORT, ERR_SHORT,
    ERR_SHORT, ERR_SHORT, ERR_SHORT, ERR_SHORT,
    ERR_CONT | ERR_OVER3 | ERR_LARGE8 | ERR_OVER4,
    ERR_CONT | ERR_OVER3 | ERR_LARGE,
    ERR_CONT | ERR_SURROGATE | ERR_LARGE,
    ERR_CONT | ERR_SURROGATE | ERR_LARGE,
    ERR_SHORT, ERR_SHORT, ERR_SHORT, ERR_SHORT
};

/* a byte is white space if the table has it at its lower half */

static const uint8_t  ngx_http_llm_capture_vector_spaces[16] = {
    ' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t', '\n', 0, 0, '\r', 0, 0
};


ngx_http_llm_capture_vector VECTOR
ngx_http_llm_capture_vector_special(VECTOR v)
{
    return vector_or(vector_or(vector_eq(v, vector_set('"')),
                               vector_eq(v, vector_set('\\'))),
                     vector_eq(vector_min(v, vector_set(0x1f)), v));
}


ngx_http_llm_capture_vector VECTOR
ngx_http_llm_capture_vector_space(VECTOR v)
{
    return vector_eq(v, vector_lookup_low(
                         vector_table(ngx_http_llm_capture_vector_spaces), v));
}


ngx_http_llm_capture_vector VECTOR
ngx_http_llm_capture_vector_eol(VECTOR v)
{
    return vector_or(vector_eq(v, vector_set('\n')),
                     vector_eq(v, vector_set('\r')));
}


/* reads from p - 3 on; not 0 in each byte where a sequence is wrong */

ngx_http_llm_capture_vector VECTOR
ngx_http_llm_capture_vector_utf8(const uint8_t *p)
{
    VECTOR  v, p1, p2, p3, a, b, c, must;

    v = vector_load(p);
    p1 = vector_load(p - 1);
    p2 = vector_load(p - 2);
    p3 = vector_load(p - 3);

    a = vector_lookup(vector_table(ngx_http_llm_capture_vector_first),
                      vector_half(p1));
    b = vector_lookup(vector_table(ngx_http_llm_capture_vector_low),
                      vector_and(p1, vector_set(0x0f)));
    c = vector_lookup(vector_table(ngx_http_llm_capture_vector_second),
                      vector_half(v));

    must = vector_or(vector_subs(p2, vector_set(0xe0 - 0x80)),
                     vector_subs(p3, vector_set(0xf0 - 0x80)));
    must = vector_and(must, vector_set(0x80));

    return vector_xor(must, vector_and(vector_and(a, b), c));
}


/* bit i: byte i of the block is wrong behind those before it */

ngx_http_llm_capture_vector uint64_t
ngx_http_llm_capture_vector_wrong(const uint8_t *p)
{
    size_t  i;
    VECTOR  e[VECTORS], all;

    all = vector_set(0);

    for (i = 0; i < VECTORS; i++) {
        e[i] = ngx_http_llm_capture_vector_utf8(p + i * sizeof(VECTOR));
        all = vector_or(all, e[i]);
    }

    if (!vector_any(all)) {
        return 0;
    }

    for (i = 0; i < VECTORS; i++) {
        e[i] = vector_eq(e[i], vector_set(0));
    }

    return ~vector_mask(e);
}


/* the last three bytes of the body, behind a piece that begins at p */

static void
ngx_http_llm_capture_vector_last(ngx_http_llm_capture_scan_t *s,
    const uint8_t *p, size_t n)
{
    size_t  keep;

    keep = n < sizeof(s->last) ? n : sizeof(s->last);

    memmove(s->last, s->last + keep, sizeof(s->last) - keep);
    memcpy(s->last + sizeof(s->last) - keep, p + n - keep, keep);
}


/* where the bytes before the block do not stand before it, or it is short */

static VECTOR_TARGET __attribute__((noinline)) uint64_t
ngx_http_llm_capture_vector_edge(const ngx_http_llm_capture_scan_t *s,
    const uint8_t *start, const uint8_t *p, size_t n)
{
    size_t    i;
    uint8_t   copy[NGX_HTTP_LLM_CAPTURE_SCAN_PAD
                   + NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK];
    uint64_t  wrong;
    uint8_t  *block;

    block = copy + NGX_HTTP_LLM_CAPTURE_SCAN_PAD;

    /* a block begins where its piece does, or 64 bytes and more behind */

    for (i = 1; i <= sizeof(s->last); i++) {
        *(block - i) = (p == start) ? s->last[sizeof(s->last) - i] : *(p - i);
    }

    ngx_http_llm_capture_scan_copy(block, p, n);

    wrong = ngx_http_llm_capture_vector_wrong(block);

    return wrong & (~UINT64_C(0) >> (NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK - n));
}


ngx_http_llm_capture_vector void
ngx_http_llm_capture_vector_feed(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    size_t                             i, len, all;
    VECTOR                             v[VECTORS], hit[VECTORS];
    uint8_t                            copy[NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK];
    uint64_t                           open, wrong;
    const uint8_t                     *start, *block;
    ngx_http_llm_capture_scan_block_t  m;

    start = p;
    all = n;

    /* not 0: a sequence may be open where the block begins */
    open = (s->last[0] | s->last[1] | s->last[2]) & 0x80;

    for ( /* void */ ; n; p += len, n -= len) {

        if (n >= NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK) {
            len = NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK;
            block = p;

        } else {
            len = n;
            block = ngx_http_llm_capture_scan_copy(copy, p, n);
        }

        for (i = 0; i < VECTORS; i++) {
            v[i] = vector_load(block + i * sizeof(VECTOR));
        }

        m.high = vector_mask(v);

        if (m.high | open) {
            wrong = (p == start || block != p)
                    ? ngx_http_llm_capture_vector_edge(s, start, p, len)
                    : ngx_http_llm_capture_vector_wrong(p);

            if (wrong) {
                ngx_http_llm_capture_scan_wrong(s, p,
                                          (size_t) __builtin_ctzll(wrong));
                return;
            }

            open = m.high
                   >> (NGX_HTTP_LLM_CAPTURE_SCAN_BLOCK - sizeof(s->last));
        }

        for (i = 0; i < VECTORS; i++) {
            hit[i] = ngx_http_llm_capture_vector_special(v[i]);
        }

        m.special = vector_mask(hit);

        if (m.special || !ngx_http_llm_capture_scan_plain(s)) {

            for (i = 0; i < VECTORS; i++) {
                hit[i] = ngx_http_llm_capture_vector_space(v[i]);
            }

            m.space = vector_mask(hit);

            for (i = 0; i < VECTORS; i++) {
                hit[i] = ngx_http_llm_capture_vector_eol(v[i]);
            }

            m.eol = vector_mask(hit);

            ngx_http_llm_capture_scan_walk(s, p, len, &m);

            if (s->verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
                return;
            }
        }

        s->total += len;
    }

    ngx_http_llm_capture_vector_last(s, start, all);
}
