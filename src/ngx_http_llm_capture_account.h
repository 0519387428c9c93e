
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The accounts of files: what became of the records of each one, in the zone,
 * so that the manifest beside a file is right whichever process dies.  Pure.
 *
 * An account has a path, and counts for one file of that name at a time: the
 * file that the path named as its first batch was written.  When the path names
 * another one, the account is told of and begins anew.  Two zones, or two
 * nginx, that write to one file have an account each: the manifest adds them
 * up.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_ACCOUNT_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_ACCOUNT_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_zone.h"


/* the account of a path, a new one if there is none; NONE: the table is full */

uint32_t ngx_http_llm_capture_account_find(
    const ngx_http_llm_capture_zone_t *z, const char *path, size_t len,
    uint32_t row, uint32_t format);

/*
 * Those in use are 0 .. n - 1; what a worker may have spoiled in them is put
 * right, as far as it could lead this process astray.
 */

uint32_t ngx_http_llm_capture_accounts(const ngx_http_llm_capture_zone_t *z);

/*
 * It was told of: all begins anew, with `pending` carried over.  To be called
 * again if its state is RESET when a process finds it.
 */

void ngx_http_llm_capture_account_reset(ngx_http_llm_capture_account_t *a);

/* a row of this timestamp, in ms, stands in the file */

void ngx_http_llm_capture_account_row(ngx_http_llm_capture_account_t *a,
    uint64_t ts);

/* a model was asked for; n bytes of a JSON string, without its quotes */

void ngx_http_llm_capture_account_model(ngx_http_llm_capture_account_t *a,
    const char *name, size_t n);

/*
 * What the template of the account came to since the file began, as the sum of
 * the row is now; pending there is what it was then and what is new.
 */

void ngx_http_llm_capture_account_since(
    const ngx_http_llm_capture_account_t *a,
    const uint64_t now[NGX_HTTP_LLM_CAPTURE_C_max],
    uint64_t since[NGX_HTTP_LLM_CAPTURE_C_max]);

/* requests that were to be recorded and were not, for want of something */

uint64_t ngx_http_llm_capture_account_dropped(
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max]);

/*
 * The drops of a row are so many by now, ms since 1970; `before` is when they
 * were looked at last.  Near gaps become one, so do the two nearest ones when
 * there is no room.
 */

void ngx_http_llm_capture_account_gap(ngx_http_llm_capture_gaps_t *gaps,
    uint64_t dropped, uint64_t before, uint64_t now);


#endif /* _NGX_HTTP_LLM_CAPTURE_ACCOUNT_H_INCLUDED_ */
