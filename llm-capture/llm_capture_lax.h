
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What pydantic takes for numbers in its lax mode: true, "5", " 1_000.00 ",
 * "1e3".  Of values as they are spelled in JSON that orjson has taken.
 */

#ifndef _LLM_CAPTURE_LAX_H_INCLUDED_
#define _LLM_CAPTURE_LAX_H_INCLUDED_


#include "llm_capture.h"


/* an int, and its value as a double */
unsigned llm_capture_lax_int(llm_capture_str_t v, double *value);

/* an int or a float */
unsigned llm_capture_lax_number(llm_capture_str_t v);

/* such a number is below 0; one that is not finite is not */
unsigned llm_capture_lax_negative(llm_capture_str_t v);


#endif /* _LLM_CAPTURE_LAX_H_INCLUDED_ */
