
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What the helper knows of the bodies under way, in memory of its own.  Shared
 * by the files of the drain, in the order a body takes:
 *
 *     assemble   frames of the rings -> uploads
 *     spill      slow uploads: out of a ring into blocks of the arena
 *     arena      those blocks
 *     upload     complete: scanned; ready for its destination, or refused
 *     tree       the body of one as JSON, and the session it belongs to
 *     trace      rows that need the answer: what is kept of the request
 *     answer     outcomes, each with the request it belongs to
 *     batch      ready uploads -> their file
 *     commit     an outcome: marks, counters, once
 *     reclaim    what goes back to the rings
 *     live       how it goes, for those who ask
 *     book       manifests and segments, see ngx_http_llm_capture_book.h
 *     drain      all of it in turn, and time
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_UPLOAD_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_UPLOAD_H_INCLUDED_


#include <jansson.h>

#include "ngx_http_llm_capture_blocks.h"
#include "ngx_http_llm_capture_drain.h"
#include "ngx_http_llm_capture_outcome.h"
#include "ngx_http_llm_capture_record.h"
#include "ngx_http_llm_capture_reply.h"
#include "ngx_http_llm_capture_row.h"
#include "ngx_http_llm_capture_scan.h"
#include "ngx_http_llm_capture_waits.h"
#include "ngx_http_llm_capture_writer.h"


#define NGX_HTTP_LLM_CAPTURE_HASH     1024


typedef struct ngx_http_llm_capture_dest_s    ngx_http_llm_capture_dest_t;
/* segments known to be the oldest, at a time */
#define NGX_HTTP_LLM_CAPTURE_OLD  32

typedef struct ngx_http_llm_capture_upload_s  ngx_http_llm_capture_upload_t;
typedef struct ngx_http_llm_capture_piece_s   ngx_http_llm_capture_piece_t;
typedef struct ngx_http_llm_capture_spill_s   ngx_http_llm_capture_spill_t;
typedef struct ngx_http_llm_capture_told_s    ngx_http_llm_capture_told_t;
typedef struct ngx_http_llm_capture_book_s    ngx_http_llm_capture_book_t;
typedef struct ngx_http_llm_capture_task_s    ngx_http_llm_capture_task_t;


/* a frame that stands in a ring */

struct ngx_http_llm_capture_piece_s {
    ngx_http_llm_capture_piece_t   *behind;   /* in the ring */
    ngx_http_llm_capture_piece_t   *next;     /* of the upload */
    ngx_http_llm_capture_upload_t  *upload;   /* NULL: done */
    uint64_t                        end;      /* position behind it */
    size_t                          at;       /* bytes, of its header */
    uint32_t                        body;     /* bytes, from there */
    uint32_t                        len;      /* bytes of the body */
};


typedef enum {
    NGX_HTTP_LLM_CAPTURE_U_OPEN = 0,          /* END or ABORT to come */
    NGX_HTTP_LLM_CAPTURE_U_HELD,              /* its answer is to come */
    NGX_HTTP_LLM_CAPTURE_U_PARKED,            /* its request is under way */
    NGX_HTTP_LLM_CAPTURE_U_PAIRED,            /* partner of its request */
    NGX_HTTP_LLM_CAPTURE_U_READY,             /* complete and scanned */
    NGX_HTTP_LLM_CAPTURE_U_REFUSED            /* to be counted */
} ngx_http_llm_capture_upload_e;

struct ngx_http_llm_capture_upload_s {
    ngx_http_llm_capture_upload_t  *bucket;   /* open ones */
    ngx_http_llm_capture_upload_t  *next;     /* of a list it stands in */
    ngx_http_llm_capture_dest_t    *dest;

    uint32_t                        ring;
    uint32_t                        chain;    /* NONE: in the ring */
    uint64_t                        pos;      /* of its BEGIN */
    uint64_t                        id;
    uint64_t                        wall;
    uint64_t                        mono;

    /* of a request that asked for its answer, and of that answer; 0: none */
    uint64_t                        uid;
    uint32_t                        pid;
    uint8_t                         endpoint;
    uint16_t                        flags;    /* of its BEGIN */
    uint16_t                        spec_len; /* of what names its session */
    ngx_http_llm_capture_upload_t  *pair;     /* bucket of the uid */
    uint64_t                        ts;       /* of the line that was written */
    uint64_t                        session;  /* of a ready one, 0: none; its
                                                 id, once the line is written */
    uint32_t                        unanswered; /* what its outcome came to,
                                                 a counter; 0: nothing yet */

