
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The scan: its verdict on each file of t/data, whole and in pieces, by every
 * kernel, with unreadable pages around each piece; and where numbers, depth,
 * UTF-8 and whitespace have their borders.  That the verdict is orjson's is
 * the matter of t/scan_orjson.t.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include "../../src/ngx_http_llm_capture_scan.h"
#include "../../src/ngx_http_llm_capture_scan_kernel.h"


#define V(name)    NGX_HTTP_LLM_CAPTURE_SCAN_##name
#define WRAPPED    NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED
#define LIMIT      NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT
#define MESSAGES   NGX_HTTP_LLM_CAPTURE_SCAN_MESSAGES

#define ROOM       65536
#define SHORT      1024
#define FILES      162            /* a file that is lost is noticed */

/* where the pieces lie: against the page behind, against the page before */
#define AT_END     0
#define AT_START   1


typedef struct {
    const char                      *prefix;
    ngx_http_llm_capture_verdict_t   wrapped;
    ngx_http_llm_capture_verdict_t   raw;
} rule_t;


typedef struct {
    ngx_http_llm_capture_verdict_t   verdict;
    uint64_t                         lead;
    uint64_t                         head;
    uint64_t                         trail;
    uint64_t                         total;
    uint8_t                          bytes[ROOM];
} result_t;


/* the first that fits; no file without one */

static const rule_t  rules[] = {
    { "valid/depth-", V(OK), V(NO_MESSAGES) },
    { "valid/key-messages-escaped", V(OK), V(OK) },
    { "valid/key-messages-last-list", V(OK), V(OK) },
    { "valid/key-", V(OK), V(NO_MESSAGES) },
    { "valid/number", V(OK), V(NO_MESSAGES) },
    { "valid/escapes", V(OK), V(NO_MESSAGES) },
    { "valid/outer-space", V(OK), V(NO_MESSAGES) },
    { "valid/token-ids", V(OK), V(NO_MESSAGES) },
    { "valid/utf8-", V(OK), V(NO_MESSAGES) },
    { "valid/values", V(OK), V(NO_MESSAGES) },
    { "valid/", V(OK), V(OK) },

    { "invalid/depth-1025", V(DEPTH), V(DEPTH) },
    { "invalid/depth-", V(DEPTH), V(NO_MESSAGES) },
    { "invalid/empty-", V(EMPTY), V(EMPTY) },
    { "invalid/hand-22", V(UTF8), V(UTF8) },
    { "invalid/hand-", V(JSON), V(JSON) },
    { "invalid/number-", V(NUMBER), V(NUMBER) },
    { "invalid/surrogate-", V(UTF8), V(UTF8) },
    { "invalid/top-", V(NOT_OBJECT), V(NOT_OBJECT) },
    { "invalid/utf8-", V(UTF8), V(UTF8) },
    { "invalid/utf16", V(JSON), V(JSON) },
    { "invalid/bom-", V(JSON), V(JSON) },
    { "invalid/space-", V(JSON), V(JSON) },
    { "invalid/syntax-", V(JSON), V(JSON) }
};


/* 2^1024 - 2^970 without its last digit, a 2 */

static const char  border[] =
    "1797693134862315807937289714053034150799341327100378269361737789804449682"
    "9276475094664901797758720709633028641669288791094655554785194040263065748"
    "8671505820681908902000708383676273854845817711531764475730270069855571366"
    "9596228429148198608349364752927190741684443655107043427115596995080930428"
    "8017790417449779";


static uint8_t  *room[2];


static uint8_t *
guarded(void)
{
    long      page;
    uint8_t  *p;

    page = sysconf(_SC_PAGESIZE);

    p = mmap(NULL, ROOM + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
             0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + page, ROOM, PROT_READ | PROT_WRITE), 0);

    return p + page;
}


static void
feed(ngx_http_llm_capture_scan_t *s, unsigned r, unsigned where,
    const uint8_t *from, size_t n, uint8_t *to)
{
    uint8_t  *p;

    p = room[r] + (where == AT_END ? ROOM - n : 0);

    memcpy(p, from, n);
    (void) ngx_http_llm_capture_scan_feed(s, p, n);
    memcpy(to, p, n);
}


static void
finish(ngx_http_llm_capture_scan_t *s, result_t *result)
{
    result->verdict = ngx_http_llm_capture_scan_end(s);
    assert_int_equal(ngx_http_llm_capture_scan_end(s), result->verdict);

    if (result->verdict == V(OK)) {
        result->lead = ngx_http_llm_capture_scan_lead(s);
        result->head = ngx_http_llm_capture_scan_head(s);
        result->trail = ngx_http_llm_capture_scan_trail(s);
        result->total = ngx_http_llm_capture_scan_total(s);
    }
}


