
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The walk: JSON's grammar as a machine that can stop before any byte.  A
 * label is a state; running out of bytes saves it, the next call jumps there.
 * Gotos, because a state that is a place in the code is predicted much better
 * than one behind a common switch.
 *
 * UTF-8 is not looked at here: the kernel checks all bytes, and
 * beyond ASCII the grammar has no byte outside strings.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include <string.h>

#include "ngx_http_llm_capture_scan.h"
#include "ngx_http_llm_capture_scan_kernel.h"


#define NGX_HTTP_LLM_CAPTURE_NO_MATCH  0xff


/* what stands behind the backslash -> the character; 'u' is itself */

static const uint8_t  ngx_http_llm_capture_escapes[256] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f',
    ['n'] = '\n', ['r'] = '\r', ['t'] = '\t', ['u'] = 'u'
};


/* hex digit -> value + 1 */

static const uint8_t  ngx_http_llm_capture_hex[256] = {
    ['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5, ['5'] = 6,
    ['6'] = 7, ['7'] = 8, ['8'] = 9, ['9'] = 10,
    ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16
};


static const char  ngx_http_llm_capture_messages[] = "messages";
static const char  ngx_http_llm_capture_model[] = "model";


/* the next byte from i on that is no whitespace, or n */

static inline size_t
ngx_http_llm_capture_scan_next(uint8_t *p, size_t i, size_t n,
    const ngx_http_llm_capture_scan_block_t *m)
{
    size_t    k;
    uint64_t  from, bits;

    if (i == n) {
        return n;
    }

    from = ~UINT64_C(0) << i;
    bits = ~m->space & from;
    k = bits ? (size_t) __builtin_ctzll(bits) : n;

    if (k == i) {
        return k;
    }

    for (bits = m->eol & from; bits; bits &= bits - 1) {
        i = (size_t) __builtin_ctzll(bits);

        if (i >= k) {
            break;
        }

        p[i] = ' ';
    }

    return k;
}


/* the end of a run of digits; eight at once, their count is hard to predict */

static inline size_t
ngx_http_llm_capture_scan_digits(const uint8_t *p, size_t i, size_t n)
{
    uint64_t  w, bits;

    while (n - i >= sizeof(w)) {
        w = ngx_http_llm_capture_scan_word(p + i);

        /*
         * a digit is 3 above and at most 9 below, where 6 more carry nothing;
         * a carry out of a byte reaches only those behind the first no-digit
         */

        bits = (w ^ ngx_http_llm_capture_scan_each(0x30))
               | ((w + ngx_http_llm_capture_scan_each(0x06))
                  ^ ngx_http_llm_capture_scan_each(0x30));
        bits &= ngx_http_llm_capture_scan_each(0xf0);

        if (bits) {
            return i + (size_t) __builtin_ctzll(bits) / 8;
        }

        i += sizeof(w);
    }

    while (i < n && (uint8_t) (p[i] - '0') < 10) {
        i++;
    }

    return i;
}


/*
 * Nearly all numbers: digits, perhaps a fraction, and the byte behind them, in
 * one block.  So few digits without an exponent cannot overflow.  Returns the
 * end; 0: not so, or none.
 */

static inline size_t
ngx_http_llm_capture_scan_short(const uint8_t *p, size_t i, size_t n)
{
    size_t  start;

    if (p[i] == '-') {
        i++;
    }

    start = i;
    i = ngx_http_llm_capture_scan_digits(p, i, n);

    if (i == start || i == n || (p[start] == '0' && i - start > 1)) {
        return 0;
    }

    if (p[i] == '.') {
        start = ++i;
        i = ngx_http_llm_capture_scan_digits(p, i, n);

        if (i == start || i == n) {
            return 0;
        }
    }

    return ((p[i] | 0x20) == 'e') ? 0 : i;
}


/* bytes of a key that matched, with the next one */

static inline uint8_t
ngx_http_llm_capture_scan_matched(uint8_t match, uint8_t c, const char *key,
    size_t len)
{
    return match < len && c == (uint8_t) key[match]
           ? (uint8_t) (match + 1) : NGX_HTTP_LLM_CAPTURE_NO_MATCH;
}


static void
ngx_http_llm_capture_scan_match(ngx_http_llm_capture_scan_t *s,
    const uint8_t *p, size_t n)
{
    for ( /* void */ ; n; p++, n--) {
        s->match = ngx_http_llm_capture_scan_matched(s->match, *p,
                             ngx_http_llm_capture_messages,
                             sizeof(ngx_http_llm_capture_messages) - 1);
        s->other = ngx_http_llm_capture_scan_matched(s->other, *p,
                             ngx_http_llm_capture_model,
                             sizeof(ngx_http_llm_capture_model) - 1);

        if (s->match == NGX_HTTP_LLM_CAPTURE_NO_MATCH
            && s->other == NGX_HTTP_LLM_CAPTURE_NO_MATCH)
        {
            return;
        }
    }
}


static void
ngx_http_llm_capture_scan_hit(ngx_http_llm_capture_scan_t *s)
{
    s->track = 0;
    s->hit = 0;

    if (s->match == sizeof(ngx_http_llm_capture_messages) - 1) {
        s->hit = NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES;

    } else if (s->other == sizeof(ngx_http_llm_capture_model) - 1) {
        s->hit = NGX_HTTP_LLM_CAPTURE_SCAN_MODEL;
    }
}


/* four digits at once; 0: one of them is none, and unit is left alone */

static inline int
ngx_http_llm_capture_scan_hex4(const uint8_t *p, uint16_t *unit)
{
    unsigned  a, b, c, d;

    a = ngx_http_llm_capture_hex[p[0]];
    b = ngx_http_llm_capture_hex[p[1]];
    c = ngx_http_llm_capture_hex[p[2]];
    d = ngx_http_llm_capture_hex[p[3]];

    if (a == 0 || b == 0 || c == 0 || d == 0) {
        return 0;
    }

    *unit = (uint16_t) ((a - 1) << 12 | (b - 1) << 8 | (c - 1) << 4 | (d - 1));

    return 1;
}


/* a \uXXXX is complete; what must follow it, or an error below 0 */

static int
ngx_http_llm_capture_scan_unit(ngx_http_llm_capture_scan_t *s)
{
    uint8_t  c;

    if (s->surrogate) {
        s->surrogate = 0;
        s->match = NGX_HTTP_LLM_CAPTURE_NO_MATCH;
        s->other = NGX_HTTP_LLM_CAPTURE_NO_MATCH;

        return (s->unit & 0xfc00) == 0xdc00
               ? NGX_HTTP_LLM_CAPTURE_SCAN_AT_STRING : -1;
    }

    if ((s->unit & 0xf800) == 0xd800) {
        s->surrogate = 1;
        return (s->unit & 0x0400)
               ? -1 : NGX_HTTP_LLM_CAPTURE_SCAN_AT_PAIR_BACKSLASH;
    }

    if (s->track) {
        c = s->unit < 0x80 ? (uint8_t) s->unit : 0;
        ngx_http_llm_capture_scan_match(s, &c, 1);
    }

    return NGX_HTTP_LLM_CAPTURE_SCAN_AT_STRING;
}


/* an object's key begins at the offset */

static inline void
ngx_http_llm_capture_scan_top_key(ngx_http_llm_capture_scan_t *s,
    uint64_t offset)
{
    if (!s->members) {
        s->members = 1;
        s->head = offset;
    }

    s->track = s->flags;
    s->match = 0;
    s->other = 0;
}


/* the value of a key that is looked for begins with c, at the offset */

static inline void
ngx_http_llm_capture_scan_value(ngx_http_llm_capture_scan_t *s, uint8_t c,
    uint64_t offset)
{
    if (s->hit == NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES) {
        s->messages = (c == '[');

    } else {
        s->model = (c == '"') ? offset + 1 : 0;
    }

    s->hit = 0;
}


#define ngx_http_llm_capture_scan_stop(at)                                    \
    do { s->state = NGX_HTTP_LLM_CAPTURE_SCAN_AT_##at; goto save; } while (0)

#define ngx_http_llm_capture_scan_resume(at, label)                           \
    case NGX_HTTP_LLM_CAPTURE_SCAN_AT_##at: goto label

#define ngx_http_llm_capture_scan_refuse(why)                                 \
    do { s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_##why; return; } while (0)


void
ngx_http_llm_capture_scan_walk(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n, const ngx_http_llm_capture_scan_block_t *m)
{
    size_t       i, k;
    uint8_t      c, object;
    uint64_t     bits, bit;
    unsigned     depth;
    const char  *literal;

    i = 0;
    depth = s->depth;
    object = s->object;

    switch (s->state) {
    ngx_http_llm_capture_scan_resume(STRING, string);
    ngx_http_llm_capture_scan_resume(ESCAPE, escape);
    ngx_http_llm_capture_scan_resume(HEX, hex);
    ngx_http_llm_capture_scan_resume(PAIR_BACKSLASH, pair_backslash);
    ngx_http_llm_capture_scan_resume(PAIR_U, pair_u);
    ngx_http_llm_capture_scan_resume(TOP, top);
    ngx_http_llm_capture_scan_resume(FIRST_KEY, first_key);
    ngx_http_llm_capture_scan_resume(KEY, key);
    ngx_http_llm_capture_scan_resume(COLON, colon);
    ngx_http_llm_capture_scan_resume(FIRST_ITEM, first_item);
    ngx_http_llm_capture_scan_resume(VALUE, value);
    ngx_http_llm_capture_scan_resume(AFTER, after);
    ngx_http_llm_capture_scan_resume(NUMBER, number);
    ngx_http_llm_capture_scan_resume(LITERAL, literal);
    default: goto done;
    }

top:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(TOP);
    }

    s->lead = s->total + i;
    s->top = (p[i] == '{');

    goto value;

first_item:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(FIRST_ITEM);
    }

    if (p[i] == ']') {
        i++;
        goto pop;
    }

value:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(VALUE);
    }

    c = p[i];

    if (s->hit) {
        ngx_http_llm_capture_scan_value(s, c, s->total + i);
    }

    if (c == '"') {
        i++;
        s->key = 0;
        goto string;
    }

    if ((uint8_t) (c - '0') < 10 || c == '-') {
        k = ngx_http_llm_capture_scan_short(p, i, n);

        if (k) {
            i = k;
            goto after;
        }

        ngx_http_llm_capture_number_init(&s->number);
        goto number;
    }

    switch (c) {

    case '{':
    case '[':
        if (depth == s->max_depth) {
            ngx_http_llm_capture_scan_refuse(DEPTH);
        }

        i++;
        object = (c == '{');
        bit = UINT64_C(1) << (depth % 64);
        s->stack[depth / 64] &= ~bit;
        s->stack[depth / 64] |= object ? bit : 0;
        depth++;

        if (object) {
            goto first_key;
        }

        goto first_item;

    case 't':
        literal = "true";
        goto literal_more;

    case 'f':
        literal = "false";
        goto literal_more;

    case 'n':
        literal = "null";
        goto literal_more;

    default:
        ngx_http_llm_capture_scan_refuse(JSON);
    }

first_key:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(FIRST_KEY);
    }

    if (p[i] == '}') {
        i++;
        goto pop;
    }

key:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(KEY);
    }

    if (p[i] != '"') {
        ngx_http_llm_capture_scan_refuse(JSON);
    }

    if (depth == 1) {
        ngx_http_llm_capture_scan_top_key(s, s->total + i);
    }

    i++;
    s->key = 1;

string:

    if (i == n) {
        ngx_http_llm_capture_scan_stop(STRING);
    }

    bits = m->special & (~UINT64_C(0) << i);
    k = bits ? (size_t) __builtin_ctzll(bits) : n;

    if (s->track) {
        ngx_http_llm_capture_scan_match(s, p + i, k - i);
    }

    i = k;

    if (i == n) {
        ngx_http_llm_capture_scan_stop(STRING);
    }

    c = p[i++];

    if (c == '"') {
        if (!s->key) {
            goto after;
        }

        if (s->track) {
            ngx_http_llm_capture_scan_hit(s);
        }

        goto colon;
    }

    if (c != '\\') {
        ngx_http_llm_capture_scan_refuse(JSON);
    }

escape:

    if (i == n) {
        ngx_http_llm_capture_scan_stop(ESCAPE);
    }

    c = ngx_http_llm_capture_escapes[p[i++]];

    if (c == 0) {
        ngx_http_llm_capture_scan_refuse(JSON);
    }

    if (c != 'u') {
        if (s->track) {
            ngx_http_llm_capture_scan_match(s, &c, 1);
        }

        goto string;
    }

