
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The map of the glue: what nginx sees of the module, grouped by file.  The
 * pure half (zone, ring, record, spill, drain, scan, writer, args, path,
 * sample) has headers of its own and knows nothing of nginx.
 */

#ifndef _NGX_HTTP_LLM_CAPTURE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#define PCRE2_CODE_UNIT_WIDTH  8
#include <pcre2.h>

#include "ngx_http_llm_capture_zone.h"
#include "ngx_http_llm_capture_control.h"
#include "ngx_http_llm_capture_policy.h"
#include "ngx_http_llm_capture_record.h"
#include "ngx_http_llm_capture_siphash.h"
#include "ngx_http_llm_capture_stat.h"


#define NGX_HTTP_LLM_CAPTURE_OFF    0
#define NGX_HTTP_LLM_CAPTURE_ON     1
#define NGX_HTTP_LLM_CAPTURE_VAR    2
#define NGX_HTTP_LLM_CAPTURE_PAUSED 3       /* until control says on */

#define NGX_HTTP_LLM_CAPTURE_QUEUE_UNSET   ((uint64_t) -1)
#define NGX_HTTP_LLM_CAPTURE_SAMPLE_UNSET  ((uint64_t) -1)


typedef enum {
    NGX_HTTP_LLM_CAPTURE_CHAT = 0,
    NGX_HTTP_LLM_CAPTURE_COMPLETIONS,
    NGX_HTTP_LLM_CAPTURE_RESPONSES,
    NGX_HTTP_LLM_CAPTURE_MESSAGES,
    NGX_HTTP_LLM_CAPTURE_EMBEDDINGS,
    NGX_HTTP_LLM_CAPTURE_OTHER
} ngx_http_llm_capture_endpoint_e;


/* bytes of a path up to which its match is remembered */
#define NGX_HTTP_LLM_CAPTURE_LAST  64


typedef struct ngx_http_llm_capture_loc_conf_s
    ngx_http_llm_capture_loc_conf_t;


/* the http block */

typedef struct {
    uint64_t                       max_queue;       /* 0: auto */
    ngx_msec_t                     drain_timeout;
    ngx_str_t                      args;
    ngx_str_t                      args_file;

    /* for what no directive sets; NULL: nothing needed them so far */
    ngx_http_llm_capture_loc_conf_t
                                  *defaults;
    uint64_t                       args_queue;      /* 0: no args */
    uint8_t                        key[NGX_HTTP_LLM_CAPTURE_KEY];
    ngx_array_t                   *session;         /* the default */
    ngx_http_llm_capture_keeping_t keeping;
    unsigned                       keyed:1;         /* llm_capture_key_file */
    unsigned                       max_disk_set:1;
    unsigned                       min_free_set:1;
    unsigned                       args_off:1;      /* nothing is captured */
    unsigned                       args_bad_path:1; /* nor to a default path */

    /* of ngx_http_llm_capture_loc_conf_t *, those that can capture */
    ngx_array_t                    destinations;
    size_t                         largest;         /* of max_request_bytes */

    /* where to say that the queue is too small */
    u_char                        *file;
    ngx_uint_t                     line;

    ngx_shm_zone_t                *shm_zone;        /* NULL: nothing captures */
    ngx_http_llm_capture_zone_t    zone;            /* base: after init */
    ngx_uint_t                     lock;            /* the zone's first byte */
    uint64_t                       born;            /* the zone's name */
} ngx_http_llm_capture_main_conf_t;


/*
 * A piece of a path behind its last slash, or what may name a session: a
 * literal is then "body:PATH" or "prefix", with its NUL
 */

typedef struct {
    ngx_str_t                      literal;         /* data NULL: a value */
    ngx_http_complex_value_t       value;
} ngx_http_llm_capture_part_t;


/* on or off, and where it was set, for a message */

typedef struct {
    ngx_flag_t                     value;
    u_char                        *file;
    ngx_uint_t                     line;
} ngx_http_llm_capture_flag_t;


