
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ngx_http_llm_capture_version.h"
#include "llm_capture.h"


static const llm_capture_command_t *const  llm_capture_commands[] = {
    &llm_capture_validate,
    &llm_capture_inspect,
    &llm_capture_replay_cmd,
    &llm_capture_check,
    &llm_capture_rewrite,
    &llm_capture_hash,
    &llm_capture_redact,
    &llm_capture_split,
    &llm_capture_window,
    &llm_capture_sample,
    &llm_capture_merge,
    &llm_capture_scale,
    &llm_capture_join,
    &llm_capture_convert,
    NULL
};


static void
llm_capture_vsay(const char *fmt, va_list args)
{
    llm_capture_progress_end();

    fputs("llm-capture: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}


void
llm_capture_say(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    llm_capture_vsay(fmt, args);
    va_end(args);
}


void
llm_capture_die(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    llm_capture_vsay(fmt, args);
    va_end(args);

    exit(LLM_CAPTURE_FAILED);
}


void *
llm_capture_grow(void *p, size_t n)
{
    p = realloc(p, n ? n : 1);

    if (p == NULL) {
        llm_capture_die("no memory for %zu bytes", n);
    }

    return p;
}


void *
llm_capture_alloc(size_t n)
{
    return memset(llm_capture_grow(NULL, n), 0, n);
}


char *
llm_capture_vformat(const char *fmt, va_list args)
{
    char  *s;

    if (vasprintf(&s, fmt, args) < 0) {
        llm_capture_die("no memory");
    }

    return s;
}


char *
llm_capture_format(const char *fmt, ...)
{
    char    *s;
    va_list  args;

    va_start(args, fmt);
    s = llm_capture_vformat(fmt, args);
    va_end(args);

    return s;
}


double
llm_capture_duration(const char *text)
{
    char      *end;
    double     n;
    unsigned   i;

    static const struct {
        const char  *unit;
        double       ms;
    } units[] = {
        { "", 1000 }, { "s", 1000 }, { "ms", 1 }, { "m", 60000 },
        { "h", 3600000 }, { "d", 86400000 }
    };

    n = strtod(text, &end);

    for (i = 0; i < llm_capture_nelem(units) && end != text; i++) {
        if (strcmp(end, units[i].unit) == 0 && n >= 0) {
            return n * units[i].ms;
        }
    }

    llm_capture_die("\"%s\" is no duration, such as 90s, 10m or 1.5h", text);
}


void
llm_capture_key(const char *file, uint8_t key[16])
{
    int           c, n, v;
    FILE         *f;
    struct stat   st;

    f = fopen(file, "r");

    if (f == NULL) {
        llm_capture_die("%s: %s", file, strerror(errno));
    }

    /* as the module asks of it */

    if (fstat(fileno(f), &st) == -1 || (st.st_mode & 06)) {
        llm_capture_die("%s: a key that others can read: chmod 600", file);
    }

    for (n = 0; (c = getc(f)) != EOF && isxdigit(c) && n < 32; n++) {
        v = isdigit(c) ? c - '0' : tolower(c) - 'a' + 10;
        key[n / 2] = (uint8_t) (n % 2 ? key[n / 2] | v : v << 4);
    }

    while (c != EOF && isspace(c)) {
        c = getc(f);
    }

    fclose(f);

    if (n != 32 || c != EOF) {
        llm_capture_die("%s: a key is 32 hexadecimal digits", file);
    }
}


unsigned
llm_capture_for_program(unsigned json, unsigned text)
{
    return json || (!text && !isatty(STDOUT_FILENO));
}


static void
llm_capture_help(const llm_capture_command_t *c)
{
    int                          n;
    const llm_capture_option_t  *o;

    printf("Usage: llm-capture %s [OPTION]... %s\n\n%s\n\n", c->name, c->args,
           c->about);

    for (o = c->options; o && o->name; o++) {
        n = printf("  --%s%s%s", o->name, o->value ? " " : "",
                   o->value ? o->value : "");
        printf("%*s%s\n", n < 27 ? 28 - n : 1, "", o->help);
    }
}


static void
llm_capture_usage(FILE *to)
{
    unsigned  i;

    fputs("Usage: llm-capture COMMAND [OPTION]... FILE...\n\n", to);

    for (i = 0; llm_capture_commands[i]; i++) {
        fprintf(to, "  %-12s %s\n", llm_capture_commands[i]->name,
                llm_capture_commands[i]->about);
    }

    fputs("\n\"llm-capture COMMAND --help\" has the options of a command.\n"
          "FILE may be \"-\" where it is read once.  A result is text on a\n"
          "terminal and JSON elsewhere, unless --json or --text is given.\n"
          "Exit codes: 0 yes, 1 no, 2 it could not be done, 3 yes, but.\n",
          to);
}


static void
llm_capture_set(const llm_capture_option_t *o, const char *value)
{
    char                *end;
    llm_capture_list_t  *list;

    errno = 0;

    switch (o->kind) {

    case 'l':
        list = o->to;
        list->p = llm_capture_grow(list->p, (list->n + 1) * sizeof(char *));
        list->p[list->n++] = value;
        return;

    case 's':
        *(const char **) o->to = value;
        return;

    case 't':
        *(double *) o->to = llm_capture_duration(value);
        return;

    case 'n':
        *(uint64_t *) o->to = strtoull(value, &end, 10);

        if (!isdigit((unsigned char) *value)) {
            end = (char *) "-";
        }

        break;

    default:
        *(double *) o->to = strtod(value, &end);
        break;
    }

    if (end == value || *end || errno) {
        llm_capture_die("--%s: \"%s\" is no number", o->name, value);
    }
}


/* takes the options out of argv; returns what is left */

static int
llm_capture_options(const llm_capture_command_t *c, int argc, char **argv)
{
    int                          i, n;
    size_t                       len;
    const char                  *name, *value;
    const llm_capture_option_t  *o;

    for (n = 0, i = 0; i < argc; i++) {

        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc) {
                argv[n++] = argv[i];
            }

            break;
        }

        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            argv[n++] = argv[i];
            continue;
        }

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            llm_capture_help(c);
            exit(LLM_CAPTURE_OK);
        }

        name = argv[i] + strspn(argv[i], "-");
        value = strchr(name, '=');
        len = value ? (size_t) (value - name) : strlen(name);

        for (o = c->options; o && o->name; o++) {
            if (strlen(o->name) == len && memcmp(o->name, name, len) == 0) {
                break;
            }
        }

        if (o == NULL || o->name == NULL || name - argv[i] != 2) {
            llm_capture_die("%s has no option \"%s\"", c->name, argv[i]);
        }

        if (o->kind == 'b') {
            if (value) {
                llm_capture_die("--%s takes no value", o->name);
            }

            *(unsigned *) o->to = 1;
            continue;
        }

        if (value == NULL && i + 1 == argc) {
            llm_capture_die("--%s needs a value", o->name);
        }

        llm_capture_set(o, value ? value + 1 : argv[++i]);
    }

    return n;
}


