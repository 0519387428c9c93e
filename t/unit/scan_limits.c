
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The scan where it has borders: how deep, how large a number, which bytes
 * and which UTF-8.
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include "scan_util.h"


/* 2^1024 - 2^970 without its last digit, a 2 */

static const char  border[] =
    "1797693134862315807937289714053034150799341327100378269361737789804449682"
    "9276475094664901797758720709633028641669288791094655554785194040263065748"
    "8671505820681908902000708383676273854845817711531764475730270069855571366"
    "9596228429148198608349364752927190741684443655107043427115596995080930428"
    "8017790417449779";


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

    for (cut = 0; cut <= n; cut += (n > 4096) ? 97 : 1) {
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
    char  p[16384];

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
    (void) sprintf(p, "0.%013000d1e13309", 0);
    check_border(p, '1');
    (void) sprintf(p, "0.%013000d1e13310", 0);
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


/* each byte at each place: in a string, between tokens, in a number */

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

            for (at = 1; at < 19; at++) {
                (void) sprintf(p, "{\"a\":12345678901234567890}");
                p[5 + at] = (char) c;
                ok = (c >= '0' && c <= '9') || c == '.'
                     || ((c | 0x20) == 'e' && (at == 17 || at == 18));

                two(p, 5 + 20 + 1, 0, WRAPPED, 0, &r);
                assert_int_equal(r.verdict == V(OK), ok);
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


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_border),
        cmocka_unit_test(test_exponents),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_utf8)
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    room[0] = guarded();
    room[1] = guarded();

    return cmocka_run_group_tests(tests, NULL, NULL);
}
