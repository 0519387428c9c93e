
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "llm_capture_shape.h"


#define LLM_CAPTURE_TABLE  1024

/* keys of a sketch, where its table would grow beyond 8 MB */
#define LLM_CAPTURE_KEYS   (256 * 1024 - 2)


/* key 0 is free space; 0 itself is kept as 1 */

uint64_t *
llm_capture_at(llm_capture_table_t *t, uint64_t key, unsigned *found)
{
    size_t    i, k;
    uint64_t  *old, *value;

    key += (key == 0);

    if (2 * (t->used + 1) > t->size) {
        old = t->key;
        value = t->value;
        k = t->size;

        t->size = k ? 2 * k : LLM_CAPTURE_TABLE;
        t->key = llm_capture_alloc(t->size * sizeof(uint64_t));
        t->value = llm_capture_alloc(t->size * sizeof(uint64_t));
        t->used = 0;

        for (i = 0; i < k; i++) {
            if (old[i]) {
                *llm_capture_at(t, old[i], NULL) = value[i];
            }
        }

        free(old);
        free(value);
    }

    i = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 32;

    for (i &= t->size - 1; t->key[i] && t->key[i] != key;
         i = (i + 1) & (t->size - 1))
    { /* void */ }

    if (found) {
        *found = (t->key[i] == key);
    }

    t->used += (t->key[i] == 0);
    t->key[i] = key;

    return &t->value[i];
}


void
llm_capture_table_free(llm_capture_table_t *t)
{
    free(t->key);
    free(t->value);
    memset(t, 0, sizeof(llm_capture_table_t));
}


void
llm_capture_count(llm_capture_sketch_t *s, uint64_t key)
{
    size_t               i;
    llm_capture_table_t  old;

    if (key & ((UINT64_C(1) << s->shift) - 1)) {
        return;
    }

    ++*llm_capture_at(&s->at, key, NULL);

    if (s->at.used < LLM_CAPTURE_KEYS) {
        return;
    }

    old = s->at;
    memset(&s->at, 0, sizeof(llm_capture_table_t));
    s->shift++;

    for (i = 0; i < old.size; i++) {
        if (old.key[i]
            && (old.key[i] & ((UINT64_C(1) << s->shift) - 1)) == 0)
        {
            *llm_capture_at(&s->at, old.key[i], NULL) = old.value[i];
        }
    }

    llm_capture_table_free(&old);
}


void
llm_capture_counted(const llm_capture_sketch_t *s, double *keys, double *times)
{
    size_t  i;

    *keys = (double) s->at.used * (double) (UINT64_C(1) << s->shift);

    for (*times = 0, i = 0; i < s->at.size; i++) {
        *times += (double) s->at.value[i];
    }

    *times *= (double) (UINT64_C(1) << s->shift);
}


static inline uint64_t
llm_capture_fold(uint64_t a, uint64_t b)
{
    unsigned __int128  m;

    m = (unsigned __int128) a * b;

    return (uint64_t) m ^ (uint64_t) (m >> 64);
}


static inline uint64_t
llm_capture_word(const uint8_t *p)
{
    uint64_t  w;

    memcpy(&w, p, sizeof(w));

    return w;
}


/* two lanes of multiplications: it is to be no slower than memory */

uint64_t
llm_capture_mix(uint64_t seed, const void *data, size_t n)
{
    uint8_t         last[32];
    uint64_t        a, b;
    const uint8_t  *p;

    p = data;
    a = seed ^ UINT64_C(0xa0761d6478bd642f);
    b = seed + n * UINT64_C(0x8ebc6af09c88c6e3);

    for ( /* void */ ; n >= 32; p += 32, n -= 32) {
        a = llm_capture_fold(a ^ llm_capture_word(p),
                             llm_capture_word(p + 8)
                             ^ UINT64_C(0xe7037ed1a0b428db));
        b = llm_capture_fold(b ^ llm_capture_word(p + 16),
                             llm_capture_word(p + 24)
                             ^ UINT64_C(0x589965cc75374cc3));
    }

    memset(last, 0, sizeof(last));
    memcpy(last, p, n);
    a = llm_capture_fold(a ^ llm_capture_word(last),
                         llm_capture_word(last + 8)
                         ^ UINT64_C(0xe7037ed1a0b428db));
    b = llm_capture_fold(b ^ llm_capture_word(last + 16),
                         llm_capture_word(last + 24)
                         ^ UINT64_C(0x589965cc75374cc3));

    return llm_capture_fold(a ^ UINT64_C(0x1d8e4e27c47d124f), b);
}