int
main(int argc, char **argv)
{
    int                           n;
    unsigned                      i;
    const char                   *name;
    const llm_capture_command_t  *c;

    name = argc > 1 ? argv[1] : "";

    if (strcmp(name, "--version") == 0) {
        puts("llm-capture " NGX_HTTP_LLM_CAPTURE_VERSION);
        return LLM_CAPTURE_OK;
    }

    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0
        || strcmp(name, "help") == 0)
    {
        llm_capture_usage(stdout);
        return LLM_CAPTURE_OK;
    }

    for (i = 0; (c = llm_capture_commands[i]) != NULL; i++) {
        if (strcmp(c->name, name) == 0) {
            break;
        }
    }

    if (c == NULL) {
        if (argc > 1) {
            llm_capture_say("there is no command \"%s\"", name);
        }

        llm_capture_usage(stderr);
        return LLM_CAPTURE_FAILED;
    }

    /* a reader that leaves is an error of write(), and said */
    signal(SIGPIPE, SIG_IGN);

    n = llm_capture_options(c, argc - 2, argv + 2);

    if (n < c->least || (c->most && n > c->most)) {
        llm_capture_die("usage: llm-capture %s [OPTION]... %s", c->name,
                        c->args);
    }

    n = c->run(n, argv + 2);

    llm_capture_progress_end();

    if (fflush(stdout) != 0) {
        llm_capture_die("stdout: %s", strerror(errno));
    }

    return n;
}
