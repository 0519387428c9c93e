
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What an answer says of itself: the answers of t/data/answers, whole and
 * through windows of every size, numbers that are none, and what looks like a
 * usage but is none.
 */

#include "answers.h"


#define NONE  -1


/* bytes of the answer between the text's two windows, besides */
static uint64_t  hole;


/* asked for its text, or not */
static char     *room;
static size_t    room_size;


static void
parse(outcome_t *o, const uint8_t *p, size_t head, size_t tail, size_t n,
    unsigned deltas, unsigned stream, unsigned complete)
{
    uint8_t   *h, *t;
    answer_t   a;

    h = piece(p, head);
    t = piece(p + n - tail, tail);
    a = (answer_t) { h, head, t, tail, n + hole, deltas, stream, complete,
                       room, room_size };

    memset(o, 0x5a, sizeof(outcome_t));
    assert_int_equal(ngx_http_llm_capture_outcome(o, &a), 0);

    free(h);
    free(t);
}


static void
reasons(const outcome_t *o, char *text)
{
    uint32_t  i;

    *text = '\0';

    for (i = 0; i < o->choices; i++) {
        strcat(strcat(text, i ? "," : ""), o->reason[i]);
    }
}


static void
expect(const expected_t *e, const outcome_t *o, size_t at)
{
    char  text[1024];

    reasons(o, text);

    if (o->prompt != e->prompt || o->completion != e->completion
        || o->cached != e->cached || o->reasoning != e->thought
        || o->estimated != e->estimated || o->error != e->error
        || o->refused != e->refused || strcmp(text, e->reasons) != 0)
    {
        fail_msg("%s at %zu: prompt %d, completion %d, cached %d, reasoning "
                 "%d, estimated %u, error %u, refused %u, \"%s\"", e->name, at,
                 (int) o->prompt, (int) o->completion, (int) o->cached,
                 (int) o->reasoning, o->estimated, o->error, o->refused, text);
    }
}


/* of all that can be known nothing is wrong; what is not known is absent */

static void
expect_part(const expected_t *e, const outcome_t *o, size_t head, size_t tail)
{
    char         text[1024], part[64];
    uint32_t     i;
    const char  *want;

    reasons(o, text);

    if ((o->prompt != NONE && o->prompt != e->prompt)
        || (o->completion != NONE && o->completion != e->completion
            && !o->estimated)
        || (o->cached != NONE && o->cached != e->cached)
        || (o->reasoning != NONE && o->reasoning != e->thought)
        || o->refused > e->refused
        || (o->error && !e->error))
    {
        fail_msg("%s, %zu and %zu: prompt %d, completion %d, cached %d, "
                 "reasoning %d, estimated %u, refused %u, error %u", e->name,
                 head, tail, (int) o->prompt, (int) o->completion,
                 (int) o->cached, (int) o->reasoning, o->estimated,
                 o->refused, o->error);
    }

    for (i = 0, want = e->reasons; i < o->choices; i++) {
        (void) snprintf(part, sizeof(part), "%.*s",
                        (int) strcspn(want, ","), want);
        want += strcspn(want, ",") + 1;

        if (o->reason[i][0] && strcmp(o->reason[i], part) != 0) {
            fail_msg("%s, %zu and %zu: \"%s\"", e->name, head, tail, text);
        }
    }
}


static void
windows(const expected_t *e, unsigned stream, size_t step)
{
    size_t      n, head, tail;
    uint8_t    *p;
    outcome_t   o;

    p = answer_load(e->name, stream ? "sse" : "json", &n);

    for (head = 0; head <= n; head++) {
        parse(&o, p, head, n - head, n, e->deltas, stream, !e->broken);
        expect(e, &o, head);
    }

    for (head = 0; head < n; head += step) {
        for (tail = 0; head + tail < n; tail += (tail < 700 ? 1 : step)) {
            parse(&o, p, head, tail, n, e->deltas, stream, !e->broken);
            expect_part(e, &o, head, tail);
        }
    }

    free(p);
}


static void
test_streams(void **state)
{
    size_t  i;

    (void) state;

    for (i = 0; i < N(streams); i++) {
        windows(&streams[i], 1, 509);
    }
}


