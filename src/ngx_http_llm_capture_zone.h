
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What lies in the shared zone, and where.  Pure: no nginx header.
 *
 *     header | live | control | intent | rows of the helper | ring headers |
 *     rows per ring, and one for workers that found no ring | chains | next[]
 *     of blocks | waits | accounts | gaps | rings, page aligned | spill blocks
 *
 * Every worker can write every byte of the zone.  So each process keeps the
 * geometry in memory of its own (ngx_http_llm_capture_zone_t), and the helper
 * takes nothing from the zone that it has not checked.  No address is stored:
 * the zone outlives the processes that mapped it.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_ZONE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_ZONE_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>

#include "ngx_http_llm_capture_siphash.h"


/*
 * Part of the zone's name: a newer layout, or a word that means something else,
 * never meets older memory
 */
#define NGX_HTTP_LLM_CAPTURE_LAYOUT     6

#define NGX_HTTP_LLM_CAPTURE_LINE       64       /* bytes of a cache line */
#define NGX_HTTP_LLM_CAPTURE_TEMPLATES  64
/* the last row is shared by all templates beyond the table */
#define NGX_HTTP_LLM_CAPTURE_ROWS       (NGX_HTTP_LLM_CAPTURE_TEMPLATES + 1)
#define NGX_HTTP_LLM_CAPTURE_TEXT       256      /* bytes kept of a template */
#define NGX_HTTP_LLM_CAPTURE_PATH       4096     /* bytes of a path with NUL */
#define NGX_HTTP_LLM_CAPTURE_BATCH      512      /* records of one batch */
#define NGX_HTTP_LLM_CAPTURE_BLOCK      16384    /* bytes of a spill block */
#define NGX_HTTP_LLM_CAPTURE_CHAINS     16384    /* uploads moved, at most */
#define NGX_HTTP_LLM_CAPTURE_WAITS      65536    /* answers to come, most */
#define NGX_HTTP_LLM_CAPTURE_ACCOUNTS   2048     /* files counted, at most */
#define NGX_HTTP_LLM_CAPTURE_MODELS     16       /* named of a file, at most */
#define NGX_HTTP_LLM_CAPTURE_MORE       0x10000  /* and others */
#define NGX_HTTP_LLM_CAPTURE_MODEL      64       /* bytes of a name with NUL */
#define NGX_HTTP_LLM_CAPTURE_GAPS       32       /* kept of a template */
#define NGX_HTTP_LLM_CAPTURE_SHOW       1024     /* bytes shown of a path */
#define NGX_HTTP_LLM_CAPTURE_SECONDS    16       /* looked back on for rates */

#define NGX_HTTP_LLM_CAPTURE_NONE       0xffffffffu
#define NGX_HTTP_LLM_CAPTURE_REPAIR     0xfffffffeu
#define NGX_HTTP_LLM_CAPTURE_EXPIRED    0xfffffffdu


typedef enum {
    NGX_HTTP_LLM_CAPTURE_MOONCAKE_PAYLOAD = 0,
    NGX_HTTP_LLM_CAPTURE_RAW_PAYLOAD,
    /* written when the answer has ended */
    NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE,
    NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE,
    NGX_HTTP_LLM_CAPTURE_FORMATS,
    /* rows beside those of a payload, not to be configured */
    NGX_HTTP_LLM_CAPTURE_OUTCOMES = NGX_HTTP_LLM_CAPTURE_FORMATS
} ngx_http_llm_capture_format_e;


/*
 * The terms of  seen = recorded + each reason + pending.  Up to bad_path they
 * are counted by the worker before the first frame; what happens to a record
 * after its BEGIN frame is counted by the helper alone, so that each counter
 * word has one writer.  bytes and write_errors are no terms of the sum.
 *
 * Outcomes have a sum of their own, counted by the helper: answers (recorded
 * requests that asked for theirs) = outcomes + each reason + those to come.
 */

