
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A stream as it goes by: the answers of t/data/answers, in pieces of every
 * kind, and what makes an event one with content.
 */

#include "answers.h"


static void
feed(sse_t *s, const uint8_t *p, size_t n, unsigned *new)
{
    uint8_t  *copy;

    copy = piece(p, n);
    *new |= ngx_http_llm_capture_sse_feed(s, copy, n);
    free(copy);
}


static void
whole(sse_t *s, const uint8_t *p, size_t n)
{
    unsigned  new;

    ngx_http_llm_capture_sse_init(s);
    new = 0;
    feed(s, p, n, &new);
    assert_int_equal(new, s->seen);
}


static void
test_answers(void **state)
{
    size_t    i, n;
    sse_t     s;
    uint8_t  *p;

    (void) state;

    for (i = 0; i < N(streams); i++) {
        p = answer_load(streams[i].name, "sse", &n);
        whole(&s, p, n);

        if (s.events != streams[i].events || s.deltas != streams[i].deltas
            || s.seen != streams[i].seen)
        {
            fail_msg("%s: %u events, %u deltas, seen %x", streams[i].name,
                     (unsigned) s.events, (unsigned) s.deltas, s.seen);
        }

        free(p);
    }
}


/* byte by byte, a flag is told once, with the byte that ends its event */

static void
test_bytes(void **state)
{
    int       content, reasoning;
    size_t    i, at, n;
    sse_t     s, all;
    uint8_t  *p;
    unsigned  new, before;

    (void) state;

    for (i = 0; i < N(streams); i++) {
        p = answer_load(streams[i].name, "sse", &n);
        whole(&all, p, n);

        ngx_http_llm_capture_sse_init(&s);
        content = reasoning = -1;
        before = 0;

        for (at = 0; at < n; at++) {
            new = 0;
            feed(&s, p + at, 1, &new);
            assert_int_equal(new & before, 0);
            assert_int_equal(new | before, s.seen);
            before |= new;

            if (new) {
                assert_true(p[at] == '\n' || p[at] == '\r');
            }

            content = new & C ? (int) s.events - 1 : content;
            reasoning = new & R ? (int) s.events - 1 : reasoning;
        }

        if (content != streams[i].content
            || reasoning != streams[i].reasoning)
        {
            fail_msg("%s: content in event %d, reasoning in %d",
                     streams[i].name, content, reasoning);
        }

        assert_memory_equal(&s, &all, sizeof(s));
        free(p);
    }
}


/* cut once, at every byte, and in pieces of every size */

static void
test_splits(void **state)
{
    size_t    i, at, n, size, len;
    sse_t     s, all;
    uint8_t  *p;
    unsigned  new;

    (void) state;

    for (i = 0; i < N(streams); i++) {
        p = answer_load(streams[i].name, "sse", &n);
        whole(&all, p, n);

        for (at = 0; at <= n; at++) {
            ngx_http_llm_capture_sse_init(&s);
            new = 0;
            feed(&s, p, at, &new);
            feed(&s, p + at, n - at, &new);
            assert_memory_equal(&s, &all, sizeof(s));
            assert_int_equal(new, s.seen);
        }

        for (size = 2; size < 70; size++) {
            ngx_http_llm_capture_sse_init(&s);

            for (at = 0; at < n; at += len) {
                len = n - at < size ? n - at : size;
                feed(&s, p + at, len, &new);
            }

            assert_memory_equal(&s, &all, sizeof(s));
        }

        free(p);
    }
}


/* one event: its flags */

static unsigned
flags(const char *data)
{
    char   text[512];
    sse_t  s;

    (void) snprintf(text, sizeof(text), "data: %s\n\n", data);
    whole(&s, (uint8_t *) text, strlen(text));
    assert_int_equal(s.events, 1);
    assert_int_equal(s.deltas, (s.seen & (C|R)) != 0);

    return s.seen;
}


#define CHAT(delta)  "{\"choices\":[{\"delta\":{" delta "}}]}"