static void
test_plain(void **state)
{
    size_t  i;

    (void) state;

    for (i = 0; i < N(answers); i++) {

        /* which choice a window cuts cannot be known if it is the last */

        if (strcmp(answers[i].name, "completions-n3") != 0) {
            windows(&answers[i], 0, 17);
        }
    }
}


/* what stands whole in the second window is found */

static void
test_found(void **state)
{
    char       *usage;
    size_t      i, n, tail, least;
    uint8_t    *p;
    outcome_t   o;

    static const char *const  names[] = {
        "chat", "completions-n3", "responses"
    };

    (void) state;

    for (i = 0; i < N(names); i++) {
        p = answer_load(names[i], "json", &n);
        p[n] = '\0';

        usage = strstr((char *) p, "\"usage\"");

        while (usage[-1] == '\\' || strncmp(usage + 8, "\"{\\", 3) == 0) {
            usage = strstr(usage + 1, "\"usage\"");
        }

        least = n - (size_t) (usage - (char *) p);

        for (tail = least; tail < n; tail++) {
            parse(&o, p, 0, tail, n, 0, 0, 1);
            assert_int_not_equal(o.prompt, NONE);
            assert_int_not_equal(o.completion, NONE);

            /* its choice begins 250 bytes before */

            if (i == 0 && tail > least + 120 && tail < least + 250) {
                assert_string_equal(o.reason[0], "stop");
            }

            parse(&o, p, 0, tail, n, 0, 0, 0);      /* broken off: who knows */
            assert_int_equal(o.prompt, NONE);
        }

        free(p);
    }

    /* the last event holds all of the answer, and is cut */

    p = answer_load("responses", "sse", &n);

    for (tail = 130; tail < n; tail++) {
        parse(&o, p, 0, tail, n, 3, 1, 1);

        /* it begins 900 bytes before */

        if (tail > 130 + 200 && tail < 880) {
            assert_int_equal(o.prompt, 37);
            assert_int_equal(o.completion, 11);
            assert_int_equal(o.estimated, 0);
        }
    }

    free(p);
}


/* of an event that is cut nobody knows which choice it is of */

static void
test_cut_choice(void **state)
{
    size_t     n, tail;
    outcome_t  o;

    static const char  stream[] =
        "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"abcdefgh\"},"
        "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":3}}\n\n"
        "data: [DONE]\n\n";

    (void) state;

    n = sizeof(stream) - 1;

    for (tail = 0; tail < n; tail++) {
        hole = 10;
        parse(&o, (const uint8_t *) stream, 0, tail, n, 1, 1, 1);
        hole = 0;

        assert_string_equal(o.reason[0], "");
        assert_int_equal(o.prompt, tail > 60 ? 3 : o.prompt);
    }
}


/* an answer of 100 MB, full of what looks like its end */

static void
test_huge(void **state)
{
    char        tail[8192], head[4096];
    size_t      n, at;
    outcome_t   o;
    answer_t    a;

    static const char  lie[] =
        "\\\"}}],\\\"usage\\\":{\\\"prompt_tokens\\\":1,"
        "\\\"completion_tokens\\\":1}}\\\\";
    static const char  end[] =
        "\"},\"logprobs\":{\"content\":[{\"token\":\"}\",\"usage\":{}}]},"
        "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":70,"
        "\"completion_tokens\":30000000}}\n";

    (void) state;

    n = (size_t) snprintf(head, sizeof(head), "{\"id\":\"x\",\"object\":\""
                          "chat.completion\",\"choices\":[{\"index\":0,"
                          "\"message\":{\"content\":\"");

    while (n + sizeof(lie) <= sizeof(head)) {
        memcpy(head + n, lie, sizeof(lie) - 1);
        n += sizeof(lie) - 1;
    }

    for (at = 0; at < sizeof(tail); at++) {
        tail[at] = lie[at % (sizeof(lie) - 1)];
    }

    /* the lie is to be whole where the end follows */

    at = sizeof(tail) - (sizeof(end) - 1);
    at -= at % (sizeof(lie) - 1);
    memcpy(tail + at, end, sizeof(end) - 1);
    at += sizeof(end) - 1;

    for (n = sizeof(end) - 1; n <= at; n++) {
        a = (answer_t) { (uint8_t *) head, sizeof(head),
                         (uint8_t *) tail + at - n, n, 104857600, 0, 0, 1,
                         NULL, 0 };
        assert_int_equal(ngx_http_llm_capture_outcome(&o, &a), 0);
        assert_int_equal(o.prompt, 70);
        assert_int_equal(o.completion, 30000000);
        assert_int_equal(o.choices, 1);
        assert_string_equal(o.reason[0], "length");
    }

    /* less and less of the end: never the lie */

    for (n = 0; n < sizeof(end) - 1; n++) {
        a = (answer_t) { (uint8_t *) head, sizeof(head),
                         (uint8_t *) tail + at - n, n, 104857600, 0, 0, 1,
                         NULL, 0 };
        assert_int_equal(ngx_http_llm_capture_outcome(&o, &a), 0);
        assert_true(o.prompt == NONE || o.prompt == 70);
    }

    /* and when it was broken off within the lie */

    for (n = 1; n < 4 * sizeof(lie); n++) {
        a = (answer_t) { (uint8_t *) head, sizeof(head), (uint8_t *) tail, n,
                         104857600, 0, 0, 1, NULL, 0 };
        assert_int_equal(ngx_http_llm_capture_outcome(&o, &a), 0);
        assert_int_equal(o.prompt, NONE);
    }
}


