
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Members out of the end of a JSON object whose beginning is not at hand, or
 * the other way round.  Pure: no nginx header.
 *
 * The text is read backward from the brace that closes the object, by rules
 * that leave no choice: outside a string there is nothing but white space,
 * punctuation and the letters of a number or a literal; a quote is a string's
 * end or beginning if an even number of backslashes stands before it, else a
 * part of it.  So a text that looks like members is never taken for them when
 * it stands in a string, and at each place the containers around are known,
 * counted from the outermost.  A text that breaks the rules is refused, as is
 * what a parser refuses afterwards; the end of the text must be the end of the
 * object, which only the caller knows.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_REST_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_REST_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


#define NGX_HTTP_LLM_CAPTURE_REST_NONE  ((size_t) -1)


/*
 * Where the first key stands, by its quote: from there to the end the text is
 * members, then what closes the containers.  Of containers that begin before
 * the text but the outermost: an object in it, or an object in a list in it.
 */

typedef struct {
    size_t  member;             /* { ... "key" */
    size_t  inner;              /* {"?":{ ... "key" */
    size_t  element;            /* {"?":[ ... { ... "key" */
    size_t  usage;              /* the last "usage" of the outermost */
} ngx_http_llm_capture_rest_t;


/* 0, or -1 if the text does not end an object */

int ngx_http_llm_capture_rest(ngx_http_llm_capture_rest_t *rest,
    const char *p, size_t n);

/*
 * And out of its beginning: the bytes that with a closing brace behind them are
 * an object of the members that are whole; 0 if there is none.  Read forward,
 * there is no doubt either.
 */

size_t ngx_http_llm_capture_rest_head(const char *p, size_t n);


#endif /* _NGX_HTTP_LLM_CAPTURE_REST_H_INCLUDED_ */