static void
test_places(void **state)
{
    size_t  i;

    static const struct {
        const char  *data;
        unsigned     flags;
    } events[] = {
        { CHAT("\"content\":\"a\""), C },
        { CHAT("\"content\":\" \""), C },
        { CHAT("\"content\":\"\\n\""), C },
        { CHAT("\"content\":\"\""), 0 },
        { CHAT("\"content\":null"), 0 },
        { CHAT("\"content\":7"), 0 },
        { CHAT("\"content\":{\"text\":\"a\"}"), 0 },
        { CHAT("\"content\":[]"), 0 },
        { CHAT("\"content\":[{\"type\":\"text\",\"text\":\"a\"}]"), C },
        { CHAT("\"content\":[{\"type\":\"text\",\"text\":\"\"}]"), 0 },
        { CHAT("\"content\":[{\"thinking\":[{\"text\":\"a\"}]}]"), R },
        { CHAT("\"content\":[{\"thinking\":\"a\"}]"), R },
        { CHAT("\"content\":[[{\"text\":\"a\"}]]"), 0 },
        { CHAT("\"role\":\"assistant\""), 0 },
        { CHAT("\"Content\":\"a\""), 0 },
        { CHAT("\"content2\":\"a\""), 0 },
        { CHAT("\"conten\":\"a\""), 0 },
        { CHAT("\"c\\u006fntent\":\"a\""), 0 },
        { CHAT("\"\":\"a\""), 0 },
        { CHAT("\"reasoning_content_is_long\":\"a\""), 0 },
        { CHAT("\"a\\\"content\":\"a\""), 0 },
        { CHAT("\"x\":\"\\\"content\\\":\\\"a\\\"\""), 0 },
        { CHAT("\"x\":\"a\\\\\",\"content\":\"a\""), C },
        { CHAT("\"x\":{\"content\":\"a\"},\"y\":[{},[]]"), 0 },
        { CHAT("\"x\":{\"y\":\"}\"},\"content\":\"a\""), C },
        { CHAT("\"x\":[\"]\\\"\"],\"content\":\"a\""), C },
        { CHAT("\"content\":\"\",\"reasoning_content\":\"a\""), R },
        { CHAT("\"content\":\"b\",\"reasoning_content\":\"a\""), C|R },
        { CHAT("\"reasoning\":\"a\""), R },
        { CHAT("\"thinking\":\"a\""), R },
        { CHAT("\"reasoning_details\":[]"), 0 },
        { CHAT("\"reasoning_details\":[{\"text\":\"a\"}]"), R },
        { CHAT("\"refusal\":\"a\""), C },
        { CHAT("\"tool_calls\":null"), 0 },
        { CHAT("\"tool_calls\":[]"), 0 },
        { CHAT("\"tool_calls\":[{\"index\":0}]"), C },
        { CHAT("\"function_call\":{\"name\":\"f\"}"), C },
        { CHAT("\"function_call\":{\"name\":\"\",\"arguments\":\"\"}"), 0 },
        { CHAT("\"audio\":{\"id\":\"a\"}"), 0 },
        { CHAT("\"audio\":{\"transcript\":\"a\"}"), C },
        { "{\"choices\":[]}", 0 },
        { "{\"choices\":[{\"delta\":null}]}", 0 },
        { "{\"choices\":[{\"text\":\"\"},{\"text\":\"a\"}]}", C },
        { "{\"choices\":[7,{\"text\":\"a\"}]}", C },
        { "{ \"choices\" : [ { \"text\" : \"a\" } ] }", C },
        { "[{\"choices\":[{\"text\":\"a\"}]}]", 0 },
        { "[[1],[2]]", 0 },
        { "{\"text\":\"a\",\"content\":\"a\"}", 0 },
        { "{\"delta\":\"a\"}", C },
        { "{\"delta\":\"\",\"type\":\"response.reasoning_text.delta\"}", 0 },
        { "{\"delta\":\"a\",\"type\":\"response.output_text.delta\"}", C },
        { "{\"delta\":\"a\",\"type\":\"response.reasoning_text.delta\"}", R },
        { "{\"type\":\"response.reasoning_text.delta\",\"delta\":\"a\"}", R },
        { "{\"type\":\"response.reasoning\",\"delta\":\"a\"}", R },
        { "{\"type\":\"response.reasonin\",\"delta\":\"a\"}", C },
        { "{\"type\":\"response.\\reasoning\",\"delta\":\"a\"}", C },
        { "{\"type\":\"response.reasoning\",\"type\":\"x\",\"delta\":\"a\"}",
          C },
        { "{\"delta\":{\"text\":\"a\"}}", C },
        { "{\"delta\":{\"partial_json\":\"{\"}}", C },
        { "{\"delta\":{\"partial_json\":\"\"}}", 0 },
        { "{\"delta\":{\"thinking\":\"a\"}}", R },
        { "{\"delta\":{\"signature\":\"a\"}}", 0 },
        { "{\"delta\":{\"stop_reason\":\"end_turn\"}}", 0 },
        { "{\"content_block\":{\"type\":\"tool_use\",\"name\":\"f\"}}", C },
        { "{\"content_block\":{\"type\":\"text\",\"text\":\"\"}}", 0 },
        { "{\"error\":null}", 0 },
        { "{\"error\":\"\"}", 0 },
        { "{\"error\":\"a\"}", E },
        { "{\"error\":{}}", E },
        { "{\"x\":{\"error\":{}}}", 0 },
        { "{\"x\":-1.5e+3,\"error\":{}}", E },
        { "{\"x\":1 2,\"error\":{}}", 0 },
        { "{\"x\":;,\"error\":{}}", 0 },
        { "{\"x\",\"error\":{}}", 0 },
        { "{} {\"error\":{}}", 0 },
        { "\"x\"", 0 },
        { "\"x\",{\"error\":{}}", 0 },
        { "7", 0 },
        { "[DONE", 0 },
        { " [DONE]", 0 }
    };

    (void) state;

    for (i = 0; i < N(events); i++) {

        if (flags(events[i].data) != events[i].flags) {
            fail_msg("%s: %x", events[i].data, flags(events[i].data));
        }
    }
}


