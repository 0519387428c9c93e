
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Capture switched without a reload: what is asked for, and how the workers
 * share it in the zone.  Pure: no nginx header.
 *
 * What was said stands in the zone twice.  A change is written into the copy
 * that does not hold, and holds with one store of the version: a worker killed
 * before that has changed nothing, and one killed after it is done.  Those who
 * change it hold a lock of the kernel's, which goes with the process; those
 * who read it take a copy, and for each request look at the version alone.
 *
 * Budgets must not be copied while others take from them.  So each order has
 * the one of two cells that the order before it did not use, and the number of
 * the change in front of what is left: who still goes by an older order finds
 * that it is not his.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_CONTROL_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_CONTROL_H_INCLUDED_


#include "ngx_http_llm_capture_zone.h"


/* one for each row, and one for all of them */
#define NGX_HTTP_LLM_CAPTURE_CONTROLS  (NGX_HTTP_LLM_CAPTURE_ROWS + 1)
#define NGX_HTTP_LLM_CAPTURE_CONTROL_ALL  NGX_HTTP_LLM_CAPTURE_ROWS

/* bytes of the name of a variable and the value it must have, together */
#define NGX_HTTP_LLM_CAPTURE_MATCH     256

/* no budget is larger */
#define NGX_HTTP_LLM_CAPTURE_BUDGET    (((uint64_t) 1 << 48) - 1)

#define NGX_HTTP_LLM_CAPTURE_RATE_NONE ((uint64_t) -1)


typedef enum {
    NGX_HTTP_LLM_CAPTURE_MODE_NONE = 0,     /* nothing was said */
    NGX_HTTP_LLM_CAPTURE_MODE_ON,
    NGX_HTTP_LLM_CAPTURE_MODE_OFF,
    NGX_HTTP_LLM_CAPTURE_MODE_RESET         /* whatever was said of all */
} ngx_http_llm_capture_mode_e;


typedef enum {
    NGX_HTTP_LLM_CAPTURE_ENDED_NOT = 0,
    NGX_HTTP_LLM_CAPTURE_ENDED_DURATION,
    NGX_HTTP_LLM_CAPTURE_ENDED_RECORDS,
    NGX_HTTP_LLM_CAPTURE_ENDED_BYTES
} ngx_http_llm_capture_ended_e;


/* as it was asked for; limits: 0 is none */

typedef struct {
    ngx_http_llm_capture_mode_e  mode;
    uint64_t                     rate;       /* of 2^32; RATE_NONE: not set */
    uint64_t                     duration;   /* ms */
    uint64_t                     records;
    uint64_t                     bytes;
    uint32_t                     name_len;   /* of a variable; 0: none */
    uint32_t                     value_len;
    char                         match[NGX_HTTP_LLM_CAPTURE_MATCH];
    size_t                       path_len;   /* 0: all */
    char                         path[NGX_HTTP_LLM_CAPTURE_PATH];
    char                         why[160];   /* not: one line, without LF */
} ngx_http_llm_capture_order_t;


/* as it stands in the zone; limits: 0 is none */

typedef struct {
    uint32_t                     mode;
    uint32_t                     cell;       /* which budget */
    uint64_t                     change;     /* that made it */
    uint64_t                     since;      /* ms since 1970, to be told */
    uint64_t                     duration;   /* ms, to be told */
    uint64_t                     until;      /* CLOCK_MONOTONIC, ms */
    uint64_t                     records;
    uint64_t                     bytes;
    uint64_t                     rate;
    uint32_t                     name_len;
    uint32_t                     value_len;
    char                         match[NGX_HTTP_LLM_CAPTURE_MATCH];
} ngx_http_llm_capture_said_t;

#define NGX_HTTP_LLM_CAPTURE_SAID                                             \
    (NGX_HTTP_LLM_CAPTURE_CONTROLS * sizeof(ngx_http_llm_capture_said_t)      \
     / sizeof(uint64_t))


/* what is left: 16 bits of the change's number, 48 of it */

typedef struct {
    _Atomic uint64_t             records;
    _Atomic uint64_t             bytes;
} ngx_http_llm_capture_budget_t;


typedef struct {
    _Alignas(64) _Atomic uint64_t  version;  /* odd: the second one holds */
    _Atomic uint64_t               moved;    /* 1: to another zone */
    _Alignas(64) _Atomic uint64_t  said[2][NGX_HTTP_LLM_CAPTURE_SAID];
    _Alignas(64) ngx_http_llm_capture_budget_t
                                   budgets[NGX_HTTP_LLM_CAPTURE_CONTROLS][2];
} ngx_http_llm_capture_control_t;


