
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The books of the helper: one for each account of the zone, with what is to be
 * done next for its file: a manifest, a segment, a digest.  Part of the drain;
 * see ngx_http_llm_capture_upload.h.
 *
 *     account    what is counted of a file, in the zone
 *     book       when its manifest is written
 *     book_tell  how it is
 *     seal       the file becomes a segment
 *     finish     segments are read, compressed, and the oldest removed
 *     disk       how much may be used
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_BOOK_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_BOOK_H_INCLUDED_


#include "ngx_http_llm_capture_account.h"
#include "ngx_http_llm_capture_digest.h"
#include "ngx_http_llm_capture_policy.h"
#include "ngx_http_llm_capture_segment.h"
#include "ngx_http_llm_capture_upload.h"


struct ngx_http_llm_capture_book_s {
    ngx_http_llm_capture_file_t          *file;     /* NULL: not in use */
    const ngx_http_llm_capture_policy_t  *policy;
    ngx_http_llm_capture_book_t          *next;     /* of those with a due */
    /* of the account: what stands in the zone may change */
    uint32_t                              account;
    uint32_t                              row;
    uint32_t                              npending; /* requests under way */
    uint64_t                              size;     /* of the file */
    uint64_t                              dir;      /* hash of its directory */
    unsigned                              listed:1;
    unsigned                              dirty:1;  /* manifest is behind */
    unsigned                              full:1;   /* to be rotated */
    unsigned                              unlooked:1; /* for segments left */
    unsigned                              alone:1;  /* first of a directory */
    uint64_t                              due;      /* the manifest, ms */
    uint64_t                              rotate_at; /* ms; 0: not by time */
    uint64_t                              again;    /* ms, after a failure */
};

/* a segment that nobody has read yet */

struct ngx_http_llm_capture_task_s {
    ngx_http_llm_capture_task_t          *next;
    ngx_http_llm_capture_book_t          *book;
    uint64_t                              utc;      /* its name */
    uint64_t                              due;      /* ms */
    unsigned                              form;
    ngx_http_llm_capture_digest_t        *digest;   /* NULL: not begun */
};


static inline const ngx_http_llm_capture_sys_t *
ngx_http_llm_capture_book_sys(const ngx_http_llm_capture_drain_t *d)
{
    return ngx_http_llm_capture_writer_files(d->conf.writer)->sys;
}


/* of its file, as ngx_http_llm_capture_file_say() */

static inline void
ngx_http_llm_capture_book_say(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, ngx_http_llm_capture_saying_e what,
    int level, int err, const char *text)
{
    ngx_http_llm_capture_file_say(
                          ngx_http_llm_capture_writer_files(d->conf.writer),
                          book->file, what, level, err, text);
}


/* ngx_http_llm_capture_book.c */

/* attaches to the accounts of the zone, and ends what a predecessor left */
int ngx_http_llm_capture_books_open(ngx_http_llm_capture_drain_t *d);
void ngx_http_llm_capture_books_close(ngx_http_llm_capture_drain_t *d);

/* the account of a file: NONE: none is free, or its rows are outcomes */
uint32_t ngx_http_llm_capture_book(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_file_t *file, uint32_t row, uint32_t format);

/* "/d/a" and "/d/a.jsonl" would have one manifest, and the same segments */
int ngx_http_llm_capture_book_taken(ngx_http_llm_capture_drain_t *d,
    const ngx_http_llm_capture_file_t *file);

/* its manifest is behind */
void ngx_http_llm_capture_book_dirty(ngx_http_llm_capture_drain_t *d,
    uint32_t account);
/* all of them: files may have been renamed */
void ngx_http_llm_capture_books_dirty(ngx_http_llm_capture_drain_t *d);

/*
 * A batch stands in the file that the intent names: the account is made that of
 * the file, before the commit counts in it.
 */
void ngx_http_llm_capture_book_written(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest,
    const ngx_http_llm_capture_intent_t *it, unsigned n);

/* and it was counted */
void ngx_http_llm_capture_book_committed(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest);

/* does what is due; and when the next is, ms, 0: never */
void ngx_http_llm_capture_books_pass(ngx_http_llm_capture_drain_t *d);
uint64_t ngx_http_llm_capture_books_due(ngx_http_llm_capture_drain_t *d);

/* nothing will come any more: all manifests are sealed */
void ngx_http_llm_capture_books_end(ngx_http_llm_capture_drain_t *d);

/* drops of a row, as its sum says */
void ngx_http_llm_capture_books_gap(ngx_http_llm_capture_drain_t *d,
    uint32_t row, const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max]);

/* of a path */
const char *ngx_http_llm_capture_book_name(const char *path);

uint64_t ngx_http_llm_capture_book_wall(void);


/* ngx_http_llm_capture_book_tell.c */

/*
 * Writes the manifest `path` of the file st, whose name, without its directory,
 * is `name`; old: where an earlier one may be.  0, or -1 with errno.
 */
int ngx_http_llm_capture_book_tell(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, const char *path, const char *old,
    const char *name, const struct stat *st, unsigned ended,
    unsigned renamed);
/* the manifest of its file, wherever that is; 0: told, or there is no file */
int ngx_http_llm_capture_book_update(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, unsigned ended);
/* likewise, for the last time: a lock is waited for, a little */
void ngx_http_llm_capture_book_last(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book);
/* the live file was cut to so many bytes: what was told of it goes */
void ngx_http_llm_capture_book_cut(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t size);


/* ngx_http_llm_capture_seal.c */

/* the live file becomes a segment, if there is one; -1: later */
int ngx_http_llm_capture_seal(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book);
/* goes on where one who died left it */
int ngx_http_llm_capture_seal_resume(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book);


/* ngx_http_llm_capture_finish.c */

/* a segment is to be read */
void ngx_http_llm_capture_finish_add(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t utc, unsigned form,
    uint64_t due);
/* and those that a predecessor had not, as soon as there is time */
void ngx_http_llm_capture_finish_later(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book);
/* more segments than are to be kept: the oldest go */
void ngx_http_llm_capture_finish_keep(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book);
void ngx_http_llm_capture_finish_pass(ngx_http_llm_capture_drain_t *d);
uint64_t ngx_http_llm_capture_finish_due(ngx_http_llm_capture_drain_t *d);
void ngx_http_llm_capture_finish_close(ngx_http_llm_capture_drain_t *d);
/* at the end: of what is left, as much as can be done until `end` */
void ngx_http_llm_capture_finish_all(ngx_http_llm_capture_drain_t *d,
    uint64_t end);
/* reads the live file at its end, if that takes no longer than until `end` */
void ngx_http_llm_capture_finish_live(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t end);


/* ngx_http_llm_capture_disk.c */

/* may so many bytes be written to the file of the destination? */
int ngx_http_llm_capture_disk_room(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, uint64_t bytes);
/* the file has so many bytes now; sealed: they went into a segment */
void ngx_http_llm_capture_disk_size(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_book_t *book, uint64_t size, unsigned sealed);
/* segments came or went: what is used is looked up again */
void ngx_http_llm_capture_disk_changed(ngx_http_llm_capture_drain_t *d);


#endif /* _NGX_HTTP_LLM_CAPTURE_BOOK_H_INCLUDED_ */
