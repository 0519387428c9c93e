
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The directories of the capture files.  What the worker's user could not write
 * to is a warning, never an error: serving comes first, and it can be mended
 * while nginx runs.
 *
 * A missing directory is made at a real start, as root, so only where nobody
 * but root can put a link in the way.  One that exists is left as it is.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <grp.h>

#include "ngx_http_llm_capture.h"


#define NGX_HTTP_LLM_CAPTURE_GROUPS  256


/* whom the helper becomes */

typedef struct {
    uid_t   uid;
    gid_t   gid;
    gid_t   groups[NGX_HTTP_LLM_CAPTURE_GROUPS];
    int     ngroups;
} ngx_http_llm_capture_user_t;


typedef struct {
    ngx_log_t                    *log;
    ngx_http_llm_capture_user_t   user;
    /* without the last slash; its bytes are cut for a while to visit parents */
    char                          dir[NGX_HTTP_LLM_CAPTURE_PATH];
} ngx_http_llm_capture_dir_t;


typedef void (*ngx_http_llm_capture_dir_pt)(ngx_http_llm_capture_dir_t *d,
    ngx_http_llm_capture_loc_conf_t *lcf);


static void ngx_http_llm_capture_each_path(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_http_llm_capture_dir_pt visit);
static ngx_int_t ngx_http_llm_capture_user(ngx_cycle_t *cycle,
    ngx_http_llm_capture_user_t *user);
static ngx_uint_t ngx_http_llm_capture_may(ngx_http_llm_capture_user_t *user,
    struct stat *st, mode_t want);
static void ngx_http_llm_capture_dir_check(ngx_http_llm_capture_dir_t *d,
    ngx_http_llm_capture_loc_conf_t *lcf);
static ngx_int_t ngx_http_llm_capture_dir_search(
    ngx_http_llm_capture_dir_t *d);
static void ngx_http_llm_capture_dir_missing(ngx_http_llm_capture_dir_t *d);
static void ngx_http_llm_capture_file_check(ngx_http_llm_capture_dir_t *d,
    ngx_http_llm_capture_loc_conf_t *lcf);
static ngx_int_t ngx_http_llm_capture_dir_safe(ngx_http_llm_capture_dir_t *d,
    char *unsafe);
static void ngx_http_llm_capture_dir_make(ngx_http_llm_capture_dir_t *d,
    ngx_http_llm_capture_loc_conf_t *lcf);
static ngx_int_t ngx_http_llm_capture_mkdirs(ngx_http_llm_capture_dir_t *d);


void
ngx_http_llm_capture_shm_check(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf)
{
    if (ngx_process == NGX_PROCESS_SIGNALLER) {
        /* the master it signals will say the same */
        return;
    }

    ngx_http_llm_capture_each_path(cycle, mcf, ngx_http_llm_capture_dir_check);
}


void
ngx_http_llm_capture_shm_directories(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf)
{
    ngx_http_llm_capture_each_path(cycle, mcf, ngx_http_llm_capture_dir_make);
}


/* each path once, however many locations share it */

static void
ngx_http_llm_capture_each_path(ngx_cycle_t *cycle,
    ngx_http_llm_capture_main_conf_t *mcf, ngx_http_llm_capture_dir_pt visit)
{
    ngx_str_t                          *path, *seen;
    ngx_uint_t                          i, n;
    ngx_array_t                         paths;
    ngx_http_llm_capture_dir_t          d;
    ngx_http_llm_capture_loc_conf_t   **lcfp;

    d.log = cycle->log;

    if (ngx_http_llm_capture_user(cycle, &d.user) != NGX_OK
        || ngx_array_init(&paths, cycle->pool, 4, sizeof(ngx_str_t)) != NGX_OK)
    {
        return;
    }

    lcfp = mcf->destinations.elts;

    for (i = 0; i < mcf->destinations.nelts; i++) {

        path = &lcfp[i]->path;
        seen = paths.elts;

        for (n = 0; n < paths.nelts; n++) {
            if (path->len == seen[n].len
                && (path->data == seen[n].data
                    || ngx_memcmp(path->data, seen[n].data, path->len) == 0))
            {
                break;
            }
        }

        if (n < paths.nelts) {
            continue;
        }

        seen = ngx_array_push(&paths);

        if (seen == NULL) {
            return;
        }

        *seen = *path;

        /* base_len may be unset for a path out of NIM's args */

        for (n = path->len; path->data[n - 1] != '/'; n--) { /* void */ }

        n = ngx_max(n - 1, 1);

        ngx_memcpy(d.dir, path->data, n);
        d.dir[n] = '\0';

        visit(&d, lcfp[i]);
    }
}


