
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Values of the configuration: NIM's object, sizes, rates.  The input is the
 * text of one.  Whatever it is, what comes out is fit for use, and what is
 * told of it is one printable line.
 */

#include "fuzz.h"

#include <jansson.h>

#include "ngx_http_llm_capture_args.h"
#include "ngx_http_llm_capture_path.h"


#define MOST  NGX_HTTP_LLM_CAPTURE_QUEUE_MOST

static unsigned  warnings;


static void
warn(void *data, const char *text)
{
    (void) data;

    warnings++;
    must(*text != '\0');

    for ( /* void */ ; *text; text++) {
        must(*text >= 0x20 && *text <= 0x7e);
    }
}


static void
object(const char *text, size_t size)
{
    json_t                       *root;
    json_error_t                  err;
    ngx_http_llm_capture_args_t   args;

    warnings = 0;
    ngx_http_llm_capture_args_parse(&args, text, size, warn, NULL);

    root = json_loadb(text, size, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
                      &err);
    must(args.off == !json_is_object(root));
    must(!args.off || warnings == 1);
    must(!args.bad_path || warnings > 0);
    json_decref(root);

    must(args.path[args.path_len] == '\0'
         && strlen(args.path) == args.path_len);
    must(ngx_http_llm_capture_path_check(args.path, args.path_len, 0, 0)
         == NULL);
    must(args.format < NGX_HTTP_LLM_CAPTURE_FORMATS);
    must(args.max_request_bytes >= 1
         && args.max_request_bytes <= NGX_HTTP_LLM_CAPTURE_REQUEST_MOST);
    must(args.max_queue_bytes >= 1 && args.max_queue_bytes <= MOST);
    must(args.sample_rate <= (uint64_t) 1 << 32);
    must(args.pattern_len && strlen(args.pattern) == args.pattern_len);

    ngx_http_llm_capture_args_free(&args);
}


/* digits and a letter, by a number that cannot overflow */

static void
size_of(const char *text, size_t size)
{
    int                rc;
    size_t             n;
    uint64_t           got;
    unsigned           shift;
    const char        *letter;
    unsigned __int128  want;

    got = 77;
    rc = ngx_http_llm_capture_args_size(text, size, MOST, &got);

    want = 0;

    for (n = 0; n < size && text[n] >= '0' && text[n] <= '9'; n++) {
        want = want * 10 + (unsigned) (text[n] - '0');
        want = want > MOST ? MOST + 1 : want;
    }

    shift = 0;

    if (n && n + 1 == size && text[n] != '\0'
        && (letter = strchr("kKmMgG", text[n])))
    {
        shift = 10 * (unsigned) ((letter - "kKmMgG") / 2 + 1);
        n++;
    }

    want <<= shift;

    if (n == size && want >= 1 && want <= MOST) {
        must(rc == 0 && got == want);

    } else {
        must(rc == -1 && got == 77);
    }
}


/* up to 18 digits, exactly */

static void
rate_of(const char *text, size_t size)
{
    int                rc;
    size_t             n;
    uint64_t           got;
    unsigned __int128  digits, scale, want;

    got = 77;
    rc = ngx_http_llm_capture_args_rate(text, size, &got);

    must(rc == 0 ? got <= (uint64_t) 1 << 32 : got == 77);

    digits = 0;
    scale = 1;

    for (n = 2; n < size && text[n] >= '0' && text[n] <= '9'; n++) {

        if (n > 19) {
            return;
        }

        digits = digits * 10 + (unsigned) (text[n] - '0');
        scale *= 10;
    }

    if (size == 0 || (text[0] != '0' && text[0] != '1') || n < size
        || (size > 1 && text[1] != '.') || size == 2
        || (text[0] == '1' && digits))
    {
        must(rc == -1);
        return;
    }

    want = (digits << 32) / scale;
    want = text[0] == '1' ? (unsigned __int128) 1 << 32
           : digits && !want ? 1 : want;

    must(rc == 0 && got == want);
}


static void
format_of(const char *text, size_t size)
{
    int                            rc;
    ngx_http_llm_capture_format_e  format;

    format = NGX_HTTP_LLM_CAPTURE_FORMATS;
    rc = ngx_http_llm_capture_args_format(text, size, &format);

    must((rc == 0) == (format < NGX_HTTP_LLM_CAPTURE_FORMATS));
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char  *text;

    text = copy(data, size);

    object(text, size);
    size_of(text, size);
    rate_of(text, size);
    format_of(text, size);

    free(text);

    return 0;
}