/* the copy of one process, in its own memory; all zeroes at first */

typedef struct {
    uint64_t                     version;
    unsigned                     any:1;      /* anything was said */
    unsigned                     timed:1;    /* of some of it the end is set */
    ngx_http_llm_capture_said_t  said[NGX_HTTP_LLM_CAPTURE_CONTROLS];
} ngx_http_llm_capture_view_t;


/* what one request has taken out of a budget */

typedef struct {
    uint64_t                     change;
    uint64_t                     bytes;      /* so many of them */
    uint32_t                     at;
    unsigned                     cell:1;
    unsigned                     records:1;  /* it took one of these */
    unsigned                     limited:1;  /* its bytes count */
} ngx_http_llm_capture_taken_t;


/* src/ngx_http_llm_capture_control_args.c */

/*
 * The arguments of a request, as they stand behind its "?": 0; -1 with why,
 * which names the one that is wrong.
 */

int ngx_http_llm_capture_control_parse(ngx_http_llm_capture_order_t *order,
    const char *args, size_t len);


/* src/ngx_http_llm_capture_control_zone.c */

/*
 * Of the row `at`, or ALL: then what was said of single rows is forgotten.
 * now: CLOCK_MONOTONIC, wall: since 1970, in ms.  The caller holds the lock.
 */

void ngx_http_llm_capture_control_say(const ngx_http_llm_capture_zone_t *z,
    uint32_t at, const ngx_http_llm_capture_order_t *order, uint64_t now,
    uint64_t wall);

/* was the zone replaced?  Then nothing may be said there any more. */

unsigned ngx_http_llm_capture_control_moved(
    const ngx_http_llm_capture_zone_t *z);

/*
 * What was said in one zone, with what is left of its budgets, holds in another
 * one that nobody uses so far.  By the master, who tells those of the old one
 * first.
 */

void ngx_http_llm_capture_control_leave(const ngx_http_llm_capture_zone_t *old);
void ngx_http_llm_capture_control_move(const ngx_http_llm_capture_zone_t *old,
    ngx_http_llm_capture_zone_t *z);

void ngx_http_llm_capture_control_read(ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z);

/* where what holds for a row stands; NONE: as configured.  now: if timed */

uint32_t ngx_http_llm_capture_control_at(const ngx_http_llm_capture_view_t *v,
    uint32_t row, uint64_t now);

/* what has ended an order by itself */

ngx_http_llm_capture_ended_e ngx_http_llm_capture_control_ended(
    const ngx_http_llm_capture_view_t *v, const ngx_http_llm_capture_zone_t *z,
    uint32_t at, uint64_t now);

/* what is left of it */

void ngx_http_llm_capture_control_left(const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z, uint32_t at, uint64_t *records,
    uint64_t *bytes);

/*
 * One request more, of so many bytes as are known: 0; -1: the order has ended,
 * for this request or for good
 */

int ngx_http_llm_capture_control_take(const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z, uint32_t at, uint64_t bytes,
    ngx_http_llm_capture_taken_t *taken);

/* it has so many bytes by now: 0, or -1: they are too many */

int ngx_http_llm_capture_control_more(const ngx_http_llm_capture_zone_t *z,
    ngx_http_llm_capture_taken_t *taken, uint64_t bytes);

/* it is not recorded after all */

void ngx_http_llm_capture_control_return(const ngx_http_llm_capture_zone_t *z,
    ngx_http_llm_capture_taken_t *taken);


static inline ngx_http_llm_capture_control_t *
ngx_http_llm_capture_zone_control(const ngx_http_llm_capture_zone_t *z)
{
    return (ngx_http_llm_capture_control_t *) (z->base + z->control);
}


/* as cheap as it can be while nothing was said; 1: there is more to look at */

static inline unsigned
ngx_http_llm_capture_control_any(ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z)
{
    if (atomic_load_explicit(&ngx_http_llm_capture_zone_control(z)->version,
                             memory_order_relaxed)
        != v->version)
    {
        ngx_http_llm_capture_control_read(v, z);
    }

    return v->any;
}


#endif /* _NGX_HTTP_LLM_CAPTURE_CONTROL_H_INCLUDED_ */