    /* of a row that needs the answer */
    ngx_http_llm_capture_upload_t  *partner;  /* that answer; done with it */
    ngx_http_llm_capture_told_t    *told;
    unsigned                        held:1;   /* its ring knows it no more */

    ngx_http_llm_capture_piece_t   *first;
    ngx_http_llm_capture_piece_t   *last;
    uint32_t                        npieces;
    uint64_t                        len;      /* bytes of the body so far */

    /* of a ready one: bytes to skip at both ends, and a brace in their place */
    uint64_t                        head;
    uint64_t                        trail;
    unsigned                        brace:1;

    json_t                         *tree;     /* of the body; NULL: unread */

    /* the line of an outcome, or a trace, that is ready; freed with it */
    char                           *text;
    size_t                          text_len;

    ngx_http_llm_capture_upload_e   state;
    /* of a refused one; C_max: nothing that is counted */
    ngx_http_llm_capture_counter_e  why;
};


/* in the order of arrival at a queue */

typedef struct {
    ngx_http_llm_capture_upload_t  *first;
    ngx_http_llm_capture_upload_t **last;
    unsigned                        n;
} ngx_http_llm_capture_queue_t;


struct ngx_http_llm_capture_dest_s {
    ngx_http_llm_capture_dest_t    *bucket;
    ngx_http_llm_capture_dest_t    *busy;     /* next one with ready uploads */
    ngx_http_llm_capture_dest_t    *refusing; /* next one with refused ones */
    ngx_http_llm_capture_file_t    *file;
    uint64_t                        hash;     /* of the template */
    uint32_t                        row;
    uint32_t                        format;
    uint32_t                        account;  /* NONE: it has none */
    uint64_t                        free;     /* bytes it may take, and */
    uint64_t                        free_due; /* until when, ms */
    ngx_http_llm_capture_queue_t    ready;
    ngx_http_llm_capture_queue_t    refused;
    unsigned                        is_busy:1;
    unsigned                        is_refusing:1;
    unsigned                        shown:1;  /* among nfiles */
    size_t                          path_len;
    char                           *path;
};


typedef struct {
    ngx_http_llm_capture_reader_t   reader;
    ngx_http_llm_capture_piece_t   *first;
    ngx_http_llm_capture_piece_t   *last;

    size_t                          left;     /* end of the lap before */

    /* bytes from the front: maybe resident; in use in the present period */
    size_t                          touched;
    size_t                          high;
    uint64_t                        due;      /* end of it, ms; 0: none */

    uint32_t                        nuploads; /* not committed, moved too */
    unsigned                        gone:1;   /* its owner */
    unsigned                        broken:1; /* cannot be read any further */
} ngx_http_llm_capture_drain_ring_t;


/* one of the oldest segments */

typedef struct {
    ngx_http_llm_capture_book_t         *book;
    uint64_t                             utc;
} ngx_http_llm_capture_old_t;


struct ngx_http_llm_capture_drain_s {
    ngx_http_llm_capture_drain_conf_t    conf;
    ngx_http_llm_capture_zone_t          zone;
    ngx_http_llm_capture_drain_ring_t   *rings;

    ngx_http_llm_capture_upload_t       *open[NGX_HTTP_LLM_CAPTURE_HASH];
    ngx_http_llm_capture_upload_t       *pairs[NGX_HTTP_LLM_CAPTURE_HASH];
    ngx_http_llm_capture_waits_t        *waits;
    ngx_http_llm_capture_queue_t         parked;
    unsigned                             parked_new;  /* not looked after */
    ngx_http_llm_capture_dest_t         *dests[NGX_HTTP_LLM_CAPTURE_HASH];
    ngx_http_llm_capture_dest_t         *busy;
    ngx_http_llm_capture_dest_t          bad[NGX_HTTP_LLM_CAPTURE_ROWS];
    ngx_http_llm_capture_dest_t         *refusing;
    uint64_t                             nuploads;  /* open, ready, refused */
    uint64_t                             nanswers;  /* outcomes among them */
    unsigned                             nheld;     /* of them, held */
    unsigned                             finished;  /* by the present pass */

