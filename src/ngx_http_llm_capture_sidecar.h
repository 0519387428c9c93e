
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * <file>.epoch, 0600: the epoch of a file is kept beside it, so that a restart
 * never lays a second run over the first.  Only who holds the lock of the file
 * reads or replaces it, so that two helpers agree.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_SIDECAR_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_SIDECAR_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "ngx_http_llm_capture_epoch.h"
#include "ngx_http_llm_capture_file.h"
#include "ngx_http_llm_capture_sys.h"


/*
 * path: of the sidecar.  Load: 1: there; 0: none that is ours, which is no
 * error; -1: could not look, errno.  Store: replaced as a whole by rename(2),
 * so a reader sees the old or the new one; 0, or -1 with errno.
 */

int ngx_http_llm_capture_sidecar_load(const ngx_http_llm_capture_sys_t *sys,
    ngx_http_llm_capture_epoch_t *e, const char *path);
int ngx_http_llm_capture_sidecar_store(const ngx_http_llm_capture_sys_t *sys,
    const ngx_http_llm_capture_epoch_t *e, const char *path);

/*
 * The text of a small file that is no link: its bytes, 0 also if it is not
 * regular, or -1 with errno; st is set unless it could not be opened.
 */

ssize_t ngx_http_llm_capture_sidecar_text(
    const ngx_http_llm_capture_sys_t *sys, const char *path, char *text,
    size_t size, struct stat *st);

/* is that an error that passes, so that nobody can tell what is there? */

int ngx_http_llm_capture_sidecar_passes(int err);

/*
 * The file is replaced as a whole, by one of this text, 0600: a reader sees the
 * old or the new one.  One process at a time: it holds a lock.  0, or -1 with
 * errno.
 */

int ngx_http_llm_capture_sidecar_replace(
    const ngx_http_llm_capture_sys_t *sys, const char *path, const char *text,
    size_t len);

/* a new file, 0600, with this text; 0, or -1 with errno: there is none */

int ngx_http_llm_capture_sidecar_make(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const char *text, size_t len);

/* the id of this boot; "" if the kernel does not tell */

void ngx_http_llm_capture_sidecar_boot(const ngx_http_llm_capture_sys_t *sys,
    char boot[NGX_HTTP_LLM_CAPTURE_BOOT]);

/*
 * Finds or makes the epoch of a locked and mended file.  boot: the id of this
 * boot; t0: the earliest arrival known for the file, used if there is none.
 * Returns 0, or -1 with f->error.
 */

int ngx_http_llm_capture_file_epoch(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, const struct stat *st, const char *boot,
    uint64_t t0_wall, uint64_t t0_mono);


#endif /* _NGX_HTTP_LLM_CAPTURE_SIDECAR_H_INCLUDED_ */
