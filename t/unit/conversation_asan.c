
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Keyed hashes: SipHash against the reference's values, ids of sessions, the
 * numbers of a text's blocks, and the text of a conversation.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_conversation.h"


#define BYTES  NGX_HTTP_LLM_CAPTURE_HASH_BYTES
#define HASHES NGX_HTTP_LLM_CAPTURE_HASHES

typedef ngx_http_llm_capture_siphash_t  sip_t;
typedef ngx_http_llm_capture_blocks_t   blocks_t;


/* 0, 1, 2 ... 62 bytes 00 01 02 ... under the key 00 01 02 ... 0f */

static const uint64_t  vectors[64] = {
    0x726fdb47dd0e0e31ULL, 0x74f839c593dc67fdULL, 0x0d6c8009d9a94f5aULL,
    0x85676696d7fb7e2dULL, 0xcf2794e0277187b7ULL, 0x18765564cd99a68dULL,
    0xcbc9466e58fee3ceULL, 0xab0200f58b01d137ULL, 0x93f5f5799a932462ULL,
    0x9e0082df0ba9e4b0ULL, 0x7a5dbbc594ddb9f3ULL, 0xf4b32f46226bada7ULL,
    0x751e8fbc860ee5fbULL, 0x14ea5627c0843d90ULL, 0xf723ca908e7af2eeULL,
    0xa129ca6149be45e5ULL, 0x3f2acc7f57c29bdbULL, 0x699ae9f52cbe4794ULL,
    0x4bc1b3f0968dd39cULL, 0xbb6dc91da77961bdULL, 0xbed65cf21aa2ee98ULL,
    0xd0f2cbb02e3b67c7ULL, 0x93536795e3a33e88ULL, 0xa80c038ccd5ccec8ULL,
    0xb8ad50c6f649af94ULL, 0xbce192de8a85b8eaULL, 0x17d835b85bbb15f3ULL,
    0x2f2e6163076bcfadULL, 0xde4daaaca71dc9a5ULL, 0xa6a2506687956571ULL,
    0xad87a3535c49ef28ULL, 0x32d892fad841c342ULL, 0x7127512f72f27cceULL,
    0xa7f32346f95978e3ULL, 0x12e0b01abb051238ULL, 0x15e034d40fa197aeULL,
    0x314dffbe0815a3b4ULL, 0x027990f029623981ULL, 0xcadcd4e59ef40c4dULL,
    0x9abfd8766a33735cULL, 0x0e3ea96b5304a7d0ULL, 0xad0c42d6fc585992ULL,
    0x187306c89bc215a9ULL, 0xd4a60abcf3792b95ULL, 0xf935451de4f21df2ULL,
    0xa9538f0419755787ULL, 0xdb9acddff56ca510ULL, 0xd06c98cd5c0975ebULL,
    0xe612a3cb9ecba951ULL, 0xc766e62cfcadaf96ULL, 0xee64435a9752fe72ULL,
    0xa192d576b245165aULL, 0x0a8787bf8ecb74b2ULL, 0x81b3e73d20b49b6fULL,
    0x7fa8220ba3b2eceaULL, 0x245731c13ca42499ULL, 0xb78dbfaf3a8d83bdULL,
    0xea1ad565322a1a0bULL, 0x60e61c23a3795013ULL, 0x6606d7e446282b93ULL,
    0x6ca4ecb15c5f91e1ULL, 0x9f626da15c9625f3ULL, 0xe51b38608ef25f57ULL,
    0x958a324ceb064572ULL
};

static const uint8_t  key[16] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
};

static const uint8_t  other[16] = { 1 };


static void
test_vectors(void **state)
{
    sip_t    s;
    size_t   n, cut, i;
    uint8_t  in[64];

    (void) state;

    for (i = 0; i < sizeof(in); i++) {
        in[i] = (uint8_t) i;
    }

    for (n = 0; n < 64; n++) {
        for (cut = 0; cut <= n; cut++) {
            ngx_http_llm_capture_siphash_init(&s, key);
            ngx_http_llm_capture_siphash_update(&s, in, cut);
            (void) ngx_http_llm_capture_siphash_end(&s);
            ngx_http_llm_capture_siphash_update(&s, in + cut, n - cut);
            assert_true(ngx_http_llm_capture_siphash_end(&s) == vectors[n]);
        }

        ngx_http_llm_capture_siphash_init(&s, key);

        for (i = 0; i < n; i++) {
            ngx_http_llm_capture_siphash_update(&s, in + i, 1);
        }

        assert_true(ngx_http_llm_capture_siphash_end(&s) == vectors[n]);
    }
}


