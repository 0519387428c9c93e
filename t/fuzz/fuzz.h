
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What the fuzz targets share.  Each is a program of its own, made with
 * clang -fsanitize=fuzzer,address,undefined: t/check/fuzz.t builds and runs
 * them, and tells how to do it by hand.
 */

#ifndef _FUZZ_H_INCLUDED_
#define _FUZZ_H_INCLUDED_


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS  64

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


#define must(condition)                                                       \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: must be: %s\n", __FILE__, __LINE__,       \
                    #condition);                                              \
            abort();                                                          \
        }                                                                     \
    } while (0)


/* the input as a source of choices; 0 when it is used up */

typedef struct {
    const uint8_t  *p;
    size_t          n;
} input_t;


static inline uint8_t
byte(input_t *in)
{
    if (in->n == 0) {
        return 0;
    }

    in->n--;

    return *in->p++;
}


static inline uint64_t
word(input_t *in, unsigned bytes)
{
    uint64_t  v;

    for (v = 0; bytes; bytes--) {
        v = v << 8 | byte(in);
    }

    return v;
}


/* the next n bytes, or as many as there are: *n says */

static inline const uint8_t *
take(input_t *in, size_t *n)
{
    const uint8_t  *p;

    p = in->p;

    if (*n > in->n) {
        *n = in->n;
    }

    in->p += *n;
    in->n -= *n;

    return p;
}


/* choices where the input is to be a file as it stands: from what it is */

static inline uint64_t
choice(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;

    return *seed >> 33;
}


static inline uint64_t
seed_of(const uint8_t *p, size_t n)
{
    uint64_t  seed;

    for (seed = n; n; n--) {
        seed = (seed ^ *p++) * 1099511628211u;
    }

    return seed;
}


/* a copy with nothing behind it, so that a byte read too far is seen */

static inline void *
copy(const void *p, size_t n)
{
    void  *to;

    to = malloc(n ? n : 1);
    must(to != NULL);

    if (n) {
        memcpy(to, p, n);
    }

    return to;
}


#endif /* _FUZZ_H_INCLUDED_ */
