
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_conversation.h"


/* whole numbers that a double holds exactly */
#define EXACT  9007199254740992.0
/* bytes of a name in a path, with NUL */
#define NAME   128
/* bytes that a tree may take, and those of a small body */
#define MOST   ((size_t) 256 * 1024 * 1024)
#define LEAST  ((size_t) 32 * 1024 * 1024)


typedef struct {
    const struct iovec               *iov;
    unsigned                          n;
    size_t                            skip;
} ngx_http_llm_capture_conversation_in_t;


/* where the text goes: to one of the two */

typedef struct {
    ngx_http_llm_capture_blocks_t    *blocks;
    ngx_http_llm_capture_siphash_t   *hash;
    unsigned                          user:1;   /* one of them has spoken */
} ngx_http_llm_capture_conversation_t;


static void ngx_http_llm_capture_conversation_json(
    ngx_http_llm_capture_conversation_t *c, json_t *value);


/* of the tree that is being made */
static size_t  ngx_http_llm_capture_conversation_left;


static size_t
ngx_http_llm_capture_conversation_piece(void *buffer, size_t size, void *data)
{
    size_t                                   n, some;
    ngx_http_llm_capture_conversation_in_t  *in;

    in = data;

    for (n = 0; n < size && in->n; n += some) {
        some = in->iov->iov_len - in->skip;
        some = some > size - n ? size - n : some;

        if (some) {
            memcpy((char *) buffer + n, (char *) in->iov->iov_base + in->skip,
                   some);
        }

        in->skip += some;

        if (in->skip == in->iov->iov_len) {
            in->iov++;
            in->n--;
            in->skip = 0;
        }
    }

    return n;
}


static json_t *
ngx_http_llm_capture_conversation_parse(const struct iovec *iov, unsigned n)
{
    json_t                                  *root;
    json_error_t                             err;
    ngx_http_llm_capture_conversation_in_t   in;

    in = (ngx_http_llm_capture_conversation_in_t) { iov, n, 0 };
    root = json_load_callback(ngx_http_llm_capture_conversation_piece, &in,
                              JSON_ALLOW_NUL, &err);

    if (root == NULL && json_error_code(&err) == json_error_numeric_overflow) {
        in = (ngx_http_llm_capture_conversation_in_t) { iov, n, 0 };
        root = json_load_callback(ngx_http_llm_capture_conversation_piece,
                                  &in, JSON_ALLOW_NUL|JSON_DECODE_INT_AS_REAL,
                                  &err);
    }

    return root;
}


/* an array of empty objects takes a hundred times its bytes */

static void *
ngx_http_llm_capture_conversation_alloc(size_t size)
{
    if (size > ngx_http_llm_capture_conversation_left) {
        return NULL;
    }

    ngx_http_llm_capture_conversation_left -= size;

    return malloc(size);
}


json_t *
ngx_http_llm_capture_conversation_load(const struct iovec *iov, unsigned n)
{
    size_t          len;
    json_t         *root;
    unsigned        i;
    json_free_t     dealloc;
    json_malloc_t   alloc;

    len = 0;

    for (i = 0; i < n; i++) {
        len += iov[i].iov_len;
    }

    ngx_http_llm_capture_conversation_left =
                                len < (MOST - LEAST) / 8 ? LEAST + 8 * len
                                                         : MOST;

    json_get_alloc_funcs(&alloc, &dealloc);
    json_set_alloc_funcs(ngx_http_llm_capture_conversation_alloc, free);

    root = ngx_http_llm_capture_conversation_parse(iov, n);

    json_set_alloc_funcs(alloc, dealloc);

    return root;
}


static void
ngx_http_llm_capture_conversation_text(ngx_http_llm_capture_conversation_t *c,
    const void *text, size_t n)
{
    if (c->blocks) {
        ngx_http_llm_capture_blocks_update(c->blocks, text, n);

    } else {
        ngx_http_llm_capture_siphash_update(c->hash, text, n);
    }
}


static void
ngx_http_llm_capture_conversation_tag(ngx_http_llm_capture_conversation_t *c,
    char letter, const char *text, size_t n)
{
    char  tag[2] = { '\xff', letter };

    ngx_http_llm_capture_conversation_text(c, tag, 2);
    ngx_http_llm_capture_conversation_text(c, text, n);
}


static void
ngx_http_llm_capture_conversation_value_of(
    ngx_http_llm_capture_conversation_t *c, char letter, json_t *value)
{
    ngx_http_llm_capture_conversation_tag(c, letter, "", 0);
    ngx_http_llm_capture_conversation_json(c, value);
}


