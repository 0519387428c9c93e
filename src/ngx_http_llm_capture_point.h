
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Places where the fault tests stop or kill the helper.  They stand between
 * two system calls whose order matters.  Shipped builds contain nothing.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_POINT_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_POINT_H_INCLUDED_


#ifdef NGX_HTTP_LLM_CAPTURE_POINTS

/* given by the test that builds with -DNGX_HTTP_LLM_CAPTURE_POINTS */

void ngx_http_llm_capture_point(const char *name);

#define NGX_HTTP_LLM_CAPTURE_POINT(name)  ngx_http_llm_capture_point(name)

#else

#define NGX_HTTP_LLM_CAPTURE_POINT(name)

#endif


#endif /* _NGX_HTTP_LLM_CAPTURE_POINT_H_INCLUDED_ */
