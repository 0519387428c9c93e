
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * How much of a batch that a dead helper was appending arrived in its file.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_RECOVER_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_RECOVER_H_INCLUDED_


#include <stdint.h>
#include <sys/types.h>

#include "ngx_http_llm_capture_format.h"
#include "ngx_http_llm_capture_sys.h"


/* of the intent, in memory of our own: a worker can write to the zone */

typedef struct {
    uint64_t                 dev;
    uint64_t                 ino;
    uint64_t                 offset;
    uint64_t                 length;
    char                     path[NGX_HTTP_LLM_CAPTURE_PATH];
} ngx_http_llm_capture_place_t;


/*
 * Compares the file, found by its path or else by (dev, ino) in the directory
 * of that path, with the lines.  A last line of ours that is torn is cut away,
 * if it is the end of the file; never below the place's offset, nor more than
 * its length.
 *
 * Returns the number of lines that stand whole, first ones first; -1: the file
 * is gone or shorter, nobody can tell; -2 with errno: not now (the file cannot
 * be opened or read, or EAGAIN: another process holds its lock).
 */

ssize_t ngx_http_llm_capture_recover(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_place_t *place,
    const ngx_http_llm_capture_lines_t *lines);


#endif /* _NGX_HTTP_LLM_CAPTURE_RECOVER_H_INCLUDED_ */