static void
ngx_http_llm_capture_conversation_string(
    ngx_http_llm_capture_conversation_t *c, const char *s, size_t n)
{
    ngx_http_llm_capture_conversation_text(c, "\xfe", 1);
    ngx_http_llm_capture_conversation_text(c, s, n);
    ngx_http_llm_capture_conversation_text(c, "\xfe", 1);
}


static void
ngx_http_llm_capture_conversation_number(
    ngx_http_llm_capture_conversation_t *c, json_t *value)
{
    int     n;
    char    text[32];
    double  d;

    d = json_real_value(value);

    if (json_is_integer(value)) {
        n = snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT,
                     json_integer_value(value));

    } else if (d > -EXACT && d < EXACT && d == (double) (int64_t) d) {
        n = snprintf(text, sizeof(text), "%lld", (long long) d);

    } else {
        n = snprintf(text, sizeof(text), "%.17g", d);
    }

    ngx_http_llm_capture_conversation_text(c, text, (size_t) n);
}


static void
ngx_http_llm_capture_conversation_members(
    ngx_http_llm_capture_conversation_t *c, json_t *object)
{
    json_t      *value;
    const char  *key;

    ngx_http_llm_capture_conversation_text(c, "{", 1);

    json_object_foreach(object, key, value) {

        if (strcmp(key, "cache_control") == 0) {
            continue;
        }

        ngx_http_llm_capture_conversation_string(c, key, strlen(key));
        ngx_http_llm_capture_conversation_json(c, value);
        ngx_http_llm_capture_conversation_text(c, ",", 1);
    }

    ngx_http_llm_capture_conversation_text(c, "}", 1);
}


/* no deeper than the parser took it */

static void
ngx_http_llm_capture_conversation_json(ngx_http_llm_capture_conversation_t *c,
    json_t *value)
{
    size_t   i;
    json_t  *element;

    switch (json_typeof(value)) {

    case JSON_OBJECT:
        ngx_http_llm_capture_conversation_members(c, value);
        break;

    case JSON_ARRAY:
        ngx_http_llm_capture_conversation_text(c, "[", 1);

        json_array_foreach(value, i, element) {
            ngx_http_llm_capture_conversation_json(c, element);
            ngx_http_llm_capture_conversation_text(c, ",", 1);
        }

        ngx_http_llm_capture_conversation_text(c, "]", 1);
        break;

    case JSON_STRING:
        ngx_http_llm_capture_conversation_string(c, json_string_value(value),
                                                 json_string_length(value));
        break;

    case JSON_INTEGER:
    case JSON_REAL:
        ngx_http_llm_capture_conversation_number(c, value);
        break;

    case JSON_TRUE:
        ngx_http_llm_capture_conversation_text(c, "t", 1);
        break;

    case JSON_FALSE:
        ngx_http_llm_capture_conversation_text(c, "f", 1);
        break;

    case JSON_NULL:
        ngx_http_llm_capture_conversation_text(c, "n", 1);
        break;
    }
}


static unsigned
ngx_http_llm_capture_conversation_is_text(json_t *part)
{
    const char  *type;

    if (!json_is_string(json_object_get(part, "text"))) {
        return 0;
    }

    type = json_string_value(json_object_get(part, "type"));

    return type && (strcmp(type, "text") == 0
                    || strcmp(type, "input_text") == 0
                    || strcmp(type, "output_text") == 0);
}


static void
ngx_http_llm_capture_conversation_content(
    ngx_http_llm_capture_conversation_t *c, json_t *content)
{
    size_t   i;
    json_t  *part;

    if (content == NULL || json_is_null(content)) {
        return;
    }

    if (json_is_string(content)) {
        ngx_http_llm_capture_conversation_tag(c, 'c',
            json_string_value(content), json_string_length(content));
        return;
    }

    if (!json_is_array(content)) {
        ngx_http_llm_capture_conversation_value_of(c, 'v', content);
        return;
    }

    json_array_foreach(content, i, part) {

        if (ngx_http_llm_capture_conversation_is_text(part)) {
            ngx_http_llm_capture_conversation_content(c,
                json_object_get(part, "text"));

        } else {
            ngx_http_llm_capture_conversation_value_of(c, 'v', part);
        }
    }
}


