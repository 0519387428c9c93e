
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The shared zone as nginx's shared memory: how large it must be, what it is
 * called, how it is taken over by a reload, and what is read from it.
 *
 * The name of the zone carries its geometry, so that another number of workers
 * or another size gets new memory, and the old one is drained until its last
 * worker is gone.  What a process knows of the zone is kept in its own memory
 * and handed from cycle to cycle there, never read back from the zone: every
 * worker can write to that.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <sys/random.h>

#include "ngx_http_llm_capture.h"
#include "ngx_http_llm_capture_args.h"


/* rings beyond two for each worker: reloads under long answers, one a minute */
#define NGX_HTTP_LLM_CAPTURE_SPARE       14

/* bytes a ring has beyond the largest request: frames and paths */
#define NGX_HTTP_LLM_CAPTURE_MARGIN      (64 * 1024)
#define NGX_HTTP_LLM_CAPTURE_AUTO_MARGIN (256 * 1024)
#define NGX_HTTP_LLM_CAPTURE_AUTO        (256 * 1024 * 1024)

/* bytes of the lock file for one zone, beyond any number of rings */
#define NGX_HTTP_LLM_CAPTURE_LOCKS       65536

/* "unmatched 18446744073709551615 + " for each counter, and the zone */
#define NGX_HTTP_LLM_CAPTURE_REPORT                                           \
    (NGX_HTTP_LLM_CAPTURE_C_max * (NGX_INT64_LEN + 32) + 64)


static ngx_int_t ngx_http_llm_capture_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static uint64_t ngx_http_llm_capture_born(void);
static uint64_t ngx_http_llm_capture_id(uint64_t born);
static ngx_int_t ngx_http_llm_capture_queue(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_uint_t workers,
    uint64_t *queue);
static u_char *ngx_http_llm_capture_row_answers(u_char *p, u_char *last,
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max]);
static void ngx_http_llm_capture_row_report(ngx_log_t *log, ngx_str_t *name,
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max], uint64_t born);


ngx_int_t
ngx_http_llm_capture_shm_add(ngx_conf_t *cf,
    ngx_http_llm_capture_main_conf_t *mcf)
{
    ngx_str_t  name = ngx_string("llm_capture");

    /* worker_processes may still follow: name and size are set by init_conf */

    mcf->shm_zone = ngx_shared_memory_add(cf, &name, 0,
                                          &ngx_http_llm_capture_module);

    if (mcf->shm_zone == NULL) {
        return NGX_ERROR;
    }

    mcf->shm_zone->init = ngx_http_llm_capture_init_zone;
    mcf->shm_zone->data = mcf;

    return NGX_OK;
}


char *
ngx_http_llm_capture_shm_size(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf)
{
    size_t            pages;
    uint64_t          queue;
    ngx_shm_t        *shm;
    ngx_uint_t        nrings;
    ngx_core_conf_t  *ccf;

    ccf = ngx_http_llm_capture_core_conf(cycle);

    if (ccf == NULL) {
        /* refused by the directive already */
        return NGX_CONF_ERROR;
    }

    if (ngx_http_llm_capture_queue(cycle, mcf, ccf->worker_processes, &queue)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    nrings = 2 * ccf->worker_processes + NGX_HTTP_LLM_CAPTURE_SPARE;

    if (queue > NGX_MAX_SIZE_T_VALUE / 2
        || ngx_http_llm_capture_zone_layout(&mcf->zone, (uint32_t) nrings,
                                            queue, ngx_pagesize)
           != 0)
    {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                      "llm capture: a queue of %uL bytes in %ui rings is "
                      "impossible on this system", queue, nrings);
        return NGX_CONF_ERROR;
    }

    shm = &mcf->shm_zone->shm;

    shm->name.data = ngx_pnalloc(cycle->pool, sizeof("llm_capture_v__x")
                                              + 2 * NGX_INT32_LEN
                                              + NGX_INT64_LEN);

    if (shm->name.data == NULL) {
        return NGX_CONF_ERROR;
    }

    shm->name.len = ngx_sprintf(shm->name.data, "llm_capture_v%d_%uix%uz",
                                NGX_HTTP_LLM_CAPTURE_LAYOUT, nrings,
                                mcf->zone.ring_size)
                    - shm->name.data;

    /*
     * nginx lays the tables of its slab allocator out in front, one entry for
     * a page; nobody allocates from it.  The tables begin and the memory behind
     * them begins within a page each.
     */

    pages = mcf->zone.size / ngx_pagesize + 8;

    shm->size = mcf->zone.size + pages * sizeof(ngx_slab_page_t)
                + 8 * ngx_pagesize;

    ngx_http_llm_capture_shm_check(cycle, mcf);

    return NGX_CONF_OK;
}


/* bytes of all rings together */

