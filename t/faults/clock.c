
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * A wall clock that is stepped, by LD_PRELOAD: as many seconds are added as a
 * map shared with the test says from call to call.  CLOCK_MONOTONIC stays.
 */

#define _GNU_SOURCE

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>


static volatile long  *step;            /* s */


__attribute__((constructor))
static void
clock_map(void)
{
    int          fd;
    void        *p;
    const char  *path;

    path = getenv("LLM_CAPTURE_CLOCK");
    fd = path ? open(path, O_RDONLY|O_CLOEXEC) : -1;

    if (fd == -1) {
        return;
    }

    p = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    (void) close(fd);

    if (p != MAP_FAILED) {
        step = p;
    }
}


int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int  rc;

    rc = (int) syscall(SYS_clock_gettime, id, ts);

    if (rc == 0 && step && (id == CLOCK_REALTIME
                            || id == CLOCK_REALTIME_COARSE))
    {
        ts->tv_sec += *step;
    }

    return rc;
}


int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    struct timespec  ts;

    (void) tz;
    (void) clock_gettime(CLOCK_REALTIME, &ts);

    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}


time_t
time(time_t *t)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    if (t) {
        *t = ts.tv_sec;
    }

    return ts.tv_sec;
}
