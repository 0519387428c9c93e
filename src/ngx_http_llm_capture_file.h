
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The destinations of the helper, and those of them that are open: opened,
 * locked and closed here, but neither read nor written.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_FILE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_FILE_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "ngx_http_llm_capture_epoch.h"
#include "ngx_http_llm_capture_siphash.h"
#include "ngx_http_llm_capture_sys.h"
#include "ngx_http_llm_capture_zone.h"


#define NGX_HTTP_LLM_CAPTURE_FILES    10000   /* paths known, at most */
#define NGX_HTTP_LLM_CAPTURE_BUCKETS  4096


/* what may go wrong with a file; each is told once a minute at most */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_SAY_OPEN = 0,
    NGX_HTTP_LLM_CAPTURE_SAY_LOCK,
    NGX_HTTP_LLM_CAPTURE_SAY_TAIL,
    NGX_HTTP_LLM_CAPTURE_SAY_EPOCH,
    NGX_HTTP_LLM_CAPTURE_SAY_KEY,
    NGX_HTTP_LLM_CAPTURE_SAY_WRITE,
    NGX_HTTP_LLM_CAPTURE_SAY_CUT,
    NGX_HTTP_LLM_CAPTURE_SAY_MANIFEST,
    NGX_HTTP_LLM_CAPTURE_SAY_SEAL,
    NGX_HTTP_LLM_CAPTURE_SAYINGS
} ngx_http_llm_capture_saying_e;


typedef struct ngx_http_llm_capture_file_s  ngx_http_llm_capture_file_t;

struct ngx_http_llm_capture_file_s {
    char                           *path;       /* ends with a NUL */
    size_t                          len;

    /* for the caller */
    void                           *data;       /* its own; NULL at first */
    int                             error;      /* of the last write; 0: ok */
    uint64_t                        retry_at;   /* monotonic ms; 0: now */
    unsigned                        follow:1;   /* the name, not the file */

    /* the rest is private */
    uint64_t                        hash;
    ngx_http_llm_capture_file_t    *next;       /* of the bucket */
    ngx_http_llm_capture_file_t    *newer;      /* of the open ones */
    ngx_http_llm_capture_file_t    *older;

    int                             fd;         /* -1: not open */
    off_t                           size;       /* as we left it; -1: unknown */
    unsigned                        format;     /* of its rows, if same */
    unsigned                        same:1;     /* nobody else has touched it */
    unsigned                        epoch_known:1;
    unsigned                        epoch_stored:1;
    unsigned                        key_known:1;
    unsigned                        key_stored:1;

    uint32_t                        delay;      /* of retry_at, ms */
    uint64_t                        epoch_retry;
    ngx_http_llm_capture_epoch_t    epoch;
    uint64_t                        key_retry;
    uint8_t                         key[NGX_HTTP_LLM_CAPTURE_KEY];

    uint64_t                        said[NGX_HTTP_LLM_CAPTURE_SAYINGS];
    uint32_t                        unsaid[NGX_HTTP_LLM_CAPTURE_SAYINGS];
};


/* of a saying, in the minute that began then, for all files together */

typedef struct {
    uint64_t                        since;      /* monotonic ms */
    uint32_t                        n;
    uint32_t                        unsaid;     /* for want of a turn */
} ngx_http_llm_capture_turns_t;


typedef struct {
    const ngx_http_llm_capture_sys_t  *sys;

    /* level: LOG_ERR, LOG_WARNING, LOG_NOTICE of <syslog.h>; err: errno or 0 */
    void                          (*log)(void *ctx, int level, int err,
                                      const char *text);
    void                           *log_ctx;

    unsigned                        max_open;
    unsigned                        nopen;
    unsigned                        npaths;
    unsigned                        nwaiting;   /* with a retry_at */
    uint64_t                        now;        /* monotonic ms */
    ngx_http_llm_capture_turns_t    turns[NGX_HTTP_LLM_CAPTURE_SAYINGS];

    ngx_http_llm_capture_file_t    *newest;
    ngx_http_llm_capture_file_t    *oldest;
    ngx_http_llm_capture_file_t    *bucket[NGX_HTTP_LLM_CAPTURE_BUCKETS];
} ngx_http_llm_capture_files_t;


/*
 * Finds or makes a destination.  NULL: too many, no memory, or the path is
 * not absolute, too long or has a NUL in it.
 */

ngx_http_llm_capture_file_t *ngx_http_llm_capture_files_get(
    ngx_http_llm_capture_files_t *fs, const char *path, size_t len);

/* closes what was used longest ago; 0: nothing but keep is open */

int ngx_http_llm_capture_files_evict(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *keep);

/* all are opened anew when next used; back-offs end */

void ngx_http_llm_capture_files_reopen(ngx_http_llm_capture_files_t *fs);

void ngx_http_llm_capture_files_free(ngx_http_llm_capture_files_t *fs);


/*
 * Opens if needed, locks, and makes sure that the file still has a name; st is
 * its state under the lock.  Returns 0, or -1 with f->error, and not locked:
 * EAGAIN if another process holds the lock.
 */

int ngx_http_llm_capture_file_lock(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, struct stat *st);
void ngx_http_llm_capture_file_unlock(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f);

/* the next try is put off: 10 ms doubling to 1 s, a lock 2 ms to 64 ms */

void ngx_http_llm_capture_file_later(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f);
void ngx_http_llm_capture_file_ready(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f);

/*
 * 1: its last try failed and the next is to come; that the file was locked, or
 * truncated, by others a moment ago is no failure yet.
 */

int ngx_http_llm_capture_file_failing(const ngx_http_llm_capture_file_t *f,
    uint64_t now);

/* 1: as long as nobody mends the destination no try can succeed */

int ngx_http_llm_capture_file_hopeless(int err);

/*
 * Once a minute about a file, ten times a minute about all: their names may
 * come from clients.
 */

void ngx_http_llm_capture_file_say(ngx_http_llm_capture_files_t *fs,
    ngx_http_llm_capture_file_t *f, ngx_http_llm_capture_saying_e what,
    int level, int err, const char *text);

/*
 * Opens for appending and reading what exists; regular files only, no symbolic
 * link, never blocks.  Returns the fd, or -1 with errno: EINVAL if it is not a
 * regular file.
 */

int ngx_http_llm_capture_file_open(const ngx_http_llm_capture_sys_t *sys,
    const char *path, int flags, struct stat *st);


/* does the path name the file st? */
int ngx_http_llm_capture_file_named(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const struct stat *st);

/*
 * Where others can write, a file of somebody else may have been put in the way
 * by one who wants to read what comes: the rule of fs.protected_regular, for
 * directories without a sticky bit too.  The directory's owner may, he could
 * have made it so anyway.
 */

int ngx_http_llm_capture_file_planted(const ngx_http_llm_capture_sys_t *sys,
    const char *path, const struct stat *st);


#endif /* _NGX_HTTP_LLM_CAPTURE_FILE_H_INCLUDED_ */
