
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Strings at paths of the payload are replaced.  With --keep-length a text of
 * common words takes their place, as many bytes of it, chosen under a key by
 * what stood there up to that place: texts that begin alike still do, so that
 * lengths and the reuse of prefixes stay, and nothing can be told from them
 * without the key.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ngx_http_llm_capture_siphash.h"
#include "llm_capture.h"


#define LLM_CAPTURE_PATHS  32
/* bytes of a text that stand for themselves alone */
#define LLM_CAPTURE_CHUNK  64


static struct {
    const char            *format;
    const char            *path;
    const char            *key_file;
    const char            *out;
    unsigned               keep_length;
    unsigned               force;
} llm_capture_asked = {
    .out = "-",
    .path = "messages[*].content,messages[*].name,messages[*].tool_calls,"
            "messages[*].function_call,messages[*].reasoning_content,"
            "messages[*].reasoning,system,instructions,input,prompt,suffix,"
            "text_input,user,metadata"
};


static const llm_capture_option_t  llm_capture_redact_options[] = {
    { "path", 's', &llm_capture_asked.path, "PATH,...",
      "as messages[*].content; default: all text" },
    { "keep-length", 'b', &llm_capture_asked.keep_length, NULL,
      "put as many bytes of other words there" },
    { "key-file", 's', &llm_capture_asked.key_file, "KEY",
      "32 hexadecimal digits; default: by chance" },
    LLM_CAPTURE_FORMAT_OPTION,
    LLM_CAPTURE_OUT_OPTIONS,
    { NULL, 0, NULL, NULL, NULL }
};


static struct {
    uint8_t                key[NGX_HTTP_LLM_CAPTURE_KEY];
    char                  *path[LLM_CAPTURE_PATHS];
    unsigned               paths;
    uint64_t               strings;
    uint8_t               *text;        /* unescaped */
    uint8_t               *other;       /* what takes its place */
    size_t                 size;
    llm_capture_edits_t    edits;
} llm_capture_redacting;


/* n bytes of words for a chunk; no word says anything of what stood there */

static void
llm_capture_words(uint8_t *to, size_t n, uint64_t seed)
{
    size_t       len, i;
    const char  *word;

    static const char *const  words[64] = {
        "the ", "of ", "and ", "to ", "in ", "is ", "you ", "that ", "it ",
        "he ", "was ", "for ", "on ", "are ", "as ", "with ", "his ", "they ",
        "at ", "be ", "this ", "have ", "from ", "or ", "one ", "had ", "by ",
        "word ", "but ", "not ", "what ", "all ", "were ", "we ", "when ",
        "your ", "can ", "said ", "there ", "use ", "an ", "each ", "which ",
        "she ", "do ", "how ", "their ", "if ", "will ", "up ", "other ",
        "about ", "out ", "many ", "then ", "them ", "these ", "so ", "some ",
        "her ", "would ", "make ", "like ", "him "
    };

    for (i = 0; i < n; i += len) {
        seed = seed * UINT64_C(6364136223846793005)
               + UINT64_C(1442695040888963407);
        word = words[seed >> 58];
        len = strlen(word);
        len = len < n - i ? len : n - i;
        memcpy(to + i, word, len);
    }
}


static void
llm_capture_redact_text(uint8_t *to, const uint8_t *text, size_t n)
{
    size_t                          some;
    uint64_t                        chain;
    ngx_http_llm_capture_siphash_t  s;

    for (chain = 0; n; n -= some, text += some, to += some) {
        some = n < LLM_CAPTURE_CHUNK ? n : LLM_CAPTURE_CHUNK;

        ngx_http_llm_capture_siphash_init(&s, llm_capture_redacting.key);
        ngx_http_llm_capture_siphash_update(&s, "redact", sizeof("redact"));
        ngx_http_llm_capture_siphash_update(&s, &chain, sizeof(chain));
        ngx_http_llm_capture_siphash_update(&s, text, some);
        chain = ngx_http_llm_capture_siphash_end(&s);

        llm_capture_words(to, some, chain);
    }
}


static void
llm_capture_redact_string(llm_capture_str_t value)
{
    size_t              n;
    llm_capture_str_t   s;

    static const char  redacted[] = "\"[redacted]\"";

    llm_capture_redacting.strings++;

    if (!llm_capture_asked.keep_length) {
        llm_capture_edit(&llm_capture_redacting.edits, value.p, value.n,
                         redacted, sizeof(redacted) - 1);
        return;
    }

    s = llm_capture_unquote(value);

    if (llm_capture_redacting.size < s.n) {
        llm_capture_redacting.size = 2 * s.n;
        llm_capture_redacting.text = llm_capture_grow(
            llm_capture_redacting.text, llm_capture_redacting.size);
        llm_capture_redacting.other = llm_capture_grow(
            llm_capture_redacting.other, llm_capture_redacting.size);
    }

    n = llm_capture_unescape(llm_capture_redacting.text, s);
    llm_capture_redact_text(llm_capture_redacting.other,
                            llm_capture_redacting.text, n);
    llm_capture_edit(&llm_capture_redacting.edits, s.p, s.n,
                     llm_capture_redacting.other, n);
}