    ngx_http_llm_capture_piece_t        *free_pieces;
    ngx_http_llm_capture_upload_t       *free_uploads;
    void                                *slabs;     /* what they come from */

    ngx_http_llm_capture_spill_t        *spill;
    ngx_http_llm_capture_blocks_t        blocks;    /* of the one in hand */

    ngx_http_llm_capture_upload_t       *batch[NGX_HTTP_LLM_CAPTURE_BATCH];
    ngx_http_llm_capture_line_t          lines[NGX_HTTP_LLM_CAPTURE_BATCH];
    struct iovec                        *iov;
    size_t                               niov;
    ngx_http_llm_capture_intent_t        left;      /* by a predecessor */

    ngx_http_llm_capture_book_t         *books;     /* ACCOUNTS */
    uint32_t                             nbooks;    /* in use, at most */
    ngx_http_llm_capture_book_t         *listed;    /* those with a due */
    unsigned                             nlisted;
    unsigned                             books_full:1;
    ngx_http_llm_capture_task_t         *tasks;     /* segments to be read */
    uint32_t                             nunlooked; /* books */
    uint32_t                             look;      /* the next one */
    uint64_t                             look_due;  /* ms */
    uint64_t                             dropped[NGX_HTTP_LLM_CAPTURE_ROWS];
    uint64_t                             looked;    /* for drops, ms since */
    uint64_t                             wall;      /* 1970; and now */

    uint64_t                             disk_sealed; /* bytes of segments */
    uint64_t                             disk_live; /* of the others */
    uint64_t                             disk_due;  /* to look again, ms */
    unsigned                             disk_stale:1;
    unsigned                             nold;      /* the oldest first */
    ngx_http_llm_capture_old_t           old[NGX_HTTP_LLM_CAPTURE_OLD];

    /* as told to those who ask */
    uint64_t                             nfiles[NGX_HTTP_LLM_CAPTURE_ROWS];
    ngx_http_llm_capture_file_t         *newest[NGX_HTTP_LLM_CAPTURE_ROWS];

    uint64_t                             now;
    uint64_t                             give_up;   /* the recovery, ms */
    unsigned                             recovering:1;
    uint64_t                             warn_at;   /* the next one due */
    uint64_t                             told_at[NGX_HTTP_LLM_CAPTURE_C_max];
    uint64_t                             told[NGX_HTTP_LLM_CAPTURE_C_max];
};


/* ngx_http_llm_capture_assemble.c */

/* takes the frames of a ring up to its head; out of memory: fewer of them */
void ngx_http_llm_capture_assemble(ngx_http_llm_capture_drain_t *d,
    uint32_t ring);
/* the front of a ring that is done goes back to the producer */
void ngx_http_llm_capture_advance(ngx_http_llm_capture_drain_t *d,
    uint32_t ring);


/* ngx_http_llm_capture_upload.c */

ngx_http_llm_capture_piece_t *ngx_http_llm_capture_piece_new(
    ngx_http_llm_capture_drain_t *d);
void ngx_http_llm_capture_piece_free(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_piece_t *piece);
/* marks all frames of an upload, which has none then */
void ngx_http_llm_capture_piece_mark(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint32_t mark);

/* an open one; NULL: none */
ngx_http_llm_capture_upload_t *ngx_http_llm_capture_upload_find(
    ngx_http_llm_capture_drain_t *d, uint32_t ring, uint64_t id);
ngx_http_llm_capture_upload_t *ngx_http_llm_capture_upload_new(
    ngx_http_llm_capture_drain_t *d, uint32_t ring, uint64_t id,
    const ngx_http_llm_capture_begin_t *begin, const char *path);