/* in two pieces, each against an unreadable page */

static void
two(const void *body, size_t n, size_t cut, unsigned depth, unsigned flags,
    result_t *result)
{
    unsigned                     where;
    const uint8_t               *p;
    ngx_http_llm_capture_scan_t  s;

    p = body;
    where = cut % 2 ? AT_START : AT_END;

    memset(result, 0, offsetof(result_t, bytes));
    ngx_http_llm_capture_scan_init(&s, depth, flags);

    feed(&s, 0, where, p, cut, result->bytes);
    feed(&s, 1, !where, p + cut, n - cut, result->bytes + cut);

    finish(&s, result);
}


static void
bytes(const void *body, size_t n, unsigned depth, unsigned flags,
    result_t *result)
{
    size_t                       i;
    const uint8_t               *p;
    ngx_http_llm_capture_scan_t  s;

    p = body;

    memset(result, 0, offsetof(result_t, bytes));
    ngx_http_llm_capture_scan_init(&s, depth, flags);

    for (i = 0; i < n; i++) {
        feed(&s, i % 2, AT_END, p + i, 1, result->bytes + i);
    }

    finish(&s, result);
}


static void
compare(const char *name, size_t n, const result_t *a, const result_t *b)
{
    if (memcmp(a, b, offsetof(result_t, bytes)) != 0
        || memcmp(a->bytes, b->bytes, n) != 0)
    {
        fail_msg("%s: verdict %d and %d, lead %d and %d, head %d and %d, "
                 "trail %d and %d, bytes %s", name, a->verdict, b->verdict,
                 (int) a->lead, (int) b->lead, (int) a->head, (int) b->head,
                 (int) a->trail, (int) b->trail,
                 memcmp(a->bytes, b->bytes, n) ? "differ" : "same");
    }
}


/* every kernel, whole, in two at every step, byte by byte */

static ngx_http_llm_capture_verdict_t
pieces(const char *name, const void *body, size_t n, size_t step,
    unsigned depth, unsigned flags)
{
    size_t           cut;
    unsigned         kernel;
    static result_t  first, other;

    assert_true(n < ROOM);

    (void) ngx_http_llm_capture_scan_kernel_use(V(PORTABLE));
    two(body, n, 0, depth, flags, &first);

    for (kernel = V(PORTABLE); kernel <= V(AVX2); kernel++) {

        if (ngx_http_llm_capture_scan_kernel_use(kernel) != kernel) {
            continue;
        }

        for (cut = 0; cut <= n; cut += step) {
            two(body, n, cut, depth, flags, &other);
            compare(name, n, &first, &other);
        }

        bytes(body, n, depth, flags, &other);
        compare(name, n, &first, &other);
    }

    return first.verdict;
}


static ngx_http_llm_capture_verdict_t
every(const char *name, const void *body, size_t n, unsigned depth,
    unsigned flags)
{
    return pieces(name, body, n, 1, depth, flags);
}


static ngx_http_llm_capture_verdict_t
text(const char *body, unsigned flags)
{
    return every(body, body, strlen(body), WRAPPED, flags);
}


static size_t
read_file(const char *name, uint8_t *p)
{
    char    path[600];
    FILE   *f;
    size_t  n;

    (void) snprintf(path, sizeof(path), "t/data/%s", name);

    f = fopen(path, "rb");
    assert_non_null(f);
    n = fread(p, 1, ROOM, f);
    assert_int_equal(ferror(f), 0);
    fclose(f);

    return n;
}


static void
check_file(const char *name)
{
    size_t                           n;
    unsigned                         i, wrapped, raw;
    static uint8_t                   p[ROOM];

    for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strncmp(name, rules[i].prefix, strlen(rules[i].prefix)) != 0) {
            continue;
        }

        n = read_file(name, p);
        wrapped = every(name, p, n, WRAPPED, 0);
        raw = (n <= SHORT) ? every(name, p, n, LIMIT, MESSAGES)
                           : pieces(name, p, n, 61, LIMIT, MESSAGES);

        if (wrapped != rules[i].wrapped || raw != rules[i].raw) {
            fail_msg("%s: verdict %u, raw %u", name, wrapped, raw);
        }

        return;
    }

    fail_msg("%s: no rule for this file", name);
}


