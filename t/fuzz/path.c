
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Paths and values of variables in them.  The input: the length of a path, a
 * path, and values, each with its length.  A value becomes a bounded name of
 * harmless letters, another value another name; a path that is taken leads to
 * a file of its own directory whatever the values are.
 */

#include "fuzz.h"

#include "ngx_http_llm_capture_path.h"


#define VALUE    NGX_HTTP_LLM_CAPTURE_PATH_VALUE
#define LONGEST  NGX_HTTP_LLM_CAPTURE_PATH_LONGEST
#define MOST     NGX_HTTP_LLM_CAPTURE_PATH_MOST
#define NAME     NGX_HTTP_LLM_CAPTURE_PATH_NAME
#define SIDECAR  NGX_HTTP_LLM_CAPTURE_PATH_SIDECAR

#define VALUES   4

/* bytes of "$v", as configured */
#define VARIABLE  2


static int
ends(const char *name, size_t n, const char *end)
{
    return n >= strlen(end)
           && memcmp(name + n - strlen(end), end, strlen(end)) == 0;
}


static size_t
value(char *dst, const uint8_t *v, size_t n)
{
    char   *buffer;
    size_t  i, len;

    static const char  plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789._-";

    buffer = malloc(VALUE);
    must(buffer != NULL);
    len = ngx_http_llm_capture_path_value(buffer, v, n);

    must(len >= 1 && len <= LONGEST);
    must(buffer[0] != '.');
    must(!ends(buffer, len, SIDECAR));

    for (i = 0; i < len; i++) {
        must(buffer[i] && strchr(plain, buffer[i]));
    }

    memcpy(dst, buffer, len);
    free(buffer);

    return len;
}


/* two values never share a name */

static void
apart(const uint8_t *v, size_t n, const uint8_t *w, size_t m)
{
    char    a[VALUE], b[VALUE];
    size_t  i, k;

    i = value(a, v, n);
    k = value(b, w, m);

    if (n != m || (n && memcmp(v, w, n) != 0)) {
        must(i != k || memcmp(a, b, i) != 0);
    }
}


/* path as configured, and behind it as many variables as there are values */

static void
expand(const char *path, size_t len, char values[VALUES][VALUE],
    const size_t *lens, unsigned n)
{
    char         full[2 * MOST], *text, *name;
    size_t       end;
    unsigned     i;
    const char  *why;

    if (len > MOST + 1) {
        return;
    }

    text = malloc(len + n * VARIABLE + 1);
    must(text != NULL);
    memcpy(text, path, len);
    memset(text + len, '$', n * VARIABLE);

    why = ngx_http_llm_capture_path_check(text, len + n * VARIABLE,
                                          n * VARIABLE, n * LONGEST);
    free(text);

    if (why) {
        must(*why != '\0');
        return;
    }

    memcpy(full, path, len);
    end = len;

    for (i = 0; i < n; i++) {
        memcpy(full + end, values[i], lens[i]);
        end += lens[i];
    }

    full[end] = '\0';
    name = strrchr(full, '/');

    must(full[0] == '/' && name != NULL && name < full + len);
    must(strlen(full) == end && end <= MOST);

    name++;
    must(*name && strlen(name) <= NAME);
    must(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);

    for (i = 0; i < end; i++) {
        must((uint8_t) full[i] >= 0x20 && full[i] != 0x7f);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char            *path, values[VALUES][VALUE];
    size_t           len, n, was, lens[VALUES];
    uint8_t         *v, *w;
    input_t          in;
    unsigned         i;
    const uint8_t   *p;

    in.p = data;
    in.n = size;

    len = (size_t) word(&in, 2);
    p = take(&in, &len);
    path = copy(p, len);

    w = copy(NULL, 0);
    was = 0;

    for (i = 0; i < VALUES; i++) {
        n = byte(&in);
        p = take(&in, &n);
        v = copy(p, n);

        lens[i] = value(values[i], v, n);
        apart(v, n, w, was);

        free(w);
        w = v;
        was = n;

        expand(path, len, values, lens, i);
    }

    free(w);
    free(path);

    return 0;
}