#define NGX_HTTP_LLM_CAPTURE_COUNTERS(X)                                      \
    X(seen)                                                                   \
    X(unmatched)                                                              \
    X(skipped)                                                                \
    X(paused)                                                                 \
    X(sampled_out)                                                            \
    X(encoded)                                                                \
    X(too_large)                                                              \
    X(queue_full)                                                             \
    X(unreadable)                                                             \
    X(bad_path)                                                               \
    X(aborted)                                                                \
    X(invalid_json)                                                           \
    X(invalid_utf8)                                                           \
    X(invalid_number)                                                         \
    X(invalid_depth)                                                          \
    X(invalid_not_object)                                                     \
    X(invalid_empty)                                                          \
    X(invalid_no_messages)                                                    \
    X(invalid_no_prompt)                                                      \
    X(no_outcome)                                                             \
    X(disk_limit)                                                             \
    X(failed)                                                                 \
    X(uncertain)                                                              \
    X(lost)                                                                   \
    X(recorded)                                                               \
    X(bytes)                                                                  \
    X(write_errors)                                                           \
    X(answers)                                                                \
    X(outcomes)                                                               \
    X(outcome_encoded)                                                        \
    X(outcome_queue_full)                                                     \
    X(outcome_aborted)                                                        \
    X(outcome_failed)                                                         \
    X(outcome_uncertain)                                                      \
    X(outcome_lost)

static inline unsigned
ngx_http_llm_capture_is_trace(uint32_t format)
{
    return format == NGX_HTTP_LLM_CAPTURE_MOONCAKE_TRACE
           || format == NGX_HTTP_LLM_CAPTURE_BASETEN_TRACE;
}


#define NGX_HTTP_LLM_CAPTURE_ENUM(name)  NGX_HTTP_LLM_CAPTURE_C_##name,

typedef enum {
    NGX_HTTP_LLM_CAPTURE_COUNTERS(NGX_HTTP_LLM_CAPTURE_ENUM)
    NGX_HTTP_LLM_CAPTURE_C_max
} ngx_http_llm_capture_counter_e;

/* the last term of the sum */
#define NGX_HTTP_LLM_CAPTURE_C_last  NGX_HTTP_LLM_CAPTURE_C_recorded


/* whole lines: the rows of two rings have two writers */

typedef struct {
    _Alignas(64) _Atomic uint64_t  n[NGX_HTTP_LLM_CAPTURE_C_max];
} ngx_http_llm_capture_row_t;


/*
 * A ring's words, each with one writer, each writer on a line of its own:
 *
 *     line 0   producer   head       end of what is published
 *                         want       units it may be writing up to; 0: none
 *                                    but those before head
 *                         deciding   row + 1 while it stands between counting
 *                                    seen and what became of the request
 *     line 1   helper     tail       end of what is finished
 *                         punch      units from where pages are given back
 *                         last_id    newest BEGIN met; ids are 1, 2, 3...
 *     line 2   owner      claimed by a worker's CAS 0 -> pid, zeroed by the
 *                         helper alone; closed is set by the owner
 *
 * Positions and units: see ngx_http_llm_capture_ring.h.
 */

typedef struct {
    _Alignas(64) _Atomic uint64_t  head;
    _Atomic uint64_t               want;
    _Atomic uint64_t               deciding;

    _Alignas(64) _Atomic uint64_t  tail;
    _Atomic uint64_t               punch;       /* 0: none under way */
    _Atomic uint64_t               last_id;

    _Alignas(64) _Atomic uint64_t  owner;
    _Atomic uint64_t               closed;
} ngx_http_llm_capture_ring_hdr_t;


/*
 * A slow upload moved out of its ring, or what is left of one whose row waits
 * for the answer (helper only).  bytes is published after the bytes stand in
 * the blocks: what it does not count was not moved.
 */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_CHAIN_FREE = 0,
    NGX_HTTP_LLM_CAPTURE_CHAIN_OPEN,
    NGX_HTTP_LLM_CAPTURE_CHAIN_ENDED,
    NGX_HTTP_LLM_CAPTURE_CHAIN_HELD
} ngx_http_llm_capture_chain_e;