static ngx_int_t
ngx_http_llm_capture_user(ngx_cycle_t *cycle, ngx_http_llm_capture_user_t *user)
{
    ngx_core_conf_t  *ccf;

    user->ngroups = NGX_HTTP_LLM_CAPTURE_GROUPS;

    if (geteuid() != 0) {
        user->uid = geteuid();
        user->gid = getegid();
        user->ngroups = getgroups(user->ngroups, user->groups);
        return NGX_OK;
    }

    ccf = ngx_http_llm_capture_core_conf(cycle);

    if (ccf == NULL) {
        return NGX_ERROR;
    }

    user->uid = ccf->user;
    user->gid = ccf->group;

    if (ccf->username == NULL
        || getgrouplist(ccf->username, ccf->group, user->groups,
                        &user->ngroups)
           == -1)
    {
        user->ngroups = 0;
    }

    return NGX_OK;
}


/* want: of 04, 02 and 01, as the kernel would decide without lists of access */

static ngx_uint_t
ngx_http_llm_capture_may(ngx_http_llm_capture_user_t *user, struct stat *st,
    mode_t want)
{
    int  i;

    if (user->uid == 0) {
        return 1;
    }

    if (st->st_uid == user->uid) {
        return (st->st_mode >> 6 & want) == want;
    }

    if (st->st_gid == user->gid) {
        return (st->st_mode >> 3 & want) == want;
    }

    for (i = 0; i < user->ngroups; i++) {
        if (st->st_gid == user->groups[i]) {
            return (st->st_mode >> 3 & want) == want;
        }
    }

    return (st->st_mode & want) == want;
}


static void
ngx_http_llm_capture_dir_check(ngx_http_llm_capture_dir_t *d,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    struct stat  st;

    if (ngx_http_llm_capture_dir_search(d) != NGX_OK) {
        return;
    }

    if (stat(d->dir, &st) == -1) {

        if (ngx_errno == NGX_ENOENT) {
            ngx_http_llm_capture_dir_missing(d);
            return;
        }

        ngx_log_error(NGX_LOG_WARN, d->log, ngx_errno,
                      "llm capture: directory \"%s\" cannot be used", d->dir);
        return;
    }

    if (!S_ISDIR(st.st_mode)) {
        ngx_log_error(NGX_LOG_WARN, d->log, 0,
                      "llm capture: \"%s\" is not a directory", d->dir);
        return;
    }

    if (!ngx_http_llm_capture_may(&d->user, &st, 03)) {
        ngx_log_error(NGX_LOG_WARN, d->log, 0,
                      "llm capture: directory \"%s\" is not writable by the "
                      "user of the worker processes (uid %d)",
                      d->dir, (int) d->user.uid);
        return;
    }

    if (lcf->parts == NULL) {
        ngx_http_llm_capture_file_check(d, lcf);
    }
}


/* are the directories above open to the user? */

static ngx_int_t
ngx_http_llm_capture_dir_search(ngx_http_llm_capture_dir_t *d)
{
    int          rc;
    char        *p;
    struct stat  st;

    for (p = d->dir + 1; *p; p++) {

        if (*p != '/') {
            continue;
        }

        *p = '\0';

        rc = stat(d->dir, &st);

        if (rc == 0 && S_ISDIR(st.st_mode)
            && !ngx_http_llm_capture_may(&d->user, &st, 01))
        {
            ngx_log_error(NGX_LOG_WARN, d->log, 0,
                          "llm capture: directory \"%s\" is closed to the user "
                          "of the worker processes (uid %d)",
                          d->dir, (int) d->user.uid);
            *p = '/';
            return NGX_DECLINED;
        }

        *p = '/';

        if (rc == -1) {
            /* the same error comes for the whole of it */
            break;
        }
    }

    return NGX_OK;
}


static void
ngx_http_llm_capture_dir_missing(ngx_http_llm_capture_dir_t *d)
{
    char  unsafe[NGX_HTTP_LLM_CAPTURE_PATH];

    if (ngx_http_llm_capture_dir_safe(d, unsafe) == NGX_OK) {

        if (ngx_test_config) {
            ngx_log_error(NGX_LOG_NOTICE, d->log, 0,
                          "llm capture: directory \"%s\" is missing, it will "
                          "be made when nginx starts", d->dir);
        }

        return;
    }

    ngx_log_error(NGX_LOG_WARN, d->log, 0,
                  "llm capture: directory \"%s\" is missing, and will not be "
                  "made by nginx, as \"%s\" is not root's alone",
                  d->dir, unsafe);
}