static void
test_session(void **state)
{
    char      a[17];
    uint64_t  n, id;

    (void) state;

    n = ngx_http_llm_capture_siphash_session("alice", 5);
    assert_true(n == ngx_http_llm_capture_siphash_session("alice", 5));
    assert_true(n != ngx_http_llm_capture_siphash_session("alicf", 5));
    assert_true(n != ngx_http_llm_capture_siphash_session("alice\0", 6));

    id = ngx_http_llm_capture_siphash_seal(key, n);
    assert_true(id != n);
    assert_true(id == ngx_http_llm_capture_siphash_seal(key, n));
    assert_true(id != ngx_http_llm_capture_siphash_seal(key, n + 1));
    assert_true(id != ngx_http_llm_capture_siphash_seal(other, n));

    /* what was written yesterday is read tomorrow */

    assert_true(n == 0x136083a179bd5d5aULL);
    assert_true(id == 0x6019358fddd54876ULL);

    ngx_http_llm_capture_siphash_hex(0x0123456789abcdefULL, a);
    assert_string_equal(a, "0123456789abcdef");
}


static void
test_blocks(void **state)
{
    char            *text;
    size_t           n, at, some;
    uint32_t         i;
    static blocks_t  a, b, c;

    (void) state;

    n = 5 * BYTES + 17;
    text = malloc(n);
    assert_non_null(text);

    for (at = 0; at < n; at++) {
        text[at] = (char) (at * 7 + at / 251);
    }

    ngx_http_llm_capture_blocks_init(&a);
    ngx_http_llm_capture_blocks_update(&a, text, n);
    assert_int_equal(a.n, 5);

    for (i = 0; i < a.n; i++) {
        assert_true(a.id[i] < (uint64_t) 1 << 48);
        assert_true(i == 0 || a.id[i] != a.id[i - 1]);
    }

    /* in pieces */

    for (some = 1; some < 5000; some = some * 3 + 1) {
        ngx_http_llm_capture_blocks_init(&b);

        for (at = 0; at < n; at += some) {
            ngx_http_llm_capture_blocks_update(&b, text + at,
                n - at < some ? n - at : some);
        }

        assert_int_equal(b.n, 5);
        assert_memory_equal(a.id, b.id, 5 * sizeof(uint64_t));
    }

    /* a byte differs: that block and all behind it */

    text[2 * BYTES] ^= 1;
    ngx_http_llm_capture_blocks_init(&b);
    ngx_http_llm_capture_blocks_update(&b, text, n);

    for (i = 0; i < 5; i++) {
        assert_int_equal(a.id[i] == b.id[i], i < 2);
    }

    /* another key: nothing in common */

    b = a;
    c = a;
    ngx_http_llm_capture_blocks_seal(&a, key);
    ngx_http_llm_capture_blocks_seal(&b, other);

    for (i = 0; i < 5; i++) {
        assert_true(a.id[i] < (uint64_t) 1 << 48);
        assert_true(a.id[i] != b.id[i]);
        assert_true(a.id[i] != c.id[i]);
    }

    /* the same key: the same numbers */

    ngx_http_llm_capture_blocks_seal(&c, key);
    assert_memory_equal(a.id, c.id, 5 * sizeof(uint64_t));

    free(text);

    /* the same block twice is not the same number twice */

    text = calloc(2, BYTES);
    assert_non_null(text);
    ngx_http_llm_capture_blocks_init(&b);
    ngx_http_llm_capture_blocks_update(&b, text, 2 * BYTES);
    assert_int_equal(b.n, 2);
    assert_true(b.id[0] != b.id[1]);

    /* no more than there is room for */

    for (i = 0; i < HASHES; i++) {
        ngx_http_llm_capture_blocks_update(&b, text, 2 * BYTES);
    }

    assert_int_equal(b.n, HASHES);
    free(text);
}