typedef struct {
    _Atomic uint32_t          state;
    uint32_t                  ring;
    uint64_t                  id;
    _Atomic uint64_t          bytes;        /* of the body */
    uint32_t                  extra;        /* BEGIN's extra before the body */
    uint32_t                  first;        /* block */
} ngx_http_llm_capture_chain_t;


/* a recorded request whose answer is to come (helper only) */

typedef struct {
    _Atomic uint64_t          uid;          /* 0: free */
    uint64_t                  ts;           /* of the request's line, ms */
    uint64_t                  session;      /* of that line; 0: none */
    uint32_t                  pid;          /* of the worker that has it */
    uint32_t                  row;
} ngx_http_llm_capture_wait_t;


/* where a record of a batch begins; ts is the timestamp of its line, in ms */

typedef struct {
    uint32_t                  ring;
    /*
     * NONE: still in the ring; REPAIR: the ring's last id becomes this one;
     * EXPIRED: id is the number of one whose answer will not come
     */
    uint32_t                  chain;
    uint64_t                  pos;
    uint64_t                  id;
    uint64_t                  ts;
} ngx_http_llm_capture_ref_t;


/*
 * What the helper is about to do, so that a successor finishes it once.  The
 * key of the rows may be another one by then: this is the one they were made
 * with.
 *
 *     NONE     nothing under way
 *     WRITING  [offset, offset + length) of the file is being appended; how
 *              much of it arrived is found by comparing
 *     COMMIT   the outcome is known: marks and counters are being set
 */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_INTENT_NONE = 0,
    NGX_HTTP_LLM_CAPTURE_INTENT_WRITING,
    NGX_HTTP_LLM_CAPTURE_INTENT_COMMIT
} ngx_http_llm_capture_intent_e;

typedef struct {
    _Atomic uint32_t            state;
    uint32_t                    row;
    uint32_t                    account;    /* NONE: of no file */
    uint32_t                    nrefs;
    uint32_t                    format;
    uint32_t                    recorded;   /* COMMIT: the refs are */
    /* WRITING */
    uint64_t                    dev;
    uint64_t                    ino;
    uint64_t                    offset;
    uint64_t                    length;
    uint8_t                     key[NGX_HTTP_LLM_CAPTURE_KEY];  /* of rows */
    uint32_t                    path_len;
    char                        path[NGX_HTTP_LLM_CAPTURE_PATH];
    /* COMMIT: the helper's row and the account, as they must stand after */
    uint64_t                    n[NGX_HTTP_LLM_CAPTURE_C_max];
    uint64_t                    file[NGX_HTTP_LLM_CAPTURE_C_max];
    ngx_http_llm_capture_ref_t  refs[NGX_HTTP_LLM_CAPTURE_BATCH];
} ngx_http_llm_capture_intent_t;


/*
 * What became of the records of one file, as far as this zone had them, since
 * the file began: for its manifest (helper only).  See _account.h.
 */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_ACCOUNT_FREE = 0,
    NGX_HTTP_LLM_CAPTURE_ACCOUNT_OPEN,
    NGX_HTTP_LLM_CAPTURE_ACCOUNT_SEALING,   /* becomes a segment of that name */
    NGX_HTTP_LLM_CAPTURE_ACCOUNT_RESET      /* told of: begins anew */
} ngx_http_llm_capture_account_e;

