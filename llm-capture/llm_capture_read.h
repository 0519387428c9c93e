
/*
 * Copyright (C) the llm-capture authors
 */

/* between llm_capture_read.c and llm_capture_unpack.c */

#ifndef _LLM_CAPTURE_READ_H_INCLUDED_
#define _LLM_CAPTURE_READ_H_INCLUDED_


#include "llm_capture.h"


/* at most n bytes from disk, 0 at the end; dies of errors */
size_t llm_capture_read_some(llm_capture_file_t *f, void *p, size_t n);

/* what a file that begins so is packed with */
llm_capture_packed_e llm_capture_packed(const uint8_t *p, size_t n);

/* f->packed is known, the first n bytes are in f->buf */
void *llm_capture_unpacker(llm_capture_file_t *f, size_t n);
size_t llm_capture_unpack(llm_capture_file_t *f, uint8_t *p, size_t n);
void llm_capture_unpacked(llm_capture_file_t *f);


#endif /* _LLM_CAPTURE_READ_H_INCLUDED_ */
