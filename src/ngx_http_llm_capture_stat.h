
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * How it goes, as read from the zone by any process that maps it, and as text.
 * What stands in the zone may be anything: it is copied once and bounded.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_STAT_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_STAT_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "ngx_http_llm_capture_args.h"
#include "ngx_http_llm_capture_control.h"
#include "ngx_http_llm_capture_zone.h"


/* seconds that a rate is the mean of */
#define NGX_HTTP_LLM_CAPTURE_RATE       10

/* bytes of a name beyond those that are kept of it, with NUL */
#define NGX_HTTP_LLM_CAPTURE_CUT        16

#define NGX_HTTP_LLM_CAPTURE_STAT_NAME                                        \
    (NGX_HTTP_LLM_CAPTURE_TEXT + NGX_HTTP_LLM_CAPTURE_CUT)


typedef struct {
    uint64_t              now;          /* CLOCK_MONOTONIC, ms */
    uint64_t              wall;         /* ms since 1970 */
    uint64_t              helper;       /* pid of the one at work; 0: none */
    uint64_t              zone;         /* its name in the error log */
    const char           *version;
    const char           *nginx;

    /* writes at most NGX_HTTP_LLM_CAPTURE_TEXT bytes, returns how many */
    size_t              (*name)(void *ctx, uint32_t row, char *text);
    void                 *ctx;
} ngx_http_llm_capture_stat_conf_t;


/* times: ms since 1970, 0: never; texts end with a NUL and are UTF-8 */

typedef struct {
    unsigned              mode;         /* NONE: nothing that still holds */
    unsigned              ended;
    uint64_t              since;
    uint64_t              until;
    uint64_t              rate;         /* above 2^32: not said */
    uint64_t              records;
    uint64_t              records_left;
    uint64_t              bytes;
    uint64_t              bytes_left;
    char                  match[NGX_HTTP_LLM_CAPTURE_MATCH + 3];
} ngx_http_llm_capture_stat_said_t;

typedef struct {
    char                  name[NGX_HTTP_LLM_CAPTURE_STAT_NAME];
    unsigned              format;       /* FORMATS and more: of several */

    uint64_t              n[NGX_HTTP_LLM_CAPTURE_C_max];
    uint64_t              pending;
    uint64_t              coming;       /* of the sum of answers */

    uint64_t              records;      /* of the last RATE seconds */
    uint64_t              bytes;

    uint64_t              controlled;   /* 1: by what was said */
    ngx_http_llm_capture_stat_said_t  said;

    uint64_t              files;
    uint64_t              written;
    uint64_t              size;
    char                  path[NGX_HTTP_LLM_CAPTURE_SHOW + 1];
} ngx_http_llm_capture_stat_row_t;

typedef struct {
    uint64_t              owner;        /* pid; 0: none */
    uint64_t              used;         /* bytes, an upper bound */
} ngx_http_llm_capture_stat_ring_t;

typedef struct {
    const char           *version;
    const char           *nginx;
    uint64_t              wall;
    unsigned              capturing;    /* 0: the rest is not set */

    uint64_t              zone;
    uint64_t              helper;
    uint64_t              starts;
    uint64_t              started;
    uint64_t              draining;

    uint64_t              failed;       /* the last write that did */
    char                  error[16];    /* the name of its errno */
    char                  error_name[NGX_HTTP_LLM_CAPTURE_STAT_NAME];

    uint64_t              lag;          /* ms + 1, of the last batch; 0: none */
    uint64_t              waits;        /* ms; the oldest that waits */

    uint64_t              used;         /* bytes of all rings */
    uint64_t              capacity;
    uint64_t              arena_used;
    uint64_t              arena;
    uint64_t              ring_size;

    ngx_http_llm_capture_stat_row_t   total;
    uint32_t                          nrows;
    ngx_http_llm_capture_stat_row_t   rows[NGX_HTTP_LLM_CAPTURE_ROWS];

    uint32_t                          nrings;
    ngx_http_llm_capture_stat_ring_t  rings[];
} ngx_http_llm_capture_stat_t;


/* the name of a row's format; "": of several */

static inline const char *
ngx_http_llm_capture_stat_format(const ngx_http_llm_capture_stat_row_t *r)
{
    return r->format < NGX_HTTP_LLM_CAPTURE_FORMATS
           ? ngx_http_llm_capture_format_names[r->format] : "";
}


/* bytes that a zone's takes; NULL: nothing captures */

size_t ngx_http_llm_capture_stat_size(const ngx_http_llm_capture_zone_t *z);

/* reads the zone; NULL: there is none */

void ngx_http_llm_capture_stat_read(ngx_http_llm_capture_stat_t *s,
    ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_stat_conf_t *conf);


/* one that arrived then waits; nonsense is none */

void ngx_http_llm_capture_stat_waits(ngx_http_llm_capture_stat_t *s,
    uint64_t now, uint64_t mono);


/* what a page or a scraper can show; ends it */

void ngx_http_llm_capture_stat_text(char *s, size_t len);


/* src/ngx_http_llm_capture_stat_control.c */

void ngx_http_llm_capture_stat_said(ngx_http_llm_capture_stat_said_t *said,
    const ngx_http_llm_capture_view_t *v,
    const ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_stat_conf_t *conf, uint32_t at);

/* a json_t, and its text, to be freed; NULL: no memory */

void *ngx_http_llm_capture_stat_control(const ngx_http_llm_capture_stat_t *s);
char *ngx_http_llm_capture_stat_control_json(
    const ngx_http_llm_capture_stat_t *s, size_t *len);


/* src/ngx_http_llm_capture_stat_ring.c: its part of it */

void ngx_http_llm_capture_stat_ring(ngx_http_llm_capture_stat_t *s,
    ngx_http_llm_capture_zone_t *z,
    const ngx_http_llm_capture_stat_conf_t *conf, uint32_t ring);


/* src/ngx_http_llm_capture_stat_json.c: to be freed; NULL: no memory */

char *ngx_http_llm_capture_stat_json(const ngx_http_llm_capture_stat_t *s,
    size_t *len);


/* src/ngx_http_llm_capture_stat_prometheus.c: the same */

char *ngx_http_llm_capture_stat_prometheus(
    const ngx_http_llm_capture_stat_t *s, size_t *len);


#endif /* _NGX_HTTP_LLM_CAPTURE_STAT_H_INCLUDED_ */
