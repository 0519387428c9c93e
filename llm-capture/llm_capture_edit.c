
/*
 * Copyright (C) the llm-capture authors
 */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "llm_capture.h"


/* in the order of the line; of two at one place the first stays the first */

void
llm_capture_edit(llm_capture_edits_t *e, const uint8_t *at, size_t n,
    const void *text, size_t len)
{
    size_t  i;

    if (e->n == e->size) {
        e->size = e->size ? 2 * e->size : 16;
        e->edit = llm_capture_grow(e->edit,
                                   e->size * sizeof(llm_capture_edit_t));
    }

    if (e->text_size - e->text_n < len) {
        e->text_size = 2 * (e->text_size + len);
        e->text = llm_capture_grow(e->text, e->text_size);
    }

    for (i = e->n; i && e->edit[i - 1].at > at; i--) {
        e->edit[i] = e->edit[i - 1];
    }

    e->edit[i] = (llm_capture_edit_t) { at, n, e->text_n, len };
    e->n++;

    if (len) {
        memcpy(e->text + e->text_n, text, len);
        e->text_n += len;
    }
}


void
llm_capture_edit_member(llm_capture_edits_t *e, llm_capture_str_t object,
    const char *name, const char *value)
{
    char                 *member;
    llm_capture_str_t     is;
    llm_capture_walk_t    w;
    llm_capture_member_t  m;

    is = llm_capture_member(object, name);

    if (is.p) {

        if (is.n != strlen(value) || memcmp(is.p, value, is.n) != 0) {
            llm_capture_edit(e, is.p, is.n, value, strlen(value));
        }

        return;
    }

    (void) llm_capture_walk(&w, object);

    member = llm_capture_format("%s\"%s\":%s",
                                llm_capture_next(&w, &m) ? "," : "", name,
                                value);
    llm_capture_edit(e, object.p + object.n - 1, 0, member, strlen(member));
    free(member);
}


char *
llm_capture_quoted(const char *s)
{
    char    *q, *to;

    q = to = llm_capture_grow(NULL, 6 * strlen(s) + 3);
    *to++ = '"';

    for ( /* void */ ; *s; s++) {

        if ((unsigned char) *s < 0x20) {
            to += sprintf(to, "\\u%04x", (unsigned) *s);
            continue;
        }

        if (*s == '"' || *s == '\\') {
            *to++ = '\\';
        }

        *to++ = *s;
    }

    *to++ = '"';
    *to = '\0';

    return q;
}


void
llm_capture_edited(llm_capture_out_t *out, llm_capture_str_t line,
    llm_capture_edits_t *e)
{
    size_t          i;
    const uint8_t  *p;

    for (p = line.p, i = 0; i < e->n; i++) {

        /* a place that was changed already */

        if (e->edit[i].at < p) {
            continue;
        }

        llm_capture_write(out, p, (size_t) (e->edit[i].at - p));
        llm_capture_write(out, e->text + e->edit[i].from, e->edit[i].len);
        p = e->edit[i].at + e->edit[i].n;
    }

    llm_capture_write(out, p, (size_t) (line.p + line.n - p));
    llm_capture_puts(out, "\n");

    e->n = 0;
    e->text_n = 0;
}
