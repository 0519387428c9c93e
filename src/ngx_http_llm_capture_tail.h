
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What stands at the end of a file of lines, and how it is mended.  Files are
 * read in blocks, a line may be of any length.  All but the last function: -1
 * with errno if the file cannot be read.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_TAIL_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_TAIL_H_INCLUDED_


#include <stdint.h>
#include <sys/types.h>

#include "ngx_http_llm_capture_file.h"
#include "ngx_http_llm_capture_sys.h"


/* where the line begins that reaches up to end: behind an LF, or at 0 */

off_t ngx_http_llm_capture_tail_start(const ngx_http_llm_capture_sys_t *sys,
    int fd, off_t end);

/* 1: the bytes are one whole row by the strict scan; 0: they are torn */

int ngx_http_llm_capture_tail_whole(const ngx_http_llm_capture_sys_t *sys,
    int fd, off_t start, off_t end);

/*
 * The "timestamp" of the last row before end, in ms, rounded down and cut to
 * 0..2^53.  Any writer's row will do: the key may stand anywhere, the number
 * may be a fraction or a string, as in AIPerf's row model.  0: has none.
 */

int ngx_http_llm_capture_tail_timestamp(const ngx_http_llm_capture_sys_t *sys,
    int fd, off_t end, uint64_t *ts);

/*
 * A file that others may have touched and that does not end with LF: a last
 * row that is whole gets its LF, a torn one is cut away.  st->st_size follows.
 * Returns 0, or -1 with f->error: nothing may be appended.
 */

int ngx_http_llm_capture_file_mend(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, struct stat *st);


/*
 * Rows of raw_payload and rows with a time never go to one file, whatever a
 * reload or a variable says: AIPerf would refuse it.  Returns 0, or -1 with
 * f->error EINVAL: a file that was locked and mended holds the other ones.
 */

int ngx_http_llm_capture_file_format(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, unsigned format, const struct stat *st);


#endif /* _NGX_HTTP_LLM_CAPTURE_TAIL_H_INCLUDED_ */