static void
ngx_http_llm_capture_conversation_message(
    ngx_http_llm_capture_conversation_t *c, json_t *message)
{
    json_t      *role, *value;
    unsigned     i;

    static const char *const  names[] = {
        "name", "tool_calls", "tool_call_id", "function_call",
        "reasoning_content", "reasoning"
    };

    role = json_object_get(message, "role");

    if (!json_is_string(role)) {
        ngx_http_llm_capture_conversation_value_of(c, 'i', message);
        return;
    }

    ngx_http_llm_capture_conversation_tag(c, 'm', json_string_value(role),
                                          json_string_length(role));
    ngx_http_llm_capture_conversation_content(c,
        json_object_get(message, "content"));

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        value = json_object_get(message, names[i]);

        if (value && !json_is_null(value)) {
            ngx_http_llm_capture_conversation_tag(c, 'k', names[i],
                                                  strlen(names[i]));
            ngx_http_llm_capture_conversation_value_of(c, 'v', value);
        }
    }

    c->user |= strcmp(json_string_value(role), "user") == 0;
}


/* of messages or of input; first: no further than the first user's */

static void
ngx_http_llm_capture_conversation_turns(ngx_http_llm_capture_conversation_t *c,
    json_t *turns, unsigned first)
{
    size_t   i;
    json_t  *turn;

    if (json_is_string(turns)) {
        ngx_http_llm_capture_conversation_tag(c, 'm', "user", 4);
        ngx_http_llm_capture_conversation_content(c, turns);
        c->user = 1;
        return;
    }

    json_array_foreach(turns, i, turn) {

        if (first && c->user) {
            return;
        }

        ngx_http_llm_capture_conversation_message(c, turn);
    }
}


static void
ngx_http_llm_capture_conversation_system(
    ngx_http_llm_capture_conversation_t *c, json_t *system)
{
    if (system && !json_is_null(system)) {
        ngx_http_llm_capture_conversation_tag(c, 's', "", 0);
        ngx_http_llm_capture_conversation_content(c, system);
    }
}


static void
ngx_http_llm_capture_conversation_walk(ngx_http_llm_capture_conversation_t *c,
    json_t *request, unsigned first)
{
    ngx_http_llm_capture_conversation_system(c,
        json_object_get(request, "system"));
    ngx_http_llm_capture_conversation_system(c,
        json_object_get(request, "instructions"));

    ngx_http_llm_capture_conversation_turns(c,
        json_object_get(request, "messages"), first);
    ngx_http_llm_capture_conversation_turns(c,
        json_object_get(request, "input"), first);
}


static void
ngx_http_llm_capture_conversation_prompt(
    ngx_http_llm_capture_conversation_t *c, json_t *prompt)
{
    size_t   i;
    json_t  *element;

    if (json_is_string(prompt)) {
        ngx_http_llm_capture_conversation_tag(c, 'p',
            json_string_value(prompt), json_string_length(prompt));
        return;
    }

    json_array_foreach(prompt, i, element) {

        if (json_is_string(element)) {
            ngx_http_llm_capture_conversation_prompt(c, element);

        } else {
            ngx_http_llm_capture_conversation_value_of(c, 'v', element);
        }
    }
}


void
ngx_http_llm_capture_conversation_hash(json_t *request,
    ngx_http_llm_capture_blocks_t *blocks)
{
    size_t                                i;
    json_t                               *tool;
    unsigned                              k;
    ngx_http_llm_capture_conversation_t   c = { blocks, NULL, 0 };

    static const char *const  tools[] = { "tools", "functions" };

    for (k = 0; k < 2; k++) {
        json_array_foreach(json_object_get(request, tools[k]), i, tool) {
            ngx_http_llm_capture_conversation_value_of(&c, 't', tool);
        }
    }

    ngx_http_llm_capture_conversation_walk(&c, request, 0);
    ngx_http_llm_capture_conversation_prompt(&c,
        json_object_get(request, "prompt"));
}


uint64_t
ngx_http_llm_capture_conversation_session(json_t *request)
{
    uint64_t                             session;
    ngx_http_llm_capture_siphash_t       hash;
    ngx_http_llm_capture_conversation_t  c = { NULL, &hash, 0 };

    ngx_http_llm_capture_siphash_init(&hash, ngx_http_llm_capture_siphash_zero);
    ngx_http_llm_capture_siphash_update(&hash, "prefix", sizeof("prefix"));
    ngx_http_llm_capture_conversation_walk(&c, request, 1);

    if (!c.user) {
        return 0;
    }

    session = ngx_http_llm_capture_siphash_end(&hash);

    return session ? session : 1;
}


const char *
ngx_http_llm_capture_conversation_value(json_t *request, const char *path,
    size_t *len)
{
    char         name[NAME];
    json_t      *value;
    size_t       n;

    for (value = request; value && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");

        if (n >= sizeof(name)) {
            return NULL;
        }

        memcpy(name, path, n);
        name[n] = '\0';
        value = json_object_get(value, name);
    }

    if (json_is_object(value)) {
        value = json_object_get(value, "id");
    }

    *len = json_string_length(value);

    return *len ? json_string_value(value) : NULL;
}
