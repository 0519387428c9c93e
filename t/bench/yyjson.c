
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * yyjson for scan.c, as fast as it goes: in place, in memory of its caller.
 * It then writes into the body, which the module could not let it do.
 */

#if __has_include(<yyjson.c>)

#include <yyjson.c>

#include <stdlib.h>


const char *
bench_yyjson_version(void)
{
    return YYJSON_VERSION_STRING;
}


/* 0 if it takes the body; four bytes behind it are zero */

int
bench_yyjson_parse(char *p, size_t n)
{
    yyjson_alc     alc;
    yyjson_doc    *doc;

    static void   *pool;
    static size_t  size;

    if (size < yyjson_read_max_memory_usage(n, YYJSON_READ_INSITU)) {
        size = yyjson_read_max_memory_usage(n, YYJSON_READ_INSITU);
        free(pool);
        pool = malloc(size);
    }

    if (pool == NULL || !yyjson_alc_pool_init(&alc, pool, size)) {
        return -1;
    }

    doc = yyjson_read_opts(p, n, YYJSON_READ_INSITU, &alc, NULL);

    return doc == NULL;
}

#else

#include <stddef.h>


const char *
bench_yyjson_version(void)
{
    return NULL;
}


int
bench_yyjson_parse(char *p, size_t n)
{
    (void) p;
    (void) n;

    return -1;
}

#endif