static void
test_files(void **state)
{
    DIR                *dir;
    char                name[512];
    unsigned            i, files;
    struct dirent      *e;
    static const char  *dirs[] = { "valid", "invalid" };

    (void) state;
    files = 0;

    for (i = 0; i < 2; i++) {
        (void) snprintf(name, sizeof(name), "t/data/%s", dirs[i]);
        dir = opendir(name);
        assert_non_null(dir);

        while ((e = readdir(dir)) != NULL) {
            if (e->d_name[0] != '.') {
                (void) snprintf(name, sizeof(name), "%s/%s", dirs[i],
                                e->d_name);
                check_file(name);
                files++;
            }
        }

        closedir(dir);
    }

    assert_true(files >= FILES);
}


/* depth containers, kind: '{', '[' below the outermost, or both in turn */

static size_t
nest(char *p, unsigned depth, char kind)
{
    char     *start;
    unsigned  i;

    start = p;

    for (i = 0; i < depth; i++) {
        if (i == 0 || kind == '{' || (kind == 'x' && i % 3)) {
            p = stpcpy(p, "{\"a\":");

        } else {
            *p++ = '[';
        }
    }

    *p++ = '1';

    while (i--) {
        *p++ = (i == 0 || kind == '{' || (kind == 'x' && i % 3)) ? '}' : ']';
    }

    return (size_t) (p - start);
}


static void
test_depth(void **state)
{
    size_t           n;
    unsigned         i, k;
    static char      p[ROOM];
    static result_t  r;

    static const char      kinds[] = "{[x";
    static const unsigned  limits[] = { 1, 2, 63, 64, 65, 128, 1023, 1024 };

    (void) state;
    (void) ngx_http_llm_capture_scan_kernel_use(V(AVX2));

    for (k = 0; k < 3; k++) {
        for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
            n = nest(p, limits[i], kinds[k]);
            two(p, n, n / 2, limits[i], 0, &r);
            assert_int_equal(r.verdict, V(OK));

            n = nest(p, limits[i] + 1, kinds[k]);
            two(p, n, n / 2, limits[i], 0, &r);
            assert_int_equal(r.verdict, V(DEPTH));
        }
    }

    /* never more than there is room for */
    n = nest(p, LIMIT + 1, '[');
    two(p, n, n, 60000, 0, &r);
    assert_int_equal(r.verdict, V(DEPTH));
}


static ngx_http_llm_capture_number_e
number(const char *p, size_t cut)
{
    size_t                         n;
    ngx_http_llm_capture_number_t  number;

    n = strlen(p);

    ngx_http_llm_capture_number_init(&number);

    assert_int_equal(ngx_http_llm_capture_number_feed(&number,
                         (const uint8_t *) p, cut), cut);
    assert_int_equal(ngx_http_llm_capture_number_feed(&number,
                         (const uint8_t *) p + cut, n - cut), n - cut);

    return ngx_http_llm_capture_number_end(&number);
}


/* the border with last digit c: 1 is below, 2 at, 3 above */

static void
check_border(const char *p, char c)
{
    size_t                         cut, n;
    ngx_http_llm_capture_number_e  e;

    n = strlen(p);
    e = (c == '1') ? NGX_HTTP_LLM_CAPTURE_NUMBER_OK
                   : NGX_HTTP_LLM_CAPTURE_NUMBER_OVERFLOW;

    for (cut = 0; cut <= n; cut++) {
        if (number(p, cut) != e) {
            fail_msg("%s cut at %d", p, (int) cut);
        }
    }
}


static void
test_border(void **state)
{
    int                 at, size;
    char                c, p[2048];
    static const char   zeros[] = "00000000000000000000";

    (void) state;
    size = (int) sizeof(border);
    assert_int_equal(size, 309);

    for (c = '1'; c <= '3'; c++) {

        (void) sprintf(p, "%s%c", border, c);
        check_border(p, c);

        /* nothing behind the point makes less of it, or more than the border */
        (void) sprintf(p, "-%s%c.%s9%se0", border, c, zeros, zeros);
        check_border(p, c);

        (void) sprintf(p, "%s%c%se-20", border, c, zeros);
        check_border(p, c);

        (void) sprintf(p, "0.%s%s%cE+0000000000000000000000000329", zeros,
                       border, c);
        check_border(p, c);

        for (at = 1; at < size; at += 7) {
            (void) sprintf(p, "%.*s.%s%ce%d", at, border, border + at, c,
                           size - at);
            check_border(p, c);
        }

        (void) sprintf(p, "{\"a\":%s%c}", border, c);
        assert_int_equal(text(p, 0), c == '1' ? V(OK) : V(NUMBER));

        (void) sprintf(p, "{\"a\":[-%.1s.%s%ce308]}", border, border + 1, c);
        assert_int_equal(text(p, 0), c == '1' ? V(OK) : V(NUMBER));
    }

    /* equal as far as it goes, and one place short or over */
    (void) sprintf(p, "%s0", border);
    check_border(p, '1');
    (void) sprintf(p, "%s", border);
    check_border(p, '1');
    (void) sprintf(p, "%s20", border);
    check_border(p, '2');
}


