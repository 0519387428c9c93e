
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Places where the fault tests stop or kill the helper, between two steps
 * whose order matters, and rules that they break to see their checks fail.
 * Shipped builds contain nothing of it.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_POINT_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_POINT_H_INCLUDED_


#ifdef NGX_HTTP_LLM_CAPTURE_POINTS

#include <stdlib.h>
#include <string.h>

/* given by the test that builds with -DNGX_HTTP_LLM_CAPTURE_POINTS */

void ngx_http_llm_capture_point(const char *name);

#define NGX_HTTP_LLM_CAPTURE_POINT(name)  ngx_http_llm_capture_point(name)


/* is that the rule which the environment names? */

static inline int
ngx_http_llm_capture_rule_broken(const char *name)
{
    const char  *rule;

    rule = getenv("LLM_CAPTURE_BROKEN");

    return rule && strcmp(rule, name) == 0;
}

#define NGX_HTTP_LLM_CAPTURE_BROKEN(name)                                     \
    ngx_http_llm_capture_rule_broken(name)

#else

#define NGX_HTTP_LLM_CAPTURE_POINT(name)
#define NGX_HTTP_LLM_CAPTURE_BROKEN(name)  0

#endif


#endif /* _NGX_HTTP_LLM_CAPTURE_POINT_H_INCLUDED_ */