struct ngx_http_llm_capture_loc_conf_s {
    ngx_uint_t                     enable;          /* OFF, ON... */
    ngx_uint_t                     enable_wanted;   /* as configured */
    ngx_http_complex_value_t      *enable_value;

    ngx_str_t                      path;            /* full, as configured */
    ngx_array_t                   *parts;           /* NULL: no variables */
    size_t                         base_len;        /* with the last slash */

    ngx_uint_t                     format;
    u_char                        *format_file;     /* where it was set, */
    ngx_uint_t                     format_line;     /* for a message */
    ngx_array_t                   *skip;            /* of complex values */
    ngx_flag_t                     skip_replay;
    ngx_http_llm_capture_flag_t    outcome;
    ngx_http_llm_capture_flag_t    hash_ids;
    ngx_http_llm_capture_flag_t    output_text;
    ngx_array_t                   *session;         /* of part_t; NULL: off */
    u_char                        *session_file;    /* NULL: the default */
    ngx_uint_t                     session_line;
    size_t                         max_request_bytes;
    uint64_t                       sample;          /* of 2^32: kept below */
    ngx_http_complex_value_t      *sample_key;      /* NULL: by request */

    ngx_http_llm_capture_policy_t  policy;
    u_char                        *rotate_file;     /* where it was set, */
    ngx_uint_t                     rotate_line;     /* for a message */
    u_char                        *label_file;
    ngx_uint_t                     label_line;

    ngx_str_t                      pattern;
    pcre2_code                    *regex;
    ngx_uint_t                     jit;

    /* of this process: the path matched last, and NGX_OK or NGX_DECLINED */
    u_char                         last[NGX_HTTP_LLM_CAPTURE_LAST];
    size_t                         last_len;        /* 0: none */
    ngx_int_t                      last_rc;

    uint64_t                       hash;            /* of (path, format) */
    ngx_uint_t                     row;             /* set by init_module */
};


/* what became of a request; found again through a pool cleanup */

typedef enum {
    NGX_HTTP_LLM_CAPTURE_S_OFF = 0,
    NGX_HTTP_LLM_CAPTURE_S_OPEN,            /* body under way */
    NGX_HTTP_LLM_CAPTURE_S_QUEUED,
    NGX_HTTP_LLM_CAPTURE_S_REFUSED          /* reason says why */
} ngx_http_llm_capture_state_e;

typedef struct ngx_http_llm_capture_seen_s  ngx_http_llm_capture_seen_t;

typedef struct {
    ngx_http_request_t            *request;
    ngx_http_llm_capture_loc_conf_t
                                  *conf;            /* that decided */
    ngx_http_llm_capture_state_e   state;
    ngx_http_llm_capture_counter_e reason;
    ngx_http_llm_capture_record_t  record;
    ngx_http_llm_capture_seen_t   *seen;            /* of the answer */
    uint64_t                       sample;          /* the rate that holds */
    ngx_http_llm_capture_taken_t   taken;           /* at NONE: no order */
} ngx_http_llm_capture_ctx_t;


/* ngx_http_llm_capture_module.c */

extern ngx_module_t  ngx_http_llm_capture_module;
extern ngx_module_t  ngx_http_llm_capture_core_module;

/* the main conf of a cycle, NULL if nothing captures there */
ngx_http_llm_capture_main_conf_t *ngx_http_llm_capture_main_conf(
    ngx_cycle_t *cycle);


/* src/ngx_http_llm_capture_set.c: the setters of the directives */