static void
json(outcome_t *o, const char *text)
{
    parse(o, (const uint8_t *) text, strlen(text), 0, strlen(text), 0, 0, 1);
}


static void
test_numbers(void **state)
{
    char       text[256];
    size_t     i;
    outcome_t  o;

    static const struct {
        const char  *number;
        int64_t      value;
        unsigned     refused;
    } list[] = {
        { "0", 0, 0 },
        { "2147483647", 2147483647, 0 },
        { "null", NONE, 0 },
        { "-0", 0, 0 },
        { "-1", NONE, 1 },
        { "2147483648", NONE, 1 },
        { "9223372036854775807", NONE, 1 },
        { "9223372036854775808", NONE, 1 },
        { "-9223372036854775809", NONE, 1 },
        { "1000000000000000000000000000000", NONE, 1 },
        { "1e400", NONE, 1 },
        { "7.0", NONE, 1 },
        { "7.5", NONE, 1 },
        { "1e3", NONE, 1 },
        { "\"7\"", NONE, 1 },
        { "true", NONE, 1 },
        { "[7]", NONE, 1 },
        { "{}", NONE, 1 }
    };

    (void) state;

    for (i = 0; i < N(list); i++) {
        (void) snprintf(text, sizeof(text), "{\"usage\":{\"prompt_tokens\":%s"
                        "},\"choices\":[{\"finish_reason\":\"stop\"}]}",
                        list[i].number);
        json(&o, text);

        if (o.prompt != list[i].value || (o.refused != 0) != list[i].refused) {
            fail_msg("%s: %lld, refused %u", list[i].number,
                     (long long) o.prompt, o.refused);
        }

        /* a double that overflows makes it no JSON */

        if (strcmp(list[i].number, "1e400") != 0) {
            assert_int_equal(o.refused, list[i].refused);
            assert_string_equal(o.reason[0], "stop");
        }
    }

    json(&o, "{\"created\":1e3,\"seed\":99999999999999999999,"
             "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}");
    assert_int_equal(o.prompt, 7);
    assert_int_equal(o.completion, 2);

    json(&o, "{\"usage\":\"7\"}");
    assert_int_equal(o.refused, 1);

    json(&o, "{\"usage\":{\"input_tokens\":2147483647,"
             "\"cache_read_input_tokens\":1}}");
    assert_int_equal(o.prompt, NONE);
    assert_int_equal(o.refused, 1);

    json(&o, "{\"usage\":{\"prompt_tokens\":3,\"prompt_cache_hit_tokens\":2,"
             "\"completion_tokens_details\":{\"reasoning_tokens\":1}}}");
    assert_int_equal(o.cached, 2);
    assert_int_equal(o.reasoning, 1);
}


/* no text of an answer gets into a reason */