typedef struct {
    _Atomic uint32_t          state;
    uint32_t                  row;
    uint32_t                  format;
    uint32_t                  path_len;
    uint64_t                  hash;         /* of the path */

    uint64_t                  dev;          /* of the file counted for, */
    uint64_t                  ino;          /* 0: none yet */
    uint64_t                  size;         /* as it was left */
    uint64_t                  seal;         /* ms since 1970: the name */
    uint64_t                  begun;        /* ms since 1970 */

    uint64_t                  first;        /* timestamps of rows, plus 1 */
    uint64_t                  last;
    uint64_t                  t0;           /* ms since 1970, of timestamp 0 */
    uint64_t                  carried;      /* pending as it began */
    uint64_t                  pending;      /* as it was told last */
    uint32_t                  endpoints;    /* a bit for each type */
    uint32_t                  nmodels;      /* MORE: and others */
    char                      models[NGX_HTTP_LLM_CAPTURE_MODELS]
                                    [NGX_HTTP_LLM_CAPTURE_MODEL];

    uint64_t                  n[NGX_HTTP_LLM_CAPTURE_C_max];
    /* of the template, as the file began, and as they were told last */
    uint64_t                  base[NGX_HTTP_LLM_CAPTURE_C_max];
    uint64_t                  told[NGX_HTTP_LLM_CAPTURE_C_max];

    char                      path[NGX_HTTP_LLM_CAPTURE_PATH];
} ngx_http_llm_capture_account_t;


/*
 * Periods in which requests of a template were dropped, oldest first, in ms
 * since 1970 (helper only).  By sums, so that telling them twice does no harm.
 */

typedef struct {
    uint64_t                  from;
    uint64_t                  to;
    uint64_t                  before;       /* dropped until then */
    uint64_t                  after;
} ngx_http_llm_capture_gap_t;

typedef struct {
    uint32_t                    n;
    ngx_http_llm_capture_gap_t  gap[NGX_HTTP_LLM_CAPTURE_GAPS];
} ngx_http_llm_capture_gaps_t;


/* append-only, written by the master alone */

typedef struct {
    uint64_t                  hash;         /* of (text, format) */
    uint32_t                  format;
    uint32_t                  len;
    char                      text[NGX_HTTP_LLM_CAPTURE_TEXT];
} ngx_http_llm_capture_template_t;


typedef struct {
    uint64_t                  magic;        /* set last, when all is laid out */
    uint32_t                  layout;
    uint32_t                  nrings;
    uint64_t                  ring_size;
    uint64_t                  id;           /* of this zone, in manifests */

    _Atomic uint32_t          ntemplates;
    ngx_http_llm_capture_template_t
                              templates[NGX_HTTP_LLM_CAPTURE_TEMPLATES];

    /* for the respawn back-off, written by the helper */
    _Alignas(64) _Atomic uint64_t  start_gen;
    _Atomic uint64_t          start_ms;
    _Atomic uint64_t          holder;       /* pid of the newest helper */
    _Atomic uint64_t          gave_up;      /* the last drain hit its limit */
    _Atomic uint64_t          quit_ms;      /* first signal to leave, 0: none */
    _Atomic uint64_t          open;         /* 1: a last report is to come */
    _Atomic uint32_t          waits;        /* slots used so far */

    /* 1: the helper sleeps until the eventfd is written */
    _Alignas(64) _Atomic uint32_t  asleep;
} ngx_http_llm_capture_zone_hdr_t;


/*
 * What the helper alone knows, for those who ask how it goes: nothing else
 * hangs on it.  Set once a batch, or once a pass.  Times are CLOCK_MONOTONIC in
 * ms, 0: never.
 */

typedef struct {
    _Atomic uint64_t          second;       /* the one these belong to */
    _Atomic uint64_t          records;
    _Atomic uint64_t          bytes;
} ngx_http_llm_capture_second_t;

typedef struct {
    _Alignas(64) _Atomic uint64_t  written; /* the last line */
    _Atomic uint64_t          files;        /* written to by this helper */
    _Atomic uint64_t          size;         /* of the file written last */
    _Atomic uint32_t          changes;      /* of its path; odd: under way */
    _Atomic uint32_t          path_len;
    _Atomic uint64_t          path[NGX_HTTP_LLM_CAPTURE_SHOW / 8];
    ngx_http_llm_capture_second_t
                              seconds[NGX_HTTP_LLM_CAPTURE_SECONDS];
} ngx_http_llm_capture_live_row_t;