char *ngx_http_llm_capture_set(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_path(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_format(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_request(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_llm_capture_set_rate(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_pattern(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_llm_capture_set_flag(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_queue(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_args(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_args_file(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_llm_capture_set_timeout(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);

/*
 * Says that the value of this directive, or one of several, "must %s"; always
 * NGX_CONF_ERROR
 */
char *ngx_http_llm_capture_invalid(ngx_conf_t *cf, const char *must);
char *ngx_http_llm_capture_invalid_value(ngx_conf_t *cf, ngx_str_t *value,
    const char *must);


/* src/ngx_http_llm_capture_session.c */

char *ngx_http_llm_capture_set_session(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_sample_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* of a place that captures: the default, or what was set, if it may be */
ngx_int_t ngx_http_llm_capture_sessions(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *lcf);

/* puts what names the session into the record, if anything does */
void ngx_http_llm_capture_session(ngx_http_llm_capture_ctx_t *ctx);

/* is it of a session that is kept, or a request of none that is? */
ngx_uint_t ngx_http_llm_capture_sampled_request(
    ngx_http_llm_capture_ctx_t *ctx);


/* src/ngx_http_llm_capture_keeping.c */

char *ngx_http_llm_capture_set_rotate(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_label(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_max_disk(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_llm_capture_set_min_free(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

void ngx_http_llm_capture_merge_policy(ngx_http_llm_capture_loc_conf_t *conf,
    ngx_http_llm_capture_loc_conf_t *prev);

/* of a place that captures: is it that of all that write to its path? */
ngx_int_t ngx_http_llm_capture_policies(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_loc_conf_t *conf);

/* all of them, for the helper */
ngx_int_t ngx_http_llm_capture_keep_init(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf);


/* src/ngx_http_llm_capture_key_file.c */

char *ngx_http_llm_capture_set_key_file(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* a reload: says so if the key is another one; either may be NULL */
void ngx_http_llm_capture_key_changed(ngx_http_llm_capture_main_conf_t *old,
    ngx_http_llm_capture_main_conf_t *new, ngx_log_t *log);


/* src/ngx_http_llm_capture_conf.c */

/*
 * A path as configured into path, parts and base_len.  An error is said and
 * NGX_ERROR returned.
 */
ngx_int_t ngx_http_llm_capture_path(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_str_t *path);

/*
 * NIM's object: warns, and sets defaults and args_* of the http block.  In a
 * quoted token nginx has halved each "\\" before: a regular expression that NIM
 * was given with "\\d" needs "\\\\d" in llm_capture_args, but not in a file.
 */
ngx_int_t ngx_http_llm_capture_args(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_str_t *text);

/* is each flag that is on of use for the rows of the format? */
ngx_int_t ngx_http_llm_capture_check_rows(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf);

/* the built-in defaults, unless args gave others */
ngx_int_t ngx_http_llm_capture_defaults(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf);


/* src/ngx_http_llm_capture_status.c */

char *ngx_http_llm_capture_set_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* how it goes, of the request's pool; NULL: no memory */
ngx_http_llm_capture_stat_t *ngx_http_llm_capture_status_read(
    ngx_http_request_t *r);

/* a text of malloc()'s goes with the request */
ngx_int_t ngx_http_llm_capture_status_own(ngx_http_request_t *r, char *text);

ngx_int_t ngx_http_llm_capture_status_send(ngx_http_request_t *r,
    ngx_uint_t status, const ngx_str_t *type, ngx_str_t *text);


/* src/ngx_http_llm_capture_control.c */

char *ngx_http_llm_capture_set_control(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* by the master at a reload, when both zones have their rows */
void ngx_http_llm_capture_control_keep(ngx_http_llm_capture_main_conf_t *old,
    ngx_http_llm_capture_main_conf_t *new);


/* src/ngx_http_llm_capture_pause.c */

void ngx_http_llm_capture_pause_init(void);

/* 1: it is not to be taken now; else the rate is set that holds */
ngx_uint_t ngx_http_llm_capture_paused(ngx_http_llm_capture_ctx_t *ctx);

/* takes it out of what control gave, with len bytes; -1: not known; 1: no */
ngx_uint_t ngx_http_llm_capture_exhausted(ngx_http_llm_capture_ctx_t *ctx,
    off_t len);

/* it has len bytes now; 1: too many */
ngx_uint_t ngx_http_llm_capture_exceeded(ngx_http_llm_capture_ctx_t *ctx,
    size_t len);

/* not one byte of it was recorded: what it took is given back */
void ngx_http_llm_capture_untaken(ngx_http_llm_capture_ctx_t *ctx);


/* src/ngx_http_llm_capture_match.c */

/*
 * Compiles a pattern into pattern, regex and jit.  NGX_DECLINED: it is wrong,
 * *why says what it must be (with NUL).
 */
ngx_int_t ngx_http_llm_capture_compile(ngx_conf_t *cf,
    ngx_http_llm_capture_loc_conf_t *lcf, ngx_str_t *pattern, ngx_str_t *why);

/* NGX_OK or NGX_DECLINED */
ngx_int_t ngx_http_llm_capture_match(ngx_http_llm_capture_loc_conf_t *lcf,
    ngx_str_t *uri);


/* src/ngx_http_llm_capture_filter.c */

ngx_int_t ngx_http_llm_capture_filter_init(ngx_conf_t *cf);

/* is it another Content-Encoding than none and "identity"? */
ngx_uint_t ngx_http_llm_capture_coded(ngx_str_t *value);

/* the request's ctx, over internal redirects too; NULL: not decided */
ngx_http_llm_capture_ctx_t *ngx_http_llm_capture_get_ctx(
    ngx_http_request_t *r);


/* src/ngx_http_llm_capture_response.c: what came back */

ngx_int_t ngx_http_llm_capture_response_init(ngx_conf_t *cf);


/* src/ngx_http_llm_capture_destination.c */

/* fills what a BEGIN says of a request: when, which endpoint, which file */
ngx_int_t ngx_http_llm_capture_destination(ngx_http_llm_capture_ctx_t *ctx,
    ngx_str_t *uri);

/* the decoded, normalised path the client asked for; empty data: no memory */
ngx_str_t ngx_http_llm_capture_uri(ngx_http_request_t *r);

ngx_http_llm_capture_endpoint_e ngx_http_llm_capture_endpoint(ngx_str_t *uri);


/* src/ngx_http_llm_capture_worker.c */

/* called by init_process and exit_process of the module */
ngx_int_t ngx_http_llm_capture_worker_init(ngx_cycle_t *cycle);
void ngx_http_llm_capture_worker_exit(ngx_cycle_t *cycle);

/* counts a request as seen; refuse() or a BEGIN must follow in the same call */
void ngx_http_llm_capture_seen(ngx_uint_t row);
void ngx_http_llm_capture_refuse(ngx_uint_t row,
    ngx_http_llm_capture_counter_e why);

/* keeps below `sample` of 2^32 */
ngx_uint_t ngx_http_llm_capture_sampled(uint64_t sample);

/* a number that no other request has; never 0 */
uint64_t ngx_http_llm_capture_uid(void);

/* an outcome, at once and whole, or only that there is none to come */
void ngx_http_llm_capture_put_outcome(
    const ngx_http_llm_capture_begin_t *begin, const char *path,
    struct iovec *iov, ngx_uint_t n);

/* is there room for a body of len bytes? */
ngx_uint_t ngx_http_llm_capture_room(size_t len);

/*
 * A piece of the body into the ring, flags: END or 0; the first one begins the
 * record.  NGX_DECLINED: the ring is full; a record that had begun is aborted,
 * one that had not is still to be refused.
 */
ngx_int_t ngx_http_llm_capture_put(ngx_http_llm_capture_record_t *rec,
    struct iovec *iov, ngx_uint_t n, ngx_uint_t flags);
void ngx_http_llm_capture_abort(ngx_http_llm_capture_record_t *rec,
    ngx_http_llm_capture_counter_e why);


/* src/ngx_http_llm_capture_shm.c */

/* adds the zone while parsing, with a name and a size still to come */
ngx_int_t ngx_http_llm_capture_shm_add(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf);

/* init_conf of the core module: sums are checked, name and size are set */
char *ngx_http_llm_capture_shm_size(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf);

/* a row for each destination; by the master, at a real start or reload only */
void ngx_http_llm_capture_shm_templates(ngx_http_llm_capture_main_conf_t *mcf);

/*
 * The path of a row as configured, NGX_HTTP_LLM_CAPTURE_TEXT bytes of it; buf
 * has so many, for one that a reload removed
 */
void ngx_http_llm_capture_row_name(ngx_http_llm_capture_main_conf_t *mcf,
    ngx_uint_t row, ngx_str_t *name, u_char *buf);

/* a line at notice level for each destination that has seen anything */
void ngx_http_llm_capture_shm_report(ngx_log_t *log,
    ngx_http_llm_capture_main_conf_t *mcf);


/* src/ngx_http_llm_capture_dir.c */

/* warns of what the worker's user could not write to; changes nothing */
void ngx_http_llm_capture_shm_check(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf);

/* makes missing directories; by the master, at a real start or reload only */
void ngx_http_llm_capture_shm_directories(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf);

/* src/ngx_http_llm_capture_spawn.c */

/*
 * The core configuration as laid out in the running nginx, NULL if unknown.
 * Only worker_processes, user, group and username may be read through it.
 */
ngx_core_conf_t *ngx_http_llm_capture_core_conf(ngx_cycle_t *cycle);

ngx_int_t ngx_http_llm_capture_init_module(ngx_cycle_t *cycle);

/* asked by a helper with its data: is it of the newest generation? */
ngx_uint_t ngx_http_llm_capture_present(void *data);

/*
 * The memfd of byte locks and the eventfd that wakes the helper; -1: none.
 *
 *     mcf->lock                 the helper that drains the zone
 *     mcf->lock + 1 + ring      the worker that owns the ring
 *     mcf->lock + 1 + nrings    every worker of the zone, together (F_RDLCK):
 *                               while one is alive there is something to come
 *     mcf->lock + 2 + nrings    who changes what control said, meanwhile
 */
extern int  ngx_http_llm_capture_lock_fd;
extern int  ngx_http_llm_capture_wake_fd;

static inline ngx_uint_t
ngx_http_llm_capture_workers_byte(ngx_http_llm_capture_main_conf_t *mcf)
{
    return mcf->lock + 1 + mcf->zone.nrings;
}


static inline ngx_uint_t
ngx_http_llm_capture_control_byte(ngx_http_llm_capture_main_conf_t *mcf)
{
    return mcf->lock + 2 + mcf->zone.nrings;
}


/* src/ngx_http_llm_capture_last.c */

/* what a dead helper left, drained by a last child within the limit */
void ngx_http_llm_capture_exit_master(ngx_cycle_t *cycle);


/* src/ngx_http_llm_capture_helper.c */

void ngx_http_llm_capture_helper_cycle(ngx_cycle_t *cycle, void *data);


/* src/ngx_http_llm_capture_kept.c, the rest of it in _drainer.h */

/* for a process that has nothing to do with old zones, or whose code goes */
void ngx_http_llm_capture_kept_drop(void);


/* src/ngx_http_llm_capture_drainer.c, the rest of it in _drainer.h */

/* init_process of a worker: tells the helper that somebody is there */
ngx_int_t ngx_http_llm_capture_lock_worker(
    ngx_http_llm_capture_main_conf_t *mcf);


/* src/ngx_http_llm_capture_single.c */

/* master_process off: the single process drains by a timer; called by the
 * worker after it published something */
ngx_int_t ngx_http_llm_capture_single_init(ngx_cycle_t *cycle);
void ngx_http_llm_capture_single_wake(void);
void ngx_http_llm_capture_single_exit(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_LLM_CAPTURE_H_INCLUDED_ */