static void
test_reasons(void **state)
{
    size_t     i;
    char       text[512], want[64];
    outcome_t  o;

    static const char *const  list[][2] = {
        { "\"stop\"", "stop" },
        { "\"\"", "" },
        { "null", "" },
        { "7", "" },
        { "\"content_filter\"", "content_filter" },
        { "\"two words\"", "other" },
        { "\"a\\u0000b\"", "a" },
        { "\"\\u00e9\"", "other" },
        { "\"abcdefghijklmnopqrstuvwxyz12345\"",
          "abcdefghijklmnopqrstuvwxyz12345" },
        { "\"abcdefghijklmnopqrstuvwxyz123456\"", "other" }
    };

    (void) state;

    for (i = 0; i < N(list); i++) {
        (void) snprintf(text, sizeof(text),
                        "{\"choices\":[{\"finish_reason\":%s}]}", list[i][0]);
        json(&o, text);
        assert_int_equal(o.choices, 1);
        (void) snprintf(want, sizeof(want), "%s", list[i][1]);
        assert_string_equal(o.reason[0], want);
    }

    json(&o, "{\"choices\":[{\"index\":2,\"finish_reason\":\"a\"},7,"
             "{\"index\":16,\"finish_reason\":\"b\"},"
             "{\"index\":-1,\"finish_reason\":\"c\"},"
             "{\"index\":9223372036854775807,\"finish_reason\":\"d\"}]}");
    assert_int_equal(o.choices, 3);
    assert_string_equal(o.reason[0], "");
    assert_string_equal(o.reason[2], "a");
}


static void
test_bad(void **state)
{
    size_t      i;
    answer_t    a;
    outcome_t   o;
    uint8_t    *big;

    static const char *const  list[] = {
        "", "{", "}", "[]", "7", "\"usage\"", "null", "{\"usage\":{}",
        "{\"usage\":{\"prompt_tokens\":7}", "{\"usage\":[]} x",
        "\"},\"usage\":{\"prompt_tokens\":7}", "<html>}", "\\\"}",
        "{\"a\":{\"usage\":{\"prompt_tokens\":7}}}", "}}}}}}", "]}",
        "{\"choices\":7,\"response\":7,\"delta\":[],\"message\":\"a\"}"
    };

    (void) state;

    for (i = 0; i < N(list); i++) {
        json(&o, list[i]);
        assert_int_equal(o.prompt, NONE);
        assert_int_equal(o.choices, 0);

        hole = 1000;
        parse(&o, (const uint8_t *) list[i], 0, strlen(list[i]),
              strlen(list[i]), 5, 1, 1);
        hole = 0;
        assert_int_equal(o.completion, 5);
        assert_int_equal(o.estimated, 1);
    }

    /* nested deeper than a parser goes, both ways */

    big = malloc(NGX_HTTP_LLM_CAPTURE_ANSWER);
    assert_non_null(big);

    for (i = 0; i < 3; i++) {
        memset(big, "[{}"[i], NGX_HTTP_LLM_CAPTURE_ANSWER);
        parse(&o, big, NGX_HTTP_LLM_CAPTURE_ANSWER, 0,
              NGX_HTTP_LLM_CAPTURE_ANSWER, 0, 0, 1);
        hole = 1000;
        parse(&o, big, 0, NGX_HTTP_LLM_CAPTURE_ANSWER,
              NGX_HTTP_LLM_CAPTURE_ANSWER, 0, 0, 1);
        hole = 0;
        assert_int_equal(o.prompt, NONE);
    }

    memset(big, '\\', NGX_HTTP_LLM_CAPTURE_ANSWER);
    memcpy(big + NGX_HTTP_LLM_CAPTURE_ANSWER - 2, "\"}", 2);
    hole = 1000;
    parse(&o, big, 0, NGX_HTTP_LLM_CAPTURE_ANSWER,
          NGX_HTTP_LLM_CAPTURE_ANSWER, 0, 0, 1);
    hole = 0;
    free(big);

    memset(&a, 0, sizeof(a));
    a.head_len = NGX_HTTP_LLM_CAPTURE_ANSWER + 1;
    assert_int_equal(ngx_http_llm_capture_outcome(&o, &a), -1);
    assert_int_equal(o.prompt, NONE);
    assert_int_equal(o.completion, NONE);
}


