
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE
#define _FILE_OFFSET_BITS  64

#include <string.h>
#include <jansson.h>

#include "ngx_http_llm_capture_usage.h"


void
ngx_http_llm_capture_usage_init(ngx_http_llm_capture_usage_t *u,
    ngx_http_llm_capture_outcome_t *o)
{
    memset(u, 0, sizeof(ngx_http_llm_capture_usage_t));
    memset(o, 0, sizeof(ngx_http_llm_capture_outcome_t));

    u->o = o;
    u->prompt = -1;
    u->input = -1;
    u->cache_read = -1;
    u->cache_made = -1;
    u->cached = -1;

    o->prompt = -1;
    o->completion = -1;
    o->cached = -1;
    o->reasoning = -1;
}


static void
ngx_http_llm_capture_usage_number(ngx_http_llm_capture_usage_t *u,
    json_t *object, const char *key, int64_t *number)
{
    double   d;
    json_t  *value;
    int64_t  n;

    value = json_object_get(object, key);

    if (value == NULL || json_is_null(value)) {
        return;
    }

    n = -1;

    if (json_is_integer(value)) {
        n = json_integer_value(value);

    } else if (u->loose && json_is_real(value)) {
        d = json_real_value(value);

        /* written so that the cast is defined for what passes */

        if (d >= 0 && d <= NGX_HTTP_LLM_CAPTURE_TOKENS
            && d == (double) (int64_t) d)
        {
            n = (int64_t) d;
        }
    }

    if (n < 0 || n > NGX_HTTP_LLM_CAPTURE_TOKENS) {
        u->o->refused++;
        return;
    }

    *number = n;
    u->counted |= (number == &u->o->completion);
}


static void
ngx_http_llm_capture_usage_counts(ngx_http_llm_capture_usage_t *u,
    json_t *usage)
{
    unsigned  i;
    json_t   *details;

    static const char *const  of_prompt[] = {
        "input_tokens_details", "prompt_tokens_details"
    };

    static const char *const  of_completion[] = {
        "output_tokens_details", "completion_tokens_details"
    };

    if (usage == NULL || json_is_null(usage)) {
        return;
    }

    if (!json_is_object(usage)) {
        u->o->refused++;
        return;
    }

#define number(object, key, to)                                               \
    ngx_http_llm_capture_usage_number(u, object, key, to)

    number(usage, "prompt_tokens", &u->prompt);
    number(usage, "input_tokens", &u->input);
    number(usage, "cache_read_input_tokens", &u->cache_read);
    number(usage, "cache_creation_input_tokens", &u->cache_made);
    number(usage, "prompt_cache_hit_tokens", &u->cached);

    number(usage, "output_tokens", &u->o->completion);
    number(usage, "completion_tokens", &u->o->completion);
    number(usage, "reasoning_tokens", &u->o->reasoning);

    for (i = 0; i < 2; i++) {
        details = json_object_get(usage, of_prompt[i]);
        number(details, "cached_tokens", &u->cached);

        details = json_object_get(usage, of_completion[i]);
        number(details, "reasoning_tokens", &u->o->reasoning);
    }

#undef number
}


static const char *
ngx_http_llm_capture_usage_string(json_t *object, const char *key)
{
    const char  *s;

    s = json_string_value(json_object_get(object, key));

    return s ? s : "";
}


static void
ngx_http_llm_capture_usage_reason(ngx_http_llm_capture_usage_t *u,
    int64_t choice, const char *s)
{
    size_t       len;
    const char  *reason;

    if (choice < 0 || choice >= NGX_HTTP_LLM_CAPTURE_CHOICES) {
        return;
    }

    if (u->o->choices <= choice) {
        u->o->choices = (uint32_t) choice + 1;
    }

    if (*s == '\0') {
        return;
    }

    len = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                    "0123456789_.-");

    reason = (s[len] == '\0' && len < NGX_HTTP_LLM_CAPTURE_REASON)
             ? s : "other";

    memset(u->o->reason[choice], 0, NGX_HTTP_LLM_CAPTURE_REASON);
    memcpy(u->o->reason[choice], reason, strlen(reason));
}


/* a choice that was cut has lost it: then by the next one, or by place */

static int64_t
ngx_http_llm_capture_usage_index(json_t *choices, size_t i)
{
    json_t  *own, *next;

    own = json_object_get(json_array_get(choices, i), "index");

    if (json_is_integer(own) && json_integer_value(own) >= 0) {
        return json_integer_value(own);
    }

    next = json_object_get(json_array_get(choices, i + 1), "index");

    if (json_is_integer(next)) {
        return json_integer_value(next) > 0 ? json_integer_value(next) - 1
                                            : -1;
    }

    return own ? -1 : (int64_t) i;
}


