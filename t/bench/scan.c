
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * usage: scan FILE...   The scan's speed on each file, GB/s, best of some
 * rounds, by kernel, fed whole and in pieces of 16 KiB.
 */

#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/ngx_http_llm_capture_scan.h"
#include "../../src/ngx_http_llm_capture_scan_kernel.h"


#define ROUNDS      20
#define ROUND_BYTES (16 << 20)
#define PIECE       16384


static const char  *names[] = { "portable", "sse2", "avx2" };


static double
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}


static unsigned
scan(uint8_t *p, size_t n, size_t piece)
{
    size_t                       len;
    ngx_http_llm_capture_scan_t  s;

    ngx_http_llm_capture_scan_init(&s, NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED, 0);

    for ( /* void */ ; n; p += len, n -= len) {
        len = n < piece ? n : piece;
        (void) ngx_http_llm_capture_scan_feed(&s, p, len);
    }

    return ngx_http_llm_capture_scan_end(&s);
}


static double
measure(uint8_t *p, size_t n, size_t piece)
{
    double    start, spent, best;
    unsigned  round, i, times;

    best = 0;
    times = (unsigned) (ROUND_BYTES / n + 1);

    for (round = 0; round < ROUNDS; round++) {
        start = now();

        for (i = 0; i < times; i++) {
            (void) scan(p, n, piece);
        }

        spent = now() - start;

        if (best == 0 || spent < best) {
            best = spent;
        }
    }

    return (double) n * times / best / 1e9;
}


static int
file(const char *name)
{
    long      size;
    FILE     *f;
    uint8_t  *p;
    unsigned  kernel;

    f = fopen(name, "rb");

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) <= 0) {
        perror(name);
        return 1;
    }

    rewind(f);
    p = malloc((size_t) size);

    if (p == NULL || fread(p, 1, (size_t) size, f) != (size_t) size) {
        perror(name);
        return 1;
    }

    fclose(f);

    printf("%s: %ld bytes, verdict %u\n", name, size,
           scan(p, (size_t) size, (size_t) size));

    for (kernel = 0; kernel <= NGX_HTTP_LLM_CAPTURE_SCAN_AVX2; kernel++) {
        if (ngx_http_llm_capture_scan_kernel_use(kernel) == kernel) {
            printf("    %-8s  whole %6.2f GB/s  pieces %6.2f GB/s\n",
                   names[kernel], measure(p, (size_t) size, (size_t) size),
                   measure(p, (size_t) size, PIECE));
        }
    }

    free(p);

    return 0;
}


int
main(int argc, char **argv)
{
    int  i, rc;

    for (rc = 0, i = 1; i < argc; i++) {
        rc |= file(argv[i]);
    }

    return rc;
}