static void
test_number_of_blocks(void **state)
{
    size_t           i;
    static blocks_t  b;

    static const struct {
        uint32_t  n;
        int64_t   tokens;
        uint32_t  of;
    } list[] = {
        { 0, 100000, 0 }, { 3, -1, 0 }, { 3, 0, 0 }, { 3, 511, 0 },
        { 3, 512, 1 }, { 3, 1023, 1 }, { 3, 1024, 2 }, { 3, 1536, 3 },
        { 3, INT64_MAX, 3 }
    };

    (void) state;

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        b.n = list[i].n;
        assert_int_equal(ngx_http_llm_capture_blocks_of(&b, list[i].tokens),
                         list[i].of);
    }
}


static json_t *
load(const char *body)
{
    size_t        i, n;
    json_t       *whole, *cut;
    struct iovec  iov[3];

    n = strlen(body);
    iov[0].iov_base = (void *) body;
    iov[0].iov_len = n;
    whole = ngx_http_llm_capture_conversation_load(iov, 1);

    for (i = 0; i <= n; i++) {
        iov[0].iov_len = i;
        iov[1].iov_base = (char *) body + i;
        iov[1].iov_len = 0;
        iov[2].iov_base = (char *) body + i;
        iov[2].iov_len = n - i;

        cut = ngx_http_llm_capture_conversation_load(iov, 3);
        assert_int_equal(cut == NULL, whole == NULL);
        assert_true(whole == NULL || json_equal(whole, cut));
        json_decref(cut);
    }

    return whole;
}


/* the text is seen by its hash, in one block of the size it has */

static uint64_t
hash_of_text(const char *text, size_t n)
{
    static blocks_t  b;
    static char      block[BYTES];

    memset(block, 0, sizeof(block));
    memcpy(block, text, n);

    ngx_http_llm_capture_blocks_init(&b);
    ngx_http_llm_capture_blocks_update(&b, block, BYTES);
    assert_int_equal(b.n, 1);

    return b.id[0];
}


static uint64_t
hash_of(const char *body)
{
    json_t          *root;
    uint32_t         fill;
    static blocks_t  b;
    static char      zeros[BYTES];

    root = load(body);
    assert_non_null(root);

    ngx_http_llm_capture_blocks_init(&b);
    ngx_http_llm_capture_conversation_hash(root, &b);
    fill = b.fill;
    assert_int_equal(b.n, 0);

    ngx_http_llm_capture_blocks_update(&b, zeros, BYTES - fill);
    assert_int_equal(b.n, 1);
    json_decref(root);

    return b.id[0];
}


#define same(body, text)                                                      \
    assert_true(hash_of(body) == hash_of_text(text, sizeof(text) - 1))

#define equal(a, b)   assert_true(hash_of(a) == hash_of(b))
#define differ(a, b)  assert_true(hash_of(a) != hash_of(b))


/* the text that the header says */

static void
test_text(void **state)
{
    (void) state;

    same("{}", "");
    same("{\"model\":\"m\",\"stream\":true}", "");

    same("{\"messages\":[{\"content\":\"hi\",\"role\":\"user\"}]}",
         "\xffmuser\xff" "chi");

    same("{\"messages\":[{\"role\":\"user\",\"content\":["
         "{\"type\":\"text\",\"text\":\"hi\",\"cache_control\":{}},"
         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\"}}]}]}",
         "\xffmuser\xff" "chi\xffv{\xfetype\xfe\xfeimage_url\xfe,"
         "\xfeimage_url\xfe{\xfeurl\xfe\xfeu\xfe,},}");

    same("{\"messages\":[{\"role\":\"assistant\",\"content\":null,"
         "\"refusal\":null,\"tool_calls\":[{\"id\":1}],\"name\":\"n\"}],"
         "\"tools\":[{\"a\":[true,false,null,-1.5,7.0]}]}",
         "\xfft{\xfe" "a\xfe[t,f,n,-1.5,7,],}\xffmassistant"
         "\xffkname\xffv\xfen\xfe\xffktool_calls\xffv[{\xfeid\xfe" "1,},]");

    same("{\"prompt\":\"a\"}", "\xffpa");
    same("{\"prompt\":[\"a\",\"b\"]}", "\xffpa\xffpb");
    same("{\"prompt\":[1,2]}", "\xffv1\xffv2");
    same("{\"prompt\":[[1,2],[3]]}", "\xffv[1,2,]\xffv[3,]");

    same("{\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[]}",
         "\xffs\xff" "cs");
    same("{\"instructions\":\"s\",\"input\":\"hi\"}",
         "\xffs\xff" "cs\xffmuser\xff" "chi");
    same("{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
         "\"input_text\",\"text\":\"hi\"}]},{\"type\":\"x\"}]}",
         "\xffmuser\xff" "chi\xffi{\xfetype\xfe\xfex\xfe,}");

    /* an integer beyond 64 bits somewhere changes nothing else */

    same("{\"seed\":99999999999999999999,\"tools\":[{\"a\":3}]}",
         "\xfft{\xfe" "a\xfe" "3,}");
}


