
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What an answer says of itself.  The input is the answer: JSON if it begins
 * with a brace, else a stream.
 *
 * Whatever it is, what comes out is fit for a row.  However a whole answer
 * stands in its windows, the same comes out; and of a JSON answer whose middle
 * is missing nothing else than of the whole one.
 */

#include "fuzz.h"

#include <jansson.h>

#include "ngx_http_llm_capture_outcome.h"
#include "ngx_http_llm_capture_row.h"


typedef ngx_http_llm_capture_answer_t   answer_t;
typedef ngx_http_llm_capture_outcome_t  outcome_t;


static void
count(int64_t n)
{
    must(n >= -1 && n <= NGX_HTTP_LLM_CAPTURE_TOKENS);
}


static void
fit(const outcome_t *o, uint64_t deltas)
{
    char                         p[NGX_HTTP_LLM_CAPTURE_ROW_OUTCOME];
    size_t                       n;
    json_t                      *root;
    uint32_t                     i;
    ngx_http_llm_capture_fields_t   row;

    count(o->prompt);
    count(o->completion);
    count(o->cached);
    count(o->reasoning);
    must(o->choices <= NGX_HTTP_LLM_CAPTURE_CHOICES);
    must(!o->estimated || o->completion >= (int64_t) deltas);

    for (i = 0; i < NGX_HTTP_LLM_CAPTURE_CHOICES; i++) {
        must(memchr(o->reason[i], '\0', NGX_HTTP_LLM_CAPTURE_REASON));
        must(i < o->choices || o->reason[i][0] == '\0');
    }

    memset(&row, 0, sizeof(row));
    row.outcome = o;

    n = ngx_http_llm_capture_row_outcome(p, sizeof(p), &row);
    must(n && n <= sizeof(p));
    root = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
    must(root != NULL);
    json_decref(root);
}


static void
parse(outcome_t *o, const uint8_t *p, size_t head, size_t tail, size_t n,
    const answer_t *like)
{
    uint8_t   *h, *t;
    answer_t   a;

    h = copy(p, head);
    t = copy(p + n - tail, tail);

    a = *like;
    a.head = h;
    a.head_len = head;
    a.tail = t;
    a.tail_len = tail;
    a.total = n;

    memset(o, 0x5a, sizeof(*o));
    must(ngx_http_llm_capture_outcome(o, &a) == 0);
    fit(o, a.deltas);

    free(h);
    free(t);
}


static void
same(const outcome_t *a, const outcome_t *b)
{
    must(a->prompt == b->prompt && a->completion == b->completion
         && a->cached == b->cached && a->reasoning == b->reasoning);
    must(a->estimated == b->estimated && a->error == b->error
         && a->refused == b->refused && a->choices == b->choices);
    must(memcmp(a->reason, b->reason, sizeof(a->reason)) == 0);
}


static void
part(int64_t some, int64_t all)
{
    must(some == -1 || some == all);
}


/* a prompt may have lost its parts, but a usage is never cut */

static void
less(const outcome_t *some, const outcome_t *all)
{
    part(some->prompt, all->prompt);
    part(some->completion, all->completion);
    part(some->cached, all->cached);
    part(some->reasoning, all->reasoning);
}


/* valid, and no key of an object is given twice: there the last one counts */

static unsigned
valid(const uint8_t *p, size_t n)
{
    json_t  *root;

    root = json_loadb((const char *) p, n,
                      JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    json_decref(root);

    return root != NULL;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t     head, tail;
    uint64_t   seed;
    answer_t   a;
    unsigned   i;
    outcome_t  whole, some;

    memset(&a, 0, sizeof(a));
    seed = seed_of(data, size);
    a.stream = size == 0 || *data != '{';
    a.complete = choice(&seed) % 4 != 0;
    a.deltas = choice(&seed) % 8;

    parse(&whole, data, size, 0, size, &a);

    for (i = 0; i < 4; i++) {
        head = choice(&seed) % (size + 1);
        parse(&some, data, head, size - head, size, &a);
        same(&some, &whole);

        tail = choice(&seed) % (size - head + 1);
        parse(&some, data, head, tail, size, &a);

        if (!a.stream && a.complete && valid(data, size)) {
            less(&some, &whole);
        }
    }

    return 0;
}
