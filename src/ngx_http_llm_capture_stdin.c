
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Debian's libjansson.a is not position independent in one place: json_loadf()
 * compares its argument with stdin, a datum of libc that a shared object may
 * only reach through a table.  Linked with --wrap=stdin that place means this
 * word of our own.  We read no JSON from a stream, so it is never looked at.
 *
 * Only in dynamic builds with the static libjansson.
 */

#include <stdio.h>


extern FILE  *__wrap_stdin;

__attribute__((visibility("hidden")))
FILE  *__wrap_stdin;