static void
test_exponents(void **state)
{
    char  p[4096];

    (void) state;

    check_border("1e308", '1');
    check_border("1e309", '2');
    check_border("1.7976931348623157e308", '1');
    check_border("1.7976931348623158e308", '1');
    check_border("1.7976931348623159e308", '2');
    check_border("-1.7976931348623159e+308", '2');
    check_border("0e999999", '1');
    check_border("0.000e99999999999999999999999", '1');
    check_border("9e-99999999999999999999999", '1');
    check_border("1e18446744073709551616", '2');
    check_border("1e-18446744073709551616", '1');
    check_border("1e-9223372036854775809", '1');
    check_border("5e-324", '1');

    (void) sprintf(p, "1e%02000d308", 0);
    check_border(p, '1');
    (void) sprintf(p, "1e%02000d309", 0);
    check_border(p, '2');
    (void) sprintf(p, "1%02000de-1692", 0);
    check_border(p, '1');
    (void) sprintf(p, "1%02000de-1691", 0);
    check_border(p, '2');
    (void) sprintf(p, "0.%02000d1e2309", 0);
    check_border(p, '1');
    (void) sprintf(p, "0.%02000d1e2310", 0);
    check_border(p, '2');
}


static void
test_messages(void **state)
{
    (void) state;

    assert_int_equal(text("{\"messages\":[]}", MESSAGES), V(OK));
    assert_int_equal(text("{\"messages\":{}}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\":null}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"message\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"messagess\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"a\":[\"messages\",[]]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"a\":\"messages\",\"b\":[]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"mess\\u0061ges\" : [] , \"a\":1}", MESSAGES),
                     V(OK));
    assert_int_equal(text("{\"\\u006D\\u0065\\u0073\\u0073\\u0061\\u0067"
                          "\\u0065\\u0073\":[]}", MESSAGES), V(OK));
    assert_int_equal(text("{\"mess\\u0161ges\":[]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\\ud83d\\ude00\":[]}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\\n\":[]}", MESSAGES), V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\":[],\"messages\":1}", MESSAGES),
                     V(NO_MESSAGES));
    assert_int_equal(text("{\"messages\":1,\"messages\":[1]}", MESSAGES),
                     V(OK));
    assert_int_equal(text("{\"messages\":1}", 0), V(OK));
}


/* what is cut, and which bytes change */

static void
test_space(void **state)
{
    static result_t    r;
    static const char  in[] = "\r\n {\n\r \"a\\n\":\t[\r1,\n\n2\n]\r\n} \n\t";
    static const char  out[] = "   {   \"a\\n\":\t[ 1,  2 ]  }  \t";

    (void) state;

    assert_int_equal(text(in, 0), V(OK));

    two(in, strlen(in), 9, WRAPPED, 0, &r);
    assert_memory_equal(r.bytes, out, strlen(out));
    assert_int_equal(strlen(in), strlen(out));
    assert_int_equal(r.lead, 3);
    assert_int_equal(r.head, 7);
    assert_int_equal(r.trail, 3);
    assert_int_equal(r.total, strlen(in));

    /* what was scanned once scans to the same */
    two(out, strlen(out), 0, WRAPPED, 0, &r);
    assert_int_equal(r.verdict, V(OK));
    assert_memory_equal(r.bytes, out, strlen(out));
    assert_int_equal(r.head, 7);
}


static void
test_refusal_stays(void **state)
{
    uint8_t                      bad[] = "{,", good[] = "\n{\"a\":1}\r\n";
    ngx_http_llm_capture_scan_t  s;

    (void) state;

    ngx_http_llm_capture_scan_init(&s, WRAPPED, 0);

    assert_int_equal(ngx_http_llm_capture_scan_feed(&s, bad, 2), V(JSON));
    assert_int_equal(ngx_http_llm_capture_scan_feed(&s, good, 10), V(JSON));
    assert_int_equal(ngx_http_llm_capture_scan_end(&s), V(JSON));
    assert_string_equal(good, "\n{\"a\":1}\r\n");
}


/* each byte at each place of a block: in a string, and between tokens */