unit:

    s->left = 4;
    s->unit = 0;

    if (n - i >= 4 && ngx_http_llm_capture_scan_hex4(p + i, &s->unit)) {
        s->left = 0;
        i += 4;
    }

hex:

    for ( /* void */ ; s->left; s->left--) {
        if (i == n) {
            ngx_http_llm_capture_scan_stop(HEX);
        }

        c = ngx_http_llm_capture_hex[p[i++]];

        if (c == 0) {
            ngx_http_llm_capture_scan_refuse(JSON);
        }

        s->unit = (uint16_t) (s->unit << 4 | (c - 1));
    }

    switch (ngx_http_llm_capture_scan_unit(s)) {

    case NGX_HTTP_LLM_CAPTURE_SCAN_AT_STRING:
        goto string;

    case NGX_HTTP_LLM_CAPTURE_SCAN_AT_PAIR_BACKSLASH:
        break;

    default:
        ngx_http_llm_capture_scan_refuse(UTF8);
    }

pair_backslash:

    if (i == n) {
        ngx_http_llm_capture_scan_stop(PAIR_BACKSLASH);
    }

    if (p[i++] != '\\') {
        ngx_http_llm_capture_scan_refuse(UTF8);
    }

pair_u:

    if (i == n) {
        ngx_http_llm_capture_scan_stop(PAIR_U);
    }

    if (p[i++] != 'u') {
        ngx_http_llm_capture_scan_refuse(UTF8);
    }

    goto unit;

