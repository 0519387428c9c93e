
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * usage: scan ROUNDS FILE...
 *
 * The strict scan against simdjson's DOM parse, yyjson, if it could be had, and
 * jansson, on the same bodies in turns; a line of JSON per file and parser,
 * GB/s by round.  A turn goes over copies of a body that fill the second-level
 * cache, made anew before it, as the scan turns line ends into spaces: so every
 * parser meets each body once, warm, as the helper does.
 */

#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "ngx_http_llm_capture_scan.h"
#include "ngx_http_llm_capture_scan_kernel.h"


#define ARENA       (1 << 20)
#define TURN_BYTES  (16 << 20)
#define SLOW_BYTES  (1 << 20)
#define GAP         256
#define PIECE       16384


extern int simdjson_parse(const char *p, size_t n);
extern const char *simdjson_kernel(void);
extern size_t simdjson_padding(void);
extern int bench_yyjson_parse(char *p, size_t n);
extern const char *bench_yyjson_version(void);


typedef struct {
    const char  *name;
    int        (*parse)(uint8_t *p, size_t n);
    size_t       bytes;               /* of a turn */
    int          kernel;
} parser_t;


static size_t  piece;


static int
parse_scan(uint8_t *p, size_t n)
{
    size_t                       len;
    ngx_http_llm_capture_scan_t  s;

    ngx_http_llm_capture_scan_init(&s, NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED, 0);

    for ( /* void */ ; n; p += len, n -= len) {
        len = n < piece ? n : piece;
        (void) ngx_http_llm_capture_scan_feed(&s, p, len);
    }

    return (int) ngx_http_llm_capture_scan_end(&s);
}


static int
parse_whole(uint8_t *p, size_t n)
{
    piece = n;

    return parse_scan(p, n);
}


static int
parse_pieces(uint8_t *p, size_t n)
{
    piece = PIECE;

    return parse_scan(p, n);
}


static int
parse_simdjson(uint8_t *p, size_t n)
{
    return simdjson_parse((const char *) p, n);
}


static int
parse_yyjson(uint8_t *p, size_t n)
{
    return bench_yyjson_parse((char *) p, n);
}


static int
parse_jansson(uint8_t *p, size_t n)
{
    json_t  *value;

    value = json_loadb((const char *) p, n, JSON_ALLOW_NUL, NULL);

    if (value == NULL) {
        return 1;
    }

    json_decref(value);

    return 0;
}


static parser_t  parsers[] = {
    { "scan", parse_whole, TURN_BYTES, NGX_HTTP_LLM_CAPTURE_SCAN_AVX2 },
    { "simdjson", parse_simdjson, TURN_BYTES, -1 },
    { "yyjson", parse_yyjson, TURN_BYTES, -1 },
    { "scan in pieces", parse_pieces, TURN_BYTES,
      NGX_HTTP_LLM_CAPTURE_SCAN_AVX2 },
    { "scan, SSSE3", parse_whole, TURN_BYTES,
      NGX_HTTP_LLM_CAPTURE_SCAN_SSSE3 },
    { "scan, portable", parse_whole, TURN_BYTES,
      NGX_HTTP_LLM_CAPTURE_SCAN_PORTABLE },
    { "jansson", parse_jansson, SLOW_BYTES, -1 }
};

#define PARSERS  (sizeof(parsers) / sizeof(parsers[0]))


static int
absent(const parser_t *q)
{
    return q->parse == parse_yyjson && bench_yyjson_version() == NULL;
}


/* of this thread alone, so that what else runs here does not count */

static double
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

    return (double) ts.tv_sec * 1e9 + (double) ts.tv_nsec;
}


/* GB/s, or -1: refused */

static double
turn(parser_t *q, const uint8_t *body, size_t n, uint8_t *arena)
{
    int     bad;
    size_t  i, copies, step, done;
    double  start, spent;

    step = n + GAP;
    copies = ARENA / step ? ARENA / step : 1;
    spent = 0;
    bad = 0;

    for (done = 0; done < q->bytes; done += copies * n) {
        for (i = 0; i < copies; i++) {
            memcpy(arena + i * step, body, n);
        }

        start = now();

        for (i = 0; i < copies; i++) {
            bad |= q->parse(arena + i * step, n);
        }

        spent += now() - start;
    }

    return bad ? -1 : (double) done / spent;
}


static uint8_t *
load(const char *name, size_t *n)
{
    long      size;
    FILE     *f;
    uint8_t  *p;

    f = fopen(name, "rb");

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) <= 0) {
        perror(name);
        exit(2);
    }

    rewind(f);
    *n = (size_t) size;
    p = malloc(*n);

    if (p == NULL || fread(p, 1, *n, f) != *n) {
        perror(name);
        exit(2);
    }

    fclose(f);

    return p;
}


static void
file(const char *name, unsigned rounds)
{
    size_t    n;
    double   *speed;
    uint8_t  *body, *arena;
    unsigned  r, i;

    body = load(name, &n);
    arena = calloc(1, ARENA + n + 2 * GAP);
    speed = calloc(PARSERS * rounds, sizeof(double));

    for (r = 0; r < rounds; r++) {
        for (i = 0; i < PARSERS; i++) {
            if (absent(&parsers[i])) {
                continue;
            }

            if (parsers[i].kernel >= 0) {
                (void) ngx_http_llm_capture_scan_kernel_use(
                                               (unsigned) parsers[i].kernel);
            }

            speed[i * rounds + r] = turn(&parsers[i], body, n, arena);
        }
    }

    for (i = 0; i < PARSERS; i++) {
        if (absent(&parsers[i])) {
            continue;
        }

        printf("{\"file\":\"%s\",\"bytes\":%zu,\"parser\":\"%s\",\"speed\":[",
               name, n, parsers[i].name);

        for (r = 0; r < rounds; r++) {
            printf("%s%.3f", r ? "," : "", speed[i * rounds + r]);
        }

        printf("]}\n");
    }

    free(body);
    free(arena);
    free(speed);
}


int
main(int argc, char **argv)
{
    int  i;

    if (argc < 3 || atoi(argv[1]) < 1) {
        fprintf(stderr, "usage: scan ROUNDS FILE...\n");
        return 2;
    }

    if (simdjson_padding() > GAP) {
        fprintf(stderr, "simdjson wants more padding\n");
        return 2;
    }

    printf("{\"simdjson\":\"%s\",\"yyjson\":\"%s\",\"scan\":%u}\n",
           simdjson_kernel(),
           bench_yyjson_version() ? bench_yyjson_version() : "",
           ngx_http_llm_capture_scan_kernel_use(
                                           NGX_HTTP_LLM_CAPTURE_SCAN_AVX2));

    for (i = 2; i < argc; i++) {
        file(argv[i], (unsigned) atoi(argv[1]));
    }

    return 0;
}