static void
test_bytes(void **state)
{
    int              ok;
    char             p[256];
    unsigned         c, at, kernel;
    static result_t  r;

    (void) state;

    for (kernel = V(PORTABLE); kernel <= V(AVX2); kernel++) {
        (void) ngx_http_llm_capture_scan_kernel_use(kernel);

        for (c = 0; c < 256; c++) {
            for (at = 0; at < 64; at++) {
                (void) sprintf(p, "{\"a\":\"%0130d\"}", 0);
                p[64 + at] = (char) c;
                ok = (c >= 0x20 && c < 0x80 && c != '"' && c != '\\');

                two(p, 6 + 130 + 2, 0, WRAPPED, 0, &r);
                assert_int_equal(r.verdict == V(OK), ok);

                (void) sprintf(p, "{%130s\"a\":1}", "");
                p[64 + at] = (char) c;
                ok = (c == ' ' || c == '\t' || c == '\r' || c == '\n');

                two(p, 1 + 130 + 6, 0, WRAPPED, 0, &r);
                assert_int_equal(r.verdict == V(OK), ok);

                if (ok) {
                    assert_int_equal(r.bytes[64 + at], c == '\t' ? c : ' ');
                }
            }
        }
    }
}


/* decodes and compares with what Unicode says, not with patterns of bytes */

static int
is_utf8(const uint8_t *p, size_t n)
{
    size_t    i, len;
    uint32_t  u;

    static const uint32_t  least[] = { 0, 0, 0x80, 0x800, 0x10000 };

    for ( /* void */ ; n; p += len, n -= len) {
        len = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3
              : *p >> 3 == 30 ? 4 : 0;

        if (len == 0 || len > n) {
            return 0;
        }

        u = (len == 1) ? *p : *p & (0x7fu >> len);

        for (i = 1; i < len; i++) {
            if (p[i] >> 6 != 2) {
                return 0;
            }

            u = u << 6 | (p[i] & 0x3f);
        }

        if (u < least[len] || u > 0x10ffff || (u >= 0xd800 && u < 0xe000)) {
            return 0;
        }
    }

    return 1;
}


static void
check_utf8(const uint8_t *seq, unsigned at)
{
    int                          ok;
    uint8_t                      p[256];
    ngx_http_llm_capture_scan_t  s;

    memset(p, 'x', sizeof(p));
    memcpy(p, "{\"a\":\"", 6);
    memcpy(p + at, seq, 4);
    memcpy(p + 140, "\"}", 2);
    ok = is_utf8(seq, 4);

    ngx_http_llm_capture_scan_init(&s, WRAPPED, 0);
    (void) ngx_http_llm_capture_scan_feed(&s, p, 142);

    if (ngx_http_llm_capture_scan_end(&s) != (ok ? V(OK) : V(UTF8))) {
        fail_msg("%02x %02x %02x %02x at %u", seq[0], seq[1], seq[2], seq[3],
                 at);
    }
}


static void
test_utf8(void **state)
{
    uint8_t   seq[4];
    unsigned  a, b, c, d, kernel;

    static const uint8_t  few[] = { 'x', 0x80, 0x8f, 0x9f, 0xbf, 0xc3, 0xe4,
                                    0xf0, 0xff };

    (void) state;

    for (kernel = V(PORTABLE); kernel <= V(AVX2); kernel++) {
        (void) ngx_http_llm_capture_scan_kernel_use(kernel);

        for (a = 0x7f; a < 256; a++) {
            for (b = 0x7f; b < 256; b++) {
                for (c = 0; c < sizeof(few); c++) {
                    for (d = 0; d < sizeof(few); d++) {
                        seq[0] = (uint8_t) a;
                        seq[1] = (uint8_t) b;
                        seq[2] = few[c];
                        seq[3] = few[d];
                        check_utf8(seq, 58 + (b + c + d) % 8);
                    }
                }
            }
        }
    }
}


static void
test_kernels(void **state)
{
    (void) state;

    assert_int_equal(ngx_http_llm_capture_scan_kernel_use(V(PORTABLE)),
                     V(PORTABLE));
#if (NGX_HTTP_LLM_CAPTURE_SCAN_HAVE_SSE2)
    assert_int_equal(ngx_http_llm_capture_scan_kernel_use(V(SSE2)), V(SSE2));
#endif
    assert_true(ngx_http_llm_capture_scan_kernel_use(V(AVX2)) <= V(AVX2));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_border),
        cmocka_unit_test(test_exponents),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_refusal_stays),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_utf8)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    room[0] = guarded();
    room[1] = guarded();

    return cmocka_run_group_tests(tests, NULL, NULL);
}