#define M(role, content)                                                      \
    "{\"role\":\"" role "\",\"content\":\"" content "\"}"

static void
test_shifts(void **state)
{
    (void) state;

    equal("{\"messages\":[" M("user", "a") "],\"temperature\":1}",
          "{ \"temperature\":0, \"messages\" : [ {\"content\":\"\\u0061\","
          "\"role\":\"user\",\"extra\":[]} ] }");
    equal("{\"messages\":[" M("user", "a") "]}",
          "{\"messages\":[{\"role\":\"user\",\"content\":"
          "[{\"type\":\"text\",\"text\":\"a\"}]}]}");

    differ("{\"messages\":[" M("user", "ab") "]}",
           "{\"messages\":[" M("usera", "b") "]}");
    differ("{\"messages\":[" M("user", "ab") "]}",
           "{\"messages\":[" M("user", "a") "," M("user", "b") "]}");
    differ("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
           "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]}",
           "{\"messages\":[" M("user", "ab") "]}");
    differ("{\"messages\":[" M("user", "a") "," M("user", "") "]}",
           "{\"messages\":[" M("user", "") "," M("user", "a") "]}");
    differ("{\"messages\":[" M("system", "a") "]}", "{\"system\":\"a\"}");
    differ("{\"prompt\":\"ab\"}", "{\"prompt\":[\"a\",\"b\"]}");
    differ("{\"prompt\":[1,23]}", "{\"prompt\":[12,3]}");
    differ("{\"prompt\":[1,2]}", "{\"prompt\":[\"1\",\"2\"]}");
    differ("{\"prompt\":[[1],[2]]}", "{\"prompt\":[[1,2]]}");
    differ("{\"tools\":[{\"a\":\"b,\"}]}", "{\"tools\":[{\"a\":\"b\"}]}");
    differ("{\"tools\":[\"t\"]}", "{\"tools\":[true]}");
    differ("{\"tools\":[{\"a\":\"b\"},{\"c\":1}]}",
           "{\"tools\":[{\"a\":\"b\",\"c\":1}]}");
    differ("{\"tools\":[\"\\u00ff\"]}", "{\"tools\":[\"\\u00fe\"]}");
    differ("{\"prompt\":\"a\\u0000b\"}", "{\"prompt\":\"a\\u0000c\"}");
}


/* turns that grow keep their beginning */

static void
test_growth(void **state)
{
    char            *one, *two;
    json_t          *a, *b;
    size_t           n;
    static blocks_t  x, y;

    (void) state;

    one = malloc(3 * BYTES);
    two = malloc(6 * BYTES);
    assert_non_null(one);
    assert_non_null(two);

    n = (size_t) sprintf(one, "{\"messages\":[{\"role\":\"user\","
                         "\"content\":\"");
    memset(one + n, 'a', 2 * BYTES);
    n += 2 * BYTES;
    memcpy(two, one, n);
    strcpy(one + n, "\"}]}");
    n += (size_t) sprintf(two + n, "\"},{\"role\":\"assistant\",\"content\":"
                          "\"");
    memset(two + n, 'b', 2 * BYTES);
    n += 2 * BYTES;
    strcpy(two + n, "\"}],\"temperature\":1}");

    a = json_loads(one, 0, NULL);
    b = json_loads(two, 0, NULL);
    assert_non_null(a);
    assert_non_null(b);

    ngx_http_llm_capture_blocks_init(&x);
    ngx_http_llm_capture_conversation_hash(a, &x);
    ngx_http_llm_capture_blocks_init(&y);
    ngx_http_llm_capture_conversation_hash(b, &y);

    assert_int_equal(x.n, 2);
    assert_int_equal(y.n, 4);
    assert_memory_equal(x.id, y.id, 2 * sizeof(uint64_t));

    json_decref(a);
    json_decref(b);
    free(one);
    free(two);
}


