
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The writer of the helper: whole lines at the end of files, each once, also
 * over short writes, full disks, rotations, a second helper at the same file,
 * and the death of the helper at any instruction.
 *
 * Pure: POSIX files alone.  One thread; no call blocks but for the disk.  The
 * caller must ignore SIGXFSZ, else a file size limit kills it (EFBIG here).
 *
 * A batch, under flock(2) of its file:
 *
 *     mend the tail -> epoch -> intent WRITING -> writev() -> cut what is torn
 *
 * then the caller: intent COMMIT, marks, counters, intent NONE.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_WRITER_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_WRITER_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ngx_http_llm_capture_file.h"
#include "ngx_http_llm_capture_format.h"
#include "ngx_http_llm_capture_sys.h"
#include "ngx_http_llm_capture_zone.h"


#define NGX_HTTP_LLM_CAPTURE_MAX_OPEN    1024

#define NGX_HTTP_LLM_CAPTURE_LATER       (-1)
#define NGX_HTTP_LLM_CAPTURE_NEVER       (-2)

#define NGX_HTTP_LLM_CAPTURE_UNCERTAIN   (-1)
#define NGX_HTTP_LLM_CAPTURE_NOT_NOW     (-2)


typedef struct {
    unsigned                           max_open;   /* 0: MAX_OPEN */

    /* level: of <syslog.h>; err: errno or 0; text: a path, never content */
    void                             (*log)(void *ctx, int level, int err,
                                         const char *text);
    void                              *ctx;

    const ngx_http_llm_capture_sys_t  *sys;        /* NULL: the real ones */
    const char                        *boot;       /* NULL: of this kernel */
    const uint8_t                     *key;        /* NULL: one per file */
} ngx_http_llm_capture_writer_conf_t;

typedef struct ngx_http_llm_capture_writer_s  ngx_http_llm_capture_writer_t;


/* conf is copied, what it points to must stay; NULL: no memory */

ngx_http_llm_capture_writer_t *ngx_http_llm_capture_writer_create(
    const ngx_http_llm_capture_writer_conf_t *conf);
void ngx_http_llm_capture_writer_destroy(ngx_http_llm_capture_writer_t *w);

/* its files, for who has to do with one besides writing it */

ngx_http_llm_capture_files_t *ngx_http_llm_capture_writer_files(
    ngx_http_llm_capture_writer_t *w);

/* USR1: every file is opened anew when next written, and may be at once */

void ngx_http_llm_capture_writer_reopen(ngx_http_llm_capture_writer_t *w);

/*
 * The destination of a path, the same one each time, for the writer's life.
 * NULL: bad_path: more than NGX_HTTP_LLM_CAPTURE_FILES, not absolute, too
 * long, a NUL in it; or no memory.
 */

ngx_http_llm_capture_file_t *ngx_http_llm_capture_writer_file(
    ngx_http_llm_capture_writer_t *w, const char *path, size_t len);

/*
 * Appends a batch of n lines, 1 to NGX_HTTP_LLM_CAPTURE_BATCH, of any length.
 * t0: the earliest arrival known for the file, used when it has no epoch yet.
 * line[].ts is set, and a session in line[].session replaced by its id.  now:
 * CLOCK_MONOTONIC, ms.
 *
 * The caller has set row, nrefs, and ring, chain, pos and id of the refs; the
 * rest of the intent is set here before the first byte is written.
 *
 * Returns
 *     > 0    so many whole lines stand in the file, first ones first; the
 *            intent is WRITING and is the caller's to end.  Fewer than n: the
 *            rest could not be written, f->error, come back at f->retry_at
 *     LATER  none, the intent is NONE; the same.  f->error EAGAIN is only a
 *            lock held by another process: no write error
 *     NEVER  none, the intent is NONE; the destination cannot be written as
 *            it is (f->error: a link, a directory, EFBIG...).  No back-off:
 *            each batch tries anew
 */

ssize_t ngx_http_llm_capture_writer_write(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, unsigned format,
    ngx_http_llm_capture_line_t *line, unsigned n, uint64_t t0_wall,
    uint64_t t0_mono, ngx_http_llm_capture_intent_t *intent, uint64_t now);

/*
 * Finishes what a predecessor had under way: an intent that is WRITING.  The
 * lines are those of intent->refs with line[].ts = refs[].ts, and ids made with
 * intent->key; n must be nrefs.  The intent is left as it is.
 *
 * Returns the lines that stand whole in the file, first ones first (what was
 * torn is cut away): the rest may be written anew.  UNCERTAIN: the file is
 * gone or shorter.  NOT_NOW: another process holds the lock, or errno; to be
 * called again before anything is written, or given up as uncertain.
 */

ssize_t ngx_http_llm_capture_writer_recover(ngx_http_llm_capture_writer_t *w,
    const ngx_http_llm_capture_intent_t *intent,
    ngx_http_llm_capture_line_t *line, unsigned n);

/*
 * The key of what is hashed in rows of the file, loaded or made; it stays the
 * same.  NULL: not now, f->error.
 */

const uint8_t *ngx_http_llm_capture_writer_key(
    ngx_http_llm_capture_writer_t *w, ngx_http_llm_capture_file_t *f,
    uint64_t now);

/* a try failed before it came to a write: the file waits */

void ngx_http_llm_capture_writer_later(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f, uint64_t now);

/* the caller dropped all it kept for the file: its back-off is over */

void ngx_http_llm_capture_writer_forget(ngx_http_llm_capture_writer_t *w,
    ngx_http_llm_capture_file_t *f);

/* the earliest retry_at; 0: none */

uint64_t ngx_http_llm_capture_writer_due(ngx_http_llm_capture_writer_t *w);


#endif /* _NGX_HTTP_LLM_CAPTURE_WRITER_H_INCLUDED_ */
