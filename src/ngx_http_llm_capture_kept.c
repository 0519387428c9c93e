
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * Zones that a reload replaced by one of another size, or by none.
 *
 * Workers of before may go on with them for hours, and a helper has to drain
 * them whichever process dies meanwhile.  nginx unmaps such a zone in the
 * master, so the master maps it once more: every helper it forks then drains
 * the old zones as well as its own, and so does the last child of a master.
 *
 * The list is the master's; what it forks inherits it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <sys/mman.h>

#include "ngx_http_llm_capture_drainer.h"


/* ms in which a worker surely has locked its zone */
#define NGX_HTTP_LLM_CAPTURE_START  60000


static void ngx_http_llm_capture_kept_users(ngx_http_llm_capture_kept_t *k);
static void ngx_http_llm_capture_kept_free(ngx_http_llm_capture_kept_t *k);


ngx_http_llm_capture_kept_t  *ngx_http_llm_capture_kept;


void
ngx_http_llm_capture_keep(ngx_http_llm_capture_main_conf_t *mcf,
    ngx_http_llm_capture_main_conf_t *new, ngx_log_t *log)
{
    void                         *addr;
    ngx_shm_t                    *shm;
    ngx_http_llm_capture_kept_t  *k;

    if (new && new->zone.base == mcf->zone.base) {
        return;
    }

    shm = &mcf->shm_zone->shm;

    k = ngx_calloc(sizeof(ngx_http_llm_capture_kept_t), log);
    if (k == NULL) {
        return;
    }

    /* an old size of 0 maps the pages of a shared mapping a second time */

    addr = mremap(shm->addr, 0, shm->size, MREMAP_MAYMOVE);

    if (addr == MAP_FAILED) {
        ngx_log_error(NGX_LOG_WARN, log, ngx_errno,
                      "llm capture: mremap(%uz) failed, an old helper that is "
                      "killed will have no successor", shm->size);
        ngx_free(k);
        return;
    }

    k->addr = addr;
    k->size = shm->size;

    k->mcf.zone = mcf->zone;
    k->mcf.zone.base = (uint8_t *) addr
                       + (mcf->zone.base - (uint8_t *) shm->addr);
    k->mcf.lock = mcf->lock;
    k->mcf.born = mcf->born;
    k->mcf.drain_timeout = mcf->drain_timeout;
    ngx_memcpy(k->mcf.key, mcf->key, NGX_HTTP_LLM_CAPTURE_KEY);
    k->mcf.keyed = mcf->keyed;

    ngx_http_llm_capture_kept_users(k);

    k->next = ngx_http_llm_capture_kept;
    ngx_http_llm_capture_kept = k;
}


/* children of before: a worker may be so new that it has locked nothing yet */

static void
ngx_http_llm_capture_kept_users(ngx_http_llm_capture_kept_t *k)
{
    ngx_int_t       i;
    ngx_process_t  *p;

    k->until = ngx_http_llm_capture_now() + NGX_HTTP_LLM_CAPTURE_START;

    for (i = 0; i < ngx_last_process; i++) {
        p = &ngx_processes[i];

        if (p->pid != -1
            && !p->detached
            && p->proc != ngx_http_llm_capture_helper_cycle)
        {
            k->users[k->nusers++] = p->pid;
        }
    }
}


void
ngx_http_llm_capture_kept_sweep(void)
{
    ngx_http_llm_capture_kept_t  *k, **prev;

    prev = &ngx_http_llm_capture_kept;

    while ((k = *prev) != NULL) {

        if (ngx_http_llm_capture_kept_live(k)
            || ngx_http_llm_capture_drainer_due(&k->mcf))
        {
            prev = &k->next;
            continue;
        }

        *prev = k->next;
        ngx_http_llm_capture_kept_free(k);
    }
}


void
ngx_http_llm_capture_kept_drop(void)
{
    ngx_http_llm_capture_kept_t  *k;

    while ((k = ngx_http_llm_capture_kept) != NULL) {
        ngx_http_llm_capture_kept = k->next;
        ngx_http_llm_capture_kept_free(k);
    }
}


static void
ngx_http_llm_capture_kept_free(ngx_http_llm_capture_kept_t *k)
{
    (void) munmap(k->addr, k->size);
    ngx_free(k);
}


ngx_uint_t
ngx_http_llm_capture_kept_live(ngx_http_llm_capture_kept_t *k)
{
    /* later such a number may be that of a stranger, whom we wait for */

    if (ngx_http_llm_capture_now() >= k->until) {
        k->nusers = 0;
    }

    while (k->nusers) {

        if (kill(k->users[k->nusers - 1], 0) == 0 || ngx_errno != NGX_ESRCH) {
            return 1;
        }

        k->nusers--;
    }

    return ngx_http_llm_capture_byte_locked(
                                   ngx_http_llm_capture_workers_byte(&k->mcf));
}