/* a count that came too early is no end of the count */

static void
test_early(void **state)
{
    outcome_t  o;

#define EVENT(json)  "data: " json "\n\n"
#define TEXT         EVENT("{\"choices\":[{\"text\":\"a\"}]}")
#define USAGE(n)     EVENT("{\"usage\":{\"prompt_tokens\":5,"                 \
                           "\"completion_tokens\":" #n "}}")

    static const char  early[] = USAGE(1) TEXT TEXT TEXT;
    static const char  more[] = TEXT USAGE(9) TEXT;
    static const char  late[] = TEXT TEXT USAGE(7);
    static const char  bad[] = USAGE(-7) TEXT TEXT USAGE(1e3);

    (void) state;

#define STREAM(text, head, tail, n, deltas)                                   \
    parse(&o, (const uint8_t *) text, head, tail, n, deltas, 1, 1)

    STREAM(early, sizeof(early) - 1, 0, sizeof(early) - 1, 3);
    assert_int_equal(o.prompt, 5);
    assert_int_equal(o.completion, 3);
    assert_int_equal(o.estimated, 1);

    STREAM(more, sizeof(more) - 1, 0, sizeof(more) - 1, 2);
    assert_int_equal(o.completion, 9);
    assert_int_equal(o.estimated, 1);

    STREAM(late, sizeof(late) - 1, 0, sizeof(late) - 1, 2);
    assert_int_equal(o.completion, 7);
    assert_int_equal(o.estimated, 0);

    STREAM(bad, sizeof(bad) - 1, 0, sizeof(bad) - 1, 2);
    assert_int_equal(o.completion, 2);
    assert_int_equal(o.estimated, 1);
    assert_int_equal(o.refused, 2);

    /* in the first window, and more came than both show */

    STREAM(early, 70, 45, sizeof(early) - 1, 3);
    assert_int_equal(o.prompt, 5);
    assert_int_equal(o.completion, 3);
    assert_int_equal(o.estimated, 1);
}


static void
text_of(const char *answer, size_t head, size_t size, unsigned stream,
    const char *want)
{
    size_t     n;
    outcome_t  o;

    n = strlen(answer);
    room_size = size;
    room = malloc(size ? size : 1);
    assert_non_null(room);

    parse(&o, (const uint8_t *) answer, head, n - head, n, 9, stream, 1);

    if (o.text_len != strlen(want) || memcmp(room, want, o.text_len) != 0) {
        fail_msg("%zu, %zu: %.*s", head, size, (int) o.text_len, room);
    }

    free(room);
    room = NULL;
}


#define TEXT_OF(i, t)  EVENT("{\"choices\":[{\"index\":" #i ",\"text\":\"" t \
                             "\"}]}")

static void
test_text(void **state)
{
    size_t  size, head;

    static const char  stream[] =
        TEXT_OF(0, "a ") TEXT_OF(1, "no") TEXT_OF(0, "\\u00e9")
        TEXT_OF(0, "") TEXT_OF(0, "\xf0\x9f\x98\x80") TEXT_OF(0, "z");
    static const char  plain[] =
        "{\"choices\":[{\"text\":\"one\"},{\"text\":\"two\"}]}";
    static const char  cut[] = TEXT_OF(0, "a ");

    static const char *const  want[] = {
        "", "a", "a ", "a ", "a \xc3\xa9", "a \xc3\xa9", "a \xc3\xa9",
        "a \xc3\xa9", "a \xc3\xa9\xf0\x9f\x98\x80",
        "a \xc3\xa9\xf0\x9f\x98\x80z", "a \xc3\xa9\xf0\x9f\x98\x80z"
    };

    (void) state;

    for (size = 0; size < N(want); size++) {
        for (head = 0; head < sizeof(stream); head += 7) {
            text_of(stream, head, size, 1, want[size]);
        }
    }

    text_of(plain, 0, 100, 0, "one");
    text_of(plain, 5, 2, 0, "on");

    /* up to the gap, and nothing of what is not whole */

    hole = 100;
    text_of(stream, sizeof(cut) - 1, 100, 1, "a ");
    text_of(plain, 20, 100, 0, "");
    hole = 0;
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_cut_choice),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_text)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