/* all strings in it, but for those that say what a part is */

static void
llm_capture_redact_all(llm_capture_str_t value)
{
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    if (value.n >= 2 && value.p[0] == '"') {
        llm_capture_redact_string(value);
        return;
    }

    (void) llm_capture_walk(&w, value);

    while (llm_capture_next(&w, &m)) {
        if (!w.object || m.value.p[0] != '"'
            || (!llm_capture_is(m.key, llm_capture_string("type"))
                && !llm_capture_is(m.key, llm_capture_string("role"))))
        {
            llm_capture_redact_all(m.value);
        }
    }
}


/* NAME, .NAME, [N], [*], and so on */

static void
llm_capture_redact_path(llm_capture_str_t value, const char *path)
{
    size_t                n;
    uint64_t              i, wanted;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    path += *path == '.';

    if (*path == '\0') {
        llm_capture_redact_all(value);
        return;
    }

    if (!llm_capture_walk(&w, value)) {
        return;
    }

    if (*path == '[') {
        n = strcspn(path, "]") + 1;
        wanted = path[1] == '*' ? UINT64_MAX : strtoull(path + 1, NULL, 10);

        for (i = 0; !w.object && llm_capture_next(&w, &m); i++) {
            if (wanted == UINT64_MAX || wanted == i) {
                llm_capture_redact_path(m.value, path + n);
            }
        }

        return;
    }

    n = strcspn(path, ".[");

    while (w.object && llm_capture_next(&w, &m)) {

        /* a name that is there twice is redacted twice */

        if (llm_capture_is(m.key, (llm_capture_str_t) {
                (const uint8_t *) path, n }))
        {
            llm_capture_redact_path(m.value, path + n);
        }
    }
}


static void
llm_capture_redact_paths(void)
{
    char        *p, *save;
    const char  *q;

    p = llm_capture_format("%s", llm_capture_asked.path);

    for (p = strtok_r(p, ",", &save); p; p = strtok_r(NULL, ",", &save)) {

        if (llm_capture_redacting.paths == LLM_CAPTURE_PATHS) {
            llm_capture_die("--path: %d of them at most", LLM_CAPTURE_PATHS);
        }

        for (q = p; (q = strchr(q, '[')) != NULL; q++) {
            if (q[1] != '*' && (q[1] < '0' || q[1] > '9')) {
                break;
            }

            if (q[1 + (q[1] == '*' ? 1 : strspn(q + 1, "0123456789"))] != ']')
            {
                break;
            }
        }

        if (q || *p == '.' || p[strlen(p) - 1] == '.' || strstr(p, "..")) {
            llm_capture_die("--path: \"%s\" is none", p);
        }

        llm_capture_redacting.path[llm_capture_redacting.paths++] = p;
    }
}


static void
llm_capture_redact_key(void)
{
    if (llm_capture_asked.key_file) {
        llm_capture_key(llm_capture_asked.key_file, llm_capture_redacting.key);
        return;
    }

    if (getrandom(llm_capture_redacting.key, sizeof(llm_capture_redacting.key),
                  0) != sizeof(llm_capture_redacting.key))
    {
        llm_capture_die("getrandom(): %s", strerror(errno));
    }
}


static int
llm_capture_redact_run(int argc, char **argv)
{
    uint64_t             bad;
    unsigned             i;
    llm_capture_row_t    row;
    llm_capture_out_t   *out;
    llm_capture_file_t  *f;

    (void) argc;

    llm_capture_redact_paths();
    llm_capture_redact_key();

    f = llm_capture_rows(argv[0], &row, llm_capture_asked.format);
    out = llm_capture_create(llm_capture_asked.out, llm_capture_asked.force);
    bad = 0;

    while (llm_capture_row_next(f, &row, &bad)) {

        /* of a row without payload its own messages or text_input */

        for (i = 0; i < llm_capture_redacting.paths; i++) {
            llm_capture_redact_path(row.payload.p ? row.payload : row.text,
                                    llm_capture_redacting.path[i]);
        }

        llm_capture_edited(out, row.text, &llm_capture_redacting.edits);
    }

    llm_capture_commit(out);
    llm_capture_close(f);

    if (bad) {
        llm_capture_say("%" PRIu64 " bad lines were left out", bad);
    }

    if (llm_capture_redacting.strings == 0) {
        llm_capture_say("%s: nothing stands at --path: nothing was redacted",
                        argv[0]);
    }

    return bad || llm_capture_redacting.strings == 0 ? LLM_CAPTURE_WARNED
                                                     : LLM_CAPTURE_OK;
}


const llm_capture_command_t  llm_capture_redact = {
    "redact", "FILE",
    "takes text out of payloads and keeps their shape",
    llm_capture_redact_options, llm_capture_redact_run, 1, 1
};