static void
test_prefix(void **state)
{
    size_t   i;
    json_t   *root;
    uint64_t  id, first;

    static const struct {
        const char  *body;
        int          same;      /* as the first; -1: none */
    } list[] = {
        { "{\"messages\":[" M("system", "s") "," M("user", "a") "]}", 1 },
        { "{\"messages\":[" M("system", "s") "," M("user", "a") ","
          M("assistant", "x") "," M("user", "b") "],\"tools\":[1]}", 1 },
        { "{\"messages\":[" M("system", "s") "," M("user", "b") "]}", 0 },
        { "{\"messages\":[" M("system", "t") "," M("user", "a") "]}", 0 },
        { "{\"messages\":[" M("system", "s") "]}", -1 },
        { "{\"input\":\"a\"}", 0 },
        { "{\"prompt\":\"a\"}", -1 },
        { "{}", -1 },
        { "{\"messages\":7}", -1 }
    };

    (void) state;

    first = 0;

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        root = load(list[i].body);
        id = ngx_http_llm_capture_conversation_session(root);
        assert_int_equal(id != 0, list[i].same >= 0);

        if (i == 0) {
            first = id;
        }

        if (list[i].same >= 0) {
            assert_int_equal(id == first, list[i].same);
        }

        json_decref(root);
    }
}


static void
test_value(void **state)
{
    size_t       i, n;
    json_t      *root;
    const char  *s;

    static const char *const  list[][2] = {
        { "user", "u" }, { "metadata.session_id", "m" }, { "metadata", "i" },
        { "conversation", "c" }, { "empty", NULL }, { "none", NULL },
        { "number", NULL }, { "none.a.b", NULL }, { "user.a", NULL },
        { "", NULL }, { "metadata.", "i" }, { ".", NULL }
    };

    (void) state;

    root = load("{\"user\":\"u\",\"metadata\":{\"session_id\":\"m\","
                "\"id\":\"i\"},\"conversation\":{\"id\":\"c\"},"
                "\"empty\":\"\",\"number\":7}");
    assert_non_null(root);

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        s = ngx_http_llm_capture_conversation_value(root, list[i][0], &n);

        if (list[i][1]) {
            assert_non_null(s);
            assert_string_equal(s, list[i][1]);
            assert_int_equal(n, 1);

        } else if (s) {
            fail_msg("\"%s\" is \"%s\"", list[i][0], s);
        }
    }

    json_decref(root);
}


static void
test_bad(void **state)
{
    size_t           i;
    json_t          *root;
    static blocks_t  b;

    static const char *const  list[] = {
        "", "{", "7", "[]", "{\"a\\u0000\":1}", "{\"messages\":[7,null,[],{}]}",
        "{\"messages\":{}}", "{\"input\":[7]}", "{\"prompt\":{}}",
        "{\"system\":7,\"tools\":{},\"messages\":[{\"role\":7}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":{\"a\":[]}}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[7,[],"
        "{\"type\":\"text\"},{\"type\":\"text\",\"text\":7}]}]}"
    };

    (void) state;

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        root = load(list[i]);
        assert_int_equal(root == NULL, i < 3 || i == 4);

        if (root) {
            ngx_http_llm_capture_blocks_init(&b);
            ngx_http_llm_capture_conversation_hash(root, &b);
            (void) ngx_http_llm_capture_conversation_session(root);
            json_decref(root);
        }
    }
}


/* a body that would take a hundred times its bytes, and one that does not */

static void
test_bounded(void **state)
{
    char          *text;
    size_t         i, n;
    json_t        *root;
    struct iovec   iov;

    (void) state;

    n = 4 * 1024 * 1024;
    text = malloc(n);
    assert_non_null(text);

    memset(text, '[', n);

    for (i = 1; i + 3 < n; i += 3) {
        memcpy(text + i, "{},", 3);
    }

    memset(text + i, ' ', n - i);
    memcpy(text + i - 1, "]", 1);

    iov.iov_base = text;
    iov.iov_len = n;
    assert_null(ngx_http_llm_capture_conversation_load(&iov, 1));

    /* what others allocate is not bounded by it */

    root = json_loadb(text, n, 0, NULL);
    assert_non_null(root);
    json_decref(root);

    memset(text, 'x', n);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + n - 2, "\"}", 2);

    root = ngx_http_llm_capture_conversation_load(&iov, 1);
    assert_non_null(root);
    assert_int_equal(json_string_length(json_object_get(root, "a")), n - 8);
    json_decref(root);
    free(text);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_number_of_blocks),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_shifts),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_bounded)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
