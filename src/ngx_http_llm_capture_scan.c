
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The walk: JSON's grammar as a machine that can stop before any byte.  A
 * label is a state; running out of bytes saves it, the next call jumps there.
 * Gotos, because a state that is a place in the code is predicted much better
 * than one behind a common switch.
 *
 * UTF-8 is not looked at here: the kernel (block.c) checks all bytes, and
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
#include "ngx_http_llm_capture_block.h"


typedef enum {
    st_string = NGX_HTTP_LLM_CAPTURE_SCAN_STRING,
    st_escape,
    st_hex,
    st_pair_backslash,
    st_pair_u,
    st_top,
    st_first_key,
    st_key,
    st_colon,
    st_first_item,
    st_value,
    st_after,
    st_number,
    st_literal,
    st_done
} ngx_http_llm_capture_scan_state_e;


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


void
ngx_http_llm_capture_scan_init(ngx_http_llm_capture_scan_t *s,
    unsigned max_depth, unsigned flags)
{
    memset(s, 0, sizeof(ngx_http_llm_capture_scan_t));

    if (max_depth > NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT) {
        max_depth = NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT;
    }

    s->max_depth = (uint16_t) max_depth;
    s->flags = (uint8_t) flags;
    s->state = st_top;
}


ngx_http_llm_capture_verdict_t
ngx_http_llm_capture_scan_feed(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n)
{
    if (s->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK && n) {
        ngx_http_llm_capture_kernel_feed(s, p, n);
    }

    return s->verdict;
}


static ngx_http_llm_capture_verdict_t
ngx_http_llm_capture_scan_number(const ngx_http_llm_capture_scan_t *s)
{
    switch (ngx_http_llm_capture_number_end(&s->number)) {

    case NGX_HTTP_LLM_CAPTURE_NUMBER_OK:
        return NGX_HTTP_LLM_CAPTURE_SCAN_OK;

    case NGX_HTTP_LLM_CAPTURE_NUMBER_OVERFLOW:
        return NGX_HTTP_LLM_CAPTURE_SCAN_NUMBER;

    default:
        return NGX_HTTP_LLM_CAPTURE_SCAN_JSON;
    }
}


ngx_http_llm_capture_verdict_t
ngx_http_llm_capture_scan_end(ngx_http_llm_capture_scan_t *s)
{
    if (s->verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        return s->verdict;
    }

    /* a number that is all of the body ends with it */

    if (s->state == st_number && s->depth == 0) {
        s->verdict = ngx_http_llm_capture_scan_number(s);

        if (s->verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
            s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_NOT_OBJECT;
        }

        return s->verdict;
    }

    if (s->state != st_done) {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_JSON;

    } else if (!s->top) {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_NOT_OBJECT;

    } else if (!s->members) {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_EMPTY;

    } else if ((s->flags & NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES)
               && !s->messages)
    {
        s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_NO_MESSAGES;
    }

    return s->verdict;
}


/* the next byte from i on that is no whitespace, or n */

static inline size_t
ngx_http_llm_capture_scan_next(uint8_t *p, size_t i, size_t n,
    const ngx_http_llm_capture_block_t *m)
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


/*
 * Nearly all numbers: digits, perhaps a fraction, and the byte behind them, in
 * one block.  So few digits without an exponent cannot overflow.  Returns the
 * end; 0: not so, or none.
 */

static inline size_t
ngx_http_llm_capture_scan_short(const uint8_t *p, size_t i, size_t n)
{
    size_t   start;
    uint8_t  c;

    if (p[i] == '-') {
        i++;
    }

    for (start = i; i < n && (uint8_t) (p[i] - '0') < 10; i++) {
        /* void */
    }

    if (i == start || i == n || (p[start] == '0' && i - start > 1)) {
        return 0;
    }

    c = p[i];

    if (c == '.') {
        for (start = ++i; i < n && (uint8_t) (p[i] - '0') < 10; i++) {
            /* void */
        }

        if (i == start || i == n) {
            return 0;
        }

        c = p[i];
    }

    return (c == 'e' || c == 'E') ? 0 : i;
}


static void
ngx_http_llm_capture_scan_match(ngx_http_llm_capture_scan_t *s,
    const uint8_t *p, size_t n)
{
    for ( /* void */ ; n; p++, n--) {
        if (s->match >= sizeof(ngx_http_llm_capture_messages) - 1
            || *p != (uint8_t) ngx_http_llm_capture_messages[s->match])
        {
            s->match = NGX_HTTP_LLM_CAPTURE_NO_MATCH;
            return;
        }

        s->match++;
    }
}


/* a \uXXXX is complete; what must follow it, or an error below 0 */