static void
ngx_http_llm_capture_usage_text(ngx_http_llm_capture_usage_t *u, json_t *text)
{
    char        *p;
    size_t       n, room;
    const char  *s;

    s = json_string_value(text);

    if (u->text == NULL || s == NULL) {
        return;
    }

    n = json_string_length(text);
    room = u->text_size - u->o->text_len;
    p = u->text + u->o->text_len;

    if (n > room) {
        u->text = NULL;

        for (n = room; n && ((uint8_t) s[n] & 0xc0) == 0x80; n--) {
            /* void */
        }
    }

    memcpy(p, s, n);
    u->o->text_len += n;
}


static void
ngx_http_llm_capture_usage_choices(ngx_http_llm_capture_usage_t *u,
    json_t *choices)
{
    size_t    i;
    json_t   *choice;
    int64_t   index;

    json_array_foreach(choices, i, choice) {

        if (!json_is_object(choice)) {
            continue;
        }

        index = ngx_http_llm_capture_usage_index(choices, i);

        ngx_http_llm_capture_usage_reason(u, index,
            ngx_http_llm_capture_usage_string(choice, "finish_reason"));

        if (index == 0) {
            ngx_http_llm_capture_usage_text(u,
                                            json_object_get(choice, "text"));
        }
    }
}


static unsigned
ngx_http_llm_capture_usage_failed(json_t *object)
{
    json_t  *error;

    error = json_object_get(object, "error");

    return json_is_object(error)
           || ngx_http_llm_capture_usage_string(object, "error")[0] != '\0';
}


/* of the Responses API, by itself or within an event */

static void
ngx_http_llm_capture_usage_response(ngx_http_llm_capture_usage_t *u,
    json_t *response)
{
    const char  *status, *why;

    status = ngx_http_llm_capture_usage_string(response, "status");
    u->o->error |= ngx_http_llm_capture_usage_failed(response)
                     || strcmp(status, "failed") == 0;

    if (strcmp(status, "in_progress") == 0 || strcmp(status, "queued") == 0) {
        return;
    }

    why = ngx_http_llm_capture_usage_string(
              json_object_get(response, "incomplete_details"), "reason");

    if (*status || *why) {
        ngx_http_llm_capture_usage_reason(u, 0, *why ? why : status);
    }
}


static void
ngx_http_llm_capture_usage_object(ngx_http_llm_capture_usage_t *u,
    json_t *root)
{
    json_t      *response, *delta;
    const char  *object, *reason;

    object = ngx_http_llm_capture_usage_string(root, "object");
    response = json_object_get(root, "response");
    delta = json_object_get(root, "delta");

    u->o->error |= ngx_http_llm_capture_usage_failed(root)
        || strcmp(object, "error") == 0
        || strcmp(ngx_http_llm_capture_usage_string(root, "type"), "error")
           == 0;

    ngx_http_llm_capture_usage_counts(u,
        json_object_get(json_object_get(root, "message"), "usage"));
    ngx_http_llm_capture_usage_counts(u,
        json_object_get(response, "usage"));
    ngx_http_llm_capture_usage_counts(u, json_object_get(root, "usage"));

    ngx_http_llm_capture_usage_choices(u,
        json_object_get(root, "choices"));

    reason = ngx_http_llm_capture_usage_string(root, "stop_reason");

    if (*reason == '\0') {
        reason = ngx_http_llm_capture_usage_string(delta, "stop_reason");
    }

    if (*reason) {
        ngx_http_llm_capture_usage_reason(u, 0, reason);
    }

    if (json_is_object(response)) {
        ngx_http_llm_capture_usage_response(u, response);

    } else if (strcmp(object, "response") == 0) {
        ngx_http_llm_capture_usage_response(u, root);
    }
}


int
ngx_http_llm_capture_usage_read(ngx_http_llm_capture_usage_t *u,
    const char *p, size_t n)
{
    json_t       *root;
    json_error_t  err;

    u->loose = 0;
    root = json_loadb(p, n, JSON_ALLOW_NUL, &err);

    if (root == NULL && json_error_code(&err) == json_error_numeric_overflow) {
        u->loose = 1;
        root = json_loadb(p, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                          &err);

        /* a double overflows as well, a count for all we know */

        u->o->refused += (root == NULL);
    }

    if (!json_is_object(root)) {
        json_decref(root);
        return -1;
    }

    ngx_http_llm_capture_usage_object(u, root);
    json_decref(root);

    return 0;
}


void
ngx_http_llm_capture_usage_sum(ngx_http_llm_capture_usage_t *u)
{
    ngx_http_llm_capture_outcome_t  *o;

    o = u->o;
    o->prompt = u->prompt;
    o->cached = u->cached >= 0 ? u->cached : u->cache_read;

    if (o->prompt >= 0 || u->input < 0) {
        return;
    }

    o->prompt = u->input;
    o->prompt += u->cache_read > 0 ? u->cache_read : 0;
    o->prompt += u->cache_made > 0 ? u->cache_made : 0;

    if (o->prompt > NGX_HTTP_LLM_CAPTURE_TOKENS) {
        o->prompt = -1;
        o->refused++;
    }
}
