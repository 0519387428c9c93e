
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Names.  Of a file X.jsonl what was rotated away is X.TIME.jsonl, of TIME as
 * 20261130T061500.123Z, and .gz, .zst or .plain behind it.
 */

#define _GNU_SOURCE

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ngx_http_llm_capture_path.h"
#include "llm_capture.h"


#define LLM_CAPTURE_UTC  NGX_HTTP_LLM_CAPTURE_PATH_UTC


static int
llm_capture_utc(const char *p)
{
    return ngx_http_llm_capture_path_utc((const uint8_t *) p);
}


static size_t
llm_capture_less(const char *path, size_t n, const char *suffix)
{
    size_t  len;

    len = strlen(suffix);

    return n > len && memcmp(path + n - len, suffix, len) == 0 ? n - len : n;
}


void
llm_capture_segment(llm_capture_segment_t *s, const char *path)
{
    size_t    n;
    unsigned  i;

    static const char *const  behind[] = { ".gz", ".zst", ".plain" };

    n = strlen(path);

    for (i = 0; i < llm_capture_nelem(behind); i++) {
        n = llm_capture_less(path, n, behind[i]);
    }

    n = llm_capture_less(path, n, ".jsonl");

    s->path = path;
    s->stem = s->name = n;
    s->utc = NULL;

    if (n > LLM_CAPTURE_UTC + 1 && path[n - LLM_CAPTURE_UTC - 1] == '.'
        && llm_capture_utc(path + n - LLM_CAPTURE_UTC))
    {
        s->name = n - LLM_CAPTURE_UTC - 1;
        s->utc = path + n - LLM_CAPTURE_UTC;
    }
}


unsigned
llm_capture_segment_same(const llm_capture_segment_t *a,
    const llm_capture_segment_t *b)
{
    return a->name == b->name && memcmp(a->path, b->path, a->name) == 0;
}


int
llm_capture_segment_cmp(const llm_capture_segment_t *a,
    const llm_capture_segment_t *b)
{
    if (a->utc == NULL || b->utc == NULL) {
        return (a->utc == NULL) - (b->utc == NULL);
    }

    return memcmp(a->utc, b->utc, LLM_CAPTURE_UTC);
}


char *
llm_capture_beside(const char *path, const char *suffix)
{
    llm_capture_segment_t  s;

    llm_capture_segment(&s, path);

    return llm_capture_format("%.*s%s", (int) s.stem, path, suffix);
}


char *
llm_capture_beside_next(const char *path, const char *suffix,
    unsigned *segments)
{
    DIR                    *d;
    char                   *dir, *next, *name;
    size_t                  n;
    const char             *base, *at;
    struct dirent          *e;
    llm_capture_segment_t   s;

    llm_capture_segment(&s, path);

    *segments = s.utc != NULL;
    next = NULL;
    base = strrchr(path, '/');
    base = base ? base + 1 : path;
    n = s.name - (size_t) (base - path);
    dir = base == path ? llm_capture_format(".")
                       : llm_capture_format("%.*s", (int) (base - path), path);
    d = opendir(dir);
    free(dir);

    while (d && (e = readdir(d)) != NULL) {

        at = e->d_name + n + 1;

        if (strlen(e->d_name) <= n + LLM_CAPTURE_UTC
            || memcmp(e->d_name, base, n) != 0 || at[-1] != '.'
            || !llm_capture_utc(at))
        {
            continue;
        }

        *segments = 1;

        if (s.utc && strcmp(at + LLM_CAPTURE_UTC, suffix) == 0
            && memcmp(at, s.utc, LLM_CAPTURE_UTC) > 0
            && (next == NULL
                || memcmp(at, next + s.name + 1, LLM_CAPTURE_UTC) < 0))
        {
            free(next);
            next = llm_capture_format("%.*s.%s", (int) s.name, path, at);
        }
    }

    if (d) {
        closedir(d);
    }

    if (next || s.utc == NULL) {
        return next;
    }

    name = llm_capture_format("%.*s%s", (int) s.name, path, suffix);

    if (access(name, F_OK) != 0) {
        free(name);
        return NULL;
    }

    return name;
}