static ngx_int_t
ngx_http_llm_capture_queue(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_uint_t workers,
    uint64_t *queue)
{
    uint64_t    least;
    ngx_uint_t  nrings;

    nrings = 2 * workers + NGX_HTTP_LLM_CAPTURE_SPARE;

    *queue = mcf->max_queue;

    if (*queue == NGX_HTTP_LLM_CAPTURE_QUEUE_UNSET) {
        *queue = mcf->args_queue;
    }

    if (*queue == 0) {
        *queue = (uint64_t) nrings
                 * (mcf->largest + NGX_HTTP_LLM_CAPTURE_AUTO_MARGIN);
        *queue = ngx_max(*queue, NGX_HTTP_LLM_CAPTURE_AUTO);
        return NGX_OK;
    }

    least = (uint64_t) nrings
            * ngx_align(mcf->largest + NGX_HTTP_LLM_CAPTURE_MARGIN,
                        ngx_pagesize);

    if (*queue >= least) {
        return NGX_OK;
    }

    if (mcf->max_queue == NGX_HTTP_LLM_CAPTURE_QUEUE_UNSET) {

        /* nothing in NIM's object is an error */

        ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                      "llm capture: \"max_queue_bytes\" of %uL bytes cannot "
                      "hold a request of %uz bytes (the largest "
                      "\"max_request_bytes\") and 64k in each of the %ui rings "
                      "for %ui worker processes; %uL is used",
                      *queue, mcf->largest, nrings, workers, least);
        *queue = least;
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                  "\"llm_capture_max_queue_bytes\" of %uL bytes is too small: "
                  "each of the %ui rings for %ui worker processes must hold "
                  "the largest \"llm_capture_max_request_bytes\", %uz, and "
                  "64k; it must be \"auto\" or at least %uL in %s:%ui",
                  *queue, nrings, workers, mcf->largest, least, mcf->file,
                  mcf->line);

    return NGX_ERROR;
}


/*
 * Runs under "nginx -t" and for cycles that fail afterwards: what is in use by
 * the cycle before is not touched
 */

static ngx_int_t
ngx_http_llm_capture_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_llm_capture_main_conf_t *omcf = data;

    u_char                            *start;
    ngx_slab_pool_t                   *sp;
    ngx_http_llm_capture_main_conf_t  *mcf;

    /* of the master: a number is never given to a second zone */
    static ngx_uint_t  locks;

    mcf = shm_zone->data;

    if (omcf) {
        mcf->zone = omcf->zone;
        mcf->lock = omcf->lock;
        mcf->born = omcf->born;
        return NGX_OK;
    }

    sp = (ngx_slab_pool_t *) shm_zone->shm.addr;
    start = ngx_align_ptr(sp->start, ngx_pagesize);

    if ((size_t) (sp->end - start) < mcf->zone.size) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "llm capture: the zone \"%V\" has %uz bytes of %uz",
                      &shm_zone->shm.name, (size_t) (sp->end - start),
                      mcf->zone.size);
        return NGX_ERROR;
    }

    /* prompts; what is told here holds in every process that inherits it */

    if (madvise(shm_zone->shm.addr, shm_zone->shm.size, MADV_DONTDUMP) == -1) {
        ngx_log_error(NGX_LOG_WARN, shm_zone->shm.log, ngx_errno,
                      "llm capture: madvise(MADV_DONTDUMP) failed, a core file "
                      "of a worker process will hold what is queued");
    }

    mcf->zone.base = start;
    mcf->born = ngx_http_llm_capture_born();

    ngx_http_llm_capture_zone_format(&mcf->zone,
                                     ngx_http_llm_capture_id(mcf->born));
    mcf->lock = locks;
    locks += NGX_HTTP_LLM_CAPTURE_LOCKS;

    return NGX_OK;
}


/*
 * By the clock and not by a counter: another copy of this file in the same
 * master would count for itself
 */

static uint64_t
ngx_http_llm_capture_born(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}


/* over reboots and machines as well: they may share a file and its manifest */

static uint64_t
ngx_http_llm_capture_id(uint64_t born)
{
    uint64_t  id;

    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) == sizeof(id) && id) {
        return id;
    }

    return ((uint64_t) ngx_time() << 32) ^ born;
}


void
ngx_http_llm_capture_shm_templates(ngx_http_llm_capture_main_conf_t *mcf)
{
    ngx_uint_t                         i;
    ngx_http_llm_capture_loc_conf_t  **lcfp;

    lcfp = mcf->destinations.elts;

    for (i = 0; i < mcf->destinations.nelts; i++) {
        lcfp[i]->row = ngx_http_llm_capture_zone_template(&mcf->zone,
                                               (char *) lcfp[i]->path.data,
                                               lcfp[i]->path.len,
                                               (uint32_t) lcfp[i]->format);
    }
}


