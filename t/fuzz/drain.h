
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * The shipped drain loop and writer over a zone of the test's, in a directory
 * of its own below TMPDIR.  The check macros of cmocka abort.
 */

#ifndef _FUZZ_DRAIN_H_INCLUDED_
#define _FUZZ_DRAIN_H_INCLUDED_


#include "fuzz.h"
#include "truth.h"

#include <dirent.h>


static inline int
inside(const char *name)
{
    size_t  n;

    n = strlen(dir);

    return strncmp(name, dir, n) == 0 && name[n] == '/'
           && strchr(name + n + 1, '/') == NULL;
}


/* a name out of the zone may be any: it is tried, but not here */

static inline int
fuzz_open(const char *name, int flags, mode_t mode)
{
    if (!inside(name) && strncmp(name, "/proc/sys/", 10) != 0) {
        must((flags & O_NOFOLLOW) && name[0] == '/');
        errno = EACCES;
        return -1;
    }

    return zone_open(name, flags, mode);
}


static inline int
fuzz_rename(const char *from, const char *to)
{
    must(inside(from) && inside(to));

    return rename(from, to);
}


static inline int
fuzz_unlink(const char *name)
{
    must(inside(name));

    return unlink(name);
}


static inline writer_t *
fuzz_writer(void)
{
    static ngx_http_llm_capture_sys_t    sys;
    ngx_http_llm_capture_writer_conf_t   conf;

    sys = *zone_sys();
    sys.open = fuzz_open;
    sys.rename = fuzz_rename;
    sys.unlink = fuzz_unlink;

    memset(&conf, 0, sizeof(conf));
    conf.log = line_log;
    conf.sys = &sys;
    conf.boot = BOOT;

    return ngx_http_llm_capture_writer_create(&conf);
}


static void
fuzz_dir_gone(void)
{
    (void) nftw(dir, remove_one, 16, FTW_DEPTH|FTW_PHYS);
}


static inline void
fuzz_dir(void)
{
    const char  *tmp;

    setenv("CMOCKA_TEST_ABORT", "1", 1);
    reset_faults();

    tmp = getenv("TMPDIR");
    must(snprintf(dir, sizeof(dir), "%s/llm-capture-fuzz.XXXXXX",
                  tmp ? tmp : "/tmp") < (int) sizeof(dir));
    must(mkdtemp(dir) != NULL);

    snprintf(path, sizeof(path), "%s/a.jsonl", dir);
    atexit(fuzz_dir_gone);
}


static inline void
fuzz_dir_empty(void)
{
    DIR            *d;
    struct dirent  *de;

    d = opendir(dir);
    must(d != NULL);

    while ((de = readdir(d)) != NULL) {
        if (de->d_name[0] != '.') {
            must(unlinkat(dirfd(d), de->d_name, 0) == 0);
        }
    }

    closedir(d);
}


#endif /* _FUZZ_DRAIN_H_INCLUDED_ */
