
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A stream as it goes by; it is the input.  Any split gives the same state; the
 * helper's reader, which has the stream at hand and shares no code with it but
 * what judges an event, finds the same events; and what jansson makes of an
 * event's JSON has the content that was found in it.
 */

#include "fuzz.h"

#include <jansson.h>

#include "ngx_http_llm_capture_events.h"
#include "ngx_http_llm_capture_sse.h"


#define CONTENT    NGX_HTTP_LLM_CAPTURE_DELTA_CONTENT
#define REASONING  NGX_HTTP_LLM_CAPTURE_DELTA_REASONING
#define ERROR      NGX_HTTP_LLM_CAPTURE_DELTA_ERROR
#define DONE       NGX_HTTP_LLM_CAPTURE_SSE_DONE

typedef ngx_http_llm_capture_sse_t  sse_t;


static void
feed(sse_t *s, const uint8_t *data, size_t size, size_t step, uint64_t seed)
{
    size_t    at, n;
    uint8_t  *piece;
    unsigned  new, before;

    ngx_http_llm_capture_sse_init(s);

    for (at = 0; at < size; at += n) {
        n = step ? step : choice(&seed) % 40;
        n = n > size - at ? size - at : n;

        before = s->seen;
        piece = copy(data + at, n);
        new = ngx_http_llm_capture_sse_feed(s, piece, n);
        free(piece);

        must((new & before) == 0 && (new | before) == s->seen);
    }
}


static unsigned
filled(json_t *object, const char *key)
{
    return json_string_length(json_object_get(object, key)) != 0;
}


static unsigned
any_object(json_t *list)
{
    size_t   i;
    json_t  *element;

    json_array_foreach(list, i, element) {
        if (json_is_object(element)) {
            return 1;
        }
    }

    return 0;
}


static unsigned
of_parts(json_t *parts)
{
    size_t    i, k;
    json_t   *part, *thought;
    unsigned  flags;

    flags = 0;

    json_array_foreach(parts, i, part) {
        flags |= filled(part, "text") ? CONTENT : 0;
        flags |= filled(part, "thinking") ? REASONING : 0;

        json_array_foreach(json_object_get(part, "thinking"), k, thought) {
            flags |= filled(thought, "text") ? REASONING : 0;
        }
    }

    return flags;
}


static unsigned
of_chat(json_t *d)
{
    json_t  *call, *audio;

    call = json_object_get(d, "function_call");
    audio = json_object_get(d, "audio");

    return (filled(d, "content") || filled(d, "refusal")
            || any_object(json_object_get(d, "tool_calls"))
            || filled(call, "name") || filled(call, "arguments")
            || filled(audio, "data") || filled(audio, "transcript")
            ? CONTENT : 0)
           | (filled(d, "reasoning_content") || filled(d, "reasoning")
              || filled(d, "thinking")
              || any_object(json_object_get(d, "reasoning_details"))
              ? REASONING : 0)
           | of_parts(json_object_get(d, "content"));
}


/* the flags of an event by its tree */

static unsigned
of_tree(json_t *root)
{
    size_t       i;
    json_t      *choice, *delta, *block;
    unsigned     flags;
    const char  *type;

    flags = 0;
    delta = json_object_get(root, "delta");
    block = json_object_get(root, "content_block");
    type = json_string_value(json_object_get(root, "type"));

    json_array_foreach(json_object_get(root, "choices"), i, choice) {
        flags |= filled(choice, "text") ? CONTENT : 0;
        flags |= of_chat(json_object_get(choice, "delta"));
    }

    if (json_string_length(delta)) {
        flags |= type && strncmp(type, "response.reasoning", 18) == 0
                 ? REASONING : CONTENT;
    }

    flags |= filled(delta, "text") || filled(delta, "partial_json")
             || filled(block, "text") || filled(block, "name") ? CONTENT : 0;
    flags |= filled(delta, "thinking") || filled(block, "thinking")
             || filled(block, "data") ? REASONING : 0;
    flags |= filled(root, "error")
             || json_is_object(json_object_get(root, "error")) ? ERROR : 0;

    return flags;
}


static unsigned
of_event(const char *p, size_t n)
{
    json_t                        *root;
    unsigned                       flags;
    ngx_http_llm_capture_delta_t   delta;

    ngx_http_llm_capture_delta_init(&delta, 0);
    ngx_http_llm_capture_delta_feed(&delta, (const uint8_t *) p, n);
    flags = ngx_http_llm_capture_delta_end(&delta);

    /*
     * A key given twice, or spelled with escapes, jansson sees otherwise, and
     * it takes a NUL behind a number for nothing
     */

    root = memchr(p, '\\', n) || memchr(p, '\0', n) ? NULL
           : json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);

    if (root) {
        must(flags == of_tree(root));
        json_decref(root);
    }

    return flags;
}


static void
by_hand(const sse_t *s, const uint8_t *stream, size_t size)
{
    char                           *text, *data;
    size_t                          n;
    uint64_t                        events, deltas;
    unsigned                        flags, seen, content;
    ngx_http_llm_capture_events_t   e;

    text = copy(stream, size);
    ngx_http_llm_capture_events_init(&e, text, size);
    events = deltas = 0;
    seen = content = 0;

    while (ngx_http_llm_capture_events_next(&e, &data, &n)) {
        must(data >= text && data + n <= text + size && n);

        if (!e.ended) {
            must(e.p == e.end);
            continue;
        }

        if (n >= 6 && memcmp(data, "[DONE]", 6) == 0) {
            seen |= DONE;
            continue;
        }

        flags = of_event(data, n);
        events++;
        deltas += (flags & (CONTENT|REASONING)) != 0;

        /* behind a content that is not the first nothing is looked for */

        if (content && (flags & CONTENT)) {
            flags &= s->seen;
        }

        content |= flags & CONTENT;
        seen |= flags;
    }

    must(events == s->events && deltas == s->deltas);
    must(seen == s->seen);
    free(text);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sse_t  a, b;

    feed(&a, data, size, size ? size : 1, 0);
    feed(&b, data, size, 1, 0);
    must(memcmp(&a, &b, sizeof(a)) == 0);
    feed(&b, data, size, 0, seed_of(data, size));
    must(memcmp(&a, &b, sizeof(a)) == 0);

    by_hand(&a, data, size);

    return 0;
}
