
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A key as text, 32 hex digits, and <file>.key, 0600: the key of the sessions
 * in a file, kept beside it where llm_capture_key_file gives none.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_KEY_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_KEY_H_INCLUDED_


#include "ngx_http_llm_capture_file.h"


/* bytes of the text, and one more, so that a longer one is told from it */
#define NGX_HTTP_LLM_CAPTURE_KEY_TEXT  (2 * NGX_HTTP_LLM_CAPTURE_KEY + 2)


/* digits of either case, then a line feed or not; 0: it is none, key stays */

int ngx_http_llm_capture_key_parse(uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY],
    const char *text, size_t n);

/*
 * Loads or makes f->key, which stays for the life of f.  It is made under no
 * lock: of two helpers that make it both take that of the first one.  If it
 * cannot be kept, it lives in memory.  0, or -1 with f->error: not now.
 */

int ngx_http_llm_capture_file_key(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f);


#endif /* _NGX_HTTP_LLM_CAPTURE_KEY_H_INCLUDED_ */