void
ngx_http_llm_capture_shm_report(ngx_log_t *log,
    ngx_http_llm_capture_main_conf_t *mcf)
{
    u_char      buf[NGX_HTTP_LLM_CAPTURE_TEXT];
    uint64_t    sum[NGX_HTTP_LLM_CAPTURE_C_max];
    ngx_str_t   name;
    ngx_uint_t  row;

    for (row = 0; row < NGX_HTTP_LLM_CAPTURE_ROWS; row++) {

        ngx_http_llm_capture_zone_sum(&mcf->zone, (uint32_t) row, sum);

        if (sum[NGX_HTTP_LLM_CAPTURE_C_seen] == 0) {
            continue;
        }

        ngx_http_llm_capture_row_name(mcf, row, &name, buf);
        ngx_http_llm_capture_row_report(log, &name, sum, mcf->born);
    }
}


/* the text in the zone may be anything by now: ours comes first */

void
ngx_http_llm_capture_row_name(ngx_http_llm_capture_main_conf_t *mcf,
    ngx_uint_t row, ngx_str_t *name, u_char *buf)
{
    uint32_t                           len;
    ngx_uint_t                         i;
    ngx_http_llm_capture_template_t   *t;
    ngx_http_llm_capture_loc_conf_t  **lcfp;

    if (row == NGX_HTTP_LLM_CAPTURE_TEMPLATES) {
        ngx_str_set(name, "other paths");
        return;
    }

    lcfp = mcf->destinations.elts;

    for (i = 0; i < mcf->destinations.nelts; i++) {
        if (lcfp[i]->row == row) {
            name->data = lcfp[i]->path.data;
            name->len = ngx_min(lcfp[i]->path.len, NGX_HTTP_LLM_CAPTURE_TEXT);
            return;
        }
    }

    /* removed by a reload */

    t = &ngx_http_llm_capture_zone_hdr(&mcf->zone)->templates[row];

    len = *(volatile uint32_t *) &t->len;

    name->data = buf;
    name->len = ngx_min(len, NGX_HTTP_LLM_CAPTURE_TEXT);

    for (i = 0; i < name->len; i++) {
        buf[i] = (u_char) t->text[i];

        if (buf[i] < 0x20 || buf[i] == 0x7f || buf[i] == '"') {
            buf[i] = '?';
        }
    }
}


/* a sum of its own: answers = outcomes + each reason + those to come */

static u_char *
ngx_http_llm_capture_row_answers(u_char *p, u_char *last,
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max])
{
    uint64_t    left;
    ngx_uint_t  c;

    left = sum[NGX_HTTP_LLM_CAPTURE_C_answers];
    p = ngx_slprintf(p, last, ", answers %uL = ", left);

    for (c = NGX_HTTP_LLM_CAPTURE_C_answers + 1;
         c < NGX_HTTP_LLM_CAPTURE_C_max;
         c++)
    {
        p = ngx_slprintf(p, last, "%s %uL + ",
                         ngx_http_llm_capture_counter_names[c], sum[c]);
        left -= ngx_min(left, sum[c]);
    }

    return ngx_slprintf(p, last, "to come %uL", left);
}


static void
ngx_http_llm_capture_row_report(ngx_log_t *log, ngx_str_t *name,
    const uint64_t sum[NGX_HTTP_LLM_CAPTURE_C_max], uint64_t born)
{
    u_char      buf[NGX_HTTP_LLM_CAPTURE_REPORT], *p, *last;
    ngx_uint_t  c;

    p = buf;
    last = buf + sizeof(buf);

    for (c = NGX_HTTP_LLM_CAPTURE_C_seen + 1;
         c <= NGX_HTTP_LLM_CAPTURE_C_last;
         c++)
    {
        p = ngx_slprintf(p, last, "%s %uL + ",
                         ngx_http_llm_capture_counter_names[c], sum[c]);
    }

    p = ngx_slprintf(p, last, "pending %uL",
                     ngx_http_llm_capture_zone_pending(sum));

    for ( /* void */ ; c < NGX_HTTP_LLM_CAPTURE_C_answers; c++) {
        p = ngx_slprintf(p, last, ", %s %uL",
                         ngx_http_llm_capture_counter_names[c], sum[c]);
    }

    if (sum[NGX_HTTP_LLM_CAPTURE_C_answers]) {
        p = ngx_http_llm_capture_row_answers(p, last, sum);
    }

    /* a reload that resizes the queue begins to count anew */

    p = ngx_slprintf(p, last, ", zone %uL", born);

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "llm capture: \"%V\" seen %uL = %*s", name,
                  sum[NGX_HTTP_LLM_CAPTURE_C_seen], (size_t) (p - buf), buf);
}
