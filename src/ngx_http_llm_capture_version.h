
/*
 * Copyright (C) the llm-capture authors
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_VERSION_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_VERSION_H_INCLUDED_


/* that of CHANGES */
#define NGX_HTTP_LLM_CAPTURE_VERSION  "0.1.0"


#endif /* _NGX_HTTP_LLM_CAPTURE_VERSION_H_INCLUDED_ */