colon:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(COLON);
    }

    if (p[i++] != ':') {
        ngx_http_llm_capture_scan_refuse(JSON);
    }

    goto value;

number:

    i += ngx_http_llm_capture_number_feed(&s->number, p + i, n - i);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(NUMBER);
    }

    s->verdict = ngx_http_llm_capture_scan_number(s);

    if (s->verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        return;
    }

    goto after;

literal:

    literal = s->literal;

literal_more:

    for ( /* void */ ; *literal; literal++) {
        if (i == n) {
            s->literal = literal;
            ngx_http_llm_capture_scan_stop(LITERAL);
        }

        if (p[i++] != (uint8_t) *literal) {
            ngx_http_llm_capture_scan_refuse(JSON);
        }
    }

    goto after;

pop:

    depth--;

    if (depth) {
        object = s->stack[(depth - 1) / 64] >> ((depth - 1) % 64) & 1;
    }

after:

    if (depth == 0) {
        s->tail = s->total + i;
        goto done;
    }

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(AFTER);
    }

    c = p[i++];

    if (c == ',') {
        if (object) {
            goto key;
        }

        goto value;
    }

    if (c == (object ? '}' : ']')) {
        goto pop;
    }

    ngx_http_llm_capture_scan_refuse(JSON);

done:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i < n) {
        ngx_http_llm_capture_scan_refuse(JSON);
    }

    ngx_http_llm_capture_scan_stop(DONE);

save:

    s->depth = (uint16_t) depth;
    s->object = object;
}