static void
ngx_http_llm_capture_file_check(ngx_http_llm_capture_dir_t *d,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    struct stat   st;
    const char   *what;

    if (lstat((char *) lcf->path.data, &st) == -1) {

        if (ngx_errno != NGX_ENOENT) {
            ngx_log_error(NGX_LOG_WARN, d->log, ngx_errno,
                          "llm capture: \"%V\" cannot be used", &lcf->path);
        }

        return;
    }

    switch (st.st_mode & S_IFMT) {

    case S_IFREG:

        if (ngx_http_llm_capture_may(&d->user, &st, 06)) {
            return;
        }

        what = "not open to the user of the worker processes";
        break;

    case S_IFDIR:
        what = "a directory";
        break;

    case S_IFLNK:
        what = "a symbolic link, which is not followed";
        break;

    case S_IFIFO:
        what = "a fifo";
        break;

    default:
        what = "not a regular file";
        break;
    }

    ngx_log_error(NGX_LOG_WARN, d->log, 0,
                  "llm capture: \"%V\" is %s: nothing is captured to it",
                  &lcf->path, what);
}


/*
 * NGX_OK if nobody but root could change what a path below the directory means;
 * else unsafe is the first one in which somebody could.  Asked by one who is
 * not root it is enough that he may write there.
 */

static ngx_int_t
ngx_http_llm_capture_dir_safe(ngx_http_llm_capture_dir_t *d, char *unsafe)
{
    char         *p, real[PATH_MAX], dir[NGX_HTTP_LLM_CAPTURE_PATH];
    struct stat   st;

    (void) ngx_cpystrn((u_char *) dir, (u_char *) d->dir, sizeof(dir));

    /* the deepest one that exists, without links */

    while (realpath(dir, real) == NULL) {
        p = strrchr(dir, '/');

        if (p == NULL || dir[1] == '\0') {
            return NGX_DECLINED;
        }

        *(p == dir ? p + 1 : p) = '\0';
    }

    (void) ngx_cpystrn((u_char *) unsafe, (u_char *) real,
                       NGX_HTTP_LLM_CAPTURE_PATH);

    if (geteuid() != 0) {
        return access(real, W_OK|X_OK) == 0 ? NGX_OK : NGX_DECLINED;
    }

    for ( ;; ) {

        if (lstat(real, &st) == -1 || !S_ISDIR(st.st_mode) || st.st_uid != 0
            || (st.st_mode & (S_IWGRP|S_IWOTH)))
        {
            (void) ngx_cpystrn((u_char *) unsafe, (u_char *) real,
                               NGX_HTTP_LLM_CAPTURE_PATH);
            return NGX_DECLINED;
        }

        if (real[1] == '\0') {
            return NGX_OK;
        }

        p = strrchr(real, '/');
        *(p == real ? p + 1 : p) = '\0';
    }
}


static void
ngx_http_llm_capture_dir_make(ngx_http_llm_capture_dir_t *d,
    ngx_http_llm_capture_loc_conf_t *lcf)
{
    char         unsafe[NGX_HTTP_LLM_CAPTURE_PATH];
    struct stat  st;

    if (stat(d->dir, &st) == 0 || ngx_errno != NGX_ENOENT) {
        /* what is wrong with it has been said by the check */
        return;
    }

    if (ngx_http_llm_capture_dir_safe(d, unsafe) != NGX_OK) {
        return;
    }

    if (ngx_http_llm_capture_mkdirs(d) != NGX_OK) {
        ngx_log_error(NGX_LOG_WARN, d->log, ngx_errno,
                      "llm capture: directory \"%s\" could not be made",
                      d->dir);
    }
}


/* those above are root's and open to be passed, the last one is the worker's */

static ngx_int_t
ngx_http_llm_capture_mkdirs(ngx_http_llm_capture_dir_t *d)
{
    int    rc;
    char  *p;

    for (p = d->dir + 1; *p; p++) {

        if (*p != '/' || p[-1] == '/') {
            continue;
        }

        *p = '\0';

        rc = mkdir(d->dir, 0755);

        if (rc == 0) {
            /* whatever the umask */
            rc = chmod(d->dir, 0755);

        } else if (ngx_errno == NGX_EEXIST) {
            rc = 0;
        }

        *p = '/';

        if (rc == -1) {
            return NGX_ERROR;
        }
    }

    if (mkdir(d->dir, 0700) == -1 || chmod(d->dir, 0700) == -1) {
        return NGX_ERROR;
    }

    if (geteuid() == 0
        && lchown(d->dir, d->user.uid, d->user.gid) == -1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}
