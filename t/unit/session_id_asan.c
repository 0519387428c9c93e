
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What names a session, as a worker tells it, or as one does that is not sane.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ngx_http_llm_capture_conversation.h"
#include "ngx_http_llm_capture_session_id.h"


static const char  request[] =
    "{\"user\":\"alice\",\"empty\":\"\",\"n\":7,\"metadata\":{\"a\":{\"b\":"
    "\"bob\"}},\"conversation\":{\"id\":\"carol\"},\"messages\":["
    "{\"role\":\"user\",\"content\":\"hi\"}]}";

static json_t    *body;
static unsigned   asked;


static json_t *
tree(void *ctx)
{
    assert_ptr_equal(ctx, &body);
    asked++;

    return body;
}


/* in memory of its own size, so that a byte behind it is found out */

static uint64_t
id_of(const char *spec, size_t len)
{
    char      *copy;
    uint64_t   id;

    copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, spec, len);

    asked = 0;
    id = ngx_http_llm_capture_session_id(copy, len, tree, &body);
    free(copy);

    return id;
}


static uint64_t
named(const char *value)
{
    return ngx_http_llm_capture_siphash_session(value, strlen(value));
}


#define id(spec)  id_of(spec, sizeof(spec))


static void
test_order(void **state)
{
    uint64_t  prefix;

    (void) state;

    prefix = ngx_http_llm_capture_conversation_session(body);

    assert_true(id("=dave") == named("dave") && asked == 0);
    assert_true(id("body:user\0=dave") == named("alice") && asked == 1);
    assert_true(id("body:none\0=dave") == named("dave") && asked == 1);
    assert_true(id("body:none\0body:empty\0body:n\0body:metadata.a.b")
                == named("bob") && asked == 1);
    assert_true(id("body:conversation") == named("carol"));
    assert_true(id("prefix") == prefix && prefix != 0);
    assert_true(id("body:none\0prefix\0=dave") == prefix);
    assert_true(id("body:none") == 0);

    /* the last one may hold a NUL */

    assert_true(id("=a\0b") != id("=a"));
    assert_true(id("=a\0b") == ngx_http_llm_capture_siphash_session("a\0b", 3));
}


static void
test_no_body(void **state)
{
    json_t  *saved;

    (void) state;

    saved = body;
    body = NULL;

    assert_true(id("body:user\0prefix\0body:user\0=dave") == named("dave"));
    assert_int_equal(asked, 1);
    assert_true(id("body:user") == 0);

    body = saved;
}


static void
test_long(void **state)
{
    char  text[NGX_HTTP_LLM_CAPTURE_SESSION_VALUE + 3];

    (void) state;

    memset(text, 'x', sizeof(text));
    text[0] = '=';
    text[sizeof(text) - 1] = '\0';

    assert_true(id_of(text, sizeof(text)) == 0);
    text[sizeof(text) - 2] = '\0';
    assert_true(id_of(text, sizeof(text) - 1) == named(text + 1));

    text[sizeof(text) - 2] = 'x';
    json_object_set_new(body, "long", json_string(text + 1));
    assert_true(id("body:long\0=dave") == named("dave"));
}


static void
test_odd(void **state)
{
    (void) state;

    assert_true(id_of("", 0) == 0);
    assert_true(id_of("\0", 1) == 0);
    assert_true(id_of("\0\0\0", 3) == 0);
    assert_true(id_of("=", 1) == 0);
    assert_true(id_of("=\0", 2) == 0);
    assert_true(id_of("=alice", 6) == 0);
    assert_true(id_of("body:user", 9) == 0);
    assert_true(id_of("body:user\0=", 11) == 0);
    assert_true(id("body:") == 0);
    assert_true(id("bod") == 0);
    assert_true(id("user") == 0);
    assert_true(id("prefixes") == 0);
    assert_true(id("body:user.\0=a") == named("alice"));
}


/* any bytes of a spoiled ring */

static void
test_random(void **state)
{
    char      text[64];
    size_t    n;
    unsigned  i, k;

    static const char  letters[] = "=bodyprefix:user.\0\0\0\xff";

    (void) state;

    srand(7);

    for (i = 0; i < 200000; i++) {
        n = (size_t) rand() % sizeof(text);

        for (k = 0; k < n; k++) {
            text[k] = letters[(size_t) rand() % sizeof(letters)];
        }

        (void) id_of(text, n);
        assert_true(asked <= 1);
    }
}


int
main(void)
{
    int  failed;

    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_no_body),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_random)
    };

    body = json_loads(request, 0, NULL);

    failed = body ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    json_decref(body);

    return failed;
}
