
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Checks capture files of mooncake_payload as strictly as AIPerf loads them,
 * with the module's own scan: check FILE...  Every line must end with LF, be
 * one JSON object, and wrap another that is not empty.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_http_llm_capture_scan.h"


static const char  *verdicts[] = {
    "good", "not JSON", "not UTF-8", "a number overflows", "nested too deep",
    "not an object", "an empty object", "no messages"
};


static ngx_http_llm_capture_verdict_t
scan(char *p, size_t n, unsigned depth)
{
    ngx_http_llm_capture_scan_t  s;

    ngx_http_llm_capture_scan_init(&s, depth, 0);
    (void) ngx_http_llm_capture_scan_feed(&s, (uint8_t *) p, n);

    return ngx_http_llm_capture_scan_end(&s);
}


/* p is a line with its LF; NULL: good */

static const char *
check_line(char *p, size_t n)
{
    char                            *payload;
    ngx_http_llm_capture_verdict_t   verdict;

    if (p[n - 1] != '\n') {
        return "the last line is torn";
    }

    n--;

    verdict = scan(p, n, NGX_HTTP_LLM_CAPTURE_SCAN_LIMIT);

    if (verdict != NGX_HTTP_LLM_CAPTURE_SCAN_OK) {
        return verdicts[verdict];
    }

    payload = p + strspn(p, "{\"timestamp:0123456789");

    if (strncmp(p, "{\"timestamp\":", 13) != 0
        || strncmp(payload, ",\"payload\":", 11) != 0)
    {
        return "not {\"timestamp\":N,\"payload\":{...}}";
    }

    payload += 11;

    verdict = scan(payload, (size_t) (p + n - 1 - payload),
                   NGX_HTTP_LLM_CAPTURE_SCAN_WRAPPED);

    return verdict == NGX_HTTP_LLM_CAPTURE_SCAN_OK ? NULL : verdicts[verdict];
}


static int
check_file(const char *name)
{
    char        *line;
    FILE        *f;
    size_t       size;
    ssize_t      n;
    unsigned     count;
    const char  *bad;

    f = fopen(name, "rb");

    if (f == NULL) {
        perror(name);
        return 1;
    }

    line = NULL;
    size = 0;
    bad = NULL;

    for (count = 0; bad == NULL; count++) {
        n = getline(&line, &size, f);

        if (n <= 0) {
            break;
        }

        bad = check_line(line, (size_t) n);
    }

    free(line);
    fclose(f);

    if (bad) {
        printf("%s:%u: %s\n", name, count, bad);
        return 1;
    }

    printf("%s: %u lines, all good\n", name, count);

    return count == 0;
}


int
main(int argc, char **argv)
{
    int  i, rc;

    rc = argc < 2;

    for (i = 1; i < argc; i++) {
        rc |= check_file(argv[i]);
    }

    return rc;
}