static int
ngx_http_llm_capture_scan_unit(ngx_http_llm_capture_scan_t *s)
{
    uint8_t  c;

    if (s->surrogate) {
        s->surrogate = 0;
        s->match = NGX_HTTP_LLM_CAPTURE_NO_MATCH;

        return (s->unit & 0xfc00) == 0xdc00 ? st_string : -1;
    }

    if ((s->unit & 0xf800) == 0xd800) {
        s->surrogate = 1;
        return (s->unit & 0x0400) ? -1 : st_pair_backslash;
    }

    if (s->track) {
        c = s->unit < 0x80 ? (uint8_t) s->unit : 0;
        ngx_http_llm_capture_scan_match(s, &c, 1);
    }

    return st_string;
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

    s->track = s->flags & NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES;
    s->match = 0;
}


#define ngx_http_llm_capture_scan_stop(st)                                    \
    do { s->state = st; goto save; } while (0)

#define ngx_http_llm_capture_scan_refuse(why)                                 \
    do { s->verdict = NGX_HTTP_LLM_CAPTURE_SCAN_##why; return; } while (0)


void
ngx_http_llm_capture_scan_walk(ngx_http_llm_capture_scan_t *s, uint8_t *p,
    size_t n, const ngx_http_llm_capture_block_t *m)
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
    case st_string:          goto string;
    case st_escape:          goto escape;
    case st_hex:             goto hex;
    case st_pair_backslash:  goto pair_backslash;
    case st_pair_u:          goto pair_u;
    case st_top:             goto top;
    case st_first_key:       goto first_key;
    case st_key:             goto key;
    case st_colon:           goto colon;
    case st_first_item:      goto first_item;
    case st_value:           goto value;
    case st_after:           goto after;
    case st_number:          goto number;
    case st_literal:         goto literal;
    default:                 goto done;
    }

top:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_top);
    }

    s->lead = s->total + i;
    s->top = (p[i] == '{');

    goto value;

first_item:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_first_item);
    }

    if (p[i] == ']') {
        i++;
        goto pop;
    }

value:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_value);
    }

    c = p[i];

    if (s->hit) {
        s->hit = 0;
        s->messages = (c == '[');
    }

    switch (c) {

    case '"':
        i++;
        s->key = 0;
        goto string;

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

    case '-':
    case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9':
        k = ngx_http_llm_capture_scan_short(p, i, n);

        if (k) {
            i = k;
            goto after;
        }

        ngx_http_llm_capture_number_init(&s->number);
        goto number;

    default:
        ngx_http_llm_capture_scan_refuse(JSON);
    }

first_key:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_first_key);
    }

    if (p[i] == '}') {
        i++;
        goto pop;
    }

key:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_key);
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
        ngx_http_llm_capture_scan_stop(st_string);
    }

    bits = m->special & (~UINT64_C(0) << i);
    k = bits ? (size_t) __builtin_ctzll(bits) : n;

    if (s->track) {
        ngx_http_llm_capture_scan_match(s, p + i, k - i);
    }

    i = k;

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_string);
    }

    c = p[i++];

    if (c == '"') {
        if (!s->key) {
            goto after;
        }

        if (s->track) {
            s->track = 0;
            s->hit = (s->match == sizeof(ngx_http_llm_capture_messages) - 1);
        }

        goto colon;
    }

    if (c != '\\') {
        ngx_http_llm_capture_scan_refuse(JSON);
    }

escape:

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_escape);
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

hex:

    for ( /* void */ ; s->left; s->left--) {
        if (i == n) {
            ngx_http_llm_capture_scan_stop(st_hex);
        }

        c = ngx_http_llm_capture_hex[p[i++]];

        if (c == 0) {
            ngx_http_llm_capture_scan_refuse(JSON);
        }

        s->unit = (uint16_t) (s->unit << 4 | (c - 1));
    }

    switch (ngx_http_llm_capture_scan_unit(s)) {

    case st_string:
        goto string;

    case st_pair_backslash:
        break;

    default:
        ngx_http_llm_capture_scan_refuse(UTF8);
    }

pair_backslash:

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_pair_backslash);
    }

    if (p[i++] != '\\') {
        ngx_http_llm_capture_scan_refuse(UTF8);
    }

pair_u:

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_pair_u);
    }

    if (p[i++] != 'u') {
        ngx_http_llm_capture_scan_refuse(UTF8);
    }

    goto unit;

colon:

    i = ngx_http_llm_capture_scan_next(p, i, n, m);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_colon);
    }

    if (p[i++] != ':') {
        ngx_http_llm_capture_scan_refuse(JSON);
    }

    goto value;

number:

    i += ngx_http_llm_capture_number_feed(&s->number, p + i, n - i);

    if (i == n) {
        ngx_http_llm_capture_scan_stop(st_number);
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
            ngx_http_llm_capture_scan_stop(st_literal);
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
        ngx_http_llm_capture_scan_stop(st_after);
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

    ngx_http_llm_capture_scan_stop(st_done);

save:

    s->depth = (uint16_t) depth;
    s->object = object;
}