typedef struct {
    _Alignas(64) _Atomic uint64_t  starts;  /* of helpers of this zone */
    _Atomic uint64_t          started;      /* the last of them */
    _Atomic uint64_t          draining;     /* replaced zones it has as well */
    _Atomic uint64_t          lag;          /* of the last batch, ms + 1 */
    _Atomic uint64_t          oldest;       /* arrival, of what is ready */
    _Atomic uint64_t          blocks;       /* of the arena, in use */
    _Atomic uint64_t          failed;       /* the last write that failed: */
    _Atomic uint32_t          error;        /* errno */
    _Atomic uint32_t          error_row;
    ngx_http_llm_capture_live_row_t
                              rows[NGX_HTTP_LLM_CAPTURE_ROWS];
} ngx_http_llm_capture_live_t;


/* the view of one process, in its own memory */

typedef struct {
    uint8_t                          *base;
    size_t                            size;        /* bytes needed in all */

    uint32_t                          nrings;
    uint32_t                          nblocks;
    size_t                            ring_size;   /* bytes, of pages */

    /* offsets from base */
    size_t                            live;
    size_t                            control;
    size_t                            intent;
    size_t                            helper;      /* rows of the helper */
    size_t                            rings;       /* ring headers */
    size_t                            rows;        /* nrings + 1 of them */
    size_t                            chains;
    size_t                            next;        /* uint32_t per block */
    size_t                            waits;
    size_t                            accounts;
    size_t                            gaps;        /* of each row */
    size_t                            data;        /* ring memory */
    size_t                            blocks;
} ngx_http_llm_capture_zone_t;


/*
 * Lays out nrings rings that hold queue bytes together, and a spill arena of
 * a third of that (a quarter of both).  page: bytes of a page.  base is left
 * NULL.  Returns 0, or -1 if a ring would be smaller than a page, or larger
 * than 64 GiB (its units are counted in 32 bits).
 */

int ngx_http_llm_capture_zone_layout(ngx_http_llm_capture_zone_t *z,
    uint32_t nrings, uint64_t queue, size_t page);

/*
 * The first use of fresh (zeroed) memory; z->base is set by the caller.  id: a
 * number that no other zone has.
 */

void ngx_http_llm_capture_zone_format(ngx_http_llm_capture_zone_t *z,
    uint64_t id);

/*
 * The row of a template, appended if new; the shared row if the table is full.
 * Called by the master only.
 */

uint32_t ngx_http_llm_capture_zone_template(ngx_http_llm_capture_zone_t *z,
    const char *text, size_t len, uint32_t format);

/* the row of a hash out of a frame; the shared row if there is none */

uint32_t ngx_http_llm_capture_zone_row(ngx_http_llm_capture_zone_t *z,
    uint64_t hash);

uint64_t ngx_http_llm_capture_zone_hash(const char *text, size_t len,
    uint32_t format);

/* the sums over the helper, all rings and the rest, for one row */

void ngx_http_llm_capture_zone_sum(const ngx_http_llm_capture_zone_t *z,
    uint32_t row, uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max]);

/* rings with an owner: only a helper frees one, when nothing is left of it */

uint32_t ngx_http_llm_capture_zone_owned(const ngx_http_llm_capture_zone_t *z);

/* those, and requests that wait for their answer: what a helper has to end */

uint32_t ngx_http_llm_capture_zone_left(const ngx_http_llm_capture_zone_t *z);

/* seen minus every other term of a sum, never below 0 */

uint64_t ngx_http_llm_capture_zone_pending(
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max]);

extern const char *const
    ngx_http_llm_capture_counter_names[NGX_HTTP_LLM_CAPTURE_C_max];


static inline ngx_http_llm_capture_zone_hdr_t *
ngx_http_llm_capture_zone_hdr(const ngx_http_llm_capture_zone_t *z)
{
    return (ngx_http_llm_capture_zone_hdr_t *) z->base;
}