void ngx_http_llm_capture_upload_free(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* an open one is complete: scans it and queues it as ready or as refused */
void ngx_http_llm_capture_upload_ended(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* an open or a ready one will not be written; counted by the next settle */
void ngx_http_llm_capture_upload_refuse(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_counter_e why);
/* spec_len bytes of it, where they stand: copy them; NULL: there are none */
const char *ngx_http_llm_capture_upload_spec(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* a ready one, whose destination fails, is taken off its queue: failed */
void ngx_http_llm_capture_upload_give_up(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* all open ones of a ring */
void ngx_http_llm_capture_upload_refuse_open(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, ngx_http_llm_capture_counter_e why);
/* takes an upload off whatever list it stands in; NULL: it is in none */
ngx_http_llm_capture_upload_t *ngx_http_llm_capture_upload_take(
    ngx_http_llm_capture_drain_t *d, uint32_t ring, uint64_t id);
/* one that is complete goes to its destination */
void ngx_http_llm_capture_upload_ready(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* out of the open ones */
void ngx_http_llm_capture_upload_close(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* the request of a uid, or its answer, not committed; NULL: there is none */
ngx_http_llm_capture_upload_t *ngx_http_llm_capture_upload_pair(
    ngx_http_llm_capture_drain_t *d, uint64_t uid, unsigned answer);


/* ngx_http_llm_capture_tree.c */

/*
 * The body of a complete request, read once and kept until it is dropped or
 * the upload freed; NULL: it cannot be read, or is too large as a tree
 */
json_t *ngx_http_llm_capture_upload_tree(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
void ngx_http_llm_capture_upload_untree(ngx_http_llm_capture_upload_t *u);
/* finds out the session of a request that is scanned */
void ngx_http_llm_capture_upload_session(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);


/* ngx_http_llm_capture_trace.c */

/* a complete one, whose row needs its answer: held, or refused */
void ngx_http_llm_capture_trace_hold(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* an open one of which a predecessor holds all that is needed */
void ngx_http_llm_capture_trace_held(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/*
 * The answer of one that is held, in no list: ready, or refused.  reply: NULL
 * if it cannot be read.
 */
void ngx_http_llm_capture_trace_answered(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_upload_t *answer,
    const ngx_http_llm_capture_reply_t *reply, const uint8_t *body);
/* there will be none, as its outcome came to `why` */
void ngx_http_llm_capture_trace_unanswered(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_counter_e why);
/* the text of a ready one; -1: no memory, or what was held is spoiled */
int ngx_http_llm_capture_trace_text(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u,
    const uint8_t key[NGX_HTTP_LLM_CAPTURE_KEY]);


/* ngx_http_llm_capture_answer.c */

/* what is to be read of an answer: all but text and text_size */
void ngx_http_llm_capture_reply_answer(
    const ngx_http_llm_capture_reply_t *reply, const uint8_t *body,
    ngx_http_llm_capture_answer_t *answer);
/* what a row says of it: all else in the row is 0 */
void ngx_http_llm_capture_reply_row(const ngx_http_llm_capture_reply_t *reply,
    const ngx_http_llm_capture_outcome_t *outcome,
    ngx_http_llm_capture_fields_t *row);
/* an outcome is complete: ready, refused, or parked: its request is not */
void ngx_http_llm_capture_answer_ended(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* looks again after those that are parked */
void ngx_http_llm_capture_answer_retry(ngx_http_llm_capture_drain_t *d);
/* what a reason is called for an outcome; C_max: nobody waits for it */
ngx_http_llm_capture_counter_e ngx_http_llm_capture_answer_why(
    ngx_http_llm_capture_drain_t *d, ngx_http_llm_capture_upload_t *u,
    ngx_http_llm_capture_counter_e why);
/* counts those whose worker is gone */
void ngx_http_llm_capture_answer_expire(ngx_http_llm_capture_drain_t *d);


/* ngx_http_llm_capture_spill.c */

/* takes over what a predecessor moved; 0, or -1 without memory */
int ngx_http_llm_capture_spill_open(ngx_http_llm_capture_drain_t *d);
void ngx_http_llm_capture_spill_close(ngx_http_llm_capture_drain_t *d);
/* moves an open upload and all its pieces out of its ring; -1: no space */
int ngx_http_llm_capture_spill(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
/* what came after it was moved; -1: no space */
int ngx_http_llm_capture_spill_more(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, const uint8_t *p, size_t n);
void ngx_http_llm_capture_spill_ended(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
void ngx_http_llm_capture_spill_free(ngx_http_llm_capture_drain_t *d,
    uint32_t chain);
void ngx_http_llm_capture_spill_scan(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, ngx_http_llm_capture_scan_t *s);
uint32_t ngx_http_llm_capture_spill_niov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
void ngx_http_llm_capture_spill_iov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, struct iovec *iov);
/*
 * Puts an upload into a chain as one that is held: n pieces in place of its
 * body.  It stays where it was, too.  NONE: no space.
 */
uint32_t ngx_http_llm_capture_spill_hold(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, const struct iovec *iov, unsigned n);
/* of the body of one that was moved; how many bytes: fewer at its end */
size_t ngx_http_llm_capture_spill_part(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, uint64_t off, uint8_t *p, size_t size);
/* what was put in front of the body: as in a BEGIN, behind its struct */
const uint8_t *ngx_http_llm_capture_spill_extra(
    ngx_http_llm_capture_drain_t *d, ngx_http_llm_capture_upload_t *u);


/* ngx_http_llm_capture_commit.c */

/* fills the refs of the intent with n uploads */
void ngx_http_llm_capture_commit_refs(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t **u, unsigned n);
/*
 * The first n refs of the intent came to what `add` says, on top of the
 * helper's row, and of the account: done once, whenever this process dies.
 */
void ngx_http_llm_capture_commit(ngx_http_llm_capture_drain_t *d, uint32_t row,
    uint32_t account, ngx_http_llm_capture_upload_t **u, unsigned n,
    const uint64_t add[NGX_HTTP_LLM_CAPTURE_C_max]);
/* what it adds that the first n of the batch stand in their file */
void ngx_http_llm_capture_commit_written(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_dest_t *dest, unsigned n,
    uint64_t add[NGX_HTTP_LLM_CAPTURE_C_max]);
/* counts what was refused */
void ngx_http_llm_capture_settle(ngx_http_llm_capture_drain_t *d);
/* answers that will not come: those of n requests of a row */
void ngx_http_llm_capture_commit_expired(ngx_http_llm_capture_drain_t *d,
    uint32_t row, const uint64_t *uid, unsigned n);
/* a dead worker's sum is mended: what it had seen and not told of */
void ngx_http_llm_capture_commit_repair(ngx_http_llm_capture_drain_t *d,
    uint32_t ring, unsigned broken);
/* ends what a predecessor left; -1: to be tried again, nothing else before */
int ngx_http_llm_capture_commit_recover(ngx_http_llm_capture_drain_t *d);


/* ngx_http_llm_capture_batch.c */

/* the iovecs a ready body takes, and the body in them, outer space cut off */
size_t ngx_http_llm_capture_upload_niov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u);
void ngx_http_llm_capture_upload_iov(ngx_http_llm_capture_drain_t *d,
    ngx_http_llm_capture_upload_t *u, struct iovec *iov);
/* lines of the first n of the batch, of niov iovecs in all; -1: no memory */
int ngx_http_llm_capture_lines(ngx_http_llm_capture_drain_t *d, unsigned n,
    size_t niov);
void ngx_http_llm_capture_write_all(ngx_http_llm_capture_drain_t *d);


/* ngx_http_llm_capture_reclaim.c */

void ngx_http_llm_capture_unpin(ngx_http_llm_capture_drain_t *d,
    uint32_t ring);
void ngx_http_llm_capture_shrink(ngx_http_llm_capture_drain_t *d,
    uint32_t ring);
/* is the owner gone?  dead: asks the system too */
void ngx_http_llm_capture_look(ngx_http_llm_capture_drain_t *d, uint32_t ring,
    unsigned dead);
/* ends what owners left unfinished, and frees their rings when empty */
void ngx_http_llm_capture_leave(ngx_http_llm_capture_drain_t *d);


/* ngx_http_llm_capture_drain.c */

/* CLOCK_MONOTONIC, ms, in the middle of a pass */
uint64_t ngx_http_llm_capture_drain_clock(ngx_http_llm_capture_drain_t *d);

void ngx_http_llm_capture_drain_say(ngx_http_llm_capture_drain_t *d, int level,
    int err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));


static inline unsigned
ngx_http_llm_capture_is_answer(const ngx_http_llm_capture_upload_t *u)
{
    return u->id >= NGX_HTTP_LLM_CAPTURE_ID_OUTCOME;
}


static inline void
ngx_http_llm_capture_queue_add(ngx_http_llm_capture_queue_t *q,
    ngx_http_llm_capture_upload_t *u)
{
    u->next = NULL;

    if (q->first == NULL) {
        q->last = &q->first;
    }

    *q->last = u;
    q->last = &u->next;
    q->n++;
}


#endif /* _NGX_HTTP_LLM_CAPTURE_UPLOAD_H_INCLUDED_ */