static void
test_lines(void **state)
{
    size_t  i;
    sse_t   s;

    static const struct {
        const char  *text;
        unsigned     events;
        unsigned     seen;
    } list[] = {
        { "", 0, 0 },
        { "\n\n\n", 0, 0 },
        { "\r\r\n\n\r", 0, 0 },
        { "data: {}", 0, 0 },
        { "data: {}\n", 0, 0 },
        { "data: {}\r\n\r", 1, 0 },
        { "data: {}\r\r", 1, 0 },
        { "data: {}\n\r", 1, 0 },
        { "data:\n\n", 0, 0 },
        { "data: \n\n", 0, 0 },
        { "data:  \n\n", 1, 0 },
        { "data\n\n", 0, 0 },
        { "data\ndata: x\n\n", 1, 0 },
        { "data: x\n: c\nid: 7\ndata: y\n\n", 1, 0 },
        { "\xef\xbb\xbf" "data: x\n\n", 1, 0 },
        { "\xef\xbb" "data: x\n\n", 0, 0 },
        { "\xef\xbb\n" "data: x\n\n", 1, 0 },
        { "data: x\n\n\xef\xbb\xbf" "data: x\n\n", 1, 0 },
        { " data: x\n\n", 0, 0 },
        { "dat: x\n\n", 0, 0 },
        { "datas: x\n\n", 0, 0 },
        { "Data: x\n\n", 0, 0 },
        { "data: [DONE]\n\n", 0, D },
        { "data:[DONE]\n\n", 0, D },
        { "data: [DON\ndata: E]\n\n", 1, 0 },
        { "data: [DONE]\n\ndata: {\"error\":1}\n\n", 1, D },
        { "data: {\"error\"\ndata: :{}}\n\n", 1, E },
        { "data: {\"error\":{\n\ndata: {}}\n\n", 2, E }
    };

    (void) state;

    for (i = 0; i < N(list); i++) {
        whole(&s, (const uint8_t *) list[i].text, strlen(list[i].text));

        if (s.events != list[i].events || s.seen != list[i].seen) {
            fail_msg("%zu, %s: %u, %x", i, list[i].text, (unsigned) s.events,
                     s.seen);
        }
    }
}


/* events longer than any buffer, and nested deeper than any stack */

static void
test_long(void **state)
{
    size_t    i;
    sse_t     s;
    unsigned  new;

    static const char  head[] = "data: {\"x\":\"";
    static const char  tail[] = "\",\"choices\":[{\"text\":\"a\"}]}\n\n";
    static const char  deep[] = "data: {\"x\":";
    static const char  open[] = "[{\"y\":", close[] = "0}]";

    (void) state;

    ngx_http_llm_capture_sse_init(&s);
    new = 0;
    feed(&s, (const uint8_t *) head, sizeof(head) - 1, &new);

    for (i = 0; i < 100000; i++) {
        feed(&s, (const uint8_t *) "data: \\\" [DONE] ", 16, &new);
    }

    assert_int_equal(new, 0);
    feed(&s, (const uint8_t *) tail, sizeof(tail) - 1, &new);
    assert_int_equal(new, C);

    ngx_http_llm_capture_sse_init(&s);
    new = 0;
    feed(&s, (const uint8_t *) deep, sizeof(deep) - 1, &new);

    for (i = 0; i < 100000; i++) {
        feed(&s, (const uint8_t *) open, sizeof(open) - 1, &new);
    }

    for (i = 0; i < 100000; i++) {
        feed(&s, (const uint8_t *) (i ? close + 1 : close),
             sizeof(close) - 1 - (i != 0), &new);
    }

    feed(&s, (const uint8_t *) tail + 1, sizeof(tail) - 2, &new);
    assert_int_equal(new, C);
    assert_int_equal(s.events, 1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_long)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