static inline ngx_http_llm_capture_live_t *
ngx_http_llm_capture_zone_live(const ngx_http_llm_capture_zone_t *z)
{
    return (ngx_http_llm_capture_live_t *) (z->base + z->live);
}


static inline ngx_http_llm_capture_intent_t *
ngx_http_llm_capture_zone_intent(const ngx_http_llm_capture_zone_t *z)
{
    return (ngx_http_llm_capture_intent_t *) (z->base + z->intent);
}


static inline ngx_http_llm_capture_ring_hdr_t *
ngx_http_llm_capture_zone_ring(const ngx_http_llm_capture_zone_t *z,
    uint32_t ring)
{
    return (ngx_http_llm_capture_ring_hdr_t *) (z->base + z->rings) + ring;
}


static inline uint8_t *
ngx_http_llm_capture_zone_data(const ngx_http_llm_capture_zone_t *z,
    uint32_t ring)
{
    return z->base + z->data + ring * z->ring_size;
}


static inline ngx_http_llm_capture_row_t *
ngx_http_llm_capture_zone_rows(const ngx_http_llm_capture_zone_t *z,
    uint32_t ring)
{
    return (ngx_http_llm_capture_row_t *) (z->base + z->rows)
           + (size_t) ring * NGX_HTTP_LLM_CAPTURE_ROWS;
}


static inline ngx_http_llm_capture_row_t *
ngx_http_llm_capture_zone_helper(const ngx_http_llm_capture_zone_t *z)
{
    return (ngx_http_llm_capture_row_t *) (z->base + z->helper);
}


static inline ngx_http_llm_capture_chain_t *
ngx_http_llm_capture_zone_chain(const ngx_http_llm_capture_zone_t *z,
    uint32_t chain)
{
    return (ngx_http_llm_capture_chain_t *) (z->base + z->chains) + chain;
}


static inline ngx_http_llm_capture_wait_t *
ngx_http_llm_capture_zone_wait(const ngx_http_llm_capture_zone_t *z,
    uint32_t slot)
{
    return (ngx_http_llm_capture_wait_t *) (z->base + z->waits) + slot;
}


static inline ngx_http_llm_capture_account_t *
ngx_http_llm_capture_zone_account(const ngx_http_llm_capture_zone_t *z,
    uint32_t account)
{
    return (ngx_http_llm_capture_account_t *) (z->base + z->accounts)
           + account;
}


static inline ngx_http_llm_capture_gaps_t *
ngx_http_llm_capture_zone_gaps(const ngx_http_llm_capture_zone_t *z,
    uint32_t row)
{
    return (ngx_http_llm_capture_gaps_t *) (z->base + z->gaps) + row;
}


static inline uint8_t *
ngx_http_llm_capture_zone_block(const ngx_http_llm_capture_zone_t *z,
    uint32_t block)
{
    return z->base + z->blocks
           + (size_t) block * NGX_HTTP_LLM_CAPTURE_BLOCK;
}


static inline _Atomic uint32_t *
ngx_http_llm_capture_zone_next(const ngx_http_llm_capture_zone_t *z,
    uint32_t block)
{
    return (_Atomic uint32_t *) (z->base + z->next) + block;
}


/*
 * A counter has one writer: no locked instruction is needed.  The rows behind
 * those of the last ring have many, and are counted by _shared.
 */

static inline void
ngx_http_llm_capture_count(ngx_http_llm_capture_row_t *row,
    ngx_http_llm_capture_counter_e c, uint64_t n)
{
    atomic_store_explicit(&row->n[c],
                          atomic_load_explicit(&row->n[c],
                                               memory_order_relaxed) + n,
                          memory_order_release);
}


static inline void
ngx_http_llm_capture_count_shared(ngx_http_llm_capture_row_t *row,
    ngx_http_llm_capture_counter_e c, uint64_t n)
{
    atomic_fetch_add_explicit(&row->n[c], n, memory_order_release);
}


#endif /* _NGX_HTTP_LLM_CAPTURE_ZONE_H_INCLUDED_ */
